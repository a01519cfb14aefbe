//! Channels: values moved from thread to thread, without a box.
//!
//! ```
//! use heddle::channel::bounded;
//!
//! let (sender, receiver) = bounded(16);
//! let thread = heddle::spawn(move || (0..100u64).for_each(|n| sender.send(n).unwrap()));
//! assert_eq!(receiver.iter().sum::<u64>(), 4950); // ends when the sender is gone
//! thread.join().unwrap();
//! ```
//!
//! [`bounded`] channels have room for so many values and make senders wait, [`unbounded`] ones grow, and in a
//! [`rendezvous`] channel the value goes from hand to hand: a send ends when somebody has received it. All have any number of
//! senders and receivers; each value is received once, and those of one sender to one receiver in the order in which they were
//! sent. While there is one sender, sending costs no locked instruction, and while there is one receiver, neither does
//! receiving.
//!
//! # Who may use them
//! User threads, kernel threads, and threads that know nothing of Heddle, in any mixture. A handle belongs to one thread at a
//! time: it can be sent, and each thread that needs one at the same time gets a clone ([`Shared`] is for those who cannot). A thread that has to wait looks for a moment,
//! longer where that has helped lately, lets others run, then parks: a user thread leaves its worker to others, a kernel
//! thread sleeps in the kernel.
//!
//! # The end
//! A channel is closed when its last sender or its last receiver is dropped, or by [`Sender::close`] or [`Receiver::close`].
//! Then nothing more is sent: `send` gives the value back. What is in it can still be received; after that `recv` says
//! [`RecvError`]. When the last receiver goes, what is in it is dropped at once; a value that is being sent at that
//! moment by another thread is dropped with the last sender.
//!
//! A panic between two operations leaves the channel as it is: handles are dropped on the way, as always.

#[cfg(not(loom))]
pub mod across;
pub(crate) mod cell;
mod kind;
pub(crate) mod lock;
mod meet;
#[cfg(all(test, loom))]
mod models;
mod queue;
mod select;
#[cfg(not(loom))]
mod shared;
#[cfg(any(not(loom), test))]
pub(crate) mod side;
pub(crate) mod wait;

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use crate::cancel::{Limit, WaitError};

#[doc(inline)]
pub use crate::__select as select;
#[cfg(all(test, loom))]
use kind::Flavor;
pub use kind::Local;
#[doc(hidden)]
pub use kind::{End, Kind};
#[doc(hidden)]
pub use select::{Arm, RecvArm, SendArm, select as __select};

mod errors;
#[cfg(not(loom))]
pub use shared::Shared;

pub use errors::{RecvError, RecvUntilError, SendError, SendUntilError, TryRecvError, TrySendError};

fn handles<T, C: Kind<T>>(sender: C, receiver: C) -> (Sender<T, C>, Receiver<T, C>) {
    (
        Sender { kind: sender, values: PhantomData, not_sync: PhantomData },
        Receiver { kind: receiver, values: PhantomData, not_sync: PhantomData },
    )
}

fn local<T>(channel: Local<T>) -> (Sender<T>, Receiver<T>) {
    handles(channel.uncounted(), channel)
}

/// A channel with room for that many values; with none it is a [`rendezvous`]. The room is allocated now: the next power of two.
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    match capacity {
        0 => rendezvous(),
        _ => local(Local::queue(Some(capacity))),
    }
}

/// A channel with room for any number of values. Memory is taken in blocks of about 8 KiB and given back as they are emptied.
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    local(Local::queue(None))
}

/// A channel without room: a send waits for a receive and a receive for a send.
///
/// ```
/// let (sender, receiver) = heddle::channel::rendezvous();
/// assert!(sender.try_send(1).is_err()); // nobody waits for it
/// let thread = heddle::spawn(move || receiver.recv());
/// sender.send(2).unwrap(); // it has been received
/// assert_eq!(thread.join().unwrap(), Ok(2));
/// ```
pub fn rendezvous<T>() -> (Sender<T>, Receiver<T>) {
    local(Local::meet())
}

