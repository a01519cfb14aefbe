//! How many workers run: fewer than there are processors where that is measured to be faster.
//!
//! Threads that wait for descriptors and do little each time keep one worker busy. A second one that takes some of them pays
//! where its CPU has nothing else to do. Where that is the CPU of the client, it takes the client's place for a few
//! microseconds again and again, and both are slower for it. Which of the two it is cannot be seen from inside; so the monitor
//! tries both and stays with the better one: hill climbing, as in .NET's thread pool.
//!
//! # Protocol
//! 1. The monitor writes how many are to *nap* (`wanted`).
//! 2. A worker that has run out of threads takes one of these places and sleeps on the word, not in the reactor; it keeps its
//!    processor, whose queues are empty. It is not counted in `sleeping`: nobody calls it.
//! 3. The monitor changes the word and wakes all nappers, who search as if they had just become idle.
//!
//! To all others a napper is a worker that computes: what holds for the rest holds for a process with that many workers
//! less. Half of them at least never nap, so somebody takes what becomes runnable. The monitor watches as long as anybody is
//! awake, and ends all naps before it sleeps itself. That is the whole proof: a nap can be too long, but nothing waits for its end
//! but speed. Model: `models/limit.rs`.
//!
//! `docs/design/019-fewer-workers.md` has what was measured, and the rejected designs.

use crate::prim::{AtomicU32, Ordering};

/// The word that nappers sleep on, and how many do.
pub struct Limit {
    wanted: AtomicU32,
    napping: AtomicU32,
}

impl Default for Limit {
    fn default() -> Self {
        Self::new()
    }
}

impl Limit {
    /// Nobody naps.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { wanted: AtomicU32::new(0), napping: AtomicU32::new(0) }
    }
    /// Nobody naps.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { wanted: AtomicU32::new(0), napping: AtomicU32::new(0) }
    }

    /// How many workers nap, as one look tells.
    #[inline]
    pub fn napping(&self) -> u32 {
        self.napping.load(Ordering::Relaxed)
    }

    /// How many are to nap.
    #[inline]
    pub fn wanted(&self) -> u32 {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Whether fewer nap than are wanted to.
    #[inline]
    pub fn wants_more(&self) -> bool {
        self.wanted() > self.napping()
    }

    /// Back to the beginning, in a forked child.
    pub fn reset(&self) {
        self.wanted.store(0, Ordering::Relaxed);
        self.napping.store(0, Ordering::Relaxed);
    }

    /// A worker without threads: naps if one is wanted to. `sleep` blocks while the word has the value that it is given, or
    /// shorter. Returns whether it napped.
    #[inline]
    pub fn nap(&self, sleep: impl FnOnce(&AtomicU32, u32)) -> bool {
        let wanted = self.wanted();
        wanted != 0 && self.nap_among(wanted, sleep)
    }

    #[cold]
    fn nap_among(&self, wanted: u32, sleep: impl FnOnce(&AtomicU32, u32)) -> bool {
        // A count and nothing else: the word tells a late napper that its nap is over.
        let mut n = self.napping();
        loop {
            if n >= wanted {
                return false;
            }
            match self.napping.compare_exchange(n, n + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => n = now,
            }
        }
        sleep(&self.wanted, wanted);
        self.napping.fetch_sub(1, Ordering::Relaxed);
        true
    }

    /// The monitor: so many are to nap. `wake` wakes all who sleep on the word.
    pub fn set(&self, wanted: u32, wake: impl FnOnce(&AtomicU32)) {
        if wanted != self.wanted() {
            self.wanted.store(wanted, Ordering::Relaxed);
            wake(&self.wanted);
        }
    }
}

/// What the monitor sees at a look.
#[derive(Clone, Copy, Default)]
pub struct Sample {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub now: u64,
    /// Threads woken by the reactor so far.
    pub woken: u64,
    /// Switches so far.
    pub switches: u64,
    /// Waits so far by yields that found nobody else to run.
    pub waits: u64,
    /// Nanoseconds so far that workers ran, slept or napped; the rest of their time they waited for a CPU.
    pub accounted: u64,
    /// Workers.
    pub workers: u32,
    /// A thread runs for long, or many wait: no time to nap.
    pub trouble: bool,
}

