//! POSIX timers. The kernel's; but it knows neither our threads, so it sends all signals to the process, nor when a signal
//! is delivered: for each timer we keep the thread that its signals are for, and count overruns while one is pending.

use crate::signal;
use crate::wait::{e, fail};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use heddle_core::identity::SigInfo;
use heddle_core::sched::{self, RT, current};
use heddle_core::sys::{self, linux as l};

/// What is known of one timer. Written by the calls that make and delete it, which the program keeps apart.
struct Timer {
    /// The kernel's number + 1; [`FREE`]; [`GONE`].
    key: AtomicU32,
    /// The thread that its signals are for; 0: the process.
    tid: AtomicU32,
    /// Whether a signal has been delivered, and with how many overruns.
    delivered: AtomicBool,
    overruns: AtomicU32,
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
    }
}; PLACES];

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
fn insert(id: u32, tid: u32) -> bool {
    for p in places(id) {
        let t = &TIMERS[p];
        let key = t.key.load(Ordering::Relaxed);
        let free = key == FREE || key == GONE;
        if free && t.key.compare_exchange(key, id.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            t.tid.store(tid, Ordering::Relaxed);
            t.delivered.store(false, Ordering::Relaxed);
            t.overruns.store(0, Ordering::Relaxed);
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
    const SIGEV_THREAD_ID: i32 = 4;
    // SAFETY: the program's pointers; struct sigevent is 64 bytes: value, signal, notify, thread id.
    unsafe {
        let mut a = args;
        match crate::time::thread_clock(current(), args[0]) {
            Some(crate::time::Of::Thread(t)) => a[0] = sched::worker_clock(t) as usize,
            Some(crate::time::Of::Nobody) => return fail(e::EINVAL),
            None => {}
        }
        let mut event = if args[1] == 0 { [0i32; 16] } else { *(args[1] as *const [i32; 16]) };
        let mut tid = 0;
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
            if !insert(id, tid) && tid != 0 {
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
