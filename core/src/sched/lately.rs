//! The time, not long ago, for a processor whose worker switches often: reading the time-stamp counter costs as much as a
//! switch does (5 to 15 ns), the more where the machine is virtual.
//!
//! It is read once in as many switches as take about [`SPAN`] ticks, by what the last ones took; so the answer is about as old
//! at most, but for the first switches after threads have begun to run for longer.

use crate::arch;
use crate::prim::{AtomicU32, AtomicU64, Ordering};

/// Ticks, about 10 us.
const SPAN: u64 = 1 << 15;
/// Most switches between two readings.
const MOST: u64 = 16;

/// See the module. Written by the worker that holds the processor.
#[derive(Default)]
pub struct Lately {
    ticks: AtomicU64,
    /// Switches until the next reading, and how many there were to be since the last.
    left: AtomicU32,
    every: AtomicU32,
}

impl Lately {
    /// The time, as [`arch::ticks`].
    #[inline]
    pub fn ticks(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }

    /// The worker is about to switch.
    #[inline]
    pub fn switching(&self) {
        match self.left.load(Ordering::Relaxed) {
            0 => self.read(),
            n => self.left.store(n - 1, Ordering::Relaxed),
        }
    }

    /// The next switch reads the time: what went before says nothing about what comes.
    #[inline]
    pub fn forget(&self) {
        self.left.store(0, Ordering::Relaxed);
    }

    #[inline(never)]
    fn read(&self) {
        self.read_at(arch::ticks());
    }

    fn read_at(&self, now: u64) {
        let took = now.wrapping_sub(self.ticks());
        let every = u64::from(self.every.load(Ordering::Relaxed));
        let next = (SPAN * every.max(1) / took.max(1)).clamp(1, MOST) as u32;
        self.ticks.store(now, Ordering::Relaxed);
        self.every.store(next, Ordering::Relaxed);
        self.left.store(next - 1, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// How old the answer is at most, in ticks, when each of many switches takes so many.
    fn oldest(lately: &Lately, now: &mut u64, each: u64) -> u64 {
        (0..1000).fold(0, |oldest, _| {
            *now += each;
            match lately.left.load(Ordering::Relaxed) {
                0 => lately.read_at(*now),
                n => lately.left.store(n - 1, Ordering::Relaxed),
            }
            oldest.max(*now - lately.ticks())
        })
    }

    #[test]
    fn it_is_read_as_often_as_needed() {
        let (lately, mut now) = (Lately::default(), 0);
        assert!(oldest(&lately, &mut now, 500) < 16 * 500);
        // The first few were thought to be as short as those before.
        oldest(&lately, &mut now, 20_000);
        assert!(oldest(&lately, &mut now, 20_000) <= SPAN + 20_000);
        oldest(&lately, &mut now, 1 << 20);
        assert_eq!(oldest(&lately, &mut now, 1 << 20), 0, "at each switch");
        oldest(&lately, &mut now, 500);
        assert!(oldest(&lately, &mut now, 500) > 14 * 500, "seldom again");
    }

    #[test]
    fn forgotten_it_is_read_at_once() {
        let (lately, mut now) = (Lately::default(), 0);
        oldest(&lately, &mut now, 500);
        lately.forget();
        lately.switching();
        assert!(lately.ticks() > now, "the machine's ticks");
    }
}
