//! A lane: what one thread has to give away. A stack of joins' second halves, and a queue of the jobs of its scopes.
//!
//! **The stack.** The thread that owns the lane pushes and pops at the top, `tail`, without a locked instruction or a fence;
//! thieves take the oldest job, at `head`, one thief at a time. It is the protocol of Cilk-5 ("THE") with an asymmetric
//! fence: the price of ordering is the thief's. A job's place is the number of joins that its thread is inside of.
//!
//! *Push* (owner): write the slot; `tail = t + 1`.
//!
//! *Pop* of the job at `t = tail - 1` (owner): `tail = t`; *light fence*; read `head`. At most `t`: the job is ours. Otherwise
//! a thief has claimed it, or is trying to: take the lock, read `head` again. If it is more than `t`, the job was stolen, and all
//! below it before: `head = t`, so that the place is free again.
//!
//! *Steal* (thief): take the lock; if `head < tail`: `head = h + 1`; *heavy fence*; read `tail`. At least `h + 1`: the job
//! in slot `h` is the thief's. Otherwise the owner got it: `head = h`. Give the lock back.
//!
//! **Why a job is taken once.** For the job at `t`, owner and thief both do "store mine; fence; read the other's" (store
//! buffering), so at least one sees the other's store. If the owner sees `head > t`, it asks again under the lock, when the
//! thief has decided. If it does not, the thief reads the owner's `tail` or a later one: `tail = t` makes it give up; a
//! later `t + 1` is that of another job that was pushed to the same place, whose slot it then reads (`tail` is stored
//! with Release after the slot). A slot is not written again while a thief reads it: it would have to be popped first, which
//! needs the lock.
//!
//! A push finds room without looking; after it the owner compares `tail` with `limit`, which is at most the number of slots,
//! and makes room for the next one, under the lock. Others set `limit` to 0 to be noticed at the owner's next push: that one
//! comparison is all that a push pays for both. `pool.rs` has the protocol, and the argument that nothing is overlooked.
//!
//! **The queue.** Jobs of scopes stay when the function that made them returns, so they are no stack: [`queue`](super::queue) says
//! where they lie, [`room`](super::room) in whose memory.
//!
//! Lanes are never freed: a thread that ends leaves its lane, with whatever is in it, for the next thread, and for thieves.
//!
//! # Safety
//! The owner's methods are `unsafe`: called by the thread that holds the lane. Slots hold addresses of jobs, which their
//! makers keep until they are done or taken back.

use crate::futex;
use crate::prim::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, heavy_fence, light_fence, own};
use crate::spin::Spin;

use super::job::{Job, Scoped};
use super::queue::{Queue, Taken};
use super::room::Rooms;

/// Slots of a new lane.
const SLOTS: usize = if cfg!(loom) { 2 } else { 256 };

type Slot = AtomicPtr<Job>;

/// See the module.
#[repr(C, align(128))]
pub struct Lane {
    /// Where the next job goes; written by the owner.
    tail: AtomicUsize,
    /// The oldest job; written under the lock.
    head: AtomicUsize,
    /// The stack; changed by the owner under the lock.
    slots: AtomicPtr<Slot>,
    /// The owner attends when `tail` reaches it. Written under the lock of the pool.
    limit: AtomicUsize,
    lock: Spin,
    /// Changes when something that the owner waits for has happened.
    told: AtomicU32,
    /// A thread owns it.
    pub(super) taken: AtomicU32,
    /// The next of all lanes; written before it is listed.
    pub(super) next: AtomicPtr<Lane>,
    /// How many slots there are; changed by the owner.
    room: AtomicUsize,
    /// Scopes of the owner that have not ended; its alone.
    scopes: AtomicUsize,
    /// Jobs of scopes.
    queue: Queue,
    /// Their memory.
    pub(super) rooms: Rooms,
}

/// What a lane holds, as one look tells.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Look {
    head: usize,
    tail: usize,
    front: usize,
    back: usize,
}

impl Look {
    pub fn is_empty(&self) -> bool {
        self.head >= self.tail && self.front >= self.back
    }
}

fn stack(size: usize) -> *mut Slot {
    let slots: Vec<Slot> = (0..size).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect();
    Box::into_raw(slots.into_boxed_slice()).cast()
}

