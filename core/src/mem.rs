//! Memory from the kernel: anonymous private mappings, nothing cached.
//!
//! # Safety
//! Wraps `mmap`, `mremap` and `munmap`; callers own what they map.

use crate::sys::{check, linux as l};

/// Maps `len` zeroed bytes, read-write, without reserving swap. The error is an errno value.
pub fn map(len: usize) -> Result<*mut u8, i32> {
    let flags = l::MAP_PRIVATE | l::MAP_ANONYMOUS | l::MAP_NORESERVE;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no existing memory.
    let r = unsafe { sys!(l::__NR_mmap, 0, len, l::PROT_READ | l::PROT_WRITE, flags, -1isize, 0) };
    check(r).map(|a| a as *mut u8)
}

/// Resizes a mapping made by [`map`], moving it if need be.
///
/// # Safety
/// `old` is a whole mapping of `old_len` bytes that the caller owns, and no reference into it survives.
pub unsafe fn remap(old: *mut u8, old_len: usize, new_len: usize) -> Result<*mut u8, i32> {
    // SAFETY: the caller owns the mapping.
    let r = unsafe { sys!(l::__NR_mremap, old, old_len, new_len, l::MREMAP_MAYMOVE) };
    check(r).map(|a| a as *mut u8)
}

/// Unmaps memory.
///
/// # Safety
/// The caller owns the range and nothing refers into it.
pub unsafe fn unmap(at: *mut u8, len: usize) {
    // SAFETY: the caller owns the range.
    unsafe { sys!(l::__NR_munmap, at, len) };
}
