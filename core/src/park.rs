//! The park word: who wakes a parked thread, exactly once.
//!
//! A thread that is about to wait for several things at once (an address, a descriptor, a deadline, a signal) opens a
//! *wait* with a fresh ticket, tells each waker its ticket, and parks. Whoever *claims* the ticket first decides why the
//! thread wakes and is the one that makes it runnable; all later claims of that ticket fail, for ever, since tickets
//! are never reused. The thread takes itself out of the other wakers' lists when it runs again.
//!
//! # Protocol
//! State: `ticket << 8 | reason`, reason 0 = running, 1 = waiting, others = claimed for that reason.
//! 1. The owner opens: `(n, _) -> (n + 1, WAITING)`.
//! 2. A waker claims: `(n, WAITING) -> (n, reason)` by compare-exchange; success obliges it to make the thread runnable
//!    once.
//! 3. The owner either closes the wait without parking, `(n, WAITING) -> (n, RUNNING)`; if that fails it has been
//!    claimed, will be made runnable, and must park to use that up; or parks, and reads the reason when it runs again.
//!
//! A claim may come before the owner has left its stack. The run queue may then hold a thread whose context is not yet
//! saved; who picks it waits for `Context::on_cpu` to become false (see `arch`).
//!
//! Rejected: publishing the wait only after the switch (one function per kind of wait, run on another thread's stack);
//! one lock per thread (a waker would take two).

use crate::prim::{AtomicU64, Ordering};

/// Why a parked thread runs again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Reason {
    /// What it waited for happened.
    Woken = 2,
    /// The deadline passed.
    Timeout = 3,
    /// A signal is to be delivered.
    Signal = 4,
}

const RUNNING: u64 = 0;
const WAITING: u64 = 1;
const REASON: u64 = 0xff;

/// A wait that wakers may claim; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket(u64);

impl Ticket {
    /// As a word, for those who cannot be told under a lock.
    pub fn word(self) -> u64 {
        self.0
    }

    /// From [`Ticket::word`].
    pub fn from_word(word: u64) -> Self {
        Self(word)
    }
}

/// The word.
pub struct ParkWord(AtomicU64);

impl Default for ParkWord {
    fn default() -> Self {
        Self::new()
    }
}

impl ParkWord {
    /// Running, no ticket out.
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Opens a wait. Owner only.
    #[inline]
    pub fn open(&self) -> Ticket {
        let n = (self.0.load(Ordering::Relaxed) >> 8) + 1;
        // Relaxed: the ticket reaches wakers through locks of the lists it is put in, which order it.
        self.0.store(n << 8 | WAITING, Ordering::Relaxed);
        Ticket(n)
    }

    /// Claims the wait for `reason`. After `true` the caller must make the thread runnable, once.
    #[must_use]
    #[inline]
    pub fn claim(&self, ticket: Ticket, reason: Reason) -> bool {
        let (old, new) = (ticket.0 << 8 | WAITING, ticket.0 << 8 | reason as u64);
        // AcqRel: what the waker did happens before what the woken thread does. pairs: park.reason
        self.0.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Claims whatever wait is open now, if there is one (signals do not know tickets).
    #[must_use]
    pub fn claim_any(&self, reason: Reason) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        word & REASON == WAITING && self.claim(Ticket(word >> 8), reason)
    }

    /// Closes the wait without parking. `false`: it has been claimed, so the owner must park to use up its wake-up.
    #[must_use]
    #[inline]
    pub fn close(&self, ticket: Ticket) -> bool {
        let (old, new) = (ticket.0 << 8 | WAITING, ticket.0 << 8 | RUNNING);
        // Acquire: if it failed, what the claimer did is visible. pairs: park.reason
        self.0.compare_exchange(old, new, Ordering::Relaxed, Ordering::Acquire).is_ok()
    }

    /// The word itself, for dumps.
    pub fn word(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The reason of the wake-up that made the owner run again. Owner only, after parking.
    #[inline]
    pub fn reason(&self) -> Reason {
        // Acquire: what the claimer did happens before what follows. pairs: park.reason
        match (self.0.load(Ordering::Acquire) & REASON) as u8 {
            3 => Reason::Timeout,
            4 => Reason::Signal,
            _ => Reason::Woken,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_claim_wins() {
        let word = ParkWord::new();
        let ticket = word.open();
        assert!(word.claim(ticket, Reason::Timeout));
        assert!(!word.claim(ticket, Reason::Woken));
        assert!(!word.claim_any(Reason::Signal));
        assert!(!word.close(ticket), "claimed: the owner must park");
        assert_eq!(word.reason(), Reason::Timeout);
    }

    #[test]
    fn a_closed_wait_is_never_claimed() {
        let word = ParkWord::new();
        assert!(!word.claim_any(Reason::Signal), "nothing is open yet");
        let ticket = word.open();
        assert!(word.close(ticket));
        assert!(!word.claim(ticket, Reason::Woken));
        assert!(!word.claim_any(Reason::Signal));
    }

    #[test]
    fn stale_tickets_do_not_count() {
        let word = ParkWord::new();
        let first = word.open();
        assert!(word.claim(first, Reason::Woken));
        let second = word.open();
        assert_ne!(first, second);
        assert!(!word.claim(first, Reason::Timeout));
        assert!(!word.close(first));
        assert!(word.claim_any(Reason::Signal));
        assert_eq!(word.reason(), Reason::Signal);
        assert!(!word.claim(second, Reason::Woken));
    }
}
