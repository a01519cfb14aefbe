//! A slab: one reservation cut into equal slots, and what is known about each slot.
//!
//! Records of slabs and slots are never freed or used again for something else, so a lookup needs no lock: it may come
//! too early or too late, but what it finds is a slot.

use crate::mem;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// What a slot is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// Free; reads as zero.
    Clean = 0,
    /// Free; holds what its last owner left there.
    Dirty = 1,
    /// Free; somebody is making it ready.
    Busy = 2,
    /// The program's.
    Used = 3,
    /// The program's, but the thread on it has left, and part of it may be dropped.
    Idle = 4,
    /// The program's; that part is being dropped.
    Releasing = 5,
    /// Ordinary memory of the program or of the kernel: no slot any more.
    Gone = 6,
}

/// A slot's state word: the state, when it came about, and how many pages from the base may be dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word(pub u64);

impl Word {
    /// A word of its parts; the stamp keeps its lower 24 bits.
    pub const fn new(state: State, stamp: u32, pages: u32) -> Self {
        Self(state as u64 | (stamp as u64 & 0xff_ffff) << 8 | (pages as u64) << 32)
    }

    /// The state.
    pub fn state(self) -> State {
        match self.0 as u8 {
            0 => State::Clean,
            1 => State::Dirty,
            2 => State::Busy,
            3 => State::Used,
            4 => State::Idle,
            5 => State::Releasing,
            _ => State::Gone,
        }
    }

    /// Pages from the base that may be dropped.
    pub fn pages(self) -> usize {
        (self.0 >> 32) as usize
    }

    /// How many stamps ago it came about.
    pub fn age(self, now: u32) -> u32 {
        now.wrapping_sub((self.0 >> 8) as u32) & 0xff_ffff
    }
}

/// What the program believes about the protection of its slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum View {
    /// Readable and writable; guards in it are its own `MADV_GUARD_INSTALL`.
    Open = 0,
    /// Nothing is accessible yet (`mmap` with `PROT_NONE`).
    Closed = 1,
    /// As many pages as are guarded are `PROT_NONE`, the rest is readable and writable.
    Guarded = 2,
}

/// One slot.
#[repr(C)]
pub struct Slot {
    word: AtomicU64,
    /// Pages from the base that are guarded.
    pub guard: AtomicU32,
    view: AtomicU8,
}

impl Slot {
    /// The state word.
    #[inline]
    pub fn word(&self) -> Word {
        // Acquire: who sees a slot free or released sees what was done to it before. pairs: stack.slot
        Word(self.word.load(Ordering::Acquire))
    }

    /// Changes the state word unless it has changed already.
    #[inline]
    pub fn change(&self, from: Word, to: Word) -> bool {
        // AcqRel: what one owner did happens before what the next one does. pairs: stack.slot
        self.word.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Sets the state word; the caller has the slot for itself.
    pub fn set(&self, to: Word) {
        // Release: what we did to the slot happens before what its next owner does. pairs: stack.slot
        self.word.store(to.0, Ordering::Release);
    }

    /// What the program believes.
    pub fn view(&self) -> View {
        match self.view.load(Ordering::Relaxed) {
            0 => View::Open,
            1 => View::Closed,
            _ => View::Guarded,
        }
    }

    /// Notes what the program believes.
    pub fn set_view(&self, view: View) {
        self.view.store(view as u8, Ordering::Relaxed);
    }
}

/// A set of a slab's slots; all but `new` under the pool's lock.
#[derive(Clone, Copy)]
pub struct Set<'a> {
    words: &'a [AtomicU64],
    len: &'a AtomicU32,
    /// No member lies in a word below this one.
    hint: &'a AtomicU32,
}

impl Set<'_> {
    /// How many slots are in it.
    pub fn len(&self) -> u32 {
        self.len.load(Ordering::Relaxed)
    }

    /// Adds a slot that is not in it.
    pub fn add(&self, i: usize) {
        let word = &self.words[i / 64];
        word.store(word.load(Ordering::Relaxed) | 1 << (i % 64), Ordering::Relaxed);
        self.len.store(self.len() + 1, Ordering::Relaxed);
        if (i / 64) < self.hint.load(Ordering::Relaxed) as usize {
            self.hint.store((i / 64) as u32, Ordering::Relaxed);
        }
    }

    /// Takes a slot out, if it is in.
    pub fn remove(&self, i: usize) -> bool {
        let word = &self.words[i / 64];
        let v = word.load(Ordering::Relaxed);
        if v & 1 << (i % 64) == 0 {
            return false;
        }
        word.store(v & !(1 << (i % 64)), Ordering::Relaxed);
        self.len.store(self.len() - 1, Ordering::Relaxed);
        true
    }

    /// Takes the lowest slot out.
    pub fn pop(&self) -> Option<usize> {
        if self.len() == 0 {
            return None;
        }
        for w in self.hint.load(Ordering::Relaxed) as usize..self.words.len() {
            let v = self.words[w].load(Ordering::Relaxed);
            if v != 0 {
                self.hint.store(w as u32, Ordering::Relaxed);
                self.words[w].store(v & (v - 1), Ordering::Relaxed);
                self.len.store(self.len() - 1, Ordering::Relaxed);
                return Some(w * 64 + v.trailing_zeros() as usize);
            }
        }
        None
    }
}

