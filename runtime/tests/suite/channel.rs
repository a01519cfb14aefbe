//! Channels between threads of all kinds.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use heddle::cancel::Token;
use heddle::channel::{
    Receiver, RecvError, RecvUntilError, SendUntilError, Sender, TryRecvError, TrySendError, bounded, rendezvous,
    select, unbounded,
};
use heddle::{Builder, Mode};
use proptest::prelude::*;

super::tests![
    channel_one_to_one,
    channel_many_to_many,
    channel_ping_pong,
    channel_order_of_each_sender,
    channel_deadlines,
    channel_shared_by_threads,
    channel_closed_by_senders,
    channel_closed_by_receivers,
    channel_closed_by_hand,
    channel_wakes_all_at_the_end,
    channel_values_are_dropped_once,
    channel_drops_that_panic,
    channel_as_a_queue,
    channel_takes_many,
    channel_large_and_empty_values,
    select_of_several,
    select_sends_and_receives,
    select_meets_select,
    select_in_time,
    channel_cancelled,
    select_of_closed,
    select_that_spins_gives_turns,
    select_leaves_nothing_behind,
];

type Pair<T> = (Sender<T>, Receiver<T>);

fn kinds<T>() -> Vec<Pair<T>> {
    vec![rendezvous(), bounded(1), bounded(3), bounded(64), unbounded()]
}

/// A thread of one of the kinds that the mode has.
fn thread<F: FnOnce() -> T + Send + 'static, T: Send + 'static>(i: usize, f: F) -> heddle::JoinHandle<T> {
    let user = heddle::mode() == Mode::User && i % 3 != 2;
    Builder::new().mode(if user { Mode::User } else { Mode::Kernel }).spawn(f).unwrap()
}

fn channel_one_to_one() {
    for i in 0..6 {
        for (sender, receiver) in kinds::<usize>() {
            let thread = thread(i, move || (0..3000).for_each(|n| sender.send(n).unwrap()));
            assert!(receiver.into_iter().eq(0..3000));
            thread.join().unwrap();
        }
    }
}

fn channel_many_to_many() {
    for (sender, receiver) in kinds::<usize>() {
        let senders: Vec<_> = (0..4)
            .map(|i| {
                let sender = sender.clone();
                thread(i, move || (0..1000).for_each(|n| sender.send(i * 1000 + n).unwrap()))
            })
            .collect();
        drop(sender);
        let receivers: Vec<_> = (0..3)
            .map(|i| {
                let receiver = receiver.clone();
                thread(i, move || receiver.into_iter().collect::<Vec<_>>())
            })
            .collect();
        drop(receiver);
        senders.into_iter().for_each(|thread| thread.join().unwrap());
        let mut all: Vec<usize> = receivers.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..4000));
    }
}

fn channel_ping_pong() {
    for ((to, from), (back, answers)) in kinds::<u32>().into_iter().zip(kinds::<u32>()) {
        let thread = thread(0, move || from.iter().for_each(|n| back.send(n + 1).unwrap()));
        for n in 0..2000 {
            to.send(n).unwrap();
            assert_eq!(answers.recv(), Ok(n + 1));
        }
        drop(to);
        thread.join().unwrap();
    }
}

