use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::measure::Measure;
use crate::rivals;

static PARKED: AtomicUsize = AtomicUsize::new(0);
static OPEN: AtomicBool = AtomicBool::new(false);

pub fn run(m: &Measure) {
    rivals::heddle(m.workers);
    m.parked(
        |_| {
            let builder = heddle::Builder::new().stack_size(16 * 1024);
            builder.spawn(|| {
                PARKED.fetch_add(1, Ordering::Relaxed);
                while !OPEN.load(Ordering::Relaxed) {
                    heddle::park();
                }
            })
        },
        || PARKED.load(Ordering::Relaxed),
        heddle::yield_now,
        |threads| {
            OPEN.store(true, Ordering::Relaxed);
            for thread in threads {
                thread.thread().unpark();
                thread.join().unwrap();
            }
        },
    );
}
