//! Descriptors: what is known of each, and the threads parked on it.
//!
//! # Protocol
//! * A thread samples the descriptor's count of events, then tries its operation; on EAGAIN it calls
//!   [`Descriptors::wait`] with the sample: under the descriptor's lock, if the count has moved on, it tries again; else its
//!   node is linked and it parks.
//! * An event: under the lock, the count moves on, and every waiter whose interest the event touches is unlinked and claimed.
//!
//! No readiness is lost: the descriptor is registered before the lock is taken (registration reports present
//! readiness as an event). Data that arrives after the failed try raises an event, which comes either before the lock is
//! taken (the count has moved on since the sample, which was before the try) or after (the node is there).
//! A `poll` of several is the same: all counts are sampled, the kernel is asked, and if one has moved on when the nodes are
//! linked the kernel is asked again.
//!
//! A read that took less than it had room for, or nothing, has drained a stream: until the count moves on from what it was before that
//! read, there is nothing to try or to ask. What is noted of that is one word, so that it is never a count of one thread's read
//! with another's result.
//!
//! Rejected: a flag that an event sets when nobody waits. Two readers, or a reader and a poll, share it: an event that
//! served one of them left nothing for the other, which was between its EAGAIN and its wait.

use super::Reactor;
use crate::lock::SpinLock;
use crate::mem;
use crate::park::{Reason, Ticket};
use crate::sys::linux as l;
use crate::thread::Thread;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Something can be read (or accepted, or has failed).
pub const IN: u32 = 1;
/// Something can be written (or is connected, or has failed).
pub const OUT: u32 = 2;

/// Added to a count of events: see [`Descriptor::drained`].
const DRAINED: u64 = 1 << 32;

/// Descriptors beyond this number are left to the kernel.
pub const MAX: usize = 1 << 20;
/// Entries of one page.
const PAGE: usize = 4096 / size_of::<Descriptor>();

/// A thread parked on a descriptor; lives on that thread's stack between `wait` and `leave`.
pub struct Node {
    next: *mut Node,
    prev: *mut Node,
    interest: u32,
    thread: *mut Thread,
    ticket: Ticket,
    /// The descriptor it is linked to; -1 once unlinked. Changed under that descriptor's lock.
    at: core::sync::atomic::AtomicI32,
    /// The descriptor to use from now on: differs from the first one if that was closed meanwhile.
    pub fd: core::sync::atomic::AtomicI32,
}

impl Node {
    /// A node that is not linked.
    pub fn new(thread: *mut Thread, ticket: Ticket, interest: u32) -> Self {
        Self {
            next: core::ptr::null_mut(),
            prev: core::ptr::null_mut(),
            interest,
            thread,
            ticket,
            at: core::sync::atomic::AtomicI32::new(-1),
            fd: core::sync::atomic::AtomicI32::new(-1),
        }
    }
}

struct Waiters {
    head: *mut Node,
    /// Told apart from earlier descriptors of the same number.
    generation: u32,
    registered: bool,
}
// SAFETY: nodes are touched only under the lock, or by their owner when unlinked.
unsafe impl Send for Waiters {}

/// What is known of one descriptor number. All-zero is a valid "nothing known".
#[repr(align(64))]
pub struct Descriptor {
    waiters: SpinLock<Waiters>,
    /// The ABI layer's note of what kind of file this is; 0 = not known.
    pub kind: AtomicU8,
    /// The descriptor is a private duplicate kept alive for threads that waited when the program closed theirs.
    pub kept: AtomicBool,
    /// Cleared with the kind.
    pub flags: AtomicU8,
    /// Events so far, of the directions [`IN`] and [`OUT`].
    counts: [AtomicU32; 2],
    /// The last read took all that there was: [`DRAINED`] and `events(IN)` before it, in one word, so that what one thread notes
    /// is not taken for another's. 0: there may be more. Cleared when the descriptor is forgotten.
    drained: AtomicU64,
    /// Known to be a stream socket. Cleared with the kind.
    pub stream: AtomicBool,
    /// An end of stream, error or urgent data has been announced.
    ended: AtomicBool,
    /// Its events are watched by the reactor.
    watched: AtomicBool,
    /// The ABI layer's note of when it last asked about blocking; 0 = never.
    pub known: AtomicU32,
    /// The ABI layer's note of the thread whose name the descriptor stands for.
    pub names: AtomicU32,
    /// Who came last to wait; it may have left.
    last: AtomicPtr<Thread>,
}
const _: () = assert!(size_of::<Descriptor>() == crate::arch::LINE);

