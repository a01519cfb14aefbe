//! Channels under loom: every interleaving with up to `LOOM_MAX_PREEMPTIONS` preemptions. `ci/models.sh` runs them.
//!
//! A slot is a cell that loom watches: two threads at one slot, or a read of what is not written yet, fail. A lost wake-up is a
//! deadlock of the model, since a wait on a futex is a look and a yield and loom ends what only yields.

use std::sync::Arc;

use loom::thread;

use super::select::select;
use super::{Receiver, RecvArm, RecvError, SendArm, Sender, bounded, rendezvous, unbounded};
use crate::cancel::Limit;

/// With up to so many preemptions: with three threads a second one costs minutes.
fn model(preemptions: usize, f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    builder.max_duration = Some(std::time::Duration::from_secs(20)); // those that are not done then have been looked at so far
    builder.preemption_bound = builder.preemption_bound.map(|most| most.min(preemptions));
    builder.check(f);
}

fn send(sender: Sender<u32>, values: std::ops::Range<u32>) -> thread::JoinHandle<()> {
    thread::spawn(move || values.for_each(|n| sender.send(n).unwrap()))
}

/// One sender, one receiver: neither side has a lock. More values than room, and than a block holds.
#[test]
fn one_to_one() {
    for make in [|| bounded(1), || bounded(2), unbounded] {
        model(2, move || {
            let (sender, receiver) = make();
            let thread = send(sender, 0..3);
            for n in 0..3 {
                assert_eq!(receiver.recv(), Ok(n));
            }
            assert_eq!(receiver.recv(), Err(RecvError));
            thread.join().unwrap();
        });
    }
}

/// Two senders, of which one goes while the other sends: it is alone from then on.
#[test]
fn two_to_one() {
    for make in [|| bounded(1), unbounded, rendezvous] {
        model(1, move || {
            let (sender, receiver) = make();
            let threads = [send(sender.clone(), 1..2), send(sender, 2..3)];
            let mut sum = 0;
            while let Ok(n) = receiver.recv() {
                sum += n;
            }
            assert_eq!(sum, 3);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}

/// One sender, two receivers: each value once, and both learn of the end.
#[test]
fn one_to_two() {
    for make in [|| bounded(1), unbounded, rendezvous] {
        model(1, move || {
            let (sender, receiver) = make();
            let other = receiver.clone();
            let thread = thread::spawn(move || other.iter().sum::<u32>());
            let sending = send(sender, 1..2);
            let sum: u32 = receiver.iter().sum();
            assert_eq!(sum + thread.join().unwrap(), 1);
            sending.join().unwrap();
        });
    }
}

/// The receivers go: senders that wait learn it, and no value is left or dropped twice.
#[test]
fn receivers_go() {
    for make in [|| bounded(1), unbounded, rendezvous] {
        model(2, move || {
            let (sender, receiver): (Sender<Arc<()>>, Receiver<_>) = make();
            let value = Arc::new(());
            let mine = value.clone();
            let thread = thread::spawn(move || (0..2).all(|_| sender.send(mine.clone()).is_ok()));
            let _ = receiver.recv();
            drop(receiver);
            thread.join().unwrap();
            assert_eq!(Arc::strong_count(&value), 1);
        });
    }
}

/// A bell that is light: who waits makes it strict, and neither it nor the one who comes next is overslept.
#[test]
fn light_bell() {
    model(2, || {
        let (sender, receiver) = unbounded();
        let super::Flavor::Queue(queue) = &receiver.kind.0 else { unreachable!() };
        queue.not_empty.lighten(super::wait::PAYS as usize);
        let other = receiver.clone();
        let thread = thread::spawn(move || other.recv().unwrap());
        sender.send(1).unwrap();
        sender.send(2).unwrap();
        assert_eq!(receiver.recv().unwrap() + thread.join().unwrap(), 3);
    });
}

/// A deadline that passes while a value comes: the value is received now or later, and a waiter besides us is rung for.
#[test]
fn given_up() {
    for make in [|| bounded(1), rendezvous] {
        model(2, move || {
            let (sender, receiver) = make();
            let thread = thread::spawn(move || sender.try_send(1).is_ok());
            let got = receiver.recv_until(std::time::Instant::now()).is_ok();
            let sent = thread.join().unwrap();
            let later = receiver.try_recv().is_ok();
            assert_eq!(u32::from(got) + u32::from(later), u32::from(sent));
        });
    }
}

/// A select takes from one of two channels: what the other was rung for is left to whoever waits there.
#[test]
fn select_of_two() {
    for make in [|| bounded(1), rendezvous] {
        model(1, move || {
            let ((a, a_in), (b, b_in)) = (make(), make());
            let threads = [send(a, 1..2), send(b, 2..3)];
            let mut sum = 0;
            for _ in 0..2 {
                let (mut first, mut second) = (RecvArm::new(&a_in), RecvArm::new(&b_in));
                assert!(select(&mut [&mut first, &mut second], Some(Limit::NEVER)));
                let result = if super::Arm::is_done(&first) { first.result() } else { second.result() };
                match result {
                    Ok(n) => sum += n,
                    Err(RecvError) => {
                        // One is closed already; the other has what is missing.
                        sum += a_in.iter().chain(b_in.iter()).sum::<u32>();
                        break;
                    }
                }
            }
            assert_eq!(sum, 3);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}

/// Two threads meet in selects only.
#[test]
fn select_meets_select() {
    model(2, || {
        let ((a, a_in), (_b, b_in)) = (rendezvous::<u32>(), rendezvous::<u32>());
        let thread = thread::spawn(move || {
            let mut arm = SendArm::new(&a, 5);
            assert!(select(&mut [&mut arm], Some(Limit::NEVER)));
            arm.result().unwrap();
        });
        let (mut first, mut second) = (RecvArm::new(&b_in), RecvArm::new(&a_in));
        assert!(select(&mut [&mut first, &mut second], Some(Limit::NEVER)));
        assert_eq!(second.result(), Ok(5));
        thread.join().unwrap();
    });
}
