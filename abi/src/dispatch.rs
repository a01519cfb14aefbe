//! Which system call is whose.

use crate::entry::Frame;
use crate::sites::{DONE, RAW_PLAIN, RAW_POST};
use crate::thread::CloneArgs;
use crate::wait::{Clock, Next, e, ended_early, fail};
use crate::{
    credentials, fd, futex, io, kernel_locks, memory, poll, process, robust, scheduling, signal, start, task_files,
    thread, time, timer,
};
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use heddle_core::arch;
use heddle_core::sched::{self, RT, Worker, base, worker};
use heddle_core::stack::STACKS;
use heddle_core::sys::{self, linux as l};
use heddle_core::thread::Thread;

/// How a stub goes on.
enum Then {
    /// The call is done; this is its result.
    Result(isize),
    /// The stub makes the call itself.
    Plain,
    /// The stub makes the call itself and comes back with the result.
    Post,
}
use Then::{Plain, Post, Result};

/// Called by the entry with the program's registers; returns what is to be added to the continuation. `in_core`: the call
/// is the core's own, by way of a vDSO that asks the kernel for the time. `w`: the worker, or null.
///
/// # Safety
/// Called by `entry::enter` only.
pub unsafe extern "C" fn dispatch(frame: &mut Frame, extended: u64, in_core: u64, w: *mut Worker) -> usize {
    if in_core != 0 {
        return RAW_PLAIN;
    }
    // SAFETY: our own record; the frame is the program's call.
    unsafe {
        let mut w = w;
        if w.is_null() {
            if arch::worker_pointer() == 0 && BASE_IN_USE.load(Ordering::Relaxed) {
                w = base::arrive();
            }
            if w.is_null() {
                return with_own_base(frame);
            }
        }
        let t = (*w).current;
        (*t).extended = extended != 0;
        (*t).recover = core::ptr::from_mut(frame) as usize;
        finish(frame, t)
    }
}

/// The program uses GS base: then 0 there does not tell a kernel thread that is not ours.
static BASE_IN_USE: AtomicBool = AtomicBool::new(false);

/// Gives GS base back to the program; see [`base`]. To be called after the last look at the worker's record.
///
/// # Safety
/// `t` is the current thread, and goes on in the program.
#[inline(always)]
pub unsafe fn depart(t: *const Thread) {
    // SAFETY: the caller's.
    unsafe {
        if (*t).gs_base != 0 {
            if !BASE_IN_USE.load(Ordering::Relaxed) {
                note_base();
            }
            arch::set_worker_pointer((*t).gs_base);
        }
    }
}

#[cold]
fn note_base() {
    for entry in &PERHAPS_OURS {
        entry.store(1, Ordering::Relaxed);
    }
    BASE_IN_USE.store(true, Ordering::Relaxed);
}

/// The call of `frame` touched memory that is not there: its result is EFAULT. Reached from the kernel-level handler.
///
/// # Safety
/// The current thread, inside the core; nothing of the abandoned call is needed any more.
pub unsafe extern "C" fn faulted(frame: &mut Frame) -> usize {
    frame.rax = fail(e::EFAULT) as u64;
    // SAFETY: the caller's.
    unsafe { signal::leave_core(frame) };
    DONE
}

unsafe fn finish(frame: &mut Frame, t: *mut Thread) -> usize {
    // SAFETY: the current thread, inside the core.
    unsafe {
        match user(frame, t) {
            Result(r) => {
                frame.rax = r as u64;
                signal::leave_core(frame);
                DONE
            }
            Plain => {
                signal::leave_core(frame);
                RAW_PLAIN
            }
            Post => RAW_POST,
        }
    }
}

const ARCH_SET_GS: usize = 0x1001;
const ARCH_GET_GS: usize = 0x1004;

/// The calls that [`outside`] knows; all others are the kernel's as they are.
const OUTSIDE: [u32; 35] = [
    l::__NR_futex,
    l::__NR_clone,
    l::__NR_clone3,
    l::__NR_fork,
    l::__NR_futex_waitv,
    l::__NR_tgkill,
    l::__NR_rt_tgsigqueueinfo,
    l::__NR_tkill,
    l::__NR_kill,
    l::__NR_mmap,
    l::__NR_munmap,
    l::__NR_mprotect,
    l::__NR_pkey_mprotect,
    l::__NR_pkey_alloc,
    l::__NR_mremap,
    l::__NR_madvise,
    l::__NR_mlockall,
    l::__NR_close,
    l::__NR_close_range,
    l::__NR_dup2,
    l::__NR_dup3,
    l::__NR_shmat,
    l::__NR_fcntl,
    l::__NR_setsockopt,
    l::__NR_ioctl,
    l::__NR_execve,
    l::__NR_execveat,
    l::__NR_exit_group,
    l::__NR_setuid,
    l::__NR_setgid,
    l::__NR_setreuid,
    l::__NR_setregid,
    l::__NR_setresuid,
    l::__NR_setresgid,
    l::__NR_setgroups,
];

