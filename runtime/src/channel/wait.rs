//! Waiting, for channels and what is built like them: lists of waiters, and bells.
//!
//! A waiter is a word on the stack of the thread that waits. It is linked into one list, or, in a `select`, into several.
//! Who wants to wake somebody claims the first waiter of a list whose word still says "waiting": so each waiter is woken once,
//! by one of the things that it waits for, and each wake-up has one waiter. This is the only place where channels park.
//!
//! # Bells
//! A bell stands for a condition that some threads make true (a value is there) and others wait for. Its state counts the
//! waiters. Who rings has made the condition true; who waits is counted before it looks at the condition again. One of
//! the two must see the other's store, so each needs a full fence between its store and its load. A fence costs more than all
//! the rest of a send. So a bell has two modes:
//! * *Strict*: both sides execute a fence.
//! * *Light*: only who waits does, a heavy one (see [`crate::prim`]), which makes one of every instruction that others are at.
//!   A bell becomes light when so many values went by without a wait that their fences cost as much as a heavy one, and strict
//!   again with the first wait.
//!
//! That the mode changes under way is no harm. To light: only while nobody waits, in the same word, so whoever waits later
//! learns it when it is counted. To strict: the waiter that does it says "settling", executes the heavy fence, and then says
//! "strict"; those that are counted meanwhile execute a heavy fence of their own. A thread that rings and has read "light" did so
//! before "settling" was said, so it has made its condition true before the fence (it stores first), and whoever is counted
//! later and sees "strict" finds it true.
//!
//! # Safety
//! Nodes and waiters live on the stack of a thread that does not leave before it has taken the list's lock and found, or
//! made, each node unlinked. Others touch a node or its waiter under that lock only, but for a wake, which uses no more than the
//! waiter's address.

use std::ptr::{self, null_mut};
use std::time::{Duration, Instant};

use super::lock::Lock;
use crate::cancel::{Limit, WaitError};
use crate::futex;
use crate::prim::{AtomicU32, Ordering, fence, heavy_fence, light_fence, relax, yield_cpu, yield_worker};
use crate::shard::CachePadded;

const WAITING: u32 = 0;
const GIVEN_UP: u32 = u32::MAX;

/// One wait of one thread.
pub struct Waiter {
    /// `WAITING`, `GIVEN_UP`, or by which of its nodes it was claimed, plus 1.
    word: AtomicU32,
    /// It is in the arena, and its thread sleeps in the kernel, where other processes wake it too.
    is_across: bool,
    /// In models the futex is loom's: a wait that looks and yields would multiply the interleavings.
    #[cfg(loom)]
    told: loom::sync::Notify,
}

impl Waiter {
    pub fn new() -> Self {
        Self {
            word: AtomicU32::new(WAITING),
            is_across: false,
            #[cfg(loom)]
            told: loom::sync::Notify::new(),
        }
    }

    /// For a place in the arena.
    #[cfg(not(loom))]
    pub fn across() -> Self {
        Self { is_across: true, ..Self::new() }
    }

    /// The word, and its value while nobody has claimed it: for who waits for it in other ways than [`park`](Self::park).
    #[cfg(not(loom))]
    pub fn word(&self) -> (*const AtomicU32, u32) {
        (&raw const self.word, WAITING)
    }

    /// By which of its nodes it was claimed.
    pub fn claimed(&self) -> Option<usize> {
        // Acquire: what the claimer did before is visible. pairs: channel.waiter
        match self.word.load(Ordering::Acquire) {
            WAITING | GIVEN_UP => None,
            node => Some(node as usize - 1),
        }
    }

    /// The thread waits no more. False: it has been claimed.
    pub fn give_up(&self) -> bool {
        // Acquire: as in `claimed`. pairs: channel.waiter
        self.word.compare_exchange(WAITING, GIVEN_UP, Ordering::Acquire, Ordering::Acquire).is_ok()
    }