fn channel_order_of_each_sender() {
    for (sender, receiver) in kinds::<(usize, usize)>() {
        let threads: Vec<_> = (0..3)
            .map(|i| {
                let sender = sender.clone();
                thread(i, move || (0..800).for_each(|n| sender.send((i, n)).unwrap()))
            })
            .collect();
        drop(sender);
        let mut next = [0; 3];
        for (i, n) in receiver.iter() {
            assert_eq!(next[i], n);
            next[i] += 1;
        }
        assert_eq!(next, [800; 3]);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn channel_deadlines() {
    let most = Duration::from_millis(5);
    for (sender, receiver) in kinds::<u32>() {
        let start = Instant::now();
        assert_eq!(receiver.recv_until(most), Err(RecvUntilError::TimedOut));
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
        assert!(start.elapsed() >= most);
        let Some(room) = sender.capacity() else { continue };
        (0..room).for_each(|n| sender.send(n as u32).unwrap());
        assert!(matches!(sender.try_send(7), Err(TrySendError::Full(7))));
        let start = Instant::now();
        assert!(matches!(sender.send_until(9, start + most), Err(SendUntilError::TimedOut(9))));
        assert!(start.elapsed() >= most);
        assert_eq!((receiver.len(), receiver.try_iter().count()), (room, room));
        let thread = thread(0, move || sender.send_until(5, Duration::from_secs(30)));
        assert_eq!(receiver.recv_until(Duration::from_secs(30)), Ok(5));
        thread.join().unwrap().unwrap();
        assert_eq!(receiver.recv_until(Duration::from_secs(30)), Err(RecvUntilError::Disconnected));
    }
}

fn channel_shared_by_threads() {
    for (sender, receiver) in kinds::<u64>() {
        let shared = Arc::new(heddle::channel::Shared::new(sender, receiver));
        let senders: Vec<_> = (0..3)
            .map(|i| {
                let shared = shared.clone();
                // The last of them by a clone of its own, made while others send.
                thread(i, move || match i {
                    2 => {
                        let own = shared.sender().clone();
                        (0..500).for_each(|n| own.send(n).unwrap());
                    }
                    _ => (0..500).for_each(|n| shared.sender().send(n).unwrap()),
                })
            })
            .collect();
        let receivers: Vec<_> = (0..2)
            .map(|i| {
                let shared = shared.clone();
                thread(i, move || shared.receiver().iter().sum::<u64>())
            })
            .collect();
        senders.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(shared.sender().close());
        assert_eq!(receivers.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>(), 3 * 124_750);
    }
}

fn channel_closed_by_senders() {
    for (sender, receiver) in kinds::<u32>() {
        let other = sender.clone();
        let room = sender.capacity().unwrap_or(5);
        (0..room).for_each(|n| sender.send(n as u32).unwrap());
        drop(sender);
        assert!(!receiver.is_closed());
        drop(other);
        assert!(receiver.is_closed());
        assert_eq!(receiver.iter().count(), room);
        assert_eq!((receiver.recv(), receiver.try_recv()), (Err(RecvError), Err(TryRecvError::Disconnected)));
    }
}

fn channel_closed_by_receivers() {
    for (sender, receiver) in kinds::<Arc<()>>() {
        let value = Arc::new(());
        let room = sender.capacity().unwrap_or(5);
        (0..room).for_each(|_| sender.send(value.clone()).unwrap());
        drop(receiver.clone());
        assert!(!sender.is_closed());
        drop(receiver);
        assert_eq!(Arc::strong_count(&value), 1, "what was in it is dropped at once");
        assert!(sender.send(value.clone()).is_err());
        assert!(matches!(sender.try_send(value.clone()), Err(TrySendError::Disconnected(_))));
        assert!(matches!(sender.send_until(value, Instant::now()), Err(SendUntilError::Disconnected(_))));
    }
}

fn channel_closed_by_hand() {
    for (sender, receiver) in kinds::<u32>() {
        let room = sender.capacity().unwrap_or(5);
        (0..room).for_each(|n| sender.send(n as u32).unwrap());
        assert!(receiver.close());
        assert!(!sender.close());
        assert!(sender.send(1).is_err());
        assert_eq!(receiver.iter().count(), room);
        assert_eq!(receiver.recv(), Err(RecvError));
    }
}

fn channel_wakes_all_at_the_end() {
    for (sender, receiver) in kinds::<usize>() {
        let waiting: Vec<_> = (0..3)
            .map(|i| {
                let receiver = receiver.clone();
                thread(i, move || receiver.recv())
            })
            .collect();
        heddle::sleep(Duration::from_millis(2));
        drop(sender);
        waiting.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), Err(RecvError)));
    }
    for (sender, receiver) in kinds::<usize>() {
        let Some(room) = sender.capacity() else { continue };
        (0..room).for_each(|n| sender.send(n).unwrap());
        let waiting: Vec<_> = (0..3)
            .map(|i| {
                let sender = sender.clone();
                thread(i, move || sender.send(77).unwrap_err().0)
            })
            .collect();
        heddle::sleep(Duration::from_millis(2));
        drop(receiver);
        waiting.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), 77));
    }
}

