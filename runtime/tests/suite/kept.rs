//! One thread after the other, most of them on the remains of one that has ended: each finds itself new.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::panic::{set_hook, take_hook};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use heddle::{Builder, Mode, spawn};

use super::{Counts, eventually};

super::tests![
    thread_locals_are_new,
    destructors_run_before_the_join_ends,
    destructors_run_without_a_join,
    what_libc_keeps_is_new,
    the_signal_mask_is_the_creator_s,
    how_numbers_are_rounded_is_the_creator_s,
    what_was_inexact_is_forgotten,
    results_of_all_sizes_are_dropped_once,
    a_panic_of_each_kind,
    a_handle_dropped_at_any_time,
    a_handle_that_travels,
    fork_join_of_threads,
    threads_that_wait_for_each_other,
    a_new_thread_runs_while_its_maker_computes,
    ids_of_the_living_differ,
    unpark_of_one_that_has_ended,
    kernel_threads_join_user_threads,
    threads_made_by_threads_that_nobody_joins,
];

/// How often, so that threads are used again.
const TIMES: usize = 300;

fn thread_locals_are_new() {
    thread_local! {
        static PLAIN: Cell<u32> = const { Cell::new(7) };
        static LISTED: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
    }
    for i in 0..TIMES {
        let seen = spawn(move || {
            let before = (PLAIN.get(), LISTED.with_borrow(Vec::len));
            match i % 3 {
                0 => PLAIN.set(i as u32),
                1 => LISTED.with_borrow_mut(|list| list.push(1)),
                _ => {}
            }
            before
        });
        assert_eq!(seen.join().unwrap(), (7, 0), "thread {i}");
    }
}

thread_local!(static OWNED: RefCell<Option<Counts>> = const { RefCell::new(None) });

fn destructors_run_before_the_join_ends() {
    let dropped = Arc::new(AtomicUsize::new(0));
    for i in 0..TIMES {
        let counts = Counts(dropped.clone());
        spawn(move || OWNED.set(Some(counts))).join().unwrap();
        assert_eq!(dropped.load(Ordering::SeqCst), i + 1);
    }
}

fn destructors_run_without_a_join() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let counts = Counts(dropped.clone());
    let handle = spawn(move || OWNED.set(Some(counts)));
    eventually("the thread has ended", || dropped.load(Ordering::SeqCst) == 1);
    handle.join().unwrap();
    for _ in 0..10 {
        let counts = Counts(dropped.clone());
        drop(spawn(move || OWNED.set(Some(counts))));
    }
    eventually("all have ended", || dropped.load(Ordering::SeqCst) == 11);
}

fn what_libc_keeps_is_new() {
    let mut key = 0;
    // SAFETY: libc's calls on this thread and its own key.
    unsafe { assert_eq!(libc::pthread_key_create(&raw mut key, None), 0) };
    for i in 0..TIMES {
        let found = spawn(move || {
            let mut state = 9;
            // SAFETY: as above.
            unsafe {
                let found = (*libc::__errno_location(), libc::pthread_getspecific(key) as usize);
                *libc::__errno_location() = 11;
                libc::pthread_setspecific(key, (i % 2) as *const libc::c_void);
                pthread_setcancelstate(i32::from(i % 3 == 0), &raw mut state);
                (found, state)
            }
        });
        assert_eq!(found.join().unwrap(), ((0, 0), 0), "thread {i}");
    }
    // SAFETY: nobody uses it any more.
    unsafe { libc::pthread_key_delete(key) };
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: i32, before: *mut i32) -> i32;
}

/// Sets how floating-point numbers are rounded, 0 to 3, by both kinds of instructions; answers how they were.
fn round(how: u32) -> (u32, u32) {
    let (mut vector, mut old) = (0u32, 0u16);
    // SAFETY: the thread's own control words; nothing here calculates with such numbers.
    unsafe {
        std::arch::asm!("stmxcsr [{}]", "fnstcw [{}]", in(reg) &raw mut vector, in(reg) &raw mut old);
        let before = (vector >> 13 & 3, u32::from(old >> 10 & 3));
        vector = vector & !(3 << 13) | how << 13;
        old = old & !(3 << 10) | (how as u16) << 10;
        std::arch::asm!("ldmxcsr [{}]", "fldcw [{}]", in(reg) &raw const vector, in(reg) &raw const old);
        before
    }
}

