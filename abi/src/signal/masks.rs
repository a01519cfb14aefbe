//! What workers block in the kernel, and who of them takes queued signals.
//!
//! No thread's mask is a worker's: those are kept with the threads. A worker blocks what the kernel is to keep, for a `signalfd` or
//! the program that is about to be executed; queued signals, unless it is the one that takes them; and some for as long as one call
//! takes.

use super::actions;
use super::bit;
use super::kernel::{ALL, FAULTS, empty_inbox, inbox, kick};
use super::pending;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering, compiler_fence};
use heddle_core::prim::fence;
use heddle_core::sched::{Absent, RT, Worker, worker};
use heddle_core::sys::linux as l;
use heddle_core::thread::Thread;

/// Signals that every worker blocks in the kernel, so that they stay pending there for a `signalfd` to read.
static KEPT: AtomicU64 = AtomicU64::new(0);

/// Signals that they block while a thread is in `execve`, for the new program.
static KEPT_FOR_EXEC: AtomicU64 = AtomicU64::new(0);

/// What all workers block in the kernel.
pub(super) fn base_mask() -> u64 {
    KEPT.load(Ordering::Relaxed) | KEPT_FOR_EXEC.load(Ordering::Relaxed)
}

/// The kernel-level mask of worker `w`.
pub fn worker_mask(w: &Worker) -> u64 {
    let own = base_mask() | w.shielded.load(Ordering::Relaxed);
    if receives(w) { own } else { own | QUEUED }
}

/// Signals of which the kernel queues several of one number, in order; less those that glibc and we use.
pub(super) const QUEUED: u64 = ALL << 33;

/// The kernel thread that takes queued signals: the receiver.
///
/// # Protocol
/// The kernel gives the instances of a number in the order in which they were sent, but to whichever kernel thread asks, and
/// says nothing of their order in what it gives. So one worker takes them, and all others block them:
/// * The receiver is the kernel thread that has started the runtime, mostly the process's first, which the kernel prefers
///   anyway. Nothing changes for a signal that comes alone.
/// * It hands them to threads in the order in which it took them: what is in its inbox comes before what a handler finds
///   later (`on_signal`). It never asks for them: as they are open on no other kernel thread, the kernel has it enter the
///   handler, or not leave it, for those that were sent before a call that it makes returns. So in
///   [`collect`](super::kernel::collect) all that have been sent are in its inbox.
/// * Before it waits in the kernel with all signals blocked, for the child of a `vfork`, it makes another worker the
///   receiver (`pass_receiving`): first it blocks them itself and hands out what it has taken, so it has none under way when
///   the other one opens its mask. If that is entering a `vfork` too just then, one of the two sees the other (each says what
///   it does, then looks), and a third is chosen. If there is none, a worker that is made while the receiver waits takes over
///   (`relieve`).
/// * A worker in [`collect`](super::kernel::collect) that is not the receiver does not ask for them either: while the kernel has
///   some, it waits for the receiver.
///
/// * A worker whose thread tries `execve` has the thread's own mask, so it becomes the receiver before: for a moment there is
///   none, all workers block them, and what has been taken is handed out (`keep_for_exec`).
///
/// # Rejected
/// * *Numbering what was taken*: the number would be given in the handler, after the kernel's choice; two workers may be
///   there in either order.
/// * *All workers block them, and who has a lock asks with `rt_sigtimedwait`*: nobody is told that there are some but through
///   a `signalfd`, one more descriptor that does not belong to the program, and through workers that poll: while all of them
///   compute or wait in the kernel none does.
/// * *A kernel thread that does nothing else*: each signal costs a switch more, and [`collect`](super::kernel::collect) has to wait for it as it
///   does for the receiver.
static RECEIVER: AtomicI32 = AtomicI32::new(0);

/// Whether `w` is the receiver.
pub(super) fn receives(w: &Worker) -> bool {
    // Acquire: what the last receiver took is pending. pairs: signal.receiver
    w.tid.load(Ordering::Relaxed) == RECEIVER.load(Ordering::Acquire)
}

/// The caller's kernel thread, which starts the runtime, becomes the receiver.
pub fn receive_here() {
    // SAFETY: touches no memory.
    RECEIVER.store(unsafe { heddle_core::sys!(l::__NR_gettid) } as i32, Ordering::Relaxed);
}

