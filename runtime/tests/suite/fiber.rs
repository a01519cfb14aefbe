//! Fibers: what they share with threads, and what they do not.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use heddle::cancel::{Token, WaitError};
use heddle::fiber::{self, JoinHandle};
use heddle::sync::{Barrier, Condvar, Event, Mutex, Semaphore};
use heddle::{Mode, SpawnError, channel};

use super::{Counts, eventually};

super::tests![
    fork_join_by_fibers,
    results_of_all_sizes_are_dropped_once,
    a_panic_is_the_joiner_s,
    a_panic_inside_a_wait_is_the_fiber_s,
    a_handle_dropped_at_any_time,
    a_handle_that_travels,
    a_fiber_is_one_and_a_thread_is_none,
    a_lock_of_fibers_and_threads,
    a_condition_of_fibers_and_threads,
    channels_between_fibers_and_threads,
    a_rendezvous_of_fibers,
    a_select_in_fibers,
    a_barrier_of_fibers,
    waits_end_in_time,
    a_token_ends_waits_of_fibers,
    fibers_sleep_beside_each_other,
    sleepers_wake_in_the_order_of_their_times,
    who_yields_lets_all_others_run,
    ready_fibers_have_turns_beside_a_chain_of_joins,
    what_blocks_its_carrier_does_not_block_the_others,
    a_fiber_that_is_not_joined_is_run_while_its_maker_computes,
    waits_inside_fork_join,
    fork_join_after_a_wait,
    threads_from_fibers_and_fibers_from_threads,
    a_wait_for_a_fiber_with_a_limit,
    stacks_of_all_sizes,
    stacks_are_used_again,
    very_many_wait,
    the_child_of_a_fork_has_one,
];

/// A fiber whose function keeps the rules: those of these tests use thread-locals within `std` only, between two waits.
fn spawn<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    // SAFETY: see above; debug builds have frames of some hundred bytes, and stacks have 64 KiB.
    unsafe { fiber::spawn(f) }
}

fn fib(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let a = spawn(move || fib(n - 1));
    let b = fib(n - 2);
    a.join().unwrap() + b
}

fn fork_join_by_fibers() {
    assert_eq!(fib(18), 2584); // from a thread
    assert_eq!(spawn(|| fib(18)).join().unwrap(), 2584);
}

fn results_of_all_sizes_are_dropped_once() {
    fn check<const N: usize>() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let (captured, result) = (Counts(dropped.clone()), Counts(dropped.clone()));
        let bytes = [N as u8; N];
        let fiber = spawn(move || {
            drop(captured);
            (bytes, result)
        });
        let (back, result) = fiber.join().unwrap();
        assert_eq!((back, dropped.load(Ordering::SeqCst)), (bytes, 1));
        drop(result);
        assert_eq!(dropped.load(Ordering::SeqCst), 2);
    }
    fn all() {
        check::<0>();
        check::<1>();
        check::<200>();
        check::<256>();
        check::<3000>();
    }
    all();
    spawn(all).join().unwrap();
}

fn a_panic_is_the_joiner_s() {
    fn check() {
        let message = spawn(|| std::panic::resume_unwind(Box::new("torn"))).join().unwrap_err();
        assert_eq!(*message.downcast::<&str>().unwrap(), "torn");
    }
    check();
    spawn(check).join().unwrap();
    assert_eq!(spawn(|| 1).join().unwrap(), 1);
}

fn a_panic_inside_a_wait_is_the_fiber_s() {
    // While one fiber unwinds, and a destructor of its waits, others of its carrier do not seem to panic.
    struct Waits(Arc<Event>);
    impl Drop for Waits {
        fn drop(&mut self) {
            self.0.wait();
        }
    }
    spawn(|| {
        let gate = Arc::new(Event::new());
        let waits = Waits(gate.clone());
        let torn = spawn(move || {
            let _waits = waits;
            std::panic::resume_unwind(Box::new(1));
        });
        let other = spawn(move || {
            assert!(!std::thread::panicking());
            gate.set();
        });
        other.join().unwrap();
        assert!(torn.join().is_err());
    })
    .join()
    .unwrap();
}