/// For the entry: what the low byte of a call's number tells, so that it need not come here for most calls of a kernel thread
/// that is not ours. 0: none of those that [`outside`] knows. All come here when the program uses GS base.
pub(crate) static PERHAPS_OURS: [AtomicU8; 256] = {
    let mut table = [const { AtomicU8::new(0) }; 256];
    let mut i = 0;
    while i < OUTSIDE.len() {
        table[OUTSIDE[i] as usize % 256] = AtomicU8::new(1);
        i += 1;
    }
    table
};

/// As [`outside`], which wants to see by GS base that this is no worker. What the program has there comes back.
unsafe fn with_own_base(frame: &mut Frame) -> usize {
    let own = worker() as usize;
    // SAFETY: the caller's; the value was there before.
    unsafe {
        if own == 0 {
            return outside(frame, 0);
        }
        arch::set_worker_pointer(0);
        let then = outside(frame, own);
        // If this is a worker now, it has left the core.
        arch::set_worker_pointer(own);
        then
    }
}

/// A kernel thread that is not ours, or a process in which no thread has been created yet. Only the calls of [`OUTSIDE`], and
/// some more, come here.
///
/// `own`: what the program has in GS base.
unsafe fn outside(frame: &mut Frame, own: usize) -> usize {
    let args = frame.arguments();
    // SAFETY: touches no memory.
    if RT.is_started() && unsafe { sys!(l::__NR_getpid) } as i32 != signal::kernel::process() {
        // SAFETY: the program's call.
        return unsafe { on_our_memory(frame) };
    }
    // SAFETY: the program's call.
    let result = unsafe {
        match frame.rax as u32 {
            l::__NR_clone | l::__NR_clone3 if !RT.is_started() => {
                match CloneArgs::of_call(frame.rax as u32, args) {
                    Some(a) if a.is_ordinary_thread() => match start::start() {
                        // From here on this is a user thread inside the core.
                        Ok(t) => {
                            (*t).gs_base = own;
                            return finish(frame, t);
                        }
                        Err(errno) => -(errno as isize),
                    },
                    _ => return RAW_PLAIN,
                }
            }
            l::__NR_clone | l::__NR_clone3 => {
                let Some(a) = CloneArgs::of_call(frame.rax as u32, args) else { return RAW_PLAIN };
                if a.flags & l::CLONE_VM as u64 == 0 {
                    process::before_fork_outside();
                    return RAW_POST;
                }
                // A kernel thread makes kernel threads. The stack may be one that glibc kept from a user thread.
                if a.is_ordinary_thread() {
                    STACKS.in_use(a.stack as usize, a.stack_size as usize);
                }
                return RAW_PLAIN;
            }
            l::__NR_fork if RT.is_started() => {
                process::before_fork_outside();
                return RAW_POST;
            }
            l::__NR_futex if futex::joins_kernel_thread(args) => return RAW_PLAIN,
            l::__NR_futex if RT.is_started() || futex::is_shared_pi(args) => futex::futex(None, args),
            l::__NR_futex_waitv if RT.is_started() => futex::waitv(None, args),
            l::__NR_tgkill if signal::remote::is_elsewhere(args[0] as i32, args[1] as i32) => {
                signal::remote::tgkill(args[0] as i32, args[1] as u32, args[2] as u32)
            }
            l::__NR_rt_tgsigqueueinfo if signal::remote::is_elsewhere(args[0] as i32, args[1] as i32) => {
                signal::remote::tgsigqueueinfo(args)
            }
            l::__NR_tkill if signal::remote::is_not_ours(args[0] as i32) => {
                signal::remote::tkill(args[0] as u32, args[1] as u32)
            }
            l::__NR_kill if signal::remote::is_not_ours(args[0] as i32) => {
                signal::remote::kill(args[0] as u32, args[1] as u32)
            }
            l::__NR_tgkill | l::__NR_tkill | l::__NR_rt_tgsigqueueinfo if RT.is_started() => {
                let sent = match frame.rax as u32 {
                    l::__NR_tgkill => signal::calls::tgkill(Some(args[0] as i32), args[1] as i32, args[2] as u32),
                    l::__NR_tkill => signal::calls::tgkill(None, args[0] as i32, args[1] as u32),
                    _ => signal::calls::tgsigqueueinfo(args),
                };
                match sent {
                    Some(r) => r,
                    None => return RAW_PLAIN,
                }
            }
            // By the id of a thread, which the kernel does not know.
            l::__NR_kill if RT.threads.find(args[0] as u32).is_some() => {
                sys!(l::__NR_kill, signal::kernel::process(), args[1])
            }
            l::__NR_mmap => memory::mmap(args),
            l::__NR_munmap => memory::munmap(args),
            l::__NR_mprotect | l::__NR_pkey_mprotect => memory::mprotect(frame.rax as usize, args),
            l::__NR_pkey_alloc => memory::allocate_key(args),
            l::__NR_mremap => memory::mremap(args),
            l::__NR_madvise => memory::madvise(args),
            l::__NR_mlockall => {
                memory::before_lock_all();
                return RAW_PLAIN;
            }
            l::__NR_close => fd::close(args[0] as i32),
            l::__NR_close_range => fd::close_range(args[0] as u32, args[1] as u32, args[2] as u32),
            l::__NR_dup2 | l::__NR_dup3 => {
                fd::forget(args[1] as i32);
                return RAW_PLAIN;
            }
            l::__NR_shmat => attach(args),
            l::__NR_fcntl | l::__NR_setsockopt | l::__NR_ioctl => {
                if !changes_waiting(frame.rax as u32, args) {
                    return RAW_PLAIN;
                }
                let r = sys::syscall6(frame.rax as usize, args);
                // After the call: what our threads remember meanwhile may be what was.
                waiting_changed(frame.rax as u32, args);
                r
            }
            l::__NR_execve | l::__NR_execveat if RT.is_started() => {
                signal::actions::ignore_really(true);
                let r = sys::syscall6(frame.rax as usize, args);
                signal::actions::ignore_really(false);
                r
            }
            l::__NR_exit_group => {
                crate::stats::print();
                return RAW_PLAIN;
            }
            l::__NR_setuid
            | l::__NR_setgid
            | l::__NR_setreuid
            | l::__NR_setregid
            | l::__NR_setresuid
            | l::__NR_setresgid
            | l::__NR_setgroups
                if RT.is_started() =>
            {
                credentials::end_round();
                return RAW_PLAIN;
            }
            _ => return RAW_PLAIN,
        }
    };
    frame.rax = result as u64;
    DONE
}

