use crate::measure::Measure;

pub fn run(m: &Measure) {
    m.time(|| fib(m.size as u32));
}

fn fib(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let a = std::thread::spawn(move || fib(n - 1));
    let b = fib(n - 2);
    a.join().unwrap() + b
}
