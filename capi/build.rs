//! The shared library's own name, as `install.sh` and cargo-c give it: a program needs the same minor version, as long as
//! the major one is 0.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libheddle.so.0.1");
}
