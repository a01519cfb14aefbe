//! Tasks: a function and its argument, sent to a process, and the wait for the result.
//!
//! # Waiting for results
//! A thread that waits for a bell of another process takes a kernel thread along, so one waits for all: the *listener*, any
//! of the threads of this process that wait for a task. When the process's bell rings it looks which of the tasks are over, wakes
//! their threads, which are parked like any other, and when its own task is over makes another its successor.

use std::alloc::Layout;
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::os::unix::process::ExitStatusExt;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitStatus;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use super::arena::{ArenaFull, header};
use super::table::{self, Task};
use super::vec::ArenaString;
use super::{Shareable, forker, identity, is_shared, wait};
use crate::cancel::{Limit, WaitError};
use crate::start::Mode;
use crate::sync::Mutex;
use crate::thread::{Builder, JoinHandle, SpawnError};
use crate::{futex, start};

/// Why a task has no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum TaskError {
    /// It panicked, with this message.
    Panicked(String),
    /// The process that ran it has died, in this way.
    Died(ExitStatus),
    /// The process that makes worker processes has died, and they with it.
    Lost,
    /// The function is not in what the program had mapped when it was started: worker processes do not have it.
    Function,
    /// The arena has no room for its argument or its result.
    Full(ArenaFull),
    /// There are 65536 tasks that are not over or not joined.
    TooMany,
    /// A task for another process where there is none: the program was not started in process mode.
    NoProcesses,
    /// In user or kernel mode: there is no thread for it.
    Thread(SpawnError),
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked(text) => write!(f, "the task panicked: {text}"),
            Self::Died(how) => write!(f, "the task's process died: {how}"),
            Self::Lost => f.write_str("the program has no worker processes any more"),
            Self::Function => f.write_str("the task's function was not in the program when it was started"),
            Self::Full(full) => full.fmt(f),
            Self::TooMany => write!(f, "{} tasks are not over or not joined", table::TASKS),
            Self::NoProcesses => f.write_str("the program was not started in process mode"),
            Self::Thread(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for TaskError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Full(full) => Some(full),
            Self::Thread(why) => Some(why),
            _ => None,
        }
    }
}

/// Runs a function with an argument as a task: in process mode in another process, otherwise on another thread.
///
/// A closure that captures nothing is a function too. If the task cannot be sent, [`TaskHandle::join`] says why, and the argument has
/// been dropped.
///
/// ```
/// let handles: Vec<_> = (1..=4).map(|n: u64| heddle::task(|n| n * n, n)).collect();
/// let squares: u64 = handles.into_iter().map(|handle| handle.join().unwrap()).sum();
/// assert_eq!(squares, 30);
/// ```
pub fn task<A: Shareable, R: Shareable>(function: fn(A) -> R, argument: A) -> TaskHandle<R> {
    task_on(super::task_mode(), function, argument)
}

/// As [`task`], in this mode whatever the program's is. [`Mode::Process`] needs a program that was started in it.
pub fn task_on<A: Shareable, R: Shareable>(mode: Mode, function: fn(A) -> R, argument: A) -> TaskHandle<R> {
    start::mode();
    let result = match mode {
        Mode::Process => send(function, argument).map(Inner::Remote),
        mode => {
            Builder::new().mode(mode).spawn(move || function(argument)).map(Inner::Thread).map_err(TaskError::Thread)
        }
    };
    TaskHandle { inner: ManuallyDrop::new(result.unwrap_or_else(Inner::Failed)), result: PhantomData }
}

/// Places for tasks that this process holds.
static HELD: Mutex<Vec<u32>> = Mutex::new(Vec::new());
const AT_ONCE: usize = 32;

fn hold() -> Result<u32, TaskError> {
    let mut held = HELD.lock();
    if held.is_empty() {
        header().table.hold(identity(), AT_ONCE, &mut held);
    }
    held.pop().ok_or(TaskError::TooMany)
}

