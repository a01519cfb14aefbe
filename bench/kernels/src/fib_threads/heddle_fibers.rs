//! # Safety
//! Fibers that touch no thread-local, on stacks of 64 KiB.

use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    let n = m.size as u32;
    rivals::heddle_fiber(m.workers, || m.time(|| fib(n)));
}

fn fib(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    // SAFETY: see the module.
    let a = unsafe { heddle::fiber::spawn(move || fib(n - 1)) };
    let b = fib(n - 2);
    a.join().unwrap() + b
}
