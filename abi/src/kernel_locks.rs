//! Locks and queues that the kernel keeps: `flock`, record locks, System V semaphores and messages, POSIX messages.
//!
//! They are the kernel's, and a wait for one takes a kernel thread, whose processor goes to another at once. Since that
//! thread is then queued behind the others, it must not happen when there is nothing to wait for: the call is tried first
//! in its form that does not wait.

use crate::dispatch::{blocking, blocking_for_long};
use crate::entry::Frame;
use crate::fd;
use crate::signal;
use crate::wait::{e, fail};
use heddle_core::sched;
use heddle_core::sys::{linux as l, syscall6};

/// System V's flag for calls that do not wait.
const IPC_NOWAIT: u32 = 0o4000;
/// Semaphore operations in a call that are tried first.
const OPERATIONS: usize = 8;

/// `struct sembuf`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Operation {
    number: u16,
    change: i16,
    flags: i16,
}

/// Makes one of these calls.
///
/// # Safety
/// The current thread, inside the core; the program's arguments.
pub unsafe fn call(frame: &mut Frame, number: u32, args: [usize; 6], restartable: bool) -> isize {
    // SAFETY: the caller's.
    unsafe {
        let at_once = match number {
            l::__NR_mq_timedsend | l::__NR_mq_timedreceive => {
                let events = if number == l::__NR_mq_timedsend { l::POLLOUT } else { l::POLLIN };
                fd::is_ready(args[0] as i32, events).then(|| blocking(frame, number as usize, args, restartable))
            }
            _ => without_waiting(number, args),
        };
        let Some(r) = at_once else { return blocking_for_long(frame, number as usize, args, restartable) };
        // What it found may have been left by another process that sent a signal before.
        signal::kernel::collect();
        r
    }
}

/// The call's result, if it can be had without waiting.
unsafe fn without_waiting(number: u32, args: [usize; 6]) -> Option<isize> {
    let mut a = args;
    let mut operations = [Operation::default(); OPERATIONS];
    // Whether the program asked for that form itself.
    let mut asked = false;
    let would_wait = match number {
        l::__NR_flock => {
            asked = args[1] as u32 & l::LOCK_NB != 0;
            a[1] |= l::LOCK_NB as usize;
            e::EAGAIN
        }
        l::__NR_fcntl => {
            a[1] = (if args[1] as u32 == l::F_SETLKW { l::F_SETLK } else { l::F_OFD_SETLK }) as usize;
            e::EAGAIN
        }
        l::__NR_msgsnd => {
            asked = args[3] as u32 & IPC_NOWAIT != 0;
            a[3] |= IPC_NOWAIT as usize;
            e::EAGAIN
        }
        l::__NR_msgrcv => {
            asked = args[4] as u32 & IPC_NOWAIT != 0;
            a[4] |= IPC_NOWAIT as usize;
            e::ENOMSG
        }
        l::__NR_semop | l::__NR_semtimedop if args[2] <= OPERATIONS && args[1] != 0 => {
            asked = true;
            for (i, operation) in operations.iter_mut().enumerate().take(args[2]) {
                // SAFETY: the program's array of as many.
                *operation = unsafe { (args[1] as *const Operation).add(i).read_unaligned() };
                asked &= operation.flags as u32 & IPC_NOWAIT != 0;
                operation.flags |= IPC_NOWAIT as i16;
            }
            a[1] = operations.as_ptr() as usize;
            e::EAGAIN
        }
        _ => return None,
    };
    // SAFETY: the program's call, in the form that does not wait. A file system may take its time all the same.
    let r = unsafe { sched::blocking(|| syscall6(number as usize, a)) };
    (asked || r != fail(would_wait)).then_some(r)
}
