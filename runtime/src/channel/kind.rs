//! What a channel is made of: what all handles ask of it, and the answers of one that is in this process's memory.

use super::meet::Meet;
use super::queue::Queue;
use super::wait::Node;
#[cfg(loom)]
use loom::sync::Arc;
#[cfg(not(loom))]
use std::sync::Arc;

use crate::cancel::{Limit, WaitError};
use crate::prim::AtomicU32;

/// One of a channel's two ends.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Sender,
    Receiver,
}

/// Whether a `select!` waits for an arm.
#[doc(hidden)]
pub enum Entered {
    /// It need not: the arm can be done. Nothing was linked or counted.
    Ready,
    /// Its waiter is linked, and will be claimed.
    Linked,
    /// It is counted, and this word of the arena changes from that value when it should look again.
    Watched(*const AtomicU32, u32),
}

/// What a channel is made of. Handles have it as a parameter, which is [`Local`] where none is given.
///
/// # Safety
/// Not to be implemented outside of this crate.
///
/// Methods that are `unsafe` are called by whoever has a handle of the side that they use, and by no other thread with
/// the same handle; those about a node as [`List::push`](super::wait::List::push) says.
#[allow(clippy::missing_safety_doc, clippy::len_without_is_empty)] // above, for all; not for users
#[doc(hidden)]
pub unsafe trait Kind<T>: Sized {
    /// Sends if that is quick. Error: the value.
    unsafe fn send_quickly(&self, value: T) -> Result<(), T>;
    /// Error: the value, and whether the channel is closed.
    unsafe fn try_send(&self, value: T) -> Result<(), (T, bool)>;
    /// Error: the value, and what the limit said; `None`: the channel is closed.
    unsafe fn send(&self, value: T, limit: &Limit<'_>) -> Result<(), (T, Option<WaitError>)>;
    /// Receives if that is quick.
    unsafe fn recv_quickly(&self) -> Option<T>;
    /// Error: whether the channel is closed.
    unsafe fn try_recv(&self) -> Result<T, bool>;
    /// Error: what the limit said; `None`: the channel is closed and empty.
    unsafe fn recv(&self, limit: &Limit<'_>) -> Result<T, Option<WaitError>>;
    /// Receives what is there, up to so many.
    unsafe fn take(&self, into: &mut Vec<T>, most: usize) -> usize;

    // The end is that of the handle by which it is asked.
    fn close(&self, end: End) -> bool;
    fn is_closed(&self, end: End) -> bool;
    fn len(&self, end: End) -> usize;
    /// `None`: any number.
    fn capacity(&self) -> Option<usize>;

    /// For a clone of a handle.
    fn another(&self, end: End) -> Self;
    /// A handle is dropped.
    unsafe fn leave(&self, end: End);

    /// Which channel it is, if a `select!` with this arm has to wait in the kernel.
    fn across(&self) -> Option<*const ()>;
    /// `besides`: if it is across, how many arms of the same `select!` have entered at its other end.
    unsafe fn enter_select(&self, end: End, node: *mut Node, besides: u32) -> Entered;
    /// After [`Entered::Linked`] or [`Entered::Watched`].
    unsafe fn leave_select(&self, end: End, node: *mut Node);
}

/// A channel in this process's memory.
pub struct Local<T>(pub(crate) Flavor<T>);

pub(crate) enum Flavor<T> {
    Queue(Arc<Queue<T>>),
    Meet(Arc<Meet<T>>),
}

impl<T> Local<T> {
    pub(super) fn queue(capacity: Option<usize>) -> Self {
        Self(Flavor::Queue(Arc::new(Queue::new(capacity))))
    }

    pub(super) fn meet() -> Self {
        Self(Flavor::Meet(Arc::new(Meet::new())))
    }

    /// The same channel, by something that is no handle.
    pub(crate) fn uncounted(&self) -> Self {
        Self(match &self.0 {
            Flavor::Queue(queue) => Flavor::Queue(queue.clone()),
            Flavor::Meet(meet) => Flavor::Meet(meet.clone()),
        })
    }
}

// SAFETY: each is done as queue and rendezvous say. In this block: the caller's handle, and its node.
unsafe impl<T> Kind<T> for Local<T> {
    #[inline(always)]
    unsafe fn send_quickly(&self, value: T) -> Result<(), T> {
        match &self.0 {
            // SAFETY: as above.
            Flavor::Queue(queue) => unsafe { queue.send_quickly(value) },
            Flavor::Meet(_) => Err(value),
        }
    }

    #[inline]
    unsafe fn try_send(&self, value: T) -> Result<(), (T, bool)> {
        match &self.0 {
            // SAFETY: as above.
            Flavor::Queue(queue) => unsafe { queue.try_send(value) },
            Flavor::Meet(meet) => meet.try_send(value),
        }
    }

    unsafe fn send(&self, value: T, limit: &Limit<'_>) -> Result<(), (T, Option<WaitError>)> {
        match &self.0 {
            // SAFETY: as above.
            Flavor::Queue(queue) => unsafe { queue.send(value, limit) },
            Flavor::Meet(meet) => meet.send(value, limit),
        }
    }

    #[inline(always)]
    unsafe fn recv_quickly(&self) -> Option<T> {
        match &self.0 {
            // SAFETY: as above.
            Flavor::Queue(queue) => unsafe { queue.recv_quickly() },
            Flavor::Meet(_) => None,
        }
    }

    #[inline]
    unsafe fn try_recv(&self) -> Result<T, bool> {
        match &self.0 {
            // SAFETY: as above.
            Flavor::Queue(queue) => unsafe { queue.try_recv() },
            Flavor::Meet(meet) => meet.try_recv(),
        }
    }

    unsafe fn recv(&self, limit: &Limit<'_>) -> Result<T, Option<WaitError>> {
        match &self.0 {
            // SAFETY: as above.
            Flavor::Queue(queue) => unsafe { queue.recv(limit) },
            Flavor::Meet(meet) => meet.recv(limit),
        }
    }

    unsafe fn take(&self, into: &mut Vec<T>, most: usize) -> usize {
        match &self.0 {
            // SAFETY: as above.
            Flavor::Queue(queue) => unsafe { queue.take(into, most) },
            Flavor::Meet(meet) => {
                let before = into.len();
                into.extend(std::iter::from_fn(|| meet.try_recv().ok()).take(most));
                into.len() - before
            }
        }
    }

    fn close(&self, _: End) -> bool {
        match &self.0 {
            Flavor::Queue(queue) => queue.close(),
            Flavor::Meet(meet) => meet.close(),
        }
    }

    fn is_closed(&self, _: End) -> bool {
        match &self.0 {
            Flavor::Queue(queue) => queue.is_closed(),
            Flavor::Meet(meet) => meet.is_closed(),
        }
    }

    fn len(&self, _: End) -> usize {
        match &self.0 {
            Flavor::Queue(queue) => queue.len(),
            Flavor::Meet(_) => 0,
        }
    }

    fn capacity(&self) -> Option<usize> {
        match &self.0 {
            Flavor::Queue(queue) => queue.limit(),
            Flavor::Meet(_) => Some(0),
        }
    }

    fn another(&self, end: End) -> Self {
        match (&self.0, end) {
            (Flavor::Queue(queue), End::Sender) => queue.add_sender(),
            (Flavor::Queue(queue), End::Receiver) => queue.add_receiver(),
            (Flavor::Meet(meet), End::Sender) => meet.add_sender(),
            (Flavor::Meet(meet), End::Receiver) => meet.add_receiver(),
        }
        self.uncounted()
    }

    unsafe fn leave(&self, end: End) {
        match (&self.0, end) {
            // SAFETY: as above; it is not used any more.
            (Flavor::Queue(queue), End::Sender) => unsafe { queue.remove_sender() },
            // SAFETY: as above.
            (Flavor::Queue(queue), End::Receiver) => unsafe { queue.remove_receiver() },
            (Flavor::Meet(meet), End::Sender) => meet.remove_sender(),
            (Flavor::Meet(meet), End::Receiver) => meet.remove_receiver(),
        }
    }

    fn across(&self) -> Option<*const ()> {
        None
    }

    unsafe fn enter_select(&self, end: End, node: *mut Node, _: u32) -> Entered {
        // SAFETY: as above, for all.
        let waits = unsafe {
            match (&self.0, end) {
                (Flavor::Meet(meet), End::Sender) => meet.enter_sender(node),
                (Flavor::Meet(meet), End::Receiver) => meet.enter_receiver(node),
                (Flavor::Queue(queue), end) => {
                    let (bell, is_ready): (_, fn(&Queue<T>) -> bool) = match end {
                        End::Sender => (&queue.not_full, Queue::has_room),
                        End::Receiver => (&queue.not_empty, Queue::is_ready),
                    };
                    bell.enter(node);
                    let waits = !is_ready(queue);
                    if !waits {
                        bell.leave(node);
                    }
                    waits
                }
            }
        };
        if waits { Entered::Linked } else { Entered::Ready }
    }

    unsafe fn leave_select(&self, end: End, node: *mut Node) {
        // SAFETY: as above, for all.
        unsafe {
            match (&self.0, end) {
                (Flavor::Queue(queue), End::Sender) => queue.not_full.leave(node),
                (Flavor::Queue(queue), End::Receiver) => queue.not_empty.leave(node),
                (Flavor::Meet(meet), End::Sender) => meet.leave_sender(node),
                (Flavor::Meet(meet), End::Receiver) => meet.leave_receiver(node),
            }
        }
    }
}