    /// Whether it could be claimed now.
    pub fn is_waiting(&self) -> bool {
        self.word.load(Ordering::Relaxed) == WAITING
    }

    fn claim(&self, node: u32) -> bool {
        // Release: what we did before is visible to the thread. pairs: channel.waiter
        let claimed = self.word.compare_exchange(WAITING, node + 1, Ordering::Release, Ordering::Relaxed).is_ok();
        #[cfg(loom)]
        if claimed {
            self.told.notify();
        }
        claimed
    }

    /// Looks for a moment, then parks, until it is claimed, or until the limit: then it has been given up, and the answer is why.
    pub fn wait(&self, patience: &Patience, limit: &Limit<'_>) -> Option<WaitError> {
        match patience.look(0, || (!self.is_waiting()).then_some(())) {
            Some(()) => None,
            None => self.park(limit),
        }
    }

    /// Parks until it is claimed, or until the limit: then it has been given up, and the answer is why.
    pub fn park(&self, limit: &Limit<'_>) -> Option<WaitError> {
        #[cfg(loom)]
        if limit.deadline().is_none() {
            self.told.wait();
        } else if self.give_up() {
            return Some(WaitError::TimedOut);
        }
        while self.is_waiting() {
            if let Err(why) = futex::wait_within(&self.word, WAITING, limit)
                && self.give_up()
            {
                return Some(why);
            }
        }
        None
    }
}

/// How long threads look before they park: longer where that has helped. And how long they pause between two looks: longer
/// where many values come in the meantime, since each look takes the line that the other side is writing to.
pub struct Patience {
    /// Rounds of looking, as signed. Below 1: as many waits and one more go without.
    rounds: AtomicU32,
    /// Pauses before the first look.
    pace: AtomicU32,
    /// What had been passed when somebody last began to look.
    mark: AtomicU32,
    /// Waits to come in which kernel threads do not yield, while few values come from one to the next.
    debt: AtomicU32,
    /// What had been passed at the last of them, or at the yield that took long.
    debt_since: AtomicU32,
}

/// Rounds of looking, each with twice the pauses of the one before.
const MOST_ROUNDS: i32 = 8;
/// Waits that go without looks, less 1, after a single round was in vain: who is waited for does not run, and looks only keep it so.
const WITHOUT: i32 = 7;
/// Most pauses between two looks, some hundred nanoseconds.
const MOST_PAUSES: u32 = 64;
/// Times that a user thread lets others of its worker run before it parks.
const YIELDS: u32 = 2;
/// Times that a kernel thread lets others of its CPU run before it parks.
const CPU_YIELDS: u32 = 8;
/// A yield that takes longer has given the CPU to somebody who computes.
const LONG: Duration = Duration::from_micros(500);
/// About what a sleep and a wake cost.
const A_SLEEP: Duration = Duration::from_micros(5);
/// So many values are worth a yield that takes long.
const MANY: u32 = 64;

impl Patience {
    pub fn new() -> Self {
        Self {
            rounds: AtomicU32::new(4),
            pace: AtomicU32::new(1),
            mark: AtomicU32::new(0),
            debt: AtomicU32::new(0),
            debt_since: AtomicU32::new(0),
        }
    }

