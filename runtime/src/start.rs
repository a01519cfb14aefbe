//! Starting: which kind of threads this process has, and how many workers.

use std::fmt;
use std::fs;

use crate::image::Image;
use crate::sync::OnceLock;

/// What a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// A user thread: Heddle runs it on one of its workers.
    User,
    /// A kernel thread.
    Kernel,
}

/// How to start; see [`start()`].
#[derive(Clone, Debug)]
#[must_use = "options do nothing until `start` gets them"]
pub struct Options {
    mode: Option<Mode>,
    workers: Option<usize>,
    slice_ms: u64,
    helper_stack: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

/// Most workers.
const MOST_WORKERS: usize = 1024;
/// Least stack of a thread, in bytes.
pub(crate) const LEAST_STACK: usize = 16 * 1024;

impl Options {
    /// User threads; as many workers as CPUs may be used, unless `HEDDLE_MODE` (`user` or `kernel`) and `HEDDLE_WORKERS` say
    /// otherwise.
    pub const fn new() -> Self {
        Self { mode: None, workers: None, slice_ms: 0, helper_stack: 8 << 20 }
    }

    /// What threads are by default. With [`Mode::Kernel`] the process is left as it is.
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// How many threads run at the same time, 1 to 1024: workers, in user mode, and in any mode those that fork-join uses.
    pub const fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Milliseconds that a user thread may keep its worker while others wait, 1 to 10000; by default 10.
    pub const fn slice_ms(mut self, slice: u64) -> Self {
        self.slice_ms = slice;
        self
    }

    /// Stack of the threads that run other threads' fork-join jobs, in bytes; by default 8 MiB, of which only what is used
    /// costs memory.
    pub const fn helper_stack(mut self, bytes: usize) -> Self {
        self.helper_stack = bytes;
        self
    }
}

/// Why the process was not started as asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// It has been started, by an earlier `start` or by the first use of anything that needs it.
    AlreadyStarted,
    /// The number of workers is 0 or more than 1024.
    Workers(usize),
    /// The time slice is more than 10000 ms.
    Slice(u64),
    /// The helpers' stack is less than 16 KiB.
    Stack(usize),
    /// An environment variable says something else than it may.
    Environment(&'static str, String),
    /// User threads are to be had only while the process has one thread; it has that many.
    OtherThreads(usize),
    /// The system does not allow what user threads need, or this program cannot have them.
    Refused(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyStarted => f.write_str("heddle has been started already"),
            Self::Workers(n) => write!(f, "{n} workers: it must be 1 to {MOST_WORKERS}"),
            Self::Slice(n) => write!(f, "a time slice of {n} ms: it must be at most 10000"),
            Self::Stack(n) => write!(f, "a stack of {n} bytes: it must be at least {LEAST_STACK}"),
            Self::Environment(name, value) => write!(f, "{name}={value}: not a value it may have"),
            Self::OtherThreads(n) => {
                write!(f, "the process has {n} threads: start before it makes others, or run it under `heddle run`")
            }
            Self::Refused(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for StartError {}

/// How the process was started.
#[derive(Clone, Copy)]
struct Process {
    image: Option<Image>,
    workers: usize,
    helper_stack: usize,
}

static PROCESS: OnceLock<Process> = OnceLock::new();

/// Starts Heddle in this process: from here on `std::thread` makes user threads, and what blocks in libc, in `std` or in any
/// library parks the thread and leaves its worker to others.
///
/// It must come before the process has a second thread. Under `heddle run` it is there already, and its options are those
/// of the command line: then only `helper_stack` counts.
///
/// If it is not called, the first use of anything that needs it starts with [`Options::new`]; and if user threads are not to
/// be had then, goes on with kernel threads. [`mode`] tells.
pub fn start(options: Options) -> Result<(), StartError> {
    let mut result = Err(StartError::AlreadyStarted);
    let mut refused = None;
    let outcome = &mut result;
    PROCESS.get_or_try(|| match prepare(&options) {
        Ok(process) => {
            *outcome = Ok(());
            Some(process)
        }
        Err(why) => {
            refused = Some(why);
            None
        }
    });
    match refused {
        Some(why) => Err(why),
        None => result,
    }
}

fn process() -> &'static Process {
    PROCESS.get_or_init(|| {
        let options = Options::new();
        prepare(&options).or_else(|_| prepare(&options.mode(Mode::Kernel))).unwrap_or(Process {
            image: None,
            workers: 1,
            helper_stack: 8 << 20,
        })
    })
}

fn prepare(options: &Options) -> Result<Process, StartError> {
    let asked = match options.workers {
        Some(n) => Some(n),
        None => match std::env::var("HEDDLE_WORKERS") {
            Ok(text) => Some(text.parse().map_err(|_| StartError::Environment("HEDDLE_WORKERS", text.clone()))?),
            Err(_) => None,
        },
    };
    if let Some(n) = asked
        && !(1..=MOST_WORKERS).contains(&n)
    {
        return Err(StartError::Workers(n));
    }
    if options.slice_ms > 10_000 {
        return Err(StartError::Slice(options.slice_ms));
    }
    if options.helper_stack < LEAST_STACK {
        return Err(StartError::Stack(options.helper_stack));
    }
    let mode = match options.mode {
        Some(mode) => mode,
        None => match std::env::var("HEDDLE_MODE").as_deref() {
            Ok("user") | Err(_) => Mode::User,
            Ok("kernel") => Mode::Kernel,
            Ok(other) => return Err(StartError::Environment("HEDDLE_MODE", other.to_string())),
        },
    };
    let helper_stack = options.helper_stack;
    if let Some(image) = Image::present() {
        if image.is_active() {
            crate::thread::begin(image).map_err(|e| StartError::Refused(format!("cannot start workers: {e}")))?;
            return Ok(Process { image: Some(image), workers: image.workers() as usize, helper_stack });
        }
        if mode == Mode::User {
            return Err(StartError::Refused("the runtime is loaded and could not take over this process".to_string()));
        }
    }
    let usable = || std::thread::available_parallelism().map_or(1, usize::from);
    if mode == Mode::Kernel {
        return Ok(Process { image: None, workers: asked.unwrap_or_else(usable), helper_stack });
    }
    let threads = fs::read_dir("/proc/self/task")
        .map_err(|e| StartError::Refused(format!("cannot read /proc/self/task: {e}")))?
        .count();
    if threads != 1 {
        return Err(StartError::OtherThreads(threads));
    }
    // SAFETY: the process has one thread, this one.
    let image = unsafe { Image::bring(asked.unwrap_or(0) as u32, options.slice_ms) }.map_err(StartError::Refused)?;
    if !image.is_active() {
        return Err(StartError::Refused("a program that holds Go code cannot have user threads".to_string()));
    }
    // The first thread starts the workers. If it cannot, that is to be known now.
    crate::thread::begin(image).map_err(|e| StartError::Refused(format!("cannot start workers: {e}")))?;
    Ok(Process { image: Some(image), workers: image.workers() as usize, helper_stack })
}

/// What a new thread is by default in this process. Starts it if it has not been started.
pub fn mode() -> Mode {
    if process().image.is_some() { Mode::User } else { Mode::Kernel }
}

/// How many threads run at the same time. Starts the process if it has not been started.
pub fn workers() -> usize {
    process().workers
}

pub(crate) fn image() -> Option<Image> {
    process().image
}

pub(crate) fn helper_stack() -> usize {
    process().helper_stack
}

/// What the calling thread is.
pub fn current_mode() -> Mode {
    match process().image {
        Some(image) if image.is_user_thread() => Mode::User,
        _ => Mode::Kernel,
    }
}
