//! A condition variable: a word that changes with each notification.

use super::mutex::{Mutex, MutexGuard};
use crate::cancel::{Limit, Token, WaitError};
use crate::futex;
use crate::prim::{AtomicU32, Ordering};

/// Waiting for what a [`Mutex`] protects to change.
#[derive(Debug)]
pub struct Condvar {
    word: AtomicU32,
}

impl Condvar {
    /// Nobody waits.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { word: AtomicU32::new(0) }
    }

    /// Nobody waits.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { word: AtomicU32::new(0) }
    }

    /// Frees the mutex, waits for a notification, takes the mutex again. It may return without one.
    pub fn wait<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.wait_within(guard, &Limit::NEVER).0
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

    /// As [`wait`](Self::wait), but until the limit at most. The mutex is taken again in any case, and waiting for it has no
    /// limit. Who is told of the limit has not used up a notification that another was to get.
    #[doc(alias("wait_timeout", "wait_for"))]
    pub fn wait_until<'a, 'l, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: impl Into<Limit<'l>>,
    ) -> (MutexGuard<'a, T>, Result<(), WaitError>) {
        self.wait_within(guard, &limit.into())
    }

    /// As [`wait_while`](Self::wait_while), but until the limit at most. `Ok`: the condition does not hold.
    #[doc(alias("wait_timeout_while", "wait_while_for"))]
    pub fn wait_while_until<'a, 'l, T: ?Sized>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
        limit: impl Into<Limit<'l>>,
    ) -> (MutexGuard<'a, T>, Result<(), WaitError>) {
        let limit = limit.into();
        let mut result = Ok(());
        while condition(&mut guard) {
            if result.is_err() {
                return (guard, result);
            }
            (guard, result) = self.wait_within(guard, &limit);
        }
        (guard, Ok(()))
    }

    fn wait_within<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: &Limit<'_>,
    ) -> (MutexGuard<'a, T>, Result<(), WaitError>) {
        let mutex: &'a Mutex<T> = guard.mutex();
        // Relaxed: who notifies changes the word after it has changed what the mutex protects, which we hold: either we
        // saw that change, or the word changes after this load and the wait ends at once.
        let before = self.word.load(Ordering::Relaxed);
        drop(guard);
        let mut result = futex::wait_within(&self.word, before, limit);
        // A cancel may have come together with a notification, which only one waiter gets: that comes first.
        if result.is_ok()
            && self.word.load(Ordering::Relaxed) == before
            && limit.token().is_some_and(Token::is_cancelled)
        {
            result = Err(WaitError::Cancelled);
        }
        (mutex.lock(), result)
    }

    /// Wakes one that waits.
    pub fn notify_one(&self) {
        self.word.fetch_add(1, Ordering::Relaxed); // see `wait_within`
        futex::wake(&self.word, 1);
    }

    /// Wakes all that wait.
    pub fn notify_all(&self) {
        self.word.fetch_add(1, Ordering::Relaxed); // see `wait_within`
        futex::wake(&self.word, i32::MAX);
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}
