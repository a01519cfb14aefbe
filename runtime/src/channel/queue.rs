//! The queue of bounded and unbounded channels: slots, and two sides.
//!
//! Each side counts: `tail` what was sent, `head` what was received. A side's state (its index, what it last saw of the other
//! side's index, its block) is on lines of its own and belongs to one thread at a time: to the holder of the side's
//! lock, or, while there is one handle of that side, to the thread that has the handle. (Handles are not `Sync`, and only who
//! has one can clone it.) So a channel with one sender and one receiver has no locked instruction in its way, and with
//! several, each side costs one short lock, whose line brings the side's state along.
//!
//! A sender writes the slot, then stores `tail`; a receiver looks at `tail` only when it has received all that it saw, and the
//! other way round. The slots of a bounded channel are a ring; those of an unbounded one are blocks in a chain, of which
//! receivers leave the last empty one for the senders to use again.
//!
//! # Safety
//! `head <= tail <= head + limit` (in wrapping arithmetic). The slots from `head` to `tail` hold values and belong to the receiving
//! side; the others belong to the sending side. An index passes a slot to the other side: stored with Release after
//! the slot was used, loaded with Acquire before.

use std::mem::MaybeUninit;
use std::ptr::null_mut;

use super::cell::UnsafeCell;
#[cfg(loom)]
use super::lock::RawLock as SideLock; // loom's: the other's steps would multiply the interleavings
#[cfg(not(loom))]
use super::side::SideLock;
use super::wait::Bell;
use crate::cancel::{Limit, WaitError};
use crate::prim::{AtomicPtr, AtomicUsize, Ordering, fence, prefetch};
use crate::shard::CachePadded;

type Slot<T> = UnsafeCell<MaybeUninit<T>>;

/// Most slots of a block.
const MOST_SLOTS: usize = if cfg!(loom) { 1 } else { 512 };
/// About the bytes of a block.
const BLOCK: usize = 8192;

struct Block<T> {
    slots: Box<[Slot<T>]>,
    next: AtomicPtr<Block<T>>,
}

fn slots<T>(count: usize) -> Box<[Slot<T>]> {
    (0..count).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect()
}

impl<T> Block<T> {
    fn make(slots: Box<[Slot<T>]>) -> *mut Self {
        Box::into_raw(Box::new(Self { slots, next: AtomicPtr::new(null_mut()) }))
    }
}

/// What belongs to whoever has a side.
struct Own<T> {
    /// The other side's index when it was last looked at.
    seen: usize,
    block: *mut Block<T>,
    slots: *const Slot<T>,
}

struct Side<T> {
    index: AtomicUsize,
    lock: SideLock,
    own: UnsafeCell<Own<T>>,
}

impl<T> Side<T> {
    fn new(block: *mut Block<T>) -> Self {
        // SAFETY: a block just made.
        let slots = unsafe { (*block).slots.as_ptr() };
        Self {
            index: AtomicUsize::new(0),
            lock: SideLock::default(),
            own: UnsafeCell::new(Own { seen: 0, block, slots }),
        }
    }
}

const CLOSED: usize = 1;
const ONE: usize = 2;

pub struct Queue<T> {
    /// How many values it may hold.
    limit: usize,
    /// Slots of a block, or of the ring, less 1.
    mask: usize,
    /// An index with none of these bits begins a block; in a ring, which has one, none but 0 does.
    begins: usize,
    /// How many senders there are, times [`ONE`]; [`CLOSED`].
    senders: AtomicUsize,
    receivers: AtomicUsize,
    /// Values are there.
    pub not_empty: Bell,
    /// Slots are free.
    pub not_full: Bell,
    tail: CachePadded<Side<T>>,
    head: CachePadded<Side<T>>,
    spare: CachePadded<AtomicPtr<Block<T>>>,
}

// SAFETY: values go from thread to thread; see the module.
unsafe impl<T: Send> Send for Queue<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Queue<T> {}

crate::apart!(Queue<u64>: tail, head, spare, [limit, mask, begins, senders, receivers]);

