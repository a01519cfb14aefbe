//! A barrier: a count and the number of the round.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::futex;

/// Lets threads go on when so many have come, again and again.
#[derive(Debug)]
pub struct Barrier {
    threads: u32,
    come: AtomicU32,
    round: AtomicU32,
}

impl Barrier {
    /// For that many threads; 0 is as 1.
    pub const fn new(threads: u32) -> Self {
        Self { threads: if threads == 0 { 1 } else { threads }, come: AtomicU32::new(0), round: AtomicU32::new(0) }
    }

    /// Waits until all have come. True for one of them.
    pub fn wait(&self) -> bool {
        // Acquire: the last round has ended. pairs: barrier.round
        let round = self.round.load(Ordering::Acquire);
        // AcqRel: what each did before comes before what all do after.
        if self.come.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            // Nobody of this round comes again before the round has changed.
            self.come.store(0, Ordering::Relaxed);
            // Release: what all did before. pairs: barrier.round
            self.round.fetch_add(1, Ordering::Release);
            futex::wake(&self.round, i32::MAX);
            return true;
        }
        let mut turns = 0;
        // Acquire: what all did before is visible. pairs: barrier.round
        while self.round.load(Ordering::Acquire) == round {
            turns += 1;
            if turns < 100 { std::hint::spin_loop() } else { futex::wait(&self.round, round) }
        }
        false
    }
}
