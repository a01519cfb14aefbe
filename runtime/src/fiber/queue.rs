//! The fibers that a carrier has to run: new ones, of which it runs the newest first and others take the oldest, so that fibers
//! which make fibers run depth first here and are given away in large pieces; and those that have run before, first in first out.
//!
//! The carrier is in and out of its queue for each fiber, others come seldom. So the lock is a *biased* one (Dekker's entry
//! with an asymmetric fence, as Kawachiya, Koseki and Onodera, "Lock reservation", OOPSLA 2002, have it for Java's locks):
//!
//! *Owner*: `busy = 1`; *light fence*; read `wanted`. 0: it is in. Otherwise `busy = 0`, wait for 0, begin again. Out: `busy = 0`.
//!
//! *Thief*, one at a time: `wanted = 1`; *heavy fence*; wait until `busy` is 0: it is in. Out: `wanted = 0`.
//!
//! **Why one at a time is in.** Both sides do "store mine; fence; read the other's", so at least one sees the other's store. If
//! the owner sees the thief's it goes back, and the thief waits for that. If the thief sees `busy`, it waits. **Why nobody waits
//! for ever.** The owner goes back when it sees `wanted`, and stays out while it is set; a thief is out after a few
//! instructions, and does not begin to wait while the owner waits.
//!
//! # Safety
//! The owner's methods are called by the carrier whose queue it is, and no method from inside of another.

use std::collections::VecDeque;

use crate::channel::cell::UnsafeCell;
use crate::prim::{AtomicU32, AtomicUsize, Ordering, heavy_fence, light_fence};
use crate::spin::{self, Spin};

/// Every so many times a fiber that has run before comes first.
const TURNS: u32 = 32;
/// Most that a thief takes at once.
const MOST: usize = 32;

struct Fibers<P> {
    new: VecDeque<P>,
    ready: VecDeque<P>,
    turn: u32,
}

/// See the module.
pub struct Queue<P> {
    /// The owner is in.
    busy: AtomicU32,
    /// A thief is in, or wants to be.
    wanted: AtomicU32,
    thief: Spin,
    /// How many there are; a guess for all but who is in.
    len: AtomicUsize,
    fibers: UnsafeCell<Fibers<P>>,
}

// SAFETY: who is in has the fibers alone.
unsafe impl<P: Send> Sync for Queue<P> {}

impl<P: Copy + PartialEq> Queue<P> {
    /// An empty one.
    pub fn new() -> Self {
        Self {
            busy: AtomicU32::new(0),
            wanted: AtomicU32::new(0),
            thief: Spin::new(),
            len: AtomicUsize::new(0),
            fibers: UnsafeCell::new(Fibers { new: VecDeque::new(), ready: VecDeque::new(), turn: 0 }),
        }
    }

    /// How many there are, or were a moment ago.
    #[inline]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// # Safety
    /// The owner; the closure does not come back here.
    #[inline(always)]
    unsafe fn owned<R>(&self, f: impl FnOnce(&mut Fibers<P>) -> R) -> R {
        loop {
            self.busy.store(1, Ordering::Relaxed);
            light_fence(); // the store comes before the load: see the module. pairs: fiber.biased
            // Acquire: what the last thief did. pairs: fiber.wanted
            if self.wanted.load(Ordering::Acquire) == 0 {
                break;
            }
            self.give_way();
        }
        let result = self.fibers.with_mut(|fibers| {
            // SAFETY: only who is in touches them.
            let fibers = unsafe { &mut *fibers };
            let result = f(fibers);
            self.len.store(fibers.new.len() + fibers.ready.len(), Ordering::Relaxed);
            result
        });
        // Release: what we did comes before a thief's. pairs: fiber.busy
        self.busy.store(0, Ordering::Release);
        result
    }

    #[cold]
    #[inline(never)]
    fn give_way(&self) {
        // Release: as in `owned`; nothing was done. pairs: fiber.busy
        self.busy.store(0, Ordering::Release);
        // Acquire: as in `owned`. pairs: fiber.wanted
        spin::until(|| self.wanted.load(Ordering::Acquire) == 0);
    }

    /// Adds a new one.
    ///
    /// # Safety
    /// The owner.
    #[inline]
    pub unsafe fn push_new(&self, fiber: P) {
        // SAFETY: the caller's.
        unsafe { self.owned(|fibers| fibers.new.push_back(fiber)) };
    }

    /// Adds one that has run before.
    ///
    /// # Safety
    /// The owner.
    #[inline]
    pub unsafe fn push_ready(&self, fiber: P) {
        // SAFETY: the caller's.
        unsafe { self.owned(|fibers| fibers.ready.push_back(fiber)) };
    }

    /// Takes this one if it is the newest of the new ones.
    ///
    /// # Safety
    /// The owner.
    #[inline]
    pub unsafe fn take_newest(&self, fiber: P) -> bool {
        // SAFETY: the caller's.
        unsafe { self.owned(|fibers| fibers.new.back() == Some(&fiber) && fibers.new.pop_back().is_some()) }
    }

    /// Takes the one that has been ready longest.
    ///
    /// # Safety
    /// The owner.
    #[cold]
    #[cfg(not(loom))]
    pub unsafe fn take_ready(&self) -> Option<P> {
        // SAFETY: the caller's.
        unsafe { self.owned(|fibers| fibers.ready.pop_front()) }
    }

    /// Takes the one that is to run next.
    ///
    /// # Safety
    /// The owner.
    #[inline]
    pub unsafe fn next(&self) -> Option<P> {
        if self.len() == 0 {
            return None; // the owner's own guess is right, or a thief is about to leave nothing
        }
        // SAFETY: the caller's.
        unsafe {
            self.owned(|fibers| {
                fibers.turn = fibers.turn.wrapping_add(1);
                if fibers.turn.is_multiple_of(TURNS) {
                    fibers.ready.pop_front().or_else(|| fibers.new.pop_back())
                } else {
                    fibers.new.pop_back().or_else(|| fibers.ready.pop_front())
                }
            })
        }
    }

    /// Takes the oldest of the new ones, or half of the others, in their order. For any thread but the owner; does not wait for
    /// another thief.
    pub fn steal(&self) -> Vec<P> {
        if self.len() == 0 || !self.thief.try_acquire() {
            return Vec::new();
        }
        self.wanted.store(1, Ordering::Relaxed);
        heavy_fence(); // the store comes before the load. pairs: fiber.biased
        // Acquire: what the owner did. pairs: fiber.busy
        spin::until(|| self.busy.load(Ordering::Acquire) == 0);
        let stolen = self.fibers.with_mut(|fibers| {
            // SAFETY: the owner stays out, and other thieves do.
            let fibers = unsafe { &mut *fibers };
            let stolen = match fibers.new.pop_front() {
                Some(oldest) => vec![oldest],
                None => fibers.ready.drain(..fibers.ready.len().div_ceil(2).min(MOST)).collect(),
            };
            self.len.store(fibers.new.len() + fibers.ready.len(), Ordering::Relaxed);
            stolen
        });
        // Release: what we did comes before the owner's. pairs: fiber.wanted
        self.wanted.store(0, Ordering::Release);
        self.thief.release();
        stolen
    }
}
