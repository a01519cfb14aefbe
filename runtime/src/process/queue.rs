//! The queue of a channel between processes: its protocol, under a lock that survives its holder. Where the values are is
//! said by [`Places`], what processes do by [`Surroundings`]; in a program both are the arena's (`ring.rs`).
//!
//! # Deaths
//! 1. What is in the queue is told by one number, the first place and the length together, that is stored once. So who dies while it
//!    sends has sent or has not.
//! 2. Before it changes anything the holder of the lock writes into the *journal* what it is about to do, and clears that before it
//!    unlocks. Who takes the lock from a dead process finds there what was cut off: a value that is not in the queue is counted
//!    as lost; one that was taken out, by a thread that never came back with it, is put back: its bytes are still there.
//! 3. Each process that has used a handle is a *member*, with the number of its handles and of its threads that wait with a
//!    value to send. A handle belongs to the process that used it last: it may have crossed inside of something else, which nobody
//!    sees, so it carries that process's identity and is moved to another member with its first use there. When a process has
//!    died its member's handles are gone and its waiting values are lost.
//! 4. The sums over the members are hints: made anew when a lock was taken from the dead, or a member is gone.
//! 5. Who waits also waits for the count of deaths, and looks again after each.
//!
//! A handle that a process has given away and nobody has used yet goes with the giver. If it is used after all it is
//! counted again, and if the channel was closed for its lack only it is open again.
//!
//! # Safety
//! Places from the first on, as many as the length says, hold values; all are used under the lock only.

use std::ops::Deref;

use super::word::{Processes, Word};
use crate::cancel::Limit;
use crate::channel::End;
use crate::prim::{AtomicU32, AtomicU64, Ordering};

const SENDS: u64 = 1 << 32;
const RECEIVES: u64 = 2 << 32;

/// What the queue asks of its surroundings.
pub trait Surroundings: Processes {
    /// The place that a process has among the members.
    fn place(&self, process: u32) -> usize;
    /// Wakes all who wait for the word.
    fn wake_all(&self, word: &AtomicU32);
    /// How often to look before a sleep.
    fn looks(&self) -> u32;
    /// Comes before each store: what has happened by then is what others find if the process dies now. In models some do.
    #[inline(always)]
    fn step(&self) {}
    /// Whether the caller's process has died, in a model: then its destructors do nothing.
    #[inline(always)]
    fn has_died(&self) -> bool {
        false
    }
}

/// Where the values are.
pub trait Places<T> {
    /// Makes room for one more behind so many, of which this is the first, in a queue without a limit. Under the lock.
    fn make_room(&self, first: u32, len: u32) -> bool;
    /// # Safety
    /// Under the lock; there is room, and no value with that number.
    unsafe fn write(&self, number: u32, value: T);
    /// # Safety
    /// Under the lock; there is a value with that number, which is used once.
    unsafe fn read(&self, number: u32) -> T;
}

/// What a process has of a channel.
#[derive(Debug, Default)]
pub struct Member {
    /// 0: nobody.
    identity: AtomicU32,
    handles: [AtomicU32; 2],
    /// Threads that sleep, by what they wait for; all but receivers have a value.
    sleepers: [AtomicU32; 3],
}

/// What has been lost with processes that died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// Senders that they had.
    pub senders: usize,
    /// Receivers that they had.
    pub receivers: usize,
    /// Values that they were sending: the threads waited for room, or were putting the value in, and it is not in the channel.
    pub values: usize,
}

/// Without its values. `M`: the members, as many as there are places for processes.
pub struct Queue<M> {
    lock: Word,
    /// Change when a value was put in, and taken out; both when the channel is closed.
    put: AtomicU32,
    taken: AtomicU32,
    /// Of a rendezvous: changes when the value that lies there may have been taken, and when a receiver waits.
    met: AtomicU32,
    wanted: AtomicU32,
    closed: AtomicU32,
    /// Threads that sleep until `taken`, `put` and `wanted` change.
    sleepers: [AtomicU32; 3],
    /// How many handles there are.
    handles: [AtomicU32; 2],
    /// The first value's number in the high half, how many there are in the low one.
    state: AtomicU64,
    journal: AtomicU64,
    /// Most values; 0: any number; [`MEET`].
    limit: usize,
    /// Of a rendezvous: the process of whoever waits for the value there to be taken.
    offerer: AtomicU32,
    /// Up to which death the members are true.
    deaths: AtomicU32,
    lost: [AtomicU32; 3],
    /// By place in the table of processes.
    members: M,
}

