//! An event: something that happens once, until it is reset.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::cancel::{Limit, WaitError};
use crate::futex;

const UNSET: u32 = 0;
const WAITED_FOR: u32 = 1;
const SET: u32 = 2;

/// A flag to wait for.
#[derive(Debug, Default)]
pub struct Event {
    word: AtomicU32,
}

impl Event {
    /// It has not happened.
    pub const fn new() -> Self {
        Self { word: AtomicU32::new(UNSET) }
    }

    /// It has happened: all that wait go on, and so do those that come later.
    #[doc(alias("signal", "notify"))]
    pub fn set(&self) {
        let word = &raw const self.word;
        // Release: what the caller did comes before whatever waits for it. pairs: event.word
        if self.word.swap(SET, Ordering::Release) == WAITED_FOR {
            futex::wake(word, i32::MAX);
        }
    }

    /// It has not happened any more.
    pub fn reset(&self) {
        // Relaxed: orders nothing. Others: pairs: event.word
        let _ = self.word.compare_exchange(SET, UNSET, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether it has happened.
    pub fn is_set(&self) -> bool {
        // Acquire: what came before it is visible. pairs: event.word
        self.word.load(Ordering::Acquire) == SET
    }

    /// Waits until it has happened.
    pub fn wait(&self) {
        // Without a limit it ends with the event.
        let _ = self.wait_within(&Limit::NEVER);
    }

    /// Waits until it has happened, or until the limit.
    pub fn wait_until<'l>(&self, limit: impl Into<Limit<'l>>) -> Result<(), WaitError> {
        if self.is_set() {
            return Ok(());
        }
        self.wait_within(&limit.into())
    }

    fn wait_within(&self, limit: &Limit<'_>) -> Result<(), WaitError> {
        loop {
            // Acquire: as in `is_set`. pairs: event.word
            match self.word.compare_exchange(UNSET, WAITED_FOR, Ordering::Acquire, Ordering::Acquire) {
                Err(SET) => return Ok(()),
                _ => {
                    if let Err(why) = futex::wait_within(&self.word, WAITED_FOR, limit) {
                        return if self.is_set() { Ok(()) } else { Err(why) };
                    }
                }
            }
        }
    }
}
