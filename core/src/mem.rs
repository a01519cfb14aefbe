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

/// As [`map`], for a large table of which little is used: stays unused also in a process that locks its future memory.
pub fn reserve(len: usize) -> Result<*mut u8, i32> {
    let flags = l::MAP_PRIVATE | l::MAP_ANONYMOUS | l::MAP_NORESERVE;
    // SAFETY: a new mapping, which the other calls are about. Without access nothing can become resident.
    unsafe {
        let at = check(sys!(l::__NR_mmap, 0, len, l::PROT_NONE, flags, -1isize, 0))?;
        sys!(l::__NR_munlock, at, len);
        match check(sys!(l::__NR_mprotect, at, len, l::PROT_READ | l::PROT_WRITE)) {
            Ok(_) => Ok(at as *mut u8),
            Err(errno) => {
                sys!(l::__NR_munmap, at, len);
                Err(errno)
            }
        }
    }
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
