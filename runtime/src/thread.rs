//! Threads. `std`'s thread-locals, locks, channels and input and output work in them as they do anywhere; what is under a
//! thread, the mode decides.
//!
//! A user thread without a name that a user thread makes is one that is kept (`kept`): made in a tenth of a microsecond
//! if the last one left nothing behind. All others are threads of `std`, which knows their names.
//!
//! # Safety
//! One private system call, which tells the runtime what the caller's next thread is to be.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::cancel::{Limit, WaitError};
use crate::image::{Image, calls};
use crate::kept::{self, NotKept};
use crate::start::{self, LEAST_STACK, Mode};
use crate::sync::{Event, Mutex};

type Order = Box<dyn FnOnce() + Send>;

/// A user thread that makes user threads for kernel threads, whose own are kernel threads.
struct Spawner {
    orders: Mutex<Sender<Order>>,
    /// The child of a fork has none of its parent's threads.
    process: u32,
}

/// The last one made; never freed, so that no lock is held when a process forks.
static SPAWNER: AtomicPtr<Spawner> = AtomicPtr::new(std::ptr::null_mut());

fn spawner() -> Option<&'static Spawner> {
    // Acquire: it is written. pairs: thread.spawner
    // SAFETY: null or one that is never freed.
    unsafe { SPAWNER.load(Ordering::Acquire).as_ref() }
}

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
    if told.recv().unwrap_or(false) {
        let spawner = Box::new(Spawner { orders: Mutex::new(orders), process: std::process::id() });
        // Release: it is written. pairs: thread.spawner
        SPAWNER.store(Box::into_raw(spawner), Ordering::Release);
        image.announce();
    }
    Ok(())
}

/// Whether somebody makes user threads for the caller, which is none.
fn has_user_threads(image: Image) -> bool {
    let is_there = || spawner().is_some_and(|spawner| spawner.process == std::process::id());
    // The child of a fork has none until its first thread is made; that of a kernel thread never has.
    is_there() || spawner().is_some() && begin(image).is_ok() && is_there()
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
    /// The system does not allow that priority.
    Priority(Priority, io::Error),
    /// A thread cannot be in another process, since a closure cannot: tasks ([`crate::task`]) can.
    Process,
    /// The system's reason.
    System(io::Error),
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stack(n) => write!(f, "a stack of {n} bytes: it must be at least {LEAST_STACK}"),
            Self::Name(name) => write!(f, "a thread's name must not hold a byte 0: {name:?}"),
            Self::NoUserThreads => f.write_str("this process has no user threads that could make one"),
            Self::Priority(priority, e) => write!(f, "no thread with a nice value of {}: {e}", priority.nice()),
            Self::Process => {
                f.write_str("a closure cannot cross to another process: use `heddle::task`, or `heddle::agent::across`")
            }
            Self::System(e) => write!(f, "no new thread: {e}"),
        }
    }
}

impl std::error::Error for SpawnError {}

impl From<SpawnError> for io::Error {
    fn from(error: SpawnError) -> Self {
        match error {
            SpawnError::System(error) => error,
            other => Self::new(io::ErrorKind::InvalidInput, other),
        }
    }
}

/// How much a thread is to be preferred: a nice value, -20 (most) to 19 (least).
///
/// What it does depends on the mode:
/// - A **kernel thread** gets it from the kernel (`setpriority`), which gives each nice level about 1.25 times the CPU time
///   of the next when threads compete for a CPU. Values below the process's own need a privilege (`CAP_SYS_NICE` or
///   `RLIMIT_NICE`).
/// - For a **user thread** it is remembered and told (`getpriority`, `threads`), under the kernel's rules of who may set it,
///   and a child process that it forks gets it from the kernel; but **it changes nothing about when the thread runs**:
///   Heddle's scheduler has one class, in which threads take turns. Threads that have to be preferred are to be kernel threads
///   ([`Builder::mode`]), or wait for less.
///
/// In either mode threads that the thread makes inherit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Priority(i8);

impl Priority {
    /// A nice value of 19.
    pub const LOWEST: Self = Self(19);
    /// A nice value of 10.
    pub const LOW: Self = Self(10);
    /// A nice value of 0: what processes usually have.
    pub const NORMAL: Self = Self(0);
    /// A nice value of -10, which needs a privilege.
    pub const HIGH: Self = Self(-10);

    /// From a nice value. `None`: it is not one.
    pub const fn from_nice(nice: i32) -> Option<Self> {
        if nice >= -20 && nice <= 19 { Some(Self(nice as i8)) } else { None }
    }

    /// The nice value.
    pub const fn nice(self) -> i32 {
        self.0 as i32
    }

