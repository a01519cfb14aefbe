//! join, scope, loops.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use heddle::sync::{Event, Mutex, OnceLock};
use heddle::{Parallel, chunks, chunks_mut, for_each, join, map_reduce, scope};

super::tests![
    results,
    stolen_jobs_run_elsewhere,
    a_panic_is_passed_on,
    a_panic_of_a_stolen_job,
    the_second_is_dropped_when_the_first_panics,
    deep_recursion,
    the_ring_grows,
    a_thread_that_ends_gives_its_lane_back,
    forks_while_a_thread_ends,
    many_callers,
    a_lock_held_across_a_fork,
    a_lock_held_across_a_scope_with_outer_jobs,
    a_value_made_by_a_loop_within_a_loop,
    waiting_jobs_do_not_pile_up_on_one_stack,
    two_jobs_that_wait_for_each_other,
    a_job_that_waits_for_one_of_its_own_lane,
    jobs_borrow,
    jobs_that_add_jobs,
    scopes_of_every_shape,
    a_panic_in_a_scope,
    a_scope_of_none,
    a_job_of_an_outer_scope,
    every_item_once,
    odd_ranges,
    order_is_kept,
    pieces,
    items_that_take_long,
    items_that_compute_long_need_few_threads,
    an_idle_process_uses_no_cpu,
];

fn fib(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let (a, b) = join(|| fib(n - 1), || fib(n - 2));
    a + b
}

fn add(count: &AtomicUsize) {
    count.fetch_add(1, Ordering::Relaxed);
}

fn results() {
    assert_eq!(fib(25), 75_025);
    let (a, b) = join(|| "warp".to_string(), || vec![1, 2, 3]);
    assert_eq!((a.as_str(), &b[..]), ("warp", &[1, 2, 3][..]));
}

/// The first waits until the second has run: on another thread, since nothing else runs on its stack.
fn stolen_jobs_run_elsewhere() {
    let event = Event::new();
    let (a, b) = join(
        || {
            event.wait();
            std::thread::current().id()
        },
        || {
            event.set();
            std::thread::current().id()
        },
    );
    assert_ne!(a, b);
}

fn message(panic: Box<dyn std::any::Any + Send>) -> String {
    panic.downcast_ref::<&str>().map(ToString::to_string).unwrap_or_default()
}

fn quietly<R>(f: impl FnOnce() -> R) -> std::thread::Result<R> {
    static HOOK: Mutex<()> = Mutex::new(());
    let _one = HOOK.lock();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let result = catch_unwind(AssertUnwindSafe(f));
    std::panic::set_hook(hook);
    result
}

fn a_panic_is_passed_on() {
    let ran = AtomicBool::new(false);
    let result = quietly(|| join(|| ran.store(true, Ordering::Relaxed), || panic!("second")));
    assert_eq!(message(result.unwrap_err()), "second");
    assert!(ran.load(Ordering::Relaxed));
    let result = quietly(|| join(|| panic!("first"), || panic!("second")));
    let result: Result<((), ()), _> = result;
    assert_eq!(message(result.unwrap_err()), "first");
    // The lane is as it was.
    assert_eq!(fib(15), 610);
}

fn a_panic_of_a_stolen_job() {
    let (taken, ended) = (Event::new(), AtomicBool::new(false));
    let result = quietly(|| {
        join(
            || {
                taken.wait();
                ended.store(true, Ordering::Relaxed);
            },
            || {
                taken.set();
                panic!("stolen");
            },
        )
    });
    let result: Result<((), ()), _> = result;
    assert_eq!(message(result.unwrap_err()), "stolen");
    assert!(ended.load(Ordering::Relaxed));
    // And when the first panics while another thread runs the second: that has ended before the panic goes on.
    let (taken, ended) = (Event::new(), AtomicBool::new(false));
    let result = quietly(|| {
        join(
            || {
                taken.wait();
                panic!("first");
            },
            || {
                taken.set();
                heddle::sleep(Duration::from_millis(5));
                ended.store(true, Ordering::Relaxed);
            },
        )
    });
    let result: Result<((), ()), _> = result;
    assert_eq!(message(result.unwrap_err()), "first");
    assert!(ended.load(Ordering::Relaxed));
}

fn the_second_is_dropped_when_the_first_panics() {
    struct Count<'a>(&'a AtomicUsize);
    impl Drop for Count<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let drops = AtomicUsize::new(0);
    for _ in 0..100 {
        let count = Count(&drops);
        let result: Result<((), ()), _> = quietly(|| join(|| panic!("first"), move || drop(count)));
        assert!(result.is_err());
    }
    assert_eq!(drops.load(Ordering::Relaxed), 100);
}

