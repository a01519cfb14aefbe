//! A processor's new threads: those that were made runnable and have not run yet.
//!
//! Who makes a thread often waits for its end next. So the owner of the processor takes the newest first, when it waits for
//! just that one, and runs it in its own place; thieves, and the owner when it has nothing else, take the oldest, which in a
//! divide-and-conquer program is the largest part. It is the protocol of Cilk-5 ("THE") with an asymmetric fence: owner's
//! push and pop cost no locked instruction, the price of ordering is the thief's.
//!
//! # Protocol
//! `head..tail` (wrapping) are the occupied positions. `tail` and the slots are the owner's, `head` is changed under the lock.
//! 1. Push (owner): check room, write the slot, `tail = t + 1`.
//! 2. Pop of the newest, at `t` (owner): `tail = t`; *light fence*; read `head`. At most `t`: ours. Otherwise a thief has
//!    claimed it or is trying to: take the lock, read `head` again.
//! 3. Steal of `n`: take the lock; if `head < tail`: `head = h + n`; *heavy fence*; read `tail`. At least `h + n`: what is in the
//!    slots from `h` on is the thief's. Otherwise the owner got the upper ones: `head = max(h, tail)`. Give the lock back.
//!
//! For the position `t` owner and thief both do "store mine; fence; read the other's" (store buffering), so at least one sees
//! the other's store. If the owner sees `head > t`, it asks again under the lock, when the thief has decided. If it does not,
//! the thief reads the owner's `tail` or a later one: `tail = t` makes it give up; a later `t + 1` is that of another thread
//! pushed to the same place, whose slot it then reads. Claimed slots may be read after `head` has moved past them: so many as
//! one steal takes are always left free, and the next steal waits for the lock.
//!
//! The owner takes the oldest under the lock without a fence: it is not popping meanwhile, and thieves are locked out.
//!
//! The library's lanes of jobs (`runtime/src/fork/lane.rs`) are the same algorithm with a ring that grows, jobs of scopes and
//! a limit by which the owner is noticed; here a full ring sends the thread to the run queue.

use crate::lock::SpinLock;
use crate::prim::{AtomicPtr, AtomicU32, Ordering, heavy_fence, light_fence};

/// Places in the ring; tiny under loom so that it is often full.
const PLACES: usize = if cfg!(loom) { 4 } else { 256 };
/// Most that are stolen at once; so many places are left free.
pub const MOST: usize = if cfg!(loom) { 2 } else { 32 };
/// How many fit.
pub const CAPACITY: usize = PLACES - MOST;

/// The new threads. `T` is what is queued, by pointer.
#[repr(align(64))]
pub struct Fresh<T> {
    tail: AtomicU32,
    head: AtomicU32,
    lock: SpinLock<()>,
    slots: [AtomicPtr<T>; PLACES],
}

impl<T> Default for Fresh<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Fresh<T> {
    /// None.
    pub fn new() -> Self {
        Self::starting_at(0)
    }

    /// None; positions begin at `at`.
    pub(crate) fn starting_at(at: u32) -> Self {
        Self {
            tail: AtomicU32::new(at),
            head: AtomicU32::new(at),
            lock: SpinLock::new(()),
            slots: core::array::from_fn(|_| AtomicPtr::new(core::ptr::null_mut())),
        }
    }

    fn slot(&self, at: u32) -> &AtomicPtr<T> {
        &self.slots[at as usize % PLACES]
    }

    /// How many there are, as far as one look can tell.
    #[inline]
    pub fn len(&self) -> usize {
        let n = self.tail.load(Ordering::Relaxed).wrapping_sub(self.head.load(Ordering::Relaxed)) as i32;
        n.max(0) as usize
    }

    /// Whether one look finds nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many have ever been taken from the old end (wrapping).
    #[inline]
    pub fn taken(&self) -> u32 {
        self.head.load(Ordering::Relaxed)
    }

    /// Adds the newest. Owner only. Gives the item back when the ring is full.
    #[inline]
    pub fn push(&self, item: *mut T) -> Result<(), *mut T> {
        let tail = self.tail.load(Ordering::Relaxed); // only the owner writes it
        // Relaxed: `head` may be too high while a thief decides; the slots under it are not written (see the protocol).
        if self.len() >= CAPACITY {
            return Err(item);
        }
        self.slot(tail).store(item, Ordering::Relaxed);
        // Release: publishes the slot, and all that was written to the item. pairs: fresh.tail
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
        Ok(())
    }

    /// Takes `item` if it is the newest. Owner only.
    #[inline]
    pub fn pop(&self, item: *mut T) -> bool {
        let tail = self.tail.load(Ordering::Relaxed);
        if self.is_empty() {
            return false;
        }
        let newest = tail.wrapping_sub(1);
        if self.slot(newest).load(Ordering::Relaxed) != item {
            return false;
        }
        // Release: the slots below are still what they were. pairs: fresh.tail
        self.tail.store(newest, Ordering::Release);
        light_fence(); // the store comes before the load. pairs: fresh.take
        if self.head.load(Ordering::Relaxed).wrapping_sub(newest) as i32 <= 0 {
            return true;
        }
        self.pop_slowly(newest)
    }

