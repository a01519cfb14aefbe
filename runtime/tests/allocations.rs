//! Forks that nobody steals allocate nothing: joins, loops, scopes and their jobs. In each mode, with one worker, so that nobody
//! steals; what other threads allocate does not count.

mod child;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::env;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use heddle::{Mode, Options, Scope, join, scope};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: the system's, with a count beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// How often `f` allocates when it runs for the second time: the first makes the thread's lane and rings grow.
fn allocations(f: impl Fn()) -> usize {
    f();
    let before = ALLOCATIONS.get();
    f();
    ALLOCATIONS.get() - before
}

fn fib(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (a, b) = join(|| fib(n - 1), || fib(n - 2));
    a + b
}

fn fib_by_scopes(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let mut b = 0;
    let a = scope(|s| {
        s.spawn(|| b = fib_by_scopes(n - 2));
        fib_by_scopes(n - 1)
    });
    a + b
}

/// Jobs that add jobs, 3 each, to the same scope.
fn tree<'scope>(s: &'scope Scope<'scope, '_>, count: &'scope AtomicUsize, depth: usize) {
    count.fetch_add(1, Ordering::Relaxed);
    if depth > 0 {
        for _ in 0..3 {
            s.spawn(move || tree(s, count, depth - 1));
        }
    }
}

fn many(jobs: usize) {
    let count = AtomicUsize::new(0);
    scope(|s| {
        for i in 0..jobs {
            let count = &count;
            s.spawn(move || _ = count.fetch_add(i, Ordering::Relaxed));
        }
    });
    assert_eq!(count.into_inner(), jobs * (jobs - 1) / 2);
}

fn check(mode: Mode) {
    heddle::start(Options::new().mode(mode).workers(1)).unwrap();
    assert_eq!(allocations(|| assert_eq!(fib(20), 6765)), 0, "joins");
    assert_eq!(allocations(|| assert_eq!(fib_by_scopes(20), 6765)), 0, "scopes");
    assert_eq!(allocations(|| many(1000)), 0, "1000 jobs");
    let trees = || {
        let count = AtomicUsize::new(0);
        scope(|s| tree(s, &count, 9));
        assert_eq!(count.into_inner(), (3usize.pow(10) - 1) / 2);
    };
    assert_eq!(allocations(trees), 0, "30,000 jobs, few at a time");
    let loops = || {
        let sum = AtomicUsize::new(0);
        heddle::for_each(0..10_000usize, |i| _ = sum.fetch_add(i, Ordering::Relaxed));
        assert_eq!(sum.into_inner(), 49_995_000);
    };
    assert_eq!(allocations(loops), 0, "a loop");
    // Beyond those for which there is room, and large ones, a box each.
    assert!(allocations(|| many(3000)) <= 2000, "3000 jobs");
    let large = || {
        let (sum, numbers) = (AtomicUsize::new(0), [7usize; 100]);
        scope(|s| s.spawn(|| _ = sum.fetch_add({ numbers }.iter().sum(), Ordering::Relaxed)));
        scope(|s| {
            let sum = &sum;
            s.spawn(move || _ = sum.fetch_add(numbers.iter().sum(), Ordering::Relaxed));
        });
        assert_eq!(sum.into_inner(), 1400);
    };
    assert_eq!(allocations(large), 1, "a small job and a large one");
}

fn main() -> ExitCode {
    match env::args().nth(1).as_deref() {
        Some("in-user-mode") => check(Mode::User),
        Some("in-kernel-mode") => check(Mode::Kernel),
        _ => {
            let this = env::current_exe().unwrap();
            for mode in ["in-user-mode", "in-kernel-mode"] {
                if !child::is_good(mode, Command::new(&this).arg(mode), Duration::from_secs(120)) {
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    ExitCode::SUCCESS
}
