//! The ratio of two figures, round by round.

use crate::claims::{Figure, short};
use crate::stats::{self, Interval};

/// How far beyond a threshold an interval must lie: two runs on one machine differ by about that much.
pub const MARGIN: f64 = 0.02;

/// The part of the rounds that must by themselves be on the side of a threshold that decides. A machine, or a program, that is in
/// one of two states may be more often in the other one during the next run: a state that a fifth of the rounds met counts.
const MOST: f64 = 5.0 / 6.0;

/// The ratio of two figures that were measured in the same rounds.
#[derive(Clone, Debug)]
pub struct Ratio {
    label: String,
    /// Each round's ratio: its logarithm, if all have one.
    rounds: Vec<f64>,
    logarithms: bool,
    /// The trimmed mean in resamples, in order.
    means: Vec<f64>,
}

impl Ratio {
    /// The ratio of `a` to `b`; both have a value for each round.
    pub fn new(label: impl Into<String>, a: &[f64], b: &[f64]) -> Self {
        let ratios = || a.iter().zip(b).map(|(a, b)| a / b);
        let logarithms = ratios().all(|r| r > 0.0);
        let rounds: Vec<f64> = ratios().map(|r| if logarithms { r.ln() } else { r }).collect();
        let means = stats::resampled_means(&rounds);
        Self { label: label.into(), rounds, logarithms, means }
    }

    fn to_ratio(&self, x: f64) -> f64 {
        if self.logarithms { x.exp() } else { x }
    }

    fn p(&self, threshold: f64) -> f64 {
        let threshold = if self.logarithms { threshold.ln() } else { threshold };
        let differences: Vec<f64> = self.rounds.iter().map(|r| r - threshold).collect();
        stats::signed_rank(&differences)
    }

    /// The interval that is right for one of `of` ratios.
    pub fn interval(&self, of: usize) -> Interval {
        let tail = (1.0 - stats::CONFIDENCE) / 2.0 / of as f64;
        let end = |q| self.to_ratio(stats::quantile(&self.means, q));
        Interval { value: self.value(), low: end(tail), high: end(1.0 - tail) }
    }

    /// Surely more than `threshold`, as one of so many ratios.
    pub fn is_above(&self, threshold: f64, of: usize) -> bool {
        self.interval(of).low > threshold * (1.0 + MARGIN)
            && self.p(threshold) < 1.0 - stats::CONFIDENCE
            && self.most(|ratio| ratio > threshold)
    }

    /// Surely less than `threshold`, as one of so many ratios.
    pub fn is_below(&self, threshold: f64, of: usize) -> bool {
        self.interval(of).high < threshold / (1.0 + MARGIN)
            && self.p(threshold) < 1.0 - stats::CONFIDENCE
            && self.most(|ratio| ratio < threshold)
    }

    /// Whether so many single rounds say so as [`MOST`] wants.
    fn most(&self, says: impl Fn(f64) -> bool) -> bool {
        let such = self.rounds.iter().filter(|r| says(self.to_ratio(**r))).count();
        such as f64 >= MOST * self.rounds.len() as f64
    }

    /// Surely more than `threshold`.
    pub fn above(&self, threshold: f64) -> bool {
        self.is_above(threshold, 1)
    }

    /// Surely less than `threshold`.
    pub fn below(&self, threshold: f64) -> bool {
        self.is_below(threshold, 1)
    }

    /// Surely between the two.
    pub fn within(&self, low: f64, high: f64) -> bool {
        let interval = self.interval(1);
        interval.low > low && interval.high < high && self.rounds.len() >= LEAST_FOR_EQUAL
    }

    /// Several ratios of the same rounds as one: round by round their geometric mean. Points that ask the same question are less
    /// noisy together. None where there is no such mean.
    pub fn pooled(label: impl Into<String>, ratios: &[Self]) -> Option<Self> {
        if ratios.iter().any(|r| !r.logarithms) {
            return None;
        }
        let rounds = ratios.iter().map(|r| r.rounds.len()).min()?;
        let mean = |i: usize| ratios.iter().map(|r| r.rounds[i]).sum::<f64>() / ratios.len() as f64;
        let values: Vec<f64> = (0..rounds).map(|i| mean(i).exp()).collect();
        Some(Self::new(label, &values, &vec![1.0; rounds]))
    }

    /// The estimate.
    pub fn value(&self) -> f64 {
        self.to_ratio(stats::trimmed_mean(&self.rounds))
    }

    /// For the verdict.
    pub fn figure(&self, threshold: f64) -> Figure {
        Figure { what: self.label.clone(), interval: self.interval(1), p: Some(self.p(threshold)) }
    }

    /// For the evidence.
    pub fn words(&self) -> String {
        let i = self.interval(1);
        format!("{} {} ({} to {})", self.label, short(i.value), short(i.low), short(i.high))
    }
}

/// With fewer rounds than this, that two figures are equal cannot be said: the test that goes with a difference could not have
/// found one.
const LEAST_FOR_EQUAL: usize = 6;
