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

pub(crate) mod cell;
mod meet;
#[cfg(all(test, loom))]
mod models;
mod queue;
mod select;
#[cfg(not(loom))]
mod shared;
pub(crate) mod wait;

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
#[cfg(not(loom))]
use std::sync::Arc;

#[cfg(loom)]
use loom::sync::Arc;
use meet::Meet;
use queue::Queue;

use crate::cancel::{Limit, WaitError};

#[doc(inline)]
pub use crate::__select as select;
#[doc(hidden)]
pub use select::{Arm, RecvArm, SendArm, select as __select};

mod errors;
#[cfg(not(loom))]
pub use shared::Shared;

pub use errors::{RecvError, RecvUntilError, SendError, SendUntilError, TryRecvError, TrySendError};

pub(crate) enum Flavor<T> {
    Queue(Arc<Queue<T>>),
    Meet(Arc<Meet<T>>),
}

impl<T> Clone for Flavor<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Queue(queue) => Self::Queue(queue.clone()),
            Self::Meet(meet) => Self::Meet(meet.clone()),
        }
    }
}

impl<T> Flavor<T> {
    fn handles(self) -> (Sender<T>, Receiver<T>) {
        (Sender { flavor: self.clone(), not_sync: PhantomData }, Receiver { flavor: self, not_sync: PhantomData })
    }

    pub(crate) fn close(&self) -> bool {
        match self {
            Self::Queue(queue) => queue.close(),
            Self::Meet(meet) => meet.close(),
        }
    }

    fn is_closed(&self) -> bool {
        match self {
            Self::Queue(queue) => queue.is_closed(),
            Self::Meet(meet) => meet.is_closed(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Queue(queue) => queue.len(),
            Self::Meet(_) => 0,
        }
    }

    fn capacity(&self) -> Option<usize> {
        match self {
            Self::Queue(queue) => queue.limit(),
            Self::Meet(_) => Some(0),
        }
    }
}

/// A channel with room for that many values; with none it is a [`rendezvous`]. The room is allocated now: the next power of two.
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    match capacity {
        0 => rendezvous(),
        _ => Flavor::Queue(Arc::new(Queue::new(Some(capacity)))).handles(),
    }
}

/// A channel with room for any number of values. Memory is taken in blocks of about 8 KiB and given back as they are emptied.
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    Flavor::Queue(Arc::new(Queue::new(None))).handles()
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
    Flavor::Meet(Arc::new(Meet::new())).handles()
}

/// The end of a channel that values are put into. A clone is another sender of the same channel.
pub struct Sender<T> {
    flavor: Flavor<T>,
    /// A handle is used by one thread at a time.
    not_sync: PhantomData<Cell<()>>,
}

/// The end of a channel that values are taken out of. A clone is another receiver of the same channel: each value goes to
/// one of them.
pub struct Receiver<T> {
    pub(crate) flavor: Flavor<T>,
    not_sync: PhantomData<Cell<()>>,
}

impl<T> Sender<T> {
    /// Sends, waiting for room (in a rendezvous: for a receiver) as long as it takes. Error: the channel is closed; the value.
    #[inline]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        let value = match &self.flavor {
            // SAFETY: this handle is one, and its thread is here.
            Flavor::Queue(queue) => match unsafe { queue.send_quickly(value) } {
                Ok(()) => return Ok(()),
                Err(value) => value,
            },
            Flavor::Meet(_) => value,
        };
        self.send_by(value, &Limit::NEVER).map_err(|(value, _)| SendError(value))
    }

    /// Sends if that needs no waiting.
    #[inline]
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let result = match &self.flavor {
            // SAFETY: this handle is one, and its thread is here.
            Flavor::Queue(queue) => unsafe { queue.try_send(value) },
            Flavor::Meet(meet) => meet.try_send(value),
        };
        result.map_err(|(value, is_closed)| match is_closed {
            true => TrySendError::Disconnected(value),
            false => TrySendError::Full(value),
        })
    }

    /// Sends, waiting for room until the limit.
    pub fn send_until<'l>(&self, value: T, limit: impl Into<Limit<'l>>) -> Result<(), SendUntilError<T>> {
        self.try_send(value).or_else(|error| match error {
            TrySendError::Disconnected(value) => Err(SendUntilError::Disconnected(value)),
            TrySendError::Full(value) => self.send_by(value, &limit.into()).map_err(|(value, why)| match why {
                None => SendUntilError::Disconnected(value),
                Some(WaitError::TimedOut) => SendUntilError::TimedOut(value),
                Some(WaitError::Cancelled) => SendUntilError::Cancelled(value),
            }),
        })
    }

    fn send_by(&self, value: T, limit: &Limit<'_>) -> Result<(), (T, Option<WaitError>)> {
        match &self.flavor {
            // SAFETY: this handle is one, and its thread is here.
            Flavor::Queue(queue) => unsafe { queue.send(value, limit) },
            Flavor::Meet(meet) => meet.send(value, limit),
        }
    }

    /// Closes the channel: nothing more is sent, and what is in it can be received. Whether it was open.
    ///
    /// A `send` of another thread that runs at the same time may come before or after it. If it succeeds and the receivers have seen the
    /// end already, its value stays and is dropped with the channel.
    pub fn close(&self) -> bool {
        self.flavor.close()
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        self.flavor.is_closed()
    }

    /// How many values are in it, at some moment.
    pub fn len(&self) -> usize {
        self.flavor.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many values it has room for; `None`: any number.
    pub fn capacity(&self) -> Option<usize> {
        self.flavor.capacity()
    }
}

