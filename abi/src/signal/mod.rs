//! Signals of user threads.
//!
//! The kernel knows only workers, so masks, pending sets, alternate stacks and thread-directed signals are kept here. For
//! each signal with a handler (or blocked by a thread) the kernel's handler is ours. It runs on the worker's own signal
//! stack and never calls the program: it records the signal, and either the thread is in the core, which looks before it
//! leaves, or the handler changes the interrupted registers so that the thread goes on in [`mod@deliver`], on its own stack,
//! as ordinary code that may park and migrate.
//!
//! The program's handler gets a true `ucontext` of the interrupted code in a frame that unwinders recognise (the return
//! address is a copy of `__restore_rt`'s instructions), so that cancellation unwinds through it.

pub mod actions;
pub mod calls;
pub mod context;
pub mod deliver;
pub mod kernel;
pub mod masks;
pub mod pending;
pub mod remote;

pub use deliver::{deliver, leave_core};
pub use pending::deliverable;

/// Bit of a signal in a mask.
pub const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// The kernel-level signal that makes a worker look up: to preempt its thread or to deliver a signal to it. glibc keeps
/// this number for its setuid broadcast and lets no program block or use it; ours arrive by `tgkill` to workers, or queued by another process (`remote`).
pub const KICK: u32 = 33;
