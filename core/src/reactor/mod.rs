//! The reactor: one epoll instance that all idle workers sleep on, and per-descriptor lists of parked threads.
//!
//! Descriptors are registered once, edge-triggered, for everything, on the first park. Whoever gets an event makes the
//! waiting threads runnable; they retry their operation themselves.
//!
//! One instance for all workers, not one each: whichever worker is idle hears of every event at once (the kernel wakes
//! one sleeper per event), so no baton has to be passed when the worker that polls gets a thread to run. The price is a
//! shared lock in the kernel, which wants one instance per group of workers on big machines.

pub mod fd;

use crate::sys::{Raw, check, linux as l};
use core::sync::atomic::{AtomicI32, Ordering};

/// Marks the event of the wake-up descriptor.
pub const WAKE: u64 = u64::MAX;
/// Marks the event that tells that a clock was set.
pub const CLOCK: u64 = u64::MAX - 1;
/// Events taken per call. Few, so that those behind a worker that the kernel keeps off its CPU are few: others can take what
/// is left in the kernel.
pub const BATCH: usize = 32;
/// All that a descriptor is registered for.
const INTEREST: u32 = l::EPOLLIN | l::EPOLLOUT | l::EPOLLRDHUP | l::EPOLLPRI | l::EPOLLET;

/// The process's epoll instance, the eventfd that wakes a sleeper, and the timerfd that tells when the clock is set.
pub struct Reactor {
    epoll: AtomicI32,
    wake: AtomicI32,
    clock: AtomicI32,
}

/// The kernel's `struct epoll_event`.
#[repr(C, packed)]
#[derive(Clone, Copy)]
pub struct Event {
    /// What happened.
    pub events: u32,
    /// Descriptor and generation, or [`WAKE`], or [`CLOCK`].
    pub data: u64,
}

impl Reactor {
    /// Not opened.
    pub const fn new() -> Self {
        Self { epoll: AtomicI32::new(-1), wake: AtomicI32::new(-1), clock: AtomicI32::new(-1) }
    }

