//! The C entry point, in place of the one that Rust's std brings.
//!
//! `heddle run` becomes the program, and the program must find its process as heddle found it. Std's entry point changes
//! it before our first line runs: it ignores SIGPIPE, opens /dev/null on closed standard descriptors and installs handlers
//! for stack overflow. So this binary has its own.
//!
//! # Safety
//!
//! The one unsafe thing is the exported name `main`, which the C start files call once with the program's arguments. The
//! arguments are not used: on glibc, `std::env::args` gets them by itself.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};

// SAFETY: no other item of this program is called `main`, and it has the signature that C's start files call.
#[unsafe(no_mangle)]
extern "C" fn main(_argc: c_int, _argv: *const *const c_char) -> c_int {
    c_int::from(crate::heddle())
}
