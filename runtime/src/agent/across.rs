//! Agents in worker processes.
//!
//! What the agents of [`agent`](super) are between the threads of a process these are between processes: in process mode
//! ([`crate::process`]) the agent's state is in one of the worker processes, where a function makes it from plain or arena data,
//! and whatever process may send to it. In user and kernel mode, where tasks are threads, it is on a thread of this process: the
//! program is the same. Messages and answers are [`Shareable`]; so are the [`Address`] and the [`Reply`], which travel in arguments,
//! in messages and in the arena. [`Handle`] and [`Restart`] are those of all agents.
//!
//! ```
//! use heddle::agent::{End, Next, across::{self, Reply}};
//! use heddle::process::ArenaString;
//!
//! heddle::shareable! {
//!     enum Message {
//!         Add(ArenaString),
//!         Count(Reply<usize>),
//!     }
//! }
//!
//! // The state, a list of `String`s, is in the agent's process only.
//! fn open(first: ArenaString) -> Vec<String> {
//!     vec![first.to_string()]
//! }
//!
//! fn handle(list: &mut Vec<String>, message: Message) {
//!     match message {
//!         Message::Add(text) => list.push(text.to_string()),
//!         Message::Count(reply) => drop(reply.send(list.len())),
//!     }
//! }
//!
//! let (list, handle) = across::spawn("warp".into(), open, handle)?;
//! list.send(Message::Add("weft".into())).unwrap();
//! assert_eq!(list.request(Message::Count), Ok(2));
//! handle.stop();
//! assert_eq!(handle.join(), End::Stopped);
//! # Ok::<(), heddle::agent::across::AgentError>(())
//! ```
//!
//! # Deaths
//! An agent's process may die, by whatever means. The message that it was handling is lost, and requests that it had taken and not
//! answered fail with [`RequestError::Died`], which says how. Without a policy that is its end ([`End::Died`], which
//! monitors are told). With [`restart`] a new agent is made, in a process that lives, from a clone of the argument: its
//! addresses stay good, and it goes on with the next message. A panic is as in other agents, but that the state may then be made in
//! another process.
//!
//! The process that has made the agent looks after it. If that one dies, the agent goes on until its addresses are gone, but is
//! not made anew.
//!
//! # Replies
//! A request counts as the agent's that was asked, also when that has given the [`Reply`] to somebody else: it fails when that agent's process
//! dies. It is [`Unanswered`](RequestError::Unanswered) when the process dies that has received the reply last, be it in a message, in an argument
//! or as a result, by itself or as a part of a tuple, an `Option` or a type made by [`shareable!`](crate::shareable). Of a reply inside of something else in
//! the arena (an `ArenaBox`, a list, a mutex) who takes it out has it from its first [`is_wanted`](Reply::is_wanted) on.
//!
//! # Price
//! A message costs what a channel between processes does ([`channel::across`](crate::channel::across)), a request a block of the arena
//! besides. An agent has a thread in its process, which takes a kernel thread along while it waits, and a kernel thread here that looks
//! after it. A process has room for about a thousand.

use std::error::Error;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::answer::{Answer, Came};
use super::course::{Control, Course, Times, text};
use super::{End, Handle, Next, ROOM, RequestError, Restart};
use crate::cancel::{Limit, WaitError};
use crate::channel::across::{ChannelError, Receiver, Sender, in_arena};
use crate::channel::{SendError, SendUntilError, TrySendError};
use crate::process::{self, ArenaArc, ArenaFull, Ring, Shareable, TaskError, TaskHandle, has_code, task_mode, task_on};
use crate::start::Mode;
use crate::thread::SpawnError;

/// Why there is no agent.
#[derive(Debug)]
#[non_exhaustive]
pub enum AgentError {
    /// There is no channel for its messages.
    Channel(ChannelError),
    /// There is no task for it.
    Task(TaskError),
    /// There is no thread that looks after it.
    Thread(SpawnError),
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Channel(why) => why.fmt(f),
            Self::Task(why) => why.fmt(f),
            Self::Thread(why) => why.fmt(f),
        }
    }
}

impl Error for AgentError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(match self {
            Self::Channel(why) => why,
            Self::Task(why) => why,
            Self::Thread(why) => why,
        })
    }
}

