//! The one place that picks the atomics: the machine's, or loom's when a protocol is model-checked.

#[cfg(not(loom))]
pub use core::cell::UnsafeCell;
#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
#[cfg(loom)]
pub use loom::cell::UnsafeCell;
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// A fence. A full one (SeqCst) is a locked instruction that changes nothing: `mfence`, which the compiler makes of it, takes four
/// times as long, since it also waits for what bypasses the caches, and nothing here does.
#[cfg(not(loom))]
#[inline(always)]
pub fn fence(ordering: Ordering) {
    // SeqCst: the only one that needs an instruction on this architecture.
    if ordering == Ordering::SeqCst {
        // Not at the stack pointer: the caller may take 8 bytes from there next, of which only 4 were written just now, and
        // a CPU waits then until they are in the cache.
        // SAFETY: the word in the red zone stays what it is. A barrier to the compiler as well: it may touch memory.
        unsafe { core::arch::asm!("lock or dword ptr [rsp - 64], 0") };
    } else {
        core::sync::atomic::fence(ordering);
    }
}

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

/// The cheap half of an asymmetric fence: for the side that runs often. With a [`heavy_fence`] on the other side it orders a
/// store before a later load on both, as two SeqCst fences do.
#[inline(always)]
pub fn light_fence() {
    // SeqCst: to the compiler only; the heavy half makes it one for the CPU. What it orders is said where it is used.
    #[cfg(not(loom))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    fence(Ordering::SeqCst); // SeqCst: stands for both halves
}

/// The dear half, about a microsecond: every CPU that runs a thread of this process executes a full fence. Works once
/// [`has_heavy_fence`] has answered true.
pub fn heavy_fence() {
    // SeqCst: on this CPU, and for the compiler; what it orders is said where it is used.
    fence(Ordering::SeqCst);
    #[cfg(not(loom))]
    membarrier(1 << 3); // MEMBARRIER_CMD_PRIVATE_EXPEDITED
}

/// Registers the process for heavy fences. False: the kernel has none (before Linux 4.14), or does not allow them.
#[cfg(not(loom))]
pub fn has_heavy_fence() -> bool {
    membarrier(1 << 4) == 0 // MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED
}

#[cfg(not(loom))]
fn membarrier(command: u32) -> isize {
    // SAFETY: touches no memory.
    unsafe { sys!(crate::sys::linux::__NR_membarrier, command, 0, 0) }
}
