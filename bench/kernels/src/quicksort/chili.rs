use super::{check, numbers, partition, sort_few};
use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    let pool = rivals::chili(m.workers);
    m.time_with(|| numbers(m.size), |v| sort(&mut pool.scope(), v), check);
}

fn sort(scope: &mut chili::Scope<'_>, v: &mut [u32]) {
    if !sort_few(v) {
        let (a, b) = partition(v);
        scope.join(|s| sort(s, a), |s| sort(s, b));
    }
}
