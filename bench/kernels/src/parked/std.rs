use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::measure::Measure;

static PARKED: AtomicUsize = AtomicUsize::new(0);
static OPEN: AtomicBool = AtomicBool::new(false);

pub fn run(m: &Measure) {
    m.parked(
        |_| {
            let builder = std::thread::Builder::new().stack_size(16 * 1024);
            builder.spawn(|| {
                PARKED.fetch_add(1, Ordering::Relaxed);
                while !OPEN.load(Ordering::Relaxed) {
                    std::thread::park();
                }
            })
        },
        || PARKED.load(Ordering::Relaxed),
        std::thread::yield_now,
        |threads| {
            OPEN.store(true, Ordering::Relaxed);
            for thread in threads {
                thread.thread().unpark();
                thread.join().unwrap();
            }
        },
    );
}