fn a_handle_dropped_at_any_time() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let count = 300;
    let (theirs, gate) = (dropped.clone(), Arc::new(Event::new()));
    spawn(move || {
        for i in 0..count {
            let (counts, gate) = (Counts(theirs.clone()), gate.clone());
            let fiber = spawn(move || {
                if i % 3 == 0 {
                    gate.wait();
                }
                counts
            });
            match i % 2 {
                0 => drop(fiber), // before it has begun, as a rule
                _ => {
                    heddle::yield_now();
                    drop(fiber); // while it waits, or after its end
                }
            }
        }
        gate.set();
    })
    .join()
    .unwrap();
    eventually("all results are dropped", || dropped.load(Ordering::SeqCst) == count);
}

fn a_handle_that_travels() {
    let gate = Arc::new(Event::new());
    let theirs = gate.clone();
    let fiber = spawn(move || {
        theirs.wait();
        7
    });
    let joiner = spawn(move || fiber.join().unwrap());
    let thread = heddle::spawn(move || joiner.join().unwrap());
    let kernel = heddle::Builder::new().mode(Mode::Kernel).spawn(move || thread.join().unwrap()).unwrap();
    gate.set();
    assert_eq!(kernel.join().unwrap(), 7);
}

fn a_fiber_is_one_and_a_thread_is_none() {
    assert!(!fiber::is_fiber());
    spawn(|| {
        assert!(fiber::is_fiber());
        assert!(!heddle::spawn(fiber::is_fiber).join().unwrap());
    })
    .join()
    .unwrap();
}

/// Runs `f` in that many fibers, made by a fiber, and in as many threads, half of them kernel threads.
fn on_fibers_and_threads(count: u32, f: impl Fn(u32) + Send + Sync + 'static) {
    let f = Arc::new(f);
    let theirs = f.clone();
    let fibers = spawn(move || {
        let fibers: Vec<_> = (0..count)
            .map(|i| {
                spawn({
                    let f = theirs.clone();
                    move || f(i)
                })
            })
            .collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    });
    super::on_threads(count, move |i| f(count + i));
    fibers.join().unwrap();
}

fn a_lock_of_fibers_and_threads() {
    let total = Arc::new(Mutex::new(0u64));
    let theirs = total.clone();
    on_fibers_and_threads(8, move |_| {
        for i in 0..500 {
            let mut total = theirs.lock();
            *total += 1;
            if i % 50 == 0 {
                heddle::yield_now(); // others of the carrier want it
            }
        }
    });
    assert_eq!(*total.lock(), 8000);
}

fn a_condition_of_fibers_and_threads() {
    let turn = Arc::new((Mutex::new(0u32), Condvar::new()));
    let theirs = turn.clone();
    // A ring: each waits for its number, and makes it the next one's.
    on_fibers_and_threads(4, move |i| {
        let (turn, changed) = &*theirs;
        for round in 0..50 {
            let mut now = turn.lock();
            while *now != round * 8 + i {
                now = changed.wait(now);
            }
            *now += 1;
            changed.notify_all();
        }
    });
    assert_eq!(*turn.0.lock(), 400);
}

fn channels_between_fibers_and_threads() {
    let (sender, receiver) = channel::bounded::<u64>(2);
    let ends = Arc::new(channel::Shared::new(sender, receiver));
    let sum = Arc::new(AtomicUsize::new(0));
    let theirs = sum.clone();
    on_fibers_and_threads(6, move |i| {
        if i % 2 == 0 {
            (0..100).for_each(|n| ends.sender().send(n).unwrap());
        } else {
            let got: u64 = (0..100).map(|_| ends.receiver().recv().unwrap()).sum();
            theirs.fetch_add(got as usize, Ordering::SeqCst);
        }
    });
    assert_eq!(sum.load(Ordering::SeqCst), 6 * 4950);
}

fn a_rendezvous_of_fibers() {
    spawn(|| {
        let (sender, receiver) = channel::rendezvous();
        let fiber = spawn(move || (0..100).for_each(|i| sender.send(i).unwrap()));
        assert!(receiver.iter().eq(0..100));
        fiber.join().unwrap();
    })
    .join()
    .unwrap();
}

