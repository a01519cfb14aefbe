//! Threads.

use std::cell::Cell;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use heddle::{Builder, Mode, Options, Priority, SpawnError, StartError, spawn};

super::tests![
    result_and_panic,
    names_and_stacks,
    builders_written_for_std,
    priorities,
    what_cannot_be,
    a_second_start,
    kinds_of_threads,
    kernel_threads_make_kernel_threads,
    park_and_unpark,
    sleep_and_yield,
    thread_locals_are_its_own,
    blocking_calls_leave_the_worker,
    many_threads,
    stacks_that_change_hands,
    threads_in_the_child_of_a_fork,
];

fn result_and_panic() {
    assert_eq!(spawn(|| 6 * 7).join().unwrap(), 42);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let panic = spawn(|| panic!("torn")).join();
    std::panic::set_hook(hook);
    assert_eq!(*panic.unwrap_err().downcast_ref::<&str>().unwrap(), "torn");
}

fn names_and_stacks() {
    let thread =
        Builder::new().name("warp".into()).stack_size(64 * 1024).spawn(|| heddle::current().name().map(str::to_owned));
    assert_eq!(thread.unwrap().join().unwrap().unwrap(), "warp");
}

/// `"warp".into()` once was ambiguous, and `?` had no error to become.
fn builders_written_for_std() {
    fn named() -> std::io::Result<Option<String>> {
        let name = || std::thread::current().name().map(str::to_owned);
        Ok(Builder::new().name("warp".into()).stack_size(1 << 20).spawn(name)?.join().unwrap())
    }
    assert_eq!(named().unwrap().unwrap(), "warp");
    let refused = std::io::Error::from(Builder::new().stack_size(1).spawn(|| ()).unwrap_err());
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
}