const SENDER: usize = 0;
const RECEIVER: usize = 1;
/// A sender in a select on a rendezvous: it waits for a receiver that waits.
const CHOOSER: usize = 2;
/// The limit of a rendezvous.
const MEET: usize = usize::MAX;

fn side(end: End) -> usize {
    match end {
        End::Sender => SENDER,
        End::Receiver => RECEIVER,
    }
}

struct Guard<'a, A: Surroundings, M: Deref<Target = [Member]>>(&'a Queue<M>, &'a A);

impl<A: Surroundings, M: Deref<Target = [Member]>> Drop for Guard<'_, A, M> {
    fn drop(&mut self) {
        if !self.1.has_died() {
            self.1.step();
            self.0.lock.unlock(self.1);
        }
    }
}

fn set(all: &impl Surroundings, word: &AtomicU32, value: u32) {
    all.step();
    word.store(value, Ordering::Relaxed); // under the lock
}

/// Adds without a locked instruction: under the lock.
fn add(all: &impl Surroundings, count: &AtomicU32, by: u32) {
    set(all, count, count.load(Ordering::Relaxed).wrapping_add(by));
}

fn subtract(all: &impl Surroundings, count: &AtomicU32, by: u32) {
    set(all, count, count.load(Ordering::Relaxed).saturating_sub(by));
}

impl<M: Deref<Target = [Member]>> Queue<M> {
    /// With one sender and one receiver, both of this process. A limit of 0 makes a rendezvous.
    pub fn new(all: &impl Surroundings, limit: Option<usize>, members: M) -> Self {
        let limit = limit.map_or(0, |limit| if limit == 0 { MEET } else { limit });
        let queue = Self {
            lock: Word::new(),
            put: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            met: AtomicU32::new(0),
            wanted: AtomicU32::new(0),
            closed: AtomicU32::new(0),
            sleepers: [0, 0, 0].map(AtomicU32::new),
            handles: [0, 0].map(AtomicU32::new),
            state: AtomicU64::new(0),
            journal: AtomicU64::new(0),
            limit,
            offerer: AtomicU32::new(0),
            deaths: AtomicU32::new(all.deaths()),
            lost: [0, 0, 0].map(AtomicU32::new),
            members,
        };
        for end in [SENDER, RECEIVER] {
            queue.count_handle(all, all.me(), end);
        }
        queue
    }

    fn lock<'a, A: Surroundings>(&'a self, all: &'a A) -> Guard<'a, A, M> {
        let is_abandoned = self.lock.lock(all, &Limit::NEVER) == Ok(true);
        let guard = Guard(self, all);
        if is_abandoned {
            self.repair(all);
        }
        if self.deaths.load(Ordering::Relaxed) != all.deaths() {
            self.forget_the_dead(all);
        }
        guard
    }

    /// The lock's last holder has died: ends what it had begun.
    #[cold]
    fn repair(&self, all: &impl Surroundings) {
        let journal = self.journal.load(Ordering::Relaxed);
        let (first, len) = self.state();
        let number = journal as u32;
        match journal & !u64::from(u32::MAX) {
            SENDS if number == first.wrapping_add(len) => add(all, &self.lost[2], 1),
            RECEIVES if number != first => self.set_state(all, number, len + 1),
            _ => {}
        }
        self.end(all);
        self.forget_the_dead(all);
        // What it had changed others may wait for.
        self.wake_everybody(all);
    }

    #[cold]
    fn forget_the_dead(&self, all: &impl Surroundings) {
        // Read first: who dies from here on is found next time.
        let deaths = all.deaths();
        for member in &*self.members {
            let identity = member.identity.load(Ordering::Relaxed);
            if identity != 0 && all.is_dead(identity) {
                self.forget(all, member);
            }
        }
        for end in [SENDER, RECEIVER] {
            let sum = self.members.iter().map(|member| member.handles[end].load(Ordering::Relaxed)).sum();
            set(all, &self.handles[end], sum);
        }
        for what in [SENDER, RECEIVER, CHOOSER] {
            let sum = self.members.iter().map(|member| member.sleepers[what].load(Ordering::Relaxed)).sum();
            set(all, &self.sleepers[what], sum);
        }
        set(all, &self.deaths, deaths);
    }

