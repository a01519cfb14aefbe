//! What a switch has to do besides in some programs: CPU time of threads, and their rights by protection keys.
//!
//! The kernel counts it for workers. What a worker has used since it was last *charged* is added to the thread that it
//! runs: `charged` moves on to the worker's clock, and who moves it adds the difference, so nothing is counted twice.
//!
//! Nobody asks for it in most programs, so a switch does nothing about it until the first question. Until then the monitor
//! charges at each of its looks, to the thread that it finds running: a sample each few milliseconds, as kernels without
//! high-resolution clocks do it. From the first question on (`Runtime::watched`) every switch charges.
//!
//! The register with the rights to memory with protection keys is the worker's. From the first key that the program
//! allocates on, a switch saves it for the thread that is left and loads that of the thread that comes. Until then all
//! threads have the same.

use super::{RT, Worker, worker};
use crate::arch;
use crate::sys::linux as l;
use crate::thread::Thread;
use core::sync::atomic::Ordering;

/// The kernel's name for the CPU clock of its thread `tid`.
const fn clock_of(tid: i32) -> i32 {
    !tid << 3 | 6
}

/// The CPU time of a worker in nanoseconds; 0 if it has no id yet.
pub(super) fn clock(w: &Worker) -> u64 {
    let tid = w.tid.load(Ordering::Relaxed);
    let id = if core::ptr::eq(w, worker()) { l::CLOCK_THREAD_CPUTIME_ID as i32 } else { clock_of(tid) };
    let mut ts = l::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one local.
    let r = unsafe { sys!(l::__NR_clock_gettime, id, &mut ts as *mut _) };
    if r < 0 || tid == 0 { 0 } else { ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64 }
}

/// Charges `t` (null: nobody) for what worker `w` has used since the last charge.
///
/// # Safety
/// `w` is a worker's record, `t` a control block or null.
#[cold]
pub(super) unsafe fn charge(w: *mut Worker, t: *mut Thread) {
    // SAFETY: the caller's; atomic fields.
    unsafe {
        let now = clock(&*w);
        let before = (*w).charged.fetch_max(now, Ordering::Relaxed);
        if !t.is_null() && now > before {
            (*t).cpu_time.fetch_add(now - before, Ordering::Relaxed);
        }
    }
}

/// In `Runtime::watched`: charge.
pub(super) const CHARGE: u8 = 1;
/// In `Runtime::watched`: tell the watcher.
const TELL: u8 = 2;
/// In `Runtime::watched`: protection keys are in use.
const KEYS: u8 = 4;

/// Told by the worker after each choice of the thread to run, before it runs.
pub type Watcher = unsafe fn(*mut Worker, *mut Thread);

impl super::Runtime {
    /// From now on `watcher` is told of each switch. (There is one.)
    pub fn watch(&self, watcher: Watcher) {
        self.watcher.store(watcher as *mut (), Ordering::Relaxed);
        // Release: the watcher. pairs: watched
        self.watched.fetch_or(TELL, Ordering::Release);
    }

    /// The program has allocated a protection key: from now on switches take care of rights.
    pub fn keys_in_use(&self) {
        self.watched.fetch_or(KEYS, Ordering::Relaxed);
    }

    /// Gives a new thread the rights of the one that creates it.
    ///
    /// # Safety
    /// The current thread creates `t`, which has not run.
    pub unsafe fn inherit_rights(&self, t: *mut Thread) {
        if self.watched.load(Ordering::Relaxed) & KEYS != 0 {
            // SAFETY: the caller's; there are keys.
            unsafe { (*t).key_rights = arch::key_rights() };
        }
    }
}

/// After the choice of `t` in place of `before`, while switches are watched.
///
/// # Safety
/// `w` is the caller's worker.
#[cold]
pub(super) unsafe fn switched(w: *mut Worker, before: *mut Thread, t: *mut Thread) {
    // Acquire: the watcher. pairs: watched
    let watched = RT.watched.load(Ordering::Acquire);
    // SAFETY: the caller's; the pointer is a `Watcher`.
    unsafe {
        if watched & CHARGE != 0 {
            charge(w, before);
        }
        if watched & TELL != 0 {
            let watcher = core::mem::transmute::<*mut (), Watcher>(RT.watcher.load(Ordering::Relaxed));
            watcher(w, t);
        }
        if watched & KEYS != 0 {
            if !before.is_null() {
                (*before).key_rights = arch::key_rights();
            }
            arch::set_key_rights((*t).key_rights);
        }
    }
}

/// After `t` has been left for the scheduler, while switches are watched.
///
/// # Safety
/// `w` is the caller's worker.
#[cold]
pub(super) unsafe fn left(w: *mut Worker, t: *mut Thread) {
    let watched = RT.watched.load(Ordering::Relaxed);
    // SAFETY: the caller's; `t` is the worker's until its context is free.
    unsafe {
        if watched & CHARGE != 0 {
            charge(w, t);
        }
        if watched & KEYS != 0 {
            (*t).key_rights = arch::key_rights();
        }
    }
}

/// The monitor's look at a worker.
///
/// # Safety
/// `w` is a record or null.
pub(super) unsafe fn sample(w: *mut Worker) {
    // SAFETY: the caller's.
    unsafe {
        if !w.is_null() && (*w).asleep.load(Ordering::Relaxed) == 0 {
            charge(w, (*w).running());
        }
    }
}

/// The CPU time of a worker in nanoseconds, as of the monitor's look; 0: there is none, or it may not be read.
///
/// # Safety
/// `w` is a record or null; the monitor calls it, after [`sample`] if switches do not charge.
pub(super) unsafe fn time_of(w: *mut Worker) -> u64 {
    // SAFETY: the caller's.
    match unsafe { w.as_ref() } {
        Some(w) if RT.watched.load(Ordering::Relaxed) & CHARGE != 0 => clock(w),
        Some(w) => w.charged.load(Ordering::Relaxed),
        None => 0,
    }
}

/// The CPU time that a thread has used, in nanoseconds. Exact, but for the time before the first call, which was sampled.
///
/// # Safety
/// `t` is a control block.
pub unsafe fn cpu_time(t: *mut Thread) -> u64 {
    RT.watched.fetch_or(CHARGE, Ordering::Relaxed);
    // SAFETY: the caller's; records are never unmapped.
    unsafe {
        let w: *mut Worker = (*t).worker.load(Ordering::Relaxed).cast();
        if !w.is_null() && (*w).runs(t) {
            charge(w, t);
        }
        (*t).cpu_time.load(Ordering::Relaxed)
    }
}
