//! What a thread asks of the scheduler: CPUs, policy, priority, nice value.
//!
//! The **CPU set** of a thread holds: when a worker switches to a thread whose set differs from the last one's, it takes
//! that set over (a system call), so the thread runs on those CPUs only and `getcpu` tells one of them. Nothing is done
//! about it until a thread sets one.
//!
//! **Policy, priority, nice value, I/O priority, timer slack** are checked as the kernel checks them, remembered and told;
//! they change nothing about when a thread runs, but that of the threads that wait on a futex, those with real-time priority
//! are woken first, as in the kernel.

use crate::cpus;
use crate::wait::{e, fail};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use heddle_core::lock::SpinLock;
use heddle_core::mem;
use heddle_core::sched::{Absent, RT, Worker, current, worker};
use heddle_core::sys::{linux as l, syscall6};
use heddle_core::thread::Thread;

/// A set of CPUs.
pub type Set = [u64; cpus::WORDS];
/// Its size in bytes.
const SET: usize = size_of::<Set>();

/// Policy and priorities.
#[derive(Clone, Copy, Default)]
struct Class {
    policy: u32,
    reset_on_fork: bool,
    priority: i32,
    nice: i32,
}

#[derive(Clone, Copy)]
struct Values {
    class: Option<Class>,
    io_priority: Option<i32>,
    timer_slack: Option<usize>,
}

/// What was set for a thread. Made when something is first set; never unmapped.
struct Attributes {
    /// Which set `cpus` is: a number given to no other; 0: none, the process's.
    set: AtomicU32,
    cpus: [AtomicU64; cpus::WORDS],
    values: SpinLock<Values>,
    next: usize,
}

/// Records not in use.
static FREE: SpinLock<usize> = SpinLock::new(0);
/// The last number of a set.
static SETS: AtomicU32 = AtomicU32::new(0);
/// Some thread has a CPU set of its own.
static PINNING: AtomicBool = AtomicBool::new(false);
/// The CPUs of threads that have none.
static DEFAULT: [AtomicU64; cpus::WORDS] = [const { AtomicU64::new(0) }; cpus::WORDS];

/// The record of `t`, if there is one.
///
/// # Safety
/// `t` is a control block.
unsafe fn of(t: *mut Thread) -> Option<&'static Attributes> {
    // SAFETY: the caller's; records are never unmapped.
    unsafe { ((*t).attributes.load(Ordering::Acquire) as *const Attributes).as_ref() } // Acquire: it is filled in. pairs: attributes
}

fn allocate() -> Result<*mut Attributes, isize> {
    let mut free = FREE.lock();
    if *free == 0 {
        const PAGE: usize = 64 * 1024;
        let Ok(page) = mem::map(PAGE) else { return Err(fail(e::ENOMEM)) };
        let step = size_of::<Attributes>();
        for i in 0..PAGE / step {
            let record = (page as usize + i * step) as *mut Attributes;
            // SAFETY: fresh memory; the alignment of pages.
            unsafe { (*record).next = *free };
            *free = record as usize;
        }
    }
    let record = *free as *mut Attributes;
    // SAFETY: from the list, so nobody uses it.
    unsafe {
        *free = (*record).next;
        (*record).set.store(0, Ordering::Relaxed);
        (&raw mut (*record).values).write(SpinLock::new(Values { class: None, io_priority: None, timer_slack: None }));
    }
    Ok(record)
}

fn release(record: usize) {
    if record != 0 {
        let mut free = FREE.lock();
        // SAFETY: nobody uses the record any more, but for a late reader of its atomic words.
        unsafe { (*(record as *mut Attributes)).next = *free };
        *free = record;
    }
}

/// The record of `t`, made if need be.
unsafe fn make(t: *mut Thread) -> Result<&'static Attributes, isize> {
    // SAFETY: the caller's: a control block.
    unsafe {
        if let Some(a) = of(t) {
            return Ok(a);
        }
        let new = allocate()?;
        // Release: it is filled in. pairs: attributes
        match (*t).attributes.compare_exchange(0, new as usize, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => Ok(&*new),
            Err(_) => {
                release(new as usize);
                make(t)
            }
        }
    }
}