/// The caller's worker, which is about to wait with all signals blocked, hands receiving on if it is the receiver and there is
/// another worker.
///
/// # Safety
/// Inside the core, no locks held. Its mask, and `held`, are for the caller to put right afterwards (`process::after_raw`).
pub unsafe fn pass_receiving(w: *mut Worker) {
    // SAFETY: our own record.
    unsafe {
        (*w).held.store(Worker::ENTERS, Ordering::Relaxed);
        // SeqCst: we say that we enter, then look who receives; who hands receiving on does that, then looks who enters.
        // pairs: signal.held
        fence(Ordering::SeqCst);
        if !receives(&*w) {
            return;
        }
        shield_queued(w);
        let mut last = (*w).tid.load(Ordering::Relaxed);
        loop {
            let mut next: *const Worker = core::ptr::null();
            RT.for_each_worker(&mut |other| {
                if other.held.load(Ordering::Relaxed) == 0 && other.tid.load(Ordering::Relaxed) != 0 {
                    next = other;
                }
            });
            let Some(next) = next.as_ref() else { break };
            let tid = next.tid.load(Ordering::Relaxed);
            // Release: what we took is pending. pairs: signal.receiver
            if RECEIVER.compare_exchange(last, tid, Ordering::Release, Ordering::Relaxed).is_err() {
                break; // the one that we chose has handed it on itself
            }
            kick(next);
            last = tid;
            // SeqCst: as above. pairs: signal.held
            fence(Ordering::SeqCst);
            if next.held.load(Ordering::Relaxed) == 0 {
                break;
            }
        }
        unshield(w);
    }
}

/// A worker that was just made receives queued signals if nobody else can: the receiver and all others are in a `vfork`.
pub(super) fn relieve(w: &Worker) {
    // SeqCst: this worker is listed, then we look who is held; who enters a vfork says so, then looks for another worker.
    // pairs: signal.held
    fence(Ordering::SeqCst);
    let last = RECEIVER.load(Ordering::Relaxed);
    RT.for_each_worker(&mut |other| {
        if other.tid.load(Ordering::Relaxed) == last && other.held.load(Ordering::Relaxed) != 0 {
            let tid = w.tid.load(Ordering::Relaxed);
            // AcqRel: what the last one took is pending, and was taken before ours. pairs: signal.receiver
            let _ = RECEIVER.compare_exchange(last, tid, Ordering::AcqRel, Ordering::Relaxed);
        }
    });
}

/// Blocks queued signals on the caller's kernel thread at a moment when its inbox is empty.
unsafe fn shield_queued(w: *mut Worker) {
    // SAFETY: our own record, inside the core; the inbox is this kernel thread's.
    unsafe {
        loop {
            if (*w).attention.load(Ordering::Relaxed) != 0 {
                empty_inbox(w);
            }
            shield(w, QUEUED);
            if (&raw const (*inbox(w)).len).read_volatile() == 0 {
                return;
            }
            unshield(w);
        }
    }
}

/// The process sends itself SIGCONT. That is for us to deliver, but the kernel too is to forget stops that it has under way:
/// it does when this kernel thread is sent one, which nobody else sees.
///
/// # Safety
/// Inside the core on a worker.
pub unsafe fn end_stops() {
    let (set, no_time) = (bit(l::SIGCONT), [0u64; 2]);
    // SAFETY: our own record; touches no memory but the locals. Of two that are pending the kernel takes this thread's own.
    unsafe {
        let w = worker();
        shield(w, set);
        let tid = (*w).tid.load(Ordering::Relaxed);
        heddle_core::sys!(l::__NR_tgkill, super::kernel::process(), tid, l::SIGCONT);
        heddle_core::sys!(l::__NR_rt_sigtimedwait, &raw const set, 0, no_time.as_ptr(), 8);
        unshield(w);
    }
}

/// Blocks `set` on the caller's kernel thread, whose mask kicks set anew, until [`unshield`].
unsafe fn shield(w: *mut Worker, set: u64) {
    // SAFETY: our own record and mask.
    unsafe {
        (*w).shielded.store(set, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst); // SeqCst: for kicks on this kernel thread. pairs: worker.shielded
        heddle_core::sys!(l::__NR_rt_sigprocmask, l::SIG_BLOCK, &raw const set, 0, 8);
    }
}

