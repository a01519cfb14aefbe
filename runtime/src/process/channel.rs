//! A bounded channel between the threads of all processes.
//!
//! A ring of values under a lock that survives its holder. What is in the ring is told by one number, first place and
//! length together, that is stored once: a process that dies in the middle of sending has either sent the value or not, and
//! one that dies in the middle of receiving has taken it or has left it.

use std::error::Error;
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::arena::ArenaFull;
use super::vec::ArenaVec;
use super::wait::{self, System};
use super::word::Word;
use super::{ArenaArc, Shareable};
use crate::cancel::{Limit, WaitError};
use crate::channel::{RecvError, RecvUntilError, SendError, SendUntilError, TryRecvError, TrySendError};

/// Why there is no channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChannelError {
    /// Its capacity is 0, or more than 2^31.
    Capacity(usize),
    /// The arena has no room for it.
    Full(ArenaFull),
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capacity(n) => write!(f, "a channel for {n} values: it must be 1 to 2^31"),
            Self::Full(full) => full.fmt(f),
        }
    }
}

impl Error for ChannelError {}

struct Ring<T: Shareable> {
    lock: Word,
    /// Change when a value was put in, and taken out; and when the channel is closed.
    put: AtomicU32,
    taken: AtomicU32,
    closed: AtomicU32,
    /// Threads that sleep for either; may be too many when processes have died.
    receivers: AtomicU32,
    senders: AtomicU32,
    abandoned: AtomicU32,
    /// The first value's place in the high half, how many there are in the low one.
    state: AtomicU64,
    values: ArenaVec<Cell<T>>,
}

#[repr(transparent)]
struct Cell<T>(std::cell::UnsafeCell<MaybeUninit<T>>);
// SAFETY: bytes, or a value that may cross.
unsafe impl<T: Shareable> Shareable for Cell<T> {}
// SAFETY: reached under the lock only.
unsafe impl<T: Send> Sync for Cell<T> {}
// SAFETY: its value may be sent.
unsafe impl<T: Send> Send for Cell<T> {}

// SAFETY: words, and a list in the arena.
unsafe impl<T: Shareable> Shareable for Ring<T> {}

/// A channel for a bounded number of values, for any number of senders and receivers in all processes. It is a handle:
/// clones are the same channel.
///
/// A process that dies in the middle of `send` has sent the value or has not, and one that dies in `recv` has taken it or
/// has left it; the channel works on, and [`Channel::abandoned`] counts such deaths. Values that a process had received are lost with it.
///
/// It is closed by [`Channel::close`] only: whether a dead process had handles is not known, so their number decides
/// nothing. A thread that waits for values from a process that may die should close the channel, or let it be closed by
/// whoever joins that process's task, or wait with [`Channel::recv_until`].
///
/// ```
/// use heddle::process::Channel;
///
/// let numbers = Channel::new(4);
/// let sum = heddle::task(|numbers: Channel<u64>| { let mut sum = 0; while let Ok(n) = numbers.recv() { sum += n } sum }, numbers.clone());
/// (1..=10).for_each(|n| numbers.send(n).unwrap());
/// numbers.close();
/// assert_eq!(sum.join()?, 55);
/// # Ok::<(), heddle::process::TaskError>(())
/// ```
pub struct Channel<T: Shareable> {
    ring: ArenaArc<Ring<T>>,
}

// SAFETY: nothing but its handle.
unsafe impl<T: Shareable> Shareable for Channel<T> {}

impl<T: Shareable> Clone for Channel<T> {
    fn clone(&self) -> Self {
        Self { ring: self.ring.clone() }
    }
}

impl<T: Shareable> fmt::Debug for Channel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("len", &self.len()).field("capacity", &self.capacity()).finish()
    }
}

struct Guard<'a, T: Shareable>(&'a Ring<T>);

impl<T: Shareable> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.0.lock.unlock(&System);
    }
}