/// Counts how many there are.
struct Counted(Arc<AtomicUsize>, Box<u32>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>, n: u32) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone(), Box::new(n))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
        *self.1 = u32::MAX;
    }
}

fn channel_values_are_dropped_once() {
    for (sender, receiver) in kinds::<Counted>() {
        let count = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..4)
            .map(|i| {
                let (sender, count) = (sender.clone(), count.clone());
                thread(i, move || {
                    for n in 0..2000 {
                        if sender.send(Counted::new(&count, n)).is_err() {
                            return;
                        }
                    }
                })
            })
            .collect();
        drop(sender);
        let receiving: Vec<_> = (0..2)
            .map(|i| {
                let receiver = receiver.clone();
                // One panics with a value in its hands; both leave before the senders are done.
                thread(i, move || {
                    catch_unwind(AssertUnwindSafe(|| {
                        for (n, value) in receiver.into_iter().enumerate() {
                            assert_ne!(*value.1, u32::MAX);
                            if n == 500 {
                                std::panic::resume_unwind(Box::new("with a value"));
                            }
                        }
                    }))
                    .is_err()
                })
            })
            .collect();
        drop(receiver);
        receiving.into_iter().for_each(|thread| assert!(thread.join().unwrap()));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }
}

/// Panics when it is dropped, if told to.
struct Explosive {
    _counted: Counted,
    explodes: bool,
}

impl Drop for Explosive {
    fn drop(&mut self) {
        if self.explodes {
            std::panic::resume_unwind(Box::new("dropped"));
        }
    }
}

fn channel_drops_that_panic() {
    for (sender, receiver) in [bounded(1100), unbounded()] {
        let count = Arc::new(AtomicUsize::new(0));
        for n in 0..1100 {
            sender.send(Explosive { _counted: Counted::new(&count, n), explodes: n == 20 }).unwrap();
        }
        assert!(catch_unwind(AssertUnwindSafe(|| drop(receiver))).is_err());
        assert!(sender.is_closed());
        drop(sender);
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Send(u32),
    Receive,
    Take(usize),
    CloneSender,
    DropSender,
    CloneReceiver,
    DropReceiver,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let one = prop_oneof![
        8 => any::<u32>().prop_map(Operation::Send),
        8 => Just(Operation::Receive),
        1 => (0usize..9).prop_map(Operation::Take),
        1 => Just(Operation::CloneSender),
        1 => Just(Operation::DropSender),
        1 => Just(Operation::CloneReceiver),
        1 => Just(Operation::DropReceiver),
    ];
    proptest::collection::vec(one, 0..400)
}

/// Any sequence of operations answers what a plain queue would.
fn channel_as_a_queue() {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) };
    proptest!(config, |(operations in operations(), capacity in proptest::option::of(1usize..20))| {
        let (sender, receiver) = capacity.map_or_else(unbounded, bounded);
        let (mut senders, mut receivers, mut model) = (vec![sender], vec![receiver], VecDeque::new());
        for (i, operation) in operations.into_iter().enumerate() {
            match operation {
                Operation::Send(n) => {
                    let result = senders[i % senders.len()].try_send(n);
                    if model.len() == capacity.unwrap_or(usize::MAX) {
                        prop_assert!(matches!(result, Err(TrySendError::Full(back)) if back == n));
                    } else {
                        prop_assert!(result.is_ok());
                        model.push_back(n);
                    }
                }
                Operation::Receive => {
                    prop_assert_eq!(receivers[i % receivers.len()].try_recv().ok(), model.pop_front());
                }
                Operation::Take(most) => {
                    let mut taken = Vec::new();
                    receivers[i % receivers.len()].take(&mut taken, most);
                    let most = most.min(model.len());
                    prop_assert_eq!(taken, model.drain(..most).collect::<Vec<_>>());
                }
                Operation::CloneSender => senders.push(senders[0].clone()),
                Operation::CloneReceiver => receivers.push(receivers[0].clone()),
                Operation::DropSender => senders.truncate(senders.len().saturating_sub(1).max(1)),
                Operation::DropReceiver => receivers.truncate(receivers.len().saturating_sub(1).max(1)),
            }
            prop_assert_eq!(senders[0].len(), model.len());
        }
        senders.clear();
        prop_assert_eq!(receivers[0].iter().collect::<Vec<_>>(), Vec::from(model));
    });
}

