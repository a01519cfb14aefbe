//! What the library crate calls when it has loaded this library into a program that runs already.
//!
//! # Safety
//! C functions for one caller, the crate `heddle`, which has this library's bytes inside itself.

use core::ffi::c_char;
use core::sync::atomic::AtomicU32;
use heddle_abi::direct;
use heddle_abi::kept::{self, Slot};
use heddle_abi::observe::{self, CounterRecord, ThreadRecord};
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

/// Calls that threads make often, in a table: see `heddle_abi::direct` and `heddle_abi::kept`.
#[repr(C)]
pub struct Calls {
    yield_now: unsafe extern "C" fn() -> bool,
    wait: unsafe extern "C" fn(*const AtomicU32, u32, u64) -> u32,
    wake: extern "C" fn(usize, u32),
    prepare: unsafe extern "C" fn(*mut Slot) -> bool,
    own: unsafe extern "C" fn() -> *mut Slot,
    take: unsafe extern "C" fn() -> *mut Slot,
    launch: unsafe extern "C" fn(*mut Slot),
    join: unsafe extern "C" fn(*const Slot) -> bool,
    finish: unsafe extern "C" fn(*mut Slot) -> u32,
    rest: unsafe extern "C" fn() -> bool,
    end: unsafe extern "C" fn(*mut Slot) -> bool,
    give_back: unsafe extern "C" fn(*mut Slot) -> bool,
    generation: extern "C" fn() -> u32,
}

/// The functions, with C's calling convention.
///
/// # Safety
/// As those they call.
mod c {
    use super::{AtomicU32, Slot, direct, kept};

    /// Makes a function of each with the same arguments.
    macro_rules! pass_on {
        ($($name:ident = $module:ident($($argument:ident: $of:ty),*) $(-> $result:ty)?;)*) => {
            $(pub unsafe extern "C" fn $name($($argument: $of),*) $(-> $result)? {
                // SAFETY: the caller's.
                unsafe { $module::$name($($argument),*) }
            })*
        };
    }

    pass_on! {
        yield_now = direct() -> bool;
        wait = direct(word: *const AtomicU32, value: u32, deadline: u64) -> u32;
        prepare = kept(slot: *mut Slot) -> bool;
        own = kept() -> *mut Slot;
        take = kept() -> *mut Slot;
        launch = kept(slot: *mut Slot);
        join = kept(slot: *const Slot) -> bool;
        finish = kept(slot: *mut Slot) -> u32;
        rest = kept() -> bool;
        end = kept(slot: *mut Slot) -> bool;
        give_back = kept(slot: *mut Slot) -> bool;
    }

    pub extern "C" fn wake(word: usize, count: u32) {
        direct::wake(word, count);
    }

    pub extern "C" fn generation() -> u32 {
        kept::generation()
    }
}

/// The table.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_image_calls() -> &'static Calls {
    static CALLS: Calls = Calls {
        yield_now: c::yield_now,
        wait: c::wait,
        wake: c::wake,
        prepare: c::prepare,
        own: c::own,
        take: c::take,
        launch: c::launch,
        join: c::join,
        finish: c::finish,
        rest: c::rest,
        end: c::end,
        give_back: c::give_back,
        generation: c::generation,
    };
    &CALLS
}

/// Copies as much of a record as the caller knows.
///
/// # Safety
/// There is room for `size` bytes at `to`.
unsafe fn give<T: Copy>(record: &T, to: *mut u8, size: usize) {
    let from = core::ptr::from_ref(record).cast::<u8>();
    // SAFETY: the caller's; bytes of a record.
    unsafe { core::ptr::copy_nonoverlapping(from, to, size.min(size_of::<T>())) };
}

/// Writes a [`ThreadRecord`] of the first user thread at or behind a place in the table; answers the place behind it, 0: there
/// is none. Bytes beyond the record are left as they are.
///
/// # Safety
/// There is room for `size` bytes at `to`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_image_thread(place: u32, to: *mut u8, size: usize) -> u32 {
    let Some((next, record)) = observe::thread_from(place) else { return 0 };
    // SAFETY: the caller's.
    unsafe { give::<ThreadRecord>(&record, to, size) };
    next
}

/// Whether a kernel thread is one of the runtime's own: a worker or the like.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_image_is_own_task(tid: i32) -> bool {
    observe::is_own(tid)
}

/// Writes a [`CounterRecord`].
///
/// # Safety
/// As for [`heddle_image_thread`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_image_counters(to: *mut u8, size: usize) {
    // SAFETY: the caller's.
    unsafe { give::<CounterRecord>(&observe::counters(), to, size) };
}