    /// A thief is after the same.
    #[cold]
    fn pop_slowly(&self, newest: u32) -> bool {
        let _decided = self.lock.lock();
        let head = self.head.load(Ordering::Relaxed);
        let ours = head.wrapping_sub(newest) as i32 <= 0;
        if !ours {
            // Empty, with `tail` one below `head`. Release: as in `push`. pairs: fresh.tail
            self.tail.store(head, Ordering::Release);
        }
        ours
    }

    /// Takes the oldest. Owner only.
    #[inline]
    pub fn take_own(&self) -> Option<*mut T> {
        if self.is_empty() {
            return None;
        }
        let _alone = self.lock.lock();
        let head = self.head.load(Ordering::Relaxed);
        if head == self.tail.load(Ordering::Relaxed) {
            return None;
        }
        self.head.store(head.wrapping_add(1), Ordering::Relaxed);
        Some(self.slot(head).load(Ordering::Relaxed))
    }

    /// Takes the oldest of another's: one, or more if there are many. All but the first go to `rest`, the oldest first.
    pub fn steal(&self, mut rest: impl FnMut(*mut T)) -> Option<*mut T> {
        if self.is_empty() {
            return None;
        }
        let _turn = self.lock.lock();
        let head = self.head.load(Ordering::Relaxed);
        let wanted = share(self.len());
        if wanted == 0 {
            return None;
        }
        self.head.store(head.wrapping_add(wanted), Ordering::Relaxed);
        heavy_fence(); // pairs: fresh.take
        // Acquire: the items and their slots are written. pairs: fresh.tail
        let there = self.tail.load(Ordering::Acquire).wrapping_sub(head) as i32;
        let got = wanted.min(there.max(0) as u32);
        if got != wanted {
            self.head.store(head.wrapping_add(got), Ordering::Relaxed);
        }
        let item = |i: u32| self.slot(head.wrapping_add(i)).load(Ordering::Relaxed);
        let first = (got != 0).then(|| item(0));
        (1..got).for_each(|i| rest(item(i)));
        first
    }

    /// Forgets all, in a forked child.
    ///
    /// # Safety
    /// The caller is the only thread.
    pub unsafe fn reset(&self) {
        // SAFETY: the caller's.
        unsafe { self.lock.force_unlock() };
        self.head.store(self.tail.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// How many a thief takes of so many. Where threads make threads and wait for them there are few, and the oldest is the largest
/// part; many are those of one that makes them in a loop.
fn share(len: usize) -> u32 {
    const FEW: usize = if cfg!(loom) { 1 } else { 8 };
    len.div_ceil(FEW).min(MOST) as u32
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn item(n: usize) -> *mut u32 {
        core::ptr::without_provenance_mut(n + 1)
    }

    #[test]
    fn the_owner_takes_the_newest_others_the_oldest() {
        assert!(crate::prim::has_heavy_fence());
        let fresh = Fresh::starting_at(u32::MAX - 1);
        (0..4).for_each(|i| assert!(fresh.push(item(i)).is_ok()));
        assert!(!fresh.pop(item(0)), "not the newest");
        assert!(fresh.pop(item(3)));
        assert_eq!(fresh.steal(|_| unreachable!()), Some(item(0)));
        assert_eq!(fresh.take_own(), Some(item(1)));
        assert_eq!(fresh.len(), 1);
        assert!(fresh.pop(item(2)));
        assert!(fresh.is_empty() && !fresh.pop(item(2)));
        assert_eq!((fresh.steal(|_| unreachable!()), fresh.take_own()), (None, None));
    }

    #[test]
    fn a_thief_takes_several_of_many() {
        assert!(crate::prim::has_heavy_fence());
        let fresh = Fresh::new();
        (0..CAPACITY).for_each(|i| assert!(fresh.push(item(i)).is_ok()));
        let mut rest = std::vec::Vec::new();
        assert_eq!(fresh.steal(|t| rest.push(t)), Some(item(0)));
        let taken = CAPACITY.div_ceil(8);
        assert_eq!((rest, fresh.len()), ((1..taken).map(item).collect(), CAPACITY - taken));
    }

    #[test]
    fn a_full_ring_gives_the_item_back() {
        let fresh = Fresh::new();
        (0..CAPACITY).for_each(|i| assert!(fresh.push(item(i)).is_ok()));
        assert_eq!(fresh.push(item(999)), Err(item(999)));
        assert_eq!(fresh.take_own(), Some(item(0)));
        assert!(fresh.push(item(999)).is_ok());
        assert!(fresh.pop(item(999)));
    }

    #[test]
    fn thieves_and_owner_take_everything_once() {
        const N: usize = 4_000;
        assert!(crate::prim::has_heavy_fence());
        let fresh = Fresh::new();
        let taken: std::vec::Vec<AtomicU32> = (0..N).map(|_| AtomicU32::new(0)).collect();
        let done = crate::prim::AtomicBool::new(false);
        let take = |t: *mut u32| taken[t.addr() - 1].fetch_add(1, Ordering::Relaxed);
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    while !done.load(Ordering::Relaxed) || !fresh.is_empty() {
                        fresh.steal(|t| _ = take(t)).map(take);
                    }
                });
            }
            for i in 0..N {
                while fresh.push(item(i)).is_err() {
                    fresh.take_own().map(take); // none, if thieves have emptied the ring since
                }
                if i % 3 != 0 && fresh.pop(item(i)) {
                    take(item(i));
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!(taken.iter().all(|t| t.load(Ordering::Relaxed) == 1));
    }
}
