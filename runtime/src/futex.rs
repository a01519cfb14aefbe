//! Waiting on a word. The call goes through libc's `syscall`, whose site is rewritten when the process has user threads:
//! then a user thread parks, and a kernel thread sleeps in the kernel, on the same word.
//!
//! # Safety
//! The system call reads the word it is given.

use std::time::{Duration, Instant};

use crate::prim::AtomicU32;

/// Waits while the word has this value, until a wake, or the deadline: then the answer is false. It may return early.
pub fn wait_until(word: &AtomicU32, value: u32, deadline: Option<Instant>) -> bool {
    if cfg!(loom) {
        // A wait may return early: the models wait by looking again.
        crate::prim::yield_cpu();
        return true;
    }
    let mut relative = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let timeout = match deadline {
        None => std::ptr::null(),
        Some(at) => {
            let left = at.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return false;
            }
            relative.tv_sec = left.as_secs() as i64;
            relative.tv_nsec = left.subsec_nanos().into();
            &raw const relative
        }
    };
    let word = std::ptr::from_ref(word);
    let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: a word that outlives the call, and a time or null.
    let result = unsafe { libc::syscall(libc::SYS_futex, word, op, value, timeout) };
    result == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ETIMEDOUT)
}

/// Waits while the word has this value, until a wake. It may return early.
pub fn wait(word: &AtomicU32, value: u32) {
    wait_until(word, value, None);
}

/// Wakes up to `count` waiters of the word at this address, which is not read.
pub fn wake(word: *const AtomicU32, count: i32) {
    if cfg!(loom) {
        return;
    }
    let op = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: a wake uses only the address.
    unsafe { libc::syscall(libc::SYS_futex, word, op, count) };
}
