//! What fibers hand to each other, under loom: every interleaving with up to `LOOM_MAX_PREEMPTIONS` preemptions.
//! `ci/models.sh` runs them. Carriers and their stacks are not here: a fiber is a number, and running it a mark.

#[path = "claim.rs"]
mod claim;
#[path = "queue.rs"]
mod queue;
#[path = "sleepers.rs"]
mod sleepers;
#[path = "state.rs"]
mod state;
#[path = "table.rs"]
mod table;

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;

use crate::futex;
use crate::prim::{AtomicU32, AtomicUsize, Ordering};
use claim::{Claim, Refused};
use queue::Queue;
use sleepers::Sleepers;
use state::{End, Now, State};
use table::{Table, Waiter};

/// Every interleaving. Locks that are looked at again and again make long ones.
fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    builder.check(f);
}

/// Fibers that count how often they are run; loom checks that nobody runs one that another runs.
struct Fibers(Vec<UnsafeCell<u32>>);
// SAFETY: who has a fiber runs it alone, which is what the models check.
unsafe impl Sync for Fibers {}
// SAFETY: as above.
unsafe impl Send for Fibers {}

impl Fibers {
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| UnsafeCell::new(0)).collect())
    }

    fn run(&self, fiber: usize) {
        // SAFETY: loom checks it.
        self.0[fiber].with_mut(|runs| unsafe { *runs += 1 });
    }

    fn runs(&self) -> Vec<u32> {
        // SAFETY: all threads of the model have ended.
        self.0.iter().map(|runs| runs.with(|runs| unsafe { *runs })).collect()
    }
}

/// The owner adds two and takes what is left, a thief steals: each fiber is run once.
#[test]
fn each_fiber_is_taken_once() {
    model(|| {
        let shared = Arc::new((Queue::new(), Fibers::new(3)));
        let theirs = shared.clone();
        let thief = thread::spawn(move || {
            let (queue, fibers) = &*theirs;
            queue.steal().into_iter().for_each(|fiber: usize| fibers.run(fiber));
        });
        let (queue, fibers) = &*shared;
        // SAFETY: the model's first thread is the owner.
        unsafe {
            queue.push_new(0);
            queue.push_ready(1);
            queue.push_new(2);
            if queue.take_newest(2) {
                fibers.run(2);
            }
            while let Some(fiber) = queue.next() {
                fibers.run(fiber);
            }
        }
        thief.join().unwrap();
        assert_eq!(fibers.runs(), [1, 1, 1]);
    });
}

/// Two thieves and the owner.
#[test]
fn thieves_take_turns() {
    model(|| {
        let shared = Arc::new((Queue::new(), Fibers::new(2)));
        // SAFETY: the model's first thread is the owner.
        unsafe {
            shared.0.push_new(0);
            shared.0.push_ready(1);
        }
        let thieves = [0, 1].map(|_| {
            let theirs = shared.clone();
            thread::spawn(move || theirs.0.steal().into_iter().for_each(|fiber: usize| theirs.1.run(fiber)))
        });
        // SAFETY: as above.
        while let Some(fiber) = unsafe { shared.0.next() } {
            shared.1.run(fiber);
        }
        thieves.into_iter().for_each(|thief| thief.join().unwrap());
        // SAFETY: as above.
        while let Some(fiber) = unsafe { shared.0.next() } {
            shared.1.run(fiber);
        }
        assert_eq!(shared.1.runs(), [1, 1]);
    });
}

/// A fiber that waits, on a carrier of its own: the thread of the model. It goes on when somebody has set `running`. What happens
/// `meanwhile` begins when it waits.
fn wait_while<R>(
    table: &Table<&'static AtomicU32>,
    waiter: &Waiter<&'static AtomicU32>,
    running: &AtomicU32,
    meanwhile: impl FnOnce() -> R,
) -> R {
    // SAFETY: the waiter is there until it has left.
    unsafe {
        let waits = table.enter(waiter, 0);
        if waits {
            table.unlock(waiter);
        }
        let result = meanwhile();
        if waits {
            // Acquire: as the queue that it went through. pairs: fiber.models
            while running.load(Ordering::Acquire) == 0 {
                futex::wait(running, 0);
            }
            table.leave(waiter);
        }
        result
    }
}

fn wait(table: &Table<&'static AtomicU32>, waiter: &Waiter<&'static AtomicU32>, running: &AtomicU32) {
    wait_while(table, waiter, running, || ());
}

/// Runs a fiber: it must be run once.
fn run(running: &'static AtomicU32) {
    // Release: as above. pairs: fiber.models
    assert_eq!(running.swap(1, Ordering::Release), 0, "a fiber was run twice");
    futex::wake(running, 1);
}