    /// Looks again and again, for a moment. `passed` counts what has been received, or sent.
    pub fn look<R>(&self, passed: usize, mut attempt: impl FnMut() -> Option<R>) -> Option<R> {
        if cfg!(loom) {
            return None;
        }
        let pace = self.pace.load(Ordering::Relaxed);
        let batch = (passed as u32).wrapping_sub(self.mark.load(Ordering::Relaxed));
        self.mark.store(passed as u32, Ordering::Relaxed);
        if batch > pace.max(2) / 2 {
            if pace < MOST_PAUSES {
                self.pace.store(pace * 2, Ordering::Relaxed);
            }
        } else if pace > 1 && batch <= pace / 4 + 1 {
            self.pace.store(pace / 2, Ordering::Relaxed);
        }
        let most = self.rounds.load(Ordering::Relaxed).cast_signed();
        let mut pauses = pace;
        for round in 0..most {
            for _ in 0..pauses {
                relax();
            }
            pauses = (pauses * 2).min(MOST_PAUSES);
            if let Some(result) = attempt() {
                if most < MOST_ROUNDS && round + 1 >= most / 2 {
                    self.rounds.store((most + 1).cast_unsigned(), Ordering::Relaxed);
                }
                return Some(result);
            }
        }
        let next = match most {
            ..=0 => most + 1,
            1 => -WITHOUT,
            _ => most - 1,
        };
        self.rounds.store(next.cast_unsigned(), Ordering::Relaxed);
        if !crate::prim::is_user_thread() {
            return self.yield_cpu(passed as u32, attempt);
        }
        // Whoever is waited for may need this worker.
        for _ in 0..YIELDS {
            yield_worker();
            if let Some(result) = attempt() {
                return Some(result);
            }
        }
        None
    }

    /// Whoever is waited for may need this CPU, and a sleep and a wake for each value cost ten times as much as all the rest. But a
    /// program that computes would keep the CPU for a slice, where who sleeps has it back when it is woken. So a yield that took
    /// long is paid back, unless many values came of it: as many waits do without as could have slept in that time.
    #[inline(never)]
    fn yield_cpu<R>(&self, passed: u32, mut attempt: impl FnMut() -> Option<R>) -> Option<R> {
        let debt = self.debt.load(Ordering::Relaxed);
        if debt > 0 {
            let came = passed.wrapping_sub(self.debt_since.load(Ordering::Relaxed));
            if came < MANY {
                self.debt.store(debt - 1, Ordering::Relaxed);
                self.debt_since.store(passed, Ordering::Relaxed);
                return None;
            }
        }
        for _ in 0..CPU_YIELDS {
            let start = Instant::now();
            yield_cpu();
            let took = start.elapsed();
            if took > LONG {
                let sleeps = took.as_micros() / A_SLEEP.as_micros();
                self.debt.store(sleeps.try_into().unwrap_or(u32::MAX), Ordering::Relaxed);
                self.debt_since.store(passed, Ordering::Relaxed);
                return attempt();
            }
            if let Some(result) = attempt() {
                return Some(result);
            }
        }
        None
    }
}

/// A waiter's place in a list.
pub struct Node {
    waiter: *const Waiter,
    /// Which of the waiter's nodes this is.
    number: u32,
    linked: bool,
    prev: *mut Node,
    next: *mut Node,
    /// Where the claimer finds or leaves a value, if it does so.
    pub packet: *mut (),
}

impl Node {
    pub fn new(waiter: &Waiter, number: usize, packet: *mut ()) -> Self {
        Self { waiter, number: number as u32, linked: false, prev: null_mut(), next: null_mut(), packet }
    }

    pub fn waiter(&self) -> *const Waiter {
        self.waiter
    }
}

/// Who is to be woken: an address only.
#[must_use]
pub struct Wake {
    word: *const AtomicU32,
    is_across: bool,
}

impl Wake {
    /// To be called without locks.
    pub fn wake(self) {
        #[cfg(not(loom))]
        if self.is_across {
            return crate::process::wake_across(self.word);
        }
        debug_assert!(!self.is_across);
        futex::wake(self.word, 1);
    }
}

/// Waiters, the first who came first.
pub struct List {
    head: *mut Node,
    tail: *mut Node,
}

// SAFETY: nodes may be touched by whoever has the list's lock.
unsafe impl Send for List {}

impl Default for List {
    fn default() -> Self {
        Self { head: null_mut(), tail: null_mut() }
    }
}

