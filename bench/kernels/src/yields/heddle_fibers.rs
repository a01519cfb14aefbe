//! # Safety
//! Fibers that touch no thread-local.

use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    let each = m.size / 2;
    rivals::heddle_fiber(m.workers, || {
        m.time(|| {
            // SAFETY: see the module.
            let two =
                [0, 1].map(|_| unsafe { heddle::fiber::spawn(move || (0..each).map(|_| heddle::yield_now()).count()) });
            two.into_iter().map(|fiber| fiber.join().unwrap() as u64).sum()
        });
    });
}
