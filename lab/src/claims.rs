//! Claims, and what decides them.
//!
//! Two figures are compared round by round: what disturbed the machine in a round disturbed both. The estimate is the trimmed
//! mean of the rounds' ratios, its interval a bootstrap's. A ratio is on one side of a threshold if its interval is, by
//! [`MARGIN`] at least, if five of six rounds are, and if the signed-rank test agrees; otherwise it is undecided, since two runs
//! would not agree about it. "More" is more by [`RELEVANT`] at least: it is refuted by what is surely less than that. Where one of
//! many ratios decides, its interval is that much wider (Bonferroni), or more of them must say so than chance would make, or their
//! mean says it of one of them.

use serde_json::{Value, json};

use crate::machine::Machine;
pub use crate::ratio::{MARGIN, Ratio};
use crate::stats::{self, Interval};
use crate::store::Store;

/// Where a claim says only "more" or "faster", it means more by this: a ratio that is surely within it refutes the claim.
pub const RELEVANT: f64 = 0.05;

/// A paper's claim.
pub struct Claim {
    /// Its number.
    pub id: &'static str,
    /// What it says, in our words.
    pub says: &'static str,
    /// What decides it.
    pub rule: fn(&View) -> Verdict,
}

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It holds here.
    Holds,
    /// It does not hold here.
    Fails,
    /// The samples do not decide it.
    Undecided,
    /// This machine cannot test it.
    Untestable,
}

impl Outcome {
    /// As in `report.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Fails => "does-not-hold",
            Self::Undecided => "undecided",
            Self::Untestable => "cannot-be-tested",
        }
    }

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Holds => "holds here",
            Self::Fails => "does not hold here",
            Self::Undecided => "undecided",
            Self::Untestable => "cannot be tested here",
        }
    }
}

/// A figure that decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What it is.
    pub what: String,
    /// Its value and interval.
    pub interval: Interval,
    /// The p of the signed-rank test, where there was one.
    pub p: Option<f64>,
}

/// A verdict and what it rests on.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// What became of the claim.
    pub outcome: Outcome,
    /// Why, in a sentence.
    pub evidence: String,
    /// Which test.
    pub test: &'static str,
    /// At which confidence, if a test was made.
    pub confidence: Option<f64>,
    /// The figures.
    pub figures: Vec<Figure>,
}

const RATIO_TEST: &str = "bootstrap interval of the ratio, round by round, and signed-rank test";
const NO_TEST: &str = "none";

impl Verdict {
    /// Nothing was measured.
    pub fn not_measured(why: impl AsRef<str>) -> Self {
        Self::untested(Outcome::Undecided, format!("not measured: {}", why.as_ref()))
    }

    /// This machine cannot tell.
    pub fn cannot(why: impl Into<String>) -> Self {
        Self::untested(Outcome::Untestable, why.into())
    }

    fn untested(outcome: Outcome, evidence: String) -> Self {
        Self { outcome, evidence, test: NO_TEST, confidence: None, figures: Vec::new() }
    }

    /// What was counted, not timed: it is the same each time.
    pub fn counted(holds: bool, evidence: impl Into<String>) -> Self {
        let outcome = if holds { Outcome::Holds } else { Outcome::Fails };
        Self { test: "counted, the same in each repetition", ..Self::untested(outcome, evidence.into()) }
    }

    /// Adds a sentence to the evidence.
    pub fn and(mut self, more: impl AsRef<str>) -> Self {
        self.evidence = format!("{} {}", self.evidence, more.as_ref());
        self
    }

    /// As JSON.
    pub fn to_json(&self, claim: &Claim, experiment: &str) -> Value {
        let figures: Vec<Value> = self
            .figures
            .iter()
            .map(|f| json!({"what": f.what, "value": f.interval.value, "low": f.interval.low, "high": f.interval.high, "p": f.p}))
            .collect();
        json!({
            "id": claim.id, "says": claim.says, "experiment": experiment, "verdict": self.outcome.name(),
            "evidence": self.evidence, "test": self.test, "confidence": self.confidence, "figures": figures,
        })
    }
}