/// A child on our memory (vfork, posix_spawn, the leak checker's tracer): a process of its own. But words in memory that it
/// shares with our threads are theirs too: who waits on one and who wakes it must meet. Its own children that do not share it
/// are ordinary processes. Our descriptors it has for them, or shares.
unsafe fn on_our_memory(frame: &mut Frame) -> usize {
    let args = frame.arguments();
    // SAFETY: the program's call.
    let result = unsafe {
        match frame.rax as u32 {
            l::__NR_futex => futex::futex(None, args),
            l::__NR_fork => {
                process::before_fork_outside();
                return RAW_POST;
            }
            l::__NR_clone | l::__NR_clone3 => match CloneArgs::of_call(frame.rax as u32, args) {
                Some(a) if a.flags & l::CLONE_VM as u64 == 0 => {
                    process::before_fork_outside();
                    return RAW_POST;
                }
                _ => return RAW_PLAIN,
            },
            l::__NR_close if RT.reactor.owns(args[0] as i32) => fail(e::EBADF),
            l::__NR_dup2 | l::__NR_dup3 if RT.reactor.owns(args[1] as i32) && args[0] != args[1] => fail(e::EBADF),
            l::__NR_close_range => fd::close_others(args[0] as u32, args[1] as u32, args[2] as u32),
            _ => return RAW_PLAIN,
        }
    };
    frame.rax = result as u64;
    DONE
}

unsafe fn attach(args: [usize; 6]) -> isize {
    // SAFETY: the program's call.
    let r = unsafe { sys::syscall6(l::__NR_shmat as usize, args) };
    if r > 0 {
        memory::note_attached(r as usize);
    }
    r
}

