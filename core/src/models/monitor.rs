//! The monitor's doze: it does not sleep while a worker that it took for asleep goes on working.

use super::Futex;
use super::sleepers::{Doze, Marks};
use loom::sync::atomic::Ordering;
use loom::thread;
use std::sync::Arc;

/// One worker, which is all the workers. It is counted asleep for a moment, then runs a thread that never stops, which
/// only a monitor that is awake can preempt: if the monitor sleeps on, loom reports the deadlock.
fn run(finds_work: bool) {
    loom::model(move || {
        let (marks, doze, futex) = (Arc::new(Marks::new()), Arc::new(Doze::new()), Arc::new(Futex::default()));
        let monitor = thread::spawn({
            let (marks, doze, futex) = (marks.clone(), doze.clone(), futex.clone());
            move || doze.doze(|| marks.sleeping() == 1, |word| futex.wait(|| word.load(Ordering::Relaxed) == 1))
        });
        // `sleep` in idle.rs: either it finds work after it was counted, or it really sleeps and is woken.
        if marks.fall_asleep(|| finds_work) {
            marks.awake();
        }
        doze.disturb(|_| futex.wake());
        monitor.join().unwrap();
    });
}

#[test]
fn worker_that_slept() {
    run(false);
}

#[test]
fn worker_that_found_work_at_the_last_moment() {
    run(true);
}
