//! What depends on the CPU: context switch, thread pointer, worker pointer, vector state.
//!
//! The operations have the same names for every CPU: [`Context`], [`switch`], [`fresh_context`], [`set_thread_pointer`],
//! [`thread_pointer`], [`set_worker_pointer`], [`worker_pointer`], [`this_worker_pointer`], [`ticks`].

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;
#[cfg(not(target_arch = "x86_64"))]
compile_error!("unsupported target: Heddle runs on x86-64 Linux");