/// How long all run before a trial, and how long a trial is, in nanoseconds. All: there are spells of a few milliseconds in
/// which a second worker does no harm.
const FULL: u64 = 50_000_000;
const TRIAL: u64 = 20_000_000;
/// What is not measured after a change: the kernel's scheduler, too, must see that there are fewer.
const SETTLE: u64 = 10_000_000;
/// How long some nap before it is seen again what all do, at first and at most.
const KEEP: u64 = 250_000_000;
const KEEP_MAX: u64 = 1_000_000_000;
/// How long nothing is tried after a trial that did not pay, at first and at most.
const REST: u64 = 100_000_000;
const REST_MAX: u64 = 3_200_000_000;
/// Fewer threads woken per millisecond are no load to speak of.
const LEAST: u64 = 40;
/// Nanoseconds that a thread runs at a time at most on average, with the time that it waits for a CPU.
const SHORT: u64 = 40_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// All run; nothing is tried before this time.
    Full(u64),
    /// Some nap, for comparison with this rate.
    Trial { least: u64 },
    /// Some nap until this time.
    Fewer(u64),
}

/// Decides, look by look.
pub struct Climber {
    phase: Phase,
    /// When the window began; `None`: it begins at the first look after `settled`.
    from: Option<Sample>,
    settled: u64,
    keep: u64,
    rest: u64,
}

impl Default for Climber {
    fn default() -> Self {
        Self::new()
    }
}

impl Climber {
    /// All run.
    pub fn new() -> Self {
        Self { phase: Phase::Full(0), from: None, settled: 0, keep: KEEP, rest: REST }
    }

    /// Whether it wants to know [`Sample::accounted`].
    pub fn measures(&self) -> bool {
        !self.limits()
    }

    fn limits(&self) -> bool {
        matches!(self.phase, Phase::Trial { .. } | Phase::Fewer(_))
    }

    /// What the monitor sees; returns how many are to nap from now on.
    pub fn look(&mut self, s: &Sample) -> u32 {
        self.decide(s);
        if self.limits() { (s.workers / 2).max(1).min(s.workers.saturating_sub(1)) } else { 0 }
    }

    /// All workers have been asleep for a while.
    pub fn idle(&mut self) {
        *self = Self::new();
    }

    fn decide(&mut self, s: &Sample) {
        if s.trouble && self.limits() {
            return self.give_up(s);
        }
        let Some(from) = self.from else {
            if s.now >= self.settled {
                self.from = Some(*s);
            }
            return;
        };
        let window = Window { from: &from, to: s };
        if let Phase::Trial { least } = self.phase
            && window.took() >= TRIAL / 4
            && window.rate() < least - least / 4
        {
            return self.give_up(s);
        }
        if window.took() < if self.limits() { TRIAL } else { FULL } {
            return;
        }
        self.from = Some(*s);
        match self.phase {
            Phase::Full(until) => {
                if s.now >= until && window.is_light_work() {
                    let full = window.rate();
                    // A part more, or it is chance. Where workers wait for CPUs a little less will do: the CPUs are of use to others.
                    let least = if window.waits_for_cpus() { full - full / 32 } else { full + full / 24 };
                    self.enter(Phase::Trial { least }, s);
                }
            }
            Phase::Trial { least } if window.rate() > least => {
                self.phase = Phase::Fewer(s.now + self.keep);
                self.keep = (self.keep * 2).min(KEEP_MAX);
                self.rest = REST;
            }
            Phase::Trial { .. } => self.give_up(s),
            Phase::Fewer(until) => {
                if s.now >= until {
                    self.enter(Phase::Full(0), s);
                }
            }
        }
    }

    fn give_up(&mut self, s: &Sample) {
        self.enter(Phase::Full(s.now + self.rest), s);
        self.keep = KEEP;
        self.rest = (self.rest * 2).min(REST_MAX);
    }

    fn enter(&mut self, phase: Phase, s: &Sample) {
        self.phase = phase;
        self.from = None;
        self.settled = s.now + SETTLE;
    }
}

/// What happened between two looks.
struct Window<'a> {
    from: &'a Sample,
    to: &'a Sample,
}