/// A system call of a user thread.
unsafe fn user(frame: &mut Frame, t: *mut Thread) -> Then {
    let [a0, a1, a2, a3, a4, a5] = frame.arguments();
    // Made anew by words for each function that wants it. A copy would be made by larger pieces than what is copied was written
    // in, which a CPU has to wait for: 15 ns. A closure would be made for all calls, with the addresses of all six.
    macro_rules! args {
        () => {
            [a0, a1, a2, a3, a4, a5]
        };
    }
    let number = frame.rax as u32;
    if frame.rax > 0xffff_ffff {
        return Result(fail(e::ENOSYS));
    }
    // SAFETY: the current thread, inside the core; the arguments are the program's.
    unsafe {
        Result(match number {
            l::__NR_futex => futex::futex(Some(frame), args!()),
            l::__NR_futex_waitv => futex::waitv(Some(frame), args!()),
            l::__NR_read => taking_turns(io::simple(frame, number as usize, args!(), false)),
            l::__NR_write => io::simple(frame, number as usize, args!(), true),
            l::__NR_readv => io::scattered(frame, number as usize, args!(), false),
            l::__NR_writev => io::scattered(frame, number as usize, args!(), true),
            l::__NR_recvfrom | l::__NR_recvmsg => taking_turns(io::receive(frame, number, args!())),
            l::__NR_sendto | l::__NR_sendmsg => io::send(frame, number, args!()),
            l::__NR_recvmmsg | l::__NR_sendmmsg => io::many(frame, number, args!()),
            l::__NR_accept | l::__NR_accept4 => io::accept(frame, number as usize, args!()),
            l::__NR_connect => io::connect(frame, args!()),
            l::__NR_poll => poll::poll(frame, args!()),
            l::__NR_ppoll => poll::ppoll(frame, args!()),
            l::__NR_select => poll::select(frame, args!()),
            l::__NR_pselect6 => poll::pselect(frame, args!()),
            l::__NR_epoll_wait | l::__NR_epoll_pwait | l::__NR_epoll_pwait2 => poll::epoll_wait(frame, number, args!()),

            l::__NR_clone | l::__NR_clone3 => {
                match CloneArgs::of_call(number, args!()) {
                    // What the kernel keeps for the caller's kernel thread alone, a thread that it makes inherits.
                    Some(a) if a.is_ordinary_thread() && ((*t).apart || sched::is_settled()) => {
                        STACKS.in_use(a.stack as usize, a.stack_size as usize);
                        process::before_kernel_thread();
                        return Post;
                    }
                    Some(a) if a.is_ordinary_thread() => thread::create(frame, &a),
                    // A thread that shares less than ours do cannot be one of ours.
                    Some(a) if a.is_thread() => fail(e::EINVAL),
                    Some(a) => {
                        let shares = |flag: u32| a.flags & u64::from(flag) != 0;
                        if shares(l::CLONE_VFORK) {
                            signal::masks::pass_receiving(worker());
                        }
                        process::before_raw(shares(l::CLONE_VM), !shares(l::CLONE_SIGHAND));
                        return Post;
                    }
                    None => return Plain, // an error
                }
            }
            l::__NR_fork => {
                process::before_raw(false, true);
                return Post;
            }
            l::__NR_vfork => {
                signal::masks::pass_receiving(worker());
                process::before_raw(true, true);
                return Post;
            }
            l::__NR_execve | l::__NR_execveat => process::exec(frame, number as usize, args!()),
            l::__NR_exit => thread::exit(a0 as i32),
            l::__NR_exit_group => {
                robust::process_ends();
                process::end(a0 as i32)
            }
            l::__NR_wait4 => process::wait(frame, number, args!(), a0 as i32, a2),
            l::__NR_ptrace => process::trace(args!()),
            l::__NR_waitid => {
                let id = if a0 == l::P_PID as usize { a1 as i32 } else { 0 };
                process::wait(frame, number, args!(), id, a3)
            }

            l::__NR_gettid => (*t).identity.tid.load(Ordering::Relaxed) as isize,
            l::__NR_set_tid_address => {
                (*t).identity.clear_tid = a0;
                (*t).identity.tid.load(Ordering::Relaxed) as isize
            }
            l::__NR_set_robust_list if a1 == 24 => {
                (*t).identity.robust_head = a0;
                0
            }
            l::__NR_get_robust_list if a0 == 0 || a0 as u32 == (*t).identity.tid.load(Ordering::Relaxed) => {
                *(a1 as *mut usize) = (*t).identity.robust_head;
                *(a2 as *mut usize) = 24;
                0
            }
            // Registered nowhere: the area's cpu_id keeps its initial value, and libc asks the vDSO instead.
            l::__NR_rseq => 0,
            l::__NR_sched_yield => {
                sched::yield_now();
                0
            }
            l::__NR_nanosleep => time::sleep(frame, Clock::Monotonic, false, a0, a1),
            l::__NR_clock_nanosleep if let Some(clock) = Clock::of(a0 as u32) => {
                time::sleep(frame, clock, a1 as u32 & l::TIMER_ABSTIME != 0, a2, a3)
            }

            l::__NR_rt_sigaction => signal::calls::sigaction(args!()),
            l::__NR_rt_sigprocmask => signal::calls::sigprocmask(t, args!()),
            l::__NR_rt_sigpending => signal::calls::sigpending(t, args!()),
            l::__NR_rt_sigtimedwait => signal::calls::sigtimedwait(t, args!()),
            l::__NR_rt_sigsuspend if a1 == 8 => {
                let mask = *(a0 as *const u64);
                signal::calls::suspend(t, frame, Some(mask))
            }
            l::__NR_signalfd | l::__NR_signalfd4 => {
                let r = sys::syscall6(number as usize, args!());
                if r >= 0 {
                    // What the caller blocks stays with the kernel, where the descriptor reads it.
                    signal::masks::keep(*(a1 as *const u64) & (*t).identity.sig_mask.load(Ordering::Relaxed));
                }
                r
            }
            l::__NR_pause => signal::calls::suspend(t, frame, None),
            l::__NR_sigaltstack => signal::calls::sigaltstack(t, frame, args!()),
            l::__NR_rt_sigreturn => return Plain,
            l::__NR_tgkill if signal::remote::is_elsewhere(a0 as i32, a1 as i32) => {
                signal::remote::tgkill(a0 as i32, a1 as u32, a2 as u32)
            }
            l::__NR_tgkill => match signal::calls::tgkill(Some(a0 as i32), a1 as i32, a2 as u32) {
                Some(r) => r,
                None => return Plain,
            },
            l::__NR_tkill if signal::remote::is_not_ours(a0 as i32) => signal::remote::tkill(a0 as u32, a1 as u32),
            l::__NR_tkill => match signal::calls::tgkill(None, a0 as i32, a1 as u32) {
                Some(r) => r,
                None => return Plain,
            },
            l::__NR_rt_tgsigqueueinfo if signal::remote::is_elsewhere(a0 as i32, a1 as i32) => {
                signal::remote::tgsigqueueinfo(args!())
            }
            l::__NR_rt_tgsigqueueinfo => match signal::calls::tgsigqueueinfo(args!()) {
                Some(r) => r,
                None => return Plain,
            },
            l::__NR_kill if signal::remote::is_not_ours(a0 as i32) => signal::remote::kill(a0 as u32, a1 as u32),
            l::__NR_kill => match signal::calls::kill(a0 as i32, a1 as u32) {
                Some(r) => r,
                None => return Plain,
            },
            l::__NR_pidfd_send_signal => match signal::calls::pidfd_send_signal(args!()) {
                Some(r) => r,
                None => return Plain,
            },
            l::__NR_rt_sigqueueinfo => match signal::calls::sigqueueinfo(args!()) {
                Some(r) => r,
                None => return Plain,
            },

            l::__NR_mmap => memory::mmap(args!()),
            l::__NR_munmap => memory::munmap(args!()),
            l::__NR_mprotect | l::__NR_pkey_mprotect => memory::mprotect(number as usize, args!()),
            l::__NR_pkey_alloc => memory::allocate_key(args!()),
            l::__NR_mremap => memory::mremap(args!()),
            l::__NR_madvise => memory::madvise(args!()),
            l::__NR_mlockall => sched::blocking(|| memory::lock_all(args!())),
            l::__NR_shmat => attach(args!()),

            l::__NR_open | l::__NR_openat => {
                let at = usize::from(number == l::__NR_openat);
                match task_files::open(args!()[at], args!()[at + 1]) {
                    Some(r) => r,
                    None => blocking(frame, number as usize, args!(), restarts(number)),
                }
            }
            l::__NR_stat | l::__NR_lstat | l::__NR_access | l::__NR_readlink => match task_files::stand_in(a0) {
                Some(path) => sys::syscall6(number as usize, path.in_place_of(args!(), 0)),
                None => blocking(frame, number as usize, args!(), restarts(number)),
            },
            l::__NR_newfstatat | l::__NR_statx | l::__NR_faccessat | l::__NR_faccessat2 | l::__NR_readlinkat => {
                match task_files::stand_in(a1) {
                    Some(path) => sys::syscall6(number as usize, path.in_place_of(args!(), 1)),
                    None => blocking(frame, number as usize, args!(), restarts(number)),
                }
            }
            l::__NR_getdents64 if fd::is_known_as(a0 as i32, fd::Kind::Threads) => task_files::list(args!()),
            l::__NR_close => fd::close(a0 as i32),
            l::__NR_close_range => fd::close_range(a0 as u32, a1 as u32, a2 as u32),
            l::__NR_dup2 | l::__NR_dup3 => {
                if a0 != a1 {
                    if RT.reactor.owns(a1 as i32) {
                        return Result(fail(e::EBADF));
                    }
                    fd::forget(a1 as i32);
                }
                sys::syscall6(number as usize, args!())
            }
            l::__NR_timer_create => timer::create(args!()),
            l::__NR_timer_delete => timer::delete(args!()),
            l::__NR_timer_settime if let Some(t) = timer::on_thread(a0) => timer::set(t, args!()),
            l::__NR_timer_gettime if let Some(t) = timer::on_thread(a0) => timer::get(t, args!()),
            l::__NR_timer_getoverrun => timer::overrun(args!()),
            l::__NR_clock_gettime | l::__NR_clock_getres | l::__NR_clock_settime | l::__NR_clock_nanosleep
                if let Some(of) = time::thread_clock(t, a0) =>
            {
                time::cpu_clock(frame, number, of, args!())
            }
            l::__NR_getrusage if a0 as i32 == 1 => time::thread_usage(t, args!()),
            l::__NR_sched_getaffinity
            | l::__NR_sched_setaffinity
            | l::__NR_sched_getscheduler
            | l::__NR_sched_setscheduler
            | l::__NR_sched_getparam
            | l::__NR_sched_setparam
            | l::__NR_sched_rr_get_interval
            | l::__NR_sched_setattr
            | l::__NR_sched_getattr
            | l::__NR_getpriority
            | l::__NR_setpriority
            | l::__NR_ioprio_get
            | l::__NR_ioprio_set => scheduling::call(number, args!()),
            l::__NR_flock
            | l::__NR_msgrcv
            | l::__NR_msgsnd
            | l::__NR_semop
            | l::__NR_semtimedop
            | l::__NR_mq_timedsend
            | l::__NR_mq_timedreceive => kernel_locks::call(frame, number, args!(), restarts(number)),
            l::__NR_fcntl if matches!(a1 as u32, l::F_SETLKW | l::F_OFD_SETLKW) => {
                kernel_locks::call(frame, number, args!(), true)
            }
            l::__NR_fcntl | l::__NR_setsockopt => {
                let r = sys::syscall6(number as usize, args!());
                if changes_waiting(number, args!()) {
                    waiting_changed(number, args!());
                }
                r
            }
            l::__NR_ioctl => {
                let r = on_terminal(frame, number as usize, args!());
                if changes_waiting(number, args!()) {
                    waiting_changed(number, args!());
                }
                r
            }
            l::__NR_arch_prctl if a0 == l::ARCH_SET_FS as usize => {
                (*t).thread_pointer = a1;
                arch::set_thread_pointer(a1);
                0
            }
            l::__NR_arch_prctl if a0 == ARCH_SET_GS => {
                if a1 >> 47 != 0 {
                    return Result(fail(e::EPERM));
                }
                (*t).gs_base = a1;
                0
            }
            l::__NR_arch_prctl if a0 == ARCH_GET_GS => {
                *(a1 as *mut usize) = (*t).gs_base;
                0
            }
            l::__NR_prctl => thread::prctl(t, args!()),
            l::__NR_setuid
            | l::__NR_setgid
            | l::__NR_setreuid
            | l::__NR_setregid
            | l::__NR_setresuid
            | l::__NR_setresgid => credentials::set_ids(t, credentials::is_raw(t, frame), number, args!()),
            l::__NR_setfsuid | l::__NR_setfsgid => credentials::set_file_ids(t, number, args!()),
            l::__NR_setgroups => credentials::set_groups(t, credentials::is_raw(t, frame), args!()),
            l::__NR_capget | l::__NR_capset => credentials::capabilities(t, number, args!()),
            l::__NR_seccomp => credentials::seccomp(args!()),
            l::__NR_personality | l::__NR_landlock_restrict_self => credentials::alike(number, args!()),
            l::__NR_unshare | l::__NR_setns => credentials::separate(number, args!()),
            _ if is_quick(number) => sys::syscall6(number as usize, args!()),
            _ => blocking(frame, number as usize, args!(), restarts(number)),
        })
    }
}

