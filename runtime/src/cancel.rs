//! Ends of waits: deadlines, and tokens that somebody cancels.
//!
//! Everything in this library that waits has a variant whose name ends in `_until` and that takes a [`Limit`]: an
//! [`Instant`], a [`Duration`] from now, a [`Token`], or both a time and a token.
//!
//! ```
//! use heddle::cancel::{Token, WaitError};
//! use heddle::sync::Semaphore;
//! use std::time::Duration;
//!
//! let (stop, free) = (Token::new(), Semaphore::new(0));
//! assert_eq!(free.acquire_until(Duration::from_millis(1)), Err(WaitError::TimedOut));
//!
//! let worker = {
//!     let stop = stop.clone();
//!     heddle::spawn(move || heddle::sleep_until(&stop))
//! };
//! stop.cancel();
//! assert_eq!(worker.join().unwrap(), Err(WaitError::Cancelled));
//! assert_eq!(free.acquire_until((Duration::from_secs(60), &stop)), Err(WaitError::Cancelled));
//! ```
//!
//! A limit ends waits, not work: what can be had without waiting is had, although the time has passed or the token is
//! cancelled. Who works without waiting asks [`Token::is_cancelled`].
//!
//! On user and kernel threads alike a cancel wakes who waits; nobody looks again and again. (But on kernel threads before Linux
//! 5.16, or where a filter forbids `futex_waitv`, a waiter with a token looks at it every 5 ms.)

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::futex;
use crate::prim::{AtomicU32, Ordering};
use crate::sync::Mutex;

const LIVE: u32 = 0;
const CANCELLED: u32 = 1;

/// Says to whoever has a copy that what it does is not wanted any more. Clones are the same token.
#[derive(Clone)]
pub struct Token {
    inner: Arc<Inner>,
}

struct Inner {
    /// `LIVE` or `CANCELLED`; waited on.
    word: AtomicU32,
    told: Mutex<Told>,
}

/// Who is to be told of the cancel besides those that wait on the word. All of it is told, and more is not taken, once the
/// word says cancelled.
struct Told {
    children: Vec<Weak<Inner>>,
    /// Children at which those that are gone are taken out.
    prune_at: usize,
    #[cfg(not(loom))]
    parked: Vec<std::thread::Thread>,
}

impl Token {
    /// A new one.
    pub fn new() -> Self {
        let told = Told {
            children: Vec::new(),
            prune_at: 8,
            #[cfg(not(loom))]
            parked: Vec::new(),
        };
        Self { inner: Arc::new(Inner { word: AtomicU32::new(LIVE), told: Mutex::new(told) }) }
    }

    /// A token that is cancelled with this one, and can be by itself.
    pub fn child(&self) -> Self {
        let child = Self::new();
        {
            let mut told = self.inner.told.lock();
            if !self.is_cancelled() {
                if told.children.len() >= told.prune_at {
                    told.children.retain(|child| child.strong_count() != 0);
                    told.prune_at = 8.max(2 * told.children.len());
                }
                told.children.push(Arc::downgrade(&child.inner));
                return child;
            }
        }
        child.cancel();
        child
    }

    /// Ends all waits that have this token or a child of it as their limit, and those to come. Once is enough, more do nothing.
    /// It does not wait for the waiters.
    pub fn cancel(&self) {
        let mut next = vec![self.inner.clone()];
        while let Some(inner) = next.pop() {
            // Release: what the caller did comes before whatever finds the token cancelled. pairs: cancel.word
            if inner.word.swap(CANCELLED, Ordering::Release) == CANCELLED {
                continue;
            }
            futex::wake(&raw const inner.word, i32::MAX);
            // Who comes to the lock after us sees the word.
            let mut told = inner.told.lock();
            next.extend(told.children.drain(..).filter_map(|child| child.upgrade()));
            #[cfg(not(loom))]
            told.parked.drain(..).for_each(|thread| thread.unpark());
        }
    }

    /// Whether it has been cancelled.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        // Acquire: what came before the cancel is visible. pairs: cancel.word
        self.inner.word.load(Ordering::Acquire) == CANCELLED
    }

    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.inner.word
    }

    /// Parks the calling thread with `std`'s means; a cancel unparks it.
    #[cfg(not(loom))]
    fn park(&self, park: impl FnOnce()) {
        let this = std::thread::current();
        {
            let mut told = self.inner.told.lock();
            if self.is_cancelled() {
                return;
            }
            told.parked.push(this.clone());
        }
        park();
        let mut told = self.inner.told.lock();
        if let Some(at) = told.parked.iter().position(|thread| thread.id() == this.id()) {
            told.parked.swap_remove(at);
        }
    }
}

