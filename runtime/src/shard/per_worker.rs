//! A value for each CPU.

use std::fmt;

use super::PaddedSlice;
use super::machine::{cpu, cpus};

/// A value for each place where a thread can run at a time, each on lines of its own; combined when it is read.
///
/// A thread gets the value of the CPU that runs it. It may be moved, also between asking and using, and others may then run
/// where it was: so what it gets is shared, and is to be changed by atomic means. It is just seldom contended.
///
/// The number of values is that of the machine's CPUs, in every mode: workers run on CPUs, and so do the threads that are
/// none of Heddle's.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
///
/// let bytes = heddle::shard::PerWorker::new(|| AtomicU64::new(0));
/// bytes.get().fetch_add(1500, Relaxed);
/// assert_eq!(bytes.iter().map(|part| part.load(Relaxed)).sum::<u64>(), 1500);
/// ```
pub struct PerWorker<T> {
    slots: PaddedSlice<T>,
}

impl<T> PerWorker<T> {
    /// Makes the values, one after the other.
    pub fn new(mut f: impl FnMut() -> T) -> Self {
        Self { slots: PaddedSlice::from_fn(cpus().next_power_of_two(), |_| f()) }
    }

    /// The value of the place where the caller runs.
    #[doc(alias("with", "local"))]
    #[inline]
    pub fn get(&self) -> &T {
        &self.slots[cpu() & (self.slots.len() - 1)]
    }

    /// All of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> + DoubleEndedIterator {
        self.slots.iter()
    }

    /// All of them, to be changed.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut T> + DoubleEndedIterator {
        self.slots.iter_mut()
    }

    /// Combines all of them.
    pub fn combine<A>(&self, start: A, f: impl FnMut(A, &T) -> A) -> A {
        self.iter().fold(start, f)
    }
}

impl<T: Default> Default for PerWorker<T> {
    fn default() -> Self {
        Self::new(T::default)
    }
}

impl<T: fmt::Debug> fmt::Debug for PerWorker<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