/// What is known of an agent wherever it has an address.
///
/// Messages have numbers, in the order in which they are received. When an agent has died with its process, who looks after
/// it notes up to which number messages had been taken: those are gone. It does so before there is another agent.
struct Life {
    /// How many agents of it have died. Waited for.
    deaths: AtomicU32,
    /// The first number that had not been taken when the last one died; in the low half how it died.
    gone: AtomicU64,
    /// 1: it has ended that way.
    is_over: AtomicU32,
    /// How many agents of it have not died, but are about to be over.
    ends: AtomicU32,
    /// The process that looks after it.
    keeper: u32,
    /// The process that it is in, while it is.
    home: AtomicU32,
}

// SAFETY: words, in this and all that follow but the last two.
unsafe impl Shareable for Life {}
// SAFETY: a word, and a value that may cross.
unsafe impl<R: Shareable> Shareable for Answer<R> {}
// SAFETY: in the arena.
unsafe impl<R: Shareable> Shareable for Reply<R> {
    fn arrived(&self) {
        self.answer.hold(process::identity());
    }
}
// SAFETY: a handle that may cross, and what is in the arena.
unsafe impl<M: Shareable> Shareable for Address<M> {}

impl Life {
    fn new() -> Self {
        Self {
            deaths: AtomicU32::new(0),
            gone: AtomicU64::new(0),
            is_over: AtomicU32::new(0),
            ends: AtomicU32::new(0),
            keeper: process::identity(),
            home: AtomicU32::new(0),
        }
    }

    /// Waits until the agent that runs as this task is over or about to be. Not as others wait for tasks: who does that is woken with
    /// the end of each task that this process has sent, and this wait is long.
    fn wait_for(&self, task: &TaskHandle<()>, ends_before: u32) {
        loop {
            let deaths = process::deaths();
            if self.ends.load(Ordering::Relaxed) != ends_before || task.is_finished() {
                return;
            }
            let _ = process::wait(&self.ends, ends_before, deaths, &Limit::NEVER);
        }
    }

    fn died(&self, first: u32, how: ExitStatus) {
        let how = how.into_raw().cast_unsigned();
        self.gone.store(u64::from(first) << 32 | u64::from(how), Ordering::Relaxed);
        // Release: what is gone. pairs: agent.deaths
        self.deaths.fetch_add(1, Ordering::Release);
        process::wake(&self.deaths, i32::MAX);
    }

    /// How the agent has died that had taken this message, if so; with the count of deaths before the look.
    fn fate(&self, number: u32) -> (u32, Option<ExitStatus>) {
        // Acquire: what is gone. pairs: agent.deaths
        let deaths = self.deaths.load(Ordering::Acquire);
        let gone = self.gone.load(Ordering::Relaxed);
        let (first, how) = ((gone >> 32) as u32, ExitStatus::from_raw((gone as u32).cast_signed()));
        let is_gone = first.wrapping_sub(number).cast_signed() > 0 || self.is_over.load(Ordering::Relaxed) != 0;
        (deaths, (deaths != 0 && is_gone).then_some(how))
    }
}

/// Where an agent's messages are sent to, from whatever process. A clone is the same agent's. One thread has it at a time.
///
/// It stays good when the agent is made anew.
pub struct Address<M: Shareable> {
    sender: Sender<M>,
    life: ArenaArc<Life>,
}

impl<M: Shareable> Clone for Address<M> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), life: self.life.clone() }
    }
}

impl<M: Shareable> fmt::Debug for Address<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address").field("waiting", &self.sender.len()).field("closed", &self.is_closed()).finish()
    }
}

impl<M: Shareable> Address<M> {
    /// Sends, waiting for room as long as it takes. Error: the agent takes no more messages; the message.
    ///
    /// `Ok` does not mean that it will be handled: the agent, or its process, may end before.
    pub fn send(&self, message: M) -> Result<(), SendError<M>> {
        self.sender.send(message)
    }

    /// Sends if there is room.
    pub fn try_send(&self, message: M) -> Result<(), TrySendError<M>> {
        self.sender.try_send(message)
    }

