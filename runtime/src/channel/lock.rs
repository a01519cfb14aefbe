//! A lock that is held for some instructions, for lists of waiters and what is built on them. Its unlock touches nothing but its word's
//! address once it is free, so whoever has it next may free it. (For the sides of a queue there is [`super::side`].)

use super::cell::UnsafeCell;
#[cfg(not(loom))]
use crate::futex;
#[cfg(not(loom))]
use crate::prim::{AtomicU32, Ordering, relax};

#[cfg(not(loom))]
const FREE: u32 = 0;
#[cfg(not(loom))]
const HELD: u32 = 1;
#[cfg(not(loom))]
const WAITED_FOR: u32 = 2;
/// Looks before a thread parks for a lock.
#[cfg(not(loom))]
const TURNS: u32 = 100;

/// A lock that what is built on this module holds for some instructions.
#[cfg(not(loom))]
#[derive(Default)]
pub struct RawLock {
    word: AtomicU32,
}

#[cfg(not(loom))]
impl RawLock {
    /// Runs `f`, which must not panic, as its holder.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        self.lock();
        let result = f();
        self.unlock();
        result
    }

    #[inline]
    fn lock(&self) {
        // Acquire: what the last holder did is visible. pairs: channel.lock
        if self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_slowly();
        }
    }

    #[cold]
    fn lock_slowly(&self) {
        for _ in 0..TURNS {
            relax();
            let now = self.word.load(Ordering::Relaxed);
            // Acquire: as above. pairs: channel.lock
            let take = || self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
            if now == FREE && take().is_ok() {
                return;
            }
            if now == WAITED_FOR {
                break;
            }
        }
        // Acquire: as above. pairs: channel.lock
        while self.word.swap(WAITED_FOR, Ordering::Acquire) != FREE {
            futex::wait(&self.word, WAITED_FOR);
        }
    }

    #[inline]
    fn unlock(&self) {
        let word = &raw const self.word;
        // Release: what we did comes before the next holder. pairs: channel.lock
        if self.word.swap(FREE, Ordering::Release) == WAITED_FOR {
            futex::wake(word, 1);
        }
    }
}

/// In models it is loom's: else each of its looks would multiply the interleavings.
#[cfg(loom)]
pub struct RawLock {
    mutex: loom::sync::Mutex<()>,
}

#[cfg(loom)]
impl Default for RawLock {
    fn default() -> Self {
        Self { mutex: loom::sync::Mutex::new(()) }
    }
}

#[cfg(loom)]
impl RawLock {
    pub fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        let _held = self.mutex.lock().unwrap();
        f()
    }

    /// As a side's lock.
    pub fn with_unless<R>(&self, alone: bool, f: impl FnOnce() -> R) -> R {
        if alone { f() } else { self.with(f) }
    }
}

/// What such a lock protects.
#[derive(Default)]
pub struct Lock<T> {
    raw: RawLock,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time reaches the value.
unsafe impl<T: Send> Send for Lock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// Runs `f`, which must not panic, with the value.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: we hold the lock.
        self.raw.with(|| self.value.with_mut(|value| f(unsafe { &mut *value })))
    }
}
