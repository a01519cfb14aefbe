//! How an agent goes on and ends, and what tells of it.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::cancel::{Limit, WaitError};
use crate::process::ArenaFull;
use crate::sync::{Event, Mutex};
use crate::thread::{self, JoinHandle};

/// Why an agent has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// It was stopped, or nobody had its address any more.
    Stopped,
    /// Its handler, or what makes its state, has panicked with that text, more often than it is made anew.
    Panicked(Arc<str>),
    /// Its process has died, in this way, more often than it is made anew ([`across`](super::across)).
    Died(ExitStatus),
    /// It could not be made anew, for this reason: there are no worker processes any more, or no room.
    Lost(Arc<str>),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped"),
            Self::Panicked(text) => write!(f, "panicked: {text}"),
            Self::Died(how) => write!(f, "its process died: {how}"),
            Self::Lost(why) => write!(f, "not made anew: {why}"),
        }
    }
}

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestError {
    /// The agent takes no more messages; this one was not sent.
    Closed,
    /// The agent panicked over it or before it came to it, or dropped the [`Reply`](super::Reply).
    Unanswered,
    /// The process of the agent has died with it, in this way.
    Died(ExitStatus),
    /// The arena has no room for the answer.
    Full(ArenaFull),
    /// The time has passed.
    TimedOut,
    /// The token was cancelled.
    Cancelled,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the agent takes no more messages"),
            Self::Unanswered => f.write_str("the agent has dropped the request"),
            Self::Died(how) => write!(f, "the agent's process died: {how}"),
            Self::Full(full) => full.fmt(f),
            Self::TimedOut => f.write_str("no answer in time"),
            Self::Cancelled => f.write_str("cancelled while waiting for the answer"),
        }
    }
}

impl std::error::Error for RequestError {}

/// How often an agent is made anew that panics, or whose process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Restart {
    most: u32,
    within: Duration,
}

impl Restart {
    /// At most so many times within any span of that length; one panic more ends it.
    pub const fn at_most(most: u32, within: Duration) -> Self {
        Self { most, within }
    }

    pub(super) const NEVER: Self = Self::at_most(0, Duration::ZERO);
}

/// The times when an agent was made anew.
pub(super) struct Times {
    policy: Restart,
    times: VecDeque<Instant>,
}

impl Times {
    pub(super) fn new(policy: Restart) -> Self {
        Self { policy, times: VecDeque::new() }
    }

    /// Whether it is made anew now, once more.
    pub(super) fn once_more(&mut self) -> bool {
        let now = Instant::now();
        while self.times.front().is_some_and(|&at| now.saturating_duration_since(at) > self.policy.within) {
            self.times.pop_front();
        }
        let more = self.times.len() < self.policy.most as usize;
        if more {
            self.times.push_back(now);
        }
        more
    }
}

type Monitor = Box<dyn FnOnce(&End) + Send>;

/// An agent's end, and who is told of it.
pub(super) struct Course {
    life: Mutex<Life>,
    ended: Event,
    restarts: AtomicU32,
}

struct Life {
    end: Option<End>,
    monitors: Vec<Monitor>,
}

impl Course {
    pub(super) fn new() -> Self {
        let life = Mutex::new(Life { end: None, monitors: Vec::new() });
        Self { life, ended: Event::new(), restarts: AtomicU32::new(0) }
    }

    /// It is made anew.
    pub(super) fn again(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }

    /// It has ended, and takes no more messages.
    pub(super) fn end(&self, end: End) {
        let monitors = {
            let mut life = self.life.lock();
            life.end = Some(end.clone());
            std::mem::take(&mut life.monitors)
        };
        self.ended.set();
        for monitor in monitors {
            // The others are told in any case.
            let _ = catch_unwind(AssertUnwindSafe(|| monitor(&end)));
        }
    }

    fn told(&self) -> Option<End> {
        self.life.lock().end.clone()
    }
}

/// What a handle needs, whatever the messages are.
pub(super) trait Control: Send + Sync {
    fn close(&self);
    fn course(&self) -> &Course;
}

/// Stops an agent, and tells of its end. Dropped, it lets the agent go on. It does not keep the agent from ending when all
/// addresses are gone.
pub struct Handle {
    pub(super) core: Arc<dyn Control>,
    pub(super) thread: JoinHandle<()>,
}

impl Handle {
    /// Tells the agent to end when it has handled what was sent before; what is sent afterwards is refused. Does not wait for it.
    pub fn stop(&self) {
        self.core.close();
    }

    /// Waits until the agent has ended, its thread too. It does not stop it: call [`stop`](Self::stop), or drop the addresses.
    pub fn join(self) -> End {
        self.core.course().ended.wait();
        let _ = self.thread.join(); // panics of the agent have been caught
        self.core.course().told().unwrap_or(End::Stopped)
    }

    /// Waits until the agent has ended, or until the limit. Its state has been dropped then.
    pub fn wait_until<'l>(&self, limit: impl Into<Limit<'l>>) -> Result<End, WaitError> {
        self.core.course().ended.wait_until(limit)?;
        Ok(self.core.course().told().unwrap_or(End::Stopped))
    }

    /// Calls `tell` when the agent has ended: on [its thread](Self::thread), or here and now if it has ended already. Often it sends:
    ///
    /// ```
    /// use heddle::agent::{self, End};
    ///
    /// let (boss, boss_handle) = agent::spawn(Vec::new(), |seen, end: End| seen.push(end));
    /// let (worker, handle) = agent::spawn((), |_, text: &'static str| assert!(text.is_empty(), "{text}"));
    /// handle.monitor(move |end| drop(boss.send(end.clone())));
    /// worker.send("no thread left").unwrap();
    /// assert_eq!(handle.join(), End::Panicked("no thread left".into()));
    /// assert_eq!(boss_handle.join(), End::Stopped); // the monitor had its only address
    /// ```
    pub fn monitor(&self, tell: impl FnOnce(&End) + Send + 'static) {
        let end = {
            let mut life = self.core.course().life.lock();
            match &life.end {
                Some(end) => end.clone(),
                None => return life.monitors.push(Box::new(tell)),
            }
        };
        tell(&end);
    }

    /// How often it was made anew.
    pub fn restarts(&self) -> u32 {
        self.core.course().restarts.load(Ordering::Relaxed)
    }

    /// Its thread; of one in another process the thread here that looks after it.
    pub fn thread(&self) -> &thread::Thread {
        self.thread.thread()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.core.course().told();
        f.debug_struct("Handle").field("thread", self.thread()).field("end", &end).finish()
    }
}

/// What a panic says.
pub(super) fn text(what: Box<dyn Any + Send>) -> Arc<str> {
    let text = what.downcast_ref::<&str>().copied().or_else(|| what.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("a panic that is not text").into();
    // Its destructor may panic too.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(what)));
    text
}