    /// Sends, waiting for room until the limit.
    pub fn send_until<'l>(&self, message: M, limit: impl Into<Limit<'l>>) -> Result<(), SendUntilError<M>> {
        self.sender.send_until(message, limit)
    }

    /// Sends the message that is made of the [`Reply`], and waits for the answer as long as it takes.
    ///
    /// A request of an agent to itself waits for ever.
    pub fn request<R: Shareable>(&self, message: impl FnOnce(Reply<R>) -> M) -> Result<R, RequestError> {
        self.request_until(message, Limit::NEVER)
    }

    /// As [`request`](Self::request), waiting for room and for the answer until the limit. What was sent by then the agent handles
    /// nevertheless, and its answer is refused; it may ask before ([`Reply::is_wanted`]). In process mode a token is looked at every 5 ms.
    pub fn request_until<'l, R: Shareable>(
        &self,
        message: impl FnOnce(Reply<R>) -> M,
        limit: impl Into<Limit<'l>>,
    ) -> Result<R, RequestError> {
        let limit = limit.into();
        let answer = ArenaArc::try_new(Answer::new(process::identity())).map_err(RequestError::Full)?;
        let message = message(Reply { answer: answer.clone() });
        let number = self.sender.send_numbered(message, &limit).map_err(|(_, why)| of(why))?;
        self.wait(&answer, number, &limit)
    }

    fn wait<R: Shareable>(&self, answer: &Answer<R>, number: u32, limit: &Limit<'_>) -> Result<R, RequestError> {
        let mut ended = Ok(());
        loop {
            let deaths = process::deaths();
            let (own_deaths, fate) = self.life.fate(number);
            // SAFETY: we are who waits, and return with the value.
            match unsafe { answer.look() } {
                Came::Value(value) => return Ok(value),
                Came::Dropped => {
                    // If it was dropped after a death, that is told by now.
                    let fate = self.life.fate(number).1;
                    return Err(fate.map_or(RequestError::Unanswered, RequestError::Died));
                }
                Came::Nothing => {}
            }
            let why = match (fate, ended) {
                (Some(how), _) => Some(RequestError::Died(how)),
                (None, Err(why)) => Some(of(Some(why))),
                (None, Ok(())) if self.is_left_alone() => Some(RequestError::Unanswered),
                (None, Ok(())) => self.died_with(answer, number),
            };
            match why {
                Some(why) if answer.give_up() => return Err(why),
                // Something has come after all.
                Some(_) => continue,
                None => {}
            }
            let (word, value) = answer.word();
            ended = process::wait_beside(word, value, deaths, (&self.life.deaths, own_deaths), limit);
        }
    }

    /// Why there will be no answer, if the reply was in a process that has died. If the agent was there too, its keeper tells.
    fn died_with<R>(&self, answer: &Answer<R>, number: u32) -> Option<RequestError> {
        let dead = answer.dead_holder(process::is_dead)?;
        // Acquire: the keeper has told before there was another agent. pairs: agent.home
        let agent_died_too = self.life.home.load(Ordering::Acquire) == dead;
        let fate = || self.life.fate(number).1.map_or(RequestError::Unanswered, RequestError::Died);
        (!agent_died_too).then(fate)
    }

    /// Whether there is no agent, and nobody who would tell.
    fn is_left_alone(&self) -> bool {
        process::is_dead(self.life.keeper) && !self.sender.has_receivers()
    }

    /// Whether the agent takes no more messages: it stops, or has ended.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

fn of(why: Option<WaitError>) -> RequestError {
    match why {
        None => RequestError::Closed,
        Some(WaitError::TimedOut) => RequestError::TimedOut,
        Some(WaitError::Cancelled) => RequestError::Cancelled,
    }
}

/// Answers a request, once, from whatever process. Dropped, the request is [`Unanswered`](RequestError::Unanswered).
pub struct Reply<R: Shareable> {
    answer: ArenaArc<Answer<R>>,
}

impl<R: Shareable> Reply<R> {
    /// Answers; waits for nothing. Error: nobody waits for it any more; the answer.
    pub fn send(self, answer: R) -> Result<(), R> {
        // SAFETY: there is one reply, and it ends here.
        unsafe { self.answer.give(answer) }?;
        process::wake(self.answer.word().0, 1);
        Ok(())
    }

    /// Whether somebody waits for it.
    pub fn is_wanted(&self) -> bool {
        self.arrived();
        self.answer.is_wanted()
    }
}

impl<R: Shareable> Drop for Reply<R> {
    fn drop(&mut self) {
        if self.answer.drop_it() {
            process::wake(self.answer.word().0, 1);
        }
    }
}

impl<R: Shareable> fmt::Debug for Reply<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("wanted", &self.is_wanted()).finish()
    }
}

/// What a process needs to be the agent.
struct Job<A, S, M: Shareable, R> {
    make: fn(A) -> S,
    handler: fn(&mut S, M) -> R,
    argument: A,
    receiver: Receiver<M>,
    life: ArenaArc<Life>,
    is_in_worker: bool,
}

// SAFETY: functions that all processes have at the same address, which is looked after before it is sent, and what may cross.
unsafe impl<A: Shareable, S: 'static, M: Shareable, R: 'static> Shareable for Job<A, S, M, R> {
    fn arrived(&self) {
        self.argument.arrived();
    }
}

