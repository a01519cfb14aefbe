//! The queue of a channel between processes, with its values in the arena. The protocol is [`Queue`]'s.
//!
//! # Safety
//! Who calls [`Places`] holds the queue's lock; which places hold values is the queue's to know.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use super::arena::{self, ArenaFull};
use super::queue::{Lost, Member, Places, Queue};
use super::vec::ArenaVec;
use super::wait::System;
use super::{ArenaArc, Shareable};
use crate::cancel::{Limit, WaitError};
use crate::channel::End;

/// The length is a half of the state.
pub const MOST: usize = 1 << 31;
/// Places that an unbounded channel begins with.
const FIRST: usize = 16;

// SAFETY: words.
unsafe impl Shareable for Member {}

/// Room for values.
struct Room {
    first: AtomicPtr<()>,
    /// A power of two, or 0.
    count: AtomicUsize,
}

impl Room {
    const fn none() -> Self {
        Self { first: AtomicPtr::new(null_mut()), count: AtomicUsize::new(0) }
    }

    fn layout<T>(count: usize) -> Result<std::alloc::Layout, ArenaFull> {
        std::alloc::Layout::array::<T>(count).map_err(|_| ArenaFull { bytes: usize::MAX })
    }

    fn make<T>(&self, count: usize) -> Result<(), ArenaFull> {
        let first = match Self::layout::<T>(count)? {
            layout if layout.size() == 0 => NonNull::<T>::dangling().cast(),
            layout => arena::allocate(layout)?,
        };
        self.first.store(first.as_ptr().cast(), Ordering::Relaxed);
        self.count.store(count, Ordering::Relaxed);
        Ok(())
    }

    fn at<T>(&self, number: u32) -> *mut MaybeUninit<T> {
        let mask = self.count.load(Ordering::Relaxed) - 1;
        self.first.load(Ordering::Relaxed).cast::<MaybeUninit<T>>().wrapping_add(number as usize & mask)
    }

    /// # Safety
    /// It was made for this type, and nobody uses it afterwards.
    unsafe fn free<T>(&self) {
        let count = self.count.swap(0, Ordering::Relaxed);
        if let Ok(layout) = Self::layout::<T>(count)
            && layout.size() != 0
            && let Some(first) = NonNull::new(self.first.load(Ordering::Relaxed).cast())
        {
            // SAFETY: the caller's.
            unsafe { arena::free(first, layout) };
        }
    }
}

/// Of an unbounded channel one of both is used, which is said by one word, so that a growth is done or is not.
pub(super) struct Rooms<T> {
    rooms: [Room; 2],
    used: AtomicU32,
    values: PhantomData<UnsafeCell<T>>,
}

impl<T> Rooms<T> {
    fn used(&self) -> &Room {
        &self.rooms[self.used.load(Ordering::Relaxed) as usize]
    }

    /// Makes the places twice as many. Under the lock.
    fn grow(&self, first: u32, len: u32) -> Result<(), ArenaFull> {
        let used = self.used.load(Ordering::Relaxed);
        let (old, new) = (&self.rooms[used as usize], &self.rooms[1 - used as usize]);
        let count = old.count.load(Ordering::Relaxed);
        if count >= MOST {
            return Err(ArenaFull { bytes: usize::MAX });
        }
        new.make::<T>(count * 2)?;
        for i in 0..len {
            let number = first.wrapping_add(i);
            // SAFETY: a value, and a place of its own for it. The old ones count no more after the next store.
            unsafe { new.at::<T>(number).copy_from_nonoverlapping(old.at(number), 1) };
        }
        // Release: the values come before, as in `Queue::set_state`.
        self.used.store(1 - used, Ordering::Release);
        // SAFETY: nobody uses the old places. (Who dies here leaves them allocated.)
        unsafe { old.free::<T>() };
        Ok(())
    }
}

impl<T: Shareable> Places<T> for Rooms<T> {
    fn make_room(&self, first: u32, len: u32) -> bool {
        (len as usize) < self.used().count.load(Ordering::Relaxed) || self.grow(first, len).is_ok()
    }

    #[inline]
    unsafe fn write(&self, number: u32, value: T) {
        // SAFETY: a free place, by the caller.
        unsafe { self.used().at::<T>(number).write(MaybeUninit::new(value)) };
    }

