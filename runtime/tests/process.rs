//! Tasks, arena and deaths. Each test is a process of its own, which starts while it has one thread; those of `SAME` run in
//! user, kernel and process mode with the same code.
//!
//! `cargo test -p heddle --test process -- NAME` runs those whose names hold NAME.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, Stdio, exit};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heddle::cancel::{Token, WaitError};
use heddle::channel::{RecvError, RecvUntilError, SendUntilError, TryRecvError, TrySendError};
use heddle::process::{
    ArenaArc, ArenaBox, ArenaFull, ArenaString, ArenaVec, Channel, ChannelError, Condvar, Mutex, TaskError, pids,
    place, task_mode, usage,
};
use heddle::{Mode, Options, SpawnError, StartError, task, task_on};

/// Set for the processes that run a test: the mode.
const CHILD: &str = "HEDDLE_TEST_MODE";
/// A test that takes longer hangs.
const MOST: Duration = Duration::from_secs(60);

type Test = (&'static str, fn());

macro_rules! tests {
    ($($name:ident)*) => { &[$((stringify!($name), $name as fn())),*] };
}

const SAME: &[Test] = tests! {
    results_and_panics many_tasks tasks_that_wait tasks_of_tasks values_in_the_arena lists_and_text shared_values
    a_lock_for_all conditions channels detached_tasks bad_starts threads_and_std_in_a_task large_arguments
    from_many_threads many_that_wait limits
};
const PROCESS: &[Test] = tests! {
    deaths_say_how only_its_tasks_fail a_lock_of_a_dead_process waiters_of_a_dead_process a_channel_survives
    the_program_hears_of_no_child the_first_process_is_killed the_first_process_executes the_forker_is_killed
    tasks_and_kills a_full_arena code_that_came_later a_forked_child_has_no_arena closures_do_not_cross
    each_process_its_own_statics a_terminal_s_signals more_tasks_than_places trees_and_kills
    kernel_threads_where_user_threads_are_refused a_task_that_executes
};

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let name = arguments.first().map_or("", String::as_str);
    if let Ok(mode) = env::var(CHILD) {
        if name == "grandchild" {
            grandchild();
        }
        let (_, test) = SAME.iter().chain(PROCESS).find(|test| test.0 == name).expect("a test's name");
        if name == "kernel_threads_where_user_threads_are_refused" {
            refuse_new_code();
        }
        if name != "bad_starts" {
            heddle::start(Options::new().arena(256 << 20)).unwrap_or_else(|why| panic!("{mode}: {why}"));
            assert_eq!(format!("{:?}", task_mode()).to_lowercase(), mode);
        }
        test();
        return ExitCode::SUCCESS;
    }
    let mut failed = 0;
    for (modes, tests) in [(&["user", "kernel", "process"][..], SAME), (&["process"], PROCESS)] {
        for (test, mode) in tests.iter().flat_map(|test| modes.iter().map(move |mode| (test.0, mode))) {
            if test.contains(name) {
                let begin = Instant::now();
                let mut child = run(test, mode).spawn().expect("a child");
                let status = loop {
                    match child.try_wait().expect("a child") {
                        Some(status) => break Some(status),
                        None if begin.elapsed() > MOST => break None,
                        None => thread::sleep(Duration::from_millis(2)),
                    }
                };
                if status.is_none() {
                    // Shows what its threads do.
                    let _ = Command::new("kill").args(["-33", &child.id().to_string()]).status();
                    thread::sleep(Duration::from_millis(500));
                    child.kill().expect("a child");
                }
                let is_good = status.is_some_and(|status| status.success());
                failed += u32::from(!is_good);
                let how = status.map_or("hangs".to_string(), |status| status.to_string());
                println!("{test} ({mode}): {}, {:?}", if is_good { "ok" } else { &how }, begin.elapsed());
            }
        }
    }
    println!("{failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(test: &str, mode: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("our own path"));
    command.arg(test).env(CHILD, mode).env("HEDDLE_MODE", mode).env("HEDDLE_PROCESSES", "2").env("HEDDLE_WORKERS", "2");
    command
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(30), "not within 30 s: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn is_process() -> bool {
    task_mode() == Mode::Process
}

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

fn tasks_that_wait() {
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

fn values_in_the_arena() {
    let before = usage().used;
    let mut row = ArenaBox::new([7_u8; 100_000]);
    row = task(
        |mut row: ArenaBox<[u8; 100_000]>| {
            row[99_999] = 1;
            row
        },
        row,
    )
    .join()
    .unwrap();
    assert_eq!((row[0], row[99_999]), (7, 1));
    let nested = ArenaBox::new((ArenaBox::new(1_u32), ArenaVec::from([ArenaString::from("a"), "b".into()])));
    let nested = task(
        |mut nested: ArenaBox<(ArenaBox<u32>, ArenaVec<ArenaString>)>| {
            *nested.0 += 1;
            nested.1.push("c".into());
            nested
        },
        nested,
    );
    let (number, texts) = nested.join().unwrap().into_inner();
    assert_eq!((*number, texts.concat().as_str()), (2, "abc"));
    drop((number, texts, row));
    assert_eq!(usage().used, before);

    // Blocks are reused, whoever frees them.
    let round = || {
        let made = task(|n: u64| (0..n).collect::<ArenaVec<u64>>(), 10_000).join().unwrap();
        task(|list: ArenaVec<u64>| drop(list), made).join().unwrap();
    };
    (0..20).for_each(|_| round());
    let touched = usage().touched;
    (0..200).for_each(|_| round());
    assert!(usage().touched <= touched + (2 << 20), "{touched} {:?}", usage());
    assert_eq!(usage().used, before);

    #[repr(align(256))]
    struct Aligned(#[allow(dead_code)] u8);
    // SAFETY: plain data.
    unsafe impl heddle::process::Shareable for Aligned {}
    let boxes: Vec<_> = (0..50).map(|n| ArenaBox::new(Aligned(n))).collect();
    assert!(boxes.iter().all(|aligned| (&raw const **aligned).addr() % 256 == 0));
    let large = ArenaVec::<u8>::with_capacity(3 << 20);
    assert!(large.capacity() >= 3 << 20);
}

fn lists_and_text() {
    let mut list: ArenaVec<u32> = (0..10).collect();
    assert_eq!((list.len(), list.pop(), list.first()), (10, Some(9), Some(&0)));
    list.extend([20, 21]);
    list.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(list[..3], [21, 20, 8]);
    let copy = list.clone();
    list.truncate(1);
    assert_eq!((list.len(), copy.len()), (1, 11));
    assert_eq!(copy.into_iter().take(2).collect::<Vec<_>>(), [21, 20]);
    list.clear();
    assert!(list.is_empty() && list.pop().is_none());
    for _ in 0..3 {
        list.extend_from_slice(&[1, 2, 3]);
    }
    assert_eq!(list.iter().sum::<u32>(), 18);
    list.iter_mut().for_each(|n| *n = 0);
    assert_eq!(list, ArenaVec::from([0; 9]));
    let units: ArenaVec<()> = std::iter::repeat_n((), 1000).collect();
    assert_eq!(units.len(), 1000);

    // Each is dropped once.
    let count = ArenaArc::new(AtomicU32::new(0));
    heddle::shareable! {
        struct Drops(ArenaArc<AtomicU32>);
    }
    impl Drop for Drops {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let mut drops: ArenaVec<Drops> = (0..10).map(|_| Drops(count.clone())).collect();
    drops.truncate(8);
    let mut values = drops.into_iter();
    drop(values.next());
    assert_eq!(count.load(Ordering::Relaxed), 3);
    drop(values);
    assert_eq!(count.load(Ordering::Relaxed), 10);

    let mut text = ArenaString::new();
    std::fmt::Write::write_fmt(&mut text, format_args!("{}-{:?}", 1, "zwei")).unwrap();
    text.push('ß');
    assert_eq!((text.as_str(), text.len(), text.to_string().as_str()), ("1-\"zwei\"ß", 10, "1-\"zwei\"ß"));
    assert_eq!(String::from(text.clone()), format!("{text}"));
    text.clear();
    assert_eq!(text, "");
    assert_eq!(text, ArenaString::default());
}

fn shared_values() {
    let count = ArenaArc::new(AtomicU64::new(0));
    let add = |count: ArenaArc<AtomicU64>| {
        for _ in 0..1000 {
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    let handles: Vec<_> = (0..20).map(|_| task(add, count.clone())).collect();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    assert_eq!(count.load(Ordering::Relaxed), 20_000);
    let before = usage().used;
    let other = count.clone();
    assert!(other.ptr_eq(&count));
    drop((count, other));
    assert!(usage().used < before);
}

fn a_lock_for_all() {
    let sum = ArenaArc::new(Mutex::new((0_u64, 0_u64)));
    let add = |sum: ArenaArc<Mutex<(u64, u64)>>| {
        for _ in 0..2000 {
            let mut sum = sum.lock();
            assert!(sum.0 == sum.1 && !sum.was_abandoned());
            sum.0 += 1;
            sum.1 += 1;
        }
    };
    let handles: Vec<_> = (0..10).map(|_| task(add, sum.clone())).collect();
    add(sum.clone());
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    assert_eq!(*sum.lock(), (22_000, 22_000));

    let guard = sum.lock();
    assert!(sum.try_lock().is_none() && sum.lock_for(Duration::from_millis(20)).is_none());
    let tried = task(|sum: ArenaArc<Mutex<(u64, u64)>>| sum.try_lock().is_none() && sum.is_locked(), sum.clone());
    assert!(tried.join().unwrap());
    drop(guard);
    // A panic frees it.
    let panics = task(
        |sum: ArenaArc<Mutex<(u64, u64)>>| -> () {
            let _guard = sum.lock();
            panic!("with the lock");
        },
        sum.clone(),
    );
    assert!(matches!(panics.join(), Err(TaskError::Panicked(_))));
    assert!(!sum.lock_for(Duration::from_secs(10)).expect("it is free").was_abandoned());
}

fn conditions() {
    let turn = ArenaArc::new((Mutex::new(0_u32), Condvar::new()));
    let play = |(turn, mine): (ArenaArc<(Mutex<u32>, Condvar)>, u32)| {
        for _ in 0..50 {
            let mut now = turn.1.wait_while(turn.0.lock(), |now| *now % 3 != mine);
            *now += 1;
            turn.1.notify_all();
        }
    };
    let handles: Vec<_> = (0..3).map(|mine| task(play, (turn.clone(), mine))).collect();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    let (guard, in_time) = turn.1.wait_for(turn.0.lock(), Duration::from_millis(20));
    assert_eq!((*guard, in_time), (150, false));
}

fn channels() {
    assert_eq!(Channel::<u8>::try_new(0).unwrap_err(), ChannelError::Capacity(0));
    let (numbers, sums) = (Channel::<u64>::new(3), Channel::<u64>::new(10));
    assert_eq!(numbers.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(numbers.recv_for(Duration::from_millis(10)), Err(RecvUntilError::TimedOut));
    for n in 0..3 {
        numbers.try_send(n).unwrap();
    }
    assert_eq!(numbers.try_send(3), Err(TrySendError::Full(3)));
    assert_eq!(numbers.send_for(4, Duration::from_millis(10)), Err(SendUntilError::TimedOut(4)));
    assert_eq!((numbers.len(), numbers.capacity(), numbers.is_empty()), (3, 3, false));
    assert_eq!((0..3).map(|_| numbers.recv().unwrap()).collect::<Vec<_>>(), [0, 1, 2]);

    let add = |(numbers, sums): (Channel<u64>, Channel<u64>)| {
        let mut sum = 0;
        while let Ok(n) = numbers.recv() {
            sum += n;
        }
        sums.send(sum).unwrap();
    };
    let receivers: Vec<_> = (0..3).map(|_| task(add, (numbers.clone(), sums.clone()))).collect();
    let send = |numbers: Channel<u64>| (1..=2000).for_each(|n| numbers.send(n).unwrap());
    let senders: Vec<_> = (0..2).map(|_| task(send, numbers.clone())).collect();
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    assert!(numbers.close() && !numbers.close());
    receivers.into_iter().for_each(|receiver| receiver.join().unwrap());
    assert_eq!((0..3).map(|_| sums.recv().unwrap()).sum::<u64>(), 2 * 2001 * 1000);
    assert!(numbers.is_closed() && numbers.send(1).is_err());
    assert_eq!((numbers.recv(), numbers.try_recv()), (Err(RecvError), Err(TryRecvError::Disconnected)));

    // What is left in it is dropped with it.
    let before = usage().used;
    let texts = Channel::new(4);
    texts.send(ArenaString::from("left")).unwrap();
    drop(texts);
    assert_eq!(usage().used, before);
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

fn threads_and_std_in_a_task() {
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

fn many_that_wait() {
    let numbers = Channel::<u64>::new(4);
    let threads: Vec<_> = (0..150)
        .map(|_| {
            let numbers = numbers.clone();
            heddle::spawn(move || numbers.recv().unwrap())
        })
        .collect();
    let send = |numbers: Channel<u64>| (1..=150).for_each(|n| numbers.send(n).unwrap());
    let sender = task(send, numbers);
    assert_eq!(threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>(), 150 * 151 / 2);
    sender.join().unwrap();
}

fn die(how: u32) {
    match how {
        // SAFETY: what it says.
        0 => unsafe { libc_kill(std::process::id(), 9) },
        1 => std::process::abort(),
        2 => exit(3),
        // SAFETY: a fault is what is wanted.
        3 => unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) },
        // SAFETY: what it says.
        _ => unsafe { libc_kill(std::process::id(), 15) },
    }
    thread::sleep(Duration::from_secs(30));
}

unsafe fn libc_kill(pid: u32, signal: i32) {
    unsafe extern "C" {
        fn kill(pid: i32, signal: i32) -> i32;
    }
    // SAFETY: the caller's.
    unsafe { kill(pid as i32, signal) };
}

fn deaths_say_how() {
    for (how, (signal, code)) in
        (0..).zip([(Some(9), None), (Some(6), None), (None, Some(3)), (Some(11), None), (Some(15), None)])
    {
        match task(die, how).join() {
            Err(TaskError::Died(status)) => assert_eq!((status.signal(), status.code()), (signal, code), "{how}"),
            other => panic!("{how}: {other:?}"),
        }
        assert_eq!(task(|n: u32| n + 1, 1).join().unwrap(), 2);
    }
    let text = task(die, 0).join().unwrap_err().to_string();
    assert!(text.contains("signal: 9"), "{text}");
    eventually("both are replaced", || pids().len() == 2);
}

/// The id of the process in that place.
fn task_pid(wanted: usize) -> u32 {
    pids()
        .into_iter()
        .find(|pid| {
            std::fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name.trim() == format!("heddle-{wanted}"))
        })
        .unwrap()
}

fn only_its_tasks_fail() {
    /// How many are under way in each process; and whether they may go.
    type State = ArenaArc<([AtomicU32; 3], AtomicU32)>;
    let state: State = ArenaArc::new(([const { AtomicU32::new(0) }; 3], AtomicU32::new(0)));
    let stay = |state: State| {
        state.0[place()].fetch_add(1, Ordering::Relaxed);
        while state.1.load(Ordering::Relaxed) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        (place(), std::process::id())
    };
    let under_way = |place: usize| state.0[place].load(Ordering::Relaxed) as usize;
    let mut handles = Vec::new();
    eventually("both have some", || {
        handles.push(task(stay, state.clone()));
        under_way(1) > 1 && under_way(2) > 1
    });
    eventually("all are under way", || under_way(1) + under_way(2) == handles.len());
    let (expected, sent) = (under_way(1), handles.len());
    let victim = task_pid(1);
    // SAFETY: a child's child.
    unsafe { libc_kill(victim, 9) };
    eventually("some have failed", || handles.iter().filter(|handle| handle.is_finished()).count() == expected);
    state.1.store(1, Ordering::Relaxed);
    let results: Vec<_> = handles.into_iter().map(heddle::process::TaskHandle::join).collect();
    assert_eq!(results.iter().filter(|result| result.is_err()).count(), expected, "of {sent}");
    for result in results {
        match result {
            Ok((place, pid)) => assert!(place == 2 && pid != victim),
            Err(why) => assert!(matches!(why, TaskError::Died(status) if status.signal() == Some(9))),
        }
    }
    eventually("it is replaced", || pids().len() == 2 && !pids().contains(&victim));
    let handles: Vec<_> = (0..50).map(|n: u32| task(|n| n, n)).collect();
    assert_eq!(handles.into_iter().map(|handle| handle.join().unwrap()).sum::<u32>(), 1225);
}

fn a_lock_of_a_dead_process() {
    let value = ArenaArc::new(Mutex::new((0_u32, 0_u32)));
    let half = |value: ArenaArc<Mutex<(u32, u32)>>| {
        let mut value = value.lock();
        value.0 += 1;
        die(0);
        value.1 += 1;
    };
    for i in 0..5 {
        assert!(matches!(task(half, value.clone()).join(), Err(TaskError::Died(_))));
        {
            let mut guard = value.lock();
            assert!(guard.was_abandoned());
            assert_eq!((guard.0, guard.1), (i + 1, i));
            guard.1 += 1;
        }
        let guard = value.try_lock().expect("it is free");
        assert!(!guard.was_abandoned() && guard.0 == guard.1);
    }
}

fn waiters_of_a_dead_process() {
    type Shared = ArenaArc<(Mutex<u32>, Condvar, AtomicU32)>;
    let shared: Shared = ArenaArc::new((Mutex::new(0), Condvar::new(), AtomicU32::new(0)));
    let hold = |shared: Shared| {
        let _guard = shared.0.lock();
        shared.2.store(std::process::id(), Ordering::Relaxed);
        thread::sleep(Duration::from_secs(60));
    };
    for _ in 0..3 {
        shared.2.store(0, Ordering::Relaxed);
        let holder = task(hold, shared.clone());
        eventually("it is held", || shared.2.load(Ordering::Relaxed) != 0);
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let shared = shared.clone();
                heddle::spawn(move || shared.0.lock().was_abandoned())
            })
            .collect();
        thread::sleep(Duration::from_millis(30));
        let begin = Instant::now();
        // SAFETY: a child's child.
        unsafe { libc_kill(shared.2.load(Ordering::Relaxed), 9) };
        let told = waiters.into_iter().map(|waiter| waiter.join().unwrap()).filter(|&told| told).count();
        assert_eq!(told, 1, "one is told");
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        assert!(matches!(holder.join(), Err(TaskError::Died(_))));
    }
}

fn a_channel_survives() {
    let numbers = Channel::<u64>::new(64);
    let send = |numbers: Channel<u64>| {
        for n in 0.. {
            if numbers.send(n).is_err() {
                return;
            }
        }
    };
    for _ in 0..10 {
        let sender = task(send, numbers.clone());
        let mut next = numbers.recv().unwrap();
        for _ in 0..500 {
            let n = numbers.recv().unwrap();
            assert_eq!(n, next + 1, "no value is lost or comes twice");
            next = n;
        }
        for pid in pids() {
            // SAFETY: a child's child.
            unsafe { libc_kill(pid, 9) };
        }
        assert!(matches!(sender.join(), Err(TaskError::Died(_))));
        while let Ok(n) = numbers.try_recv() {
            assert_eq!(n, next + 1);
            next = n;
        }
    }
    assert!(numbers.abandoned() <= 10);
    numbers.close();
}

fn the_program_hears_of_no_child() {
    unsafe extern "C" {
        fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    }
    assert!(matches!(task(die, 0).join(), Err(TaskError::Died(_))));
    let mut status = 0;
    // SAFETY: a place for a status; 1 is WNOHANG.
    assert_eq!(unsafe { waitpid(-1, &raw mut status, 1) }, -1, "there is no child to wait for");
    assert_eq!(std::io::Error::last_os_error().kind(), std::io::Error::from_raw_os_error(10).kind());
    assert!(Command::new("true").status().unwrap().success());
}

/// Starts, prints its processes, and is killed or executes another program.
fn grandchild() -> ! {
    heddle::start(Options::new()).expect("process mode");
    let busy = heddle::task(|()| thread::sleep(Duration::from_secs(100)), ());
    eventually("both live", || pids().len() == 2);
    println!("{}", pids().iter().map(u32::to_string).collect::<Vec<_>>().join(" "));
    if env::var_os("HEDDLE_TEST_EXEC").is_some() {
        let why = std::os::unix::process::CommandExt::exec(Command::new("sleep").arg("100"));
        panic!("{why}");
    }
    let _ = busy.join();
    exit(1);
}

fn is_alive(pid: u32) -> bool {
    // A zombie is not.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim_start().starts_with('Z'))
}

fn children_go(exec: bool) {
    let mut command = run("grandchild", "process");
    if exec {
        command.env("HEDDLE_TEST_EXEC", "1");
    }
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let pids: Vec<u32> = line.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 2, "{line}");
    if !exec {
        assert!(pids.iter().all(|&pid| is_alive(pid)));
        child.kill().unwrap();
    }
    eventually("they are gone", || !pids.iter().any(|&pid| is_alive(pid)));
    if exec {
        assert!(is_alive(child.id()));
        child.kill().unwrap();
    }
    child.wait().unwrap();
    // Nobody holds its output any more, the forking process included.
    output.read_to_string(&mut line).unwrap();
}

fn the_first_process_is_killed() {
    children_go(false);
}

fn the_first_process_executes() {
    children_go(true);
}

fn the_forker_is_killed() {
    eventually("both live", || pids().len() == 2);
    let forker = |pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse::<u32>().unwrap()
    };
    let begun = ArenaArc::new(AtomicU32::new(0));
    let long = |begun: ArenaArc<AtomicU32>| {
        begun.store(1, Ordering::Relaxed);
        thread::sleep(Duration::from_secs(100));
    };
    let handle = task(long, begun.clone());
    eventually("it is under way", || begun.load(Ordering::Relaxed) == 1);
    // SAFETY: a child.
    unsafe { libc_kill(forker(pids()[0]), 9) };
    let why = handle.join();
    assert!(matches!(why, Err(TaskError::Died(_) | TaskError::Lost)), "{why:?}");
    assert!(matches!(task(|()| (), ()).join(), Err(TaskError::Lost)));
}

fn tasks_and_kills() {
    let sum = ArenaArc::new(Mutex::new((0_u64, 0_u64)));
    let killer = heddle::spawn(|| {
        for _ in 0..30 {
            thread::sleep(Duration::from_millis(15));
            if let Some(&pid) = pids().first() {
                // SAFETY: a child's child.
                unsafe { libc_kill(pid, 9) };
            }
        }
    });
    let add = |(sum, n): (ArenaArc<Mutex<(u64, u64)>>, u64)| {
        let text = ArenaString::from("some text that has a block of its own in the arena");
        let list: ArenaVec<u64> = (0..n % 100).collect();
        let mut sum = sum.lock();
        sum.0 += 1;
        std::hint::black_box((&text, &list));
        sum.1 = sum.0;
        n
    };
    let (mut good, mut bad) = (0, 0);
    while !killer.is_finished() {
        let handles: Vec<_> = (0..50_u64).map(|n| (n, task(add, (sum.clone(), n)))).collect();
        for (n, handle) in handles {
            match handle.join() {
                Ok(m) => {
                    assert_eq!(m, n);
                    good += 1;
                }
                Err(TaskError::Died(status)) => {
                    assert_eq!(status.signal(), Some(9));
                    bad += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
    killer.join().unwrap();
    let count = sum.lock().0;
    assert!(count >= good && count <= good + bad, "{count} {good} {bad}");
    assert!(good > 0);
    assert!(usage().used < 32 << 20, "{:?}", usage());
}

fn a_full_arena() {
    let full = ArenaVec::<u8>::try_with_capacity(1 << 30).unwrap_err();
    assert_eq!(full, ArenaFull { bytes: 1 << 30 });
    const SIZE: usize = 64 << 10;
    let mut boxes = Vec::new();
    let full = loop {
        match ArenaBox::try_new([0_u8; SIZE]) {
            Ok(one) => boxes.push(one),
            Err(full) => break full,
        }
    };
    assert!(boxes.len() > 3500 && full.bytes == SIZE, "{} {full:?}", boxes.len());
    let why = task(|list: [u8; SIZE]| list[0], [0; SIZE]).join();
    assert!(matches!(why, Err(TaskError::Full(_))), "{why:?}");
    let why = task(|()| ArenaBox::new([0_u8; SIZE]), ()).join();
    assert!(matches!(&why, Err(TaskError::Panicked(text)) if text.contains("no room")), "{why:?}");
    drop(boxes);
    assert_eq!(task(|list: [u8; SIZE]| list[9], [1; SIZE]).join().unwrap(), 1);
}

fn a_task_that_executes() {
    for _ in 0..3 {
        let executes = task(
            |()| {
                let _ = std::os::unix::process::CommandExt::exec(Command::new("sleep").arg("100"));
            },
            (),
        );
        // It is killed: it would never come back.
        assert!(matches!(executes.join(), Err(TaskError::Died(status)) if status.signal() == Some(9)));
        // A program that a task starts is not its own end.
        let starts = task(|()| Command::new("sleep").arg("0.05").status().is_ok_and(|status| status.success()), ());
        assert!(starts.join().unwrap());
    }
}

fn code_that_came_later() {
    // Code that was not there at the start: a page of ours.
    unsafe extern "C" {
        fn mmap(at: *mut u8, size: usize, prot: i32, flags: i32, file: i32, offset: i64) -> *mut u8;
    }
    // SAFETY: a new mapping, readable and writable, and then a `ret`; executable.
    let function = unsafe {
        let page = mmap(std::ptr::null_mut(), 4096, 7, 0x22, -1, 0);
        page.write(0xc3);
        std::mem::transmute::<*mut u8, fn(())>(page)
    };
    assert!(matches!(task(function, ()).join(), Err(TaskError::Function)));
}

fn a_forked_child_has_no_arena() {
    unsafe extern "C" {
        fn fork() -> i32;
        fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    }
    let value = ArenaBox::new(1_u32);
    // SAFETY: the child only reads and faults, or exits.
    unsafe {
        let pid = fork();
        if pid == 0 {
            exit((&raw const *value).read_volatile() as i32);
        }
        let mut status = 0;
        assert_eq!(waitpid(pid, &raw mut status, 0), pid);
        assert_eq!(std::process::ExitStatus::from_raw(status).signal(), Some(11));
    }
    assert_eq!(*value, 1);
}

fn closures_do_not_cross() {
    let refused = heddle::Builder::new().mode(Mode::Process).spawn(|| ());
    assert!(matches!(refused, Err(SpawnError::Process)));
    // A thread is here as ever.
    assert_eq!(heddle::spawn(place).join().unwrap(), 0);
}

fn each_process_its_own_statics() {
    static HERE: AtomicU32 = AtomicU32::new(0);
    HERE.store(5, Ordering::Relaxed);
    assert_eq!(task(|()| HERE.swap(7, Ordering::Relaxed), ()).join().unwrap() % 7, 0);
    assert_eq!(HERE.load(Ordering::Relaxed), 5);
}

fn a_terminal_s_signals() {
    let begun = ArenaArc::new(AtomicU32::new(0));
    let long = |begun: ArenaArc<AtomicU32>| {
        begun.store(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(200));
        1
    };
    let handle = task(long, begun.clone());
    eventually("it is under way, and both live", || begun.load(Ordering::Relaxed) == 1 && pids().len() == 2);
    for pid in pids() {
        for signal in [1, 2, 3] {
            // SAFETY: a child's child.
            unsafe { libc_kill(pid, signal) };
        }
    }
    assert_eq!(handle.join().unwrap(), 1);
    // A program that a task executes does not find them ignored, unless this program did.
    let ignored = |()| {
        let output = Command::new("grep").args(["SigIgn", "/proc/self/status"]).output().unwrap();
        let line = String::from_utf8_lossy(&output.stdout).into_owned();
        u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap() & 7
    };
    assert_eq!(task(ignored, ()).join().unwrap(), ignored(()));
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

/// Tasks that send tasks and wait for them, while processes are killed: each has its result, or an error because its
/// process or that of one below it died.
fn trees_and_kills() {
    fn count(depth: u32) -> Result<u32, ()> {
        if depth == 0 {
            return Ok(1);
        }
        let below: Vec<_> = (0..2).map(|_| task(count, depth - 1)).collect();
        below.into_iter().try_fold(1, |sum, handle| Ok(sum + handle.join().map_err(|_| ())??))
    }
    let killer = heddle::spawn(|| {
        for i in 0..40 {
            thread::sleep(Duration::from_millis(20));
            let pids = pids();
            if !pids.is_empty() {
                // SAFETY: a child's child.
                unsafe { libc_kill(pids[i % pids.len()], 9) };
            }
        }
    });
    let (mut good, mut bad) = (0, 0);
    while !killer.is_finished() {
        let trees: Vec<_> = (0..4).map(|_| task(count, 4)).collect();
        for tree in trees {
            match tree.join() {
                Ok(Ok(n)) => {
                    assert_eq!(n, 31);
                    good += 1;
                }
                Ok(Err(())) | Err(TaskError::Died(_)) => bad += 1,
                Err(other) => panic!("{other}"),
            }
        }
    }
    killer.join().unwrap();
    println!("{good} trees, {bad} felled");
    assert_eq!(task(count, 5).join().unwrap(), Ok(63));
}

/// No memory becomes executable that was not (`PR_SET_MDWE`, Linux 6.3), so system calls cannot be rewritten.
fn refuse_new_code() {
    unsafe extern "C" {
        fn prctl(what: i32, ...) -> i32;
    }
    // SAFETY: numbers. On an older kernel nothing happens.
    unsafe { prctl(65, 1_usize, 0_usize, 0_usize, 0_usize) };
}

fn kernel_threads_where_user_threads_are_refused() {
    println!("{:?}", heddle::mode());
    tasks_that_wait();
    threads_and_std_in_a_task();
    a_lock_of_a_dead_process();
}
