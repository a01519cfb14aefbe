//! Runs processes of a test; what they print is shown if they fail or `HEDDLE_TEST_VERBOSE` is set.

use std::env;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

/// Whether the command ends well within the time; says so in a line.
pub fn is_good(name: &str, command: &mut Command, most: Duration) -> bool {
    let begin = Instant::now();
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("output-{}", std::process::id()));
    let file = File::create(&log).expect("a file");
    command.stdout(file.try_clone().expect("a descriptor")).stderr(file);
    let status = wait(&mut command.spawn().expect("a child"), most);
    let is_good = status.is_some_and(|status| status.success());
    let how = status.map_or("hangs".to_string(), |status| status.to_string());
    println!("{name}: {}, {:?}", if is_good { "ok" } else { &how }, begin.elapsed());
    if !is_good || env::var_os("HEDDLE_TEST_VERBOSE").is_some() {
        println!("{}", String::from_utf8_lossy(&fs::read(&log).expect("our own file")));
    }
    fs::remove_file(&log).expect("our own file");
    is_good
}

/// Waits for the child's end; `None`: it hangs, and was killed.
fn wait(child: &mut Child, most: Duration) -> Option<ExitStatus> {
    let begin = Instant::now();
    while begin.elapsed() < most {
        if let Some(status) = child.try_wait().expect("a child") {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(2));
    }
    // Shows what its threads do.
    let _ = Command::new("kill").args(["-33", &child.id().to_string()]).status();
    thread::sleep(Duration::from_millis(500));
    child.kill().expect("a child");
    child.wait().expect("a child");
    None
}
