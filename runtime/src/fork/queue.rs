//! The jobs of scopes in a lane: a ring, with the stack's protocol (see [`lane`](super::lane)) on places that are counted on and on.
//!
//! Jobs of scopes stay when the function that made them returns, so they are no stack: an inner scope takes its own jobs out from
//! among those of outer ones. The owner adds at `back` and takes from there, without a lock as long as the newest job is
//! of the scope it wants; if not, it looks for one further down under the lane's lock. Thieves take the oldest, at `front`, under the
//! lock, and with the heavy fence.
//!
//! **Why a job is taken once**: as in the stack. `front` never goes back, but for a thief that gives up: it puts it back by
//! one. So an owner that reads `front` without the lock may take it for one more than it is, and leaves one place of the ring
//! unused for that.
//!
//! **Why a scope misses no job that was stolen**: a thief counts a job of the scope's own thread before it gives the lock back
//! ([`Scoped::count`]). The owner learns that a job is gone only under the lock: a take without it finds the job.
//!
//! # Safety
//! As for the lane: the owner's methods are called by its owner, those of thieves by who holds its lock.

use super::job::{Job, Scoped};
use crate::prim::{AtomicPtr, AtomicUsize, Ordering, heavy_fence, light_fence, own};

/// Places of a new ring.
const PLACES: usize = if cfg!(loom) { 2 } else { 64 };

/// What the owner writes when it adds a job.
struct Place {
    job: AtomicPtr<Job>,
    /// Which scope it is of.
    scope: AtomicUsize,
    /// How high the stack was, so that a thief can take what is older.
    height: AtomicUsize,
}

pub struct Queue {
    /// Where the next job goes; written by the owner.
    back: AtomicUsize,
    /// The oldest job; written under the lock.
    front: AtomicUsize,
    /// Changed by the owner under the lock.
    ring: AtomicPtr<Place>,
    /// Its places less 1; changed with it.
    mask: AtomicUsize,
}

fn ring(places: usize) -> *mut Place {
    let empty =
        || Place { job: AtomicPtr::new(std::ptr::null_mut()), scope: AtomicUsize::new(0), height: AtomicUsize::new(0) };
    let places: Box<[Place]> = (0..places).map(|_| empty()).collect();
    Box::into_raw(places).cast()
}

/// What a take without the lock has found out.
pub enum Taken {
    Job(*const Job),
    Nothing,
    /// A thief is near: the caller is to ask [`Queue::was_left`] for the job in this place under the lock.
    Unsure(usize, *const Job),
    /// The newest is another scope's: the caller is to ask [`Queue::take_between`] under the lock.
    Between,
}

impl Queue {
    pub fn new() -> Self {
        Self {
            back: AtomicUsize::new(0),
            front: AtomicUsize::new(0),
            ring: AtomicPtr::new(ring(PLACES)),
            mask: AtomicUsize::new(PLACES - 1),
        }
    }

    /// Front and back, as one look tells.
    pub fn look(&self) -> (usize, usize) {
        (self.front.load(Ordering::Relaxed), self.back.load(Ordering::Relaxed))
    }

    /// How many places the ring has.
    #[cfg(all(loom, test))]
    pub fn places(&self) -> usize {
        self.mask.load(Ordering::Relaxed) + 1
    }

    /// The place that the next job gets.
    #[cfg(not(loom))]
    pub fn back(&self) -> usize {
        self.back.load(Ordering::Relaxed)
    }

    /// # Safety
    /// The owner, or who holds the lock.
    unsafe fn place(&self, at: usize) -> &Place {
        // SAFETY: the ring is not replaced meanwhile: that takes the owner and the lock.
        unsafe { &*self.ring.load(Ordering::Relaxed).add(at & self.mask.load(Ordering::Relaxed)) }
    }

    /// Whether the owner has to [`grow`](Self::grow) it before it adds a job.
    ///
    /// # Safety
    /// The owner.
    #[inline]
    pub unsafe fn is_full(&self) -> bool {
        // SAFETY: the caller's.
        let back = unsafe { own(&self.back) };
        // One place less than there are: see the module. An empty queue's front may be beyond its back, until a thief gives up.
        back.saturating_sub(self.front.load(Ordering::Relaxed)) >= self.mask.load(Ordering::Relaxed)
    }

    /// Makes the ring twice as large.
    ///
    /// # Safety
    /// The owner, who holds the lock.
    #[cold]
    pub unsafe fn grow(&self) {
        let (front, back) = self.look();
        let (old, mask) = (self.ring.load(Ordering::Relaxed), self.mask.load(Ordering::Relaxed));
        let (new, new_mask) = (ring(2 * (mask + 1)), 2 * mask + 1);
        for at in front..back {
            // SAFETY: both rings have the place; nobody else reaches them.
            unsafe { copy(&*old.add(at & mask), &*new.add(at & new_mask)) };
        }
        self.ring.store(new, Ordering::Relaxed);
        self.mask.store(new_mask, Ordering::Relaxed);
        // SAFETY: made by `ring` with this size; only owner and lock holder reach it, and these find the new one.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(old, mask + 1)) });
    }