    /// Gives it to the calling thread.
    fn take(self) -> io::Result<()> {
        // SAFETY: touches no memory. 0: the calling thread.
        match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, self.nice()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// A thread to be made.
///
/// ```
/// let thread = heddle::Builder::new().name("warp".into()).stack_size(256 * 1024).spawn(|| 6 * 7)?;
/// assert_eq!(thread.join().unwrap(), 42);
/// # Ok::<(), heddle::SpawnError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder makes a thread when `spawn` is called"]
pub struct Builder {
    name: Option<String>,
    stack_size: Option<usize>,
    mode: Option<Mode>,
    priority: Option<Priority>,
}

impl Builder {
    /// No name, a stack of 2 MiB, the mode of the process, the priority of the caller.
    pub const fn new() -> Self {
        Self { name: None, stack_size: None, mode: None, priority: None }
    }

    /// Its name, which panics and debuggers show. (A `String`, as for [`std::thread::Builder`], so that what was written for
    /// that one, `"warp".into()` too, is understood.)
    pub fn name(mut self, name: String) -> Self {
        self.name = Some(name);
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

    /// Its priority; see there for what that means. `spawn` then waits until the thread has it, or answers
    /// [`SpawnError::Priority`].
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Makes the thread.
    pub fn spawn<F, T>(self, f: F) -> Result<JoinHandle<T>, SpawnError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let mut builder = thread::Builder::new();
        let plain = self.name.is_none() && self.priority.is_none();
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
        let mode = self.mode.unwrap_or_else(start::mode);
        let mut f = f;
        if mode == Mode::User
            && plain
            && let (Some(calls), Some(image)) = (calls(), start::image())
        {
            match kept::spawn(calls, image, self.stack_size, f) {
                Ok(handle) => {
                    let thread = Thread(Name::Kept(handle.record()));
                    return Ok(JoinHandle { inner: Inner::Kept(handle), thread });
                }
                Err(NotKept::System(why)) => return Err(SpawnError::System(why)),
                Err(NotKept::Elsewhere(back)) => f = back,
            }
        }
        let ended = Arc::new(Event::new());
        let here = ended.clone();
        let (order, answer) = match self.priority {
            Some(priority) => {
                let (tell, told) = channel();
                (Some((priority, tell)), Some((priority, told)))
            }
            None => (None, None),
        };
        let f = move || {
            let _here = Ending(here);
            if let Some((priority, tell)) = order {
                let result = priority.take();
                let failed = result.is_err();
                let _ = tell.send(result);
                if failed {
                    // The thread ends; nobody but `spawn` sees how.
                    std::panic::resume_unwind(Box::new(()));
                }
            }
            f()
        };
        let inner = match mode {
            Mode::User => spawn_user(builder, f),
            Mode::Kernel => spawn_kernel(builder, f),
            Mode::Process => Err(SpawnError::Process),
        }?;
        if let Some((priority, told)) = answer
            && let Ok(Err(why)) = told.recv()
        {
            let _ = inner.join();
            return Err(SpawnError::Priority(priority, why));
        }
        Ok(JoinHandle { thread: Thread(Name::Std(inner.thread().clone())), inner: Inner::Std(inner, ended) })
    }
}

/// Says at the end of a thread's function, however it ends, that it has ended.
struct Ending(Arc<Event>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.set();
    }
}

fn spawn_user<F, T>(builder: thread::Builder, f: F) -> Result<thread::JoinHandle<T>, SpawnError>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let Some(image) = start::image() else { return Err(SpawnError::NoUserThreads) };
    let is_there = image.is_user_thread() || has_user_threads(image);
    if image.is_user_thread() {
        return builder.spawn(f).map_err(SpawnError::System);
    }
    let (true, Some(spawner)) = (is_there, spawner()) else { return Err(SpawnError::NoUserThreads) };
    let (answer, answered) = channel();
    let order: Order = Box::new(move || drop(answer.send(builder.spawn(f))));
    spawner.orders.lock().send(order).map_err(|_| SpawnError::NoUserThreads)?;
    answered.recv().map_err(|_| SpawnError::NoUserThreads)?.map_err(SpawnError::System)
}

pub(crate) fn spawn_kernel<F, T>(builder: thread::Builder, f: F) -> Result<thread::JoinHandle<T>, SpawnError>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    // SAFETY: changes what the caller's next thread is, if the caller is a user thread.
    let make_apart = |apart| calls().into_iter().for_each(|calls| unsafe { (calls.make_apart)(apart) });
    make_apart(true);
    let result = builder.spawn(f).map_err(SpawnError::System);
    make_apart(false);
    result
}

/// Whom the caller has woken is to run on another worker: the caller goes on computing.
pub(crate) fn give_away() {
    if let Some(calls) = calls() {
        // SAFETY: the caller's own thread; changes nothing but where threads wait for a worker.
        unsafe { (calls.give_away)() };
    }
}

