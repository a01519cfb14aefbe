//! Calls that the library crate makes without a system call: a thread of its own enters the core here as it would through
//! a site, but as in any call of a C function the caller keeps what it needs, so there is no frame.
//!
//! # Safety
//! On return from the core a thread may be on another worker. Signals that came meanwhile are delivered on the way out, by
//! a system call that is emulated.

use crate::entry::enter as enter_through_site;
use crate::sites::DONE;
use crate::wait::{self, NEVER, e};
use core::arch::{asm, naked_asm};
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};
use heddle_core::park::Reason;
use heddle_core::sched::{self, RT, Sleeper, this_worker, worker};
use heddle_core::sys::linux as l;
use heddle_core::thread::{State, Thread};
use heddle_core::wait_table::Waiter;

const ALL_BITS: u32 = u32::MAX;

/// The current thread, from here on in the core. `None` on a kernel thread that is not ours.
///
/// # Safety
/// Not in the core already; [`leave`] follows.
#[inline(always)]
pub(crate) unsafe fn enter() -> Option<*mut Thread> {
    if worker().is_null() {
        return None;
    }
    // SAFETY: the caller's.
    unsafe { Some(enter_own()) }
}

/// As [`enter`], on one of our threads; quicker.
///
/// # Safety
/// As there.
#[inline(always)]
pub(crate) unsafe fn enter_own() -> *mut Thread {
    // SAFETY: GS base is a worker's record, whichever: one instruction, so that the thread cannot be moved in between.
    unsafe {
        asm!("mov byte ptr gs:[8], 1", options(nostack, preserves_flags));
        let t = (*this_worker()).current;
        (*t).extended = false;
        t
    }
}

/// Leaves the core.
///
/// # Safety
/// `t` is the current thread, in the core by [`enter`].
#[inline(always)]
pub(crate) unsafe fn leave(t: *mut Thread) {
    // SAFETY: our own record. After the store the thread may be moved; then what is read is another worker's or an earlier
    // state, and at worst a look too many.
    unsafe {
        let w = this_worker();
        (*w).in_core.store(0, Ordering::Relaxed);
        // A signal on this kernel thread sees `in_core` either set, and leaves us a note, or clear, and acts itself.
        compiler_fence(Ordering::SeqCst); // SeqCst: orders the two for signals on this kernel thread. pairs: worker.in_core
        if (*w).attention.load(Ordering::Relaxed) != 0 || (*t).attention.load(Ordering::Relaxed) {
            attend();
        }
    }
}

/// Makes a system call that does nothing, `gettid`, as a stub does: whoever leaves it takes what has come.
#[cold]
#[inline(never)]
unsafe fn attend() {
    // SAFETY: an ordinary call of a function.
    unsafe { call_through_site() }
}

#[unsafe(naked)]
unsafe extern "C" fn call_through_site() {
    naked_asm!(
        "mov eax, {number}",
        "lea rcx, [rip + 2f - {done}]",
        "jmp {enter}",
        "2: ret",
        number = const l::__NR_gettid,
        done = const DONE,
        enter = sym enter_through_site,
    )
}

/// Lets other threads run first: the kernel's, if the caller is not one of ours. Costs little if there are none of ours.
///
/// # Safety
/// A thread's own call.
pub unsafe fn yield_now() {
    // SAFETY: the caller's.
    unsafe {
        let Some(t) = enter() else { return heddle_core::lock::yield_cpu() };
        sched::give_turn();
        leave(t);
    }
}

/// Waits while `*word` is `value`: until a wake, the deadline (CLOCK_MONOTONIC, nanoseconds), or a signal. 0, or why it did
/// not wait for a wake: EAGAIN, ETIMEDOUT, EINTR (handlers have run); ENOSYS: not one of our threads.
///
/// # Safety
/// The word is there until the call returns.
pub unsafe fn wait(word: *const AtomicU32, value: u32, deadline: u64) -> u32 {
    // SAFETY: the caller's; the waiter outlives its link.
    unsafe {
        let Some(t) = enter() else { return e::ENOSYS };
        sched::waits_on(t, word as usize);
        let ticket = (*t).park.open();
        let mut waiter = Waiter::new(Sleeper::Thread(t, ticket), crate::scheduling::rank(t));
        // SeqCst: the barrier between linking and reading the word, as in the kernel. pairs: futex.word
        let same = || (*word).load(Ordering::SeqCst) == value;
        if !RT.futexes.wait(&mut waiter, word as usize, ALL_BITS, same) {
            wait::abandon(t, ticket);
            leave(t);
            return e::EAGAIN;
        }
        let reason = if wait::interrupted_since(t, ticket) {
            Reason::Signal
        } else {
            wait::park(t, ticket, deadline, State::Futex)
        };
        if reason != Reason::Woken {
            RT.futexes.leave(&mut waiter);
        }
        leave(t);
        match reason {
            Reason::Woken => 0,
            Reason::Timeout => e::ETIMEDOUT,
            Reason::Signal => e::EINTR,
        }
    }
}

/// Wakes up to `count` threads that wait on this address.
pub fn wake(word: usize, count: u32) {
    // SAFETY: the caller's own thread.
    let t = unsafe { enter() };
    RT.futexes.wake(word, count as usize, ALL_BITS);
    if let Some(t) = t {
        // SAFETY: entered above.
        unsafe { leave(t) };
    }
}

/// No deadline.
pub const FOR_EVER: u64 = NEVER;
