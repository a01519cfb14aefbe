//! What threads do, and counters.

use std::ffi::{c_char, c_int, c_void};

use runtime::{ThreadState, WaitsFor};

use crate::call;
use crate::error::{answer, fill};
use crate::start::{heddle_mode_t, write_mode};

/// What a thread does: one of HEDDLE_STATE_...
pub type heddle_state_t = c_int;

/// It runs, or waits in a system call that is not emulated (a file, say).
pub const HEDDLE_STATE_RUNNING: heddle_state_t = 0;
/// It could run, and waits for a worker. User threads only.
pub const HEDDLE_STATE_READY: heddle_state_t = 1;
/// It waits for a word in memory to be changed: a lock, a condition, the end of a thread. `object` is its address, or -1.
pub const HEDDLE_STATE_WAITS_FUTEX: heddle_state_t = 2;
/// It waits for a descriptor. `object` is its number, or -1: several, or it cannot be told.
pub const HEDDLE_STATE_WAITS_DESCRIPTOR: heddle_state_t = 3;
/// It waits for time to pass.
pub const HEDDLE_STATE_WAITS_TIME: heddle_state_t = 4;
/// It waits for a signal.
pub const HEDDLE_STATE_WAITS_SIGNAL: heddle_state_t = 5;
/// It waits for a child process.
pub const HEDDLE_STATE_WAITS_CHILD: heddle_state_t = 6;
/// It waits for the end of another system call. `object` is its number, or -1.
pub const HEDDLE_STATE_WAITS_CALL: heddle_state_t = 7;

/// A thread of this process, as it was at some moment. Newer libraries may add fields at the end.
#[repr(C)]
pub struct heddle_thread_info_t {
    /// Size of this structure, as the library has it.
    pub size: usize,
    /// Its name, at most 15 bytes; that of the process if it has none.
    pub name: *const c_char,
    /// Its id, as gettid tells it.
    pub id: u32,
    /// What it is: HEDDLE_MODE_USER or HEDDLE_MODE_KERNEL.
    pub mode: heddle_mode_t,
    /// What it does.
    pub state: heddle_state_t,
    /// What it waits for, as `state` says; otherwise -1.
    pub object: i64,
    /// Nanoseconds of CPU time that it has used. Of a user thread: what was charged to it so far, some milliseconds
    /// coarse.
    pub cpu_time: u64,
}

fn write_state(state: ThreadState) -> (heddle_state_t, i64) {
    match state {
        ThreadState::Running => (HEDDLE_STATE_RUNNING, -1),
        ThreadState::Ready => (HEDDLE_STATE_READY, -1),
        ThreadState::Waiting(WaitsFor::Futex(word)) => (HEDDLE_STATE_WAITS_FUTEX, word.map_or(-1, |word| word as i64)),
        ThreadState::Waiting(WaitsFor::Descriptor(fd)) => (HEDDLE_STATE_WAITS_DESCRIPTOR, fd.map_or(-1, i64::from)),
        ThreadState::Waiting(WaitsFor::Time) => (HEDDLE_STATE_WAITS_TIME, -1),
        ThreadState::Waiting(WaitsFor::Signal) => (HEDDLE_STATE_WAITS_SIGNAL, -1),
        ThreadState::Waiting(WaitsFor::Child) => (HEDDLE_STATE_WAITS_CHILD, -1),
        ThreadState::Waiting(WaitsFor::Call(call)) => (HEDDLE_STATE_WAITS_CALL, call.map_or(-1, i64::from)),
        _ => (HEDDLE_STATE_WAITS_CALL, -1),
    }
}

/// Calls each(info, arg) for the threads of this process: user threads, and kernel threads but for the runtime's own. Of
/// those that come and go meanwhile some may be missing. *info is there for the time of the call.
///
/// Threads are not stopped, and no lock is held while `each` runs. It allocates memory, and costs about a microsecond for
/// each user thread that waits, and four small files for each kernel thread. Starts the process if nothing has. Error:
/// EINVAL: a null function.
///
/// # Safety
/// `each(info, arg)` may run here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_threads(
    each: Option<extern "C" fn(*const heddle_thread_info_t, *mut c_void)>,
    arg: *mut c_void,
) -> c_int {
    answer("heddle_threads", || {
        let each = each.ok_or(libc::EINVAL)?;
        for thread in runtime::threads() {
            let mut name = thread.name.into_bytes();
            name.push(0);
            let (state, object) = write_state(thread.state);
            let info = heddle_thread_info_t {
                size: size_of::<heddle_thread_info_t>(),
                name: name.as_ptr().cast(),
                id: thread.id,
                mode: write_mode(thread.mode),
                state,
                object,
                cpu_time: u64::try_from(thread.cpu_time.as_nanos()).unwrap_or(u64::MAX),
            };
            // SAFETY: the caller's.
            unsafe { call::with_two(each as *const c_void, (&raw const info).cast_mut().cast(), arg) };
        }
        Ok(())
    })
}

/// Figures since the process began, each right by itself. Set it by HEDDLE_COUNTERS_INIT.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct heddle_counters_t {
    /// Size of this structure; set by the initialiser. Fields that the library does not know are 0.
    pub size: usize,
    /// Jobs of fork-join that ran on another thread than the one that made them.
    pub stolen: u64,
    /// Times a thread parked because it had to wait for such a job.
    pub waited: u64,
    /// Threads that were made to run other threads' jobs.
    pub helpers: u64,
    /// User threads created. This and what follows is 0 where there are none.
    pub created: u64,
    /// Times a worker switched to a thread.
    pub switches: u64,
    /// Times a thread parked.
    pub parks: u64,
    /// Times a worker took threads out of another's queue.
    pub steals: u64,
    /// Times a worker stuck in the kernel lost its processor to another.
    pub hand_offs: u64,
    /// Threads woken because a descriptor was ready.
    pub reactor_wakes: u64,
    /// Times a thread was switched away from because its slice was over.
    pub preemptions: u64,
    /// Times an idle worker was woken.
    pub notifications: u64,
    /// Threads that live now.
    pub live: u64,
    /// Workers asleep now.
    pub asleep: u64,
    /// Threads that wait for a worker now.
    pub queued: u64,
}

/// Stores the figures so far in *counters, whose size its initialiser has set. It does not block. Starts the process if
/// nothing has. Error: EINVAL: a null pointer, or a size that no version has.
///
/// # Safety
/// `counters` points to as many bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_counters(counters: *mut heddle_counters_t) -> c_int {
    answer("heddle_counters", || {
        let now = runtime::counters();
        let scheduler = now.scheduler.unwrap_or_default();
        let figures = heddle_counters_t {
            size: size_of::<heddle_counters_t>(),
            stolen: now.stolen as u64,
            waited: now.parked as u64,
            helpers: now.helpers as u64,
            created: scheduler.created,
            switches: scheduler.switches,
            parks: scheduler.parks,
            steals: scheduler.steals,
            hand_offs: scheduler.hand_offs,
            reactor_wakes: scheduler.reactor_wakes,
            preemptions: scheduler.preemptions,
            notifications: scheduler.notifications,
            live: scheduler.live,
            asleep: scheduler.asleep,
            queued: scheduler.queued,
        };
        // SAFETY: the caller's.
        unsafe { fill(counters, size_of::<heddle_counters_t>(), figures) }
    })
}
