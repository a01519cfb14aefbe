//! Operations that wait.

use std::ops::Deref;
use std::sync::atomic::Ordering;

use super::{CHOOSER, MEET, Member, Places, Queue, RECEIVER, SENDER, Surroundings, add, side, subtract};
use crate::cancel::{Limit, WaitError};
use crate::channel::End;
use crate::prim::AtomicU32;

impl<M: Deref<Target = [Member]>> Queue<M> {
    /// Whether who waits for that would not wait, under the lock. `besides`: receivers that do not count.
    fn is_ready_for<T>(&self, places: &impl Places<T>, what: usize, besides: u32) -> bool {
        self.is_shut()
            || match what {
                RECEIVER => self.state().1 != 0,
                SENDER => self.make_room(places),
                _ => self.state().1 == 0 && self.sleepers[RECEIVER].load(Ordering::Relaxed) > besides,
            }
    }

    fn in_select(&self, end: End) -> usize {
        if end == End::Sender && self.limit == MEET { CHOOSER } else { side(end) }
    }

    /// Counts a thread that is to sleep in a select, unless it need not: then the answer is `None`; else the word that it waits
    /// for. `besides`: in how many arms it waits at the other end.
    pub fn enter<T>(
        &self,
        all: &impl Surroundings,
        places: &impl Places<T>,
        end: End,
        besides: u32,
    ) -> Option<(&AtomicU32, u32)> {
        self.sleep_for(all, places, self.in_select(end), besides)
    }

    fn sleep_for<T>(
        &self,
        all: &impl Surroundings,
        places: &impl Places<T>,
        what: usize,
        besides: u32,
    ) -> Option<(&AtomicU32, u32)> {
        let guard = self.lock(all);
        if self.is_ready_for(places, what, besides) {
            return None;
        }
        add(all, &self.sleepers[what], 1);
        add(all, &self.member(all, all.me()).sleepers[what], 1);
        let word = self.word(what);
        let value = word.load(Ordering::Relaxed);
        if what == RECEIVER && self.sleepers[CHOOSER].load(Ordering::Relaxed) > besides {
            self.tell(guard, CHOOSER);
        }
        Some((word, value))
    }

    /// Ends what `enter` began. If it was woken and will do something else, another is: so each wake-up has somebody who uses it.
    pub fn leave<T>(&self, all: &impl Surroundings, places: &impl Places<T>, end: End) {
        self.sleep_no_more(all, places, self.in_select(end), false);
    }

    fn sleep_no_more<T>(&self, all: &impl Surroundings, places: &impl Places<T>, what: usize, uses_it: bool) {
        let guard = self.lock(all);
        subtract(all, &self.sleepers[what], 1);
        subtract(all, &self.member(all, all.me()).sleepers[what], 1);
        let others = self.sleepers[what].load(Ordering::Relaxed) != 0;
        let pass_on = !uses_it && others && self.is_ready_for(places, what, 0);
        // Whose value lies there may have counted on us.
        let tells = what == RECEIVER && self.limit == MEET && self.state().1 != 0;
        if tells {
            add(all, &self.met, 1);
        }
        drop(guard);
        if pass_on {
            all.wake(self.word(what));
        }
        if tells {
            all.wake(&raw const self.met);
        }
    }

    /// Looks for a moment, then sleeps, until there is room, or the limit.
    fn wait_for_room<T>(
        &self,
        all: &impl Surroundings,
        places: &impl Places<T>,
        limit: &Limit<'_>,
    ) -> Result<(), WaitError> {
        for _ in 0..all.looks() {
            let len = self.state().1 as usize;
            if self.limit != 0 && len < if self.limit == MEET { 1 } else { self.limit } {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        let deaths = all.deaths();
        let Some((word, value)) = self.sleep_for(all, places, SENDER, 0) else { return Ok(()) };
        let result = all.wait(word, value, deaths, limit);
        self.sleep_no_more(all, places, SENDER, true);
        result
    }

    /// Looks for a moment, then sleeps, until a value is there, or the limit, and tries to receive it.
    fn wait_for_value<T>(
        &self,
        all: &impl Surroundings,
        places: &impl Places<T>,
        limit: &Limit<'_>,
    ) -> (Result<T, bool>, Result<(), WaitError>) {
        for _ in 0..all.looks() {
            if self.state().1 != 0 {
                return (self.take(all, places), Ok(()));
            }
            std::hint::spin_loop();
        }
        let deaths = all.deaths();
        let Some((word, value)) = self.sleep_for(all, places, RECEIVER, 0) else {
            return (self.take(all, places), Ok(()));
        };
        let ended = all.wait(word, value, deaths, limit);
        // Before it is counted out: in a rendezvous whose value lies there may count on us.
        let result = self.take(all, places);
        self.sleep_no_more(all, places, RECEIVER, true);
        (result, ended)
    }

    /// Sends: the value's number. Error: the value, and what the limit said; `None`: the channel is closed. The last try comes after
    /// the limit.
    pub fn send<T>(
        &self,
        all: &impl Surroundings,
        places: &impl Places<T>,
        mut value: T,
        limit: &Limit<'_>,
    ) -> Result<u32, (T, Option<WaitError>)> {
        let mut ended = Ok(());
        loop {
            value = match (self.put_in(all, places, value), ended) {
                (Ok(number), _) if self.limit == MEET => return self.until_taken(all, places, number, limit),
                (Ok(number), _) => return Ok(number),
                (Err((value, true)), _) => return Err((value, None)),
                (Err((value, false)), Err(why)) => return Err((value, Some(why))),
                (Err((value, false)), Ok(())) => value,
            };
            ended = self.wait_for_room(all, places, limit);
        }
    }

    /// Error: what the limit said; `None`: the channel is closed and empty. The last try comes after the limit.
    pub fn recv<T>(
        &self,
        all: &impl Surroundings,
        places: &impl Places<T>,
        limit: &Limit<'_>,
    ) -> Result<T, Option<WaitError>> {
        let mut result = self.take(all, places);
        loop {
            match result {
                Ok(value) => return Ok(value),
                Err(true) => return Err(None),
                Err(false) => {}
            }
            let ended;
            (result, ended) = self.wait_for_value(all, places, limit);
            if let (Err(false), Err(why)) = (&result, ended) {
                return Err(Some(why));
            }
        }
    }
}
