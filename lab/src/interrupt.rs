//! Ctrl-C and its like: the program that is being measured is ended too, with all that it started, and the lab ends in good
//! order, so that a run can be gone on with.
//!
//! # Safety
//!
//! The handler only uses atomics and kill, which a signal handler may.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering, fence};

static CAME: AtomicBool = AtomicBool::new(false);
/// The process group at work; 0 if there is none.
static GROUP: AtomicI32 = AtomicI32::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    CAME.store(true, Ordering::Relaxed);
    // SeqCst: the store before and the load after it are not exchanged; see `begin`. pairs: interrupt.group
    fence(Ordering::SeqCst);
    end_group();
}

fn end_group() {
    let group = GROUP.load(Ordering::Relaxed);
    if group > 0 {
        // SAFETY: the group is that of a child that is taken away only after [`done`].
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
}

/// From now on SIGINT, SIGTERM and SIGHUP end what is being measured, and are told by [`came`].
pub fn watch() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: a C structure of numbers, for which zeroes are a value.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: the action is whole, and its handler does only what handlers may.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
}

/// Whether one of them came.
pub fn came() -> bool {
    CAME.load(Ordering::Relaxed)
}

/// This group is at work now. A signal that came a moment ago is for it too.
pub fn begin(group: i32) {
    GROUP.store(group, Ordering::Relaxed);
    // SeqCst: store buffering. The handler may run on another thread; it stores that it came and then looks for a group, here the
    // group is stored and then looked whether it came. One of the two fences is first, so one of the two sees the other's
    // store. pairs: interrupt.group
    fence(Ordering::SeqCst);
    if came() {
        end_group();
    }
}

/// Nothing is at work any more.
pub fn done() {
    GROUP.store(0, Ordering::Relaxed);
}
