//! The answer to a request that crosses processes: given once, or nobody waits for it any more.
//!
//! 1. Who answers writes the value, then sets the state from *waiting* to *answered*; who drops the request, to *dropped*. Both are
//!    the holder of the one [`Reply`](super::across::Reply), so there is one of these at most.
//! 2. Who waits and gives up sets it from *waiting* to *unwanted*. Of that and 1 the second fails: then the answer goes
//!    back to who gave it, or is there for who waits.
//! 3. A process that dies in 1 has answered or has not: the state says so.
//! 4. Who receives the reply notes its process here. Who waits looks after each death whether that one has died, and then gives
//!    up as in 2. A process that dies while it sends the reply on is the one noted until another has received it.

use std::mem::MaybeUninit;

use crate::channel::cell::UnsafeCell;
use crate::prim::{AtomicU32, Ordering};

const WAITING: u32 = 0;
const ANSWERED: u32 = 1;
const DROPPED: u32 = 2;
const UNWANTED: u32 = 3;
const TAKEN: u32 = 4;

pub struct Answer<R> {
    state: AtomicU32,
    /// The process that the reply came to last.
    holder: AtomicU32,
    value: UnsafeCell<MaybeUninit<R>>,
}

// SAFETY: by the protocol one at a time reaches the value, which goes from thread to thread.
unsafe impl<R: Send> Sync for Answer<R> {}
// SAFETY: as above.
unsafe impl<R: Send> Send for Answer<R> {}

/// What has come of it.
pub enum Came<R> {
    /// Nothing yet.
    Nothing,
    Value(R),
    Dropped,
}

impl<R> Answer<R> {
    /// Whose reply that process has.
    pub fn new(holder: u32) -> Self {
        let (state, holder) = (AtomicU32::new(WAITING), AtomicU32::new(holder));
        Self { state, holder, value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// The reply has come to that process.
    pub fn hold(&self, process: u32) {
        self.holder.store(process, Ordering::Relaxed); // who waits is told by a death, not by this
    }

    /// The process that has the reply, if it is dead.
    pub fn dead_holder(&self, is_dead: impl Fn(u32) -> bool) -> Option<u32> {
        let holder = self.holder.load(Ordering::Relaxed);
        // Once more: it may have gone on to another process before that one died.
        (is_dead(holder) && self.holder.load(Ordering::Relaxed) == holder).then_some(holder)
    }

    /// The word to wait for, and its value until something comes.
    #[cfg(not(loom))]
    pub fn word(&self) -> (&AtomicU32, u32) {
        (&self.state, WAITING)
    }

    #[cfg(not(loom))]
    pub fn is_wanted(&self) -> bool {
        self.state.load(Ordering::Relaxed) == WAITING
    }

    /// Answers. Error: nobody waits any more; the answer.
    ///
    /// # Safety
    /// Called by the one who answers, once, and not after [`drop_it`](Self::drop_it).
    pub unsafe fn give(&self, value: R) -> Result<(), R> {
        // SAFETY: until it is answered only who answers uses the value.
        self.value.with_mut(|place| unsafe { (*place).write(value) });
        // Release: the value. pairs: agent.answer
        if self.state.compare_exchange(WAITING, ANSWERED, Ordering::Release, Ordering::Relaxed).is_ok() {
            return Ok(());
        }
        // SAFETY: written above, and nobody else will use it.
        Err(self.value.with_mut(|place| unsafe { (*place).assume_init_read() }))
    }

    /// There will be no answer, unless there was one. True: somebody may wait for it.
    pub fn drop_it(&self) -> bool {
        // Release: why it is dropped, if that was told before. pairs: agent.answer
        self.state.compare_exchange(WAITING, DROPPED, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// What has come, by who waits.
    ///
    /// # Safety
    /// Not called again after it has answered the value.
    pub unsafe fn look(&self) -> Came<R> {
        // Acquire: the value, or why there is none. pairs: agent.answer
        match self.state.load(Ordering::Acquire) {
            ANSWERED => {
                // SAFETY: written, and once read it is not there any more.
                let value = self.value.with_mut(|place| unsafe { (*place).assume_init_read() });
                self.state.store(TAKEN, Ordering::Relaxed);
                Came::Value(value)
            }
            DROPPED => Came::Dropped,
            _ => Came::Nothing,
        }
    }

    /// Nobody waits any more. False: something has come.
    pub fn give_up(&self) -> bool {
        self.state.compare_exchange(WAITING, UNWANTED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl<R> Drop for Answer<R> {
    fn drop(&mut self) {
        if self.state.load(Ordering::Relaxed) == ANSWERED {
            // SAFETY: it was never read, and nobody else has us.
            self.value.with_mut(|place| unsafe { (*place).assume_init_drop() });
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Who waits gives up while it is answered: one of both has the value, and it is dropped once.
    #[test]
    fn an_answer_is_had_once() {
        loom::model(|| {
            let answer = Arc::new(Answer::new(0));
            let value = std::sync::Arc::new(());
            let gives = {
                let (answer, value) = (answer.clone(), value.clone());
                // SAFETY: the one who answers.
                thread::spawn(move || unsafe { answer.give(value) }.is_err())
            };
            // SAFETY: not called again after a value.
            let had = match unsafe { answer.look() } {
                Came::Nothing if answer.give_up() => false,
                // SAFETY: as above.
                Came::Nothing => matches!(unsafe { answer.look() }, Came::Value(_)),
                Came::Value(_) => true,
                Came::Dropped => unreachable!("nobody drops it"),
            };
            assert_ne!(gives.join().unwrap(), had, "it came back, or was had");
            drop(answer);
            assert_eq!(std::sync::Arc::strong_count(&value), 1);
        });
    }

    /// The reply has gone on to another process when the first one dies: it is not taken for dead.
    #[test]
    fn a_reply_that_went_on_lives() {
        loom::model(|| {
            let (answer, dead) = (Arc::new(Answer::<()>::new(1)), Arc::new(AtomicU32::new(0)));
            let goes_on = {
                let (answer, dead) = (answer.clone(), dead.clone());
                thread::spawn(move || {
                    answer.hold(2);
                    dead.store(1, Ordering::Release); // Release: it died after that
                })
            };
            // Acquire: what was before the death.
            assert_eq!(answer.dead_holder(|process| dead.load(Ordering::Acquire) == process), None);
            goes_on.join().unwrap();
            assert_eq!(answer.dead_holder(|process| process == 2), Some(2));
        });
    }

    /// Who waits sees why it was dropped; one that is never looked at is dropped with its answer.
    #[test]
    fn one_that_is_dropped_says_so() {
        loom::model(|| {
            let answer = Arc::new(Answer::<std::sync::Arc<()>>::new(0));
            let why = Arc::new(AtomicU32::new(0));
            let drops = {
                let (answer, why) = (answer.clone(), why.clone());
                thread::spawn(move || {
                    why.store(1, Ordering::Relaxed);
                    assert!(answer.drop_it());
                })
            };
            // SAFETY: there is no value.
            match unsafe { answer.look() } {
                Came::Dropped => assert_eq!(why.load(Ordering::Relaxed), 1),
                Came::Nothing => {}
                Came::Value(_) => unreachable!("nobody answers"),
            }
            drops.join().unwrap();
            let (answer, value) = (Answer::new(0), std::sync::Arc::new(()));
            // SAFETY: the one who answers.
            assert!(unsafe { answer.give(value.clone()) }.is_ok());
            drop(answer);
            assert_eq!(std::sync::Arc::strong_count(&value), 1);
        });
    }
}