/// The record of a slab. All zero until it is opened.
pub struct Slab {
    base: AtomicUsize,
    size: AtomicUsize,
    /// From one slot to the next. An odd number of pages: at equal offsets in equal stacks lies what is used most, and
    /// a power of two would put all of it into a few sets of the caches and the TLB.
    stride: AtomicUsize,
    count: AtomicU32,
    /// Its size class.
    pub class: AtomicU32,
    slots: AtomicPtr<Slot>,
    /// Slots from here on have never been used.
    pub fresh: AtomicU32,
    clean_len: AtomicU32,
    clean_hint: AtomicU32,
    dirty_len: AtomicU32,
    dirty_hint: AtomicU32,
    /// The next slab of the class, its number plus 1.
    pub next: AtomicU32,
}

impl Slab {
    /// A closed one.
    pub const fn new() -> Self {
        Self {
            base: AtomicUsize::new(0),
            size: AtomicUsize::new(0),
            stride: AtomicUsize::new(0),
            count: AtomicU32::new(0),
            class: AtomicU32::new(0),
            slots: AtomicPtr::new(core::ptr::null_mut()),
            fresh: AtomicU32::new(0),
            clean_len: AtomicU32::new(0),
            clean_hint: AtomicU32::new(0),
            dirty_len: AtomicU32::new(0),
            dirty_hint: AtomicU32::new(0),
            next: AtomicU32::new(0),
        }
    }

    /// Reserves `count` slots of `size` bytes and their table. Error: errno.
    pub fn open(&self, class: u32, size: usize, count: usize) -> Result<(), i32> {
        // From 128 KiB on slots begin 64 KiB above a 2 MiB boundary or so: the first pages that a thread touches share a page
        // table with the guard of the slot above, instead of needing one of their own.
        const TABLE: usize = 2 << 20;
        const ABOVE: usize = 64 << 10;
        let slack = if size >= 2 * ABOVE { TABLE } else { 0 };
        let stride = ((size / PAGE) | 1) * PAGE;
        let len = stride * count + slack;
        let table = mem::map(count * size_of::<Slot>() + 2 * count.div_ceil(64) * 8)?;
        let at = match mem::map(len) {
            Ok(at) => at as usize,
            Err(errno) => {
                // SAFETY: just mapped, known to nobody.
                unsafe { mem::unmap(table, count * size_of::<Slot>() + 2 * count.div_ceil(64) * 8) };
                return Err(errno);
            }
        };
        // SAFETY: our own fresh mapping. A kernel without huge pages refuses: that is as good.
        let _ = unsafe { super::guard::advise(at, len, super::guard::Advice::SmallPages) };
        let base = if slack == 0 { at } else { (at - ABOVE).next_multiple_of(TABLE) + ABOVE };
        self.slots.store(table.cast(), Ordering::Relaxed);
        self.size.store(size, Ordering::Relaxed);
        self.stride.store(stride, Ordering::Relaxed);
        self.count.store(count as u32, Ordering::Relaxed);
        self.class.store(class, Ordering::Relaxed);
        self.base.store(base, Ordering::Relaxed);
        Ok(())
    }

    /// The first slot's address.
    pub fn base(&self) -> usize {
        self.base.load(Ordering::Relaxed)
    }
    /// Bytes of a slot.
    pub fn size(&self) -> usize {
        self.size.load(Ordering::Relaxed)
    }
    /// How many slots it has.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed) as usize
    }
    /// From one slot to the next.
    pub fn stride(&self) -> usize {
        self.stride.load(Ordering::Relaxed)
    }
    /// The end of the last slot, and of the gap behind it.
    pub fn end(&self) -> usize {
        self.address(self.count())
    }
    /// The address of a slot.
    pub fn address(&self, i: usize) -> usize {
        self.base() + i * self.stride()
    }
    /// The end of a slot.
    pub fn end_of(&self, i: usize) -> usize {
        self.address(i) + self.size()
    }

    /// What is known about the slots.
    #[inline]
    pub fn slots(&self) -> &[Slot] {
        // SAFETY: `open` mapped a table of `count` slots, zeroed and never unmapped; before it, the length is 0 and the
        // pointer is replaced by a dangling one.
        unsafe {
            let p = self.slots.load(Ordering::Relaxed);
            match core::ptr::NonNull::new(p) {
                Some(p) => core::slice::from_raw_parts(p.as_ptr(), self.count()),
                None => &[],
            }
        }
    }

    fn words(&self, which: usize) -> &[AtomicU64] {
        let n = self.count().div_ceil(64);
        // SAFETY: the two sets lie behind the slots in the same table.
        unsafe {
            let p: *mut AtomicU64 = self.slots.load(Ordering::Relaxed).add(self.count()).cast();
            core::slice::from_raw_parts(p.add(which * n), n)
        }
    }

    /// Free slots that read as zero.
    pub fn clean(&self) -> Set<'_> {
        Set { words: self.words(0), len: &self.clean_len, hint: &self.clean_hint }
    }
    /// Free slots that hold something.
    pub fn dirty(&self) -> Set<'_> {
        Set { words: self.words(1), len: &self.dirty_len, hint: &self.dirty_hint }
    }
}

impl Default for Slab {
    fn default() -> Self {
        Self::new()
    }
}
