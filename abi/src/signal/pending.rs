//! Pending signals, of threads and of the process.

use super::actions;
use super::bit;
use core::sync::atomic::{AtomicU64, Ordering};
use heddle_core::identity::{PendingSignals, QUEUED, SigInfo};
use heddle_core::lock::SpinLock;
use heddle_core::park::Reason;
use heddle_core::prim::fence;
use heddle_core::sched::{RT, current, ready};
use heddle_core::sys::linux as l;
use heddle_core::thread::Thread;

static PROCESS_SET: AtomicU64 = AtomicU64::new(0);
static PROCESS: SpinLock<PendingSignals> = SpinLock::new(PendingSignals { queue: [[0; 16]; QUEUED], len: 0 });

fn number(info: &SigInfo) -> u32 {
    info[0] as u32
}

fn add(set: &AtomicU64, queue: &SpinLock<PendingSignals>, info: &SigInfo) {
    let signal = number(info);
    let mut q = queue.lock();
    let already = set.load(Ordering::Relaxed) & bit(signal) != 0;
    // A standard signal that is pending already is merged; so is what does not fit.
    if !(already && signal < l::SIGRTMIN) && q.len < QUEUED {
        let n = q.len;
        q.queue[n] = *info;
        q.len += 1;
    }
    set.fetch_or(bit(signal), Ordering::Relaxed);
}

fn take(set: &AtomicU64, queue: &SpinLock<PendingSignals>, wanted: u64) -> Option<SigInfo> {
    if set.load(Ordering::Relaxed) & wanted == 0 {
        return None;
    }
    let mut q = queue.lock();
    let ready = set.load(Ordering::Relaxed) & wanted;
    if ready == 0 {
        return None;
    }
    // Faults first, as in the kernel; then the lowest number.
    const FAULTS: u64 =
        bit(l::SIGSEGV) | bit(l::SIGBUS) | bit(l::SIGILL) | bit(l::SIGTRAP) | bit(l::SIGFPE) | bit(l::SIGSYS);
    let first = if ready & FAULTS != 0 { ready & FAULTS } else { ready };
    let signal = first.trailing_zeros() + 1;
    let mut found = None;
    let mut more = false;
    let mut i = 0;
    while i < q.len {
        if number(&q.queue[i]) == signal {
            if found.is_some() {
                more = true;
                break;
            }
            found = Some(q.queue[i]);
            let len = q.len;
            q.queue.copy_within(i + 1..len, i);
            q.len -= 1;
        } else {
            i += 1;
        }
    }
    if !more {
        set.fetch_and(!bit(signal), Ordering::Relaxed);
    }
    Some(found.unwrap_or_else(|| {
        let mut bare = [0; 16];
        bare[0] = signal as u64;
        bare
    }))
}

/// Whether a signal can be delivered to `t` now.
///
/// # Safety
/// `t` is a control block.
#[inline]
pub unsafe fn deliverable(t: *mut Thread) -> bool {
    // SAFETY: the caller's; atomics only.
    unsafe {
        let id = &(*t).identity;
        let pending = id.sig_pending.load(Ordering::Relaxed) | PROCESS_SET.load(Ordering::Relaxed);
        pending & !id.sig_mask.load(Ordering::Relaxed) != 0
    }
}

/// Takes the next signal of `wanted` that is pending for the current thread.
///
/// # Safety
/// `t` is the current thread.
pub unsafe fn take_for(t: *mut Thread, wanted: u64) -> Option<SigInfo> {
    // SAFETY: the caller's.
    unsafe {
        take(&(*t).identity.sig_pending, &(*t).identity.sig_queue, wanted)
            .or_else(|| take(&PROCESS_SET, &PROCESS, wanted))
    }
}

/// The set of signals pending for `t` or the process.
///
/// # Safety
/// `t` is a control block.
pub unsafe fn pending(t: *mut Thread) -> u64 {
    // SAFETY: the caller's.
    unsafe { (*t).identity.sig_pending.load(Ordering::Relaxed) | PROCESS_SET.load(Ordering::Relaxed) }
}

/// Drops all pending instances of an ignored signal.
pub fn discard(signal: u32) {
    while take(&PROCESS_SET, &PROCESS, bit(signal)).is_some() {}
    RT.threads.for_each(&mut |t| {
        // SAFETY: a live control block.
        unsafe { while take(&(*t).identity.sig_pending, &(*t).identity.sig_queue, bit(signal)).is_some() {} }
        true
    });
}

/// Forgets the process's pending signals, in a forked child.
///
/// # Safety
/// The caller is the only thread.
pub unsafe fn reset() {
    // SAFETY: the caller's.
    unsafe { PROCESS.force_unlock() };
    PROCESS.lock().len = 0;
    PROCESS_SET.store(0, Ordering::Relaxed);
}

unsafe fn takes(t: *mut Thread, signal: u32) -> bool {
    // SAFETY: a live control block.
    unsafe {
        let id = &(*t).identity;
        let blocked = id.sig_mask.load(Ordering::Relaxed) & bit(signal) != 0;
        !blocked || id.sig_waited.load(Ordering::Relaxed) & bit(signal) != 0
    }
}

/// Sends a signal to one thread.
///
/// # Safety
/// Inside the core; `t` is a live control block.
pub unsafe fn send_to_thread(t: *mut Thread, info: &SigInfo) {
    let signal = number(info);
    // SAFETY: the caller's.
    unsafe {
        let blocked = (*t).identity.sig_mask.load(Ordering::Relaxed) & bit(signal) != 0;
        if !blocked && actions::is_ignored(signal) {
            return;
        }
        add(&(*t).identity.sig_pending, &(*t).identity.sig_queue, info);
        if takes(t, signal) {
            alert(t);
        }
    }
}

/// Sends a signal to the process: to the current thread if it takes it, else to any other that does, else it stays
/// pending.
///
/// # Safety
/// Inside the core, or on a kernel thread that is not ours.
pub unsafe fn send_to_process(info: &SigInfo) {
    let signal = number(info);
    let me = current();
    // SAFETY: live control blocks.
    unsafe {
        let mut target = core::ptr::null_mut();
        if !me.is_null() && takes(me, signal) {
            target = me;
        } else {
            RT.threads.for_each(&mut |t| {
                if takes(t, signal) {
                    target = t;
                }
                target.is_null()
            });
        }
        if target.is_null() {
            add(&PROCESS_SET, &PROCESS, info);
            return;
        }
        if actions::is_ignored(signal) && (*target).identity.sig_waited.load(Ordering::Relaxed) & bit(signal) == 0 {
            return;
        }
        add(&PROCESS_SET, &PROCESS, info);
        alert(target);
    }
}

/// Makes a thread look at its pending signals: wakes it if it waits, kicks its worker if it runs.
///
/// # Safety
/// Inside the core; `t` is a live control block.
pub unsafe fn alert(t: *mut Thread) {
    // SAFETY: the caller's.
    unsafe {
        (*t).attention.store(true, Ordering::Relaxed);
        // SeqCst: see `wait::begin`. pairs: signal.attention
        fence(Ordering::SeqCst);
        if t == current() {
            return; // looks when it leaves the core
        }
        if (*t).park.claim_any(Reason::Signal) {
            ready(t);
            return;
        }
        // It runs, or is about to: a thread that is switched in after this looks at `attention` when it leaves the core.
        let w = (*t).worker.load(Ordering::Relaxed).cast::<heddle_core::sched::Worker>();
        if !w.is_null() && (*t).context.on_cpu.load(Ordering::Relaxed) != 0 {
            super::kernel::kick((*w).tid.load(Ordering::Relaxed));
        }
    }
}
