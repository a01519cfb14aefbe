//! Raw system calls. No libc, no `errno`: a result in `-4095..0` is a negated error number.
//!
//! # Safety
//! This module is where the `syscall` instruction lives. A system call may do anything to memory, so each caller
//! argues for the one it makes.

use core::arch::asm;
pub use linux_raw_sys::general as linux;

/// A raw system-call result: the value, or a negated error number in `-4095..0`.
pub type Raw = isize;

/// Turns a raw result into `Ok(value)` or `Err(positive error number)`.
#[inline]
pub fn check(r: Raw) -> Result<usize, i32> {
    if (-4095..0).contains(&r) { Err(-r as i32) } else { Ok(r as usize) }
}

/// Makes system call `nr` with six arguments.
///
/// # Safety
/// The call with these arguments must be sound in the caller's context: a system call may read, write, map or unmap
/// any memory of the process.
#[inline(always)]
pub unsafe fn syscall6(nr: usize, a: [usize; 6]) -> Raw {
    let ret: isize;
    // SAFETY: the caller vouches for the call; the kernel clobbers rax, rcx and r11 only.
    unsafe {
        asm!("syscall",
            inlateout("rax") nr as isize => ret,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack));
    }
    ret
}

/// Makes a system call with up to six arguments: `sys!(nr, a, b, ...)`.
#[macro_export]
macro_rules! sys {
    ($nr:expr) => { $crate::sys::syscall6($nr as usize, [0; 6]) };
    ($nr:expr, $a:expr) => { $crate::sys::syscall6($nr as usize, [$a as usize, 0, 0, 0, 0, 0]) };
    ($nr:expr, $a:expr, $b:expr) => { $crate::sys::syscall6($nr as usize, [$a as usize, $b as usize, 0, 0, 0, 0]) };
    ($nr:expr, $a:expr, $b:expr, $c:expr) => {
        $crate::sys::syscall6($nr as usize, [$a as usize, $b as usize, $c as usize, 0, 0, 0]) };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr) => {
        $crate::sys::syscall6($nr as usize, [$a as usize, $b as usize, $c as usize, $d as usize, 0, 0]) };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr) => {
        $crate::sys::syscall6($nr as usize, [$a as usize, $b as usize, $c as usize, $d as usize, $e as usize, 0]) };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr) => {
        $crate::sys::syscall6($nr as usize,
            [$a as usize, $b as usize, $c as usize, $d as usize, $e as usize, $f as usize]) };
}

/// Whether no process has this id any more, or that one has only to be waited for.
pub fn has_ended(process: i32) -> bool {
    const GONE: isize = -(linux_raw_sys::errno::ESRCH as isize);
    // SAFETY: the descriptor is ours; the kernel writes the local.
    unsafe {
        let descriptor = crate::sys!(linux::__NR_pidfd_open, process, 0);
        if descriptor < 0 {
            return descriptor == GONE;
        }
        let mut poll = linux::pollfd { fd: descriptor as i32, events: linux::POLLIN as i16, revents: 0 };
        let ended = crate::sys!(linux::__NR_poll, &raw mut poll, 1, 0) == 1;
        crate::sys!(linux::__NR_close, descriptor);
        ended
    }
}