impl Descriptor {
    /// How many events there have been in the directions of `interest`. To be sampled before an operation is tried, and
    /// given to [`Descriptors::wait`].
    #[inline]
    pub fn events(&self, interest: u32) -> u32 {
        // Acquire: the try that follows is not earlier than the sample. pairs: fd.events
        let count = |k: usize| self.counts[k].load(Ordering::Acquire);
        match interest {
            IN => count(0),
            OUT => count(1),
            _ => count(0).wrapping_add(count(1)),
        }
    }

    /// What a read says of what is left; `seen` is `events(IN)` before it.
    #[inline]
    pub fn note_drained(&self, is_drained: bool, seen: u32) {
        self.drained.store(if is_drained { DRAINED + u64::from(seen) } else { 0 }, Ordering::Relaxed);
    }

    /// If a read would find nothing, unless there has been an event since: `events(IN)` before the last read, which drained it.
    #[inline]
    pub fn drained_at(&self) -> Option<u32> {
        let word = self.drained.load(Ordering::Relaxed);
        (word & DRAINED != 0 && self.is_watched_stream()).then_some(word as u32)
    }

    /// Whether this is a stream socket whose events are watched.
    #[inline]
    pub fn is_watched_stream(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
            && self.stream.load(Ordering::Relaxed)
            && !self.ended.load(Ordering::Relaxed)
    }
}

/// All descriptors of the process.
pub struct Descriptors {
    table: AtomicPtr<Descriptor>,
    len: AtomicUsize,
    /// A bit for each page of the table in which something was ever noted: a forked child looks at those only. (The others
    /// are mostly not there, and to read a million entries takes sixteen milliseconds.)
    used: [AtomicU64; MAX / PAGE / 64],
}

/// What [`Descriptors::wait`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// The node is linked: park.
    Linked,
    /// There was an event meanwhile: try again.
    Again,
    /// The reactor cannot watch this descriptor (errno).
    Cannot(i32),
}

impl Descriptors {
    /// No memory yet.
    pub const fn new() -> Self {
        Self {
            table: AtomicPtr::new(core::ptr::null_mut()),
            len: AtomicUsize::new(0),
            used: [const { AtomicU64::new(0) }; MAX / PAGE / 64],
        }
    }