impl<T> Queue<T> {
    /// With room for that many values, at least one, or for any number.
    pub fn new(limit: Option<usize>) -> Self {
        let per_block = (BLOCK / size_of::<T>().max(1)).clamp(MOST_SLOTS.min(8), MOST_SLOTS);
        // Of a power of two the largest not above, for a block; for a ring the smallest not below.
        let count = match limit {
            Some(limit) => limit.next_power_of_two(),
            None => 1 << per_block.ilog2(),
        };
        let first = Block::make(slots(count));
        let not_full = if limit.is_some() { Bell::new() } else { Bell::for_nobody() };
        Self {
            limit: limit.unwrap_or(usize::MAX / 2),
            mask: count - 1,
            begins: if limit.is_some() { usize::MAX } else { count - 1 },
            senders: AtomicUsize::new(ONE),
            receivers: AtomicUsize::new(ONE),
            not_empty: Bell::new(),
            not_full,
            tail: CachePadded::new(Side::new(first)),
            head: CachePadded::new(Side::new(first)),
            spare: CachePadded::new(AtomicPtr::new(null_mut())),
        }
    }

    pub fn limit(&self) -> Option<usize> {
        (self.begins == usize::MAX).then_some(self.limit)
    }

    pub fn len(&self) -> usize {
        // Acquire: the tail that the receiver had seen is visible too: at least the head. pairs: channel.head
        let head = self.head.index.load(Ordering::Acquire);
        self.tail.index.load(Ordering::Relaxed).wrapping_sub(head).min(self.limit)
    }

