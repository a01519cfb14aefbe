//! What the program wants done about each signal, and what the kernel is told.

use super::{KICK, bit, kernel, masks};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use heddle_core::lock::SpinLock;
use heddle_core::sys::{check, linux as l};

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Action {
    /// SIG_DFL (0), SIG_IGN (1) or a function.
    pub handler: usize,
    /// SA_ flags.
    pub flags: u64,
    /// The program's restorer.
    pub restorer: usize,
    /// Blocked while the handler runs.
    pub mask: u64,
}

/// SIG_DFL.
pub const DEFAULT: usize = 0;
/// SIG_IGN.
pub const IGNORE: usize = 1;

struct All([Action; 65]);
static ACTIONS: SpinLock<All> = SpinLock::new(All([Action { handler: 0, flags: 0, restorer: 0, mask: 0 }; 65]));
/// Signals whose kernel-level handler is ours.
static ARMED: AtomicU64 = AtomicU64::new(0);
/// Signals that some thread has blocked on purpose; they stay armed.
static BLOCKED: AtomicU64 = AtomicU64::new(0);
/// Those of them that only count until the program's own mask is known.
static UNSURE: AtomicU64 = AtomicU64::new(0);
static ALWAYS: AtomicBool = AtomicBool::new(false);
/// Signals that the program ignores, and that the kernel hands to us all the same.
static QUIET: AtomicU64 = AtomicU64::new(0);

/// Signals that the kernel must always hand to us: faults (the core probes addresses; stack overflows are named).
const FAULTS: u64 = bit(l::SIGSEGV) | bit(l::SIGBUS);
/// glibc's own signals, and our kick. `posix_spawn` starts programs with them ignored, and glibc's timer thread waits for
/// the first all the same.
pub const INTERNAL: u64 = bit(32) | bit(KICK);
/// For a process that ignores these, and a thread that blocks them, the kernel lets calls on a terminal be made in the
/// background, or fail.
const OF_TERMINALS: u64 = bit(l::SIGTTIN) | bit(l::SIGTTOU);
/// Signals that cannot be caught.
const UNCATCHABLE: u64 = bit(l::SIGKILL) | bit(l::SIGSTOP);

/// Signals that stop a process, but for SIGSTOP.
const STOPS: u64 = bit(l::SIGTSTP) | OF_TERMINALS;

/// Signals that are no longer pending when this one is sent.
pub fn opposites(signal: u32) -> u64 {
    match signal {
        l::SIGCONT => STOPS,
        l::SIGTSTP | l::SIGTTIN | l::SIGTTOU => bit(l::SIGCONT),
        _ => 0,
    }
}

/// Of which signals we have to hear while a thread blocks `blocked`: also of those that end what is pending.
fn to_hear_of(blocked: u64) -> u64 {
    let with = |these: u64, others: u64| if blocked & these != 0 { others } else { 0 };
    blocked | with(STOPS, bit(l::SIGCONT)) | with(bit(l::SIGCONT), STOPS)
}

/// What the program set.
pub fn get(signal: u32) -> Action {
    ACTIONS.lock().0[signal as usize]
}

/// Signals that the kernel hands to us for the program's sake.
pub fn armed() -> u64 {
    ARMED.load(Ordering::Relaxed) & !(FAULTS | INTERNAL)
}

/// Whether the signal's action is to do nothing.
pub fn is_ignored(signal: u32) -> bool {
    match get(signal).handler {
        IGNORE => true,
        DEFAULT => matches!(signal, l::SIGCHLD | l::SIGCONT | l::SIGURG | l::SIGWINCH),
        _ => false,
    }
}

/// Whether nothing comes of SIGPIPE for a thread with this mask but that our handler runs: a call had better not send it.
#[inline(always)]
pub fn spares_broken_pipe(mask: impl FnOnce() -> u64) -> bool {
    let pipe = bit(l::SIGPIPE);
    QUIET.load(Ordering::Relaxed) & pipe != 0 && mask() & pipe == 0
}

