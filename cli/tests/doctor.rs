//! `heddle doctor`, laying down the library, and sandboxes that forbid what Heddle needs.

mod common;

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use common::{HEDDLE, Place, assert_fails, run, skipped, stderr, stdout};

/// The value and remark of a row.
#[track_caller]
fn row(output: &Output, name: &str) -> String {
    let report = stdout(output);
    let line = report.lines().find_map(|line| line.trim_start().strip_prefix(name));
    line.unwrap_or_else(|| panic!("no row '{name}' in:\n{report}\n{}", stderr(output))).trim().to_owned()
}

#[track_caller]
fn works(output: &Output) {
    assert!(output.status.success(), "{}{}", stdout(output), stderr(output));
    assert!(stdout(output).ends_with("\nheddle run works here.\n"));
    assert_eq!(stderr(output), "");
}

#[track_caller]
fn does_not_work(output: &Output, words: &[&str]) {
    assert_eq!(output.status.code(), Some(1), "{}{}", stdout(output), stderr(output));
    let report = stdout(output);
    let last = report.lines().last().unwrap();
    assert!(last.starts_with("heddle run does not work here: "), "{report}");
    for word in words {
        assert!(last.contains(word), "'{word}' is missing in: {last}");
    }
}

#[test]
fn the_report_is_complete() {
    let place = Place::new();
    let output = run(&mut place.heddle(&["doctor"]));
    works(&output);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(row(&output, "kernel "), kernel.trim());
    assert!(row(&output, "FSGSBASE").starts_with("yes"));
    for name in [
        "glibc",
        "system calls",
        "rewriting of code",
        "XSAVE area",
        "io_uring",
        "membarrier",
        "epoll_pwait2",
        "huge pages",
        "vm.overcommit_memory",
        "vm.max_map_count",
        "CPU quota",
        "open files",
        "processes",
        "stack ",
        "address space",
        "stack guards",
        "reactor",
    ] {
        assert!(!row(&output, name).is_empty(), "{name}");
    }
    let guards = row(&output, "stack guards");
    let expected =
        if row(&output, "MADV_GUARD_INSTALL").starts_with("works") { "MADV_GUARD_INSTALL" } else { "mprotect" };
    assert!(guards.starts_with(expected), "{guards}");
}

#[test]
fn workers_follow_the_affinity_mask() {
    let place = Place::new();
    let mut command = Command::new("taskset");
    command.args(["-c", "0", HEDDLE, "doctor"]).env("HEDDLE_CACHE_DIR", place.cache());
    match command.output() {
        Ok(output) => {
            assert!(row(&output, "CPUs").starts_with("1 "));
            assert!(row(&output, "workers").starts_with("1 "));
        }
        Err(_) => skipped("workers_follow_the_affinity_mask", "taskset is missing"),
    }
}

/// The library that `doctor` reports, which must be there.
#[track_caller]
fn library(output: &Output) -> PathBuf {
    works(output);
    let path = PathBuf::from(row(output, "preload library").strip_prefix("usable").unwrap().trim());
    assert!(path.is_file());
    path
}

#[test]
fn the_library_is_laid_down_once() {
    let place = Place::new();
    let first = library(&run(&mut place.heddle(&["doctor"])));
    assert_eq!(first.parent(), Some(&*place.cache()));
    let name = first.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("libheddle-") && name.ends_with(".so") && name.len() == 29, "{name}");
    let found = fs::metadata(&first).unwrap();
    assert_eq!(found.mode() & 0o777, 0o555);
    assert_eq!(library(&run(&mut place.heddle(&["doctor"]))), first);
    assert_eq!(fs::metadata(&first).unwrap().ino(), found.ino());

    // Changed in place, same length, where it is loaded: replaced by a whole one.
    let whole = fs::read(&first).unwrap();
    let mut damaged = whole.clone();
    damaged[70_000] ^= 1;
    fs::set_permissions(&first, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(&first, damaged).unwrap();
    library(&run(&mut place.heddle(&["doctor"])));
    assert!(fs::read(&first).unwrap() == whole);
    assert_eq!(fs::read_dir(place.cache()).unwrap().count(), 1);
}

#[test]
fn many_at_once_lay_down_one_whole_library() {
    let place = Place::new();
    let many: Vec<_> =
        (0..12).map(|_| place.heddle(&["doctor"]).stdout(std::process::Stdio::piped()).spawn().unwrap()).collect();
    for child in many {
        works(&child.wait_with_output().unwrap());
    }
    assert_eq!(fs::read_dir(place.cache()).unwrap().count(), 1);
}