/// Ends that, as far as the worker's mask lets it.
unsafe fn unshield(w: *mut Worker) {
    // SAFETY: our own record and mask; the inbox is this kernel thread's.
    unsafe {
        let set = (*w).shielded.swap(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst); // SeqCst: as above. pairs: worker.shielded
        // A closed inbox is to be emptied first, which opens the mask.
        if !(&raw const (*inbox(w)).closed).read_volatile() {
            let open = set & !worker_mask(&*w);
            heddle_core::sys!(l::__NR_rt_sigprocmask, l::SIG_UNBLOCK, &raw const open, 0, 8);
        }
    }
}

/// Signals that the kernel keeps for a `signalfd`.
pub fn kept() -> u64 {
    KEPT.load(Ordering::Relaxed)
}

/// Whether the kernel keeps this signal for a `signalfd`.
pub fn is_kept(signal: u32) -> bool {
    kept() & bit(signal) != 0
}

/// While a thread tries to execute another program the kernel has what is pending, if that thread blocks it: who wants to know
/// about signals of `set` waits until the attempt has failed, or the process is no more.
///
/// # Safety
/// Inside the core on a worker, no locks held.
#[inline]
pub unsafe fn await_exec(set: u64) {
    if KEPT_FOR_EXEC.load(Ordering::Relaxed) & set != 0 {
        // SAFETY: the caller's.
        unsafe { await_exec_now(set) }
    }
}

#[cold]
unsafe fn await_exec_now(set: u64) {
    let end = heddle_core::clock::now() + PATIENCE;
    while KEPT_FOR_EXEC.load(Ordering::Relaxed) & set != 0 && heddle_core::clock::now() < end {
        // SAFETY: the caller's. (The thread that executes waits for our inbox.)
        unsafe {
            if (*worker()).attention.load(Ordering::Relaxed) != 0 {
                empty_inbox(worker());
            }
        }
        heddle_core::lock::yield_cpu();
    }
}

/// How long others wait for an `execve`, and that for them, in nanoseconds: each may have to wait for a CPU first, with dozens of
/// others that compute.
const PATIENCE: u64 = 200_000_000;

/// A thread that blocks `mask` is about to execute another program: from the return on the kernel keeps what comes for the
/// process and is in the result.
///
/// # Safety
/// Inside the core on a worker; one thread at a time.
pub unsafe fn keep_for_exec(mask: u64) -> u64 {
    let mask = mask & !(actions::INTERNAL | FAULTS);
    // Kernel threads take the new mask when they return from the handler of the kick, in which they do the errand.
    let own = || {
        KEPT_FOR_EXEC.store(mask, Ordering::Relaxed);
        RECEIVER.store(0, Ordering::Relaxed);
        // SAFETY: inside the core. The others' call does nothing.
        unsafe { take_mask_over() };
        ((), Some([l::__NR_getpid as usize, 0, 0, 0, 0, 0, 0]))
    };
    // SAFETY: our own record.
    if mask != 0 || !receives(unsafe { &*worker() }) {
        // SAFETY: the caller's.
        unsafe {
            let _ = RT.errands.everywhere(Absent::Spare, own, kick);
            empty_inbox(worker());
        }
        // What the others had taken before becomes pending when they leave the core; one that does not is stuck.
        let patience = heddle_core::clock::now() + PATIENCE;
        RT.for_each_worker(&mut |w| {
            // Acquire: what it took is pending. pairs: worker.inbox
            while !core::ptr::eq(w, worker())
                && w.held.load(Ordering::Relaxed) == 0
                && w.attention.load(Ordering::Acquire) != 0
                && heddle_core::clock::now() < patience
            {
                heddle_core::lock::yield_cpu();
            }
        });
        // SAFETY: the caller's. What the last receiver took is pending; nobody else has taken one since.
        unsafe {
            RECEIVER.store((*worker()).tid.load(Ordering::Relaxed), Ordering::Relaxed);
            take_mask_over();
        }
    }
    mask
}

