//! The atomics: the machine's, or loom's when a protocol is model-checked; and the two halves of an asymmetric fence.
//!
//! A light fence on one side and a heavy one on the other order a store before a later load on both sides, as two SeqCst
//! fences do: the heavy one makes every CPU that runs a thread of this process execute a full fence (`membarrier`), so the
//! light one need only keep the compiler from moving anything.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

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

/// After a SeqCst operation that is to come before a later load: such an operation is a full fence on x86-64, but loom takes
/// it for an AcqRel one.
#[inline(always)]
pub fn fence_after_rmw() {
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst); // SeqCst: see above
}

/// Reads what only the caller writes: no other thread's store is overlooked, and the compiler need not go to memory for it.
///
/// # Safety
/// No other thread writes it.
#[inline(always)]
pub unsafe fn own(atomic: &AtomicUsize) -> usize {
    // SAFETY: reads beside the loads of others.
    #[cfg(not(loom))]
    unsafe {
        *atomic.as_ptr()
    }
    // SAFETY: the caller's; loom checks it.
    #[cfg(loom)]
    unsafe {
        atomic.unsync_load()
    }
}

/// Asks for the cache line at that address, if it is one.
#[inline(always)]
pub fn prefetch<T>(line: *const T) {
    // SAFETY: a hint, whatever the address.
    #[cfg(not(loom))]
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(line.cast());
    }
    #[cfg(loom)]
    let _ = line;
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

/// Lets others of ours run: whoever is waited for may need this worker. Not other programs: they would have the CPU for a slice.
pub fn yield_worker() {
    #[cfg(not(loom))]
    crate::thread::yield_now();
    #[cfg(loom)]
    loom::thread::yield_now();
}

/// Whether the caller is a user thread or a fiber, which can let others run cheaply.
pub fn is_user_thread() -> bool {
    #[cfg(not(loom))]
    return crate::start::is_user_thread() || crate::fiber::is_fiber();
    #[cfg(loom)]
    false
}
