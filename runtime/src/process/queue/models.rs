//! The queue under loom: processes that send, receive and sleep, and one that dies before any of its stores.
//!
//! A process is a thread of the model. One that dies does so by unwinding, without its destructors, and goes on as the
//! process that buries it. Values are in cells that loom watches; waits are real ones, so a wake that is lost is a deadlock.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::AtomicU32 as Plain;
use std::time::Instant;

use loom::cell::UnsafeCell;
use loom::thread;

use super::*;
use crate::cancel::WaitError;
use crate::futex::model::{wait_on, wake};

/// The room of the queues here at most.
const ROOM: usize = 4;

/// How a process has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ended {
    Lived,
    /// Where nothing was begun.
    Died,
    /// With a value that waited for room or was on its way in.
    Sending,
    /// With a value that was on its way out.
    Receiving,
}

struct All {
    queue: Queue<Vec<Member>>,
    cells: [UnsafeCell<u32>; ROOM],
    /// The number of the last value that was put into a cell, plus 1.
    written: Plain,
    /// Identities 1 to 3: 0 is dead.
    living: [AtomicU32; 4],
    deaths: AtomicU32,
}

// SAFETY: the cells are reached under the queue's lock, which is what the models check.
unsafe impl Send for All {}
// SAFETY: as above.
unsafe impl Sync for All {}

impl Places<u32> for All {
    fn make_room(&self, _: u32, _: u32) -> bool {
        unreachable!("queues with a limit")
    }
    unsafe fn write(&self, number: u32, value: u32) {
        self.written.store(number + 1, std::sync::atomic::Ordering::Relaxed);
        // SAFETY: loom looks.
        self.cells[number as usize % ROOM].with_mut(|cell| unsafe { *cell = value });
    }
    unsafe fn read(&self, number: u32) -> u32 {
        // SAFETY: loom looks.
        self.cells[number as usize % ROOM].with(|cell| unsafe { *cell })
    }
}

/// A process that dies before a store of its life, if ever: which.
struct Life {
    dies_at: u32,
    steps: Cell<u32>,
    has_died: Cell<bool>,
}

impl Life {
    fn new(dies_at: u32) -> Self {
        Self { dies_at, steps: Cell::new(0), has_died: Cell::new(false) }
    }

    const fn whole() -> Self {
        Self { dies_at: u32::MAX, steps: Cell::new(0), has_died: Cell::new(false) }
    }

    fn step(&self) {
        let step = self.steps.replace(self.steps.get() + 1);
        if step == self.dies_at {
            self.has_died.set(true);
            panic::resume_unwind(Box::new(()));
        }
    }
}

struct Me<'a> {
    living: &'a [AtomicU32; 4],
    deaths: &'a AtomicU32,
    identity: u32,
    life: &'a Life,
}

impl Processes for Me<'_> {
    fn me(&self) -> u32 {
        self.identity
    }
    fn deaths(&self) -> u32 {
        self.deaths.load(Ordering::Acquire) // Acquire: as `wait::deaths`. pairs: queue.models.deaths
    }
    fn is_dead(&self, process: u32) -> bool {
        // Acquire: as `Table::is_dead`. pairs: queue.models.living
        self.living[process as usize].load(Ordering::Acquire) == 0
    }
    fn wait(&self, word: &AtomicU32, value: u32, deaths: u32, limit: &Limit<'_>) -> Result<(), WaitError> {
        // It has come.
        if limit.deadline().is_some() {
            return Err(WaitError::TimedOut);
        }
        wait_on(&[(word, value), (self.deaths, deaths)]);
        self.life.step(); // woken, and dead before it does anything
        Ok(())
    }
    fn wake(&self, word: *const AtomicU32) {
        self.life.step();
        wake(word, 1);
    }
}

