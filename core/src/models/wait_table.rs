//! The wait table: no wake-up is lost or counted without effect, and no waiter is touched after it left.

use super::{Place, Sleeper, Thread};
use crate::park::{Reason, Ticket};
use crate::prim::fence;
use crate::wait_table::{WaitTable, Waiter};
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::thread;
use std::sync::Arc;

const ALL: u32 = u32::MAX;
/// Two addresses in different buckets.
const A: usize = 4;
const B: usize = 16;

struct World {
    table: WaitTable<Sleeper>,
    word: AtomicU32,
    threads: [Thread; 2],
}

impl World {
    fn new() -> Arc<Self> {
        let world = Self {
            table: WaitTable::new(),
            word: AtomicU32::new(0),
            threads: core::array::from_fn(|_| Thread::default()),
        };
        assert!(!world.table.same_bucket(A, B));
        Arc::new(world)
    }

    fn waiter(&self, i: usize) -> (Ticket, Place) {
        let t = &self.threads[i];
        let ticket = t.park.open();
        (ticket, Place(Box::new(Waiter::new(Sleeper(t, ticket), 0))))
    }

    /// `futex` WAIT on `A` while the word is 0. `None`: the word was different.
    fn wait(&self, i: usize) -> Option<Reason> {
        let (ticket, waiter) = self.waiter(i);
        self.wait_with(i, ticket, waiter)
    }

    fn wait_with(&self, i: usize, ticket: Ticket, mut waiter: Place) -> Option<Reason> {
        let t = &self.threads[i];
        // SAFETY: left below, before the box is dropped.
        if !unsafe { self.table.wait(&mut *waiter.0, A, ALL, || self.word.load(Ordering::Relaxed) == 0) } {
            if !t.park.close(ticket) {
                t.park();
            }
            return None;
        }
        Some(self.park_and_leave(i, waiter))
    }

    fn park_and_leave(&self, i: usize, mut waiter: Place) -> Reason {
        let t = &self.threads[i];
        let reason = t.park();
        if reason != Reason::Woken {
            // SAFETY: our own waiter.
            unsafe { self.table.leave(&mut *waiter.0) };
        }
        // The frame goes away: loom refuses if a waker may still look at it.
        t.frame.with_mut(|_| ());
        reason
    }

    fn timeout(&self, i: usize, ticket: Ticket) -> bool {
        let claimed = self.threads[i].park.claim(ticket, Reason::Timeout);
        if claimed {
            self.threads[i].ready();
        }
        claimed
    }

    fn change_and_wake(&self, limit: usize) -> usize {
        self.word.store(1, Ordering::Relaxed);
        self.table.wake(A, limit, ALL)
    }

    fn check(&self) {
        assert!(!self.table.has_waiter(A) && !self.table.has_waiter(B));
        assert!(self.table.looks_empty(A) && self.table.looks_empty(B));
        self.threads.iter().for_each(Thread::check);
    }
}

fn spawn<R: 'static>(world: &Arc<World>, f: impl FnOnce(&World) -> R + 'static) -> thread::JoinHandle<R> {
    let world = world.clone();
    thread::spawn(move || f(&world))
}

#[test]
fn wait_against_wake() {
    loom::model(|| {
        let world = World::new();
        let waiter = spawn(&world, |w| w.wait(0));
        let woken = world.change_and_wake(1);
        let reason = waiter.join().unwrap();
        assert_eq!(woken == 1, reason == Some(Reason::Woken));
        world.check();
    });
}

/// `futex::wait` of the ABI layer looks for a signal once it is linked; `pending::alert` is the other side. Nobody else ends the
/// wait: a signal that neither sees would end the model. A wake meanwhile is used, or counted as one that found nobody.
#[test]
fn a_signal_ends_the_wait_or_is_seen_before_it() {
    loom::model(|| {
        let world = World::new();
        let attention = Arc::new(AtomicBool::new(false));
        let waiter = spawn(&world, {
            let attention = attention.clone();
            move |w| {
                let (ticket, mut place) = w.waiter(0);
                let t = &w.threads[0];
                // SAFETY: left below.
                assert!(unsafe { w.table.wait(&mut *place.0, A, ALL, || true) });
                if attention.load(Ordering::Relaxed) && t.park.close(ticket) {
                    // SAFETY: our own waiter.
                    unsafe { w.table.leave(&mut *place.0) };
                    return Reason::Signal;
                }
                w.park_and_leave(0, place)
            }
        });
        let waker = spawn(&world, |w| w.table.wake(A, 1, ALL));
        attention.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst); // SeqCst: as in `alert`. pairs: signal.attention
        if world.threads[0].park.claim_any(Reason::Signal) {
            world.threads[0].ready();
        }
        let (reason, woken) = (waiter.join().unwrap(), waker.join().unwrap());
        assert_eq!(woken == 1, reason == Reason::Woken);
        world.check();
    });
}

