//! Memory calls: code that becomes executable is rewritten, shared mappings are remembered, thread stacks come from slabs.

use crate::sites;
use crate::wait::{e, fail};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use heddle_core::lock::SpinLock;
use heddle_core::sched::{RT, current};
use heddle_core::stack::{Outcome, STACKS};
use heddle_core::sys::{self, check, linux as l};

const SHARED_MAX: usize = 512;
/// How glibc maps a thread's stack, exactly.
const STACK: u32 = l::MAP_PRIVATE | l::MAP_ANONYMOUS | l::MAP_STACK;

#[derive(Clone, Copy)]
struct Range {
    start: usize,
    end: usize,
}

struct Shared {
    ranges: [Range; SHARED_MAX],
    len: usize,
    /// Too many to remember: every futex without the private flag is the kernel's.
    overflowed: bool,
}

static SHARED: SpinLock<Shared> =
    SpinLock::new(Shared { ranges: [Range { start: 0, end: 0 }; SHARED_MAX], len: 0, overflowed: false });
/// 0: no shared mapping exists; lets the common case leave without the lock.
static SHARED_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether the address lies in a mapping that other processes may share.
pub fn is_shared(address: usize) -> bool {
    if SHARED_COUNT.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let s = SHARED.lock();
    s.overflowed || s.ranges[..s.len].iter().any(|r| (r.start..r.end).contains(&address))
}

fn add_shared(start: usize, end: usize) {
    let mut s = SHARED.lock();
    if s.len == SHARED_MAX {
        s.overflowed = true;
    } else {
        let n = s.len;
        s.ranges[n] = Range { start, end };
        s.len += 1;
    }
    SHARED_COUNT.store(1, Ordering::Relaxed);
}

fn remove_shared(start: usize, end: usize) {
    if SHARED_COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut s = SHARED.lock();
    let mut i = 0;
    while i < s.len {
        let r = s.ranges[i];
        if r.end <= start || r.start >= end {
            i += 1;
            continue;
        }
        // Cut: what remains before and after.
        let n = s.len;
        s.ranges[i] = s.ranges[n - 1];
        s.len -= 1;
        for part in [Range { start: r.start, end: start.min(r.end) }, Range { start: end.max(r.start), end: r.end }] {
            if part.start < part.end && s.len < SHARED_MAX && (part.end <= start || part.start >= end) {
                let n = s.len;
                s.ranges[n] = part;
                s.len += 1;
            }
        }
    }
    if s.len == 0 && !s.overflowed {
        SHARED_COUNT.store(0, Ordering::Relaxed);
    }
}

/// Remembers what the program had mapped before it was taken over.
pub fn note_mapped(start: usize, end: usize) {
    add_shared(start, end);
}

/// Remembers a System V shared memory segment attached at `start`.
pub fn note_attached(start: usize) {
    // The size is not told; a segment's mapping ends where the next begins. Take the largest the kernel would allow.
    add_shared(start, start + (1 << 30));
}

/// A process that has no threads yet has mapped a stack.
static FIRST: AtomicBool = AtomicBool::new(false);

/// Where the last page of `len` bytes at `start`, the program's numbers, ends.
fn end_of(start: usize, len: usize) -> usize {
    start.saturating_add(len.checked_next_multiple_of(4096).unwrap_or(usize::MAX))
}

