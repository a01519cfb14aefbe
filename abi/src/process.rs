//! Processes: fork and its kin, exec, the end, waiting for children.

use crate::entry::Frame;
use crate::signal;
use crate::sites;
use crate::wait::{NEVER, Next, abandon, begin, e, fail, interrupted, park};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use heddle_core::park::Reason;
use heddle_core::reactor::fd::{IN, Node, Wait};
use heddle_core::sched::{RT, current, worker};
use heddle_core::sys;
use heddle_core::sys::{check, linux as l};
use heddle_core::thread::State;

/// A fork is between `before_raw` and `after_raw`; the child must be told from the parent.
static FORKING: AtomicBool = AtomicBool::new(false);
/// What the child of a fork needs of the thread it continues.
static MASK: AtomicU64 = AtomicU64::new(0);
static ALT_BASE: AtomicUsize = AtomicUsize::new(0);
static ALT_SIZE: AtomicUsize = AtomicUsize::new(0);
static ROBUST: AtomicUsize = AtomicUsize::new(0);

/// Prepares a raw `fork`, `vfork` or `clone` of a process; the stub then makes the call itself, since the child returns on
/// the same stack. The caller stays in the core until [`after_raw`].
///
/// # Safety
/// The current thread, inside the core, about to go on at `RAW_POST`.
pub unsafe fn before_raw(shares_memory: bool) {
    let w = worker();
    let t = current();
    // SAFETY: our own record; the current thread.
    unsafe {
        let id = &(*t).identity;
        let mask = id.sig_mask.load(Ordering::Relaxed);
        if shares_memory {
            // The child runs on our memory with our GS base until it execs or exits: its calls must reach the kernel.
            (*w).vforking.store(1, Ordering::Relaxed);
        } else {
            // One fork at a time: the child finds its parameters in memory. The holder cannot be preempted.
            while FORKING.swap(true, Ordering::Acquire) {
                // Acquire: the last fork is over. pairs: process.forking
                heddle_core::lock::yield_cpu();
            }
            MASK.store(mask, Ordering::Relaxed);
            ALT_BASE.store(id.alt_stack.base, Ordering::Relaxed);
            ALT_SIZE.store(id.alt_stack.size, Ordering::Relaxed);
            ROBUST.store(id.robust_head, Ordering::Relaxed);
            crate::memory::before_fork();
        }
        // The child starts with the kernel's mask of the caller.
        heddle_core::sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &mask_for_child(mask, shares_memory) as *const _, 0, 8);
    }
}

/// A vfork child keeps all signals blocked until it execs... it must not: its own calls set the mask it wants. It gets the
/// thread's mask; a fork child gets all blocked until it has become an ordinary process.
fn mask_for_child(mask: u64, shares_memory: bool) -> u64 {
    if shares_memory { mask } else { u64::MAX }
}

/// After the raw call, in the parent and in the child; called by `entry::after_raw`.
///
/// # Safety
/// See there.
pub unsafe extern "C" fn after_raw(frame: &mut Frame) {
    let result = frame.rax as isize;
    let w = worker();
    // SAFETY: our own record, valid in parent and child.
    unsafe {
        if w.is_null() {
            return;
        }
        if result == 0 {
            if (*w).vforking.load(Ordering::Relaxed) == 0 {
                child();
            }
            return;
        }
        let open = 0u64;
        if (*w).vforking.load(Ordering::Relaxed) != 0 {
            (*w).vforking.store(0, Ordering::Relaxed);
            // The parent was stopped while the child ran; nobody took the processor away (it was never marked as in
            // the kernel), so the thread goes on here.
        } else {
            crate::memory::after_fork();
            FORKING.store(false, Ordering::Release); // Release: pairs: process.forking
        }
        heddle_core::sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &open as *const _, 0, 8);
        // The frame's continuation is complete (it points past the call); handlers want the site's own.
        frame.continuation -= sites::DONE as u64;
        signal::leave_core(frame);
        frame.continuation += sites::DONE as u64;
    }
}

