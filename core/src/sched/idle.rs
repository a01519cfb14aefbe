//! Going to sleep and being woken.

use super::{Processor, Runtime};
use crate::arch::ticks;
use crate::clock::{self, NEVER};
use crate::prim::{AtomicU32, AtomicU64, Ordering, fence};
use core::sync::atomic::AtomicBool;

/// Most turns of polling before sleep; one turn is one look at the reactor, about a microsecond.
pub const PATIENCE_MAX: u32 = 32;
const PATIENCE_MIN: u32 = 2;

/// Least and most ticks between two unsure notifications, about 50 us and 5 ms.
const PAUSE_MIN: u64 = 1 << 17;
const PAUSE_MAX: u64 = 1 << 24;

/// How many workers sleep, how many search.
pub struct Sleepers {
    sleeping: AtomicU32,
    searching: AtomicU32,
    /// Some sleeper wakes at this time (CLOCK_MONOTONIC) at the latest; `NEVER` is always a safe value.
    deadline: AtomicU64,
    /// `ticks` of the last notification, and the pause that past ones have earned.
    last: AtomicU64,
    pause: AtomicU64,
    never_poll: AtomicBool,
}

impl Default for Sleepers {
    fn default() -> Self {
        Self::new()
    }
}

impl Sleepers {
    /// Nobody sleeps.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            sleeping: AtomicU32::new(0),
            searching: AtomicU32::new(0),
            deadline: AtomicU64::new(NEVER),
            last: AtomicU64::new(0),
            pause: AtomicU64::new(PAUSE_MIN),
            never_poll: AtomicBool::new(false),
        }
    }

    pub(super) fn configure(&self, single_cpu: bool) {
        self.never_poll.store(single_cpu, Ordering::Relaxed);
    }

    pub(super) fn reset(&self) {
        self.sleeping.store(0, Ordering::Relaxed);
        self.searching.store(0, Ordering::Relaxed);
        self.deadline.store(NEVER, Ordering::Relaxed);
    }

    /// How many workers sleep, as one look tells.
    #[inline]
    pub fn sleeping(&self) -> u32 {
        self.sleeping.load(Ordering::Relaxed)
    }

    /// Wakes a sleeper if there is one and nobody searches. `sure`: there is more work than the caller's worker can run
    /// next; otherwise the notification is a guess (the caller may be about to park and run the thread itself), and
    /// guesses that came to nothing make the pause between guesses longer.
    ///
    /// The caller has made the work visible and executed a SeqCst fence since.
    #[inline]
    pub(super) fn wake_if_needed(&self, rt: &Runtime, sure: bool) {
        if self.sleeping.load(Ordering::Relaxed) == 0 || self.searching.load(Ordering::Relaxed) != 0 {
            return;
        }
        if !sure && ticks().wrapping_sub(self.last.load(Ordering::Relaxed)) < self.pause.load(Ordering::Relaxed) {
            return;
        }
        self.wake(rt);
    }

    /// Wakes a sleeper unless somebody searches already. The sleeper inherits the searcher's mark made here.
    #[cold]
    pub(super) fn wake(&self, rt: &Runtime) {
        // AcqRel: the mark is handed over with the wake-up. pairs: sleep.searching
        if self.searching.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return;
        }
        self.last.store(ticks(), Ordering::Relaxed);
        if let Some(p) = super::worker::my_processor() {
            p.counters.notifications.add(1);
        }
        rt.reactor.wake();
    }

    /// A worker that switched to another thread has an earlier deadline than any sleeper knows of.
    #[inline]
    pub(super) fn new_deadline(&self, rt: &Runtime, p: &Processor) {
        if self.sleeping.load(Ordering::Relaxed) != 0 && p.timers.next() < self.deadline.load(Ordering::Relaxed) {
            self.wake(rt);
        }
    }

    fn stop_searching(&self, rt: &Runtime, found: bool) {
        if found {
            self.pause.store(PAUSE_MIN, Ordering::Relaxed);
        } else {
            let longer = (self.pause.load(Ordering::Relaxed) * 2).min(PAUSE_MAX);
            self.pause.store(longer, Ordering::Relaxed);
        }
        // SeqCst: from here on pushers wake sleepers themselves; what was pushed before is seen by the look that follows
        // (found: below; not found: before sleeping). pairs: sleep.searching
        let last = self.searching.fetch_sub(1, Ordering::SeqCst) == 1;
        if found && last {
            // The one who stops searching because it found something passes the search on if there is more.
            fence(Ordering::SeqCst); // SeqCst: as in `sleep`. pairs: sleep.fence
            if rt.any_runnable_twice() {
                self.wake(rt);
            }
        }
    }

    /// The message for a sleeper reached a worker that was not asleep: give the mark back and send it on if needed.
    pub(super) fn message_taken(&self, rt: &Runtime) {
        // SeqCst: as in stop_searching. pairs: sleep.searching
        self.searching.fetch_sub(1, Ordering::SeqCst);
        fence(Ordering::SeqCst); // SeqCst: as in `sleep`. pairs: sleep.fence
        if rt.any_runnable_twice() {
            self.wake_if_needed(rt, true);
        }
    }
}

impl Runtime {
    /// Whether there is a runnable thread beyond the one that each queue's own worker is about to run.
    fn any_runnable_twice(&self) -> bool {
        self.inject_len.load(Ordering::Relaxed) != 0 || self.processors().iter().any(|p| p.queue.len() > 1)
    }