fn depth(n: usize) -> usize {
    if n == 0 {
        return 0;
    }
    let (a, b) = join(|| depth(n - 1), || 1);
    a + b
}

fn deep_recursion() {
    assert_eq!(depth(10_000), 10_000);
}

fn the_ring_grows() {
    for n in [100, 254, 255, 256, 257, 511, 512, 1000, 3000] {
        assert_eq!(depth(n), n);
    }
    let count = AtomicUsize::new(0);
    scope(|s| {
        for _ in 0..100_000 {
            s.spawn(|| add(&count));
        }
    });
    assert_eq!(count.load(Ordering::Relaxed), 100_000);
}

fn a_thread_that_ends_gives_its_lane_back() {
    for _ in 0..50 {
        let threads: Vec<_> = (0..4).map(|_| heddle::spawn(|| fib(10))).collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), 55);
        }
    }
}

fn forks_while_a_thread_ends() {
    struct AtEnd(Option<std::sync::mpsc::Sender<u64>>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            if let Some(answer) = self.0.take() {
                answer.send(fib(10)).unwrap();
            }
        }
    }
    thread_local! {
        static AT_END: std::cell::RefCell<AtEnd> = const { std::cell::RefCell::new(AtEnd(None)) };
    }
    let (answer, answered) = channel();
    heddle::spawn(move || {
        AT_END.with_borrow_mut(|at_end| at_end.0 = Some(answer));
        assert_eq!(fib(5), 5);
    })
    .join()
    .unwrap();
    assert_eq!(answered.recv().unwrap(), 55);
}

fn many_callers() {
    let threads: Vec<_> = (0..16).map(|i| heddle::spawn(move || (i, fib(15 + i % 5)))).collect();
    for thread in threads {
        let (i, result) = thread.join().unwrap();
        assert_eq!(result, [610, 987, 1597, 2584, 4181][i as usize % 5]);
    }
}

/// rayon#592: a thread that waits must not run another job that wants the lock it holds.
fn a_lock_held_across_a_fork() {
    let lock = Mutex::new(0u64);
    for_each(0..200, |_| {
        let mut held = lock.lock();
        *held += fib(8);
        for_each(0..50, |i| assert!(std::hint::black_box(i) < 50));
        let (a, b) = join(|| fib(5), || fib(5));
        *held += a + b;
    });
    assert_eq!(lock.into_inner(), 200 * (21 + 10));
}

fn a_lock_held_across_a_scope_with_outer_jobs() {
    let lock = Mutex::new(0);
    scope(|outer| {
        let held = lock.lock();
        scope(|inner| {
            outer.spawn(|| *lock.lock() += 1);
            inner.spawn(|| assert_eq!(fib(5), 5));
        });
        let (a, b) = join(|| outer.spawn(|| *lock.lock() += 1), || 5);
        assert_eq!((a, b), ((), 5));
        drop(held);
    });
    assert_eq!(lock.into_inner(), 2);
}

/// rayon#1174: a value that is made by a parallel loop, wanted by the items of another.
fn a_value_made_by_a_loop_within_a_loop() {
    for _ in 0..20 {
        let value = OnceLock::new();
        let std_value = std::sync::OnceLock::new();
        for_each(0..100, |_| {
            let make = || map_reduce(0..1000u64, || 0, |n| n, |a, b| a + b);
            assert_eq!(*value.get_or_init(make), 499_500);
            assert_eq!(*std_value.get_or_init(make), 499_500);
        });
    }
}

/// rayon#854: each waits for jobs of its own; if those that wait took up others on their stacks, these would overflow.
fn waiting_jobs_do_not_pile_up_on_one_stack() {
    fn where_are_we() -> usize {
        let here = 0u8;
        std::hint::black_box(&raw const here) as usize
    }
    let most = AtomicUsize::new(0);
    scope(|s| {
        for _ in 0..2000 {
            s.spawn(|| {
                let outer = where_are_we();
                for_each(0..20, |_| {
                    let (a, b) = join(where_are_we, where_are_we);
                    for inner in [a, b] {
                        // Those that ran on this stack.
                        if outer.abs_diff(inner) < 1 << 20 {
                            most.fetch_max(outer.abs_diff(inner), Ordering::Relaxed);
                        }
                    }
                });
            });
        }
    });
    let most = most.load(Ordering::Relaxed);
    assert!(most < 64 << 10, "{most} bytes of stack between a job and its own");
}