    pub fn is_closed(&self) -> bool {
        // Acquire: what was sent before is visible. pairs: channel.closed
        self.senders.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Whether a receiver would not wait.
    pub fn is_ready(&self) -> bool {
        self.len() != 0 || self.is_closed()
    }

    /// Whether a sender would not wait.
    pub fn has_room(&self) -> bool {
        self.len() < self.limit || self.is_closed()
    }

    /// Runs `f` with the side's state.
    ///
    /// # Safety
    /// The caller has a handle of that side, and no other thread uses the same handle. `f` does not panic.
    #[inline(always)]
    unsafe fn with<R>(side: &Side<T>, handles: &AtomicUsize, f: impl FnOnce(&mut Own<T>) -> R) -> R {
        // Acquire: what the others did before they left is visible. pairs: channel.handles
        let alone = handles.load(Ordering::Acquire) & !CLOSED == ONE;
        side.lock.with_unless(alone, || {
            // SAFETY: nobody else has a handle, and only we could make one; or we hold the lock.
            side.own.with_mut(|own| f(unsafe { &mut *own }))
        })
    }

    /// The slot of an index.
    fn slot<'a>(&self, own: &Own<T>, index: usize) -> &'a Slot<T> {
        // SAFETY: the mask keeps it within the block, which stays while its slots are used.
        unsafe { &*own.slots.add(index & self.mask) }
    }

    /// Puts a value behind the others if there is room.
    ///
    /// # Safety
    /// The caller uses the sending side, as in `with`.
    #[inline(always)]
    unsafe fn push(&self, own: &mut Own<T>, value: T) -> Result<(), T> {
        let index = self.tail.index.load(Ordering::Relaxed);
        if index.wrapping_sub(own.seen) >= self.limit {
            // Acquire: the slots were left before. pairs: channel.head
            own.seen = self.head.index.load(Ordering::Acquire);
            if index.wrapping_sub(own.seen) >= self.limit {
                return Err(value);
            }
            self.not_full.lighten(index);
        }
        // SAFETY: the caller's; there is room.
        unsafe { self.put(own, index, value) };
        Ok(())
    }

    /// # Safety
    /// The caller uses the sending side, and there is room at the index, its own.
    #[inline(always)]
    unsafe fn put(&self, own: &mut Own<T>, index: usize, value: T) {
        if index & self.begins == 0 && index != 0 {
            // SAFETY: the caller's.
            unsafe { self.add_block(own) };
        }
        // SAFETY: the slot is the sending side's.
        self.slot(own, index).with_mut(|slot| unsafe { (*slot).write(value) });
        // Release: the slot was written before. pairs: channel.tail
        self.tail.index.store(index.wrapping_add(1), Ordering::Release);
    }

    /// Sends if there is one sender and room that it knows of: what is quick. Error: the value.
    ///
    /// # Safety
    /// The caller has a sender.
    #[inline(always)]
    pub unsafe fn send_quickly(&self, value: T) -> Result<(), T> {
        // Acquire: as in `with`. pairs: channel.handles
        if self.senders.load(Ordering::Acquire) != ONE {
            return Err(value);
        }
        let index = self.tail.index.load(Ordering::Relaxed);
        self.tail.own.with_mut(|own| {
            // SAFETY: nobody else has a sender: the side is ours.
            let own = unsafe { &mut *own };
            if index.wrapping_sub(own.seen) >= self.limit {
                return Err(value);
            }
            // SAFETY: as above; there is room.
            unsafe { self.put(own, index, value) };
            Ok(())
        })?;
        self.not_empty.ring();
        Ok(())
    }

    /// Receives if there is one receiver, and a value that it knows of: what is quick.
    ///
    /// # Safety
    /// The caller has a receiver.
    #[inline(always)]
    pub unsafe fn recv_quickly(&self) -> Option<T> {
        // Acquire: as in `with`. pairs: channel.handles
        if self.receivers.load(Ordering::Acquire) != ONE {
            return None;
        }
        let index = self.head.index.load(Ordering::Relaxed);
        let value = self.head.own.with_mut(|own| {
            // SAFETY: nobody else has a receiver: the side is ours.
            let own = unsafe { &mut *own };
            // SAFETY: as above; a value is there.
            (index != own.seen).then(|| unsafe { self.get(own, index) })
        })?;
        self.not_full.ring();
        Some(value)
    }

    #[cold]
    unsafe fn add_block(&self, own: &mut Own<T>) {
        // Acquire: the receiver has left it. pairs: channel.spare
        let mut block = self.spare.swap(null_mut(), Ordering::Acquire);
        if block.is_null() {
            block = Block::make(slots(self.mask + 1));
        }
        // SAFETY: a block that nobody else uses, and the one that we leave, which receivers follow later.
        unsafe {
            (*block).next.store(null_mut(), Ordering::Relaxed);
            (*own.block).next.store(block, Ordering::Relaxed); // the tail's store publishes it
            own.slots = (*block).slots.as_ptr();
        }
        own.block = block;
    }

    /// Takes the first value.
    ///
    /// # Safety
    /// The caller uses the receiving side, as in `with`.
    #[inline(always)]
    unsafe fn pop(&self, own: &mut Own<T>) -> Option<T> {
        let index = self.head.index.load(Ordering::Relaxed);
        if index == own.seen {
            // Acquire: the slots were written before. pairs: channel.tail
            own.seen = self.tail.index.load(Ordering::Acquire);
            if index == own.seen {
                return None;
            }
            self.not_empty.lighten(index);
        }
        // SAFETY: the caller's; a value is there.
        Some(unsafe { self.get(own, index) })
    }

    /// # Safety
    /// The caller uses the receiving side, and a value is at the index, its own.
    #[inline(always)]
    unsafe fn get(&self, own: &mut Own<T>, index: usize) -> T {
        if index & self.begins == 0 && index != 0 {
            // SAFETY: the caller's; a value in the next block has been seen.
            unsafe { self.leave_block(own) };
        }
        self.fetch_ahead(own, index);
        // SAFETY: the slot holds a value, and is the receiving side's.
        let value = self.slot(own, index).with(|slot| unsafe { (*slot).assume_init_read() });
        // Release: the slot was left before. pairs: channel.head
        self.head.index.store(index.wrapping_add(1), Ordering::Release);
        value
    }

    /// Asks for the lines of a value that will be received soon, as they come from another CPU: where values fill lines, receiving
    /// is waiting for those.
    #[inline(always)]
    fn fetch_ahead(&self, own: &Own<T>, index: usize) {
        // In bytes. On an Intel Xeon 64-byte values take 24 ns each without, 14 at 1024, 13 at 2560.
        const AHEAD: usize = 2560;
        const LINE: usize = 64;
        if !(32..=512).contains(&size_of::<T>()) {
            return;
        }
        let ahead = AHEAD / size_of::<T>();
        if own.seen.wrapping_sub(index) > ahead {
            let slot: *const Slot<T> = self.slot(own, index.wrapping_add(ahead));
            for line in 0..size_of::<T>().div_ceil(LINE) {
                prefetch(slot.wrapping_byte_add(line * LINE));
            }
        }
    }

    #[cold]
    unsafe fn leave_block(&self, own: &mut Own<T>) {
        let old = own.block;
        // SAFETY: blocks of the chain; nobody else uses the one that we leave.
        unsafe {
            own.block = (*old).next.load(Ordering::Relaxed);
            own.slots = (*own.block).slots.as_ptr();
            // Release: we have left it. pairs: channel.spare
            if self.spare.compare_exchange(null_mut(), old, Ordering::Release, Ordering::Relaxed).is_err() {
                drop(Box::from_raw(old));
            }
        }
    }

    /// Sends if there is room.
    ///
    /// # Safety
    /// The caller has a sender.
    #[inline]
    pub unsafe fn try_send(&self, value: T) -> Result<(), (T, bool)> {
        // SAFETY: the caller's.
        unsafe { self.send_now(value) }
    }

    /// `try_send`, in its caller.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn send_now(&self, value: T) -> Result<(), (T, bool)> {
        if self.senders.load(Ordering::Relaxed) & CLOSED != 0 {
            return Err((value, true));
        }
        // SAFETY: the caller's.
        let result = unsafe { Self::with(&self.tail, &self.senders, |own| self.push(own, value)) };
        match result {
            Ok(()) => {
                self.not_empty.ring();
                Ok(())
            }
            Err(value) => Err((value, false)),
        }
    }

