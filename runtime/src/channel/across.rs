//! Channels whose other end may be in another process.
//!
//! Their handles are [`Shareable`]: in process mode ([`crate::process`]) they can be given to tasks, sent through other
//! channels, and put into the arena. In user and kernel mode, where tasks are threads, they are channels like all others.
//! [`Sender`] and [`Receiver`] are those of [`channel`](super), with the same operations, limits and
//! [`select!`](super::select!), which takes both kinds in one call.
//!
//! ```
//! use heddle::channel::across::{Receiver, bounded};
//!
//! let (numbers, numbers_in) = bounded(4);
//! let sum = heddle::task(|numbers: Receiver<u64>| numbers.iter().sum::<u64>(), numbers_in);
//! (1..=10).for_each(|n| numbers.send(n).unwrap());
//! drop(numbers); // the last sender: the iteration over there ends
//! assert_eq!(sum.join()?, 55);
//! # Ok::<(), heddle::process::TaskError>(())
//! ```
//!
//! # Deaths
//! When a process dies, by whatever means and wherever it is at that moment, the channel works on.
//! - Its handles are gone. If they were the last senders, those that receive get what was sent and then the end; if they were the last
//!   receivers, senders learn that the channel is closed.
//! - A value that one of its threads was sending has been sent or has not: if not, it is lost, and counted.
//! - A value that one of its threads was receiving is still in the channel unless `recv` had it: what a process has
//!   received goes with it.
//!
//! [`Sender::lost`](super::Sender::lost) and [`Receiver::lost`](super::Receiver::lost) tell what was lost so far.
//!
//! A handle belongs to the process that used it last. One that was given away by a process that dies, and that nobody has used since, is
//! taken for gone until somebody uses it. What only handles of the dead kept alive is not freed.
//!
//! # Price
//! In process mode each operation takes a lock that all share, and a user thread that has to wait takes a kernel thread
//! along. Channels between the threads of one process are much quicker ([`bounded`](super::bounded)).

use std::cell::Cell;
use std::error::Error;
use std::fmt;
use std::ptr;

use super::kind::{End, Entered, Kind, Local};
use super::wait::Node;
use crate::cancel::{Limit, WaitError};
use crate::process::{self, ArenaArc, ArenaFull, Ring, Shareable};

pub use crate::process::Lost;

/// The end of a channel between processes that values are put into.
pub type Sender<T> = super::Sender<T, Crossing<T>>;
/// The end of a channel between processes that values are taken out of.
pub type Receiver<T> = super::Receiver<T, Crossing<T>>;

/// Why there is no channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChannelError {
    /// Its capacity is more than 2^31.
    Capacity(usize),
    /// The arena has no room for it.
    Full(ArenaFull),
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capacity(n) => write!(f, "a channel between processes has room for up to 2^31 values, not {n}"),
            Self::Full(full) => full.fmt(f),
        }
    }
}

impl Error for ChannelError {}

/// A channel that crosses: in the arena in process mode, else in this process's memory.
pub struct Crossing<T: Shareable>(Inner<T>);

enum Inner<T: Shareable> {
    Here(Local<T>),
    Arena(ArenaArc<Ring<T>>, Owner),
}

/// The process that used the handle last.
struct Owner(Cell<u32>);

// SAFETY: in the arena; or there is one process only: who makes a channel here makes the arena this process's own, after which it does not
// start others.
unsafe impl<T: Shareable> Shareable for Sender<T> {}
// SAFETY: as above.
unsafe impl<T: Shareable> Shareable for Receiver<T> {}

/// A channel with room for so many values, up to 2^31; with none it is a [`rendezvous`].
///
/// # Panics
/// With another capacity, or if the arena is full; [`try_bounded`] answers an error instead.
pub fn bounded<T: Shareable>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    try_bounded(capacity).unwrap_or_else(|why| panic!("{why}"))
}

/// A channel with room for so many values, up to 2^31; with none it is a [`rendezvous`].
pub fn try_bounded<T: Shareable>(capacity: usize) -> Result<(Sender<T>, Receiver<T>), ChannelError> {
    check(Some(capacity))?;
    make(Some(capacity))
}

