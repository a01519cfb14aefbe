//! Waiting: what every emulated blocking call does around a park.

use crate::entry::Frame;
use crate::signal;
use core::sync::atomic::Ordering;
use heddle_core::clock;
use heddle_core::park::{Reason, Ticket};
use heddle_core::prim::fence;
use heddle_core::sched;
use heddle_core::thread::{State, Thread};

pub use heddle_core::clock::NEVER;
pub use heddle_core::wall::{Clock, Deadline};
pub use linux_raw_sys::errno as e;

/// A negated error number as a system call returns it.
pub const fn fail(errno: u32) -> isize {
    -(errno as isize)
}

/// Opens a wait. `None`: a signal wants to be delivered first.
///
/// # Safety
/// `t` is the current thread, inside the core.
pub unsafe fn begin(t: *mut Thread) -> Option<Ticket> {
    // SAFETY: the caller's.
    unsafe {
        let ticket = (*t).park.open();
        // SeqCst: a sender sets `attention`, then looks for an open wait; we open the wait, then look at `attention`. One
        // of us sees the other (store buffering). pairs: signal.attention
        fence(Ordering::SeqCst);
        if (*t).attention.load(Ordering::Relaxed) && signal::deliverable(t) {
            abandon(t, ticket);
            return None;
        }
        Some(ticket)
    }
}

/// Whether a signal is to be delivered instead of the wait, which is closed then: the second half of [`begin`], for who has made
/// a full fence since the wait was opened.
///
/// # Safety
/// As there.
#[inline]
pub unsafe fn interrupted_since(t: *mut Thread, ticket: Ticket) -> bool {
    // SAFETY: the caller's. If the wait is not ours to close it has been claimed: parking uses that up.
    unsafe { (*t).attention.load(Ordering::Relaxed) && signal::deliverable(t) && (*t).park.close(ticket) }
}

/// Gives up a wait without parking; if it has been claimed already, uses the wake-up up.
///
/// # Safety
/// `ticket` is the open wait of the current thread `t`, no deadline is armed, no list refers to it.
pub unsafe fn abandon(t: *mut Thread, ticket: Ticket) {
    // SAFETY: the caller's.
    unsafe {
        if !(*t).park.close(ticket) {
            sched::park();
        }
    }
}

/// As [`park_until`], with a deadline on CLOCK_MONOTONIC.
///
/// # Safety
/// As there.
#[inline]
pub unsafe fn park(t: *mut Thread, ticket: Ticket, deadline: u64, state: State) -> Reason {
    // SAFETY: the caller's.
    unsafe { park_until(t, ticket, deadline.into(), state) }
}

/// Arms the deadline, parks, disarms; tells why the thread runs again.
///
/// # Safety
/// `ticket` is the open wait of the current thread `t`; its wakers know of it.
pub unsafe fn park_until(t: *mut Thread, ticket: Ticket, deadline: Deadline, state: State) -> Reason {
    // SAFETY: the caller's.
    unsafe {
        if sched::arm(t, ticket, deadline).is_err() {
            // No memory for the deadline: behave as if it had passed, which callers must handle anyway.
            if (*t).park.close(ticket) {
                return Reason::Timeout;
            }
            return sched::park();
        }
        (*t).set_state(state);
        let reason = sched::park();
        if reason != Reason::Timeout {
            sched::disarm(t, deadline);
        }
        reason
    }
}

/// What an interrupted call does next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Begin again, as SA_RESTART asks, or because no handler ran.
    Restart,
    /// Return EINTR.
    Interrupted,
}

/// A signal interrupted the call in `frame`: runs the handlers that are due. There may be none: what the signal does is nothing, or
/// to stop the process for a while, or another thread took it.
///
/// # Safety
/// The current thread is inside the core, linked nowhere, with no wait open.
pub unsafe fn interrupted(frame: &mut Frame, restartable: bool) -> Next {
    // The handler sees what the program will see after it: the result of the interrupted call.
    let number = frame.rax;
    frame.rax = fail(e::EINTR) as u64;
    // SAFETY: the caller's.
    let ran = unsafe { signal::deliver(frame) };
    frame.rax = number;
    match ran {
        Some(all_restart) if !(restartable && all_restart) => Next::Interrupted,
        _ => Next::Restart,
    }
}

/// The kernel ended a call of `frame` with EINTR, or it was not made, on account of any signal that the kernel gave to this worker,
/// which may be for another thread.
///
/// # Safety
/// As [`interrupted`].
pub unsafe fn ended_early(frame: &mut Frame, restartable: bool) -> Next {
    // SAFETY: our own record; the current thread.
    unsafe {
        let w = sched::worker();
        if (*w).attention.load(Ordering::Relaxed) != 0 {
            signal::kernel::empty_inbox(w);
        }
        let t = (*w).current;
        if signal::deliverable(t) {
            return interrupted(frame, restartable);
        }
        // Nothing is due, so that the next call is made.
        (*t).attention.store(false, Ordering::Relaxed);
        // SeqCst: a sender adds a signal, then sets the flag; we clear the flag, then look. pairs: signal.attention
        fence(Ordering::SeqCst);
        if signal::deliverable(t) {
            (*t).attention.store(true, Ordering::Relaxed);
        }
        Next::Restart
    }
}

/// The deadline (CLOCK_MONOTONIC) of a relative time.
pub fn after(ns: u64) -> u64 {
    clock::now().saturating_add(ns)
}
