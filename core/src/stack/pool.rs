//! The pool: size classes, handing slots out, making them ready, taking them back.

use super::guard::{self, Advice, Range};
use super::slab::{PAGE, Slab, State, View, Word};
use crate::lock::{SpinLock, yield_cpu};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Slabs that one process can have.
const SLABS: usize = 1024;
const CLASSES: usize = 32;
/// Classes that get a slab at their first request; later ones get it at the one so numbered.
const EAGER: usize = 8;
const FAMILIAR: u32 = 4;
/// A bigger stack is mapped by itself.
const SIZE_MAX: usize = 256 << 20;
/// Slots of a class's first slab; each next one has as many as all before it.
const FIRST: usize = 16;
const MOST: usize = 8192;
/// Bytes of a slab at most.
const SLAB_MAX: usize = 64 << 30;
/// With so many stacks of a class in use, pages are faulted in for the next ones, several stacks at a time.
const CROWD: u32 = 64;
/// With fewer of them ready, an idle worker makes the next ones ready (see [`Stacks::ahead`]).
const AHEAD: u32 = 2 * guard::MOST as u32;
/// How many pages: libc's thread block, and the first frames.
const POPULATE: usize = 2 * PAGE;
/// Requests that are passed on when a slab could not be had.
const PAUSE: u32 = 256;
/// Slots of a class that the program made ordinary memory before slabs are seen to be no use to it.
const UNSUITABLE: u32 = 32;

#[derive(Clone, Copy)]
struct Class {
    size: usize,
    /// Asked for without any access (the owner opens all but a guard), or open.
    closed: bool,
    requests: u32,
    /// Requests until a slab is tried for again.
    pause: u32,
    /// The newest slab, its number plus 1.
    slabs: u32,
    total: u32,
    in_use: u32,
    clean: u32,
    dirty: u32,
    gone: u32,
    handed_out: u32,
    /// Guard pages that the last owner wanted.
    guard: u32,
}

impl Class {
    const NONE: Self = Self {
        size: 0,
        closed: false,
        requests: 0,
        pause: 0,
        slabs: 0,
        total: 0,
        in_use: 0,
        clean: 0,
        dirty: 0,
        gone: 0,
        handed_out: 0,
        guard: 0,
    };
}

impl Class {
    /// Many threads are created, and few slots are ready for more.
    fn is_behind(&self) -> bool {
        self.in_use >= CROWD && self.clean < AHEAD
    }
}

/// What the pool's lock protects, beside the sets of the slabs.
pub(super) struct Inner {
    classes: [Class; CLASSES],
    /// The environment has been looked at.
    asked: bool,
    /// The kernel has guard marks.
    guards: bool,
}

#[cfg(test)]
impl Inner {
    pub(super) fn in_use(&self) -> u32 {
        self.classes.iter().map(|c| c.in_use).sum()
    }
}

/// Slots taken out of the free sets to be made ready.
pub(super) struct Batch {
    pub(super) slab: usize,
    pub(super) slots: [u32; guard::MOST],
    pub(super) len: usize,
    /// They hold something.
    dirty: bool,
    guard: u32,
    populate: bool,
}

/// All slabs of a process.
pub struct Stacks {
    pub(super) slabs: [Slab; SLABS],
    opened: AtomicUsize,
    /// Every slot lies between these.
    low: AtomicUsize,
    high: AtomicUsize,
    pub(super) inner: SpinLock<Inner>,
    /// Slots that are busy outside the lock.
    busy: AtomicU32,
    /// The class, its number plus 1, that an idle worker should make slots of ready for.
    wanted: AtomicU32,
    /// No slots are handed out any more.
    off: AtomicBool,
    /// Pages that may wait for their release; beyond that it is done at once.
    limit: AtomicUsize,
    /// Pages that wait for their release.
    pub(super) pending: AtomicUsize,
    /// Counts periods of release; stamps slots.
    pub(super) age: AtomicU32,
    pub(super) sweep: SpinLock<super::trim::Sweep>,
}

impl Default for Stacks {
    fn default() -> Self {
        Self::new()
    }
}

