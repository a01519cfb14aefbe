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
    /// For tasks ([`crate::task`]): a worker process. A thread is never one.
    Process,
}

/// How to start; see [`start()`].
#[derive(Clone, Debug)]
#[must_use = "options do nothing until `start` gets them"]
pub struct Options {
    mode: Option<Mode>,
    workers: Option<usize>,
    slice_ms: u64,
    helper_stack: usize,
    processes: Option<usize>,
    arena: usize,
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
    /// User threads; as many workers as CPUs may be used, unless `HEDDLE_MODE` (`user`, `kernel` or `process`) and
    /// `HEDDLE_WORKERS` say otherwise.
    pub const fn new() -> Self {
        let arena = crate::process::ARENA;
        Self { mode: None, workers: None, slice_ms: 0, helper_stack: 8 << 20, processes: None, arena }
    }

    /// What threads are by default. With [`Mode::Kernel`] the process is left as it is. With [`Mode::Process`] tasks
    /// ([`crate::task`]) run in worker processes, and threads are user threads, in each process, where these can be had.
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// How many threads run at the same time, 1 to 1024: workers, in user mode, and in any mode those that fork-join uses. In
    /// process mode the worker processes share as many among them, at least one each.
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

    /// Worker processes of process mode, 1 to 200; by default what `HEDDLE_PROCESSES` says, else as many as CPUs may be used.
    pub const fn processes(mut self, processes: usize) -> Self {
        self.processes = Some(processes);
        self
    }

