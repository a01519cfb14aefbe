//! Thread stacks from slabs.
//!
//! A *slab* is one reservation cut into equal *slots*; stacks of one size (and one way of asking for them) are a *class*.
//! Handing out a slot, guarding it and taking it back need no call to the kernel most of the time, and 100,000 stacks are a
//! few dozen mappings. What the program then does to its slot with `mprotect`, `munmap`, `mremap` or `madvise` either fits
//! (its guard, giving all of it back) or makes the slot ordinary memory for good: [`Stacks::disown`] makes the kernel's view
//! the one that the program has, and from then on every call is the kernel's.
//!
//! | state | whose | leaves it by |
//! |---|---|---|
//! | clean, dirty | the pool's | `allocate`, `make_ready`, `trim` (all under the lock) |
//! | busy | of who makes it ready | `make_ready` |
//! | used | the program's | `free` (under the lock), `left`, `disown` |
//! | idle | the program's, no thread on it | `in_use`, `free`, `trim`, `disown` (whoever changes the word first) |
//! | releasing | the program's, for `trim` to drop a part | `trim` |
//! | gone | not ours | never |
//!
//! # Safety
//! Slots that are clean, dirty or busy are the pool's alone; of an idle one `trim` may drop the part that its last thread
//! said may be dropped, and nothing else.

pub mod guard;
mod limits;
pub use limits::address_space;
mod pool;
mod slab;
#[cfg(test)]
mod tests;
mod trim;

use crate::lock::yield_cpu;
use crate::sys::{check, linux as l};
use core::sync::atomic::Ordering;
use guard::Advice;
pub use pool::Stacks;
use slab::{PAGE, Slab, Slot, State, View, Word};

/// The stacks of this process.
pub static STACKS: Stacks = Stacks::new();

/// Gives back some of what stacks of this process hold idly; see [`Stacks::trim`].
pub fn trim(now: u64) -> bool {
    STACKS.trim(now)
}

/// The slot that a thread runs on, for when it ends. Outlives the slot: then it is nothing any more.
#[derive(Clone, Copy)]
pub struct Place<'a>(&'a Slot);

impl Place<'_> {
    /// Whether it is a slot still.
    pub fn is_used(&self) -> bool {
        self.0.word().state() == State::Used
    }
}

/// What has become of a call about memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is done.
    Done,
    /// It is the kernel's.
    Pass,
    /// It fails with this errno value.
    Fail(i32),
}
use Outcome::{Done, Fail, Pass};

impl Stacks {
    /// `mprotect(start, len, prot)`.
    pub fn protect(&self, start: usize, len: usize, prot: u32) -> Outcome {
        let end = start.wrapping_add(len.next_multiple_of(PAGE));
        if !self.may_touch(start, end) || end <= start {
            return Pass;
        }
        if prot == l::PROT_READ | l::PROT_WRITE
            && let Some((slab, i)) = self.find(start)
            && end == slab.end_of(i)
        {
            let slot = &slab.slots()[i];
            if slot.word().state() == State::Used && slot.view() == View::Closed {
                let pages = ((start - slab.address(i)) / PAGE) as u32;
                if self.open_slot(slab, i, pages).is_ok() {
                    return Done;
                }
            }
        }
        match self.disown(start, end, false) {
            Ok(()) => Pass,
            Err(errno) => Fail(errno),
        }
    }

    /// The program opens its slot but for the first pages.
    fn open_slot(&self, slab: &Slab, i: usize, pages: u32) -> Result<(), i32> {
        let slot = &slab.slots()[i];
        let has = slot.guard.load(Ordering::Relaxed);
        if has != pages {
            let base = slab.address(i);
            // SAFETY: the slot's owner has not opened it before, so it holds nothing.
            unsafe {
                if has > pages {
                    guard::advise(base + pages as usize * PAGE, (has - pages) as usize * PAGE, Advice::Unguard)?;
                } else {
                    guard::advise(base, pages as usize * PAGE, Advice::Guard)?;
                }
            }
            slot.guard.store(pages, Ordering::Relaxed);
            self.note_guard(slab, pages);
        }
        slot.set_view(View::Guarded);
        Ok(())
    }

    /// `munmap(start, len)`.
    pub fn unmap(&self, start: usize, len: usize) -> Outcome {
        let end = start.wrapping_add(len.next_multiple_of(PAGE));
        if !self.may_touch(start, end) || end <= start {
            return Pass;
        }
        if self.free(start, len) {
            return Done;
        }
        self.replace(start, end)
    }

    /// The range is about to be unmapped, or something else to be mapped there.
    pub fn replace(&self, start: usize, end: usize) -> Outcome {
        match self.disown(start, end, true) {
            Ok(()) => Pass,
            Err(errno) => Fail(errno),
        }
    }

    /// `madvise(start, len, advice)`, but for what [`Stacks::left`] is for.
    pub fn advise(&self, start: usize, len: usize, advice: u32) -> Outcome {
        const GUARD: u32 = Advice::Guard as u32;
        let len = len.next_multiple_of(PAGE);
        let end = start.wrapping_add(len);
        if !self.may_touch(start, end) || end <= start {
            return Pass;
        }
        let whole = self.find(start).filter(|(slab, i)| slab.address(*i) == start && end <= slab.end_of(*i));
        match (advice, whole) {
            (GUARD, Some((slab, i))) if slab.slots()[i].view() == View::Open => {
                self.guard_by_owner(slab, i, start, len)
            }
            // What changes the mapping and not the contents.
            (GUARD | 10..=19 | 103, _) => match self.disown(start, end, false) {
                Ok(()) => Pass,
                Err(errno) => Fail(errno),
            },
            _ => Pass,
        }
    }