    /// Adds a job of a scope; the stack has that height.
    ///
    /// # Safety
    /// The owner; the queue is not full; the job lives until it has run.
    #[inline]
    pub unsafe fn add(&self, job: *const Scoped, scope: usize, height: usize) {
        // SAFETY: the caller owns the queue: nobody else writes `back`.
        unsafe {
            let back = own(&self.back);
            let place = self.place(back);
            place.job.store(job.cast_mut().cast(), Ordering::Relaxed);
            place.scope.store(scope, Ordering::Relaxed);
            place.height.store(height, Ordering::Relaxed);
            // Release: the job and its place are written. pairs: queue.back
            self.back.store(back + 1, Ordering::Release);
        }
    }

    /// Takes the newest job, if its place is not below `base` and it is the scope's, or any if that is `None`.
    ///
    /// # Safety
    /// The owner.
    #[inline]
    pub unsafe fn take(&self, base: usize, scope: Option<usize>) -> Taken {
        // SAFETY: the caller owns the queue: nobody else writes `back`.
        let back = unsafe { own(&self.back) };
        if back <= base {
            return Taken::Nothing;
        }
        let at = back - 1;
        // SAFETY: as above. What the place holds is what the owner has written, though the job may be gone.
        let (job, its) = unsafe {
            let place = self.place(at);
            (place.job.load(Ordering::Relaxed).cast_const(), place.scope.load(Ordering::Relaxed))
        };
        if scope.is_some_and(|scope| scope != its) {
            return Taken::Between;
        }
        // Release: the places below are still what they were. pairs: queue.back
        self.back.store(at, Ordering::Release);
        light_fence(); // the store comes before the load: see `lane`. pairs: lane.take
        if self.front.load(Ordering::Relaxed) <= at { Taken::Job(job) } else { Taken::Unsure(at, job) }
    }

    /// Whether the job is the owner's after all. If not, all are gone.
    ///
    /// # Safety
    /// The owner, who holds the lock, after [`Taken::Unsure`].
    pub unsafe fn was_left(&self, at: usize) -> bool {
        let is_left = self.front.load(Ordering::Relaxed) <= at;
        if !is_left {
            self.back.store(at + 1, Ordering::Relaxed);
        }
        is_left
    }

    /// Takes the newest job of a scope, from `base` on.
    ///
    /// # Safety
    /// The owner, who holds the lock.
    pub unsafe fn take_between(&self, base: usize, scope: usize) -> Option<*const Job> {
        let (front, back) = self.look();
        // SAFETY: places between are jobs', and nobody else reaches them.
        unsafe {
            let is_its = |at: &usize| self.place(*at).scope.load(Ordering::Relaxed) == scope;
            let at = (front.max(base)..back).rev().find(is_its)?;
            let job = self.place(at).job.load(Ordering::Relaxed);
            for above in at + 1..back {
                copy(self.place(above), self.place(above - 1));
            }
            self.back.store(back - 1, Ordering::Relaxed);
            Some(job)
        }
    }

    /// Whether there are jobs, and the oldest was there before the job in that place of the stack.
    ///
    /// # Safety
    /// The caller holds the lock.
    pub unsafe fn is_older(&self, height: usize) -> bool {
        let (front, back) = self.look();
        // SAFETY: the caller's. The owner may be writing the place: then this is a guess.
        front < back && unsafe { self.place(front) }.height.load(Ordering::Relaxed) <= height
    }

    /// Takes the oldest job.
    ///
    /// # Safety
    /// The caller holds the lock, and is not the owner.
    pub unsafe fn steal(&self) -> Option<*const Job> {
        let (front, back) = self.look();
        if front >= back {
            return None;
        }
        self.front.store(front + 1, Ordering::Relaxed);
        heavy_fence(); // pairs: lane.take
        // Acquire: the job and its place are written. pairs: queue.back
        if front >= self.back.load(Ordering::Acquire) {
            self.front.store(front, Ordering::Relaxed);
            return None;
        }
        // SAFETY: the job is ours now; its scope looks at its count when it has had the lock.
        unsafe {
            let job = self.place(front).job.load(Ordering::Relaxed).cast_const();
            Scoped::count(job.cast());
            Some(job)
        }
    }
}

fn copy(from: &Place, to: &Place) {
    to.job.store(from.job.load(Ordering::Relaxed), Ordering::Relaxed);
    to.scope.store(from.scope.load(Ordering::Relaxed), Ordering::Relaxed);
    to.height.store(from.height.load(Ordering::Relaxed), Ordering::Relaxed);
}
