//! Builds the demo's two programs, which the `heddle` binary carries inside itself.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

/// The only target: the runtime's assembly and glibc's ABI are x86-64 Linux.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Prints the one line that says why the build cannot go on, and ends it.
fn fail(why: &str) -> ! {
    eprintln!("heddle's build script: {why}");
    exit(1);
}

fn var(name: &str) -> OsString {
    env::var_os(name).unwrap_or_else(|| fail(&format!("cargo did not set {name}")))
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=demo");
    let out = PathBuf::from(var("OUT_DIR"));
    let here = PathBuf::from(var("CARGO_MANIFEST_DIR"));

    for (key, name) in [("ECHO_SERVER", "echo_server"), ("THREADS", "threads")] {
        let file = build_demo(&here, &out, name);
        let bytes = fs::read(&file).unwrap_or_else(|e| fail(&format!("cannot read {}: {e}", file.display())));
        println!("cargo::rustc-env=HEDDLE_{key}_FILE={}", file.display());
        println!("cargo::rustc-env=HEDDLE_{key}_HASH={:016x}", fnv1a(&bytes));
    }
}

/// Compiles one demo program, as anybody would compile it: plain Rust, std, optimised.
fn build_demo(here: &Path, out: &Path, name: &str) -> PathBuf {
    let program = out.join(name);
    let mut rustc = Command::new(var("RUSTC"));
    rustc
        .args(["--edition", "2024", "-O", "-C", "strip=symbols", "--target", TARGET, "--crate-name", name, "-o"])
        .arg(&program)
        .arg(here.join("demo").join(name).with_extension("rs"));
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut option = OsString::from("linker=");
        option.push(linker);
        rustc.arg("-C").arg(option);
    }
    let status = rustc.status().unwrap_or_else(|e| fail(&format!("cannot run rustc: {e}")));
    if !status.success() {
        fail(&format!("the demo program {name} did not compile (rustc's messages are above)"));
    }
    program
}

/// The 64-bit FNV-1a hash: names a file by what is in it.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
