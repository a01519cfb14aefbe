//! Processes: fork and its kin, exec, the end, waiting for children.

use crate::entry::Frame;
use crate::signal;
use crate::sites;
use crate::wait::{Next, abandon, begin, e, fail, interrupted, park};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use heddle_core::arch;
use heddle_core::clock;
use heddle_core::park::Reason;
use heddle_core::reactor::fd::{IN, Node, Wait};
use heddle_core::sched::{self, RT, Worker, base, current, worker};
use heddle_core::sys;
use heddle_core::sys::{check, linux as l};
use heddle_core::thread::State;

/// The worker that is forking, from `before_raw` to `after_raw`, or an [`outsider`]; in the child it tells a fork from a clone
/// that shares memory.
static FORKER: AtomicPtr<Worker> = AtomicPtr::new(core::ptr::null_mut());
/// In place of a worker, whose address is even: a kernel thread that is not ours, of this process or of one on our memory.
fn outsider(process: i32) -> *mut Worker {
    core::ptr::without_provenance_mut(process as usize * 2 + 1)
}
/// In a worker's `child_mask`, where it says nothing about signals: the child has its own table of handlers.
const OWN_HANDLERS: u64 = signal::bit(l::SIGKILL);
/// As well: its creator waits for it.
const WAITED_FOR: u64 = signal::bit(l::SIGSTOP);
/// What the child of a fork needs of the thread it continues.
static MASK: AtomicU64 = AtomicU64::new(0);
static ALT_BASE: AtomicUsize = AtomicUsize::new(0);
static ALT_SIZE: AtomicUsize = AtomicUsize::new(0);
static ROBUST: AtomicUsize = AtomicUsize::new(0);

/// Prepares a raw `fork`, `vfork` or `clone` of a process; the stub then makes the call itself, since the child returns on
/// the same stack. The caller stays in the core, all signals blocked, until [`after_raw`]. `own_handlers`: the child has a
/// table of them for itself.
///
/// # Safety
/// The current thread, inside the core, about to go on at `RAW_POST`.
pub unsafe fn before_raw(shares_memory: bool, own_handlers: bool) {
    let w = worker();
    let t = current();
    let all = u64::MAX;
    // SAFETY: our own record; the current thread.
    unsafe {
        if !shares_memory {
            let id = &(*t).identity;
            begin_fork(w);
            MASK.store(id.sig_mask.load(Ordering::Relaxed), Ordering::Relaxed);
            ALT_BASE.store(id.alt_stack.base, Ordering::Relaxed);
            ALT_SIZE.store(id.alt_stack.size, Ordering::Relaxed);
            ROBUST.store(id.robust_head, Ordering::Relaxed);
        }
        let mask = (*t).identity.sig_mask.load(Ordering::Relaxed);
        let waited_for = if (*w).held.load(Ordering::Relaxed) != 0 { WAITED_FOR } else { 0 };
        let marks = waited_for | if own_handlers { OWN_HANDLERS } else { 0 };
        (*w).child_mask.store(mask | marks, Ordering::Relaxed);
        (*w).child_base.store((*t).gs_base, Ordering::Relaxed);
        sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &all as *const _, 0, 8);
        if waited_for != 0 {
            // Release: signals are blocked, and nothing is owed. pairs: worker.held
            (*w).held.store(Worker::HELD, Ordering::Release);
            sched::enter_kernel(w);
        }
    }
}

/// One fork at a time: the child finds its parameters in memory. The holder cannot be preempted.
fn begin_fork(who: *mut Worker) {
    // Acquire: the last fork is over. pairs: process.forker
    let begin = || FORKER.compare_exchange(core::ptr::null_mut(), who, Ordering::Acquire, Ordering::Relaxed);
    let mut turns = 0u32;
    while let Err(other) = begin() {
        turns += 1;
        let process = (other.addr() / 2) as i32;
        if other.addr() % 2 == 1 && turns.is_multiple_of(256) && sys::has_ended(process) {
            end_fork_of(process);
        }
        heddle_core::lock::yield_cpu();
    }
    crate::memory::before_fork();
}

