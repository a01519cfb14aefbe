use super::slab::PAGE;
use super::*;
use std::sync::atomic::AtomicBool;
use std::vec::Vec;

const RW: u32 = l::PROT_READ | l::PROT_WRITE;
const PERIOD: u64 = 60_000_000;

/// A pool of its own; never dropped: slabs are not unmapped.
fn pool() -> &'static Stacks {
    Box::leak(Box::new(Stacks::new()))
}

/// A stack as glibc makes it: closed, then open but for its guard.
fn stack(s: &Stacks, size: usize, guard: usize) -> usize {
    let at = s.allocate(size, true, || ()).expect("a slot");
    assert_eq!(s.protect(at + guard, size - guard, RW), Done);
    at
}

fn fill(at: usize, len: usize, byte: u8) {
    // SAFETY: the test's own slot.
    unsafe { core::ptr::write_bytes(at as *mut u8, byte, len) };
}

fn bytes(at: usize, len: usize) -> &'static [u8] {
    // SAFETY: the test's own slot, which stays mapped.
    unsafe { core::slice::from_raw_parts(at as *const u8, len) }
}

fn is_zero(at: usize, len: usize) -> bool {
    bytes(at, len).iter().all(|&b| b == 0)
}

/// Whether the kernel can read the byte.
fn readable(at: usize) -> bool {
    let mut ends = [0i32; 2];
    // SAFETY: a pipe of the test's; the kernel checks the address.
    unsafe {
        assert_eq!(sys!(l::__NR_pipe2, ends.as_mut_ptr(), 0), 0);
        let r = sys!(l::__NR_write, ends[1], at, 1);
        sys!(l::__NR_close, ends[0]);
        sys!(l::__NR_close, ends[1]);
        r == 1
    }
}

/// Pages of the range that are in memory.
fn resident(at: usize, len: usize) -> usize {
    let mut v = vec![0u8; len / PAGE];
    // SAFETY: one byte for each page.
    assert_eq!(unsafe { sys!(l::__NR_mincore, at, len, v.as_mut_ptr()) }, 0);
    v.iter().filter(|&&b| b & 1 != 0).count()
}

/// The signal that ends a forked child which runs `f`; 0: it came to the end of it. `f` must not allocate: another thread's
/// lock on the allocator stays locked in the child.
fn signal_of(f: impl Fn()) -> i32 {
    // SAFETY: the child does nothing but `f` and ends; `f` uses memory only.
    unsafe {
        let pid = sys!(l::__NR_fork) as i32;
        if pid == 0 {
            // The test runner's handler for overflows is not wanted.
            let default = [0u64; 4];
            sys!(l::__NR_rt_sigaction, l::SIGSEGV, default.as_ptr(), 0, 8);
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_err() {
                sys!(l::__NR_kill, sys!(l::__NR_getpid), l::SIGABRT);
            }
            sys!(l::__NR_exit_group, 0);
        }
        let mut status = 0i32;
        assert_eq!(sys!(l::__NR_wait4, pid, &mut status as *mut _, 0, 0) as i32, pid);
        status & 0x7f
    }
}

/// Runs `f` in a forked child, where no other test maps anything into the place of what was unmapped.
fn alone(f: impl Fn() -> bool) -> bool {
    let end = signal_of(|| {
        if !f() {
            // SAFETY: the child's own end.
            unsafe { sys!(l::__NR_kill, sys!(l::__NR_getpid), l::SIGKILL) };
        }
    });
    end == 0
}

#[test]
fn slots_are_apart_zero_and_open_but_for_the_guard() {
    let s = pool();
    let size = 64 << 10;
    let stacks: Vec<usize> = (0..300).map(|_| stack(s, size, PAGE)).collect();
    let mut sorted = stacks.clone();
    sorted.sort();
    assert!(sorted.windows(2).all(|w| w[1] - w[0] >= size));
    for &at in &stacks {
        assert!(is_zero(at + PAGE, size - PAGE));
        assert!(!readable(at) && readable(at + PAGE));
        fill(at + PAGE, size - PAGE, 7);
    }
    assert_eq!(signal_of(|| fill(stacks[100], 1, 1)), l::SIGSEGV as i32);
    assert_eq!(signal_of(|| fill(stacks[100] + PAGE, 1, 1)), 0);
    for &at in &stacks {
        assert_eq!(s.unmap(at, size), Done);
    }
    for _ in 0..300 {
        let at = stack(s, size, PAGE);
        assert!(is_zero(at + PAGE, size - PAGE));
        assert!(!readable(at));
    }
}

