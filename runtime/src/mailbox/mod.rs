//! Mailboxes: messages of any length, copied into a ring of bytes that the receiver owns, and read there.
//!
//! ```
//! use heddle::mailbox::{Overflow, mailbox};
//!
//! let (address, mut mailbox) = mailbox(300 * 1024, Overflow::Block);
//! let thread = heddle::spawn(move || (0..100).for_each(|n| address.send(format!("order {n}").as_str()).unwrap()));
//! let mut count = 0;
//! while let Ok(message) = mailbox.recv() {
//!     assert_eq!(message.view::<str>(), Some(format!("order {count}").as_str())); // read in place
//!     count += 1;
//! }
//! assert_eq!(count, 100);
//! thread.join().unwrap();
//! ```
//!
//! The *budget*, in bytes, is the back-pressure: when a message finds no room, its sender waits, or is refused, or something is
//! dropped ([`Overflow`]). A message takes its bytes, rounded up to 8, and 8 more. The mailbox takes twice its budget of memory,
//! when it is made, so that each message lies in one piece; now and then what is left at the end of the ring counts as used. No message is boxed, none is freed by a stranger.
//!
//! Any number of threads of any kind send, with clones of the [`Address`]; one receives. Sending holds a lock while
//! the message is copied. Who waits parks, as in [`channel`](crate::channel).
//!
//! When the last address is dropped, the receiver gets what is there and then [`Closed`](RecvError::Closed). When the mailbox is dropped,
//! senders get [`SendError::Closed`], and what is in it is gone.

mod ring;

#[cfg(not(loom))]
pub use with_threads::*;

#[cfg(not(loom))]
mod with_threads {
    use std::fmt;
    use std::ops::Deref;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::ring::{Record, Ring};
    use crate::cancel::{Limit, WaitError};
    use crate::channel::side::Guarded;
    use crate::channel::wait::Bell;
    use crate::shard::CachePadded;

