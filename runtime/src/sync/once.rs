//! Something that is done once.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::cancel::{Limit, WaitError};
use crate::futex;

const NEW: u32 = 0;
const RUNNING: u32 = 1;
const WAITED_FOR: u32 = 2;
const DONE: u32 = 3;

/// Runs one of the closures it is given, once.
#[derive(Debug, Default)]
pub struct Once {
    word: AtomicU32,
}

/// Gives the turn to the next if the closure panics.
struct Turn<'a> {
    once: &'a Once,
    result: u32,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Release: what the closure did comes before all that find it done. pairs: once.word
        if self.once.word.swap(self.result, Ordering::Release) == WAITED_FOR {
            futex::wake(&self.once.word, i32::MAX);
        }
    }
}

impl Once {
    /// Nothing has been done.
    pub const fn new() -> Self {
        Self { word: AtomicU32::new(NEW) }
    }

    /// Whether it has been done.
    #[inline]
    pub fn is_completed(&self) -> bool {
        // Acquire: what was done is visible. pairs: once.word
        self.word.load(Ordering::Acquire) == DONE
    }

    /// Runs `f` unless one has been run; waits while one runs. If it panics it has not been done, and the next tries.
    ///
    /// A closure that calls its own `Once` waits for ever.
    #[inline]
    pub fn call_once(&self, f: impl FnOnce()) {
        // Without a limit it ends when it is done.
        let _ = self.call_once_until(f, Limit::NEVER);
    }

    /// As [`call_once`](Self::call_once), but waits until the limit at most while another runs. `f` itself has no limit.
    #[inline]
    pub fn call_once_until<'l>(&self, f: impl FnOnce(), limit: impl Into<Limit<'l>>) -> Result<(), WaitError> {
        if self.is_completed() {
            return Ok(());
        }
        let done = || {
            f();
            true
        };
        self.call_slowly(done, &limit.into())
    }

    /// Runs `f`, which says whether it has done it.
    #[cold]
    fn call_slowly(&self, f: impl FnOnce() -> bool, limit: &Limit<'_>) -> Result<(), WaitError> {
        loop {
            // Acquire: what was done, or begun by one that panicked, is visible. pairs: once.word
            match self.word.compare_exchange(NEW, RUNNING, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => {
                    let mut turn = Turn { once: self, result: NEW };
                    if f() {
                        turn.result = DONE;
                    }
                    return Ok(());
                }
                Err(DONE) => return Ok(()),
                Err(now) => {
                    if now == WAITED_FOR
                        || self.word.compare_exchange(now, WAITED_FOR, Ordering::Relaxed, Ordering::Relaxed).is_ok()
                    {
                        futex::wait_within(&self.word, WAITED_FOR, limit)?;
                    }
                }
            }
        }
    }
}

/// A value that is made once.
pub struct OnceLock<T> {
    once: Once,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the value is written once, before the once says so, and shared after.
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}
// SAFETY: it owns the value.
unsafe impl<T: Send> Send for OnceLock<T> {}

impl<T> OnceLock<T> {
    /// No value yet.
    pub const fn new() -> Self {
        Self { once: Once::new(), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// The value, if it has been made.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: it is written, and not written again.
        self.once.is_completed().then(|| unsafe { (*self.value.get()).assume_init_ref() })
    }

    /// The value; made by `make` if there is none. Others wait meanwhile.
    #[inline]
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        match self.get_or_init_until(make, Limit::NEVER) {
            Ok(value) => value,
            Err(_) => unreachable!("there is no limit"),
        }
    }

    /// As [`get_or_init`](Self::get_or_init), but waits until the limit at most while another makes it.
    #[inline]
    pub fn get_or_init_until<'l>(
        &self,
        make: impl FnOnce() -> T,
        limit: impl Into<Limit<'l>>,
    ) -> Result<&T, WaitError> {
        let write = || {
            let value = make();
            // SAFETY: ours alone until the once is completed.
            unsafe { (*self.value.get()).write(value) };
        };
        self.once.call_once_until(write, limit)?;
        match self.get() {
            Some(value) => Ok(value),
            None => unreachable!("it has been made"),
        }
    }

    /// The value; made by `make` if there is none and it can.
    pub(crate) fn get_or_try(&self, make: impl FnOnce() -> Option<T>) -> Option<&T> {
        if !self.once.is_completed() {
            let write = || {
                let Some(value) = make() else { return false };
                // SAFETY: as in `get_or_init`.
                unsafe { (*self.value.get()).write(value) };
                true
            };
            // Without a limit it ends when one has run.
            let _ = self.once.call_slowly(write, &Limit::NEVER);
        }
        self.get()
    }

    /// Sets the value; gives it back if there is one.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.once.call_once(|| {
            if let Some(value) = value.take() {
                // SAFETY: as in `get_or_init`.
                unsafe { (*self.value.get()).write(value) };
            }
        });
        value.map_or(Ok(()), Err)
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for OnceLock<T> {
    fn drop(&mut self) {
        if self.once.is_completed() {
            // SAFETY: it is written, and nobody else has it.
            unsafe { self.value.get_mut().assume_init_drop() };
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceLock").field(&self.get()).finish()
    }
}
