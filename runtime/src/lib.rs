//! Fork-join, threads and locks on user threads.
//!
//! ```
//! let (a, b) = heddle::join(|| 1 + 1, || 2 + 2);
//! assert_eq!((a, b), (2, 4));
//!
//! let thread = heddle::spawn(|| heddle::sleep(std::time::Duration::from_millis(1)));
//! thread.join().unwrap();
//! ```
//!
//! Heddle runs threads on a few kernel threads, its workers. When it starts ([`start()`], or the first use of what needs it)
//! it rewrites the `syscall` instructions of the libraries in the process, so that a thread that waits, in whatever library,
//! leaves its worker to others. [`spawn`] is safe because each thread keeps its own libc identity: it is a thread of `std`
//! in every respect.
//!
//! Where user threads are not to be had (the process has made threads already, the system forbids changing code) everything
//! here works on kernel threads; [`mode`] tells. Under `heddle run` they are there from the beginning.
//!
//! - [`join()`], [`scope()`], [`for_each`], [`map_reduce`]: fork-join. Nothing is allocated and no stack is switched unless
//!   another thread has time; a thread that waits runs nothing else on its stack.
//! - [`spawn`], [`Builder`]: threads, on user or kernel threads.
//! - [`sync`]: locks and their kin.
#![cfg_attr(loom, allow(dead_code))] // models use a part

#[cfg(not(loom))]
mod barrier;
mod fork;
mod futex;
#[cfg(not(loom))]
mod image;
mod prim;
#[cfg(not(loom))]
mod start;
#[cfg(not(loom))]
pub mod sync;
#[cfg(not(loom))]
mod thread;

#[cfg(not(loom))]
pub use fork::{
    Chunks, ChunksMut, Counters, Parallel, Scope, chunks, chunks_mut, counters, for_each, join, map_reduce, scope,
};
#[cfg(not(loom))]
pub use start::{Mode, Options, StartError, current_mode, mode, start, workers};
#[cfg(not(loom))]
pub use thread::{Builder, JoinHandle, SpawnError, Thread, current, park, park_timeout, sleep, spawn, yield_now};