    /// Reserves address space for all descriptors. Error: ENOMEM.
    pub fn reserve(&self) -> Result<(), i32> {
        if self.table.load(Ordering::Relaxed).is_null() {
            // The rest is not watched where address space is scarce.
            const FEW: usize = 1 << 16;
            let len = if crate::stack::address_space() == u64::MAX { MAX } else { FEW };
            // A zeroed Descriptor is valid: unlocked, no waiters, nothing known.
            self.table.store(mem::reserve(len * size_of::<Descriptor>())?.cast(), Ordering::Relaxed);
            self.len.store(len, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The addresses of all entries.
    pub fn addresses(&self) -> Range<usize> {
        let base = self.table.load(Ordering::Relaxed) as usize;
        base..base + self.len.load(Ordering::Relaxed) * size_of::<Descriptor>()
    }

    /// The entry of `fd`, if the number is in range and the table exists.
    #[inline]
    pub fn get(&self, fd: i32) -> Option<&Descriptor> {
        let base = self.table.load(Ordering::Relaxed);
        if fd as u32 as usize >= self.len.load(Ordering::Relaxed) {
            return None;
        }
        // SAFETY: in range of the reservation, which is never unmapped.
        Some(unsafe { &*base.add(fd as usize) })
    }

    /// Something is about to be noted of `fd`, whose entry exists: until it is forgotten its kind is not 0.
    #[inline]
    fn use_entry(&self, fd: i32) {
        let page = fd as usize / PAGE;
        let (word, bit) = (&self.used[page / 64], 1 << (page % 64));
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Notes what kind of file `fd` is.
    pub fn set_kind(&self, fd: i32, kind: u8) {
        if let Some(d) = self.get(fd) {
            self.use_entry(fd);
            d.kind.store(kind, Ordering::Relaxed);
        }
    }

    /// Links the node to `fd` unless an event came meanwhile.
    ///
    /// # Safety
    /// `node` is not linked, stays where it is, and [`leave`](Self::leave) is called before it goes away.
    pub unsafe fn wait(&self, reactor: &Reactor, fd: i32, node: *mut Node, seen: Option<u32>) -> Wait {
        let Some(d) = self.get(fd) else { return Wait::Cannot(linux_raw_sys::errno::EBADF as i32) };
        self.use_entry(fd);
        let mut w = d.waiters.lock();
        if !w.registered {
            // Under the lock: the event of the registration waits for us, then sets the flag or finds our node.
            w.generation = w.generation.wrapping_add(1);
            if let Err(e) = reactor.register(fd, fd as u64 | (w.generation as u64) << 32) {
                return Wait::Cannot(e);
            }
            w.registered = true;
            d.watched.store(true, Ordering::Relaxed);
            // Something is known of it: see `forget`.
            let _ = d.kind.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
        }
        // SAFETY: the caller's node, unlinked.
        unsafe {
            if seen.is_some_and(|s| s != d.events((*node).interest)) {
                return Wait::Again;
            }
            (*node).at.store(fd, Ordering::Relaxed);
            (*node).fd.store(fd, Ordering::Relaxed);
            (*node).prev = core::ptr::null_mut();
            (*node).next = w.head;
            if !w.head.is_null() {
                (*w.head).prev = node;
            }
            w.head = node;
            d.last.store((*node).thread, Ordering::Relaxed);
        }
        Wait::Linked
    }

    /// Unlinks the node if it is still linked.
    ///
    /// # Safety
    /// `node` is the caller's.
    pub unsafe fn leave(&self, node: *mut Node) {
        loop {
            // Acquire: if -1, the unlinker is done with the node. pairs: fd.unlink
            // SAFETY: the caller's node.
            let at = unsafe { (*node).at.load(Ordering::Acquire) };
            let Some(d) = self.get(at) else { return };
            let mut w = d.waiters.lock();
            // SAFETY: as above; a close may have moved it before we had the lock.
            unsafe {
                if (*node).at.load(Ordering::Relaxed) == at {
                    w.unlink(node);
                    (*node).at.store(-1, Ordering::Relaxed);
                    return;
                }
            }
        }
    }

    /// The thread that an event will probably make runnable, or null. It may have left, or ended: its block is there all the same.
    #[inline]
    pub fn expected(&self, data: u64) -> *mut Thread {
        self.get(data as u32 as i32).map_or(core::ptr::null_mut(), |d| d.last.load(Ordering::Relaxed))
    }

    /// Handles one event: calls `run` for each thread it makes runnable.
    pub fn event(&self, data: u64, events: u32, run: &mut dyn FnMut(*mut Thread)) {
        let (fd, generation) = (data as u32 as i32, (data >> 32) as u32);
        let Some(d) = self.get(fd) else { return };
        let both = if events & (l::EPOLLERR | l::EPOLLHUP) != 0 { IN | OUT } else { 0 };
        let input = if events & (l::EPOLLIN | l::EPOLLPRI | l::EPOLLRDHUP) != 0 { IN } else { 0 };
        let output = if events & l::EPOLLOUT != 0 { OUT } else { 0 };
        let ready = both | input | output;
        if events & (l::EPOLLERR | l::EPOLLHUP | l::EPOLLRDHUP | l::EPOLLPRI) != 0 {
            // Before anybody is woken: from now on a short read does not mean that there is nothing more to read.
            d.ended.store(true, Ordering::Relaxed);
        }
        let mut again = true;
        let mut first = true;
        while again {
            again = false;
            let mut some = [core::ptr::null_mut(); 16];
            let mut len = 0;
            {
                let mut w = d.waiters.lock();
                if w.generation != generation {
                    return;
                }
                if first {
                    // Release: whoever samples the count and then finds nothing to read will see that it moved on. Written
                    // under the lock only. pairs: fd.events
                    for (k, count) in d.counts.iter().enumerate() {
                        count.store(count.load(Ordering::Relaxed).wrapping_add(ready >> k & 1), Ordering::Release);
                    }
                    first = false;
                }
                let mut node = w.head;
                while !node.is_null() {
                    // SAFETY: linked nodes are valid under the lock; a claimed thread is made runnable after it.
                    unsafe {
                        let next = (*node).next;
                        if (*node).interest & ready != 0 {
                            if len == some.len() {
                                again = true;
                                break;
                            }
                            let (thread, ticket) = ((*node).thread, (*node).ticket);
                            w.unlink(node);
                            let claimed = (*thread).park.claim(ticket, Reason::Woken);
                            // Release: the last touch of the node. pairs: fd.unlink
                            (*node).at.store(-1, Ordering::Release);
                            if claimed {
                                some[len] = thread;
                                len += 1;
                            }
                        }
                        node = next;
                    }
                }
            }
            for &t in &some[..len] {
                run(t);
            }
        }
    }

    /// The program is about to close `fd` (or to put another file in its place): forgets what is known of it. Threads
    /// parked on it keep the open file, as they would in the kernel, through a private duplicate.
    pub fn forget(&self, reactor: &Reactor, fd: i32) {
        let Some(d) = self.get(fd) else { return };
        if d.kind.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut w = d.waiters.lock();
        d.kind.store(0, Ordering::Relaxed);
        d.flags.store(0, Ordering::Relaxed);
        d.drained.store(0, Ordering::Relaxed);
        d.watched.store(false, Ordering::Relaxed);
        d.stream.store(false, Ordering::Relaxed);
        d.ended.store(false, Ordering::Relaxed);
        d.known.store(0, Ordering::Relaxed);
        if !w.registered {
            return;
        }
        w.registered = false;
        reactor.unregister(fd);
        w.generation = w.generation.wrapping_add(1);
        if w.head.is_null() {
            return;
        }
        // SAFETY: makes a descriptor that only the waiters use.
        let Ok(copy) = (unsafe { super::high(sys!(l::__NR_fcntl, fd, l::F_DUPFD_CLOEXEC, 0)) }) else { return };
        let Some(new) = self.get(copy) else { return };
        self.use_entry(copy);
        let mut nw = new.waiters.lock();
        new.kept.store(true, Ordering::Relaxed);
        new.kind.store(1, Ordering::Relaxed);
        nw.generation = nw.generation.wrapping_add(1);
        nw.registered = reactor.register(copy, copy as u64 | (nw.generation as u64) << 32).is_ok();
        nw.head = w.head;
        w.head = core::ptr::null_mut();
        let mut node = nw.head;
        while !node.is_null() {
            // SAFETY: linked nodes are valid under the locks, both held.
            unsafe {
                (*node).fd.store(copy, Ordering::Relaxed);
                (*node).at.store(copy, Ordering::Relaxed);
                node = (*node).next;
            }
        }
    }

    /// A waiter is done with `fd`; if that is a kept duplicate without other waiters, closes it.
    pub fn done(&self, reactor: &Reactor, fd: i32) {
        let Some(d) = self.get(fd) else { return };
        if d.kept.load(Ordering::Relaxed) {
            let mut w = d.waiters.lock();
            if w.head.is_null() && d.kept.swap(false, Ordering::Relaxed) {
                reactor.unregister(fd);
                w.registered = false;
                d.kind.store(0, Ordering::Relaxed);
                // SAFETY: our own descriptor.
                unsafe { sys!(l::__NR_close, fd) };
            }
        }
    }

    /// All that something may be known of.
    fn in_use(&self) -> impl Iterator<Item = i32> {
        let words = self.used.iter().map(|word| word.load(Ordering::Relaxed)).enumerate();
        let pages = words.filter(|&(_, word)| word != 0).flat_map(|(at, word)| {
            (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| (64 * at + bit) * PAGE)
        });
        pages.flat_map(|first| first as i32..(first + PAGE) as i32)
    }

    /// Forgets what is known of all descriptors, after [`reset`](Self::reset): they are perhaps not those that we knew.
    pub fn forget_kinds(&self) {
        for d in self.in_use().filter_map(|fd| self.get(fd)) {
            d.kind.store(0, Ordering::Relaxed);
            d.flags.store(0, Ordering::Relaxed);
            d.stream.store(false, Ordering::Relaxed);
            d.ended.store(false, Ordering::Relaxed);
        }
    }

    /// Forgets all registrations and waiters, in a forked child; kinds stay known.
    ///
    /// # Safety
    /// The caller is the only thread.
    pub unsafe fn reset(&self) {
        for fd in self.in_use() {
            if let Some(d) = self.get(fd)
                && d.kind.load(Ordering::Relaxed) != 0
            {
                // SAFETY: the caller's.
                unsafe { d.waiters.force_unlock() };
                let mut w = d.waiters.lock();
                w.head = core::ptr::null_mut();
                w.registered = false;
                d.watched.store(false, Ordering::Relaxed);
                d.drained.store(0, Ordering::Relaxed);
                if d.kept.swap(false, Ordering::Relaxed) {
                    d.kind.store(0, Ordering::Relaxed);
                    // SAFETY: a duplicate of ours that no thread of this process waits on.
                    unsafe { sys!(l::__NR_close, fd) };
                }
            }
        }
    }
}

impl Default for Descriptors {
    fn default() -> Self {
        Self::new()
    }
}

impl Waiters {
    unsafe fn unlink(&mut self, node: *mut Node) {
        // SAFETY: the caller holds the lock of the list that `node` is in.
        unsafe {
            let (prev, next) = ((*node).prev, (*node).next);
            if prev.is_null() {
                self.head = next;
            } else {
                (*prev).next = next;
            }
            if !next.is_null() {
                (*next).prev = prev;
            }
        }
    }
}

#[cfg(test)]
mod tests;