/// A new thread gets what its creator has. Error: ENOMEM.
///
/// # Safety
/// `parent` is the current thread, `child` has not run yet.
pub unsafe fn inherit(parent: *mut Thread, child: *mut Thread) -> Result<(), isize> {
    // SAFETY: the caller's.
    unsafe {
        let Some(from) = of(parent) else { return Ok(()) };
        let to = make(child)?;
        for (to, from) in to.cpus.iter().zip(&from.cpus) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        to.set.store(from.set.load(Ordering::Relaxed), Ordering::Relaxed);
        let mut values = *from.values.lock();
        values.class = values.class.map(after_fork);
        *to.values.lock() = values;
        Ok(())
    }
}

/// The thread has ended.
///
/// # Safety
/// Its block is not free yet, and it runs no more.
pub unsafe fn forget(t: *mut Thread) {
    // SAFETY: the caller's. Nobody else writes it.
    unsafe {
        let record = (*t).attributes.load(Ordering::Relaxed);
        if record != 0 {
            (*t).attributes.store(0, Ordering::Relaxed);
            release(record);
        }
    }
}

/// Forgets everything, in a forked child.
///
/// # Safety
/// The caller is the only thread.
pub unsafe fn reset() {
    // SAFETY: the caller's.
    unsafe { FREE.force_unlock() };
    *FREE.lock() = 0; // not many
    PINNING.store(false, Ordering::Relaxed);
}

/// In a forked child, which is an ordinary process: what was remembered for the thread that it continues becomes real.
///
/// # Safety
/// The caller is the only thread; `t` is that thread's block.
pub unsafe fn in_child(t: *mut Thread) {
    // SAFETY: the caller's; reads locals. Nobody else is there who could hold the lock.
    unsafe {
        let Some(a) = of(t) else { return };
        a.values.force_unlock();
        let values = *a.values.lock();
        if let Some(c) = values.class.map(after_fork) {
            let attr = SchedAttr {
                size: size_of::<SchedAttr>() as u32,
                policy: c.policy,
                nice: c.nice,
                priority: c.priority as u32,
                ..SchedAttr::default()
            };
            sys!(l::__NR_setpriority, l::PRIO_PROCESS, 0, c.nice); // which the next one leaves alone if it is real-time
            sys!(l::__NR_sched_setattr, 0, &raw const attr, 0);
        }
        if let Some(value) = values.io_priority {
            sys!(l::__NR_ioprio_set, 1, 0, value);
        }
        if let Some(ns) = values.timer_slack {
            sys!(l::__NR_prctl, linux_raw_sys::prctl::PR_SET_TIMERSLACK, ns);
        }
    }
}

/// What a new thread or process gets.
fn after_fork(c: Class) -> Class {
    if !c.reset_on_fork {
        return c;
    }
    let nice = if c.policy == l::SCHED_NORMAL || c.policy == l::SCHED_BATCH { c.nice.max(0) } else { 0 };
    let policy = if is_real_time(c.policy) { l::SCHED_NORMAL } else { c.policy };
    Class { policy, reset_on_fork: false, priority: 0, nice }
}

/// If main had a CPU set of its own before the runtime started, it keeps it, and other threads get those of main's start.
///
/// # Safety
/// At start, `main` is the only thread.
pub unsafe fn take_over(main: *mut Thread) {
    let (mut now, all) = ([0; cpus::WORDS], cpus::at_load());
    // SAFETY: writes the local; the caller's.
    unsafe {
        let r = sys!(l::__NR_sched_getaffinity, 0, SET, now.as_mut_ptr());
        if r > 0 && now != all {
            begin(&all);
            if let Ok(a) = make(main) {
                assign(a, &now);
            }
        }
    }
}

/// From now on switches look after CPU sets.
fn begin(default: &Set) {
    if !PINNING.load(Ordering::Relaxed) {
        for (to, from) in DEFAULT.iter().zip(default) {
            to.store(*from, Ordering::Relaxed);
        }
        // Release: the default set. pairs: pinning
        PINNING.store(true, Ordering::Release);
        RT.watch(apply);
    }
}

fn assign(a: &Attributes, set: &Set) -> u32 {
    let number = SETS.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    // A reader in between takes a mixture over, and sees the new number afterwards.
    for (to, from) in a.cpus.iter().zip(set) {
        to.store(*from, Ordering::Relaxed);
    }
    // Release: the words. pairs: attributes.set
    a.set.store(number, Ordering::Release);
    number
}

fn copy(words: &[AtomicU64; cpus::WORDS]) -> Set {
    core::array::from_fn(|i| words[i].load(Ordering::Relaxed))
}

