//! The C interface of the library: what `heddle.h` declares.
//!
//! The header is made from the comments and declarations in here (`tests/header.rs`). Everything rests on the public
//! interface of the crate `heddle`, which is called `runtime` in this crate.
//!
//! # Safety
//! Callers are C: what they pass is what the header asks for. What can be found out about it is checked first, and
//! answered by an error: null and misaligned pointers, threads that are not there, locks that the caller does not
//! hold.
#![allow(non_camel_case_types)] // C's names

mod call;
mod channel;
mod error;
mod fiber;
mod fork;
mod handles;
mod limit;
mod observe;
mod process;
mod start;
mod sync;
mod thread;
mod threads;
mod waits;

pub use channel::*;
pub use error::*;
pub use fiber::*;
pub use fork::*;
pub use limit::*;
pub use observe::*;
pub use process::*;
pub use start::*;
pub use sync::*;
pub use thread::*;
pub use waits::*;
