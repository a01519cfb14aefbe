//! Programs that use GS base themselves.
//!
//! In the core GS base is the worker's record. In the program it mostly is, too. But a program may load what it likes: compiled
//! WebAssembly has the address of a memory there. Then nothing of ours is at hand when the thread enters the core.
//!
//! # Protocol
//! * A record has its own address, altered, in [`Worker::mark`]. Who enters the core compares GS base with that ([`arrive`] and the
//!   ABI layer's entry). A program's GS base may point to nothing: the comparison is at a known address, and the kernel-level
//!   handler goes on behind it as if it had found another value ([`after_fault`]).
//! * If they differ, the kernel's id of the kernel thread finds the record in the list of all workers. From the question for that
//!   id to the mark `in_core` the thread must not be moved to another worker: the handler takes those instructions for
//!   the core ([`is_arriving`]). A worker runs no thread before it is listed.
//! * What the program had is kept in [`Thread::gs_base`]. It is loaded again when the thread leaves the core, after the last look at
//!   the record, and in the handler. 0 there: nothing, and GS base stays the record.
//! * The handler does not read what GS base points to. It runs on the signal stack of its worker, whose place is known by
//!   the record's ([`interrupted`]).

use super::{SIGNAL_STACK, Worker, worker};
use crate::sched::{RT, Runtime};
use crate::sys::linux as l;
use crate::thread::Thread;
use core::arch::naked_asm;
use core::mem::offset_of;
use core::sync::atomic::Ordering;

/// The difference between [`Worker::mark`] and the record's address.
pub const MARK: usize = 0x5bd1_e995;
/// Where [`RT`] has the list of all workers, which is null until the runtime starts.
pub const ALL_WORKERS: usize = offset_of!(Runtime, all_workers);

/// The calling thread enters the core from the program, with any GS base. Null on a kernel thread that is not ours: nothing has changed.
///
/// # Safety
/// Not in the core. The record's thread is the caller.
#[unsafe(naked)]
pub unsafe extern "C" fn arrive() -> *mut Worker {
    naked_asm!(
        "cmp qword ptr [rip + {rt} + {list}], 0",
        "je 4f",
        "rdgsbase rax",
        "test rax, rax",
        "jz heddle_arrive_search",
        "lea rdx, [rax + {mark}]",
        ".globl heddle_arrive_check",
        ".hidden heddle_arrive_check",
        "heddle_arrive_check:",
        "cmp rdx, gs:[{at_mark}]",
        "jne heddle_arrive_search",
        "mov byte ptr gs:[8], 1",
        "mov rax, gs:[0]",
        "ret",
        ".globl heddle_arrive_search",
        ".hidden heddle_arrive_search",
        "heddle_arrive_search:",
        "mov eax, {gettid}",
        "syscall",
        "mov rdx, [rip + {rt} + {list}]",
        "2: test rdx, rdx",
        "jz 4f",
        "cmp [rdx + {tid}], eax",
        "je 3f",
        "mov rdx, [rdx + {next}]",
        "jmp 2b",
        "3: rdgsbase rax",
        "wrgsbase rdx",
        "mov byte ptr gs:[8], 1",
        ".globl heddle_arrived",
        ".hidden heddle_arrived",
        "heddle_arrived:",
        // The thread was moved between the two halves of the comparison: it has nothing of its own.
        "cmp rax, rdx",
        "je 5f",
        "mov rcx, [rdx + {current}]",
        "mov [rcx + {gs_base}], rax",
        "5: mov rax, rdx",
        "ret",
        "4: xor eax, eax",
        "ret",
        rt = sym RT,
        list = const ALL_WORKERS,
        mark = const MARK,
        at_mark = const offset_of!(Worker, mark),
        gettid = const l::__NR_gettid,
        tid = const offset_of!(Worker, tid),
        next = const offset_of!(Worker, next_of_all),
        current = const offset_of!(Worker, current),
        gs_base = const offset_of!(Thread, gs_base),
    )
}

unsafe extern "C" {
    #[link_name = "heddle_arrive_check"]
    safe static CHECK: u8;
    #[link_name = "heddle_arrive_search"]
    safe static SEARCH: u8;
    #[link_name = "heddle_arrived"]
    safe static ARRIVED: u8;
}

/// Where to go on after a fault at `instruction`, if that is the comparison in [`arrive`].
#[inline]
pub fn after_fault(instruction: u64) -> Option<u64> {
    (instruction == &raw const CHECK as u64).then_some(&raw const SEARCH as u64)
}

/// Whether a thread interrupted at `instruction` is about to enter the core and must not be moved.
#[inline]
pub fn is_arriving(instruction: u64) -> bool {
    (&raw const SEARCH as u64..&raw const ARRIVED as u64).contains(&instruction)
}

/// For the kernel-level handler, `at` an address in its frame: the record of this kernel thread, whatever GS base is; null if
/// it is not ours. Changes nothing.
pub fn interrupted(at: usize) -> *mut Worker {
    let w = worker();
    let on_stack_of = |record: usize| at.wrapping_sub(record.wrapping_add(4096)) < SIGNAL_STACK;
    if on_stack_of(w as usize) {
        return w;
    }
    let mut found = core::ptr::null_mut();
    // Acquire: the worker's record is written. pairs: rt.all_workers
    let mut next = RT.all_workers.load(Ordering::Acquire);
    if next.is_null() {
        return found;
    }
    // SAFETY: touches no memory.
    let tid = unsafe { sys!(l::__NR_gettid) } as i32;
    while !next.is_null() && found.is_null() {
        // SAFETY: records are never unmapped; this field is written before they are listed.
        unsafe {
            if (*next).tid.load(Ordering::Relaxed) == tid {
                found = next;
            }
            next = (*next).next_of_all;
        }
    }
    found
}

/// The record in GS base, if it is one; else null. For kernel threads that may have a value of the program's.
pub fn listed() -> *mut Worker {
    let w = worker();
    let mut found = core::ptr::null_mut();
    RT.for_each_worker(&mut |listed| {
        if core::ptr::eq(listed, w) {
            found = w;
        }
    });
    found
}
