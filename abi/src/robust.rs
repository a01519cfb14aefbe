//! Robust mutexes whose owner ends: a thread, or the process with all its threads.
//!
//! The kernel walks the robust lists that kernel threads registered; it does not know those of user threads, nor their ids.
//! So a thread's list is walked here when the thread ends, and all lists when the process is about to end by a way that
//! passes here: `exit_group`, a fault, a signal that it sends itself. While the lists of others are walked, the
//! other workers stand still: a thread must not go on in a critical section that somebody else has been given.

use crate::futex;
use crate::signal;
use crate::words;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use heddle_core::sched::{RT, Worker, worker};
use heddle_core::sys::linux as l;
use heddle_core::thread::Thread;

/// The worker that ends the process; kicked workers then stand still, but for this one.
static ENDER: AtomicPtr<Worker> = AtomicPtr::new(core::ptr::null_mut());
static STANDING: AtomicU32 = AtomicU32::new(0);

/// The kernel's `struct robust_list_head`.
#[repr(C)]
struct Head {
    first: usize,
    offset: isize,
    pending: usize,
}

/// A word of the program's memory.
fn load(address: usize) -> Option<usize> {
    Some(words::load(address)? as usize | (words::load(address + 4)? as usize) << 32)
}

fn read(t: *const Thread) -> Option<(usize, Head)> {
    // SAFETY: control blocks are never unmapped; the field is a word.
    let head = unsafe { (&raw const (*t).identity.robust_head).read_volatile() };
    if head == 0 {
        return None;
    }
    Some((head, Head { first: load(head)?, offset: load(head + 8)? as isize, pending: load(head + 16)? }))
}

/// The thread ends: marks the robust mutexes that it still holds as ownerless and wakes a waiter of each, as the kernel
/// does at a thread's exit (`exit_robust_list` in kernel/futex/core.c).
///
/// # Safety
/// `t` will not touch its mutexes any more.
pub unsafe fn thread_ends(t: *const Thread) {
    // SAFETY: the caller's.
    unsafe { walk(t, false) }
}

unsafe fn walk(t: *const Thread, all_end: bool) {
    let Some((address, head)) = read(t) else { return };
    // SAFETY: the list that the thread registered; bounded as in the kernel.
    unsafe {
        let tid = (*t).identity.tid.load(Ordering::Relaxed);
        let mut entry = head.first;
        let mut budget = 1_000_000;
        while entry & !1 != address && entry & !1 != 0 && budget > 0 {
            let Some(next) = load(entry & !1) else { break };
            if entry & !1 != head.pending & !1 {
                dead_owner((entry & !1).wrapping_add_signed(head.offset), entry & 1 != 0, tid, false, all_end);
            }
            entry = next;
            budget -= 1;
        }
        if head.pending != 0 {
            dead_owner((head.pending & !1).wrapping_add_signed(head.offset), head.pending & 1 != 0, tid, true, all_end);
        }
    }
}

/// `all_end`: no lock of ours may be taken, and only other processes are left to be woken.
unsafe fn dead_owner(address: usize, inherits: bool, tid: u32, pending: bool, all_end: bool) {
    // SAFETY: a mutex of the thread.
    unsafe {
        if !address.is_multiple_of(4) {
            return;
        }
        while let Some(v) = words::load(address) {
            if pending && v == 0 && !inherits {
                wake(address, all_end);
                return;
            }
            if v & l::FUTEX_TID_MASK != tid {
                return;
            }
            if inherits && !all_end {
                futex::unlock_pi(address, tid, l::FUTEX_OWNER_DIED);
                return;
            }
            let new = v & l::FUTEX_WAITERS | l::FUTEX_OWNER_DIED;
            // A full fence: the owner's death is visible before the wake reads the table. pairs: futex.word
            match words::exchange(address, v, new) {
                Some(Ok(())) => {
                    if v & l::FUTEX_WAITERS != 0 {
                        wake(address, all_end);
                    }
                    return;
                }
                Some(Err(_)) => {}
                None => return,
            }
        }
    }
}

fn wake(address: usize, all_end: bool) {
    if all_end || crate::memory::is_shared(address) {
        // SAFETY: a wake uses only the address.
        unsafe { heddle_core::sys!(l::__NR_futex, address, l::FUTEX_WAKE, 1, 0, 0, 0) };
    } else {
        futex::wake_one(address);
    }
}

/// Whether `w`, which was kicked, is to stand still because another worker ends the process.
#[inline]
pub fn ends_without(w: *mut Worker) -> bool {
    let ender = ENDER.load(Ordering::Relaxed);
    !ender.is_null() && ender != w
}

/// Keeps this kernel thread here until the process has ended.
pub fn stand_still() -> ! {
    STANDING.fetch_add(1, Ordering::Relaxed);
    loop {
        // SAFETY: waits for a word that nobody changes.
        unsafe {
            heddle_core::sys!(l::__NR_futex, STANDING.as_ptr(), l::FUTEX_WAIT | l::FUTEX_PRIVATE_FLAG, u32::MAX, 0)
        };
        pause();
    }
}

fn pause() {
    let ts = l::timespec { tv_sec: 0, tv_nsec: 200_000 };
    // SAFETY: reads a local.
    unsafe { heddle_core::sys!(l::__NR_nanosleep, &ts as *const _, 0) };
}

/// The process is about to end: marks what its threads hold. Costs a look at each thread if none holds anything.
///
/// # Safety
/// On a worker, inside the core or in its kernel-level handler. Afterwards the caller ends the process and does nothing
/// else, least of all switch to another thread: if there was something to mark, the other workers do not run any more,
/// whatever they were doing.
pub unsafe fn process_ends() {
    let mut any = false;
    RT.threads.for_each(&mut |t| {
        any = read(t).is_some_and(|(address, head)| head.first & !1 != address && head.first != 0 || head.pending != 0);
        !any
    });
    if !any {
        return;
    }
    let me = worker();
    if let Err(ender) = ENDER.compare_exchange(core::ptr::null_mut(), me, Ordering::Relaxed, Ordering::Relaxed) {
        if ender == me {
            return; // done, or interrupted at it by a fault of its own
        }
        stand_still();
    }
    // One that does not answer is deep in the kernel, and not in the program. One that has just been started has no id yet:
    // kicks are repeated. (Who stands still has all signals blocked, and is counted once.)
    for turn in 0..5_000 {
        let mut others = 0;
        RT.for_each_worker(&mut |w| {
            if !core::ptr::eq(w, me) {
                // One that is held stands still, and stays so when its signals are open again.
                others += u32::from(w.held.load(Ordering::Relaxed) < Worker::HELD);
                if turn % 4 == 0 {
                    signal::kernel::kick(w);
                }
            }
        });
        if STANDING.load(Ordering::Relaxed) >= others {
            break;
        }
        pause();
    }
    RT.threads.for_each(&mut |t| {
        // SAFETY: its worker stands still, or it waits.
        unsafe { walk(t, true) };
        true
    });
}

/// In a forked child: it does not end.
pub fn reset() {
    ENDER.store(core::ptr::null_mut(), Ordering::Relaxed);
    STANDING.store(0, Ordering::Relaxed);
}