fn how_numbers_are_rounded_is_the_creator_s() {
    for i in 0..TIMES {
        // The thread leaves another way behind.
        assert_eq!(spawn(|| round(1)).join().unwrap(), (0, 0), "thread {i}");
    }
    round(2);
    let found: Vec<_> = (0..20).map(|_| spawn(|| round(3)).join().unwrap()).collect();
    assert_eq!(round(0), (2, 2), "a join changes nothing");
    assert_eq!(found, [(2, 2); 20]);
    assert_eq!(spawn(|| round(0)).join().unwrap(), (0, 0));
}

/// The exceptions that floating-point numbers have led to, of both kinds of instructions; then there are all or none.
fn exceptions(then: bool) -> (u32, u16) {
    let (mut vector, mut old) = (0u32, 0u16);
    // SAFETY: the thread's own status; nothing here calculates with such numbers, and the stack of the old ones is left empty.
    unsafe {
        std::arch::asm!("stmxcsr [{}]", "fnstsw [{}]", in(reg) &raw mut vector, in(reg) &raw mut old);
        let before = (vector & 0x3f, old & 0x3f);
        vector = vector & !0x3f | if then { 0x3f } else { 0 };
        std::arch::asm!("ldmxcsr [{}]", "fnclex", in(reg) &raw const vector);
        if then {
            std::arch::asm!("fld1", "fchs", "fsqrt", "fstp st(0)", out("st(0)") _, out("st(1)") _, out("st(2)") _,
                out("st(3)") _, out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _);
        }
        before
    }
}

fn what_was_inexact_is_forgotten() {
    exceptions(false);
    for i in 0..TIMES {
        assert_eq!(spawn(|| exceptions(true)).join().unwrap(), (0, 0), "thread {i}");
    }
    assert_eq!(exceptions(false), (0, 0), "a join changes nothing");
}

fn mask() -> bool {
    // SAFETY: reads the thread's mask.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set);
        libc::sigismember(&raw const set, libc::SIGUSR1) == 1
    }
}

fn set_mask(blocked: bool) {
    // SAFETY: the thread's own mask.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigaddset(&raw mut set, libc::SIGUSR1);
        let how = if blocked { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
        libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut());
    }
}

fn the_signal_mask_is_the_creator_s() {
    for i in 0..TIMES {
        set_mask(i % 2 == 0);
        let inherited = spawn(move || {
            let inherited = mask();
            set_mask(i % 3 == 0);
            inherited
        });
        assert_eq!(inherited.join().unwrap(), i % 2 == 0);
    }
    set_mask(false);
}

fn results_of_all_sizes_are_dropped_once() {
    let dropped = Arc::new(AtomicUsize::new(0));
    for i in 0..TIMES {
        let (small, big) = (Counts(dropped.clone()), (Counts(dropped.clone()), [i; 200]));
        let handle = spawn(move || (small, big));
        let (small, (big, numbers)) = handle.join().unwrap();
        assert_eq!((dropped.load(Ordering::SeqCst), numbers[199]), (2 * i, i));
        drop((small, big));
    }
    dropped.store(0, Ordering::SeqCst);
    #[repr(align(64))]
    struct Aligned(u8);
    let odd = spawn(|| Aligned(5)).join().unwrap();
    assert_eq!((odd.0, (&raw const odd).addr() % 64), (5, 0));
}

fn a_panic_of_each_kind() {
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    for i in 0..TIMES {
        let held = [i; 100];
        let result = spawn(move || if held[1] % 2 == 0 { panic!("{i}") } else { i }).join();
        match result {
            Ok(n) => assert!(n == i && i % 2 == 1),
            Err(payload) => assert_eq!(*payload.downcast_ref::<String>().unwrap(), i.to_string()),
        }
    }
    set_hook(hook);
}

