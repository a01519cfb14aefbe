//! Heddle's mechanism and scheduler.
//!
//! `no_std`, raw system calls only, no libc, no ELF thread-local storage: this code runs inside other people's critical
//! sections (the thread that enters it may hold malloc's lock), and on kernel threads that have no libc identity.
#![cfg_attr(not(any(test, loom)), no_std)]

#[cfg(target_feature = "avx")]
compile_error!(
    "heddle-core must be built without AVX (-C target-cpu=native and the like): a thread parked in it keeps its vector \
     state only if this code never touches more than xmm0-15"
);

#[macro_use]
pub mod sys;
pub mod fresh;
pub mod lock;
pub mod park;
pub mod posted;
pub mod prim;
pub mod runq;
pub mod wait_table;
pub mod wall;

#[cfg(all(loom, test))]
mod models;

#[cfg(not(loom))]
pub mod arch;
#[cfg(not(loom))]
pub mod clock;
#[cfg(not(loom))]
pub mod counters;
#[cfg(not(loom))]
pub mod identity;
#[cfg(not(loom))]
pub mod mem;
#[cfg(not(loom))]
pub mod reactor;
#[cfg(not(loom))]
pub mod sched;
#[cfg(not(loom))]
pub mod stack;
#[cfg(not(loom))]
pub mod thread;
#[cfg(not(loom))]
pub mod timer;