impl<T> Receiver<T> {
    /// Receives, waiting for a value as long as it takes. Error: the channel is closed and empty.
    #[inline]
    pub fn recv(&self) -> Result<T, RecvError> {
        if let Flavor::Queue(queue) = &self.flavor
            // SAFETY: this handle is one, and its thread is here.
            && let Some(value) = unsafe { queue.recv_quickly() }
        {
            return Ok(value);
        }
        self.recv_by(&Limit::NEVER).map_err(|_| RecvError)
    }

    /// Receives if a value is there (in a rendezvous: if a sender waits).
    #[inline]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let result = match &self.flavor {
            // SAFETY: this handle is one, and its thread is here.
            Flavor::Queue(queue) => unsafe { queue.try_recv() },
            Flavor::Meet(meet) => meet.try_recv(),
        };
        result.map_err(|is_closed| if is_closed { TryRecvError::Disconnected } else { TryRecvError::Empty })
    }

    /// Receives, waiting for a value until the limit.
    pub fn recv_until<'l>(&self, limit: impl Into<Limit<'l>>) -> Result<T, RecvUntilError> {
        self.try_recv().or_else(|error| match error {
            TryRecvError::Disconnected => Err(RecvUntilError::Disconnected),
            TryRecvError::Empty => self.recv_by(&limit.into()).map_err(|why| match why {
                None => RecvUntilError::Disconnected,
                Some(WaitError::TimedOut) => RecvUntilError::TimedOut,
                Some(WaitError::Cancelled) => RecvUntilError::Cancelled,
            }),
        })
    }

    fn recv_by(&self, limit: &Limit<'_>) -> Result<T, Option<WaitError>> {
        match &self.flavor {
            // SAFETY: this handle is one, and its thread is here.
            Flavor::Queue(queue) => unsafe { queue.recv(limit) },
            Flavor::Meet(meet) => meet.recv(limit),
        }
    }

    /// Receives what is there, up to so many values, and puts them behind those in `into`; waits for nothing. How many it was:
    /// cheaper than one by one where there are several receivers.
    pub fn take(&self, into: &mut Vec<T>, most: usize) -> usize {
        match &self.flavor {
            // SAFETY: this handle is one, and its thread is here.
            Flavor::Queue(queue) => unsafe { queue.take(into, most) },
            Flavor::Meet(_) => {
                let before = into.len();
                into.extend(self.try_iter().take(most));
                into.len() - before
            }
        }
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
        self.flavor.close()
    }

    /// Whether it is closed. Values may be in it.
    pub fn is_closed(&self) -> bool {
        self.flavor.is_closed()
    }

    /// How many values are in it, at some moment.
    pub fn len(&self) -> usize {
        self.flavor.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many values it has room for; `None`: any number.
    pub fn capacity(&self) -> Option<usize> {
        self.flavor.capacity()
    }
}

/// What [`Receiver::into_iter`] answers.
pub struct IntoIter<T>(Receiver<T>);

impl<T> Iterator for IntoIter<T> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;
    fn into_iter(self) -> IntoIter<T> {
        IntoIter(self)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        match &self.flavor {
            Flavor::Queue(queue) => queue.add_sender(),
            Flavor::Meet(meet) => meet.add_sender(),
        }
        Self { flavor: self.flavor.clone(), not_sync: PhantomData }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        match &self.flavor {
            // SAFETY: it is not used any more.
            Flavor::Queue(queue) => unsafe { queue.remove_sender() },
            Flavor::Meet(meet) => meet.remove_sender(),
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        match &self.flavor {
            Flavor::Queue(queue) => queue.add_receiver(),
            Flavor::Meet(meet) => meet.add_receiver(),
        }
        Self { flavor: self.flavor.clone(), not_sync: PhantomData }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        match &self.flavor {
            // SAFETY: it is not used any more.
            Flavor::Queue(queue) => unsafe { queue.remove_receiver() },
            Flavor::Meet(meet) => meet.remove_receiver(),
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("len", &self.len()).field("capacity", &self.capacity()).finish()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("len", &self.len()).field("capacity", &self.capacity()).finish()
    }
}
