use super::{check, numbers, partition, sort_few};
use crate::measure::Measure;

pub fn run(m: &Measure) {
    m.time_with(|| numbers(m.size), |v| sort(v), check);
}

fn sort(v: &mut [u32]) {
    if !sort_few(v) {
        let (a, b) = partition(v);
        sort(a);
        sort(b);
    }
}