/// A channel without room: a send ends when a receiver, in whatever process, has taken the value.
///
/// If the receiver's process dies before it has the value, it was not taken: another receiver gets it, or, if there is none, the sender has
/// it back with the error that says so. `try_send` succeeds if a receiver waits that takes the value when it has woken up, for which it
/// waits. `try_recv` finds a sender that waits in a `send`, but not one in a `select!`.
///
/// ```
/// use heddle::channel::across::{Receiver, rendezvous};
///
/// let (numbers, numbers_in) = rendezvous();
/// assert!(numbers.try_send(1).is_err()); // nobody waits for it
/// let task = heddle::task(|numbers: Receiver<u64>| numbers.recv().unwrap(), numbers_in);
/// numbers.send(2).unwrap(); // it has been received
/// assert_eq!(task.join()?, 2);
/// # Ok::<(), heddle::process::TaskError>(())
/// ```
///
/// # Panics
/// If the arena is full; [`try_bounded`] with a capacity of 0 answers an error instead.
pub fn rendezvous<T: Shareable>() -> (Sender<T>, Receiver<T>) {
    bounded(0)
}

fn check(capacity: Option<usize>) -> Result<(), ChannelError> {
    match capacity {
        Some(n) if n > process::MOST_VALUES => Err(ChannelError::Capacity(n)),
        _ => Ok(()),
    }
}

/// A channel with room for as many values as the arena has; while that is full, senders wait.
///
/// # Panics
/// If the arena is full; [`try_unbounded`] answers an error instead.
pub fn unbounded<T: Shareable>() -> (Sender<T>, Receiver<T>) {
    try_unbounded().unwrap_or_else(|why| panic!("{why}"))
}

/// A channel with room for as many values as the arena has; while that is full, senders wait.
pub fn try_unbounded<T: Shareable>() -> Result<(Sender<T>, Receiver<T>), ChannelError> {
    make(None)
}

/// As [`try_bounded`] or [`try_unbounded`], in the arena in any mode.
pub(crate) fn in_arena<T: Shareable>(capacity: Option<usize>) -> Result<(Sender<T>, Receiver<T>), ChannelError> {
    check(capacity)?;
    crate::start::mode();
    process::keep_or_own();
    let ring = Ring::new(capacity).map_err(ChannelError::Full)?;
    let end = |ring| Crossing(Inner::Arena(ring, Owner(Cell::new(process::identity()))));
    Ok(super::handles(end(ring.clone()), end(ring)))
}

fn make<T: Shareable>(capacity: Option<usize>) -> Result<(Sender<T>, Receiver<T>), ChannelError> {
    crate::start::mode();
    if process::keep_or_own() {
        return in_arena(capacity);
    }
    let channel = if capacity == Some(0) { Local::meet() } else { Local::queue(capacity) };
    Ok(super::handles(Crossing(Inner::Here(channel.uncounted())), Crossing(Inner::Here(channel))))
}

impl<T: Shareable> Sender<T> {
    /// What the channel has lost with processes that died.
    pub fn lost(&self) -> Lost {
        self.kind.lost(End::Sender)
    }
}

// For channels made by `in_arena`.
impl<T: Shareable> Sender<T> {
    /// Sends: the value's number, in the order in which they are received.
    pub(crate) fn send_numbered(&self, value: T, limit: &Limit<'_>) -> Result<u32, (T, Option<WaitError>)> {
        let (ring, owner) = self.kind.in_arena();
        used(ring, owner, End::Sender).send(value, limit)
    }

    pub(crate) fn has_receivers(&self) -> bool {
        self.kind.in_arena().0.has_receivers()
    }
}

// For channels made by `in_arena`.
impl<T: Shareable> Receiver<T> {
    /// The number of the value that is received next.
    pub(crate) fn next_number(&self) -> u32 {
        self.kind.in_arena().0.next_number()
    }

    /// The channel, not counted as a handle.
    pub(crate) fn ring(&self) -> ArenaArc<Ring<T>> {
        self.kind.in_arena().0.clone()
    }
}

impl<T: Shareable> Receiver<T> {
    /// What the channel has lost with processes that died.
    pub fn lost(&self) -> Lost {
        self.kind.lost(End::Receiver)
    }
}

impl<T: Shareable> Crossing<T> {
    fn in_arena(&self) -> (&ArenaArc<Ring<T>>, &Owner) {
        match &self.0 {
            Inner::Here(_) => unreachable!("it was made in the arena"),
            Inner::Arena(ring, owner) => (ring, owner),
        }
    }

    fn lost(&self, end: End) -> Lost {
        match &self.0 {
            Inner::Here(_) => Lost::default(),
            Inner::Arena(ring, owner) => used(ring, owner, end).lost(),
        }
    }
}

/// The ring, of which this process has the handle from now on.
#[inline]
fn used<'a, T: Shareable>(ring: &'a Ring<T>, owner: &Owner, end: End) -> &'a Ring<T> {
    let me = process::identity();
    if owner.0.get() != me {
        ring.adopt(owner.0.replace(me), end);
    }
    ring
}

