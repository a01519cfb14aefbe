//! A task (one number to another process, its successor back) by different means, each in a program of its own, in turn, in
//! several rounds; medians in microseconds per task.
//!
//! `processes [ROUNDS [RIVAL]]`

mod fork_each;
mod pipe;
mod tasks;

use std::env;
use std::process::Command;
use std::time::{Duration, Instant};

/// Its name, what it does, and the measurement.
type Rival = (&'static str, &'static str, fn() -> f64);

const RIVALS: &[Rival] = &[
    ("heddle", "heddle, process mode: a task and back", tasks::there_and_back),
    ("heddle-64", "heddle, process mode: 64 at a time", tasks::many),
    ("heddle-user", "heddle, user mode: a task and back", tasks::on_user_threads),
    ("heddle-kernel", "heddle, kernel mode: a task and back", tasks::on_kernel_threads),
    ("pipe", "two pipes: there and back", pipe::there_and_back),
    ("fork", "fork, pipe and wait for each", fork_each::there_and_back),
];

/// Microseconds per call, over about that time.
fn measure(time: Duration, at_once: u32, mut call: impl FnMut(u64)) -> f64 {
    (0..100).for_each(&mut call);
    let begin = Instant::now();
    let mut calls = 0;
    while begin.elapsed() < time {
        for _ in 0..20 {
            call(calls);
            calls += 1;
        }
    }
    begin.elapsed().as_secs_f64() * 1e6 / calls as f64 / f64::from(at_once)
}

fn main() {
    let arguments: Vec<_> = env::args().skip(1).collect();
    if let [how, name] = &arguments[..]
        && how == "one"
    {
        let rival = RIVALS.iter().find(|rival| rival.0 == name).expect("a rival's name");
        println!("{}", (rival.2)());
        return;
    }
    let rounds = arguments.first().map_or(7, |text| text.parse().expect("a number of rounds"));
    let only = arguments.get(1);
    let this = env::current_exe().expect("our own path");
    let mut figures = vec![Vec::new(); RIVALS.len()];
    for _ in 0..rounds {
        for (rival, figures) in
            RIVALS.iter().zip(&mut figures).filter(|(rival, _)| only.is_none_or(|only| only == rival.0))
        {
            let output = Command::new(&this).args(["one", rival.0]).output().expect("a child");
            let text = String::from_utf8_lossy(&output.stdout);
            figures.push(text.trim().parse::<f64>().unwrap_or_else(|_| panic!("{}: {output:?}", rival.0)));
        }
    }
    for ((_, what, _), mut figures) in RIVALS.iter().zip(figures) {
        figures.sort_by(f64::total_cmp);
        if let (Some(least), Some(most)) = (figures.first(), figures.last()) {
            println!("{what:40} {:9.2} us   ({least:.2} to {most:.2})", figures[figures.len() / 2]);
        }
    }
}