/// After a call that receives something.
unsafe fn taking_turns(result: isize) -> isize {
    // SAFETY: the current thread, inside the core, between two calls.
    unsafe { sched::take_turns() };
    result
}

/// Whether the call changes whether, or how long, calls on a descriptor wait.
fn changes_waiting(number: u32, args: [usize; 6]) -> bool {
    match (number, args[1] as u32) {
        (l::__NR_fcntl, l::F_SETFL) | (l::__NR_ioctl, linux_raw_sys::ioctl::FIONBIO) => true,
        // SO_RCVTIMEO, SO_SNDTIMEO, old and new
        (l::__NR_setsockopt, linux_raw_sys::net::SOL_SOCKET) => matches!(args[2], 20 | 21 | 66 | 67),
        // The records of an upper layer (TLS) end reads early.
        (l::__NR_setsockopt, fd::IPPROTO_TCP) => args[2] == linux_raw_sys::net::TCP_ULP as usize,
        _ => false,
    }
}

/// After such a call.
fn waiting_changed(number: u32, args: [usize; 6]) {
    fd::waiting_changed();
    if (number, args[1] as u32) == (l::__NR_setsockopt, fd::IPPROTO_TCP) {
        fd::socket_changed(args[0] as i32);
    }
}

/// Calls that never wait for anything but the CPU and locks in the kernel.
fn is_quick(number: u32) -> bool {
    matches!(
        number,
        l::__NR_getpid
            | l::__NR_getuid
            | l::__NR_geteuid
            | l::__NR_getgid
            | l::__NR_getegid
            | l::__NR_getppid
            | l::__NR_clock_gettime
            | l::__NR_gettimeofday
            | l::__NR_time
            | l::__NR_getcpu
            | l::__NR_brk
            | l::__NR_epoll_ctl
            | l::__NR_socket
            | l::__NR_getsockopt
            | l::__NR_getsockname
            | l::__NR_getpeername
            | l::__NR_shutdown
            | l::__NR_bind
            | l::__NR_listen
            | l::__NR_lseek
            | l::__NR_fstat
            | l::__NR_pipe2
            | l::__NR_eventfd2
            | l::__NR_sched_getaffinity
            | l::__NR_getrandom
            | l::__NR_timerfd_settime
    )
}

