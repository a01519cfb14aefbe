//! The C library's functions that the detector calls.

use core::ffi::{c_char, c_int, c_void};

/// `struct dl_phdr_info`, the part used here.
#[repr(C)]
pub struct Module {
    /// Where the module is loaded.
    pub base: usize,
    /// Its file, empty for the program itself.
    pub name: *const c_char,
    /// Its segments.
    pub segments: *const Segment,
    /// How many.
    pub count: u16,
}

/// `Elf64_Phdr`.
#[repr(C)]
pub struct Segment {
    /// `PT_LOAD` is 1.
    pub kind: u32,
    flags: u32,
    offset: u64,
    /// Address, relative to the base.
    pub address: u64,
    physical: u64,
    file_size: u64,
    /// Bytes in memory.
    pub size: u64,
    align: u64,
}

#[allow(missing_docs)]
mod functions {
    use super::*;
    #[link(name = "c")]
    unsafe extern "C" {
        pub static mut environ: *mut *mut c_char;
        pub fn abort() -> !;
        pub fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
        pub fn mmap(at: *mut c_void, size: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void;
        pub fn close(fd: c_int) -> c_int;
        pub fn getenv(name: *const c_char) -> *mut c_char;
        pub fn unsetenv(name: *const c_char) -> c_int;
        pub fn readlink(path: *const c_char, to: *mut c_char, size: usize) -> isize;
        pub fn __errno_location() -> *mut c_int;
        pub fn usleep(us: u32) -> c_int;
        pub fn clock_gettime(clock: c_int, time: *mut [i64; 2]) -> c_int;
        pub fn dl_iterate_phdr(
            f: extern "C" fn(*const Module, usize, *mut c_void) -> c_int,
            data: *mut c_void,
        ) -> c_int;
        pub fn pthread_atfork(
            before: Option<extern "C" fn()>,
            parent: Option<extern "C" fn()>,
            child: Option<extern "C" fn()>,
        ) -> c_int;
        pub fn pthread_key_create(key: *mut u32, end: extern "C" fn(*mut c_void)) -> c_int;
        pub fn pthread_setspecific(key: u32, value: *const c_void) -> c_int;
        pub fn pthread_self() -> usize;
        pub fn pthread_getattr_np(thread: usize, attr: *mut [u64; 8]) -> c_int;
        pub fn pthread_attr_getstack(attr: *const [u64; 8], at: *mut usize, size: *mut usize) -> c_int;
        pub fn pthread_attr_destroy(attr: *mut [u64; 8]) -> c_int;
    }
}
pub use functions::*;

/// `RTLD_NEXT`: look in the libraries after the one that asks.
pub const NEXT: *mut c_void = usize::MAX as *mut c_void;

const PROT_READ_WRITE: c_int = 3;
const MAP_SHARED: c_int = 1;
const MAP_PRIVATE: c_int = 2;
const MAP_ANONYMOUS: c_int = 0x20;
const MAP_NORESERVE: c_int = 0x4000;

/// Zeroed memory that is there when it is used; with a descriptor, the file's. `None` when the kernel refuses.
pub fn map(size: usize, fd: Option<c_int>) -> Option<*mut c_void> {
    let flags = MAP_NORESERVE | if fd.is_some() { MAP_SHARED } else { MAP_PRIVATE | MAP_ANONYMOUS };
    // SAFETY: the kernel chooses the address, so no existing mapping is touched.
    let at = unsafe { mmap(core::ptr::null_mut(), size, PROT_READ_WRITE, flags, fd.unwrap_or(-1), 0) };
    (at as isize != -1).then_some(at)
}

/// Nanoseconds of CPU time that the process has used.
pub fn cpu_time() -> u64 {
    let mut time = [0_i64; 2];
    // SAFETY: `time` has the size and layout of a timespec.
    unsafe { clock_gettime(2, &raw mut time) };
    time[0] as u64 * 1_000_000_000 + time[1] as u64
}
