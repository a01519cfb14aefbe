//! `heddle run` becomes the program: process id, status, signals, streams, arguments and environment are the program's own.
//!
//! Most of it is tested with `--mode kernel`, which goes the same way but for the library.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::{HEDDLE, Place, run, stderr, stdout, text};

fn kernel<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [&["run", "--mode", "kernel", "--"], args].concat()
}

#[test]
fn the_process_is_the_same() {
    let place = Place::new();
    let child = place.heddle(&kernel(&["sh", "-c", "echo $$"])).stdout(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(stdout(&output).trim(), pid.to_string());
}

#[test]
fn the_exit_status_is_the_programs() {
    let place = Place::new();
    for status in [0, 1, 77, 125, 255] {
        let output = run(&mut place.heddle(&kernel(&["sh", "-c", &format!("exit {status}")])));
        assert_eq!(output.status.code(), Some(status));
        assert_eq!(stderr(&output), "");
    }
    let output = run(&mut place.heddle(&kernel(&["sh", "-c", "kill -TERM $$"])));
    assert_eq!(output.status.signal(), Some(libc::SIGTERM));
}

#[test]
fn arguments_arrive_unchanged() {
    let place = Place::new();
    let odd = ["", "two words", "-x", "--", "--workers", "*", "line\nbreak", "\u{e4}"];
    let output = run(place.heddle(&kernel(&["printf", "%s|"])).args(odd));
    assert_eq!(stdout(&output), odd.map(|arg| format!("{arg}|")).concat());
    let bytes = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    assert_eq!(run(place.heddle(&kernel(&["printf", "%s"])).arg(bytes)).stdout, b"\xff\xfe");
    // Without "--" too, the program's options are the program's.
    let output = run(&mut place.heddle(&["run", "--mode=kernel", "sh", "-c", "echo $0 $1", "--stats", "--mode"]));
    assert_eq!(stdout(&output), "--stats --mode\n");
}

#[test]
fn the_programs_own_name_is_the_one_given() {
    let place = Place::new();
    let print_name = ["cat", "/proc/self/cmdline"];
    let output = run(&mut place.heddle(&kernel(&print_name)));
    assert_eq!(output.stdout, b"cat\0/proc/self/cmdline\0");
}

#[test]
fn streams_are_passed_through() {
    let place = Place::new();
    let mut child = place
        .heddle(&kernel(&["sh", "-c", "cat; echo complaint >&2"]))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"through").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((stdout(&output), stderr(&output)), ("through".to_owned(), "complaint\n".to_owned()));
}