/// Has worker `w`, the caller's, run on the CPUs of its thread `t`.
///
/// # Safety
/// The caller's worker. Safe in signal handlers.
unsafe fn apply(w: *mut Worker, t: *mut Thread) {
    // SAFETY: our own record; a control block.
    unsafe {
        loop {
            let a = of(t);
            // Acquire: the words. pairs: attributes.set
            let set = a.map_or(0, |a| a.set.load(Ordering::Acquire));
            if (*w).cpus.load(Ordering::Relaxed) == set {
                return;
            }
            (*w).cpus.store(set, Ordering::Relaxed);
            let words = match a {
                Some(a) if set != 0 => copy(&a.cpus),
                _ => copy(&DEFAULT),
            };
            // If the kernel refuses (the control group may have other CPUs now), the worker stays where it may be.
            sys!(l::__NR_sched_setaffinity, 0, SET, words.as_ptr());
        }
    }
}

/// The worker was kicked: perhaps since its thread's CPUs have changed.
///
/// # Safety
/// In the handler of a kick, on worker `w`.
pub unsafe fn kicked(w: *mut Worker) {
    // Acquire: the default set. pairs: pinning
    if PINNING.load(Ordering::Acquire) {
        // SAFETY: our own record.
        unsafe {
            let t = (*w).current;
            if !t.is_null() {
                apply(w, t);
            }
        }
    }
}

/// `sched_setaffinity` for `t`, one of ours.
///
/// # Safety
/// The current thread, inside the core; the program's arguments.
unsafe fn set_cpus(t: *mut Thread, args: [usize; 6]) -> isize {
    // SAFETY: the program's pointer; our own record; control blocks.
    unsafe {
        let me = current();
        let w = worker();
        let mut before = [0; cpus::WORDS];
        sys!(l::__NR_sched_getaffinity, 0, SET, before.as_mut_ptr());
        // Tried on this worker: the kernel says whether it is possible, and which CPUs remain of the set.
        let r = sys!(l::__NR_sched_setaffinity, 0, args[1], args[2]);
        if r < 0 {
            return r;
        }
        let mut set = [0; cpus::WORDS];
        sys!(l::__NR_sched_getaffinity, 0, SET, set.as_mut_ptr());
        (*w).cpus.store(Worker::ANY_CPUS, Ordering::Relaxed);
        begin(&before);
        let number = match make(t) {
            Ok(a) => assign(a, &set),
            Err(errno) => {
                apply(w, me);
                return errno;
            }
        };
        if t == me {
            (*w).cpus.store(number, Ordering::Relaxed);
            return 0;
        }
        apply(w, me);
        // If it runs just now, its worker is told, and moves before we go on.
        for turn in 0..2000 {
            let on: *mut Worker = (*t).worker.load(Ordering::Relaxed).cast();
            if on.is_null() || !(*on).runs(t) || (*on).cpus.load(Ordering::Relaxed) == number {
                break;
            }
            if turn % 500 == 0 {
                crate::signal::kernel::kick(&*on);
            }
            heddle_core::lock::yield_cpu();
        }
        0
    }
}

/// `sched_getaffinity` of `t`, one of ours.
unsafe fn get_cpus(t: *mut Thread, args: [usize; 6]) -> isize {
    // SAFETY: the program's pointer: the kernel fills it, or refuses, then so do we.
    unsafe {
        let r = sys!(l::__NR_sched_getaffinity, 0, args[1], args[2]);
        // Acquire: the default set. pairs: pinning
        if r <= 0 || !PINNING.load(Ordering::Acquire) {
            return r;
        }
        let set = match of(t) {
            Some(a) if a.set.load(Ordering::Relaxed) != 0 => copy(&a.cpus),
            _ => copy(&DEFAULT),
        };
        for (i, word) in set.iter().enumerate().take(r as usize / 8) {
            (args[2] as *mut u64).add(i).write_unaligned(*word);
        }
        r
    }
}

/// `struct sched_attr` as the kernel has it since 5.3.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
    util_min: u32,
    util_max: u32,
}

const ATTR_VER0: usize = 48;
const RESET_ON_FORK: u32 = 0x4000_0000; // in a policy
const FLAG_RESET_ON_FORK: u64 = 1;
const FLAG_KEEP_POLICY: u64 = 8;
const FLAG_KEEP_PARAMS: u64 = 0x10;
const FLAGS_UTIL: u64 = 0x60;
const FLAGS_ALL: u64 = 0x7f;

