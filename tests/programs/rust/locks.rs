//! Asserts std's locks: Mutex (with poisoning), RwLock, Condvar with time-outs, Barrier, Once, OnceLock, LazyLock, park and
//! unpark with and without time-outs, scoped threads.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Condvar, LazyLock, Mutex, Once, OnceLock, RwLock};
use std::thread;
use std::time::{Duration, Instant};

fn in_threads(count: usize, body: impl Fn(usize) + Sync) {
    thread::scope(|s| {
        for i in 0..count {
            let body = &body;
            s.spawn(move || body(i));
        }
    });
}

fn mutex() {
    let total = Mutex::new(0u64);
    in_threads(16, |_| {
        for n in 0..3000 {
            let mut guard = if n % 5 == 0 {
                loop {
                    match total.try_lock() {
                        Ok(guard) => break guard,
                        Err(_) => thread::yield_now(),
                    }
                }
            } else {
                total.lock().unwrap()
            };
            let seen = *guard;
            if n % 500 == 0 {
                thread::yield_now();
            }
            *guard = seen + 1;
        }
    });
    assert_eq!(*total.lock().unwrap(), 48000);
    let poisoned = Arc::new(Mutex::new(1));
    let other = Arc::clone(&poisoned);
    let quiet = thread::Builder::new().spawn(move || {
        let _guard = other.lock();
        std::panic::resume_unwind(Box::new("quietly"));
    });
    assert!(quiet.unwrap().join().is_err());
    assert!(poisoned.is_poisoned() && poisoned.lock().is_err());
    println!("ok Mutex");
}

fn rwlock() {
    let pair = RwLock::new((0i64, 0i64));
    in_threads(16, |i| {
        for n in 0..1000 {
            if i % 4 == 0 {
                let mut w = pair.write().unwrap();
                w.0 += 1;
                if n % 100 == 0 {
                    thread::yield_now();
                }
                w.1 -= 1;
            } else {
                let r = pair.read().unwrap();
                assert_eq!(r.0, -r.1);
            }
        }
    });
    assert_eq!(*pair.read().unwrap(), (4000, -4000));
    println!("ok RwLock");
}

fn condvar() {
    let (turn, changed) = (Mutex::new(0), Condvar::new());
    in_threads(8, |i| {
        for _ in 0..300 {
            let mut guard = changed.wait_while(turn.lock().unwrap(), |t| *t % 8 != i).unwrap();
            *guard += 1;
            changed.notify_all();
        }
    });
    assert_eq!(*turn.lock().unwrap(), 2400);
    in_threads(4, |_| {
        let (never, none) = (Mutex::new(false), Condvar::new());
        let start = Instant::now();
        let (_guard, result) =
            none.wait_timeout_while(never.lock().unwrap(), Duration::from_millis(40), |set| !*set).unwrap();
        assert!(result.timed_out() && start.elapsed() >= Duration::from_millis(40));
    });
    println!("ok Condvar");
}

fn once() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    static ONCE: Once = Once::new();
    static CELL: OnceLock<u32> = OnceLock::new();
    static LAZY: LazyLock<u32> = LazyLock::new(|| {
        thread::sleep(Duration::from_millis(5));
        RUNS.fetch_add(1, SeqCst)
    });
    let (barrier, leaders) = (Barrier::new(20), AtomicU32::new(0));
    in_threads(20, |_| {
        for _ in 0..20 {
            if barrier.wait().is_leader() {
                leaders.fetch_add(1, SeqCst);
            }
        }
        ONCE.call_once(|| {
            thread::sleep(Duration::from_millis(5));
            RUNS.fetch_add(10, SeqCst);
        });
        assert!(RUNS.load(SeqCst) >= 10);
        assert_eq!(*CELL.get_or_init(|| RUNS.fetch_add(100, SeqCst)) / 10, CELL.get().unwrap() / 10);
        let _ = *LAZY;
    });
    assert_eq!((RUNS.load(SeqCst), leaders.load(SeqCst)), (111, 20));
    println!("ok Barrier, Once, OnceLock, LazyLock");
}

fn park() {
    let flag = Arc::new(AtomicBool::new(false));
    let other = Arc::clone(&flag);
    let sleeper = thread::spawn(move || {
        while !other.load(SeqCst) {
            thread::park();
        }
    });
    thread::sleep(Duration::from_millis(10));
    flag.store(true, SeqCst);
    sleeper.thread().unpark();
    sleeper.join().unwrap();
    thread::current().unpark(); // a token kept for the next park
    thread::park();
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(40) {
        thread::park_timeout(Duration::from_millis(40)); // may wake early, but not for ever
    }
    // Two threads pass a number to and fro.
    let number = Arc::new(AtomicU64::new(0));
    let main = thread::current();
    let theirs = Arc::clone(&number);
    let partner = thread::spawn(move || {
        for n in 0..3000 {
            while theirs.load(SeqCst) != 2 * n + 1 {
                thread::park();
            }
            theirs.store(2 * n + 2, SeqCst);
            main.unpark();
        }
    });
    for n in 0..3000 {
        number.store(2 * n + 1, SeqCst);
        partner.thread().unpark();
        while number.load(SeqCst) != 2 * n + 2 {
            thread::park();
        }
    }
    partner.join().unwrap();
    println!("ok park");
}

fn scope() {
    let mut numbers: Vec<u64> = (0..100_000).collect();
    let sums: Vec<u64> = thread::scope(|s| {
        let handles: Vec<_> = numbers.chunks(5000).map(|c| s.spawn(move || c.iter().sum())).collect();
        handles.into_iter().map(|h| h.join().unwrap()).collect()
    });
    assert_eq!(sums.iter().sum::<u64>(), 100_000 * 99_999 / 2);
    thread::scope(|s| {
        for chunk in numbers.chunks_mut(1000) {
            s.spawn(move || chunk.iter_mut().for_each(|n| *n *= 2));
        }
    });
    assert!(numbers.iter().enumerate().all(|(i, &n)| n == 2 * i as u64));
    println!("ok scope");
}

fn main() {
    mutex();
    rwlock();
    condvar();
    once();
    park();
    scope();
}
