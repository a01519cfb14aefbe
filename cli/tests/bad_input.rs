//! Bad input: one clear line on stderr, the exit status of `env(1)`, and the program not started.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use common::{Place, assert_fails, copy_program, has_tool, run, skipped, text};

/// Where the ELF header keeps what, and the two segment kinds that matter.
const CLASS: usize = 4;
const KIND: usize = 16;
const MACHINE: usize = 18;
const PROGRAM_HEADERS: usize = 32;
const SEGMENT: usize = 56;
const INTERPRETER: u32 = 3;

/// Offset of the program header of this type.
fn segment(image: &[u8], kind: u32) -> usize {
    let table = u64::from_le_bytes(image[PROGRAM_HEADERS..][..8].try_into().unwrap()) as usize;
    let count = u16::from_le_bytes(image[56..58].try_into().unwrap()) as usize;
    (0..count).map(|i| table + i * SEGMENT).find(|&at| image[at..][..4] == kind.to_le_bytes()).unwrap()
}

/// Turns the header that names the loader into one that means nothing.
fn without_loader(image: &mut [u8]) {
    let at = segment(image, INTERPRETER);
    image[at..][..4].fill(0);
}

fn with_loader(image: &mut [u8], loader: &str) {
    let at = segment(image, INTERPRETER);
    let offset = u64::from_le_bytes(image[at + 8..][..8].try_into().unwrap()) as usize;
    let size = u64::from_le_bytes(image[at + 32..][..8].try_into().unwrap()) as usize;
    assert!(loader.len() < size);
    image[offset..][..size].fill(0);
    image[offset..][..loader.len()].copy_from_slice(loader.as_bytes());
}

#[track_caller]
fn refused(place: &Place, program: &str, words: &[&str]) {
    assert_fails(&run(&mut place.heddle(&["run", "--", program])), 126, words);
}

#[test]
fn command_line() {
    let place = Place::new();
    let fails = |args: &[&str], words: &[&str]| assert_fails(&run(&mut place.heddle(args)), 125, words);
    fails(&[], &["no command", "--help"]);
    fails(&["walk"], &["walk", "--help"]);
    fails(&["--bogus"], &["--bogus"]);
    fails(&["run"], &["no program", "heddle run --help"]);
    fails(&["run", "--"], &["no program"]);
    fails(&["run", "--bogus", "--", "true"], &["--bogus", "heddle run --help"]);
    fails(&["run", "--wrokers", "3", "true"], &["--wrokers"]);
    fails(&["run", "--mode", "fibre", "--", "true"], &["fibre", "user", "kernel"]);
    fails(&["run", "--mode"], &["--mode"]);
    fails(&["doctor", "now"], &["now"]);
    fails(&["demo", "--fast"], &["--fast"]);
    for number in ["0", "1025", "-1", "two", "", "99999999999999999999"] {
        fails(&["run", &format!("--workers={number}"), "--", "true"], &["--workers", number]);
    }
    for number in ["0", "10001", "1.5"] {
        fails(&["run", &format!("--slice={number}"), "--", "true"], &["--slice", number]);
    }
}

#[test]
fn settings_in_the_environment_are_checked_too() {
    let place = Place::new();
    assert_fails(&run(place.heddle(&["run", "--", "true"]).env("HEDDLE_WORKERS", "many")), 125, &["--workers", "many"]);
    assert_fails(
        &run(&mut place.heddle(&["run", "--workers", "x", "--", "true"])),
        125,
        &["--workers", "not a whole number"],
    );
    assert_fails(&run(place.heddle(&["run", "--", "true"]).env("HEDDLE_SLICE_MS", "0")), 125, &["--slice"]);
}

#[test]
fn help_and_version_are_no_failures() {
    let place = Place::new();
    for args in [&["--help"][..], &["run", "--help"], &["--version"]] {
        let output = run(&mut place.heddle(args));
        assert!(output.status.success() && output.stderr.is_empty());
        assert!(common::stdout(&output).contains("heddle"));
    }
}

#[test]
fn a_program_that_is_not_there() {
    let place = Place::new();
    let missing = |program: &str, words: &[&str]| {
        for mode in ["user", "kernel"] {
            assert_fails(&run(&mut place.heddle(&["run", "--mode", mode, "--", program])), 127, words);
        }
    };
    missing("heddle-no-such-program", &["heddle-no-such-program", "PATH"]);
    missing("/no/such/program", &["/no/such/program", "no such file"]);
    missing("/bin/true/program", &["/bin/true/program"]);
    missing("", &["empty"]);
    missing("two\nlines", &["two?lines"]);
    let program = ["run", "--", "true"];
    assert_fails(&run(place.heddle(&program).env("PATH", "")), 127, &["PATH"]);
    let broken = place.path("broken");
    symlink("/no/such/program", &broken).unwrap();
    missing(text(&broken), &["no such file"]);
}

#[test]
fn something_that_cannot_be_executed() {
    let place = Place::new();
    let plain = place.file("plain", b"#!/bin/sh\n", 0o644);
    let pipe = place.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for mode in ["user", "kernel"] {
        let fails = |program: &str, words: &[&str]| {
            assert_fails(&run(&mut place.heddle(&["run", "--mode", mode, "--", program])), 126, words);
        };
        fails("/tmp", &["/tmp", "directory"]);
        fails(text(&plain), &["plain", "permission denied"]);
        fails(text(&pipe), &["not a regular file"]);
        // Found in PATH, but not executable: said so, unless a later folder has one that is.
        let name = ["run", "--mode", mode, "--", "plain"];
        assert_fails(&run(place.heddle(&name).env("PATH", place.path(""))), 126, &["plain", "permission denied"]);
    }
    let true_too = place.file("true", b"", 0o644);
    let path = format!("{}:/bin", text(true_too.parent().unwrap()));
    assert!(run(place.heddle(&["run", "--mode", "kernel", "true"]).env("PATH", path)).status.success());
}

