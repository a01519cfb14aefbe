//! The thread control block and the table of all of them.
//!
//! Control blocks live in one reservation and are never unmapped, so a stale pointer still points to a control block;
//! tickets (see `park`) tell its lives apart.
//!
//! # Safety
//! Fields without an atomic type belong to the thread itself, or to its creator before it runs for the first time, or
//! to its worker while it is being switched.

use crate::arch::Context;
use crate::identity::{Identity, PendingSignals};
use crate::lock::SpinLock;
use crate::mem;
use crate::park::ParkWord;
use crate::sched::Peer;
use crate::stack::Place;
use crate::timer::TimerNode;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Thread ids below this are the kernel's (`PID_MAX_LIMIT`).
pub const FIRST_TID: u32 = 1 << 22;
/// Lives of a control block after which its ids come again.
const LIVES: u8 = 252;
/// Threads that one process can have.
pub const MAX_THREADS: usize = 1 << 20;

/// What a thread is doing, for statistics and dumps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// The block is free.
    Free = 0,
    /// In a run queue or running.
    Runnable = 1,
    /// Waits in the wait table.
    Futex = 2,
    /// Waits for a descriptor.
    Io = 3,
    /// Waits for time to pass.
    Sleep = 4,
    /// Waits for a signal.
    SigWait = 5,
    /// Waits for a child process.
    Child = 6,
    /// Its function has returned; it waits for another (`sched::rest`).
    Resting = 7,
}

/// A user thread.
#[repr(C, align(64))]
pub struct Thread {
    /// Saved registers. First, so that a thread pointer is a context pointer.
    pub context: Context,
    /// The libc thread pointer (FS base).
    pub thread_pointer: usize,
    /// The only worker that may run it; null: any. See `sched::settle`.
    pub home: AtomicPtr<u8>,
    /// Who wakes it.
    pub park: ParkWord,
    /// The next thread in the injection queue or in a list of woken threads.
    pub next: AtomicPtr<Thread>,
    /// Its deadline.
    pub timer: TimerNode,
    /// Where its peer is.
    pub peer: Peer,
    /// The processor whose heap holds the deadline.
    pub timer_home: u32,
    /// It was woken alone by a thread whose worker it is left to until this time (`arch::ticks`).
    pub warm_until: AtomicU64,
    /// `arch::ticks` when another worker took it from the one it was woken on; 0: not since its last wait on a futex.
    pub stolen_at: u64,
    /// The futex it waited on last.
    pub last_futex: usize,
    /// Where it was when it was preempted last, and how often in a row that was close by.
    pub preempted_at: usize,
    /// See `preempted_at`; the monitor reads it.
    pub spins: AtomicU32,
    /// The library's record of it; 0: it has none. See the ABI layer's `kept`.
    pub slot: usize,
    /// That of the next thread that it creates.
    pub next_slot: usize,
    /// The wait of a thread that waits for another's end, as a word.
    pub join_wait: AtomicU64,
    /// The next thread that it creates is to be a kernel thread.
    pub apart: bool,
    /// Keep the extended vector state when parking (the thread entered through a site that may hold some).
    pub extended: bool,
    /// The frame of the system call that the thread is in, for the ABI layer: where to go on if the call touches memory
    /// that is not there. 0: none.
    pub recover: usize,
    /// Where on its stack the innermost of its signal handlers was called; 0: none runs. (Left as it is by a handler that jumps
    /// out: then it is where the stack was at some time.)
    pub handler_at: usize,
    /// A handler runs on the thread's own stack while what called it is on the alternate one, above this address; valid while
    /// the stack pointer is below `alt_taken_for`. 0: none.
    pub alt_taken: usize,
    /// Where that handler's frame ends.
    pub alt_taken_for: usize,
    /// What the program has in GS base while the thread runs in it; 0: nothing. See `sched::base`.
    pub gs_base: usize,
    /// The worker that ran it last (or runs it).
    pub worker: AtomicPtr<u8>,
    /// Set by a sender of a signal, cleared by the thread when it has looked.
    pub attention: AtomicBool,
    /// A [`State`].
    pub state: AtomicU8,
    /// The ABI layer's record of what was set for its scheduling; 0: nothing.
    pub attributes: AtomicUsize,
    /// CPU time charged to it, in nanoseconds; see `sched::cpu_time`.
    pub cpu_time: AtomicU64,
    /// Its stack, if that is one of the runtime's slots.
    pub stack: Option<Place<'static>>,
    /// Bytes at its beginning that the thread needs no more: they may be dropped once it has left.
    pub given_up: usize,
    /// Its rights to memory with protection keys, while another runs; see `sched::account`.
    pub key_rights: u32,
    /// Its signals. Outlives the block's lives: a sender may be late.
    pub signals: SpinLock<PendingSignals>,
    /// Its identity towards libc.
    pub identity: Identity,
}

