//! Pools: each object is dropped once, wherever, and its memory goes home.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use heddle::channel::bounded;
use heddle::pool::{BATCH, Pool, Pooled};
use heddle::sync::Mutex;
use proptest::prelude::*;

super::tests![
    pool_objects_are_what_they_were,
    pool_one_way_stays_flat,
    pool_drops_once,
    pool_of_threads_that_end,
    pool_outlived,
    pool_drop_panics,
    pool_alignment,
    pool_sizes_over_there,
    pool_scattered_over_there,
    pool_in_thread_locals,
];

fn pool_objects_are_what_they_were() {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) };
    // Makes, drops here, drops over there, in any order, in two pools at once; no two objects alive have one place.
    proptest!(config, |(steps in proptest::collection::vec((0u8..6, any::<u64>()), 0..600))| {
        let pools = [Pool::new(), Pool::new()];
        let (sender, receiver) = bounded::<(Pooled<u64>, u64)>(8);
        let other = heddle::spawn(move || receiver.iter().for_each(|(object, value)| assert_eq!(*object, value)));
        let mut alive: HashMap<usize, (Pooled<u64>, u64)> = HashMap::new();
        for (step, value) in steps {
            if step < 3 || alive.is_empty() {
                let object = pools[usize::from(step % 2)].make(value);
                let at = std::ptr::from_ref(&*object) as usize;
                prop_assert!(alive.insert(at, (object, value)).is_none());
                continue;
            }
            let at = *alive.keys().nth(value as usize % alive.len()).unwrap();
            let (object, value) = alive.remove(&at).unwrap();
            prop_assert_eq!(*object, value);
            match step {
                3 => drop(object),
                4 => assert_eq!(object.into_inner(), value),
                _ => sender.send((object, value)).unwrap(),
            }
        }
        drop(sender);
        other.join().unwrap();
    });
}

fn pool_one_way_stays_flat() {
    let pool = Pool::new();
    let (sender, receiver) = bounded::<Pooled<[u64; 6]>>(256);
    let consumer = heddle::spawn(move || receiver.iter().map(|object| object[0]).sum::<u64>());
    for n in 0..100_000 {
        sender.send(pool.make([n; 6])).unwrap();
    }
    // In the channel, in the consumer's hands and chain, and what doubling adds.
    let most = 2 * (256 + 2 + BATCH) * 2 * 64;
    assert!(pool.memory() <= most, "{} bytes", pool.memory());
    drop(sender);
    assert_eq!(consumer.join().unwrap(), 100_000 * 99_999 / 2);
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn pool_drops_once() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let (pool, count) = (Pool::new(), dropped.clone());
    let (sender, receiver) = bounded(64);
    let (sender, receiver) = (Mutex::new(sender), Mutex::new(receiver));
    super::on_threads(6, move |i| {
        for _ in 0..500 {
            if i % 2 == 0 {
                sender.lock().send(pool.make(Counted(count.clone()))).unwrap();
            } else {
                let object = receiver.lock().recv().unwrap();
                drop::<Pooled<Counted>>(object);
            }
        }
    });
    assert_eq!(dropped.load(Ordering::Relaxed), 1500);
}

fn pool_of_threads_that_end() {
    let pool = Pool::new();
    for _ in 0..200 {
        let shared = pool.clone();
        let objects = heddle::spawn(move || (0..20u64).map(|n| shared.make(n)).collect::<Vec<_>>()).join().unwrap();
        assert!(objects.iter().map(|object| **object).eq(0..20));
    }
    // Each thread went on with the home of the one before, but for the objects that were still on their way to it.
    assert!(pool.memory() <= 3 * 4096, "{} bytes", pool.memory());
}

fn pool_outlived() {
    let object = Pool::new().make("still here".to_string());
    let (other, here) = heddle::spawn(|| (Pool::new().make(1), Pool::new().make(2))).join().unwrap();
    assert_eq!((&**object, *other + *here), ("still here", 3));
    heddle::spawn(move || drop(object)).join().unwrap();
}

fn pool_drop_panics() {
    struct Explosive;
    impl Drop for Explosive {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("dropped"));
        }
    }
    let pool = Pool::new();
    for _ in 0..1000 {
        let object = pool.make(Explosive);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(object))).is_err());
    }
    assert!(pool.memory() <= 4096, "{} bytes", pool.memory());
}

