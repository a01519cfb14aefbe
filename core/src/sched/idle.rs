//! Going to sleep and being woken.

use super::sleepers::Marks;
use super::{Processor, Runtime, Why};
use crate::arch::ticks;
use crate::clock::{self, NEVER};
use crate::prim::{AtomicU32, AtomicU64, Ordering, fence};
use crate::stack::STACKS;
use crate::sys::linux as l;
use core::sync::atomic::AtomicBool;

/// Most turns of polling before sleep; one turn is one look at the reactor, about a microsecond.
pub const PATIENCE_MAX: u32 = 32;
const PATIENCE_MIN: u32 = 2;
/// The patience while others want this CPU: one look, no yield. Polling would give them the CPU for a slice at each turn, where
/// a worker that sleeps has it back as soon as it is woken.
const CROWDED: u32 = 1;
/// A yield that took so many ticks, about 0.1 ms, went to somebody else.
const AWAY: u64 = 1 << 18;

/// How long a single queued thread is left to its own worker, in ticks: about as long as the kernel takes to wake another
/// CPU for it.
const RIPE: u64 = 1 << 17;

/// Most ticks that a thread woken alone is left to its waker's worker (see `Sleepers::judge_theft`), about 1.6 ms.
const WARM_MAX: u64 = 1 << 22;
/// A stolen thread that waits again within so many ticks, about 0.4 ms, did little.
const SHORT: u64 = 1 << 20;

/// Least and most ticks between two unsure notifications, about 50 us and 5 ms.
const PAUSE_MIN: u64 = 1 << 17;
const PAUSE_MAX: u64 = 1 << 24;

/// Who sleeps, who searches, and when it is worth a notification.
pub struct Sleepers {
    marks: Marks,
    /// Some sleeper wakes at this time (CLOCK_MONOTONIC) at the latest; `NEVER` is always a safe value.
    deadline: AtomicU64,
    /// `ticks` of the last notification, and the pause that past ones have earned.
    last: AtomicU64,
    pause: AtomicU64,
    never_poll: AtomicBool,
    /// How long a thread that was woken alone is left to its waker's worker, in ticks.
    warmth: AtomicU64,
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
            marks: Marks::new(),
            deadline: AtomicU64::new(NEVER),
            last: AtomicU64::new(0),
            pause: AtomicU64::new(PAUSE_MIN),
            never_poll: AtomicBool::new(false),
            warmth: AtomicU64::new(RIPE),
        }
    }

    pub(super) fn configure(&self, single_cpu: bool) {
        self.never_poll.store(single_cpu, Ordering::Relaxed);
    }

    pub(super) fn reset(&self) {
        self.marks.reset();
        self.deadline.store(NEVER, Ordering::Relaxed);
    }

    /// How many workers sleep, as one look tells.
    #[inline]
    pub fn sleeping(&self) -> u32 {
        self.marks.sleeping()
    }

    /// To be called between making work visible and [`wake_if_needed`](Sleepers::wake_if_needed).
    #[inline]
    pub(super) fn pushed(&self) {
        self.marks.pushed();
    }

    /// Wakes a sleeper if there is one and nobody searches. `sure`: there is more work than the caller's worker can run
    /// next; otherwise the notification is a guess (the caller may be about to park and run the thread itself), and
    /// guesses that came to nothing make the pause between guesses longer.
    ///
    /// The caller has made the work visible and called [`pushed`](Sleepers::pushed) since.
    #[inline]
    pub(super) fn wake_if_needed(&self, rt: &Runtime, sure: bool) {
        if !self.marks.must_call() {
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
        self.marks.call(|| {
            self.last.store(ticks(), Ordering::Relaxed);
            if let Some(p) = super::worker::my_processor() {
                p.counters.notifications.add(1);
            }
            rt.reactor.wake();
        });
    }

    /// A worker that switched to another thread has an earlier deadline than any sleeper knows of.
    #[inline]
    pub(super) fn new_deadline(&self, rt: &Runtime, p: &Processor) {
        if self.sleeping() != 0 && p.timers.next() < self.deadline.load(Ordering::Relaxed) {
            self.wake(rt);
        }
    }

    /// See the field.
    #[inline]
    pub(super) fn warmth(&self) -> u64 {
        self.warmth.load(Ordering::Relaxed)
    }

    /// A stolen thread waits on a futex after `ran` ticks. If it is the one it was woken from (`same`) and that was soon,
    /// the thread shares a lock with those it was taken from, and two CPUs now pass the lock's cache line to and fro: such
    /// threads are left alone for longer. Otherwise the theft let two CPUs work.
    #[cold]
    pub(super) fn judge_theft(&self, ran: u64, same: bool) {
        let warmth = if same && ran < SHORT { (self.warmth() * 2).min(WARM_MAX) } else { RIPE };
        self.warmth.store(warmth, Ordering::Relaxed);
    }

    fn stop_searching(&self, rt: &Runtime, found: bool) {
        if found {
            self.pause.store(PAUSE_MIN, Ordering::Relaxed);
        } else {
            let longer = (self.pause.load(Ordering::Relaxed) * 2).min(PAUSE_MAX);
            self.pause.store(longer, Ordering::Relaxed);
        }
        if self.marks.stop_searching(found, || rt.any_runnable_twice()) {
            self.wake(rt);
        }
    }

    /// The message for a sleeper reached a worker that was not asleep: give the mark back and send it on if needed.
    pub(super) fn message_taken(&self, rt: &Runtime) {
        if self.marks.message_taken(|| rt.any_runnable_twice()) {
            self.wake(rt);
        }
    }
}

