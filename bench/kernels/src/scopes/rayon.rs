use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    let pool = rivals::rayon(m.workers);
    m.time(|| pool.install(|| fib(m.size as u32)));
}

fn fib(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let mut b = 0;
    let a = rayon::scope(|s| {
        s.spawn(|_| b = fib(n - 2));
        fib(n - 1)
    });
    a + b
}
