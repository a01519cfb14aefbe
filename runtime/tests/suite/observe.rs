//! What the library tells of threads.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use heddle::cancel::Token;
use heddle::sync::Event;
use heddle::{Builder, Mode, ThreadInfo, ThreadState, WaitsFor, sleep_until, threads};

super::tests![what_threads_wait_for, kept_threads, names_and_ids, threads_come_and_go, counts];

fn kinds() -> Vec<Mode> {
    if heddle::mode() == Mode::User { vec![Mode::User, Mode::Kernel] } else { vec![Mode::Kernel] }
}

fn named(name: &str) -> Option<ThreadInfo> {
    threads().into_iter().find(|t| t.name == name)
}

/// Until the thread of that name is in such a state; the harness ends the process if that never comes.
fn until(name: &str, mode: Mode, wanted: impl Fn(ThreadState) -> bool) {
    loop {
        if let Some(thread) = named(name)
            && wanted(thread.state)
        {
            assert_eq!(thread.mode, mode);
            return;
        }
        heddle::sleep(Duration::from_millis(1));
    }
}

fn what_threads_wait_for() {
    for mode in kinds() {
        let start =
            |name: &str, f: Box<dyn FnOnce() + Send>| Builder::new().mode(mode).name(name.into()).spawn(f).unwrap();
        let is = |what: WaitsFor| move |state| state == ThreadState::Waiting(what);

        let (mut read, mut write) = std::io::pipe().unwrap();
        let fd = read.as_raw_fd();
        let reader = start("reader", Box::new(move || read.read_exact(&mut [0]).unwrap()));
        until("reader", mode, is(WaitsFor::Descriptor(Some(fd))));
        write.write_all(b"x").unwrap();
        reader.join().unwrap();

        let event = Arc::new(Event::new());
        let (inside, word) = (event.clone(), Arc::as_ptr(&event) as usize);
        let waiter = start("waiter", Box::new(move || inside.wait()));
        until("waiter", mode, is(WaitsFor::Futex(Some(word))));
        event.set();
        waiter.join().unwrap();

        // With a token too: on two words, the first of which is told of.
        let (event, token) = (Arc::new(Event::new()), Token::new());
        let (inside, stop, word) = (event.clone(), token.clone(), Arc::as_ptr(&event) as usize);
        let waiter = start("cancelled", Box::new(move || assert!(inside.wait_until(&stop).is_err())));
        until("cancelled", mode, is(WaitsFor::Futex(Some(word))));
        token.cancel();
        waiter.join().unwrap();

        let stop = Arc::new(AtomicBool::new(false));
        let inside = stop.clone();
        let sleeper = start(
            "sleeper",
            Box::new(move || {
                while !inside.load(Ordering::Relaxed) {
                    heddle::sleep(Duration::from_millis(30));
                }
            }),
        );
        until("sleeper", mode, is(WaitsFor::Time));
        stop.store(true, Ordering::Relaxed);
        sleeper.join().unwrap();

        let stop = Arc::new(AtomicBool::new(false));
        let inside = stop.clone();
        let runner = start("runner", Box::new(move || while !inside.load(Ordering::Relaxed) {}));
        // Where there is one worker we have it whenever we look.
        until("runner", mode, |state| matches!(state, ThreadState::Running | ThreadState::Ready));
        // Its time is charged to it in the end.
        while named("runner").unwrap().cpu_time == Duration::ZERO {
            heddle::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        runner.join().unwrap();
    }
}

/// A thread that has ended is not told of, though it may be kept; who waits for one waits for a thread.
fn kept_threads() {
    let before = threads().len();
    for _ in 0..3 {
        let threads: Vec<_> = (0..20).map(|_| heddle::spawn(|| ())).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
    while threads().len() > before + 5 {
        heddle::sleep(Duration::from_millis(1)); // some are just ending
    }
    let event = Arc::new(Event::new());
    let inside = event.clone();
    let (tell, told) = std::sync::mpsc::channel();
    let joins = heddle::spawn(move || {
        // SAFETY: touches no memory.
        tell.send(unsafe { libc::gettid() } as u32).unwrap();
        heddle::spawn(move || inside.wait()).join().unwrap();
    });
    let id = told.recv().unwrap();
    let waits = |t: &ThreadInfo| t.id == id && matches!(t.state, ThreadState::Waiting(WaitsFor::Futex(_)));
    while !threads().iter().any(waits) {
        heddle::sleep(Duration::from_millis(1));
    }
    event.set();
    joins.join().unwrap();
}

fn names_and_ids() {
    // SAFETY: touches no memory.
    let gettid = || unsafe { libc::gettid() } as u32;
    for mode in kinds() {
        let thread = Builder::new().mode(mode).name("a name".into()).spawn(move || {
            let all = threads();
            let this: Vec<_> = all.iter().filter(|t| t.id == gettid()).collect();
            assert_eq!(this.len(), 1);
            assert_eq!((this[0].name.as_str(), this[0].mode, this[0].state), ("a name", mode, ThreadState::Running));
            let ids: HashSet<u32> = all.iter().map(|t| t.id).collect();
            assert_eq!(ids.len(), all.len(), "each once: {all:?}");
            assert!(ids.contains(&std::process::id()), "main: {all:?}");
        });
        thread.unwrap().join().unwrap();
    }
    let main = threads().into_iter().find(|t| t.id == std::process::id()).unwrap();
    assert_eq!(main.mode, heddle::current_mode());
}

fn threads_come_and_go() {
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = kinds()
        .into_iter()
        .map(|mode| {
            let stop = stop.clone();
            let make = move || {
                while !stop.load(Ordering::Relaxed) {
                    let short = || assert!(sleep_until(Duration::from_micros(200)).is_ok());
                    let some: Vec<_> = (0..5).map(|_| Builder::new().mode(mode).spawn(short).unwrap()).collect();
                    some.into_iter().for_each(|thread| thread.join().unwrap());
                }
            };
            heddle::spawn(make)
        })
        .collect();
    let seen = AtomicU32::new(0);
    for _ in 0..300 {
        seen.fetch_add(heddle::threads().len() as u32, Ordering::Relaxed);
        heddle::yield_now();
    }
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(seen.into_inner() >= 300);
}

fn counts() {
    let before = heddle::counters();
    std::thread::spawn(|| heddle::sleep(Duration::from_millis(1))).join().unwrap();
    let after = heddle::counters();
    assert_eq!(after.scheduler.is_some(), heddle::mode() == Mode::User);
    if let (Some(before), Some(after)) = (before.scheduler, after.scheduler) {
        assert!(after.created > before.created && after.parks > before.parks && after.switches > before.switches);
        assert!(after.live >= 1);
    }
}
