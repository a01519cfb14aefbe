//! From one stack to another.
//!
//! What a function must leave as it was, the compiler saves around the switch where it holds something; the control words
//! of floating-point arithmetic are the carrier's, and stay as they are.
//!
//! # Safety
//! The contexts that are switched between are whole: [`switch`] has made them, or they are a [`Start`]'s address, and each is gone to once.

use std::arch::asm;
use std::ffi::c_void;

/// A context: where its stack ends. The resume address is on top of it.
pub type Context = *mut u8;

/// Leaves the caller's context, which is written to `save`, for another. The argument is for the function of one that begins.
///
/// # Safety
/// The context is one that was left or begins, and nobody else goes to it. Nothing about the calling thread is as it was
/// when this returns: not even which thread it is.
#[inline(always)]
pub unsafe fn switch(save: *mut Context, to: Context, argument: *const c_void) {
    // SAFETY: all registers but the two that are pushed are given up; the rest is the caller's. A jump, not a return: a return's
    // prediction would be that of another stack.
    unsafe {
        asm!(
            "push rbp",
            "push rbx",
            "lea rax, [rip + 2f]",
            "push rax",
            "mov [rsi], rsp",
            "mov rsp, rdx",
            "pop rax",
            "jmp rax",
            "2:",
            "pop rbx",
            "pop rbp",
            inout("rdi") argument => _,
            inout("rsi") save => _,
            inout("rdx") to => _,
            out("r12") _, out("r13") _, out("r14") _, out("r15") _,
            clobber_abi("C"),
        );
    }
}

/// What a stack ends with that nothing has run on yet. It is used up by the first switch there.
#[repr(C, align(16))]
pub struct Start {
    function: extern "C" fn(*const c_void) -> !,
    /// Of 0: it ends backtraces. With it the stack is as after a call.
    return_address: usize,
}

impl Start {
    /// With a function, which gets [`switch`]'s argument.
    pub const fn new(function: extern "C" fn(*const c_void) -> !) -> Self {
        Self { function, return_address: 0 }
    }
}