/// A process on our memory has ended, or executes another program: if it was about to fork, the next fork may begin.
fn end_fork_of(process: i32) {
    let other = outsider(process);
    // Acquire: what it has locked. pairs: process.forker
    if FORKER.compare_exchange(other, CLEANER, Ordering::Acquire, Ordering::Relaxed).is_ok() {
        // SAFETY: it does not come back; what it has locked is ours now.
        unsafe { end_fork() };
    }
}

/// Which thread made which process: the ids of both, the process's in the upper half, at the place that its id gives. The kernel asks
/// that thread first whether it takes the news of its child. A later child may take the place; then main is asked.
static MADE: [AtomicU64; 4096] = [const { AtomicU64::new(0) }; 4096];

/// The id of the thread that made a process, or 0.
pub fn maker_of(process: u32) -> u32 {
    let made = MADE[process as usize % MADE.len()].load(Ordering::Relaxed);
    if (made >> 32) as u32 == process { made as u32 } else { 0 }
}

/// The current thread has made a process.
fn note_made(process: u32) {
    // SAFETY: the current thread.
    let tid = unsafe { (*current()).identity.tid.load(Ordering::Relaxed) };
    MADE[process as usize % MADE.len()].store(u64::from(process) << 32 | u64::from(tid), Ordering::Relaxed);
}

/// In place of a worker: who ends another's fork.
const CLEANER: *mut Worker = core::ptr::without_provenance_mut(2);

/// As [`before_raw`], for a `fork` or a `clone` with memory of its own by a kernel thread that is not ours, in a process
/// that runs user threads or a child on its memory: the tables are locked as for any fork, and no handler of the program's comes until [`after_raw`].
/// What else the kernel keeps for that thread, its child has from the kernel.
///
/// # Safety
/// About to go on at `RAW_POST`.
pub unsafe fn before_fork_outside() {
    let (all, mut before) = (u64::MAX, 0u64);
    // SAFETY: writes a local; the mask is put back.
    unsafe { sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &raw const all, &raw mut before, 8) };
    // SAFETY: touches no memory.
    begin_fork(outsider(unsafe { sys!(l::__NR_getpid) } as i32));
    MASK.store(before, Ordering::Relaxed);
}

/// Ends that, in the parent and in the child.
unsafe fn after_fork_outside(result: isize) {
    let mask = MASK.load(Ordering::Relaxed);
    // SAFETY: the tables' locks are the caller's; in the child it is the only thread.
    unsafe {
        if result == 0 {
            become_ordinary(true);
        } else {
            end_fork();
        }
        sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &raw const mask, 0, 8);
    }
}

/// In the parent: the next fork may begin.
unsafe fn end_fork() {
    // SAFETY: the caller has called `begin_fork`.
    unsafe { crate::memory::after_fork() };
    // Release: the parameters have been used. pairs: process.forker
    FORKER.store(core::ptr::null_mut(), Ordering::Release);
}

/// Prepares a raw `clone` of a kernel thread, which the stub makes: it starts on a stack of its own, in the same code.
///
/// # Safety
/// As [`before_raw`].
pub unsafe fn before_kernel_thread() {
    // SAFETY: our own record; the caller's.
    unsafe {
        (*worker()).child_thread.store(1, Ordering::Relaxed);
        before_raw(true, false);
    }
}

/// The new kernel thread: it has its creator's GS base, and leaves that before the creator goes on.
unsafe fn kernel_thread(w: *mut Worker) {
    // SAFETY: the creator's record, which is never unmapped; its worker waits for the word.
    unsafe {
        let mask = (*w).child_mask.load(Ordering::Relaxed);
        arch::set_worker_pointer((*w).child_base.load(Ordering::Relaxed));
        // Release: we have read the record. pairs: process.child_thread
        (*w).child_thread.store(2, Ordering::Release);
        sys!(l::__NR_futex, (*w).child_thread.as_ptr(), l::FUTEX_WAKE | l::FUTEX_PRIVATE_FLAG, 1, 0, 0, 0);
        sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &mask as *const _, 0, 8);
    }
}

