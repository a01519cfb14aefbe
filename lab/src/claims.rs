//! Claims, and what decides them.
//!
//! A comparison of two sets of samples is decided only if both agree: the bootstrap interval of the ratio of their medians
//! lies on one side of the threshold, by at least [`MARGIN`], and the Mann-Whitney test says the same at 5 % (the second set
//! multiplied by the threshold). What is decided by less than that is undecided: two runs would not agree about it.

use serde_json::{Value, json};

use crate::machine::Machine;
use crate::stats::{self, Interval};
use crate::store::Store;

/// How far beyond a threshold an interval must lie: the drift between two runs on one machine is about that much.
pub const MARGIN: f64 = 0.03;

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
    /// The p of the Mann-Whitney test, where there was one.
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

const RATIO_TEST: &str = "bootstrap interval of the ratio of medians, and Mann-Whitney";
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

/// Samples of one figure at one point.
#[derive(Clone, Debug)]
pub struct Samples {
    /// What it is, for the evidence.
    pub label: String,
    /// The values.
    pub values: Vec<f64>,
}

/// A ratio of two sets of samples.
#[derive(Clone, Debug)]
pub struct Ratio {
    label: String,
    a: Vec<f64>,
    b: Vec<f64>,
    interval: Interval,
}

impl Ratio {
    /// The ratio of `a` to `b`.
    pub fn new(label: impl Into<String>, a: &[f64], b: &[f64]) -> Self {
        Self { label: label.into(), a: a.to_vec(), b: b.to_vec(), interval: stats::ratio_interval(a, b) }
    }

    fn p(&self, threshold: f64) -> f64 {
        let scaled: Vec<f64> = self.b.iter().map(|x| x * threshold).collect();
        stats::mann_whitney(&self.a, &scaled)
    }

    /// Surely more than `threshold`.
    pub fn above(&self, threshold: f64) -> bool {
        self.interval.low > threshold * (1.0 + MARGIN) && self.p(threshold) < 1.0 - stats::CONFIDENCE
    }

    /// Surely less than `threshold`.
    pub fn below(&self, threshold: f64) -> bool {
        self.interval.high < threshold / (1.0 + MARGIN) && self.p(threshold) < 1.0 - stats::CONFIDENCE
    }

    /// Surely between the two.
    pub fn within(&self, low: f64, high: f64) -> bool {
        self.interval.low > low && self.interval.high < high && self.a.len() >= 4 && self.b.len() >= 4
    }

    /// The estimate.
    pub fn value(&self) -> f64 {
        self.interval.value
    }

    fn figure(&self, threshold: f64) -> Figure {
        Figure { what: self.label.clone(), interval: self.interval, p: Some(self.p(threshold)) }
    }

