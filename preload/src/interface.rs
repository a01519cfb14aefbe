//! What the library crate calls when it has loaded this library into a program that runs already.
//!
//! # Safety
//! C functions for one caller, the crate `heddle`, which has this library's bytes inside itself.

use core::ffi::{c_char, c_void};
use core::sync::atomic::AtomicU32;
use heddle_abi::direct;
use heddle_abi::start::{self, Auxiliary, Settings};
use heddle_abi::{kept, observe};
use heddle_interface::{Calls, Copy, CounterRecord, LoadArguments, Slot, ThreadCalls, ThreadRecord, VERSION};

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

/// The functions, with C's calling convention.
///
/// # Safety
/// As those they call, which `heddle-interface` describes.
mod c {
    use super::*;

    pub unsafe extern "C" fn load(arguments: *const LoadArguments) -> *const c_char {
        static mut WHY: [u8; 128] = [0; 128];
        // SAFETY: the caller's; the text is written by the only call.
        unsafe {
            let arguments = &*arguments;
            let settings = Settings { workers: arguments.workers, slice_ms: arguments.slice_ms, ..Settings::default() };
            let auxiliary = Auxiliary { vdso: arguments.vdso, loader: arguments.loader, hwcap2: arguments.hwcap2 };
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

    pub extern "C" fn is_active() -> bool {
        start::is_active()
    }

    pub extern "C" fn workers() -> u32 {
        start::workers()
    }

    pub extern "C" fn is_user_thread() -> bool {
        !heddle_core::sched::worker().is_null()
    }

    pub unsafe extern "C" fn thread(place: u32, to: *mut ThreadRecord) -> u32 {
        let Some((next, record)) = observe::thread_from(place) else { return 0 };
        // SAFETY: the caller's.
        unsafe { to.write(record) };
        next
    }

    pub extern "C" fn is_own_task(tid: i32) -> bool {
        observe::is_own(tid)
    }

    pub unsafe extern "C" fn counters(to: *mut CounterRecord) {
        // SAFETY: the caller's.
        unsafe { to.write(observe::counters()) };
    }

    /// Makes a function of each with the same arguments.
    macro_rules! pass_on {
        ($($name:ident = $function:path, ($($argument:ident: $of:ty),*) $(-> $result:ty)?;)*) => {
            $(pub unsafe extern "C" fn $name($($argument: $of),*) $(-> $result)? {
                // SAFETY: the caller's.
                unsafe { $function($($argument),*) }
            })*
        };
    }

    pass_on! {
        yield_now = direct::yield_now, ();
        wait = direct::wait, (word: *const AtomicU32, value: u32, deadline: u64) -> u32;
        make_apart = heddle_abi::thread::make_apart, (apart: bool);
        give_away = heddle_abi::thread::give_away, ();
        prepare = kept::prepare, (slot: *mut Slot) -> bool;
        own = kept::own, () -> *mut Slot;
        start = kept::start, (write: Copy, context: *mut c_void) -> *mut Slot;
        launch = kept::launch, (slot: *mut Slot);
        join = kept::join, (slot: *mut Slot, read: Copy, context: *mut c_void) -> u32;
        rest = kept::rest, () -> bool;
        end = kept::end, (slot: *mut Slot) -> bool;
        give_back = kept::give_back, (slot: *mut Slot) -> bool;
    }

    pub extern "C" fn wake(word: usize, count: u32) {
        direct::wake(word, count);
    }
}

/// The table: [`heddle_interface::TABLE`] is this function's name.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_image_calls() -> &'static Calls {
    static CALLS: Calls = Calls {
        version: VERSION,
        load: c::load,
        is_active: c::is_active,
        workers: c::workers,
        is_user_thread: c::is_user_thread,
        thread: c::thread,
        is_own_task: c::is_own_task,
        counters: c::counters,
        threads: ThreadCalls {
            yield_now: c::yield_now,
            wait: c::wait,
            wake: c::wake,
            make_apart: c::make_apart,
            give_away: c::give_away,
            prepare: c::prepare,
            own: c::own,
            start: c::start,
            launch: c::launch,
            join: c::join,
            finish: kept::finish,
            rest: c::rest,
            end: c::end,
            give_back: c::give_back,
            generation: heddle_abi::memory::loaded(),
        },
    };
    &CALLS
}