/// After the raw call, in the parent and in the child; called by `entry::after_raw`.
///
/// # Safety
/// See there.
pub unsafe extern "C" fn after_raw(frame: &mut Frame) {
    let result = frame.rax as isize;
    let w = base::listed();
    // SAFETY: our own record, valid in parent and child.
    unsafe {
        if w.is_null() {
            // The program's value, or 0.
            let own = arch::worker_pointer();
            arch::set_worker_pointer(0);
            after_fork_outside(result);
            arch::set_worker_pointer(own);
            return;
        }
        if (*w).child_thread.load(Ordering::Relaxed) != 0 {
            if result == 0 {
                return kernel_thread(w);
            }
            // Acquire: the new thread has read what it needs of our record. pairs: process.child_thread
            while result > 0 && (*w).child_thread.load(Ordering::Acquire) == 1 {
                let op = l::FUTEX_WAIT | l::FUTEX_PRIVATE_FLAG;
                sys!(l::__NR_futex, (*w).child_thread.as_ptr(), op, 1, 0, 0, 0);
            }
            (*w).child_thread.store(0, Ordering::Relaxed);
        } else if result > 0 {
            note_made(result as u32);
        }
        // Relaxed: our own worker's mark, if it is ours. Its other ends are in `before_raw`. pairs: process.forker
        let forked = FORKER.load(Ordering::Relaxed) == w;
        if result == 0 {
            if forked {
                child();
            } else {
                // A child on our memory: no worker of ours; its calls reach the kernel (`dispatch::outside`).
                let mask = (*w).child_mask.load(Ordering::Relaxed);
                let creator = (*w).current;
                arch::set_worker_pointer((*w).child_base.load(Ordering::Relaxed));
                if mask & WAITED_FOR != 0 {
                    // It has its creator's alternate stack: the thread's, not the worker's.
                    let alt = (*creator).identity.alt_stack;
                    let alt = signal::context::Stack {
                        base: alt.base,
                        flags: if alt.size == 0 { 2 } else { alt.flags as i32 },
                        size: alt.size,
                    };
                    sys!(l::__NR_sigaltstack, &raw const alt, 0);
                }
                if mask & OWN_HANDLERS != 0 {
                    signal::actions::ignore_really(true);
                }
                sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &mask as *const _, 0, 8);
            }
            return;
        }
        if forked {
            end_fork();
        }
        let held = (*w).held.load(Ordering::Relaxed) != 0;
        if held && let Err((number, errno)) = sched::no_longer_held(w) {
            crate::credentials::inconsistent(number, errno);
        }
        let open = signal::masks::worker_mask(&*w);
        sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &open as *const _, 0, 8);
        if held {
            if result > 0 {
                end_fork_of(result as i32);
                crate::futex::clear_seats(result as i32);
            }
            sched::back_from_kernel(w);
        }
        // The frame's continuation is complete (it points past the call); handlers want the site's own.
        frame.continuation -= sites::DONE as u64;
        signal::leave_core(frame);
        frame.continuation += sites::DONE as u64;
    }
}

/// The child of a fork by a user thread: one kernel thread, which becomes an ordinary thread of an ordinary process.
unsafe fn child() {
    // SAFETY: the only thread of the child.
    unsafe {
        // The kernel gave it its worker's name.
        let name = (*current()).identity.name();
        let gs_base = (*current()).gs_base;
        sys!(l::__NR_prctl, linux_raw_sys::prctl::PR_SET_NAME, name.as_ptr());
        crate::scheduling::in_child(current());
        become_ordinary(false);
        let size = ALT_SIZE.load(Ordering::Relaxed);
        let alt = signal::context::Stack {
            base: ALT_BASE.load(Ordering::Relaxed),
            flags: if size == 0 { 2 } else { 0 },
            size,
        };
        sys!(l::__NR_sigaltstack, &alt as *const _, 0);
        sys!(l::__NR_set_robust_list, ROBUST.load(Ordering::Relaxed), 24);
        let mask = MASK.load(Ordering::Relaxed);
        arch::set_worker_pointer(gs_base);
        sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &mask as *const _, 0, 8);
    }
}