/// The end of a channel that values are put into. A clone is another sender of the same channel.
///
/// The second parameter says where the channel is: [`Local`], in this process's memory, or [`across::Crossing`]. What a handle can do
/// does not depend on it.
pub struct Sender<T, C: Kind<T> = Local<T>> {
    kind: C,
    values: PhantomData<T>,
    /// A handle is used by one thread at a time.
    not_sync: PhantomData<Cell<()>>,
}

/// The end of a channel that values are taken out of. A clone is another receiver of the same channel: each value goes to
/// one of them. For the second parameter see [`Sender`].
pub struct Receiver<T, C: Kind<T> = Local<T>> {
    pub(crate) kind: C,
    values: PhantomData<T>,
    not_sync: PhantomData<Cell<()>>,
}

impl<T, C: Kind<T>> Sender<T, C> {
    /// Sends, waiting for room (in a rendezvous: for a receiver) as long as it takes. Error: the channel is closed; the value.
    #[inline]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        // SAFETY: this handle is one, and its thread is here.
        match unsafe { self.kind.send_quickly(value) } {
            Ok(()) => Ok(()),
            // SAFETY: as above.
            Err(value) => unsafe { self.kind.send(value, &Limit::NEVER) }.map_err(|(value, _)| SendError(value)),
        }
    }

    /// Sends if that needs no waiting.
    #[inline]
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        // SAFETY: this handle is one, and its thread is here.
        unsafe { self.kind.try_send(value) }.map_err(|(value, is_closed)| match is_closed {
            true => TrySendError::Disconnected(value),
            false => TrySendError::Full(value),
        })
    }

    /// Sends, waiting for room until the limit.
    #[doc(alias("send_timeout", "send_deadline"))]
    pub fn send_until<'l>(&self, value: T, limit: impl Into<Limit<'l>>) -> Result<(), SendUntilError<T>> {
        self.try_send(value).or_else(|error| match error {
            TrySendError::Disconnected(value) => Err(SendUntilError::Disconnected(value)),
            TrySendError::Full(value) => {
                // SAFETY: this handle is one, and its thread is here.
                unsafe { self.kind.send(value, &limit.into()) }.map_err(|(value, why)| match why {
                    None => SendUntilError::Disconnected(value),
                    Some(WaitError::TimedOut) => SendUntilError::TimedOut(value),
                    Some(WaitError::Cancelled) => SendUntilError::Cancelled(value),
                })
            }
        })
    }

    /// Closes the channel: nothing more is sent, and what is in it can be received. Whether it was open.
    ///
    /// A `send` of another thread that runs at the same time may come before or after it. If it succeeds and the receivers have seen the
    /// end already, its value stays and is dropped with the channel.
    pub fn close(&self) -> bool {
        self.kind.close(End::Sender)
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        self.kind.is_closed(End::Sender)
    }

    /// How many values are in it, at some moment.
    pub fn len(&self) -> usize {
        self.kind.len(End::Sender)
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many values it has room for; `None`: any number.
    pub fn capacity(&self) -> Option<usize> {
        self.kind.capacity()
    }
}

impl<T, C: Kind<T>> Receiver<T, C> {
    /// Receives, waiting for a value as long as it takes. Error: the channel is closed and empty.
    #[inline]
    pub fn recv(&self) -> Result<T, RecvError> {
        // SAFETY: this handle is one, and its thread is here.
        match unsafe { self.kind.recv_quickly() } {
            Some(value) => Ok(value),
            // SAFETY: as above.
            None => unsafe { self.kind.recv(&Limit::NEVER) }.map_err(|_| RecvError),
        }
    }

