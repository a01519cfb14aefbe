//! The lock of a side of a queue: who parks for it pays, not who leaves it.
//!
//! Of a mutex that threads may park for, the unlock is a locked instruction, since it must learn whether somebody is parked. On a
//! queue with several handles that is half of what a send costs. Here the unlock is a store, and a load of another word:
//! 1. Who locks sets `word` from free to held.
//! 2. Who has looked for a moment in vain counts itself in `parked`, executes a heavy fence (see [`crate::prim`]), and then parks while
//!    `word` says held, until it could set it.
//! 3. Who unlocks stores free, executes a light fence, and wakes one if `parked` is not 0.
//!
//! Of an unlock and the heavy fence of 2, either the store comes first: then who parks finds the word free, or held by somebody whose
//! unlock is still to come. Or the load comes after the fence: then it finds somebody counted. Who is woken counts until it holds the lock,
//! so if another was quicker, that one's unlock wakes again.
//!
//! # Safety
//! The unlock reads `parked` when the lock is free already, so the lock must stay for as long as any thread is in a call of it. Those
//! that use a queue have a handle of it.

use crate::futex;
use crate::prim::{AtomicU32, Ordering, heavy_fence, light_fence, relax};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Looks before a thread parks.
const LOOKS: u32 = if cfg!(loom) { 0 } else { 16 };
/// Most pauses between two looks: each look may take the line from the holder.
const MOST_PAUSES: u32 = 16;

#[derive(Default)]
pub struct SideLock {
    word: AtomicU32,
    parked: AtomicU32,
}

impl SideLock {
    /// Runs `f`, which must not panic, as its holder.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        if !self.take() {
            self.lock_slowly();
        }
        let result = f();
        self.unlock();
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
        heavy_fence();
        while !self.take() {
            futex::wait(&self.word, HELD);
        }
        self.parked.fetch_sub(1, Ordering::Relaxed); // we are awake, whoever looks
    }

    #[inline]
    fn unlock(&self) {
        // Release: what we did comes before the next holder. pairs: channel.side
        self.word.store(FREE, Ordering::Release);
        light_fence();
        if self.parked.load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        futex::wake(&raw const self.word, 1);
    }
}

#[cfg(all(test, loom))]
mod models {
    use std::sync::Arc;

    use loom::thread;

    use super::*;
    use crate::channel::cell::UnsafeCell;

    #[derive(Default)]
    struct Counted(SideLock, UnsafeCell<u32>);
    // SAFETY: what the model checks.
    unsafe impl Sync for Counted {}
    // SAFETY: as above.
    unsafe impl Send for Counted {}

    fn count(counted: &Counted) {
        // SAFETY: loom checks that nobody else does.
        counted.0.with(|| counted.1.with_mut(|n| unsafe { *n += 1 }));
    }

    /// Threads that all park when the lock is held: one at a time has it, and each is woken.
    fn all_have_it(threads: usize, times: u32) {
        let counted = Arc::new(Counted::default());
        let others: Vec<_> = (1..threads)
            .map(|_| {
                let counted = counted.clone();
                thread::spawn(move || (0..times).for_each(|_| count(&counted)))
            })
            .collect();
        (0..times).for_each(|_| count(&counted));
        others.into_iter().for_each(|thread| thread.join().unwrap());
        // SAFETY: the others have ended.
        counted.1.with(|n| assert_eq!(unsafe { *n }, times * threads as u32));
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