impl List {
    /// # Safety
    /// The node and its waiter stay where they are until the node is unlinked; it is not linked.
    pub unsafe fn push(&mut self, node: *mut Node) {
        // SAFETY: the node is the caller's; the tail is linked.
        unsafe {
            (*node).linked = true;
            (*node).prev = self.tail;
            (*node).next = null_mut();
            if self.tail.is_null() {
                self.head = node;
            } else {
                (*self.tail).next = node;
            }
        }
        self.tail = node;
    }

    /// Whether it was linked.
    ///
    /// # Safety
    /// The node is in this list or in none.
    pub unsafe fn remove(&mut self, node: *mut Node) -> bool {
        // SAFETY: the caller's, and linked nodes.
        unsafe {
            if !(*node).linked {
                return false;
            }
            let (prev, next) = ((*node).prev, (*node).next);
            if prev.is_null() {
                self.head = next;
            } else {
                (*prev).next = next;
            }
            if next.is_null() {
                self.tail = prev;
            } else {
                (*next).prev = prev;
            }
            (*node).linked = false;
        }
        true
    }

    /// Claims the first waiter that still waits, and unlinks its node.
    pub fn claim(&mut self) -> Option<(*mut Node, Wake)> {
        let mut node = self.head;
        while !node.is_null() {
            // SAFETY: a linked node and its waiter.
            unsafe {
                let waiter = (*node).waiter;
                if (*waiter).claim((*node).number) {
                    self.remove(node);
                    let (word, is_across) = (&raw const (*waiter).word, (*waiter).is_across);
                    return Some((node, Wake { word, is_across }));
                }
                node = (*node).next;
            }
        }
        None
    }

    /// Whether somebody else than this waiter could be claimed.
    pub fn has_other(&self, than: *const Waiter) -> bool {
        let mut node = self.head;
        while !node.is_null() {
            // SAFETY: a linked node and its waiter.
            unsafe {
                if !ptr::eq((*node).waiter, than) && (*(*node).waiter).is_waiting() {
                    return true;
                }
                node = (*node).next;
            }
        }
        false
    }
}

const LIGHT: u32 = 1;
const SETTLING: u32 = 2;
const ONE: u32 = 4;
/// Values that go by without a wait before a bell becomes light. A fence costs 5 to 20 ns, a heavy one some microseconds, in virtual
/// machines 10 to 50; and who waits for one makes the other side run out of values, or room, and wait, too.
pub const PAYS: u32 = if cfg!(loom) { 2 } else { 2048 };

/// Where threads wait for a condition, and are told.
pub struct Bell {
    /// How many wait, times [`ONE`]; [`LIGHT`], [`SETTLING`], or neither: strict.
    state: AtomicU32,
    rest: CachePadded<Waits>,
}

/// What a bell needs for those who wait.
struct Waits {
    list: Lock<List>,
    patience: Patience,
    /// What had been passed at the last wait.
    last: AtomicU32,
}

impl Bell {
    pub fn new() -> Self {
        Self::in_state(0)
    }

    /// For a condition that always holds.
    pub fn for_nobody() -> Self {
        Self::in_state(LIGHT)
    }

    fn in_state(state: u32) -> Self {
        let waits = Waits { list: Lock::default(), patience: Patience::new(), last: AtomicU32::new(0) };
        Self { state: AtomicU32::new(state), rest: CachePadded::new(waits) }
    }

    /// The condition holds, for one: wakes one that waits, if any does.
    #[inline]
    pub fn ring(&self) {
        #[cfg(not(loom))]
        light_fence();
        let state = self.state.load(Ordering::Relaxed);
        // In a model the light fence is a real one: it must not stand in for the other.
        #[cfg(loom)]
        let state = if state & LIGHT != 0 {
            light_fence();
            self.state.load(Ordering::Relaxed)
        } else {
            state
        };
        if state != LIGHT {
            self.ring_strictly();
        }
    }