    fn forget(&self, all: &impl Surroundings, member: &Member) {
        let values = &self.lost[2];
        let handles = member.handles.iter().zip(&self.lost);
        for (count, lost) in handles.chain([(&member.sleepers[SENDER], values), (&member.sleepers[CHOOSER], values)]) {
            add(all, lost, count.load(Ordering::Relaxed));
            set(all, count, 0);
        }
        set(all, &member.sleepers[RECEIVER], 0);
        set(all, &member.identity, 0);
    }

    fn member(&self, all: &impl Surroundings, identity: u32) -> &Member {
        &self.members[all.place(identity)]
    }

    /// Under the lock, or while nobody else has the queue.
    fn count_handle(&self, all: &impl Surroundings, me: u32, end: usize) {
        let member = self.member(all, me);
        if member.identity.load(Ordering::Relaxed) != me {
            // Whoever had the place before is dead.
            self.forget(all, member);
            set(all, &member.identity, me);
        }
        add(all, &member.handles[end], 1);
        add(all, &self.handles[end], 1);
    }

    /// A handle that this process uses for the first time was another's.
    #[cold]
    pub fn adopt(&self, all: &impl Surroundings, from: u32, end: End) {
        let _guard = self.lock(all);
        let end = side(end);
        let member = self.member(all, from);
        if member.identity.load(Ordering::Relaxed) == from {
            subtract(all, &member.handles[end], 1);
            subtract(all, &self.handles[end], 1);
        } else {
            subtract(all, &self.lost[end], 1); // it was not, after all
        }
        self.count_handle(all, all.me(), end);
    }

    /// A handle of this process is cloned.
    pub fn add(&self, all: &impl Surroundings, end: End) {
        let _guard = self.lock(all);
        self.count_handle(all, all.me(), side(end));
    }

    /// A handle of this process is dropped. If it was the last at its end, nothing more is sent, and if it was a receiver
    /// what is in the queue is dropped.
    pub fn remove<T>(&self, all: &impl Surroundings, places: &impl Places<T>, end: End) {
        let end = side(end);
        let guard = self.lock(all);
        subtract(all, &self.member(all, all.me()).handles[end], 1);
        subtract(all, &self.handles[end], 1);
        if self.handles[end].load(Ordering::Relaxed) != 0 {
            return;
        }
        self.wake_everybody(all);
        drop(guard);
        if end == RECEIVER {
            self.close(all);
            while !self.is_offered(all)
                && let Ok(value) = self.take(all, places)
            {
                drop(value);
            }
        }
    }

    /// The first value's number, and how many there are.
    pub fn state(&self) -> (u32, u32) {
        let state = self.state.load(Ordering::Relaxed);
        ((state >> 32) as u32, state as u32)
    }

    fn set_state(&self, all: &impl Surroundings, first: u32, len: u32) {
        all.step();
        // Release: the value and the journal come before the number, should we die between them: who takes the lock then has
        // acquired the death, and with it all. (For others the lock orders them.)
        self.state.store(u64::from(first) << 32 | u64::from(len), Ordering::Release);
    }

    fn begin(&self, all: &impl Surroundings, what: u64, number: u32) {
        all.step();
        // Release: as in `set_state`, the other way round: what was there before comes before it.
        self.journal.store(what | u64::from(number), Ordering::Release);
    }

    fn end(&self, all: &impl Surroundings) {
        all.step();
        // Release: what was done comes before.
        self.journal.store(0, Ordering::Release);
    }

    /// Whether nothing more can be sent. Under the lock.
    fn is_shut(&self) -> bool {
        self.closed.load(Ordering::Relaxed) != 0
            || self.handles.iter().any(|handles| handles.load(Ordering::Relaxed) == 0)
    }

    /// Sends if there is room: the value's number. Error: the value; whether the channel is closed.
    pub fn put<T>(&self, all: &impl Surroundings, places: &impl Places<T>, value: T) -> Result<u32, (T, bool)> {
        if self.limit == MEET {
            return self.hand_over(all, places, value);
        }
        self.put_in(all, places, value)
    }

