//! What the environment says about reserving much and releasing late.
//!
//! # Safety
//! The calls here read the kernel's figures into locals.

use super::slab::PAGE;
use crate::sys::{check, linux as l};

/// Pages whose release may be put off: a sixteenth of the memory, 64 MiB at least, 1 GiB at most. They count in full
/// although a thread has seldom touched more than a few.
pub fn pending_pages() -> usize {
    // `struct sysinfo`: totalram is the fifth word, mem_unit the first half of the fourteenth.
    let mut info = [0u64; 16];
    // SAFETY: the structure has 112 bytes.
    let r = unsafe { sys!(l::__NR_sysinfo, info.as_mut_ptr()) };
    let memory = if r == 0 { info[4].saturating_mul(u64::from(info[13] as u32).max(1)) } else { 0 };
    (memory as usize / 16).clamp(64 << 20, 1 << 30) / PAGE
}

/// Whether the kernel counts reserved memory as used (`vm.overcommit_memory` = 2: `MAP_NORESERVE` does nothing).
pub fn counts_reservations() -> bool {
    let path = c"/proc/sys/vm/overcommit_memory";
    let mut byte = [0u8; 1];
    // SAFETY: a path that ends in NUL, a buffer of one byte, a descriptor of ours.
    unsafe {
        let Ok(fd) = check(sys!(l::__NR_openat, l::AT_FDCWD, path.as_ptr(), l::O_RDONLY | l::O_CLOEXEC, 0)) else {
            return false;
        };
        let n = sys!(l::__NR_read, fd, byte.as_mut_ptr(), 1);
        sys!(l::__NR_close, fd);
        n == 1 && byte[0] == b'2'
    }
}

/// How many bytes of address space the process may use; `u64::MAX`: as many as it likes.
pub fn address_space() -> u64 {
    [l::RLIMIT_AS, l::RLIMIT_DATA].into_iter().fold(u64::MAX, |least, which| {
        let mut limit = [0u64; 2];
        // SAFETY: writes `struct rlimit64`.
        let r = unsafe { sys!(l::__NR_prlimit64, 0, which, 0, limit.as_mut_ptr()) };
        if r == 0 { least.min(limit[0]) } else { least }
    })
}

/// Whether the process may not use as much address space as it likes: then every reservation could be the program's last.
pub fn address_space_is_limited() -> bool {
    address_space() != u64::MAX
}
