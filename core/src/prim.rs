//! The one place that picks the atomics: the machine's, or loom's when a protocol is model-checked.

#[cfg(not(loom))]
pub use core::cell::UnsafeCell;
#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(loom)]
pub use loom::cell::UnsafeCell;
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Makes a read-modify-write that the caller has just made a full fence: on x86-64 a locked instruction is one already,
/// and no compiler moves a later load above a SeqCst one; in loom's eyes it is only AcqRel.
#[inline(always)]
pub fn fence_after_rmw() {
    #[cfg(loom)]
    fence(Ordering::SeqCst); // SeqCst: stands for the locked instruction's
}

/// One turn of a wait loop.
#[inline]
pub fn relax() {
    #[cfg(not(loom))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}
