//! How many workers nap because their threads do little but wait for each other, by yielding.
//!
//! Two threads that pass something to and fro, and yield until it has come (`while (!flag) sched_yield();`), keep two workers
//! busy. But what they wait for most of the time is cache lines on their way from one CPU to the other. On one worker each
//! yield is a switch to the thread that is waited for, and the lines stay where they are.
//!
//! If the threads of all workers are in yields that find nobody else to run for a part of their time (`Spin::alone_for`), it is
//! tried how it goes with fewer: whoever yields alone next leaves its thread to the others and naps (`limit.rs`,
//! `turns::step_aside`). There each yield is a switch, and the end of a wait if it was one for a thread of ours. With all workers
//! a wait is some yields with little between them (`Spin::waits`). If there are more switches and waits with fewer workers than with all,
//! more waits have ended in the same time.

use super::limit::Sample;

/// The part of its time, in thousandths, that each worker's threads must have yielded alone.
const EACH: u64 = 125;
/// How long all are measured, and how long fewer, in nanoseconds.
const WINDOW: u64 = 1_000_000;
/// What is not measured after a change.
const SETTLE: u64 = 300_000;
/// How long some nap before it is seen again what all do, at first and at most, in nanoseconds.
const KEEP: u64 = 50_000_000;
const KEEP_MAX: u64 = 1_000_000_000;
/// How long nothing is tried after a trial that did not pay, at first and at most, in nanoseconds.
const REST: u64 = 50_000_000;
const REST_MAX: u64 = 3_200_000_000;

/// What a look shows of the yields since the last one.
#[derive(Clone, Copy)]
pub struct Alone {
    /// `arch::ticks` of the look.
    pub now: u64,
    workers: u32,
    least: u64,
}

impl Alone {
    /// Of no worker yet.
    pub fn new(now: u64) -> Self {
        Self { now, workers: 0, least: u64::MAX }
    }

    /// The threads of one worker, which does not nap, have yielded alone for so many ticks.
    pub fn add(&mut self, ticks: u64) {
        self.workers += 1;
        self.least = self.least.min(ticks);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// All run.
    Full,
    /// Some nap, to see whether there are more waits per second than that.
    Trial(u64),
    /// Some nap until that time.
    Fewer { until: u64, least: u64 },
}

/// Decides, look by look.
pub struct Spinning {
    last: u64,
    phase: Phase,
    /// When the window began, and the waits until then.
    from: Option<(u64, u64)>,
    /// Nothing is measured before that time.
    settled: u64,
    keep: u64,
    rest: u64,
}

impl Spinning {
    /// All run. `now`: `arch::ticks`.
    pub fn new(now: u64) -> Self {
        Self { last: now, phase: Phase::Full, from: None, settled: 0, keep: KEEP, rest: REST }
    }

    /// All workers have been asleep for a while.
    pub fn idle(&mut self) {
        *self = Self::new(self.last);
    }

    /// Whether the next look should come soon.
    pub fn is_measuring(&self) -> bool {
        self.from.is_some() && !matches!(self.phase, Phase::Fewer { .. })
    }

    /// What the monitor sees; returns how many are to nap from now on.
    pub fn look(&mut self, alone: &Alone, s: &Sample) -> u32 {
        let took = alone.now.wrapping_sub(core::mem::replace(&mut self.last, alone.now));
        let waiting = alone.workers == s.workers && alone.least >= took / 1000 * EACH;
        self.decide(waiting, s);
        if self.phase == Phase::Full { 0 } else { s.workers / 2 }
    }

    fn decide(&mut self, waiting: bool, s: &Sample) {
        let waits = s.switches + s.waits;
        if s.now < self.settled {
            return;
        }
        if self.phase == Phase::Full && !waiting {
            self.from = None;
            return;
        }
        if self.phase != Phase::Full && s.trouble {
            return self.give_up(s);
        }
        let Some((since, before)) = self.from else {
            self.from = Some((s.now, waits));
            return;
        };
        if s.now - since < WINDOW {
            return;
        }
        let rate = waits.saturating_sub(before) * 1_000_000_000 / (s.now - since);
        self.from = Some((s.now, waits));
        match self.phase {
            Phase::Full => self.enter(Phase::Trial(rate + rate / 16), s.now + SETTLE),
            Phase::Trial(least) if rate > least => {
                self.phase = Phase::Fewer { until: s.now + self.keep, least: least / 2 };
                self.keep = (self.keep * 2).min(KEEP_MAX);
                self.rest = REST;
            }
            Phase::Fewer { until, least } if rate > least => {
                if s.now >= until {
                    self.enter(Phase::Full, s.now + SETTLE);
                }
            }
            _ => self.give_up(s),
        }
    }

