//! Calling the program's functions.
//!
//! A C++ exception must not come through Rust's frames. So the program's functions are called by a piece of assembly
//! without unwind information: there the search for a handler ends, and the C++ runtime calls `std::terminate`, as at
//! the end of a `std::thread`, before anything has been unwound. A panic of Rust code that the program holds ends
//! there too.

use std::ffi::c_void;

// heddle_call_root(function, first, second, third): what the function answers.
std::arch::global_asm!(
    ".pushsection .text.heddle_call_root, \"ax\", @progbits",
    ".p2align 4",
    ".globl heddle_call_root",
    ".hidden heddle_call_root",
    ".type heddle_call_root, @function",
    "heddle_call_root:",
    "push rbp",
    "mov rbp, rsp",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "call rax",
    "pop rbp",
    "ret",
    ".size heddle_call_root, . - heddle_call_root",
    ".popsection",
);

unsafe extern "C" {
    fn heddle_call_root(function: *const c_void, first: usize, second: usize, third: usize) -> *mut c_void;
}

/// The program's argument, which it sends to another thread on its own account.
#[derive(Clone, Copy)]
pub struct Argument(pub *mut c_void);

// SAFETY: a number to us; what it points to is the program's affair.
unsafe impl Send for Argument {}
// SAFETY: as above.
unsafe impl Sync for Argument {}

/// Calls `f(argument)`.
///
/// # Safety
/// `f` may be called so here.
#[inline]
pub unsafe fn with_result(f: extern "C" fn(*mut c_void) -> *mut c_void, argument: Argument) -> Argument {
    // SAFETY: the caller's; a function of one argument does not look at the other registers.
    Argument(unsafe { heddle_call_root(f as *const c_void, argument.0 as usize, 0, 0) })
}

/// Calls `f(argument)`.
///
/// # Safety
/// `f` may be called so here.
pub unsafe fn without_result(f: extern "C" fn(*mut c_void), argument: Argument) {
    // SAFETY: as above; without a result the register that would hold it holds anything.
    unsafe { heddle_call_root(f as *const c_void, argument.0 as usize, 0, 0) };
}

/// Calls `f(scope, argument)`, `scope` being a pointer.
///
/// # Safety
/// `f` may be called so here.
pub unsafe fn with_scope<S>(f: extern "C" fn(*mut S, *mut c_void), scope: *mut S, argument: Argument) {
    // SAFETY: as above.
    unsafe { heddle_call_root(f as *const c_void, scope as usize, argument.0 as usize, 0) };
}

/// Calls `f(begin, end, argument)`.
///
/// # Safety
/// `f` may be called so here.
pub unsafe fn with_range(f: extern "C" fn(usize, usize, *mut c_void), begin: usize, end: usize, argument: Argument) {
    // SAFETY: as above.
    unsafe { heddle_call_root(f as *const c_void, begin, end, argument.0 as usize) };
}

/// Calls `function(first, second)`, a function of two pointers without a result.
///
/// # Safety
/// It is one, and may be called so here.
pub unsafe fn with_two(function: *const c_void, first: *mut c_void, second: *mut c_void) {
    // SAFETY: as above.
    unsafe { heddle_call_root(function, first as usize, second as usize, 0) };
}
