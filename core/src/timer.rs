//! Deadlines of parked threads: one 4-ary heap per processor, each behind its own lock.
//!
//! An entry is (deadline, node); the node lives in the parked thread and knows its place in the heap, so that a thread
//! that was woken for another reason takes its own entry out. An expiry *claims* the node's ticket (see `park`), so an
//! entry that fires late or twice does no harm.

use crate::clock::NEVER;
use crate::lock::SpinLock;
use crate::mem;
use crate::park::Ticket;
use crate::thread::Thread;
use core::sync::atomic::{AtomicU64, Ordering};

const NOT_QUEUED: u32 = u32::MAX;
const ARITY: usize = 4;

/// A thread's entry in a heap.
pub struct TimerNode {
    place: u32,
    ticket: Option<Ticket>,
    thread: *mut Thread,
}

impl TimerNode {
    /// Not in any heap.
    pub const fn new() -> Self {
        Self { place: NOT_QUEUED, ticket: None, thread: core::ptr::null_mut() }
    }
}

impl Default for TimerNode {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Clone, Copy)]
struct Entry {
    deadline: u64,
    node: *mut TimerNode,
}

struct Heap {
    entries: *mut Entry,
    len: usize,
    capacity: usize,
}

// SAFETY: the entries are reached only under the lock.
unsafe impl Send for Heap {}

/// One processor's deadlines.
pub struct Timers {
    heap: SpinLock<Heap>,
    /// The earliest deadline, `NEVER` if none. Written under the lock.
    next: AtomicU64,
}

impl Default for Timers {
    fn default() -> Self {
        Self::new()
    }
}

impl Timers {
    /// No deadlines.
    pub fn new() -> Self {
        Self {
            heap: SpinLock::new(Heap { entries: core::ptr::null_mut(), len: 0, capacity: 0 }),
            next: AtomicU64::new(NEVER),
        }
    }

    /// The earliest deadline, as one look tells it.
    #[inline]
    pub fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Adds a deadline for the wait `ticket` of `thread`. Error: ENOMEM.
    ///
    /// # Safety
    /// `node` is not in any heap and stays valid until [`disarm`](Self::disarm) or an expiry took it out.
    pub unsafe fn arm(
        &self,
        node: *mut TimerNode,
        thread: *mut Thread,
        ticket: Ticket,
        deadline: u64,
    ) -> Result<(), i32> {
        let mut heap = self.heap.lock();
        if heap.len == heap.capacity {
            heap.grow()?;
        }
        // SAFETY: the node is the caller's, not yet shared.
        unsafe {
            (*node).thread = thread;
            (*node).ticket = Some(ticket);
        }
        let at = heap.len;
        heap.len += 1;
        heap.sift_up(at, Entry { deadline, node });
        self.next.store(heap.first(), Ordering::Relaxed);
        Ok(())
    }

    /// Takes the node out if it is still in the heap.
    ///
    /// # Safety
    /// `node` was armed in this heap by the caller.
    pub unsafe fn disarm(&self, node: *mut TimerNode) {
        let mut heap = self.heap.lock();
        // SAFETY: under the lock; the node is the caller's.
        let place = unsafe { (*node).place };
        if place != NOT_QUEUED {
            heap.remove(place as usize);
            self.next.store(heap.first(), Ordering::Relaxed);
        }
    }

    /// Takes out all deadlines up to `now` and calls `f(thread, ticket)` for each, outside the lock's fast path but under
    /// the lock: `f` must be short and not use this heap.
    pub fn expire(&self, now: u64, f: &mut dyn FnMut(*mut Thread, Ticket)) {
        if self.next() > now {
            return;
        }
        let mut heap = self.heap.lock();
        while heap.len > 0 && heap.first() <= now {
            let node = heap.at(0).node;
            heap.remove(0);
            // SAFETY: nodes in the heap are valid until taken out under this lock.
            let (thread, ticket) = unsafe { ((*node).thread, (*node).ticket.take()) };
            if let Some(ticket) = ticket {
                f(thread, ticket);
            }
        }
        self.next.store(heap.first(), Ordering::Relaxed);
    }

    /// Forgets everything, in a forked child.
    ///
    /// # Safety
    /// The caller is the only thread; no node in the heap will be disarmed.
    pub unsafe fn reset(&self) {
        // SAFETY: the caller's.
        unsafe { self.heap.force_unlock() };
        self.heap.lock().len = 0;
        self.next.store(NEVER, Ordering::Relaxed);
    }
}

impl Heap {
    fn at(&self, i: usize) -> Entry {
        debug_assert!(i < self.len);
        // SAFETY: i < len <= capacity entries are mapped.
        unsafe { *self.entries.add(i) }
    }

    fn put(&mut self, i: usize, e: Entry) {
        // SAFETY: i < capacity; the node of an entry in the heap is valid, its place is written under the lock.
        unsafe {
            *self.entries.add(i) = e;
            (*e.node).place = i as u32;
        }
    }

    fn first(&self) -> u64 {
        if self.len == 0 { NEVER } else { self.at(0).deadline }
    }

    fn grow(&mut self) -> Result<(), i32> {
        let size = size_of::<Entry>();
        let new = (self.capacity * 2).max(4096 / size);
        self.entries = if self.capacity == 0 {
            mem::map(new * size)?.cast()
        } else {
            // SAFETY: entries is a whole mapping of this heap.
            unsafe { mem::remap(self.entries.cast(), self.capacity * size, new * size)?.cast() }
        };
        self.capacity = new;
        Ok(())
    }

