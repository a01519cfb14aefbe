//! A condition variable: a word that changes with each notification.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::mutex::{Mutex, MutexGuard};
use crate::futex;

/// Waiting for what a [`Mutex`] protects to change.
#[derive(Debug, Default)]
pub struct Condvar {
    word: AtomicU32,
}

impl Condvar {
    /// Nobody waits.
    pub const fn new() -> Self {
        Self { word: AtomicU32::new(0) }
    }

    /// Frees the mutex, waits for a notification, takes the mutex again. It may return without one.
    pub fn wait<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.wait_until(guard, None).0
    }

    /// Waits, as often as it needs, while `condition` holds.
    pub fn wait_while<'a, T: ?Sized>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        while condition(&mut guard) {
            guard = self.wait(guard);
        }
        guard
    }

    /// Waits for as long as that; false: the time has passed.
    pub fn wait_for<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>, most: Duration) -> (MutexGuard<'a, T>, bool) {
        self.wait_until(guard, Instant::now().checked_add(most))
    }

    fn wait_until<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Option<Instant>,
    ) -> (MutexGuard<'a, T>, bool) {
        let mutex: &'a Mutex<T> = guard.mutex();
        // Relaxed: who notifies changes the word after it has changed what the mutex protects, which we hold: either we
        // saw that change, or the word changes after this load and the wait ends at once.
        let before = self.word.load(Ordering::Relaxed);
        drop(guard);
        let in_time = futex::wait_until(&self.word, before, deadline);
        (mutex.lock(), in_time)
    }

    /// Wakes one that waits.
    pub fn notify_one(&self) {
        self.word.fetch_add(1, Ordering::Relaxed); // see `wait_until`
        futex::wake(&self.word, 1);
    }

    /// Wakes all that wait.
    pub fn notify_all(&self) {
        self.word.fetch_add(1, Ordering::Relaxed); // see `wait_until`
        futex::wake(&self.word, i32::MAX);
    }
}
