//! What the command line's tests share.
#![allow(dead_code)]

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The binary under test.
pub const HEDDLE: &str = env!("CARGO_BIN_EXE_heddle");

/// A folder for one test, with a cache folder inside that heddle will use.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Self {
        // Directly under /tmp: the name must hold neither a space nor a colon.
        Self(tempfile::Builder::new().prefix("heddle-cli-").tempdir_in("/tmp").unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn cache(&self) -> PathBuf {
        self.path("cache")
    }

    /// `heddle` with this place's cache and none of Heddle's settings from outside.
    pub fn heddle(&self, args: &[&str]) -> Command {
        let mut command = Command::new(HEDDLE);
        for name in
            ["HEDDLE_WORKERS", "HEDDLE_STATS", "HEDDLE_CHILDREN", "HEDDLE_SLICE_MS", "HEDDLE_LAUNCHED", "LD_PRELOAD"]
        {
            command.env_remove(name);
        }
        command.args(args).env("HEDDLE_CACHE_DIR", self.cache()).stdin(Stdio::null());
        command
    }

    /// Writes a file with these permissions.
    pub fn file(&self, name: &str, contents: &[u8], mode: u32) -> PathBuf {
        let path = self.path(name);
        if mode & 0o111 == 0 {
            fs::write(&path, contents).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        } else {
            let draft = self.path(&format!("{name}.draft"));
            fs::write(&draft, contents).unwrap();
            copy_program(&draft, &path, mode);
            fs::remove_file(draft).unwrap();
        }
        path
    }

    /// A copy of a small dynamically linked program, changed by `change`.
    pub fn program(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> PathBuf {
        let mut image = fs::read("/bin/true").unwrap();
        change(&mut image);
        self.file(name, &image, 0o755)
    }
}

/// Copies a file that is to be executed. Another process writes it: a descriptor of this one's would live on for a moment in
/// children that other tests start, and until then the kernel does not execute the file (ETXTBSY).
pub fn copy_program(from: &Path, to: &Path, mode: u32) {
    let done = Command::new("install").arg("-m").arg(format!("{mode:o}")).args([from, to]).status().unwrap();
    assert!(done.success());
}

/// Runs it; its output.
pub fn run(command: &mut Command) -> Output {
    command.output().unwrap()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Asserts that it failed with `status` and exactly one line on stderr that holds all `words`, and printed nothing else.
#[track_caller]
pub fn assert_fails(output: &Output, status: i32, words: &[&str]) {
    let line = stderr(output);
    assert_eq!(output.status.code(), Some(status), "signal {:?}, stderr: {line}", output.status.signal());
    assert_eq!(stdout(output), "");
    assert!(
        line.starts_with("heddle: ") && line.ends_with('\n') && line.lines().count() == 1,
        "not one line: {line:?}"
    );
    for word in words {
        assert!(line.contains(word), "'{word}' is missing in: {line}");
    }
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Whether a tool is in PATH.
pub fn has_tool(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(OsStr::new(name)).is_file())
}

/// Says that a test cannot run here; with HEDDLE_NO_SKIP=1 that is a failure.
pub fn skipped(name: &str, reason: &str) {
    assert!(
        std::env::var_os("HEDDLE_NO_SKIP").is_none_or(|v| v != "1"),
        "SKIPPED {name}: {reason}, with HEDDLE_NO_SKIP=1"
    );
    // Straight to the descriptor: the test harness captures what the print macros write.
    let _ = std::io::stderr().write_all(format!("SKIPPED {name}: {reason}\n").as_bytes());
}
