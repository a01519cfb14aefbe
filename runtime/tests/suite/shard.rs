//! Sharded data under threads of all kinds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use heddle::shard::{Histogram, PerWorker, ShardedCounter};

super::tests![counts_are_whole];

fn counts_are_whole() {
    let counter = Arc::new(ShardedCounter::new());
    let histogram = Arc::new(Histogram::new());
    let parts = Arc::new(PerWorker::new(|| AtomicU64::new(0)));
    let shared = (counter.clone(), histogram.clone(), parts.clone());
    super::on_threads(6, move |i| {
        for n in 0..1000 {
            shared.0.add(2);
            shared.0.sub(1);
            shared.1.record(n);
            shared.2.get().fetch_add(u64::from(i), Ordering::Relaxed);
            if n % 250 == 0 {
                heddle::yield_now();
            }
        }
    });
    assert_eq!(counter.sum(), 6000);
    assert_eq!((counter.take(), counter.sum()), (6000, 0));
    assert_eq!(histogram.snapshot().count(), 6000);
    assert_eq!(parts.combine(0, |sum, part| sum + part.load(Ordering::Relaxed)), 15_000);
}