#[test]
fn a_folder_that_is_not_safe_is_refused() {
    let place = Place::new();
    let open = place.path("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let output = run(place.heddle(&["run", "--", "true"]).env("HEDDLE_CACHE_DIR", &open));
    assert_fails(&output, 125, &["open", "written by other users", "HEDDLE_CACHE_DIR"]);
    assert_eq!(fs::read_dir(&open).unwrap().count(), 0);
    let link = place.path("link");
    symlink(place.path(""), &link).unwrap();
    does_not_work(&run(place.heddle(&["doctor"]).env("HEDDLE_CACHE_DIR", &link)), &["link", "HEDDLE_CACHE_DIR"]);
}

#[test]
fn the_next_folder_is_taken() {
    let place = Place::new();
    // /tmp/heddle-<uid> cannot be hidden from the test, except in a mount namespace of its own.
    let script = format!(
        "mount -t tmpfs -o noexec,mode=1777 none /tmp && mkdir -m 700 /tmp/home && \
         XDG_RUNTIME_DIR=/tmp HOME=/tmp/home XDG_CACHE_HOME= {0} doctor > /dev/null; echo status $?; \
         mount -t tmpfs none /tmp/home && XDG_RUNTIME_DIR=/tmp HOME=/tmp/home XDG_CACHE_HOME= {0} doctor",
        "/proc/self/fd/9"
    );
    let script = format!("exec 9<{HEDDLE}; {script}");
    let output = Command::new("unshare").args(["--mount", "--map-root-user", "sh", "-c", &script]).output();
    let output = match output {
        Ok(output) if !stderr(&output).contains("unshare") && !stderr(&output).contains("mount") => output,
        _ => return skipped("the_next_folder_is_taken", "mount namespaces are not allowed here"),
    };
    let report = stdout(&output);
    drop(place);
    assert!(report.starts_with("status 1\n"), "{report}{}", stderr(&output));
    assert!(report.contains("/tmp/home/.cache/heddle/libheddle-"), "{report}");
}

/// Installs a seccomp filter in this (child) process that answers `action` to the system call `number`.
fn deny(number: libc::c_long, action: u32) -> io::Result<()> {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    // Load the call's number; if it is this one, answer `action`; else allow.
    let filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, action),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: plain numbers; it only takes rights away from this process.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `program` and the filter it points to live during the call, and the length is the filter's.
    if unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[test]
fn a_seccomp_filter_that_denies_a_needed_call_is_named() {
    let place = Place::new();
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    for (number, action, word) in [
        (libc::SYS_epoll_create1, refuse, "epoll_create1"),
        (libc::SYS_eventfd2, libc::SECCOMP_RET_KILL_PROCESS, "eventfd2"),
        (libc::SYS_tgkill, refuse, "tgkill"),
    ] {
        for args in [&["run", "--", "true"][..], &["doctor"]] {
            let mut command = place.heddle(args);
            // SAFETY: the closure makes two system calls and touches the stack only.
            unsafe { command.pre_exec(move || deny(number, action)) };
            let output = run(&mut command);
            if args[0] == "run" {
                assert_fails(&output, 125, &["seccomp", word, "--mode kernel"]);
            } else {
                does_not_work(&output, &["seccomp", word]);
            }
        }
    }
}

#[test]
fn a_seccomp_filter_that_denies_nothing_needed_does_no_harm() {
    let place = Place::new();
    let mut command = place.heddle(&["doctor"]);
    // SAFETY: the closure makes two system calls and touches the stack only.
    unsafe { command.pre_exec(|| deny(libc::SYS_acct, libc::SECCOMP_RET_KILL_PROCESS)) };
    works(&run(&mut command));
}

#[test]
fn io_uring_may_be_denied() {
    let place = Place::new();
    let mut command = place.heddle(&["doctor"]);
    // SAFETY: the closure makes two system calls and touches the stack only.
    unsafe { command.pre_exec(|| deny(libc::SYS_io_uring_setup, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32)) };
    let output = run(&mut command);
    works(&output);
    assert!(row(&output, "io_uring").starts_with("no: "), "{}", row(&output, "io_uring"));
}

#[test]
fn a_process_that_may_not_make_code_executable_is_told_so() {
    const PR_SET_MDWE: libc::c_int = 65;
    const PR_MDWE_REFUSE_EXEC_GAIN: libc::c_ulong = 1;
    let place = Place::new();
    for args in [&["run", "--", "true"][..], &["doctor"]] {
        let mut command = place.heddle(args);
        let forbid = || {
            // SAFETY: plain numbers; it only takes rights away from this process.
            match unsafe { libc::prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // SAFETY: the closure makes one system call.
        unsafe { command.pre_exec(forbid) };
        let output = match command.output() {
            Ok(output) => output,
            Err(_) => return skipped("a_process_that_may_not_make_code_executable", "PR_SET_MDWE needs Linux 6.3"),
        };
        if args[0] == "run" {
            assert_fails(&output, 125, &["may not change code"]);
        } else {
            does_not_work(&output, &["may not change code"]);
        }
    }
}

#[test]
fn a_full_disk_is_a_failure_and_not_a_panic() {
    let place = Place::new();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = run(place.heddle(&["doctor"]).stdout(full));
    assert_fails(&output, 125, &["cannot write to stdout"]);
}