    fn words(&self) -> String {
        let i = self.interval;
        format!("{} {} ({} to {})", self.label, short(i.value), short(i.low), short(i.high))
    }
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

/// Holds if each ratio is above the threshold; fails if one is surely below it.
pub fn all_above(ratios: &[Ratio], threshold: f64, what: &str) -> Verdict {
    let outcome = if ratios.is_empty() {
        return Verdict::not_measured(what);
    } else if ratios.iter().all(|r| r.above(threshold)) {
        Outcome::Holds
    } else if ratios.iter().any(|r| r.below(threshold)) {
        Outcome::Fails
    } else {
        Outcome::Undecided
    };
    decided(outcome, format!("{what}: each ratio must exceed {}.", short(threshold)), ratios, threshold)
}

/// Holds if each ratio is below the threshold; fails if one is surely above it.
pub fn all_below(ratios: &[Ratio], threshold: f64, what: &str) -> Verdict {
    let outcome = if ratios.is_empty() {
        return Verdict::not_measured(what);
    } else if ratios.iter().all(|r| r.below(threshold)) {
        Outcome::Holds
    } else if ratios.iter().any(|r| r.above(threshold)) {
        Outcome::Fails
    } else {
        Outcome::Undecided
    };
    decided(outcome, format!("{what}: each ratio must be below {}.", short(threshold)), ratios, threshold)
}

/// Holds if a ratio is above the threshold; fails if all are surely below it.
pub fn any_above(ratios: &[Ratio], threshold: f64, what: &str) -> Verdict {
    let outcome = if ratios.is_empty() {
        return Verdict::not_measured(what);
    } else if ratios.iter().any(|r| r.above(threshold)) {
        Outcome::Holds
    } else if ratios.iter().all(|r| r.below(threshold)) {
        Outcome::Fails
    } else {
        Outcome::Undecided
    };
    decided(outcome, format!("{what}: one ratio must exceed {}.", short(threshold)), ratios, threshold)
}

/// Holds if each ratio is within the bounds; fails if one is surely outside.
pub fn all_within(ratios: &[Ratio], low: f64, high: f64, what: &str) -> Verdict {
    let outcome = if ratios.is_empty() {
        return Verdict::not_measured(what);
    } else if ratios.iter().all(|r| r.within(low, high)) {
        Outcome::Holds
    } else if ratios.iter().any(|r| r.above(high) || r.below(low)) {
        Outcome::Fails
    } else {
        Outcome::Undecided
    };
    decided(outcome, format!("{what}: each ratio must lie between {} and {}.", short(low), short(high)), ratios, 1.0)
}

/// Holds if in most of the pairs the ratio is above 1, ties left out, by Wilson's interval of the share.
pub fn mostly_above(ratios: &[Ratio], share: f64, what: &str) -> Verdict {
    let clear: Vec<&Ratio> = ratios.iter().filter(|r| r.above(1.0) || r.below(1.0)).collect();
    let wins = clear.iter().filter(|r| r.value() > 1.0).count();
    let interval = stats::wilson(wins, clear.len());
    let outcome = if ratios.is_empty() {
        return Verdict::not_measured(what);
    } else if interval.low > share {
        Outcome::Holds
    } else if interval.high < share || (clear.is_empty() && ratios.iter().all(|r| r.within(0.9, 1.1))) {
        Outcome::Fails
    } else {
        Outcome::Undecided
    };
    Verdict {
        outcome,
        evidence: format!(
            "{what}: {wins} of {} pairs that differ clearly, {} pairs in all; the share must exceed {} ({} to {}).",
            clear.len(),
            ratios.len(),
            short(share),
            short(interval.low),
            short(interval.high)
        ),
        test: "Wilson's interval of a share; each pair by bootstrap and Mann-Whitney",
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
        let b = [1.0, 1.02, 0.98, 1.01, 0.99];
        let a: Vec<f64> = b.iter().map(|x| x * by).collect();
        Ratio::new("r", &a, &b)
    }

    #[test]
    fn clear_differences_are_decided() {
        assert_eq!(all_above(&[ratio(2.0), ratio(1.5)], 1.0, "").outcome, Outcome::Holds);
        assert_eq!(all_above(&[ratio(2.0), ratio(0.8)], 1.0, "").outcome, Outcome::Fails);
        assert_eq!(any_above(&[ratio(2.0), ratio(0.8)], 1.0, "").outcome, Outcome::Holds);
        assert_eq!(any_above(&[ratio(0.7), ratio(0.8)], 1.0, "").outcome, Outcome::Fails);
        assert_eq!(all_within(&[ratio(1.0), ratio(1.05)], 0.9, 1.15, "").outcome, Outcome::Holds);
        assert_eq!(all_within(&[ratio(1.0), ratio(1.5)], 0.9, 1.15, "").outcome, Outcome::Fails);
    }

    #[test]
    fn small_differences_and_few_samples_are_not() {
        assert_eq!(all_above(&[ratio(1.02)], 1.0, "").outcome, Outcome::Undecided);
        let few = Ratio::new("r", &[2.0, 2.1, 2.2], &[1.0, 1.1, 1.2]);
        assert_eq!(all_above(&[few], 1.0, "").outcome, Outcome::Undecided);
        let mixed = Ratio::new("r", &[1.0, 2.0, 1.1, 1.9, 1.2], &[1.0, 2.1, 1.1, 1.9, 1.2]);
        assert_eq!(all_above(std::slice::from_ref(&mixed), 1.0, "").outcome, Outcome::Undecided);
        assert_eq!(all_within(&[mixed], 0.9, 1.1, "").outcome, Outcome::Undecided);
    }

    #[test]
    fn nothing_measured_is_undecided_and_says_so() {
        for verdict in [all_above(&[], 1.0, "x"), any_above(&[], 1.0, "x"), all_within(&[], 0.9, 1.1, "x")] {
            assert_eq!(verdict.outcome, Outcome::Undecided);
            assert!(verdict.evidence.starts_with("not measured"));
        }
    }

    #[test]
    fn shares_of_pairs() {
        let twenty = vec![ratio(2.0); 20];
        assert_eq!(mostly_above(&twenty, 0.5, "").outcome, Outcome::Holds);
        let half: Vec<Ratio> = (0..20).map(|i| ratio(if i % 2 == 0 { 2.0 } else { 0.5 })).collect();
        assert_eq!(mostly_above(&half, 0.5, "").outcome, Outcome::Undecided);
        assert_eq!(mostly_above(&vec![ratio(0.5); 20], 0.5, "").outcome, Outcome::Fails);
        assert_eq!(mostly_above(&vec![ratio(1.0); 20], 0.5, "").outcome, Outcome::Fails, "all equal: no majority");
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