/// Undoes [`keep_for_exec`], `actions::ignore_really`, `pending::hand_over` and `actions::ignore_kicks`.
///
/// # Safety
/// As there; `t` is the current thread.
pub unsafe fn exec_failed(t: *mut Thread, mask: u64) {
    let (all, mut before) = (ALL, 0u64);
    // SAFETY: this worker's own mask; the caller's.
    unsafe {
        heddle_core::sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &all as *const _, &mut before as *mut _, 8);
        pending::take_back(t, mask);
        actions::ignore_really(false);
        actions::ignore_kicks(false);
        heddle_core::sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &before as *const _, 0, 8);
        KEPT_FOR_EXEC.store(0, Ordering::Relaxed);
        // Kicks that were sent meanwhile are lost: all workers get another.
        RT.for_each_worker(&mut |w| w.kicked.store(0, Ordering::Relaxed));
        spread_mask();
    }
}

/// A `signalfd` reads these signals, which the caller blocks: from the return on the kernel keeps them.
///
/// # Safety
/// Inside the core on a worker, signals open.
pub unsafe fn keep(signals: u64) {
    let new = signals & !KEPT.load(Ordering::Relaxed);
    if new == 0 {
        return;
    }
    // As in `keep_for_exec`. A worker that is held blocks all signals, and takes this mask when it is no longer. What is ignored is told to the kernel when all block it: it would drop it otherwise.
    let own = || {
        KEPT.fetch_or(new, Ordering::Relaxed);
        // SAFETY: this worker's own mask. The others' call does nothing.
        unsafe { heddle_core::sys!(l::__NR_rt_sigprocmask, l::SIG_BLOCK, &raw const new, 0, 8) };
        ((), Some([l::__NR_getpid as usize, 0, 0, 0, 0, 0, 0]))
    };
    // SAFETY: the caller's.
    let _ = unsafe { RT.errands.everywhere(Absent::Spare, own, kick) };
    actions::keeping_changed(new);
}

/// Signals that the kernel keeps and has.
pub fn pending_kept() -> u64 {
    let (kept, mut now) = (kept(), 0u64);
    if kept != 0 {
        // SAFETY: writes a local.
        unsafe { heddle_core::sys!(l::__NR_rt_sigpending, &raw mut now, 8) };
    }
    now & kept
}

/// A thread unblocks some signals: they are no longer kept.
///
/// # Safety
/// Inside the core.
pub unsafe fn let_go(signals: u64) {
    KEPT.fetch_and(!signals, Ordering::Relaxed);
    actions::keeping_changed(signals);
    spread_mask();
}

/// Nothing is kept, in a forked child.
pub fn keep_nothing() {
    KEPT.store(0, Ordering::Relaxed);
    KEPT_FOR_EXEC.store(0, Ordering::Relaxed);
}

/// Gives the caller's kernel thread the mask that its worker is to have.
///
/// # Safety
/// Inside the core, on a worker.
unsafe fn take_mask_over() {
    // SAFETY: the caller's.
    unsafe {
        let w = worker();
        let mut mask = worker_mask(&*w);
        loop {
            heddle_core::sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &mask as *const _, 0, 8);
            // The worker may have become the receiver before that, by a kick whose handler returned with the mask of then.
            let now = worker_mask(&*w);
            if now == mask {
                return;
            }
            mask = now;
        }
    }
}

/// Makes all workers take the base mask over: their kicked handlers return with it.
fn spread_mask() {
    // SAFETY: inside the core.
    unsafe { take_mask_over() };
    RT.for_each_worker(&mut |w| kick(w));
}

/// Makes a call of thread `t` on what may be a terminal: the kernel asks whether the caller's kernel thread blocks SIGTTIN and
/// SIGTTOU, and a process in the background that does not is stopped.
///
/// # Safety
/// The current thread, on a worker; `call` is the program's and stays on it.
pub unsafe fn on_terminal(t: *const Thread, call: impl FnOnce() -> isize) -> isize {
    // SAFETY: the caller's; our own record.
    unsafe {
        let shielded = actions::for_terminal((*t).identity.sig_mask.load(Ordering::Relaxed));
        if shielded == 0 {
            return call();
        }
        let w = worker();
        shield(w, shielded);
        let r = call();
        unshield(w);
        r
    }
}
