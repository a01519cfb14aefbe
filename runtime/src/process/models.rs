//! The word of a lock under loom: processes that die while they hold it, and between freeing it and waking others. Then
//! the end of a task and the bell, and the stack of free blocks.
//!
//! A process is a thread of the model; one that has died goes on as the process that buries it. Waits are real ones: a wake
//! that is lost is a deadlock, which loom reports.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::free::Free;
use super::life::{self, Bell};
use super::word::{Processes, Word};
use crate::cancel::{Limit, WaitError};
use crate::prim::{AtomicU32, AtomicU64, Ordering};

struct All {
    word: Word,
    value: UnsafeCell<u32>,
    /// Identities 1 to 3: 0 is dead.
    living: [AtomicU32; 4],
    deaths: AtomicU32,
    kernel: Mutex<()>,
    sleepers: Condvar,
}

// SAFETY: the value is reached under the lock, which is what the models check.
unsafe impl Send for All {}
// SAFETY: as above.
unsafe impl Sync for All {}

struct Me<'a> {
    all: &'a All,
    identity: u32,
    /// It dies before it can wake anybody.
    is_dying: bool,
}

impl Processes for Me<'_> {
    fn me(&self) -> u32 {
        self.identity
    }
    fn deaths(&self) -> u32 {
        self.all.deaths.load(Ordering::Acquire) // Acquire: as `wait::deaths`. pairs: models.deaths
    }
    fn is_dead(&self, process: u32) -> bool {
        // Acquire: as `Table::is_dead`. pairs: models.living
        self.all.living[process as usize].load(Ordering::Acquire) == 0
    }
    fn wait(&self, word: &AtomicU32, value: u32, deaths: u32, _: &Limit<'_>) -> Result<(), WaitError> {
        let kernel = self.all.kernel.lock().unwrap();
        if word.load(Ordering::Relaxed) == value && self.all.deaths.load(Ordering::Relaxed) == deaths {
            drop(self.all.sleepers.wait(kernel).unwrap());
        }
        Ok(())
    }
    fn wake(&self, _: *const AtomicU32) {
        if !self.is_dying {
            drop(self.all.kernel.lock().unwrap());
            self.all.sleepers.notify_one();
        }
    }
}

impl All {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            word: Word::new(),
            value: UnsafeCell::new(0),
            living: [0, 1, 1, 1].map(AtomicU32::new),
            deaths: AtomicU32::new(0),
            kernel: Mutex::new(()),
            sleepers: Condvar::new(),
        })
    }

    fn me(&self, identity: u32, is_dying: bool) -> Me<'_> {
        Me { all: self, identity, is_dying }
    }

    /// Adds one under the lock; the answer tells whether it was a dead process's.
    fn add(&self, me: &Me<'_>) -> bool {
        let abandoned = self.word.lock(me, &Limit::NEVER).unwrap();
        // SAFETY: under the lock.
        self.value.with_mut(|value| unsafe { *value += 1 });
        abandoned
    }

    /// As `Table::forget` and `Table::count_death`.
    fn bury(&self, identity: u32) {
        self.living[identity as usize].store(0, Ordering::Release); // Release: pairs: models.living
        self.deaths.fetch_add(1, Ordering::Release); // Release: pairs: models.deaths
        drop(self.kernel.lock().unwrap());
        self.sleepers.notify_all();
    }

    fn live(self: &Arc<Self>, identity: u32) -> thread::JoinHandle<bool> {
        let all = self.clone();
        thread::spawn(move || {
            let me = all.me(identity, false);
            let abandoned = all.add(&me);
            all.word.unlock(&me);
            abandoned
        })
    }
}

#[test]
fn one_at_a_time_and_no_wake_is_lost() {
    loom::model(|| {
        let all = All::new();
        let others = [all.live(1), all.live(2)];
        let me = all.me(3, false);
        assert!(!all.add(&me));
        all.word.unlock(&me);
        for other in others {
            assert!(!other.join().unwrap());
        }
        // SAFETY: all have ended.
        assert_eq!(all.value.with(|value| unsafe { *value }), 3);
    });
}

#[test]
fn a_holder_that_dies_is_followed_by_one_that_is_told() {
    loom::model(|| {
        let all = All::new();
        let others = [all.live(1), all.live(2)];
        let me = all.me(3, true);
        assert!(!all.add(&me));
        all.bury(3);
        let told = others.map(|other| other.join().unwrap());
        // Both may have been before it.
        assert!(told != [true, true], "told twice");
        let me = all.me(1, false);
        assert!(all.add(&me) || told != [false, false]);
        // SAFETY: all have ended.
        assert_eq!(all.value.with(|value| unsafe { *value }), 4);
    });
}

#[test]
fn one_that_dies_before_it_wakes_others() {
    loom::model(|| {
        let all = All::new();
        let other = all.live(1);
        let me = all.me(3, true);
        assert!(!all.add(&me));
        all.word.unlock(&me);
        all.bury(3);
        assert!(!other.join().unwrap());
    });
}