impl Thread {
    /// Notes what the thread is doing.
    #[inline]
    pub fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    /// Whether the block is in use.
    pub fn is_live(&self) -> bool {
        self.state.load(Ordering::Relaxed) != State::Free as u8
    }
}

struct Free {
    head: *mut Thread,
    fresh: u32,
}
// SAFETY: reached only under the lock.
unsafe impl Send for Free {}

/// All control blocks of the process.
pub struct Table {
    base: AtomicPtr<Thread>,
    free: SpinLock<Free>,
    /// Blocks that were ever used are below this index.
    high: AtomicU32,
    /// Changed under the lock of `free`.
    live: AtomicU32,
    /// Added to an index to make an id, so that two processes' ids differ.
    offset: AtomicU32,
    /// Lives of each block, in the id's upper bits; a plain byte beside the reservation.
    lives: AtomicPtr<u8>,
    /// Blocks that are reserved.
    reserved: AtomicU32,
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

impl Thread {
    /// The thread was preempted at `pc`. Who is found in a few instructions again and again spins for others.
    pub fn note_preempted(&mut self, pc: usize) {
        const CLOSE: usize = 256;
        if self.preempted_at.abs_diff(pc) < CLOSE {
            self.spins.store(self.spins.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
        } else {
            self.spins.store(0, Ordering::Relaxed);
        }
        self.preempted_at = pc;
    }

    /// Whether it was found spinning. Others ask too, about a thread that may have ended.
    pub fn spins(&self) -> bool {
        const ENOUGH: u32 = 4;
        self.spins.load(Ordering::Relaxed) >= ENOUGH
    }
}

impl Table {
    /// No reservation yet.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            base: AtomicPtr::new(core::ptr::null_mut()),
            free: SpinLock::new(Free { head: core::ptr::null_mut(), fresh: 0 }),
            high: AtomicU32::new(0),
            live: AtomicU32::new(0),
            offset: AtomicU32::new(0),
            lives: AtomicPtr::new(core::ptr::null_mut()),
            reserved: AtomicU32::new(0),
        }
    }

    /// Reserves address space. `seed` should differ between processes. Error: ENOMEM.
    pub fn reserve(&self, seed: u32) -> Result<(), i32> {
        if self.base.load(Ordering::Relaxed).is_null() {
            // Reservations count against a limit on address space, but so do stacks: no more threads than have room for the
            // least stack and its guard.
            const LEAST_STACK: u64 = 20 << 10;
            let room = crate::stack::address_space() / LEAST_STACK;
            let blocks = MAX_THREADS.min(room as usize).max(64);
            let base = mem::reserve(blocks * size_of::<Thread>())?;
            let lives = mem::reserve(blocks)?;
            self.reserved.store(blocks as u32, Ordering::Relaxed);
            self.base.store(base.cast(), Ordering::Relaxed);
            self.lives.store(lives, Ordering::Relaxed);
        }
        self.offset.store(seed % FIRST_TID, Ordering::Relaxed);
        Ok(())
    }

    /// The addresses of the reserved blocks.
    pub fn addresses(&self) -> Range<usize> {
        let base = self.base.load(Ordering::Relaxed) as usize;
        base..base + self.reserved.load(Ordering::Relaxed) as usize * size_of::<Thread>()
    }

    fn block(&self, index: u32) -> *mut Thread {
        debug_assert!(index < self.reserved.load(Ordering::Relaxed));
        // SAFETY: the reservation has that many blocks.
        unsafe { self.base.load(Ordering::Relaxed).add(index as usize) }
    }

    fn index(&self, thread: *const Thread) -> u32 {
        // SAFETY: every thread comes from the reservation.
        unsafe { thread.offset_from(self.base.load(Ordering::Relaxed)) as u32 }
    }