fn channel_takes_many() {
    for (sender, receiver) in kinds::<u32>() {
        let thread = thread(1, move || (0..2000).for_each(|n| sender.send(n).unwrap()));
        let mut all = Vec::new();
        while let Ok(first) = receiver.recv() {
            all.push(first);
            receiver.take(&mut all, 10);
        }
        assert!(all.into_iter().eq(0..2000));
        thread.join().unwrap();
    }
}

fn channel_large_and_empty_values() {
    for (sender, receiver) in kinds::<[u64; 700]>() {
        let thread = thread(0, move || (0..200).for_each(|n| sender.send([n; 700]).unwrap()));
        for n in 0..200 {
            assert_eq!(receiver.recv().unwrap(), [n; 700]);
        }
        thread.join().unwrap();
    }
    for (sender, receiver) in kinds::<()>() {
        let thread = thread(0, move || (0..2000).for_each(|_| sender.send(()).unwrap()));
        assert_eq!(receiver.iter().count(), 2000);
        thread.join().unwrap();
    }
}

fn select_of_several() {
    for (((a, a_in), (b, b_in)), (c, c_in)) in kinds().into_iter().zip(kinds()).zip(kinds()) {
        // They stay open: a closed channel is always ready, and a receiver that never waits leaves the others of its worker
        // but the ends of its slices, one message in each.
        let senders = [a, b, c];
        let threads: Vec<_> = senders
            .iter()
            .cloned()
            .enumerate()
            .map(|(i, sender)| thread(i, move || (0..700).for_each(|n| sender.send(n).unwrap())))
            .collect();
        let mut next = [0usize; 3];
        while next.iter().sum::<usize>() < 2100 {
            let (i, n) = select! {
                recv(a_in) -> n => (0, n),
                recv(b_in) -> n => (1, n),
                recv(c_in) -> n => (2, n),
            };
            assert_eq!(next[i], n.unwrap());
            next[i] += 1;
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn select_sends_and_receives() {
    for ((to, from), (back, answers)) in kinds::<u32>().into_iter().zip(kinds::<u32>()) {
        let thread = thread(0, move || from.iter().for_each(|n| back.send(n).unwrap()));
        let (mut sent, mut received) = (0, 0);
        while received < 1000 {
            if sent < 1000 {
                select! {
                    send(to, sent) -> result => {
                        result.unwrap();
                        sent += 1;
                    }
                    recv(answers) -> n => {
                        assert_eq!(n, Ok(received));
                        received += 1;
                    }
                }
            } else {
                assert_eq!(answers.recv(), Ok(received));
                received += 1;
            }
        }
        drop(to);
        thread.join().unwrap();
    }
}

fn select_meets_select() {
    let ((a, a_in), (b, b_in)) = (rendezvous::<u32>(), rendezvous::<u32>());
    // Each sends to one and receives from the other, in any order, with nothing but selects.
    let one = move |to: Sender<u32>, from: Receiver<u32>| {
        let (mut sent, mut received) = (0, 0);
        while sent < 1000 || received < 1000 {
            if sent == 1000 {
                assert_eq!(from.recv(), Ok(received));
                received += 1;
            } else if received == 1000 {
                to.send(sent).unwrap();
                sent += 1;
            } else {
                select! {
                    send(to, sent) -> result => { result.unwrap(); sent += 1; }
                    recv(from) -> n => { assert_eq!(n, Ok(received)); received += 1; }
                }
            }
        }
    };
    let other = thread(0, move || one(a, b_in));
    one(b, a_in);
    other.join().unwrap();
}

fn select_in_time() {
    let (sender, receiver) = rendezvous::<u32>();
    let most = Duration::from_millis(5);
    let start = Instant::now();
    let timed_out = select! {
        recv(receiver) -> _ => false,
        send(sender, 3) -> _ => false,
        after(most) => true,
    };
    assert!(timed_out, "one cannot meet oneself");
    assert!(start.elapsed() >= most);
    select! {
        recv(receiver) -> n => panic!("{n:?}"),
        default => {}
    }
    let thread = thread(0, move || {
        heddle::sleep(most);
        sender.send(4).unwrap();
    });
    select! {
        recv(receiver) -> n => assert_eq!(n, Ok(4)),
        after(Duration::from_secs(30)) => panic!("it was sent"),
    }
    thread.join().unwrap();
}

fn channel_cancelled() {
    for (sender, receiver) in kinds::<u32>() {
        let token = Token::new();
        let shared = token.clone();
        let waiting = thread(0, move || {
            assert_eq!(receiver.recv_until(&shared), Err(RecvUntilError::Cancelled));
            select! {
                recv(receiver) -> n => panic!("{n:?}"),
                after(&shared) => receiver,
            }
        });
        heddle::sleep(Duration::from_millis(1));
        token.cancel();
        let _receiver = waiting.join().unwrap();
        let Some(room) = sender.capacity() else { continue };
        (0..room).for_each(|n| sender.send_until(n as u32, &token).unwrap());
        assert!(matches!(sender.send_until(1, &token), Err(SendUntilError::Cancelled(1))));
    }
}

fn select_of_closed() {
    for (sender, receiver) in kinds::<String>() {
        let (_open, never) = rendezvous::<()>();
        let closer = thread(0, move || {
            heddle::sleep(Duration::from_millis(2));
            drop(sender);
        });
        select! {
            recv(never) -> _ => panic!("nothing was sent"),
            recv(receiver) -> result => assert_eq!(result, Err(RecvError)),
        }
        closer.join().unwrap();
    }
    for (sender, receiver) in kinds::<String>() {
        drop(receiver);
        select! {
            send(sender, "lost".to_string()) -> result => assert_eq!(result.unwrap_err().0, "lost"),
        }
    }
}

/// A select that takes from one channel must not keep what another was rung for.
fn select_leaves_nothing_behind() {
    for _ in 0..20 {
        let ((a, a_in), (b, b_in)) = (unbounded::<u32>(), unbounded::<u32>());
        let receiving: Vec<_> = (0..4)
            .map(|i| {
                let (a, b) = (a_in.clone(), b_in.clone());
                thread(i, move || {
                    let mut sum = 0;
                    loop {
                        let n = if i % 2 == 0 {
                            select! { recv(a) -> n => n, recv(b) -> n => n, }
                        } else {
                            b.recv()
                        };
                        match n {
                            Ok(0) | Err(_) => return sum,
                            Ok(n) => sum += n,
                        }
                    }
                })
            })
            .collect();
        let sending = [a, b].map(|sender| {
            thread(0, move || {
                (0..100).for_each(|_| sender.send(1).unwrap());
                sender
            })
        });
        let [_a, b] = sending.map(|thread| thread.join().unwrap());
        // One end for each, through a channel that all listen to.
        (0..4).for_each(|_| b.send(0).unwrap());
        let sum: u32 = receiving.into_iter().map(|thread| thread.join().unwrap()).sum();
        let left: u32 = a_in.try_iter().sum();
        assert_eq!(sum + left, 200);
    }
}

/// On one worker a thread that comes again and again, because a channel is closed or by `default`, once kept the others waiting for
/// its time slices.
fn select_that_spins_gives_turns() {
    if heddle::mode() != Mode::User || heddle::workers() != 1 {
        return;
    }
    const TURNS: usize = 200;
    for closed in [true, false] {
        let turns = Arc::new(AtomicUsize::new(0));
        let (sender, receiver) = bounded::<()>(1);
        let kept = (!closed).then_some(sender);
        let seen = turns.clone();
        let spinning = thread(0, move || {
            let mut count = 0;
            while seen.load(Ordering::Relaxed) < TURNS {
                select! {
                    recv(receiver) -> end => assert_eq!(end, Err(RecvError)),
                    default => assert!(!closed),
                }
                count += 1;
            }
            count
        });
        let other = thread(0, move || {
            for _ in 0..TURNS {
                turns.fetch_add(1, Ordering::Relaxed);
                heddle::yield_now();
            }
        });
        other.join().unwrap();
        // Some before the other began, and some for each turn; a slice has ten thousands of them.
        let count = spinning.join().unwrap();
        assert!(count < 100 * TURNS, "{count}");
        drop(kept);
    }
}
