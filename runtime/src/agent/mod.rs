//! Agents: a state that one thread has, and messages to it.
//!
//! ```
//! use heddle::agent::{self, End, Reply};
//! use std::time::Duration;
//!
//! enum Message {
//!     Add(u64),
//!     Sum(Reply<u64>),
//! }
//!
//! let (sum, handle) = agent::spawn(0, |sum, message| match message {
//!     Message::Add(n) => *sum += n,
//!     Message::Sum(reply) => drop(reply.send(*sum)),
//! });
//! sum.send(Message::Add(20)).unwrap();
//! sum.send(Message::Add(22)).unwrap();
//! assert_eq!(sum.request(Message::Sum), Ok(42));
//! assert_eq!(sum.request_until(Message::Sum, Duration::from_secs(60)), Ok(42));
//! handle.stop();
//! assert_eq!(handle.join(), End::Stopped);
//! ```
//!
//! An agent is a thread that takes messages out of a [`channel`] one after the other and gives each of them to a
//! handler, with the state. Messages are values of any type and are moved, not boxed; those of one sender arrive in the order in
//! which they were sent. Agents are user threads or kernel threads ([`Builder::mode`]), and whatever thread may send to them; those in
//! [`across`] are in worker processes. A
//! handler may do what a thread may: wait, request, make agents.
//!
//! # Waiting
//! The channel has room for [`ROOM`] messages, or as [`Builder::room`] says; who sends more waits, or is refused ([`Address::try_send`]).
//! Who waits on a user thread leaves its worker to others; a kernel thread sleeps in the kernel. Agents that wait for each
//! other, by request or for room, wait for ever: give such waits a limit.
//!
//! # The end
//! An agent ends when it is told to ([`Handle::stop`], [`Next::Stop`]) or when all its addresses are gone; in each case after it has
//! handled what was sent before. And it ends when its handler panics, unless it is made anew ([`restart`]); then what is left
//! is dropped, and requests in it are answered with [`RequestError::Unanswered`]. [`Handle::join`] and [`Handle::monitor`] tell.
//!
//! Where panics abort (`panic = "abort"`) none of this happens: the process ends.

pub mod across;
mod answer;
mod course;
mod left;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use self::course::{Control, Course, Times, text};
pub use self::course::{End, Handle, RequestError, Restart};
use self::left::{Left, Rest};
use crate::cancel::Limit;
use crate::channel::{
    self, Kind, Local, Receiver, RecvUntilError, SendError, SendUntilError, Sender, TrySendError, bounded, unbounded,
};
use crate::start::Mode;
use crate::thread::{self, Priority, SpawnError};

impl<M> Rest for Receiver<M> {
    type Messages = Vec<M>;
    fn take(&self) -> Option<Vec<M>> {
        let mut messages = Vec::new();
        (Self::take(self, &mut messages, usize::MAX) != 0).then_some(messages)
    }
}

/// How many messages wait for an agent before senders do.
pub const ROOM: usize = 64;

/// What an agent does after a message. A handler that answers nothing goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// It takes the next one.
    Continue,
    /// It stops as by [`Handle::stop`]: handles what was sent before now, then ends.
    Stop,
}

impl From<()> for Next {
    fn from((): ()) -> Self {
        Self::Continue
    }
}

/// What an agent, its addresses and its handle share.
struct Core<M> {
    /// To close the channel by: counts neither as a sender nor as a receiver.
    channel: Local<M>,
    /// Its receiver, when the agent receives no more.
    left: Left<Receiver<M>>,
    course: Course,
}

impl<M> Core<M> {
    fn end(&self, receiver: Receiver<M>, end: End) {
        receiver.close();
        self.left.end(receiver);
        self.course.end(end);
    }
}

impl<M: Send> Control for Core<M> {
    fn close(&self) {
        self.channel.close(crate::channel::End::Receiver);
    }
    fn course(&self) -> &Course {
        &self.course
    }
}

/// Where an agent's messages are sent to. A clone is the same agent's. One thread has it at a time, as a
/// [`Sender`]: each thread gets a clone.
///
/// It stays good when the agent is made anew after a panic.
pub struct Address<M> {
    sender: Sender<M>,
    core: Arc<Core<M>>,
}

impl<M> Clone for Address<M> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), core: self.core.clone() }
    }
}

impl<M> fmt::Debug for Address<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address").field("waiting", &self.sender.len()).field("closed", &self.is_closed()).finish()
    }
}

impl<M> Address<M> {
    /// Sends, waiting for room as long as it takes. Error: the agent takes no more messages; the message.
    ///
    /// `Ok` does not mean that it will be handled: the agent may panic before.
    pub fn send(&self, message: M) -> Result<(), SendError<M>> {
        self.sender.send(message).inspect(|()| self.core.left.sent())
    }