impl Surroundings for Me<'_> {
    fn place(&self, process: u32) -> usize {
        process as usize
    }
    fn wake_all(&self, word: &AtomicU32) {
        self.life.step();
        wake(word, i32::MAX);
    }
    fn looks(&self) -> u32 {
        0
    }
    fn step(&self) {
        self.life.step();
    }
    fn has_died(&self) -> bool {
        self.life.has_died.get()
    }
}

impl All {
    /// One sender and one receiver, both of process 1. A limit of 0 makes a rendezvous.
    fn new(limit: usize) -> Arc<Self> {
        let (living, deaths) = ([0, 1, 1, 1].map(AtomicU32::new), AtomicU32::new(0));
        let members = (0..4).map(|_| Member::default()).collect();
        let life = Life::whole();
        let queue = {
            let me = Me { living: &living, deaths: &deaths, identity: 1, life: &life };
            Queue::new(&me, Some(limit), members)
        };
        Arc::new(Self {
            queue,
            cells: std::array::from_fn(|_| UnsafeCell::new(0)),
            written: Plain::new(0),
            living,
            deaths,
        })
    }

    fn me<'a>(&'a self, identity: u32, life: &'a Life) -> Me<'a> {
        Me { living: &self.living, deaths: &self.deaths, identity, life }
    }

    /// What that process was about when it died, as it left it. Only one of a model is at the end where one dies.
    fn cut_off(&self, identity: u32, end: End) -> Ended {
        let (first, len) = self.queue.state();
        let journal = self.queue.journal.load(Ordering::Relaxed);
        match (journal & !u64::from(u32::MAX), end) {
            (SENDS, End::Sender) if journal as u32 == first.wrapping_add(len) => Ended::Sending,
            (RECEIVES, End::Receiver) => Ended::Receiving,
            (_, End::Sender) if self.written.load(std::sync::atomic::Ordering::Relaxed) > first + len => Ended::Sending,
            _ if self.queue.members[identity as usize].sleepers[SENDER].load(Ordering::Relaxed) != 0 => Ended::Sending,
            _ => Ended::Died,
        }
    }

    /// As `Table::forget` and `Table::count_death`.
    fn bury(&self, identity: u32) {
        self.living[identity as usize].store(0, Ordering::Release); // Release: pairs: queue.models.living
        self.deaths.fetch_add(1, Ordering::Release); // Release: pairs: queue.models.deaths
        wake(&raw const self.deaths, i32::MAX);
    }