fn a_select_in_fibers() {
    spawn(|| {
        let ((to_one, one), (to_two, two)) = (channel::bounded::<u32>(1), channel::bounded::<u32>(1));
        let open = (to_one.clone(), to_two.clone()); // what is closed is ready too
        let fibers = [to_one, to_two].map(|sender| spawn(move || (1..=100).for_each(|i| sender.send(i).unwrap())));
        let mut sums = [0, 0];
        for _ in 0..200 {
            let (i, n) = channel::select! {
                recv(one) -> n => (0, n),
                recv(two) -> n => (1, n),
            };
            sums[i] += n.unwrap();
        }
        assert_eq!(sums, [5050, 5050]);
        drop(open);
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    })
    .join()
    .unwrap();
}

fn a_barrier_of_fibers() {
    let (barrier, before) = (Arc::new(Barrier::new(10)), Arc::new(AtomicUsize::new(0)));
    on_fibers_and_threads(5, move |_| {
        for round in 1..=20 {
            before.fetch_add(1, Ordering::SeqCst);
            barrier.wait();
            assert!(before.load(Ordering::SeqCst) >= 10 * round);
        }
    });
}

fn waits_end_in_time() {
    spawn(|| {
        let short = Duration::from_millis(20);
        let start = Instant::now();
        let (_sender, receiver) = channel::bounded::<u32>(1);
        assert!(receiver.recv_until(short).is_err());
        let mutex = Arc::new(Mutex::new(()));
        let held = mutex.lock();
        let theirs = mutex.clone();
        spawn(move || assert_eq!(theirs.lock_until(short).map(drop), Err(WaitError::TimedOut))).join().unwrap();
        drop(held);
        assert_eq!(Semaphore::new(0).acquire_until(short), Err(WaitError::TimedOut));
        assert_eq!(Event::new().wait_until(short), Err(WaitError::TimedOut));
        assert!(start.elapsed() >= short * 4);
        // Nothing of it is left: a wait without a limit is ended by a wake alone.
        let gate = Arc::new(Event::new());
        let theirs = gate.clone();
        let waits = spawn(move || theirs.wait());
        heddle::sleep(short);
        assert!(!waits.is_finished());
        gate.set();
        waits.join().unwrap();
    })
    .join()
    .unwrap();
}

fn a_token_ends_waits_of_fibers() {
    let (token, ended) = (Token::new(), Arc::new(AtomicUsize::new(0)));
    let fibers: Vec<_> = (0..20)
        .map(|i| {
            let (token, ended) = (token.clone(), ended.clone());
            spawn(move || {
                let result = match i % 2 {
                    0 => Event::new().wait_until(&token),
                    _ => heddle::sleep_until(&token),
                };
                assert_eq!(result, Err(WaitError::Cancelled));
                ended.fetch_add(1, Ordering::SeqCst);
            })
        })
        .collect();
    heddle::sleep(Duration::from_millis(10));
    assert_eq!(ended.load(Ordering::SeqCst), 0);
    token.cancel();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
}

fn fibers_sleep_beside_each_other() {
    let start = Instant::now();
    let fibers: Vec<_> = (0..200).map(|_| spawn(|| heddle::sleep(Duration::from_millis(50)))).collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(50), "{took:?}");
    assert!(took < Duration::from_secs(8), "{took:?}: one after the other they take ten seconds");
}

