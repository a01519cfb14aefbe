//! Mailboxes: whole messages, in order, within the budget.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use heddle::cancel::Token;
use heddle::mailbox::{Overflow, RecvError, SendError, mailbox, send_to_all};
use proptest::prelude::*;

super::tests![
    mailbox_order_and_wholeness,
    mailbox_of_many,
    mailbox_refuses,
    mailbox_drops,
    mailbox_ends,
    mailbox_limits,
    mailbox_views,
    mailbox_as_a_queue,
    mailbox_as_a_queue_of_long_messages,
];

fn text(n: usize) -> Vec<u8> {
    vec![n as u8; n * 37 % 301]
}

fn mailbox_order_and_wholeness() {
    let (address, mut mailbox) = mailbox(1024, Overflow::Block);
    let thread = heddle::spawn(move || (0..5000).for_each(|n| address.send(&text(n)[..]).unwrap()));
    for n in 0..5000 {
        assert_eq!(*mailbox.recv().unwrap(), text(n)[..]);
    }
    assert_eq!(mailbox.recv().unwrap_err(), RecvError::Closed);
    thread.join().unwrap();
}

fn mailbox_of_many() {
    let (address, mut mailbox) = mailbox(600, Overflow::Block);
    let threads: Vec<_> = (0..4usize)
        .map(|i| {
            let address = address.clone();
            heddle::spawn(move || {
                for n in 0..500usize {
                    let mut message = vec![i as u64, n as u64];
                    message.resize(2 + (n + i) % 60, 9);
                    address.send(&message[..]).unwrap();
                }
            })
        })
        .collect();
    drop(address);
    let mut next = [0u64; 4];
    while let Ok(message) = mailbox.recv() {
        let mut numbers = message.view::<[u64]>().unwrap();
        let (i, n) = (numbers.next().unwrap() as usize, numbers.next().unwrap());
        assert_eq!(next[i], n);
        next[i] += 1;
        assert!(numbers.all(|rest| rest == 9));
    }
    assert_eq!(next, [500; 4]);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let counted = mailbox.counters();
    assert_eq!((counted.sent, counted.received, counted.depth, counted.bytes), (2000, 2000, 0, 0));
}

fn mailbox_refuses() {
    let (address, mut mailbox) = mailbox(64, Overflow::Refuse);
    assert_eq!(address.send(&[0u8; 65][..]), Err(SendError::TooLong(65)));
    assert_eq!(address.send(&[1u8; 20][..]), Ok(()));
    assert_eq!(address.send(&[2u8; 20][..]), Ok(()));
    assert_eq!(address.send(&[3u8; 20][..]), Err(SendError::Full));
    assert_eq!(*mailbox.recv().unwrap(), [1; 20]);
    mailbox.leave();
    assert_eq!(address.send(&[4u8; 20][..]), Ok(()));
    assert_eq!(*mailbox.recv().unwrap(), [2; 20]);
    assert_eq!(*mailbox.recv().unwrap(), [4; 20]);
    assert_eq!(mailbox.try_recv().unwrap_err(), RecvError::Empty);
    // All of it, wherever the ring stands.
    assert_eq!(address.send(&[5u8; 56][..]), Ok(()));
    assert_eq!(*mailbox.recv().unwrap(), [5; 56]);
}

fn mailbox_drops() {
    let (address, mut mailbox_) = mailbox(64, Overflow::DropNewest);
    (0..5u64).for_each(|n| address.send(&[n, n][..]).unwrap());
    assert_eq!(mailbox_.recv().unwrap().view::<[u64]>().unwrap().next(), Some(0));
    assert_eq!((mailbox_.counters().dropped, mailbox_.counters().depth), (3, 1));

    let (address, mut mailbox) = mailbox(64, Overflow::DropOldest);
    (0..5u64).for_each(|n| address.send(&[n, n][..]).unwrap());
    let counted = mailbox.counters();
    assert_eq!((counted.dropped, counted.depth), (3, 2));
    let first = mailbox.recv().unwrap();
    // The one that is read stays, and is in the way.
    (5..9u64).for_each(|n| address.send(&[n, n][..]).unwrap());
    assert_eq!(first.view::<[u64]>().unwrap().next(), Some(3));
    assert_eq!(mailbox.recv().unwrap().view::<[u64]>().unwrap().next(), Some(4));
}

