//! Deadlines on clocks that can be set, or that count suspend: the heaps of deadlines are ordered by CLOCK_MONOTONIC, which is neither.
//!
//! Each such clock is ahead of CLOCK_MONOTONIC by an amount that changes only when it is set, steps by a leap second, or the machine
//! sleeps. The amounts are kept here, so that a wait asks no clock when it begins. The kernel tells of a change (see
//! `Reactor::open`); then
//!
//! 1. under the lock, whoever hears of it asks the clocks and stores the new amounts;
//! 2. still under it, takes each heap's own lock in turn and converts the entries with such deadlines anew.
//!
//! A wait converts its deadline and enters it under its heap's lock. If it had that lock before step 2, its entry is converted anew;
//! if after it, it saw what step 1 stored. Two who hear of two changes do both steps one after the other, and the second asks
//! the clocks last: no older amount replaces a newer one.
//!
//! Until the change is heard of, waits are converted by the old amount. So an entry that is due by CLOCK_MONOTONIC has its own
//! clock asked before its wait ends (`Timers::expire`): a wait may end some milliseconds late, but never early.
//!
//! Model: `models/wall.rs`.

use crate::lock::SpinLock;
use crate::prim::{AtomicU64, Ordering};

/// A clock by which a wait may end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Clock {
    /// CLOCK_MONOTONIC.
    Monotonic = 0,
    /// CLOCK_REALTIME.
    Realtime = 1,
    /// CLOCK_TAI.
    Tai = 2,
    /// CLOCK_BOOTTIME.
    Boottime = 3,
}

/// The clocks.
pub const CLOCKS: [Clock; 4] = [Clock::Monotonic, Clock::Realtime, Clock::Tai, Clock::Boottime];

/// When a wait ends at the latest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadline {
    /// Nanoseconds of its clock; `u64::MAX`: never.
    pub at: u64,
    /// Its clock.
    pub clock: Clock,
}

impl From<u64> for Deadline {
    /// A time of CLOCK_MONOTONIC.
    #[inline]
    fn from(at: u64) -> Self {
        Self { at, clock: Clock::Monotonic }
    }
}

/// What a clock's amount is while nobody would tell of a change.
const UNKNOWN: u64 = i64::MIN as u64;

/// What to add to a time of each clock to have CLOCK_MONOTONIC's.
pub struct Offsets {
    /// As `i64`. By [`Clock`]; the first one stays 0.
    to_monotonic: [AtomicU64; CLOCKS.len()],
    changing: SpinLock<()>,
}

impl Default for Offsets {
    fn default() -> Self {
        Self::new()
    }
}

impl Offsets {
    /// Nothing is known.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { to_monotonic: Self::unknown(), changing: SpinLock::new(()) }
    }
    /// Nothing is known.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { to_monotonic: Self::unknown(), changing: SpinLock::new(()) }
    }

    #[cfg(not(loom))]
    const fn unknown() -> [AtomicU64; CLOCKS.len()] {
        [AtomicU64::new(0), AtomicU64::new(UNKNOWN), AtomicU64::new(UNKNOWN), AtomicU64::new(UNKNOWN)]
    }
    #[cfg(loom)]
    fn unknown() -> [AtomicU64; CLOCKS.len()] {
        CLOCKS.map(|clock| AtomicU64::new(if clock == Clock::Monotonic { 0 } else { UNKNOWN }))
    }

    /// The deadline as a time of CLOCK_MONOTONIC. To be called under the lock of the heap that it is for. `None`: its clock has to be
    /// asked.
    #[inline]
    pub fn monotonic(&self, deadline: Deadline) -> Option<u64> {
        if deadline.clock == Clock::Monotonic {
            return Some(deadline.at);
        }
        // Relaxed: ordered by the heap's lock.
        match self.to_monotonic[deadline.clock as usize].load(Ordering::Relaxed) {
            UNKNOWN => None,
            offset => Some(deadline.at.saturating_add_signed(offset as i64)),
        }
    }

    /// Somebody heard that the clocks may have been set: `ask` tells what is to be added to a clock's time, `convert` converts
    /// what the heaps hold.
    pub fn renew(&self, ask: impl Fn(Clock) -> i64, convert: impl FnOnce()) {
        let changing = self.changing.lock();
        for clock in CLOCKS {
            if clock != Clock::Monotonic {
                self.to_monotonic[clock as usize].store(ask(clock) as u64, Ordering::Relaxed);
            }
        }
        convert();
        drop(changing);
    }

    /// Nobody will tell of changes, in a forked child.
    ///
    /// # Safety
    /// The caller is the only thread.
    pub unsafe fn forget(&self) {
        // SAFETY: the caller's.
        unsafe { self.changing.force_unlock() };
        for clock in CLOCKS {
            if clock != Clock::Monotonic {
                self.to_monotonic[clock as usize].store(UNKNOWN, Ordering::Relaxed);
            }
        }
    }
}
