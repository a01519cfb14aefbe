//! Libraries that know nothing of Heddle, on its threads: `std`'s threads, channels and sockets, rayon, crossbeam.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use heddle::sync::{Event, Mutex, WaitGroup};
use heddle::{Builder, Mode, Options, StartError};
use rayon::prelude::*;

super::tests![
    threads_of_std,
    channels_of_std,
    locks_of_std,
    sockets_of_std,
    rayon_pool,
    rayon_jobs_that_wait,
    rayon_and_fork_join,
    crossbeam_channels,
    kernel_threads_call_in,
    nested_starts,
];

fn kinds() -> Vec<Mode> {
    if heddle::mode() == Mode::User { vec![Mode::User, Mode::Kernel] } else { vec![Mode::Kernel] }
}

fn threads_of_std() {
    let modes: Vec<_> = (0..20).map(|_| std::thread::spawn(heddle::current_mode)).collect();
    for thread in modes {
        assert_eq!(thread.join().unwrap(), heddle::mode());
    }
    let mut sums = [0u64; 8];
    std::thread::scope(|s| {
        for (i, sum) in sums.iter_mut().enumerate() {
            s.spawn(move || *sum = (0..=i as u64).sum());
        }
    });
    assert_eq!(sums, [0, 1, 3, 6, 10, 15, 21, 28]);
}

fn channels_of_std() {
    // Each message is handed over: both sides wait for the other.
    let (numbers, received) = mpsc::sync_channel::<usize>(0);
    let senders: Vec<_> = (0..6)
        .map(|i| {
            let numbers = numbers.clone();
            std::thread::spawn(move || (0..200).for_each(|n| numbers.send(i * 200 + n).unwrap()))
        })
        .collect();
    drop(numbers);
    assert_eq!(received.iter().sum::<usize>(), (0..1200).sum());
    senders.into_iter().for_each(|thread| thread.join().unwrap());

    let (none, nothing) = mpsc::channel::<()>();
    assert_eq!(nothing.recv_timeout(Duration::from_millis(2)), Err(mpsc::RecvTimeoutError::Timeout));
    drop(none);
    assert!(nothing.recv().is_err());
}

