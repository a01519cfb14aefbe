//! A false-sharing detector: the library that `heddle sharing run` preloads into a program built by `heddle sharing build`.
//!
//! The compiler's instrumentation calls `stub.s`, which is linked into the program; that calls [`hooks`], and they note each
//! access in [`shadow`]: first which thread used a line last, then, for lines that threads take from each other, who used
//! which bytes from where. [`alloc`] and [`thread`] know where memory and threads come from. All findings lie in a file in
//! memory that the parent made ([`layout`]), so they survive whatever way the program ends; the parent makes the report.
//!
//! The library does not allocate and takes no lock that it could wait for without end: it runs inside the program's
//! allocator and its signal handlers.

#![cfg_attr(not(test), no_std)]

pub mod alloc;
pub mod hooks;
pub mod layout;
pub mod shadow;
pub mod sys;
pub mod thread;

/// Nothing here panics; the compiler cannot know.
#[cfg(all(feature = "export", not(test)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: `abort` takes nothing and does not return.
    unsafe { sys::abort() }
}