/// Where a claim says "more than once", the interval must lie on one side of [`RELEVANT`] more: a ratio above 1 by less would be
/// more in one run, and in the next surely not so much more. Other thresholds have [`MARGIN`] on both sides.
fn bounds(threshold: f64) -> (f64, f64) {
    let relevant = 1.0 + RELEVANT;
    if threshold == 1.0 { (relevant * (1.0 + MARGIN), relevant / (1.0 + MARGIN)) } else { (threshold, threshold) }
}

/// Surely more than the threshold, as one of so many ratios.
fn more(ratio: &Ratio, threshold: f64, of: usize) -> bool {
    ratio.is_above(bounds(threshold).1, of)
}

/// Surely not more than the threshold.
fn not_more(ratio: &Ratio, threshold: f64, of: usize) -> bool {
    ratio.is_below(bounds(threshold).0, of)
}

/// Surely less than the threshold.
fn less(ratio: &Ratio, threshold: f64, of: usize) -> bool {
    ratio.is_below(if threshold == 1.0 { 1.0 / bounds(1.0).1 } else { threshold }, of)
}

/// Surely not less than the threshold.
fn not_less(ratio: &Ratio, threshold: f64, of: usize) -> bool {
    ratio.is_above(if threshold == 1.0 { 1.0 / bounds(1.0).0 } else { threshold }, of)
}

/// Whether one of the ratios is surely as `is` says: one by itself; or so many are, each by itself, that chance hardly makes as
/// many; or their geometric mean is, as it can be only if one of them is.
fn one_of(ratios: &[Ratio], is: impl Fn(&Ratio, usize) -> bool) -> bool {
    let all = ratios.len();
    let alone = ratios.iter().filter(|r| is(r, 1)).count();
    let tail = (1.0 - stats::CONFIDENCE) / 2.0;
    ratios.iter().any(|r| is(r, all))
        || alone > 0 && stats::at_least(alone, all, tail) < 1.0 - stats::CONFIDENCE
        || Ratio::pooled("", ratios).is_some_and(|mean| is(&mean, 1))
}

/// A number with three digits that matter.
pub fn short(x: f64) -> String {
    if !x.is_finite() {
        return "?".to_owned();
    }
    let size = x.abs();
    if size == 0.0 {
        "0".to_owned()
    } else if size >= 100.0 {
        format!("{x:.0}")
    } else if size >= 10.0 {
        format!("{x:.1}")
    } else if size >= 0.1 {
        format!("{x:.2}")
    } else {
        let digits = (-size.log10()).ceil() as usize + 1;
        format!("{x:.digits$}")
    }
}

/// What rules see.
pub struct View<'a> {
    /// The samples.
    pub store: &'a Store,
}

impl View<'_> {
    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.store.machine
    }

    /// CPUs, as a number of tasks.
    pub fn cpus(&self) -> f64 {
        self.store.machine.cpus as f64
    }

    /// A figure's values at a point, if there are any.
    pub fn get(&self, experiment: &str, series: &str, x: f64, metric: &str) -> Option<Vec<f64>> {
        let values = self.store.values(experiment, series, x, metric);
        (!values.is_empty()).then_some(values)
    }

    /// The ratio of one figure of two series at the same place.
    pub fn ratio(&self, experiment: &str, metric: &str, a: &str, b: &str, x: f64) -> Option<Ratio> {
        let label = format!("{a}/{b} at {x}:");
        Some(Ratio::new(label, &self.get(experiment, a, x, metric)?, &self.get(experiment, b, x, metric)?))
    }

    /// The ratio of one figure of a series at two places.
    pub fn growth(&self, experiment: &str, metric: &str, series: &str, to: f64, from: f64) -> Option<Ratio> {
        let label = format!("{series} at {to} / at {from}:");
        let (a, b) = (self.get(experiment, series, to, metric)?, self.get(experiment, series, from, metric)?);
        Some(Ratio::new(label, &a, &b))
    }

    /// The ratios of two series wherever both have points.
    pub fn ratios(&self, experiment: &str, metric: &str, a: &str, b: &str) -> Vec<Ratio> {
        let xs = self.store.xs(experiment, a);
        xs.into_iter().filter_map(|x| self.ratio(experiment, metric, a, b, x)).collect()
    }

    /// Why an experiment, or part of it, was not measured.
    pub fn why_not(&self, experiment: &str) -> String {
        let here = |s: &&crate::store::Sample| s.experiment == experiment;
        let absent: Vec<&str> =
            self.store.absent.iter().filter(|(id, _)| id == experiment).map(|(_, why)| why.as_str()).collect();
        if self.store.samples.iter().filter(here).count() == 0 {
            format!("{experiment} has not been run")
        } else if let Some(s) = self.store.samples.iter().filter(here).find(|s| s.failure.is_some()) {
            format!("{} at {} failed: {}", s.series, s.x, s.failure.as_deref().unwrap_or_default())
        } else if absent.is_empty() {
            format!("{experiment} was run without the points that decide it")
        } else {
            format!("{experiment} was run without the points that decide it ({})", absent.join("; "))
        }
    }
}