impl Runtime {
    /// Calls a worker that is seen to sleep for what an idle one does besides looking for threads ([`Stacks::ahead`](crate::stack::Stacks::ahead)).
    /// Who falls asleep just then is missed: the work is the caller's own, and help is all that it wants.
    pub fn call_helper(&self) {
        self.sleepers.wake_if_needed(self, true);
    }

    /// Whether there is a runnable thread beyond the one that each queue's own worker is about to run.
    fn any_runnable_twice(&self) -> bool {
        !self.injection.is_empty() || self.processors().iter().any(|p| p.queue.len() + p.fresh.len() > 1)
    }

    /// Takes threads from another processor. A single queued thread is probably the partner of the thread that runs there
    /// and about to be run: it is left to its own worker for [`RIPE`] ticks. So is a warm one (see `judge_theft`), and those
    /// behind it. `Err(true)`: there is such a thread.
    pub(super) fn steal(
        &self,
        p: &Processor,
        from: impl Fn(&Processor) -> bool,
    ) -> Result<*mut crate::thread::Thread, bool> {
        let others = self.processors();
        let start = (ticks() as usize) % others.len();
        let mut unripe = false;
        for i in 0..others.len() {
            let victim = &others[(start + i) % others.len()];
            if core::ptr::eq(victim, p) || !victim.has_work() || !from(victim) {
                continue;
            }
            let now = ticks();
            // SAFETY: control blocks are never unmapped.
            let warm = |t: *mut crate::thread::Thread| unsafe { (*t).warm_until.load(Ordering::Relaxed) };
            if victim.queue.oldest().is_some_and(|t| (warm(t).wrapping_sub(now) as i64) > 0) {
                unripe = true;
                continue;
            }
            if victim.queue.len() + victim.fresh.len() < 2 {
                let taken = victim.queue.taken().wrapping_add(victim.fresh.taken()).wrapping_add(victim.posted.taken());
                if victim.watched.load(Ordering::Relaxed) != taken {
                    victim.watched.store(taken, Ordering::Relaxed);
                    victim.watched_since.store(now, Ordering::Relaxed);
                }
                if now.wrapping_sub(victim.watched_since.load(Ordering::Relaxed)) < RIPE {
                    unripe = true;
                    continue;
                }
            }
            let found = victim.queue.steal_into(&p.queue).or_else(|| self.steal_fresh(victim, p));
            if let Some(t) = found.or_else(|| victim.posted.take()) {
                // SAFETY: taken out of the queue: ours until it runs.
                unsafe { (*t).stolen_at = now };
                p.counters.steals.add(1);
                return Ok(t);
            }
        }
        Err(unripe)
    }

    /// Takes new threads from another processor: one, and others into the ring of `p`, which has run dry.
    fn steal_fresh(&self, victim: &Processor, p: &Processor) -> Option<*mut crate::thread::Thread> {
        victim.fresh.steal(|t| {
            if p.queue.push(t).is_err() {
                // SAFETY: taken out of the queue; runnable.
                unsafe { self.inject(t, Why::LeftOver) };
            }
        })
    }

