use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    rivals::may(m.workers);
    let n = m.size as u32;
    m.time(|| may::go!(move || fib(n)).join().expect("no panic"));
}

fn fib(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let a = may::go!(move || fib(n - 1));
    let b = fib(n - 2);
    a.join().expect("no panic") + b
}
