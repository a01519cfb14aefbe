//! How workers are made: their records and kernel threads.
//!
//! # Safety
//! A record is its maker's until it is listed and its kernel thread runs; from then on see [`worker`](super).

use super::{SIGNAL_STACK, Worker, sched_loop_entry};
use crate::arch::{self, fresh_context};
use crate::mem;
use crate::sched::{Processor, RT};
use crate::sys::{check, linux as l};
use crate::thread::Thread;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// Bytes of a scheduler stack.
const STACK: usize = 64 * 1024;

/// A record. One mapping: record, signal stack, scheduler stack. Nothing guards them: the core's depth is bounded.
fn new_record() -> Result<*mut Worker, i32> {
    mem::map(4096 + SIGNAL_STACK + STACK).map(|base| base.cast())
}

/// Fills a record in.
///
/// # Safety
/// A record that nobody uses and that has never been used.
unsafe fn fill_in(w: *mut Worker, p: Option<&Processor>) {
    let size = 4096 + SIGNAL_STACK + STACK;
    let base: *mut u8 = w.cast();
    // SAFETY: the caller's; zero is valid for all fields but those written here.
    unsafe {
        (*w).this = w;
        (*w).mark = (w as usize).wrapping_add(super::base::MARK);
        (*w).in_core = AtomicU8::new(1);
        (*w).processor = p.map_or(core::ptr::null(), core::ptr::from_ref);
        (*w).signal_stack = base as usize + 4096;
        (*w).cpus = AtomicU32::new(Worker::ANY_CPUS);
        fresh_context(&mut (*w).scheduler, base.add(size), sched_loop_entry, w.cast());
        (*w).scheduler.on_cpu = AtomicU8::new(0);
    }
    if let Some(p) = p {
        p.worker.store(w, Ordering::Relaxed);
    }
}

/// Adds a record to the list of all workers.
///
/// # Safety
/// It is not listed.
unsafe fn list(w: *mut Worker) {
    RT.workers.fetch_add(1, Ordering::Relaxed);
    let mut head = RT.all_workers.load(Ordering::Relaxed);
    loop {
        // SAFETY: the caller's: nobody else looks at this field.
        unsafe { (*w).next_of_all = head };
        // Release: the record is written. pairs: rt.all_workers
        match RT.all_workers.compare_exchange(head, w, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => {
                // Release: it is in the list. pairs: worker.listed
                // SAFETY: the caller's.
                unsafe { (*w).listed.store(1, Ordering::Release) };
                return;
            }
            Err(now) => head = now,
        }
    }
}

/// Makes the calling kernel thread a worker that runs `main`, which is its present flow of control.
///
/// # Safety
/// See `Runtime::start`.
pub(in crate::sched) unsafe fn adopt(main: *mut Thread, p: &Processor) -> Result<(), i32> {
    let w = new_record()?;
    // SAFETY: the record is fresh; this kernel thread runs main.
    unsafe {
        fill_in(w, Some(p));
        list(w);
        (*w).current = main;
        (*main).worker.store(w.cast(), Ordering::Relaxed);
        (*w).tid.store(sys!(l::__NR_gettid) as i32, Ordering::Relaxed);
        crate::sched::account::charge(w, main); // what it has used as an ordinary thread
        (*main).context.on_cpu.store(1, Ordering::Relaxed);
        arch::set_worker_pointer(w as usize);
    }
    Ok(())
}

/// Starts a worker that holds `p`, or a spare one.
///
/// # Safety
/// Signals are blocked in the caller (the new kernel thread inherits that), `p` is held by nobody.
pub(in crate::sched) unsafe fn spawn(p: Option<&Processor>) -> Result<(), i32> {
    // While an errand is under way a new kernel thread might be left out.
    let Some(mut unused) = RT.errands.births() else { return Err(linux_raw_sys::errno::EAGAIN as i32) };
    let w = match *unused {
        0 => new_record()?,
        record => record as *mut Worker,
    };
    *unused = w as usize;
    // The kernel thread starts at the foot of the scheduler's stack and goes on there.
    let top = w as usize + 4096 + SIGNAL_STACK + STACK;
    // SAFETY: the record and the stack are the new worker's own: nobody else takes them while we have the lock. It is
    // listed before the lock is given back.
    unsafe {
        fill_in(w, p);
        match spawn_kernel_thread(top as *mut u8, worker_start, w.cast()) {
            Ok(tid) => (*w).tid.store(tid, Ordering::Relaxed),
            Err(errno) => {
                if let Some(p) = p {
                    p.worker.store(core::ptr::null_mut(), Ordering::Relaxed);
                }
                return Err(errno);
            }
        }
        *unused = 0;
        list(w);
    }
    Ok(())
}

/// Starts a kernel thread that shares everything with this process and calls `entry(argument)` on the given stack. It has
/// no libc identity. Error: errno (EAGAIN, ENOMEM).
///
/// # Safety
/// The stack is unused and lives as long as the kernel thread; `entry` never returns.
pub(in crate::sched) unsafe fn spawn_kernel_thread(
    top: *mut u8,
    entry: unsafe extern "C" fn(*mut u8) -> !,
    argument: *mut u8,
) -> Result<i32, i32> {
    let flags = l::CLONE_VM | l::CLONE_FS | l::CLONE_FILES | l::CLONE_SIGHAND | l::CLONE_THREAD | l::CLONE_SYSVSEM;
    let top = (top as usize & !15) as *mut usize;
    let r: isize;
    // SAFETY: the child runs only the code after `syscall` on its own stack and never returns to this frame.
    unsafe {
        top.sub(1).write(argument as usize);
        top.sub(2).write(entry as *const () as usize);
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "pop rax",
            "pop rdi",
            "call rax",
            "ud2",
            "2:",
            inlateout("rax") l::__NR_clone as isize => r,
            in("rdi") flags as usize, in("rsi") top.sub(2), in("rdx") 0, in("r10") 0, in("r8") 0,
            lateout("rcx") _, lateout("r11") _);
    }
    check(r).map(|tid| tid as i32)
}

unsafe extern "C" fn worker_start(w: *mut u8) -> ! {
    let w: *mut Worker = w.cast();
    // SAFETY: the record is this kernel thread's from now on.
    unsafe {
        arch::set_worker_pointer(w as usize);
        (*w).tid.store(sys!(l::__NR_gettid) as i32, Ordering::Relaxed);
        (*w).scheduler.on_cpu.store(1, Ordering::Relaxed);
        RT.monitor.name_worker();
        // Its maker does not wait for anything meanwhile. Acquire: it is in the list. pairs: worker.listed
        while (*w).listed.load(Ordering::Acquire) == 0 {
            crate::lock::yield_cpu();
        }
        // For a kick that was not sent since the record did not know our id. (If both missed it, the next kick comes.)
        RT.errands.attend(&(*w).errand);
        (RT.hooks().worker_started)(&mut *w);
        sched_loop_entry(w.cast())
    }
}
