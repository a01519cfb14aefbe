//! Giving memory back later: what idle and freed stacks hold.
//!
//! A stack is often used again at once. So the memory that a thread gives back when it ends, and that of a stack which is
//! unmapped, stays for a while; the monitor calls [`Stacks::trim`], which does a bounded amount at a time.

use super::guard::{self, Advice, Range};
use super::pool::Stacks;
use super::slab::{PAGE, Slab, State, Word};
use core::sync::atomic::Ordering;

/// Nanoseconds of a period.
const PERIOD: u64 = 50_000_000;
/// Periods that a stack must have begun idle before: it was idle for one period less at least.
const AGE: u32 = 3;
/// Slots to look at in one call, and calls to the kernel.
const LOOKS: usize = 4096;
const CALLS: usize = 24;

/// Where the present look at all slots has got to.
pub(super) struct Sweep {
    last: u64,
    running: bool,
    /// It came across something to release, now or later.
    found: bool,
    /// The last whole look did not.
    fruitless: bool,
    slab: usize,
    slot: usize,
}

impl Sweep {
    pub(super) const fn new() -> Self {
        Self { last: 0, running: false, found: false, fruitless: false, slab: 0, slot: 0 }
    }

    fn begin(&mut self) {
        (self.running, self.found, self.slab, self.slot) = (true, false, 0, 0);
    }
}

/// Idle slots whose memory is being dropped.
struct Releases<'a> {
    of: [Option<(&'a Slab, usize, Word)>; guard::MOST],
    len: usize,
}

impl<'a> Releases<'a> {
    const NONE: Self = Self { of: [None; guard::MOST], len: 0 };

    /// Takes a slot if it is still as it was seen.
    fn add(&mut self, slab: &'a Slab, i: usize, word: Word) {
        let busy = Word::new(State::Releasing, 0, word.pages() as u32);
        if slab.slots()[i].change(word, busy) {
            self.of[self.len] = Some((slab, i, word));
            self.len += 1;
        }
    }

    /// Drops what the owners said may be dropped; they wait if they want the stack meanwhile.
    fn finish(&mut self, stacks: &Stacks) {
        let mut ranges = [Range::default(); guard::MOST];
        let taken = &self.of[..self.len];
        for (range, (slab, i, word)) in ranges.iter_mut().zip(taken.iter().flatten()) {
            *range = Range { start: slab.address(*i), len: word.pages() * PAGE };
        }
        // SAFETY: the thread that asked for it has left these stacks, and no other starts before the state changes.
        unsafe { guard::advise_all(&ranges[..self.len], Advice::Drop) };
        for (slab, i, word) in taken.iter().flatten() {
            stacks.pending.fetch_sub(word.pages(), Ordering::Relaxed);
            slab.slots()[*i].set(Word::new(State::Used, 0, 0));
        }
        *self = Self::NONE;
    }
}

impl Stacks {
    /// Gives back some of what has been idle for 0.1 s or more. `now`: nanoseconds. Returns whether something is left that
    /// a later call will have to give back.
    pub fn trim(&self, now: u64) -> bool {
        if self.pending.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let Some(mut sweep) = self.sweep.try_lock() else { return true };
        if !sweep.running {
            if now.saturating_sub(sweep.last) < PERIOD {
                return !sweep.fruitless;
            }
            sweep.last = now;
            sweep.begin();
            self.age.fetch_add(1, Ordering::Relaxed);
        }
        self.go_on(&mut sweep, AGE, LOOKS, CALLS);
        // In the child of a fork the count may be off by what other threads were in the middle of.
        sweep.running || !sweep.fruitless
    }

    /// Too much waits for its release: gives some back at once, however short it has been idle.
    #[inline]
    pub(super) fn relieve(&self) {
        if self.is_full() {
            self.relieve_now();
        }
    }

    #[cold]
    fn relieve_now(&self) {
        let Some(mut sweep) = self.sweep.try_lock() else { return };
        if !sweep.running {
            sweep.begin();
        }
        self.go_on(&mut sweep, 0, LOOKS, 1);
    }

    /// Goes on with the look at all slots: releases what was stamped `age` periods ago or earlier.
    fn go_on(&self, sweep: &mut Sweep, age: u32, mut looks: usize, mut calls: usize) {
        let now = self.now();
        let mut idle = Releases::NONE;
        while let Some(slab) = self.opened().get(sweep.slab)
            && looks > 0
            && calls > 0
        {
            let used = slab.fresh.load(Ordering::Relaxed) as usize;
            while sweep.slot < used && looks > 0 && calls > 0 {
                let i = sweep.slot;
                let word = slab.slots()[i].word();
                sweep.slot += 1;
                looks -= 1;
                if !matches!(word.state(), State::Idle | State::Dirty) {
                    continue;
                }
                sweep.found = true;
                if word.age(now) < age {
                    continue;
                }
                if word.state() == State::Idle {
                    idle.add(slab, i, word);
                    if idle.len == guard::MOST {
                        idle.finish(self);
                        calls -= 1;
                    }
                } else if word.state() == State::Dirty
                    && let Some(batch) = self.batch_at(sweep.slab, i, age)
                {
                    sweep.slot = i + self.make_ready(batch);
                    calls -= 1;
                }
            }
            if sweep.slot >= used {
                sweep.slab += 1;
                sweep.slot = 0;
            }
        }
        idle.finish(self);
        sweep.running = sweep.slab < self.opened().len();
        if !sweep.running {
            sweep.fruitless = !sweep.found;
        }
    }
}
