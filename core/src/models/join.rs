//! Waiting for the end of a function in a kept thread: `kept::join` and `kept::finish` of the ABI layer, word for word but
//! for the switches. The waiter gets the result, once, whatever signals come; nobody wakes it twice.

use super::Thread;
use crate::park::{Reason, Ticket};
use crate::prim::{fence, fence_after_rmw};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use loom::thread;
use std::sync::Arc;

const RUNNING: usize = 0;
const DONE: usize = 1;
const ME: usize = 64;

#[derive(Default)]
struct Shared {
    state: AtomicUsize,
    waiter: Thread,
    join_wait: AtomicU64,
    attention: AtomicBool,
    handled: AtomicBool,
    result: UnsafeCell<u32>,
}
// SAFETY: loom checks who touches the cells.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// `direct::leave`: delivers.
    fn leave(&self) {
        if self.attention.load(Ordering::Relaxed) {
            self.attention.store(false, Ordering::Relaxed);
            self.handled.store(true, Ordering::Relaxed);
        }
    }

    fn abandon(&self, ticket: Ticket) {
        if !self.waiter.park.close(ticket) {
            self.waiter.park();
        }
    }

    /// `kept::join`.
    fn join(&self) {
        // Acquire: as there. pairs: kept.state
        while self.state.load(Ordering::Acquire) != DONE {
            let ticket = self.waiter.park.open();
            self.join_wait.store(ticket.word(), Ordering::Relaxed);
            // SeqCst: as there. pairs: kept.state
            let linked = match self.state.compare_exchange(RUNNING, ME, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => true,
                Err(now) => now == ME,
            };
            fence_after_rmw();
            if linked && !self.attention.load(Ordering::Relaxed) {
                if self.waiter.park() == Reason::Woken {
                    continue;
                }
            } else {
                self.abandon(ticket);
            }
            self.leave();
        }
        // SAFETY: loom checks that nobody else uses the cell.
        assert_eq!(self.result.with(|r| unsafe { *r }), 42);
    }

    /// `kept::finish`, up to the rest.
    fn finish(&self) {
        // SAFETY: loom checks that nobody else uses the cell.
        self.result.with_mut(|r| unsafe { *r = 42 });
        // Acquire: as there. pairs: kept.state
        if self.state.load(Ordering::Acquire) == ME {
            // Release: as there. pairs: kept.state
            self.state.store(DONE, Ordering::Release);
            return self.claim_linked();
        }
        // SeqCst: as there. pairs: kept.state
        let before = self.state.swap(DONE, Ordering::SeqCst);
        fence_after_rmw();
        if before == ME {
            let wait = Ticket::from_word(self.join_wait.load(Ordering::Relaxed));
            if self.waiter.park.claim(wait, Reason::Woken) {
                self.waiter.ready();
            }
        }
    }

    /// `kept::claim_linked`.
    fn claim_linked(&self) {
        let mut word = self.join_wait.load(Ordering::Relaxed);
        while !self.waiter.park.claim(Ticket::from_word(word), Reason::Woken) {
            fence(Ordering::SeqCst); // SeqCst: the locked instruction of the claim. pairs: kept.state
            let now = self.join_wait.load(Ordering::Relaxed);
            if now == word {
                return;
            }
            word = now;
        }
        self.waiter.ready();
    }

    /// A sender of a signal: `pending::send_to_thread`.
    fn signal(&self) {
        self.attention.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst); // SeqCst: as there. pairs: signal.attention
        if self.waiter.park.claim_any(Reason::Signal) {
            self.waiter.ready();
        }
    }
}

#[test]
fn the_waiter_sees_the_end() {
    loom::model(|| {
        let shared = Arc::new(Shared::default());
        let thread = thread::spawn({
            let shared = shared.clone();
            move || shared.finish()
        });
        shared.join();
        thread.join().unwrap();
        shared.waiter.check();
    });
}

/// The function does not return before a signal's handler has run: a wake-up that got lost would end the model.
#[test]
fn a_signal_ends_the_wait() {
    loom::model(|| {
        let shared = Arc::new(Shared::default());
        let signal = thread::spawn({
            let shared = shared.clone();
            move || shared.signal()
        });
        let thread = thread::spawn({
            let shared = shared.clone();
            move || {
                while !shared.handled.load(Ordering::Relaxed) {
                    crate::prim::relax();
                }
                shared.finish();
            }
        });
        shared.join();
        signal.join().unwrap();
        thread.join().unwrap();
        shared.waiter.check();
    });
}