fn sleepers_wake_in_the_order_of_their_times() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let fibers: Vec<_> = [150, 50, 100]
        .into_iter()
        .map(|time| {
            let order = order.clone();
            let until = Instant::now() + Duration::from_millis(time);
            spawn(move || {
                heddle::sleep_until(until).unwrap();
                assert!(Instant::now() >= until);
                order.lock().push(time);
            })
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    let order = order.lock();
    assert_eq!(order.iter().copied().collect::<HashSet<_>>().len(), 3);
}

fn who_yields_lets_all_others_run() {
    // Each waits until all others have come as far: with one carrier nobody may be left out.
    spawn(|| {
        let rounds: Arc<Vec<_>> = Arc::new((0..10).map(|_| AtomicUsize::new(0)).collect());
        let fibers: Vec<_> = (0..10)
            .map(|i| {
                let rounds = rounds.clone();
                spawn(move || {
                    for round in 1..=100 {
                        rounds[i].store(round, Ordering::SeqCst);
                        while rounds.iter().any(|other| other.load(Ordering::SeqCst) < round) {
                            heddle::yield_now();
                        }
                    }
                })
            })
            .collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    })
    .join()
    .unwrap();
}

fn ready_fibers_have_turns_beside_a_chain_of_joins() {
    spawn(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = stop.clone();
        // Makes and joins until the other has had its turns; neither gives way on purpose.
        let chain = spawn(move || {
            while !theirs.load(Ordering::SeqCst) {
                spawn(|| ()).join().unwrap();
            }
        });
        let turns = spawn(move || {
            (0..100).for_each(|_| heddle::yield_now());
            stop.store(true, Ordering::SeqCst);
        });
        turns.join().unwrap();
        chain.join().unwrap();
    })
    .join()
    .unwrap();
}

fn what_blocks_its_carrier_does_not_block_the_others() {
    // More fibers than carriers wait in `std`, for one that comes after them.
    let carriers = heddle::workers();
    let (sender, receiver) = mpsc::channel::<u32>();
    let receiver = Arc::new(std::sync::Mutex::new(receiver));
    let blocked: Vec<_> = (0..carriers + 2)
        .map(|_| {
            let receiver = receiver.clone();
            spawn(move || receiver.lock().unwrap().recv().unwrap())
        })
        .collect();
    let sends = spawn(move || (0..carriers as u32 + 2).for_each(|n| sender.send(n).unwrap()));
    sends.join().unwrap();
    let got: HashSet<u32> = blocked.into_iter().map(|fiber| fiber.join().unwrap()).collect();
    assert_eq!(got.len(), carriers + 2);
}

fn a_fiber_that_is_not_joined_is_run_while_its_maker_computes() {
    spawn(|| {
        let seen = Arc::new(AtomicBool::new(false));
        let theirs = seen.clone();
        let other = spawn(move || theirs.store(true, Ordering::SeqCst));
        let start = Instant::now();
        while !seen.load(Ordering::SeqCst) {
            assert!(start.elapsed() < Duration::from_secs(20), "nobody runs it");
            std::hint::spin_loop();
        }
        other.join().unwrap();
    })
    .join()
    .unwrap();
}

