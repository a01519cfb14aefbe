//! A lock for many readers or one writer: how many readers hold it, and two words to wait on.
//!
//! `state`: 0 free; n readers, times two; `WRITTEN`: a writer holds it. Its lowest bit: a writer waits, and new readers wait
//! behind it. `writers` changes whenever a writer may try again. `parked` counts those that are about to sleep on either
//! word: a writer that ends reads it after it has freed the state, and they sleep only if the state is not free after they
//! have been counted (store buffering: the operations on both are SeqCst). Readers sleep on the state itself, which the futex
//! call reads after a full fence; writers look at it once more.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crate::cancel::{Limit, WaitError};
use crate::futex;
use crate::prim::{AtomicU32, Ordering, fence_after_rmw, relax};

const WRITER_WAITS: u32 = 1;
const READER: u32 = 2;
const WRITTEN: u32 = u32::MAX;
const TURNS: u32 = if cfg!(loom) { 1 } else { 100 };

/// Shared or exclusive access. No poisoning. Writers come first: while one waits, no new reader gets in, so a thread that
/// reads must not read again.
#[derive(Debug)]
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
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Self {
            state: AtomicU32::new(0),
            writers: AtomicU32::new(0),
            parked: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// A free one.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
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
        // Without a limit it ends with the lock.
        let _ = self.read_within(|| Limit::NEVER);
        RwLockReadGuard { lock: self, not_send: PhantomData }
    }

    /// Waits until no writer holds it or waits for it, or until the limit.
    #[doc(alias("try_read_for", "read_timeout"))]
    pub fn read_until<'l>(&self, limit: impl Into<Limit<'l>>) -> Result<RwLockReadGuard<'_, T>, WaitError> {
        self.read_within(|| limit.into())?;
        Ok(RwLockReadGuard { lock: self, not_send: PhantomData })
    }

    fn read_within<'l>(&self, limit: impl FnOnce() -> Limit<'l>) -> Result<(), WaitError> {
        let s = self.state.load(Ordering::Relaxed);
        if self.try_count(s) { Ok(()) } else { self.read_slowly(&limit()) }
    }

    #[cold]
    fn read_slowly(&self, limit: &Limit<'_>) -> Result<(), WaitError> {
        let mut turns = 0;
        loop {
            let s = self.state.load(Ordering::Relaxed);
            if self.try_count(s) {
                return Ok(());
            }
            if s & WRITER_WAITS == 0 {
                assert!(s < WRITTEN - READER, "too many readers");
                continue;
            }
            turns += 1;
            if turns < TURNS {
                relax();
            } else {
                // A reader that waits is woken when the word has changed: by the writer's end, or when it gives up. All
                // readers are woken together, so one that gives up has used up nothing.
                self.count_parked();
                let result = futex::wait_within(&self.state, s, limit);
                self.parked.fetch_sub(1, Ordering::Relaxed);
                result?;
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
        // Without a limit it ends with the lock.
        let _ = self.write_slowly(&Limit::NEVER);
        RwLockWriteGuard { lock: self, not_send: PhantomData }
    }

    /// Waits until nobody else holds it, or until the limit.
    #[doc(alias("try_write_for", "write_timeout"))]
    pub fn write_until<'l>(&self, limit: impl Into<Limit<'l>>) -> Result<RwLockWriteGuard<'_, T>, WaitError> {
        if let Some(guard) = self.try_write() {
            return Ok(guard);
        }
        self.write_slowly(&limit.into())?;
        Ok(RwLockWriteGuard { lock: self, not_send: PhantomData })
    }

    /// Takes it if nobody holds it.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        // Acquire: what the last holders did is visible. pairs: rwlock.state
        let got = self.state.compare_exchange(0, WRITTEN, Ordering::Acquire, Ordering::Relaxed).is_ok();
        got.then(|| RwLockWriteGuard { lock: self, not_send: PhantomData })
    }

    #[cold]
    fn write_slowly(&self, limit: &Limit<'_>) -> Result<(), WaitError> {
        let mut turns = 0;
        loop {
            let s = self.state.load(Ordering::Relaxed);
            if s <= WRITER_WAITS {
                // Acquire: what the last holders did is visible. pairs: rwlock.state
                if self.state.compare_exchange(s, WRITTEN, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return Ok(());
                }
                continue;
            }
            turns += 1;
            if turns < TURNS {
                relax();
                continue;
            }
            self.count_parked();
            let result = self.sleep_to_write(limit);
            self.parked.fetch_sub(1, Ordering::Relaxed);
            if let Err(why) = result {
                self.give_up();
                return Err(why);
            }
        }
    }

    /// The caller has been counted as parked.
    fn sleep_to_write(&self, limit: &Limit<'_>) -> Result<(), WaitError> {
        // Acquire: the state read next is at least as new as the change that was announced. pairs: rwlock.writers
        let before = self.writers.load(Ordering::Acquire);
        // SeqCst: after we have been counted: either this finds the state free, or who frees it finds us. pairs: rwlock.parked
        let s = self.state.load(Ordering::SeqCst);
        if s <= WRITER_WAITS
            || s & WRITER_WAITS == 0
                && self.state.compare_exchange(s, s | WRITER_WAITS, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return Ok(());
        }
        futex::wait_within(&self.writers, before, limit)
    }

    fn count_parked(&self) {
        self.parked.fetch_add(1, Ordering::SeqCst); // SeqCst: before the state is read once more. pairs: rwlock.parked
        fence_after_rmw();
    }

    /// A writer that waited waits no more: it may have been the one that keeps new readers out, and it may have used up
    /// a wake. So all look again, and other writers say again that they wait.
    #[cold]
    fn give_up(&self) {
        let mut s = self.state.load(Ordering::Relaxed);
        while s != WRITTEN && s & WRITER_WAITS != 0 {
            match self.state.compare_exchange(s, s & !WRITER_WAITS, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(other) => s = other,
            }
        }
        // Release: the bit is cleared. pairs: rwlock.writers
        self.writers.fetch_add(1, Ordering::Release);
        futex::wake(&self.writers, i32::MAX);
        futex::wake(&self.state, i32::MAX);
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
        fence_after_rmw();
        // SeqCst: see above.
        if self.parked.load(Ordering::SeqCst) != 0 {
            self.wake(true);
        }
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

    /// A guard for shared access whose guard was forgotten: for interfaces that lock and unlock by separate calls.
    ///
    /// # Safety
    /// The calling thread reads, and has fewer guards than it has locked the lock times.
    pub unsafe fn make_read_guard_unchecked(&self) -> RwLockReadGuard<'_, T> {
        RwLockReadGuard { lock: self, not_send: PhantomData }
    }

    /// A guard for exclusive access whose guard was forgotten.
    ///
    /// # Safety
    /// The calling thread writes, and has no other guard.
    pub unsafe fn make_write_guard_unchecked(&self) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard { lock: self, not_send: PhantomData }
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// Shared access, until it is dropped.
#[must_use = "the lock is free again at once"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    not_send: PhantomData<*const ()>,
}

/// Exclusive access, until it is dropped, by the thread that has it:
/// ```compile_fail,E0277
/// static NUMBER: heddle::sync::RwLock<u32> = heddle::sync::RwLock::new(0);
/// let held = NUMBER.write();
/// std::thread::spawn(move || drop(held));
/// ```
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