fn a_handle_dropped_at_any_time() {
    let dropped = Arc::new(AtomicUsize::new(0));
    for i in 0..TIMES {
        let counts = Counts(dropped.clone());
        let handle = spawn(move || {
            (0..i % 7).for_each(|_| heddle::yield_now());
            counts
        });
        (0..i % 5).for_each(|_| heddle::yield_now());
        let _ = handle.is_finished();
        drop(handle);
    }
    eventually("all results are dropped", || dropped.load(Ordering::SeqCst) == TIMES);
}

fn a_handle_that_travels() {
    for i in 0..TIMES {
        let handle = spawn(move || i);
        let other = spawn(move || handle.join().unwrap() + 1);
        assert_eq!(other.join().unwrap(), i + 1);
    }
}

fn fib(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let one = spawn(move || fib(n - 1));
    let two = fib(n - 2);
    one.join().unwrap() + two
}

fn fork_join_of_threads() {
    assert_eq!(
        fib(if heddle::mode() == Mode::User { 20 } else { 10 }),
        if heddle::mode() == Mode::User { 6765 } else { 55 }
    );
}

fn threads_that_wait_for_each_other() {
    // More than fit the new threads of one processor.
    let n = if heddle::mode() == Mode::User { 1000 } else { 50 };
    let barrier = Arc::new(Barrier::new(n));
    let threads: Vec<_> = (0..n)
        .map(|i| {
            let barrier = barrier.clone();
            spawn(move || {
                barrier.wait();
                i
            })
        })
        .collect();
    let sum: usize = threads.into_iter().rev().map(|t| t.join().unwrap()).sum();
    assert_eq!(sum, n * (n - 1) / 2);
}

fn a_new_thread_runs_while_its_maker_computes() {
    let flag = Arc::new(AtomicBool::new(false));
    let other = {
        let flag = flag.clone();
        spawn(move || flag.store(true, Ordering::SeqCst))
    };
    while !flag.load(Ordering::SeqCst) {
        std::hint::spin_loop();
    }
    other.join().unwrap();
}

fn ids_of_the_living_differ() {
    let handles: Vec<_> = (0..50).map(|_| spawn(|| heddle::current().id())).collect();
    let outside: HashSet<_> = handles.iter().map(|h| h.thread().id()).collect();
    assert_eq!(outside.len(), 50);
    let inside: HashSet<_> = handles.into_iter().map(|h| h.join().unwrap()).collect();
    assert_eq!(inside, outside);
    assert!(!inside.contains(&heddle::current().id()));
}

fn unpark_of_one_that_has_ended() {
    for _ in 0..TIMES {
        let handle = spawn(heddle::park);
        let thread = handle.thread().clone();
        thread.unpark();
        handle.join().unwrap();
        thread.unpark();
        // At worst another's park ends early; it parks again until there is a reason.
        let done = Arc::new(AtomicBool::new(false));
        let next = {
            let done = done.clone();
            spawn(move || {
                while !done.load(Ordering::SeqCst) {
                    heddle::park();
                }
            })
        };
        done.store(true, Ordering::SeqCst);
        next.thread().unpark();
        next.join().unwrap();
    }
}

fn kernel_threads_join_user_threads() {
    for i in 0..20 {
        let handle = spawn(move || {
            heddle::sleep(Duration::from_micros(100 * (i % 3)));
            i
        });
        let kernel = Builder::new().mode(Mode::Kernel).spawn(move || handle.join().unwrap());
        assert_eq!(kernel.unwrap().join().unwrap(), i);
    }
}

fn threads_made_by_threads_that_nobody_joins() {
    let (tell, told) = mpsc::channel();
    for i in 0..TIMES {
        let tell = tell.clone();
        drop(spawn(move || {
            drop(spawn(move || tell.send(i).unwrap()));
        }));
    }
    drop(tell);
    let mut all: Vec<_> = told.iter().collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..TIMES));
}
