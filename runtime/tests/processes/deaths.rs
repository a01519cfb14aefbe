//! Processes that die: what fails, what goes on.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, exit};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heddle::process::{ArenaArc, ArenaString, ArenaVec, Condvar, Mutex, TaskError, pids, place, usage};
use heddle::task;

use super::*;

pub const PROCESS: &[Test] = tests! {
    deaths_say_how only_its_tasks_fail a_lock_of_a_dead_process waiters_of_a_dead_process
    the_forker_is_killed tasks_and_kills trees_and_kills a_task_that_executes
};

pub fn die(how: u32) {
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

pub fn a_lock_of_a_dead_process() {
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
