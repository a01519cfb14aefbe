//! Both ends of a channel, for all threads at once.

use super::{Receiver, Sender};

/// Both ends of a channel in one handle, which any number of threads use at the same time: in an `Arc`, a structure, a static.
///
/// The handles in it are not clones of one's own, so a channel that is shared has no end by itself: it is closed by
/// [`Sender::close`] or [`Receiver::close`]. Each operation costs one short lock, since the channel has several senders and
/// receivers.
///
/// ```
/// use heddle::channel::{Shared, bounded};
///
/// let (sender, receiver) = bounded(16);
/// let shared = Shared::new(sender, receiver);
/// heddle::join(
///     || (0..100u64).for_each(|n| shared.sender().send(n).unwrap()),
///     || assert_eq!((0..100).map(|_| shared.receiver().recv().unwrap()).sum::<u64>(), 4950),
/// );
/// ```
#[derive(Debug)]
pub struct Shared<T> {
    sender: Sender<T>,
    receiver: Receiver<T>,
    /// A second of each, so that neither is ever alone on its side.
    _second: (Sender<T>, Receiver<T>),
}

// SAFETY: handles belong to one thread at a time because a side with one handle has no lock. Here each side has two, which
// live as long as anybody can reach one, so all that threads do with them is under the sides' locks, and clones of them
// only add to the count.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// From the ends of a channel, or of two: what is sent goes into the sender's, what is received comes from the receiver's.
    pub fn new(sender: Sender<T>, receiver: Receiver<T>) -> Self {
        let second = (sender.clone(), receiver.clone());
        Self { sender, receiver, _second: second }
    }

    /// To send by.
    pub fn sender(&self) -> &Sender<T> {
        &self.sender
    }

    /// To receive by.
    pub fn receiver(&self) -> &Receiver<T> {
        &self.receiver
    }
}
