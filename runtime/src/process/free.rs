//! A stack of free blocks, without a lock: each block's first word names the one under it.
//!
//! Push and pop are one compare-and-swap each, so whoever is killed has done it or has not. The head holds the number of
//! the topmost block and counts the changes: who has read which block is under the topmost one, and comes late, finds
//! another count, even if the same block is topmost again with another under it. The count has 28 bits: it would
//! take 268 million changes between a load and the swap of one thread to deceive it.

use crate::prim::{AtomicU64, Ordering};

/// A head: the block's number in the low bits, how often it was changed in the high ones.
const NUMBER_BITS: u32 = 36;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;

/// The stack. Zero is an empty one.
#[derive(Debug)]
#[repr(transparent)]
pub struct Free(AtomicU64);

impl Free {
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Takes the topmost block. `below` leads from a block's number to its first word, which may be anything by then if
    /// the block was taken by somebody else.
    pub fn pop<'a>(&self, below: impl Fn(u64) -> &'a AtomicU64) -> Option<u64> {
        // Acquire: the topmost block's word was written before. pairs: arena.free
        let mut head = self.0.load(Ordering::Acquire);
        while head & NUMBER != 0 {
            let next = below(head & NUMBER).load(Ordering::Relaxed) & NUMBER;
            // Acquire: as above, also for another try; and what the block's last owner did. pairs: arena.free
            match self.0.compare_exchange(head, changed(head, next), Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(head & NUMBER),
                Err(now) => head = now,
            }
        }
        None
    }

    /// Puts a block on top.
    pub fn push<'a>(&self, number: u64, below: impl Fn(u64) -> &'a AtomicU64) {
        let mut head = self.0.load(Ordering::Relaxed);
        loop {
            below(number).store(head & NUMBER, Ordering::Relaxed);
            // Release: that word, and what we did with the block. Later pops of blocks below it find theirs because each
            // change of the head, being one, continues this release. pairs: arena.free
            match self.0.compare_exchange(head, changed(head, number), Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

fn changed(head: u64, number: u64) -> u64 {
    ((head >> NUMBER_BITS) + 1) << NUMBER_BITS | number
}
