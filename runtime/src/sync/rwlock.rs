//! A lock for many readers or one writer: how many readers hold it, and two words to wait on.
//!
//! `state`: 0 free; n readers, times two; `WRITTEN`: a writer holds it. Its lowest bit: a writer waits, and new readers wait
//! behind it. `writers` changes whenever a writer may try again. `parked` counts those that are about to sleep on either
//! word: a writer that ends reads it after it has freed the state, and they sleep only if the state is not free after they
//! have been counted (store buffering: the operations on both are SeqCst, and the futex call reads after a full fence).

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::futex;

const WRITER_WAITS: u32 = 1;
const READER: u32 = 2;
const WRITTEN: u32 = u32::MAX;
const TURNS: u32 = 100;

/// Shared or exclusive access. No poisoning. Writers come first: while one waits, no new reader gets in, so a thread that
/// reads must not read again.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized> {
    state: AtomicU32,
    writers: AtomicU32,
    parked: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value goes to one writer at a time.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: as above, or to many readers.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

impl<T> RwLock<T> {
    /// A free one.
    pub const fn new(value: T) -> Self {
        Self {
            state: AtomicU32::new(0),
            writers: AtomicU32::new(0),
            parked: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until no writer holds it or waits for it.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let mut turns = 0;
        loop {
            let s = self.state.load(Ordering::Relaxed);
            if self.try_count(s) {
                return RwLockReadGuard { lock: self, not_send: PhantomData };
            }
            if s & WRITER_WAITS == 0 {
                assert!(s < WRITTEN - READER, "too many readers");
                continue;
            }
            turns += 1;
            if turns < TURNS {
                std::hint::spin_loop();
            } else {
                // A reader that waits is woken when the word has changed: by the writer's end.
                self.park(&self.state, s);
            }
        }
    }

    fn try_count(&self, s: u32) -> bool {
        s & WRITER_WAITS == 0
            && s < WRITTEN - READER
            // Acquire: what the last writer did is visible. pairs: rwlock.state
            && self.state.compare_exchange_weak(s, s + READER, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Reads if no writer holds it or waits for it.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        loop {
            let s = self.state.load(Ordering::Relaxed);
            if self.try_count(s) {
                return Some(RwLockReadGuard { lock: self, not_send: PhantomData });
            }
            if s & WRITER_WAITS != 0 || s >= WRITTEN - READER {
                return None;
            }
        }
    }

    /// Waits until nobody else holds it.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        if let Some(guard) = self.try_write() {
            return guard;
        }
        self.write_slowly();
        RwLockWriteGuard { lock: self, not_send: PhantomData }
    }

    /// Takes it if nobody holds it.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        // Acquire: what the last holders did is visible. pairs: rwlock.state
        let got = self.state.compare_exchange(0, WRITTEN, Ordering::Acquire, Ordering::Relaxed).is_ok();
        got.then(|| RwLockWriteGuard { lock: self, not_send: PhantomData })
    }

    #[cold]
    fn write_slowly(&self) {
        let mut turns = 0;
        loop {
            let s = self.state.load(Ordering::Relaxed);
            if s <= WRITER_WAITS {
                // Acquire: what the last holders did is visible. pairs: rwlock.state
                if self.state.compare_exchange(s, WRITTEN, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return;
                }
                continue;
            }
            turns += 1;
            if turns < TURNS {
                std::hint::spin_loop();
                continue;
            }
            // Acquire: the state read next is at least as new as the change that was announced. pairs: rwlock.writers
            let before = self.writers.load(Ordering::Acquire);
            let s = self.state.load(Ordering::Relaxed);
            if s <= WRITER_WAITS {
                continue;
            }
            if s & WRITER_WAITS == 0
                && self.state.compare_exchange(s, s | WRITER_WAITS, Ordering::Relaxed, Ordering::Relaxed).is_err()
            {
                continue;
            }
            self.park(&self.writers, before);
        }
    }

    fn end_read(&self) {
        // Release: what we read we read before the next writer. pairs: rwlock.state
        let s = self.state.fetch_sub(READER, Ordering::Release);
        if s == READER | WRITER_WAITS {
            self.wake(false);
        }
    }

    fn end_write(&self) {
        // SeqCst: what we wrote comes before the next holder (pairs: rwlock.state), and the store before the load: a thread
        // that was counted after it finds the state free (pairs: rwlock.parked).
        self.state.swap(0, Ordering::SeqCst);
        // SeqCst: see above.
        if self.parked.load(Ordering::SeqCst) != 0 {
            self.wake(true);
        }
    }

    fn park(&self, word: &AtomicU32, value: u32) {
        self.parked.fetch_add(1, Ordering::SeqCst); // SeqCst: before the futex call reads the word. pairs: rwlock.parked
        futex::wait(word, value);
        self.parked.fetch_sub(1, Ordering::Relaxed);
    }

    /// It is free: a writer may try again, and so may readers if a writer has kept them out.
    #[cold]
    fn wake(&self, readers: bool) {
        // Release: the state has changed. pairs: rwlock.writers
        self.writers.fetch_add(1, Ordering::Release);
        futex::wake(&self.writers, 1);
        if readers {
            futex::wake(&self.state, i32::MAX);
        }
    }

    /// The value: nobody else can have it.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// Shared access, until it is dropped.
#[must_use = "the lock is free again at once"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    not_send: PhantomData<*const ()>,
}

/// Exclusive access, until it is dropped.
#[must_use = "the lock is free again at once"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    not_send: PhantomData<*const ()>,
}

// SAFETY: it gives shared access to the value.
unsafe impl<T: ?Sized + Sync> Sync for RwLockReadGuard<'_, T> {}
// SAFETY: shared, it gives shared access to the value.
unsafe impl<T: ?Sized + Sync> Sync for RwLockWriteGuard<'_, T> {}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: we are counted as a reader.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: we hold the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: we hold the lock.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.end_read();
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.end_write();
    }
}