impl Window<'_> {
    /// Nanoseconds.
    fn took(&self) -> u64 {
        self.to.now - self.from.now
    }

    /// Threads woken per second.
    fn rate(&self) -> u64 {
        self.woken() * 1_000_000_000 / self.took()
    }

    fn woken(&self) -> u64 {
        self.to.woken.saturating_sub(self.from.woken)
    }

    /// Threads mostly wait for descriptors, and run for a short time when they get what they wait for.
    fn is_light_work(&self) -> bool {
        let switches = self.to.switches.saturating_sub(self.from.switches);
        self.woken() * 1_000_000 >= LEAST * self.took()
            && self.woken() * 2 >= switches
            && self.took() * u64::from(self.to.workers) <= SHORT * switches
    }

    /// Workers that wanted to run waited for a CPU for a good part of the time.
    fn waits_for_cpus(&self) -> bool {
        let all = self.took() * u64::from(self.to.workers);
        self.to.accounted.saturating_sub(self.from.accounted) < all - all / 8
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A load as the monitor sees it, look by look: how many threads are woken per millisecond with all workers and with
    /// fewer, how many nanoseconds of each millisecond of two workers are accounted for.
    struct Load {
        full: u64,
        fewer: u64,
        accounted: u64,
        sample: Sample,
        climber: Climber,
        napping: u32,
    }

    impl Load {
        fn new(full: u64, fewer: u64, accounted: u64) -> Self {
            let sample = Sample { now: 1_000_000_000, workers: 2, ..Sample::default() };
            Self { full, fewer, accounted, sample, climber: Climber::new(), napping: 0 }
        }

        /// Looks each half of a millisecond; returns in what part of the time one worker napped, in percent.
        fn run(&mut self, ms: u64) -> u64 {
            let mut naps = 0;
            for i in 0..2 * ms {
                let rate = if self.napping == 0 { self.full } else { self.fewer };
                self.sample.now += 500_000;
                self.sample.woken += (rate + i % 2) / 2;
                self.sample.switches += (rate + i % 2) / 2;
                self.sample.accounted += self.accounted / 2;
                self.napping = self.climber.look(&self.sample);
                naps += u64::from(self.napping);
            }
            naps * 100 / (2 * ms)
        }
    }

    const CONTENDED: u64 = 1_200_000;
    const FREE: u64 = 2_000_000;

    #[test]
    fn fewer_run_where_that_is_faster() {
        for accounted in [CONTENDED, FREE] {
            let mut load = Load::new(400, 500, accounted);
            assert!(load.run(2000) > 75);
            assert!(load.run(5000) > 90);
            load.fewer = 300; // the load is another one now
            load.run(2000);
            assert!(load.run(10_000) < 2);
        }
    }

    #[test]
    fn all_run_where_that_is_faster() {
        for accounted in [CONTENDED, FREE] {
            assert!(Load::new(400, 380, accounted).run(10_000) < 3);
            assert!(Load::new(400, 200, accounted).run(10_000) < 2, "trials that fail end early");
        }
    }

    #[test]
    fn if_it_is_all_the_same_fewer_run_where_cpus_are_wanted_by_others() {
        assert!(Load::new(400, 400, CONTENDED).run(5000) > 80);
        assert!(Load::new(400, 400, FREE).run(10_000) < 3);
    }

    #[test]
    fn nothing_is_tried_with_little_load_or_long_work() {
        assert_eq!(Load::new(30, 500, FREE).run(2000), 0, "few are woken");
        let mut load = Load::new(400, 500, FREE);
        load.sample.workers = 32; // each runs for 80 us at a time
        assert_eq!(load.run(2000), 0);
    }

    #[test]
    fn trouble_ends_a_nap_at_once() {
        let mut load = Load::new(400, 500, FREE);
        load.run(2000);
        assert_eq!(load.napping, 1);
        load.sample.trouble = true;
        load.run(1);
        assert_eq!(load.napping, 0);
        assert!(load.run(10_000) < 1, "hardly tried again for as long as there is trouble");
    }

    #[test]
    fn one_of_two_naps_at_most_half_of_many() {
        for (workers, most) in [(2, 1), (3, 1), (4, 2), (5, 2)] {
            let mut load = Load::new(4000, 5000, FREE);
            load.sample.workers = workers;
            load.run(500);
            assert_eq!(load.napping, most, "of {workers}");
        }
        let mut load = Load::new(400, 500, FREE);
        load.sample.workers = 1;
        assert_eq!(load.run(1000), 0, "somebody must run");
    }

    #[test]
    fn no_more_nap_than_are_wanted_and_none_too_late() {
        let limit = Limit::new();
        assert!(!limit.nap(|_, _| unreachable!()));
        limit.set(1, |_| ());
        let napped = limit.nap(|word, wanted| {
            assert_eq!((word.load(Ordering::Relaxed), wanted, limit.napping()), (1, 1, 1));
            assert!(!limit.nap(|_, _| unreachable!()), "there is one");
        });
        assert!(napped && limit.napping() == 0);
        let mut woken = 0;
        limit.set(0, |_| woken += 1);
        limit.set(0, |_| woken += 1);
        assert_eq!(woken, 1);
    }
}
