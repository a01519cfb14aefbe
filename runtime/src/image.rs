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
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The library's record of a thread that it keeps, as far as the object knows it: `heddle_abi::kept::Slot`.
#[repr(C)]
pub struct Slot {
    /// The object's.
    thread: AtomicPtr<c_void>,
    /// [`RUNNING`] and so on, or the thread that waits.
    pub state: AtomicUsize,
}

impl Slot {
    /// Of no thread.
    pub const fn new() -> Self {
        Self { thread: AtomicPtr::new(std::ptr::null_mut()), state: AtomicUsize::new(RUNNING) }
    }
}

/// The function has not returned.
pub const RUNNING: usize = 0;
/// It has, and the thread rests.
pub const DONE: usize = 1;
/// It has, and the thread ends.
pub const ENDING: usize = 2;
/// It has not, and nobody asks for its result.
pub const DETACHED: usize = 3;
/// It has not, and somebody waits on the low half of the state.
pub const WAITED: usize = 4;

/// What [`Calls::finish`] answers: the thread was launched again.
pub const LAUNCHED: u32 = 0;
/// The handle is gone: the result is the thread's to drop; [`Calls::rest`] may follow.
pub const UNWANTED: u32 = 1;
/// Nothing was done: the thread cannot be kept, because of what the object keeps for it.
pub const TRACES: u32 = 2;

/// Calls that threads make often, without a system call. `heddle_abi::direct` and `heddle_abi::kept` say what they do.
#[repr(C)]
#[allow(missing_docs)]
pub struct Calls {
    pub yield_now: unsafe extern "C" fn() -> bool,
    pub wait: unsafe extern "C" fn(*const u32, u32, u64) -> u32,
    pub wake: extern "C" fn(usize, u32),
    pub prepare: unsafe extern "C" fn(*mut Slot) -> bool,
    pub own: unsafe extern "C" fn() -> *mut Slot,
    pub take: unsafe extern "C" fn() -> *mut Slot,
    pub launch: unsafe extern "C" fn(*mut Slot),
    pub join: unsafe extern "C" fn(*const Slot) -> bool,
    pub finish: unsafe extern "C" fn(*mut Slot) -> u32,
    pub rest: unsafe extern "C" fn() -> bool,
    pub end: unsafe extern "C" fn(*mut Slot) -> bool,
    pub give_back: unsafe extern "C" fn(*mut Slot) -> bool,
    pub generation: extern "C" fn() -> u32,
}

/// The functions of the object in this process.
#[derive(Clone, Copy)]
pub struct Image {
    load: unsafe extern "C" fn(*const LoadArguments) -> *const c_char,
    is_active: extern "C" fn() -> bool,
    workers: extern "C" fn() -> u32,
    is_user_thread: extern "C" fn() -> bool,
    calls: &'static Calls,
    observe: Option<Observe>,
}

/// What tells of threads and counters; an object of another version may lack it.
#[derive(Clone, Copy)]
struct Observe {
    thread: unsafe extern "C" fn(u32, *mut u8, usize) -> u32,
    is_own_task: extern "C" fn(i32) -> bool,
    counters: unsafe extern "C" fn(*mut u8, usize),
}

/// `abi::observe::ThreadRecord`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ThreadRecord {
    pub id: u32,
    pub state: u32,
    pub running: u32,
    pub call: i32,
    pub argument: u64,
    pub cpu_time: u64,
    pub name: [u8; 16],
}

/// `abi::observe::CounterRecord`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct CounterRecord {
    pub created: u64,
    pub switches: u64,
    pub parks: u64,
    pub steals: u64,
    pub hand_offs: u64,
    pub reactor_wakes: u64,
    pub preemptions: u64,
    pub notifications: u64,
    pub live: u64,
    pub asleep: u64,
    pub queued: u64,
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

fn observe(handle: *mut c_void) -> Option<Observe> {
    let thread = symbol(handle, c"heddle_image_thread")?;
    let is_own_task = symbol(handle, c"heddle_image_is_own_task")?;
    let counters = symbol(handle, c"heddle_image_counters")?;
    // SAFETY: functions of these types.
    unsafe {
        Some(Observe {
            thread: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u32, *mut u8, usize) -> u32>(thread),
            is_own_task: std::mem::transmute::<*mut c_void, extern "C" fn(i32) -> bool>(is_own_task),
            counters: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut u8, usize)>(counters),
        })
    }
}

fn functions(handle: *mut c_void) -> Option<Image> {
    let load = symbol(handle, c"heddle_image_load")?;
    let is_active = symbol(handle, c"heddle_image_is_active")?;
    let workers = symbol(handle, c"heddle_image_workers")?;
    let is_user_thread = symbol(handle, c"heddle_image_is_user_thread")?;
    let calls = symbol(handle, c"heddle_image_calls")?;
    // SAFETY: functions of these types.
    unsafe {
        Some(Image {
            load: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const LoadArguments) -> *const c_char>(load),
            is_active: std::mem::transmute::<*mut c_void, extern "C" fn() -> bool>(is_active),
            workers: std::mem::transmute::<*mut c_void, extern "C" fn() -> u32>(workers),
            is_user_thread: std::mem::transmute::<*mut c_void, extern "C" fn() -> bool>(is_user_thread),
            calls: std::mem::transmute::<*mut c_void, extern "C" fn() -> &'static Calls>(calls)(),
            observe: observe(handle),
        })
    }
}

/// The table of calls, once the process has user threads.
static CALLS: AtomicPtr<Calls> = AtomicPtr::new(std::ptr::null_mut());

/// What threads call often, if this process has user threads. Unlike [`crate::start()`], does not start it.
#[inline]
pub fn calls() -> Option<&'static Calls> {
    // Relaxed: the table is constant data of an object that was loaded before.
    // SAFETY: null, or the object's table.
    unsafe { CALLS.load(Ordering::Relaxed).as_ref() }
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

    /// The process has user threads from here on.
    pub fn announce(self) {
        CALLS.store(std::ptr::from_ref(self.calls).cast_mut(), Ordering::Relaxed);
    }

    /// What threads call often.
    pub fn calls(self) -> &'static Calls {
        self.calls
    }

    /// The first user thread at or behind a place in the runtime's table, and the place behind it.
    pub fn thread(self, place: u32) -> Option<(u32, ThreadRecord)> {
        let mut record = ThreadRecord::default();
        // SAFETY: room for what it knows.
        let next = unsafe { (self.observe?.thread)(place, (&raw mut record).cast(), size_of::<ThreadRecord>()) };
        (next != 0).then_some((next, record))
    }

    /// Whether a kernel thread is a worker, or another of the runtime's own.
    pub fn is_own_task(self, tid: i32) -> bool {
        self.observe.is_some_and(|observe| (observe.is_own_task)(tid))
    }

    /// The scheduler's counters.
    pub fn counters(self) -> Option<CounterRecord> {
        let mut record = CounterRecord::default();
        // SAFETY: room for what it knows.
        unsafe { (self.observe?.counters)((&raw mut record).cast(), size_of::<CounterRecord>()) };
        Some(record)
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
