//! Threads left to a processor: nothing lies there while its worker sleeps, and nothing is run twice.

use crate::posted::Posted;
use crate::prim::{Ordering, fence};
use loom::thread;
use std::sync::Arc;

/// The worker looks for something to run, and falls asleep: `pick`, `fall_asleep` with the counter's fence. Returns how many it took.
fn until_asleep(p: &Posted<()>) -> usize {
    let mut taken = 0;
    loop {
        while p.take().is_some() {
            taken += 1;
        }
        p.leaves();
        // SeqCst: as in `Marks::fall_asleep`.
        fence(Ordering::SeqCst);
        if p.is_empty() {
            return taken;
        }
        p.is_back();
    }
}

/// `sleeps` times, with a wake-up between two sleeps; `posters` leave `each` threads.
fn run(sleeps: usize, posters: usize, each: usize) {
    loom::model(move || {
        let p = Arc::new(Posted::<()>::new());
        let posters: Vec<_> = (0..posters)
            .map(|_| {
                let p = p.clone();
                thread::spawn(move || (0..each).filter(|_| p.post(core::ptr::dangling_mut()).is_some()).count())
            })
            .collect();
        let mut run = 0;
        for sleep in 0..sleeps {
            if sleep > 0 {
                p.is_back();
            }
            run += until_asleep(&p);
        }
        let all = posters.len() * each;
        run += posters.into_iter().map(|p| p.join().unwrap()).sum::<usize>();
        assert!(p.is_empty(), "left to a worker that sleeps");
        assert_eq!(run, all);
    });
}

#[test]
fn nothing_is_left_to_a_sleeper() {
    run(1, 1, 2);
}

#[test]
fn nor_to_one_that_sleeps_twice() {
    run(2, 1, 2);
}

#[test]
fn nor_by_two_posters() {
    run(1, 2, 1);
}

#[test]
fn places_run_out() {
    run(1, 1, 4);
}