#[test]
fn dropping_keeps_guards() {
    let s = pool();
    let size = 256 << 10;
    let at = stack(s, size, 2 * PAGE);
    fill(at + 2 * PAGE, size - 2 * PAGE, 1);
    // SAFETY: the test's own slot.
    unsafe { guard::advise(at, size, Advice::Drop).unwrap() };
    assert!(!readable(at) && !readable(at + 2 * PAGE - 1));
    assert!(is_zero(at + 2 * PAGE, size - 2 * PAGE));
}

#[test]
fn another_guard_size_on_reuse() {
    let s = pool();
    let size = 128 << 10;
    for guard in [1, 1, 4, 2, 0, 3] {
        let at = stack(s, size, guard * PAGE);
        assert!(guard == 0 || (!readable(at) && !readable(at + guard * PAGE - 1)));
        assert!(is_zero(at + guard * PAGE, size - guard * PAGE));
        fill(at + guard * PAGE, size - guard * PAGE, 9);
        assert_eq!(s.unmap(at, size), Done);
    }
}

#[test]
fn open_stacks_have_no_guard_until_asked() {
    let s = pool();
    let size = 64 << 10;
    let mut some: Vec<usize> = (0..FAMILIAR_ENOUGH).filter_map(|_| s.allocate(size, false, || ())).collect();
    let at = some.pop().expect("a size asked for again and again");
    assert!(is_zero(at, size));
    assert_eq!(s.advise(at, PAGE, Advice::Guard as u32), Done);
    assert!(!readable(at) && readable(at + PAGE));
    fill(at + PAGE, PAGE, 1);
    assert_eq!(s.unmap(at, size), Done);
    for _ in 0..40 {
        let again = s.allocate(size, false, || ()).unwrap();
        assert!(readable(again) && is_zero(again, size));
    }
}
const FAMILIAR_ENOUGH: usize = 10;

#[test]
fn what_a_thread_gives_up_is_dropped_later() {
    let s = pool();
    let size = 256 << 10;
    let at = stack(s, size, PAGE);
    let kept = at + size - 6 * PAGE;
    fill(at + PAGE, size - PAGE, 5);
    let place = s.in_use(at, size).unwrap();
    assert!(s.in_use(at, size + PAGE).is_none() && s.in_use(at + PAGE, size - PAGE).is_none(), "not a slot");
    // Not before the thread has left.
    for i in 1..10 {
        s.trim(i * PERIOD);
    }
    assert!(bytes(at + PAGE, kept - at - PAGE).iter().all(|&b| b == 5));
    s.left(place, kept - at);
    assert!(s.trim(20 * PERIOD));
    assert!(bytes(at + PAGE, kept - at - PAGE).iter().all(|&b| b == 5));
    // Used again at once: never.
    let place = s.in_use(at, size).unwrap();
    assert!(!s.trim(30 * PERIOD));
    s.left(place, kept - at);
    for i in 40..50 {
        s.trim(i * PERIOD);
    }
    assert_eq!(resident(at + PAGE, kept - at - PAGE), 0);
    assert!(bytes(kept, 6 * PAGE).iter().all(|&b| b == 5));
    assert!(!readable(at));
    assert!(!s.trim(60 * PERIOD));
    // Not a thread's own stack: at once, by the kernel.
    assert_eq!(s.advise(at, kept - at, l::MADV_DONTNEED), Pass);
}

#[test]
fn freed_stacks_give_their_memory_back() {
    let s = pool();
    let size = 64 << 10;
    let stacks: Vec<usize> = (0..500).map(|_| stack(s, size, PAGE)).collect();
    stacks.iter().for_each(|&at| fill(at + PAGE, size - PAGE, 3));
    stacks.iter().for_each(|&at| assert_eq!(s.unmap(at, size), Done));
    let mut now = 0;
    while s.trim(now) {
        now += 5_000_000;
        assert!(now < 10_000_000_000);
    }
    assert_eq!(stacks.iter().map(|&at| resident(at, size)).sum::<usize>(), 0);
    let again = stack(s, size, PAGE);
    assert!(is_zero(again + PAGE, size - PAGE) && !readable(again));
}

#[test]
fn too_much_waiting_is_given_back_at_once() {
    let s = pool();
    let size = 128 << 20;
    for _ in 0..40 {
        let at = stack(s, size, PAGE);
        fill(at + size - PAGE, PAGE, 1);
        assert_eq!(s.unmap(at, size), Done);
        assert!(s.pending.load(Ordering::Relaxed) * PAGE <= (1 << 30) + size);
    }
}

