//! The park word: one claim wins, brings its waker's data along, and an old ticket never counts.

use super::Thread;
use crate::park::{Reason, Ticket};
use crate::prim::fence;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use std::sync::Arc;

/// A waker: writes what the woken thread shall see, claims, makes runnable.
fn waker(t: &Arc<Thread>, data: &Arc<UnsafeCell<u32>>, ticket: Ticket, reason: Reason) -> thread::JoinHandle<bool> {
    let (t, data) = (t.clone(), data.clone());
    thread::spawn(move || {
        // SAFETY: loom checks that nobody else uses the cell.
        data.with_mut(|d| unsafe { *d = 1 });
        let won = t.park.claim(ticket, reason);
        if won {
            t.ready();
        }
        won
    })
}

fn seen(data: &UnsafeCell<u32>) -> u32 {
    // SAFETY: loom checks that nobody writes it meanwhile.
    data.with(|d| unsafe { *d })
}

#[test]
fn two_claimers_and_a_closing_owner() {
    loom::model(|| {
        let t = Arc::new(Thread::default());
        let data = [Arc::new(UnsafeCell::new(0)), Arc::new(UnsafeCell::new(0))];
        let ticket = t.park.open();
        let a = waker(&t, &data[0], ticket, Reason::Woken);
        let b = waker(&t, &data[1], ticket, Reason::Timeout);
        let reason = if t.park.close(ticket) { None } else { Some(t.park.reason()) };
        // Seen as soon as the owner knows the reason, before the queues order anything.
        match reason {
            Some(Reason::Woken) => assert_eq!(seen(&data[0]), 1),
            Some(Reason::Timeout) => assert_eq!(seen(&data[1]), 1),
            Some(Reason::Signal) => panic!("nobody claims for a signal"),
            None => {}
        }
        if reason.is_some() {
            assert_eq!(Some(t.park()), reason, "its wake-up is used up");
        }
        let won = (a.join().unwrap(), b.join().unwrap());
        assert_eq!(won, (reason == Some(Reason::Woken), reason == Some(Reason::Timeout)));
        t.check();
    });
}

#[test]
fn two_claimers_of_a_parked_thread() {
    loom::model(|| {
        let t = Arc::new(Thread::default());
        let data = [Arc::new(UnsafeCell::new(0)), Arc::new(UnsafeCell::new(0))];
        let ticket = t.park.open();
        let a = waker(&t, &data[0], ticket, Reason::Woken);
        let b = waker(&t, &data[1], ticket, Reason::Signal);
        let reason = t.park();
        assert_eq!(seen(&data[if reason == Reason::Woken { 0 } else { 1 }]), 1);
        let won = (a.join().unwrap(), b.join().unwrap());
        assert_eq!(won, (reason == Reason::Woken, reason == Reason::Signal));
        t.check();
    });
}

#[test]
fn stale_tickets_do_not_count() {
    loom::model(|| {
        let t = Arc::new(Thread::default());
        let data = [Arc::new(UnsafeCell::new(0)), Arc::new(UnsafeCell::new(0))];
        let first = t.park.open();
        let late = waker(&t, &data[0], first, Reason::Timeout);
        let closed = t.park.close(first);
        if !closed {
            assert_eq!(t.park(), Reason::Timeout);
        }
        let second = t.park.open();
        let right = waker(&t, &data[1], second, Reason::Woken);
        assert_eq!(t.park(), Reason::Woken);
        assert_eq!(late.join().unwrap(), !closed);
        assert!(right.join().unwrap());
        assert!(!t.park.claim(first, Reason::Woken) && !t.park.claim(second, Reason::Woken));
        t.check();
    });
}

/// `wait::begin` and `pending::alert` of the ABI layer: a signal finds the open wait, or the thread finds the signal.
#[test]
fn no_signal_is_slept_through() {
    loom::model(|| {
        let t = Arc::new(Thread::default());
        let attention = Arc::new(AtomicBool::new(false));
        let sender = thread::spawn({
            let (t, attention) = (t.clone(), attention.clone());
            move || {
                attention.store(true, Ordering::Relaxed);
                fence(Ordering::SeqCst); // SeqCst: as in `alert`. pairs: signal.attention
                let claimed = t.park.claim_any(Reason::Signal);
                if claimed {
                    t.ready();
                }
                claimed
            }
        });
        let ticket = t.park.open();
        fence(Ordering::SeqCst); // SeqCst: as in `begin`. pairs: signal.attention
        let noticed = attention.load(Ordering::Relaxed);
        // A thread that noticed gives the wait up, and uses up the wake-up of a claim that came first.
        if !(noticed && t.park.close(ticket)) {
            assert_eq!(t.park(), Reason::Signal);
        }
        sender.join().unwrap();
        t.check();
    });
}
