//! What the library crate and the runtime object say to each other: a table of functions, and the records that they pass.
//!
//! The object exports a function that answers the table, [`TABLE`] (`preload/src/interface.rs`), which the library looks up
//! by name (`runtime/src/image.rs`). It was preloaded by `heddle run`, perhaps of another version, or brought by another copy of
//! the library; so the first thing that the library reads is [`Calls::version`].
#![no_std]

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize};

/// Of everything in this file: a hash of it (FNV-1a), so that no change goes unnoticed.
pub const VERSION: u64 = {
    let text = include_bytes!("lib.rs");
    let (mut hash, mut i) = (0xcbf2_9ce4_8422_2325_u64, 0);
    while i < text.len() {
        hash = (hash ^ text[i] as u64).wrapping_mul(0x100_0000_01b3);
        i += 1;
    }
    hash
};

/// The name of the function that answers the table: `extern "C" fn() -> &'static Calls`.
pub const TABLE: &CStr = c"heddle_image_calls";

/// Settings and auxiliary vector of [`Calls::load`].
#[repr(C)]
pub struct LoadArguments {
    /// Workers; 0: as many as this process may use.
    pub workers: u32,
    /// The time slice in milliseconds.
    pub slice_ms: u64,
    /// AT_SYSINFO_EHDR.
    pub vdso: usize,
    /// AT_BASE.
    pub loader: usize,
    /// AT_HWCAP2.
    pub hwcap2: u64,
}

/// The library's record of a thread that it keeps, as far as the object knows it.
#[repr(C)]
pub struct Slot {
    /// The object's: the thread; null until it runs for the first time.
    pub thread: AtomicPtr<c_void>,
    /// One of the numbers of [`slot`], or the thread that waits for it.
    pub state: AtomicUsize,
}

impl Slot {
    /// Of no thread.
    #[allow(clippy::new_without_default)] // no value like others: it has to stay where it is
    pub const fn new() -> Self {
        Self { thread: AtomicPtr::new(core::ptr::null_mut()), state: AtomicUsize::new(slot::RUNNING) }
    }
}

/// Values of [`Slot::state`]; `heddle_abi::kept` has the protocol.
pub mod slot {
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
}

/// Answers of [`ThreadCalls::join`].
pub mod joined {
    /// The result was handed over, and the thread rests.
    pub const RESTS: u32 = 0;
    /// The result was handed over; the thread is one too many, to be launched once more to end.
    pub const SURPLUS: u32 = 1;
    /// The function has returned, and the thread ends; the result is where it was.
    pub const ENDS: u32 = 2;
    /// Nothing was done: the caller is not a user thread, or somebody has waited on the word before: wait there.
    pub const ELSEWHERE: u32 = 3;
}

/// Answers of [`ThreadCalls::finish`].
pub mod finished {
    /// The thread was launched again.
    pub const LAUNCHED: u32 = 0;
    /// The handle is gone: the result is the thread's to drop; [`super::ThreadCalls::rest`] may follow.
    pub const UNWANTED: u32 = 1;
    /// Nothing was done: the thread cannot be kept, because of what the object keeps for it.
    pub const TRACES: u32 = 2;
}

/// The object's functions.
#[repr(C)]
pub struct Calls {
    /// The object's [`VERSION`].
    pub version: u64,
    /// Takes over the process's system calls, once, while it has one thread. Null, or why not.
    pub load: unsafe extern "C" fn(*const LoadArguments) -> *const c_char,
    /// Whether system calls are taken over.
    pub is_active: extern "C" fn() -> bool,
    /// How many workers there are, or will be with the first thread.
    pub workers: extern "C" fn() -> u32,
    /// Whether the caller is a user thread.
    pub is_user_thread: extern "C" fn() -> bool,
    /// Writes the record of the first user thread at or behind a place in the table; answers the place behind it, 0: there is
    /// none.
    pub thread: unsafe extern "C" fn(u32, *mut ThreadRecord) -> u32,
    /// Whether the kernel thread of this id is one of the runtime's own: a worker or the like.
    pub is_own_task: extern "C" fn(i32) -> bool,
    /// The scheduler's counters.
    pub counters: unsafe extern "C" fn(*mut CounterRecord),
    /// Calls that threads make often, without a system call.
    pub threads: ThreadCalls,
}

/// Copies something to where a slot's owner keeps it, or from there. It is called inside the core, so it must do no more than
/// that: call nothing, and allocate and free nothing.
pub type Copy = unsafe extern "C" fn(*mut Slot, *mut c_void);

/// What threads call often: `heddle_abi::direct`, `heddle_abi::kept` and `heddle_abi::thread` say what the functions do.
#[repr(C)]
#[allow(missing_docs)]
pub struct ThreadCalls {
    pub yield_now: unsafe extern "C" fn(),
    pub wait: unsafe extern "C" fn(*const AtomicU32, u32, u64) -> u32,
    pub wake: extern "C" fn(usize, u32),
    pub make_apart: unsafe extern "C" fn(bool),
    pub give_away: unsafe extern "C" fn(),
    pub prepare: unsafe extern "C" fn(*mut Slot) -> bool,
    pub own: unsafe extern "C" fn() -> *mut Slot,
    pub start: unsafe extern "C" fn(Copy, *mut c_void) -> *mut Slot,
    pub launch: unsafe extern "C" fn(*mut Slot),
    pub join: unsafe extern "C" fn(*mut Slot, Copy, *mut c_void) -> u32,
    /// Returns by a jump, and is best called by one.
    pub finish: unsafe extern "C" fn(*mut Slot) -> u32,
    pub rest: unsafe extern "C" fn() -> bool,
    pub end: unsafe extern "C" fn(*mut Slot) -> bool,
    pub give_back: unsafe extern "C" fn(*mut Slot) -> bool,
    /// Changes whenever a thread's thread-locals may have become more: an object was loaded.
    pub generation: &'static AtomicU32,
}

/// A thread, at some moment.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ThreadRecord {
    /// Its id, as `gettid` tells it.
    pub id: u32,
    /// A `heddle_core::thread::State`, or [`RESTING`]; a free one is not told of.
    pub state: u32,
    /// It has a worker just now.
    pub running: u32,
    /// The system call that it waits in; -1: none, or it cannot be told.
    pub call: i32,
    /// That call's first argument, or the word that it waits on; 0: it cannot be told.
    pub argument: u64,
    /// CPU time charged to it so far, in nanoseconds.
    pub cpu_time: u64,
    /// Its name, padded with zeros.
    pub name: [u8; 16],
}

/// State of a thread that the library keeps, whose function has returned.
pub const RESTING: u32 = 100;

/// Counters since the process began.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct CounterRecord {
    /// Threads created.
    pub created: u64,
    /// Times a worker switched to a thread.
    pub switches: u64,
    /// Times a thread parked.
    pub parks: u64,
    /// Times a worker took threads from another's queue.
    pub steals: u64,
    /// Times a processor was taken from a worker stuck in the kernel.
    pub hand_offs: u64,
    /// Threads woken by the reactor.
    pub reactor_wakes: u64,
    /// Threads switched away from because their slice was over.
    pub preemptions: u64,
    /// Times an idle worker was woken.
    pub notifications: u64,
    /// Threads that live now.
    pub live: u64,
    /// Workers asleep now.
    pub asleep: u64,
    /// Threads in queues now.
    pub queued: u64,
}
