//! What threads cost: creating and joining them, handing over by condition variable, sharing a lock, having 10,000.
//!
//! A plain program: `std::thread` and `std::sync`, nothing of Heddle's. It checks what it computes and prints one line
//! per figure: name, value, unit.

use std::process::exit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Each figure is repeated until it has been measured for this long.
const LONG_ENOUGH: Duration = Duration::from_millis(120);
/// Threads that exist at the same time in the last figure.
const LIVE: u64 = 10_000;
/// Fewer than this is not a measurement.
const LIVE_AT_LEAST: u64 = 100;

fn fail(why: &str) -> ! {
    eprintln!("threads: {why}");
    exit(1);
}

fn check(what: &str, found: u64, expected: u64) {
    if found != expected {
        fail(&format!("{what}: {found} instead of {expected}"));
    }
}

/// Runs `batch` (which answers how many operations it did) for [`LONG_ENOUGH`]; nanoseconds per operation.
fn measure(mut batch: impl FnMut() -> u64) -> f64 {
    batch();
    let start = Instant::now();
    let mut operations = 0;
    while start.elapsed() < LONG_ENOUGH {
        operations += batch();
    }
    start.elapsed().as_nanos() as f64 / operations as f64
}

fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    match Builder::new().spawn(body) {
        Ok(handle) => handle,
        Err(e) => fail(&format!("cannot create a thread: {e}")),
    }
}

fn join<T>(handle: JoinHandle<T>) -> T {
    handle.join().unwrap_or_else(|_| fail("a thread panicked"))
}

/// One thread after the other: created, joined, its answer checked.
fn create_join() -> u64 {
    const THREADS: u64 = 500;
    let sum: u64 = (0..THREADS).map(|i| join(spawn(move || i))).sum();
    check("sum of the joined threads' answers", sum, THREADS * (THREADS - 1) / 2);
    THREADS
}

/// Two threads hand a turn to each other by condition variable; answers the number of switches.
fn ping_pong() -> u64 {
    const ROUNDS: u64 = 2_000;
    let shared = Arc::new((Mutex::new(0_u64), Condvar::new()));
    let players: Vec<_> = (0..2)
        .map(|me| {
            let shared = Arc::clone(&shared);
            spawn(move || {
                let (turn, changed) = &*shared;
                for _ in 0..ROUNDS {
                    let mut turn = turn.lock().unwrap();
                    while *turn % 2 != me {
                        turn = changed.wait(turn).unwrap();
                    }
                    *turn += 1;
                    drop(turn);
                    changed.notify_one();
                }
            })
        })
        .collect();
    players.into_iter().for_each(join);
    let turns = *shared.0.lock().unwrap();
    check("turns played", turns, 2 * ROUNDS);
    turns
}

/// Five threads count under one mutex.
fn one_mutex() -> u64 {
    const THREADS: u64 = 5;
    const EACH: u64 = 100_000;
    let count = Arc::new(Mutex::new(0_u64));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let count = Arc::clone(&count);
            spawn(move || {
                for _ in 0..EACH {
                    *count.lock().unwrap() += 1;
                }
            })
        })
        .collect();
    threads.into_iter().for_each(join);
    let counted = *count.lock().unwrap();
    check("count under the mutex", counted, THREADS * EACH);
    counted
}

/// Many threads alive together, then let go and joined; answers how many there were and nanoseconds for each.
fn live() -> (u64, f64) {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let arrived = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let mut threads = Vec::new();
    for i in 0..LIVE {
        let (gate, arrived) = (Arc::clone(&gate), Arc::clone(&arrived));
        let thread = Builder::new().stack_size(64 << 10).spawn(move || {
            arrived.fetch_add(1, Ordering::Relaxed);
            let (open, opened) = &*gate;
            drop(opened.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
            i
        });
        match thread {
            Ok(thread) => threads.push(thread),
            // A limit of this machine (pids cgroup, RLIMIT_NPROC): measure with what it allows, and say how many.
            Err(_) if i >= LIVE_AT_LEAST => break,
            Err(e) => fail(&format!("cannot have {LIVE_AT_LEAST} threads at a time: {e}")),
        }
    }
    let count = threads.len() as u64;
    while arrived.load(Ordering::Relaxed) < count {
        thread::yield_now();
    }
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    let sum: u64 = threads.into_iter().map(join).sum();
    let each = start.elapsed().as_nanos() as f64 / count as f64;
    check("sum of the live threads' answers", sum, count * (count - 1) / 2);
    (count, each)
}

fn main() {
    let from_thread = join(spawn(|| measure(create_join)));
    println!("create_join_from_thread {:.3} us", from_thread / 1e3);
    println!("create_join_from_main {:.3} us", measure(create_join) / 1e3);
    println!("condvar_switch {:.3} us", measure(ping_pong) / 1e3);
    println!("mutex_lock_unlock {:.3} ns", measure(one_mutex));
    let (count, each) = live();
    println!("live_threads {count} threads");
    println!("live_thread {:.3} us", each / 1e3);
}
