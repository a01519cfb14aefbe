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
//! - [`fiber`]: threads without thread-locals of their own, made and joined in tens of nanoseconds; `unsafe`.
//! - [`sync`]: locks and their kin.
//! - [`threads`], [`counters`]: what the threads of this process do.
//! - [`cancel`]: deadlines and cancel tokens for everything that waits.
//! - [`channel`]: values moved from thread to thread, and waiting for several channels at once.
//! - [`agent`]: states that one thread each has, here or in a worker process, and messages to them.
//! - [`mailbox`]: messages of any length in a ring of so many bytes.
//! - [`pool`]: objects whose memory goes back to the thread that made them.
//! - [`shard`]: data that threads must not share by accident.
//! - [`task()`], [`process`]: tasks in worker processes, and memory that these share.

#[cfg(not(loom))]
pub mod agent;
#[cfg(all(test, loom))]
#[path = "agent/answer.rs"]
mod agent_answer;
#[cfg(all(test, loom))]
#[path = "agent/left.rs"]
mod agent_left;
#[cfg(not(loom))]
mod barrier;
pub mod cancel;
#[cfg(not(loom))]
mod carried;
pub mod channel;
#[cfg(not(loom))]
pub mod fiber;
#[cfg(all(test, loom))]
#[path = "fiber/models.rs"]
mod fiber_models;
mod fork;
mod futex;
#[cfg(not(loom))]
mod image;
#[cfg(not(loom))]
mod kept;
pub mod mailbox;
#[cfg(not(loom))]
mod observe;
pub mod pool;
mod prim;
pub mod process;
pub mod shard;
mod spin;
#[cfg(not(loom))]
mod start;
pub mod sync;
#[cfg(not(loom))]
mod thread;

#[cfg(not(loom))]
pub use cancel::{park_until, sleep_until};
#[cfg(not(loom))]
pub use fork::{Chunks, ChunksMut, Parallel, Scope, chunks, chunks_mut, for_each, join, map_reduce, scope};
#[cfg(not(loom))]
pub use observe::{Counters, SchedulerCounters, ThreadInfo, ThreadState, WaitsFor, counters, threads};
#[cfg(not(loom))]
pub use process::{task, task_on};
#[cfg(not(loom))]
pub use start::{Mode, Options, StartError, current_mode, mode, start, workers};
#[cfg(not(loom))]
pub use thread::{
    Builder, JoinHandle, Priority, SpawnError, Thread, ThreadId, current, park, park_timeout, sleep, spawn, yield_now,
};