    /// Sends, waiting for room until the limit. Error: the value, and which it was; `None`: the channel is closed.
    ///
    /// # Safety
    /// The caller has a sender.
    #[inline(never)]
    pub unsafe fn send(&self, value: T, limit: &Limit<'_>) -> Result<(), (T, Option<WaitError>)> {
        // SAFETY: the caller's.
        match unsafe { self.send_now(value) } {
            // SAFETY: the caller's.
            Err((value, false)) => unsafe { self.send_slowly(value, limit) },
            Err((value, true)) => Err((value, None)),
            Ok(()) => Ok(()),
        }
    }

    #[cold]
    unsafe fn send_slowly(&self, value: T, limit: &Limit<'_>) -> Result<(), (T, Option<WaitError>)> {
        let mut left = Some(value);
        let attempt = || {
            if !self.has_room() {
                return None;
            }
            let value = left.take()?;
            // SAFETY: the caller's.
            match unsafe { self.try_send(value) } {
                Err((value, false)) => {
                    left = Some(value);
                    None
                }
                other => Some(other),
            }
        };
        let result = self.not_full.wait(self.tail.index.load(Ordering::Relaxed), limit, attempt);
        match (result, left) {
            (Ok(result), _) => result.map_err(|(value, _)| (value, None)),
            (Err(why), Some(value)) => Err((value, Some(why))),
            (Err(_), None) => unreachable!("a value is sent or kept"),
        }
    }

    /// Receives if a value is there. Error: none is; whether the channel is closed.
    ///
    /// # Safety
    /// The caller has a receiver.
    #[inline]
    pub unsafe fn try_recv(&self) -> Result<T, bool> {
        // SAFETY: the caller's.
        match unsafe { self.recv_now() } {
            Some(value) => Ok(value),
            None if !self.is_closed() => Err(false),
            // What was sent before it was closed is there now.
            // SAFETY: the caller's.
            None => unsafe { self.recv_now() }.ok_or(true),
        }
    }

    /// Receives if a value is there, in its caller.
    ///
    /// # Safety
    /// The caller has a receiver.
    #[inline(always)]
    unsafe fn recv_now(&self) -> Option<T> {
        // SAFETY: the caller's.
        let value = unsafe { Self::with(&self.head, &self.receivers, |own| self.pop(own)) }?;
        self.not_full.ring();
        Some(value)
    }

    /// Receives up to so many values that are there.
    ///
    /// # Safety
    /// The caller has a receiver.
    pub unsafe fn take(&self, into: &mut Vec<T>, most: usize) -> usize {
        // Room before the side is ours: an allocation may panic.
        into.reserve(most.min(self.len()));
        let room = most.min(into.capacity() - into.len());
        // SAFETY: the caller's.
        let taken = unsafe {
            Self::with(&self.head, &self.receivers, |own| {
                let mut taken = 0;
                while taken < room {
                    let Some(value) = self.pop(own) else { break };
                    into.push(value); // there is room
                    taken += 1;
                }
                taken
            })
        };
        for _ in 0..taken {
            self.not_full.ring();
        }
        taken
    }