/// In the child of a fork: the runtime is as before the first thread. `outside`: by a kernel thread that is not ours, perhaps of
/// a process on our memory, which may have changed descriptors and handlers of its own.
unsafe fn become_ordinary(outside: bool) {
    // SAFETY: the only thread of the child, which holds what `begin_fork` locked.
    unsafe {
        crate::memory::after_fork();
        FORKER.store(core::ptr::null_mut(), Ordering::Relaxed);
        EXECUTING.store(false, Ordering::Relaxed);
        RT.reset_in_child();
        crate::futex::reset();
        crate::scheduling::reset();
        crate::credentials::reset();
        signal::pending::reset();
        crate::timer::reset();
        signal::actions::give_back(outside);
        signal::masks::keep_nothing();
        signal::kernel::reset();
        if outside {
            RT.descriptors.forget_kinds();
            crate::fd::waiting_changed();
        }
        crate::robust::reset();
        signal::kernel::set_process(sys!(l::__NR_getpid) as i32);
    }
}

/// A thread is in [`exec`]; others wait, as they do in the kernel.
static EXECUTING: AtomicBool = AtomicBool::new(false);

/// `execve` and `execveat`.
///
/// The new program inherits the caller's signal mask, what the caller blocks and is pending for it or for the process, and
/// the calling kernel thread with what the kernel has pending for that. So what is kept here is handed to the kernel
/// before; it keeps what comes meanwhile; and kicks are ignored: one that came late would end the new program.
///
/// # Safety
/// The current thread, inside the core, no wait open; the program's arguments.
pub unsafe fn exec(frame: &mut Frame, number: usize, args: [usize; 6]) -> isize {
    // SAFETY: the caller's. Nothing parks between `swap` and `store`.
    unsafe {
        loop {
            if (*worker()).attention.load(Ordering::Relaxed) != 0 {
                signal::kernel::empty_inbox(worker());
            }
            if (*current()).attention.load(Ordering::Relaxed) {
                interrupted(frame, true);
            }
            // Acquire: the last attempt has been undone. pairs: process.executing
            while EXECUTING.swap(true, Ordering::Acquire) {
                heddle_core::sched::yield_now();
            }
            let mask = signal::masks::keep_for_exec((*current()).identity.sig_mask.load(Ordering::Relaxed));
            signal::actions::ignore_really(true); // which drops what is pending in the kernel: nothing yet, or just now
            signal::pending::hand_over(current(), mask);
            signal::actions::ignore_kicks(true);
            let r = signal::calls::with_own_mask(current(), number, args);
            let signalled =
                (*worker()).attention.load(Ordering::Relaxed) != 0 || (*current()).attention.load(Ordering::Relaxed);
            signal::masks::exec_failed(current(), mask);
            // Release: all is undone. pairs: process.executing
            EXECUTING.store(false, Ordering::Release);
            // A signal that came before the kernel began: its handler first.
            if r != fail(e::EINTR) || !signalled {
                return r;
            }
        }
    }
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
            sys!(l::__NR_exit_group, status);
        }
    }
}

/// `wait4` and `waitid` (`id` > 0: that child): tries without blocking, then parks on the child's pidfd; other waits block
/// the worker, whose processor is handed on.
///
/// # Safety
/// The current thread; the program's arguments.
pub unsafe fn wait(frame: &mut Frame, number: u32, mut args: [usize; 6], id: i32, mut options: usize) -> isize {
    let no_hang = l::WNOHANG as usize;
    if id > 0 {
        // The thread that made it may have been on another worker, whose child it is for the kernel.
        options &= !(l::__WNOTHREAD as usize);
        args[if number == l::__NR_wait4 { 2 } else { 3 }] = options;
    }
    if options & no_hang != 0 {
        // SAFETY: the program's call.
        return unsafe { sys::syscall6(number as usize, args) };
    }
    // SAFETY: the program's call, made without blocking; the descriptor is ours.
    unsafe {
        if id > 0 {
            // A pidfd is readable when the child ends; stops and continuations must be waited for in the kernel. The stops
            // of a traced child count without having been asked for.
            let ends_only = match number {
                l::__NR_wait4 => options == 0,
                _ => options & (l::WSTOPPED | l::WCONTINUED | l::__WALL) as usize == 0,
            } && !TRACER.load(Ordering::Relaxed);
            // Not a child, or bad arguments: the kernel says so now. Asking with WNOWAIT takes nothing away.
            let ask = || {
                if number == l::__NR_wait4 {
                    let mut a = args;
                    a[2] |= no_hang;
                    return sys::syscall6(number as usize, a);
                }
                let mut info = [0u64; 16];
                let how = args[3] | no_hang | l::WNOWAIT as usize;
                match sys!(l::__NR_waitid, args[0], args[1], info.as_mut_ptr(), how, 0) {
                    0 if info[0] != 0 => 1,
                    r => r,
                }
            };
            let mut found = ask();
            let pidfd = if ends_only && found == 0 { sys!(l::__NR_pidfd_open, id, 0) } else { -1 };
            if let Ok(fd) = check(pidfd) {
                // A child that has itself traced tells nobody before its first stop: look now and then.
                let mut pause = FIRST_LOOK;
                let r = loop {
                    let r = wait_readable(frame, fd as i32, clock::now() + pause);
                    if r != Ok(false) {
                        break r;
                    }
                    found = ask();
                    if found != 0 {
                        break r;
                    }
                    pause = (pause * 2).min(LAST_LOOK);
                };
                RT.descriptors.forget(&RT.reactor, fd as i32);
                sys!(l::__NR_close, fd);
                if let Err(errno) = r {
                    return errno;
                }
            }
            if found < 0 || found > 0 && number == l::__NR_wait4 {
                signal::kernel::collect();
                return found;
            }
        }
        crate::dispatch::blocking_for_long(frame, number as usize, args, true)
    }
}

