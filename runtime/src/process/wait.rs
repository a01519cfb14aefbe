//! Waiting on a word of the arena.
//!
//! While the arena is this process's own this is waiting on any word ([`crate::futex`]). With several processes the kernel
//! has to do it, since only it knows all who wait: a user thread then takes a kernel thread along. Each wait is for two words
//! at once (`futex_waitv`, Linux 5.16): the caller's, and the count of processes that have died, after which all have a
//! look at what they wait for. On an older kernel they look every 20 ms instead.
//!
//! # Safety
//! The system calls read the words they are given.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::arena::{Header, header};
use super::word::Processes;
use super::{forker, identity, is_first, is_shared};
use crate::cancel::{Limit, Token, WaitError};
use crate::futex;

const WAITV: i64 = 449;
const SIZE_U32: u32 = 2;
/// How long a wait lasts without `futex_waitv`.
const LOOK: Duration = Duration::from_millis(20);
/// How often a process that waits looks whether the one that forks lives: nobody else would tell it.
const CARE: Duration = Duration::from_millis(500);
/// How often who waits in the kernel looks at its token: the words that processes share and those of one process cannot be
/// waited for at the same time, since user threads wait for the latter outside of the kernel.
const LOOK_AT_TOKEN: Duration = Duration::from_millis(5);

static HAS_NO_WAITV: AtomicBool = AtomicBool::new(false);

/// This program's processes.
pub struct System;

impl Processes for System {
    #[inline]
    fn me(&self) -> u32 {
        identity()
    }
    fn deaths(&self) -> u32 {
        deaths()
    }
    fn is_dead(&self, process: u32) -> bool {
        header().table.is_dead(process)
    }
    fn wait(&self, word: &AtomicU32, value: u32, deaths: u32, limit: &Limit<'_>) -> Result<(), WaitError> {
        wait(word, value, deaths, limit)
    }
    fn wake(&self, word: *const AtomicU32) {
        // SAFETY: only its address is used.
        wake(unsafe { &*word }, 1);
    }
}

pub fn deaths() -> u32 {
    // Acquire: what was buried with the last. pairs: process.deaths
    header().table.deaths.load(Ordering::Acquire)
}

/// Waits while the word has this value and the count of deaths that one, until a wake, or the limit. It may return early.
pub fn wait(word: &AtomicU32, value: u32, deaths: u32, limit: &Limit<'_>) -> Result<(), WaitError> {
    if !is_shared() {
        return futex::wait_within(word, value, limit);
    }
    if limit.token().is_some_and(Token::is_cancelled) {
        return Err(WaitError::Cancelled);
    }
    let left = limit.deadline().map(|at| at.saturating_duration_since(Instant::now()));
    if left == Some(Duration::ZERO) {
        return Err(WaitError::TimedOut);
    }
    let mut most = left.unwrap_or(Duration::MAX);
    if is_first() {
        most = most.min(CARE);
    }
    if limit.token().is_some() {
        most = most.min(LOOK_AT_TOKEN);
    }
    if !wait_in_kernel(header(), word, value, deaths, most) && is_first() {
        forker::check();
    }
    // Who waits comes again if it has to, and is told of its limit then.
    Ok(())
}

/// False: the time has passed.
fn wait_in_kernel(header: &Header, word: &AtomicU32, value: u32, deaths: u32, most: Duration) -> bool {
    #[repr(C)]
    struct Entry {
        value: u64,
        address: u64,
        flags: u32,
        reserved: u32,
    }
    let entry = |word: &AtomicU32, value| Entry {
        value: u64::from(value),
        address: std::ptr::from_ref(word) as u64,
        flags: SIZE_U32,
        reserved: 0,
    };
    if !HAS_NO_WAITV.load(Ordering::Relaxed) {
        let entries = [entry(word, value), entry(&header.table.deaths, deaths)];
        let until = (most != Duration::MAX).then(|| monotonic(most));
        let until = until.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: an array of two entries, and a time or null.
        let result = unsafe { libc::syscall(WAITV, entries.as_ptr(), entries.len(), 0, until, libc::CLOCK_MONOTONIC) };
        match io::Error::last_os_error().raw_os_error() {
            _ if result >= 0 => return true,
            Some(libc::ETIMEDOUT) => return false,
            Some(libc::ENOSYS | libc::EPERM) => HAS_NO_WAITV.store(true, Ordering::Relaxed),
            _ => return true,
        }
    }
    if deaths != self::deaths() {
        return true;
    }
    let time = most.min(LOOK);
    let time = libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    // SAFETY: a word, and a time.
    let result = unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, value, &raw const time) };
    result == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ETIMEDOUT) || most > LOOK
}

fn monotonic(from_now: Duration) -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let at = Duration::new(now.tv_sec as u64, now.tv_nsec as u32).saturating_add(from_now);
    libc::timespec { tv_sec: at.as_secs().min(i64::MAX as u64) as i64, tv_nsec: at.subsec_nanos().into() }
}

/// Wakes up to `count` waiters of the word.
pub fn wake(word: &AtomicU32, count: i32) {
    if !is_shared() {
        return futex::wake(word, count);
    }
    // SAFETY: a wake uses only the address.
    unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, count) };
}
