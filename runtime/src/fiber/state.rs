//! How far a fiber is, and who waits for its end.
//!
//! Its result, and its stack, go to whoever has its handle. So `DONE` is said only when it has left its stack, by whoever runs next on
//! its carrier: from `ENDING` on it is on the way there. A fiber that waits for it is gone to directly, from its stack to the other's,
//! which says the same; that number then stays what the state is.
//!
//! # Safety
//! [`State::await_end`] and [`State::begin_for`] are the handle's; `end` and `done` the fiber's.

use crate::prim::{AtomicUsize, Ordering};

/// The function has not returned.
const RUNNING: usize = 0;
/// Nor has it, and somebody waits on the state's low half.
pub const WAITED: usize = 1;
/// Nor has it, and nobody asks for its result.
const DETACHED: usize = 2;
/// It has, and the fiber is about to leave its stack.
const ENDING: usize = 3;
/// It has left it.
const DONE: usize = 4;

/// See the module.
pub struct State(AtomicUsize);

/// Who is to know of a fiber's end.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// The state is [done](State::done) when the stack has been left; then somebody may wait on the word.
    Tell(bool),
    /// Nobody: result and stack are the fiber's to give back.
    Nobody,
    /// This fiber, which waits for it.
    Fiber(usize),
}

/// What who has the handle finds.
#[derive(Debug, PartialEq, Eq)]
pub enum Now {
    /// It is to be waited for, on the word while that is [`WAITED`].
    Waited,
    /// It will be done in a moment.
    Soon,
    Done,
}

impl State {
    pub fn new() -> Self {
        Self(AtomicUsize::new(RUNNING))
    }

    /// Its address, as that of a word: on this architecture the low half comes first.
    #[cfg(not(loom))]
    pub fn word(&self) -> *const crate::prim::AtomicU32 {
        std::ptr::from_ref(&self.0).cast()
    }

    /// A fiber that nobody has begun will be run by the fiber that has the handle, and that waits for it.
    #[inline]
    #[cfg(not(loom))]
    pub fn begin_for(&self, waiter: usize) {
        self.0.store(waiter, Ordering::Relaxed);
    }

    /// Whether it was the fiber's end that had this one run.
    #[inline]
    pub fn is_for(&self, waiter: usize) -> bool {
        // Acquire: what it did is visible. pairs: fiber.state
        self.0.load(Ordering::Acquire) == waiter
    }

    /// Has a fiber run when this one has ended. False: it has, or is about to.
    pub fn await_end(&self, waiter: usize) -> bool {
        loop {
            // Release: who runs it has what it did before. pairs: fiber.state
            match self.0.compare_exchange(RUNNING, waiter, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return true,
                // Left by one who no longer waits.
                Err(WAITED) => drop(self.0.compare_exchange(WAITED, RUNNING, Ordering::Relaxed, Ordering::Relaxed)),
                Err(_) => return false,
            }
        }
    }

    /// Before a wait on the word.
    pub fn ask(&self) -> Now {
        // Acquire: what it did is visible. pairs: fiber.state
        match self.0.compare_exchange(RUNNING, WAITED, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) | Err(WAITED) => Now::Waited,
            Err(ENDING) => Now::Soon,
            Err(_) => Now::Done,
        }
    }

    pub fn is_done(&self) -> bool {
        // Acquire: what it did is visible. pairs: fiber.state
        self.0.load(Ordering::Acquire) == DONE
    }

    /// The handle goes. True: the result is the fiber's. `None`: it will be done in a moment, then ask again.
    pub fn detach(&self) -> Option<bool> {
        let now = self.0.load(Ordering::Relaxed);
        match now {
            RUNNING | WAITED => {
                // Release: what the caller did comes before its end. pairs: fiber.state
                let done = self.0.compare_exchange(now, DETACHED, Ordering::Release, Ordering::Relaxed);
                done.is_ok().then_some(true)
            }
            ENDING => None,
            _ => {
                self.is_done(); // sees what it did
                Some(false)
            }
        }
    }

    /// The function has returned.
    #[inline(always)]
    pub fn end(&self) -> End {
        loop {
            // Acquire: what the one who waits did. pairs: fiber.state
            let state = self.0.load(Ordering::Acquire);
            match state {
                RUNNING | WAITED => {
                    // Relaxed: says nothing but "in a moment".
                    if self.0.compare_exchange(state, ENDING, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                        return End::Tell(state == WAITED);
                    }
                }
                DETACHED => return End::Nobody,
                waiter => return End::Fiber(waiter),
            }
        }
    }

    /// The stack has been left. From here on the record may be another fiber's.
    pub fn done(&self) {
        // Release: what it did happens before who learns of it. pairs: fiber.state
        self.0.store(DONE, Ordering::Release);
    }
}
