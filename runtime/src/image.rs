//! The shared object that takes over the process's system calls: found if `heddle run` preloaded it, else loaded from the
//! bytes inside this library.
//!
//! It is an object of its own, not a crate linked into the program, because its code runs in the middle of other people's:
//! it must not call the program's `memcpy` (vector registers) or allocator (locks), and its own system calls must be told
//! from those of the program that are to be taken over.
//!
//! # Safety
//! Calls the functions of a table whose version is that of `heddle-interface` here: [`table`] refuses others.

use std::ffi::{CStr, CString, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicPtr, Ordering};

use heddle_interface::{Calls, CounterRecord, LoadArguments, TABLE, ThreadCalls, ThreadRecord, VERSION};

/// The object in this process.
#[derive(Clone, Copy)]
pub struct Image(&'static Calls);

/// The table of the object that a handle of the loader's leads to. Error: it is of another version.
fn table(handle: *mut c_void) -> Result<Option<Image>, String> {
    // SAFETY: a handle of the loader's and a string.
    let function = unsafe { libc::dlsym(handle, TABLE.as_ptr()) };
    if function.is_null() {
        return Ok(None);
    }
    // SAFETY: every version's function is of this type, and every table begins with the version.
    let image = unsafe { Image(std::mem::transmute::<*mut c_void, extern "C" fn() -> &'static Calls>(function)()) };
    if image.0.version == VERSION {
        return Ok(Some(image));
    }
    Err("the runtime in this process, of `heddle run` or another library, is of another version: use the same for all"
        .to_string())
}

/// The table of threads' calls, once the process has user threads.
static CALLS: AtomicPtr<ThreadCalls> = AtomicPtr::new(std::ptr::null_mut());

/// What threads call often, if this process has user threads. Unlike [`crate::start()`], does not start it.
#[inline]
pub fn calls() -> Option<&'static ThreadCalls> {
    // Relaxed: the table is constant data of an object that was loaded before.
    // SAFETY: null, or the object's table.
    unsafe { CALLS.load(Ordering::Relaxed).as_ref() }
}

impl Image {
    /// The object that is in this process already. Error: it is of another version.
    pub fn present() -> Result<Option<Self>, String> {
        table(libc::RTLD_DEFAULT)
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
        let Some(image) = table(handle)? else { return Err("the runtime has no table of functions".to_string()) };
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
        let why = unsafe { (image.0.load)(&raw const arguments) };
        if why.is_null() {
            return Ok(image);
        }
        // SAFETY: a C string that is not written again.
        Err(unsafe { CStr::from_ptr(why) }.to_string_lossy().into_owned())
    }

    /// Whether it has taken over the system calls.
    pub fn is_active(self) -> bool {
        (self.0.is_active)()
    }

    /// Its workers.
    pub fn workers(self) -> u32 {
        (self.0.workers)()
    }

    /// The process has user threads from here on.
    pub fn announce(self) {
        CALLS.store(std::ptr::from_ref(&self.0.threads).cast_mut(), Ordering::Relaxed);
    }

    /// What threads call often.
    pub fn calls(self) -> &'static ThreadCalls {
        &self.0.threads
    }

    /// The first user thread at or behind a place in the runtime's table, and the place behind it.
    pub fn thread(self, place: u32) -> Option<(u32, ThreadRecord)> {
        let mut record = ThreadRecord::default();
        // SAFETY: a record.
        let next = unsafe { (self.0.thread)(place, &raw mut record) };
        (next != 0).then_some((next, record))
    }

    /// Whether a kernel thread is a worker, or another of the runtime's own.
    pub fn is_own_task(self, tid: i32) -> bool {
        (self.0.is_own_task)(tid)
    }

    /// The scheduler's counters.
    pub fn counters(self) -> CounterRecord {
        let mut record = CounterRecord::default();
        // SAFETY: a record.
        unsafe { (self.0.counters)(&raw mut record) };
        record
    }

    /// Whether the caller is a user thread.
    pub fn is_user_thread(self) -> bool {
        (self.0.is_user_thread)()
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