    fn sift_up(&mut self, mut i: usize, e: Entry) {
        while i > 0 {
            let parent = (i - 1) / ARITY;
            let p = self.at(parent);
            if p.deadline <= e.deadline {
                break;
            }
            self.put(i, p);
            i = parent;
        }
        self.put(i, e);
    }

    fn sift_down(&mut self, mut i: usize, e: Entry) {
        loop {
            let first = i * ARITY + 1;
            if first >= self.len {
                break;
            }
            let last = (first + ARITY).min(self.len);
            let mut least = first;
            for c in first + 1..last {
                if self.at(c).deadline < self.at(least).deadline {
                    least = c;
                }
            }
            let c = self.at(least);
            if e.deadline <= c.deadline {
                break;
            }
            self.put(i, c);
            i = least;
        }
        self.put(i, e);
    }

    fn remove(&mut self, i: usize) {
        // SAFETY: the node is in the heap, hence valid.
        unsafe { (*self.at(i).node).place = NOT_QUEUED };
        self.len -= 1;
        if i < self.len {
            // SAFETY: index len is within the mapped capacity.
            let last = unsafe { *self.entries.add(self.len) };
            if i > 0 && last.deadline < self.at((i - 1) / ARITY).deadline {
                self.sift_up(i, last);
            } else {
                self.sift_down(i, last);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::park::ParkWord;
    use std::vec::Vec;

    /// The i-th "thread": expiry hands the pointer back, nothing looks behind it.
    fn thread(i: usize) -> *mut Thread {
        core::ptr::without_provenance_mut(i + 1)
    }

    struct World {
        timers: Timers,
        nodes: Vec<TimerNode>,
        deadlines: Vec<Option<u64>>,
        ticket: Ticket,
    }

    impl World {
        fn new(n: usize) -> Self {
            let nodes = (0..n).map(|_| TimerNode::new()).collect();
            Self { timers: Timers::new(), nodes, deadlines: std::vec![None; n], ticket: ParkWord::new().open() }
        }

        fn arm(&mut self, i: usize, deadline: u64) {
            self.deadlines[i] = Some(deadline);
            // SAFETY: the node is in no heap and outlives the test.
            unsafe { self.timers.arm(&mut self.nodes[i], thread(i), self.ticket, deadline) }.unwrap();
        }

        fn disarm(&mut self, i: usize) {
            self.deadlines[i] = None;
            // SAFETY: the node was armed in this heap, if at all.
            unsafe { self.timers.disarm(&mut self.nodes[i]) };
        }

        /// Expires and compares with the plain list.
        fn expire(&mut self, now: u64) -> usize {
            let mut fired = Vec::new();
            self.timers.expire(now, &mut |t, ticket| {
                assert_eq!(ticket, self.ticket);
                fired.push(t.addr() - 1);
            });
            let times: Vec<u64> = fired.iter().map(|&i| self.deadlines[i].unwrap()).collect();
            assert!(times.is_sorted(), "earliest first");
            assert!(times.iter().all(|&t| t <= now));
            fired.iter().for_each(|&i| self.deadlines[i] = None);
            assert_eq!(self.timers.next(), self.deadlines.iter().flatten().copied().min().unwrap_or(NEVER));
            assert!(self.timers.next() > now);
            fired.len()
        }
    }

    #[test]
    fn expires_in_order_and_once() {
        let mut w = World::new(3);
        assert_eq!(w.timers.next(), NEVER);
        w.arm(0, 30);
        w.arm(1, 10);
        w.arm(2, 20);
        assert_eq!(w.timers.next(), 10);
        assert_eq!(w.expire(9), 0);
        assert_eq!(w.expire(20), 2);
        assert_eq!(w.expire(20), 0);
        assert_eq!(w.expire(u64::MAX - 1), 1);
    }

    #[test]
    fn disarming_after_expiry_does_nothing() {
        let mut w = World::new(2);
        w.arm(0, 5);
        w.arm(1, 6);
        assert_eq!(w.expire(5), 1);
        w.disarm(0);
        assert_eq!(w.timers.next(), 6);
        w.disarm(1);
        w.disarm(1);
        assert_eq!(w.timers.next(), NEVER);
    }

    #[test]
    fn many_at_random_against_a_plain_list() {
        // More than fit one page, so that the heap grows and moves.
        const N: usize = 3000;
        let mut w = World::new(N);
        let mut random = 0x2545_F491_4F6C_DD1D_u64;
        let mut now = 0;
        for step in 0..60_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let i = (random >> 20) as usize % N;
            match w.deadlines[i] {
                None => w.arm(i, now + 1 + (random >> 40) % 2000),
                Some(_) if random.is_multiple_of(3) => w.disarm(i),
                Some(_) => {}
            }
            if step % 10 == 0 {
                now += (random >> 50) % 8;
                w.expire(now);
            }
        }
        w.expire(u64::MAX - 1);
        assert!(w.deadlines.iter().all(Option::is_none));
    }

    #[test]
    fn reset_forgets_all() {
        let mut w = World::new(2);
        w.arm(0, 5);
        // SAFETY: the only thread; the node is not disarmed.
        unsafe { w.timers.reset() };
        assert_eq!(w.timers.next(), NEVER);
        w.deadlines[0] = None;
        w.arm(1, 7);
        assert_eq!(w.expire(7), 1);
    }
}
