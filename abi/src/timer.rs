//! POSIX timers. The kernel's; but it knows neither our threads, so it sends all signals to the process, nor when a signal
//! is delivered: for each timer we keep the thread that its signals are for, and count overruns while one is pending.
//!
//! A timer on a thread's CPU clock is one on CLOCK_MONOTONIC in the kernel. A thread cannot use more CPU time than passes,
//! so it is set for what the thread lacks; when its signal comes and the thread still lacks some, it is set again and the
//! signal dropped.

use crate::signal;
use crate::time::{Of, Timespec, thread_clock};
use crate::wait::{e, fail};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use heddle_core::identity::SigInfo;
use heddle_core::sched::{self, RT, current};
use heddle_core::sys::{self, linux as l};

/// What is known of one timer. Written by the calls that make and delete it, which the program keeps apart.
pub struct Timer {
    /// The kernel's number + 1; [`FREE`]; [`GONE`].
    key: AtomicU32,
    /// The thread that its signals are for; 0: the process.
    tid: AtomicU32,
    /// Whether a signal has been delivered, and with how many overruns.
    delivered: AtomicBool,
    overruns: AtomicU32,
    /// The thread on whose CPU clock it runs; 0: another clock, and nothing below is of use.
    clock: AtomicU32,
    /// It sends nothing.
    silent: AtomicBool,
    /// When it expires next, on that clock, in nanoseconds; 0: not set.
    due: AtomicU64,
    interval: AtomicU64,
    /// The clock at the last look.
    seen: AtomicU64,
}

const FREE: u32 = 0;
/// Deleted; others may stand behind it.
const GONE: u32 = u32::MAX;
/// A timer stands at its number modulo the table's size or at the next place.
const PLACES: usize = 4096;

static TIMERS: [Timer; PLACES] = [const {
    Timer {
        key: AtomicU32::new(FREE),
        tid: AtomicU32::new(0),
        delivered: AtomicBool::new(false),
        overruns: AtomicU32::new(0),
        clock: AtomicU32::new(0),
        silent: AtomicBool::new(false),
        due: AtomicU64::new(0),
        interval: AtomicU64::new(0),
        seen: AtomicU64::new(0),
    }
}; PLACES];

/// A timer has been made. The table is not touched by a forked child of those, most of them, that make none.
static ANY: AtomicBool = AtomicBool::new(false);

fn places(id: u32) -> impl Iterator<Item = usize> {
    (0..PLACES).map(move |i| (id as usize + i) % PLACES)
}

fn find(id: u32) -> Option<usize> {
    places(id)
        .map(|p| (p, TIMERS[p].key.load(Ordering::Relaxed)))
        .take_while(|&(_, key)| key != FREE)
        .find(|&(_, key)| key == id.wrapping_add(1))
        .map(|(p, _)| p)
}

/// Remembers a timer. `false`: there are too many.
fn insert(id: u32, tid: u32, clock: u32, silent: bool) -> bool {
    ANY.store(true, Ordering::Relaxed);
    for p in places(id) {
        let t = &TIMERS[p];
        let key = t.key.load(Ordering::Relaxed);
        let free = key == FREE || key == GONE;
        if free && t.key.compare_exchange(key, id.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            t.tid.store(tid, Ordering::Relaxed);
            t.delivered.store(false, Ordering::Relaxed);
            t.overruns.store(0, Ordering::Relaxed);
            t.clock.store(clock, Ordering::Relaxed);
            t.silent.store(silent, Ordering::Relaxed);
            t.due.store(0, Ordering::Relaxed);
            t.interval.store(0, Ordering::Relaxed);
            return true;
        }
    }
    false
}

fn remove(id: u32) {
    if let Some(p) = find(id) {
        let last = TIMERS[(p + 1) % PLACES].key.load(Ordering::Relaxed) == FREE;
        TIMERS[p].key.store(if last { FREE } else { GONE }, Ordering::Relaxed);
    }
}

/// Forgets all, in a forked child, which inherits none.
pub fn reset() {
    if !ANY.swap(false, Ordering::Relaxed) {
        return;
    }
    for t in &TIMERS {
        if t.key.load(Ordering::Relaxed) != FREE {
            t.key.store(FREE, Ordering::Relaxed);
        }
    }
}

/// The number of the timer that sent a signal with SI_TIMER.
pub fn of(info: &SigInfo) -> u32 {
    info[2] as u32
}