/// Whether the kernel restarts this call after a handler with SA_RESTART.
fn restarts(number: u32) -> bool {
    !matches!(
        number,
        l::__NR_clock_nanosleep
            | l::__NR_semop
            | l::__NR_semtimedop
            | l::__NR_msgrcv
            | l::__NR_msgsnd
            | l::__NR_io_getevents
            | l::__NR_io_uring_enter
            | l::__NR_select
            | l::__NR_pselect6
    )
}

/// Whether the kernel lets signals end this call with EINTR. Programs do not expect that of others.
fn is_interruptible(number: u32) -> bool {
    matches!(
        number,
        l::__NR_open
            | l::__NR_openat
            | l::__NR_openat2
            | l::__NR_open_by_handle_at
            | l::__NR_creat
            | l::__NR_close
            | l::__NR_read
            | l::__NR_readv
            | l::__NR_pread64
            | l::__NR_preadv
            | l::__NR_preadv2
            | l::__NR_write
            | l::__NR_writev
            | l::__NR_pwrite64
            | l::__NR_pwritev
            | l::__NR_pwritev2
            | l::__NR_recvfrom
            | l::__NR_recvmsg
            | l::__NR_recvmmsg
            | l::__NR_sendto
            | l::__NR_sendmsg
            | l::__NR_sendmmsg
            | l::__NR_accept
            | l::__NR_accept4
            | l::__NR_connect
            | l::__NR_splice
            | l::__NR_tee
            | l::__NR_vmsplice
            | l::__NR_sendfile
            | l::__NR_copy_file_range
            | l::__NR_fallocate
            | l::__NR_truncate
            | l::__NR_ftruncate
            | l::__NR_ioctl
            | l::__NR_fcntl
            | l::__NR_flock
            | l::__NR_msgrcv
            | l::__NR_msgsnd
            | l::__NR_semop
            | l::__NR_semtimedop
            | l::__NR_mq_timedsend
            | l::__NR_mq_timedreceive
            | l::__NR_poll
            | l::__NR_ppoll
            | l::__NR_select
            | l::__NR_pselect6
            | l::__NR_epoll_wait
            | l::__NR_epoll_pwait
            | l::__NR_epoll_pwait2
            | l::__NR_io_getevents
            | l::__NR_io_pgetevents
            | l::__NR_io_uring_enter
            | l::__NR_wait4
            | l::__NR_waitid
            | l::__NR_nanosleep
            | l::__NR_clock_nanosleep
            | l::__NR_rt_sigtimedwait
            | l::__NR_rt_sigsuspend
            | l::__NR_pause
            | l::__NR_futex
            | l::__NR_futex_waitv
            | l::__NR_getrandom
            | l::__NR_request_key
            | l::__NR_keyctl
            | l::__NR_mount
            | l::__NR_umount2
            | l::__NR_bpf
    )
}

