//! Threads. A thread of this library is a thread of `std`, so `std`'s thread-locals, locks, channels and input and output
//! work in it as they do anywhere; what is under it, the mode decides.
//!
//! # Safety
//! One private system call, which tells the runtime what the caller's next thread is to be.

use std::fmt;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use crate::image::Image;
use crate::start::{self, LEAST_STACK, Mode};
use crate::sync::{Mutex, OnceLock};

/// A handle of a thread, to unpark it by.
pub use std::thread::Thread;

/// `abi::thread::MAKE_APART`.
const MAKE_APART: i32 = 0x6865_646c;

type Order = Box<dyn FnOnce() + Send>;

/// A user thread that makes user threads for kernel threads, whose own are kernel threads.
static SPAWNER: OnceLock<Option<Mutex<Sender<Order>>>> = OnceLock::new();

/// The process has user threads from here on: makes the first, which starts the workers if there are none.
pub(crate) fn begin(image: Image) -> io::Result<()> {
    let (orders, received) = channel::<Order>();
    let (tell, told) = channel();
    thread::Builder::new().name("heddle".to_string()).stack_size(64 * 1024).spawn(move || {
        let is_user_thread = image.is_user_thread();
        let _ = tell.send(is_user_thread);
        if is_user_thread {
            received.iter().for_each(|order| order());
        }
    })?;
    let _ = SPAWNER.set(told.recv().unwrap_or(false).then(|| Mutex::new(orders)));
    Ok(())
}

/// Why there is no new thread.
#[derive(Debug)]
#[non_exhaustive]
pub enum SpawnError {
    /// The stack is smaller than 16 KiB.
    Stack(usize),
    /// The name has a byte 0 in it.
    Name(String),
    /// A kernel thread has asked for a user thread, and nobody can make one for it.
    NoUserThreads,
    /// The system's reason.
    System(io::Error),
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stack(n) => write!(f, "a stack of {n} bytes: it must be at least {LEAST_STACK}"),
            Self::Name(name) => write!(f, "a thread's name must not hold a byte 0: {name:?}"),
            Self::NoUserThreads => f.write_str("this process has no user threads that could make one"),
            Self::System(e) => write!(f, "no new thread: {e}"),
        }
    }
}

impl std::error::Error for SpawnError {}

/// A thread to be made.
///
/// ```
/// let thread = heddle::Builder::new().name("warp").stack_size(256 * 1024).spawn(|| 6 * 7)?;
/// assert_eq!(thread.join().unwrap(), 42);
/// # Ok::<(), heddle::SpawnError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder makes a thread when `spawn` is called"]
pub struct Builder {
    name: Option<String>,
    stack_size: Option<usize>,
    mode: Option<Mode>,
}

impl Builder {
    /// No name, a stack of 2 MiB, the mode of the process.
    pub const fn new() -> Self {
        Self { name: None, stack_size: None, mode: None }
    }

    /// Its name, which panics and debuggers show.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Its stack in bytes, at least 16 KiB. Only what is used costs memory.
    pub const fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// What it is to be. Where the process has no user threads (see [`crate::mode`]) asking for one is an error.
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Makes the thread.
    pub fn spawn<F, T>(self, f: F) -> Result<JoinHandle<T>, SpawnError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let mut builder = thread::Builder::new();
        if let Some(name) = self.name {
            if name.contains('\0') {
                return Err(SpawnError::Name(name));
            }
            builder = builder.name(name);
        }
        if let Some(size) = self.stack_size {
            if size < LEAST_STACK {
                return Err(SpawnError::Stack(size));
            }
            builder = builder.stack_size(size);
        }
        let inner = match self.mode.unwrap_or_else(start::mode) {
            Mode::User => spawn_user(builder, f),
            Mode::Kernel => spawn_kernel(builder, f),
        };
        inner.map(|inner| JoinHandle { inner })
    }
}

fn spawn_user<F, T>(builder: thread::Builder, f: F) -> Result<thread::JoinHandle<T>, SpawnError>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let Some(image) = start::image() else { return Err(SpawnError::NoUserThreads) };
    if image.is_user_thread() {
        return builder.spawn(f).map_err(SpawnError::System);
    }
    let Some(Some(spawner)) = SPAWNER.get() else { return Err(SpawnError::NoUserThreads) };
    let (answer, answered) = channel();
    let order: Order = Box::new(move || drop(answer.send(builder.spawn(f))));
    spawner.lock().send(order).map_err(|_| SpawnError::NoUserThreads)?;
    answered.recv().map_err(|_| SpawnError::NoUserThreads)?.map_err(SpawnError::System)
}

fn spawn_kernel<F, T>(builder: thread::Builder, f: F) -> Result<thread::JoinHandle<T>, SpawnError>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    if !start::image().is_some_and(Image::is_user_thread) {
        return builder.spawn(f).map_err(SpawnError::System);
    }
    // SAFETY: changes what the caller's next thread is.
    let make_apart = |apart: usize| unsafe { libc::prctl(MAKE_APART, MAKE_APART as usize, apart, 0, 0) };
    make_apart(1);
    let result = builder.spawn(f).map_err(SpawnError::System);
    make_apart(0);
    result
}

/// Makes a thread of the mode that the process has, from whatever thread calls.
pub(crate) fn spawn_std<F, T>(builder: thread::Builder, f: F) -> Result<thread::JoinHandle<T>, SpawnError>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    match start::mode() {
        Mode::User => spawn_user(builder, f),
        Mode::Kernel => spawn_kernel(builder, f),
    }
}

/// Makes a thread of the mode that the process has.
///
/// # Panics
/// If there is no memory for it; [`Builder::spawn`] answers an error instead.
///
/// ```
/// let thread = heddle::spawn(|| "woven");
/// assert_eq!(thread.join().unwrap(), "woven");
/// ```
pub fn spawn<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    match Builder::new().spawn(f) {
        Ok(handle) => handle,
        Err(why) => panic!("{why}"),
    }
}

/// Waits for a thread's end. Dropped, it lets the thread go on by itself.
#[derive(Debug)]
pub struct JoinHandle<T> {
    inner: thread::JoinHandle<T>,
}

impl<T> JoinHandle<T> {
    /// Waits until the thread has ended. Error: what it panicked with.
    pub fn join(self) -> thread::Result<T> {
        self.inner.join()
    }

    /// The thread's handle.
    pub fn thread(&self) -> &Thread {
        self.inner.thread()
    }

    /// Whether its function has returned.
    pub fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }
}

/// Lets other threads that are ready run first.
pub fn yield_now() {
    thread::yield_now();
}

/// Parks the calling thread for at least that long.
pub fn sleep(time: Duration) {
    thread::sleep(time);
}

/// Parks the calling thread until somebody unparks it ([`Thread::unpark`]), or has done so since it last was parked. It may
/// return early.
pub fn park() {
    thread::park();
}

/// As [`park`], for that long at most.
pub fn park_timeout(most: Duration) {
    thread::park_timeout(most);
}

/// The calling thread's handle.
pub fn current() -> Thread {
    thread::current()
}
