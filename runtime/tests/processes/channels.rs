//! Channels between processes: the same operations in all modes, and what deaths do to them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heddle::cancel::Token;
use heddle::channel::across::{self, ChannelError, Lost, Receiver, Sender};
use heddle::channel::{self, RecvError, RecvUntilError, SendUntilError, TryRecvError, TrySendError, select};
use heddle::process::{ArenaArc, ArenaString, TaskError, pids, usage};
use heddle::task;

use super::{eventually, libc_kill};

pub const SAME: &[super::Test] = super::tests! {
    channels any_number_of_values handles_in_values selects_across many_selects many_that_wait
    a_rendezvous a_rendezvous_with_limits selects_at_a_rendezvous
};
pub const PROCESS: &[super::Test] = super::tests! {
    a_channel_survives who_waits_for_a_dead_sender_is_told a_death_closes_what_only_the_dead_had
    a_handle_in_transit_comes_back who_only_asked_had_the_handle a_sender_is_killed_at_a_rendezvous a_receiver_is_killed_at_a_rendezvous
    a_rendezvous_survives
};

const SHORT: Duration = Duration::from_millis(10);

fn kill(pid: u32) {
    // SAFETY: a child's child.
    unsafe { libc_kill(pid, 9) };
}

fn kill_all() {
    pids().into_iter().for_each(kill);
}

fn lost(of: Lost) -> [usize; 3] {
    [of.senders, of.receivers, of.values]
}

