//! Linux's thread ABI over `heddle-core`: the system calls that threads are made of, emulated at the `syscall`
//! instruction.
//!
//! [`sites`] finds and rewrites the instructions, [`entry`] is the assembly they jump to, [`dispatch`] decides whose a call
//! is; the other modules are the calls. `COMPAT.md` beside this crate has a row per system call.
#![cfg_attr(not(test), no_std)]

extern crate alloc;
#[macro_use]
extern crate heddle_core;

pub mod cpus;
pub mod credentials;
pub mod direct;
pub mod dispatch;
pub mod entry;
pub mod fd;
pub mod futex;
pub mod io;
pub mod kept;
pub mod kernel_locks;
pub mod memory;
pub mod observe;
pub mod poll;
pub mod process;
pub mod report;
pub mod robust;
pub mod scheduling;
pub mod signal;
pub mod sites;
pub mod start;
pub mod stats;
pub mod task_files;
pub mod thread;
pub mod time;
pub mod timer;
pub mod vdso;
pub mod wait;
pub mod words;
