//! A spin lock for the core's own short critical sections.
//!
//! Holders are inside the core, where Heddle never preempts them, but the kernel may: after a few turns a waiter gives
//! its time slice away.
//!
//! # Safety
//! The `UnsafeCell` is touched only by the holder of the lock.

use crate::prim::{AtomicU32, Ordering, UnsafeCell, relax};
use core::ops::{Deref, DerefMut};

/// The lock's word while it is held for a fork.
const FOR_FORK: u32 = 2;

/// A mutual-exclusion lock that spins, then yields the CPU. Blocks a kernel thread, in every mode.
pub struct SpinLock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
    /// Where loom's threads wait in line: two that spin would let each other run for ever. `None` in the lock's own model.
    #[cfg(loom)]
    line: Option<loom::sync::Mutex<()>>,
}

// SAFETY: the lock hands out the value to one holder at a time.
unsafe impl<T: Send> Sync for SpinLock<T> {}
// SAFETY: moving the lock moves the value.
unsafe impl<T: Send> Send for SpinLock<T> {}

/// The right to use the value; released when dropped.
pub struct Guard<'a, T> {
    lock: &'a SpinLock<T>,
    /// loom's proof that nobody else uses the value.
    #[cfg(loom)]
    access: core::mem::ManuallyDrop<loom::cell::MutPtr<T>>,
    #[cfg(loom)]
    _turn: Turn<'a>,
}

#[cfg(loom)]
type Turn<'a> = Option<loom::sync::MutexGuard<'a, ()>>;
#[cfg(not(loom))]
type Turn<'a> = core::marker::PhantomData<&'a ()>;

impl<T> SpinLock<T> {
    /// An unlocked lock.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }
    /// An unlocked lock.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        Self { line: Some(loom::sync::Mutex::new(())), ..Self::alone(value) }
    }
    /// An unlocked lock that is nothing but its word.
    #[cfg(loom)]
    pub(crate) fn alone(value: T) -> Self {
        Self { word: AtomicU32::new(0), value: UnsafeCell::new(value), line: None }
    }

    /// Takes the lock.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        #[cfg(loom)]
        let turn = self.line.as_ref().map(|l| l.lock().unwrap());
        #[cfg(not(loom))]
        let turn = Turn::default();
        let mut turns = 0u32;
        loop {
            // Acquire: sees what the last holder wrote. pairs: spinlock
            if self.word.load(Ordering::Relaxed) == 0
                && self.word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return self.guard(turn);
            }
            turns += 1;
            if turns.is_multiple_of(64) {
                yield_cpu();
            } else {
                relax();
            }
        }
    }

    /// Whether nobody has the lock, at some time; then the caller sees what the last holder did.
    #[inline]
    pub fn is_free(&self) -> bool {
        // Acquire: sees what the last holder wrote. pairs: spinlock
        self.word.load(Ordering::Acquire) == 0
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        #[cfg(loom)]
        let turn = match &self.line {
            Some(l) => Some(l.try_lock().ok()?),
            None => None,
        };
        #[cfg(not(loom))]
        let turn = Turn::default();
        // Acquire: sees what the last holder wrote. pairs: spinlock
        self.word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).ok().map(|_| self.guard(turn))
    }

    #[inline]
    fn guard<'a>(&'a self, _turn: Turn<'a>) -> Guard<'a, T> {
        Guard {
            lock: self,
            #[cfg(loom)]
            access: core::mem::ManuallyDrop::new(self.value.get_mut()),
            #[cfg(loom)]
            _turn,
        }
    }

    /// Takes the lock for a fork, until [`let_go_after_fork`](Self::let_go_after_fork): one caller at a time.
    pub fn hold_for_fork(&self) {
        // Acquire: sees what the last holder wrote. pairs: spinlock
        while self.word.compare_exchange(0, FOR_FORK, Ordering::Acquire, Ordering::Relaxed).is_err() {
            yield_cpu();
        }
    }

    /// Ends that, in the parent and in the child; does nothing if it is not held for a fork.
    ///
    /// # Safety
    /// The fork is over, or who began it is no more.
    pub unsafe fn let_go_after_fork(&self) {
        // Release: as a guard does. pairs: spinlock
        let _ = self.word.compare_exchange(FOR_FORK, 0, Ordering::Release, Ordering::Relaxed);
    }

    /// Makes the lock free again whoever held it.
    ///
    /// # Safety
    /// No other thread can be using the value: the only caller is the single thread of a forked child.
    pub unsafe fn force_unlock(&self) {
        // Read first: the page may be shared with the parent.
        if self.word.load(Ordering::Relaxed) != 0 {
            self.word.store(0, Ordering::Relaxed);
        }
    }
}

/// Gives the rest of the time slice to another kernel thread.
pub fn yield_cpu() {
    #[cfg(not(loom))]
    // SAFETY: sched_yield touches no memory.
    unsafe {
        sys!(crate::sys::linux::__NR_sched_yield);
    }
    #[cfg(loom)]
    loom::thread::yield_now();
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock.
        #[cfg(not(loom))]
        return unsafe { &*self.lock.value.get() };
        // SAFETY: as above.
        #[cfg(loom)]
        return unsafe { (*self.access).deref() };
    }
}
impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock, and is borrowed uniquely.
        #[cfg(not(loom))]
        return unsafe { &mut *self.lock.value.get() };
        // SAFETY: as above.
        #[cfg(loom)]
        return unsafe { (*self.access).deref() };
    }
}
impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: dropped here only.
        #[cfg(loom)]
        unsafe {
            core::mem::ManuallyDrop::drop(&mut self.access);
        }
        // Release: what was done under the lock happens before the next holder. pairs: spinlock
        self.lock.word.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time() {
        let lock = SpinLock::new(0u64);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..20_000 {
                        // Not one instruction: two holders would lose additions.
                        let mut value = lock.lock();
                        let old = *value;
                        core::hint::black_box(&value);
                        *value = old + 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 80_000);
    }

    #[test]
    fn try_lock_and_force_unlock() {
        let lock = SpinLock::new(1);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        core::mem::forget(held);
        // SAFETY: the holder is gone for good.
        unsafe { lock.force_unlock() };
        assert_eq!(lock.try_lock().map(|v| *v), Some(1));
        assert!(lock.try_lock().is_some(), "a dropped guard unlocks");
    }
}
