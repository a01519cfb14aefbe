//! Deadlines and tokens for everything that waits, on all kinds of threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use heddle::cancel::{Limit, Token, WaitError};
use heddle::sync::{Barrier, Condvar, Event, Mutex, Once, OnceLock, RwLock, Semaphore, WaitGroup};
use heddle::{Builder, Mode, park_until, sleep_until};

super::tests![
    every_wait_ends_in_time,
    every_wait_is_cancelled,
    what_needs_no_wait_is_had,
    tokens_and_children,
    children_that_are_gone,
    who_gives_up_leaves_a_barrier,
    writers_that_give_up_let_others_in,
    waits_for_the_end_of_a_thread,
    once_has_limits,
    cancelled_while_others_wait,
    sleeps_and_parks,
];

const SHORT: Duration = Duration::from_millis(3);
const LONG: Duration = Duration::from_secs(50);

/// Everything that waits, and nothing that it waits for happens.
struct Waits {
    mutex: Mutex<()>,
    read: RwLock<()>,
    written: RwLock<()>,
    condition: (Mutex<()>, Condvar),
    barrier: Barrier,
    semaphore: Semaphore,
    event: Event,
    group: WaitGroup,
}

impl Waits {
    const COUNT: usize = 11;

    fn new() -> Self {
        let waits = Self {
            mutex: Mutex::new(()),
            read: RwLock::new(()),
            written: RwLock::new(()),
            condition: (Mutex::new(()), Condvar::new()),
            barrier: Barrier::new(1000),
            semaphore: Semaphore::new(0),
            event: Event::new(),
            group: WaitGroup::new(),
        };
        waits.group.add(1);
        std::mem::forget((waits.mutex.lock(), waits.read.read(), waits.written.write()));
        waits
    }

    fn wait(&self, which: usize, limit: Limit<'_>) -> Result<(), WaitError> {
        match which {
            0 => self.mutex.lock_until(limit).map(drop),
            1 => self.read.write_until(limit).map(drop),
            2 => self.written.read_until(limit).map(drop),
            3 => self.written.write_until(limit).map(drop),
            4 => {
                let never = |_: &mut ()| true;
                self.condition.1.wait_while_until(self.condition.0.lock(), never, limit).1
            }
            5 => self.barrier.wait_until(limit).map(drop),
            6 => self.semaphore.acquire_until(limit),
            7 => self.event.wait_until(limit),
            8 => self.group.wait_until(limit),
            9 => loop {
                // It may return early.
                park_until(limit)?;
            },
            _ => sleep_until(limit).and(Err(WaitError::TimedOut)),
        }
    }
}

fn kinds() -> [Mode; 2] {
    if heddle::mode() == Mode::User { [Mode::User, Mode::Kernel] } else { [Mode::Kernel; 2] }
}

fn every_wait_ends_in_time() {
    for mode in kinds() {
        let thread = Builder::new().mode(mode).spawn(|| {
            let (waits, token) = (Waits::new(), Token::new());
            for which in 0..Waits::COUNT {
                let start = Instant::now();
                assert_eq!(waits.wait(which, SHORT.into()), Err(WaitError::TimedOut), "{which}");
                assert!(start.elapsed() >= SHORT, "{which}");
                let start = Instant::now();
                assert_eq!(waits.wait(which, (start + SHORT).into()), Err(WaitError::TimedOut), "{which}");
                assert_eq!(waits.wait(which, (start, &token).into()), Err(WaitError::TimedOut), "{which}");
                assert_eq!(waits.wait(which, (SHORT, &token).into()), Err(WaitError::TimedOut), "{which}");
                assert!(start.elapsed() >= SHORT * 2, "{which}");
            }
        });
        thread.unwrap().join().unwrap();
    }
}

fn every_wait_is_cancelled() {
    let waits = Arc::new(Waits::new());
    for with_time in [false, true] {
        let (token, asleep) = (Token::new(), Arc::new(AtomicU32::new(0)));
        let threads: Vec<_> = (0..Waits::COUNT)
            .flat_map(|which| kinds().map(|mode| (which, mode)))
            .map(|(which, mode)| {
                let (waits, token, asleep) = (waits.clone(), token.child(), asleep.clone());
                let thread = Builder::new().mode(mode).spawn(move || {
                    asleep.fetch_add(1, Ordering::Relaxed);
                    let limit = if with_time { (LONG, &token).into() } else { Limit::from(&token) };
                    assert_eq!(waits.wait(which, limit), Err(WaitError::Cancelled), "{which}");
                    // Nor does it wait again.
                    assert_eq!(waits.wait(which, limit), Err(WaitError::Cancelled), "{which}");
                });
                thread.unwrap()
            })
            .collect();
        while (asleep.load(Ordering::Relaxed) as usize) < threads.len() {
            heddle::yield_now();
        }
        heddle::sleep(SHORT);
        let start = Instant::now();
        token.cancel();
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(start.elapsed() < LONG);
    }
}

