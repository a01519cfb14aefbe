//! A counter with a part for each CPU.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::PerWorker;

/// A counter that many threads count with and few read. [`add`](Self::add) touches a line that only threads of the same CPU
/// touch; [`sum`](Self::sum) reads all.
///
/// It wraps around at 2^64. Negative amounts may be taken with [`sub`](Self::sub); the sum is right whichever thread takes.
///
/// ```
/// let counter = heddle::shard::ShardedCounter::new();
/// heddle::for_each(0..100, |i| counter.add(i as u64));
/// assert_eq!(counter.sum(), 4950);
/// ```
#[derive(Default)]
pub struct ShardedCounter {
    parts: OnceLock<PerWorker<AtomicU64>>,
}

impl ShardedCounter {
    /// At 0. The parts are allocated when it is first counted with.
    pub const fn new() -> Self {
        Self { parts: OnceLock::new() }
    }

    /// Counts.
    #[doc(alias("increment", "inc"))]
    #[inline]
    pub fn add(&self, n: u64) {
        self.parts.get_or_init(PerWorker::default).get().fetch_add(n, Ordering::Relaxed);
    }

    /// Counts back.
    #[inline]
    pub fn sub(&self, n: u64) {
        self.add(n.wrapping_neg());
    }

    /// The sum. What others count meanwhile may be in it or not; what happened before the call is.
    #[doc(alias("load", "get", "value"))]
    pub fn sum(&self) -> u64 {
        let Some(parts) = self.parts.get() else { return 0 };
        parts.combine(0, |sum: u64, part| sum.wrapping_add(part.load(Ordering::Relaxed)))
    }

    /// The sum, and begins again at 0: each count is in one answer.
    pub fn take(&self) -> u64 {
        let Some(parts) = self.parts.get() else { return 0 };
        parts.combine(0, |sum: u64, part| sum.wrapping_add(part.swap(0, Ordering::Relaxed)))
    }
}

impl fmt::Debug for ShardedCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ShardedCounter").field(&self.sum()).finish()
    }
}
