//! Locks and their kin, each between threads of all kinds that the mode has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use heddle::sync::{Barrier, Condvar, Event, Mutex, Once, OnceLock, RwLock, Semaphore, WaitGroup};
use heddle::{Builder, Mode};

super::tests![
    mutex,
    mutex_in_time,
    mutex_after_a_panic,
    condition,
    condition_in_time,
    read_and_write,
    readers_together,
    barrier,
    semaphore,
    semaphore_in_time,
    refused_and_unchanged,
    guards_made_again,
    once,
    once_after_a_panic,
    once_lock,
    event,
    wait_group,
];

const THREADS: u32 = 6;

/// Runs `f` on threads of all kinds at once.
fn on_threads<F: Fn(u32) + Send + Sync + 'static>(f: F) {
    let f = Arc::new(f);
    let modes = if heddle::mode() == Mode::User { [Mode::User, Mode::Kernel] } else { [Mode::Kernel; 2] };
    let threads: Vec<_> = (0..THREADS)
        .map(|i| {
            let f = f.clone();
            Builder::new().mode(modes[i as usize % 2]).spawn(move || f(i)).unwrap()
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

fn mutex() {
    let mutex = Arc::new(Mutex::new(0u32));
    let shared = mutex.clone();
    on_threads(move |i| {
        for n in 0..2000 {
            let mut held = shared.lock();
            let before = *held;
            if n % 500 == i {
                heddle::yield_now();
            }
            *held = before + 1;
        }
    });
    assert_eq!(*mutex.lock(), THREADS * 2000);
    let held = mutex.lock();
    assert!(mutex.try_lock().is_none());
    drop(held);
    assert!(mutex.try_lock().is_some());
}

fn mutex_in_time() {
    let mutex = Mutex::new(());
    let held = mutex.lock();
    let start = Instant::now();
    assert!(mutex.lock_until(Duration::from_millis(5)).is_err());
    assert!(start.elapsed() >= Duration::from_millis(5));
    drop(held);
    assert!(mutex.lock_until(Duration::from_secs(1)).is_ok());
    assert!(mutex.try_lock().is_some());
}

fn quietly(f: impl FnOnce() + std::panic::UnwindSafe) {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    assert!(std::panic::catch_unwind(f).is_err());
    std::panic::set_hook(hook);
}

fn mutex_after_a_panic() {
    let mutex = Mutex::new(1);
    quietly(std::panic::AssertUnwindSafe(|| {
        *mutex.lock() = 2;
        let _held = mutex.lock_until(Duration::ZERO);
        panic!("while it is held");
    }));
    assert_eq!(*mutex.lock(), 2);
}

fn condition() {
    let shared = Arc::new((Mutex::new(0u32), Condvar::new()));
    let inside = shared.clone();
    // Each waits for its turn.
    on_threads(move |i| {
        for round in 0..50 {
            let (turn, changed) = &*inside;
            let mut now = changed.wait_while(turn.lock(), |now| *now != round * THREADS + i);
            *now += 1;
            changed.notify_all();
        }
    });
    assert_eq!(*shared.0.lock(), 50 * THREADS);
}

fn condition_in_time() {
    let (mutex, changed) = (Mutex::new(()), Condvar::new());
    let start = Instant::now();
    let mut held = mutex.lock();
    let mut result = Ok(());
    while result.is_ok() {
        (held, result) = changed.wait_until(held, Duration::from_millis(5));
    }
    drop(held);
    assert!(start.elapsed() >= Duration::from_millis(5));
    changed.notify_one();
}

fn read_and_write() {
    let lock = Arc::new(RwLock::new((0u32, 0u32)));
    let shared = lock.clone();
    on_threads(move |i| {
        for n in 0..1000 {
            if (n + i) % 4 == 0 {
                let mut value = shared.write();
                value.0 += 1;
                if n % 100 == 0 {
                    heddle::yield_now();
                }
                value.1 += 1;
            } else {
                let value = shared.read();
                assert_eq!(value.0, value.1);
            }
        }
    });
    assert_eq!(lock.read().0, THREADS * 250);
}

fn readers_together() {
    let lock = RwLock::new(5);
    let (a, b) = (lock.read(), lock.read());
    assert_eq!(*a + *b, 10);
    assert!(lock.try_write().is_none());
    drop((a, b));
    let held = lock.try_write().unwrap();
    assert!(lock.try_read().is_none());
    drop(held);
    assert!(lock.try_read().is_some());
}

fn barrier() {
    let (barrier, count, first) = (Barrier::new(THREADS), AtomicU32::new(0), AtomicU32::new(0));
    let shared = Arc::new((barrier, count, first));
    let inside = shared.clone();
    on_threads(move |_| {
        let (barrier, count, first) = &*inside;
        for round in 1..=50 {
            count.fetch_add(1, Ordering::Relaxed);
            first.fetch_add(barrier.wait().into(), Ordering::Relaxed);
            assert_eq!(count.load(Ordering::Relaxed), round * THREADS);
            barrier.wait();
        }
    });
    assert_eq!(shared.2.load(Ordering::Relaxed), 50);
}

fn semaphore() {
    let shared = Arc::new((Semaphore::new(2), AtomicUsize::new(0)));
    on_threads(move |_| {
        let (semaphore, inside) = &*shared;
        for n in 0..300 {
            semaphore.acquire();
            assert!(inside.fetch_add(1, Ordering::Relaxed) < 2);
            if n % 50 == 0 {
                heddle::yield_now();
            }
            inside.fetch_sub(1, Ordering::Relaxed);
            semaphore.release();
        }
    });
}

fn semaphore_in_time() {
    let semaphore = Semaphore::new(0);
    assert!(!semaphore.try_acquire());
    assert!(semaphore.acquire_until(Duration::from_millis(2)).is_err());
    semaphore.release_many(2);
    assert!(semaphore.acquire_until(Duration::from_millis(2)).is_ok());
    assert!(semaphore.try_acquire());
    assert!(!semaphore.try_acquire());
}

fn refused_and_unchanged() {
    let semaphore = Semaphore::new(u32::MAX - 1);
    assert!(semaphore.try_release_many(1));
    assert!(!semaphore.try_release_many(1));
    assert!(semaphore.try_acquire());
    assert!(!semaphore.try_release_many(2));
    assert!(semaphore.try_release_many(1));

    let group = WaitGroup::new();
    assert!(!group.try_done());
    group.wait();
    assert!(group.try_add(u32::MAX));
    assert!(!group.try_add(1));
    assert!(group.try_done());
    assert!(group.try_add(1));

    let group = Arc::new(WaitGroup::new());
    group.add(THREADS);
    let inside = group.clone();
    on_threads(move |_| assert!(inside.try_done()));
    group.wait();
    assert!(!group.try_done());
}

fn guards_made_again() {
    let mutex = Mutex::new(1);
    std::mem::forget(mutex.lock());
    assert!(mutex.try_lock().is_none());
    // SAFETY: we hold it, and have forgotten the guard.
    *unsafe { mutex.make_guard_unchecked() } += 1;
    assert_eq!(*mutex.try_lock().unwrap(), 2);

    let lock = RwLock::new(1);
    std::mem::forget((lock.read(), lock.read()));
    // SAFETY: we have forgotten two guards.
    assert_eq!(*unsafe { lock.make_read_guard_unchecked() }, 1);
    assert!(lock.try_write().is_none());
    // SAFETY: and have made one of them again.
    drop(unsafe { lock.make_read_guard_unchecked() });
    std::mem::forget(lock.try_write().unwrap());
    assert!(lock.try_read().is_none());
    // SAFETY: we write, and have forgotten the guard.
    *unsafe { lock.make_write_guard_unchecked() } += 1;
    assert_eq!(*lock.try_read().unwrap(), 2);
}

fn once() {
    let shared = Arc::new((Once::new(), AtomicU32::new(0)));
    let inside = shared.clone();
    on_threads(move |_| {
        inside.0.call_once(|| {
            heddle::sleep(Duration::from_millis(2));
            inside.1.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(inside.1.load(Ordering::Relaxed), 1);
    });
    assert!(shared.0.is_completed());
}

fn once_after_a_panic() {
    let once = Once::new();
    quietly(std::panic::AssertUnwindSafe(|| once.call_once(|| panic!("not done"))));
    assert!(!once.is_completed());
    let mut done = false;
    once.call_once(|| done = true);
    assert!(done && once.is_completed());
}

fn once_lock() {
    let value = Arc::new(OnceLock::new());
    let inside = value.clone();
    on_threads(move |i| {
        let made = inside.get_or_init(|| {
            heddle::yield_now();
            vec![i]
        });
        assert_eq!(inside.get(), Some(made));
    });
    assert_eq!(value.set(vec![99]), Err(vec![99]));
    let other = OnceLock::new();
    assert_eq!(other.get(), None);
    assert_eq!(other.set("set"), Ok(()));
    assert_eq!(other.get(), Some(&"set"));
}

fn event() {
    let events = Arc::new([const { Event::new() }; THREADS as usize + 1]);
    events[0].set();
    let inside = events.clone();
    on_threads(move |i| {
        inside[i as usize].wait();
        inside[i as usize + 1].set();
    });
    assert!(events[THREADS as usize].is_set());
    events[0].reset();
    assert!(!events[0].is_set());
    assert!(events[0].wait_until(Duration::from_millis(2)).is_err());
    events[0].set();
    assert!(events[0].wait_until(Duration::ZERO).is_ok());
}

fn wait_group() {
    let group = Arc::new(WaitGroup::new());
    group.wait();
    group.add(THREADS);
    let waiter = {
        let group = group.clone();
        heddle::spawn(move || group.wait())
    };
    let inside = group.clone();
    on_threads(move |_| inside.done());
    group.wait();
    waiter.join().unwrap();
}
