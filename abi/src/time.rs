//! Sleeping.

use crate::entry::Frame;
use crate::wait::{Clock, Deadline, NEVER, begin, e, fail, park_until};
use core::sync::atomic::Ordering;
use heddle_core::clock;
use heddle_core::park::Reason;
use heddle_core::sched::{self, RT, current};
use heddle_core::sys::linux as l;
use heddle_core::thread::{FIRST_TID, State, Thread};

/// `struct timespec`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Timespec {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds, below 10^9.
    pub nanos: i64,
}

impl Timespec {
    /// From nanoseconds.
    pub fn from_ns(ns: u64) -> Self {
        Self { seconds: (ns / 1_000_000_000) as i64, nanos: (ns % 1_000_000_000) as i64 }
    }

    /// To nanoseconds; EINVAL if it is no valid time.
    pub fn to_ns(self) -> Result<u64, isize> {
        if self.seconds < 0 || !(0..1_000_000_000).contains(&self.nanos) {
            return Err(fail(e::EINVAL));
        }
        Ok((self.seconds as u64).saturating_mul(1_000_000_000).saturating_add(self.nanos as u64).min(NEVER - 1))
    }
}

/// Reads the program's `struct timespec`; a null pointer is `None`.
pub fn read_timespec(address: usize) -> Result<Option<u64>, isize> {
    if address == 0 {
        return Ok(None);
    }
    // SAFETY: the program's pointer.
    unsafe { (address as *const Timespec).read_unaligned() }.to_ns().map(Some)
}

/// `nanosleep` and `clock_nanosleep`.
///
/// # Safety
/// The current thread; the program's arguments.
pub unsafe fn sleep(frame: &mut Frame, clock: Clock, absolute: bool, request: usize, remain: usize) -> isize {
    if request == 0 {
        return fail(e::EFAULT);
    }
    let ns = match read_timespec(request) {
        Ok(ns) => ns.unwrap_or(0),
        Err(errno) => return errno,
    };
    // As in the kernel: so long by CLOCK_REALTIME is so long whatever it is set to meanwhile.
    let clock = if !absolute && clock == Clock::Realtime { Clock::Monotonic } else { clock };
    let at = if absolute { ns } else { clock.now().saturating_add(ns).min(NEVER - 1) };
    let mut left = 0;
    // SAFETY: the caller's; the program's pointer.
    unsafe {
        let r = sleep_until(frame, Deadline { at, clock }, &mut left);
        if r != 0 && !absolute && remain != 0 {
            (remain as *mut Timespec).write_unaligned(Timespec::from_ns(left));
        }
        r
    }
}

/// Parks until the deadline or until a handler has run: EINTR, and `left` is what was left when the signal came.
unsafe fn sleep_until(frame: &mut Frame, deadline: Deadline, left: &mut u64) -> isize {
    let t = current();
    // SAFETY: the current thread, inside the core.
    unsafe {
        loop {
            if deadline.is_past() {
                return 0;
            }
            let reason = match begin(t) {
                Some(ticket) => park_until(t, ticket, deadline, State::Sleep),
                None => Reason::Signal,
            };
            match reason {
                Reason::Timeout => return 0,
                Reason::Woken => {}
                Reason::Signal => {
                    if !crate::signal::deliverable(t) {
                        continue;
                    }
                    *left = deadline.at.saturating_sub(deadline.clock.now());
                    if crate::signal::deliver(frame).is_none() {
                        continue;
                    }
                    return fail(e::EINTR);
                }
            }
        }
    }
}

/// A thread's CPU clock as a system call names it.
#[derive(Clone, Copy)]
pub enum Of {
    /// The clock of one of ours.
    Thread(*mut Thread),
    /// Of a thread that has ended, or never was.
    Nobody,
}

