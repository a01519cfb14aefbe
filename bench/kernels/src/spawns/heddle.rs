use std::sync::atomic::{AtomicU64, Ordering};

use super::work;
use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    rivals::heddle(m.workers);
    m.time(|| jobs(m.size as u64));
}

fn jobs(n: u64) -> u64 {
    let sum = AtomicU64::new(0);
    let sum = &sum;
    heddle::scope(|s| {
        for i in 0..n {
            s.spawn(move || _ = sum.fetch_add(work(i), Ordering::Relaxed));
        }
    });
    sum.load(Ordering::Relaxed)
}
