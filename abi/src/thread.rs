//! Creating and ending threads.

use crate::direct;
use crate::entry::{Frame, resume};
use crate::futex;
use crate::robust;
use crate::signal;
use crate::sites;
use crate::wait::{e, fail};
use crate::words;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use heddle_core::arch::fresh_context;
use heddle_core::sched::{self, RT, current, worker};
use heddle_core::stack::STACKS;
use heddle_core::sys::linux as l;
use heddle_core::thread::Thread;

/// The kernel's `struct clone_args`, as far as threads need it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct CloneArgs {
    pub flags: u64,
    pub pidfd: u64,
    pub child_tid: u64,
    pub parent_tid: u64,
    pub exit_signal: u64,
    pub stack: u64,
    pub stack_size: u64,
    pub tls: u64,
}

impl CloneArgs {
    /// From the arguments of `clone(2)`: there `stack` is the top.
    fn of_clone(args: [usize; 6]) -> Self {
        let [flags, stack, parent_tid, child_tid, tls, _] = args;
        Self {
            flags: flags as u64 & !0xff,
            exit_signal: flags as u64 & 0xff,
            stack: stack as u64,
            stack_size: 0,
            parent_tid: parent_tid as u64,
            child_tid: child_tid as u64,
            tls: tls as u64,
            pidfd: 0,
        }
    }

    /// From those of `clone` or `clone3`, whichever `number` is. `None`: the kernel should judge them.
    ///
    /// # Safety
    /// The program's arguments.
    pub unsafe fn of_call(number: u32, args: [usize; 6]) -> Option<Self> {
        match number {
            l::__NR_clone => Some(Self::of_clone(args)),
            // SAFETY: the caller's.
            _ => unsafe { Self::of_clone3(args) },
        }
    }

    /// From the arguments of `clone3(2)`. `None`: the kernel should judge them.
    ///
    /// # Safety
    /// The program's arguments.
    unsafe fn of_clone3(args: [usize; 6]) -> Option<Self> {
        if args[0] == 0 || args[1] < 64 || args[1] > 4096 {
            return None;
        }
        // SAFETY: at least 64 bytes at the program's pointer.
        Some(unsafe { (args[0] as *const CloneArgs).read_unaligned() })
    }

    /// Whether this asks for a thread.
    pub fn is_thread(&self) -> bool {
        self.flags & l::CLONE_THREAD as u64 != 0
    }

    /// Whether it is a thread that user threads can stand for: shares all that they share, has a stack and a thread
    /// pointer of its own.
    pub fn is_ordinary_thread(&self) -> bool {
        const SHARED: u64 =
            (l::CLONE_VM | l::CLONE_FS | l::CLONE_FILES | l::CLONE_SIGHAND | l::CLONE_THREAD | l::CLONE_SETTLS) as u64;
        const ALLOWED: u64 = SHARED
            | (l::CLONE_SYSVSEM
                | l::CLONE_PARENT_SETTID
                | l::CLONE_CHILD_SETTID
                | l::CLONE_CHILD_CLEARTID
                | l::CLONE_DETACHED) as u64;
        self.flags & SHARED == SHARED && self.flags & !ALLOWED == 0 && self.stack != 0
    }
}

/// `clone`/`clone3` of a thread.
///
/// # Safety
/// The current thread, inside the core; `frame` is its system call.
pub unsafe fn create(frame: &Frame, args: &CloneArgs) -> isize {
    let parent = current();
    let top = (args.stack + args.stack_size) as usize;
    let own = (top - crate::entry::RED_ZONE - size_of::<Frame>()) as *mut Frame;
    // SAFETY: the stack is the new thread's, given by the program. If it is not there the call ends here.
    unsafe {
        own.write_unaligned(*frame);
        (*own).rax = 0;
        (*own).continuation += sites::DONE as u64;
    }
    let Some(t) = RT.threads.allocate() else { return fail(e::EAGAIN) };
    // SAFETY: a fresh block, not yet known to anybody.
    unsafe {
        if crate::scheduling::inherit(parent, t).is_err() {
            RT.threads.release(t);
            return fail(e::EAGAIN);
        }
    }
    // SAFETY: a fresh block; the stack is the new thread's, given by the program.
    unsafe {
        let id = &mut (*t).identity;
        let tid = id.tid.load(Ordering::Relaxed);
        id.sig_mask.store((*parent).identity.sig_mask.load(Ordering::Relaxed), Ordering::Relaxed);
        id.inherit_name(&(*parent).identity);
        RT.inherit_rights(t);
        (*t).gs_base = (*parent).gs_base;
        if args.stack_size != 0 {
            id.stack_base = args.stack as usize;
            id.stack_size = args.stack_size as usize;
            (*t).stack = STACKS.in_use(id.stack_base, id.stack_size);
        }
        if args.flags & l::CLONE_CHILD_CLEARTID as u64 != 0 {
            id.clear_tid = args.child_tid as usize;
        }
        (*t).thread_pointer = args.tls as usize;
        fresh_context(&mut (*t).context, own.cast(), start, own.cast());
        if args.flags & l::CLONE_PARENT_SETTID as u64 != 0 {
            // As in the kernel it is no error if it cannot be written, here and below.
            let _ = words::store(args.parent_tid as usize, tid);
        }
        if args.flags & l::CLONE_CHILD_SETTID as u64 != 0 {
            let _ = words::store(args.child_tid as usize, tid);
        }
        if signal::deliverable(t) {
            (*t).attention.store(true, Ordering::Relaxed);
        }
        if let Some(p) = (*worker()).processor.as_ref() {
            p.counters.created.add(1);
        }
        crate::kept::ready(parent, t);
        tid as isize
    }
}

