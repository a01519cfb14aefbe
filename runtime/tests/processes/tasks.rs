//! Tasks: results, waits, limits, starts.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heddle::cancel::{Token, WaitError};
use heddle::process::{ArenaArc, ArenaString, Condvar, Mutex, TaskError, place, usage};
use heddle::{Mode, Options, StartError, task, task_on};

use super::*;

pub const SAME: &[Test] = tests! {
    results_and_panics many_tasks tasks_that_wait tasks_of_tasks detached_tasks threads_and_std_in_a_task
    large_arguments from_many_threads limits bad_starts
};
pub const PROCESS: &[Test] = tests! {
    more_tasks_than_places
};

fn results_and_panics() {
    let here = std::process::id();
    let there = task(|()| (std::process::id(), place()), ()).join().unwrap();
    if is_process() {
        assert_ne!(there.0, here);
        assert!((1..=2).contains(&there.1));
    } else {
        assert_eq!(there, (here, 0));
    }
    assert_eq!((place(), heddle::process::count()), (0, if is_process() { 2 } else { 0 }));
    fn halve(n: u64) -> Result<u64, ArenaString> {
        if n.is_multiple_of(2) { Ok(n / 2) } else { Err(format!("{n} is odd").as_str().into()) }
    }
    assert_eq!(task(halve, 8).join().unwrap(), Ok(4));
    assert_eq!(task(halve, 7).join().unwrap().unwrap_err(), "7 is odd");
    for _ in 0..100 {
        let why = task(|n: u32| -> u32 { panic!("no {n} here") }, 5).join();
        assert!(matches!(&why, Err(TaskError::Panicked(text)) if text == "no 5 here"), "{why:?}");
    }
    assert_eq!(task(|()| 1, ()).join().unwrap(), 1);
    // Whatever the program's mode, a thread's mode can be asked for.
    assert_eq!(task_on(Mode::Kernel, |()| place(), ()).join().unwrap(), 0);
}

fn many_tasks() {
    let mut sum = 0;
    for round in 0..10 {
        let handles: Vec<_> = (0..300_u64).map(|n| task(|n| n * 2, n + round)).collect();
        sum += handles.into_iter().map(|handle| handle.join().unwrap()).sum::<u64>();
    }
    assert_eq!(sum, 10 * 300 * 299 + 2 * 300 * 45);
    // One after the other.
    assert!((0..500).all(|n: u32| task(|n| n + 1, n).join().unwrap() == n + 1));
}

pub fn tasks_that_wait() {
    // 60 tasks of 100 ms, each in the same two processes.
    let begin = Instant::now();
    let handles: Vec<_> = (0..60).map(|_| task(|()| thread::sleep(Duration::from_millis(100)), ())).collect::<Vec<_>>();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    assert!(begin.elapsed() < Duration::from_secs(3), "one after the other: {:?}", begin.elapsed());
    // Each waits for the next: all have to be under way at once.
    let all = ArenaArc::new((Mutex::new(0_u32), Condvar::new()));
    let wait = |all: ArenaArc<(Mutex<u32>, Condvar)>| {
        let mut here = all.0.lock();
        *here += 1;
        all.1.notify_all();
        drop(all.1.wait_while(here, |here| *here < 12));
    };
    let handles: Vec<_> = (0..12).map(|_| task(wait, all.clone())).collect();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
}

fn tasks_of_tasks() {
    fn fib(n: u32) -> u32 {
        if n < 2 {
            return n;
        }
        let a = task(fib, n - 1);
        let b = fib(n - 2);
        a.join().unwrap() + b
    }
    assert_eq!(task(fib, 9).join().unwrap(), 34);
}

fn detached_tasks() {
    let before = usage().used;
    let count = ArenaArc::new(AtomicU32::new(0));
    for _ in 0..200 {
        drop(task(
            |count: ArenaArc<AtomicU32>| {
                count.fetch_add(1, Ordering::Relaxed);
                // A result that nobody takes, in the arena.
                (count, ArenaString::from("nobody's"))
            },
            count.clone(),
        ));
    }
    eventually("all have run", || count.load(Ordering::Relaxed) == 200);
    drop(count);
    eventually("all is freed", || usage().used == before);
    let handle = task(|()| 1, ());
    eventually("it is over", || handle.is_finished());
    drop(handle);
}

pub fn threads_and_std_in_a_task() {
    let sum = task(
        |()| {
            let (sender, receiver) = std::sync::mpsc::channel();
            let threads: Vec<_> = (0..10)
                .map(|n: u64| {
                    let sender = sender.clone();
                    heddle::spawn(move || {
                        thread::sleep(Duration::from_millis(5));
                        sender.send(n).unwrap();
                    })
                })
                .collect();
            drop(sender);
            let sum: u64 = receiver.iter().sum();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            let (a, b) = heddle::join(|| 100, || 200);
            sum + a + b
        },
        (),
    );
    assert_eq!(sum.join().unwrap(), 345);
    let modes = task(|()| heddle::mode() as u8, ()).join().unwrap();
    assert_eq!(modes, heddle::mode() as u8, "threads are of the same kind in all processes");
    let output = task(|()| Command::new("true").status().is_ok_and(|status| status.success()), ());
    assert!(output.join().unwrap());
}