/// The worker's.
fn own_class() -> Class {
    let mut attr = SchedAttr::default();
    // SAFETY: writes the local.
    unsafe { sys!(l::__NR_sched_getattr, 0, &raw mut attr, size_of::<SchedAttr>(), 0) };
    Class {
        policy: attr.policy,
        reset_on_fork: attr.flags & FLAG_RESET_ON_FORK != 0,
        priority: attr.priority as i32,
        nice: attr.nice,
    }
}

unsafe fn class(t: *mut Thread) -> Class {
    // SAFETY: the caller's: a control block.
    unsafe { class_of(t) }.unwrap_or_else(own_class)
}

fn is_real_time(policy: u32) -> bool {
    matches!(policy, l::SCHED_FIFO | l::SCHED_RR)
}

/// The place of `t`, which is about to wait, among others that wait on the same word: its real-time priority.
///
/// # Safety
/// `t` is the current thread.
#[inline]
pub unsafe fn rank(t: *mut Thread) -> u32 {
    // SAFETY: the caller's.
    unsafe {
        if (*t).attributes.load(Ordering::Relaxed) == 0 {
            return 0; // nothing was ever set for it
        }
        class_of(t).filter(|c| is_real_time(c.policy)).map_or(0, |c| c.priority as u32)
    }
}

#[cold]
unsafe fn class_of(t: *mut Thread) -> Option<Class> {
    // SAFETY: the caller's: a control block.
    unsafe { of(t).and_then(|a| a.values.lock().class) }
}

fn limit(resource: u32) -> u64 {
    let mut both = [0u64; 2];
    // SAFETY: writes the local.
    unsafe { sys!(l::__NR_prlimit64, 0, resource, 0, both.as_mut_ptr()) };
    both[0]
}

const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_NICE: u32 = 23;

fn has(capability: u32) -> bool {
    const VERSION_3: u32 = 0x2008_0522;
    let (mut header, mut data) = ([VERSION_3, 0], [0u32; 6]);
    // SAFETY: reads and writes the locals.
    let r = unsafe { sys!(l::__NR_capget, header.as_mut_ptr(), data.as_mut_ptr()) };
    r == 0 && data[0] >> capability & 1 != 0
}

/// Whether the kernel lets this process have real-time priorities that its limits do not allow. A capability may be worth
/// nothing (in a user namespace, in a control group without real-time share): it is tried on this worker for a moment.
fn may_real_time() -> bool {
    if !has(CAP_SYS_NICE) {
        return false;
    }
    let (mut before, priority) = (SchedAttr::default(), 1i32);
    // SAFETY: reads and writes the locals.
    unsafe {
        sys!(l::__NR_sched_getattr, 0, &raw mut before, size_of::<SchedAttr>(), 0);
        let r = sys!(l::__NR_sched_setscheduler, 0, l::SCHED_RR, &raw const priority);
        if r == 0 {
            sys!(l::__NR_sched_setattr, 0, &raw const before, 0);
        }
        r == 0
    }
}

/// Whether a thread may have this nice value, which is lower than its own.
fn may_nice(nice: i32) -> bool {
    (20 - nice) as u64 <= limit(l::RLIMIT_NICE) || has(CAP_SYS_NICE)
}

/// Checks and remembers, as `__sched_setscheduler` in the kernel does.
unsafe fn set_class(t: *mut Thread, new: Class) -> isize {
    // SAFETY: the caller's: a control block.
    unsafe {
        let old = class(t);
        if !matches!(new.policy, l::SCHED_NORMAL | l::SCHED_FIFO | l::SCHED_RR | l::SCHED_BATCH | l::SCHED_IDLE)
            || is_real_time(new.policy) != (new.priority != 0)
            || !(0..=99).contains(&new.priority)
        {
            return fail(e::EINVAL);
        }
        let refused = if is_real_time(new.policy) {
            let most = limit(l::RLIMIT_RTPRIO);
            new.policy != old.policy && most == 0 || new.priority > old.priority && new.priority as u64 > most
        } else {
            let wakes = old.policy == l::SCHED_IDLE && new.policy != l::SCHED_IDLE;
            new.nice < old.nice && !may_nice(new.nice) || wakes && !may_nice(old.nice)
        };
        if refused && !(is_real_time(new.policy) && may_real_time())
            || old.reset_on_fork && !new.reset_on_fork && !has(CAP_SYS_NICE)
        {
            return fail(e::EPERM);
        }
        match make(t) {
            Ok(a) => {
                a.values.lock().class = Some(new);
                0
            }
            Err(errno) => errno,
        }
    }
}