fn two_jobs_that_wait_for_each_other() {
    let (first, second) = (Event::new(), Event::new());
    join(
        || {
            first.set();
            second.wait();
        },
        || {
            second.set();
            first.wait();
        },
    );
    let (a, b) = channel();
    let (c, d) = channel();
    let (sum, ()) = join(
        || {
            a.send(1).unwrap();
            d.recv().unwrap()
        },
        move || c.send(b.recv().unwrap() + 1).unwrap(),
    );
    assert_eq!(sum, 2);
}

/// The awaited job lies below others in the lane of the thread that waits.
fn a_job_that_waits_for_one_of_its_own_lane() {
    let event = Event::new();
    join(
        || {
            join(
                || {
                    join(|| event.wait(), || heddle::sleep(Duration::from_millis(1)));
                },
                || heddle::sleep(Duration::from_millis(1)),
            );
        },
        || event.set(),
    );
}

fn jobs_borrow() {
    let mut words = vec!["warp".to_string(), "weft".to_string(), "shed".to_string()];
    let lengths = Mutex::new(Vec::new());
    scope(|s| {
        for word in &mut words {
            let lengths = &lengths;
            s.spawn(move || {
                word.make_ascii_uppercase();
                lengths.lock().push(word.len());
            });
        }
    });
    assert_eq!(words, ["WARP", "WEFT", "SHED"]);
    assert_eq!(lengths.into_inner(), [4, 4, 4]);
}

fn jobs_that_add_jobs() {
    fn grow<'scope>(s: &'scope heddle::Scope<'scope, '_>, count: &'scope AtomicUsize, depth: usize) {
        count.fetch_add(1, Ordering::Relaxed);
        if depth > 0 {
            for _ in 0..3 {
                s.spawn(move || grow(s, count, depth - 1));
            }
        }
    }
    let count = AtomicUsize::new(0);
    scope(|s| grow(s, &count, 8));
    assert_eq!(count.load(Ordering::Relaxed), (3usize.pow(9) - 1) / 2);
}

