use crate::measure::Measure;

pub fn run(m: &Measure) {
    m.time(|| fib(m.size as u32));
}

#[inline(never)]
pub fn fib(n: u32) -> u64 {
    if n < 2 { n.into() } else { fib(n - 1) + fib(n - 2) }
}