fn mailbox_ends() {
    let (address, mailbox_) = mailbox(64, Overflow::Block);
    address.send(&[1u8; 50][..]).unwrap();
    let waiting = heddle::spawn(move || address.send(&[1u8; 50][..]));
    heddle::sleep(Duration::from_millis(1));
    drop(mailbox_);
    assert_eq!(waiting.join().unwrap(), Err(SendError::Closed));

    let (address, mut mailbox) = mailbox(64, Overflow::Block);
    let waiting = heddle::spawn(move || mailbox.recv().map(|message| message.len()));
    heddle::sleep(Duration::from_millis(1));
    drop(address.clone());
    drop(address);
    assert_eq!(waiting.join().unwrap(), Err(RecvError::Closed));
}

fn mailbox_limits() {
    let (address, mut mailbox) = mailbox(64, Overflow::Block);
    assert_eq!(mailbox.recv_until(Duration::from_millis(1)).unwrap_err(), RecvError::TimedOut);
    address.send(&[1u8; 50][..]).unwrap();
    assert_eq!(address.send_until(&[1u8; 50][..], Duration::from_millis(1)), Err(SendError::TimedOut));
    let token = Token::new();
    token.cancel();
    assert_eq!(address.send_until(&[1u8; 50][..], &token), Err(SendError::Cancelled));
    assert_eq!(mailbox.recv_until(&token).unwrap().len(), 50);
}

fn mailbox_views() {
    let boxes: Vec<_> = (0..3).map(|_| mailbox(1 << 12, Overflow::Refuse)).collect();
    let (addresses, mut mailboxes): (Vec<_>, Vec<_>) = boxes.into_iter().unzip();
    mailboxes.pop();
    assert_eq!(send_to_all(&addresses, "shuttle"), 2);
    for mailbox in &mut mailboxes {
        let message = mailbox.recv().unwrap();
        assert_eq!((message.view::<str>(), message.view::<[u16]>().is_none()), (Some("shuttle"), true));
        assert_eq!(message.as_ptr() as usize % 8, 0);
    }
    addresses[0].send(&[1.5f64, -2.5][..]).unwrap();
    assert!(mailboxes[0].recv().unwrap().view::<[f64]>().unwrap().eq([1.5, -2.5]));
}

fn mailbox_as_a_queue() {
    as_a_queue(0..90, 16..400);
}

/// The bytes of long messages begin on a line.
fn mailbox_as_a_queue_of_long_messages() {
    as_a_queue(1500..9000, 4000..16000);
}

/// Messages of so many bytes with budgets of so many.
fn as_a_queue(sizes: Range<usize>, budgets: Range<usize>) {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) };
    proptest!(config, |(steps in proptest::collection::vec((any::<bool>(), sizes), 0..300), budget in budgets)| {
        let (address, mut mailbox) = mailbox(budget, Overflow::Refuse);
        let mut model = VecDeque::new();
        for (sends, n) in steps {
            if sends {
                let message = text(n);
                match address.send(&message[..]) {
                    Ok(()) => model.push_back(message),
                    Err(SendError::TooLong(_)) => prop_assert!(message.len() > budget.next_multiple_of(8) - 8),
                    Err(SendError::Full) => prop_assert!(!model.is_empty()),
                    Err(why) => panic!("{why}"),
                }
            } else {
                let received = mailbox.try_recv().ok();
                if let Some(message) = &received && message.len() >= 2048 {
                    prop_assert_eq!(message.as_ptr().addr() % 64, 0);
                }
                prop_assert_eq!(received.map(|message| message.to_vec()), model.pop_front());
                mailbox.leave();
            }
            let used: usize = model.iter().map(|message| 8 + message.len()).sum();
            prop_assert!(used <= budget.next_multiple_of(8));
            prop_assert_eq!(mailbox.counters().depth, model.len() as u64);
        }
    });
}