    /// Address space for the arena ([`crate::process`]) in bytes, 1 MiB to 512 GiB, by default 1 GiB; only what is used costs
    /// memory.
    pub const fn arena(mut self, bytes: usize) -> Self {
        self.arena = bytes;
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
    /// The number of worker processes is 0 or more than 200.
    Processes(usize),
    /// The arena is less than 1 MiB or more than 512 GiB.
    Arena(usize),
    /// An environment variable says something else than it may.
    Environment(&'static str, String),
    /// User threads are to be had only while the process has one thread; it has that many.
    ///
    /// Threads that exist already may be in the middle of the instructions that would be replaced, or may wait in the kernel for
    /// a futex that from then on would be woken in Heddle's table only. So `start` refuses, rather than leave a thread
    /// asleep for ever. Start first thing in `main` (before a logger, an allocator or a runtime makes a thread), or run the
    /// program under `heddle run`, which is there before its constructors. Test harnesses make threads: tests that want
    /// user threads need `harness = false`.
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
            Self::Processes(n) => write!(f, "{n} worker processes: it must be 1 to {}", crate::process::MOST),
            Self::Arena(n) => write!(f, "an arena of {n} bytes: it must be 1 MiB to 512 GiB"),
            Self::Environment(name, value) => match *name {
                "HEDDLE_MODE" => write!(f, "{name}={value}: it must be user, kernel or process"),
                "HEDDLE_PROCESSES" => write!(f, "{name}={value}: it must be 1 to {}", crate::process::MOST),
                _ => write!(f, "{name}={value}: it must be 1 to {MOST_WORKERS}"),
            },
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
    start_processes(&options)?;
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

#[inline]
fn process() -> &'static Process {
    PROCESS.get().unwrap_or_else(first_use)
}

#[cold]
#[inline(never)]
fn first_use() -> &'static Process {
    let options = without_mistakes();
    let _ = start_processes(&options);
    PROCESS.get_or_init(|| {
        prepare(&options).or_else(|_| prepare(&options.mode(Mode::Kernel))).unwrap_or(Process {
            image: None,
            workers: 1,
            helper_stack: 8 << 20,
        })
    })
}

/// The options of a process that has not called `start`. Where the environment says what cannot be, there is nobody to give the
/// error to: it says so on standard error, and goes on as if that variable were not set.
fn without_mistakes() -> Options {
    let mut options = Options::new();
    while let Err(why) = check(&options) {
        match why {
            StartError::Environment("HEDDLE_WORKERS", _) => options = options.workers(usable()),
            StartError::Environment("HEDDLE_MODE", _) => options = options.mode(Mode::User),
            _ => break,
        }
        eprintln!("heddle: {why}; it is ignored");
    }
    options
}

fn usable() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Forks the worker processes if that is the mode: before anything is started, since each begins as a copy of this process
/// and starts its own runtime.
fn start_processes(options: &Options) -> Result<(), StartError> {
    if PROCESS.get().is_some() || crate::process::is_shared() {
        return Ok(());
    }
    let (workers, mode) = check(options)?;
    crate::process::set_arena_size(options.arena);
    if mode != Mode::Process {
        return Ok(());
    }
    let processes = match options.processes {
        Some(n) => n,
        None => number("HEDDLE_PROCESSES", crate::process::MOST)?.unwrap_or_else(usable),
    };
    if !(1..=crate::process::MOST).contains(&processes) {
        return Err(StartError::Processes(processes));
    }
    only_thread()?;
    crate::process::launch(processes, (workers.unwrap_or_else(usable) / processes).max(1), options.slice_ms)
}

/// The number from 1 to `most` that a variable holds, if it is set.
fn number(name: &'static str, most: usize) -> Result<Option<usize>, StartError> {
    let Some(text) = std::env::var_os(name) else { return Ok(None) };
    match text.to_str().and_then(|text| text.parse().ok()) {
        Some(number) if (1..=most).contains(&number) => Ok(Some(number)),
        _ => Err(StartError::Environment(name, text.to_string_lossy().into_owned())),
    }
}

fn only_thread() -> Result<(), StartError> {
    let threads = fs::read_dir("/proc/self/task")
        .map_err(|e| StartError::Refused(format!("cannot read /proc/self/task: {e}")))?
        .count();
    if threads == 1 { Ok(()) } else { Err(StartError::OtherThreads(threads)) }
}

/// What is asked for, if all of it can be: how many workers, and the mode.
fn check(options: &Options) -> Result<(Option<usize>, Mode), StartError> {
    let asked = match options.workers {
        Some(n) => Some(n),
        None => number("HEDDLE_WORKERS", MOST_WORKERS)?,
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
    if !(crate::process::LEAST_ARENA..=crate::process::MOST_ARENA).contains(&options.arena) {
        return Err(StartError::Arena(options.arena));
    }
    let mode = match options.mode {
        Some(mode) => mode,
        None => match std::env::var("HEDDLE_MODE").as_deref() {
            Ok("user") | Err(_) => Mode::User,
            Ok("kernel") => Mode::Kernel,
            Ok("process") => Mode::Process,
            Ok(other) => return Err(StartError::Environment("HEDDLE_MODE", other.to_string())),
        },
    };
    Ok((asked, mode))
}

fn prepare(options: &Options) -> Result<Process, StartError> {
    let (asked, mode) = check(options)?;
    if mode == Mode::Process {
        let threads = |mode| prepare(&options.clone().mode(mode));
        let process = threads(Mode::User).or_else(|_| threads(Mode::Kernel))?;
        if crate::process::is_shared() {
            crate::process::after_start()?;
        }
        return Ok(process);
    }
    let helper_stack = options.helper_stack;
    let present = match Image::present() {
        // Its threads look like the kernel's.
        Err(_) if mode == Mode::Kernel => None,
        present => present.map_err(StartError::Refused)?,
    };
    if let Some(image) = present {
        if image.is_active() {
            crate::thread::begin(image).map_err(|e| StartError::Refused(format!("cannot start workers: {e}")))?;
            return Ok(Process { image: Some(image), workers: image.workers() as usize, helper_stack });
        }
        if mode == Mode::User {
            return Err(StartError::Refused("the runtime is loaded and could not take over this process".to_string()));
        }
    }
    if mode == Mode::Kernel {
        return Ok(Process { image: None, workers: asked.unwrap_or_else(usable), helper_stack });
    }
    only_thread()?;
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
#[inline]
pub fn mode() -> Mode {
    if process().image.is_some() { Mode::User } else { Mode::Kernel }
}

/// How many threads run at the same time. Starts the process if it has not been started.
pub fn workers() -> usize {
    process().workers
}

#[inline]
pub(crate) fn image() -> Option<Image> {
    process().image
}

pub(crate) fn helper_stack() -> usize {
    process().helper_stack
}

/// Whether the caller is a user thread. Does not start the process.
pub(crate) fn is_user_thread() -> bool {
    PROCESS.get().and_then(|process| process.image).is_some_and(Image::is_user_thread)
}

/// What the calling thread is.
pub fn current_mode() -> Mode {
    match process().image {
        Some(image) if image.is_user_thread() => Mode::User,
        _ => Mode::Kernel,
    }
}
