//! A counting semaphore: what is left, and how many wait.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::futex;

/// A number of permits.
#[derive(Debug, Default)]
pub struct Semaphore {
    permits: AtomicU32,
    waiting: AtomicU32,
}

impl Semaphore {
    /// With that many permits.
    pub const fn new(permits: u32) -> Self {
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
        self.acquire_until(None);
    }

    /// Waits for a permit for as long as that; whether it was had.
    pub fn acquire_for(&self, most: Duration) -> bool {
        self.acquire_until(Instant::now().checked_add(most))
    }

    fn acquire_until(&self, deadline: Option<Instant>) -> bool {
        for _ in 0..100 {
            if self.try_acquire() {
                return true;
            }
            std::hint::spin_loop();
        }
        // SeqCst: we are counted before the futex call reads the permits: see `release`. pairs: semaphore.waiting
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let got = loop {
            if self.try_acquire() {
                break true;
            }
            if !futex::wait_until(&self.permits, 0, deadline) {
                break self.try_acquire();
            }
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        got
    }

    /// Gives a permit back, or adds one.
    pub fn release(&self) {
        self.release_many(1);
    }

    /// Gives several back.
    ///
    /// # Panics
    /// If there would be more than `u32::MAX`.
    pub fn release_many(&self, count: u32) {
        let mut now = self.permits.load(Ordering::Relaxed);
        loop {
            let Some(sum) = now.checked_add(count) else { panic!("too many permits") };
            // SeqCst: what we did comes before the next holder (pairs: semaphore.permits), and the permits before the load
            // below: one that is counted later finds them (store buffering; pairs: semaphore.waiting).
            match self.permits.compare_exchange_weak(now, sum, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => break,
                Err(other) => now = other,
            }
        }
        // SeqCst: see above.
        if self.waiting.load(Ordering::SeqCst) != 0 {
            futex::wake(&self.permits, count.min(i32::MAX as u32) as i32);
        }
    }
}