/// Frees a task that is over, whose result has been taken.
fn let_go(number: u32) {
    header().table.clear(number, identity());
    let mut held = HELD.lock();
    held.push(number);
    if held.len() > 2 * AT_ONCE {
        header().table.give_back(held.drain(AT_ONCE..));
    }
}

fn send<A: Shareable, R: Shareable>(function: fn(A) -> R, argument: A) -> Result<u32, TaskError> {
    if !is_shared() {
        return Err(TaskError::NoProcesses);
    }
    let run: Run = run::<A, R>;
    let drop_result: DropResult = drop_result::<R>;
    if ![function as usize, run as usize, drop_result as usize].into_iter().all(forker::has_code) {
        return Err(TaskError::Function);
    }
    let table = &header().table;
    let number = hold()?;
    let task = table.task(number);
    let (a, r) = (Layout::new::<A>(), Layout::new::<R>());
    let both = Layout::from_size_align(a.size().max(r.size()), a.align().max(r.align()));
    let room = both.map_err(|_| ArenaFull { bytes: usize::MAX }).and_then(|both| task.make_room(both));
    if let Err(full) = room {
        let_go(number);
        return Err(TaskError::Full(full));
    }
    task.run.store(run as usize, Ordering::Relaxed);
    task.function.store(function as usize, Ordering::Relaxed);
    task.drop_result.store(drop_result as usize, Ordering::Relaxed);
    // SAFETY: we hold the task, and its room is large enough.
    unsafe { task.storage().cast::<A>().write(argument) };
    table.push(number);
    if table.is_lost.load(Ordering::Relaxed) != 0 {
        table.lose_all();
    }
    Ok(number)
}

type Run = unsafe fn(&Task) -> u32;
type DropResult = unsafe fn(&Task);

/// Runs a task; the answer is its state after.
///
/// # Safety
/// The caller has taken the task, which was sent with these types.
unsafe fn run<A: Shareable, R: Shareable>(task: &Task) -> u32 {
    let function = task.function.load(Ordering::Relaxed);
    // SAFETY: it was such a function when it was sent, and this process is a copy of one that had it at the same address.
    let function = unsafe { mem::transmute::<usize, fn(A) -> R>(function) };
    // SAFETY: the argument is read once.
    let argument = unsafe { task.storage().cast::<A>().read() };
    argument.arrived();
    match panic::catch_unwind(AssertUnwindSafe(move || function(argument))) {
        Ok(result) => {
            // SAFETY: there is room for it, and the argument is not there any more.
            unsafe { task.storage().cast::<R>().write(result) };
            table::DONE
        }
        Err(what) => {
            let text = Text::new(&text_of(&*what));
            // What it panicked with may panic when it is dropped.
            mem::forget(what);
            // SAFETY: as above; there is room inside for this one.
            unsafe { task.inside().cast::<Text>().write(text) };
            table::PANICKED
        }
    }
}

/// Drops a result.
///
/// # Safety
/// The task was sent with this type of result, and is done.
unsafe fn drop_result<R: Shareable>(task: &Task) {
    // SAFETY: the result, once.
    unsafe { task.storage().cast::<R>().drop_in_place() };
}

