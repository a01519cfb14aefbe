//! The tables at the beginning of the arena: processes, tasks, and the queue of tasks.
//!
//! # Truth and hints
//! A task's state says where it is and whose; the queue and the list of free places only make it quick to find. They are
//! changed under one lock, together with the states. If a process dies with the lock, both are made anew from the states,
//! by whoever takes the lock over ([`Table::repair`]).
//!
//! # A task's life
//! Free, held (by the process that will send it), queued, running (in the process that took it), and then done, panicked,
//! died (its process did) or lost (no processes any more). With [`DETACHED`] nobody wants the result: who brings the
//! task to its end frees its place (`life.rs`). Only the process that runs a task ends it, or, when that has died, who buries it.

use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::arena;
use super::life::{self, Bell};
pub use super::life::{DETACHED, DONE, RUNNING, is_over};
use super::wait::{self, System};
use super::word::Word;
use crate::cancel::{Limit, WaitError};

/// Most processes, with the first one and the one that forks.
pub const PLACES: usize = 256;
/// The place of the process that forks.
pub const FORKER: usize = PLACES - 1;
/// Most tasks that are not over, or not joined.
pub const TASKS: usize = 1 << 16;
/// Bytes that a task has for its argument and then for its result.
pub const INSIDE: usize = 128;

/// An identity is a place, and how many have had it.
const PLACE_SHIFT: u32 = 23;
const TIMES: u32 = (1 << PLACE_SHIFT) - 1;

pub const FREE: u32 = 0;
pub const HELD: u32 = 1;
pub const QUEUED: u32 = 2;
pub const PANICKED: u32 = 5;
pub const DIED: u32 = 6;
pub const LOST: u32 = 7;

/// A process.
#[repr(C, align(64))]
pub struct Process {
    /// Who has the place; 0: nobody, or somebody dead.
    identity: AtomicU32,
    pub pid: AtomicU32,
    /// Rings when a task is over that this process has sent.
    pub bell: Bell,
    /// Its threads that sleep until there is a task. Changed under the queue's lock.
    sleepers: AtomicU32,
    /// How many tasks it has begun.
    pub begun: AtomicU64,
}

/// A task. All but the state are written by who holds the place.
#[repr(C, align(64))]
pub struct Task {
    pub state: AtomicU32,
    /// The process that sent it.
    pub origin: AtomicU32,
    /// The process that runs it.
    runner: AtomicU32,
    /// The next in the queue, or of the free ones; 0 none, else its number and 1.
    next: AtomicU32,
    /// Its turn.
    turn: AtomicU64,
    /// How its process died, as `wait` tells it.
    pub status: AtomicU32,
    /// `unsafe fn(&Task) -> u32`: runs it, and says the state after.
    pub run: AtomicUsize,
    /// The program's function.
    pub function: AtomicUsize,
    /// `unsafe fn(&Task)`: drops the result.
    pub drop_result: AtomicUsize,
    /// A block for what does not fit inside, and its size and alignment; else 0.
    block: AtomicUsize,
    block_size: AtomicUsize,
    block_align: AtomicUsize,
    inside: Inside,
}

#[repr(C, align(16))]
struct Inside(UnsafeCell<[u8; INSIDE]>);
// SAFETY: bytes for whoever has the task.
unsafe impl Sync for Inside {}

impl Task {
    /// Where argument and result are.
    pub fn storage(&self) -> *mut u8 {
        match self.block.load(Ordering::Relaxed) {
            0 => self.inside(),
            block => block as *mut u8,
        }
    }

    /// The place inside.
    pub fn inside(&self) -> *mut u8 {
        self.inside.0.get().cast()
    }

    /// Makes room for this much.
    pub fn make_room(&self, layout: Layout) -> Result<(), arena::ArenaFull> {
        self.block.store(0, Ordering::Relaxed);
        if layout.size() > INSIDE || layout.align() > 16 {
            self.block_size.store(layout.size(), Ordering::Relaxed);
            self.block_align.store(layout.align(), Ordering::Relaxed);
            self.block.store(arena::allocate(layout)?.as_ptr() as usize, Ordering::Relaxed);
        }
        Ok(())
    }

