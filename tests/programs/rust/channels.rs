//! Asserts std's channels: mpsc unbounded, bounded and rendezvous, many senders, time-outs, disconnection both ways, a
//! pipeline; every message arrives once and each sender's in order.

use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

const SENDERS: u64 = 16;
const MESSAGES: u64 = 2000;

fn drain(rx: mpsc::Receiver<(u64, u64)>) -> u64 {
    let mut next = [0; SENDERS as usize];
    let mut count = 0;
    for (sender, n) in rx {
        assert_eq!(next[sender as usize], n);
        next[sender as usize] += 1;
        count += 1;
    }
    count
}

fn many_senders(bound: Option<usize>) {
    let received = match bound {
        None => {
            let (tx, rx) = mpsc::channel();
            let threads: Vec<_> = (0..SENDERS)
                .map(|s| {
                    let tx = tx.clone();
                    thread::spawn(move || (0..MESSAGES).for_each(|n| tx.send((s, n)).unwrap()))
                })
                .collect();
            drop(tx);
            let count = drain(rx);
            threads.into_iter().for_each(|t| t.join().unwrap());
            count
        }
        Some(bound) => {
            let (tx, rx) = mpsc::sync_channel(bound);
            let threads: Vec<_> = (0..SENDERS)
                .map(|s| {
                    let tx = tx.clone();
                    thread::spawn(move || (0..MESSAGES).for_each(|n| tx.send((s, n)).unwrap()))
                })
                .collect();
            drop(tx);
            let count = thread::spawn(move || drain(rx)).join().unwrap();
            threads.into_iter().for_each(|t| t.join().unwrap());
            count
        }
    };
    assert_eq!(received, SENDERS * MESSAGES);
}

fn main() {
    many_senders(None);
    println!("ok unbounded");
    many_senders(Some(8));
    many_senders(Some(1));
    println!("ok bounded");
    many_senders(Some(0));
    println!("ok rendezvous");

    let (tx, rx) = mpsc::sync_channel::<i32>(1);
    assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
    let start = Instant::now();
    assert_eq!(rx.recv_timeout(Duration::from_millis(40)), Err(RecvTimeoutError::Timeout));
    assert!(start.elapsed() >= Duration::from_millis(40));
    tx.send(1).unwrap();
    assert!(matches!(tx.try_send(2), Err(TrySendError::Full(2))));
    let late = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        tx.send(3).unwrap(); // drops the sender afterwards
    });
    assert_eq!(rx.recv_timeout(Duration::from_secs(30)), Ok(1));
    assert_eq!(rx.recv_timeout(Duration::from_secs(30)), Ok(3));
    assert_eq!(rx.recv_timeout(Duration::from_secs(30)), Err(RecvTimeoutError::Disconnected));
    late.join().unwrap();
    let (tx, rx) = mpsc::sync_channel(0);
    let stuck = thread::spawn(move || tx.send(9));
    thread::sleep(Duration::from_millis(10));
    drop(rx);
    assert!(stuck.join().unwrap().is_err());
    println!("ok time-outs and disconnection");

    // Numbers through a line of filters, each its own thread: primes.
    let (first, mut rx) = mpsc::sync_channel(4);
    let feeder = thread::spawn(move || for n in 2u32.. {
        if first.send(n).is_err() {
            break;
        }
    });
    let mut primes = Vec::new();
    for _ in 0..120 {
        let prime = rx.recv().unwrap();
        primes.push(prime);
        let (tx, next) = mpsc::sync_channel(4);
        thread::spawn(move || {
            for n in rx {
                if n % prime != 0 && tx.send(n).is_err() {
                    break;
                }
            }
        });
        rx = next;
    }
    drop(rx);
    feeder.join().unwrap();
    assert_eq!(primes[119], 659);
    println!("ok pipeline: {}", primes.iter().sum::<u32>());
}
