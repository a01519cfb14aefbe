//! Builds what the `heddle` binary carries inside itself: the demo's two programs, and for `heddle sharing` the detector's
//! library and the object that is linked in the sanitizer's place.
//!
//! Packaging: this script reads `../sharing`; see also the one in `../image`.

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

    let sources = here.join("../sharing/src");
    if !sources.exists() {
        fail(&format!("{} is missing: build from the whole source tree", sources.display()));
    }
    println!("cargo::rerun-if-changed={}", sources.display());
    let library = build_sharing(&sources, &out);
    let stub = build_stub(&sources, &out);
    println!("cargo::rustc-env=HEDDLE_SHARING_FILE={}", library.display());
    println!("cargo::rustc-env=HEDDLE_STUB_FILE={}", stub.display());
    let read = |file| fs::read(file).unwrap_or_else(|e| fail(&format!("cannot read what was built: {e}")));
    let both = [read(library), read(stub)].concat();
    println!("cargo::rustc-env=HEDDLE_SHARING_HASH={:016x}", fnv1a(&both));
}

/// The detector's library: the sources of the crate `heddle-sharing`, as a `cdylib` whose functions are exported. Without
/// std, and by rustc alone, so that no flags of the user's reach what runs inside other people's allocators.
fn build_sharing(sources: &Path, out: &Path) -> PathBuf {
    let library = out.join("libheddle_sharing.so");
    let mut rustc = Command::new(var("RUSTC"));
    rustc
        .args(["--edition", "2024", "--crate-name", "heddle_sharing", "--crate-type", "cdylib", "--target", TARGET])
        .args([
            "-O",
            "-C",
            "panic=abort",
            "-C",
            "codegen-units=1",
            "-C",
            "lto=fat",
            "-C",
            "strip=symbols",
            "--cfg",
            "feature=\"export\"",
        ])
        .args(["-C", "link-arg=-Wl,-z,defs", "-C", "link-arg=-Wl,-z,now", "-C", "link-arg=-Wl,-z,nodelete", "-o"])
        .arg(&library)
        .arg(sources.join("lib.rs"));
    compile(rustc, "the sharing detector");
    library
}

/// The object file with the functions that instrumented code calls.
fn build_stub(sources: &Path, out: &Path) -> PathBuf {
    let object = out.join("heddle-sharing-stub.o");
    let mut rustc = Command::new(var("RUSTC"));
    rustc
        .args(["--edition", "2024", "--crate-name", "stub", "--crate-type", "lib", "--emit", "obj", "--target", TARGET])
        .args(["-C", "panic=abort", "-o"])
        .arg(&object)
        .arg(sources.join("stub.rs"));
    compile(rustc, "the sharing detector's stub");
    object
}

/// Compiles one demo program, as anybody would compile it: plain Rust, std, optimised.
fn build_demo(here: &Path, out: &Path, name: &str) -> PathBuf {
    let program = out.join(name);
    let mut rustc = Command::new(var("RUSTC"));
    rustc
        .args(["--edition", "2024", "-O", "-C", "strip=symbols", "--target", TARGET, "--crate-name", name, "-o"])
        .arg(&program)
        .arg(here.join("demo").join(name).with_extension("rs"));
    compile(rustc, &format!("the demo program {name}"));
    program
}

/// Runs the compiler, with the linker that cargo was told to use.
fn compile(mut rustc: Command, what: &str) {
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut option = OsString::from("linker=");
        option.push(linker);
        rustc.arg("-C").arg(option);
    }
    let status = rustc.status().unwrap_or_else(|e| fail(&format!("cannot run rustc: {e}")));
    if !status.success() {
        fail(&format!("{what} did not compile (rustc's messages are above)"));
    }
}

/// The 64-bit FNV-1a hash: names a file by what is in it.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