unsafe fn kernel_action(signal: u32, new: Option<&Action>) -> Result<Action, i32> {
    let mut old = Action::default();
    let new = new.map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: reads one struct, writes another.
    unsafe { check(heddle_core::sys!(l::__NR_rt_sigaction, signal, new, &mut old as *mut _, 8)).map(|_| old) }
}

/// Tells the kernel what it has to do about `signal` now. It keeps a signal that is ignored for a thread that blocks it (who
/// may wait for it, or change the action); since it knows workers only, which block nothing, we do that. What all workers
/// block it keeps itself.
///
/// Ignoring some signals is more to it than not to send them. It reaps the children of who ignores SIGCHLD and sends none for
/// them: with our handler the first goes by SA_NOCLDWAIT, and what it sends is dropped (`is_about_child`). SIGTTIN and SIGTTOU:
/// see `for_terminal`.
unsafe fn apply(signal: u32, action: &Action) {
    let wanted = BLOCKED.load(Ordering::Relaxed) | FAULTS;
    let armed = match action.handler {
        DEFAULT => wanted & bit(signal) != 0,
        IGNORE => wanted & !masks::kept() & bit(signal) != 0,
        _ => true,
    };
    let armed = armed || INTERNAL & bit(signal) != 0;
    if armed && action.handler == IGNORE && INTERNAL & bit(signal) == 0 {
        QUIET.fetch_or(bit(signal), Ordering::Relaxed);
    } else {
        QUIET.fetch_and(!bit(signal), Ordering::Relaxed);
    }
    let told = if armed {
        ARMED.fetch_or(bit(signal), Ordering::Relaxed);
        let quiet = action.handler == IGNORE && signal == l::SIGCHLD;
        let flags = if quiet { (l::SA_NOCLDSTOP | l::SA_NOCLDWAIT) as u64 } else { 0 };
        kernel::our_action(action.flags | flags)
    } else {
        ARMED.fetch_and(!bit(signal), Ordering::Relaxed);
        *action
    };
    // SAFETY: our handler obeys the rules of signal handlers.
    unsafe {
        let _ = kernel_action(signal, Some(&told));
    }
}

/// What the kernel keeps for descriptors has changed by `signals`: it is told anew of those that are ignored.
pub fn keeping_changed(signals: u64) {
    let all = ACTIONS.lock();
    for signal in 1..=64 {
        let a = &all.0[signal as usize];
        if signals & bit(signal) != 0 && a.handler == IGNORE {
            // SAFETY: as in sigaction.
            unsafe { apply(signal, a) };
        }
    }
}

/// Whether a signal that the kernel gave to us tells of a child of a process that ignores such news: it would have sent none.
pub fn is_about_child(signal: u32, code: i32) -> bool {
    signal == l::SIGCHLD && tells_of_child(code) && get(signal).handler == IGNORE
}

/// Whether the kernel sent a SIGCHLD with this `si_code`, about the child that it names.
pub fn tells_of_child(code: i32) -> bool {
    const CLD_EXITED: i32 = 1;
    const CLD_CONTINUED: i32 = 6;
    (CLD_EXITED..=CLD_CONTINUED).contains(&code)
}

/// What a worker has to block while it makes a call on a terminal for a thread with this mask: to the kernel, which looks at
/// the kernel thread's mask and at what it knows to be ignored, it is to be as if that were the thread.
pub fn for_terminal(mask: u64) -> u64 {
    (mask | QUIET.load(Ordering::Relaxed)) & OF_TERMINALS
}

