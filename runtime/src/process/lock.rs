//! A mutex and a condition variable that processes share, and that survive them.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

use super::Shareable;
use super::wait::{self, System};
use super::word::Word;
use crate::cancel::{Limit, WaitError};

/// Mutual exclusion between the threads of all processes, for values in the arena (inside an [`ArenaArc`](super::ArenaArc)).
///
/// If a process dies while one of its threads holds it, the next `lock` anywhere gets it, at once, with
/// [`MutexGuard::was_abandoned`] set: the value is as the dead thread left it, perhaps in the middle of a change. It is
/// for the caller to look at it and put it in order; nobody is told again. There is no poisoning otherwise: a panic frees it.
///
/// In process mode a user thread that has to wait takes a kernel thread along while it waits.
#[derive(Debug)]
#[repr(C)]
pub struct Mutex<T> {
    word: Word,
    value: Value<T>,
}

#[repr(transparent)]
struct Value<T>(UnsafeCell<T>);

impl<T> fmt::Debug for Value<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

// SAFETY: one thread at a time, of all processes, reaches the value.
unsafe impl<T: Send> Sync for Mutex<T> {}
// SAFETY: its value may cross, and the word means the same everywhere.
unsafe impl<T: Shareable> Shareable for Mutex<T> {}

impl<T> Mutex<T> {
    /// A free one.
    pub const fn new(value: T) -> Self {
        Self { word: Word::new(), value: Value(UnsafeCell::new(value)) }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.0.into_inner()
    }

    /// Waits until nobody else holds it. A thread that holds it already waits for ever.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let abandoned = self.word.lock(&System, &Limit::NEVER) == Ok(true);
        MutexGuard { mutex: self, abandoned, not_send: PhantomData }
    }

    /// Waits until nobody else holds it, or until the limit. In process mode a token is looked at every 5 ms.
    pub fn lock_until<'l>(&self, limit: impl Into<Limit<'l>>) -> Result<MutexGuard<'_, T>, WaitError> {
        let abandoned = self.word.lock(&System, &limit.into())?;
        Ok(MutexGuard { mutex: self, abandoned, not_send: PhantomData })
    }

    /// Takes it if nobody holds it, or only a dead process.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let abandoned = self.word.try_lock(&System)?;
        Some(MutexGuard { mutex: self, abandoned, not_send: PhantomData })
    }

    /// The value: nobody else can have it.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.0.get_mut()
    }

    /// Whether somebody holds it at this moment, living or dead.
    pub fn is_locked(&self) -> bool {
        self.word.is_held()
    }
}

/// Frees the mutex when it is dropped.
#[must_use = "the mutex is free again at once"]
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    abandoned: bool,
    /// Freed by the thread that holds it, as with other locks.
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives shared access to the value.
unsafe impl<T: Sync> Sync for MutexGuard<'_, T> {}

impl<T> MutexGuard<'_, T> {
    /// Whether the one who had it before died with it, so that the value may be half changed.
    pub fn was_abandoned(&self) -> bool {
        self.abandoned
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: we hold the mutex.
        unsafe { &*self.mutex.value.0.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: we hold the mutex.
        unsafe { &mut *self.mutex.value.0.get() }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.mutex.word.unlock(&System);
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Waiting for what a [`Mutex`] protects to change, in whatever process.
///
/// The death of any process ends a wait as a notification does, so that who waits for one that died looks again.
#[derive(Debug, Default)]
pub struct Condvar {
    word: AtomicU32,
}

// SAFETY: a word that means the same everywhere.
unsafe impl Shareable for Condvar {}

impl Condvar {
    /// Nobody waits.
    pub const fn new() -> Self {
        Self { word: AtomicU32::new(0) }
    }

    /// Frees the mutex, waits for a notification, takes the mutex again. It may return without one.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.wait_within(guard, &Limit::NEVER).0
    }

    /// Waits, as often as it needs, while `condition` holds.
    pub fn wait_while<'a, T>(
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
    /// limit. In process mode a token is looked at every 5 ms.
    pub fn wait_until<'a, 'l, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: impl Into<Limit<'l>>,
    ) -> (MutexGuard<'a, T>, Result<(), WaitError>) {
        self.wait_within(guard, &limit.into())
    }

    fn wait_within<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: &Limit<'_>,
    ) -> (MutexGuard<'a, T>, Result<(), WaitError>) {
        let mutex = guard.mutex;
        let deaths = wait::deaths();
        // Relaxed: read under the mutex, as in `crate::sync::Condvar`.
        let before = self.word.load(Ordering::Relaxed);
        drop(guard);
        // A wait may return early; the limit is told by the one that begins after it, which has used up nothing.
        let mut result = Ok(());
        while result.is_ok() && self.word.load(Ordering::Relaxed) == before && deaths == wait::deaths() {
            result = wait::wait(&self.word, before, deaths, limit);
        }
        (mutex.lock(), result)
    }

    /// Wakes one that waits.
    pub fn notify_one(&self) {
        self.word.fetch_add(1, Ordering::Relaxed); // see `wait_within`
        wait::wake(&self.word, 1);
    }

    /// Wakes all that wait.
    pub fn notify_all(&self) {
        self.word.fetch_add(1, Ordering::Relaxed); // see `wait_within`
        wait::wake(&self.word, i32::MAX);
    }
}
