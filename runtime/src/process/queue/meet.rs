//! A rendezvous between processes: a queue of one place, where a value lies only while its sender waits for it to be taken.
//!
//! 1. Who sends lays its value there, when the place is free, and waits until the first number has passed the value's: then it has
//!    been received. If that does not come in time, or the channel is closed, the sender takes the value back.
//! 2. Who sends without waiting (`try_send`, an arm of a select) lays it there only if a receiver sleeps, and takes it back when none
//!    does any more. A receiver that sleeps takes what is there before it is counted out; if it is about to do something else it is
//!    counted out first, and tells the sender. So that wait lasts as long as a receiver needs to wake up.
//! 3. A select that may send sleeps until a receiver does; who goes to sleep as a receiver wakes one. So of two selects that face each
//!    other the sender's does the first step, and the receiver's is bound by nothing.
//!
//! # Deaths
//! A sender that dies while it waits leaves its value, which is received as a whole; one that dies while it lays it there, or takes it
//! back, has sent it or has lost it, by the journal. A receiver that dies before it has the value has not taken it: it is put back, so the sender
//! waits for another receiver, or, if there is none, is told that the channel is closed and has its value back. Only a process that
//! lives takes its value back, so who receives from the dead need not ask.

use std::ops::Deref;
use std::sync::atomic::Ordering;

use super::{CHOOSER, Guard, MEET, Member, Places, Queue, RECEIVER, SENDER, SENDS, Surroundings, add};
use crate::cancel::{Limit, WaitError};

impl<M: Deref<Target = [Member]>> Queue<M> {
    /// Gives the value to a receiver that sleeps: its number. Error: the value; whether the channel is closed.
    pub(super) fn hand_over<T>(
        &self,
        all: &impl Surroundings,
        places: &impl Places<T>,
        value: T,
    ) -> Result<u32, (T, bool)> {
        let guard = self.lock(all);
        if self.is_shut() {
            return Err((value, true));
        }
        if self.state().1 != 0 || self.sleepers[RECEIVER].load(Ordering::Relaxed) == 0 {
            return Err((value, false));
        }
        let number = self.add_value(guard, places, value);
        self.taken_or_back(all, places, number, None).map_err(|(value, why)| (value, why == Why::Closed))
    }

    /// Waits until the value with this number, which the caller has laid there, has been taken.
    pub(super) fn until_taken<T>(
        &self,
        all: &impl Surroundings,
        places: &impl Places<T>,
        number: u32,
        limit: &Limit<'_>,
    ) -> Result<u32, (T, Option<WaitError>)> {
        self.taken_or_back(all, places, number, Some(limit)).map_err(|(value, why)| match why {
            Why::Ended(why) => (value, Some(why)),
            Why::Closed | Why::Alone => (value, None),
        })
    }

    /// Without a limit it waits as long as a receiver may be on its way.
    fn taken_or_back<T>(
        &self,
        all: &impl Surroundings,
        places: &impl Places<T>,
        number: u32,
        limit: Option<&Limit<'_>>,
    ) -> Result<u32, (T, Why)> {
        let mut ended = Ok(());
        loop {
            for _ in 0..all.looks() {
                if self.state().0 != number {
                    break;
                }
                std::hint::spin_loop();
            }
            let deaths = all.deaths();
            let guard = self.lock(all);
            if self.state().0 != number {
                return Ok(number);
            }
            let is_alone = limit.is_none() && self.sleepers[RECEIVER].load(Ordering::Relaxed) == 0;
            let why = match ended {
                _ if self.is_shut() => Some(Why::Closed),
                _ if is_alone => Some(Why::Alone),
                Err(why) => Some(Why::Ended(why)),
                Ok(()) => None,
            };
            if let Some(why) = why {
                return Err((self.take_back(guard, places, number), why));
            }
            let met = self.met.load(Ordering::Relaxed);
            drop(guard);
            ended = all.wait(&self.met, met, deaths, limit.unwrap_or(&Limit::NEVER));
        }
    }

    /// The caller's value, which nobody has taken.
    fn take_back<T, A: Surroundings>(&self, guard: Guard<'_, A, M>, places: &impl Places<T>, number: u32) -> T {
        let all = guard.1;
        // Cut off after the next store it counts as a value that did not get in.
        self.begin(all, SENDS, number);
        // SAFETY: a value, under the lock; it is not there after the next line.
        let value = unsafe { places.read(number) };
        self.set_state(all, number, 0);
        self.end(all);
        self.tell_of_the_place(guard);
        value
    }

    /// The value is not there any more: tells who has laid it there, and who else may lay one there.
    pub(super) fn tell_of_the_place<A: Surroundings>(&self, guard: Guard<'_, A, M>) {
        let all = guard.1;
        let sleep = |what: usize| self.sleepers[what].load(Ordering::Relaxed) != 0;
        let (sender, chooser) = (sleep(SENDER), sleep(CHOOSER) && sleep(RECEIVER));
        for word in [&self.met, &self.taken, &self.wanted] {
            add(all, word, 1);
        }
        drop(guard);
        all.wake(&raw const self.met);
        for (sleeps, word) in [(sender, &self.taken), (chooser, &self.wanted)] {
            if sleeps {
                all.wake(word);
            }
        }
    }

    /// Whether what is there is a living sender's, which will take it back.
    pub(super) fn is_offered(&self, all: &impl Surroundings) -> bool {
        let _guard = self.lock(all);
        self.limit == MEET && !all.is_dead(self.offerer.load(Ordering::Relaxed))
    }
}

/// Why a value was taken back.
#[derive(PartialEq, Eq)]
enum Why {
    Closed,
    /// No receiver sleeps.
    Alone,
    Ended(WaitError),
}