fn text_of(what: &(dyn Any + Send)) -> String {
    let text = what.downcast_ref::<&str>().copied().or_else(|| what.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("something that is not text").to_owned()
}

/// What a task panicked with: cut off if the arena has no room for it.
enum Text {
    Whole(ArenaString),
    Begin([u8; 100], usize),
}

const _: () = assert!(size_of::<Text>() <= table::INSIDE);

impl Text {
    fn new(text: &str) -> Self {
        ArenaString::try_from_str(text).map_or_else(
            |_| {
                let mut begin = [0; 100];
                let len = (0..=text.len().min(begin.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
                begin[..len].copy_from_slice(&text.as_bytes()[..len]);
                Self::Begin(begin, len)
            },
            Self::Whole,
        )
    }

    fn as_str(&self) -> &str {
        match self {
            Self::Whole(text) => text,
            Self::Begin(begin, len) => std::str::from_utf8(&begin[..*len]).unwrap_or_default(),
        }
    }
}

/// A worker process runs a task that it has taken.
pub(super) fn perform(number: u32) {
    let table = &header().table;
    let task = table.task(number);
    let run = task.run.load(Ordering::Relaxed);
    // SAFETY: a function of this type, by the sender; the same code is at the same address here. We have taken the task.
    let state = unsafe { mem::transmute::<usize, Run>(run)(task) };
    if !table.end(number, state) {
        discard(number, state);
    }
}

/// Drops what a task has left that nobody wants, and frees it.
fn discard(number: u32, state: u32) {
    let task = header().table.task(number);
    match state & !table::DETACHED {
        table::DONE => {
            let drop_result = task.drop_result.load(Ordering::Relaxed);
            // SAFETY: a function of this type, by the sender, and the task is ours.
            let dropped = panic::catch_unwind(AssertUnwindSafe(|| unsafe {
                mem::transmute::<usize, DropResult>(drop_result)(task);
            }));
            mem::forget(dropped);
        }
        // SAFETY: the text is there, and the task is ours.
        table::PANICKED => unsafe { task.inside().cast::<Text>().drop_in_place() },
        _ => {}
    }
    let_go(number);
}

enum Inner<R> {
    Thread(JoinHandle<R>),
    Remote(u32),
    Failed(TaskError),
}

/// Waits for a task's end. Dropped, it lets the task go on by itself.
pub struct TaskHandle<R: Shareable> {
    inner: ManuallyDrop<Inner<R>>,
    result: PhantomData<R>,
}

impl<R: Shareable> TaskHandle<R> {
    /// Waits until the task is over. Error: why it has no result.
    pub fn join(mut self) -> Result<R, TaskError> {
        // SAFETY: not used again: there is no drop after this.
        let inner = unsafe { ManuallyDrop::take(&mut self.inner) };
        mem::forget(self);
        match inner {
            Inner::Failed(why) => Err(why),
            Inner::Thread(thread) => thread.join().map_err(|what| {
                let text = text_of(&*what);
                mem::forget(what);
                TaskError::Panicked(text)
            }),
            Inner::Remote(number) => {
                // Without a limit it ends when the task is over.
                let _ = wait_for(number, &Limit::NEVER);
                let task = header().table.task(number);
                // SAFETY: the task is over and ours; what its state says is there, and read once.
                let result = unsafe {
                    match task.state() {
                        table::DONE => {
                            let result = task.storage().cast::<R>().read();
                            result.arrived();
                            Ok(result)
                        }
                        table::PANICKED => {
                            let text = task.inside().cast::<Text>().read();
                            Err(TaskError::Panicked(text.as_str().to_owned()))
                        }
                        table::DIED => {
                            let status = task.status.load(Ordering::Relaxed);
                            Err(TaskError::Died(ExitStatus::from_raw(status.cast_signed())))
                        }
                        _ => Err(TaskError::Lost),
                    }
                };
                let_go(number);
                result
            }
        }
    }

    /// Why the task could not be sent, if so: what [`join`](Self::join) will answer.
    pub fn refusal(&self) -> Option<&TaskError> {
        match &*self.inner {
            Inner::Failed(why) => Some(why),
            _ => None,
        }
    }

    /// Waits until the task is over, or until the limit. After `Ok`, [`join`](Self::join) does not wait for the task. Several
    /// threads may wait. In process mode a token may be looked at every 5 ms only.
    pub fn wait_until<'l>(&self, limit: impl Into<Limit<'l>>) -> Result<(), WaitError> {
        match &*self.inner {
            Inner::Failed(_) => Ok(()),
            Inner::Thread(thread) => thread.wait_until(limit),
            Inner::Remote(number) => wait_for(*number, &limit.into()),
        }
    }

    /// Whether the task is over.
    pub fn is_finished(&self) -> bool {
        match &*self.inner {
            Inner::Failed(_) => true,
            Inner::Thread(thread) => thread.is_finished(),
            Inner::Remote(number) => table::is_over(header().table.task(*number).state()),
        }
    }
}

impl<R: Shareable> Drop for TaskHandle<R> {
    fn drop(&mut self) {
        // SAFETY: not used again.
        if let Inner::Remote(number) = unsafe { ManuallyDrop::take(&mut self.inner) } {
            let task = header().table.task(number);
            if header().table.detach(task) {
                discard(number, task.state());
            }
        }
    }
}

impl<R: Shareable> fmt::Debug for TaskHandle<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskHandle").field("is_finished", &self.is_finished()).finish()
    }
}

