//! The lock of a side of a queue: who parks for it pays, not who leaves it.
//!
//! Of a mutex that threads may park for, the unlock is a locked instruction, since it must learn whether somebody is parked. On a
//! queue with several handles that is half of what a send costs. Here the unlock is a store, and a load of another word:
//! 1. Who locks sets `word` from free to held.
//! 2. Who has looked for a moment in vain counts itself in `parked`. Then, until it has the lock: it takes [`WOKEN`] away, executes a
//!    heavy fence (see [`crate::prim`]), tries to lock, and parks while `parked` is what it was when `WOKEN` was taken away.
//! 3. Who has locked in 2 counts no more.
//! 4. Who unlocks stores free, executes a light fence, and if somebody is counted and `WOKEN` is not there, sets it and wakes one.
//!
//! Of an unlock and the heavy fence of 2, either the store comes first: then who looks finds the word free, or held by somebody whose
//! unlock is still to come. Or the load comes after the fence: then it finds somebody counted. Then it wakes, or `WOKEN` has been set
//! since. So nobody sleeps for ever. Look at the last time that `WOKEN` is set while somebody sleeps or is about to. The wake that follows
//! finds a sleeper, or all that are counted are awake, and who is about to park sees that `parked` has changed, unless another has taken
//! `WOKEN` away. In each case one that is counted takes it away, and then has the lock, or fails to lock after a heavy fence. That one's
//! unlock, or the holder's, finds no `WOKEN` and sets it again.
//!
//! So who was woken and has not run yet is not woken again by each that leaves meanwhile. Where threads share a CPU that was a
//! system call for every value: who is woken runs when the slice of who wakes is over.
//!
//! # Safety
//! The unlock reads `parked` when the lock is free already, so the lock must stay for as long as any thread is in a call of it. Those
//! that use a queue have a handle of it.

use super::cell::UnsafeCell;
use crate::futex;
use crate::prim::{AtomicU32, Ordering, heavy_fence, light_fence, relax};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// In `parked`: one of those that are counted is awake. (The sign, so that one comparison tells whether to wake.)
const WOKEN: u32 = 1 << 31;
/// Looks before a thread parks.
const LOOKS: u32 = if cfg!(loom) { 0 } else { 16 };
/// Most pauses between two looks: each look may take the line from the holder.
const MOST_PAUSES: u32 = 16;

#[derive(Default)]
pub struct SideLock {
    word: AtomicU32,
    /// How many have looked in vain, and [`WOKEN`]. They park for this word.
    parked: AtomicU32,
}

impl SideLock {
    /// Runs `f`, which must not panic, as its holder; without the lock if the side is the caller's `alone`.
    #[inline(always)]
    pub fn with_unless<R>(&self, alone: bool, f: impl FnOnce() -> R) -> R {
        if !alone && !self.take() {
            self.lock_slowly();
        }
        let result = f();
        if !alone {
            self.unlock();
        }
        result
    }

    #[inline]
    fn take(&self) -> bool {
        // Acquire: what the last holder did is visible. pairs: channel.side
        self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn lock_slowly(&self) {
        let mut pauses = 1;
        for _ in 0..LOOKS {
            for _ in 0..pauses {
                relax();
            }
            pauses = (pauses * 2).min(MOST_PAUSES);
            if self.word.load(Ordering::Relaxed) == FREE && self.take() {
                return;
            }
        }
        self.parked.fetch_add(1, Ordering::Relaxed); // the fence orders it
        loop {
            let parked = self.parked.fetch_and(!WOKEN, Ordering::Relaxed) & !WOKEN; // as above
            heavy_fence();
            if self.take() {
                break;
            }
            futex::wait(&self.parked, parked);
        }
        self.parked.fetch_sub(1, Ordering::Relaxed); // we are awake, whoever looks
    }

    #[inline]
    fn unlock(&self) {
        // Release: what we did comes before the next holder. pairs: channel.side
        self.word.store(FREE, Ordering::Release);
        light_fence();
        // Somebody is counted, and without `WOKEN`.
        if self.parked.load(Ordering::Relaxed).cast_signed() > 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // Relaxed: the word's own order counts.
        if self.parked.fetch_or(WOKEN, Ordering::Relaxed) & WOKEN == 0 {
            futex::wake(&raw const self.parked, 1);
        }
    }
}

/// What such a lock protects.
#[derive(Default)]
pub struct Guarded<T> {
    lock: SideLock,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time reaches the value.
unsafe impl<T: Send> Send for Guarded<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    /// Runs `f`, which must not panic, with the value. It must stay until the call has returned.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: we hold the lock.
        self.lock.with_unless(false, || self.value.with_mut(|value| f(unsafe { &mut *value })))
    }
}

#[cfg(all(test, loom))]
mod models {
    use std::sync::Arc;

    use loom::thread;

    use super::*;

    /// Threads that all park when the lock is held: one at a time has it, and each is woken.
    fn all_have_it(threads: usize, times: u32) {
        let counted = Arc::new(Guarded::<u32>::default());
        let others: Vec<_> = (1..threads)
            .map(|_| {
                let counted = counted.clone();
                thread::spawn(move || (0..times).for_each(|_| counted.with(|n| *n += 1)))
            })
            .collect();
        (0..times).for_each(|_| counted.with(|n| *n += 1));
        others.into_iter().for_each(|thread| thread.join().unwrap());
        counted.with(|n| assert_eq!(*n, times * threads as u32));
    }

    #[test]
    fn two_have_it_in_turn() {
        loom::model(|| all_have_it(2, 2));
    }

    #[test]
    fn of_three_each_is_woken() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(|| all_have_it(3, 1));
    }
}