    /// Sends if there is room.
    pub fn try_send(&self, message: M) -> Result<(), TrySendError<M>> {
        self.sender.try_send(message).inspect(|()| self.core.left.sent())
    }

    /// Sends, waiting for room until the limit.
    pub fn send_until<'l>(&self, message: M, limit: impl Into<Limit<'l>>) -> Result<(), SendUntilError<M>> {
        self.sender.send_until(message, limit).inspect(|()| self.core.left.sent())
    }

    /// Sends the message that is made of the [`Reply`], and waits for the answer as long as it takes.
    ///
    /// A request of an agent to itself waits for ever.
    pub fn request<R>(&self, message: impl FnOnce(Reply<R>) -> M) -> Result<R, RequestError> {
        self.request_until(message, Limit::NEVER)
    }

    /// As [`request`](Self::request), waiting for room and for the answer until the limit. What was sent by then the agent handles
    /// nevertheless, and its answer is refused; it may ask before ([`Reply::is_wanted`]).
    pub fn request_until<'l, R>(
        &self,
        message: impl FnOnce(Reply<R>) -> M,
        limit: impl Into<Limit<'l>>,
    ) -> Result<R, RequestError> {
        let limit = limit.into();
        let (reply, answer) = bounded(1);
        self.send_until(message(Reply(reply)), limit).map_err(|error| match error {
            SendUntilError::TimedOut(_) => RequestError::TimedOut,
            SendUntilError::Cancelled(_) => RequestError::Cancelled,
            SendUntilError::Disconnected(_) => RequestError::Closed,
        })?;
        answer.recv_until(limit).map_err(|error| match error {
            RecvUntilError::TimedOut => RequestError::TimedOut,
            RecvUntilError::Cancelled => RequestError::Cancelled,
            RecvUntilError::Disconnected => RequestError::Unanswered,
        })
    }

    /// Whether the agent takes no more messages: it stops, or has ended.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

/// Answers a request, once. It may be given to another thread or agent, which then answers. Dropped, the request is
/// [`Unanswered`](RequestError::Unanswered).
pub struct Reply<R>(Sender<R>);

impl<R> Reply<R> {
    /// Answers; waits for nothing. Error: nobody waits for it any more; the answer.
    pub fn send(self, answer: R) -> Result<(), R> {
        self.0.try_send(answer).map_err(TrySendError::into_inner)
    }

    /// Whether somebody waits for it.
    pub fn is_wanted(&self) -> bool {
        !self.0.is_closed()
    }
}

impl<R> fmt::Debug for Reply<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("wanted", &self.is_wanted()).finish()
    }
}

/// An agent to be made: what its thread is, and how much room there is.
///
/// ```
/// use heddle::{Mode, SpawnError, agent};
///
/// let (shout, handle) = agent::Builder::new().mode(Mode::Kernel).room(1000).spawn((), |_, text: String| println!("{text}"))?;
/// shout.send("aloud".to_string()).unwrap();
/// drop(shout);
/// handle.join();
///
/// let refused = agent::Builder::new().mode(Mode::Process).spawn((), |_, (): ()| ());
/// assert!(matches!(refused, Err(SpawnError::Process)));
/// # Ok::<(), SpawnError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder makes an agent when `spawn` or `restart` is called"]
pub struct Builder {
    thread: thread::Builder,
    room: Option<usize>,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// A thread as by [`crate::Builder::new`], and room for [`ROOM`] messages.
    pub const fn new() -> Self {
        Self { thread: thread::Builder::new(), room: Some(ROOM) }
    }