    /// A block with a fresh id, its identity reset. `None`: there are too many threads (EAGAIN).
    pub fn allocate(&self) -> Option<*mut Thread> {
        let (thread, first_life) = {
            let mut free = self.free.lock();
            let next = if !free.head.is_null() {
                let t = free.head;
                // SAFETY: free blocks are linked by `next` under this lock.
                free.head = unsafe { (*t).next.load(Ordering::Relaxed) };
                (t, false)
            } else if free.fresh < self.reserved.load(Ordering::Relaxed) {
                free.fresh += 1;
                self.high.store(free.fresh, Ordering::Relaxed);
                (self.block(free.fresh - 1), true)
            } else {
                return None;
            };
            self.live.store(self.live() + 1, Ordering::Relaxed);
            next
        };
        let index = self.index(thread);
        // SAFETY: the block is ours alone until it is published by its id or a queue. A block's park word, on_cpu and
        // signal queue outlive its lives; all else is written anew.
        unsafe {
            if first_life {
                (*thread).context = Context::new();
                (&raw mut (*thread).park).write(ParkWord::new());
                (&raw mut (*thread).signals).write(SpinLock::new(PendingSignals::of(0)));
            }
            (&raw mut (*thread).timer).write(TimerNode::new());
            (*thread).warm_until.store(0, Ordering::Relaxed);
            (*thread).stolen_at = 0;
            (&raw mut (*thread).peer).write(Peer::default());
            (*thread).last_futex = 0;
            (*thread).preempted_at = 0;
            (*thread).spins.store(0, Ordering::Relaxed);
            (*thread).slot = 0;
            (*thread).next_slot = 0;
            (*thread).apart = false;
            (*thread).home.store(core::ptr::null_mut(), Ordering::Relaxed);
            (*thread).extended = false;
            (*thread).recover = 0;
            (*thread).gs_base = 0;
            (*thread).handler_at = 0;
            (*thread).alt_taken = 0;
            (*thread).alt_taken_for = 0;
            (*thread).worker.store(core::ptr::null_mut(), Ordering::Relaxed);
            (*thread).attention.store(false, Ordering::Relaxed);
            (*thread).cpu_time.store(0, Ordering::Relaxed);
            (*thread).stack = None;
            (*thread).given_up = 0;
            (*thread).key_rights = crate::arch::KEY_RIGHTS_AT_START;
            (*thread).attributes.store(0, Ordering::Relaxed);
            (&raw mut (*thread).identity).write(Identity::new());
            let life = self.lives.load(Ordering::Relaxed).add(index as usize);
            *life = (*life + 1) % LIVES;
            // The names of CPU clocks lose the highest bit: without it no id is a kernel's (0 and 128 are left out), and none
            // has a name as small as those of the kernel's own clocks (127 and 255).
            let generation = 1 + u32::from(*life) + if *life < 126 { 0 } else { 2 };
            let tid = (generation << 22) | ((index + self.offset.load(Ordering::Relaxed)) % FIRST_TID);
            (*thread).identity.tid.store(tid, Ordering::Relaxed);
            *(*thread).signals.lock() = PendingSignals::of(tid);
            (*thread).set_state(State::Runnable);
        }
        Some(thread)
    }

    /// Gives a block back.
    ///
    /// # Safety
    /// The thread has left its stack for good and no list refers to it.
    pub unsafe fn release(&self, thread: *mut Thread) {
        // SAFETY: the caller's; the block is still mapped.
        unsafe {
            (*thread).set_state(State::Free);
            let mut free = self.free.lock();
            self.live.store(self.live() - 1, Ordering::Relaxed);
            (*thread).next.store(free.head, Ordering::Relaxed);
            free.head = thread;
        }
    }

    /// How many threads live.
    pub fn live(&self) -> u32 {
        self.live.load(Ordering::Relaxed)
    }

    /// The live thread with this id.
    pub fn find(&self, tid: u32) -> Option<*mut Thread> {
        let index = if tid >= FIRST_TID {
            (tid % FIRST_TID).wrapping_sub(self.offset.load(Ordering::Relaxed)) % FIRST_TID
        } else {
            0 // the main thread keeps the kernel's id
        };
        if index >= self.high.load(Ordering::Relaxed) {
            return None;
        }
        let t = self.block(index);
        // SAFETY: blocks below `high` are initialised; the two fields are atomic.
        let ok = unsafe { (*t).is_live() && (*t).identity.tid.load(Ordering::Relaxed) == tid };
        ok.then_some(t)
    }

    /// The first live thread at or behind a place in the table that does not rest, and its place.
    pub fn from_place(&self, place: u32) -> Option<(u32, *mut Thread)> {
        (place..self.high.load(Ordering::Relaxed))
            .map(|i| (i, self.block(i)))
            // SAFETY: blocks below `high` are initialised.
            .find(|&(_, t)| unsafe { (*t).is_live() && (*t).state.load(Ordering::Relaxed) != State::Resting as u8 })
    }

    /// Calls `f` for each live thread until it returns false. Threads come and go meanwhile.
    pub fn for_each(&self, f: &mut dyn FnMut(*mut Thread) -> bool) {
        for i in 0..self.high.load(Ordering::Relaxed) {
            let t = self.block(i);
            // SAFETY: blocks below `high` are initialised.
            if unsafe { (*t).is_live() } && !f(t) {
                return;
            }
        }
    }

