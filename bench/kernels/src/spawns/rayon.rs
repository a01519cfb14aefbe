use std::sync::atomic::{AtomicU64, Ordering};

use super::work;
use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    let pool = rivals::rayon(m.workers);
    m.time(|| pool.install(|| jobs(m.size as u64)));
}

fn jobs(n: u64) -> u64 {
    let sum = AtomicU64::new(0);
    let sum = &sum;
    rayon::scope(|s| {
        for i in 0..n {
            s.spawn(move |_| _ = sum.fetch_add(work(i), Ordering::Relaxed));
        }
    });
    sum.load(Ordering::Relaxed)
}
