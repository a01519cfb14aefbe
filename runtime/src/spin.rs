//! A lock for a few instructions: who waits for it looks again and again, and now and then lets others of the process run,
//! since the holder may need this very worker.

use crate::prim::{AtomicU32, Ordering, relax, yield_cpu};

/// Looks until it is so.
pub fn until(is_so: impl Fn() -> bool) {
    let mut turns = 0;
    while !is_so() {
        turns += 1;
        if turns % 64 == 0 { yield_cpu() } else { relax() }
    }
}

/// See the module.
pub struct Spin(AtomicU32);

impl Spin {
    /// A free one.
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Takes it if it is free.
    #[inline]
    pub fn try_acquire(&self) -> bool {
        // Acquire: what the last holder did is visible. pairs: spin.lock
        self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes it when it is free.
    pub fn acquire(&self) {
        until(|| self.try_acquire());
    }

    /// Gives it back. Only for who holds it.
    #[inline]
    pub fn release(&self) {
        // Release: what we did comes before the next holder. pairs: spin.lock
        self.0.store(0, Ordering::Release);
    }
}