    #[inline]
    unsafe fn read(&self, number: u32) -> T {
        // SAFETY: a value, by the caller.
        let value = unsafe { self.used().at::<T>(number).read().assume_init() };
        value.arrived();
        value
    }
}

pub struct Ring<T: Shareable> {
    pub(super) queue: Queue<ArenaVec<Member>>,
    pub(super) rooms: Rooms<T>,
}

// SAFETY: words, lists in the arena, and values that may cross.
unsafe impl<T: Shareable> Shareable for Ring<T> {}
// SAFETY: values are reached under the lock, and go from thread to thread.
unsafe impl<T: Shareable> Sync for Ring<T> {}

impl<T: Shareable> Ring<T> {
    const FITS: () = arena::fits::<T>();

    /// With one sender and one receiver, both of this process. `limit`: most values, up to [`MOST`]; 0: a rendezvous.
    pub fn new(limit: Option<usize>) -> Result<ArenaArc<Self>, ArenaFull> {
        let () = Self::FITS;
        let mut members = ArenaVec::try_with_capacity(super::count() + 1)?;
        for _ in 0..=super::count() {
            members.try_push(Member::default())?;
        }
        let rooms = Rooms { rooms: [Room::none(), Room::none()], used: AtomicU32::new(0), values: PhantomData };
        rooms.rooms[0].make::<T>(limit.unwrap_or(FIRST).max(1).next_power_of_two())?;
        ArenaArc::try_new(Self { queue: Queue::new(&System, limit, members), rooms })
    }

    /// A handle that this process uses for the first time was another's.
    #[cold]
    pub fn adopt(&self, from: u32, end: End) {
        self.queue.adopt(&System, from, end);
    }

    /// A handle of this process is cloned.
    pub fn add(&self, end: End) {
        self.queue.add(&System, end);
    }

    /// A handle of this process is dropped.
    pub fn remove(&self, end: End) {
        self.queue.remove(&System, &self.rooms, end);
    }

    /// Sends if there is room: the value's number. Error: the value; whether the channel is closed.
    pub fn put(&self, value: T) -> Result<u32, (T, bool)> {
        self.queue.put(&System, &self.rooms, value)
    }

    /// Receives if a value is there. Error: whether the channel is closed.
    pub fn take(&self) -> Result<T, bool> {
        self.queue.take(&System, &self.rooms)
    }

    /// Sends: the value's number. Error: the value, and what the limit said; `None`: the channel is closed.
    pub fn send(&self, value: T, limit: &Limit<'_>) -> Result<u32, (T, Option<WaitError>)> {
        self.queue.send(&System, &self.rooms, value, limit)
    }

    /// Error: what the limit said; `None`: the channel is closed and empty.
    pub fn recv(&self, limit: &Limit<'_>) -> Result<T, Option<WaitError>> {
        self.queue.recv(&System, &self.rooms, limit)
    }

    /// Counts a thread that is to sleep in a select, unless it need not: then the answer is `None`; else the word that it waits
    /// for. `besides`: in how many arms it waits at the other end.
    pub fn enter(&self, end: End, besides: u32) -> Option<(&AtomicU32, u32)> {
        self.queue.enter(&System, &self.rooms, end, besides)
    }

    /// It sleeps no more. If it was woken and will do something else, another is.
    pub fn leave(&self, end: End) {
        self.queue.leave(&System, &self.rooms, end);
    }

    /// Nothing more is sent. True: it was open.
    pub fn close(&self) -> bool {
        self.queue.close(&System)
    }

    pub fn is_closed(&self) -> bool {
        self.queue.is_closed(&System)
    }

    /// The number of the value that is received next.
    pub fn next_number(&self) -> u32 {
        self.queue.next_number(&System)
    }

    /// Whether there is a handle to receive by.
    pub fn has_receivers(&self) -> bool {
        self.queue.has_receivers(&System)
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn limit(&self) -> Option<usize> {
        self.queue.limit()
    }

    pub fn lost(&self) -> Lost {
        self.queue.lost(&System)
    }
}

impl<T: Shareable> Drop for Ring<T> {
    fn drop(&mut self) {
        let (first, len) = self.queue.state();
        for i in 0..len {
            // SAFETY: a value that is in the queue, dropped once.
            drop(unsafe { self.rooms.read(first.wrapping_add(i)) });
        }
        // SAFETY: nobody uses them any more.
        unsafe { self.rooms.used().free::<T>() };
    }
}
