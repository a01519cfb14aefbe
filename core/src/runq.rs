//! A worker's run queue: a bounded ring, pushed by its owner, popped from the other end by the owner and by thieves.
//!
//! First in, first out, for fairness among the threads of unmodified programs. The algorithm is that of the Go
//! runtime's per-P queue (runqput, runqget, runqsteal in proc.go); entries are single words in atomics, so there is no
//! torn or racing non-atomic read to argue away.
//!
//! # Protocol
//! `head..tail` (wrapping) are the occupied positions. Only the owner writes `tail` and the slots; anyone advances
//! `head` by compare-exchange, after reading the slot.
//! 1. Push: read `head` (Acquire), check room, write the slot, publish `tail` (Release).
//! 2. Take: read `head` (Acquire), read `tail` (Acquire), read the slots, advance `head` (AcqRel). If the exchange
//!    succeeds no one else took those slots, and the owner has not overwritten them: it overwrites a slot only after
//!    seeing a `head` beyond it, which this exchange published.
//!
//! Rejected: Chase-Lev (LIFO owner end is unfair to threads and needs a full fence per pop); a lock (a thief the kernel
//! preempts would stop the owner).

use crate::prim::{AtomicPtr, AtomicU32, Ordering};

/// Places in the ring; tiny under loom so that wrap-around and overflow are common.
pub const CAPACITY: usize = if cfg!(loom) { 4 } else { 256 };

/// The queue. `T` is what is queued, by pointer.
#[repr(align(64))]
pub struct RunQueue<T> {
    head: AtomicU32,
    tail: AtomicU32,
    /// Nobody but the owner takes.
    unshared: bool,
    slots: [AtomicPtr<T>; CAPACITY],
}

impl<T> Default for RunQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> RunQueue<T> {
    /// An empty queue.
    pub fn new() -> Self {
        Self {
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
            unshared: false,
            slots: core::array::from_fn(|_| AtomicPtr::new(core::ptr::null_mut())),
        }
    }

    /// An empty queue that nobody steals from: its owner takes without a locked instruction.
    pub fn unshared() -> Self {
        Self { unshared: true, ..Self::new() }
    }

    /// An empty queue whose positions begin at `at`, for models that want to cross the border of the ring or of `u32`.
    #[cfg(all(loom, test))]
    pub(crate) fn starting_at(at: u32) -> Self {
        Self { head: AtomicU32::new(at), tail: AtomicU32::new(at), ..Self::new() }
    }

    /// How many are queued, as far as one look can tell.
    #[inline]
    pub fn len(&self) -> usize {
        let head = self.head.load(Ordering::Relaxed);
        (self.tail.load(Ordering::Relaxed).wrapping_sub(head) as usize).min(CAPACITY)
    }