#[test]
fn one_that_is_woken_and_dies() {
    loom::model(|| {
        let all = All::new();
        let other = all.live(1);
        let dying = {
            let all = all.clone();
            // Waits as if for the lock, and dies when it is woken.
            thread::spawn(move || {
                let me = all.me(2, true);
                if all.word.try_lock(&me).is_some() {
                    all.word.unlock(&me);
                }
                all.bury(2);
            })
        };
        let me = all.me(3, false);
        assert!(!all.add(&me));
        all.word.unlock(&me);
        assert!(!other.join().unwrap());
        dying.join().unwrap();
    });
}

/// Blocks 1 to 3: their first words, and what their owners write.
struct Blocks {
    free: Free,
    words: [AtomicU64; 4],
    values: [UnsafeCell<u32>; 4],
}

// SAFETY: who has popped a block has it alone, which is what the models check.
unsafe impl Send for Blocks {}
// SAFETY: as above.
unsafe impl Sync for Blocks {}

impl Blocks {
    fn new() -> Arc<Self> {
        let this = Self {
            free: Free::new(),
            words: [0, 0, 0, 0].map(AtomicU64::new),
            values: [0, 0, 0, 0].map(UnsafeCell::new),
        };
        (1..=3).for_each(|number| this.push(number));
        Arc::new(this)
    }

    fn push(&self, number: u64) {
        self.free.push(number, |number| &self.words[number as usize]);
    }

    /// Takes a block and writes to it, also where the word of free ones is.
    fn pop(&self) -> Option<u64> {
        let number = self.free.pop(|number| &self.words[number as usize])?;
        // SAFETY: we have popped it.
        self.values[number as usize].with_mut(|value| unsafe { *value += 1 });
        Some(number)
    }

    fn live(self: &Arc<Self>) -> thread::JoinHandle<()> {
        let blocks = self.clone();
        thread::spawn(move || {
            let (first, second) = (blocks.pop(), blocks.pop());
            // In the order in which they were taken: the first is on top again, with another one under it.
            first.into_iter().chain(second).for_each(|number| blocks.push(number));
        })
    }
}

#[test]
fn a_block_has_one_owner_and_none_is_lost() {
    loom::model(|| {
        let blocks = Blocks::new();
        let others = [blocks.live()];
        let mine = blocks.pop();
        for other in others {
            other.join().unwrap();
        }
        let mut all: Vec<_> = mine.into_iter().chain(std::iter::from_fn(|| blocks.pop())).collect();
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3]);
    });
}

#[test]
fn blocks_that_come_back() {
    loom::model(|| {
        let blocks = Blocks::new();
        let other = blocks.live();
        let mine = blocks.pop();
        mine.into_iter().for_each(|number| blocks.push(number));
        other.join().unwrap();
        let mut all: Vec<_> = std::iter::from_fn(|| blocks.pop()).collect();
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3]);
    });
}

/// A task and its sender's bell.
struct Sent {
    state: AtomicU32,
    bell: Bell,
    /// The result; written by the runner, then by who takes or frees it.
    result: UnsafeCell<u32>,
    kernel: Mutex<()>,
    sleepers: Condvar,
}

// SAFETY: the result is reached by who the state says may, which is what the models check.
unsafe impl Send for Sent {}
// SAFETY: as above.
unsafe impl Sync for Sent {}

impl Sent {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            state: AtomicU32::new(life::RUNNING),
            bell: Bell::new(),
            result: UnsafeCell::new(0),
            kernel: Mutex::new(()),
            sleepers: Condvar::new(),
        })
    }

    fn add(&self) {
        // SAFETY: by who the state says may.
        self.result.with_mut(|result| unsafe { *result += 1 });
    }

    fn result(&self) -> u32 {
        // SAFETY: as above.
        self.result.with(|result| unsafe { *result })
    }

    fn ring(&self) {
        self.bell.ring(|_| {
            drop(self.kernel.lock().unwrap());
            self.sleepers.notify_one();
        });
    }

    /// As `Table::end`; frees it if nobody wants it.
    fn run(self: &Arc<Self>) -> thread::JoinHandle<()> {
        let sent = self.clone();
        thread::spawn(move || {
            sent.add();
            if life::end(&sent.state, life::DONE) {
                sent.ring();
            } else {
                sent.add();
            }
        })
    }

    /// As `task::listen`.
    fn listen(&self) {
        loop {
            let heard = self.bell.heard();
            if life::is_over(life::state(&self.state)) {
                return;
            }
            self.bell.wait(heard, |bell, value| {
                let kernel = self.kernel.lock().unwrap();
                if bell.load(Ordering::Relaxed) == value {
                    drop(self.sleepers.wait(kernel).unwrap());
                }
            });
        }
    }
}

#[test]
fn an_end_is_heard() {
    loom::model(|| {
        let sent = Sent::new();
        let runner = sent.run();
        // Another task of the same sender.
        let other = {
            let sent = sent.clone();
            thread::spawn(move || sent.ring())
        };
        sent.listen();
        assert_eq!(sent.result(), 1);
        runner.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn what_nobody_wants_is_freed_once() {
    loom::model(|| {
        let sent = Sent::new();
        let runner = sent.run();
        if life::detach(&sent.state) {
            sent.add();
        }
        runner.join().unwrap();
        assert_eq!(sent.result(), 2);
    });
}