/// A call that the kernel may block in: the worker's processor is handed on if it does for long.
///
/// # Safety
/// The current thread, inside the core; the program's call.
pub unsafe fn blocking(frame: &mut Frame, number: usize, args: [usize; 6], restartable: bool) -> isize {
    // SAFETY: the caller's.
    unsafe {
        until_done(frame, restartable, false, &|| {
            let t = sched::current();
            sched::blocking(|| {
                if is_interruptible(number as u32) {
                    signal::kernel::interruptible(t, number, &args)
                } else {
                    sys::syscall6(number, args)
                }
            })
        })
    }
}

/// As [`blocking`], for a call that may be about the terminal of a process in the background; restartable.
unsafe fn on_terminal(frame: &mut Frame, number: usize, args: [usize; 6]) -> isize {
    // SAFETY: the caller's.
    unsafe {
        until_done(frame, true, false, &|| {
            let t = sched::current();
            sched::blocking(|| signal::masks::on_terminal(t, || signal::kernel::interruptible(t, number, &args)))
        })
    }
}

/// A call that will probably block for long, until another process does something: the worker's processor is handed on at
/// once if somebody needs it.
///
/// # Safety
/// As [`blocking`].
pub unsafe fn blocking_for_long(frame: &mut Frame, number: usize, args: [usize; 6], restartable: bool) -> isize {
    // SAFETY: the caller's.
    unsafe {
        let r = until_done(frame, restartable, true, &|| {
            let t = sched::current();
            sched::blocking_for_long(|| signal::kernel::interruptible(t, number, &args))
        });
        signal::kernel::collect();
        r
    }
}