impl<T: Shareable> Ring<T> {
    fn lock(&self) -> Guard<'_, T> {
        if self.lock.lock(&System, &Limit::NEVER) == Ok(true) {
            self.abandoned.fetch_add(1, Ordering::Relaxed);
        }
        Guard(self)
    }

    fn state(&self) -> (usize, usize) {
        let state = self.state.load(Ordering::Relaxed);
        ((state >> 32) as usize, (state & 0xffff_ffff) as usize)
    }

    fn set_state(&self, first: usize, len: usize) {
        // Release: the value comes before the number that says it is there, should we die between the two: who takes the
        // lock then has acquired the death, and with it both. (For others the lock orders them.)
        self.state.store((first as u64) << 32 | len as u64, Ordering::Release);
    }

    fn wake(&self, sleepers: &AtomicU32, word: &AtomicU32, count: i32) {
        if sleepers.load(Ordering::Relaxed) != 0 {
            wait::wake(word, count);
        }
    }
}

impl<T: Shareable> Drop for Ring<T> {
    fn drop(&mut self) {
        let (first, len) = self.state();
        for i in 0..len {
            let cell = &self.values[(first + i) % self.values.len()];
            // SAFETY: a value that is in the ring, dropped once.
            unsafe { (*cell.0.get()).assume_init_drop() };
        }
    }
}

impl<T: Shareable> Channel<T> {
    /// A channel for so many values.
    ///
    /// # Panics
    /// If the capacity is 0 or more than 2^31, or the arena is full; [`Channel::try_new`] answers an error instead.
    pub fn new(capacity: usize) -> Self {
        Self::try_new(capacity).unwrap_or_else(|why| panic!("{why}"))
    }

    /// A channel for so many values, 1 to 2^31.
    pub fn try_new(capacity: usize) -> Result<Self, ChannelError> {
        if !(1..=1 << 31).contains(&capacity) {
            return Err(ChannelError::Capacity(capacity));
        }
        let mut values = ArenaVec::try_with_capacity(capacity).map_err(ChannelError::Full)?;
        for _ in 0..capacity {
            values.try_push(Cell(std::cell::UnsafeCell::new(MaybeUninit::uninit()))).map_err(ChannelError::Full)?;
        }
        let ring = Ring {
            lock: Word::new(),
            put: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            closed: AtomicU32::new(0),
            receivers: AtomicU32::new(0),
            senders: AtomicU32::new(0),
            abandoned: AtomicU32::new(0),
            state: AtomicU64::new(0),
            values,
        };
        Ok(Self { ring: ArenaArc::try_new(ring).map_err(ChannelError::Full)? })
    }