fn overruns(info: &SigInfo) -> u32 {
    (info[2] >> 32) as u32
}

/// The timer of a pending signal has sent another one.
pub fn merge(pending: &mut SigInfo, next: &SigInfo) {
    let sum = overruns(pending).saturating_add(1).saturating_add(overruns(next)).min(i32::MAX as u32);
    pending[2] = u64::from(sum) << 32 | u64::from(of(pending));
}

/// A signal with SI_TIMER is delivered.
pub fn delivered(info: &SigInfo) {
    if let Some(p) = find(of(info)) {
        TIMERS[p].overruns.store(overruns(info), Ordering::Relaxed);
        TIMERS[p].delivered.store(true, Ordering::Relaxed);
    }
}

/// The thread that a timer's signals are for; `None`: the process.
pub fn target(id: u32) -> Option<u32> {
    find(id).map(|p| TIMERS[p].tid.load(Ordering::Relaxed)).filter(|&tid| tid != 0)
}

/// `timer_create`: a timer for a thread of ours (SIGEV_THREAD_ID) becomes one for the process in the kernel; its signals
/// are told by the timer's number and sent on to the thread.
///
/// # Safety
/// The program's call.
pub unsafe fn create(args: [usize; 6]) -> isize {
    const SIGEV_SIGNAL: i32 = 0;
    const SIGEV_NONE: i32 = 1;
    const SIGEV_THREAD_ID: i32 = 4;
    // SAFETY: the program's pointers; struct sigevent is 64 bytes: value, signal, notify, thread id.
    unsafe {
        let mut a = args;
        let mut clock = 0;
        match thread_clock(current(), args[0]) {
            Some(Of::Thread(t)) => {
                clock = (*t).identity.tid.load(Ordering::Relaxed);
                a[0] = l::CLOCK_MONOTONIC as usize;
            }
            Some(Of::Nobody) => return fail(e::EINVAL),
            None => {}
        }
        let mut event = [0i32; 16];
        event[2] = l::SIGALRM as i32;
        if args[1] != 0 {
            event = *(args[1] as *const [i32; 16]);
        }
        let silent = event[3] & !SIGEV_THREAD_ID == SIGEV_NONE;
        let mut tid = 0;
        if clock != 0 && !silent && (1..=64).contains(&event[2]) {
            // As below: it tells us when to look.
            signal::actions::note_blocked(signal::bit(event[2] as u32));
        }
        if event[3] & SIGEV_THREAD_ID != 0 && RT.threads.find(event[4] as u32).is_some() {
            tid = event[4] as u32;
            // Its signal must reach us whatever its action is.
            signal::actions::note_blocked(signal::bit((event[2] as u32).clamp(1, 64)));
            event[3] = SIGEV_SIGNAL;
            a[1] = event.as_ptr() as usize;
        }
        let r = sys::syscall6(l::__NR_timer_create as usize, a);
        if r == 0 {
            let id = *(args[2] as *const u32);
            if !insert(id, tid, clock, silent) && (tid != 0 || clock != 0) {
                heddle_core::sys!(l::__NR_timer_delete, id);
                return fail(e::EAGAIN);
            }
        }
        r
    }
}

/// `timer_delete`.
///
/// # Safety
/// The program's call.
pub unsafe fn delete(args: [usize; 6]) -> isize {
    // Before the kernel gives the number to another.
    remove(args[0] as u32);
    // SAFETY: the program's call.
    unsafe { sys::syscall6(l::__NR_timer_delete as usize, args) }
}

/// `timer_getoverrun`.
///
/// # Safety
/// The program's call.
pub unsafe fn overrun(args: [usize; 6]) -> isize {
    // SAFETY: the program's call.
    let r = unsafe { sys::syscall6(l::__NR_timer_getoverrun as usize, args) };
    match find(args[0] as u32) {
        Some(p) if r >= 0 && TIMERS[p].delivered.load(Ordering::Relaxed) => {
            TIMERS[p].overruns.load(Ordering::Relaxed) as isize
        }
        _ => r,
    }
}

/// `struct itimerspec`.
#[repr(C)]
struct Setting {
    interval: Timespec,
    value: Timespec,
}