fn large_arguments() {
    let before = usage().used;
    let list = [3_u64; 2000];
    for _ in 0..50 {
        assert_eq!(task(|list: [u64; 2000]| list.iter().sum::<u64>(), list).join().unwrap(), 6000);
        assert_eq!(task(|n: u8| [n; 5000], 9).join().unwrap()[4999], 9);
    }
    assert_eq!(usage().used, before);
}

fn from_many_threads() {
    let threads: Vec<_> = (0..50_u64)
        .map(|n| {
            heddle::spawn(move || {
                for i in 0..20 {
                    assert_eq!(task(|(n, i): (u64, u64)| n * 100 + i, (n, i)).join().unwrap(), n * 100 + i);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn more_tasks_than_places() {
    // Places are free again after a join, a drop, a panic or a death. There are 65536.
    let mut handles = Vec::new();
    for n in 0..100_000_u64 {
        handles.push((n, task(|n| n + 1, n)));
        if handles.len() == 200 {
            for (n, handle) in handles.drain(..) {
                match n % 3 {
                    0 => drop(handle),
                    _ => assert_eq!(handle.join().unwrap(), n + 1),
                }
            }
        }
    }
    let before = usage().used;
    let handles: Vec<_> = (0..65_536).map(|_| task(|()| (), ())).collect();
    let last = task(|()| (), ()).join();
    assert!(matches!(last, Err(TaskError::TooMany)), "{last:?}");
    handles
        .into_iter()
        .filter_map(|handle| handle.join().err())
        .for_each(|why| assert!(matches!(why, TaskError::TooMany)));
    task(|()| (), ()).join().unwrap();
    assert_eq!(usage().used, before);
}

fn limits() {
    const SHORT: Duration = Duration::from_millis(20);
    let token = Token::new();
    let canceller = {
        let token = token.clone();
        heddle::spawn(move || {
            thread::sleep(SHORT * 3);
            token.cancel();
        })
    };
    let shared = ArenaArc::new((Mutex::new(()), Condvar::new(), AtomicU32::new(0)));
    let hold = |shared: ArenaArc<(Mutex<()>, Condvar, AtomicU32)>| {
        let _guard = shared.0.lock();
        shared.2.store(1, Ordering::Relaxed);
        while shared.2.load(Ordering::Relaxed) != 2 {
            thread::sleep(Duration::from_millis(1));
        }
        7
    };
    let holder = task(hold, shared.clone());
    let other = ArenaArc::new((Mutex::new(()), Condvar::new()));
    assert_eq!(holder.wait_until(SHORT), Err(WaitError::TimedOut));
    eventually("it is held", || shared.2.load(Ordering::Relaxed) == 1);
    assert_eq!(shared.0.lock_until(SHORT).err(), Some(WaitError::TimedOut));
    assert_eq!(other.1.wait_until(other.0.lock(), SHORT).1, Err(WaitError::TimedOut));
    assert_eq!(shared.0.lock_until(&token).err(), Some(WaitError::Cancelled));
    assert_eq!(other.1.wait_until(other.0.lock(), &token).1, Err(WaitError::Cancelled));
    assert_eq!(holder.wait_until(&token), Err(WaitError::Cancelled));
    // Many wait for it, and give up one by one, the listener among them.
    let holder = std::sync::Arc::new(holder);
    let waiters: Vec<_> = (0..20)
        .map(|i| {
            let holder = holder.clone();
            heddle::spawn(move || holder.wait_until(Duration::from_millis(if i % 2 == 0 { 5 * i } else { 60_000 })))
        })
        .collect();
    thread::sleep(SHORT * 6);
    shared.2.store(2, Ordering::Relaxed);
    for (i, waiter) in waiters.into_iter().enumerate() {
        let result = waiter.join().unwrap();
        assert!(result == Ok(()) || i % 2 == 0, "{i}: {result:?}");
    }
    let holder = std::sync::Arc::into_inner(holder).unwrap();
    assert_eq!((holder.wait_until(&token), holder.join().unwrap()), (Ok(()), 7));
    canceller.join().unwrap();
}

fn bad_starts() {
    for (options, why) in [
        (Options::new().mode(Mode::Process).processes(0), StartError::Processes(0)),
        (Options::new().mode(Mode::Process).processes(201), StartError::Processes(201)),
        (Options::new().arena(4096), StartError::Arena(4096)),
        (Options::new().mode(Mode::Process).workers(0), StartError::Workers(0)),
    ] {
        assert_eq!(heddle::start(options), Err(why));
    }
    heddle::start(Options::new()).unwrap();
    assert_eq!(heddle::start(Options::new()), Err(StartError::AlreadyStarted));
    let nested = task(|()| heddle::start(Options::new()) == Err(StartError::AlreadyStarted), ());
    assert!(nested.join().unwrap());
    if !is_process() {
        assert!(matches!(task_on(Mode::Process, |()| (), ()).join(), Err(TaskError::NoProcesses)));
    }
}
