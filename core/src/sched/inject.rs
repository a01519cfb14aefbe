//! The injection queue: threads that any worker may take, in three lists, each oldest first.

use super::{Processor, Runtime};
use crate::arch;
use crate::lock::SpinLock;
use crate::thread::Thread;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Why a thread is in the injection queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// Something happened that it waited for, noticed by a kernel thread that holds no processor.
    Woken,
    /// A ring ran over, its worker lost its processor, or it stepped behind those that wait for descriptors.
    LeftOver,
    /// It ran until others had to have their turn.
    Preempted,
}

/// The queue.
pub(super) struct Injection {
    lists: SpinLock<Lists>,
    len: AtomicUsize,
    /// How many of them were woken.
    woken: AtomicUsize,
    /// How many of them were preempted.
    preempted: AtomicUsize,
}

struct Lists {
    woken: List,
    left_over: List,
    preempted: List,
}

/// Threads linked by `next`, oldest first.
struct List {
    head: *mut Thread,
    tail: *mut Thread,
}

impl List {
    const NONE: Self = Self { head: core::ptr::null_mut(), tail: core::ptr::null_mut() };

    /// # Safety
    /// The thread is in no list.
    unsafe fn push(&mut self, thread: *mut Thread) {
        // SAFETY: the caller's; listed threads are ours to link.
        unsafe {
            (*thread).next.store(core::ptr::null_mut(), Ordering::Relaxed);
            if self.tail.is_null() {
                self.head = thread;
            } else {
                (*self.tail).next.store(thread, Ordering::Relaxed);
            }
        }
        self.tail = thread;
    }

    fn pop(&mut self) -> Option<*mut Thread> {
        let t = self.head;
        if t.is_null() {
            return None;
        }
        // SAFETY: listed threads are control blocks, linked by whoever has the list.
        self.head = unsafe { (*t).next.load(Ordering::Relaxed) };
        if self.head.is_null() {
            self.tail = core::ptr::null_mut();
        }
        Some(t)
    }
}

// SAFETY: reached only under the lock.
unsafe impl Send for Lists {}

impl Injection {
    /// Empty.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            lists: SpinLock::new(Lists::NONE),
            len: AtomicUsize::new(0),
            woken: AtomicUsize::new(0),
            preempted: AtomicUsize::new(0),
        }
    }

    /// How many wait here, as one look tells.
    #[inline]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many of them were woken.
    #[inline]
    pub fn woken(&self) -> usize {
        self.woken.load(Ordering::Relaxed)
    }

    /// In a forked child: empty.
    ///
    /// # Safety
    /// No other thread uses it.
    pub unsafe fn reset(&self) {
        // SAFETY: the caller's.
        unsafe { self.lists.force_unlock() };
        *self.lists.lock() = Lists::NONE;
        for count in [&self.len, &self.woken, &self.preempted] {
            count.store(0, Ordering::Relaxed);
        }
    }

    /// # Safety
    /// `thread` is runnable and in no queue.
    unsafe fn push(&self, thread: *mut Thread, why: Why) {
        let mut lists = self.lists.lock();
        // SAFETY: the caller's.
        unsafe { lists.of(why).push(thread) };
        self.len.fetch_add(1, Ordering::Relaxed);
        self.counted(why).map(|count| count.fetch_add(1, Ordering::Relaxed));
    }

    fn unlink(&self, lists: &mut Lists, why: Why) -> Option<*mut Thread> {
        let t = lists.of(why).pop()?;
        self.len.fetch_sub(1, Ordering::Relaxed);
        self.counted(why).map(|count| count.fetch_sub(1, Ordering::Relaxed));
        Some(t)
    }

    fn counted(&self, why: Why) -> Option<&AtomicUsize> {
        match why {
            Why::Woken => Some(&self.woken),
            Why::LeftOver => None,
            Why::Preempted => Some(&self.preempted),
        }
    }
}

impl Lists {
    const NONE: Self = Self { woken: List::NONE, left_over: List::NONE, preempted: List::NONE };

    fn of(&mut self, why: Why) -> &mut List {
        match why {
            Why::Woken => &mut self.woken,
            Why::LeftOver => &mut self.left_over,
            Why::Preempted => &mut self.preempted,
        }
    }
}

impl Runtime {
    /// Puts a thread in the queue that all workers look at.
    ///
    /// # Safety
    /// `thread` is runnable and in no queue.
    pub unsafe fn inject(&self, thread: *mut Thread, why: Why) {
        // SAFETY: the caller's.
        unsafe { self.injection.push(thread, why) };
        self.sleepers.pushed();
        self.sleepers.wake_if_needed(self, true);
    }

    /// How many threads wait in the queue that all workers look at.
    pub fn injected(&self) -> usize {
        self.injection.len()
    }

    /// Takes the oldest injected thread that was woken.
    pub(super) fn take_woken(&self) -> Option<*mut Thread> {
        let q = &self.injection;
        if q.woken() == 0 { None } else { q.unlink(&mut q.lists.lock(), Why::Woken) }
    }

