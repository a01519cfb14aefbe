//! Starting, and what the process is.

use std::ffi::{c_char, c_int};

use runtime::{Mode, Options, StartError};

use crate::error::{Outcome, Refusal, answer, sized};

/// Major version of this header.
pub const HEDDLE_VERSION_MAJOR: c_int = 0;
/// Minor version of this header.
pub const HEDDLE_VERSION_MINOR: c_int = 1;
/// Patch level of this header.
pub const HEDDLE_VERSION_PATCH: c_int = 0;

const fn number(text: &str) -> c_int {
    let (bytes, mut at, mut number) = (text.as_bytes(), 0, 0);
    while at < bytes.len() {
        number = number * 10 + (bytes[at] - b'0') as c_int;
        at += 1;
    }
    number
}

const _: () = assert!(
    HEDDLE_VERSION_MAJOR == number(env!("CARGO_PKG_VERSION_MAJOR"))
        && HEDDLE_VERSION_MINOR == number(env!("CARGO_PKG_VERSION_MINOR"))
        && HEDDLE_VERSION_PATCH == number(env!("CARGO_PKG_VERSION_PATCH")),
    "the header has the package's version"
);

/// What a thread is, and where tasks run: one of HEDDLE_MODE_...
pub type heddle_mode_t = c_int;

/// What the process has; in options, what the environment variable HEDDLE_MODE says (user, kernel or process), or
/// else user threads.
pub const HEDDLE_MODE_DEFAULT: heddle_mode_t = 0;
/// User threads, which Heddle runs on a few kernel threads, its workers.
pub const HEDDLE_MODE_USER: heddle_mode_t = 1;
/// Kernel threads.
pub const HEDDLE_MODE_KERNEL: heddle_mode_t = 2;
/// Tasks (heddle_task_create) run in worker processes, which heddle_start forks; threads are user threads, in each
/// process, where these can be had.
pub const HEDDLE_MODE_PROCESS: heddle_mode_t = 3;

/// As many workers as HEDDLE_WORKERS says, or else as CPUs may be used.
pub const HEDDLE_WORKERS_DEFAULT: c_int = -1;
/// As many worker processes as HEDDLE_PROCESSES says, or else as CPUs may be used.
pub const HEDDLE_PROCESSES_DEFAULT: c_int = -1;

/// How to start. Set it by HEDDLE_OPTIONS_INIT, then change what is to be different.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct heddle_options_t {
    /// Size of this structure; set by the initialiser.
    pub size: usize,
    /// How many threads run at the same time, 1 to 1024, or HEDDLE_WORKERS_DEFAULT. In process mode the worker
    /// processes share as many among them, at least one each.
    pub workers: c_int,
    /// What threads are by default.
    pub mode: heddle_mode_t,
    /// Milliseconds that a user thread may keep its worker while others wait, 1 to 10000; 0: 10.
    pub slice_ms: u64,
    /// Stack of the threads that run other threads' fork-join jobs, in bytes, at least 16384; 0: 8 MiB. Only what is
    /// used costs memory.
    pub helper_stack: usize,
    /// Worker processes of process mode, 1 to 200, or HEDDLE_PROCESSES_DEFAULT.
    pub processes: c_int,
    /// 0.
    pub reserved: c_int,
    /// Address space for the memory that processes share, in bytes, 1 MiB to 512 GiB; 0: 1 GiB. Only what is used
    /// costs memory.
    pub arena: usize,
}

pub(crate) fn read_mode(mode: heddle_mode_t) -> Result<Option<Mode>, Refusal> {
    match mode {
        HEDDLE_MODE_DEFAULT => Ok(None),
        HEDDLE_MODE_USER => Ok(Some(Mode::User)),
        HEDDLE_MODE_KERNEL => Ok(Some(Mode::Kernel)),
        HEDDLE_MODE_PROCESS => Ok(Some(Mode::Process)),
        other => Err(Refusal::with_text(libc::EINVAL, format!("{other} is not a mode"))),
    }
}