/// The child of a fork: one kernel thread, which becomes an ordinary thread of an ordinary process.
unsafe fn child() {
    // SAFETY: the only thread of the child.
    unsafe {
        crate::memory::after_fork();
        FORKING.store(false, Ordering::Relaxed);
        RT.reset_in_child();
        signal::pending::reset();
        signal::actions::give_back();
        signal::kernel::set_process(heddle_core::sys!(l::__NR_getpid) as i32);
        let size = ALT_SIZE.load(Ordering::Relaxed);
        let alt = signal::context::Stack {
            base: ALT_BASE.load(Ordering::Relaxed),
            flags: if size == 0 { 2 } else { 0 },
            size,
        };
        heddle_core::sys!(l::__NR_sigaltstack, &alt as *const _, 0);
        heddle_core::sys!(l::__NR_set_robust_list, ROBUST.load(Ordering::Relaxed), 24);
        let mask = MASK.load(Ordering::Relaxed);
        heddle_core::sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &mask as *const _, 0, 8);
    }
}

/// `execve` and `execveat`.
///
/// # Safety
/// The current thread; the program's arguments.
pub unsafe fn exec(number: usize, args: [usize; 6]) -> isize {
    // SAFETY: the program's call, with the thread's own signal mask, which the new program inherits.
    unsafe { signal::calls::with_own_mask(current(), number, args) }
}

/// Ends the process.
///
/// # Safety
/// Nothing of the process is needed any more.
pub unsafe fn end(status: i32) -> ! {
    crate::stats::print();
    // SAFETY: does not return.
    unsafe {
        loop {
            heddle_core::sys!(l::__NR_exit_group, status);
        }
    }
}

/// `wait4` and `waitid` (`id` > 0: that child): tries without blocking, then parks on the child's pidfd; other waits block
/// the worker, whose processor is handed on.
///
/// # Safety
/// The current thread; the program's arguments.
pub unsafe fn wait(frame: &mut Frame, number: u32, args: [usize; 6], id: i32, options: usize) -> isize {
    let no_hang = l::WNOHANG as usize;
    if options & no_hang != 0 {
        // SAFETY: the program's call.
        return unsafe { sys::syscall6(number as usize, args) };
    }
    let t = current();
    // SAFETY: the program's call, made without blocking; the descriptor is ours.
    unsafe {
        if id > 0 {
            // A pidfd is readable when the child ends; stops and continuations must be waited for in the kernel.
            let ends_only = match number {
                l::__NR_wait4 => options & !(l::__WALL as usize) == 0,
                _ => options & (l::WSTOPPED | l::WCONTINUED) as usize == 0,
            };
            let pidfd = if ends_only { sys!(l::__NR_pidfd_open, id, 0) } else { -1 };
            if let Ok(fd) = check(pidfd) {
                let r = wait_readable(frame, fd as i32);
                RT.descriptors.forget(&RT.reactor, fd as i32);
                sys!(l::__NR_close, fd);
                if let Err(errno) = r {
                    return errno;
                }
            }
        }
        let _ = t;
        crate::dispatch::blocking(frame, number as usize, args, true)
    }
}

/// Parks until a descriptor of ours is readable. Error: EINTR.
unsafe fn wait_readable(frame: &mut Frame, fd: i32) -> Result<(), isize> {
    let t = current();
    // SAFETY: the current thread, inside the core; the node is left before its frame ends.
    unsafe {
        loop {
            let mut p = l::pollfd { fd, events: l::POLLIN as i16, revents: 0 };
            if sys!(l::__NR_poll, &mut p as *mut _, 1, 0) > 0 {
                return Ok(());
            }
            let Some(ticket) = begin(t) else {
                if interrupted(frame, true) == Next::Interrupted {
                    return Err(fail(e::EINTR));
                }
                continue;
            };
            let mut node = Node::new(t, ticket, IN);
            match RT.descriptors.wait(&RT.reactor, fd, &mut node) {
                Wait::Linked => {
                    let reason = park(t, ticket, NEVER, State::Child);
                    RT.descriptors.leave(&mut node);
                    if reason == Reason::Signal && interrupted(frame, true) == Next::Interrupted {
                        return Err(fail(e::EINTR));
                    }
                }
                Wait::Again => abandon(t, ticket),
                Wait::Cannot(_) => {
                    abandon(t, ticket);
                    return Ok(());
                }
            }
        }
    }
}

