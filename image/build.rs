//! Builds what programs load: the preload library, a `cdylib` without libc, by a nested cargo with its own profile and its
//! own flags: a user's `RUSTFLAGS` (say `-C target-cpu=native`) must not reach it, because its code runs where vector
//! registers belong to somebody else.
//!
//! Packaging: this script reads `../preload`, `../abi`, `../interface`, `../core` and the workspace's `Cargo.toml` and `Cargo.lock`. `cargo
//! install --path cli` and `cargo install --git` have them. A package made by `cargo package` holds only this folder: a
//! packager has to ship the whole workspace (or lay those folders beside this one) and build from there.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

/// The only target: the runtime's assembly and glibc's ABI are x86-64 Linux.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Folders (beside this crate's) and files whose change means a new preload library.
const PRELOAD_SOURCES: [&str; 6] =
    ["../core", "../interface", "../abi", "../preload", "../Cargo.toml", "../Cargo.lock"];

/// Arguments for the linker that makes the preload library.
const PRELOAD_LINK_ARGS: [&str; 7] = [
    // No C start files and no libc: the library must not call into either.
    "-nostartfiles",
    "-nodefaultlibs",
    // The constructor runs before every other library's (they may start threads in theirs).
    "-Wl,-z,initfirst",
    // Never unmapped: rewritten code all over the program jumps into it.
    "-Wl,-z,nodelete",
    // Bound at load: the lazy resolver would run in the middle of somebody's system call.
    "-Wl,-z,now",
    // An undefined symbol (`memcpy` above all) would be bound to libc: refuse to link.
    "-Wl,-z,defs",
    "-Wl,--build-id",
];

/// Prints the one line that says why the build cannot go on, and ends it.
fn fail(why: &str) -> ! {
    eprintln!("heddle-image's build script: {why}");
    exit(1);
}

fn var(name: &str) -> OsString {
    env::var_os(name).unwrap_or_else(|| fail(&format!("cargo did not set {name}")))
}

/// What in the library says who loaded it; see `preload/src/lib.rs`.
const MARK: &[u8] = b"heddle: preloaded";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = var("TARGET");
    if target != TARGET {
        fail(&format!("Heddle runs on {TARGET} only, not on {}", target.display()));
    }
    let out = PathBuf::from(var("OUT_DIR"));
    let here = PathBuf::from(var("CARGO_MANIFEST_DIR"));
    let library = build_preload(&here, &out);
    let bytes = fs::read(&library).unwrap_or_else(|e| fail(&format!("cannot read {}: {e}", library.display())));
    let marks: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(MARK)).collect();
    let [mark] = marks[..] else { fail(&format!("{} marks in the preload library instead of one", marks.len())) };
    println!("cargo::rustc-env=HEDDLE_PRELOAD_FILE={}", library.display());
    println!("cargo::rustc-env=HEDDLE_PRELOAD_HASH={:016x}", fnv1a(&bytes));
    fs::write(out.join("mark"), mark.to_string()).unwrap_or_else(|e| fail(&format!("cannot write: {e}")));
}

/// Builds the preload library and answers where it lies.
fn build_preload(here: &Path, out: &Path) -> PathBuf {
    for source in PRELOAD_SOURCES {
        let path = here.join(source);
        if !path.exists() {
            fail(&format!("{} is missing: build from the whole source tree", path.display()));
        }
        println!("cargo::rerun-if-changed={}", path.display());
    }

    let mut cargo = Command::new(var("CARGO"));
    cargo
        .args(["rustc", "--locked", "--profile", "preload", "--crate-type", "cdylib", "--target", TARGET])
        .arg("--manifest-path")
        .arg(here.join("../preload/Cargo.toml"))
        .arg("--target-dir")
        .arg(out.join("preload-target"))
        .arg("--");
    for arg in PRELOAD_LINK_ARGS {
        cargo.args(["-C", &format!("link-arg={arg}")]);
    }
    // What a user or a wrapping tool (clippy) set for this build is not for that one. An encoded flag list that is
    // present outranks every other source of flags, cargo's configuration files included.
    cargo.env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-cpu=x86-64");
    cargo.env("RUSTC_WRAPPER", "").env("RUSTC_WORKSPACE_WRAPPER", "");
    let foreign = ["RUSTFLAGS", "CARGO_TARGET_DIR", "CARGO_BUILD_TARGET", "CLIPPY_ARGS", "CLIPPY_CONF_DIR"];
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if foreign.contains(&&*text) || text.starts_with("CARGO_PROFILE_") || text.starts_with("CARGO_BUILD_") {
            cargo.env_remove(&name);
        }
    }

    let status = cargo.status().unwrap_or_else(|e| fail(&format!("cannot run cargo: {e}")));
    if !status.success() {
        fail("the preload library did not build (cargo's messages are above)");
    }
    let built = out.join("preload-target").join(TARGET).join("preload/libheddle_preload.so");
    let kept = out.join("libheddle.so");
    fs::copy(&built, &kept).unwrap_or_else(|e| fail(&format!("cannot copy {}: {e}", built.display())));
    kept
}

/// The 64-bit FNV-1a hash: names a file by what is in it.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
