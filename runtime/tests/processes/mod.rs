//! Tests of tasks and of the processes that run them.

mod agents;
mod arena;
mod channels;
mod deaths;
mod program;
mod tasks;

use std::thread;
use std::time::{Duration, Instant};

use heddle::Mode;
use heddle::process::{pids, task_mode};

pub use program::{GRANDCHILD, grandchild};

/// A test: its name and what it does; it fails by panicking.
pub type Test = (&'static str, fn());

/// Those that hold in user, kernel and process mode.
pub const SAME: &[&[Test]] = &[tasks::SAME, arena::SAME, channels::SAME, agents::SAME];
/// Those of process mode.
pub const PROCESS: &[&[Test]] =
    &[tasks::PROCESS, arena::PROCESS, channels::PROCESS, agents::PROCESS, deaths::PROCESS, program::PROCESS];

/// The tests of a module, by name.
macro_rules! tests {
    ($($name:ident)*) => { &[$((stringify!($name), $name as fn())),*] };
}
use tests;

/// What has to be so before that test's process starts.
pub fn before_start(test: &str) {
    if test == "kernel_threads_where_user_threads_are_refused" {
        program::refuse_new_code();
    }
}

/// Whether that test's process has to start by itself.
pub fn starts_itself(test: &str) -> bool {
    test == "bad_starts"
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(30), "not within 30 s: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn is_process() -> bool {
    task_mode() == Mode::Process
}

/// The id of the process in that place.
fn task_pid(wanted: usize) -> u32 {
    pids()
        .into_iter()
        .find(|pid| {
            std::fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name.trim() == format!("heddle-{wanted}"))
        })
        .unwrap()
}

/// Sends a process a signal.
unsafe fn libc_kill(pid: u32, signal: i32) {
    unsafe extern "C" {
        fn kill(pid: i32, signal: i32) -> i32;
    }
    // SAFETY: the caller's.
    unsafe { kill(pid as i32, signal) };
}