/// Takes over what was set before the runtime started.
///
/// # Safety
/// Signals are blocked; the process has one thread.
pub unsafe fn take_over(blocked: u64) {
    // Everything blocked: libc is in the middle of creating a thread, and will set the program's own mask next (`settle`).
    // Until then it may be that the program has blocked any signal, and what is pending already was blocked.
    let blocked = to_hear_of(blocked);
    UNSURE.store(if blocked | UNCATCHABLE == u64::MAX { !UNCATCHABLE } else { 0 }, Ordering::Relaxed);
    BLOCKED.store(blocked & !UNCATCHABLE, Ordering::Relaxed);
    ALWAYS.store(true, Ordering::Relaxed);
    for signal in 1..=64 {
        if bit(signal) & UNCATCHABLE != 0 {
            continue;
        }
        // SAFETY: the caller's.
        unsafe {
            let Ok(old) = kernel_action(signal, None) else { continue };
            ACTIONS.lock().0[signal as usize] = old;
            if old.handler > IGNORE || INTERNAL & bit(signal) != 0 || (FAULTS | blocked) & bit(signal) != 0 {
                apply(signal, &old);
            }
        }
    }
}

/// Gives all actions back to the kernel, in a forked child. `some_are_its_own`: those that are ours there, since others have been
/// set past us.
///
/// # Safety
/// The caller is the only thread.
pub unsafe fn give_back(some_are_its_own: bool) {
    // SAFETY: the caller's.
    unsafe {
        ACTIONS.force_unlock();
        let armed = ARMED.swap(0, Ordering::Relaxed);
        BLOCKED.store(0, Ordering::Relaxed);
        UNSURE.store(0, Ordering::Relaxed);
        QUIET.store(0, Ordering::Relaxed);
        ALWAYS.store(false, Ordering::Relaxed);
        for signal in 1..=64 {
            let is_ours = || kernel_action(signal, None).is_ok_and(|now| now.handler == kernel::our_action(0).handler);
            if armed & bit(signal) != 0 && (!some_are_its_own || is_ours()) {
                let a = get(signal);
                let _ = kernel_action(signal, Some(&a));
            }
        }
    }
}

/// `rt_sigaction(2)` once the runtime has started.
///
/// # Safety
/// `new` and `old` are the program's pointers.
pub unsafe fn sigaction(signal: u32, new: *const Action, old: *mut Action) -> Result<(), i32> {
    if !(1..=64).contains(&signal) || (bit(signal) & UNCATCHABLE != 0 && !new.is_null()) {
        return Err(linux_raw_sys::errno::EINVAL as i32);
    }
    // SAFETY: the program's pointers; faults are the program's own.
    unsafe {
        let new = if new.is_null() { None } else { Some(*new) };
        let before = {
            let mut all = ACTIONS.lock();
            let before = all.0[signal as usize];
            if let Some(mut n) = new {
                n.mask &= !UNCATCHABLE;
                all.0[signal as usize] = n;
                apply(signal, &n);
            }
            before
        };
        if new.is_some() && is_ignored(signal) {
            super::pending::discard(signal);
        }
        if !old.is_null() {
            *old = before;
        }
    }
    Ok(())
}

/// A kick that is pending when `execve` succeeds would end the new program: while one is tried, the kernel drops them.
///
/// # Safety
/// Inside the core. Whoever ends this has to kick all workers, since kicks were lost.
pub unsafe fn ignore_kicks(ignore: bool) {
    let all = ACTIONS.lock();
    // SAFETY: as in sigaction.
    unsafe {
        if ignore {
            let _ = kernel_action(KICK, Some(&Action { handler: IGNORE, ..Action::default() }));
        } else {
            apply(KICK, &all.0[KICK as usize]);
        }
    }
}

/// A new program inherits what is ignored: while `execve` is tried (`true`), and in a process on our memory with handlers of
/// its own, the kernel ignores itself what we ignore in its place.
///
/// # Safety
/// Inside the core, or in such a process.
pub unsafe fn ignore_really(really: bool) {
    let mut left = QUIET.load(Ordering::Relaxed);
    while left != 0 {
        let signal = left.trailing_zeros() + 1;
        left &= left - 1;
        // SAFETY: as in sigaction.
        unsafe {
            if really {
                let _ = kernel_action(signal, Some(&Action { handler: IGNORE, ..Action::default() }));
            } else {
                let all = ACTIONS.lock();
                apply(signal, &all.0[signal as usize]);
            }
        }
    }
}

