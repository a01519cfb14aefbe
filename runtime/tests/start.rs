//! Starting where user threads are not to be had: the test harness has threads of its own.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use heddle::{Mode, Options, StartError};

/// Set for a process of [`again`].
const PRELOADED: &str = "HEDDLE_TEST_PRELOADED";

/// Runs the test of this name alone in a process of its own, with a C library preloaded.
fn again(test: &str, preloaded: &str) {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}", std::process::id()));
    fs::create_dir_all(&place).expect("a folder");
    let (source, library) = (place.join("preloaded.c"), place.join("preloaded.so"));
    fs::write(&source, preloaded).expect("a file");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(compiled.expect("a C compiler").success());
    let here = env::current_exe().expect("our own path");
    let output = Command::new(here)
        .args(["--exact", test])
        .env("LD_PRELOAD", &library)
        .env(PRELOADED, "1")
        .output()
        .expect("a child");
    fs::remove_dir_all(&place).expect("our own folder");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_runtime_of_another_version_is_refused() {
    if env::var_os(PRELOADED).is_none() {
        let table = "static unsigned long table[40] = {1}; void *heddle_image_calls(void) { return table; }";
        return again("a_runtime_of_another_version_is_refused", table);
    }
    let refused = heddle::start(Options::new().mode(Mode::User)).unwrap_err();
    assert!(matches!(refused, StartError::Refused(_)) && refused.to_string().contains("version"), "{refused}");
    assert_eq!(heddle::start(Options::new().mode(Mode::Kernel)), Ok(()));
    assert_eq!(heddle::spawn(heddle::current_mode).join().unwrap(), Mode::Kernel);
}

/// Without a `start` that could answer the error, a mistake in the environment once took the user threads and all workers but one
/// away, and nothing was said.
#[test]
fn a_mistake_in_the_environment_is_told_and_ignored() {
    const MISTAKEN: &str = "HEDDLE_TEST_MISTAKEN";
    if env::var_os(MISTAKEN).is_some() {
        let usable = std::thread::available_parallelism().expect("a number").get();
        assert_eq!(heddle::workers(), usable);
        return;
    }
    for (name, value, expected) in [
        ("HEDDLE_WORKERS", "0", "HEDDLE_WORKERS=0: it must be 1 to 1024; it is ignored"),
        ("HEDDLE_WORKERS", "many", "HEDDLE_WORKERS=many: it must be 1 to 1024; it is ignored"),
        ("HEDDLE_MODE", "users", "HEDDLE_MODE=users: it must be user, kernel or process; it is ignored"),
    ] {
        let output = Command::new(env::current_exe().expect("our own path"))
            .args(["--exact", "--nocapture", "a_mistake_in_the_environment_is_told_and_ignored"])
            .envs([(MISTAKEN, "1"), (name, value)])
            .output()
            .expect("a child");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert_eq!(said.trim(), format!("heddle: {expected}"));
    }
}

#[test]
fn what_cannot_be_is_said_and_kernel_threads_do() {
    assert_eq!(heddle::start(Options::new().workers(0)), Err(StartError::Workers(0)));
    assert_eq!(heddle::start(Options::new().workers(1025)), Err(StartError::Workers(1025)));
    assert_eq!(heddle::start(Options::new().slice_ms(10_001)), Err(StartError::Slice(10_001)));
    assert_eq!(heddle::start(Options::new().helper_stack(100)), Err(StartError::Stack(100)));
    let refused = heddle::start(Options::new().mode(Mode::User).workers(2));
    assert!(matches!(refused, Err(StartError::OtherThreads(n)) if n > 1), "{refused:?}");
    assert!(refused.unwrap_err().to_string().contains("threads"));

    // A start that was refused is none.
    assert_eq!(heddle::start(Options::new().mode(Mode::Kernel).workers(3)), Ok(()));
    assert_eq!(heddle::start(Options::new()), Err(StartError::AlreadyStarted));
    assert_eq!((heddle::mode(), heddle::workers()), (Mode::Kernel, 3));
    let (a, b) = heddle::join(|| 1, || heddle::spawn(|| 2).join().unwrap());
    assert_eq!(a + b, 3);
}
