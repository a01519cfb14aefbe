//! The end of a task, and who hears of it.
//!
//! 1. Who runs a task (or buries it) writes the result and sets the state from running to an end, then rings the sender's bell.
//! 2. Whoever does not want the result adds [`DETACHED`] to the state. Both are one step on one word, so one of them is
//!    second, and that one frees the task: the ender if its compare-and-swap fails, the other if it finds an end.
//! 3. Who waits reads the bell, then the states, and sleeps while the bell is as it was. A task that ended before the
//!    bell was read is seen, since a ring releases what came before; one that ends later changes the bell. Before it sleeps it
//!    sets the bell's lowest bit, which tells the ringer to wake somebody, and a ring takes it away.

use crate::prim::{AtomicU32, Ordering};

pub const RUNNING: u32 = 3;
pub const DONE: u32 = 4;
/// Added: nobody joins it.
pub const DETACHED: u32 = 0x100;

pub fn is_over(state: u32) -> bool {
    state & !DETACHED >= DONE
}

/// The state, once all that was written before it is visible.
pub fn state(word: &AtomicU32) -> u32 {
    // Acquire: the task's other words and its result. pairs: task.state
    word.load(Ordering::Acquire)
}

/// The task that the caller runs (or buries) is over. False: nobody wants it, and it is the caller's to free.
pub fn end(word: &AtomicU32, state: u32) -> bool {
    // Release: the result. (Who detached it has done nothing with it that we would have to see.) pairs: task.state
    word.compare_exchange(RUNNING, state, Ordering::Release, Ordering::Relaxed).is_ok()
}

/// Nobody will join the task. True: it is over, and the caller's to free.
pub fn detach(word: &AtomicU32) -> bool {
    // Acquire: its result, if it is over. pairs: task.state
    is_over(word.fetch_or(DETACHED, Ordering::Acquire))
}

const SLEEPS: u32 = 1;

/// A process's bell. Zero is one that has not rung.
#[derive(Debug)]
#[repr(transparent)]
pub struct Bell(AtomicU32);

impl Bell {
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// For a new process.
    #[cfg(not(loom))]
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Rings.
    pub fn ring(&self, wake: impl FnOnce(&AtomicU32)) {
        // Release: the end of the task comes before. pairs: process.bell
        if self.0.fetch_add(2, Ordering::Release) & SLEEPS != 0 {
            // Who falls asleep between these two is woken for nothing, or sets the bit again.
            self.0.fetch_and(!SLEEPS, Ordering::Relaxed);
            wake(&self.0);
        }
    }

    /// How often it has rung.
    pub fn heard(&self) -> u32 {
        // Acquire: the tasks that were over before it rang. pairs: process.bell
        self.0.load(Ordering::Acquire)
    }

    /// Sleeps, by `sleep`, while it has not rung again.
    pub fn wait<R>(&self, heard: u32, sleep: impl FnOnce(&AtomicU32, u32) -> R) -> Option<R> {
        let asleep = heard | SLEEPS;
        let set =
            heard == asleep || self.0.compare_exchange(heard, asleep, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        set.then(|| sleep(&self.0, asleep))
    }
}