fn decided(outcome: Outcome, lead: String, ratios: &[Ratio], threshold: f64) -> Verdict {
    let words: Vec<String> = ratios.iter().map(Ratio::words).collect();
    Verdict {
        outcome,
        evidence: format!("{lead} {}", words.join("; ")),
        test: RATIO_TEST,
        confidence: Some(stats::CONFIDENCE),
        figures: ratios.iter().map(|r| r.figure(threshold)).collect(),
    }
}

/// A threshold for people.
fn limit(threshold: f64) -> String {
    let by = if threshold == 1.0 { format!(" by {:.0} %", 100.0 * RELEVANT) } else { String::new() };
    format!("{}{by}", short(threshold))
}

/// Holds if each ratio is above the threshold; fails if one surely is not.
pub fn all_above(ratios: &[Ratio], threshold: f64, what: &str) -> Verdict {
    let outcome = if ratios.is_empty() {
        return Verdict::not_measured(what);
    } else if ratios.iter().all(|r| more(r, threshold, 1)) {
        Outcome::Holds
    } else if one_of(ratios, |r, of| not_more(r, threshold, of)) {
        Outcome::Fails
    } else {
        Outcome::Undecided
    };
    decided(outcome, format!("{what}: each ratio must exceed {}.", limit(threshold)), ratios, threshold)
}

/// Holds if each ratio is below the threshold; fails if one surely is not.
pub fn all_below(ratios: &[Ratio], threshold: f64, what: &str) -> Verdict {
    let outcome = if ratios.is_empty() {
        return Verdict::not_measured(what);
    } else if ratios.iter().all(|r| less(r, threshold, 1)) {
        Outcome::Holds
    } else if one_of(ratios, |r, of| not_less(r, threshold, of)) {
        Outcome::Fails
    } else {
        Outcome::Undecided
    };
    decided(outcome, format!("{what}: each ratio must be below {}.", limit(threshold)), ratios, threshold)
}

/// Holds if a ratio is above the threshold; fails if surely none is.
pub fn any_above(ratios: &[Ratio], threshold: f64, what: &str) -> Verdict {
    let outcome = if ratios.is_empty() {
        return Verdict::not_measured(what);
    } else if one_of(ratios, |r, of| more(r, threshold, of)) {
        Outcome::Holds
    } else if ratios.iter().all(|r| not_more(r, threshold, 1)) {
        Outcome::Fails
    } else {
        Outcome::Undecided
    };
    decided(outcome, format!("{what}: one ratio must exceed {}.", limit(threshold)), ratios, threshold)
}

/// Holds if each ratio is within the bounds; fails if one is surely outside.
pub fn all_within(ratios: &[Ratio], low: f64, high: f64, what: &str) -> Verdict {
    let outcome = if ratios.is_empty() {
        return Verdict::not_measured(what);
    } else if ratios.iter().all(|r| r.within(low, high)) {
        Outcome::Holds
    } else if one_of(ratios, |r, of| r.is_above(high, of)) || one_of(ratios, |r, of| r.is_below(low, of)) {
        Outcome::Fails
    } else {
        Outcome::Undecided
    };
    decided(outcome, format!("{what}: each ratio must lie between {} and {}.", short(low), short(high)), ratios, 1.0)
}