unsafe fn set_scheduler(t: *mut Thread, policy: Option<u32>, parameter: usize) -> isize {
    // SAFETY: the program's pointer.
    unsafe {
        if parameter == 0 {
            return fail(e::EINVAL);
        }
        let priority = *(parameter as *const i32);
        let old = class(t);
        let (policy, reset_on_fork) = match policy {
            Some(p) if p as i32 >= 0 => (p & !RESET_ON_FORK, p & RESET_ON_FORK != 0),
            Some(_) => return fail(e::EINVAL),
            None => (old.policy, old.reset_on_fork),
        };
        set_class(t, Class { policy, reset_on_fork, priority, nice: old.nice })
    }
}

unsafe fn set_attr(t: *mut Thread, at: usize, flags: usize) -> isize {
    // SAFETY: the program's pointer.
    unsafe {
        if at == 0 || flags != 0 {
            return fail(e::EINVAL);
        }
        let known = size_of::<SchedAttr>();
        let size = match (at as *const u32).read_unaligned() as usize {
            0 => ATTR_VER0,
            n => n,
        };
        let beyond = |n: usize| (known..n).any(|i| *((at + i) as *const u8) != 0);
        if !(ATTR_VER0..=4096).contains(&size) || beyond(size) {
            (at as *mut u32).write_unaligned(known as u32);
            return fail(e::E2BIG);
        }
        let mut attr = SchedAttr::default();
        core::ptr::copy_nonoverlapping(at as *const u8, (&raw mut attr).cast(), size.min(known));
        let old = class(t);
        if (attr.policy as i32) < 0 || attr.flags & !FLAGS_ALL != 0 {
            return fail(e::EINVAL);
        }
        if attr.flags & FLAGS_UTIL != 0 {
            return fail(e::EOPNOTSUPP);
        }
        let mut new = Class {
            policy: if attr.flags & FLAG_KEEP_POLICY != 0 { old.policy } else { attr.policy },
            reset_on_fork: attr.flags & FLAG_RESET_ON_FORK != 0,
            priority: attr.priority as i32,
            nice: attr.nice.clamp(-20, 19),
        };
        if attr.flags & FLAG_KEEP_PARAMS != 0 {
            (new.priority, new.nice) = (old.priority, old.nice);
        }
        if new.policy == l::SCHED_DEADLINE {
            return fail(e::EPERM);
        }
        if is_real_time(new.policy) {
            new.nice = old.nice;
        }
        set_class(t, new)
    }
}

unsafe fn get_attr(t: *mut Thread, mut args: [usize; 6]) -> isize {
    args[0] = 0;
    // SAFETY: the program's pointer: the kernel fills at least ATTR_VER0 bytes.
    unsafe {
        let r = syscall6(l::__NR_sched_getattr as usize, args);
        if r == 0
            && let Some(c) = class_of(t)
        {
            let attr = args[1] as *mut SchedAttr;
            let real_time = is_real_time(c.policy);
            (&raw mut (*attr).policy).write_unaligned(c.policy);
            (&raw mut (*attr).flags).write_unaligned(u64::from(c.reset_on_fork));
            (&raw mut (*attr).nice).write_unaligned(if real_time { 0 } else { c.nice });
            (&raw mut (*attr).priority).write_unaligned(c.priority as u32);
        }
        r
    }
}

/// How long a SCHED_RR slice is, in nanoseconds.
fn slice() -> u64 {
    let mut text = [0u8; 16];
    let n = cpus::read(c"/proc/sys/kernel/sched_rr_timeslice_ms", &mut text);
    cpus::number(&text[..n]).unwrap_or(100) * 1_000_000
}

unsafe fn set_priority(t: *mut Thread, args: [usize; 6]) -> isize {
    let nice = (args[2] as i32).clamp(-20, 19);
    // SAFETY: a control block; the call touches no memory.
    unsafe {
        let mut new = class(t);
        if nice < new.nice && !may_nice(nice) {
            return fail(e::EACCES);
        }
        if RT.threads.live() == 1 {
            // The only thread, whose children will inherit it: really, for all kernel threads of ours.
            let number = l::__NR_setpriority as usize;
            let own = || {
                let r = syscall6(number, [0, 0, nice as usize, 0, 0, 0]);
                (r, (r == 0).then_some([number, 0, 0, nice as usize, 0, 0, 0]))
            };
            let r = RT.errands.everywhere(Absent::Wait, own, crate::signal::kernel::kick).unwrap_or(0);
            if r < 0 {
                return r;
            }
        }
        new.nice = nice;
        match make(t) {
            Ok(a) => {
                a.values.lock().class = Some(new);
                0
            }
            Err(errno) => errno,
        }
    }
}