    fn free_block(&self) {
        let size = self.block_size.load(Ordering::Relaxed);
        if let Some(block) = NonNull::new(self.block.swap(0, Ordering::Relaxed) as *mut u8)
            && let Ok(layout) = Layout::from_size_align(size, self.block_align.load(Ordering::Relaxed))
        {
            // SAFETY: the task's block, which goes with it.
            unsafe { arena::free(block, layout) };
        }
    }

    /// The state, once all that was written before it is visible.
    pub fn state(&self) -> u32 {
        life::state(&self.state)
    }
}

/// The tables. Zeroes are empty ones.
#[repr(C)]
pub struct Table {
    /// How many processes have died: all who wait for anything in the arena wait for it too.
    pub deaths: AtomicU32,
    /// 1: the process that forks is gone.
    pub is_lost: AtomicU32,
    pub processes: [Process; PLACES],
    lock: Word,
    /// Changes with every task that is queued.
    pub calls: AtomicU32,
    head: AtomicU32,
    tail: AtomicU32,
    pub len: AtomicU32,
    free: AtomicU32,
    /// Tasks from here on have never been used.
    used: AtomicU32,
    sleepers: AtomicU32,
    turns: AtomicU64,
    tasks: [Task; TASKS],
}

/// The lock of the queue.
struct Guard<'a>(&'a Table);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.lock.unlock(&System);
    }
}

impl Table {
    pub fn task(&self, number: u32) -> &Task {
        &self.tasks[number as usize]
    }

    pub fn process(&self, identity: u32) -> &Process {
        &self.processes[place_of(identity)]
    }

    /// Gives the place to a new process.
    pub fn admit(&self, place: usize, times: u32) -> u32 {
        let identity = (place as u32) << PLACE_SHIFT | times & TIMES;
        let process = &self.processes[place];
        process.bell.reset();
        process.begun.store(0, Ordering::Relaxed);
        process.pid.store(0, Ordering::Relaxed);
        process.identity.store(identity, Ordering::Relaxed);
        identity
    }

    pub fn is_dead(&self, identity: u32) -> bool {
        // Acquire: what it did before it died. pairs: process.identity
        self.process(identity).identity.load(Ordering::Acquire) != identity
    }

    /// The process that has the place has been reaped.
    pub fn forget(&self, place: usize) -> u32 {
        // Release: what it did, which its end made visible to us. pairs: process.identity
        self.processes[place].identity.swap(0, Ordering::Release)
    }

