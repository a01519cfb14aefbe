//! Fork-join: [`join()`], [`scope()`], loops.
//!
//! A fork is an entry in the forking thread's [`lane`](lane::Lane); [`pool`] has the threads that take from the lanes of
//! others. `docs/design/008-fork-join.md` says what else was tried.

mod job;
mod lane;
#[cfg(all(loom, test))]
mod models;
mod queue;
mod room;

#[cfg(not(loom))]
mod join;
#[cfg(not(loom))]
mod loops;
#[cfg(not(loom))]
mod pool;
#[cfg(not(loom))]
mod scope;

#[cfg(not(loom))]
pub use join::join;
#[cfg(not(loom))]
pub use lane::Lane;
#[cfg(not(loom))]
pub use loops::{Chunks, ChunksMut, Parallel, chunks, chunks_mut, for_each, map_reduce};
#[cfg(not(loom))]
pub use pool::{attach, counters};
#[cfg(not(loom))]
pub use scope::{Scope, scope};