fn channels() {
    assert_eq!(across::try_bounded::<u8>(1 << 40).unwrap_err(), ChannelError::Capacity(1 << 40));
    let ((numbers, numbers_in), (sums, sums_in)) = (across::bounded::<u64>(3), across::bounded::<u64>(10));
    assert_eq!(numbers_in.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(numbers_in.recv_until(SHORT), Err(RecvUntilError::TimedOut));
    for n in 0..3 {
        numbers.try_send(n).unwrap();
    }
    assert_eq!(numbers.try_send(3), Err(TrySendError::Full(3)));
    assert_eq!(numbers.send_until(4, SHORT), Err(SendUntilError::TimedOut(4)));
    let token = Token::new();
    token.cancel();
    assert_eq!(numbers.send_until(5, &token), Err(SendUntilError::Cancelled(5)));
    assert_eq!((numbers.len(), numbers.capacity(), numbers_in.is_empty()), (3, Some(3), false));
    let mut taken = Vec::new();
    assert_eq!((numbers_in.take(&mut taken, 2), numbers_in.try_iter().next()), (2, Some(2)));
    assert_eq!(taken, [0, 1]);

    let add = |(numbers, sums): (Receiver<u64>, Sender<u64>)| sums.send(numbers.iter().sum()).unwrap();
    let receivers: Vec<_> = (0..3).map(|_| task(add, (numbers_in.clone(), sums.clone()))).collect();
    let send = |numbers: Sender<u64>| (1..=2000).for_each(|n| numbers.send(n).unwrap());
    let senders: Vec<_> = (0..2).map(|_| task(send, numbers.clone())).collect();
    drop((numbers, sums));
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    receivers.into_iter().for_each(|receiver| receiver.join().unwrap());
    assert_eq!(sums_in.into_iter().sum::<u64>(), 2 * 2001 * 1000);
    assert_eq!((numbers_in.recv(), numbers_in.try_recv()), (Err(RecvError), Err(TryRecvError::Disconnected)));
    assert_eq!(lost(numbers_in.lost()), [0, 0, 0]);

    let (numbers, numbers_in) = across::bounded(2);
    numbers.send(1).unwrap();
    assert!(numbers_in.close() && !numbers.close() && numbers.is_closed() && numbers.send(2).is_err());
    assert_eq!((numbers_in.recv(), numbers_in.recv()), (Ok(1), Err(RecvError)));

    // What is left in it is dropped with it, and by the last receiver.
    let before = usage().used;
    let (texts, texts_in) = across::bounded(4);
    texts.send(ArenaString::from("left")).unwrap();
    drop(texts);
    drop(texts_in);
    assert_eq!(usage().used, before);
    let (texts, texts_in) = across::bounded(4);
    texts.send(ArenaString::from("left")).unwrap();
    drop(texts_in);
    assert!(texts.is_closed() && texts.is_empty() && texts.send(ArenaString::from("late")).is_err());
    drop(texts);
    assert_eq!(usage().used, before);
}

fn any_number_of_values() {
    let before = usage().used;
    let (numbers, numbers_in) = across::unbounded::<(u64, ArenaString)>();
    let send = |numbers: Sender<(u64, ArenaString)>| {
        for n in 0..5000 {
            numbers.send((n, "weft".into())).unwrap();
        }
    };
    let sender = task(send, numbers);
    assert_eq!((numbers_in.capacity(), numbers_in.recv().unwrap().0), (None, 0));
    sender.join().unwrap();
    assert_eq!(numbers_in.len(), 4999);
    assert!(numbers_in.iter().zip(1..).all(|(a, n)| a.0 == n && &*a.1 == "weft"));
    drop(numbers_in);
    eventually("all is freed", || usage().used == before);
}

/// A sender travels in the request; who does not answer drops it.
fn handles_in_values() {
    let (requests, requests_in) = across::bounded::<(u64, Sender<u64>)>(2);
    let serve = |requests: Receiver<(u64, Sender<u64>)>| {
        for (n, reply) in requests {
            if n != 13 {
                reply.send(n * n).unwrap();
            }
        }
    };
    let server = task(serve, requests_in);
    for n in [3, 13, 5] {
        let (reply, answer) = across::bounded(1);
        requests.send((n, reply)).unwrap();
        assert_eq!(answer.recv().ok(), (n != 13).then_some(n * n));
    }
    drop(requests);
    server.join().unwrap();
}

/// Arms of both kinds, which do each what was asked once.
fn selects_across() {
    let (ours, ours_in) = channel::bounded::<u64>(1);
    let (theirs, theirs_in) = across::bounded::<u64>(1);
    let (back, back_in) = across::bounded::<u64>(1);
    let echo = |(theirs, back): (Receiver<u64>, Sender<u64>)| theirs.iter().for_each(|n| back.send(n + 1).unwrap());
    let there = task(echo, (theirs_in, back));
    let here = heddle::spawn(move || {
        for n in 0..300 {
            ours.send(n).unwrap();
        }
    });
    let (mut from_here, mut from_there, mut next) = (0, 0, 0);
    while from_here < 300 || from_there < 300 {
        let wanted = next;
        if wanted < 300 {
            select! {
                recv(ours_in) -> n => from_here += u64::from(n.is_ok()),
                recv(back_in) -> n => { assert_eq!(n, Ok(from_there + 1)); from_there += 1; }
                send(theirs, wanted) -> sent => { sent.unwrap(); next += 1; }
            }
        } else if from_there < 300 {
            select! {
                recv(back_in) -> n => { assert_eq!(n, Ok(from_there + 1)); from_there += 1; }
                after(Duration::from_secs(20)) => panic!("{from_there} came back"),
            }
        } else {
            from_here += u64::from(ours_in.recv().is_ok());
        }
    }
    select! {
        recv(back_in) -> n => panic!("{n:?}"),
        default => {}
    }
    let begin = Instant::now();
    select! {
        recv(back_in) -> n => panic!("{n:?}"),
        after(SHORT) => assert!(begin.elapsed() >= SHORT),
    }
    // A parked select is woken by a thread of this process, and by the end over there.
    let (ours, ours_in) = channel::rendezvous::<u64>();
    let late = heddle::spawn(move || {
        thread::sleep(SHORT);
        ours.send(7).unwrap();
        drop(theirs);
    });
    select! {
        recv(ours_in) -> n => assert_eq!(n, Ok(7)),
        recv(back_in) -> n => panic!("{n:?}"),
    }
    select! {
        recv(back_in) -> n => assert_eq!(n, Err(RecvError)),
        after(Duration::from_secs(20)) => panic!("it is closed"),
    }
    late.join().unwrap();
    here.join().unwrap();
    there.join().unwrap();
}

/// Of several threads in selects on one channel each value wakes one that takes it.
fn many_selects() {
    let (numbers, numbers_in) = across::bounded::<u64>(4);
    let (other, other_in) = across::bounded::<u64>(4);
    let take = |(numbers, other): (Receiver<u64>, Receiver<u64>)| {
        let mut sum = 0;
        loop {
            select! {
                recv(numbers) -> n => match n {
                    Ok(n) => sum += n,
                    Err(_) => return sum + other.iter().sum::<u64>(),
                },
                recv(other) -> n => match n {
                    Ok(n) => sum += n,
                    Err(_) => return sum + numbers.iter().sum::<u64>(),
                }
            }
        }
    };
    let takers: Vec<_> = (0..4).map(|_| task(take, (numbers_in.clone(), other_in.clone()))).collect();
    for n in 1..=500 {
        numbers.send(n).unwrap();
        other.send(n).unwrap();
    }
    drop((numbers, other));
    assert_eq!(takers.into_iter().map(|taker| taker.join().unwrap()).sum::<u64>(), 2 * 501 * 250);
}

fn many_that_wait() {
    let (numbers, numbers_in) = across::bounded::<u64>(4);
    let threads: Vec<_> = (0..150)
        .map(|_| {
            let numbers = numbers_in.clone();
            heddle::spawn(move || numbers.recv().unwrap())
        })
        .collect();
    let send = |numbers: Sender<u64>| (1..=150).for_each(|n| numbers.send(n).unwrap());
    let sender = task(send, numbers);
    assert_eq!(threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>(), 150 * 151 / 2);
    sender.join().unwrap();
}

/// Senders and receivers are killed wherever they are: each value that comes is the next one of its sender.
fn a_channel_survives() {
    let (numbers, numbers_in) = across::bounded::<u64>(64);
    let (who, who_in) = across::bounded::<u32>(1);
    let send = |(numbers, who): (Sender<u64>, Sender<u32>)| {
        who.send(std::process::id()).unwrap();
        (0..).take_while(|&n| numbers.send(n).is_ok()).for_each(drop);
    };
    for round in 1..=10 {
        let sender = task(send, (numbers.clone(), who.clone()));
        let mut next = numbers_in.recv().unwrap();
        for _ in 0..500 {
            let n = numbers_in.recv().unwrap();
            assert_eq!(n, next + 1, "no value is lost or comes twice");
            next = n;
        }
        kill(who_in.recv().unwrap());
        assert!(matches!(sender.join(), Err(TaskError::Died(_))));
        while let Ok(n) = numbers_in.try_recv() {
            assert_eq!(n, next + 1);
            next = n;
        }
        eventually("the death is counted", || numbers_in.lost().senders == round);
        assert!(numbers_in.lost().values <= round);
    }
    let receive = |(numbers, who): (Receiver<u64>, Sender<u32>)| {
        who.send(std::process::id()).unwrap();
        numbers.iter().for_each(drop);
    };
    for round in 1..=10 {
        let receiver = task(receive, (numbers_in.clone(), who.clone()));
        for n in 0..500 {
            numbers.send(n).unwrap();
        }
        kill(who_in.recv().unwrap());
        assert!(matches!(receiver.join(), Err(TaskError::Died(_))));
        eventually("the death is counted", || numbers_in.lost().receivers == round);
        // What it has not received is there, to the last.
        let mut rest: Vec<_> = numbers_in.try_iter().collect();
        numbers.send(500).unwrap();
        rest.extend(numbers_in.recv());
        assert!(rest.windows(2).all(|two| two[0] + 1 == two[1]) && rest.last() == Some(&500), "{rest:?}");
    }
    assert!(!numbers.is_closed());
}

/// Sends three values, and says before each that it is about to.
fn send_three((numbers, about): (Sender<u64>, Sender<u64>)) {
    for n in 0..3 {
        about.send(n).unwrap();
        numbers.send(n).unwrap();
    }
}

/// The last sender's process dies in the middle of a send: what it had sent is received, then comes the end, and the value
/// that found no room is counted.
fn who_waits_for_a_dead_sender_is_told() {
    let (numbers, numbers_in) = across::bounded::<u64>(2);
    let (about, about_in) = across::bounded::<u64>(8);
    let sender = task(send_three, (numbers, about));
    assert_eq!(about_in.iter().take(3).collect::<Vec<_>>(), [0, 1, 2]);
    thread::sleep(SHORT * 5); // it waits for room, or is about to
    kill_all();
    assert!(matches!(sender.join(), Err(TaskError::Died(_))));
    assert_eq!(numbers_in.iter().collect::<Vec<_>>(), [0, 1]);
    let of = lost(numbers_in.lost());
    assert_eq!((of[0], of[1]), (1, 0));
    assert_eq!(of[2], 1, "the third value");
    assert_eq!(about_in.recv(), Err(RecvError));
}

/// The same for a thread that is in a select when that happens, and for senders whose receivers die.
fn a_death_closes_what_only_the_dead_had() {
    let (numbers, numbers_in) = across::bounded::<u64>(2);
    let holder = task(
        |numbers: Sender<u64>| {
            numbers.send(1).unwrap();
            kill(std::process::id())
        },
        numbers,
    );
    assert_eq!(numbers_in.recv(), Ok(1));
    let (_ours, ours_in) = channel::bounded::<u64>(1);
    select! {
        recv(ours_in) -> n => panic!("{n:?}"),
        recv(numbers_in) -> n => assert_eq!(n, Err(RecvError)),
        after(Duration::from_secs(20)) => panic!("nobody can send"),
    }
    assert!(matches!(holder.join(), Err(TaskError::Died(_))));

    let (numbers, numbers_in) = across::bounded::<u64>(2);
    let holder = task(
        |numbers: Receiver<u64>| {
            numbers.recv().unwrap();
            kill(std::process::id())
        },
        numbers_in,
    );
    let mut sent = 0;
    while numbers.send(sent).is_ok() {
        sent += 1;
    }
    assert!((1..=3).contains(&sent), "{sent}");
    assert_eq!(lost(numbers.lost()), [0, 1, 0]);
    assert!(matches!(holder.join(), Err(TaskError::Died(_))));
}

/// A handle that a dead process had given away counts again when it is used.
fn a_handle_in_transit_comes_back() {
    let made = task(|()| across::bounded::<u64>(2), ());
    eventually("it is made", || made.is_finished());
    kill_all();
    let (numbers, numbers_in) = made.join().unwrap();
    eventually("the death is counted", || lost(numbers.lost())[0] == 0 && lost(numbers_in.lost())[1] == 0);
    numbers.send(1).unwrap();
    assert_eq!(numbers_in.recv(), Ok(1));
    drop(numbers);
    assert_eq!(numbers_in.recv(), Err(RecvError));
}

/// A send ends when the value has been received, by whomever.
/// A process that did no more with a handle than to ask something has it, and takes it along.
fn who_only_asked_had_the_handle() {
    type Given = (u32, Sender<u64>, Receiver<u64>, Sender<u32>, Receiver<()>);
    fn ask((what, sender, receiver, told, never): Given) {
        match what {
            0 => assert!(sender.is_empty() && receiver.is_empty()),
            1 => assert!(!sender.is_closed() && !receiver.is_closed()),
            _ => assert!(sender.close() && !receiver.close()),
        }
        told.send(std::process::id()).unwrap();
        let _ = never.recv();
    }
    for what in 0..3 {
        let (sender, receiver) = across::bounded(3);
        let (told, told_in) = across::bounded(1);
        let (_go, never) = across::bounded(1);
        let asks = task(ask, (what, sender.clone(), receiver.clone(), told, never));
        kill(told_in.recv().unwrap());
        assert!(matches!(asks.join(), Err(TaskError::Died(_))));
        eventually("its handles are gone", || lost(sender.lost()) == [1, 1, 0]);
        drop(receiver);
        assert!(sender.is_closed() && sender.send(1).is_err());
    }
}

fn a_rendezvous() {
    let before = usage().used;
    let (numbers, numbers_in) = across::rendezvous::<u64>();
    assert_eq!((numbers.capacity(), numbers.len(), numbers_in.try_recv()), (Some(0), 0, Err(TryRecvError::Empty)));
    assert_eq!(numbers.try_send(1), Err(TrySendError::Full(1)));
    let (sums, sums_in) = across::bounded::<u64>(10);
    let add = |(numbers, sums): (Receiver<u64>, Sender<u64>)| sums.send(numbers.iter().sum()).unwrap();
    let receivers: Vec<_> = (0..3).map(|_| task(add, (numbers_in.clone(), sums.clone()))).collect();
    let send = |numbers: Sender<u64>| (1..=500).for_each(|n| numbers.send(n).unwrap());
    let senders: Vec<_> = (0..2).map(|_| task(send, numbers.clone())).collect();
    drop((numbers, sums, numbers_in));
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    receivers.into_iter().for_each(|receiver| receiver.join().unwrap());
    assert_eq!(sums_in.into_iter().sum::<u64>(), 2 * 501 * 250);

    // What is sent has been received.
    let (seen, seen_in) = across::unbounded::<u64>();
    let (numbers, numbers_in) = across::rendezvous::<u64>();
    let echo = task(
        |(numbers, seen): (Receiver<u64>, Sender<u64>)| numbers.iter().for_each(|n| seen.send(n).unwrap()),
        (numbers_in, seen),
    );
    for n in 0..100 {
        numbers.send(n).unwrap();
        // It has been received, so the one before was passed on.
        assert!(seen_in.len() as u64 >= n);
    }
    drop(numbers);
    echo.join().unwrap();
    drop(seen_in);
    eventually("all is freed", || usage().used == before);
}

fn a_rendezvous_with_limits() {
    let before = usage().used;
    let (texts, texts_in) = across::rendezvous::<ArenaString>();
    let begin = Instant::now();
    // The value is the sender's again, and no receiver's.
    for _ in 0..3 {
        match texts.send_until("late".into(), SHORT) {
            Err(SendUntilError::TimedOut(text)) => assert_eq!(&*text, "late"),
            other => panic!("{other:?}"),
        }
    }
    assert!(begin.elapsed() >= SHORT * 3);
    assert_eq!(texts_in.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(texts_in.recv_until(SHORT), Err(RecvUntilError::TimedOut));
    let token = Token::new();
    let cancelled = {
        let (texts, token) = (texts.clone(), token.clone());
        heddle::spawn(move || texts.send_until("cancelled".into(), &token))
    };
    thread::sleep(SHORT);
    token.cancel();
    assert!(matches!(cancelled.join().unwrap(), Err(SendUntilError::Cancelled(_))));
    // A sender that waits is found by who only looks, and a receiver that waits by who only tries.
    let sender = task(|texts: Sender<ArenaString>| texts.send("found".into()).is_ok(), texts.clone());
    let mut found = None;
    eventually("it is there", || {
        found = texts_in.try_recv().ok();
        found.is_some()
    });
    assert!(sender.join().unwrap() && found.take().as_deref() == Some("found"));
    let receiver = task(|texts: Receiver<ArenaString>| texts.recv().unwrap().len(), texts_in.clone());
    eventually("it waits", || texts.try_send("tried".into()).is_ok());
    assert_eq!(receiver.join().unwrap(), 5);
    // Who waits is told of the end, and has its value back.
    let waits = {
        let texts = texts.clone();
        heddle::spawn(move || texts.send("too late".into()).is_err())
    };
    thread::sleep(SHORT);
    drop(texts_in);
    assert!(waits.join().unwrap());
    assert!(texts.is_closed() && matches!(texts.try_send("later".into()), Err(TrySendError::Disconnected(_))));
    drop(texts);
    assert_eq!(usage().used, before);
}

/// Senders and receivers that meet in selects only, here and over there; and one that might meet itself.
fn selects_at_a_rendezvous() {
    let ((there, there_in), (back, back_in)) = (across::rendezvous::<u64>(), across::rendezvous::<u64>());
    let echo = |(numbers, back): (Receiver<u64>, Sender<u64>)| {
        let (_never, never) = across::rendezvous::<u64>();
        loop {
            let got = select! {
                recv(numbers) -> n => n,
                recv(never) -> n => n,
            };
            let Ok(n) = got else { return };
            select! {
                recv(never) -> n => panic!("{n:?}"),
                send(back, n + 1) -> sent => sent.unwrap(),
            }
        }
    };
    let echo = task(echo, (there_in, back));
    let (_ours, ours_in) = channel::rendezvous::<u64>();
    for n in 0..200 {
        select! {
            recv(ours_in) -> n => panic!("{n:?}"),
            send(there, n) -> sent => sent.unwrap(),
            recv(back_in) -> n => panic!("{n:?}"),
        }
        select! {
            recv(ours_in) -> n => panic!("{n:?}"),
            recv(back_in) -> got => assert_eq!(got, Ok(n + 1)),
        }
    }
    drop(there);
    echo.join().unwrap();
    assert_eq!(back_in.recv(), Err(RecvError));

    let (same, same_in) = across::rendezvous::<u64>();
    let begin = Instant::now();
    select! {
        send(same, 1) -> sent => panic!("to itself: {sent:?}"),
        recv(same_in) -> n => panic!("from itself: {n:?}"),
        after(SHORT) => assert!(begin.elapsed() >= SHORT),
    }
    let both = |(same, same_in): (Sender<u64>, Receiver<u64>)| {
        select! {
            send(same, 1) -> sent => { sent.unwrap(); 0 }
            recv(same_in) -> n => n.unwrap(),
        }
    };
    for _ in 0..20 {
        let pair: Vec<_> = (0..2).map(|_| task(both, (same.clone(), same_in.clone()))).collect();
        assert_eq!(pair.into_iter().map(|one| one.join().unwrap()).sum::<u64>(), 1, "one of both sends");
    }
}

fn a_sender_is_killed_at_a_rendezvous() {
    let (numbers, numbers_in) = across::rendezvous::<u64>();
    let (about, about_in) = across::bounded::<u64>(8);
    let sender = task(send_three, (numbers, about));
    assert_eq!((numbers_in.recv(), numbers_in.recv()), (Ok(0), Ok(1)));
    assert_eq!(about_in.iter().take(3).collect::<Vec<_>>(), [0, 1, 2]);
    thread::sleep(SHORT * 3); // it waits for us, or is about to
    kill_all();
    assert!(matches!(sender.join(), Err(TaskError::Died(_))));
    // The third, as a whole, or nothing; then the end.
    let rest: Vec<_> = numbers_in.iter().collect();
    assert!(rest.is_empty() || rest == [2], "{rest:?}");
    assert_eq!(numbers_in.recv(), Err(RecvError));
}

fn a_receiver_is_killed_at_a_rendezvous() {
    for wait in [Duration::ZERO, SHORT] {
        let (numbers, numbers_in) = across::rendezvous::<u64>();
        let receive = |numbers: Receiver<u64>| {
            assert_eq!(numbers.recv(), Ok(1));
            kill(std::process::id());
        };
        let receiver = task(receive, numbers_in);
        thread::sleep(wait);
        numbers.send(1).unwrap();
        // Nobody takes this one: it is ours again.
        assert_eq!(numbers.send(2).unwrap_err().0, 2);
        assert!(matches!(receiver.join(), Err(TaskError::Died(_))));
        assert_eq!(lost(numbers.lost()), [0, 1, 0]);
    }
    // Who waits without a receiver's being there is told when the last one that could come has died.
    let (numbers, numbers_in) = across::rendezvous::<u64>();
    let holder = task(
        |numbers: Receiver<u64>| {
            let _ours = numbers.clone(); // used here: both die with this process
            thread::sleep(SHORT * 3);
            kill(std::process::id());
        },
        numbers_in,
    );
    assert_eq!(numbers.send(5).map_err(|back| back.0), Err(5));
    assert!(matches!(holder.join(), Err(TaskError::Died(_))));
}

/// Senders and receivers are killed wherever they are: each value that was sent is received, in order.
fn a_rendezvous_survives() {
    let (numbers, numbers_in) = across::rendezvous::<u64>();
    let (who, who_in) = across::bounded::<u32>(1);
    let send = |(numbers, who): (Sender<u64>, Sender<u32>)| {
        who.send(std::process::id()).unwrap();
        (0..).take_while(|&n| numbers.send(n).is_ok()).for_each(drop);
    };
    for _ in 0..10 {
        let sender = task(send, (numbers.clone(), who.clone()));
        for n in 0..100 {
            assert_eq!(numbers_in.recv(), Ok(n));
        }
        kill(who_in.recv().unwrap());
        assert!(matches!(sender.join(), Err(TaskError::Died(_))));
        let rest: Vec<_> = numbers_in.try_iter().collect();
        assert!(rest.is_empty() || rest == [100], "{rest:?}");
    }
    let receive = |(numbers, who, last): (Receiver<u64>, Sender<u32>, ArenaArc<AtomicU64>)| {
        who.send(std::process::id()).unwrap();
        numbers.iter().for_each(|n| last.store(n, Ordering::Relaxed));
    };
    for _ in 0..10 {
        let last = ArenaArc::new(AtomicU64::new(0));
        let receiver = task(receive, (numbers_in.clone(), who.clone(), last.clone()));
        (1..=100).for_each(|n| numbers.send(n).unwrap());
        kill(who_in.recv().unwrap());
        let sent = (101..).take_while(|&n| numbers.send_until(n, SHORT).is_ok()).count() as u64 + 100;
        assert!(matches!(receiver.join(), Err(TaskError::Died(_))));
        // It may have had one that it has not told of.
        let last = last.load(Ordering::Relaxed);
        assert!(sent == last || sent == last + 1, "{sent} {last}");
        assert_eq!(numbers_in.try_recv(), Err(TryRecvError::Empty));
    }
}