/// The process has traced another, which is stopped and goes on as this one wants it.
static TRACER: AtomicBool = AtomicBool::new(false);

/// When a thread that waits for a child looks first whether it has stopped to be traced, and the most between two looks, in
/// nanoseconds.
const FIRST_LOOK: u64 = 10_000_000;
const LAST_LOOK: u64 = 1_000_000_000;

/// `ptrace`: the kernel knows one kernel thread as the tracer, that which made the child or attached to it. Whichever of
/// ours that is makes the call. A thread that is found on it settles there: an errand takes longer than the tracee's time slice,
/// and each stop wants many requests.
///
/// # Safety
/// The current thread, inside the core; the program's arguments.
pub unsafe fn trace(args: [usize; 6]) -> isize {
    const TRACEME: u32 = 0;
    const ATTACH: u32 = 16;
    const DETACH: u32 = 17;
    const SEIZE: u32 = 0x4206;
    let number = l::__NR_ptrace as usize;
    let request = args[0] as u32;
    // SAFETY: the caller's. Only the tracer's call has an effect, so all may make it.
    unsafe {
        if request == TRACEME {
            return sys::syscall6(number, args);
        }
        TRACER.store(true, Ordering::Relaxed);
        let result = sys::syscall6(number, args);
        if result >= 0 && request != DETACH && !sched::is_settled() && sched::prepare_to_settle() {
            sched::settle();
        }
        if result != fail(e::ESRCH) || matches!(request, ATTACH | SEIZE) {
            return result;
        }
        let [a, b, c, d, ..] = args;
        RT.errands.somewhere([number, a, b, c, d, 0, 0], signal::kernel::kick)
    }
}

/// Parks until a descriptor of ours is readable (true) or the deadline has passed. Error: EINTR.
unsafe fn wait_readable(frame: &mut Frame, fd: i32, deadline: u64) -> Result<bool, isize> {
    let t = current();
    // SAFETY: the current thread, inside the core; the node is left before its frame ends.
    unsafe {
        loop {
            let seen = crate::fd::events(fd, IN);
            if crate::fd::is_ready(fd, l::POLLIN) {
                return Ok(true);
            }
            let Some(ticket) = begin(t) else {
                if interrupted(frame, true) == Next::Interrupted {
                    return Err(fail(e::EINTR));
                }
                continue;
            };
            let mut node = Node::new(t, ticket, IN);
            match RT.descriptors.wait(&RT.reactor, fd, &mut node, Some(seen)) {
                Wait::Linked => {
                    let reason = park(t, ticket, deadline, State::Child);
                    RT.descriptors.leave(&mut node);
                    if reason == Reason::Signal && interrupted(frame, true) == Next::Interrupted {
                        return Err(fail(e::EINTR));
                    }
                    if reason == Reason::Timeout {
                        return Ok(false);
                    }
                }
                Wait::Again => abandon(t, ticket),
                Wait::Cannot(_) => {
                    abandon(t, ticket);
                    return Ok(true);
                }
            }
        }
    }
}