impl Stacks {
    /// No slab yet.
    pub const fn new() -> Self {
        Self {
            slabs: [const { Slab::new() }; SLABS],
            opened: AtomicUsize::new(0),
            low: AtomicUsize::new(usize::MAX),
            high: AtomicUsize::new(0),
            inner: SpinLock::new(Inner { classes: [Class::NONE; CLASSES], asked: false, guards: false }),
            busy: AtomicU32::new(0),
            wanted: AtomicU32::new(0),
            off: AtomicBool::new(false),
            limit: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
            age: AtomicU32::new(0),
            sweep: SpinLock::new(super::trim::Sweep::new()),
        }
    }

    /// Whether a slot may lie in the range: the quick answer for everything else.
    #[inline]
    pub fn may_touch(&self, start: usize, end: usize) -> bool {
        // Who has an address in a slab got it after these were written.
        start < self.high.load(Ordering::Relaxed) && end > self.low.load(Ordering::Relaxed)
    }

    pub(super) fn opened(&self) -> &[Slab] {
        // Acquire: the records below are complete. pairs: stack.slabs
        &self.slabs[..self.opened.load(Ordering::Acquire)]
    }

    /// The slot that the address lies in (or just behind): slab, number.
    #[inline]
    pub(super) fn find(&self, address: usize) -> Option<(&Slab, usize)> {
        if !self.may_touch(address, address.wrapping_add(1)) {
            return None;
        }
        self.opened().iter().filter(|s| (s.base()..s.end()).contains(&address)).find_map(|s| {
            let i = (address - s.base()) / s.stride();
            // Where slots are gone another slab may have come to lie.
            (s.slots()[i].word().state() != State::Gone).then_some((s, i))
        })
    }

    /// Present stamp.
    pub(super) fn now(&self) -> u32 {
        self.age.load(Ordering::Relaxed)
    }

    /// A stack of `size` bytes that reads as zero, open or to be opened by [`Stacks::protect`]. `None`: map one.
    ///
    /// `call` gets an idle worker to look at [`Stacks::ahead`]; it is called when the caller has to make slots ready itself.
    pub fn allocate(&self, size: usize, closed: bool, call: impl Fn()) -> Option<usize> {
        if size == 0 || size > SIZE_MAX || !size.is_multiple_of(PAGE) || self.off.load(Ordering::Relaxed) {
            return None;
        }
        loop {
            let mut inner = self.inner.lock();
            let class = self.class(&mut inner, size, closed)?;
            let taken = self.pop(&mut inner.classes[class], closed);
            let behind = inner.classes[class].is_behind();
            if behind {
                self.wanted.store(class as u32 + 1, Ordering::Relaxed);
            }
            if let Some(taken) = taken {
                drop(inner);
                return Some(taken);
            }
            let batch = self.batch(&mut inner, class)?;
            drop(inner);
            if behind {
                call();
            }
            self.make_ready(batch);
        }
    }

