//! Data that threads must not share by accident: values on lines of their own, counters with a part for each CPU, and a
//! check of a structure's layout at compile time.
//!
//! Two threads that write different words of one cache line take it from each other with every write, as if they shared
//! the word; up to 30 times slower than on separate lines. The remedies are three: put each on a line of its own
//! ([`CachePadded`], [`PaddedSlice`]), give each thread its own and combine them when somebody asks ([`PerWorker`],
//! [`ShardedCounter`], [`Histogram`]), and have the compiler check that it stays so ([`apart!`](crate::apart)).
//!
//! ```
//! use heddle::shard::{CachePadded, ShardedCounter};
//!
//! static REQUESTS: ShardedCounter = ShardedCounter::new();
//! REQUESTS.add(1);
//! assert_eq!(REQUESTS.sum(), 1);
//!
//! struct Ring {
//!     head: CachePadded<usize>,
//!     tail: CachePadded<usize>,
//!     capacity: usize,
//! }
//! heddle::apart!(Ring: head, tail, capacity);
//! ```
//!
//! Nothing here blocks, in any mode, and nothing needs [`start`](crate::start()).

mod counter;
mod histogram;
mod layout;
mod machine;
mod padded;
mod per_worker;

pub use counter::ShardedCounter;
pub use histogram::{Histogram, Snapshot};
#[doc(hidden)]
pub use layout::{field_size, share};
pub use machine::{line_size, pairs_of_lines};
pub use padded::{CachePadded, PaddedSlice};
pub use per_worker::PerWorker;

/// Bytes that nothing else may be on, at compile time: two lines of 64, since processors of this kind may fetch the second of a
/// pair with the first.
pub const LINE: usize = 128;
