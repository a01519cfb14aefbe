//! Threads and locks: nanoseconds per create and join, per yield, per lock and unlock.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

fn per(n: usize, f: impl FnOnce()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_secs_f64() / n as f64 * 1e9
}

fn median(rounds: usize, f: impl Fn() -> f64) -> f64 {
    let mut times: Vec<f64> = (0..rounds).map(|_| f()).collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// `n` times lock and unlock, on each of `threads` threads.
macro_rules! contended {
    ($mutex:expr, $threads:expr, $n:expr, |$held:ident| $lock:expr) => {
        per($threads * $n, || {
            let mutex = Arc::new($mutex);
            let threads: Vec<_> = (0..$threads)
                .map(|_| {
                    let $held = mutex.clone();
                    heddle::spawn(move || {
                        for _ in 0..$n {
                            *$lock += 1;
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        })
    };
}

pub fn print(rounds: usize) {
    let create = || per(20_000, || (0..20_000).for_each(|i| assert_eq!(heddle::spawn(move || i).join().unwrap(), i)));
    println!("create and join a thread       {:9.1} ns", median(rounds, create));
    let yields = || {
        per(400_000, || {
            let threads = [0, 1].map(|_| heddle::spawn(|| (0..200_000).for_each(|_| heddle::yield_now())));
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        })
    };
    println!("yield, two threads             {:9.1} ns", median(rounds, yields));
    let ours = heddle::sync::Mutex::new(0u64);
    let alone = || per(2_000_000, || (0..2_000_000).for_each(|_| *black_box(&ours).lock() += 1));
    println!("Mutex, one thread              {:9.1} ns", median(rounds, alone));
    let std = std::sync::Mutex::new(0u64);
    let alone = || per(2_000_000, || (0..2_000_000).for_each(|_| *black_box(&std).lock().unwrap() += 1));
    println!("std's Mutex, one thread        {:9.1} ns", median(rounds, alone));
    let five = || contended!(heddle::sync::Mutex::new(0u64), 5, 1_000_000, |m| m.lock());
    println!("Mutex, five threads            {:9.1} ns", median(rounds, five));
    let five = || contended!(std::sync::Mutex::new(0u64), 5, 1_000_000, |m| m.lock().unwrap());
    println!("std's Mutex, five threads      {:9.1} ns", median(rounds, five));
}