/// Holds if more than that share of the ratios are above 1, whatever those are that are not decided; fails if not so many can
/// be. The points are all there are, as in the paper's counts, and no sample of others.
pub fn mostly_above(ratios: &[Ratio], share: f64, what: &str) -> Verdict {
    if ratios.is_empty() {
        return Verdict::not_measured(what);
    }
    let all = ratios.len();
    let wins = ratios.iter().filter(|r| more(r, 1.0, 1)).count();
    let others = ratios.iter().filter(|r| not_more(r, 1.0, 1)).count();
    let part = |n: usize| n as f64 / all as f64;
    let interval = Interval {
        value: part(ratios.iter().filter(|r| r.value() > 1.0).count()),
        low: part(wins),
        high: part(all - others),
    };
    let outcome = if interval.low > share {
        Outcome::Holds
    } else if interval.high <= share {
        Outcome::Fails
    } else {
        Outcome::Undecided
    };
    Verdict {
        outcome,
        evidence: format!(
            "{what}: surely in {wins} of {all} pairs, surely not (or by less than {:.0} %) in {others}; the share must exceed {}.",
            100.0 * RELEVANT,
            short(share)
        ),
        test: "count of pairs; each by bootstrap interval of the ratio, round by round, and signed-rank test",
        confidence: Some(stats::CONFIDENCE),
        figures: vec![Figure { what: "share".to_owned(), interval, p: None }],
    }
}

/// Holds if all hold; fails if one fails; cannot be tested if one cannot be.
pub fn all_of(parts: &[Verdict]) -> Verdict {
    let has = |outcome: Outcome| parts.iter().any(|part| part.outcome == outcome);
    let outcome = [Outcome::Fails, Outcome::Undecided, Outcome::Untestable]
        .into_iter()
        .find(|&outcome| has(outcome))
        .unwrap_or(Outcome::Holds);
    let tested = parts.iter().find(|part| part.confidence.is_some());
    Verdict {
        outcome,
        evidence: parts.iter().map(|part| part.evidence.as_str()).collect::<Vec<_>>().join(" And: "),
        test: tested.or(parts.first()).map_or(NO_TEST, |part| part.test),
        confidence: tested.and_then(|part| part.confidence),
        figures: parts.iter().flat_map(|part| part.figures.clone()).collect(),
    }
}