/// `mmap`.
///
/// # Safety
/// The program's call.
pub unsafe fn mmap(args: [usize; 6]) -> isize {
    let [hint, len, prot, flags, fd, offset] = args;
    let (prot, flags) = (prot as u32, flags as u32);
    if flags == STACK && hint == 0 && offset == 0 {
        const OPEN: u32 = l::PROT_READ | l::PROT_WRITE;
        let closed = prot == l::PROT_NONE;
        // The stack of the first thread comes before the runtime. libc keeps it, and a program with one thread at a time runs
        // them all on it.
        if (RT.is_started() || closed && !FIRST.swap(true, Ordering::Relaxed))
            && (closed || prot == OPEN)
            && let Some(stack) = STACKS.allocate(len, closed, || RT.call_helper())
        {
            return stack as isize;
        }
    }
    if flags & (l::MAP_FIXED | l::MAP_FIXED_NOREPLACE) == l::MAP_FIXED
        && let Outcome::Fail(errno) = STACKS.replace(hint, end_of(hint, len))
    {
        return -(errno as isize);
    }
    // SAFETY: the program's call.
    let r = unsafe { sys::syscall6(l::__NR_mmap as usize, args) };
    let Ok(start) = check(r) else { return r };
    let end = end_of(start, len);
    if flags & l::MAP_FIXED != 0 {
        sites::forget(start, end - start);
        remove_shared(start, end);
    }
    if flags & 3 == l::MAP_SHARED || flags & 3 == l::MAP_SHARED_VALIDATE {
        add_shared(start, end);
    }
    // What is written to a shared mapping is written to the file: such code's system calls stay the kernel's.
    if prot & l::PROT_EXEC != 0 && flags & (3 | l::MAP_ANONYMOUS) == l::MAP_PRIVATE {
        LOADED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the mapping was just made; its code has not run.
        unsafe { sites::rewrite_mapping(start, len, fd as i32, offset as u64, prot) };
    }
    r
}

/// Files mapped as code.
static LOADED: AtomicU32 = AtomicU32::new(0);

/// Changes whenever an object is loaded.
pub const fn loaded() -> &'static AtomicU32 {
    &LOADED
}

/// `munmap`.
///
/// # Safety
/// The program's call.
pub unsafe fn munmap(args: [usize; 6]) -> isize {
    match STACKS.unmap(args[0], args[1]) {
        Outcome::Done => return 0,
        Outcome::Fail(errno) => return -(errno as isize),
        Outcome::Pass => {}
    }
    let end = end_of(args[0], args[1]);
    // Another thread may be given the same addresses before this call is back.
    sites::moving(args[0]..end);
    // SAFETY: the program's call.
    let r = unsafe { sys::syscall6(l::__NR_munmap as usize, args) };
    if r == 0 {
        sites::forget(args[0], end - args[0]);
        remove_shared(args[0], end);
    }
    r
}

/// `mprotect`.
///
/// # Safety
/// The program's call.
pub unsafe fn mprotect(number: usize, args: [usize; 6]) -> isize {
    // A protection key goes beyond what a slot can have: any other protection makes it ordinary memory.
    let prot = if number == l::__NR_mprotect as usize { args[2] as u32 } else { u32::MAX };
    match STACKS.protect(args[0], args[1], prot) {
        Outcome::Done => return 0,
        Outcome::Fail(errno) => return -(errno as isize),
        Outcome::Pass => {}
    }
    // SAFETY: the program's call.
    let r = unsafe { sys::syscall6(number, args) };
    if r == 0 && args[2] as u32 & l::PROT_EXEC != 0 {
        // SAFETY: what has just become executable; anonymous memory is left alone there.
        unsafe { sites::rewrite_mapping(args[0], args[1], -1, 0, args[2] as u32) };
    }
    r
}

/// `mremap`.
///
/// # Safety
/// The program's call.
pub unsafe fn mremap(args: [usize; 6]) -> isize {
    let shared = is_shared(args[0]);
    if let Err(errno) = STACKS.disown(args[0], end_of(args[0], args[1]), false) {
        return -(errno as isize);
    }
    if args[3] as u32 & l::MREMAP_FIXED != 0
        && let Outcome::Fail(errno) = STACKS.replace(args[4], end_of(args[4], args[2]))
    {
        return -(errno as isize);
    }
    let from = args[0]..end_of(args[0], args[1]);
    sites::moving(from.clone());
    // SAFETY: the program's call.
    let r = unsafe { sys::syscall6(l::__NR_mremap as usize, args) };
    if let Ok(new) = check(r) {
        let to = new..end_of(new, args[2]);
        if shared {
            remove_shared(from.start, from.end);
            add_shared(to.start, to.end);
        }
        sites::moving(from);
        sites::moving(to);
    }
    r
}