/// Trees of jobs of no particular shape, which add jobs, small and large, to their scope, open scopes whose jobs add to both, fork,
/// and have threads of `std` add jobs. From several threads at once, so that there are always thieves.
fn scopes_of_every_shape() {
    fn random(seed: &mut u64) -> u64 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed
    }
    struct Count {
        made: AtomicUsize,
        done: AtomicUsize,
    }
    fn one_more<'scope>(s: &'scope heddle::Scope<'scope, '_>, count: &'scope Count) {
        add(&count.made);
        s.spawn(|| add(&count.done));
    }
    fn tree<'scope>(s: &'scope heddle::Scope<'scope, '_>, count: &'scope Count, depth: u32, mut seed: u64) {
        add(&count.done);
        if depth == 0 {
            return;
        }
        for i in 0..random(&mut seed) % 5 {
            add(&count.made);
            let large = [(seed ^ ((i + 1) * 7919)) | 1; 20];
            if random(&mut seed).is_multiple_of(8) {
                s.spawn(move || tree(s, count, depth - 1, large[3]));
            } else {
                let seed = large[3];
                s.spawn(move || tree(s, count, depth - 1, seed));
            }
        }
        match random(&mut seed) % 6 {
            0 => {
                let inner = AtomicUsize::new(0);
                scope(|t| {
                    for _ in 0..3 {
                        one_more(s, count);
                        t.spawn(|| {
                            add(&inner);
                            one_more(s, count);
                        });
                    }
                });
                assert_eq!(inner.into_inner(), 3);
            }
            1 => {
                count.made.fetch_add(2, Ordering::Relaxed);
                join(|| tree(s, count, depth - 1, seed | 1), || tree(s, count, depth - 1, seed >> 3 | 1));
            }
            2 if depth > 3 => {
                std::thread::scope(|t| _ = t.spawn(|| one_more(s, count)));
            }
            3 => heddle::yield_now(),
            _ => {}
        }
    }
    let grow = |mut seed: u64| {
        for _ in 0..60 {
            let count = Count { made: AtomicUsize::new(1), done: AtomicUsize::new(0) };
            let seed = random(&mut seed);
            scope(|s| tree(s, &count, 8, seed));
            assert_eq!(count.done.into_inner(), count.made.into_inner());
        }
    };
    let threads: Vec<_> = (1..4).map(|i| heddle::spawn(move || grow(0x1234_5678_9abc_def1 ^ (i * 104_729)))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn a_panic_in_a_scope() {
    let count = AtomicUsize::new(0);
    let result = quietly(|| {
        scope(|s| {
            for i in 0..100 {
                let count = &count;
                s.spawn(move || {
                    count.fetch_add(1, Ordering::Relaxed);
                    if i == 50 {
                        panic!("a job");
                    }
                });
            }
        });
    });
    assert_eq!(message(result.unwrap_err()), "a job");
    assert_eq!(count.load(Ordering::Relaxed), 100);
    let result = quietly(|| {
        scope(|s| {
            s.spawn(|| add(&count));
            panic!("the scope");
        });
    });
    assert_eq!(message(result.unwrap_err()), "the scope");
    assert_eq!(count.load(Ordering::Relaxed), 101);
}

fn a_scope_of_none() {
    assert_eq!(scope(|_| 5), 5);
}

fn a_job_of_an_outer_scope() {
    let count = AtomicUsize::new(0);
    scope(|outer| {
        for _ in 0..100 {
            outer.spawn(|| {
                scope(|inner| {
                    outer.spawn(|| add(&count));
                    inner.spawn(|| add(&count));
                });
                join(|| outer.spawn(|| add(&count)), || fib(3));
            });
        }
    });
    assert_eq!(count.load(Ordering::Relaxed), 300);
}

fn every_item_once() {
    for n in [0, 1, 2, 3, 10, 1000, 100_000] {
        let mut items = vec![0u32; n];
        for_each(&mut items[..], |item| *item += 1);
        assert!(items.iter().all(|&n| n == 1));
        let sum = AtomicUsize::new(0);
        for_each(&items[..], |&item| assert!(sum.fetch_add(item as usize, Ordering::Relaxed) < n));
        assert_eq!(sum.load(Ordering::Relaxed), n);
        for_each(0..n, |_| assert!(sum.fetch_sub(1, Ordering::Relaxed) > 0));
        assert_eq!(sum.load(Ordering::Relaxed), 0);
    }
}

#[allow(clippy::reversed_empty_ranges)]
fn odd_ranges() {
    let count = |n: usize| map_reduce(0..n, || 0, |_| 1, |a, b| a + b);
    assert_eq!(count(5), 5);
    assert_eq!(map_reduce(5..2, || 0, |_| 1, |a, b| a + b), 0);
    assert_eq!(map_reduce(-100..100i8, || 0i64, i64::from, |a, b| a + b), -100);
    assert_eq!(map_reduce(i8::MIN..i8::MAX, || 0, |_| 1, |a, b| a + b), 255);
    assert_eq!(map_reduce(u64::MAX - 3..u64::MAX, || 0, |_| 1, |a, b| a + b), 3);
}

fn order_is_kept() {
    let text = map_reduce(0..2000, String::new, |n| format!("{n},"), |a, b| a + &b);
    let plain: String = (0..2000).map(|n| format!("{n},")).collect();
    assert_eq!(text, plain);
}

fn pieces() {
    let mut items: Vec<usize> = (0..1003).collect();
    for_each(chunks_mut(&mut items, 10), |piece| piece.reverse());
    let lengths = Mutex::new(Vec::new());
    for_each(chunks(&items, 10), |piece| lengths.lock().push(piece.len()));
    let mut lengths = lengths.into_inner();
    lengths.sort_unstable();
    assert_eq!((lengths.len(), lengths[0], lengths[1]), (101, 3, 10));
    assert_eq!(items[..11], [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 19]);
    assert_eq!(items[1000..], [1002, 1001, 1000]);
    assert!(quietly(|| chunks(&items, 0).len()).is_err());
}

/// Items that park are spread over threads; all are worked through.
fn items_that_take_long() {
    let seen = Mutex::new(BTreeSet::new());
    for_each(0..20, |i| {
        heddle::sleep(Duration::from_millis(2));
        seen.lock().insert(i);
    });
    assert_eq!(seen.into_inner().len(), 20);
}

/// Jobs that lie still because all processors compute are not for more threads to take.
fn items_that_compute_long_need_few_threads() {
    let before = heddle::counters().helpers;
    for_each(0..20, |_| {
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
    });
    let made = heddle::counters().helpers - before;
    assert!(made <= 12, "{made} helpers were made");
}

fn an_idle_process_uses_no_cpu() {
    fn used() -> Duration {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 10)
    }
    assert_eq!(fib(20), 6765);
    heddle::sleep(Duration::from_millis(100)); // helpers and watcher go to sleep
    let before = used();
    heddle::sleep(Duration::from_millis(400));
    let used = used() - before;
    assert!(used <= Duration::from_millis(40), "{used:?} of CPU time while everything sleeps");
}