    /// The program guards the first pages of an open slot itself.
    fn guard_by_owner(&self, slab: &Slab, i: usize, start: usize, len: usize) -> Outcome {
        let slot = &slab.slots()[i];
        if slot.word().state() != State::Used {
            return Pass;
        }
        // SAFETY: the program asks for it.
        match unsafe { guard::advise(start, len, Advice::Guard) } {
            Ok(()) => {
                slot.guard.fetch_max((len / PAGE) as u32, Ordering::Relaxed);
                Done
            }
            Err(errno) => Fail(errno),
        }
    }

    /// Every slot that the range touches becomes ordinary memory, as the program sees it. `covers`: what lies in the range is
    /// about to go away. Error: errno; the call that was to follow cannot be made.
    pub fn disown(&self, start: usize, end: usize, covers: bool) -> Result<(), i32> {
        if !self.may_touch(start, end) {
            return Ok(());
        }
        for slab in self.opened().iter().filter(|s| s.base() < end && s.end() > start) {
            let first = (start.max(slab.base()) - slab.base()) / slab.stride();
            let last = (end.min(slab.end()) - slab.base()).div_ceil(slab.stride());
            for i in first..last {
                let covered = covers && start <= slab.address(i) && end >= slab.end_of(i);
                while !self.disown_slot(slab, i, covered)? {
                    yield_cpu();
                }
            }
        }
        Ok(())
    }

    /// False: try again.
    fn disown_slot(&self, slab: &Slab, i: usize, covered: bool) -> Result<bool, i32> {
        let slot = &slab.slots()[i];
        let mut inner = self.inner.lock();
        let word = slot.word();
        match word.state() {
            State::Gone => return Ok(true),
            State::Busy | State::Releasing => return Ok(false),
            State::Clean | State::Dirty => {
                // SAFETY: free and ours alone, the gap behind it as well; the program believes that nothing is mapped there.
                unsafe { crate::mem::unmap(slab.address(i) as *mut u8, slab.stride()) };
            }
            State::Used | State::Idle => {
                if !covered {
                    // SAFETY: the owner's own view is what is put in force.
                    unsafe { materialise(slab, i, slot)? };
                }
            }
        }
        if !slot.change(word, Word::new(State::Gone, 0, 0)) {
            return Ok(false);
        }
        let gap = slab.address(i + 1) - slab.end_of(i);
        if gap != 0 && matches!(word.state(), State::Used | State::Idle) {
            // SAFETY: the gap behind the slot is nobody's.
            unsafe { crate::mem::unmap(slab.end_of(i) as *mut u8, gap) };
        }
        self.count_gone(&mut inner, slab, word, i);
        Ok(true)
    }

    /// A thread starts on the stack of `size` bytes at `base`. Returns its place if it is a slot's, from the beginning on.
    pub fn in_use(&self, base: usize, size: usize) -> Option<Place<'_>> {
        let (slab, i) = self.find(base)?;
        let slot = &slab.slots()[i];
        let place = (slab.address(i) == base && size <= slab.size()).then_some(Place(slot));
        loop {
            let word = slot.word();
            match word.state() {
                State::Used => return place,
                State::Idle if slot.change(word, Word::new(State::Used, 0, 0)) => {
                    self.pending.fetch_sub(word.pages(), Ordering::Relaxed);
                    return place;
                }
                State::Idle => {}
                State::Releasing => yield_cpu(),
                _ => return None,
            }
        }
    }

    /// The thread on the stack has left it for good. The first `len` bytes of it may be dropped later.
    pub fn left(&self, place: Place<'_>, len: usize) {
        let Place(slot) = place;
        let (word, pages) = (slot.word(), len / PAGE);
        if word.state() == State::Used && pages != 0 {
            self.pending.fetch_add(pages, Ordering::Relaxed);
            if !slot.change(word, Word::new(State::Idle, self.now(), pages as u32)) {
                self.pending.fetch_sub(pages, Ordering::Relaxed);
            }
            self.relieve();
        }
    }

    /// All memory of the process is about to be locked: reservations would become resident. Unmaps what is free and hands out
    /// nothing any more.
    pub fn give_up(&self) {
        self.turn_off();
        for slab in self.opened() {
            for (i, slot) in slab.slots().iter().enumerate() {
                while matches!(slot.word().state(), State::Clean | State::Dirty | State::Busy) {
                    if matches!(self.disown_slot(slab, i, false), Ok(true)) {
                        break;
                    }
                    yield_cpu();
                }
            }
        }
    }
}

/// Makes the protection of a slot's memory what its owner believes it to be.
///
/// # Safety
/// The slot is its owner's, who is about to change it.
unsafe fn materialise(slab: &Slab, i: usize, slot: &Slot) -> Result<(), i32> {
    let base = slab.address(i);
    let guarded = slot.guard.load(Ordering::Relaxed) as usize * PAGE;
    let closed = match slot.view() {
        View::Open => return Ok(()),
        View::Closed => slab.size(),
        View::Guarded => guarded,
    };
    if closed == 0 {
        return Ok(());
    }
    // SAFETY: the owner cannot use this part anyway; only its protection changes. First the protection, then the marks.
    unsafe {
        check(sys!(l::__NR_mprotect, base, closed, l::PROT_NONE))?;
        if guarded != 0 {
            guard::advise(base, guarded, Advice::Unguard)?;
        }
    }
    Ok(())
}