    /// The caller's queue is empty: searches, polls for a while, sleeps; returns when there may be something in the
    /// caller's queue, or a thread that it took.
    ///
    /// # Safety
    /// On the scheduler's stack of a worker that holds `p`.
    pub(super) unsafe fn idle(&self, p: &Processor) -> Option<*mut crate::thread::Thread> {
        let s = &self.sleepers;
        // SAFETY: the caller's.
        if unsafe { self.nap(p) } {
            return None;
        }
        // One searcher at a time is enough on small machines, a few on big ones.
        let limit = (self.processors().len() as u32 / 4).max(1);
        if s.marks.start_searching(limit) {
            // SAFETY: the caller's.
            if let Some(r) = unsafe { self.search(p) } {
                return r;
            }
        }
        // SAFETY: the caller's.
        unsafe { self.sleep(p) }
    }

    /// Naps, if a worker is wanted to. Returns whether it did.
    ///
    /// # Safety
    /// As [`idle`](Self::idle).
    pub(super) unsafe fn nap(&self, p: &Processor) -> bool {
        // SAFETY: the caller's.
        self.limit.nap(|word, wanted| unsafe { nap(p, word, wanted) })
    }

    /// Searches with the mark held. `Some`: found (perhaps in the own queue); `None`: nothing, the mark is given back.
    unsafe fn search(&self, p: &Processor) -> Option<Option<*mut crate::thread::Thread>> {
        let s = &self.sleepers;
        let patience = p.patience.load(Ordering::Relaxed);
        let mut turns = if s.never_poll.load(Ordering::Relaxed) { 1 } else { patience.max(CROWDED) };
        let (mut turn, mut away) = (0, false);
        while turn < turns {
            let (found, unripe) = match self.take_injected(p).map_or_else(|| self.steal(p, |_| true), Ok) {
                Ok(t) => (Some(t), false),
                Err(unripe) => (None, unripe),
            };
            // SAFETY: the caller's: inside the core.
            let (n, message) = if found.is_some() { (0, false) } else { unsafe { self.poll_reactor(Some(0), || ()) } };
            if message {
                // We are the searcher that was called for.
                s.marks.message_while_searching();
            }
            // SAFETY: as above.
            if found.is_some() || n > 0 || unsafe { self.expire_all() } > 0 || p.has_work() {
                if patience > CROWDED {
                    let next = if away { CROWDED } else { (patience * 2).min(PATIENCE_MAX) };
                    p.patience.store(next, Ordering::Relaxed);
                }
                s.stop_searching(self, true);
                return Some(found);
            }
            // Who creates threads has more for us soon.
            if STACKS.ahead() {
                turn = 0;
                continue;
            }
            // A thread that may soon be ours to take is worth waiting for.
            turn += u32::from(!unripe);
            if turn < turns {
                let before = ticks();
                crate::lock::yield_cpu();
                away = ticks().wrapping_sub(before) > AWAY;
                if away {
                    turns = turn + 1; // one more look
                }
            }
        }
        if patience <= CROWDED {
            // Now and then one yield tells whether they are still there.
            if ticks() & (63 << 8) == 0 {
                p.patience.store(PATIENCE_MIN, Ordering::Relaxed);
            }
        } else if away {
            p.patience.store(CROWDED, Ordering::Relaxed);
        } else if turns > 1 {
            // Polling did not pay; poll less, but try fully now and then.
            let next = if ticks() & (15 << 8) == 0 { PATIENCE_MAX } else { patience / 2 };
            p.patience.store(next.max(PATIENCE_MIN), Ordering::Relaxed);
        }
        s.stop_searching(self, false);
        None
    }

    pub(super) unsafe fn expire_all(&self) -> usize {
        if self.next_deadline() == NEVER {
            return 0;
        }
        let now = clock::now();
        // SAFETY: the caller's: inside the core.
        self.processors().iter().map(|p| unsafe { self.expire(p, now) }).sum()
    }

    /// Sleeps until an event, a message or a deadline; returns when there may be something in the caller's queue, or a
    /// thread that it took. The mark is not held.
    unsafe fn sleep(&self, p: &Processor) -> Option<*mut crate::thread::Thread> {
        loop {
            // SAFETY: the caller's.
            let message = unsafe { self.sleep_once(p) };
            match message {
                Err(found) => return found,
                Ok(false) => return None,
                // The mark came with the message. A search that finds nothing gives it back, and then only the look in
                // `fall_asleep` sees what was pushed meanwhile: on to that, not to the run queues.
                Ok(true) => {
                    // SAFETY: the caller's.
                    if let Some(found) = unsafe { self.search(p) } {
                        return found;
                    }
                }
            }
        }
    }