    /// Whether one look finds nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed) == self.tail.load(Ordering::Relaxed)
    }

    /// How many have ever been taken out (wrapping): changes whenever another becomes the oldest.
    #[inline]
    pub fn taken(&self) -> u32 {
        self.head.load(Ordering::Relaxed)
    }

    /// Adds at the end. Owner only. Gives the item back when the ring is full.
    #[inline]
    pub fn push(&self, item: *mut T) -> Result<(), *mut T> {
        // Acquire: a taker read its slot before it advanced head, so the slot may be reused. pairs: runq.head
        let head = self.head.load(Ordering::Acquire);
        let tail = self.tail.load(Ordering::Relaxed); // only the owner writes it
        if tail.wrapping_sub(head) as usize >= CAPACITY {
            return Err(item);
        }
        self.slots[tail as usize % CAPACITY].store(item, Ordering::Relaxed);
        // Release: publishes the slot, and all that the item's owner wrote to it. pairs: runq.tail
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
        Ok(())
    }

    /// The oldest, which may be taken by others meanwhile.
    #[inline]
    pub fn oldest(&self) -> Option<*mut T> {
        // Acquire: see the protocol, step 2. pairs: runq.head
        let head = self.head.load(Ordering::Acquire);
        // Acquire: the slots below tail are written. pairs: runq.tail
        (self.tail.load(Ordering::Acquire) != head)
            .then(|| self.slots[head as usize % CAPACITY].load(Ordering::Relaxed))
    }

    /// Takes the oldest. Anyone, or the owner if it is unshared.
    #[inline(always)]
    pub fn pop(&self) -> Option<*mut T> {
        if self.unshared {
            let head = self.head.load(Ordering::Relaxed);
            if head == self.tail.load(Ordering::Relaxed) {
                return None;
            }
            self.head.store(head.wrapping_add(1), Ordering::Relaxed);
            return Some(self.slots[head as usize % CAPACITY].load(Ordering::Relaxed));
        }
        // Acquire: see the protocol, step 2. pairs: runq.head
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            // Acquire: the slots below tail are written. pairs: runq.tail
            let tail = self.tail.load(Ordering::Acquire);
            if head == tail {
                return None;
            }
            let item = self.slots[head as usize % CAPACITY].load(Ordering::Relaxed);
            // AcqRel: our read of the slot happens before the owner's reuse of it. pairs: runq.head
            match self.head.compare_exchange_weak(head, head.wrapping_add(1), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(item),
                Err(now) => head = now,
            }
        }
    }

    /// Moves the older half of `self`, which is shared, to `thief`'s ring and returns one of them. `thief` is the caller's own queue.
    pub fn steal_into(&self, thief: &RunQueue<T>) -> Option<*mut T> {
        debug_assert!(!self.unshared);
        loop {
            // Acquire: see the protocol, step 2. pairs: runq.head
            let head = self.head.load(Ordering::Acquire);
            // Acquire: the slots below tail are written. pairs: runq.tail
            let tail = self.tail.load(Ordering::Acquire);
            let len = tail.wrapping_sub(head) as usize;
            let take = len - len / 2;
            if take == 0 {
                return None;
            }
            if take > CAPACITY / 2 {
                continue; // head and tail were read at different times
            }
            // Acquire: as in push, the thief's ring must be free where we write. pairs: runq.head
            let their_head = thief.head.load(Ordering::Acquire);
            let their_tail = thief.tail.load(Ordering::Relaxed); // the caller owns it
            let room = CAPACITY - their_tail.wrapping_sub(their_head) as usize;
            let take = take.min(room + 1) as u32;
            let first = self.slots[head as usize % CAPACITY].load(Ordering::Relaxed);
            for i in 1..take {
                let item = self.slots[head.wrapping_add(i) as usize % CAPACITY].load(Ordering::Relaxed);
                thief.slots[their_tail.wrapping_add(i - 1) as usize % CAPACITY].store(item, Ordering::Relaxed);
            }
            // AcqRel: our reads of the slots happen before the owner's reuse of them. pairs: runq.head
            if self.head.compare_exchange(head, head.wrapping_add(take), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                // Release: publishes the stolen slots to the next thief. pairs: runq.tail
                thief.tail.store(their_tail.wrapping_add(take - 1), Ordering::Release);
                return Some(first);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn item(n: usize) -> *mut u32 {
        core::ptr::without_provenance_mut(n + 1)
    }

    fn filled(n: usize) -> RunQueue<u32> {
        let queue = RunQueue::new();
        (0..n).for_each(|i| assert!(queue.push(item(i)).is_ok()));
        queue
    }

    #[test]
    fn first_in_first_out_across_the_border() {
        let queue = RunQueue::new();
        for i in 0..3 * CAPACITY {
            assert!(queue.push(item(i)).is_ok());
            assert!(queue.push(item(i + 1)).is_ok());
            assert_eq!(queue.pop(), Some(item(i)));
            assert_eq!(queue.pop(), Some(item(i + 1)));
        }
        assert_eq!(queue.pop(), None);
        assert!(queue.is_empty());
    }

    #[test]
    fn an_unshared_one_is_first_in_first_out_too() {
        let queue = RunQueue::unshared();
        assert_eq!(queue.pop(), None);
        for i in 0..3 * CAPACITY {
            assert!(queue.push(item(i)).is_ok());
            assert!(queue.push(item(i + 1)).is_ok());
            assert_eq!((queue.len(), queue.oldest()), (2, Some(item(i))));
            assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(item(i)), Some(item(i + 1)), None));
        }
        (0..CAPACITY).for_each(|i| assert!(queue.push(item(i)).is_ok()));
        assert_eq!(queue.push(item(999)), Err(item(999)));
    }

    #[test]
    fn looking_takes_nothing() {
        let queue = filled(2);
        assert_eq!((queue.oldest(), queue.oldest(), queue.taken()), (Some(item(0)), Some(item(0)), 0));
        queue.pop();
        assert_eq!((queue.oldest(), queue.taken()), (Some(item(1)), 1));
        queue.pop();
        assert_eq!((queue.oldest(), queue.taken()), (None, 2));
    }

    #[test]
    fn a_full_ring_gives_the_item_back() {
        let queue = filled(CAPACITY);
        assert_eq!(queue.push(item(999)), Err(item(999)));
        assert_eq!(queue.len(), CAPACITY);
        assert_eq!(queue.pop(), Some(item(0)));
        assert!(queue.push(item(999)).is_ok());
    }

    #[test]
    fn a_thief_takes_the_older_half() {
        for n in [1, 2, 3, 7, CAPACITY] {
            let (queue, thief) = (filled(n), RunQueue::new());
            assert_eq!(queue.steal_into(&thief), Some(item(0)));
            let taken = n - n / 2;
            assert_eq!((queue.len(), thief.len()), (n / 2, taken - 1));
            (1..taken).for_each(|i| assert_eq!(thief.pop(), Some(item(i))));
            (taken..n).for_each(|i| assert_eq!(queue.pop(), Some(item(i))));
        }
        assert_eq!(filled(0).steal_into(&RunQueue::new()), None);
    }

    #[test]
    fn a_thief_takes_what_it_has_room_for() {
        let (queue, thief) = (filled(10), filled(CAPACITY - 1));
        assert_eq!(queue.steal_into(&thief), Some(item(0)));
        assert_eq!((queue.len(), thief.len()), (8, CAPACITY));
        assert_eq!(queue.steal_into(&thief), Some(item(2)));
        assert_eq!((queue.len(), thief.len()), (7, CAPACITY));
    }

    #[test]
    fn thieves_and_owner_take_everything_once() {
        const N: usize = 100_000;
        let queue = RunQueue::new();
        let taken: std::vec::Vec<AtomicU32> = (0..N).map(|_| AtomicU32::new(0)).collect();
        let done = crate::prim::AtomicBool::new(false);
        let take = |t: *mut u32| taken[t.addr() - 1].fetch_add(1, Ordering::Relaxed);
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    let own = RunQueue::new();
                    while !done.load(Ordering::Relaxed) || !queue.is_empty() {
                        queue.steal_into(&own).map(take);
                        while let Some(t) = own.pop() {
                            take(t);
                        }
                    }
                });
            }
            for i in 0..N {
                while queue.push(item(i)).is_err() {
                    queue.pop().map(take);
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!(taken.iter().all(|t| t.load(Ordering::Relaxed) == 1));
    }
}
