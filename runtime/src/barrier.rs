//! The heavy half of the asymmetric fence: every CPU that runs a thread of this process executes a full fence.
//!
//! # Safety
//! System calls that change nothing but a page of our own.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering, fence};

use crate::sync::Mutex;

const QUERY: i32 = 0;
const PRIVATE_EXPEDITED: i32 = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;

fn membarrier(command: i32) -> i64 {
    // SAFETY: touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}

/// Whether the kernel has the system call; the process is registered for it by the first question.
fn has_membarrier() -> bool {
    static HAS: AtomicU8 = AtomicU8::new(0);
    match HAS.load(Ordering::Relaxed) {
        1 => true,
        2 => false,
        _ => {
            let offered = membarrier(QUERY);
            let has = offered >= 0
                && offered & i64::from(PRIVATE_EXPEDITED) != 0
                && membarrier(REGISTER_PRIVATE_EXPEDITED) == 0;
            HAS.store(if has { 1 } else { 2 }, Ordering::Relaxed);
            has
        }
    }
}

/// To be called before the first light fence matters: makes the first heavy one quick.
pub fn prepare() {
    has_membarrier();
}

/// A full fence on all CPUs that run threads of this process.
pub fn heavy() {
    // SeqCst: on this CPU, and for the compiler; what it orders is said where it is used.
    fence(Ordering::SeqCst);
    if has_membarrier() && membarrier(PRIVATE_EXPEDITED) == 0 {
        return;
    }
    by_page();
}

/// Without `membarrier`: taking a right away from a page that was just written makes the kernel interrupt every CPU that
/// may have it in its buffer, and an interrupt is a fence.
fn by_page() {
    static PAGE: OnceLock<Mutex<usize>> = OnceLock::new();
    const SIZE: usize = 4096;
    let page = PAGE.get_or_init(|| {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), SIZE, prot, flags, -1, 0) };
        assert_ne!(page, libc::MAP_FAILED, "no memory for a page");
        // SAFETY: the page is ours. Locked, so that it cannot be gone from the CPUs' buffers already.
        unsafe { libc::mlock(page, SIZE) };
        Mutex::new(page as usize)
    });
    let page = *page.lock() as *mut libc::c_void;
    // SAFETY: a page of ours, under the lock while it is writable.
    unsafe {
        libc::mprotect(page, SIZE, libc::PROT_READ | libc::PROT_WRITE);
        page.cast::<u8>().write_volatile(page.cast::<u8>().read_volatile().wrapping_add(1));
        libc::mprotect(page, SIZE, libc::PROT_READ);
    }
}