fn leaked<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// Words that are at the same addresses in each run of a model, since these decide in which bucket is who waits for them.
struct Words(*mut [AtomicU32; 3]);
// SAFETY: each run of the model, one after the other, has them.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    fn new() -> Self {
        Self(Box::leak(Box::<[AtomicU32; 3]>::new_uninit()).as_mut_ptr())
    }

    /// Of 0; for a new run.
    fn fresh(&self) -> &'static [AtomicU32; 3] {
        // SAFETY: memory of its own, which no other run uses any more.
        unsafe {
            self.0.write([AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0)]);
            &*self.0
        }
    }
}

/// A change and a wake against a wait: the waiter goes on.
#[test]
fn no_wake_is_missed() {
    let words = Words::new();
    model(move || {
        let (table, [word, ..], running) = (Arc::new(Table::new()), words.fresh(), leaked(AtomicU32::new(0)));
        let theirs = table.clone();
        let waker = thread::spawn(move || {
            word.store(1, Ordering::Relaxed);
            theirs.wake(word, 1, run)
        });
        wait(&table, &Waiter::new(running, word, None), running);
        waker.join().unwrap();
        assert_eq!(table.wake(word, 9, run), 0, "nobody is left");
    });
}

/// Two wait, and two are woken, one by one.
#[test]
fn each_wake_is_one_waiter_s() {
    let words = Words::new();
    model(move || {
        let (table, [word, ..]) = (Arc::new(Table::new()), words.fresh());
        let waiters = [0, 1].map(|_| {
            let (table, running) = (table.clone(), leaked(AtomicU32::new(0)));
            thread::spawn(move || wait(&table, &Waiter::new(running, word, None), running))
        });
        word.store(1, Ordering::Relaxed);
        let woken = table.wake(word, 1, run);
        assert!(woken + table.wake(word, 1, run) <= 2);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}

/// Words that two wakers change at once: the waiter is run once, and its frame is not touched afterwards.
#[test]
fn one_of_two_words_wakes() {
    let words = Words::new();
    model(move || {
        let words = words.fresh();
        let (table, running) = (Arc::new(Table::new()), leaked(AtomicU32::new(0)));
        let waiter = Waiter::new(running, &words[0], Some(&words[1]));
        let wakers = wait_while(&table, &waiter, running, || {
            [0, 1].map(|i| {
                let table = table.clone();
                thread::spawn(move || {
                    words[i].store(1, Ordering::Relaxed);
                    table.wake(&words[i], 1, run)
                })
            })
        });
        let woken: u32 = wakers.into_iter().map(|waker| waker.join().unwrap()).sum();
        assert_eq!(woken, 1);
        assert!(words.iter().all(|word| table.wake(word, 9, run) == 0), "nobody is left");
    });
}

/// The same with both words in one bucket, changed one after the other.
#[test]
fn one_of_two_words_in_one_bucket_wakes() {
    let words = Words::new();
    model(move || {
        let words = words.fresh();
        let (table, running) = (Arc::new(Table::new()), leaked(AtomicU32::new(0)));
        let theirs = table.clone();
        let waker = thread::spawn(move || {
            words[0].store(1, Ordering::Relaxed);
            let woken = theirs.wake(&words[0], 1, run);
            words[2].store(1, Ordering::Relaxed);
            woken + theirs.wake(&words[2], 1, run)
        });
        wait(&table, &Waiter::new(running, &words[0], Some(&words[2])), running);
        assert!(waker.join().unwrap() <= 1);
        assert!(words.iter().all(|word| table.wake(word, 9, run) == 0), "nobody is left");
    });
}

/// The time is over while somebody wakes it: one of both has it run.
#[test]
fn the_time_is_over_once() {
    let words = Words::new();
    model(move || {
        let (table, [word, ..], running) = (Arc::new(Table::new()), words.fresh(), leaked(AtomicU32::new(0)));
        let waiter = Arc::new(Waiter::new(running, word, None));
        let (clock, waker) = wait_while(&table, &waiter, running, || {
            let (theirs, waiter) = (table.clone(), waiter.clone());
            // SAFETY: the waiter is there.
            let clock = thread::spawn(move || unsafe { theirs.expire(&waiter, run) });
            let theirs = table.clone();
            (clock, thread::spawn(move || theirs.wake(word, 1, run)))
        });
        assert_eq!(u32::from(clock.join().unwrap()) + waker.join().unwrap(), 1);
    });
}

/// The time is over before the fiber waits, or just then.
#[test]
fn the_time_is_over_before_the_wait() {
    let words = Words::new();
    model(move || {
        let (table, [word, ..], running) = (Arc::new(Table::new()), words.fresh(), leaked(AtomicU32::new(0)));
        let waiter = Arc::new(Waiter::new(running, word, None));
        let (theirs, their_waiter) = (table.clone(), waiter.clone());
        // SAFETY: the waiter is there.
        let clock = thread::spawn(move || unsafe { theirs.expire(&their_waiter, run) });
        wait(&table, &waiter, running);
        assert!(clock.join().unwrap());
        assert_eq!(table.wake(word, 9, run), 0, "nobody is left");
    });
}

/// A fiber ends while another begins to wait for it: that goes on, once, and finds the result.
#[test]
fn who_joins_goes_on() {
    model(|| {
        let shared = Arc::new((State::new(), Fibers::new(1), AtomicU32::new(0)));
        let theirs = shared.clone();
        let fiber = thread::spawn(move || {
            let (state, result, joiner) = &*theirs;
            result.run(0);
            match state.end() {
                End::Fiber(waiter) => {
                    assert_eq!(waiter, 64);
                    joiner.store(1, Ordering::Release); // Release: as in `run`. pairs: fiber.models
                }
                End::Tell(waited) => {
                    assert!(!waited);
                    state.done();
                }
                End::Nobody => unreachable!("it has a handle"),
            }
        });
        let (state, result, joiner) = &*shared;
        if state.await_end(64) {
            // Acquire: as in `wait`. pairs: fiber.models
            while joiner.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            assert!(state.is_for(64));
        } else {
            while state.ask() != Now::Done {
                thread::yield_now();
            }
        }
        result.run(0);
        fiber.join().unwrap();
        assert_eq!(result.runs(), [2]);
    });
}

/// The handle goes while the fiber ends: one of both drops the result.
#[test]
fn a_result_is_dropped_once() {
    model(|| {
        let shared = Arc::new((State::new(), Fibers::new(1)));
        let theirs = shared.clone();
        let fiber = thread::spawn(move || match theirs.0.end() {
            End::Nobody => theirs.1.run(0),
            End::Tell(false) => theirs.0.done(),
            other => unreachable!("{other:?}"),
        });
        let theirs = loop {
            match shared.0.detach() {
                Some(theirs) => break theirs,
                None => thread::yield_now(),
            }
        };
        if !theirs {
            shared.1.run(0);
        }
        fiber.join().unwrap();
        assert_eq!(shared.1.runs(), [1]);
    });
}

/// Somebody adds a fiber while a carrier stops searching and falls asleep: it finds the fiber, or is woken.
#[test]
fn nobody_sleeps_beside_a_fiber() {
    model(|| {
        let shared = Arc::new((Sleepers::new(), AtomicUsize::new(0), AtomicU32::new(0)));
        shared.0.begin_search();
        let theirs = shared.clone();
        let carrier = thread::spawn(move || {
            let (sleepers, added, bed) = &*theirs;
            if added.load(Ordering::Relaxed) != 0 {
                return sleepers.end_search();
            }
            sleepers.end_search();
            sleepers.lie_down(7u32);
            if added.load(Ordering::Relaxed) == 0 {
                while bed.load(Ordering::Relaxed) == 0 {
                    thread::yield_now();
                }
            }
            sleepers.get_up(7);
        });
        let (sleepers, added, bed) = &*shared;
        added.store(1, Ordering::Relaxed);
        if sleepers.wanted()
            && let Some(7) = sleepers.take()
        {
            bed.store(1, Ordering::Relaxed);
        }
        carrier.join().unwrap();
        assert_eq!(sleepers.count(), 0);
    });
}

/// Of two that join by the same name one gets the handle, and with it what the fiber left; the name is dead when the record is used again.
#[test]
fn a_name_is_taken_once() {
    model(|| {
        let shared = Arc::new((Claim::new(), UnsafeCell::new(0)));
        let name = Claim::name(1);
        shared.0.set(name);
        let join = move |shared: &(Claim, UnsafeCell<i32>)| {
            let taken = shared.0.take(name);
            if taken.is_ok() {
                // SAFETY: loom checks it.
                shared.1.with_mut(|result| unsafe { *result += 1 });
                shared.0.clear();
            }
            taken
        };
        let theirs = shared.clone();
        let other = thread::spawn(move || join(&theirs));
        let ours = join(&shared);
        let both = [ours, other.join().unwrap()];
        assert!(both.iter().filter(|taken| taken.is_ok()).count() == 1, "{both:?}");
        assert_eq!(shared.0.take(name), Err(Refused::Gone));
        shared.0.set(Claim::name(2));
        assert_eq!(shared.0.take(name), Err(Refused::Gone));
    });
}

/// Who gives a name back lets another have it, and who asks meanwhile is told so.
#[test]
fn a_name_given_back_is_another_s() {
    model(|| {
        let claim = Arc::new(Claim::new());
        let name = Claim::name(1);
        claim.set(name);
        let theirs = claim.clone();
        let other = thread::spawn(move || theirs.take(name));
        let mine = claim.take(name);
        if mine.is_ok() {
            claim.put_back();
        }
        let theirs = other.join().unwrap();
        assert!(mine.is_ok() || theirs.is_ok(), "{mine:?} {theirs:?}");
        assert_eq!(claim.take(name), if theirs.is_ok() { Err(Refused::Taken) } else { Ok(()) });
    });
}