    /// A process lives, or dies before that one of its stores. It has a handle at that end, which it drops if it lives.
    fn live(
        self: &Arc<Self>,
        (identity, end, dies_at): (u32, End, u32),
        act: impl FnOnce(&Self, &Me<'_>) + Send + 'static,
    ) -> thread::JoinHandle<Ended> {
        let all = self.clone();
        let life = Life::whole();
        all.queue.add(&all.me(1, &life), end);
        all.queue.adopt(&all.me(identity, &life), 1, end);
        thread::spawn(move || {
            let life = Life::new(dies_at);
            let me = all.me(identity, &life);
            let lived = panic::catch_unwind(AssertUnwindSafe(|| {
                act(&all, &me);
                all.queue.remove(&me, &*all, end);
            }));
            if lived.is_ok() {
                return Ended::Lived;
            }
            assert!(life.has_died.get(), "a panic of the model's");
            let ended = all.cut_off(identity, end);
            all.bury(identity);
            ended
        })
    }

    fn send(&self, me: &Me<'_>, value: u32) {
        assert!(self.queue.send(me, self, value, &Limit::NEVER).is_ok());
    }

    fn recv(&self, me: &Me<'_>) -> Option<u32> {
        self.queue.recv(me, self, &Limit::NEVER).ok()
    }

    fn rest(&self, me: &Me<'_>) -> Vec<u32> {
        std::iter::from_fn(|| self.recv(me)).collect()
    }
}

/// With up to so many preemptions.
fn model(preemptions: usize, f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    builder.max_duration = Some(std::time::Duration::from_secs(20)); // those that are not done then have been looked at so far
    builder.preemption_bound = builder.preemption_bound.map(|most| most.min(preemptions));
    builder.check(f);
}

/// The model with a death before each of a process's stores in turn; `f` answers whether it lived. Ends when it always does.
fn deaths(preemptions: usize, f: impl Fn(u32) -> bool + Clone + Send + Sync + 'static) {
    for dies_at in 0.. {
        let died = Arc::new(Plain::new(0));
        let (f, any) = (f.clone(), died.clone());
        model(preemptions, move || {
            any.fetch_or(u32::from(!f(dies_at)), std::sync::atomic::Ordering::Relaxed);
        });
        if died.load(std::sync::atomic::Ordering::Relaxed) == 0 {
            assert!(dies_at > 10, "it has that many stores");
            return;
        }
    }
}

#[test]
fn each_value_once_and_who_sleeps_is_woken() {
    model(3, || {
        let all = All::new(1);
        let sender = all.live((2, End::Sender, u32::MAX), |all, me| (1..=2).for_each(|n| all.send(me, n)));
        let life = Life::whole();
        let me = all.me(1, &life);
        all.queue.remove(&me, &*all, End::Sender);
        assert_eq!(all.rest(&me), [1, 2]);
        assert_eq!(sender.join().unwrap(), Ended::Lived);
    });
}

/// Two that send one value each, with so much room.
fn two_send(room: usize) {
    model(2, move || {
        let all = All::new(room);
        let senders = [2, 3].map(|i| all.live((i, End::Sender, u32::MAX), move |all, me| all.send(me, i)));
        let life = Life::whole();
        let me = all.me(1, &life);
        all.queue.remove(&me, &*all, End::Sender);
        let mut values = all.rest(&me);
        values.sort_unstable();
        assert_eq!(values, [2, 3]);
        assert!(senders.into_iter().all(|sender| sender.join().unwrap() == Ended::Lived));
    });
}

#[test]
fn two_that_send() {
    two_send(1);
}

#[test]
fn the_end_is_seen_by_who_waits_for_room() {
    model(3, || {
        let all = All::new(1);
        let receiver = all.live((2, End::Receiver, u32::MAX), |all, me| assert!(all.recv(me).is_some()));
        let life = Life::whole();
        let me = all.me(1, &life);
        all.queue.remove(&me, &*all, End::Receiver);
        // One is received, one may find room, the next one does not.
        let sent = (1..=4).take_while(|&n| all.queue.send(&me, &*all, n, &Limit::NEVER).is_ok()).count();
        assert!((1..=2).contains(&sent), "{sent}");
        assert_eq!(receiver.join().unwrap(), Ended::Lived);
        assert_eq!(all.queue.state().1, 0, "what is left is dropped");
    });
}

/// What it had sent is received, then comes the end; the value at hand is there, or counted as lost, or was not begun.
#[test]
fn a_sender_that_dies() {
    deaths(2, |dies_at| {
        let all = All::new(1);
        let sent = Arc::new(Plain::new(0));
        let count = sent.clone();
        let sender = all.live((2, End::Sender, dies_at), move |all, me| {
            for n in 1..=2 {
                all.send(me, n);
                count.store(n, std::sync::atomic::Ordering::Relaxed);
            }
        });
        let life = Life::whole();
        let me = all.me(1, &life);
        all.queue.remove(&me, &*all, End::Sender);
        let values = all.rest(&me);
        let (ended, sent) = (sender.join().unwrap(), sent.load(std::sync::atomic::Ordering::Relaxed));
        let (came, lost) = (values.len() as u32, all.queue.lost(&me));
        assert!(values.iter().copied().eq(1..=came), "{values:?}");
        assert!(came == sent || came == sent + 1 && ended != Ended::Sending, "{sent} {values:?} {ended:?}");
        let at_hand = usize::from(ended == Ended::Sending);
        assert_eq!((lost.values, lost.receivers), (at_hand, 0), "{ended:?}");
        assert!(ended != Ended::Lived || came == 2 && lost.senders == 0, "{values:?} {lost:?}");
        ended == Ended::Lived
    });
}

/// What it had received goes with it, what it had not is there: each value has one receiver.
#[test]
fn a_receiver_that_dies() {
    deaths(2, |dies_at| {
        let all = All::new(3);
        let received = Arc::new(Plain::new(0));
        let count = received.clone();
        let receiver = all.live((2, End::Receiver, dies_at), move |all, me| {
            for n in 1..=2 {
                assert_eq!(all.recv(me), Some(n));
                count.store(n, std::sync::atomic::Ordering::Relaxed);
            }
        });
        let life = Life::whole();
        let me = all.me(1, &life);
        (1..=3).for_each(|n| all.send(&me, n));
        let ended = receiver.join().unwrap();
        all.queue.remove(&me, &*all, End::Sender);
        let rest = all.rest(&me);
        let received = received.load(std::sync::atomic::Ordering::Relaxed);
        let first = rest[0];
        assert!(rest.iter().copied().eq(first..=3), "{rest:?}");
        // It may have had one that it has not looked at.
        assert!(
            first == received + 1 || first == received + 2 && ended == Ended::Died,
            "{received} {rest:?} {ended:?}"
        );
        ended == Ended::Lived
    });
}

/// Of two that wait for room one is woken and dies: the other goes on.
#[test]
fn one_that_waits_for_room_and_dies() {
    deaths(1, |dies_at| {
        let all = All::new(1);
        let life = Life::whole();
        let me = all.me(1, &life);
        all.send(&me, 1);
        all.queue.remove(&me, &*all, End::Sender);
        let lives = all.live((2, End::Sender, u32::MAX), |all, me| all.send(me, 2));
        let dies = all.live((3, End::Sender, dies_at), |all, me| all.send(me, 3));
        let values = all.rest(&me);
        assert!(values[0] == 1 && values.contains(&2), "{values:?}");
        assert_eq!(lives.join().unwrap(), Ended::Lived);
        dies.join().unwrap() == Ended::Lived
    });
}

/// A send ends when its value has been taken.
#[test]
fn a_rendezvous() {
    model(3, || {
        let all = All::new(0);
        let sender = all.live((2, End::Sender, u32::MAX), |all, me| {
            for n in 1..=2 {
                all.send(me, n);
                assert_eq!(all.queue.state(), (n, 0));
            }
        });
        let life = Life::whole();
        let me = all.me(1, &life);
        all.queue.remove(&me, &*all, End::Sender);
        assert_eq!(all.rest(&me), [1, 2]);
        assert_eq!(sender.join().unwrap(), Ended::Lived);
    });
}

#[test]
fn two_senders_at_a_rendezvous() {
    two_send(0);
}

/// Who sends until a time that has come, or without waiting, has its value back or it was taken; also by a receiver whose time
/// has come.
#[test]
fn a_value_is_taken_or_back() {
    for (sends_until, receives_until) in [(true, false), (false, false), (false, true), (true, true)] {
        model(3, move || {
            let all = All::new(0);
            let got = Arc::new(Plain::new(0));
            let value = got.clone();
            let receiver = all.live((2, End::Receiver, u32::MAX), move |all, me| {
                let limit = if receives_until { Instant::now().into() } else { Limit::NEVER };
                let received = all.queue.recv(me, all, &limit);
                value.store(received.unwrap_or(0), std::sync::atomic::Ordering::Relaxed);
            });
            let life = Life::whole();
            let me = all.me(1, &life);
            let sent = if sends_until {
                all.queue.send(&me, &*all, 7, &Instant::now().into()).map_err(|back| back.0)
            } else {
                all.queue.put(&me, &*all, 7).map_err(|back| back.0)
            };
            assert!(sent.is_ok() || sent == Err(7));
            all.queue.remove(&me, &*all, End::Sender);
            assert_eq!(receiver.join().unwrap(), Ended::Lived);
            let got = got.load(std::sync::atomic::Ordering::Relaxed);
            assert_eq!(got, if sent.is_ok() { 7 } else { 0 });
        });
    }
}

/// Two selects that face each other.
#[test]
fn selects_that_face_each_other() {
    model(3, || {
        let all = All::new(0);
        let sender = all.live((2, End::Sender, u32::MAX), |all, me| {
            while all.queue.put(me, all, 7).is_err() {
                let deaths = me.deaths();
                let Some((word, value)) = all.queue.enter(me, all, End::Sender, 0) else { continue };
                me.wait(word, value, deaths, &Limit::NEVER).unwrap();
                all.queue.leave(me, all, End::Sender);
            }
        });
        let life = Life::whole();
        let me = all.me(1, &life);
        let mut result = all.queue.take(&me, &*all);
        while result == Err(false) {
            let deaths = me.deaths();
            let Some((word, value)) = all.queue.enter(&me, &*all, End::Receiver, 0) else {
                result = all.queue.take(&me, &*all);
                continue;
            };
            me.wait(word, value, deaths, &Limit::NEVER).unwrap();
            result = all.queue.take(&me, &*all);
            all.queue.leave(&me, &*all, End::Receiver);
        }
        assert_eq!(result, Ok(7));
        assert_eq!(sender.join().unwrap(), Ended::Lived);
    });
}

/// What it gives is received as a whole, or not at all.
#[test]
fn a_sender_that_dies_at_a_rendezvous() {
    deaths(2, |dies_at| {
        let all = All::new(0);
        let sent = Arc::new(Plain::new(0));
        let count = sent.clone();
        let sender = all.live((2, End::Sender, dies_at), move |all, me| {
            for n in 1..=2 {
                all.send(me, n);
                count.store(n, std::sync::atomic::Ordering::Relaxed);
            }
        });
        let life = Life::whole();
        let me = all.me(1, &life);
        all.queue.remove(&me, &*all, End::Sender);
        let values = all.rest(&me);
        let (ended, sent) = (sender.join().unwrap(), sent.load(std::sync::atomic::Ordering::Relaxed));
        let (came, lost) = (values.len() as u32, all.queue.lost(&me));
        assert!(values.iter().copied().eq(1..=came), "{values:?}");
        assert!(came == sent || came == sent + 1 && ended != Ended::Sending, "{sent} {values:?} {ended:?}");
        assert_eq!(lost.values, usize::from(ended == Ended::Sending), "{ended:?}");
        ended == Ended::Lived
    });
}

/// A value that it has not got is its sender's again; one that it may have had was sent.
#[test]
fn a_receiver_that_dies_at_a_rendezvous() {
    deaths(2, |dies_at| {
        let all = All::new(0);
        let received = Arc::new(Plain::new(0));
        let count = received.clone();
        let receiver = all.live((2, End::Receiver, dies_at), move |all, me| {
            for n in 1..=2 {
                assert_eq!(all.recv(me), Some(n));
                count.store(n, std::sync::atomic::Ordering::Relaxed);
            }
        });
        let life = Life::whole();
        let me = all.me(1, &life);
        all.queue.remove(&me, &*all, End::Receiver);
        let send = |&n: &u32| match all.queue.send(&me, &*all, n, &Limit::NEVER) {
            Ok(_) => true,
            Err(back) => {
                assert_eq!(back, (n, None));
                false
            }
        };
        let sent = (1..=3).take_while(send).count() as u32;
        let ended = receiver.join().unwrap();
        let received = received.load(std::sync::atomic::Ordering::Relaxed);
        assert!(sent == received || sent == received + 1 && ended == Ended::Died, "{sent} {received} {ended:?}");
        ended == Ended::Lived
    });
}
