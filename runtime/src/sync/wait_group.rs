//! A wait group: a count to wait for the end of.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::cancel::{Limit, WaitError};
use crate::futex;

/// Counts things under way; one or more threads wait until there are none.
#[derive(Debug, Default)]
pub struct WaitGroup {
    count: AtomicU32,
}

impl WaitGroup {
    /// None under way.
    pub const fn new() -> Self {
        Self { count: AtomicU32::new(0) }
    }

    /// That many more.
    ///
    /// # Panics
    /// If there would be more than `u32::MAX`.
    pub fn add(&self, more: u32) {
        let old = self.count.fetch_add(more, Ordering::Relaxed);
        assert!(old.checked_add(more).is_some(), "too many under way");
    }

    /// One less.
    ///
    /// # Panics
    /// If there are none.
    pub fn done(&self) {
        let word = &raw const self.count;
        // AcqRel: what was under way, here and elsewhere, comes before those who waited. pairs: wait_group.count
        let old = self.count.fetch_sub(1, Ordering::AcqRel);
        assert_ne!(old, 0, "none is under way");
        if old == 1 {
            futex::wake(word, i32::MAX);
        }
    }

    /// That many more; false, and nothing has changed, if there would be more than `u32::MAX`.
    pub fn try_add(&self, more: u32) -> bool {
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| now.checked_add(more)).is_ok()
    }

    /// One less; false, and nothing has changed, if there are none.
    pub fn try_done(&self) -> bool {
        let word = &raw const self.count;
        // AcqRel: as in `done`. pairs: wait_group.count
        let old = self.count.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |now| now.checked_sub(1));
        if old == Ok(1) {
            futex::wake(word, i32::MAX);
        }
        old.is_ok()
    }

    /// Waits until there are none.
    pub fn wait(&self) {
        // Without a limit it ends with the last.
        let _ = self.wait_until(Limit::NEVER);
    }

    /// Waits until there are none, or until the limit.
    pub fn wait_until<'l>(&self, limit: impl Into<Limit<'l>>) -> Result<(), WaitError> {
        let limit = limit.into();
        loop {
            // Acquire: what was under way is visible. pairs: wait_group.count
            let now = self.count.load(Ordering::Acquire);
            if now == 0 {
                return Ok(());
            }
            futex::wait_within(&self.count, now, &limit)?;
        }
    }
}