    /// For a worker with nothing to do: makes the next slots ready for who creates many threads, most of whose time is the
    /// kernel's for new pages. Returns whether it did. Takes as long as the kernel for [`guard::MOST`] slots, about 0.1 ms.
    #[inline]
    pub fn ahead(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) != 0 && self.make_ahead()
    }

    #[cold]
    fn make_ahead(&self) -> bool {
        // Who is second finds nothing wanted.
        let class = self.wanted.swap(0, Ordering::Relaxed) as usize;
        if class == 0 || self.off.load(Ordering::Relaxed) {
            return false;
        }
        let mut inner = self.inner.lock();
        if !inner.classes[class - 1].is_behind() {
            return false;
        }
        let batch = self.batch(&mut inner, class - 1);
        drop(inner);
        batch.is_some_and(|b| self.make_ready(b) > 0)
    }

    /// The class's number, the request counted. `None`: not from slabs.
    fn class(&self, inner: &mut Inner, size: usize, closed: bool) -> Option<usize> {
        let known = inner.classes.iter().position(|c| c.size == size && c.closed == closed);
        let Some(i) = known else {
            // It takes the place of the class without slabs that was asked for least.
            let i = (0..CLASSES).filter(|&i| inner.classes[i].slabs == 0).min_by_key(|&i| inner.classes[i].requests)?;
            inner.classes[i] = Class { size, closed, requests: 1, ..Class::NONE };
            // A few sizes get a slab at once, if they are thread stacks; others must have been asked for several times.
            let few = inner.classes.iter().filter(|c| c.slabs != 0).count() < EAGER;
            return (closed && few).then_some(i);
        };
        let c = &mut inner.classes[i];
        c.requests = c.requests.saturating_add(1);
        if c.gone >= UNSUITABLE && c.gone > c.handed_out / 2 {
            return None;
        }
        if c.slabs == 0 && c.requests < FAMILIAR {
            return None;
        }
        if c.pause > 0 && c.clean + c.dirty == 0 {
            c.pause -= 1;
            return None;
        }
        Some(i)
    }

    fn pop(&self, c: &mut Class, closed: bool) -> Option<usize> {
        if c.clean == 0 {
            return None;
        }
        let mut next = c.slabs;
        while next != 0 {
            let slab = &self.slabs[next as usize - 1];
            if let Some(i) = slab.clean().pop() {
                let slot = &slab.slots()[i];
                slot.set(Word::new(State::Used, 0, 0));
                slot.set_view(if closed { View::Closed } else { View::Open });
                c.clean -= 1;
                c.in_use += 1;
                c.handed_out = c.handed_out.saturating_add(1);
                return Some(slab.address(i));
            }
            next = slab.next.load(Ordering::Relaxed);
        }
        None
    }

    /// Takes free slots of one slab out, so that they can be made ready without the lock. `None`: there are none.
    fn batch(&self, inner: &mut Inner, class: usize) -> Option<Batch> {
        let c = &mut inner.classes[class];
        let most = (c.in_use as usize / 4).clamp(1, guard::MOST);
        // Those that hold something come first when a batch of them is to be had: their memory is used again.
        if c.dirty as usize >= most
            && let Some(batch) = self.batch_of(c, most, true)
        {
            return Some(batch);
        }
        let fresh = self.batch_of(c, most, false).or_else(|| self.batch_of(c, most, true));
        if fresh.is_some() {
            return fresh;
        }
        if self.grow(inner, class).is_err() {
            inner.classes[class].pause = PAUSE;
            return None;
        }
        self.batch_of(&mut inner.classes[class], most, false)
    }

    fn batch_of(&self, c: &mut Class, most: usize, dirty: bool) -> Option<Batch> {
        let populate = c.in_use >= CROWD;
        let mut b = Batch { slab: 0, slots: [0; guard::MOST], len: 0, dirty, guard: c.guard, populate };
        let mut next = c.slabs;
        while next != 0 && b.len == 0 {
            b.slab = next as usize - 1;
            let slab = &self.slabs[b.slab];
            while b.len < most {
                let i = if dirty {
                    let Some(i) = slab.dirty().pop() else { break };
                    c.dirty -= 1;
                    self.pending.fetch_sub(slab.size() / PAGE, Ordering::Relaxed);
                    i
                } else {
                    let i = slab.fresh.load(Ordering::Relaxed) as usize;
                    if i == slab.count() {
                        break;
                    }
                    slab.fresh.store(i as u32 + 1, Ordering::Relaxed);
                    if slab.slots()[i].word().state() == State::Gone {
                        continue;
                    }
                    i
                };
                slab.slots()[i].set(Word::new(State::Busy, 0, 0));
                b.slots[b.len] = i as u32;
                b.len += 1;
            }
            next = slab.next.load(Ordering::Relaxed);
        }
        self.busy.fetch_add(b.len as u32, Ordering::Relaxed);
        (b.len > 0).then_some(b)
    }

    /// Takes dirty slots from `from` on that lie side by side and are at least `age` old, for [`Stacks::make_ready`].
    pub(super) fn batch_at(&self, slab: usize, from: usize, age: u32) -> Option<Batch> {
        let mut inner = self.inner.lock();
        let s = &self.slabs[slab];
        let c = &mut inner.classes[s.class.load(Ordering::Relaxed) as usize];
        let mut b = Batch { slab, slots: [0; guard::MOST], len: 0, dirty: true, guard: c.guard, populate: false };
        for (i, slot) in s.slots().iter().enumerate().skip(from).take(guard::MOST) {
            let word = slot.word();
            if word.state() != State::Dirty || word.age(self.now()) < age || !s.dirty().remove(i) {
                break;
            }
            slot.set(Word::new(State::Busy, 0, 0));
            c.dirty -= 1;
            self.pending.fetch_sub(s.size() / PAGE, Ordering::Relaxed);
            b.slots[b.len] = i as u32;
            b.len += 1;
        }
        self.busy.fetch_add(b.len as u32, Ordering::Relaxed);
        (b.len > 0).then_some(b)
    }

    /// Empties, guards and populates the slots of a batch as needed, and frees them again. Returns how many.
    pub(super) fn make_ready(&self, b: Batch) -> usize {
        let slab = &self.slabs[b.slab];
        let slots = &b.slots[..b.len];
        let mut ranges = [Range::default(); guard::MOST];
        let mut lost = 0u32;
        // SAFETY: busy slots are ours alone.
        unsafe {
            if b.dirty {
                let mut n = 0;
                for &i in slots {
                    let start = slab.address(i as usize);
                    if n > 0 && ranges[n - 1].start + ranges[n - 1].len + slab.stride() == start + slab.size() {
                        // Neighbours: the gap between them goes along.
                        ranges[n - 1].len += slab.stride();
                    } else {
                        ranges[n] = Range { start, len: slab.size() };
                        n += 1;
                    }
                }
                let refused = guard::advise_all(&ranges[..n], Advice::Drop);
                for (at, &i) in slots.iter().enumerate().filter(|_| refused != 0) {
                    // Locked memory, most likely.
                    let start = slab.address(i as usize);
                    let of = ranges[..n].iter().position(|r| (r.start..r.start + r.len).contains(&start));
                    lost |= of.map_or(0, |k| refused >> k & 1) << at;
                }
            }
            let mut n = 0;
            let mut which = [0usize; guard::MOST];
            for (at, &i) in slots.iter().enumerate() {
                if lost >> at & 1 != 0 {
                    continue;
                }
                let slot = &slab.slots()[i as usize];
                let has = slot.guard.load(Ordering::Relaxed);
                let start = slab.address(i as usize);
                if has > b.guard {
                    let more = (has - b.guard) as usize * PAGE;
                    lost |=
                        u32::from(guard::advise(start + b.guard as usize * PAGE, more, Advice::Unguard).is_err()) << at;
                } else if has < b.guard {
                    ranges[n] = Range { start, len: b.guard as usize * PAGE };
                    which[n] = at;
                    n += 1;
                }
                slot.guard.store(b.guard, Ordering::Relaxed);
            }
            let refused = if n > 0 { guard::advise_all(&ranges[..n], Advice::Guard) } else { 0 };
            for (k, at) in which[..n].iter().enumerate() {
                lost |= (refused >> k & 1) << at;
            }
            if b.populate && slab.size() >= 2 * POPULATE + b.guard as usize * PAGE {
                for (range, &i) in ranges.iter_mut().zip(slots) {
                    *range = Range { start: slab.address(i as usize) + slab.size() - POPULATE, len: POPULATE };
                }
                // A page that cannot be had now is asked for again when it is touched.
                guard::advise_all(&ranges[..b.len], Advice::Populate);
            }
        }
        let mut inner = self.inner.lock();
        let c = &mut inner.classes[slab.class.load(Ordering::Relaxed) as usize];
        for (at, &i) in slots.iter().enumerate() {
            let slot = &slab.slots()[i as usize];
            if lost >> at & 1 != 0 {
                // SAFETY: ours alone, and nobody will use it again as a slot.
                unsafe { crate::mem::unmap(slab.address(i as usize) as *mut u8, slab.stride()) };
                slot.set(Word::new(State::Gone, 0, 0));
                c.gone += 1;
            } else {
                slot.set(Word::new(State::Clean, 0, 0));
                slab.clean().add(i as usize);
                c.clean += 1;
            }
        }
        self.busy.fetch_sub(b.len as u32, Ordering::Relaxed);
        b.len
    }

    /// Opens another slab. Error: errno.
    #[cold]
    fn grow(&self, inner: &mut Inner, class: usize) -> Result<(), i32> {
        const ENOMEM: i32 = linux_raw_sys::errno::ENOMEM as i32;
        if !inner.asked {
            inner.asked = true;
            self.limit.store(super::limits::pending_pages(), Ordering::Relaxed);
            if super::limits::counts_reservations() {
                self.off.store(true, Ordering::Relaxed);
            }
        }
        let n = self.opened.load(Ordering::Relaxed);
        if self.off.load(Ordering::Relaxed) || n == SLABS || super::limits::address_space_is_limited() {
            return Err(ENOMEM);
        }
        let c = &mut inner.classes[class];
        let slab = &self.slabs[n];
        let count = (c.total as usize).clamp(FIRST, MOST).min(SLAB_MAX / c.size);
        slab.open(class as u32, c.size, count).or_else(|_| slab.open(class as u32, c.size, FIRST.min(count)))?;
        if c.closed && !inner.guards {
            // SAFETY: a slot that nobody has yet.
            if unsafe { guard::advise(slab.base(), PAGE, Advice::Guard) }.is_err() {
                // A kernel before 6.13. The reservation stays; it costs nothing.
                self.off.store(true, Ordering::Relaxed);
                return Err(ENOMEM);
            }
            slab.slots()[0].guard.store(1, Ordering::Relaxed);
            inner.guards = true;
        }
        slab.next.store(c.slabs, Ordering::Relaxed);
        c.slabs = n as u32 + 1;
        c.total += slab.count() as u32;
        self.low.fetch_min(slab.base(), Ordering::Relaxed);
        self.high.fetch_max(slab.end(), Ordering::Relaxed);
        // Release: the record is complete. pairs: stack.slabs
        self.opened.store(n + 1, Ordering::Release);
        Ok(())
    }

    /// The owner unmaps exactly one whole slot. False: it does not.
    pub fn free(&self, start: usize, len: usize) -> bool {
        let Some((slab, i)) = self.find(start) else { return false };
        if slab.address(i) != start || len.next_multiple_of(PAGE) != slab.size() {
            return false;
        }
        let slot = &slab.slots()[i];
        loop {
            let mut inner = self.inner.lock();
            let word = slot.word();
            match word.state() {
                State::Used | State::Idle => {}
                State::Busy | State::Releasing => {
                    drop(inner);
                    yield_cpu();
                    continue;
                }
                _ => return false,
            }
            if !slot.change(word, Word::new(State::Dirty, self.now(), 0)) {
                continue;
            }
            if word.state() == State::Idle {
                self.pending.fetch_sub(word.pages(), Ordering::Relaxed);
            }
            let class = slab.class.load(Ordering::Relaxed) as usize;
            slab.dirty().add(i);
            inner.classes[class].in_use -= 1;
            inner.classes[class].dirty += 1;
            self.pending.fetch_add(slab.size() / PAGE, Ordering::Relaxed);
            drop(inner);
            self.relieve();
            return true;
        }
    }

    /// Whether more pages wait for their release than may.
    pub(super) fn is_full(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > self.limit.load(Ordering::Relaxed)
    }

    /// The guard that owners of this size want nowadays.
    pub(super) fn note_guard(&self, slab: &Slab, pages: u32) {
        self.inner.lock().classes[slab.class.load(Ordering::Relaxed) as usize].guard = pages;
    }

    /// A slot is ordinary memory from now on. The caller holds the lock and has changed the state.
    pub(super) fn count_gone(&self, inner: &mut Inner, slab: &Slab, was: Word, slot: usize) {
        let c = &mut inner.classes[slab.class.load(Ordering::Relaxed) as usize];
        c.gone += 1;
        match was.state() {
            State::Used | State::Idle => c.in_use -= 1,
            State::Clean if slab.clean().remove(slot) => c.clean -= 1,
            State::Dirty if slab.dirty().remove(slot) => {
                c.dirty -= 1;
                self.pending.fetch_sub(slab.size() / PAGE, Ordering::Relaxed);
            }
            _ => {}
        }
        if was.state() == State::Idle {
            self.pending.fetch_sub(was.pages(), Ordering::Relaxed);
        }
    }

    /// Hands out no slot any more.
    pub(super) fn turn_off(&self) {
        self.off.store(true, Ordering::Relaxed);
    }

    /// Waits until no other thread changes anything, and keeps it so.
    pub fn hold(&self) {
        self.sweep.hold_for_fork();
        loop {
            self.inner.hold_for_fork();
            if self.busy.load(Ordering::Relaxed) == 0 {
                return;
            }
            // SAFETY: it is ours, and no fork has begun.
            unsafe { self.inner.let_go_after_fork() };
            yield_cpu();
        }
    }

    /// Ends [`Stacks::hold`], in the parent and in the child.
    ///
    /// # Safety
    /// The caller holds, or is the only thread of a child that was forked meanwhile.
    pub unsafe fn let_go(&self) {
        // SAFETY: the caller's.
        unsafe {
            self.inner.let_go_after_fork();
            self.sweep.let_go_after_fork();
        }
    }
}
