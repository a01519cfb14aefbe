//! Threads that have a worker of their own, because the kernel keeps something for that kernel thread which is meant for the
//! thread alone (its user ids).
//!
//! # Protocol
//! * A thread *settles* on the worker that runs it: `home` of the thread and `only` of the worker are that worker. The two
//!   are null for all others, so one comparison tells whether a worker may run a thread (`may_run`).
//! * Whoever takes a thread out of a queue and may not run it passes its processor to the thread's home, with the thread, and
//!   becomes a spare worker.
//! * A settled worker that is left by its thread passes its processor, and what it has picked, to a spare worker, and waits
//!   for the next time. It is never listed as a spare and looks for no work, so that is the only way it gets a processor; a
//!   thread is in one queue once, so nobody else gives it one meanwhile.
//! * For each settled worker another one is made, before its thread settles, by the monitor: a kernel thread inherits what is its
//!   maker's alone. So there is always a spare worker, or one on its way out of the kernel, to pass a processor to.
//! * When its thread ends it waits for ever: the kernel's threads cannot go back to what they were.

use super::{Worker, give, spawn, take_spare, this_worker, worker};
use crate::sched::RT;
use crate::sys::linux as l;
use crate::thread::Thread;
use core::sync::atomic::Ordering;

/// How long to wait for the monitor between two looks, in nanoseconds, and how often for a worker that it makes.
const PAUSE: i64 = 200_000;
const PATIENCE: u32 = 5000;

fn pause() {
    let ts = l::timespec { tv_sec: 0, tv_nsec: PAUSE };
    // SAFETY: reads a local.
    unsafe { sys!(l::__NR_nanosleep, &ts as *const _, 0) };
}

/// Whether the caller runs on a worker that is its thread's alone.
#[inline]
pub fn is_settled() -> bool {
    let w = worker();
    // SAFETY: our own record.
    !w.is_null() && unsafe { !(*w).only.is_null() }
}

/// Has a worker made that takes the place of the caller's; to be called before each [`settle`]. False: it cannot be made.
///
/// # Safety
/// Inside the core, on a user thread that has not settled; [`settle`] or [`stay`] follows.
pub unsafe fn prepare_to_settle() -> bool {
    let less = |n: u32| n.checked_sub(1);
    if RT.prepared.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
        return true;
    }
    RT.wanted.fetch_add(1, Ordering::Relaxed);
    for _ in 0..PATIENCE {
        if RT.wanted.load(Ordering::Relaxed) == 0 {
            return true;
        }
        pause();
    }
    RT.wanted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_err()
}

/// The thread does not settle after all: the worker that was made is for the next one.
pub fn stay() {
    RT.prepared.fetch_add(1, Ordering::Relaxed);
}

/// From here on the current thread runs on this kernel thread only, and no other thread does.
///
/// # Safety
/// After [`prepare_to_settle`], without having parked since.
pub unsafe fn settle() {
    let w = this_worker();
    // SAFETY: our own record and thread.
    unsafe {
        (*w).only = w.cast();
        (*(*w).current).home.store(w.cast(), Ordering::Relaxed);
    }
    RT.worker_cap.fetch_add(1, Ordering::Relaxed);
}

/// The monitor makes the workers that are wanted.
///
/// # Safety
/// On the monitor.
pub(in crate::sched) unsafe fn make_wanted() {
    // SAFETY: the monitor has all signals blocked.
    while RT.wanted.load(Ordering::Relaxed) != 0 && unsafe { spawn(None) }.is_ok() {
        let less = |n: u32| n.checked_sub(1);
        let _ = RT.wanted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

/// Gives the processor of `w`, the caller's worker, to the home of `t`, which runs it, or to any other worker if `t` has none or is
/// null.
///
/// # Safety
/// On the scheduler's stack; `t` was taken out of a queue.
#[cold]
pub(super) unsafe fn pass(w: *mut Worker, t: *mut Thread) {
    // SAFETY: our own record; processors are never unmapped.
    unsafe {
        let p = &*(*w).processor;
        let mut to: *mut Worker = core::ptr::null_mut();
        if !t.is_null() {
            to = (*t).home.load(Ordering::Relaxed).cast();
        }
        let mut asked = false;
        while to.is_null() {
            to = take_spare();
            if to.is_null() {
                // All are in the kernel.
                if !core::mem::replace(&mut asked, true) {
                    RT.wanted.fetch_add(1, Ordering::Relaxed);
                }
                pause();
            }
        }
        p.lately.forget();
        (*w).processor = core::ptr::null();
        give(to, p, t);
    }
}