    fn give_up(&mut self, s: &Sample) {
        self.enter(Phase::Full, s.now + self.rest);
        self.keep = KEEP;
        self.rest = (self.rest * 2).min(REST_MAX);
    }

    fn enter(&mut self, phase: Phase, settled: u64) {
        self.phase = phase;
        self.from = None;
        self.settled = settled;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Threads of two workers: what part of their time each yields alone, in thousandths, and how many waits there are in a
    /// millisecond with all and with fewer.
    struct Load {
        alone: [u64; 2],
        full: u64,
        fewer: u64,
        sample: Sample,
        spinning: Spinning,
        napping: u32,
    }

    /// Ticks in half a millisecond.
    const TICKS: u64 = 1_000_000;

    impl Load {
        fn new(alone: [u64; 2], full: u64, fewer: u64) -> Self {
            let sample = Sample { now: 1_000_000_000, workers: 2, ..Sample::default() };
            Self { alone, full, fewer, sample, spinning: Spinning::new(0), napping: 0 }
        }

        /// Looks each half of a millisecond; returns in what part of the time one worker napped, in percent.
        fn run(&mut self, ms: u64) -> u64 {
            let mut naps = 0;
            for _ in 0..2 * ms {
                let mut alone = Alone::new(self.spinning.last + TICKS);
                self.sample.now += 500_000;
                if self.napping == 0 {
                    self.sample.waits += self.full / 2;
                    self.alone.iter().for_each(|part| alone.add(part * TICKS / 1000));
                } else {
                    self.sample.switches += self.fewer / 2;
                    alone.add(0);
                }
                self.napping = self.spinning.look(&alone, &self.sample);
                naps += u64::from(self.napping);
            }
            naps * 100 / (2 * ms)
        }
    }

    #[test]
    fn threads_that_pass_something_to_and_fro_share_a_worker() {
        let mut load = Load::new([400, 500], 4000, 12_000);
        assert!(load.run(40) > 75, "soon");
        assert!(load.run(10_000) > 98);
        load.fewer = 1000; // now each works for long before it yields
        load.run(1000);
        assert!(load.run(10_000) < 2);
    }

    #[test]
    fn threads_that_work_between_yields_keep_their_workers() {
        assert!(Load::new([250, 250], 2000, 1900).run(10_000) < 2);
        assert!(Load::new([250, 250], 2000, 2100).run(10_000) < 2, "a part more, or it is chance");
    }

    #[test]
    fn nothing_is_tried_while_one_of_them_works() {
        assert_eq!(Load::new([1000, 100], 4000, 12_000).run(1000), 0);
        assert_eq!(Load::new([0, 0], 4000, 12_000).run(1000), 0);
    }

    #[test]
    fn trouble_ends_a_nap_at_once() {
        let mut load = Load::new([500, 500], 4000, 12_000);
        load.run(20);
        assert_eq!(load.napping, 1);
        load.sample.trouble = true;
        load.run(1);
        assert_eq!(load.napping, 0);
        assert!(load.run(10_000) < 2, "hardly tried again for as long as there is trouble");
    }

    #[test]
    fn nobody_naps_while_a_worker_sleeps_or_naps_already() {
        let mut spinning = Spinning::new(0);
        let mut sample = Sample { workers: 4, ..Sample::default() };
        for look in 1..1000 {
            let mut alone = Alone::new(look * TICKS);
            (0..3).for_each(|_| alone.add(TICKS));
            sample.now += 500_000;
            sample.waits += 10_000;
            assert_eq!(spinning.look(&alone, &sample), 0);
        }
    }
}