/// A small machine can refute what is said of many CPUs, not confirm it: what holds here cannot be tested here.
pub fn refutable(verdict: Verdict, why: &str) -> Verdict {
    match verdict.outcome {
        Outcome::Holds | Outcome::Untestable | Outcome::Undecided => {
            let evidence = format!("{why} As far as it can be seen here: {}", verdict.evidence);
            Verdict { outcome: Outcome::Untestable, evidence, ..verdict }
        }
        Outcome::Fails => verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(by: f64) -> Ratio {
        let b = [1.0, 1.02, 0.98, 1.01, 0.99, 1.005, 0.995];
        let a: Vec<f64> = b.iter().rev().map(|x| x * by).collect();
        Ratio::new("r", &a, &b)
    }

    fn noisy() -> Ratio {
        Ratio::new("r", &[0.8, 1.25, 0.85, 1.3, 0.95, 1.15, 1.0], &[1.0; 7])
    }

    #[test]
    fn clear_differences_are_decided() {
        assert_eq!(all_above(&[ratio(2.0), ratio(1.5)], 1.0, "").outcome, Outcome::Holds);
        assert_eq!(all_above(&[ratio(2.0), ratio(0.8)], 1.0, "").outcome, Outcome::Fails);
        assert_eq!(all_below(&[ratio(0.5), ratio(0.8)], 1.0, "").outcome, Outcome::Holds);
        assert_eq!(all_below(&[ratio(0.5), ratio(1.5)], 1.0, "").outcome, Outcome::Fails);
        assert_eq!(any_above(&[ratio(2.0), ratio(0.8)], 1.0, "").outcome, Outcome::Holds);
        assert_eq!(any_above(&[ratio(0.7), ratio(0.8)], 1.0, "").outcome, Outcome::Fails);
        assert_eq!(all_within(&[ratio(1.0), ratio(1.05)], 0.9, 1.15, "").outcome, Outcome::Holds);
        assert_eq!(all_within(&[ratio(1.0), ratio(1.5)], 0.9, 1.15, "").outcome, Outcome::Fails);
    }

    #[test]
    fn equal_figures_refute_more() {
        assert_eq!(all_above(&[ratio(1.0)], 1.0, "").outcome, Outcome::Fails);
        assert_eq!(any_above(&[ratio(1.0), ratio(0.99)], 1.0, "").outcome, Outcome::Fails);
        assert_eq!(all_below(&[ratio(1.0)], 1.0, "").outcome, Outcome::Fails);
    }

    #[test]
    fn small_differences_and_few_samples_are_not() {
        assert_eq!(all_above(&[noisy()], 1.0, "").outcome, Outcome::Undecided);
        assert_eq!(all_below(&[noisy()], 1.0, "").outcome, Outcome::Undecided);
        assert_eq!(all_above(&[ratio(1.2)], 1.2, "").outcome, Outcome::Undecided);
        let few = Ratio::new("r", &[2.0, 2.1, 2.2, 2.1, 2.0], &[1.0, 1.1, 1.2, 1.0, 1.1]);
        assert_eq!(all_above(&[few], 1.0, "").outcome, Outcome::Undecided);
        let few = Ratio::new("r", &[1.0; 5], &[1.0; 5]);
        assert_eq!(all_within(&[few], 0.9, 1.1, "").outcome, Outcome::Undecided);
        let mixed = Ratio::new("r", &[1.0, 2.0, 1.1, 1.9, 1.2, 1.0], &[1.1, 1.0, 2.1, 1.1, 1.9, 1.2]);
        assert_eq!(all_above(std::slice::from_ref(&mixed), 1.0, "").outcome, Outcome::Undecided);
        assert_eq!(all_within(&[mixed], 0.9, 1.1, "").outcome, Outcome::Undecided);
    }

    #[test]
    fn what_disturbs_a_round_disturbs_both() {
        // A machine that becomes ten times slower: unpaired, a tenth more would not be seen.
        let drift: Vec<f64> = (1..=10).map(f64::from).collect();
        let more: Vec<f64> = drift.iter().enumerate().map(|(i, x)| x * (1.1 + i as f64 * 0.001)).collect();
        assert_eq!(all_above(&[Ratio::new("r", &more, &drift)], 1.0, "").outcome, Outcome::Holds);
        // One round in which only one of them was disturbed.
        let mut odd = drift.clone();
        odd[4] *= 30.0;
        assert_eq!(all_within(&[Ratio::new("r", &odd, &drift)], 0.9, 1.1, "").outcome, Outcome::Holds);
    }

    #[test]
    fn pooled_ratios_are_less_noisy() {
        let noise = [1.1, 0.9, 1.1, 0.9, 1.1, 0.9, 1.1, 0.9];
        let a = Ratio::new("a", &noise, &[1.0; 8]);
        let b = Ratio::new("b", &[1.0; 8], &noise);
        assert_eq!(all_within(&[a.clone(), b.clone()], 0.95, 1.05, "").outcome, Outcome::Undecided);
        let pooled = Ratio::pooled("both", &[a, b]).unwrap();
        assert_eq!(all_within(&[pooled], 0.95, 1.05, "").outcome, Outcome::Holds);
        assert!(Ratio::pooled("none", &[]).is_none());
    }

    #[test]
    fn several_of_many_say_what_one_alone_may_not() {
        // Each is just sure by itself, and not as one of twenty.
        let weak = || Ratio::new("r", &[0.93, 0.955, 0.945, 0.965, 0.95, 0.96, 0.94], &[1.0; 7]);
        let threshold = 0.98;
        assert!(weak().below(threshold), "{:?}", weak().interval(1));
        let equal = || ratio(1.2);
        let mut many: Vec<Ratio> = (0..19).map(|_| equal()).collect();
        many.push(weak());
        let alone = many[19].is_below(threshold, 20);
        many.extend([weak(), weak()]);
        assert_eq!(all_above(&many, threshold, "").outcome, Outcome::Fails);
        assert!(!alone || weak().interval(20).high < threshold / (1.0 + MARGIN));
    }

    #[test]
    fn differences_may_be_negative() {
        let rest = Ratio::new("r", &[-1.0, 1.0, -2.0, 2.0, 0.5, -0.5, 1.0], &[10.0; 7]);
        assert_eq!(all_below(&[rest], 0.5, "").outcome, Outcome::Holds);
    }

    #[test]
    fn one_of_many_needs_more_than_one_alone() {
        // Seven rounds, just beyond the threshold: enough for one comparison, and for one of fifty not.
        let b = [1.0; 7];
        let a = [1.02, 1.12, 1.15, 1.18, 1.2, 1.22, 1.3];
        let one = Ratio::new("r", &a, &b);
        assert_eq!(any_above(std::slice::from_ref(&one), 1.1, "").outcome, Outcome::Undecided);
        let sure = Ratio::new("r", &[1.13, 1.14, 1.15, 1.16, 1.17, 1.18, 1.2], &b);
        assert!(sure.is_above(1.1, 1) && sure.interval(50).low < sure.interval(1).low);
        assert!(one.interval(50).low < one.interval(1).low && one.interval(50).high > one.interval(1).high);
    }

    /// Rounds as a machine gives them that is in one of two states: each has its ratio, and `share` is how often it is in the
    /// first. Every round differs from its state's by up to `noise`.
    fn rounds(random: &mut stats::Random, states: [f64; 2], share: f64, noise: f64) -> Ratio {
        let mut unit = || random.draw() as f64 / u64::MAX as f64;
        let mut round = || {
            let state = if unit() < share { states[0] } else { states[1] };
            state * (1.0 + noise * (2.0 * unit() - 1.0))
        };
        let a: Vec<f64> = (0..12).map(|_| round()).collect();
        Ratio::new("r", &a, &[1.0; 12])
    }

    /// What the rules say of one sample, with a threshold of 1 and another.
    fn outcomes(r: &Ratio, threshold: f64) -> [Outcome; 7] {
        let one = std::slice::from_ref(r);
        [
            all_above(one, threshold, "").outcome,
            all_below(one, threshold, "").outcome,
            any_above(one, threshold, "").outcome,
            all_within(one, 0.8, threshold, "").outcome,
            all_above(one, 1.0, "").outcome,
            all_below(one, 1.0, "").outcome,
            mostly_above(one, 0.5, "").outcome,
        ]
    }

    fn never_opposite(states: [f64; 2], share: f64, noise: f64, random: &mut stats::Random) {
        let threshold = 1.2;
        let (a, b) = (rounds(random, states, share, noise), rounds(random, states, share, noise));
        for (rule, (x, y)) in outcomes(&a, threshold).into_iter().zip(outcomes(&b, threshold)).enumerate() {
            let opposite = matches!((x, y), (Outcome::Holds, Outcome::Fails) | (Outcome::Fails, Outcome::Holds));
            assert!(
                !opposite,
                "rule {rule}: {x:?} and {y:?} of {states:?}, {share}, {noise}:\n{}\n{}",
                a.words(),
                b.words()
            );
        }
    }

    #[test]
    fn two_runs_of_a_machine_with_two_states_are_never_opposite() {
        let mut random = stats::Random(3);
        for tenths in 1..=9 {
            for _ in 0..5 {
                never_opposite([1.0, 1.6], f64::from(tenths) / 10.0, 0.05, &mut random);
                never_opposite([0.8, 1.25], f64::from(tenths) / 10.0, 0.02, &mut random);
            }
        }
    }

    #[test]
    fn two_runs_near_a_threshold_are_never_opposite() {
        let mut random = stats::Random(4);
        for hundredths in [95, 97, 98, 100, 102, 103, 105, 107, 118, 120, 122] {
            let ratio = f64::from(hundredths) / 100.0;
            for noise in [0.005, 0.03, 0.2] {
                for _ in 0..3 {
                    never_opposite([ratio; 2], 1.0, noise, &mut random);
                }
            }
        }
    }

    #[test]
    fn a_state_of_some_rounds_leaves_it_open() {
        let with = |others: usize| {
            let mut a = [1.3, 1.31, 1.32, 1.33, 1.34, 1.35, 1.36, 1.37, 1.38, 1.39, 1.4, 1.41];
            a[..others].fill(1.18);
            all_above(&[Ratio::new("r", &a, &[1.0; 12])], 1.2, "").outcome
        };
        assert_eq!(with(2), Outcome::Holds);
        assert_eq!(with(3), Outcome::Undecided);
    }

    #[test]
    fn what_hardly_counts_is_neither_more_nor_less() {
        let of = |by: f64| all_above(&[ratio(by)], 1.0, "").outcome;
        assert_eq!([of(1.1), of(1.05), of(1.02)], [Outcome::Holds, Outcome::Undecided, Outcome::Fails]);
        let of = |by: f64| all_below(&[ratio(1.0 / by)], 1.0, "").outcome;
        assert_eq!([of(1.1), of(1.05), of(1.02)], [Outcome::Holds, Outcome::Undecided, Outcome::Fails]);
    }

    #[test]
    fn all_together_refute_what_is_said_of_each() {
        // None of them is sure by itself; if each were more than the threshold, their mean would be.
        let b = [1.0; 8];
        let noise = [1.25, 0.75, 1.2, 0.8, 1.22, 0.78, 1.18, 0.82];
        let all: Vec<Ratio> = (0..8)
            .map(|i| {
                let a: Vec<f64> = (0..8).map(|round| 0.9 * noise[(round + i) % 8]).collect();
                Ratio::new("r", &a, &b)
            })
            .collect();
        assert_eq!(all_above(&all[..1], 1.0, "").outcome, Outcome::Undecided);
        assert_eq!(all_above(&all, 1.0, "").outcome, Outcome::Fails);
        assert_eq!(all_below(&all[..1], 1.0, "").outcome, Outcome::Undecided);
        assert_eq!(
            all_below(&all, 1.0, "").outcome,
            Outcome::Undecided,
            "that their mean is less says nothing of each"
        );
    }

    #[test]
    fn nothing_measured_is_undecided_and_says_so() {
        for verdict in [
            all_above(&[], 1.0, "x"),
            all_below(&[], 1.0, "x"),
            any_above(&[], 1.0, "x"),
            all_within(&[], 0.9, 1.1, "x"),
            mostly_above(&[], 0.5, "x"),
        ] {
            assert_eq!(verdict.outcome, Outcome::Undecided);
            assert!(verdict.evidence.starts_with("not measured"));
        }
        assert_eq!(all_above(&[Ratio::new("r", &[], &[])], 1.0, "").outcome, Outcome::Undecided);
    }

    #[test]
    fn shares_of_pairs() {
        let with = |wins: usize, open: usize, all: usize| {
            let ratio = |i| match i {
                i if i < wins => ratio(2.0),
                i if i < wins + open => noisy(),
                _ => ratio(0.99),
            };
            mostly_above(&(0..all).map(ratio).collect::<Vec<_>>(), 0.5, "").outcome
        };
        assert_eq!(with(11, 0, 20), Outcome::Holds);
        assert_eq!(with(10, 0, 20), Outcome::Fails, "a half is not most");
        assert_eq!(with(10, 1, 20), Outcome::Undecided);
        assert_eq!(with(0, 9, 20), Outcome::Fails);
    }

    #[test]
    fn parts_make_a_whole() {
        let (yes, no) = (Verdict::counted(true, "a"), Verdict::counted(false, "b"));
        let (open, cannot) = (Verdict::not_measured("c"), Verdict::cannot("d"));
        assert_eq!(all_of(&[yes.clone(), yes.clone()]).outcome, Outcome::Holds);
        assert_eq!(all_of(&[yes.clone(), open.clone(), no.clone()]).outcome, Outcome::Fails);
        assert_eq!(all_of(&[yes.clone(), open, cannot.clone()]).outcome, Outcome::Undecided);
        assert_eq!(all_of(&[yes.clone(), cannot]).outcome, Outcome::Untestable);
        assert_eq!(refutable(yes, "few CPUs.").outcome, Outcome::Untestable);
        assert_eq!(refutable(no, "few CPUs.").outcome, Outcome::Fails);
    }

    #[test]
    fn numbers_for_people() {
        let cases =
            [(0.0, "0"), (1234.5, "1234"), (123.4, "123"), (12.34, "12.3"), (1.234, "1.23"), (0.01234, "0.012")];
        for (number, text) in cases {
            assert_eq!(short(number), text);
        }
    }
}
