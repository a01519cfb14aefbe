use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::measure::Measure;
use crate::rivals;

static PARKED: AtomicUsize = AtomicUsize::new(0);

pub fn run(m: &Measure) {
    let runtime = rivals::tokio(m.workers);
    let gate = Arc::new(Notify::new());
    m.parked(
        |_| {
            let gate = gate.clone();
            Ok::<_, std::convert::Infallible>(runtime.spawn(async move {
                let opened = gate.notified();
                let mut opened = std::pin::pin!(opened);
                opened.as_mut().enable();
                PARKED.fetch_add(1, Ordering::Relaxed);
                opened.await;
            }))
        },
        || PARKED.load(Ordering::Relaxed),
        std::thread::yield_now,
        |tasks| {
            gate.notify_waiters();
            tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
        },
    );
}
