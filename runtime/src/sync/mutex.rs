//! A mutex of one word: 0 free, 1 held, 2 held and perhaps waited for.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crate::cancel::{Limit, WaitError};
use crate::futex;
use crate::prim::{AtomicU32, Ordering, relax};

const FREE: u32 = 0;
const HELD: u32 = 1;
const WAITED_FOR: u32 = 2;
/// Looks before a thread parks.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 7 };

/// Mutual exclusion. No poisoning: a panic while it is held frees it, and the data is as it was then.
///
/// It may be used by user threads, kernel threads and threads that know nothing of Heddle alike. Whoever has to wait looks
/// again for a moment, then parks. It is not fair: a thread that comes just when it is freed may be faster than one that
/// was woken.
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
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// A free one.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
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
            // Without a limit it ends with the lock.
            let _ = self.lock_slowly(&Limit::NEVER);
        }
        self.guard()
    }

    /// Waits until nobody else holds it, or until the limit.
    #[doc(alias("try_lock_for", "try_lock_until", "lock_timeout"))]
    pub fn lock_until<'l>(&self, limit: impl Into<Limit<'l>>) -> Result<MutexGuard<'_, T>, WaitError> {
        match self.try_lock() {
            Some(guard) => Ok(guard),
            None => self.lock_slowly(&limit.into()).map(|()| self.guard()),
        }
    }

    /// Takes it if nobody holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        // Acquire: as in `lock`. pairs: mutex.word
        let got = self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok();
        got.then(|| self.guard())
    }

    /// A guard for a lock whose guard was forgotten: for interfaces that lock and unlock by separate calls.
    ///
    /// # Safety
    /// The calling thread holds the mutex, and has no other guard of it.
    #[inline]
    pub unsafe fn make_guard_unchecked(&self) -> MutexGuard<'_, T> {
        self.guard()
    }

    /// The value: nobody else can have it.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    fn guard(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, not_send: PhantomData }
    }

    #[cold]
    fn lock_slowly(&self, limit: &Limit<'_>) -> Result<(), WaitError> {
        let mut now = self.look();
        if now == FREE {
            // Acquire: as in `lock`. pairs: mutex.word
            match self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(other) => now = other,
            }
        }
        loop {
            // From here on the word says that somebody waits, also when we have it: there may be others.
            // Acquire: as in `lock`. pairs: mutex.word
            if now != WAITED_FOR && self.word.swap(WAITED_FOR, Ordering::Acquire) == FREE {
                return Ok(());
            }
            // If it gives up here the word says that somebody waits, so a wake that it has used up is made again by who
            // holds the mutex now.
            futex::wait_within(&self.word, WAITED_FOR, limit)?;
            now = self.look();
        }
    }

    /// Looks for a moment whether it is freed, unless others are parked already.
    fn look(&self) -> u32 {
        let mut pauses = 1;
        for _ in 0..LOOKS {
            let now = self.word.load(Ordering::Relaxed);
            if now != HELD {
                return now;
            }
            for _ in 0..pauses {
                relax();
            }
            pauses *= 2;
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

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// Frees the mutex when it is dropped, by the thread that holds it: it cannot be sent to another.
/// ```compile_fail,E0277
/// static NUMBER: heddle::sync::Mutex<u32> = heddle::sync::Mutex::new(0);
/// let held = NUMBER.lock();
/// std::thread::spawn(move || drop(held));
/// ```
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