    fn put_in<T>(&self, all: &impl Surroundings, places: &impl Places<T>, value: T) -> Result<u32, (T, bool)> {
        let guard = self.lock(all);
        if self.is_shut() {
            return Err((value, true));
        }
        if !self.make_room(places) {
            return Err((value, false));
        }
        Ok(self.add_value(guard, places, value))
    }

    /// Where there is room.
    fn add_value<T, A: Surroundings>(&self, guard: Guard<'_, A, M>, places: &impl Places<T>, value: T) -> u32 {
        let all = guard.1;
        let (first, len) = self.state();
        let number = first.wrapping_add(len);
        if self.limit == MEET {
            set(all, &self.offerer, all.me());
        }
        self.begin(all, SENDS, number);
        all.step();
        // SAFETY: a free place, under the lock.
        unsafe { places.write(number, value) };
        self.set_state(all, first, len + 1);
        self.end(all);
        self.tell(guard, RECEIVER);
        number
    }

    /// Whether there is room for one more. Under the lock.
    fn make_room<T>(&self, places: &impl Places<T>) -> bool {
        let (first, len) = self.state();
        match self.limit {
            0 => places.make_room(first, len),
            MEET => len == 0,
            limit => (len as usize) < limit,
        }
    }

    /// Receives if a value is there. Error: whether the channel is closed.
    pub fn take<T>(&self, all: &impl Surroundings, places: &impl Places<T>) -> Result<T, bool> {
        let guard = self.lock(all);
        let (first, len) = self.state();
        if len == 0 {
            return Err(self.is_shut());
        }
        self.begin(all, RECEIVES, first);
        // SAFETY: a value, under the lock; it is not in the queue after the next line.
        let value = unsafe { places.read(first) };
        self.set_state(all, first.wrapping_add(1), len - 1);
        self.end(all);
        if self.limit == MEET {
            self.tell_of_the_place(guard);
        } else {
            self.tell(guard, SENDER);
        }
        Ok(value)
    }

    /// What those at this end wait for has come, for one of them.
    fn tell<A: Surroundings>(&self, guard: Guard<'_, A, M>, end: usize) {
        let (all, word) = (guard.1, self.word(end));
        add(all, word, 1);
        let sleeps = self.sleepers[end].load(Ordering::Relaxed) != 0;
        drop(guard);
        if sleeps {
            all.wake(word);
        }
    }

    fn word(&self, what: usize) -> &AtomicU32 {
        [&self.taken, &self.put, &self.wanted][what]
    }

    /// Under the lock.
    fn wake_everybody(&self, all: &impl Surroundings) {
        for word in [&self.taken, &self.put, &self.wanted, &self.met] {
            add(all, word, 1);
            all.wake_all(word);
        }
    }

    /// Nothing more is sent. True: it was open.
    pub fn close(&self, all: &impl Surroundings) -> bool {
        let _guard = self.lock(all);
        let was_open = !self.is_shut();
        set(all, &self.closed, 1);
        self.wake_everybody(all);
        was_open
    }

    #[cfg(not(loom))]
    pub fn is_closed(&self, all: &impl Surroundings) -> bool {
        let _guard = self.lock(all);
        self.is_shut()
    }

    /// The number of the value that is received next, when no death is left to be recovered from.
    #[cfg(not(loom))]
    pub fn next_number(&self, all: &impl Surroundings) -> u32 {
        let _guard = self.lock(all);
        self.state().0
    }

    #[cfg(not(loom))]
    pub fn has_receivers(&self, all: &impl Surroundings) -> bool {
        let _guard = self.lock(all);
        self.handles[RECEIVER].load(Ordering::Relaxed) != 0
    }

    /// How many values wait to be received.
    #[cfg(not(loom))]
    pub fn len(&self) -> usize {
        if self.limit == MEET { 0 } else { self.state().1 as usize }
    }

    #[cfg(not(loom))]
    pub fn limit(&self) -> Option<usize> {
        match self.limit {
            0 => None,
            MEET => Some(0),
            limit => Some(limit),
        }
    }

    pub fn lost(&self, all: &impl Surroundings) -> Lost {
        let _guard = self.lock(all);
        let [senders, receivers, values] = [0, 1, 2].map(|i: usize| self.lost[i].load(Ordering::Relaxed) as usize);
        Lost { senders, receivers, values }
    }
}

mod meet;
#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
mod waits;