    /// Takes one injected thread that was not preempted; moves some more to the queue of `p`.
    pub(super) fn take_waiting(&self, p: &Processor) -> Option<*mut Thread> {
        let q = &self.injection;
        if q.len() <= q.preempted.load(Ordering::Relaxed) {
            return None;
        }
        let mut lists = q.lists.lock();
        let here = q.len().saturating_sub(q.preempted.load(Ordering::Relaxed));
        let share = (here / self.processors().len() + 1).min(64);
        let mut first = None;
        for i in 0..share {
            if i > 0 && p.queue.len() >= crate::runq::CAPACITY / 2 {
                break;
            }
            // Woken ones first, but not always: others must get on however many are woken.
            let turn = p.tick.load(Ordering::Relaxed) as usize / 64 + i;
            let order = if turn % 4 == 3 { [Why::LeftOver, Why::Woken] } else { [Why::Woken, Why::LeftOver] };
            let Some(t) = order.into_iter().find_map(|why| q.unlink(&mut lists, why)) else { break };
            if first.is_none() {
                first = Some(t);
            } else if p.queue.push(t).is_err() {
                unreachable!("half of the ring was free and only the owner pushes");
            }
        }
        first
    }

    /// Takes the oldest thread that was preempted. One, since it runs for long.
    pub(super) fn take_preempted(&self, p: &Processor) -> Option<*mut Thread> {
        let q = &self.injection;
        if q.preempted.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let t = q.unlink(&mut q.lists.lock(), Why::Preempted)?;
        p.computing.begins(p.tick.load(Ordering::Relaxed), arch::ticks());
        Some(t)
    }

    /// Takes one injected thread, of whichever kind; perhaps moves others to the queue of `p`.
    pub(super) fn take_injected(&self, p: &Processor) -> Option<*mut Thread> {
        if self.injection.is_empty() {
            return None;
        }
        self.take_waiting(p).or_else(|| self.take_preempted(p))
    }

    /// Whether a thread that was preempted is to run on `p` now though others wait there; see [`Computing`].
    pub(super) fn preempted_are_due(&self, p: &Processor) -> bool {
        self.injection.preempted.load(Ordering::Relaxed) != 0 && p.computing.is_due(arch::ticks())
    }
}

/// How a processor divides its time between threads that compute, which are preempted, and those that wait now and then: turn
/// and turn about, each as long as the last turn of the computing one was.
///
/// *Rejected:* one of the preempted at every so many switches. Of threads that wake each other a hundred switches take 10 us,
/// and a slice of one that computes 250 times that: pairs beside computing threads had half a percent of the CPUs, where the
/// kernel gives them their share.
#[derive(Default)]
pub(super) struct Computing {
    /// When the last turn of a computing thread began (`arch::ticks`). Written by the worker that holds the processor, as all.
    since: AtomicU64,
    /// The processor's `tick` in that turn.
    tick: AtomicU32,
    /// When the next one is due.
    due: AtomicU64,
}

/// The longest turn that is answered by one of the same length, in ticks: about 3 ms.
const LONGEST: u64 = 1 << 23;

impl Computing {
    /// The next to run is a computing thread: the switch to it adds one to the tick.
    fn begins(&self, tick: u32, now: u64) {
        self.tick.store(tick.wrapping_add(1), Ordering::Relaxed);
        self.since.store(now, Ordering::Relaxed);
    }

    /// The running thread is preempted. If this was not a turn of the computing ones it puts off no turn of theirs: else they
    /// would wait for as long as others are preempted now and then.
    pub fn ends(&self, tick: u32, now: u64) {
        if self.tick.load(Ordering::Relaxed) == tick {
            let ran = now.wrapping_sub(self.since.load(Ordering::Relaxed)).min(LONGEST);
            self.due.store(now.wrapping_add(ran), Ordering::Relaxed);
        }
    }

    /// Those that wait do nothing but yield.
    pub fn is_due_now(&self) {
        self.due.store(0, Ordering::Relaxed);
    }

    fn is_due(&self, now: u64) -> bool {
        let due = self.due.load(Ordering::Relaxed);
        due == 0 || now.wrapping_sub(due) as i64 >= 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_answered_by_one_of_the_same_length() {
        let c = Computing::default();
        assert!(c.is_due(1000), "nobody has had a turn");
        c.begins(7, 1000);
        c.ends(8, 1500);
        assert!(!c.is_due(1999) && c.is_due(2000));
        c.begins(9, 10_000);
        c.ends(10, 10_000 + 2 * LONGEST);
        assert!(c.is_due(10_000 + 3 * LONGEST), "bounded");
        c.is_due_now();
        assert!(c.is_due(0));
    }

    /// Each preemption put the turn of those that had been preempted before off, of threads in the ring too.
    #[test]
    fn those_that_are_preempted_in_the_others_turn_put_nothing_off() {
        let c = Computing::default();
        c.begins(7, 1000);
        c.ends(8, 1500);
        c.ends(20, 1900);
        assert!(c.is_due(2000));
    }
}