    /// Receives if a value is there (in a rendezvous: if a sender waits).
    #[inline]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        // SAFETY: this handle is one, and its thread is here.
        unsafe { self.kind.try_recv() }.map_err(|is_closed| match is_closed {
            true => TryRecvError::Disconnected,
            false => TryRecvError::Empty,
        })
    }

    /// Receives, waiting for a value until the limit.
    #[doc(alias("recv_timeout", "recv_deadline"))]
    pub fn recv_until<'l>(&self, limit: impl Into<Limit<'l>>) -> Result<T, RecvUntilError> {
        self.try_recv().or_else(|error| match error {
            TryRecvError::Disconnected => Err(RecvUntilError::Disconnected),
            // SAFETY: this handle is one, and its thread is here.
            TryRecvError::Empty => unsafe { self.kind.recv(&limit.into()) }.map_err(|why| match why {
                None => RecvUntilError::Disconnected,
                Some(WaitError::TimedOut) => RecvUntilError::TimedOut,
                Some(WaitError::Cancelled) => RecvUntilError::Cancelled,
            }),
        })
    }

    /// Receives what is there, up to so many values, and puts them behind those in `into`; waits for nothing. How many it was:
    /// cheaper than one by one where there are several receivers.
    pub fn take(&self, into: &mut Vec<T>, most: usize) -> usize {
        // SAFETY: this handle is one, and its thread is here.
        unsafe { self.kind.take(into, most) }
    }

    /// Receives until the channel is closed and empty, waiting for values.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        std::iter::from_fn(|| self.recv().ok())
    }

    /// Receives what is there; waits for nothing.
    pub fn try_iter(&self) -> impl Iterator<Item = T> {
        std::iter::from_fn(|| self.try_recv().ok())
    }

    /// Closes the channel, as [`Sender::close`]: afterwards what is in it can be received, and no more comes.
    pub fn close(&self) -> bool {
        self.kind.close(End::Receiver)
    }

    /// Whether it is closed. Values may be in it.
    pub fn is_closed(&self) -> bool {
        self.kind.is_closed(End::Receiver)
    }

    /// How many values are in it, at some moment.
    pub fn len(&self) -> usize {
        self.kind.len(End::Receiver)
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many values it has room for; `None`: any number.
    pub fn capacity(&self) -> Option<usize> {
        self.kind.capacity()
    }
}

/// What [`Receiver::into_iter`] answers.
pub struct IntoIter<T, C: Kind<T> = Local<T>>(Receiver<T, C>);

impl<T, C: Kind<T>> Iterator for IntoIter<T, C> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<T, C: Kind<T>> IntoIterator for Receiver<T, C> {
    type Item = T;
    type IntoIter = IntoIter<T, C>;
    fn into_iter(self) -> IntoIter<T, C> {
        IntoIter(self)
    }
}

impl<T, C: Kind<T>> Clone for Sender<T, C> {
    fn clone(&self) -> Self {
        Self { kind: self.kind.another(End::Sender), values: PhantomData, not_sync: PhantomData }
    }
}

impl<T, C: Kind<T>> Drop for Sender<T, C> {
    fn drop(&mut self) {
        // SAFETY: this handle is one, its thread is here, and it is not used any more.
        unsafe { self.kind.leave(End::Sender) }
    }
}

impl<T, C: Kind<T>> Clone for Receiver<T, C> {
    fn clone(&self) -> Self {
        Self { kind: self.kind.another(End::Receiver), values: PhantomData, not_sync: PhantomData }
    }
}

impl<T, C: Kind<T>> Drop for Receiver<T, C> {
    fn drop(&mut self) {
        // SAFETY: this handle is one, its thread is here, and it is not used any more.
        unsafe { self.kind.leave(End::Receiver) }
    }
}

impl<T, C: Kind<T>> fmt::Debug for Sender<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("len", &self.len()).field("capacity", &self.capacity()).finish()
    }
}

impl<T, C: Kind<T>> fmt::Debug for Receiver<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("len", &self.len()).field("capacity", &self.capacity()).finish()
    }
}
