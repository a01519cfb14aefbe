//! Sites: the `syscall` instructions of loaded objects, found and replaced by jumps into the runtime.
//!
//! Every executable mapping of an ELF object is searched for `syscall` instructions (`find.rs`); each is replaced,
//! together with neighbouring instructions that make room for it, by a 5-byte jump to a stub (`stub.rs`). The stub runs
//! the displaced instructions and enters the runtime with rcx naming the site; rcx and r11 are free, since the system
//! call would have clobbered them. What can't be rewritten safely stays a real system call, and is counted.
//!
//! Prior art: syscall_intercept (windows of relocated instructions around the site), zpoline and lazypoline
//! (two-byte calls to page zero). Page zero needs privileges that an unmodified system doesn't give; a five-byte jump
//! needs none, at the price of a disassembler.
//!
//! # Protocol
//! 1. Find all sites of a mapping and choose their windows; nothing is changed. A text whose sites are known is made writable
//!    (and not executable) for it: the pages that they are on are copied, and looked at in the copies.
//! 2. Write their stubs to fresh memory, which then becomes executable. A system that refuses that is noticed here.
//! 3. Make the text writable (and not executable) unless it is, write the jumps, restore its protection. Where the system refuses
//!    that, the unchanged file is mapped in its place.
//!
//! A mapping's code does not run between the start of 1 and the end of 3: at start-up there is one thread and it is in this
//! library; later, the loader hands over a mapping before it uses it.
//!
//! # Safety
//! This module reads and writes the text of other objects by address. Its entry points say what their callers vouch
//! for; within, `/proc/self/maps` and the ELF headers decide what is touched.

mod decode;
mod elf;
mod file;
mod find;
mod known;
mod maps;
mod registry;
mod rewrite;
mod stub;
mod usual;

#[cfg(test)]
mod cases;
#[cfg(test)]
mod tests;

pub use find::{Found, Site};
pub(crate) use maps::Maps;
pub use registry::{Hold, for_each_report, forget, hold, hold_for_fork, let_go_after_fork, moving};
pub use rewrite::{rewrite_all, rewrite_mapping, survey, survey_file};
pub use stub::{DONE, RAW_PLAIN, RAW_POST, original_pc, site_end};

/// The runtime's entry points, as stubs reach them. All are entered by a jump with the program's registers and stack;
/// rcx holds an address of the site (see `stub.rs`), and only rcx and r11 may be used before something is saved.
#[derive(Clone, Copy, Debug)]
pub struct Entries {
    /// A system call of a function that uses xmm0-15 at most; rcx = the site's continuation.
    pub syscall: usize,
    /// A system call in code that may hold values anywhere in the extended state; rcx = the site's continuation.
    pub syscall_full: usize,
    /// After the real system call at `RAW_POST`; rcx = the site's continuation + [`DONE`].
    pub post: usize,
}

/// Why nothing was rewritten. The numbers are errno values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// `/proc/self/maps` can't be read.
    ReadMaps(i32),
    /// No memory for stubs within 2 GiB of an object.
    NoStubMemory(i32),
    /// The system refuses to make changed code executable (SELinux, `PR_SET_MDWE`, seccomp).
    Protect(i32),
    /// There is Go code, whose goroutines run on stacks of a few KiB: the kernel uses no stack of theirs for a system call
    /// or for taking the CPU away, and we would.
    /// The name of the file, which ends in a zero.
    Go([u8; 48]),
}

/// What is wrong with an object that has Go code in it.
pub const GO: &str = "holds Go code, whose goroutines' stacks are too small for Heddle's part of a system call";