fn what_needs_no_wait_is_had() {
    let (token, past) = (Token::new(), Instant::now());
    token.cancel();
    for limit in [Limit::from(&token), Limit::from(past), Limit::from(Duration::ZERO)] {
        assert!(Mutex::new(()).lock_until(limit).is_ok());
        let lock = RwLock::new(());
        drop(lock.write_until(limit).unwrap());
        assert!(lock.read_until(limit).is_ok());
        assert_eq!(Semaphore::new(1).acquire_until(limit), Ok(()));
        assert_eq!(Barrier::new(1).wait_until(limit), Ok(true));
        assert_eq!(WaitGroup::new().wait_until(limit), Ok(()));
        let event = Event::new();
        event.set();
        assert_eq!(event.wait_until(limit), Ok(()));
        let mutex = Mutex::new(5);
        let (held, result) = Condvar::new().wait_while_until(mutex.lock(), |n| *n != 5, limit);
        assert_eq!((*held, result), (5, Ok(())));
    }
}

fn tokens_and_children() {
    let token = Token::default();
    let (child, other) = (token.child(), token.child());
    let grandchild = child.child();
    child.cancel();
    child.cancel();
    assert!(child.is_cancelled() && grandchild.is_cancelled());
    assert!(!token.is_cancelled() && !other.is_cancelled());
    assert!(child.child().is_cancelled());
    token.clone().cancel();
    assert!(token.is_cancelled() && other.is_cancelled());
    assert_eq!(format!("{token:?} {:?}", Token::new()), "Token(cancelled) Token");
    // A long line of them needs no long stack.
    let first = Token::new();
    let line = (0..20_000).fold(vec![first.clone()], |mut line, _| {
        line.push(line[line.len() - 1].child());
        line
    });
    first.cancel();
    assert!(line.iter().all(Token::is_cancelled));
    let why: std::io::Error = WaitError::Cancelled.into();
    assert_eq!(why.to_string(), "cancelled");
    assert_eq!(std::io::Error::from(WaitError::TimedOut).kind(), std::io::ErrorKind::TimedOut);
}

fn children_that_are_gone() {
    let token = Token::new();
    let kept = token.child();
    for _ in 0..10_000 {
        drop(token.child());
    }
    token.cancel();
    assert!(kept.is_cancelled());
}

fn who_gives_up_leaves_a_barrier() {
    let barrier = Arc::new(Barrier::new(2));
    for round in 0..20 {
        assert_eq!(barrier.wait_until(Duration::from_micros(round * 20)), Err(WaitError::TimedOut));
    }
    for _ in 0..50 {
        let other = {
            let barrier = barrier.clone();
            // Sometimes just when we come.
            heddle::spawn(move || {
                loop {
                    match barrier.wait_until(Duration::from_micros(50)) {
                        Ok(last) => break last,
                        Err(why) => assert_eq!(why, WaitError::TimedOut),
                    }
                }
            })
        };
        let last = barrier.wait();
        assert!(last != other.join().unwrap());
    }
}

fn writers_that_give_up_let_others_in() {
    let lock = Arc::new(RwLock::new(0));
    let held = lock.read();
    let (late, token) = (Token::new(), Token::new());
    let writer = |token: &Token| {
        let (lock, token) = (lock.clone(), token.clone());
        heddle::spawn(move || lock.write_until(&token).map(|mut n| *n += 1))
    };
    let (gives_up, waits) = (writer(&token), writer(&late));
    let reader = {
        let lock = lock.clone();
        move || heddle::spawn(move || *lock.read())
    };
    heddle::sleep(SHORT);
    let behind = reader();
    token.cancel();
    assert!(gives_up.join().unwrap().is_err());
    drop(held);
    waits.join().unwrap().unwrap();
    assert!(behind.join().unwrap() <= 1);

    // With no other writer, readers get in while one reads.
    let held = lock.read();
    let (token, lock2) = (Token::new(), lock.clone());
    let gives_up = {
        let token = token.clone();
        heddle::spawn(move || lock2.write_until(&token).map(drop))
    };
    while lock.try_read().is_some() {
        heddle::yield_now(); // until it waits
    }
    let behind = {
        let lock = lock.clone();
        heddle::spawn(move || *lock.read())
    };
    heddle::sleep(SHORT);
    token.cancel();
    assert_eq!(gives_up.join().unwrap(), Err(WaitError::Cancelled));
    assert_eq!(behind.join().unwrap(), 1);
    drop(held);
    assert!(lock.try_write().is_some());
}