    /// Receives, waiting for a value until the limit. Error: which it was; `None`: the channel is closed and empty.
    ///
    /// # Safety
    /// The caller has a receiver.
    #[inline(never)]
    pub unsafe fn recv(&self, limit: &Limit<'_>) -> Result<T, Option<WaitError>> {
        // SAFETY: the caller's.
        match unsafe { self.recv_now() } {
            Some(value) => Ok(value),
            // SAFETY: the caller's.
            None => unsafe { self.recv_slowly(limit) },
        }
    }

    #[cold]
    unsafe fn recv_slowly(&self, limit: &Limit<'_>) -> Result<T, Option<WaitError>> {
        if self.is_closed() {
            // What was sent before is there now.
            // SAFETY: the caller's.
            return unsafe { self.recv_now() }.ok_or(None);
        }
        let attempt = || {
            if !self.is_ready() {
                return None;
            }
            // SAFETY: the caller's.
            match unsafe { self.try_recv() } {
                Err(false) => None,
                other => Some(other),
            }
        };
        self.not_empty.wait(self.head.index.load(Ordering::Relaxed), limit, attempt).map_err(Some)?.map_err(|_| None)
    }

    /// No more is sent. True: it was open.
    pub fn close(&self) -> bool {
        // Release: what was sent before is found by who sees it. pairs: channel.closed
        let was_open = self.senders.fetch_or(CLOSED, Ordering::Release) & CLOSED == 0;
        if was_open {
            self.not_empty.ring_all();
            self.not_full.ring_all();
        }
        was_open
    }

    pub fn add_sender(&self) {
        self.senders.fetch_add(ONE, Ordering::Relaxed); // the caller has one
    }

    pub fn add_receiver(&self) {
        self.receivers.fetch_add(ONE, Ordering::Relaxed); // the caller has one
    }

    /// # Safety
    /// The caller's handle is not used afterwards.
    pub unsafe fn remove_sender(&self) {
        // Release: what we did is visible to who is alone then, or closes. pairs: channel.handles
        if self.senders.fetch_sub(ONE, Ordering::Release) & !CLOSED == ONE {
            // Acquire: what the others sent. pairs: channel.handles
            fence(Ordering::Acquire);
            self.close();
        }
    }

    /// # Safety
    /// The caller's handle is not used afterwards.
    pub unsafe fn remove_receiver(&self) {
        // Release: as in `remove_sender`. pairs: channel.handles
        if self.receivers.fetch_sub(ONE, Ordering::Release) == ONE {
            // Acquire: where the others left off. pairs: channel.handles
            fence(Ordering::Acquire);
            self.close();
            // Nobody can receive what is there. What is being sent just now stays until the last sender goes.
            // SAFETY: the receiving side is ours: there is no other handle, and none can be made.
            while let Some(value) = self.head.own.with_mut(|own| unsafe { self.pop(&mut *own) }) {
                drop(value);
            }
        }
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        /// Goes on with the next value when dropping one has panicked.
        struct Rest<'a, T>(&'a Queue<T>);
        impl<T> Drop for Rest<'_, T> {
            fn drop(&mut self) {
                let queue = self.0;
                // SAFETY: the queue is its dropper's.
                while let Some(value) = queue.head.own.with_mut(|own| unsafe { queue.pop(&mut *own) }) {
                    let rest = Rest(queue);
                    drop(value);
                    std::mem::forget(rest);
                }
            }
        }
        /// Frees the blocks when all values are out, also after such a panic.
        struct Blocks<'a, T>(&'a Queue<T>);
        impl<T> Drop for Blocks<'_, T> {
            fn drop(&mut self) {
                // SAFETY: the queue is its dropper's, and so are the spare block and those of the chain.
                unsafe {
                    let spare = self.0.spare.load(Ordering::Relaxed);
                    if !spare.is_null() {
                        drop(Box::from_raw(spare));
                    }
                    let mut block = self.0.head.own.with(|own| (*own).block);
                    while !block.is_null() {
                        let owned = Box::from_raw(block);
                        block = owned.next.load(Ordering::Relaxed);
                    }
                }
            }
        }
        let blocks = Blocks(self);
        drop(Rest(self));
        drop(blocks);
    }
}