    #[inline(never)]
    fn ring_strictly(&self) {
        // SeqCst: the condition before the state; `enter` has the other. pairs: channel.bell
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) >= ONE {
            self.wake_one();
        }
    }

    /// Wakes one that waits; whether there was one.
    #[cold]
    pub fn wake_one(&self) -> bool {
        let claimed = self.rest.list.with(|list| {
            let claimed = list.claim()?;
            self.state.fetch_sub(ONE, Ordering::Relaxed);
            Some(claimed.1)
        });
        claimed.map(Wake::wake).is_some()
    }

    /// The condition holds for all: wakes all.
    pub fn ring_all(&self) {
        // SeqCst: as in `ring_strictly`. pairs: channel.bell
        fence(Ordering::SeqCst);
        while self.state.load(Ordering::Relaxed) >= ONE && self.wake_one() {}
    }

    /// Makes it light if that pays. `passed` as in [`Patience::look`].
    #[inline]
    pub fn lighten(&self, passed: usize) {
        if self.state.load(Ordering::Relaxed) == 0
            && (passed as u32).wrapping_sub(self.rest.last.load(Ordering::Relaxed)) >= PAYS
        {
            // Relaxed: the word's own order is what counts, see above.
            let _ = self.state.compare_exchange(0, LIGHT, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Counts a waiter. Afterwards the caller looks at the condition once more.
    ///
    /// # Safety
    /// As [`List::push`]; [`leave`](Self::leave) ends it.
    pub unsafe fn enter(&self, node: *mut Node) {
        let before = self.rest.list.with(|list| {
            // SAFETY: the caller's.
            unsafe { list.push(node) };
            // Relaxed: the fences below order it.
            let before = self.state.fetch_add(ONE, Ordering::Relaxed);
            // Under the lock, so that one waiter does it.
            if before & LIGHT != 0 {
                self.state.fetch_add(SETTLING - LIGHT, Ordering::Relaxed);
            }
            before
        });
        if before & (LIGHT | SETTLING) == 0 {
            // SeqCst: we are counted before the caller looks; `ring_strictly` has the other. pairs: channel.bell
            fence(Ordering::SeqCst);
            return;
        }
        heavy_fence();
        if before & LIGHT != 0 {
            // SeqCst: the heavy fence comes before what this allows others to leave out. They are counted in the same word, and
            // their fence follows. pairs: channel.bell
            self.state.fetch_sub(SETTLING, Ordering::SeqCst);
        }
    }

    /// Unlinks the node if it is linked.
    ///
    /// # Safety
    /// It was entered here.
    pub unsafe fn leave(&self, node: *mut Node) {
        self.rest.list.with(|list| {
            // SAFETY: the caller's.
            if unsafe { list.remove(node) } {
                self.state.fetch_sub(ONE, Ordering::Relaxed);
            }
        });
    }

    /// Tries until it succeeds or the deadline passes (then the answer is `None`), waiting for the bell in between. `passed`: see
    /// [`Patience::look`].
    pub fn wait<R>(
        &self,
        passed: usize,
        limit: &Limit<'_>,
        mut attempt: impl FnMut() -> Option<R>,
    ) -> Result<R, WaitError> {
        if let Some(result) = self.rest.patience.look(passed, &mut attempt) {
            return Ok(result);
        }
        self.rest.last.store(passed as u32, Ordering::Relaxed);
        loop {
            let waiter = Waiter::new();
            let mut node = Node::new(&waiter, 0, null_mut());
            let node = &raw mut node;
            // SAFETY: both stay until `leave` has returned.
            unsafe { self.enter(node) };
            let mut why = None;
            let result = attempt();
            if result.is_some() {
                if !waiter.give_up() {
                    // It was rung for us, and this may have been for another value: who waits besides us is to look.
                    self.wake_one();
                }
            } else {
                why = waiter.park(limit);
            }
            // SAFETY: entered above.
            unsafe { self.leave(node) };
            match (result.or_else(&mut attempt), why) {
                (Some(result), _) => return Ok(result),
                (None, Some(why)) => return Err(why),
                (None, None) => {}
            }
        }
    }
}
