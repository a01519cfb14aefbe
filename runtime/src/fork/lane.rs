//! A lane: one thread's stack of jobs that others may take from the bottom.
//!
//! The thread that owns it pushes and pops at the top, `tail`, without a locked instruction or a fence; thieves take the
//! oldest job, at `head`, one thief at a time. It is the protocol of Cilk-5 ("THE") with an asymmetric fence: the price of
//! ordering is the thief's.
//!
//! **Push** (owner): write the slot; `tail = t + 1`.
//!
//! **Pop** of the job at `t` (owner): `tail = t`; *light fence*; read `head`. At most `t`: the job is ours. Otherwise a
//! thief has claimed it, or is trying to: take the lock, read `head` again.
//!
//! **Steal** (thief): take the lock; if `head < tail`: `head = h + 1`; *heavy fence*; read `tail`. At least `h + 1`: the job
//! in slot `h` is the thief's. Otherwise the owner got it: `head = h`. Give the lock back.
//!
//! **Why a job is taken once.** For the job at `t`, owner and thief both do "store mine; fence; read the other's" (store
//! buffering), so at least one sees the other's store. If the owner sees `head > t`, it asks again under the lock, when the
//! thief has decided. If it does not, the thief reads the owner's `tail` or a later one: `tail = t` makes it give up; a
//! later `t + 1` is that of another job that was pushed to the same place, whose slot it then reads (`tail` is stored
//! with Release after the slot).
//!
//! A claimed slot may be read after `head` has moved past it, so one slot is always left free: `mask` may be in use. A push
//! finds room without looking; after it the owner compares `tail` with `limit`, which is at most what there is room for
//! (`head + mask` at some time before), and makes room for the next one, under the lock.
//!
//! Others set `limit` to 0 to be noticed at the owner's next push: that one comparison is all that a push pays for both.
//! `pool.rs` has the protocol, and the argument that nothing is overlooked.
//!
//! Places are numbers that never wrap around: 64 bits of pushes are some hundred years.
//!
//! Lanes are never freed: a thread that ends leaves its lane, with whatever is in it, for the next thread, and for thieves.
//!
//! # Safety
//! The owner's methods are `unsafe`: called by the thread that holds the lane. Slots hold addresses of jobs, which their
//! makers keep until they are done or taken back.

use crate::futex;
use crate::prim::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, heavy_fence, light_fence, relax, yield_cpu};

use super::job::Job;

/// Slots of a new lane.
const SLOTS: usize = if cfg!(loom) { 4 } else { 256 };

type Slot = AtomicPtr<Job>;

/// See the module.
#[repr(C, align(128))]
pub struct Lane {
    /// Where the next job goes; written by the owner.
    tail: AtomicUsize,
    /// The oldest job; written under the lock.
    head: AtomicUsize,
    /// The ring; changed by the owner under the lock.
    slots: AtomicPtr<Slot>,
    /// Its size less 1.
    mask: AtomicUsize,
    /// The owner attends when `tail` reaches it. Written under the lock of the pool.
    limit: AtomicUsize,
    lock: AtomicU32,
    /// Changes when something that the owner waits for has happened.
    told: AtomicU32,
    /// A thread owns it.
    pub(super) taken: AtomicU32,
    /// The next of all lanes; written before it is listed.
    pub(super) next: AtomicPtr<Lane>,
}

fn ring(size: usize) -> *mut Slot {
    let slots: Vec<Slot> = (0..size).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect();
    Box::into_raw(slots.into_boxed_slice()).cast()
}

impl Lane {
    /// An empty one, taken.
    pub fn new() -> Self {
        Self {
            tail: AtomicUsize::new(0),
            head: AtomicUsize::new(0),
            slots: AtomicPtr::new(ring(SLOTS)),
            mask: AtomicUsize::new(SLOTS - 1),
            limit: AtomicUsize::new(0),
            lock: AtomicU32::new(0),
            told: AtomicU32::new(0),
            taken: AtomicU32::new(1),
            next: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// The slot of a job.
    ///
    /// # Safety
    /// The owner, or who holds the lock.
    #[inline(always)]
    unsafe fn slot(&self, at: usize) -> &Slot {
        // SAFETY: the ring has mask + 1 slots and is not replaced meanwhile: that takes the owner and the lock.
        unsafe { &*self.slots.load(Ordering::Relaxed).add(at & self.mask.load(Ordering::Relaxed)) }
    }

    /// Where the next job goes.
    #[inline(always)]
    pub fn top(&self) -> usize {
        self.tail.load(Ordering::Relaxed)
    }

    /// Whether a thief would find nothing; to be believed by the owner only.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed) >= self.tail.load(Ordering::Relaxed)
    }

    /// Head and tail, as one look tells.
    pub fn ends(&self) -> (usize, usize) {
        (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Relaxed))
    }

    /// Adds a job; answers its place. The caller then asks [`Lane::is_attended`].
    ///
    /// # Safety
    /// The owner; the job stays where it is until it is taken back or done.
    #[inline(always)]
    pub unsafe fn push(&self, job: *const Job) -> usize {
        let t = self.tail.load(Ordering::Relaxed);
        // SAFETY: the caller owns the lane.
        unsafe { self.slot(t) }.store(job.cast_mut(), Ordering::Relaxed);
        // Release: the job and its slot are written. pairs: lane.tail
        self.tail.store(t + 1, Ordering::Release);
        t
    }