/// Whose CPU clock `id` names, if it is a thread's that the kernel does not know.
///
/// # Safety
/// `t` is the current thread.
pub unsafe fn thread_clock(t: *mut Thread, id: usize) -> Option<Of> {
    let id = id as i32;
    if id == l::CLOCK_THREAD_CPUTIME_ID as i32 {
        return Some(Of::Thread(t));
    }
    // Three bits of kind (4: a thread's; 3: a descriptor's), above them the complement of the id. Below zero for the kernel's
    // ids; of ours, which are longer, one bit is the sign and the highest one is lost.
    const THREAD: i32 = 4;
    const LOST: u32 = 1 << 29;
    const CLOCKS: i32 = 1 << 20; // the kernel's own clocks are fewer
    if (0..CLOCKS).contains(&id) || id & THREAD == 0 || id & 3 == 3 {
        return None;
    }
    let tid = !(id >> 3) as u32 & (LOST - 1);
    if tid == 0 {
        return Some(Of::Thread(t));
    }
    let short = tid < FIRST_TID;
    match RT.threads.find(tid).or_else(|| if short { None } else { RT.threads.find(tid | LOST) }) {
        Some(other) => Some(Of::Thread(other)),
        None if short => None, // a kernel thread, perhaps
        None => Some(Of::Nobody),
    }
}

/// `clock_gettime`, `clock_getres`, `clock_settime`, `clock_nanosleep` on a thread's CPU clock.
///
/// # Safety
/// The current thread, inside the core; the program's arguments.
pub unsafe fn cpu_clock(frame: &mut Frame, number: u32, of: Of, args: [usize; 6]) -> isize {
    let Of::Thread(t) = of else { return fail(e::EINVAL) };
    // SAFETY: the program's pointers; a control block.
    unsafe {
        match number {
            l::__NR_clock_gettime => {
                (args[1] as *mut Timespec).write_unaligned(Timespec::from_ns(sched::cpu_time(t)));
                0
            }
            l::__NR_clock_getres => {
                if args[1] != 0 {
                    (args[1] as *mut Timespec).write_unaligned(Timespec::from_ns(1));
                }
                0
            }
            l::__NR_clock_settime => fail(e::EPERM),
            _ if args[0] as i32 >= 0 => fail(e::EOPNOTSUPP),
            _ if t == current() => fail(e::EINVAL),
            _ => cpu_sleep(frame, t, args),
        }
    }
}

/// `clock_nanosleep` until another thread has used so much CPU time. It cannot use more than passes, so we sleep for what
/// it lacks and look again.
unsafe fn cpu_sleep(frame: &mut Frame, t: *mut Thread, args: [usize; 6]) -> isize {
    let [_, flags, request, remain, ..] = args;
    let ns = match read_timespec(request) {
        Ok(Some(ns)) => ns,
        Ok(None) => return fail(e::EFAULT),
        Err(errno) => return errno,
    };
    let absolute = flags as u32 & l::TIMER_ABSTIME != 0;
    // SAFETY: a control block; the current thread.
    unsafe {
        let tid = (*t).identity.tid.load(Ordering::Relaxed);
        let target = if absolute { ns } else { sched::cpu_time(t).saturating_add(ns) };
        loop {
            let used = sched::cpu_time(t);
            if used >= target {
                return 0;
            }
            // At least so long that the thread is not kept from running by our looking.
            let lacks = (target - used).clamp(100_000, 1_000_000_000);
            let mut left = 0;
            let r = sleep_until(frame, clock::now().saturating_add(lacks).into(), &mut left);
            if r != 0 {
                if !absolute && remain != 0 {
                    let left = Timespec::from_ns(target.saturating_sub(sched::cpu_time(t)));
                    (remain as *mut Timespec).write_unaligned(left);
                }
                return r;
            }
            if RT.threads.find(tid) != Some(t) {
                return 0; // it has ended
            }
        }
    }
}

/// `getrusage(RUSAGE_THREAD)`: the thread's CPU time, divided as the worker's is; the rest is the worker's.
///
/// # Safety
/// The current thread, inside the core; the program's arguments.
pub unsafe fn thread_usage(t: *mut Thread, args: [usize; 6]) -> isize {
    let mut usage = [0i64; 18];
    // SAFETY: writes the local (144 bytes), then the program's.
    unsafe {
        let r = heddle_core::sys!(l::__NR_getrusage, args[0], usage.as_mut_ptr());
        if r < 0 {
            return r;
        }
        let total = sched::cpu_time(t) / 1000;
        let micros = |at: usize| (usage[at] * 1_000_000 + usage[at + 1]) as u64;
        let (user, system) = (micros(0), micros(2));
        let system = (u128::from(total) * u128::from(system) / u128::from((user + system).max(1))) as u64;
        let user = total - system;
        usage[..4].copy_from_slice(
            &[user / 1_000_000, user % 1_000_000, system / 1_000_000, system % 1_000_000].map(|n| n as i64),
        );
        (args[1] as *mut [i64; 18]).write_unaligned(usage);
    }
    0
}
