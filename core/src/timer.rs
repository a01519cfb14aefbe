//! Deadlines of parked threads: one 4-ary heap per processor, each behind its own lock.
//!
//! An entry is (deadline, node); the node lives in the parked thread and knows its place in the heap, so that a thread
//! that was woken for another reason takes its own entry out. An expiry *claims* the node's ticket (see `park`), so an
//! entry that fires late or twice does no harm.
//!
//! The order is that of CLOCK_MONOTONIC. Deadlines on other clocks are converted when they are entered, and once more when such
//! a clock is set (see `wall`).

use crate::clock::NEVER;
use crate::lock::SpinLock;
use crate::mem;
use crate::park::Ticket;
use crate::thread::Thread;
use crate::wall::{CLOCKS, Clock, Deadline, Offsets};
use core::sync::atomic::{AtomicU64, Ordering};

const NOT_QUEUED: u32 = u32::MAX;
const ARITY: usize = 4;

/// A thread's entry in a heap.
pub struct TimerNode {
    place: u32,
    ticket: Option<Ticket>,
    thread: *mut Thread,
    deadline: Deadline,
}

impl TimerNode {
    /// Not in any heap.
    pub const fn new() -> Self {
        Self { place: NOT_QUEUED, ticket: None, thread: core::ptr::null_mut(), deadline: Deadline::NEVER }
    }
}

