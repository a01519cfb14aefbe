//! # Safety
//! Fibers that touch no thread-local.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::measure::Measure;
use crate::rivals;

static PARKED: AtomicUsize = AtomicUsize::new(0);

pub fn run(m: &Measure) {
    rivals::heddle(m.workers);
    let gate = Arc::new(heddle::sync::Event::new());
    m.parked(
        |_| {
            let gate = gate.clone();
            let waits = move || {
                PARKED.fetch_add(1, Ordering::Relaxed);
                gate.wait();
            };
            // SAFETY: see the module.
            unsafe { heddle::fiber::Builder::new().stack_size(16 * 1024).spawn(waits) }
        },
        || PARKED.load(Ordering::Relaxed),
        heddle::yield_now,
        |fibers| {
            gate.set();
            fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        },
    );
}