fn nice() -> i32 {
    // SAFETY: touches no memory.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

fn priorities() {
    let ours = nice();
    for mode in modes() {
        let builder = Builder::new().mode(mode).priority(Priority::LOWEST);
        let thread = builder.spawn(|| (nice(), std::thread::spawn(nice).join().unwrap())).unwrap();
        assert_eq!(thread.join().unwrap(), (19, 19));
        // With the privilege or without it.
        match Builder::new().mode(mode).priority(Priority::HIGH).spawn(nice) {
            Ok(thread) => assert_eq!(thread.join().unwrap(), -10),
            Err(SpawnError::Priority(Priority::HIGH, why)) => {
                assert!(matches!(why.raw_os_error(), Some(libc::EACCES | libc::EPERM)), "{why}");
            }
            Err(why) => panic!("{why}"),
        }
        assert_eq!(Builder::new().mode(mode).spawn(nice).unwrap().join().unwrap(), ours);
    }
    assert_eq!(nice(), ours);
    assert_eq!((Priority::from_nice(-21), Priority::from_nice(20)), (None, None));
    assert_eq!(Priority::from_nice(-20).unwrap().nice(), -20);
}

fn what_cannot_be() {
    assert!(matches!(Builder::new().stack_size(1000).spawn(|| ()), Err(SpawnError::Stack(1000))));
    assert!(matches!(Builder::new().name("a\0b".into()).spawn(|| ()), Err(SpawnError::Name(_))));
    if heddle::mode() == Mode::Kernel {
        assert!(matches!(Builder::new().mode(Mode::User).spawn(|| ()), Err(SpawnError::NoUserThreads)));
    }
}

fn a_second_start() {
    assert_eq!(heddle::start(Options::new()), Err(StartError::AlreadyStarted));
}

fn modes() -> Vec<Mode> {
    if heddle::mode() == Mode::User { vec![Mode::User, Mode::Kernel] } else { vec![Mode::Kernel] }
}

fn kinds_of_threads() {
    for first in modes() {
        for second in modes() {
            let thread = Builder::new().mode(first).spawn(move || {
                assert_eq!(heddle::current_mode(), first);
                let thread = Builder::new().mode(second).spawn(heddle::current_mode).unwrap();
                assert_eq!(thread.join().unwrap(), second);
                // Where no mode is named it is the process's, whatever the caller is.
                assert_eq!(spawn(heddle::current_mode).join().unwrap(), heddle::mode());
            });
            thread.unwrap().join().unwrap();
        }
    }
}

/// `std`'s own: a kernel thread's threads are kernel threads, and they join each other.
fn kernel_threads_make_kernel_threads() {
    let thread = Builder::new().mode(Mode::Kernel).spawn(|| {
        for _ in 0..20 {
            let threads: Vec<_> = (0..4).map(|i| std::thread::spawn(move || (heddle::current_mode(), i))).collect();
            for (i, thread) in threads.into_iter().enumerate() {
                assert_eq!(thread.join().unwrap(), (Mode::Kernel, i));
            }
        }
    });
    thread.unwrap().join().unwrap();
}

fn park_and_unpark() {
    for mode in modes() {
        let go = Arc::new(AtomicBool::new(false));
        let thread = {
            let go = go.clone();
            Builder::new().mode(mode).spawn(move || {
                while !go.load(Ordering::Acquire) {
                    heddle::park();
                }
            })
        };
        let thread = thread.unwrap();
        go.store(true, Ordering::Release);
        thread.thread().unpark();
        thread.join().unwrap();
    }
    let start = Instant::now();
    heddle::current().unpark();
    heddle::park(); // at once
    heddle::park_timeout(Duration::from_millis(5));
    assert!(start.elapsed() < Duration::from_secs(30));
}

fn sleep_and_yield() {
    let start = Instant::now();
    let threads: Vec<_> = (0..50).map(|_| spawn(|| heddle::sleep(Duration::from_millis(20)))).collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(start.elapsed() >= Duration::from_millis(20));
    // Each needs the other to run.
    let turn = Arc::new(AtomicBool::new(false));
    let other = turn.clone();
    let thread = spawn(move || {
        for _ in 0..100 {
            while !other.swap(false, Ordering::AcqRel) {
                heddle::yield_now();
            }
        }
    });
    for _ in 0..100 {
        turn.store(true, Ordering::Release);
        while turn.load(Ordering::Acquire) {
            heddle::yield_now();
        }
    }
    thread.join().unwrap();
}

fn thread_locals_are_its_own() {
    thread_local!(static NUMBER: Cell<u32> = const { Cell::new(0) });
    let threads: Vec<_> = (1..50)
        .map(|i| {
            spawn(move || {
                NUMBER.set(i);
                for _ in 0..20 {
                    heddle::yield_now();
                    assert_eq!(NUMBER.get(), i);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(NUMBER.get(), 0);
}

/// More readers that block than there are workers.
fn blocking_calls_leave_the_worker() {
    let (mut ends, readers): (Vec<_>, Vec<_>) = (0..20)
        .map(|_| {
            let (mut read, write) = std::io::pipe().unwrap();
            let reader = spawn(move || {
                let mut byte = [0];
                read.read_exact(&mut byte).unwrap();
                byte[0]
            });
            (write, reader)
        })
        .unzip();
    for (i, end) in ends.iter_mut().enumerate() {
        end.write_all(&[i as u8]).unwrap();
    }
    for (i, reader) in readers.into_iter().enumerate() {
        assert_eq!(reader.join().unwrap(), i as u8);
    }
}

fn many_threads() {
    let count = if heddle::mode() == Mode::User { 2000 } else { 100 };
    let threads: Vec<_> = (0..count).map(|i| Builder::new().stack_size(32 * 1024).spawn(move || i).unwrap()).collect();
    for (i, thread) in threads.into_iter().enumerate() {
        assert_eq!(thread.join().unwrap(), i);
    }
}

/// Stacks that libc keeps from threads of one kind are given to those of the other; idle ones lose their memory after a
/// while, used ones must not.
fn stacks_that_change_hands() {
    let modes = modes();
    let threads: Vec<_> = (0..6)
        .map(|i| {
            let mode = modes[i % modes.len()];
            for _ in 0..8 {
                spawn(|| std::hint::black_box([1u8; 20_000])).join().unwrap();
            }
            Builder::new().mode(mode).spawn(move || {
                let mut kept = [0u8; 30_000];
                kept.fill(i as u8);
                let kept = std::hint::black_box(&kept);
                heddle::sleep(Duration::from_millis(300));
                assert!(kept.iter().all(|&n| n == i as u8));
            })
        })
        .collect();
    for thread in threads {
        thread.unwrap().join().unwrap();
    }
}

/// The thread that makes user threads for kernel threads stayed in the parent, and the child waited for it.
fn threads_in_the_child_of_a_fork() {
    fn works() -> bool {
        let (plain, named) =
            (spawn(heddle::current_mode), Builder::new().name("weft".into()).spawn(heddle::current_mode));
        let modes = (plain.join().unwrap(), named.unwrap().join().unwrap());
        modes == (heddle::mode(), heddle::mode())
            && (0..50).map(|i| spawn(move || i).join().unwrap()).sum::<u32>() == 1225
    }
    fn check() {
        // SAFETY: the child makes threads, as any program may, and ends without coming back.
        unsafe {
            match libc::fork() {
                0 => libc::_exit(i32::from(!works())),
                child => {
                    let mut status = 0;
                    assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                    assert_eq!(status, 0);
                }
            }
        }
    }
    check();
    spawn(check).join().unwrap();
    // There the runtime was left as it is: user threads were refused, and who joined a kernel thread waited for ever.
    Builder::new().mode(Mode::Kernel).spawn(check).unwrap().join().unwrap();
}