/// Starts Heddle in this process: from here on every new thread, pthread_create's too, is a user thread, and what
/// blocks in the C library or any other parks the thread and leaves its worker to others. `options` may be NULL: the
/// defaults.
///
/// It must come before the process has a second thread, best first in main. Without it the first use of anything that
/// needs it starts with the defaults, and where user threads are not to be had goes on with kernel threads;
/// heddle_mode tells. Under `heddle run` the process is started already, with the command line's options: then only
/// helper_stack counts.
///
/// It does not block. Errors, with words in heddle_last_error; nothing is started then, and it may be called again:
/// EALREADY: it is started, by an earlier call or a use that needed it. EINVAL: an option, HEDDLE_WORKERS,
/// HEDDLE_MODE or HEDDLE_PROCESSES has a value that it may not have, as 0 workers. EBUSY: the process has other threads already. ENOTSUP:
/// the system does not allow what user threads need. E2BIG: an option that this library does not know is set.
///
/// # Safety
/// `options` is null or points to options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_start(options: *const heddle_options_t) -> c_int {
    answer("heddle_start", || {
        let defaults = heddle_options_t {
            size: size_of::<heddle_options_t>(),
            workers: HEDDLE_WORKERS_DEFAULT,
            mode: HEDDLE_MODE_DEFAULT,
            slice_ms: 0,
            helper_stack: 0,
            processes: HEDDLE_PROCESSES_DEFAULT,
            reserved: 0,
            arena: 0,
        };
        // SAFETY: the caller's.
        let asked = unsafe { sized(options, size_of::<heddle_options_t>(), defaults)? };
        start(asked)
    })
}

fn start(asked: heddle_options_t) -> Outcome {
    let mut options = Options::new();
    if asked.workers != HEDDLE_WORKERS_DEFAULT {
        let workers = usize::try_from(asked.workers)
            .map_err(|_| Refusal::with_text(libc::EINVAL, StartError::Workers(asked.workers as u32 as usize)))?;
        options = options.workers(workers);
    }
    if asked.processes != HEDDLE_PROCESSES_DEFAULT {
        let processes = usize::try_from(asked.processes)
            .map_err(|_| Refusal::with_text(libc::EINVAL, StartError::Processes(asked.processes as u32 as usize)))?;
        options = options.processes(processes);
    }
    if asked.reserved != 0 {
        return Err(Refusal::with_text(libc::E2BIG, "this libheddle is older than the program's heddle.h"));
    }
    if asked.arena != 0 {
        options = options.arena(asked.arena);
    }
    if let Some(mode) = read_mode(asked.mode)? {
        options = options.mode(mode);
    }
    if asked.slice_ms != 0 {
        options = options.slice_ms(asked.slice_ms);
    }
    if asked.helper_stack != 0 {
        options = options.helper_stack(asked.helper_stack);
    }
    runtime::start(options).map_err(|why| {
        let code = match why {
            StartError::AlreadyStarted => libc::EALREADY,
            StartError::OtherThreads(_) => libc::EBUSY,
            StartError::Refused(_) => libc::ENOTSUP,
            _ => libc::EINVAL,
        };
        Refusal::with_text(code, why)
    })
}

pub(crate) fn write_mode(mode: Mode) -> heddle_mode_t {
    match mode {
        Mode::User => HEDDLE_MODE_USER,
        Mode::Kernel => HEDDLE_MODE_KERNEL,
        Mode::Process => HEDDLE_MODE_PROCESS,
        _ => HEDDLE_MODE_DEFAULT,
    }
}

/// What a new thread of this process is by default: HEDDLE_MODE_USER or HEDDLE_MODE_KERNEL. Starts the process if
/// nothing has.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_mode() -> heddle_mode_t {
    write_mode(runtime::mode())
}

/// What the calling thread is: HEDDLE_MODE_USER or HEDDLE_MODE_KERNEL. Starts the process if nothing has.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_current_mode() -> heddle_mode_t {
    write_mode(runtime::current_mode())
}

/// How many threads run at the same time. Starts the process if nothing has.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_workers() -> usize {
    runtime::workers()
}

/// The library's version, as "0.1.0". That of the header is in HEDDLE_VERSION_MAJOR, _MINOR and _PATCH.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