#[test]
fn signals_reach_the_program() {
    let place = Place::new();
    let mut child = place
        .heddle(&kernel(&["sh", "-c", "trap 'exit 9' USR1; echo ready; while :; do sleep 0.05; done"]))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    assert!(Command::new("kill").args(["-USR1", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

/// The lines of /proc/self/status that tell how signals are treated.
fn signal_state(command: &mut Command) -> Vec<String> {
    let status = stdout(&run(command));
    let lines: Vec<String> = status.lines().filter(|line| line.starts_with("Sig")).map(str::to_owned).collect();
    assert!(lines.iter().any(|line| line.starts_with("SigIgn")), "{status}");
    lines.into_iter().filter(|line| !line.starts_with("SigQ") && !line.starts_with("SigPnd")).collect()
}

#[test]
fn signal_masks_and_dispositions_are_inherited() {
    let place = Place::new();
    for (ignored, blocked) in [(None, None), (Some(libc::SIGPIPE), None), (Some(libc::SIGHUP), Some(libc::SIGUSR1))] {
        let prepare = move || {
            for signal in [libc::SIGPIPE, libc::SIGHUP] {
                let action = if ignored == Some(signal) { libc::SIG_IGN } else { libc::SIG_DFL };
                // SAFETY: async-signal-safe, as `pre_exec` demands, and both are valid dispositions.
                unsafe { libc::signal(signal, action) };
            }
            if let Some(signal) = blocked {
                // SAFETY: all zeroes is a valid value of this plain set of bits.
                let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
                // SAFETY: `set` is a local variable and the signal exists.
                unsafe { libc::sigaddset(&mut set, signal) };
                // SAFETY: async-signal-safe; the set is initialised and the old mask is not asked for.
                unsafe { libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
            }
            Ok(())
        };
        let mut direct = Command::new("cat");
        let mut through = place.heddle(&kernel(&["cat"]));
        for command in [&mut direct, &mut through] {
            command.arg("/proc/self/status");
            // SAFETY: the closure makes async-signal-safe calls only.
            unsafe { command.pre_exec(prepare) };
        }
        assert_eq!(signal_state(&mut direct), signal_state(&mut through));
    }
}

#[test]
fn closed_standard_descriptors_stay_closed() {
    let script = format!("exec {HEDDLE} run --mode kernel -- ls /proc/self/fd 0<&- 2>&-");
    let through = run(Command::new("sh").args(["-c", &script]));
    let direct = run(Command::new("sh").args(["-c", "exec ls /proc/self/fd 0<&- 2>&-"]));
    assert_eq!(stdout(&through), stdout(&direct));
}

#[test]
fn no_descriptor_of_heddles_is_left_open() {
    let place = Place::new();
    for mode in ["user", "kernel"] {
        // A shell's own builtin shows what it was given: in user mode the library's descriptors may come on top, but later.
        let output = run(&mut place.heddle(&["run", "--mode", mode, "--", "sh", "-c", "readlink /proc/$$/fd/* || :"]));
        assert!(!stdout(&output).contains("libheddle"), "{}", stdout(&output));
    }
}

#[test]
fn the_environment_is_otherwise_untouched() {
    let place = Place::new();
    let command = |args: &[&str]| {
        let mut command = place.heddle(args);
        command.env_clear().env("A", "1").env("PATH", "/bin:/usr/bin").env("LD_PRELOAD", "");
        stdout(&run(&mut command))
    };
    assert_eq!(command(&kernel(&["env"])), "A=1\nPATH=/bin:/usr/bin\n");
}

#[test]
fn kernel_mode_removes_the_library_and_its_settings() {
    let place = Place::new();
    let ours = "/tmp/heddle-1/libheddle-0123456789abcdef.so";
    let output = run(place
        .heddle(&kernel(&["sh", "-c", "echo \"[$LD_PRELOAD][$HEDDLE_WORKERS][$HEDDLE_STATS]\""]))
        .env("LD_PRELOAD", ours)
        .env("HEDDLE_WORKERS", "3")
        .env("HEDDLE_STATS", "1"));
    assert_eq!(stdout(&output), "[][][]\n");
}

#[test]
fn user_mode_sets_the_library_and_its_settings() {
    let place = Place::new();
    let show = "echo \"[$LD_PRELOAD][$HEDDLE_WORKERS][$HEDDLE_SLICE_MS]\"";
    let once = run(&mut place.heddle(&["run", "--workers", "2", "--slice", "7", "--", "sh", "-c", show]));
    // Beside it lies what has been found in other files.
    let is_library = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "so");
    let library = fs::read_dir(place.cache()).unwrap().map(|entry| entry.unwrap().path()).find(is_library).unwrap();
    assert_eq!(stdout(&once), format!("[{}][2][7]\n", text(&library)), "{}", stderr(&once));
    // Twice in a row: one library, and the outer settings hold.
    let inner = ["run", "--workers", "2", "--slice", "7", "--", HEDDLE, "run", "--", "sh", "-c", show];
    let twice = run(&mut place.heddle(&inner));
    assert_eq!(stdout(&twice), stdout(&once), "{}", stderr(&twice));
}

#[test]
fn user_mode_keeps_libraries_that_were_there() {
    let place = Place::new();
    let other = "/tmp/heddle-cli-no-such-library.so";
    let output = run(place.heddle(&["run", "--", "sh", "-c", "echo $LD_PRELOAD"]).env("LD_PRELOAD", other));
    let list = stdout(&output);
    let (ours, rest) = list.trim().split_once(':').unwrap();
    assert!(ours.starts_with(text(&place.cache())), "{list}");
    assert_eq!(rest, other);
}

#[test]
fn scripts_run_under_heddle() {
    let place = Place::new();
    let script = place.file("script", b"#!/usr/bin/env sh\necho \"$0 $LD_PRELOAD\"\n", 0o755);
    let output = run(&mut place.heddle(&["run", text(&script)]));
    assert!(stdout(&output).starts_with(text(&script)), "{}", stderr(&output));
    assert!(stdout(&output).contains("libheddle-"));
}

#[test]
fn huge_pages_are_disabled_on_request() {
    let place = Place::new();
    for (option, expected) in [(&["--no-thp"][..], "0"), (&[], "1")] {
        let args = [&["run", "--mode=kernel"][..], option, &["cat", "/proc/self/status"]].concat();
        let status = stdout(&run(&mut place.heddle(&args)));
        let enabled = status.lines().find_map(|line| line.strip_prefix("THP_enabled:")).expect("Linux 5.0 or newer");
        assert_eq!(enabled.trim(), expected);
    }
}
