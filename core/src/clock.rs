//! The clocks, in nanoseconds: CLOCK_MONOTONIC mostly; through the vDSO when the program's loader gave one.

use crate::sys::linux as l;
use crate::wall::{Clock, Deadline};
use core::sync::atomic::{AtomicUsize, Ordering};

/// `__vdso_clock_gettime`, or 0.
static VDSO: AtomicUsize = AtomicUsize::new(0);

/// A deadline that never comes.
pub const NEVER: u64 = u64::MAX;

/// Tells the core where the vDSO's `clock_gettime` is.
///
/// # Safety
/// `function` is 0 or the address of a function with the signature and behaviour of `clock_gettime(2)`.
pub unsafe fn use_vdso(function: usize) {
    VDSO.store(function, Ordering::Relaxed);
}

/// The time of `clock` (CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME, ...) in nanoseconds; 0 if there is no such clock.
pub fn read(clock: u32) -> u64 {
    let mut ts = l::timespec { tv_sec: 0, tv_nsec: 0 };
    let f = VDSO.load(Ordering::Relaxed);
    let r = if f != 0 {
        // SAFETY: use_vdso's contract.
        let f: extern "C" fn(u32, *mut l::timespec) -> i32 = unsafe { core::mem::transmute(f) };
        f(clock, &mut ts) as isize
    } else {
        // SAFETY: writes one local.
        unsafe { sys!(l::__NR_clock_gettime, clock, &mut ts as *mut _) }
    };
    if r < 0 { 0 } else { ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64 }
}

/// Now, in nanoseconds of CLOCK_MONOTONIC.
#[inline]
pub fn now() -> u64 {
    read(l::CLOCK_MONOTONIC)
}

impl Clock {
    /// The clock that a system call names so, if a wait can end by it.
    #[inline]
    pub const fn of(id: u32) -> Option<Self> {
        match id {
            l::CLOCK_MONOTONIC => Some(Self::Monotonic),
            l::CLOCK_REALTIME => Some(Self::Realtime),
            l::CLOCK_TAI => Some(Self::Tai),
            l::CLOCK_BOOTTIME => Some(Self::Boottime),
            _ => None,
        }
    }

    /// Now, by this clock.
    pub fn now(self) -> u64 {
        read(match self {
            Self::Monotonic => l::CLOCK_MONOTONIC,
            Self::Realtime => l::CLOCK_REALTIME,
            Self::Tai => l::CLOCK_TAI,
            Self::Boottime => l::CLOCK_BOOTTIME,
        })
    }

    /// What is to be added to a time of this clock to have CLOCK_MONOTONIC's. At most a little too much: whoever waits for that time
    /// does not look before the clock has reached its own.
    pub fn to_monotonic(self) -> i64 {
        /// Two looks that are not further apart, in nanoseconds, were not interrupted.
        const CLOSE: u64 = 500;
        let mut least = i64::MAX;
        for _ in 0..8 {
            let before = now();
            let time = self.now();
            let after = now();
            least = least.min(after.wrapping_sub(time) as i64);
            if after - before <= CLOSE {
                break;
            }
        }
        least
    }
}

impl Deadline {
    /// Never.
    pub const NEVER: Self = Self { at: NEVER, clock: Clock::Monotonic };

    /// Whether it is past.
    pub fn is_past(self) -> bool {
        self.at <= self.clock.now()
    }
}