fn waits_for_the_end_of_a_thread() {
    for mode in kinds() {
        let (go, token) = (Arc::new(Event::new()), Token::new());
        let inside = go.clone();
        let thread = Builder::new().mode(mode).spawn(move || inside.wait()).unwrap();
        assert_eq!(thread.wait_until(SHORT), Err(WaitError::TimedOut));
        token.cancel();
        assert_eq!(thread.wait_until(&token), Err(WaitError::Cancelled));
        go.set();
        assert_eq!(thread.wait_until(LONG), Ok(()));
        assert_eq!(thread.wait_until(&token), Ok(()));
        thread.join().unwrap();
    }
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let panics = heddle::spawn(|| panic!("torn"));
    assert_eq!(panics.wait_until(LONG), Ok(()));
    assert!(panics.join().is_err());
    std::panic::set_hook(hook);
}

fn once_has_limits() {
    let (once, go) = (Arc::new((Once::new(), OnceLock::new())), Arc::new(Event::new()));
    let (inside, wait, begun) = (once.clone(), go.clone(), Arc::new(WaitGroup::new()));
    begun.add(1);
    let tell = begun.clone();
    let runs = heddle::spawn(move || {
        inside.0.call_once(|| {
            inside.1.get_or_init(|| {
                tell.done();
                wait.wait();
                5
            });
        });
    });
    begun.wait();
    assert_eq!(once.0.call_once_until(|| panic!("another runs"), SHORT), Err(WaitError::TimedOut));
    assert_eq!(once.1.get_or_init_until(|| 6, SHORT), Err(WaitError::TimedOut));
    go.set();
    runs.join().unwrap();
    assert_eq!(once.0.call_once_until(|| panic!("done"), SHORT), Ok(()));
    assert_eq!(once.1.get_or_init_until(|| 6, SHORT), Ok(&5));
}

/// Cancels between wakes, again and again: no wake is lost for those that wait on.
fn cancelled_while_others_wait() {
    const ROUNDS: u32 = 200;
    let semaphore = Arc::new(Semaphore::new(0));
    let current = Arc::new(Mutex::new(Token::new()));
    let give_up: Vec<_> = kinds()
        .into_iter()
        .map(|mode| {
            let (semaphore, current) = (semaphore.clone(), current.clone());
            let end = Token::new();
            let stop = end.clone();
            let thread = Builder::new().mode(mode).spawn(move || {
                while !stop.is_cancelled() {
                    let token = current.lock().clone();
                    match semaphore.acquire_until((SHORT, &token)) {
                        Ok(()) => semaphore.release(),
                        Err(WaitError::TimedOut) => {}
                        Err(_) => heddle::yield_now(),
                    }
                }
            });
            (thread.unwrap(), end)
        })
        .collect();
    let takes: Vec<_> = kinds()
        .into_iter()
        .map(|mode| {
            let semaphore = semaphore.clone();
            Builder::new().mode(mode).spawn(move || (0..ROUNDS).for_each(|_| semaphore.acquire())).unwrap()
        })
        .collect();
    for _ in 0..ROUNDS * takes.len() as u32 {
        let token = std::mem::take(&mut *current.lock());
        semaphore.release();
        token.cancel();
    }
    for thread in takes {
        thread.join().unwrap();
    }
    for (thread, end) in give_up {
        end.cancel();
        thread.join().unwrap();
    }
    assert!(!semaphore.try_acquire());
}

fn sleeps_and_parks() {
    let start = Instant::now();
    assert_eq!(sleep_until(start + SHORT), Ok(()));
    assert!(start.elapsed() >= SHORT);
    assert_eq!(sleep_until((SHORT, &Token::new())), Ok(()));
    heddle::current().unpark();
    assert_eq!(park_until(LONG), Ok(()));
    let token = Token::new();
    heddle::current().unpark();
    assert_eq!(park_until(&token), Ok(()));
    let canceller = {
        let token = token.clone();
        heddle::spawn(move || {
            heddle::sleep(SHORT);
            token.cancel();
        })
    };
    while park_until((LONG, &token)).is_ok() {}
    canceller.join().unwrap();
    assert!(start.elapsed() < LONG);
}
