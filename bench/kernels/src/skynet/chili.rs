use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    let pool = rivals::chili(m.workers);
    m.time(|| skynet(&mut pool.scope(), 0, m.size as u64));
}

fn skynet(scope: &mut chili::Scope<'_>, number: u64, leaves: u64) -> u64 {
    if leaves == 1 { number } else { among(scope, number, leaves / 10, 0, 10) }
}

/// Some children's sum.
fn among(scope: &mut chili::Scope<'_>, number: u64, leaves: u64, from: u64, to: u64) -> u64 {
    if to - from == 1 {
        return skynet(scope, number + from * leaves, leaves);
    }
    let middle = (from + to) / 2;
    let (a, b) = scope.join(|s| among(s, number, leaves, from, middle), |s| among(s, number, leaves, middle, to));
    a + b
}
