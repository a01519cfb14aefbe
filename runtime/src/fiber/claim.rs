//! Who may ask for the end of a fiber whose handle is a number that can be copied, as the C interface's is: one of
//! those that try.
//!
//! A number is never used twice, and its word is 0 from the moment on at which the stack is given back. So an old
//! handle is found out: stacks, and with them the words, stay mapped.

use crate::prim::{AtomicU64, Ordering};

/// The low bits of the word; above them is the fiber's number.
const JOINABLE: u64 = 1;
const TAKEN: u64 = 2;
const BITS: u32 = 2;

/// See the module.
pub struct Claim(AtomicU64);

/// Why there is no handle.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no such fiber (any more).
    Gone,
    /// Somebody waits for its end already, or nobody may.
    Taken,
}

impl Claim {
    /// Of memory that was never used: that is how a stack begins.
    #[cfg(all(test, loom))]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The word's value of a fiber that may be joined, which names it from then on.
    #[inline]
    pub fn name(number: u64) -> u64 {
        number << BITS | JOINABLE
    }

    /// The record is that fiber's.
    #[inline]
    pub fn set(&self, name: u64) {
        // Relaxed: who has the name has it from the caller.
        self.0.store(name, Ordering::Relaxed);
    }

    /// The record is nobody's.
    #[inline]
    pub fn clear(&self) {
        // Relaxed: nobody who reads it goes on to the record.
        self.0.store(0, Ordering::Relaxed);
    }

    /// The name of the fiber whose record it is, or 0 if it has none.
    #[inline]
    pub fn its_name(&self) -> u64 {
        match self.0.load(Ordering::Relaxed) {
            0 => 0,
            word => word >> BITS << BITS | JOINABLE,
        }
    }

    /// Who succeeds has the fiber's handle.
    #[inline]
    pub fn take(&self, name: u64) -> Result<(), Refused> {
        if name & JOINABLE == 0 {
            return Err(Refused::Gone);
        }
        let taken = name ^ (JOINABLE | TAKEN);
        let now = self.0.load(Ordering::Relaxed);
        if now == name {
            // Relaxed: only who succeeds goes on to the record, whose name it has from the fiber's maker; or from who
            // has put it back, and that one has changed nothing.
            match self.0.compare_exchange(name, taken, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) if now != taken => return Err(Refused::Gone),
                Err(_) => return Err(Refused::Taken),
            }
        }
        Err(if now == taken { Refused::Taken } else { Refused::Gone })
    }

    /// Who has taken it has not waited to the end.
    pub fn put_back(&self) {
        self.set(self.its_name());
    }
}