#[test]
fn other_protection_makes_a_slot_ordinary() {
    let s = pool();
    let size = 64 << 10;
    let first = stack(s, size, PAGE);
    let at = stack(s, size, 2 * PAGE);
    let other = stack(s, size, PAGE);
    fill(at + 2 * PAGE, size - 2 * PAGE, 4);
    let middle = at + 8 * PAGE;
    assert_eq!(s.protect(middle, PAGE, l::PROT_READ), Pass);
    // The guard is a mapping now: it can be opened like one.
    assert!(!readable(at) && readable(at + 2 * PAGE));
    assert_eq!(s.protect(at, PAGE, RW), Pass);
    // SAFETY: what the caller of `protect` does.
    unsafe { assert_eq!(sys!(l::__NR_mprotect, at, PAGE, RW), 0) };
    assert!(readable(at) && !readable(at + PAGE));
    assert_eq!(bytes(middle, 1), [4]);
    // It is the kernel's to unmap, and never a slot again.
    assert_eq!(s.unmap(at, size), Pass);
    // SAFETY: as the caller of `unmap` does.
    unsafe { assert_eq!(sys!(l::__NR_munmap, at, size), 0) };
    assert!((0..200).all(|_| stack(s, size, PAGE) != at));
    assert!(readable(first + PAGE) && readable(other + PAGE));
}

#[test]
fn closed_slots_that_are_opened_in_parts() {
    let s = pool();
    let size = 64 << 10;
    let warm = stack(s, size, PAGE);
    assert_eq!(s.unmap(warm, size), Done);
    let at = s.allocate(size, true, || ()).unwrap();
    assert_eq!(s.protect(at + 4 * PAGE, PAGE, RW), Pass);
    // SAFETY: what the caller of `protect` does.
    unsafe { assert_eq!(sys!(l::__NR_mprotect, at + 4 * PAGE, PAGE, RW), 0) };
    assert!(readable(at + 4 * PAGE) && !readable(at + 3 * PAGE) && !readable(at + 5 * PAGE) && !readable(at));
}

#[test]
fn unmapping_a_part_or_across_slots() {
    let s = pool();
    let size = 64 << 10;
    let mut stacks: Vec<usize> = (0..4).map(|_| stack(s, size, PAGE)).collect();
    stacks.sort();
    stacks.iter().for_each(|&at| fill(at + PAGE, size - PAGE, 6));
    assert!(alone(|| {
        let page = stacks[0] + 4 * PAGE;
        // SAFETY: what the caller of `unmap` does.
        let done = s.unmap(page, PAGE) == Pass && unsafe { sys!(l::__NR_munmap, page, PAGE) } == 0;
        done && !readable(stacks[0]) && !readable(page) && readable(page + PAGE)
    }));
    // The second's upper part, all of the third, and the fourth's first pages.
    assert!(alone(|| {
        let (from, to) = (stacks[1] + 8 * PAGE, stacks[3] + 2 * PAGE);
        // SAFETY: what the caller of `unmap` does.
        let done = s.unmap(from, to - from) == Pass && unsafe { sys!(l::__NR_munmap, from, to - from) } == 0;
        done && !readable(stacks[1])
            && readable(from - 1)
            && !readable(stacks[2] + PAGE)
            && !readable(to - 1)
            && readable(to)
            && s.unmap(stacks[0] + 4 * PAGE, PAGE) == Pass
            && stacks.iter().all(|&at| s.unmap(at, size) == Pass)
            && s.inner.lock().in_use() == 0
            && is_zero(stack(s, size, PAGE) + PAGE, size - PAGE)
    }));
}

#[test]
fn locked_memory_is_not_used_again() {
    let s = pool();
    let size = 64 << 10;
    let at = stack(s, size, PAGE);
    fill(at + PAGE, size - PAGE, 8);
    // SAFETY: the test's own slot.
    unsafe { assert_eq!(sys!(l::__NR_mlock2, at + 8 * PAGE, PAGE, 0), 0) };
    assert_eq!(s.unmap(at, size), Done);
    let more: Vec<usize> = (0..100).map(|_| stack(s, size, PAGE)).collect();
    assert!(more.iter().all(|&at| is_zero(at + PAGE, size - PAGE)));
}