    /// One sleep. `Ok`: whether a message ended it. `Err`: there was work, some of which the caller perhaps took.
    unsafe fn sleep_once(&self, p: &Processor) -> Result<bool, Option<*mut crate::thread::Thread>> {
        let s = &self.sleepers;
        p.posted.leaves();
        if !s.marks.fall_asleep(|| p.has_work() || self.any_runnable_twice()) {
            p.posted.is_back();
            // The monitor may have counted us.
            self.monitor.worker_wakes();
            let found = self.take_injected(p).or_else(|| self.steal(p, |_| true).ok());
            // Who pushed while we had a mark relied on this look: what we leave is for a sleeper.
            if found.is_some() && self.any_runnable_twice() {
                s.wake_if_needed(self, true);
            }
            return Err(found);
        }
        let deadline = self.next_deadline();
        let timeout = if deadline == NEVER { None } else { Some(deadline.saturating_sub(clock::now())) };
        s.deadline.fetch_min(deadline, Ordering::Relaxed);
        // A deadline armed between the look and the store is seen by its worker's check or by the monitor.
        let w = super::worker();
        // SAFETY: the caller's: inside the core; our own record.
        let (_, message) = unsafe {
            (*w).asleep.store(1, Ordering::Relaxed);
            // A signal that arrives before this is found by the look below; one that arrives after it is routed by the
            // handler itself, which wakes us if there is something to do.
            core::sync::atomic::compiler_fence(Ordering::SeqCst); // SeqCst: for signals on this kernel thread. pairs: worker.asleep
            let timeout = if (*w).attention.load(Ordering::Relaxed) != 0 { Some(0) } else { timeout };
            let before = ticks();
            // Awake before what it hears of is queued: else it would call a sleeper, itself, for the second thread.
            self.poll_reactor(timeout, || {
                p.posted.is_back();
                slept_since(p, before);
                s.deadline.store(NEVER, Ordering::Relaxed);
                s.marks.awake();
                self.monitor.worker_wakes();
            })
        };
        // SAFETY: as above.
        unsafe { self.expire_all() };
        Ok(message)
    }
}

/// Adds the time since `before` to what the workers of `p` have slept.
fn slept_since(p: &Processor, before: u64) {
    p.slept.store(p.slept.load(Ordering::Relaxed) + ticks().wrapping_sub(before), Ordering::Relaxed);
}

/// Sleeps while the word is `wanted`, or until a signal.
///
/// # Safety
/// On the scheduler's stack of a worker that holds `p`, whose queues are empty but for what is posted just now.
unsafe fn nap(p: &Processor, word: &AtomicU32, wanted: u32) {
    let w = super::worker();
    let before = ticks();
    p.naps.store(true, Ordering::Relaxed);
    p.posted.leaves();
    // SeqCst: either a poster sees us leave, or we see what it posted. pairs: posted.away
    fence(Ordering::SeqCst);
    // SAFETY: our own record; the word is never unmapped.
    unsafe {
        (*w).asleep.store(1, Ordering::Relaxed);
        // As in `sleep_once`: what came before is found by the look, what comes after is routed by the handler.
        core::sync::atomic::compiler_fence(Ordering::SeqCst); // SeqCst: for signals on this kernel thread. pairs: worker.asleep
        if (*w).attention.load(Ordering::Relaxed) == 0 && p.posted.is_empty() {
            sys!(l::__NR_futex, word.as_ptr(), l::FUTEX_WAIT | l::FUTEX_PRIVATE_FLAG, wanted, 0, 0, 0);
        }
        (*w).asleep.store(0, Ordering::Relaxed);
    }
    p.posted.is_back();
    p.naps.store(false, Ordering::Relaxed);
    slept_since(p, before);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn thefts_that_only_contend_become_rare() {
        let s = Sleepers::new();
        assert_eq!(s.warmth(), RIPE);
        s.judge_theft(SHORT - 1, true);
        assert_eq!(s.warmth(), 2 * RIPE, "came back to its lock at once");
        (0..100).for_each(|_| s.judge_theft(0, true));
        assert_eq!(s.warmth(), WARM_MAX, "bounded");
        s.judge_theft(SHORT, true);
        assert_eq!(s.warmth(), RIPE, "worked for a while");
        s.judge_theft(0, true);
        s.judge_theft(0, false);
        assert_eq!(s.warmth(), RIPE, "waits for something else");
    }
}