fn pool_alignment() {
    #[repr(align(256))]
    struct Wide(u8);
    let pool = Pool::new();
    let objects: Vec<_> = (0..100).map(|n| pool.make(Wide(n))).collect();
    for (n, object) in objects.iter().enumerate() {
        assert_eq!((std::ptr::from_ref(&**object) as usize % 256, usize::from(object.0)), (0, n));
    }
    let pool = Pool::new();
    let objects: Vec<_> = (0..100).map(|_| pool.make(())).collect();
    assert_eq!(objects.len(), 100);
}

/// Objects of any size are made here and dropped there, fewer and more than a batch at a time, by two who take turns.
fn pool_sizes_over_there() {
    fn with<const N: usize>() {
        let pools = [Pool::new(), Pool::new()];
        for count in [1, 7, 8, BATCH, 3 * BATCH + 5, 2000] {
            let mut most = 0;
            for round in 0..12u8 {
                let made = |n: usize| pools[n % 2].make([round; N]);
                let objects: Vec<Pooled<[u8; N]>> = (0..count).map(made).collect();
                heddle::spawn(move || {
                    objects.iter().for_each(|object| assert!(object.iter().all(|&byte| byte == round)))
                })
                .join()
                .unwrap();
                let memory: usize = pools.iter().map(Pool::memory).sum();
                if round == 0 {
                    most = memory;
                }
                assert!(memory <= most, "{count} of {N} bytes: {memory} bytes instead of {most}");
            }
        }
    }
    with::<0>();
    with::<1>();
    with::<48>();
    with::<512>();
    with::<513>();
    with::<5000>();
}

type Dropper<'a, const N: usize> = &'a dyn Fn(&Pool<[u8; N]>, Vec<Pooled<[u8; N]>>);

/// Objects of two makers are dropped over there in turn, from first to last, and in an order in which neighbours never follow each
/// other: as many come home as if their maker had dropped them.
fn pool_scattered_over_there() {
    fn with<const N: usize>(count: usize, step: usize) {
        // How many can be made without more memory, when all have been dropped.
        let capacity = |drop_them: Dropper<N>| {
            let pool = Pool::new();
            drop_them(&pool, (0..count).map(|_| pool.make([7; N])).collect());
            let memory = pool.memory();
            let mut again = Vec::new();
            while pool.memory() == memory {
                again.push(pool.make([9; N]));
            }
            again.len()
        };
        let here = capacity(&|_, objects| drop(objects));
        let there = capacity(&|pool, objects| {
            let shared = pool.clone();
            let (hand, hands) = bounded(1);
            let (done, wait) = bounded::<()>(1);
            // It lives on, so that its home is not ours afterwards.
            let other = heddle::spawn(move || {
                hand.send((0..count).map(|_| shared.make([8; N])).collect::<Vec<_>>()).unwrap();
                assert!(wait.recv().is_err());
            });
            let halves = [objects, hands.recv().unwrap()];
            let mut halves = halves.map(|half| half.into_iter().map(Some).collect::<Vec<_>>());
            let dropper = heddle::spawn(move || {
                for n in 0..count {
                    halves[0][n * step % count].take().unwrap();
                    if n % 3 == 0 {
                        halves[1][n * step % count].take().unwrap();
                    }
                }
            });
            dropper.join().unwrap();
            drop(done);
            other.join().unwrap();
        });
        assert_eq!(there, here, "{count} of {N} bytes, step {step}");
    }
    for step in [1, 97] {
        with::<8>(1000, step);
        with::<48>(1000, step);
        with::<500>(300, step);
        with::<513>(200, step);
        with::<5000>(100, step);
    }
}

/// Objects that a thread-local's destructor drops, and makes.
fn pool_in_thread_locals() {
    struct Late(Pool<u64>, Option<Pooled<u64>>);
    impl Drop for Late {
        fn drop(&mut self) {
            let again = self.0.make(8);
            assert_eq!(*again + **self.1.as_ref().unwrap(), 15);
        }
    }
    thread_local!(static LATE: std::cell::RefCell<Option<Late>> = const { std::cell::RefCell::new(None) });
    let pool = Pool::new();
    let object = pool.make(7);
    let shared = pool.clone();
    heddle::spawn(move || {
        LATE.with(|late| *late.borrow_mut() = Some(Late(shared.clone(), Some(object))));
        drop(shared.make(1));
    })
    .join()
    .unwrap();
    assert_eq!(*pool.make(3), 3);
}
