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
/// Events taken per call. Few, so that those behind a worker that the kernel keeps off its CPU are few: others can take what
/// is left in the kernel.
pub const BATCH: usize = 32;
/// All that a descriptor is registered for.
const INTEREST: u32 = l::EPOLLIN | l::EPOLLOUT | l::EPOLLRDHUP | l::EPOLLPRI | l::EPOLLET;

/// The process's epoll instance and the eventfd that wakes a sleeper.
pub struct Reactor {
    epoll: AtomicI32,
    wake: AtomicI32,
}

/// The kernel's `struct epoll_event`.
#[repr(C, packed)]
#[derive(Clone, Copy)]
pub struct Event {
    /// What happened.
    pub events: u32,
    /// Descriptor and generation, or [`WAKE`].
    pub data: u64,
}

impl Reactor {
    /// Not opened.
    pub const fn new() -> Self {
        Self { epoll: AtomicI32::new(-1), wake: AtomicI32::new(-1) }
    }

    /// Opens both descriptors, as high as the limit allows, so that they are not in the program's way. Error: errno.
    pub fn open(&self) -> Result<(), i32> {
        // SAFETY: these calls create descriptors and touch only the event passed.
        unsafe {
            let epoll = high(sys!(l::__NR_epoll_create1, l::EPOLL_CLOEXEC))?;
            let wake = high(sys!(l::__NR_eventfd2, 0, l::EFD_CLOEXEC | l::EFD_NONBLOCK))?;
            let event = Event { events: l::EPOLLIN | l::EPOLLET, data: WAKE };
            check(sys!(l::__NR_epoll_ctl, epoll, l::EPOLL_CTL_ADD, wake, &event as *const _))?;
            self.epoll.store(epoll, Ordering::Relaxed);
            self.wake.store(wake, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Closes both, in a forked child.
    pub fn close(&self) {
        for fd in [&self.epoll, &self.wake] {
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
        fd >= 0 && (fd == self.epoll.load(Ordering::Relaxed) || fd == self.wake.load(Ordering::Relaxed))
    }

    /// The reactor's own descriptors, -1 if not open, in rising order.
    pub fn own(&self) -> [i32; 2] {
        let (a, b) = (self.epoll.load(Ordering::Relaxed), self.wake.load(Ordering::Relaxed));
        [a.min(b), a.max(b)]
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