/// Makes a thread of the mode that the process has, from whatever thread calls.
pub(crate) fn spawn_std<F, T>(builder: thread::Builder, f: F) -> Result<thread::JoinHandle<T>, SpawnError>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    match start::mode() {
        Mode::User => spawn_user(builder, f),
        Mode::Kernel | Mode::Process => spawn_kernel(builder, f),
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

/// A thread's name among others, to unpark it by. What it names may have ended.
#[derive(Clone)]
pub struct Thread(Name);

#[derive(Clone)]
enum Name {
    Std(thread::Thread),
    Kept(&'static kept::Record),
}

/// Tells threads apart while both live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadId(Id);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Id {
    Std(thread::ThreadId),
    Kept(usize, u64),
}

impl Thread {
    /// Ends its [`park`], or the next one.
    pub fn unpark(&self) {
        match &self.0 {
            Name::Std(thread) => thread.unpark(),
            Name::Kept(record) => record.unpark(),
        }
    }

    /// What tells it from other threads.
    pub fn id(&self) -> ThreadId {
        ThreadId(match &self.0 {
            Name::Std(thread) => Id::Std(thread.id()),
            Name::Kept(record) => {
                let (record, life) = record.id();
                Id::Kept(record, life)
            }
        })
    }

    /// The name it was given.
    pub fn name(&self) -> Option<&str> {
        match &self.0 {
            Name::Std(thread) => thread.name(),
            Name::Kept(_) => None,
        }
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread").field("id", &self.id()).field("name", &self.name()).finish()
    }
}

/// Waits for a thread's end. Dropped, it lets the thread go on by itself.
///
/// A thread is joined once, since `join` takes the handle:
/// ```compile_fail,E0382
/// let thread = heddle::spawn(|| ());
/// thread.join().unwrap();
/// thread.join().unwrap();
/// ```
#[derive(Debug)]
pub struct JoinHandle<T> {
    inner: Inner<T>,
    thread: Thread,
}

#[derive(Debug)]
enum Inner<T> {
    Std(thread::JoinHandle<T>, Arc<Event>),
    Kept(kept::Handle<T>),
}

impl<T> JoinHandle<T> {
    /// Waits until the thread has ended. Error: what it panicked with.
    pub fn join(self) -> thread::Result<T> {
        match self.inner {
            Inner::Std(handle, _) => handle.join(),
            Inner::Kept(handle) => handle.join(),
        }
    }

    /// Waits until the thread's function has returned or panicked, or until the limit. After `Ok`, [`join`](Self::join) waits
    /// for no more than the destructors of its thread-locals. Several threads may wait.
    pub fn wait_until<'l>(&self, limit: impl Into<Limit<'l>>) -> Result<(), WaitError> {
        match &self.inner {
            Inner::Std(_, ended) => ended.wait_until(limit),
            Inner::Kept(handle) => handle.wait_within(&limit.into()),
        }
    }

    /// The thread's handle.
    pub fn thread(&self) -> &Thread {
        &self.thread
    }

    /// Whether its function has returned.
    pub fn is_finished(&self) -> bool {
        match &self.inner {
            Inner::Std(handle, _) => handle.is_finished(),
            Inner::Kept(handle) => handle.is_finished(),
        }
    }
}

/// The caller's record, if it is a thread that is kept.
fn own_record() -> Option<&'static kept::Record> {
    kept::Record::own(calls()?)
}

/// Lets other threads that are ready run first. A [fiber](crate::fiber) lets other fibers of its carrier, if there are any.
pub fn yield_now() {
    if crate::fiber::are_in_use() { yield_fiber() } else { yield_thread() }
}

/// Where there are fibers. Neither of the two is inlined, so that who calls the other saves no registers for it.
#[inline(never)]
fn yield_fiber() {
    if !crate::fiber::give_turn() {
        yield_thread();
    }
}

#[inline(never)]
fn yield_thread() {
    match calls() {
        // SAFETY: a thread's own call.
        Some(calls) => unsafe { (calls.yield_now)() },
        None => thread::yield_now(),
    }
}

/// Parks the calling thread, or fiber, for at least that long.
pub fn sleep(time: Duration) {
    if crate::fiber::is_fiber() {
        let _ = crate::cancel::sleep_until(time); // without a token it ends with the time
    } else {
        thread::sleep(time);
    }
}

/// Parks the calling thread until somebody unparks it ([`Thread::unpark`]), or has done so since it last was parked. It may
/// return early.
pub fn park() {
    match own_record() {
        Some(record) => record.park(None),
        None => thread::park(),
    }
}

/// As [`park`], for that long at most.
pub fn park_timeout(most: Duration) {
    match own_record() {
        Some(record) => record.park(Some(Instant::now() + most)),
        None => thread::park_timeout(most),
    }
}

/// The calling thread's handle.
pub fn current() -> Thread {
    Thread(match own_record() {
        Some(record) => Name::Kept(record),
        None => Name::Std(thread::current()),
    })
}
