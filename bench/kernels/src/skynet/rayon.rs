use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    let pool = rivals::rayon(m.workers);
    m.time(|| pool.install(|| skynet(0, m.size as u64)));
}

fn skynet(number: u64, leaves: u64) -> u64 {
    if leaves == 1 { number } else { among(number, leaves / 10, 0, 10) }
}

/// Some children's sum.
fn among(number: u64, leaves: u64, from: u64, to: u64) -> u64 {
    if to - from == 1 {
        return skynet(number + from * leaves, leaves);
    }
    let middle = (from + to) / 2;
    let (a, b) = rayon::join(|| among(number, leaves, from, middle), || among(number, leaves, middle, to));
    a + b
}