impl Default for Token {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_cancelled() { "Token(cancelled)" } else { "Token" })
    }
}

/// When a wait ends at the latest: at a time, when a [`Token`] is cancelled, at the first of both, or never ([`Limit::NEVER`]).
///
/// Made by `into` from an [`Instant`], a [`Duration`] from now, a `&Token`, or a pair of a time and a `&Token`.
#[derive(Clone, Copy, Debug)]
pub struct Limit<'a> {
    deadline: Option<Instant>,
    token: Option<&'a Token>,
}

impl<'a> Limit<'a> {
    /// None.
    pub const NEVER: Limit<'static> = Limit { deadline: None, token: None };

    /// The time, if there is one. A duration too long for the clock is none.
    pub const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The token, if there is one.
    pub const fn token(&self) -> Option<&'a Token> {
        self.token
    }

    /// What has come by now. The token, if both have.
    #[cfg(not(loom))]
    fn check(&self) -> Result<(), WaitError> {
        if self.token.is_some_and(Token::is_cancelled) {
            return Err(WaitError::Cancelled);
        }
        match self.deadline {
            Some(at) if Instant::now() >= at => Err(WaitError::TimedOut),
            _ => Ok(()),
        }
    }
}

impl From<Instant> for Limit<'_> {
    fn from(at: Instant) -> Self {
        Self { deadline: Some(at), ..Limit::NEVER }
    }
}

impl From<Duration> for Limit<'_> {
    fn from(most: Duration) -> Self {
        Self { deadline: Instant::now().checked_add(most), ..Limit::NEVER }
    }
}

impl<'a> From<&'a Token> for Limit<'a> {
    fn from(token: &'a Token) -> Self {
        Self { token: Some(token), ..Limit::NEVER }
    }
}

impl<'a> From<(Instant, &'a Token)> for Limit<'a> {
    fn from((at, token): (Instant, &'a Token)) -> Self {
        Self { token: Some(token), ..Self::from(at) }
    }
}

impl<'a> From<(Duration, &'a Token)> for Limit<'a> {
    fn from((most, token): (Duration, &'a Token)) -> Self {
        Self { token: Some(token), ..Self::from(most) }
    }
}

/// Why a wait ended without what it waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaitError {
    /// The time has passed.
    TimedOut,
    /// The token was cancelled.
    Cancelled,
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "the time has passed",
            Self::Cancelled => "cancelled",
        })
    }
}

impl std::error::Error for WaitError {}

impl From<WaitError> for std::io::Error {
    fn from(why: WaitError) -> Self {
        // `Interrupted` would be tried again by `std`.
        let kind = match why {
            WaitError::TimedOut => std::io::ErrorKind::TimedOut,
            WaitError::Cancelled => std::io::ErrorKind::Other,
        };
        Self::new(kind, why)
    }
}

/// Parks the calling thread for that long, or until the token is cancelled: then the answer is an error. A limit without a
/// time waits for the cancel.
///
/// In user mode the thread leaves its worker to others; in kernel mode it sleeps in the kernel.
#[cfg(not(loom))]
pub fn sleep_until<'a>(limit: impl Into<Limit<'a>>) -> Result<(), WaitError> {
    let limit = limit.into();
    let never = AtomicU32::new(0);
    loop {
        match limit.check() {
            Ok(()) => {}
            Err(WaitError::TimedOut) => return Ok(()),
            Err(cancelled) => return Err(cancelled),
        }
        match limit.token {
            Some(token) => futex::wait_until(token.word(), LIVE, limit.deadline),
            None => futex::wait_until(&never, 0, limit.deadline),
        };
    }
}

/// As [`park`](crate::park): until somebody unparks the thread, or has done so since it last was parked; or until the limit. It
/// may return early, with `Ok`.
///
/// An error does not mean that nobody has unparked it: both may have happened, and then the unpark is used up, and a cancel
/// may leave one over, so that the next `park` returns at once. What the thread waits for it has to look at in any case.
#[cfg(not(loom))]
pub fn park_until<'a>(limit: impl Into<Limit<'a>>) -> Result<(), WaitError> {
    let limit = limit.into();
    let park = || match limit.deadline {
        None => std::thread::park(),
        Some(at) => std::thread::park_timeout(at.saturating_duration_since(Instant::now())),
    };
    match limit.token {
        None => park(),
        Some(token) => token.park(park),
    }
    limit.check()
}
