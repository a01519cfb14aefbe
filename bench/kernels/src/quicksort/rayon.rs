use super::{check, numbers, partition, sort_few};
use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    let pool = rivals::rayon(m.workers);
    m.time_with(|| numbers(m.size), |v| pool.install(|| sort(v)), check);
}

fn sort(v: &mut [u32]) {
    if !sort_few(v) {
        let (a, b) = partition(v);
        rayon::join(|| sort(a), || sort(b));
    }
}
