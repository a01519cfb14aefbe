//! Counters of what the scheduler did; one set per processor, added up when asked.

use core::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// One processor's counters.
        #[derive(Default)]
        #[repr(align(64))]
        pub struct Counters { $($(#[$doc])* pub $name: Counter),* }

        /// A sum of counters.
        #[derive(Default, Clone, Copy, Debug)]
        pub struct Sum { $($(#[$doc])* pub $name: u64),* }

        impl Sum {
            /// Adds one processor's counters.
            pub fn add(&mut self, c: &Counters) { $(self.$name += c.$name.get();)* }
        }
    };
}

counters! {
    /// Threads created.
    created,
    /// Times a worker switched to a thread.
    switches,
    /// Times a thread parked.
    parks,
    /// Times a worker took threads from another's queue.
    steals,
    /// Times a processor was taken from a worker stuck in the kernel.
    hand_offs,
    /// Threads woken by the reactor.
    reactor_wakes,
    /// Threads switched away from because their slice was over.
    preemptions,
    /// Times an idle worker was woken.
    notifications,
}

/// A counter that one kernel thread at a time adds to.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Not an atomic addition: only the processor's worker of the moment calls it.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }
    /// The value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
