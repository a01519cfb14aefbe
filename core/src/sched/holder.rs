//! Who may use a processor while its worker is in the kernel: the state word of the hand-off, apart from what it is used
//! with, so that loom can check it (`models::hand_off`).
//!
//! # Protocol
//! 1. The worker that holds a processor *enters* the kernel: `RUNNING -> its own address`.
//! 2. The monitor, or the worker itself once it has entered, may *take* the processor away: `address -> RUNNING`, and gives
//!    it to a spare or new worker. If there is none to be had it puts the address *back in place*. If the worker has come
//!    back meanwhile, and found the processor gone, the mark is of nobody in the kernel: it is there to be taken.
//! 3. The worker comes *back*: `its own address -> RUNNING`. If that fails the processor is another's.
//!
//! Steps 2 and 3 are exchanges of the same value, so exactly one succeeds. The mark is the worker's address and not a
//! flag: after a hand-off the new holder may itself be in the kernel when the old one comes back, which must not take its
//! successor's mark for its own.

use crate::prim::{AtomicU32, AtomicUsize, Ordering};

const RUNNING: usize = 0;

/// The state word, and how many calls were begun.
pub struct Holder {
    mark: AtomicUsize,
    calls: AtomicU32,
}

impl Default for Holder {
    fn default() -> Self {
        Self::new()
    }
}

impl Holder {
    /// The holder is not in the kernel.
    pub fn new() -> Self {
        Self { mark: AtomicUsize::new(RUNNING), calls: AtomicU32::new(0) }
    }

    /// Whether the holder is inside a system call that may block, and how many were begun, modulo 2^32. Two looks that find
    /// it inside, and as many begun, find one call that has lasted from one to the other.
    #[inline]
    pub fn call(&self) -> (bool, u32) {
        // Acquire: the number is that of this call or a later one. pairs: processor.state
        let inside = self.mark.load(Ordering::Acquire) != RUNNING;
        (inside, self.calls.load(Ordering::Relaxed))
    }

    /// The holder, known by the address `worker`, enters the kernel.
    #[inline]
    pub fn enter(&self, worker: usize) {
        // Who holds the processor writes this, nobody else.
        self.calls.store(self.calls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        // Release: the monitor that takes the processor away sees the queue as we left it. pairs: processor.state
        self.mark.store(worker, Ordering::Release);
    }

    /// The worker that entered comes back. Returns whether the processor is still its own.
    #[must_use]
    #[inline]
    pub fn back(&self, worker: usize) -> bool {
        // Acquire: nothing that needs the processor is done before it is known to be ours. pairs: processor.state
        self.mark.compare_exchange(worker, RUNNING, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes the processor away from a holder in the kernel. Returns its address if it did.
    #[must_use]
    pub fn take(&self) -> Option<usize> {
        // Only the holder sets its mark, and only those who hand processors off take it away.
        let mark = self.mark.load(Ordering::Relaxed);
        // Acquire: the queue as its worker left it; the new worker sees it through `given`. pairs: processor.state
        let taken =
            mark != RUNNING && self.mark.compare_exchange(mark, RUNNING, Ordering::Acquire, Ordering::Relaxed).is_ok();
        taken.then_some(mark)
    }

    /// Undoes a `take`, of which this is the result.
    pub fn put_back(&self, worker: usize) {
        // Release: as in `enter`. pairs: processor.state
        self.mark.store(worker, Ordering::Release);
    }
}