#[test]
fn something_that_is_no_program() {
    let place = Place::new();
    for (name, contents) in
        [("empty", &b""[..]), ("words", b"just words\n"), ("nobody", b"#!\n"), ("short", b"\x7fELF")]
    {
        let path = place.file(name, contents, 0o755);
        refused(&place, text(&path), &[name]);
        assert_fails(&run(&mut place.heddle(&["run", "--mode", "kernel", text(&path)])), 126, &[name]);
    }
    let cut = place.program("cut", |image| image.truncate(100));
    refused(&place, text(&cut), &["damaged"]);
    let object = place.program("object", |image| image[KIND] = 1);
    refused(&place, text(&object), &["not a program"]);
}

#[test]
fn a_program_for_something_else() {
    let place = Place::new();
    let narrow = place.program("narrow", |image| {
        image[CLASS] = 1;
        image[MACHINE] = 3;
    });
    refused(&place, text(&narrow), &["32-bit", "without heddle"]);
    let foreign = place.program("foreign", |image| image[MACHINE] = 183);
    refused(&place, text(&foreign), &["aarch64", "without heddle"]);
    let unknown = place.program("unknown", |image| image[MACHINE] = 0xee);
    refused(&place, text(&unknown), &["machine 238"]);
    let musl = place.program("musl", |image| with_loader(image, "/lib/ld-musl-x86_64.so.1"));
    refused(&place, text(&musl), &["ld-musl", "no such file"]);
    let loader = place.file("ld-musl-x.so", b"", 0o755);
    let link = place.path("l");
    symlink(&loader, &link).unwrap();
    if text(&link).len() < "/lib64/ld-linux-x86-64.so.2".len() {
        let musl = place.program("musl", |image| with_loader(image, text(&link)));
        refused(&place, text(&musl), &["linked against musl"]);
    } else {
        panic!("{} is too long to stand in for a loader's name", link.display());
    }
}

#[test]
fn a_static_program() {
    let place = Place::new();
    let fixed = place.program("fixed", |image| {
        without_loader(image);
        image[KIND] = 2;
    });
    refused(&place, text(&fixed), &["statically linked", "--mode kernel"]);
    let pie = place.program("pie", |image| without_loader(image));
    refused(&place, text(&pie), &["static-pie", "--mode kernel"]);
    let library = fs::canonicalize("/lib64/ld-linux-x86-64.so.2").unwrap();
    refused(&place, text(&library), &["shared library"]);
}

#[test]
fn a_privileged_program() {
    let place = Place::new();
    for (mode, word) in [(0o4755, "setuid"), (0o2755, "setgid")] {
        let path = place.program(word, |_| ());
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        refused(&place, text(&path), &[word, "without heddle"]);
    }
    let able = place.program("able", |_| ());
    let set = Command::new("setcap").arg("cap_net_raw+ep").arg(&able).output();
    if set.is_ok_and(|output| output.status.success()) {
        refused(&place, text(&able), &["capabilities", "without heddle"]);
    } else {
        skipped("a_privileged_program", "setcap is missing or not allowed, so file capabilities are not tested");
    }
}

#[test]
fn a_program_that_cannot_be_read() {
    let place = Place::new();
    let program = place.program("secret", |_| ());
    fs::set_permissions(&program, fs::Permissions::from_mode(0o111)).unwrap();
    let output = if fs::read(&program).is_err() {
        run(&mut place.heddle(&["run", text(&program)]))
    } else if has_tool("setpriv") {
        // Root reads everything: ask as nobody, from a copy of heddle that nobody can reach.
        fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        let heddle = place.path("heddle");
        copy_program(Path::new(common::HEDDLE), &heddle, 0o755);
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", text(&heddle), "run", text(&program)]);
        run(&mut command)
    } else {
        return skipped("a_program_that_cannot_be_read", "this user reads everything and setpriv is missing");
    };
    assert_fails(&output, 126, &["not read", "without heddle"]);
}

#[test]
fn a_script_stands_for_its_interpreter() {
    let place = Place::new();
    let lost = place.file("lost", b"#!/no/such/shell -e\n", 0o755);
    assert_fails(&run(&mut place.heddle(&["run", text(&lost)])), 127, &["lost", "/no/such/shell", "no such file"]);
    let folder = place.file("folder", b"#!/tmp\n", 0o755);
    refused(&place, text(&folder), &["folder", "/tmp", "directory"]);
    let narrow = place.program("narrow", |image| image[CLASS] = 1);
    let outer = place.file("outer", format!("#!{}\n", text(&narrow)).as_bytes(), 0o755);
    refused(&place, text(&outer), &["narrow", "interpreter of", "outer", "32-bit"]);
    let around = place.path("around");
    let around = place.file("around", format!("#!{}\n", text(&around)).as_bytes(), 0o755);
    refused(&place, text(&around), &["around", "scripts"]);
}

#[test]
fn too_few_descriptors() {
    let place = Place::new();
    let limited = format!("ulimit -n 64; exec {} run --workers 32 -- true", common::HEDDLE);
    let output = run(Command::new("sh").args(["-c", &limited]).env("HEDDLE_CACHE_DIR", place.cache()));
    assert_fails(&output, 125, &["open files", "ulimit -n"]);
}
