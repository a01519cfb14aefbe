//! A counting semaphore: what is left, and how many wait.

use crate::cancel::{Limit, WaitError};
use crate::futex;
use crate::prim::{AtomicU32, Ordering, fence_after_rmw, relax};

/// Looks before a thread parks.
const TURNS: u32 = if cfg!(loom) { 1 } else { 100 };

/// A number of permits.
#[derive(Debug)]
pub struct Semaphore {
    permits: AtomicU32,
    waiting: AtomicU32,
}

impl Semaphore {
    /// With that many permits.
    #[cfg(not(loom))]
    pub const fn new(permits: u32) -> Self {
        Self { permits: AtomicU32::new(permits), waiting: AtomicU32::new(0) }
    }

    /// With that many permits.
    #[cfg(loom)]
    pub fn new(permits: u32) -> Self {
        Self { permits: AtomicU32::new(permits), waiting: AtomicU32::new(0) }
    }

    /// Takes a permit if there is one.
    pub fn try_acquire(&self) -> bool {
        let mut now = self.permits.load(Ordering::Relaxed);
        while now != 0 {
            // Acquire: what its last holder did is visible. pairs: semaphore.permits
            match self.permits.compare_exchange_weak(now, now - 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        false
    }

    /// Waits for a permit and takes it.
    pub fn acquire(&self) {
        // Without a limit it ends with the permit.
        let _ = self.acquire_within(&Limit::NEVER);
    }

    /// Waits for a permit and takes it, or until the limit.
    #[doc(alias("acquire_timeout", "try_acquire_for"))]
    pub fn acquire_until<'l>(&self, limit: impl Into<Limit<'l>>) -> Result<(), WaitError> {
        if self.try_acquire() {
            return Ok(());
        }
        self.acquire_within(&limit.into())
    }

    fn acquire_within(&self, limit: &Limit<'_>) -> Result<(), WaitError> {
        for _ in 0..TURNS {
            if self.try_acquire() {
                return Ok(());
            }
            relax();
        }
        // SeqCst: we are counted before the futex call reads the permits: see `release`. pairs: semaphore.waiting
        self.waiting.fetch_add(1, Ordering::SeqCst);
        fence_after_rmw();
        let got = loop {
            if self.try_acquire() {
                break Ok(());
            }
            if let Err(why) = futex::wait_within(&self.permits, 0, limit) {
                break if self.try_acquire() { Ok(()) } else { Err(why) };
            }
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        got
    }

    /// Gives a permit back, or adds one.
    #[doc(alias("add_permits", "post"))]
    pub fn release(&self) {
        self.release_many(1);
    }

    /// Gives several back.
    ///
    /// # Panics
    /// If there would be more than `u32::MAX`.
    pub fn release_many(&self, count: u32) {
        assert!(self.try_release_many(count), "too many permits");
    }

    /// Gives several back; false, and nothing has changed, if there would be more than `u32::MAX`.
    pub fn try_release_many(&self, count: u32) -> bool {
        let mut now = self.permits.load(Ordering::Relaxed);
        loop {
            let Some(sum) = now.checked_add(count) else { return false };
            // SeqCst: what we did comes before the next holder (pairs: semaphore.permits), and the permits before the load
            // below: one that is counted later finds them (store buffering; pairs: semaphore.waiting).
            match self.permits.compare_exchange_weak(now, sum, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => break,
                Err(other) => now = other,
            }
        }
        fence_after_rmw();
        // SeqCst: see above.
        if self.waiting.load(Ordering::SeqCst) != 0 {
            futex::wake(&self.permits, count.min(i32::MAX as u32) as i32);
        }
        true
    }
}

impl Default for Semaphore {
    /// Without permits.
    fn default() -> Self {
        Self::new(0)
    }
}
