//! Waits that a token ends, under loom. `ci/models.sh` runs them. A lost wake-up is a deadlock, which loom reports.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;

use super::{Condvar, Mutex, RwLock, Semaphore};
use crate::cancel::{Token, WaitError};
use crate::futex;
use crate::prim::{AtomicU32, Ordering};

/// Something that one thread at a time may change: loom checks it.
#[derive(Default)]
struct Alone(UnsafeCell<u32>);

impl Alone {
    fn change(&mut self) {
        // SAFETY: loom checks that nobody else does.
        self.0.with_mut(|n| unsafe { *n += 1 });
    }
}

// SAFETY: what the models check.
unsafe impl Sync for Alone {}

#[test]
fn a_cancel_wakes_who_waits() {
    loom::model(|| {
        let (token, never) = (Token::new(), Arc::new(AtomicU32::new(0)));
        let before = Arc::new(Alone::default());
        let waiter = {
            let (token, before) = (token.clone(), before.clone());
            thread::spawn(move || {
                let limit = (&token).into();
                while futex::wait_within(&never, 0, &limit).is_ok() {}
                // What came before the cancel is visible.
                // SAFETY: loom checks it.
                before.0.with(|n| assert_eq!(unsafe { *n }, 1));
            })
        };
        // SAFETY: loom checks it.
        before.0.with_mut(|n| unsafe { *n = 1 });
        token.cancel();
        waiter.join().unwrap();
    });
}

#[test]
fn a_child_is_cancelled_with_its_parent() {
    loom::model(|| {
        let parent = Token::new();
        let maker = {
            let parent = parent.clone();
            thread::spawn(move || parent.child())
        };
        parent.cancel();
        assert!(maker.join().unwrap().is_cancelled());
    });
}

#[test]
fn a_mutex_s_waiter_is_woken_though_another_was_cancelled() {
    loom::model(|| {
        let (token, mutex) = (Token::new(), Arc::new(Mutex::new(Alone::default())));
        let held = mutex.lock();
        let cancelled = {
            let (token, mutex) = (token.clone(), mutex.clone());
            thread::spawn(move || mutex.lock_until(&token).map(|mut held| held.change()).is_ok())
        };
        let other = {
            let mutex = mutex.clone();
            thread::spawn(move || mutex.lock().change())
        };
        token.cancel();
        drop(held);
        cancelled.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn a_permit_goes_to_who_waits_though_another_was_cancelled() {
    loom::model(|| {
        let (token, semaphore) = (Token::new(), Arc::new(Semaphore::new(0)));
        let cancelled = {
            let (token, semaphore) = (token.clone(), semaphore.clone());
            thread::spawn(move || {
                if semaphore.acquire_until(&token).is_ok() {
                    semaphore.release();
                }
            })
        };
        let other = {
            let semaphore = semaphore.clone();
            thread::spawn(move || semaphore.acquire())
        };
        semaphore.release();
        token.cancel();
        cancelled.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn a_notification_goes_to_who_waits_though_another_was_cancelled() {
    loom::model(|| {
        let token = Token::new();
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let cancelled = {
            let (token, shared) = (token.clone(), shared.clone());
            thread::spawn(move || {
                let (held, result) = shared.1.wait_until(shared.0.lock(), &token);
                drop(held);
                // Perhaps it was meant for us: handed on. Who is told of the cancel owes nobody anything.
                match result {
                    Ok(()) => shared.1.notify_one(),
                    Err(why) => assert_eq!(why, WaitError::Cancelled),
                }
            })
        };
        let other = {
            let shared = shared.clone();
            thread::spawn(move || drop(shared.1.wait_while(shared.0.lock(), |set| !*set)))
        };
        *shared.0.lock() = true;
        shared.1.notify_one();
        token.cancel();
        cancelled.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn a_writer_that_gives_up_lets_readers_in() {
    loom::model(|| {
        let (token, lock) = (Token::new(), Arc::new(RwLock::new(())));
        let held = lock.read();
        let writer = {
            let (token, lock) = (token.clone(), lock.clone());
            thread::spawn(move || drop(lock.write_until(&token)))
        };
        let reader = {
            let lock = lock.clone();
            thread::spawn(move || drop(lock.read()))
        };
        token.cancel();
        drop(held);
        writer.join().unwrap();
        reader.join().unwrap();
        assert!(lock.try_write().is_some(), "free, and nobody is said to wait");
    });
}

#[test]
fn a_writer_that_gives_up_leaves_another_its_turn() {
    loom::model(|| {
        let (token, lock) = (Token::new(), Arc::new(RwLock::new(Alone::default())));
        let held = lock.read();
        let first = {
            let (token, lock) = (token.clone(), lock.clone());
            thread::spawn(move || lock.write_until(&token).map(|mut held| held.change()).is_ok())
        };
        let second = {
            let lock = lock.clone();
            thread::spawn(move || lock.write().change())
        };
        token.cancel();
        drop(held);
        first.join().unwrap();
        second.join().unwrap();
    });
}

#[test]
fn a_writer_waits_for_a_writer_s_end() {
    loom::model(|| {
        let lock = Arc::new(RwLock::new(Alone::default()));
        let other = {
            let lock = lock.clone();
            thread::spawn(move || lock.write().change())
        };
        lock.write().change();
        other.join().unwrap();
    });
}

#[test]
fn who_waits_for_nothing_sees_a_cancel() {
    loom::model(|| {
        let (token, done) = (Token::new(), Arc::new(AtomicU32::new(0)));
        let other = {
            let (token, done) = (token.clone(), done.clone());
            thread::spawn(move || {
                done.store(1, Ordering::Relaxed);
                token.cancel();
            })
        };
        if token.is_cancelled() {
            assert_eq!(done.load(Ordering::Relaxed), 1);
        }
        other.join().unwrap();
    });
}