/// SA_RESETHAND: the handler is used up.
///
/// # Safety
/// Inside the core.
pub unsafe fn use_up(signal: u32) {
    let mut all = ACTIONS.lock();
    let a = &mut all.0[signal as usize];
    a.handler = DEFAULT;
    // SAFETY: as in sigaction.
    unsafe { apply(signal, a) };
}

/// A thread blocks `mask`: from now on those signals must reach us even when they have no handler.
pub fn note_blocked(mask: u64) {
    let new = to_hear_of(mask) & !BLOCKED.load(Ordering::Relaxed) & !UNCATCHABLE;
    // All bits, or all but that of `setuid`'s signal (a thread that ends): libc protects a critical section of its own. What
    // the program blocks through libc has neither that bit nor the cancelling signal's.
    let is_libcs = mask | bit(KICK) == u64::MAX;
    if new == 0 || is_libcs || !ALWAYS.load(Ordering::Relaxed) {
        return;
    }
    BLOCKED.fetch_or(new, Ordering::Relaxed);
    let all = ACTIONS.lock();
    for signal in 1..=64 {
        let a = &all.0[signal as usize];
        if new & bit(signal) != 0 && a.handler <= IGNORE {
            // SAFETY: as in sigaction.
            unsafe { apply(signal, a) };
        }
    }
}

/// A thread sets its whole mask for the first time since the runtime started: what it does not block was not blocked by the
/// program before.
#[inline]
pub fn settle(mask: u64) {
    if UNSURE.load(Ordering::Relaxed) != 0 && mask != u64::MAX {
        settle_now(mask);
    }
}

#[cold]
fn settle_now(mask: u64) {
    let all = ACTIONS.lock();
    let open = UNSURE.swap(0, Ordering::Relaxed) & !to_hear_of(mask);
    BLOCKED.fetch_and(!open, Ordering::Relaxed);
    for signal in 1..=64 {
        let a = &all.0[signal as usize];
        if open & bit(signal) != 0 && a.handler <= IGNORE {
            // SAFETY: as in sigaction.
            unsafe { apply(signal, a) };
        }
    }
}

/// Whether the default action of `signal` is the end of the process.
pub fn ends_process(signal: u32) -> bool {
    let harmless = bit(l::SIGCHLD) | bit(l::SIGCONT) | bit(l::SIGURG) | bit(l::SIGWINCH);
    // The kernel spares the first process of a PID namespace.
    bit(signal) & (harmless | STOPS | bit(l::SIGSTOP)) == 0 && kernel::process() != 1
}

/// Tells the kernel that the program wants the default thing done about `signal`.
///
/// # Safety
/// As [`default`].
pub unsafe fn tell_default(signal: u32) {
    // SAFETY: as in sigaction.
    unsafe {
        let _ = kernel_action(signal, Some(&Action::default()));
    }
}

/// Lets the kernel do the default thing about `signal` to the process: terminate, dump core, stop.
///
/// # Safety
/// Inside the core, on a worker.
pub unsafe fn default(signal: u32) {
    if matches!(signal, l::SIGCHLD | l::SIGCONT | l::SIGURG | l::SIGWINCH) {
        return;
    }
    // SAFETY: the process is to be stopped or ended; after a stop the action is put back.
    unsafe {
        if ends_process(signal) {
            crate::robust::process_ends();
        }
        tell_default(signal);
        let me = heddle_core::sys!(l::__NR_getpid);
        let open = 0u64;
        heddle_core::sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &open as *const _, 0, 8);
        heddle_core::sys!(l::__NR_tgkill, me, heddle_core::sys!(l::__NR_gettid), signal);
        let a = get(signal);
        apply(signal, &a);
    }
}