/// The agent's life.
fn live<A: Shareable, S: 'static, M: Shareable, R: Into<Next> + 'static>(job: Job<A, S, M, R>) {
    /// Tells who looks after it.
    struct Ends(ArenaArc<Life>);
    impl Drop for Ends {
        fn drop(&mut self) {
            self.0.home.store(0, Ordering::Relaxed); // what the process does from here on is not its
            self.0.ends.fetch_add(1, Ordering::Relaxed); // the task's end says the rest
            process::wake(&self.0.ends, 1);
        }
    }
    let is_in_worker = job.is_in_worker;
    // Release: what became of the one before, which was told before our task was sent. pairs: agent.home
    job.life.home.store(process::identity(), Ordering::Release);
    let _ends = Ends(job.life);
    let live = move || {
        let mut state = (job.make)(job.argument);
        while let Ok(message) = job.receiver.recv() {
            if (job.handler)(&mut state, message).into() == Next::Stop {
                job.receiver.close();
            }
        }
    };
    if is_in_worker { process::aside(live) } else { live() }
}

/// An agent to be made: in which mode, and how much room there is.
///
/// ```
/// use heddle::Mode;
/// use heddle::agent::across;
///
/// let builder = across::Builder::new().mode(Mode::Kernel).room(1000);
/// let (sum, handle) = builder.spawn(0, |start: u64| start, |sum, n: u64| *sum += n)?;
/// sum.send(7).unwrap();
/// drop(sum);
/// handle.join();
/// # Ok::<(), across::AgentError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder makes an agent when `spawn` or `restart` is called"]
pub struct Builder {
    mode: Option<Mode>,
    room: Option<usize>,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// Where tasks run ([`task_mode`]), with room for [`ROOM`] messages.
    pub const fn new() -> Self {
        Self { mode: None, room: Some(ROOM) }
    }

    /// In a worker process, or on a thread of that kind in this one. [`Mode::Process`] needs a program that was started in it.
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// How many messages wait before senders do, up to 2^31. 0: a send waits until the agent takes the message.
    pub const fn room(mut self, messages: usize) -> Self {
        self.room = Some(messages);
        self
    }

    /// Senders wait only while the arena is full.
    pub const fn unbounded(mut self) -> Self {
        self.room = None;
        self
    }

    /// Makes the agent; see [`spawn`].
    pub fn spawn<A, S, M, R>(
        self,
        argument: A,
        make: fn(A) -> S,
        handler: fn(&mut S, M) -> R,
    ) -> Result<(Address<M>, Handle), AgentError>
    where
        A: Shareable,
        S: 'static,
        M: Shareable,
        R: Into<Next> + 'static,
    {
        let mut argument = Some(argument);
        self.keep(Restart::NEVER, make, handler, move || argument.take().expect("called once"))
    }

    /// Makes an agent that is made anew; see [`restart`].
    pub fn restart<A, S, M, R>(
        self,
        policy: Restart,
        argument: A,
        make: fn(A) -> S,
        handler: fn(&mut S, M) -> R,
    ) -> Result<(Address<M>, Handle), AgentError>
    where
        A: Shareable + Clone,
        S: 'static,
        M: Shareable,
        R: Into<Next> + 'static,
    {
        self.keep(policy, make, handler, move || argument.clone())
    }