    /// Opens the descriptors, as high as the limit allows, so that they are not in the program's way; now, not when they are first
    /// needed: nobody else takes descriptors yet, so none of the program's has another number on their account. Error: errno.
    pub fn open(&self) -> Result<(), i32> {
        // SAFETY: these calls create descriptors and touch only the event passed.
        unsafe {
            let epoll = high(sys!(l::__NR_epoll_create1, l::EPOLL_CLOEXEC))?;
            let wake = high(sys!(l::__NR_eventfd2, 0, l::EFD_CLOEXEC | l::EFD_NONBLOCK))?;
            let event = Event { events: l::EPOLLIN | l::EPOLLET, data: WAKE };
            check(sys!(l::__NR_epoll_ctl, epoll, l::EPOLL_CTL_ADD, wake, &event as *const _))?;
            self.epoll.store(epoll, Ordering::Relaxed);
            self.wake.store(wake, Ordering::Relaxed);
            // Without it waits ask the clocks themselves.
            if let Ok(clock) = clock_watch(epoll) {
                self.clock.store(clock, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Whether there is an event, [`CLOCK`], when CLOCK_REALTIME is set.
    pub fn hears_of_clocks(&self) -> bool {
        self.clock.load(Ordering::Relaxed) >= 0
    }

    /// Takes such an event: there is another one for what happens from now on.
    pub fn take_clock_event(&self) {
        let mut count = 0u64;
        // SAFETY: writes the local. ECANCELED is the news.
        unsafe { sys!(l::__NR_read, self.clock.load(Ordering::Relaxed), &raw mut count, 8) };
    }

    /// Closes them, in a forked child.
    pub fn close(&self) {
        for fd in [&self.epoll, &self.wake, &self.clock] {
            let n = fd.swap(-1, Ordering::Relaxed);
            if n >= 0 {
                // SAFETY: our own descriptor.
                unsafe { sys!(l::__NR_close, n) };
            }
        }
    }

    /// Whether `fd` is one of the reactor's own.
    #[inline]
    pub fn owns(&self, fd: i32) -> bool {
        fd >= 0 && [&self.epoll, &self.wake, &self.clock].iter().any(|own| fd == own.load(Ordering::Relaxed))
    }

    /// The reactor's own descriptors, -1 if not open, in rising order.
    pub fn own(&self) -> [i32; 3] {
        let mut own = [&self.epoll, &self.wake, &self.clock].map(|fd| fd.load(Ordering::Relaxed));
        own.sort_unstable();
        own
    }

    /// Wakes one sleeper.
    pub fn wake(&self) {
        let one = 1u64;
        // SAFETY: reads one local.
        unsafe { sys!(l::__NR_write, self.wake.load(Ordering::Relaxed), &one as *const _, 8) };
    }

    /// Waits for events for up to `timeout` nanoseconds (`None`: until there is one). Blocks the kernel thread.
    pub fn poll(&self, events: &mut [core::mem::MaybeUninit<Event>; BATCH], timeout: Option<u64>) -> usize {
        let epoll = self.epoll.load(Ordering::Relaxed);
        // SAFETY: writes at most BATCH events and reads the timeout.
        let r: Raw = unsafe {
            match timeout {
                Some(0) => sys!(l::__NR_epoll_wait, epoll, events.as_mut_ptr(), BATCH, 0),
                None => sys!(l::__NR_epoll_wait, epoll, events.as_mut_ptr(), BATCH, -1isize),
                Some(ns) => {
                    let ts = l::timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
                    let r = sys!(l::__NR_epoll_pwait2, epoll, events.as_mut_ptr(), BATCH, &ts as *const _, 0, 0);
                    if r == -(linux_raw_sys::errno::ENOSYS as isize) {
                        let ms = ns.div_ceil(1_000_000).min(i32::MAX as u64);
                        sys!(l::__NR_epoll_wait, epoll, events.as_mut_ptr(), BATCH, ms)
                    } else {
                        r
                    }
                }
            }
        };
        r.max(0) as usize
    }

    /// Waits for up to `timeout` nanoseconds until there is an event, which it leaves to whoever polls. Returns whether there
    /// is one. Blocks the kernel thread.
    pub fn await_event(&self, timeout: u64) -> bool {
        let mut fd = l::pollfd { fd: self.epoll.load(Ordering::Relaxed), events: l::POLLIN as i16, revents: 0 };
        let ts = l::timespec { tv_sec: (timeout / 1_000_000_000) as i64, tv_nsec: (timeout % 1_000_000_000) as i64 };
        // SAFETY: reads and writes locals.
        unsafe { sys!(l::__NR_ppoll, &raw mut fd, 1, &raw const ts, 0, 8) > 0 }
    }

    /// Registers a descriptor with its data word. Error: errno (EPERM: cannot be polled).
    fn register(&self, fd: i32, data: u64) -> Result<(), i32> {
        let event = Event { events: INTEREST, data };
        let epoll = self.epoll.load(Ordering::Relaxed);
        // SAFETY: reads the event.
        unsafe {
            match check(sys!(l::__NR_epoll_ctl, epoll, l::EPOLL_CTL_ADD, fd, &event as *const _)) {
                Err(e) if e == linux_raw_sys::errno::EEXIST as i32 => {
                    check(sys!(l::__NR_epoll_ctl, epoll, l::EPOLL_CTL_MOD, fd, &event as *const _)).map(|_| ())
                }
                r => r.map(|_| ()),
            }
        }
    }

    fn unregister(&self, fd: i32) {
        // SAFETY: the event argument is ignored.
        unsafe { sys!(l::__NR_epoll_ctl, self.epoll.load(Ordering::Relaxed), l::EPOLL_CTL_DEL, fd, 0) };
    }
}

impl Default for Reactor {
    fn default() -> Self {
        Self::new()
    }
}

/// A timer that never expires, whose wait the kernel cancels when CLOCK_REALTIME is set or steps, and when the machine wakes up.
///
/// # Safety
/// `epoll` is our own.
unsafe fn clock_watch(epoll: i32) -> Result<i32, i32> {
    // SAFETY: these calls create a descriptor and read locals; the descriptor is ours.
    unsafe {
        let clock = high(sys!(l::__NR_timerfd_create, l::CLOCK_REALTIME, l::TFD_CLOEXEC | l::TFD_NONBLOCK))?;
        let never = l::itimerspec {
            it_interval: l::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: l::timespec { tv_sec: i64::MAX, tv_nsec: 0 },
        };
        let flags = l::TFD_TIMER_ABSTIME | l::TFD_TIMER_CANCEL_ON_SET;
        let event = Event { events: l::EPOLLIN | l::EPOLLET, data: CLOCK };
        // ECANCELED: it was set just now, and the timer is set all the same.
        let set = match check(sys!(l::__NR_timerfd_settime, clock, flags, &raw const never, 0)) {
            Err(e) if e == linux_raw_sys::errno::ECANCELED as i32 => Ok(0),
            r => r,
        };
        match set.and_then(|_| check(sys!(l::__NR_epoll_ctl, epoll, l::EPOLL_CTL_ADD, clock, &raw const event))) {
            Ok(_) => Ok(clock),
            Err(e) => {
                sys!(l::__NR_close, clock);
                Err(e)
            }
        }
    }
}

/// Our own descriptors have numbers below this. The kernel's table is as long as the highest descriptor, and copied whole by each
/// `fork` and `posix_spawn`: 8 MB where a million are allowed.
const MOST: u64 = 1 << 12;

/// Moves a descriptor out of the way of the program's: close to the top of what RLIMIT_NOFILE allows, but below `MOST`.
///
/// # Safety
/// `fd` is a raw result of a call that made a descriptor nobody else uses.
pub unsafe fn high(fd: Raw) -> Result<i32, i32> {
    let fd = check(fd)? as i32;
    let mut limit = l::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: prlimit writes the local; the descriptor is ours.
    unsafe {
        sys!(l::__NR_prlimit64, 0, l::RLIMIT_NOFILE, 0, &mut limit as *mut _);
        let top = (limit.rlim_cur.min(MOST)).saturating_sub(64).max(3);
        match check(sys!(l::__NR_fcntl, fd, l::F_DUPFD_CLOEXEC, top)) {
            Ok(new) => {
                sys!(l::__NR_close, fd);
                Ok(new as i32)
            }
            Err(_) => Ok(fd),
        }
    }
}