/// Most of the time that it takes to create many threads is the kernel's for their first pages, and other CPUs idle.
#[test]
fn an_idle_worker_makes_slots_ready_ahead() {
    let s = pool();
    let size = 64 << 10;
    assert!(!s.ahead(), "nobody asked for anything");
    let calls = core::cell::Cell::new(0);
    let create = || s.allocate(size, true, || calls.set(calls.get() + 1)).expect("a slot");
    let few: Vec<usize> = (0..16).map(|_| create()).collect();
    assert!(!s.ahead() && calls.get() == 0, "few threads are no reason");
    let many: Vec<usize> = (0..200).map(|_| create()).collect();
    assert!(calls.get() > 0, "the creator had to make some ready");
    // The creator ends one batch with what it takes here, and all further ones are ready.
    let mut made = 0;
    while s.ahead() {
        made += 1;
        create();
    }
    assert!(made > 0 && made < 10, "{made} batches: it ends when enough are ready");
    calls.set(0);
    for _ in 0..32 {
        let at = create();
        assert_eq!(s.protect(at + PAGE, size - PAGE, RW), Done);
        assert!(!readable(at) && is_zero(at + PAGE, size - PAGE), "a slot made ahead is as any other");
    }
    assert_eq!(calls.get(), 0);
    for at in few.into_iter().chain(many) {
        assert_eq!(s.unmap(at, size), Done);
    }
}

#[test]
fn giving_up_unmaps_what_is_free() {
    let s = pool();
    assert!(alone(|| {
        let size = 64 << 10;
        let (free, kept) = (stack(s, size, PAGE), stack(s, size, PAGE));
        let freed = s.unmap(free, size) == Done;
        fill(kept + PAGE, PAGE, 1);
        s.give_up();
        let gone = !readable(free + PAGE) && readable(kept + PAGE) && !readable(kept);
        freed && gone && s.allocate(size, true, || ()).is_none() && s.unmap(kept, size) == Done
    }));
}

#[test]
fn exhaustion_passes_on() {
    let s = pool();
    // In a child: the limit holds for the whole process.
    assert!(alone(|| {
        let limit = [1u64 << 40, 1 << 40];
        // SAFETY: limits of the child's own.
        unsafe { sys!(l::__NR_prlimit64, 0, l::RLIMIT_AS, limit.as_ptr(), 0) };
        s.allocate(64 << 10, true, || ()).is_none()
    }));
    assert_eq!(s.allocate(1 << 40, true, || ()), None);
    assert_eq!(s.allocate(12345, true, || ()), None);
    // More sizes than classes.
    let found = (1..100).filter(|i| s.allocate(i * 4 * PAGE, true, || ()).is_some()).count();
    assert!(found > 0 && found < 99);
}

#[test]
fn a_program_that_protects_every_stack_gets_no_more_slots() {
    let s = pool();
    let size = 64 << 10;
    let mut passed = false;
    for _ in 0..400 {
        let Some(at) = s.allocate(size, true, || ()) else {
            passed = true;
            break;
        };
        assert_eq!(s.protect(at + PAGE, size - PAGE, RW | l::PROT_EXEC), Pass);
    }
    assert!(passed);
}

#[test]
fn many_threads_at_once() {
    let s = pool();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|k: u8| {
                scope.spawn(move || {
                    let size = (64 << 10) << (k % 2);
                    for round in 0..300 {
                        let stacks: Vec<usize> =
                            (0..(round * 7 + k as usize) % 90).map(|_| stack(s, size, PAGE)).collect();
                        for &at in &stacks {
                            assert!(is_zero(at + size - 3 * PAGE, 3 * PAGE) && is_zero(at + PAGE, PAGE));
                            let place = s.in_use(at, size).unwrap();
                            fill(at + size - 3 * PAGE, 3 * PAGE, k + 1);
                            fill(at + PAGE, PAGE, k + 1);
                            if round % 3 == 0 {
                                s.left(place, size - 8 * PAGE);
                            }
                        }
                        for &at in &stacks {
                            if round % 2 == 0 {
                                assert!(s.in_use(at, size).is_some());
                            }
                            assert!(bytes(at + size - 3 * PAGE, 3 * PAGE).iter().all(|&b| b == k + 1));
                            assert_eq!(s.unmap(at, size), Done);
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                s.ahead();
            }
        });
        scope.spawn(|| {
            let mut now = 0;
            while !stop.load(Ordering::Relaxed) {
                now += PERIOD;
                s.trim(now);
                s.hold();
                // SAFETY: held.
                unsafe { s.let_go() };
            }
        });
        let ends: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(ends.iter().all(Result::is_ok));
    });
    let mut now = 1 << 60;
    while s.trim(now) {
        now += PERIOD;
    }
    assert_eq!(s.inner.lock().in_use(), 0);
    assert_eq!(s.pending.load(Ordering::Relaxed), 0);
}