/// Makes the call, and makes it again when a signal that was not for this thread interrupted it, or one came before it was
/// made for the first time.
///
/// `waited`: it has been seen already that there is something to wait for. Then every signal comes while it waits.
unsafe fn until_done(frame: &mut Frame, restartable: bool, mut waited: bool, call: &dyn Fn() -> isize) -> isize {
    loop {
        let r = call();
        if r != fail(e::EINTR) && r != signal::kernel::NOT_MADE {
            return r;
        }
        waited |= r == fail(e::EINTR);
        // SAFETY: the current thread, inside the core, with no wait open.
        if unsafe { ended_early(frame, restartable) } == Next::Interrupted && waited {
            return fail(e::EINTR);
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn the_calls_that_come_here_are_those_that_are_known_here() {
        // What is not listed would never be asked about, and nothing else would tell.
        let source = include_str!("dispatch.rs");
        let named = |from: &str, to: &str| {
            let text = source.split(from).nth(1).unwrap().split(to).next().unwrap();
            let words = text.split("l::__NR_").skip(1);
            let mut names: Vec<_> = words.map(|w| w.split(|c: char| !c.is_alphanumeric() && c != '_').next()).collect();
            names.sort_unstable();
            names.dedup();
            names
        };
        let mut known = named("\nunsafe fn outside", "\n}\n");
        known.retain(|&name| name != Some("getpid"));
        assert_eq!(named("\nconst OUTSIDE", "\n];"), known);
        assert!(
            known.len() > 30 && OUTSIDE.iter().all(|&n| PERHAPS_OURS[n as usize % 256].load(Ordering::Relaxed) == 1)
        );
        assert!(
            [l::__NR_read, l::__NR_write, l::__NR_openat]
                .iter()
                .all(|&n| PERHAPS_OURS[n as usize % 256].load(Ordering::Relaxed) == 0)
        );
    }
}