/// A new thread's first steps, on its own stack.
unsafe extern "C" fn start(frame: *mut u8) -> ! {
    let frame: *mut Frame = frame.cast();
    // SAFETY: the frame that `create` put there.
    unsafe {
        sched::finish_switch();
        // The continuation is complete already, so a handler that runs now sees the address after the system call.
        let continuation = (*frame).continuation;
        (*frame).continuation -= sites::DONE as u64;
        signal::leave_core(&mut *frame);
        (*frame).continuation = continuation;
        resume(frame)
    }
}

/// `exit` of a thread.
///
/// # Safety
/// The current thread, inside the core.
pub unsafe fn exit(status: i32) -> ! {
    let t = current();
    // SAFETY: the current thread's own fields.
    unsafe {
        robust::thread_ends(t);
        signal::pending::thread_ends(t);
        let main = (*t).identity.tid.load(Ordering::Relaxed) == signal::kernel::process() as u32;
        if main || LAST_COUNTS.load(Ordering::Relaxed) {
            STATUS.store(status as u32, Ordering::Relaxed);
        }
        sched::exit_current(last_act, t.cast())
    }
}

/// The process's, if all threads end by themselves.
static STATUS: AtomicU32 = AtomicU32::new(0);
/// The status of the thread that ends last is the process's (since Linux 6.0); otherwise the main thread's is.
static LAST_COUNTS: AtomicBool = AtomicBool::new(true);

/// Asks which kernel this is.
pub fn take_over() {
    let mut name = [0u8; 6 * 65];
    // SAFETY: writes a `struct utsname`, six strings of 65 bytes, the third of which is the release.
    unsafe { heddle_core::sys!(l::__NR_uname, name.as_mut_ptr()) };
    let release = &name[2 * 65..3 * 65];
    LAST_COUNTS.store(release[1] != b'.' || release[0] >= b'6', Ordering::Relaxed);
}

/// Off the thread's stack: whoever joins it may free that at once.
unsafe fn last_act(t: *mut u8) {
    let t: *mut Thread = t.cast();
    // SAFETY: the thread has left its stack; its block is still ours.
    unsafe {
        let clear_tid = (*t).identity.clear_tid;
        if let Some(stack) = (*t).stack {
            STACKS.left(stack, (*t).given_up);
        }
        crate::scheduling::forget(t);
        RT.threads.release(t);
        if clear_tid != 0 {
            futex::clear_and_wake(clear_tid);
        }
        if RT.threads.live() == 0 {
            crate::process::end(STATUS.load(Ordering::Relaxed) as i32);
        }
    }
}

/// The threads that the caller creates from now on are to be kernel threads, or not. It is what the library crate's kernel
/// mode is made of. Nothing on a kernel thread.
///
/// # Safety
/// A thread's own call.
pub unsafe fn make_apart(apart: bool) {
    // SAFETY: the caller's; a thread's own field.
    unsafe {
        if let Some(t) = sched::calling().as_mut() {
            t.apart = apart;
        }
    }
}

/// The threads that the caller made runnable are to run elsewhere, since it goes on computing itself. The library crate's
/// fork-join calls helpers so. Nothing on a kernel thread.
///
/// # Safety
/// A thread's own call.
pub unsafe fn give_away() {
    // SAFETY: the caller's.
    unsafe {
        if let Some(t) = direct::enter() {
            sched::give_away();
            direct::leave(t);
        }
    }
}

/// `prctl`: a thread's name and CLEARTID address are its own; the rest is the kernel's.
///
/// # Safety
/// The current thread; the program's arguments.
pub unsafe fn prctl(t: *mut Thread, args: [usize; 6]) -> isize {
    // SAFETY: the program's pointers.
    unsafe {
        match args[0] as u32 {
            linux_raw_sys::prctl::PR_SET_NAME => {
                let mut name = [0u8; 16];
                for (i, b) in name.iter_mut().take(15).enumerate() {
                    *b = *(args[1] as *const u8).add(i);
                    if *b == 0 {
                        break;
                    }
                }
                crate::task_files::set_name(t, name);
                0
            }
            linux_raw_sys::prctl::PR_GET_NAME => {
                *(args[1] as *mut [u8; 16]) = (*t).identity.name();
                0
            }
            // The kernel's answer is the worker's: who set that as its own would clear another thread's word at its end.
            linux_raw_sys::prctl::PR_GET_TID_ADDRESS => {
                *(args[1] as *mut usize) = (*t).identity.clear_tid;
                0
            }
            linux_raw_sys::prctl::PR_SET_TIMERSLACK | linux_raw_sys::prctl::PR_GET_TIMERSLACK => {
                crate::scheduling::timer_slack(t, args)
            }
            _ => crate::credentials::prctl(args)
                .unwrap_or_else(|| heddle_core::sys::syscall6(l::__NR_prctl as usize, args)),
        }
    }
}