    /// Sends a value if there is room.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.put(value, false).map_err(|(why, _)| why)
    }

    fn put(&self, value: T, sleep: bool) -> Result<(), (TrySendError<T>, u32)> {
        let ring = &*self.ring;
        let guard = ring.lock();
        let (first, len) = ring.state();
        if ring.closed.load(Ordering::Relaxed) != 0 {
            return Err((TrySendError::Disconnected(value), 0));
        }
        if len == ring.values.len() {
            ring.senders.fetch_add(u32::from(sleep), Ordering::Relaxed);
            return Err((TrySendError::Full(value), ring.taken.load(Ordering::Relaxed)));
        }
        let cell = &ring.values[(first + len) % ring.values.len()];
        // SAFETY: a free place, under the lock.
        unsafe { (*cell.0.get()).write(value) };
        ring.set_state(first, len + 1);
        ring.put.fetch_add(1, Ordering::Relaxed); // under the lock, as who reads it
        drop(guard);
        ring.wake(&ring.receivers, &ring.put, 1);
        Ok(())
    }

    /// Sends a value; waits while there is no room.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.send_within(value, &Limit::NEVER).map_err(|why| SendError(why.into_inner()))
    }

    /// Sends a value; waits for room until the limit: a time, a token, or both.
    pub fn send_until<'l>(&self, value: T, limit: impl Into<Limit<'l>>) -> Result<(), SendUntilError<T>> {
        self.send_within(value, &limit.into())
    }

    fn send_within(&self, mut value: T, limit: &Limit<'_>) -> Result<(), SendUntilError<T>> {
        let mut result = Ok(());
        loop {
            let deaths = wait::deaths();
            match self.put(value, result.is_ok()) {
                Ok(()) => return Ok(()),
                Err((TrySendError::Disconnected(back), _)) => return Err(SendUntilError::Disconnected(back)),
                Err((TrySendError::Full(back), taken)) => {
                    match result {
                        Err(WaitError::TimedOut) => return Err(SendUntilError::TimedOut(back)),
                        Err(WaitError::Cancelled) => return Err(SendUntilError::Cancelled(back)),
                        Ok(()) => {}
                    }
                    value = back;
                    result = wait::wait(&self.ring.taken, taken, deaths, limit);
                    self.ring.senders.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Takes the first value if there is one.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.take(false).map_err(|(why, _)| why)
    }

    fn take(&self, sleep: bool) -> Result<T, (TryRecvError, u32)> {
        let ring = &*self.ring;
        let guard = ring.lock();
        let (first, len) = ring.state();
        if len == 0 {
            if ring.closed.load(Ordering::Relaxed) != 0 {
                return Err((TryRecvError::Disconnected, 0));
            }
            ring.receivers.fetch_add(u32::from(sleep), Ordering::Relaxed);
            return Err((TryRecvError::Empty, ring.put.load(Ordering::Relaxed)));
        }
        // SAFETY: a value, under the lock; it is not in the ring after this.
        let value = unsafe { (*ring.values[first].0.get()).assume_init_read() };
        ring.set_state((first + 1) % ring.values.len(), len - 1);
        ring.taken.fetch_add(1, Ordering::Relaxed); // under the lock, as who reads it
        drop(guard);
        ring.wake(&ring.senders, &ring.taken, 1);
        Ok(value)
    }

    /// Takes the first value; waits while there is none. Values that were sent before the channel was closed are received.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.recv_within(&Limit::NEVER).map_err(|_| RecvError)
    }

    /// Takes the first value; waits for one until the limit: a time, a token, or both.
    pub fn recv_until<'l>(&self, limit: impl Into<Limit<'l>>) -> Result<T, RecvUntilError> {
        self.recv_within(&limit.into())
    }

    fn recv_within(&self, limit: &Limit<'_>) -> Result<T, RecvUntilError> {
        let mut result = Ok(());
        loop {
            let deaths = wait::deaths();
            match self.take(result.is_ok()) {
                Ok(value) => return Ok(value),
                Err((TryRecvError::Disconnected, _)) => return Err(RecvUntilError::Disconnected),
                Err((TryRecvError::Empty, put)) => {
                    match result {
                        Err(WaitError::TimedOut) => return Err(RecvUntilError::TimedOut),
                        Err(WaitError::Cancelled) => return Err(RecvUntilError::Cancelled),
                        Ok(()) => {}
                    }
                    result = wait::wait(&self.ring.put, put, deaths, limit);
                    self.ring.receivers.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// No more values are sent; those that were are still received. Wakes all who wait. False: it was closed already.
    pub fn close(&self) -> bool {
        let ring = &*self.ring;
        let guard = ring.lock();
        let was_closed = ring.closed.swap(1, Ordering::Relaxed) != 0;
        ring.put.fetch_add(1, Ordering::Relaxed); // under the lock, as who reads them
        ring.taken.fetch_add(1, Ordering::Relaxed);
        drop(guard);
        wait::wake(&ring.put, i32::MAX);
        wait::wake(&ring.taken, i32::MAX);
        !was_closed
    }

    /// Whether it has been closed.
    pub fn is_closed(&self) -> bool {
        self.ring.closed.load(Ordering::Relaxed) != 0
    }

    /// How many values are in it.
    pub fn len(&self) -> usize {
        self.ring.state().1
    }

    /// Whether there is no value in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// For how many values it has room.
    pub fn capacity(&self) -> usize {
        self.ring.values.len()
    }

    /// How many processes have died in the middle of `send`, `recv` or `close`. Each has lost at most one value: what it
    /// was sending, if that is not in the channel, or what it had just taken.
    pub fn abandoned(&self) -> usize {
        self.ring.abandoned.load(Ordering::Relaxed) as usize
    }
}