    /// What happens to a message that finds no room.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Overflow {
        /// Its sender waits.
        Block,
        /// Its sender gets an error.
        Refuse,
        /// The oldest ones are dropped, and counted; not the one that is being read: if that is in the way, the new one is
        /// dropped.
        DropOldest,
        /// It is dropped, and counted.
        DropNewest,
    }

    /// What can be sent: bytes, and what can be written as bytes.
    ///
    /// For structures of your own: say how many bytes it takes, write them, and say how to look at them in place. A serialisation
    /// crate fits in here as well.
    pub trait Flat {
        /// What the receiver looks at.
        type View<'a>;
        /// How many bytes it takes.
        fn size(&self) -> usize;
        /// Writes exactly that many bytes, into memory of its own, if [`as_bytes`](Self::as_bytes) has none; from there they are copied.
        fn write(&self, out: &mut [u8]);
        /// The bytes themselves, if it consists of them.
        fn as_bytes(&self) -> Option<&[u8]> {
            None
        }
        /// A look at the bytes of a message. `None`: they are none of this type.
        fn view(bytes: &[u8]) -> Option<Self::View<'_>>;
    }

    impl Flat for [u8] {
        type View<'a> = &'a [u8];
        fn size(&self) -> usize {
            self.len()
        }
        fn write(&self, out: &mut [u8]) {
            out.copy_from_slice(self);
        }
        fn as_bytes(&self) -> Option<&[u8]> {
            Some(self)
        }
        fn view(bytes: &[u8]) -> Option<&[u8]> {
            Some(bytes)
        }
    }

    impl Flat for str {
        type View<'a> = &'a str;
        fn size(&self) -> usize {
            self.len()
        }
        fn write(&self, out: &mut [u8]) {
            out.copy_from_slice(self.as_bytes());
        }
        fn as_bytes(&self) -> Option<&[u8]> {
            Some(self.as_bytes())
        }
        fn view(bytes: &[u8]) -> Option<&str> {
            std::str::from_utf8(bytes).ok()
        }
    }

    /// Numbers are viewed as a copy: `view` answers an iterator.
    macro_rules! numbers {
        ($($number:ty),*) => {$(
            impl Flat for [$number] {
                type View<'a> = std::iter::Map<std::slice::ChunksExact<'a, u8>, fn(&'a [u8]) -> $number>;
                fn size(&self) -> usize {
                    size_of_val(self)
                }
                fn write(&self, out: &mut [u8]) {
                    for (to, number) in out.chunks_exact_mut(size_of::<$number>()).zip(self) {
                        to.copy_from_slice(&number.to_ne_bytes());
                    }
                }
                fn as_bytes(&self) -> Option<&[u8]> {
                    // SAFETY: numbers consist of bytes.
                    Some(unsafe { std::slice::from_raw_parts(self.as_ptr().cast(), size_of_val(self)) })
                }
                fn view(bytes: &[u8]) -> Option<Self::View<'_>> {
                    fn number(bytes: &[u8]) -> $number {
                        match bytes.try_into() {
                        Ok(bytes) => <$number>::from_ne_bytes(bytes),
                        Err(_) => unreachable!("chunks of that size"),
                    }
                    }
                    let fits = bytes.len().is_multiple_of(size_of::<$number>());
                    fits.then(|| bytes.chunks_exact(size_of::<$number>()).map(number as fn(&[u8]) -> $number))
                }
            }
        )*};
    }
    numbers!(u16, i16, u32, i32, u64, i64, f32, f64);

    /// Why a message was not sent.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum SendError {
        /// The mailbox is gone.
        Closed,
        /// No message of that many bytes fits into its budget.
        TooLong(usize),
        /// There was no room, and the mailbox refuses then.
        Full,
        /// There was no room in time.
        TimedOut,
        /// The token was cancelled before there was room.
        Cancelled,
    }

    /// Why no message was received.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum RecvError {
        /// All addresses are gone, and nothing is left.
        Closed,
        /// There is no message.
        Empty,
        /// None came in time.
        TimedOut,
        /// The token was cancelled before one came.
        Cancelled,
    }

    impl fmt::Display for SendError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Self::Closed => f.write_str("the mailbox is gone"),
                Self::TooLong(bytes) => write!(f, "{bytes} bytes: more than the mailbox's budget"),
                Self::Full => f.write_str("the mailbox is full"),
                Self::TimedOut => f.write_str("the mailbox was full until the deadline"),
                Self::Cancelled => f.write_str("cancelled while the mailbox was full"),
            }
        }
    }

    impl fmt::Display for RecvError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(match self {
                Self::Closed => "all addresses of the mailbox are gone",
                Self::Empty => "the mailbox is empty",
                Self::TimedOut => "the mailbox was empty until the deadline",
                Self::Cancelled => "cancelled while the mailbox was empty",
            })
        }
    }

    impl std::error::Error for SendError {}
    impl std::error::Error for RecvError {}

    /// What a mailbox has counted.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Counters {
        /// Messages that were taken in.
        pub sent: u64,
        /// Messages that were received.
        pub received: u64,
        /// Messages that were dropped for lack of room.
        pub dropped: u64,
        /// Messages that are there.
        pub depth: u64,
        /// Bytes of the budget in use.
        pub bytes: usize,
    }

    /// What only who has the senders' lock touches.
    #[derive(Default)]
    struct Sending {
        sent: u64,
        dropped: u64,
        /// Of those that had been taken in.
        evicted: u64,
        /// The receiver is reading the first record, where senders could drop it.
        is_reading: bool,
        /// The head that was last seen.
        seen: usize,
    }

    struct Shared {
        ring: Ring,
        overflow: Overflow,
        /// Addresses; and [`GONE`] when the mailbox is.
        addresses: AtomicUsize,
        /// Counted by the receiver alone.
        received: CachePadded<AtomicUsize>,
        not_empty: Bell,
        not_full: Bell,
        sending: Guarded<Sending>,
    }

    /// How often the bells are asked whether they had better be light: see [`Bell`].
    const NOW_AND_THEN: usize = 64;
    const GONE: usize = 1 << 63;

    /// A mailbox with that budget in bytes, and its first address.
    pub fn mailbox(budget: usize, overflow: Overflow) -> (Address, Mailbox) {
        let shared = Arc::new(Shared {
            ring: Ring::new(budget),
            overflow,
            addresses: AtomicUsize::new(1),
            received: CachePadded::new(AtomicUsize::new(0)),
            not_empty: Bell::new(),
            not_full: Bell::new(),
            sending: Guarded::default(),
        });
        (Address { shared: shared.clone() }, Mailbox { shared, reading: None, seen: 0 })
    }

    impl Shared {
        fn is_gone(&self) -> bool {
            self.addresses.load(Ordering::Relaxed) & GONE != 0
        }

        /// Once: true if it is done with, sent or dropped.
        fn try_send(&self, bytes: &[u8]) -> Result<bool, SendError> {
            if self.is_gone() {
                return Err(SendError::Closed);
            }
            if bytes.len() > self.ring.longest() {
                return Err(SendError::TooLong(bytes.len()));
            }
            let result = self.sending.with(|sending| {
                loop {
                    // SAFETY: we have the lock. A copy of as many bytes.
                    if unsafe { self.ring.push(&mut sending.seen, bytes.len(), |out| out.copy_from_slice(bytes)) } {
                        sending.sent += 1;
                        if sending.sent.is_multiple_of(NOW_AND_THEN as u64) {
                            self.not_full.lighten(sending.sent as usize);
                        }
                        return Ok(true);
                    }
                    match self.overflow {
                        Overflow::Block => return Ok(false),
                        Overflow::Refuse => return Err(SendError::Full),
                        Overflow::DropOldest if !sending.is_reading => {
                            // SAFETY: we have the lock, under which the receiver moves the head of such a mailbox, too.
                            unsafe {
                                if let Some(oldest) = self.ring.front(&mut self.ring.nothing_seen()) {
                                    self.ring.leave(oldest.next);
                                }
                            }
                            sending.evicted += 1;
                            sending.dropped += 1;
                        }
                        Overflow::DropOldest | Overflow::DropNewest => {
                            sending.dropped += 1;
                            return Ok(true);
                        }
                    }
                }
            })?;
            if result {
                self.not_empty.ring();
            }
            Ok(result)
        }
    }

    /// Where messages are sent to. A clone is another address of the same mailbox.
    pub struct Address {
        shared: Arc<Shared>,
    }

    impl Address {
        /// Sends a copy of a message; if there is no room, does what the mailbox's [`Overflow`] says: only
        /// [`Overflow::Block`] waits.
        pub fn send<M: Flat + ?Sized>(&self, message: &M) -> Result<(), SendError> {
            self.send_by(message, &Limit::NEVER)
        }

        /// As [`send`](Self::send), but waits until the limit only.
        pub fn send_until<'l, M: Flat + ?Sized>(
            &self,
            message: &M,
            limit: impl Into<Limit<'l>>,
        ) -> Result<(), SendError> {
            self.send_by(message, &limit.into())
        }

        fn send_by<M: Flat + ?Sized>(&self, message: &M, limit: &Limit<'_>) -> Result<(), SendError> {
            match message.as_bytes() {
                Some(bytes) => self.send_bytes(bytes, limit),
                None => {
                    let mut bytes = vec![0; message.size()];
                    message.write(&mut bytes);
                    self.send_bytes(&bytes, limit)
                }
            }
        }

        fn send_bytes(&self, bytes: &[u8], limit: &Limit<'_>) -> Result<(), SendError> {
            let shared = &*self.shared;
            if shared.try_send(bytes)? {
                return Ok(());
            }
            let attempt = || {
                if !shared.ring.has_room(bytes.len()) && !shared.is_gone() {
                    return None;
                }
                match shared.try_send(bytes) {
                    Ok(false) => None,
                    Ok(true) => Some(Ok(())),
                    Err(why) => Some(Err(why)),
                }
            };
            let passed = shared.sending.with(|sending| sending.sent) as usize;
            let result = shared.not_full.wait(passed, limit, attempt).unwrap_or_else(|why| {
                Err(match why {
                    WaitError::TimedOut => SendError::TimedOut,
                    WaitError::Cancelled => SendError::Cancelled,
                })
            });
            // We may have been woken for room that another, shorter message needs.
            shared.not_full.ring();
            result
        }

        /// What has been counted.
        pub fn counters(&self) -> Counters {
            counters(&self.shared)
        }
    }

    /// Sends one message to many, as [`Address::send`] does to each: how many took it.
    pub fn send_to_all<'a, M: Flat + ?Sized>(addresses: impl IntoIterator<Item = &'a Address>, message: &M) -> usize {
        addresses.into_iter().filter(|address| address.send(message).is_ok()).count()
    }

    fn counters(shared: &Shared) -> Counters {
        let received = shared.received.load(Ordering::Relaxed) as u64;
        let (sent, dropped, evicted) = shared.sending.with(|s| (s.sent, s.dropped, s.evicted));
        let depth = sent.saturating_sub(received + evicted);
        Counters { sent, received, dropped, depth, bytes: shared.ring.used() }
    }

    impl Clone for Address {
        fn clone(&self) -> Self {
            self.shared.addresses.fetch_add(1, Ordering::Relaxed);
            Self { shared: self.shared.clone() }
        }
    }

    impl Drop for Address {
        fn drop(&mut self) {
            // Release: what we sent comes before the end. pairs: mailbox.addresses
            if self.shared.addresses.fetch_sub(1, Ordering::Release) & !GONE == 1 {
                self.shared.not_empty.ring_all();
            }
        }
    }

    impl fmt::Debug for Address {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Address").field("counters", &self.counters()).finish()
        }
    }

    /// Where messages are received.
    pub struct Mailbox {
        shared: Arc<Shared>,
        /// The message that was received last, and may still be read.
        reading: Option<Record>,
        /// The tail that was last seen.
        seen: usize,
    }

    impl Mailbox {
        /// Receives the next message, waiting for it as long as it takes. The one before has been left by then.
        pub fn recv(&mut self) -> Result<Message<'_>, RecvError> {
            self.recv_by(&Limit::NEVER)
        }

        /// Receives the next message, waiting for it until the limit.
        pub fn recv_until<'l>(&mut self, limit: impl Into<Limit<'l>>) -> Result<Message<'_>, RecvError> {
            self.recv_by(&limit.into())
        }

        /// Receives the next message if there is one.
        pub fn try_recv(&mut self) -> Result<Message<'_>, RecvError> {
            self.leave();
            if self.claim() {
                return Ok(self.message());
            }
            // Acquire: what was sent before the end is there. pairs: mailbox.addresses
            if self.shared.addresses.load(Ordering::Acquire) != 0 {
                return Err(RecvError::Empty);
            }
            if self.claim() { Ok(self.message()) } else { Err(RecvError::Closed) }
        }

        fn recv_by(&mut self, limit: &Limit<'_>) -> Result<Message<'_>, RecvError> {
            match self.try_recv() {
                Err(RecvError::Empty) => {}
                Err(why) => return Err(why),
                Ok(_) => return Ok(self.message()),
            }
            let shared = self.shared.clone();
            // Acquire: as in `try_recv`. pairs: mailbox.addresses
            let is_ready = || !shared.ring.is_empty() || shared.addresses.load(Ordering::Acquire) == 0;
            loop {
                let passed = shared.received.load(Ordering::Relaxed);
                match shared.not_empty.wait(passed, limit, || is_ready().then_some(())) {
                    Ok(()) => match self.try_recv() {
                        Err(RecvError::Empty) => {} // dropped as the oldest
                        Err(why) => return Err(why),
                        Ok(_) => return Ok(self.message()),
                    },
                    Err(WaitError::TimedOut) => return Err(RecvError::TimedOut),
                    Err(WaitError::Cancelled) => return Err(RecvError::Cancelled),
                }
            }
        }

        /// Begins to read the first message, if there is one.
        fn claim(&mut self) -> bool {
            let shared = &*self.shared;
            self.reading = if shared.overflow == Overflow::DropOldest {
                shared.sending.with(|sending| {
                    // SAFETY: the head is ours: senders move it under the lock only, and not while we read.
                    let first = unsafe { shared.ring.front(&mut shared.ring.nothing_seen()) };
                    sending.is_reading = first.is_some();
                    first
                })
            } else {
                // SAFETY: the head is ours.
                unsafe { shared.ring.front(&mut self.seen) }
            };
            if self.reading.is_some() {
                let received = shared.received.load(Ordering::Relaxed) + 1;
                shared.received.store(received, Ordering::Relaxed);
                if received.is_multiple_of(NOW_AND_THEN) {
                    shared.not_empty.lighten(received);
                }
            }
            self.reading.is_some()
        }

        fn message(&self) -> Message<'_> {
            match self.reading {
                // SAFETY: the head is ours, and does not move while the message borrows us.
                Some(record) => Message { bytes: unsafe { self.shared.ring.bytes(record) } },
                None => unreachable!("claimed before"),
            }
        }

        /// Leaves the message that was received last: its bytes are room again.
        pub fn leave(&mut self) {
            let Some(Record { next, .. }) = self.reading.take() else { return };
            let shared = &*self.shared;
            if shared.overflow == Overflow::DropOldest {
                // SAFETY: `claim` answered it, and nobody has moved the head since.
                shared.sending.with(|sending| unsafe {
                    sending.is_reading = false;
                    shared.ring.leave(next);
                });
            } else {
                // SAFETY: as above.
                unsafe { shared.ring.leave(next) };
                shared.not_full.ring();
            }
        }

        /// What has been counted.
        pub fn counters(&self) -> Counters {
            counters(&self.shared)
        }
    }

    impl Drop for Mailbox {
        fn drop(&mut self) {
            self.shared.addresses.fetch_or(GONE, Ordering::Relaxed);
            self.shared.not_full.ring_all();
        }
    }

    impl fmt::Debug for Mailbox {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Mailbox").field("counters", &self.counters()).finish()
        }
    }

    /// A message in its mailbox, as bytes; they are aligned to 8.
    #[derive(Clone, Copy, Debug)]
    pub struct Message<'a> {
        bytes: &'a [u8],
    }

    impl<'a> Message<'a> {
        /// A look at it. `None`: it is none of that type.
        pub fn view<M: Flat + ?Sized + 'a>(&self) -> Option<M::View<'a>> {
            M::view(self.bytes)
        }
    }

    impl Deref for Message<'_> {
        type Target = [u8];
        fn deref(&self) -> &[u8] {
            self.bytes
        }
    }
}
