//! The library's behaviour, the same in every mode: each test runs in processes of its own kind, with user threads and with
//! kernel threads, on one, two and four workers. A test that hangs ends the process with its name;
//! what a process prints is shown if it fails.
//!
//! `cargo test -p heddle --test modes -- NAME` runs those whose names hold NAME.

mod child;
mod suite;

use std::env;
use std::process::{Command, ExitCode, exit};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// Set for the processes that run the tests: the mode.
const CHILD: &str = "HEDDLE_TEST_MODE";
/// A test that takes longer hangs.
const MOST: Duration = Duration::from_secs(60);
/// A process that takes longer hangs.
const MOST_OF_ALL: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    let filter = env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    match env::var(CHILD) {
        Ok(mode) => {
            all(&mode, &filter);
            ExitCode::SUCCESS
        }
        Err(_) => parent(&filter),
    }
}

fn parent(filter: &str) -> ExitCode {
    let this = env::current_exe().expect("our own path");
    let mut failed = false;
    for mode in ["user", "kernel"] {
        for workers in ["1", "2", "4"] {
            let mut command = Command::new(&this);
            command.arg(filter).env(CHILD, mode).env("HEDDLE_MODE", mode).env("HEDDLE_WORKERS", workers);
            failed |= !child::is_good(&format!("{mode} mode, {workers} workers"), &mut command, MOST_OF_ALL);
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

static RUNNING: Mutex<Option<(&str, Instant)>> = Mutex::new(None);

fn all(mode: &str, filter: &str) {
    heddle::start(heddle::Options::new()).unwrap_or_else(|why| panic!("{mode}: {why}"));
    assert_eq!(format!("{:?}", heddle::mode()).to_lowercase(), mode);
    let watch = || loop {
        thread::sleep(Duration::from_millis(200));
        if let Some((name, since)) = *RUNNING.lock().unwrap()
            && since.elapsed() > MOST
        {
            eprintln!("{name} hangs: {:?}", heddle::counters());
            exit(1);
        }
    };
    heddle::Builder::new().mode(heddle::Mode::Kernel).name("watch".into()).spawn(watch).expect("a watch");
    for (name, test) in suite::ALL.iter().flat_map(|tests| tests.iter()).filter(|(name, _)| name.contains(filter)) {
        *RUNNING.lock().unwrap() = Some((name, Instant::now()));
        test();
        if env::var_os("HEDDLE_TEST_VERBOSE").is_some() {
            println!("  {name}: ok, {:?}", RUNNING.lock().unwrap().expect("set above").1.elapsed());
        }
        *RUNNING.lock().unwrap() = None;
    }
}
