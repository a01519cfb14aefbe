//! Sleeping.

use crate::entry::Frame;
use crate::wait::{NEVER, at, begin, e, fail, park};
use heddle_core::clock;
use heddle_core::park::Reason;
use heddle_core::sched::current;
use heddle_core::sys::linux as l;
use heddle_core::thread::State;

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

/// `nanosleep` and `clock_nanosleep`. Clocks that do not follow CLOCK_MONOTONIC's pace are the kernel's.
///
/// # Safety
/// The current thread; the program's arguments.
pub unsafe fn sleep(frame: &mut Frame, clock_id: u32, absolute: bool, request: usize, remain: usize) -> isize {
    if request == 0 {
        return fail(e::EFAULT);
    }
    let ns = match read_timespec(request) {
        Ok(ns) => ns.unwrap_or(0),
        Err(errno) => return errno,
    };
    let now = clock::now();
    let deadline = if absolute { at(clock_id, ns) } else { now.saturating_add(ns) };
    let t = current();
    // SAFETY: the current thread, inside the core.
    unsafe {
        loop {
            if deadline <= clock::now() {
                return 0;
            }
            let reason = match begin(t) {
                Some(ticket) => park(t, ticket, deadline, State::Sleep),
                None => Reason::Signal,
            };
            match reason {
                Reason::Timeout => return 0,
                Reason::Woken => {}
                Reason::Signal => {
                    if !crate::signal::deliverable(t) {
                        continue;
                    }
                    // The rest is what the handler's caller sees.
                    if !absolute && remain != 0 {
                        let left = Timespec::from_ns(deadline.saturating_sub(clock::now()));
                        (remain as *mut Timespec).write_unaligned(left);
                    }
                    if !crate::signal::deliver::deliver_some(frame) {
                        continue;
                    }
                    return fail(e::EINTR);
                }
            }
        }
    }
}

/// Whether a sleep on this clock is one of ours.
pub fn is_plain(clock_id: u32) -> bool {
    matches!(clock_id, l::CLOCK_MONOTONIC | l::CLOCK_REALTIME | l::CLOCK_BOOTTIME | l::CLOCK_TAI)
}