/// `madvise`.
///
/// # Safety
/// The program's call.
pub unsafe fn madvise(args: [usize; 6]) -> isize {
    let [start, len, advice, ..] = args;
    // The end of a thread: libc keeps the stack, and gives up all of it below the stack pointer.
    // SAFETY: the current thread's own fields.
    if let Some(t) = unsafe { current().as_mut() }
        && t.stack.is_some_and(|stack| stack.is_used())
        && (start, advice as u32) == (t.identity.stack_base, l::MADV_DONTNEED)
        && len <= t.identity.stack_size
    {
        t.given_up = len;
        return 0;
    }
    match STACKS.advise(start, len, advice as u32) {
        Outcome::Done => return 0,
        Outcome::Fail(errno) => return -(errno as isize),
        Outcome::Pass => {}
    }
    // SAFETY: the program's call.
    unsafe { sys::syscall6(l::__NR_madvise as usize, args) }
}

/// The program has allocated a protection key. Stays so in a forked child, which has the parent's keys.
static KEYS_IN_USE: AtomicBool = AtomicBool::new(false);

/// `pkey_alloc`: the kernel gives this kernel thread the rights, which are the caller's from then on.
///
/// # Safety
/// Inside the core, or in a process without threads; the program's arguments.
pub unsafe fn allocate_key(args: [usize; 6]) -> isize {
    // SAFETY: the program's call.
    let r = unsafe { sys::syscall6(l::__NR_pkey_alloc as usize, args) };
    if r >= 0 {
        KEYS_IN_USE.store(true, Ordering::Relaxed);
        RT.keys_in_use();
    }
    r
}

/// The runtime has started: rights by keys that are there already belong to threads.
pub fn take_over_keys() {
    if KEYS_IN_USE.load(Ordering::Relaxed) {
        RT.keys_in_use();
    }
}

/// Before `mlockall`, which would make reservations resident.
pub fn before_lock_all() {
    STACKS.give_up();
}

/// `mlockall`: our large tables are locked as far as they are used, all else as asked.
///
/// # Safety
/// Inside the core, or in a process without threads; the program's arguments.
pub unsafe fn lock_all(args: [usize; 6]) -> isize {
    let flags = args[0] as u32;
    before_lock_all();
    // SAFETY: locking changes no contents.
    unsafe {
        if flags & l::MCL_CURRENT == 0 || flags & l::MCL_ONFAULT != 0 {
            return sys!(l::__NR_mlockall, flags);
        }
        let r = sys!(l::__NR_mlockall, flags | l::MCL_ONFAULT);
        if r != 0 && r != fail(e::ENOMEM) {
            return r;
        }
        let Ok(maps) = sites::Maps::read() else { return fail(e::ENOMEM) };
        let mut tables = [RT.threads.addresses(), RT.descriptors.addresses()];
        tables.sort_unstable_by_key(|t| t.start);
        if r != 0 {
            // Because of the tables, perhaps: without them it may be within the limit.
            let mut limit = [0u64; 2];
            sys!(l::__NR_prlimit64, 0, l::RLIMIT_MEMLOCK, 0, limit.as_mut_ptr());
            let all: usize = maps.list.iter().map(|m| m.range.len()).sum();
            if (all - tables.iter().map(|t| t.len()).sum::<usize>()) as u64 > limit[0] {
                return r;
            }
        }
        if flags & l::MCL_FUTURE != 0 {
            sys!(l::__NR_mlockall, l::MCL_FUTURE);
        }
        for mapping in &maps.list {
            // Some cannot become resident; the kernel's call says nothing about them either.
            let mut start = mapping.range.start;
            for table in &tables {
                let end = table.start.min(mapping.range.end);
                if start < end {
                    sys!(l::__NR_mlock, start, end - start);
                }
                if table.start < mapping.range.end {
                    start = start.max(table.end);
                }
            }
            if start < mapping.range.end {
                sys!(l::__NR_mlock, start, mapping.range.end - start);
            }
        }
        0
    }
}

/// Before a fork: no other thread may be in the middle of changing these tables.
pub fn before_fork() {
    SHARED.hold_for_fork();
    sites::hold_for_fork();
    STACKS.hold();
}

/// After a fork, in the parent and the child, or in the parent when a process that shared its memory has ended in
/// [`before_fork`] or since.
///
/// # Safety
/// Pairs with [`before_fork`], whose locks, as far as they have been taken, are the caller's.
pub unsafe fn after_fork() {
    // SAFETY: the caller's (in the child: the thread that held them is the one that goes on).
    unsafe {
        STACKS.let_go();
        sites::let_go_after_fork();
        SHARED.let_go_after_fork();
    }
}
