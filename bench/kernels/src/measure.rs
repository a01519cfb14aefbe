//! What a contender sees: how large the problem is, and a clock. It runs in a process of its own, so that nobody's threads
//! disturb another's.

use std::time::Instant;

/// One contender's task.
pub struct Measure {
    /// How many workers, threads of a pool and so on there are to be; the process is bound to that many CPUs.
    pub workers: usize,
    /// What the kernel means by it.
    pub size: usize,
    /// How many runs to time, after one that is not.
    pub runs: usize,
}

impl Measure {
    /// Times `run`, whose result is what shows that it is right.
    pub fn time(&self, mut run: impl FnMut() -> u64) {
        self.time_with(|| (), |()| run(), |(), result| result);
    }

    /// Times `run` only; `check` makes the result out of what `setup` and `run` made.
    pub fn time_with<S, R>(
        &self,
        mut setup: impl FnMut() -> S,
        mut run: impl FnMut(&mut S) -> R,
        check: impl Fn(S, R) -> u64,
    ) {
        for i in 0..=self.runs {
            let mut made = setup();
            let start = Instant::now();
            let result = std::hint::black_box(run(&mut made));
            let time = start.elapsed();
            let result = check(made, result);
            if i > 0 || self.runs == 0 {
                println!("{} {result}", time.as_nanos());
            }
        }
    }

    /// Makes `size` threads that wait, once, and says how long it took until all do and how many bytes each needs.
    pub fn parked<T, E: std::fmt::Display>(
        &self,
        make: impl Fn(usize) -> Result<T, E>,
        parked: impl Fn() -> usize,
        pause: impl Fn(),
        end: impl FnOnce(Vec<T>),
    ) {
        let mut threads = Vec::with_capacity(self.size);
        let before = memory();
        let start = Instant::now();
        for i in 0..self.size {
            match make(i) {
                Ok(thread) => threads.push(thread),
                // Those that there are would keep the process from ending in good order.
                Err(why) => {
                    eprintln!("thread {i}: {why}");
                    std::process::exit(1);
                }
            }
        }
        while parked() < self.size {
            pause();
        }
        let time = start.elapsed();
        let each = (memory() - before) / self.size as u64;
        end(threads);
        println!("{} 0 {each}", time.as_nanos());
    }
}

/// Memory of this process in bytes, with its page tables.
pub fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has this file");
    let kib = |name: &str| -> u64 {
        let line = status.lines().find(|line| line.starts_with(name)).expect("a line of that name");
        line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number")
    };
    (kib("VmRSS:") + kib("VmPTE:")) * 1024
}