    fn lock(&self) -> Guard<'_> {
        if self.lock.lock(&System, &Limit::NEVER) == Ok(true) {
            self.repair();
        }
        Guard(self)
    }

    fn tasks(&self) -> impl Iterator<Item = (u32, &Task)> {
        (0..).zip(&self.tasks).take(self.used.load(Ordering::Relaxed) as usize)
    }

    /// Makes queue and free list anew from the states. Under the lock.
    fn repair(&self) {
        let mut queued: Vec<_> = Vec::new();
        self.head.store(0, Ordering::Relaxed);
        self.tail.store(0, Ordering::Relaxed);
        self.len.store(0, Ordering::Relaxed);
        self.free.store(0, Ordering::Relaxed);
        for (number, task) in self.tasks() {
            match task.state.load(Ordering::Relaxed) & !DETACHED {
                FREE => self.put_free(number),
                QUEUED => queued.push((task.turn.load(Ordering::Relaxed), number)),
                _ => {}
            }
        }
        queued.sort_unstable();
        queued.iter().for_each(|&(_, number)| self.link(number));
        self.turns
            .store(queued.last().map_or(self.turns.load(Ordering::Relaxed), |last| last.0 + 1), Ordering::Relaxed);
        let sleepers = self.processes.iter().map(|process| process.sleepers.load(Ordering::Relaxed)).sum();
        self.sleepers.store(sleepers, Ordering::Relaxed);
    }

    fn put_free(&self, number: u32) {
        self.task(number).next.store(self.free.load(Ordering::Relaxed), Ordering::Relaxed);
        self.free.store(number + 1, Ordering::Relaxed);
    }

    fn link(&self, number: u32) {
        self.task(number).next.store(0, Ordering::Relaxed);
        match self.tail.load(Ordering::Relaxed) {
            0 => self.head.store(number + 1, Ordering::Relaxed),
            last => self.task(last - 1).next.store(number + 1, Ordering::Relaxed),
        }
        self.tail.store(number + 1, Ordering::Relaxed);
        self.len.store(self.len.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Holds up to so many places for tasks of this process.
    pub fn hold(&self, me: u32, count: usize, held: &mut Vec<u32>) {
        let _guard = self.lock();
        for _ in 0..count {
            let number = match self.free.load(Ordering::Relaxed) {
                0 => {
                    let number = self.used.load(Ordering::Relaxed);
                    if number as usize == TASKS {
                        return;
                    }
                    self.task(number).origin.store(me, Ordering::Relaxed);
                    self.task(number).state.store(HELD, Ordering::Relaxed);
                    self.used.store(number + 1, Ordering::Relaxed);
                    number
                }
                first => {
                    let task = self.task(first - 1);
                    task.origin.store(me, Ordering::Relaxed);
                    task.state.store(HELD, Ordering::Relaxed);
                    self.free.store(task.next.load(Ordering::Relaxed), Ordering::Relaxed);
                    first - 1
                }
            };
            held.push(number);
        }
    }

    /// Gives places back.
    pub fn give_back(&self, numbers: impl Iterator<Item = u32>) {
        let _guard = self.lock();
        for number in numbers {
            self.task(number).state.store(FREE, Ordering::Relaxed);
            self.put_free(number);
        }
    }

    /// Queues a task that the caller holds.
    pub fn push(&self, number: u32) {
        let guard = self.lock();
        let task = self.task(number);
        let turn = self.turns.load(Ordering::Relaxed);
        self.turns.store(turn + 1, Ordering::Relaxed);
        task.turn.store(turn, Ordering::Relaxed);
        // Release: its words, to who looks at the state without the lock. pairs: task.state
        task.state.store(QUEUED, Ordering::Release);
        self.link(number);
        self.calls.fetch_add(1, Ordering::Relaxed); // under the lock, as who reads it
        let sleepers = self.sleepers.load(Ordering::Relaxed);
        drop(guard);
        if sleepers != 0 {
            wait::wake(&self.calls, 1);
        }
    }

    /// Takes the first task. None: there is none; with `sleep` the caller is counted as a sleeper then, and must wait for
    /// `calls` to differ from the number in the answer.
    pub fn take(&self, me: u32, sleep: bool) -> Result<u32, u32> {
        let _guard = self.lock();
        match self.head.load(Ordering::Relaxed) {
            0 => {
                if sleep {
                    self.count_sleeper(me, 1);
                }
                Err(self.calls.load(Ordering::Relaxed))
            }
            first => {
                let task = self.task(first - 1);
                task.runner.store(me, Ordering::Relaxed);
                // The handle may set its flag meanwhile.
                // Release: its runner. pairs: task.state
                task.state.fetch_add(RUNNING - QUEUED, Ordering::Release);
                self.unlink_first(task);
                Ok(first - 1)
            }
        }
    }

    fn unlink_first(&self, task: &Task) {
        let next = task.next.load(Ordering::Relaxed);
        self.head.store(next, Ordering::Relaxed);
        if next == 0 {
            self.tail.store(0, Ordering::Relaxed);
        }
        self.len.store(self.len.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }

    fn count_sleeper(&self, me: u32, by: u32) {
        for count in [&self.process(me).sleepers, &self.sleepers] {
            count.store(count.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
        }
    }

    /// The caller does not sleep any more.
    pub fn awake(&self, me: u32) {
        let _guard = self.lock();
        self.count_sleeper(me, 1_u32.wrapping_neg());
    }

    /// The task that the caller runs (or buries) is over. If nobody wants it, its place is the caller's to free: false.
    pub fn end(&self, number: u32, state: u32) -> bool {
        let task = self.task(number);
        let origin = task.origin.load(Ordering::Relaxed);
        if !life::end(&task.state, state) {
            return false;
        }
        // From here on the task may be another one.
        self.ring(origin);
        true
    }

    fn ring(&self, origin: u32) {
        self.process(origin).bell.ring(|bell| wait::wake(bell, 1));
    }

    /// Nobody will join the task. True: it is over, and the caller is to free it.
    pub fn detach(&self, task: &Task) -> bool {
        life::detach(&task.state)
    }

    /// Frees what a task has beside its place, which then is held by this process.
    pub fn clear(&self, number: u32, me: u32) {
        let task = self.task(number);
        task.free_block();
        task.origin.store(me, Ordering::Relaxed);
        // Release: who finds the state knows whose it is. pairs: task.state
        task.state.store(HELD, Ordering::Release);
    }

    /// The process is dead and forgotten: ends what it ran, frees what it held. `patience` is called while another process
    /// has the lock, to find out whether that one is dead too.
    pub fn bury(&self, dead: u32, status: u32, mut patience: impl FnMut()) {
        let _guard = loop {
            match self.lock.try_lock(&System) {
                Some(abandoned) => {
                    if abandoned {
                        self.repair();
                    }
                    break Guard(self);
                }
                None => patience(),
            }
        };
        for (number, task) in self.tasks() {
            let state = task.state();
            let now = state & !DETACHED;
            if now == RUNNING && task.runner.load(Ordering::Relaxed) == dead {
                task.status.store(status, Ordering::Relaxed);
                if !self.end(number, DIED) {
                    self.free_dead(number, task);
                    continue;
                }
            }
            if now == FREE || task.origin.load(Ordering::Relaxed) != dead {
                continue;
            }
            // What its results own is nobody's.
            if now == HELD || self.detach(task) {
                self.free_dead(number, task);
            }
        }
        let sleepers = self.process(dead).sleepers.swap(0, Ordering::Relaxed);
        self.sleepers.store(self.sleepers.load(Ordering::Relaxed).wrapping_sub(sleepers), Ordering::Relaxed);
    }

    /// Under the lock.
    fn free_dead(&self, number: u32, task: &Task) {
        task.free_block();
        task.state.store(FREE, Ordering::Relaxed);
        self.put_free(number);
    }

    /// No process will run the tasks that are queued: they are lost.
    pub fn lose_all(&self) {
        let _guard = self.lock();
        while let first @ 1.. = self.head.load(Ordering::Relaxed) {
            let task = self.task(first - 1);
            // Release: as in `take`. pairs: task.state
            task.state.fetch_add(RUNNING - QUEUED, Ordering::Release);
            self.unlink_first(task);
            if !self.end(first - 1, LOST) {
                self.free_dead(first - 1, task);
            }
        }
    }

    /// Wakes all who wait for anything: a process has died.
    pub fn count_death(&self) {
        // Release: what was buried. pairs: process.deaths
        self.deaths.fetch_add(1, Ordering::Release);
        wait::wake(&self.deaths, i32::MAX);
    }

    /// Waits for the process's bell.
    pub fn wait_for_bell(&self, me: u32, heard: u32, deaths: u32, limit: &Limit<'_>) -> Result<(), WaitError> {
        let sleep = |bell: &AtomicU32, value| wait::wait(bell, value, deaths, limit);
        self.process(me).bell.wait(heard, sleep).unwrap_or(Ok(()))
    }
}

pub fn place_of(identity: u32) -> usize {
    (identity >> PLACE_SHIFT) as usize
}