    fn keep<A: Shareable, S: 'static, M: Shareable, R: Into<Next> + 'static>(
        self,
        policy: Restart,
        make: fn(A) -> S,
        handler: fn(&mut S, M) -> R,
        mut argument: impl FnMut() -> A + Send + 'static,
    ) -> Result<(Address<M>, Handle), AgentError> {
        let mode = self.mode.unwrap_or_else(task_mode);
        let is_in_worker = mode == Mode::Process;
        if is_in_worker && process::count() != 0 && ![make as *const (), handler as *const ()].into_iter().all(has_code)
        {
            return Err(AgentError::Task(TaskError::Function));
        }
        let (sender, receiver) = in_arena(self.room).map_err(AgentError::Channel)?;
        let full = |full: ArenaFull| AgentError::Channel(ChannelError::Full(full));
        let life = ArenaArc::try_new(Life::new()).map_err(full)?;
        let core = Arc::new(Core { ring: receiver.ring(), course: Course::new() });
        let of_job = life.clone();
        let mut task = move |receiver: &Receiver<M>| {
            let (receiver, life) = (receiver.clone(), of_job.clone());
            let job = Job { make, handler, argument: argument(), receiver, life, is_in_worker };
            task_on(mode, live::<A, S, M, R>, job)
        };
        let first = task(&receiver);
        if first.refusal().is_some() {
            return first.join().map_or_else(|why| Err(AgentError::Task(why)), |()| unreachable!("it was refused"));
        }
        let (kept, told) = (life.clone(), core.clone());
        let keeper = move || {
            let looks_after = AssertUnwindSafe(|| keep(first, policy, task, &receiver, &kept, &told.course));
            // A clone of the argument may panic.
            let end = catch_unwind(looks_after).unwrap_or_else(|what| End::Panicked(text(what)));
            kept.is_over.store(u32::from(matches!(end, End::Died(_))), Ordering::Relaxed);
            receiver.close();
            while let Ok(message) = receiver.try_recv() {
                // One that panics while it is dropped has been reported.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(message)));
            }
            told.course.end(end);
        };
        // A thread that waits for other processes would take a kernel thread along.
        let builder = if is_in_worker { crate::Builder::new().mode(Mode::Kernel) } else { crate::Builder::new() };
        let thread = builder.spawn(keeper).map_err(AgentError::Thread)?;
        Ok((Address { sender, life }, Handle { core, thread }))
    }
}

/// Looks after an agent, until it is not made anew.
fn keep<M: Shareable>(
    mut task: TaskHandle<()>,
    policy: Restart,
    mut again: impl FnMut(&Receiver<M>) -> TaskHandle<()>,
    receiver: &Receiver<M>,
    life: &Life,
    course: &Course,
) -> End {
    let (mut times, mut ends) = (Times::new(policy), 0);
    loop {
        life.wait_for(&task, ends);
        let end = match task.join() {
            Ok(()) => return End::Stopped,
            Err(TaskError::Panicked(text)) => End::Panicked(text.into()),
            Err(TaskError::Died(how)) => {
                life.died(receiver.next_number(), how);
                End::Died(how)
            }
            Err(why) => return End::Lost(why.to_string().into()),
        };
        if !times.once_more() {
            return end;
        }
        course.again();
        ends = life.ends.load(Ordering::Relaxed);
        task = again(receiver);
    }
}

/// What an agent and its handle share in the process that looks after it.
struct Core<M: Shareable> {
    /// To close the channel by: counts neither as a sender nor as a receiver.
    ring: ArenaArc<Ring<M>>,
    course: Course,
}

impl<M: Shareable> Control for Core<M> {
    fn close(&self) {
        self.ring.close();
    }
    fn course(&self) -> &Course {
        &self.course
    }
}

/// Makes an agent where tasks run: in process mode in a worker process, else on a thread. `make` makes its state there. A panic
/// of either function, or the death of its process, ends it.
///
/// The functions must have been in the program when it was started; closures that capture nothing are functions too.
pub fn spawn<A, S, M, R>(
    argument: A,
    make: fn(A) -> S,
    handler: fn(&mut S, M) -> R,
) -> Result<(Address<M>, Handle), AgentError>
where
    A: Shareable,
    S: 'static,
    M: Shareable,
    R: Into<Next> + 'static,
{
    Builder::new().spawn(argument, make, handler)
}

/// As [`spawn`]; when the handler panics, or the process dies, a new one is made from a clone of the argument, and goes on with the next message.
///
/// ```
/// use std::time::Duration;
///
/// use heddle::agent::{RequestError, Restart, across::{self, Reply}};
///
/// fn divide(count: &mut u32, (n, by, reply): (u32, u32, Reply<(u32, u32)>)) {
///     *count += 1;
///     drop(reply.send((n / by, *count)));
/// }
/// let (divider, _) = across::restart(Restart::at_most(3, Duration::from_secs(1)), 0, |count: u32| count, divide)?;
/// assert_eq!(divider.request(|reply| (42, 7, reply)), Ok((6, 1)));
/// assert_eq!(divider.request(|reply| (1, 0, reply)), Err(RequestError::Unanswered));
/// assert_eq!(divider.request(|reply| (42, 6, reply)), Ok((7, 1))); // counts from 0 again
/// # Ok::<(), across::AgentError>(())
/// ```
pub fn restart<A, S, M, R>(
    policy: Restart,
    argument: A,
    make: fn(A) -> S,
    handler: fn(&mut S, M) -> R,
) -> Result<(Address<M>, Handle), AgentError>
where
    A: Shareable + Clone,
    S: 'static,
    M: Shareable,
    R: Into<Next> + 'static,
{
    Builder::new().restart(policy, argument, make, handler)
}