/// A thread that waits for a task.
struct Waiter {
    number: u32,
    word: AtomicU32,
}

const WAITS: u32 = 0;
const IS_OVER: u32 = 1;
const LISTENS: u32 = 2;

/// Those of this process.
struct Waiting {
    has_listener: bool,
    /// Without the listener. On their threads' stacks, until they have been taken out.
    waiters: Vec<*const Waiter>,
}

// SAFETY: the addresses are used under the lock.
unsafe impl Send for Waiting {}

static WAITING: Mutex<Waiting> = Mutex::new(Waiting { has_listener: false, waiters: Vec::new() });

fn is_over(number: u32) -> bool {
    table::is_over(header().table.task(number).state())
}

fn wait_for(number: u32, limit: &Limit<'_>) -> Result<(), WaitError> {
    for _ in 0..super::worker::looks() {
        if is_over(number) {
            return Ok(());
        }
        std::hint::spin_loop();
    }
    let waiter = Waiter { number, word: AtomicU32::new(WAITS) };
    {
        let mut waiting = WAITING.lock();
        // The listener looks at all after each ring: a task that is over before we are in the list has to be seen here.
        if is_over(number) {
            return Ok(());
        }
        if waiting.has_listener {
            waiting.waiters.push(ptr::from_ref(&waiter));
        } else {
            waiting.has_listener = true;
            waiter.word.store(LISTENS, Ordering::Relaxed);
        }
    }
    loop {
        // Acquire: whoever stored it has taken us out of the list. pairs: task.waiter
        match waiter.word.load(Ordering::Acquire) {
            WAITS => {
                if let Err(why) = futex::wait_within(&waiter.word, WAITS, limit) {
                    let mut waiting = WAITING.lock();
                    // Under the lock nobody takes us out.
                    if waiter.word.load(Ordering::Relaxed) == WAITS {
                        waiting.waiters.retain(|&other| !ptr::eq(other, &waiter));
                        return Err(why);
                    }
                }
            }
            IS_OVER => return Ok(()),
            _ => return listen(number, limit),
        }
    }
}

/// Waits for all, until the own task is over or the limit has come.
fn listen(number: u32, limit: &Limit<'_>) -> Result<(), WaitError> {
    let table = &header().table;
    let me = identity();
    let mut result = Ok(());
    loop {
        let deaths = wait::deaths();
        let heard = table.process(me).bell.heard();
        let mut waiting = WAITING.lock();
        waiting.waiters.retain(|&waiter| {
            // SAFETY: it is in the list, so its thread waits.
            let is_over = is_over(unsafe { (*waiter).number });
            if is_over {
                tell(waiter, IS_OVER);
            }
            !is_over
        });
        let is_over = is_over(number);
        if is_over || result.is_err() {
            match waiting.waiters.pop() {
                Some(next) => tell(next, LISTENS),
                None => waiting.has_listener = false,
            }
            return if is_over { Ok(()) } else { result };
        }
        drop(waiting);
        result = table.wait_for_bell(me, heard, deaths, limit);
    }
}

/// The waiter has been taken out of the list.
fn tell(waiter: *const Waiter, what: u32) {
    // SAFETY: its thread waits for this store; after it only the word's address is used.
    unsafe {
        let word = &raw const (*waiter).word;
        // Release: we do not touch it any more. pairs: task.waiter
        (*word).store(what, Ordering::Release);
        futex::wake(word, 1);
    }
}
