//! The shared object that takes over the process's system calls: found if `heddle run` preloaded it, else loaded from the
//! bytes inside this library.
//!
//! It is an object of its own, not a crate linked into the program, because its code runs in the middle of other people's:
//! it must not call the program's `memcpy` (vector registers) or allocator (locks), and its own system calls must be told
//! from those of the program that are to be taken over.
//!
//! # Safety
//! Calls functions that `preload/src/interface.rs` exports, whose types are those given here.

use std::ffi::{CStr, CString, c_char, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The functions of the object in this process.
#[derive(Clone, Copy)]
pub struct Image {
    load: unsafe extern "C" fn(*const LoadArguments) -> *const c_char,
    is_active: extern "C" fn() -> bool,
    workers: extern "C" fn() -> u32,
    is_user_thread: extern "C" fn() -> bool,
}

#[repr(C)]
struct LoadArguments {
    workers: u32,
    slice_ms: u64,
    vdso: usize,
    loader: usize,
    hwcap2: u64,
}

fn symbol(handle: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a handle of the loader's and a string.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

fn functions(handle: *mut c_void) -> Option<Image> {
    let load = symbol(handle, c"heddle_image_load")?;
    let is_active = symbol(handle, c"heddle_image_is_active")?;
    let workers = symbol(handle, c"heddle_image_workers")?;
    let is_user_thread = symbol(handle, c"heddle_image_is_user_thread")?;
    // SAFETY: functions of these types.
    unsafe {
        Some(Image {
            load: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const LoadArguments) -> *const c_char>(load),
            is_active: std::mem::transmute::<*mut c_void, extern "C" fn() -> bool>(is_active),
            workers: std::mem::transmute::<*mut c_void, extern "C" fn() -> u32>(workers),
            is_user_thread: std::mem::transmute::<*mut c_void, extern "C" fn() -> bool>(is_user_thread),
        })
    }
}

impl Image {
    /// The object that is in this process already.
    pub fn present() -> Option<Self> {
        functions(libc::RTLD_DEFAULT)
    }

    /// Brings the object into this process, and has it take over the system calls. Error: why not.
    ///
    /// # Safety
    /// The process has one thread.
    pub unsafe fn bring(workers: u32, slice_ms: u64) -> Result<Self, String> {
        let bytes = heddle_image::for_loading();
        let file = memory_file(&bytes).map_err(|e| format!("no memory file for the runtime: {e}"))?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let path = CString::new(path).map_err(|e| e.to_string())?;
        // Global, so that another copy of this library in the process finds it.
        // SAFETY: its constructor does nothing in this copy.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL | libc::RTLD_NODELETE) };
        if handle.is_null() {
            // SAFETY: a string of the loader's, or null.
            let why = unsafe { libc::dlerror().as_ref().map(|why| CStr::from_ptr(why).to_string_lossy().into_owned()) };
            return Err(why.unwrap_or_else(|| "the loader refuses the runtime".to_string()));
        }
        let Some(image) = functions(handle) else { return Err("the runtime has no such functions".to_string()) };
        // SAFETY: read from the vector that the kernel gave.
        let arguments = unsafe {
            LoadArguments {
                workers,
                slice_ms,
                vdso: libc::getauxval(libc::AT_SYSINFO_EHDR) as usize,
                loader: libc::getauxval(libc::AT_BASE) as usize,
                hwcap2: libc::getauxval(libc::AT_HWCAP2),
            }
        };
        // SAFETY: the caller vouches for the one thread.
        let why = unsafe { (image.load)(&raw const arguments) };
        if why.is_null() {
            return Ok(image);
        }
        // SAFETY: a C string that is not written again.
        Err(unsafe { CStr::from_ptr(why) }.to_string_lossy().into_owned())
    }

    /// Whether it has taken over the system calls.
    pub fn is_active(self) -> bool {
        (self.is_active)()
    }

    /// Its workers.
    pub fn workers(self) -> u32 {
        (self.workers)()
    }

    /// Whether the caller is a user thread.
    pub fn is_user_thread(self) -> bool {
        (self.is_user_thread)()
    }
}

fn memory_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    // SAFETY: a name; the descriptor is ours.
    let file = unsafe {
        let fd = libc::memfd_create(c"libheddle.so".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    let mut file = std::fs::File::from(file);
    io::Write::write_all(&mut file, bytes)?;
    Ok(file.into())
}