    /// Takes threads from another processor. A single queued thread is probably the partner of the thread that runs there
    /// and about to be run: it is left to its own worker, unless that has not switched since an earlier look.
    fn steal(&self, p: &Processor, last_turn: bool) -> Option<*mut crate::thread::Thread> {
        let others = self.processors();
        let start = (ticks() as usize) % others.len();
        for i in 0..others.len() {
            let victim = &others[(start + i) % others.len()];
            if core::ptr::eq(victim, p) || victim.queue.is_empty() {
                continue;
            }
            let tick = victim.tick.load(Ordering::Relaxed);
            if victim.queue.len() < 2 && !(last_turn && victim.watched.load(Ordering::Relaxed) == tick) {
                victim.watched.store(tick, Ordering::Relaxed);
                continue;
            }
            if let Some(t) = victim.queue.steal_into(&p.queue) {
                p.counters.steals.add(1);
                return Some(t);
            }
        }
        None
    }

    /// The caller's queue is empty: searches, polls for a while, sleeps; returns when there may be something in the
    /// caller's queue, or a thread that it took.
    ///
    /// # Safety
    /// On the scheduler's stack of a worker that holds `p`.
    pub(super) unsafe fn idle(&self, p: &Processor) -> Option<*mut crate::thread::Thread> {
        let s = &self.sleepers;
        // One searcher at a time is enough on small machines, a few on big ones.
        let limit = (self.processors().len() as u32 / 4).max(1);
        if s.searching.load(Ordering::Relaxed) < limit {
            // AcqRel: as in wake. pairs: sleep.searching
            s.searching.fetch_add(1, Ordering::AcqRel);
            // SAFETY: the caller's.
            if let Some(r) = unsafe { self.search(p) } {
                return r;
            }
        }
        // SAFETY: the caller's.
        unsafe { self.sleep(p) }
    }

    /// Searches with the mark held. `Some`: found (perhaps in the own queue); `None`: nothing, the mark is given back.
    unsafe fn search(&self, p: &Processor) -> Option<Option<*mut crate::thread::Thread>> {
        let s = &self.sleepers;
        let patience = p.patience.load(Ordering::Relaxed);
        let turns = if s.never_poll.load(Ordering::Relaxed) { 1 } else { patience.max(PATIENCE_MIN) };
        for turn in 0..turns {
            // Single threads are taken only after a wait in which their own worker had its chance.
            let found = self.take_injected(p).or_else(|| self.steal(p, turn + 1 == turns));
            // SAFETY: the caller's: inside the core.
            let (n, message) = if found.is_some() { (0, false) } else { unsafe { self.poll_reactor(Some(0)) } };
            if message {
                // We are the searcher that was called for; give the second mark back.
                s.searching.fetch_sub(1, Ordering::Relaxed);
            }
            // SAFETY: as above.
            if found.is_some() || n > 0 || unsafe { self.expire_all() } > 0 || !p.queue.is_empty() {
                p.patience.store((patience * 2).clamp(PATIENCE_MIN, PATIENCE_MAX), Ordering::Relaxed);
                s.stop_searching(self, true);
                return Some(found);
            }
            if turn + 1 < turns {
                crate::lock::yield_cpu();
            }
        }
        if turns > 1 {
            // Polling did not pay; poll less, but try fully now and then.
            let next = if ticks() & (15 << 8) == 0 { PATIENCE_MAX } else { patience / 2 };
            p.patience.store(next.max(PATIENCE_MIN), Ordering::Relaxed);
        }
        s.stop_searching(self, false);
        None
    }

    unsafe fn expire_all(&self) -> usize {
        if self.next_deadline() == NEVER {
            return 0;
        }
        let now = clock::now();
        // SAFETY: the caller's: inside the core.
        self.processors().iter().map(|p| unsafe { self.expire(p, now) }).sum()
    }

    unsafe fn sleep(&self, p: &Processor) -> Option<*mut crate::thread::Thread> {
        let s = &self.sleepers;
        s.sleeping.fetch_add(1, Ordering::Relaxed);
        // SeqCst: either a pusher sees us asleep or we see what it pushed (README.md). pairs: sleep.fence
        fence(Ordering::SeqCst);
        if self.inject_len.load(Ordering::Relaxed) != 0 || !p.queue.is_empty() || self.any_runnable_twice() {
            s.sleeping.fetch_sub(1, Ordering::Relaxed);
            return self.take_injected(p).or_else(|| self.steal(p, false));
        }
        let deadline = self.next_deadline();
        let timeout = if deadline == NEVER { None } else { Some(deadline.saturating_sub(clock::now())) };
        s.deadline.fetch_min(deadline, Ordering::Relaxed);
        // A deadline armed between the look and the store is seen by its worker's check or by the monitor.
        // SAFETY: the caller's: inside the core.
        let (_, message) = unsafe { self.poll_reactor(timeout) };
        s.deadline.store(NEVER, Ordering::Relaxed);
        s.sleeping.fetch_sub(1, Ordering::Relaxed);
        self.monitor.worker_wakes();
        // SAFETY: as above.
        unsafe { self.expire_all() };
        if message {
            // SAFETY: as above; the mark came with the message.
            return unsafe { self.search(p) }.flatten();
        }
        None
    }
}
