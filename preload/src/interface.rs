//! What the library crate calls when it has loaded this library into a program that runs already.
//!
//! # Safety
//! C functions for one caller, the crate `heddle`, which has this library's bytes inside itself.

use core::ffi::c_char;
use heddle_abi::start::{self, Auxiliary, Settings};

/// How the library came here. Its bytes are changed in the copy that is loaded later: nothing else could tell the
/// constructor, because the environment and the vectors may have been changed or moved by then.
#[used]
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static heddle_image_mark: [u8; 17] = *b"heddle: preloaded";

/// Whether the library is not preloaded but loaded later.
pub fn is_loaded_later() -> bool {
    // SAFETY: a byte of ours; volatile, since the compiler believes to know it.
    unsafe { (&raw const heddle_image_mark).cast::<u8>().add(8).read_volatile() == b'l' }
}

/// Settings and auxiliary vector of [`heddle_image_load`].
#[repr(C)]
pub struct LoadArguments {
    workers: u32,
    slice_ms: u64,
    vdso: usize,
    loader: usize,
    hwcap2: u64,
}

/// Takes over the process's system calls. Null, or why not (a C string).
///
/// # Safety
/// The process has one thread; called once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_image_load(arguments: &LoadArguments) -> *const c_char {
    let settings = Settings { workers: arguments.workers, slice_ms: arguments.slice_ms, ..Settings::default() };
    let auxiliary = Auxiliary { vdso: arguments.vdso, loader: arguments.loader, hwcap2: arguments.hwcap2 };
    static mut WHY: [u8; 128] = [0; 128];
    // SAFETY: the caller's; the text is written by the only call.
    unsafe {
        match start::load(settings, auxiliary, crate::own()) {
            Ok(()) => core::ptr::null(),
            Err(why) => {
                let to = (&raw mut WHY).cast::<u8>();
                for (i, byte) in why.bytes().take(127).enumerate() {
                    to.add(i).write(byte);
                }
                to.cast()
            }
        }
    }
}

/// Whether system calls are taken over.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_image_is_active() -> bool {
    start::is_active()
}

/// How many workers there are, or will be with the first thread.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_image_workers() -> u32 {
    start::workers()
}

/// Whether the caller is a user thread.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_image_is_user_thread() -> bool {
    !heddle_core::sched::worker().is_null()
}