impl Lane {
    /// An empty one, taken.
    pub fn new() -> Self {
        Self {
            tail: AtomicUsize::new(0),
            head: AtomicUsize::new(0),
            slots: AtomicPtr::new(stack(SLOTS)),
            limit: AtomicUsize::new(0),
            lock: Spin::new(),
            told: AtomicU32::new(0),
            taken: AtomicU32::new(1),
            next: AtomicPtr::new(std::ptr::null_mut()),
            room: AtomicUsize::new(SLOTS),
            scopes: AtomicUsize::new(0),
            queue: Queue::new(),
            rooms: Rooms::new(),
        }
    }

    /// The slot of a job.
    ///
    /// # Safety
    /// The owner, or who holds the lock; `at` is less than the room.
    #[inline(always)]
    unsafe fn slot(&self, at: usize) -> &Slot {
        // SAFETY: the stack is not replaced meanwhile: that takes the owner and the lock.
        unsafe { &*self.slots.load(Ordering::Relaxed).add(at) }
    }

    /// What there is.
    pub fn look(&self) -> Look {
        let (front, back) = self.queue.look();
        Look { head: self.head.load(Ordering::Relaxed), tail: self.tail.load(Ordering::Relaxed), front, back }
    }

    /// Whether a thief would find nothing; to be believed by the owner only.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.look().is_empty()
    }

    /// A scope of the owner's begins or ends.
    #[cfg(not(loom))]
    pub fn count_scope(&self, change: isize) {
        self.scopes.store(self.scopes.load(Ordering::Relaxed).wrapping_add_signed(change), Ordering::Relaxed);
    }

    /// Whether the owner is inside of a join or a scope.
    #[cfg(not(loom))]
    #[inline]
    pub fn is_nested(&self) -> bool {
        self.tail.load(Ordering::Relaxed) != 0 || self.scopes.load(Ordering::Relaxed) != 0
    }

    /// Adds a job to the stack. The caller then asks [`Lane::is_attended`].
    ///
    /// # Safety
    /// The owner; the job stays where it is until it is taken back or done.
    #[inline(always)]
    pub unsafe fn push(&self, job: *const Job) {
        // SAFETY: the caller owns the lane: nobody else writes `tail`, and there is room.
        unsafe {
            let t = own(&self.tail);
            self.slot(t).store(job.cast_mut(), Ordering::Relaxed);
            // Release: the job and its slot are written. pairs: lane.tail
            self.tail.store(t + 1, Ordering::Release);
        }
    }

    /// Whether, after a push, neither is room to be made nor does anybody want to be noticed.
    ///
    /// # Safety
    /// The owner.
    #[inline(always)]
    pub unsafe fn is_attended(&self) -> bool {
        // SAFETY: the caller's.
        let tail = unsafe { own(&self.tail) };
        light_fence(); // the push comes before the load. pairs: pool.limit
        tail < self.limit.load(Ordering::Relaxed)
    }

    /// The owner is to notice at its next push.
    pub fn limit(&self) {
        self.limit.store(0, Ordering::Relaxed);
    }

    /// Nobody wants to be noticed any more.
    ///
    /// # Safety
    /// The owner.
    pub unsafe fn unlimit(&self) {
        self.limit.store(self.room.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Takes back the job that the caller pushed last. False: somebody else runs it.
    ///
    /// # Safety
    /// The owner; everything that was pushed after it has been taken back.
    #[inline(always)]
    pub unsafe fn pop(&self) -> bool {
        // SAFETY: the caller owns the lane: nobody else writes `tail`.
        let t = unsafe { own(&self.tail) } - 1;
        // Release: the slots below are still what they were. pairs: lane.tail
        self.tail.store(t, Ordering::Release);
        light_fence(); // the store comes before the load: see the module. pairs: lane.take
        if self.head.load(Ordering::Relaxed) <= t {
            return true;
        }
        self.pop_slowly(t)
    }

    /// A thief is near.
    #[cold]
    #[inline(never)]
    fn pop_slowly(&self, t: usize) -> bool {
        self.lock.acquire();
        let is_ours = self.head.load(Ordering::Relaxed) <= t;
        if !is_ours {
            self.head.store(t, Ordering::Relaxed);
        }
        self.lock.release();
        is_ours
    }

    /// Takes the oldest job. For any thread but the owner.
    pub fn steal(&self) -> Option<*const Job> {
        if self.is_empty() || !self.lock.try_acquire() {
            return None;
        }
        let h = self.head.load(Ordering::Relaxed);
        // SAFETY: we hold the lock.
        let job = unsafe {
            let from_stack = if self.queue.is_older(h) { None } else { self.steal_from_stack(h) };
            from_stack.or_else(|| self.queue.steal())
        };
        self.lock.release();
        job
    }

    /// # Safety
    /// The caller holds the lock; `h` is `head`.
    unsafe fn steal_from_stack(&self, h: usize) -> Option<*const Job> {
        if h >= self.tail.load(Ordering::Relaxed) {
            return None;
        }
        self.head.store(h + 1, Ordering::Relaxed);
        heavy_fence(); // pairs: lane.take
        // Acquire: the job and its slot are written. pairs: lane.tail
        if h >= self.tail.load(Ordering::Acquire) {
            self.head.store(h, Ordering::Relaxed);
            return None;
        }
        // SAFETY: we hold the lock; the job is ours now, and its maker asks for its state only when it has had the lock.
        unsafe {
            let job = self.slot(h).load(Ordering::Relaxed).cast_const();
            Job::claim(job);
            Some(job)
        }
    }

    /// Makes room for a push.
    ///
    /// # Safety
    /// The owner.
    pub unsafe fn make_room(&self) {
        let (tail, room) = (self.tail.load(Ordering::Relaxed), self.room.load(Ordering::Relaxed));
        if tail < room {
            return;
        }
        let new = stack(room * 2);
        self.lock.acquire();
        let old = self.slots.load(Ordering::Relaxed);
        for i in 0..tail {
            // SAFETY: both stacks are large enough; we hold the lock.
            unsafe { (*new.add(i)).store((*old.add(i)).load(Ordering::Relaxed), Ordering::Relaxed) };
        }
        self.slots.store(new, Ordering::Relaxed);
        self.room.store(room * 2, Ordering::Relaxed);
        self.lock.release();
        // SAFETY: made by `stack` with this size; only owner and lock holder reach it, and these find the new one.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(old, room)) });
    }

    /// How many places the queue has.
    #[cfg(all(loom, test))]
    pub fn places(&self) -> usize {
        self.queue.places()
    }

    /// The place in the queue that the next job of a scope gets.
    #[cfg(not(loom))]
    pub fn back(&self) -> usize {
        self.queue.back()
    }

    /// Adds a scope's job to the queue. The caller then asks [`Lane::is_attended`].
    ///
    /// # Safety
    /// The owner; the job lives until it has run.
    #[inline]
    pub unsafe fn add(&self, job: *const Scoped) {
        // SAFETY: the caller's; there is room after it has been made.
        unsafe {
            if self.queue.is_full() {
                self.lock.acquire();
                self.queue.grow();
                self.lock.release();
            }
            self.queue.add(job, (*job).scope(), own(&self.tail));
        }
    }

    /// Takes the newest of the scopes' jobs in the place `base` or a higher one: one of that scope, or any if `scope` is `None`.
    ///
    /// After `None` the caller knows of all jobs of that scope that were stolen from its lane.
    ///
    /// # Safety
    /// The owner.
    #[inline]
    pub unsafe fn take_newest(&self, base: usize, scope: Option<usize>) -> Option<*const Job> {
        // SAFETY: the caller's.
        match unsafe { self.queue.take(base, scope) } {
            Taken::Job(job) => Some(job),
            Taken::Nothing => None,
            Taken::Unsure(at, job) => {
                self.lock.acquire();
                // SAFETY: as above; we hold the lock.
                let is_left = unsafe { self.queue.was_left(at) };
                self.lock.release();
                is_left.then_some(job)
            }
            Taken::Between => {
                self.lock.acquire();
                // SAFETY: as above.
                let job = unsafe { self.queue.take_between(base, scope.unwrap_or_default()) };
                self.lock.release();
                job
            }
        }
    }

    /// Something that the owner waits for has happened.
    pub fn tell(&self) {
        // Release: so has what led to it. pairs: lane.told
        self.told.fetch_add(1, Ordering::Release);
        futex::wake_threads(self.told_word(), 1);
    }

    /// Parks the owner, and not only the fiber that it carries, until `done`, which was made true before a `tell`.
    pub fn wait(&self, done: impl Fn() -> bool) {
        loop {
            // Acquire: what led to it is visible. pairs: lane.told
            let told = self.told.load(Ordering::Acquire);
            if done() {
                return;
            }
            futex::wait_as_thread(self.told_word(), told, None);
        }
    }

    fn told_word(&self) -> &AtomicU32 {
        &self.told
    }
}

// SAFETY: atomics; who may call what is said at each method.
unsafe impl Sync for Lane {}
