//! # Safety
//! Fibers that touch no thread-local.

use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    let count = m.size as u64;
    // SAFETY: see the module.
    let one = |i| unsafe { heddle::fiber::spawn(move || i) };
    rivals::heddle_fiber(m.workers, || m.time(|| (0..count).map(|i| one(i).join().unwrap()).sum()));
}
