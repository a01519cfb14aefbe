//! The word of a lock that survives its holder: who holds it stands in it, so that others see whether that process has died.
//!
//! 0 is free; else the holder's identity (its place in the table of processes and how many have had that place, never 0),
//! and a bit that says that somebody may wait. Threads of a process are not told apart: a thread that ends while it holds
//! the lock takes its guard along, only processes die without a word.
//!
//! # Protocol
//! 1. Free: compare-and-swap to the own identity.
//! 2. Held by a living process: set the waiters' bit, wait for the word to change or for any process's death. Who has waited
//!    once takes the lock with the bit set, since there may be others.
//! 3. Held by a dead process: compare-and-swap to the own identity. One of those who see it wins, and is told. The bit may
//!    go: all who wait are about to look again, since a process has died.
//! 4. Unlock: swap with 0; the bit tells whether to wake one.
//!
//! No wake is lost with a process. It may die between its swap in 4 and its wake, or when it has been woken and has not
//! come to 1. Therefore each waiter also waits for the count of deaths, which it has read before it looked at the word: the
//! death is counted after the identity was taken back, and all who wait look again.
//!
//! That a dead process no longer writes is the kernel's promise: its identity is taken back when it has been reaped.

use crate::cancel::{Limit, WaitError};
use crate::prim::{AtomicU32, Ordering, relax};

const FREE: u32 = 0;
/// Somebody may wait.
const WAITED_FOR: u32 = 1 << 31;
/// Looks before a thread sleeps.
const TURNS: u32 = if cfg!(loom) { 0 } else { 100 };

/// What the lock asks of its surroundings.
pub trait Processes {
    /// The caller's process.
    fn me(&self) -> u32;
    /// How many processes have died. Read before [`Processes::is_dead`]; a wait ends when it changes.
    fn deaths(&self) -> u32;
    /// Whether that process has died, and what it wrote is visible.
    fn is_dead(&self, process: u32) -> bool;
    /// Waits while the word has this value and the count of deaths has that, until the limit. It may return early. It says
    /// that the limit has come only if no wake was used up.
    fn wait(&self, word: &AtomicU32, value: u32, deaths: u32, limit: &Limit<'_>) -> Result<(), WaitError>;
    /// Wakes one.
    fn wake(&self, word: *const AtomicU32);
}

/// The lock.
#[derive(Debug)]
#[repr(transparent)]
pub struct Word(AtomicU32);

impl Word {
    /// A free one. (So are four bytes of 0.)
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    #[cfg(loom)]
    pub fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Takes it if it is free, or if its holder is dead: then the answer is true.
    #[inline]
    pub fn try_lock(&self, all: &impl Processes) -> Option<bool> {
        // Acquire: what the last holder did is visible. pairs: process.word
        match self.0.compare_exchange(FREE, all.me(), Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Some(false),
            Err(now) => (now != FREE && self.take_over(all, now)).then_some(true),
        }
    }

    /// Takes it; the answer tells whether it was taken from a dead process.
    #[inline]
    pub fn lock(&self, all: &impl Processes, limit: &Limit<'_>) -> Result<bool, WaitError> {
        // Acquire: as in `try_lock`. pairs: process.word
        if self.0.compare_exchange(FREE, all.me(), Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return Ok(false);
        }
        self.lock_slowly(all, limit)
    }

    fn take_over(&self, all: &impl Processes, now: u32) -> bool {
        // What the dead process did was made visible by `is_dead`.
        // Acquire: as in `try_lock`, from whoever set the bit. pairs: process.word
        all.is_dead(now & !WAITED_FOR)
            && self.0.compare_exchange(now, all.me(), Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn lock_slowly(&self, all: &impl Processes, limit: &Limit<'_>) -> Result<bool, WaitError> {
        let mut mine = all.me();
        let mut turns = 0;
        loop {
            let deaths = all.deaths();
            let now = self.0.load(Ordering::Relaxed);
            if now == FREE {
                // Acquire: as in `try_lock`. pairs: process.word
                if self.0.compare_exchange(FREE, mine, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return Ok(false);
                }
                continue;
            }
            if now & WAITED_FOR == 0 && turns < TURNS {
                turns += 1;
                relax();
                continue;
            }
            if self.take_over(all, now) {
                return Ok(true);
            }
            let held = now | WAITED_FOR;
            if now != held && self.0.compare_exchange(now, held, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                continue;
            }
            mine |= WAITED_FOR;
            all.wait(&self.0, held, deaths, limit)?;
        }
    }

    /// Frees it.
    #[inline]
    pub fn unlock(&self, all: &impl Processes) {
        // Release: what we did comes before the next holder. pairs: process.word
        if self.0.swap(FREE, Ordering::Release) & WAITED_FOR != 0 {
            all.wake(&raw const self.0);
        }
    }

    /// Whether somebody holds it, living or dead.
    #[cfg(not(loom))]
    pub fn is_held(&self) -> bool {
        self.0.load(Ordering::Relaxed) != FREE
    }
}
