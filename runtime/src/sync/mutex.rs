//! A mutex of one word: 0 free, 1 held, 2 held and perhaps waited for.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::futex;

const FREE: u32 = 0;
const HELD: u32 = 1;
const WAITED_FOR: u32 = 2;
/// Looks before a thread parks.
const TURNS: u32 = 100;

/// Mutual exclusion. No poisoning: a panic while it is held frees it, and the data is as it was then.
///
/// It may be used by user threads, kernel threads and threads that know nothing of Heddle alike. Whoever has to wait looks
/// again for a moment, then parks. It is not fair: a thread that comes just when it is freed may be faster than one that
/// was woken.
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time reaches the value.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    /// A free one.
    pub const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until nobody else holds it.
    ///
    /// A thread that holds it already waits for ever.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        // Acquire: what the last holder did is visible. pairs: mutex.word
        if self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_slowly(None);
        }
        self.guard()
    }

    /// Takes it if nobody holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        // Acquire: as in `lock`. pairs: mutex.word
        let got = self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok();
        got.then(|| self.guard())
    }

    /// Waits until nobody else holds it, for as long as that.
    pub fn lock_for(&self, most: Duration) -> Option<MutexGuard<'_, T>> {
        self.try_lock().or_else(|| self.lock_slowly(Instant::now().checked_add(most)).then(|| self.guard()))
    }

    /// The value: nobody else can have it.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    fn guard(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, not_send: PhantomData }
    }

    #[cold]
    fn lock_slowly(&self, deadline: Option<Instant>) -> bool {
        let mut now = self.look();
        if now == FREE {
            // Acquire: as in `lock`. pairs: mutex.word
            match self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        loop {
            // From here on the word says that somebody waits, also when we have it: there may be others.
            // Acquire: as in `lock`. pairs: mutex.word
            if now != WAITED_FOR && self.word.swap(WAITED_FOR, Ordering::Acquire) == FREE {
                return true;
            }
            if !futex::wait_until(&self.word, WAITED_FOR, deadline) {
                return false;
            }
            now = self.look();
        }
    }

    /// Looks for a moment whether it is freed, unless others are parked already.
    fn look(&self) -> u32 {
        for _ in 0..TURNS {
            let now = self.word.load(Ordering::Relaxed);
            if now != HELD {
                return now;
            }
            std::hint::spin_loop();
        }
        self.word.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn unlock(&self) {
        // Release: what we did comes before the next holder. pairs: mutex.word
        if self.word.swap(FREE, Ordering::Release) == WAITED_FOR {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        futex::wake(&self.word, 1);
    }
}

/// Frees the mutex when it is dropped.
#[must_use = "the mutex is free again at once"]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    /// Freed by the thread that holds it.
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives shared access to the value.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    pub(super) fn mutex(&self) -> &'a Mutex<T> {
        self.mutex
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: we hold the mutex.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: we hold the mutex.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.unlock();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(value) => f.debug_tuple("Mutex").field(&&*value).finish(),
            None => f.write_str("Mutex(<held>)"),
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
