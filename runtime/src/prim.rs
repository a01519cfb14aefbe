//! The atomics: the machine's, or loom's when a protocol is model-checked; and the two halves of an asymmetric fence.
//!
//! A light fence on one side and a heavy one on the other order a store before a later load on both sides, as two SeqCst
//! fences do: the heavy one makes every CPU that runs a thread of this process execute a full fence (`membarrier`), so the
//! light one need only keep the compiler from moving anything.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// The cheap half: for the side that runs often.
#[inline(always)]
pub fn light_fence() {
    // SeqCst: to the compiler only; the heavy half makes it one for the CPU. What it orders is said where it is used.
    #[cfg(not(loom))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst); // SeqCst: stands for both halves
}

/// The dear half, some microseconds: for the side that runs seldom.
pub fn heavy_fence() {
    #[cfg(not(loom))]
    crate::barrier::heavy();
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst); // SeqCst: as above
}

/// One turn of a wait loop.
#[inline]
pub fn relax() {
    #[cfg(not(loom))]
    std::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}

/// Lets others run: whoever is waited for may need this CPU.
pub fn yield_cpu() {
    #[cfg(not(loom))]
    std::thread::yield_now();
    #[cfg(loom)]
    loom::thread::yield_now();
}