fn locks_of_std() {
    use std::sync::{Condvar, Mutex, RwLock};
    let shared = Arc::new((Mutex::new(0usize), Condvar::new(), RwLock::new(0usize)));
    let threads: Vec<_> = (0..5)
        .map(|i| {
            let shared = shared.clone();
            std::thread::spawn(move || {
                for round in 0..40 {
                    let (turn, changed, total) = &*shared;
                    let mut now = changed.wait_while(turn.lock().unwrap(), |now| *now != round * 5 + i).unwrap();
                    *now += 1;
                    changed.notify_all();
                    drop(now);
                    *total.write().unwrap() += 1;
                    assert!(*total.read().unwrap() > round);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(*shared.2.read().unwrap(), 200);
}

fn sockets_of_std() {
    const CLIENTS: usize = 12;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = heddle::spawn(move || {
        let all: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (socket, _) = listener.accept().unwrap();
                heddle::spawn(move || {
                    let mut write = socket.try_clone().unwrap();
                    for line in BufReader::new(socket).lines() {
                        writeln!(write, "{}", line.unwrap().to_uppercase()).unwrap();
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let clients: Vec<_> = (0..CLIENTS)
        .map(|i| {
            heddle::spawn(move || {
                let mut socket = TcpStream::connect(address).unwrap();
                let mut answers = BufReader::new(socket.try_clone().unwrap());
                for n in 0..20 {
                    writeln!(socket, "client {i} says {n}").unwrap();
                    let mut line = String::new();
                    answers.read_line(&mut line).unwrap();
                    assert_eq!(line, format!("CLIENT {i} SAYS {n}\n"));
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|thread| thread.join().unwrap());
    server.join().unwrap();

    let (mut a, mut b) = UnixStream::pair().unwrap();
    a.set_read_timeout(Some(Duration::from_millis(3))).unwrap();
    assert_eq!(a.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    let writer = heddle::spawn(move || b.write_all(b"weft").unwrap());
    writer.join().unwrap();
    let mut text = String::new();
    a.read_to_string(&mut text).unwrap();
    assert_eq!(text, "weft");

    let (one, other) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let to = one.local_addr().unwrap();
    let reader = heddle::spawn(move || one.recv(&mut [0; 8]).unwrap());
    other.send_to(b"warp", to).unwrap();
    assert_eq!(reader.join().unwrap(), 4);
}

fn pool(threads: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("rayon {i}")).build().unwrap()
}

/// Its threads are threads of the process's mode.
fn rayon_pool() {
    let pool = pool(3);
    assert_eq!(pool.install(heddle::current_mode), heddle::mode());
    let sum: u64 = pool.install(|| (0..100_000u64).into_par_iter().map(|n| n % 7).sum());
    assert_eq!(sum, (0..100_000u64).map(|n| n % 7).sum());
    let mut numbers: Vec<u32> = (0..20_000u32).map(|n| n.wrapping_mul(2_654_435_761)).collect();
    pool.install(|| numbers.par_sort_unstable());
    assert!(numbers.is_sorted());
}

/// Jobs that wait for each other, and for threads outside the pool, with our locks and with `std`'s calls.
fn rayon_jobs_that_wait() {
    let pool = pool(4);
    let events = [const { Event::new() }; 4];
    let count = Mutex::new(0);
    let (mut read, mut write) = std::io::pipe().unwrap();
    let writer = heddle::spawn(move || {
        heddle::sleep(Duration::from_millis(3));
        write.write_all(b"x").unwrap();
    });
    pool.scope(|s| {
        let (events, count, read) = (&events, &count, &mut read);
        for i in 0..3 {
            s.spawn(move |_| {
                events[i + 1].wait();
                *count.lock() += 1;
                events[i].set();
            });
        }
        s.spawn(move |_| {
            read.read_exact(&mut [0]).unwrap();
            events[3].set();
        });
    });
    assert!(events[0].is_set());
    assert_eq!(*count.lock(), 3);
    writer.join().unwrap();
}

/// Rayon inside of our fork-join and the other way round.
fn rayon_and_fork_join() {
    fn both(pool: &rayon::ThreadPool, depth: u32) -> u64 {
        if depth == 0 {
            return 1;
        }
        let rayons = || pool.install(|| rayon::join(|| both(pool, depth - 1), || both(pool, depth - 1)));
        let (a, b) = heddle::join(rayons, || (0..100u64).sum::<u64>());
        a.0 + a.1 + b - 4950
    }
    assert_eq!(both(&pool(2), 6), 64);
}

fn crossbeam_channels() {
    for capacity in [0, 3] {
        let (send, receive) = crossbeam_channel::bounded::<usize>(capacity);
        let (done, all_done) = crossbeam_channel::unbounded();
        let receivers: Vec<_> = kinds()
            .into_iter()
            .cycle()
            .take(4)
            .map(|mode| {
                let (receive, done) = (receive.clone(), done.clone());
                let thread = Builder::new().mode(mode).spawn(move || done.send(receive.iter().sum::<usize>()).unwrap());
                thread.unwrap()
            })
            .collect();
        drop((receive, done));
        for n in 0..600 {
            send.send(n).unwrap();
        }
        drop(send);
        assert_eq!(all_done.iter().sum::<usize>(), (0..600).sum());
        receivers.into_iter().for_each(|thread| thread.join().unwrap());
    }
    let (send, receive) = crossbeam_channel::bounded::<u32>(1);
    let never = crossbeam_channel::never::<u32>();
    let sender = heddle::spawn(move || {
        heddle::sleep(Duration::from_millis(2));
        send.send(7).unwrap();
    });
    crossbeam_channel::select! {
        recv(receive) -> n => assert_eq!(n, Ok(7)),
        recv(never) -> _ => unreachable!(),
        default(Duration::from_secs(50)) => panic!("late"),
    }
    sender.join().unwrap();
}

/// Kernel threads that know nothing of us, made by `std` on a kernel thread, use all of it.
fn kernel_threads_call_in() {
    let (total, group) = (Arc::new(AtomicUsize::new(0)), Arc::new(WaitGroup::new()));
    group.add(8);
    let (all_done, sum) = (group.clone(), total.clone());
    let makes = Builder::new().mode(Mode::Kernel).spawn(move || {
        let foreign: Vec<_> = (0..4)
            .map(|_| {
                let (group, total) = (group.clone(), total.clone());
                std::thread::spawn(move || {
                    assert_eq!(heddle::current_mode(), Mode::Kernel);
                    let (a, b) = heddle::join(|| (0..1000).sum::<usize>(), || (1000..2000).sum::<usize>());
                    total.fetch_add(a + b, Ordering::Relaxed);
                    heddle::scope(|s| {
                        for _ in 0..10 {
                            s.spawn(|| _ = total.fetch_add(1, Ordering::Relaxed));
                        }
                    });
                    let of_user = group.clone();
                    heddle::spawn(move || of_user.done()).join().unwrap();
                    group.done();
                    group.wait();
                })
            })
            .collect();
        foreign.into_iter().for_each(|thread| thread.join().unwrap());
    });
    all_done.wait();
    makes.unwrap().join().unwrap();
    assert_eq!(sum.load(Ordering::Relaxed), 4 * ((0..2000).sum::<usize>() + 10));
}

fn nested_starts() {
    let refused = || heddle::start(Options::new().mode(Mode::User)) == Err(StartError::AlreadyStarted);
    for mode in kinds() {
        assert!(Builder::new().mode(mode).spawn(refused).unwrap().join().unwrap());
    }
    assert_eq!(heddle::join(refused, refused), (true, true));
    heddle::scope(|s| s.spawn(|| assert!(refused())));
    assert!(pool(1).install(refused));
}