// SAFETY: as the channel in this process, and the ring, do.
unsafe impl<T: Shareable> Kind<T> for Crossing<T> {
    #[inline]
    unsafe fn send_quickly(&self, value: T) -> Result<(), T> {
        match &self.0 {
            // SAFETY: the caller's, in this and all that follow.
            Inner::Here(channel) => unsafe { channel.send_quickly(value) },
            Inner::Arena(..) => Err(value),
        }
    }

    unsafe fn try_send(&self, value: T) -> Result<(), (T, bool)> {
        match &self.0 {
            // SAFETY: as above.
            Inner::Here(channel) => unsafe { channel.try_send(value) },
            Inner::Arena(ring, owner) => used(ring, owner, End::Sender).put(value).map(drop),
        }
    }

    unsafe fn send(&self, value: T, limit: &Limit<'_>) -> Result<(), (T, Option<WaitError>)> {
        match &self.0 {
            // SAFETY: as above.
            Inner::Here(channel) => unsafe { channel.send(value, limit) },
            Inner::Arena(ring, owner) => used(ring, owner, End::Sender).send(value, limit).map(drop),
        }
    }

    #[inline]
    unsafe fn recv_quickly(&self) -> Option<T> {
        match &self.0 {
            // SAFETY: as above.
            Inner::Here(channel) => unsafe { channel.recv_quickly() },
            Inner::Arena(..) => None,
        }
    }

    unsafe fn try_recv(&self) -> Result<T, bool> {
        match &self.0 {
            // SAFETY: as above.
            Inner::Here(channel) => unsafe { channel.try_recv() },
            Inner::Arena(ring, owner) => used(ring, owner, End::Receiver).take(),
        }
    }

    unsafe fn recv(&self, limit: &Limit<'_>) -> Result<T, Option<WaitError>> {
        match &self.0 {
            // SAFETY: as above.
            Inner::Here(channel) => unsafe { channel.recv(limit) },
            Inner::Arena(ring, owner) => used(ring, owner, End::Receiver).recv(limit),
        }
    }

    unsafe fn take(&self, into: &mut Vec<T>, most: usize) -> usize {
        match &self.0 {
            // SAFETY: as above.
            Inner::Here(channel) => unsafe { channel.take(into, most) },
            Inner::Arena(ring, owner) => {
                let (ring, before) = (used(ring, owner, End::Receiver), into.len());
                into.extend(std::iter::from_fn(|| ring.take().ok()).take(most));
                into.len() - before
            }
        }
    }

    fn close(&self, end: End) -> bool {
        match &self.0 {
            Inner::Here(channel) => channel.close(end),
            Inner::Arena(ring, owner) => used(ring, owner, end).close(),
        }
    }

    fn is_closed(&self, end: End) -> bool {
        match &self.0 {
            Inner::Here(channel) => channel.is_closed(end),
            Inner::Arena(ring, owner) => used(ring, owner, end).is_closed(),
        }
    }

    fn len(&self, end: End) -> usize {
        match &self.0 {
            Inner::Here(channel) => channel.len(end),
            Inner::Arena(ring, owner) => used(ring, owner, end).len(),
        }
    }

    fn capacity(&self) -> Option<usize> {
        match &self.0 {
            Inner::Here(channel) => channel.capacity(),
            Inner::Arena(ring, _) => ring.limit(),
        }
    }

    fn another(&self, end: End) -> Self {
        Self(match &self.0 {
            Inner::Here(channel) => Inner::Here(channel.another(end)),
            Inner::Arena(ring, owner) => {
                used(ring, owner, end).add(end);
                Inner::Arena(ring.clone(), Owner(owner.0.clone()))
            }
        })
    }

    unsafe fn leave(&self, end: End) {
        match &self.0 {
            // SAFETY: as above.
            Inner::Here(channel) => unsafe { channel.leave(end) },
            Inner::Arena(ring, owner) => used(ring, owner, end).remove(end),
        }
    }

    fn across(&self) -> Option<*const ()> {
        match &self.0 {
            Inner::Here(_) => None,
            Inner::Arena(ring, _) => Some(ptr::from_ref::<Ring<T>>(ring).cast()),
        }
    }

    unsafe fn enter_select(&self, end: End, node: *mut Node, besides: u32) -> Entered {
        match &self.0 {
            // SAFETY: as above.
            Inner::Here(channel) => unsafe { channel.enter_select(end, node, besides) },
            Inner::Arena(ring, owner) => match used(ring, owner, end).enter(end, besides) {
                None => Entered::Ready,
                Some((word, value)) => Entered::Watched(word, value),
            },
        }
    }

    unsafe fn leave_select(&self, end: End, node: *mut Node) {
        match &self.0 {
            // SAFETY: as above.
            Inner::Here(channel) => unsafe { channel.leave_select(end, node) },
            Inner::Arena(ring, _) => ring.leave(end),
        }
    }
}
