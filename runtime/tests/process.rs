//! Tasks, arena and deaths. Each test is a process of its own, which starts while it has one thread; those of a module's `SAME`
//! run in user, kernel and process mode with the same code. What a test prints is shown if it fails.
//!
//! `cargo test -p heddle --test process -- NAME` runs those whose names hold NAME.

mod child;
mod processes;

use std::env;
use std::process::{Command, ExitCode};
use std::time::Duration;

use heddle::Options;
use heddle::process::task_mode;

/// Set for the processes that run a test: the mode.
const CHILD: &str = "HEDDLE_TEST_MODE";
/// A test that takes longer hangs.
const MOST: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let name = arguments.first().map_or("", String::as_str);
    if let Ok(mode) = env::var(CHILD) {
        one(&mode, name);
        return ExitCode::SUCCESS;
    }
    let mut failed = 0;
    for (modes, tests) in [(&["user", "kernel", "process"][..], processes::SAME), (&["process"], processes::PROCESS)] {
        let tests = tests.iter().flat_map(|tests| tests.iter()).filter(|test| test.0.contains(name));
        for (test, mode) in tests.flat_map(|test| modes.iter().map(move |mode| (test.0, mode))) {
            let name = format!("{test} ({mode})");
            failed += u32::from(!child::is_good(&name, &mut command(test, mode), MOST));
        }
    }
    println!("{failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The program that runs one test.
fn command(test: &str, mode: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("our own path"));
    command.arg(test).env(CHILD, mode).env("HEDDLE_MODE", mode).env("HEDDLE_PROCESSES", "2").env("HEDDLE_WORKERS", "2");
    command
}

fn one(mode: &str, name: &str) {
    if name == processes::GRANDCHILD {
        processes::grandchild();
    }
    let mut all = processes::SAME.iter().chain(processes::PROCESS).flat_map(|tests| tests.iter());
    let (_, test) = all.find(|test| test.0 == name).expect("a test's name");
    processes::before_start(name);
    if !processes::starts_itself(name) {
        heddle::start(Options::new().arena(256 << 20)).unwrap_or_else(|why| panic!("{mode}: {why}"));
        assert_eq!(format!("{:?}", task_mode()).to_lowercase(), mode);
    }
    test();
}