/// Makes the kernel send the signal of `id` after so many nanoseconds, and now and then after that, should it be ignored at
/// that time; 0: never.
fn arm(id: u32, ns: u64) {
    const LATER: u64 = 100_000_000;
    let setting = Setting { interval: Timespec::from_ns(LATER), value: Timespec::from_ns(ns) };
    // SAFETY: reads the local.
    unsafe { heddle_core::sys!(l::__NR_timer_settime, id, 0, &raw const setting, 0) };
}

impl Timer {
    /// What its clock says; `None`: its thread has ended.
    fn now(&self) -> Option<u64> {
        let t = RT.threads.find(self.clock.load(Ordering::Relaxed))?;
        // SAFETY: a control block.
        Some(unsafe { sched::cpu_time(t) })
    }

    /// What `timer_gettime` tells.
    fn setting(&self) -> Setting {
        let (due, interval) = (self.due.load(Ordering::Relaxed), self.interval.load(Ordering::Relaxed));
        let left = match self.now() {
            Some(now) if due > now => due - now,
            Some(now) if due != 0 && self.silent.load(Ordering::Relaxed) => {
                if interval == 0 {
                    0
                } else {
                    interval - (now - due) % interval
                }
            }
            Some(_) if due != 0 => 1, // just about to expire
            _ => 0,
        };
        Setting { interval: Timespec::from_ns(interval), value: Timespec::from_ns(left) }
    }
}

/// The timer `id`, if it runs on a thread's CPU clock.
pub fn on_thread(id: usize) -> Option<&'static Timer> {
    find(id as u32).map(|p| &TIMERS[p]).filter(|t| t.clock.load(Ordering::Relaxed) != 0)
}

/// `timer_gettime` of such a timer.
///
/// # Safety
/// The program's call.
pub unsafe fn get(t: &Timer, args: [usize; 6]) -> isize {
    // SAFETY: the program's pointer.
    unsafe { (args[1] as *mut Setting).write_unaligned(t.setting()) };
    0
}

/// `timer_settime` of such a timer.
///
/// # Safety
/// The program's call.
pub unsafe fn set(t: &Timer, args: [usize; 6]) -> isize {
    let [id, flags, new, old, ..] = args;
    if new == 0 {
        return fail(e::EINVAL);
    }
    // SAFETY: the program's pointers.
    unsafe {
        let new = (new as *const Setting).read_unaligned();
        let (value, interval) = match (new.value.to_ns(), new.interval.to_ns()) {
            (Ok(value), Ok(interval)) => (value, interval),
            _ => return fail(e::EINVAL),
        };
        let Some(now) = t.now() else { return fail(e::ESRCH) };
        let before = t.setting();
        // From here on a signal that is under way is dropped.
        t.due.store(0, Ordering::Relaxed);
        arm(id as u32, 0);
        t.interval.store(interval, Ordering::Relaxed);
        if value != 0 {
            let absolute = flags as u32 & l::TIMER_ABSTIME != 0;
            let due = if absolute { value } else { now.saturating_add(value) };
            t.seen.store(now, Ordering::Relaxed);
            t.due.store(due, Ordering::Relaxed);
            if !t.silent.load(Ordering::Relaxed) {
                arm(id as u32, due.saturating_sub(now).max(1));
            }
        }
        if old != 0 {
            (old as *mut Setting).write_unaligned(before);
        }
    }
    0
}

/// The kernel sent the signal of a timer: whether it is to be passed on, perhaps with overruns.
pub fn expired(info: &mut SigInfo) -> bool {
    /// A thread that lacks little is looked at again after a millisecond, one that does not run less often.
    const AGAIN: u64 = 1_000_000;
    const IDLE: u64 = 8_000_000;
    let id = of(info);
    let Some(t) = on_thread(id as usize) else { return true };
    loop {
        let due = t.due.load(Ordering::Relaxed);
        if due == 0 {
            return false;
        }
        let Some(now) = t.now() else { return false };
        if now < due {
            let idle = t.seen.swap(now, Ordering::Relaxed) == now;
            arm(id, (due - now).max(if idle { IDLE } else { AGAIN }));
            return false;
        }
        let interval = t.interval.load(Ordering::Relaxed);
        let missed = (now - due).checked_div(interval).unwrap_or(0);
        let next = if interval == 0 { 0 } else { due.saturating_add((missed + 1).saturating_mul(interval)) };
        if t.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            arm(id, if next == 0 { 0 } else { (next - now).max(AGAIN) });
            let count = missed.min(i32::MAX as u64);
            info[2] = count << 32 | u64::from(id);
            return true;
        }
    }
}