    /// Whether, after a push to `t`, neither is room to be made nor does anybody want to be noticed.
    #[inline(always)]
    pub fn is_attended(&self, t: usize) -> bool {
        light_fence(); // the push comes before the load. pairs: pool.limit
        t + 1 < self.limit.load(Ordering::Relaxed)
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
        self.acquire();
        let limit = self.head.load(Ordering::Relaxed) + self.mask.load(Ordering::Relaxed);
        self.release();
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Takes the job at `t`, which the caller pushed, back. False: somebody else runs it.
    ///
    /// # Safety
    /// The owner; everything that was pushed after it by the caller has been taken back.
    #[inline(always)]
    pub unsafe fn pop(&self, t: usize) -> bool {
        if self.tail.load(Ordering::Relaxed) == t + 1 {
            // Release: the slots below are still what they were. pairs: lane.tail
            self.tail.store(t, Ordering::Release);
            light_fence(); // the store comes before the load: see the module. pairs: lane.take
            if self.head.load(Ordering::Relaxed) <= t {
                return true;
            }
        }
        // SAFETY: the caller's.
        unsafe { self.pop_slowly(t) }
    }

    /// A thief is near, or jobs of scopes further out lie above.
    #[cold]
    #[inline(never)]
    unsafe fn pop_slowly(&self, t: usize) -> bool {
        self.acquire();
        let head = self.head.load(Ordering::Relaxed);
        let ours = head <= t;
        let tail = self.tail.load(Ordering::Relaxed);
        if !ours && tail <= t {
            // Empty, with `tail` one below `head`. Release: as in `push`.
            self.tail.store(head, Ordering::Release);
        } else if ours && t < tail {
            // SAFETY: we are the owner, and hold the lock.
            unsafe { self.close_gap(t, tail) };
        }
        self.release();
        ours
    }

    /// Takes out what is at `at`, moving what lies above.
    unsafe fn close_gap(&self, at: usize, tail: usize) {
        let mut i = at;
        while i + 1 != tail {
            // SAFETY: the owner, under the lock.
            unsafe { self.slot(i).store(self.slot(i + 1).load(Ordering::Relaxed), Ordering::Relaxed) };
            i += 1;
        }
        // Release: as in `push`.
        self.tail.store(i, Ordering::Release);
    }

    /// Takes the newest job at or above `base` for which `wanted` holds.
    ///
    /// # Safety
    /// The owner. Jobs at and above `base` are alive.
    pub unsafe fn take_above(&self, base: usize, wanted: impl Fn(*const Job) -> bool) -> Option<*const Job> {
        if self.tail.load(Ordering::Relaxed) <= base {
            return None;
        }
        self.acquire();
        let (head, tail) = (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Relaxed));
        let mut at = tail;
        let mut found = None;
        while at > base && at > head && found.is_none() {
            at -= 1;
            // SAFETY: the owner, under the lock; the job was not taken.
            unsafe {
                let job = self.slot(at).load(Ordering::Relaxed);
                if wanted(job) {
                    self.close_gap(at, tail);
                    found = Some(job.cast_const());
                }
            }
        }
        self.release();
        found
    }

    /// Takes the oldest job. For any thread but the owner.
    pub fn steal(&self) -> Option<*const Job> {
        if self.is_empty() || !self.try_acquire() {
            return None;
        }
        let h = self.head.load(Ordering::Relaxed);
        let mut job = None;
        if h < self.tail.load(Ordering::Relaxed) {
            self.head.store(h + 1, Ordering::Relaxed);
            heavy_fence(); // pairs: lane.take
            // Acquire: the job and its slot are written. pairs: lane.tail
            if h < self.tail.load(Ordering::Acquire) {
                // SAFETY: we hold the lock.
                job = Some(unsafe { self.slot(h) }.load(Ordering::Relaxed).cast_const());
            } else {
                self.head.store(h, Ordering::Relaxed);
            }
        }
        self.release();
        job
    }

    /// Makes room for a push.
    ///
    /// # Safety
    /// The owner.
    pub unsafe fn make_room(&self) {
        self.acquire();
        let (head, tail) = (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Relaxed));
        let mask = self.mask.load(Ordering::Relaxed);
        if tail - head >= mask {
            let (old, size) = (self.slots.load(Ordering::Relaxed), (mask + 1) * 2);
            let new = ring(size);
            for i in head..tail {
                // SAFETY: both rings are large enough; we hold the lock.
                unsafe {
                    (*new.add(i & (size - 1))).store((*old.add(i & mask)).load(Ordering::Relaxed), Ordering::Relaxed);
                }
            }
            self.slots.store(new, Ordering::Relaxed);
            self.mask.store(size - 1, Ordering::Relaxed);
            // SAFETY: made by `ring` with this size; only owner and lock holder, both us, reach it.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(old, mask + 1)) });
        }
        self.release();
    }

    fn try_acquire(&self) -> bool {
        // Acquire: what the last holder did to head and ring is visible. pairs: lane.lock
        self.lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn acquire(&self) {
        let mut turns = 0;
        while !self.try_acquire() {
            turns += 1;
            if turns % 64 == 0 { yield_cpu() } else { relax() }
        }
    }

    fn release(&self) {
        // Release: what we did to head and ring comes before the next holder. pairs: lane.lock
        self.lock.store(0, Ordering::Release);
    }

    /// Something that the owner waits for has happened.
    pub fn tell(&self) {
        // Release: so has what led to it. pairs: lane.told
        self.told.fetch_add(1, Ordering::Release);
        futex::wake(self.told_word(), 1);
    }

    /// Parks the owner until `done`, which was made true before a `tell`.
    pub fn wait(&self, done: impl Fn() -> bool) {
        loop {
            // Acquire: what led to it is visible. pairs: lane.told
            let told = self.told.load(Ordering::Acquire);
            if done() {
                return;
            }
            futex::wait(self.told_word(), told);
        }
    }

    fn told_word(&self) -> &AtomicU32 {
        &self.told
    }
}

// SAFETY: atomics; who may call what is said at each method.
unsafe impl Sync for Lane {}