unsafe fn set_io_priority(t: *mut Thread, value: i32) -> isize {
    let class = value >> 13 & 7;
    if class > 3 || class == 0 && value & 7 != 0 {
        return fail(e::EINVAL);
    }
    if class == 1 && !has(CAP_SYS_ADMIN) && !has(CAP_SYS_NICE) {
        return fail(e::EPERM);
    }
    // SAFETY: the caller's: a control block.
    match unsafe { make(t) } {
        Ok(a) => {
            a.values.lock().io_priority = Some(value & 0xffff);
            0
        }
        Err(errno) => errno,
    }
}

/// `prctl` PR_SET_TIMERSLACK and PR_GET_TIMERSLACK.
///
/// # Safety
/// `t` is the current thread.
pub unsafe fn timer_slack(t: *mut Thread, args: [usize; 6]) -> isize {
    // SAFETY: the caller's; the call touches no memory.
    unsafe {
        if args[0] as u32 == linux_raw_sys::prctl::PR_GET_TIMERSLACK {
            let own = of(t).and_then(|a| a.values.lock().timer_slack);
            return own.map_or_else(|| syscall6(l::__NR_prctl as usize, args), |ns| ns as isize);
        }
        match make(t) {
            Ok(a) => {
                a.values.lock().timer_slack = (args[1] as isize > 0).then_some(args[1]);
                0
            }
            Err(errno) => errno,
        }
    }
}

/// The scheduler's calls: about the caller, or about one of our threads by its id.
///
/// # Safety
/// The current thread, inside the core; the program's arguments.
pub unsafe fn call(number: u32, args: [usize; 6]) -> isize {
    let selects = matches!(number, l::__NR_getpriority | l::__NR_setpriority | l::__NR_ioprio_get | l::__NR_ioprio_set);
    let at = usize::from(selects);
    let single = match number {
        l::__NR_getpriority | l::__NR_setpriority => args[0] as u32 == l::PRIO_PROCESS,
        l::__NR_ioprio_get | l::__NR_ioprio_set => args[0] as u32 == 1, // IOPRIO_WHO_PROCESS
        _ => true,
    };
    let id = args[at] as u32;
    // SAFETY: the program's call.
    unsafe {
        let found = if id == 0 { Some(current()) } else { RT.threads.find(id) };
        let t = match found {
            Some(t) if single => t,
            _ => return syscall6(number as usize, args),
        };
        let mut own = args;
        own[at] = 0;
        match number {
            l::__NR_sched_setaffinity => set_cpus(t, args),
            l::__NR_sched_getaffinity => get_cpus(t, args),
            l::__NR_sched_setscheduler => set_scheduler(t, Some(args[1] as u32), args[2]),
            l::__NR_sched_setparam => set_scheduler(t, None, args[1]),
            l::__NR_sched_getscheduler => {
                let c = class(t);
                (c.policy | if c.reset_on_fork { RESET_ON_FORK } else { 0 }) as isize
            }
            l::__NR_sched_getparam => {
                if args[1] == 0 {
                    return fail(e::EINVAL);
                }
                *(args[1] as *mut i32) = class(t).priority;
                0
            }
            l::__NR_sched_rr_get_interval => {
                let ns = match class(t).policy {
                    l::SCHED_RR => slice(),
                    l::SCHED_FIFO => 0,
                    _ => return syscall6(number as usize, own),
                };
                (args[1] as *mut crate::time::Timespec).write_unaligned(crate::time::Timespec::from_ns(ns));
                0
            }
            l::__NR_sched_setattr => set_attr(t, args[1], args[2]),
            l::__NR_sched_getattr => get_attr(t, args),
            l::__NR_getpriority => (20 - class(t).nice) as isize,
            l::__NR_setpriority => set_priority(t, args),
            l::__NR_ioprio_set => set_io_priority(t, args[2] as i32),
            _ => {
                let set = of(t).and_then(|a| a.values.lock().io_priority);
                set.map_or_else(|| syscall6(number as usize, own), |v| v as isize)
            }
        }
    }
}
