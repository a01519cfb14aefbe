//! Rendezvous: a channel without slots. A value goes from the sender's stack to the receiver's while both are there.
//!
//! # Safety
//! A node's packet is an `Option<T>` on the stack of the thread that waits. Others use it only when they have claimed the
//! waiter, and under the lock, which the thread takes before it looks at it again.

use std::cell::UnsafeCell;

use super::lock::Lock;
use super::wait::{List, Node, Patience, Waiter};
use crate::cancel::{Limit, WaitError};
use crate::prim::{AtomicUsize, Ordering};

#[derive(Default)]
struct Sides {
    senders: List,
    receivers: List,
    closed: bool,
}

pub struct Meet<T> {
    sides: Lock<Sides>,
    patience: Patience,
    senders: AtomicUsize,
    receivers: AtomicUsize,
    values: std::marker::PhantomData<T>,
}

// SAFETY: values go from thread to thread under the lock.
unsafe impl<T: Send> Send for Meet<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Meet<T> {}

impl<T> Meet<T> {
    pub fn new() -> Self {
        Self {
            sides: Lock::default(),
            patience: Patience::new(),
            senders: AtomicUsize::new(1),
            receivers: AtomicUsize::new(1),
            values: std::marker::PhantomData,
        }
    }

    pub fn is_closed(&self) -> bool {
        self.sides.with(|sides| sides.closed)
    }

    /// Gives the value to a receiver that waits. Error: there is none; whether the channel is closed.
    pub fn try_send(&self, value: T) -> Result<(), (T, bool)> {
        let wake = self.sides.with(|sides| {
            if sides.closed {
                return Err((value, true));
            }
            let Some((node, wake)) = sides.receivers.claim() else { return Err((value, false)) };
            // SAFETY: we claimed the receiver, whose packet is empty.
            unsafe { (*node).packet.cast::<Option<T>>().write(Some(value)) };
            Ok(wake)
        })?;
        wake.wake();
        Ok(())
    }

    /// Takes the value of a sender that waits. Error: there is none; whether the channel is closed.
    pub fn try_recv(&self) -> Result<T, bool> {
        let (value, wake) = self.sides.with(|sides| {
            let Some((node, wake)) = sides.senders.claim() else { return Err(sides.closed) };
            // SAFETY: we claimed the sender, whose packet holds the value.
            match unsafe { (*(*node).packet.cast::<Option<T>>()).take() } {
                Some(value) => Ok((value, wake)),
                None => unreachable!("a sender that waits has a value"),
            }
        })?;
        wake.wake();
        Ok(value)
    }

    /// Sends, waiting for a receiver until the limit. Error: the value, and which it was; `None`: the channel is closed.
    pub fn send(&self, mut value: T, limit: &Limit<'_>) -> Result<(), (T, Option<WaitError>)> {
        loop {
            value = match self.try_send(value) {
                Err((value, false)) => value,
                Err((value, true)) => return Err((value, None)),
                Ok(()) => return Ok(()),
            };
            let (waiter, packet) = (Waiter::new(), UnsafeCell::new(Some(value)));
            let mut node = Node::new(&waiter, 0, packet.get().cast());
            let mut why = None;
            // SAFETY: all three stay until the node has been left.
            unsafe {
                if self.enter_sender(&raw mut node) {
                    why = waiter.wait(&self.patience, limit);
                }
                self.leave_sender(&raw mut node);
            }
            match packet.into_inner() {
                None => return Ok(()),
                Some(value) if why.is_some() => return Err((value, why)),
                Some(back) => value = back,
            }
        }
    }

    /// Receives, waiting for a sender until the limit. Error: which it was; `None`: the channel is closed.
    pub fn recv(&self, limit: &Limit<'_>) -> Result<T, Option<WaitError>> {
        loop {
            match self.try_recv() {
                Err(false) => {}
                Err(true) => return Err(None),
                Ok(value) => return Ok(value),
            }
            let (waiter, packet) = (Waiter::new(), UnsafeCell::new(None));
            let mut node = Node::new(&waiter, 0, packet.get().cast());
            let mut why = None;
            // SAFETY: all three stay until the node has been left.
            unsafe {
                if self.enter_receiver(&raw mut node) {
                    why = waiter.wait(&self.patience, limit);
                }
                self.leave_receiver(&raw mut node);
            }
            match packet.into_inner() {
                Some(value) => return Ok(value),
                None if why.is_some() => return Err(why),
                None => {}
            }
        }
    }

    /// Links a sender's node, unless there is no need to wait: false.
    ///
    /// # Safety
    /// The node, its waiter and its packet, an `Option<T>` that holds a value, stay until `leave_sender` has returned.
    pub unsafe fn enter_sender(&self, node: *mut Node) -> bool {
        self.sides.with(|sides| {
            // SAFETY: the caller's.
            unsafe {
                let wait = !sides.closed && !sides.receivers.has_other((*node).waiter());
                if wait {
                    sides.senders.push(node);
                }
                wait
            }
        })
    }

    /// As [`enter_sender`](Self::enter_sender); the packet is empty.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn enter_receiver(&self, node: *mut Node) -> bool {
        self.sides.with(|sides| {
            // SAFETY: the caller's.
            unsafe {
                let wait = !sides.closed && !sides.senders.has_other((*node).waiter());
                if wait {
                    sides.receivers.push(node);
                }
                wait
            }
        })
    }

    /// Afterwards nobody else uses the node.
    ///
    /// # Safety
    /// Entered here, or linked nowhere.
    pub unsafe fn leave_sender(&self, node: *mut Node) {
        // SAFETY: the caller's.
        self.sides.with(|sides| unsafe { sides.senders.remove(node) });
    }

    /// Afterwards nobody else uses the node.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn leave_receiver(&self, node: *mut Node) {
        // SAFETY: the caller's.
        self.sides.with(|sides| unsafe { sides.receivers.remove(node) });
    }

    /// No more is sent: who waits learns it. True: it was open.
    pub fn close(&self) -> bool {
        let was_open = self.sides.with(|sides| !std::mem::replace(&mut sides.closed, true));
        loop {
            let claimed = self.sides.with(|sides| sides.senders.claim().or_else(|| sides.receivers.claim()));
            match claimed {
                Some((_, wake)) => wake.wake(),
                None => return was_open,
            }
        }
    }

    pub fn add_sender(&self) {
        self.senders.fetch_add(1, Ordering::Relaxed); // the caller has one
    }

    pub fn add_receiver(&self) {
        self.receivers.fetch_add(1, Ordering::Relaxed); // the caller has one
    }

    pub fn remove_sender(&self) {
        // Relaxed: values are passed under the lock.
        if self.senders.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.close();
        }
    }

    pub fn remove_receiver(&self) {
        // Relaxed: as above.
        if self.receivers.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.close();
        }
    }
}
