//! Fork-join beside its rivals, all in one process and in turn: nanoseconds per fork of `fib` without a cutoff, and tree
//! search with one task per node. Then threads and locks.
//!
//! `forkjoin [WORKERS] [ROUNDS]`. Overhead per fork = (workers x time - sequential time) / forks.

mod fib;
mod threads;
mod tree;

use std::time::Instant;

/// One contender: its name and what it does.
type Run<'a> = (&'static str, Box<dyn FnMut() -> u64 + 'a>);

fn seconds(f: &mut dyn FnMut() -> u64, expected: u64) -> f64 {
    let start = Instant::now();
    assert_eq!(std::hint::black_box(f()), expected);
    start.elapsed().as_secs_f64()
}

/// Runs all in turn, `rounds` times; answers the medians.
fn medians(runs: &mut [Run<'_>], rounds: usize, expected: u64) -> Vec<f64> {
    let mut times = vec![Vec::new(); runs.len()];
    for _ in 0..rounds {
        for ((_, run), times) in runs.iter_mut().zip(&mut times) {
            times.push(seconds(run, expected));
        }
    }
    times
        .into_iter()
        .map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        })
        .collect()
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<usize>().expect("numbers"));
    let workers = arguments.next().unwrap_or(1);
    let rounds = arguments.next().unwrap_or(5);
    let started = heddle::start(heddle::Options::new().workers(workers));
    if let Err(why) = &started {
        eprintln!("user threads are not to be had: {why}");
    }
    println!("{workers} workers, {rounds} rounds, {:?} threads", heddle::mode());
    // rayon's and chili's pools are made by user threads too in user mode: what is compared is the forks.
    let rayon = rayon::ThreadPoolBuilder::new().num_threads(workers).build().expect("a pool");
    let chili = chili::ThreadPool::with_config(chili::Config {
        thread_count: std::num::NonZero::new(workers),
        ..Default::default()
    });

    let n = 32;
    let forks = (fib::sequential(n + 1) - 1) as f64;
    let expected = fib::sequential(n);
    let mut runs: Vec<Run<'_>> = vec![
        ("sequential", Box::new(|| fib::sequential(n))),
        ("heddle", Box::new(|| fib::heddle(n))),
        ("chili", Box::new(|| fib::chili(&mut chili.scope(), n))),
        ("rayon", Box::new(|| rayon.install(|| fib::rayon(n)))),
    ];
    let times = medians(&mut runs, rounds, expected);
    println!("fib({n}), ns per fork");
    for ((name, _), time) in runs.iter().zip(&times).skip(1) {
        println!("  {name:12} {:7.2}   ({:.1} ms)", (time * workers as f64 - times[0]) / forks * 1e9, time * 1e3);
    }
    println!("  sequential {:.2} ns per node ({:.1} ms)", times[0] / forks * 1e9, times[0] * 1e3);

    let nodes = tree::sequential(&tree::Node::ROOT);
    let mut runs: Vec<Run<'_>> = vec![
        ("sequential", Box::new(|| tree::sequential(&tree::Node::ROOT))),
        ("heddle", Box::new(|| tree::heddle(&tree::Node::ROOT))),
        ("chili", Box::new(|| tree::chili(&mut chili.scope(), &tree::Node::ROOT))),
        ("rayon", Box::new(|| rayon.install(|| tree::rayon(&tree::Node::ROOT)))),
    ];
    let times = medians(&mut runs, rounds, nodes);
    println!("unbalanced tree of {nodes} nodes, M nodes/s");
    for ((name, _), time) in runs.iter().zip(&times) {
        println!("  {name:12} {:7.2}", nodes as f64 / time / 1e6);
    }
    println!("{:?}", heddle::counters());
    threads::print(rounds);
}