    /// Its thread's name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.thread = self.thread.name(name.into());
        self
    }

    /// What its thread is to be. [`Mode::Process`] is refused ([`SpawnError::Process`]): see [`across`].
    pub fn mode(mut self, mode: Mode) -> Self {
        self.thread = self.thread.mode(mode);
        self
    }

    /// Its thread's stack in bytes.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.thread = self.thread.stack_size(bytes);
        self
    }

    /// Its thread's priority.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.thread = self.thread.priority(priority);
        self
    }

    /// How many messages wait before senders do. 0: a send waits until the agent takes the message.
    pub fn room(mut self, messages: usize) -> Self {
        self.room = Some(messages);
        self
    }

    /// Senders never wait, and memory is the only bound.
    pub fn unbounded(mut self) -> Self {
        self.room = None;
        self
    }

    /// Makes the agent. A panic of the handler ends it.
    pub fn spawn<S, M, R, H>(self, state: S, handler: H) -> Result<(Address<M>, Handle), SpawnError>
    where
        S: Send + 'static,
        M: Send + 'static,
        R: Into<Next>,
        H: FnMut(&mut S, M) -> R + Send + 'static,
    {
        let mut state = Some(state);
        self.restart(Restart::NEVER, move || state.take().expect("called once"), handler)
    }

    /// Makes an agent whose state is made on its thread, and made anew when the handler has panicked; see [`restart`].
    pub fn restart<S, M, R, H>(
        self,
        policy: Restart,
        make: impl FnMut() -> S + Send + 'static,
        handler: H,
    ) -> Result<(Address<M>, Handle), SpawnError>
    where
        S: 'static,
        M: Send + 'static,
        R: Into<Next>,
        H: FnMut(&mut S, M) -> R + Send + 'static,
    {
        let (sender, receiver) = self.room.map_or_else(unbounded, bounded);
        let core = Arc::new(Core { channel: receiver.kind.uncounted(), left: Left::new(), course: Course::new() });
        let of_thread = core.clone();
        let thread = self.thread.spawn(move || {
            // What the handler has captured may panic while it is dropped.
            let end = catch_unwind(AssertUnwindSafe(|| run(policy, make, handler, &receiver, &of_thread.course)))
                .unwrap_or_else(|what| End::Panicked(text(what)));
            of_thread.end(receiver, end);
        })?;
        Ok((Address { sender, core: core.clone() }, Handle { core, thread }))
    }
}

/// An agent's life; the handler, and all that it holds, is gone at the end.
fn run<S, M, R: Into<Next>>(
    policy: Restart,
    mut make: impl FnMut() -> S,
    mut handler: impl FnMut(&mut S, M) -> R,
    receiver: &channel::Receiver<M>,
    course: &Course,
) -> End {
    let mut times = Times::new(policy);
    loop {
        // What a panic leaves half done is the state, which goes with it, and what the handler has besides: that is told.
        let lived = catch_unwind(AssertUnwindSafe(|| {
            let mut state = make();
            while let Ok(message) = receiver.recv() {
                if handler(&mut state, message).into() == Next::Stop {
                    receiver.close();
                }
            }
        }));
        let Err(what) = lived else { return End::Stopped };
        if !times.once_more() {
            return End::Panicked(text(what));
        }
        course.again();
    }
}

/// Makes an agent on a thread of the mode that the process has. A panic of the handler ends it.
///
/// # Panics
/// If there is no memory for its thread; [`Builder::spawn`] answers an error instead.
pub fn spawn<S, M, R, H>(state: S, handler: H) -> (Address<M>, Handle)
where
    S: Send + 'static,
    M: Send + 'static,
    R: Into<Next>,
    H: FnMut(&mut S, M) -> R + Send + 'static,
{
    made(Builder::new().spawn(state, handler))
}

/// As [`spawn`]; when the handler panics the state is dropped and made anew by `make`, which also makes the first, on the agent's thread.
/// The agent goes on with the next message: only the one over which it panicked is lost. Addresses stay good.
///
/// A panic of `make` counts as one of the handler. What the handler has captured, and the thread-locals, stay as the panic left
/// them.
///
/// ```
/// use heddle::agent::{self, Reply, RequestError, Restart};
/// use std::time::Duration;
///
/// let divide = |count: &mut u32, (n, by, reply): (u32, u32, Reply<(u32, u32)>)| {
///     *count += 1;
///     drop(reply.send((n / by, *count)));
/// };
/// let (divider, _) = agent::restart(Restart::at_most(3, Duration::from_secs(1)), || 0, divide);
/// assert_eq!(divider.request(|reply| (42, 7, reply)), Ok((6, 1)));
/// assert_eq!(divider.request(|reply| (1, 0, reply)), Err(RequestError::Unanswered));
/// assert_eq!(divider.request(|reply| (42, 6, reply)), Ok((7, 1))); // counts from 0 again
/// ```
///
/// # Panics
/// If there is no memory for its thread; [`Builder::restart`] answers an error instead.
pub fn restart<S, M, R, H>(
    policy: Restart,
    make: impl FnMut() -> S + Send + 'static,
    handler: H,
) -> (Address<M>, Handle)
where
    S: 'static,
    M: Send + 'static,
    R: Into<Next>,
    H: FnMut(&mut S, M) -> R + Send + 'static,
{
    made(Builder::new().restart(policy, make, handler))
}

fn made<T>(result: Result<T, SpawnError>) -> T {
    match result {
        Ok(made) => made,
        Err(why) => panic!("{why}"),
    }
}