impl Default for TimerNode {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Clone, Copy)]
struct Entry {
    /// By CLOCK_MONOTONIC.
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
        deadline: Deadline,
        offsets: &Offsets,
    ) -> Result<(), i32> {
        let mut heap = self.heap.lock();
        if heap.len == heap.capacity {
            heap.grow()?;
        }
        // SAFETY: the node is the caller's, not yet shared.
        unsafe {
            (*node).thread = thread;
            (*node).ticket = Some(ticket);
            (*node).deadline = deadline;
        }
        let at = heap.len;
        heap.len += 1;
        heap.sift_up(at, Entry { deadline: convert(deadline, offsets), node });
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

    /// The clocks other than CLOCK_MONOTONIC may have been set, and `offsets` tells how they are now.
    pub fn convert_anew(&self, offsets: &Offsets) {
        let mut heap = self.heap.lock();
        heap.convert_anew(offsets);
        self.next.store(heap.first(), Ordering::Relaxed);
    }

    /// Takes out all deadlines up to `now` (CLOCK_MONOTONIC) and calls `f(thread, ticket)` for each, outside the lock's fast path
    /// but under the lock: `f` must be short and not use this heap. `time` asks the other clocks.
    pub fn expire(&self, now: u64, time: &dyn Fn(Clock) -> u64, f: &mut dyn FnMut(*mut Thread, Ticket)) {
        if self.next() > now {
            return;
        }
        let mut heap = self.heap.lock();
        // What each clock says, once it has been asked.
        let mut times = [0; CLOCKS.len()];
        times[Clock::Monotonic as usize] = now;
        while heap.len > 0 && heap.first() <= now {
            let node = heap.at(0).node;
            // SAFETY: nodes in the heap are valid until taken out under this lock.
            let deadline = unsafe { (*node).deadline };
            let there = &mut times[deadline.clock as usize];
            if *there == 0 {
                *there = time(deadline.clock);
            }
            if *there < deadline.at {
                // It has been set back, and nobody has heard of that yet.
                heap.sift_down(0, Entry { deadline: now.saturating_add(deadline.at - *there), node });
                continue;
            }
            heap.remove(0);
            // SAFETY: as above.
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

fn convert(deadline: Deadline, offsets: &Offsets) -> u64 {
    offsets.monotonic(deadline).unwrap_or_else(|| deadline.at.saturating_add_signed(deadline.clock.to_monotonic()))
}

impl Heap {
    fn convert_anew(&mut self, offsets: &Offsets) {
        let mut changed = false;
        for i in 0..self.len {
            let Entry { deadline: old, node } = self.at(i);
            // SAFETY: nodes in the heap are valid.
            let deadline = unsafe { (*node).deadline };
            if deadline.clock != Clock::Monotonic {
                let new = convert(deadline, offsets);
                self.put(i, Entry { deadline: new, node });
                changed |= new != old;
            }
        }
        if changed {
            // From the last that has others below it up to the first: all below are in order already.
            for i in (0..self.len.div_ceil(ARITY)).rev() {
                self.sift_down(i, self.at(i));
            }
        }
    }

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
        deadlines: Vec<Option<Deadline>>,
        ticket: Ticket,
        offsets: Offsets,
        /// What CLOCK_REALTIME is ahead of CLOCK_MONOTONIC.
        ahead: u64,
    }

    impl World {
        fn new(n: usize) -> Self {
            let nodes = (0..n).map(|_| TimerNode::new()).collect();
            let (deadlines, ticket) = (std::vec![None; n], ParkWord::new().open());
            let mut w = Self { timers: Timers::new(), nodes, deadlines, ticket, offsets: Offsets::new(), ahead: 0 };
            w.set_clock(10_000);
            w
        }

        fn arm(&mut self, i: usize, deadline: impl Into<Deadline>) {
            let deadline = deadline.into();
            self.deadlines[i] = Some(deadline);
            // SAFETY: the node is in no heap and outlives the test.
            unsafe { self.timers.arm(&mut self.nodes[i], thread(i), self.ticket, deadline, &self.offsets) }.unwrap();
        }

        fn disarm(&mut self, i: usize) {
            self.deadlines[i] = None;
            // SAFETY: the node was armed in this heap, if at all.
            unsafe { self.timers.disarm(&mut self.nodes[i]) };
        }

        /// CLOCK_REALTIME is set, and the runtime hears of it.
        fn set_clock(&mut self, ahead: u64) {
            self.ahead = ahead;
            self.offsets.renew(|_| -(ahead as i64), || self.timers.convert_anew(&self.offsets));
        }

        fn monotonic(&self, deadline: Deadline) -> u64 {
            deadline.at.saturating_sub(if deadline.clock == Clock::Realtime { self.ahead } else { 0 })
        }

        /// Expires; who has expired, in turn.
        fn fire(&mut self, now: u64) -> Vec<usize> {
            let mut fired = Vec::new();
            let time = |clock| if clock == Clock::Realtime { now + self.ahead } else { now };
            self.timers.expire(now, &time, &mut |t, ticket| {
                assert_eq!(ticket, self.ticket);
                fired.push(t.addr() - 1);
            });
            fired
        }

        /// Expires and compares with the plain list.
        fn expire(&mut self, now: u64) -> usize {
            let fired = self.fire(now);
            let times: Vec<u64> = fired.iter().map(|&i| self.monotonic(self.deadlines[i].unwrap())).collect();
            assert!(times.is_sorted(), "earliest first");
            assert!(times.iter().all(|&t| t <= now));
            fired.iter().for_each(|&i| self.deadlines[i] = None);
            let left = self.deadlines.iter().flatten().map(|&d| self.monotonic(d));
            assert_eq!(self.timers.next(), left.min().unwrap_or(NEVER));
            assert!(self.timers.next() > now);
            fired.len()
        }
    }

    fn realtime(at: u64) -> Deadline {
        Deadline { at, clock: Clock::Realtime }
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
        assert_eq!(w.expire(u64::MAX / 2), 1);
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
                None => {
                    let at = now + 1 + (random >> 40) % 2000;
                    if random & 1 == 0 { w.arm(i, at) } else { w.arm(i, realtime(at + w.ahead)) }
                }
                Some(_) if random.is_multiple_of(3) => w.disarm(i),
                Some(_) => {}
            }
            if step % 1000 == 0 {
                w.set_clock(10_000 + (random >> 30) % 1000);
            }
            if step % 10 == 0 {
                now += (random >> 50) % 8;
                w.expire(now);
            }
        }
        w.expire(u64::MAX / 2);
        assert!(w.deadlines.iter().all(Option::is_none));
    }

    #[test]
    fn setting_the_clock_moves_its_deadlines_and_no_others() {
        let mut w = World::new(3);
        w.arm(0, realtime(10_050));
        w.arm(1, 30);
        w.arm(2, realtime(10_020));
        assert_eq!(w.timers.next(), 20);
        w.set_clock(10_045);
        assert_eq!(w.timers.next(), 0, "10,020 is past");
        assert_eq!(w.fire(1), [2]);
        assert_eq!(w.fire(5), [0]);
        assert_eq!(w.fire(30), [1]);
        w.arm(0, realtime(10_145));
        assert_eq!(w.timers.next(), 100);
        w.set_clock(10_000);
        assert_eq!(w.timers.next(), 145);
    }

    #[test]
    fn a_clock_that_was_set_back_unheard_ends_no_wait_early() {
        let mut w = World::new(2);
        w.arm(0, realtime(10_050));
        w.arm(1, 60);
        w.ahead -= 20;
        assert_eq!(w.fire(50), []);
        assert_eq!(w.timers.next(), 60, "none is forgotten");
        assert_eq!(w.fire(69), [1]);
        assert_eq!(w.fire(70), [0]);
    }

    #[test]
    fn while_nobody_tells_of_a_change_the_clock_is_asked() {
        let mut w = World::new(1);
        // SAFETY: the only thread.
        unsafe { w.offsets.forget() };
        let (now, time) = (Clock::Monotonic.now(), Clock::Realtime.now());
        w.arm(0, realtime(time + 1_000_000_000));
        let off = w.timers.next().abs_diff(now + 1_000_000_000);
        assert!(off < 500_000_000, "off by {off} ns");
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
