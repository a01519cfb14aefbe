//! Words of the program's memory, at addresses that may be bad, or become so at any time: another thread unmaps the memory, or
//! shortens the file behind it, while a call is under way.
//!
//! Any other access to the program's memory that faults ends the call there with EFAULT (see `dispatch::faulted`). That must not happen
//! under a lock, while a waiter is linked, or while something is to be undone, and it does not work on kernel threads that are not
//! ours. These functions answer instead: the kernel-level handler knows the one instruction of each that touches the memory, and
//! goes on where the function says that it failed.

use core::arch::naked_asm;

const FAILED: u64 = u64::MAX;

#[unsafe(naked)]
unsafe extern "C" fn loading(address: usize) -> u64 {
    naked_asm!("mov eax, [rdi]", "ret")
}

#[unsafe(naked)]
unsafe extern "C" fn storing(address: usize, value: u32) -> u64 {
    naked_asm!("mov [rdi], esi", "xor eax, eax", "ret")
}

#[unsafe(naked)]
unsafe extern "C" fn exchanging(address: usize, old: u32, new: u32) -> u64 {
    naked_asm!(
        "mov eax, esi",
        ".globl heddle_exchanging",
        ".hidden heddle_exchanging",
        "heddle_exchanging:",
        "lock cmpxchg [rdi], edx",
        "ret"
    )
}

#[unsafe(naked)]
unsafe extern "C" fn failed() {
    naked_asm!("mov rax, {failed}", "ret", failed = const FAILED as i64)
}

unsafe extern "C" {
    #[link_name = "heddle_exchanging"]
    safe static EXCHANGING: u8;
}

/// Where to go on after a fault at `instruction`, if that is one of ours.
#[inline]
pub fn after_fault(instruction: u64) -> Option<u64> {
    let ours = [loading as *const () as u64, storing as *const () as u64, &raw const EXCHANGING as u64];
    ours.contains(&instruction).then_some(failed as *const () as u64)
}

/// Loads a word; `None` if it is not there.
#[inline]
pub fn load(address: usize) -> Option<u32> {
    // SAFETY: a load at any address either succeeds or faults, and then the handler goes on at `failed`. What the program writes
    // there meanwhile is its own affair.
    let r = unsafe { loading(address) };
    if r == FAILED { None } else { Some(r as u32) }
}

/// Stores a word; false if it cannot be written.
///
/// # Safety
/// The program wants it there.
#[must_use]
pub unsafe fn store(address: usize, value: u32) -> bool {
    // SAFETY: as in `load`; the caller's.
    unsafe { storing(address, value) != FAILED }
}

/// Puts `new` in the place of `old`, which is a full fence. `Err`: there was something else. `None`: it cannot be written.
///
/// # Safety
/// As [`store`]; the address is aligned.
pub unsafe fn exchange(address: usize, old: u32, new: u32) -> Option<Result<(), u32>> {
    // SAFETY: as there.
    match unsafe { exchanging(address, old, new) } {
        FAILED => None,
        found if found as u32 == old => Some(Ok(())),
        found => Some(Err(found as u32)),
    }
}

/// Copies whole words to the program's memory; false if some of it cannot be written.
///
/// # Safety
/// As [`store`].
#[must_use]
pub unsafe fn store_all(address: usize, values: &[u64]) -> bool {
    // SAFETY: the caller's.
    values.iter().enumerate().all(|(i, &v)| unsafe {
        store(address.wrapping_add(8 * i), v as u32) && store(address.wrapping_add(8 * i + 4), (v >> 32) as u32)
    })
}
