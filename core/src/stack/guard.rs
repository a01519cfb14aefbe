//! Advice to the kernel about parts of slabs, guard pages above all.
//!
//! A guard made by `MADV_GUARD_INSTALL` (Linux 6.13) is a mark in the page table, not a mapping of its own: it costs no
//! entry against `vm.max_map_count`, outlives `MADV_DONTNEED`, and is copied by `fork`.
//!
//! # Safety
//! Every call here drops or replaces memory contents: the ranges lie in slots that the caller has for itself, or whose
//! owner asked for it.

use crate::sys::{check, linux as l};

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Advice {
    /// `MADV_DONTNEED`: the range reads as zero; guards stay.
    Drop = 4,
    /// `MADV_NOHUGEPAGE`.
    SmallPages = 15,
    /// `MADV_POPULATE_WRITE`: the pages are there before they are touched.
    Populate = 23,
    /// `MADV_GUARD_INSTALL`: touching the range faults; its contents are gone.
    Guard = 102,
    /// `MADV_GUARD_REMOVE`.
    Unguard = 103,
}

/// A range, as `process_madvise` wants it (`struct iovec`).
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Range {
    /// First address.
    pub start: usize,
    /// Bytes.
    pub len: usize,
}

/// Ranges that one [`advise_all`] takes at most.
pub const MOST: usize = 32;
/// From here on one call for all ranges is tried.
const MANY: usize = 4;
/// `PIDFD_SELF_THREAD_GROUP` (Linux 6.15): this process, without a descriptor.
const SELF: isize = -10001;

/// Advises about one range. The error is an errno value.
///
/// # Safety
/// See the module.
pub unsafe fn advise(start: usize, len: usize, advice: Advice) -> Result<(), i32> {
    // SAFETY: the caller's.
    check(unsafe { sys!(l::__NR_madvise, start, len, advice as u32) }).map(|_| ())
}

/// Advises about many ranges, by one call where the kernel can. Bit `i` of the result: range `i` was refused.
///
/// # Safety
/// See the module.
pub unsafe fn advise_all(ranges: &[Range], advice: Advice) -> u32 {
    debug_assert!(ranges.len() <= MOST);
    if ranges.len() >= MANY {
        let wanted: usize = ranges.iter().map(|r| r.len).sum();
        // SAFETY: the caller's; an older kernel refuses the descriptor or the advice and does nothing.
        let r = unsafe { sys!(l::__NR_process_madvise, SELF, ranges.as_ptr(), ranges.len(), advice as u32, 0) };
        if r == wanted as isize {
            return 0;
        }
    }
    let mut refused = 0;
    for (i, r) in ranges.iter().enumerate() {
        // SAFETY: the caller's; what the call above has done already may be done twice.
        if unsafe { advise(r.start, r.len, advice) }.is_err() {
            refused |= 1 << i;
        }
    }
    refused
}