#[test]
fn wake_against_timeout() {
    loom::model(|| {
        let world = World::new();
        let (ticket, place) = world.waiter(0);
        let waiter = spawn(&world, move |w| w.wait_with(0, ticket, place));
        let timeout = spawn(&world, move |w| w.timeout(0, ticket));
        let woken = world.change_and_wake(1);
        let reason = waiter.join().unwrap();
        let timed_out = timeout.join().unwrap();
        match reason {
            Some(Reason::Woken) => assert!(woken == 1 && !timed_out),
            Some(_) => assert!(woken == 0 && timed_out),
            None => assert_eq!(woken, 0, "a waiter that did not wait is not counted"),
        }
        world.check();
    });
}

#[test]
fn two_waiters_one_wake() {
    loom::model(|| {
        let world = World::new();
        let waiters = [0, 1].map(|i| {
            // Linked from the start, in this order; both park.
            let (_, mut place) = world.waiter(i);
            // SAFETY: left by its thread before the box is dropped.
            assert!(unsafe { world.table.wait(&mut *place.0, A, ALL, || true) });
            spawn(&world, move |w| w.park_and_leave(i, place))
        });
        let other = spawn(&world, |w| w.table.wake(A, 1, ALL));
        let woken = world.table.wake(A, 1, ALL) + other.join().unwrap();
        assert_eq!(woken, 2, "each wake finds one");
        for w in waiters {
            assert_eq!(w.join().unwrap(), Reason::Woken);
        }
        world.check();
    });
}

#[test]
fn wake_passes_over_a_waiter_that_timed_out() {
    loom::model(|| {
        let world = World::new();
        let mut tickets = Vec::new();
        let waiters = [0, 1].map(|i| {
            let (ticket, mut place) = world.waiter(i);
            tickets.push(ticket);
            // SAFETY: left by its thread before the box is dropped.
            assert!(unsafe { world.table.wait(&mut *place.0, A, ALL, || true) });
            Some(place)
        });
        let [mut first, mut second] = waiters;
        let (first, second) = (first.take().unwrap(), second.take().unwrap());
        let old = spawn(&world, move |w| w.park_and_leave(0, first));
        let ticket = tickets[0];
        let timeout = spawn(&world, move |w| w.timeout(0, ticket));
        assert_eq!(world.table.wake(A, 1, ALL), 1, "the other can always be woken");
        // If that woke the first one, the second needs another.
        let timed_out = timeout.join().unwrap();
        if !timed_out {
            assert_eq!(world.table.wake(A, 1, ALL), 1);
        }
        assert_eq!(old.join().unwrap() == Reason::Timeout, timed_out);
        assert_eq!(world.park_and_leave(1, second), Reason::Woken);
        world.check();
    });
}

#[test]
fn requeue_against_leave() {
    loom::model(|| {
        let world = World::new();
        let (ticket, mut place) = world.waiter(0);
        // SAFETY: left by its thread before the box is dropped.
        assert!(unsafe { world.table.wait(&mut *place.0, A, ALL, || true) });
        let waiter = spawn(&world, move |w| w.park_and_leave(0, place));
        let timeout = spawn(&world, move |w| w.timeout(0, ticket));
        let moved = world.table.requeue(A, B, 0, 1, || true).unwrap();
        let woken = world.table.wake(B, 1, ALL);
        let timed_out = timeout.join().unwrap();
        assert_eq!(moved.0, 0);
        if !timed_out {
            assert_eq!((moved.1, woken), (1, 1), "a moved waiter is found where it is");
        }
        assert_eq!(waiter.join().unwrap() == Reason::Timeout, timed_out);
        assert_eq!(woken == 1, !timed_out);
        world.check();
    });
}

#[test]
fn requeue_against_wait_and_wake() {
    loom::model(|| {
        let world = World::new();
        let waiter = spawn(&world, |w| w.wait(0));
        // Who wakes `B` at any time...
        let waker = spawn(&world, |w| w.table.wake(B, 1, ALL));
        world.word.store(1, Ordering::Relaxed);
        let (_, moved) = world.table.requeue(A, B, 0, 1, || true).unwrap();
        // ... or after the requeue finds whom it moved.
        let woken = world.table.wake(B, 1, ALL) + waker.join().unwrap();
        // A waiter that came too late for the requeue saw the changed word.
        assert_eq!(waiter.join().unwrap().is_some(), moved == 1);
        assert_eq!(woken, moved);
        world.check();
    });
}

#[test]
fn hand_over_against_timeout() {
    loom::model(|| {
        let world = World::new();
        let (ticket, mut place) = world.waiter(0);
        // SAFETY: left by its thread before the box is dropped.
        assert!(unsafe { world.table.wait(&mut *place.0, A, ALL, || true) });
        let waiter = spawn(&world, move |w| w.park_and_leave(0, place));
        let timeout = spawn(&world, move |w| w.timeout(0, ticket));
        let mut chosen = false;
        world.table.hand_over(A, |next| {
            assert!(next.is_none_or(|(_, more)| !more));
            chosen = next.is_some();
        });
        assert_eq!(timeout.join().unwrap(), !chosen);
        assert_eq!(waiter.join().unwrap() == Reason::Woken, chosen);
        world.check();
    });
}
