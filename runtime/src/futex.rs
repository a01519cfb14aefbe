//! Waiting on a word. A user thread calls what parks it. Any other goes through libc's `syscall`, whose site is rewritten
//! when the process has user threads: then a kernel thread sleeps in the kernel, and is woken by both, on the same word.
//!
//! A wait that a token can end is one on two words, the caller's and the token's. Both may be woken before the waiter runs,
//! so a cancel may use up a wake that was meant for the other word. Therefore [`wait_within`] says *cancelled* only when it
//! has not slept: who has slept looks again for what it wants, and comes back if it is not there.
//!
//! # Safety
//! The calls read the words they are given.

#[cfg(not(loom))]
use std::time::Instant;

use crate::cancel::{Limit, WaitError};
use crate::prim::AtomicU32;

#[cfg(not(loom))]
use system as imp;
#[cfg(loom)]
pub mod model;
#[cfg(loom)]
use model as imp;

/// Waits while the word has this value, until a wake, or the deadline: then the answer is false. It may return early.
#[cfg(not(loom))]
pub fn wait_until(word: &AtomicU32, value: u32, deadline: Option<Instant>) -> bool {
    imp::wait(word, value, deadline)
}

/// Waits while the word has this value, until a wake. It may return early.
pub fn wait(word: &AtomicU32, value: u32) {
    imp::wait(word, value, None);
}

/// Waits while the word has this value, until a wake or the limit. It may return early. See the module for when it says
/// that the token is cancelled.
pub fn wait_within(word: &AtomicU32, value: u32, limit: &Limit<'_>) -> Result<(), WaitError> {
    let in_time = match limit.token() {
        None => imp::wait(word, value, limit.deadline()),
        Some(token) if token.is_cancelled() => return Err(WaitError::Cancelled),
        Some(token) => imp::wait_either(word, value, token.word(), limit.deadline()),
    };
    if in_time { Ok(()) } else { Err(WaitError::TimedOut) }
}

#[cfg(loom)]
pub use model::{wait as wait_as_thread, wake as wake_threads};
#[cfg(not(loom))]
pub use system::{wait_as_thread, wake_threads};

/// Wakes up to `count` waiters of the word at this address, which is not read.
pub fn wake(word: *const AtomicU32, count: i32) {
    imp::wake(word, count);
}

#[cfg(not(loom))]
mod system {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    use heddle_interface::ThreadCalls;

    use crate::fiber;
    use crate::image::calls;

    const PRIVATE: i32 = libc::FUTEX_PRIVATE_FLAG;

    fn errno() -> i32 {
        std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
    }

    fn timespec(time: Duration) -> libc::timespec {
        libc::timespec { tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: time.subsec_nanos().into() }
    }

    /// What the clock of deadlines will say then. `None`: it is past.
    fn by_clock(deadline: Instant) -> Option<Duration> {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut now = timespec(Duration::ZERO);
        // SAFETY: writes a local; the clock of `Instant`.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
        (left != Duration::ZERO).then(|| Duration::new(now.tv_sec as u64, now.tv_nsec as u32).saturating_add(left))
    }

    /// As `wait`, without a system call. `None`: the caller is not a user thread.
    fn park(calls: &ThreadCalls, word: &AtomicU32, value: u32, deadline: Option<Instant>) -> Option<bool> {
        let until = match deadline.map(by_clock) {
            None => u64::MAX,
            Some(None) => return Some(false),
            Some(Some(time)) => time.as_nanos().min(u128::from(u64::MAX)) as u64,
        };
        // SAFETY: a word that outlives the call.
        match unsafe { (calls.wait)(word.as_ptr().cast(), value, until) } as i32 {
            libc::ENOSYS => None,
            errno => Some(errno != libc::ETIMEDOUT),
        }
    }

    /// False: the deadline has passed.
    pub fn wait(word: &AtomicU32, value: u32, deadline: Option<Instant>) -> bool {
        match fiber::wait(word, value, None, deadline) {
            Some(in_time) => in_time,
            None => wait_as_thread(word, value, deadline),
        }
    }

    /// As `wait`; a fiber waits with its carrier.
    pub fn wait_as_thread(word: &AtomicU32, value: u32, deadline: Option<Instant>) -> bool {
        if let Some(answer) = calls().and_then(|calls| park(calls, word, value, deadline)) {
            return answer;
        }
        let relative;
        let timeout = match deadline {
            None => std::ptr::null(),
            Some(at) => {
                let left = at.saturating_duration_since(Instant::now());
                if left == Duration::ZERO {
                    return false;
                }
                relative = timespec(left);
                &raw const relative
            }
        };
        // SAFETY: a word that outlives the call, and a time or null.
        let r = unsafe {
            libc::syscall(libc::SYS_futex, std::ptr::from_ref(word), libc::FUTEX_WAIT | PRIVATE, value, timeout)
        };
        r == 0 || errno() != libc::ETIMEDOUT
    }

    /// The kernel has no `futex_waitv` (before Linux 5.16), or a filter forbids it.
    static LACKS_VECTOR: AtomicBool = AtomicBool::new(false);
    /// How long a wait is then, before its token is looked at again.
    const SLICE: Duration = Duration::from_millis(5);

    /// As `wait`, but also until a wake of `other`, and only while that is 0.
    pub fn wait_either(word: &AtomicU32, value: u32, other: &AtomicU32, deadline: Option<Instant>) -> bool {
        if let Some(in_time) = fiber::wait(word, value, Some(other), deadline) {
            return in_time;
        }
        #[repr(C)]
        struct Entry {
            value: u64,
            address: u64,
            flags: u32,
            reserved: u32,
        }
        const SIZE_U32: u32 = 2;
        let until = match deadline.map(by_clock) {
            Some(None) => return false,
            Some(Some(time)) => Some(timespec(time)),
            None => None,
        };
        if LACKS_VECTOR.load(Ordering::Relaxed) {
            let soon = Instant::now() + SLICE;
            return match deadline {
                Some(at) if at <= soon => wait(word, value, deadline),
                _ => {
                    wait(word, value, Some(soon));
                    true
                }
            };
        }
        let entry = |word: &AtomicU32, value: u32| Entry {
            value: value.into(),
            address: std::ptr::from_ref(word) as u64,
            flags: SIZE_U32 | PRIVATE as u32,
            reserved: 0,
        };
        let entries = [entry(word, value), entry(other, 0)];
        let timeout = until.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let (first, count) = (entries.as_ptr(), entries.len());
        // SAFETY: words that outlive the call, and a time or null.
        let r = unsafe { libc::syscall(libc::SYS_futex_waitv, first, count, 0, timeout, libc::CLOCK_MONOTONIC) };
        if r >= 0 {
            return true;
        }
        match errno() {
            libc::ENOSYS | libc::EPERM => LACKS_VECTOR.store(true, Ordering::Relaxed),
            libc::ETIMEDOUT => return false,
            _ => {}
        }
        true
    }

    pub fn wake(word: *const AtomicU32, count: i32) {
        let woken = fiber::wake(word, count as u32);
        if woken < count as u32 {
            wake_threads(word, count - woken as i32);
        }
    }

    /// As `wake`, where no fiber waits.
    pub fn wake_threads(word: *const AtomicU32, count: i32) {
        if let Some(calls) = calls() {
            return (calls.wake)(word as usize, count as u32);
        }
        // SAFETY: a wake uses only the address.
        unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE | PRIVATE, count) };
    }
}
