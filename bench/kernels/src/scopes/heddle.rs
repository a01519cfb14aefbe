use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    rivals::heddle(m.workers);
    m.time(|| fib(m.size as u32));
}

fn fib(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let mut b = 0;
    let a = heddle::scope(|s| {
        s.spawn(|| b = fib(n - 2));
        fib(n - 1)
    });
    a + b
}