    /// Forgets all threads, in a forked child.
    ///
    /// # Safety
    /// The caller is the only thread and uses no block any more.
    pub unsafe fn reset(&self) {
        // SAFETY: the caller's.
        unsafe { self.free.force_unlock() };
        let mut free = self.free.lock();
        for i in 0..free.fresh {
            // SAFETY: initialised block of the only thread.
            unsafe { (*self.block(i)).set_state(State::Free) };
        }
        // Blocks are not linked again but counted anew: `fresh` hands them out in order.
        free.head = core::ptr::null_mut();
        free.fresh = 0;
        self.high.store(0, Ordering::Relaxed);
        self.live.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::vec::Vec;

    fn table() -> Table {
        let table = Table::new();
        table.reserve(12345).unwrap();
        table
    }

    fn tid(t: *mut Thread) -> u32 {
        // SAFETY: a block of the table, which is never unmapped.
        unsafe { (*t).identity.tid.load(Ordering::Relaxed) }
    }

    #[test]
    fn ids_are_beyond_the_kernels_and_fit_a_robust_mutex() {
        let table = table();
        let threads: Vec<_> = (0..1000).map(|_| table.allocate().unwrap()).collect();
        let ids: HashSet<u32> = threads.iter().map(|&t| tid(t)).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| (FIRST_TID..=crate::sys::linux::FUTEX_TID_MASK).contains(id)));
        assert!(threads.iter().all(|&t| table.find(tid(t)) == Some(t)));
        assert_eq!(table.live(), 1000);
        assert_eq!(table.find(FIRST_TID * 200), None);
    }

    #[test]
    fn a_block_s_next_life_has_another_id() {
        let table = table();
        let mut seen = HashSet::new();
        for i in 0..600 {
            let t = table.allocate().unwrap();
            assert!(seen.insert(tid(t)) || i >= usize::from(LIVES));
            assert!(seen.len() == (i + 1).min(usize::from(LIVES)), "ids come again in order");
            assert!((FIRST_TID..1 << 30).contains(&tid(t)) && (FIRST_TID..).contains(&(tid(t) & !(1 << 29))));
            // SAFETY: never ran, nothing refers to it.
            unsafe { table.release(t) };
            assert_eq!(table.find(tid(t)), None, "an ended thread is not found");
        }
        assert_eq!(table.live(), 0);
    }

    #[test]
    fn no_thread_s_cpu_clock_has_the_name_of_one_of_the_kernel_s_clocks() {
        let table = table();
        for _ in 0..600 {
            let t = table.allocate().unwrap();
            for low in [0, FIRST_TID - 1] {
                let id = tid(t) & !(FIRST_TID - 1) | low;
                let name = (!id << 3 | 6) as i32;
                assert!(!(0..1 << 20).contains(&name), "{id:#x}");
            }
            // SAFETY: never ran, nothing refers to it.
            unsafe { table.release(t) };
        }
    }

    #[test]
    fn tickets_outlive_a_life() {
        let table = table();
        let t = table.allocate().unwrap();
        // SAFETY: blocks of the table; never ran, nothing refers to them.
        unsafe {
            let old = (*t).park.open();
            assert!((*t).park.close(old));
            table.release(t);
            let again = table.allocate().unwrap();
            assert_eq!(again, t);
            let new = (*again).park.open();
            assert!(!(*again).park.claim(old, crate::park::Reason::Timeout), "of the block's former life");
            assert!((*again).park.claim(new, crate::park::Reason::Woken));
        }
    }

    #[test]
    fn for_each_sees_the_living() {
        let table = table();
        let threads: Vec<_> = (0..10).map(|_| table.allocate().unwrap()).collect();
        for &t in &threads[..5] {
            // SAFETY: never ran, nothing refers to it.
            unsafe { table.release(t) };
        }
        let mut seen = HashSet::new();
        table.for_each(&mut |t| seen.insert(t));
        assert_eq!(seen, threads[5..].iter().copied().collect());
        assert_eq!(table.from_place(0), Some((5, threads[5])));
        assert_eq!(table.from_place(7), Some((7, threads[7])));
        assert_eq!(table.from_place(10), None);
        let mut calls = 0;
        table.for_each(&mut |_| {
            calls += 1;
            false
        });
        assert_eq!(calls, 1, "ends when told");
    }

    #[test]
    fn reset_forgets_all_and_starts_anew() {
        let table = table();
        let first = table.allocate().unwrap();
        table.allocate().unwrap();
        // SAFETY: the only thread; the blocks are not used any more.
        unsafe { table.reset() };
        assert_eq!((table.live(), table.find(tid(first))), (0, None));
        assert_eq!(table.allocate(), Some(first));
    }
}
