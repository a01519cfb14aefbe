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

use super::arena::header;
use super::queue::Surroundings;
use super::table::place_of;
use super::word::Processes;
use super::{ArenaBox, forker, identity, is_first, is_shared, worker};
use crate::cancel::{Limit, Token, WaitError};
use crate::channel::wait::Waiter;
use crate::futex;

const WAITV: i64 = 449;
const SIZE_U32: u32 = 2;
/// Most words of one wait.
const MOST_WORDS: usize = 128;
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

impl Surroundings for System {
    fn place(&self, process: u32) -> usize {
        place_of(process)
    }
    fn wake_all(&self, word: &AtomicU32) {
        wake(word, i32::MAX);
    }
    fn looks(&self) -> u32 {
        worker::looks()
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
    wait_any(&[entry(word, value), entry(&header().table.deaths, deaths)], limit, Duration::MAX)
}

/// As [`wait`], and while another word of the arena has its value, which only changes when a process has died.
pub fn wait_beside(
    word: &AtomicU32,
    value: u32,
    deaths: u32,
    (other, other_value): (&AtomicU32, u32),
    limit: &Limit<'_>,
) -> Result<(), WaitError> {
    if !is_shared() {
        return futex::wait_within(word, value, limit);
    }
    let entries = [entry(word, value), entry(&header().table.deaths, deaths), entry(other, other_value)];
    wait_any(&entries, limit, Duration::MAX)
}

/// A word that is waited for while it has this value.
pub fn entry(word: *const AtomicU32, value: u32) -> Entry {
    Entry { value: u64::from(value), address: word as u64, flags: SIZE_U32, reserved: 0 }
}

/// As the kernel has it.
#[repr(C)]
pub struct Entry {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

impl Entry {
    fn has_changed(&self) -> bool {
        // SAFETY: a word that the caller of the wait keeps.
        let now = unsafe { &*(self.address as *const AtomicU32) };
        // Relaxed: whoever looks because of it takes a lock.
        u64::from(now.load(Ordering::Relaxed)) != self.value
    }
}

/// Waits while each of these words of the arena has its value, until a wake of one, or the limit, and no longer than `most`.
/// Only as many are looked at as the kernel takes; with more than that it returns soon.
pub fn wait_any(entries: &[Entry], limit: &Limit<'_>, mut most: Duration) -> Result<(), WaitError> {
    if limit.token().is_some_and(Token::is_cancelled) {
        return Err(WaitError::Cancelled);
    }
    let left = limit.deadline().map(|at| at.saturating_duration_since(Instant::now()));
    if left == Some(Duration::ZERO) {
        return Err(WaitError::TimedOut);
    }
    most = most.min(left.unwrap_or(Duration::MAX));
    if is_first() {
        most = most.min(CARE);
    }
    if limit.token().is_some() {
        most = most.min(LOOK_AT_TOKEN);
    }
    if entries.len() > MOST_WORDS {
        most = most.min(LOOK);
    }
    if !wait_in_kernel(entries, most) && is_first() {
        forker::check();
    }
    // Who waits comes again if it has to, and is told of its limit then.
    Ok(())
}

/// False: the time has passed.
fn wait_in_kernel(entries: &[Entry], most: Duration) -> bool {
    if !HAS_NO_WAITV.load(Ordering::Relaxed) {
        let until = (most != Duration::MAX).then(|| monotonic(most));
        let until = until.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let count = entries.len().min(MOST_WORDS);
        // SAFETY: an array of at least so many entries, and a time or null.
        let result = unsafe { libc::syscall(WAITV, entries.as_ptr(), count, 0, until, libc::CLOCK_MONOTONIC) };
        match io::Error::last_os_error().raw_os_error() {
            _ if result >= 0 => return true,
            Some(libc::ETIMEDOUT) => return false,
            Some(libc::ENOSYS | libc::EPERM) => HAS_NO_WAITV.store(true, Ordering::Relaxed),
            _ => return true,
        }
    }
    if entries[1..].iter().any(Entry::has_changed) {
        return true;
    }
    let time = most.min(LOOK);
    let time = libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    let (word, value) = (entries[0].address, entries[0].value as u32);
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

/// How a `select!` over channels in the arena waits. Its waiter is in the arena too, so that threads of this process (for the
/// other arms) and of others wake it alike.
pub struct Across {
    /// None: the arena is full. Then it looks every now and then.
    waiter: Result<ArenaBox<InArena>, Waiter>,
}

struct InArena(Waiter);
// SAFETY: words.
unsafe impl super::Shareable for InArena {}

impl Across {
    pub fn new() -> Self {
        Self { waiter: ArenaBox::try_new(InArena(Waiter::across())).map_err(|_| Waiter::across()) }
    }

    pub fn waiter(&self) -> &Waiter {
        self.waiter.as_ref().map_or_else(|own| own, |shared| &shared.0)
    }

    /// Waits until the waiter is claimed or one of the words changes, then gives the waiter up. The answer is why it has ended, if
    /// that was the limit.
    pub fn park(&self, words: &[(*const AtomicU32, u32)], deaths: u32, limit: &Limit<'_>) -> Option<WaitError> {
        let own = self.waiter.is_ok().then(|| self.waiter().word());
        let death: (*const AtomicU32, u32) = (&raw const header().table.deaths, deaths);
        let entries: Vec<_> = own
            .into_iter()
            .chain([death])
            .chain(words.iter().copied())
            .map(|(word, value)| entry(word, value))
            .collect();
        let most = if own.is_some() { Duration::MAX } else { LOOK };
        let ended = wait_any(&entries, limit, most).err();
        self.waiter().give_up();
        ended
    }
}

/// Wakes the thread that waits for this word of the arena.
pub fn wake_across(word: *const AtomicU32) {
    // SAFETY: a wake uses only the address.
    unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, 1) };
}

/// Wakes up to `count` waiters of the word.
pub fn wake(word: &AtomicU32, count: i32) {
    if !is_shared() {
        return futex::wake(word, count);
    }
    // SAFETY: a wake uses only the address.
    unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, count) };
}
