//! A histogram with a part for each CPU.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::PerWorker;

/// Each power of two is divided into so many buckets, as a power of two: values are kept to within 1/16.
const BITS: u32 = 4;
const PER_POWER: usize = 1 << BITS;
/// Values up to 31 are kept as they are; then 16 buckets for each power of two up to 2^64.
const BUCKETS: usize = (64 - BITS as usize + 1) * PER_POWER;

fn bucket(value: u64) -> usize {
    let power = (64 - value.leading_zeros()).saturating_sub(BITS + 1);
    power as usize * PER_POWER + (value >> power) as usize
}

/// The least value of a bucket.
fn least(bucket: usize) -> u64 {
    let power = (bucket / PER_POWER).saturating_sub(1);
    ((bucket - power * PER_POWER) as u64) << power
}

/// How often which values occurred: latencies in nanoseconds, sizes in bytes. A value is kept to within 1/16 of itself. Recording
/// touches lines that only threads of the same CPU touch.
///
/// It takes 8 KiB for each CPU.
///
/// ```
/// let latencies = heddle::shard::Histogram::new();
/// (1..=1000).for_each(|ns| latencies.record(ns));
/// let seen = latencies.snapshot();
/// assert_eq!(seen.count(), 1000);
/// assert!((470..=500).contains(&seen.quantile(0.5)));
/// ```
pub struct Histogram {
    parts: PerWorker<Box<[AtomicU64]>>,
}

impl Histogram {
    /// An empty one.
    pub fn new() -> Self {
        // A line more than needed: the parts' ends must not meet in one.
        Self { parts: PerWorker::new(|| (0..BUCKETS + super::LINE / 8).map(|_| AtomicU64::new(0)).collect()) }
    }

    /// Counts a value.
    #[inline]
    pub fn record(&self, value: u64) {
        self.parts.get()[bucket(value)].fetch_add(1, Ordering::Relaxed);
    }

    /// What has been counted up to now.
    pub fn snapshot(&self) -> Snapshot {
        let mut counts = vec![0u64; BUCKETS];
        for part in self.parts.iter() {
            for (sum, count) in counts.iter_mut().zip(part) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
        Snapshot { counts }
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.snapshot().fmt(f)
    }
}

/// What a [`Histogram`] had counted.
#[derive(Clone, PartialEq, Eq)]
pub struct Snapshot {
    counts: Vec<u64>,
}

impl Snapshot {
    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The value that so much of them (0 to 1) do not exceed, to within 1/16 downwards; 0 if there are none.
    pub fn quantile(&self, part: f64) -> u64 {
        let rank = (part.clamp(0.0, 1.0) * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (i, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return least(i);
            }
        }
        0
    }

    /// The least value of each bucket that is not empty, and how many there are.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.counts.iter().enumerate().filter(|(_, count)| **count != 0).map(|(i, count)| (least(i), *count))
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.buckets()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_their_values() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1 << shift) + (1 << shift) / 3, (1u64 << shift).wrapping_sub(1), u64::MAX] {
                let floor = least(bucket(value));
                assert!(floor <= value && value - floor <= value / 16, "{value}: {floor}");
            }
        }
        assert!(bucket(u64::MAX) < BUCKETS);
        assert_eq!((0..40).map(|v| least(bucket(v))).take(33).collect::<Vec<_>>(), (0..33).collect::<Vec<_>>());
    }

    #[test]
    fn quantiles() {
        let histogram = Histogram::new();
        assert_eq!(histogram.snapshot().quantile(0.5), 0);
        for value in [1, 2, 3, 1_000_000] {
            histogram.record(value);
        }
        let seen = histogram.snapshot();
        assert_eq!([seen.quantile(0.0), seen.quantile(0.5), seen.quantile(0.75)], [1, 2, 3]);
        assert!((940_000..=1_000_000).contains(&seen.quantile(1.0)));
        assert_eq!(seen.buckets().map(|(_, n)| n).sum::<u64>(), 4);
    }
}
