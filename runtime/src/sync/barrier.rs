//! A barrier: how many have come and the number of the round, in one word, whose upper half is waited on.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::cancel::{Limit, WaitError};
use crate::futex;

/// Lets threads go on when so many have come, again and again.
#[derive(Debug)]
#[repr(C)] // without a gap: the C interface writes it down word by word
pub struct Barrier {
    threads: u32,
    _unused: u32,
    word: AtomicU64,
}

/// Looks before a thread parks.
const TURNS: u32 = 100;

const fn round_of(word: u64) -> u32 {
    (word >> 32) as u32
}

const fn come_of(word: u64) -> u32 {
    word as u32
}

const fn word_of(round: u32, come: u32) -> u64 {
    (round as u64) << 32 | come as u64
}

impl Barrier {
    /// For that many threads; 0 is as 1.
    pub const fn new(threads: u32) -> Self {
        Self { threads: if threads == 0 { 1 } else { threads }, _unused: 0, word: AtomicU64::new(0) }
    }

    /// Waits until all have come. True for one of them.
    pub fn wait(&self) -> bool {
        // Without a limit all come.
        self.wait_until(Limit::NEVER).unwrap_or(false)
    }

    /// As [`wait`](Self::wait), but until the limit at most. Who gives up is not counted any more: the others wait for one
    /// more to come.
    pub fn wait_until<'l>(&self, limit: impl Into<Limit<'l>>) -> Result<bool, WaitError> {
        let mut now = self.word.load(Ordering::Relaxed);
        let round = loop {
            let (round, come) = (round_of(now), come_of(now) + 1);
            let all = come == self.threads;
            let next = if all { word_of(round.wrapping_add(1), 0) } else { word_of(round, come) };
            // AcqRel: what each did before comes before what all do after. pairs: barrier.word
            match self.word.compare_exchange_weak(now, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if all => {
                    futex::wake(self.round(), i32::MAX);
                    return Ok(true);
                }
                Ok(_) => break round,
                Err(other) => now = other,
            }
        };
        let limit = limit.into();
        let mut turns = 0;
        // Acquire: what all did before is visible. pairs: barrier.word
        while round_of(self.word.load(Ordering::Acquire)) == round {
            turns += 1;
            if turns < TURNS {
                std::hint::spin_loop();
            } else if let Err(why) = futex::wait_within(self.round(), round, &limit)
                && self.give_up(round)
            {
                return Err(why);
            }
        }
        Ok(false)
    }

    /// Takes the caller out of the count. False: the round is over.
    #[cold]
    fn give_up(&self, round: u32) -> bool {
        let mut now = self.word.load(Ordering::Relaxed);
        while round_of(now) == round {
            match self.word.compare_exchange(now, now - 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        false
    }

    /// The half of the word that has the round (x86 has the lower half first). Only system calls read it by itself.
    fn round(&self) -> &AtomicU32 {
        // SAFETY: half of a word of ours, aligned to four bytes.
        unsafe { &*(&raw const self.word).cast::<AtomicU32>().add(1) }
    }
}