fn waits_inside_fork_join() {
    // A fiber inside `join` waits with its carrier: what is on the carrier's lane stays in order.
    let fibers: Vec<_> = (0..6)
        .map(|_| {
            spawn(|| {
                for _ in 0..30 {
                    let (a, b) = heddle::join(
                        || {
                            heddle::yield_now();
                            let inner = spawn(|| fib(5));
                            inner.join().unwrap()
                        },
                        || {
                            heddle::sleep(Duration::from_micros(50));
                            heddle::join(|| 1u64, || 2u64)
                        },
                    );
                    assert_eq!((a, b), (5, (1, 2)));
                    let count = AtomicUsize::new(0);
                    heddle::scope(|s| {
                        heddle::yield_now();
                        for _ in 0..3 {
                            s.spawn(|| {
                                heddle::yield_now();
                                count.fetch_add(1, Ordering::SeqCst);
                            });
                        }
                        spawn(heddle::yield_now).join().unwrap();
                    });
                    assert_eq!(count.load(Ordering::SeqCst), 3);
                }
            })
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
}

fn fork_join_after_a_wait() {
    fn sum(from: u64, to: u64) -> u64 {
        if to - from < 4 {
            return (from..to).sum();
        }
        let half = from.midpoint(to);
        let (a, b) = heddle::join(|| sum(from, half), || sum(half, to));
        a + b
    }
    let fibers: Vec<_> = (0..20)
        .map(|i| {
            spawn(move || {
                for _ in 0..20 {
                    heddle::yield_now(); // it may go on on another carrier, with another lane
                    assert_eq!(sum(i, 1000), (i..1000).sum());
                }
            })
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
}

fn threads_from_fibers_and_fibers_from_threads() {
    let fibers: Vec<_> = (0..10)
        .map(|i| {
            spawn(move || {
                let thread = heddle::spawn(move || {
                    let inner = spawn(move || i);
                    inner.join().unwrap() + 1
                });
                let std = std::thread::spawn(move || spawn(move || i).join().unwrap());
                thread.join().unwrap() + std.join().unwrap()
            })
        })
        .collect();
    let sum: u64 = fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum();
    assert_eq!(sum, 100);
}

fn a_wait_for_a_fiber_with_a_limit() {
    fn check() {
        let gate = Arc::new(Event::new());
        let theirs = gate.clone();
        let fiber = spawn(move || theirs.wait());
        assert_eq!(fiber.wait_until(Duration::from_millis(10)), Err(WaitError::TimedOut));
        assert!(!fiber.is_finished());
        gate.set();
        assert_eq!(fiber.wait_until(Duration::from_secs(60)), Ok(()));
        assert!(fiber.is_finished());
        fiber.join().unwrap();
    }
    check();
    spawn(check).join().unwrap();
}

fn stacks_of_all_sizes() {
    let with = |size| fiber::Builder::new().stack_size(size);
    // SAFETY: they do nothing.
    unsafe {
        assert!(matches!(with(16 * 1024 - 1).spawn(|| ()), Err(SpawnError::Stack(_))));
        assert!(matches!(with((1 << 30) + 1).spawn(|| ()), Err(SpawnError::Stack(_))));
    }
    fn deep(bytes: usize) -> usize {
        let page = std::hint::black_box([1u8; 4096]);
        if bytes <= 4096 { usize::from(page[bytes % 4096]) } else { deep(bytes - 4096) + usize::from(page[0]) }
    }
    for size in [100_000, 1 << 20, 5 << 20] {
        // SAFETY: a quarter of the stack in large frames, which are twice as large in debug builds.
        let fiber = unsafe { with(size).spawn(move || deep(size / 4)) };
        assert_eq!(fiber.unwrap().join().unwrap(), (size / 4).div_ceil(4096));
    }
}

fn stacks_are_used_again() {
    let mapped =
        || std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').next().unwrap().parse::<usize>().unwrap();
    spawn(move || {
        let round = || {
            let fibers: Vec<_> = (0..500).map(|i| spawn(move || i)).collect();
            assert_eq!(fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum::<u64>(), 499 * 250);
        };
        round();
        let before = mapped();
        (0..50).for_each(|_| round());
        let pages = mapped().saturating_sub(before);
        assert!(pages < 16384, "{pages} pages more for 25,000 fibers after 500: a stack has 17");
    })
    .join()
    .unwrap();
}

fn very_many_wait() {
    let (gate, count) = (Arc::new(Event::new()), 20_000);
    let fibers: Vec<_> = (0..count)
        .map(|i| {
            let gate = gate.clone();
            // SAFETY: waits, and no more.
            let fiber = unsafe {
                fiber::Builder::new().stack_size(16 * 1024).spawn(move || {
                    gate.wait();
                    i
                })
            };
            fiber.unwrap()
        })
        .collect();
    gate.set();
    assert_eq!(fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum::<u64>(), count * (count - 1) / 2);
}

fn the_child_of_a_fork_has_one() {
    spawn(|| {
        let (twin, still) = (Arc::new(AtomicUsize::new(0)), Arc::new(Event::new()));
        let theirs = (twin.clone(), still.clone());
        let other = spawn(move || {
            theirs.1.wait();
            theirs.0.fetch_add(1, Ordering::SeqCst)
        });
        // SAFETY: the child calls what a fiber may, and ends without coming back.
        let status = unsafe {
            match libc::fork() {
                0 => {
                    // The other one is not here: nobody adds to the count. New ones are run.
                    still.set();
                    let works = fib(8) == 21 && spawn(heddle::yield_now).join().is_ok();
                    heddle::sleep(Duration::from_millis(1));
                    libc::_exit(if works && twin.load(Ordering::SeqCst) == 0 { 0 } else { 1 });
                }
                child => {
                    let mut status = 0;
                    assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                    status
                }
            }
        };
        assert_eq!(status, 0);
        still.set();
        other.join().unwrap();
    })
    .join()
    .unwrap();
}
