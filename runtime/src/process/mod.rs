//! Worker processes, tasks that run in them, and memory that they share.
//!
//! A *task* is a function and its argument ([`task()`]). In user and kernel mode it runs on a thread of this process; in process mode,
//! which is one setting ([`Options::mode`](crate::Options::mode) with [`Mode::Process`](crate::Mode::Process), or `HEDDLE_MODE=process`), in one of
//! the worker processes that [`start`](crate::start()) has made. There it runs on a thread of that process's own runtime, so tasks that wait
//! leave the processor to others, and a task may make threads, use `std` as it likes, and send tasks itself.
//!
//! ```
//! fn letters(text: heddle::process::ArenaString) -> usize {
//!     text.len()
//! }
//!
//! fn main() -> Result<(), heddle::process::TaskError> {
//!     // One setting: the program is the same in the other modes.
//!     heddle::start(heddle::Options::new().mode(heddle::Mode::Process).processes(2)).ok();
//!     let handle = heddle::task(letters, "weft".into());
//!     assert_eq!(handle.join()?, 4);
//!     Ok(())
//! }
//! ```
//!
//! # What may cross
//! Arguments and results are [`Shareable`]: plain data, or data in the *arena*, memory that all processes have at the same
//! address: [`ArenaBox`], [`ArenaArc`], [`ArenaVec`], [`ArenaString`], and in them [`Mutex`], [`Condvar`], and
//! the ends of channels ([`channel::across`](crate::channel::across)) and addresses of agents ([`agent::across`](crate::agent::across)). The
//! compiler refuses anything else. Everything else (statics, the heap, files opened later) is each process's own: they have what the
//! program had when it called `start`, and its changes are not seen by others. The function must have been in the program
//! then, too: one in a library that was loaded later is refused ([`TaskError::Function`]).
//!
//! # Deaths
//! A process that dies (a signal, `abort`, `exit`, `kill`; one that executes another program is killed) fails the tasks that it had begun, and no others, with
//! [`TaskError::Died`], which says how. Tasks that no process had begun go to others. Locks that it held are free to be
//! taken, and say so ([`MutexGuard::was_abandoned`]). It is replaced. What its tasks owned in the arena stays allocated.
//!
//! If the program's first process dies, in whatever way, or executes another program, its worker processes are killed.
//!
//! # Processes
//! They are children of a process that does nothing but fork and wait for them, which itself is a child that tells its parent nothing when
//! it ends: `wait` for any child and `SIGCHLD` are the program's alone. In them `SIGINT`, `SIGQUIT` and `SIGHUP`, which a terminal
//! sends to all processes of a program, do nothing; other dispositions and the signal mask are those that the program had at `start`.
//! In a child that the program forks itself the arena is not there.

#[cfg(not(loom))]
mod arena;
#[cfg(not(loom))]
mod boxes;
#[cfg(not(loom))]
mod forker;
mod free;
mod life;
#[cfg(not(loom))]
mod lock;
#[cfg(all(loom, test))]
mod models;
mod queue;
#[cfg(not(loom))]
mod ring;
#[cfg(not(loom))]
mod shareable;
#[cfg(not(loom))]
mod table;
#[cfg(not(loom))]
mod task;
#[cfg(not(loom))]
mod vec;
#[cfg(not(loom))]
mod wait;
mod word;
#[cfg(not(loom))]
mod worker;

#[cfg(not(loom))]
pub use self::{
    arena::{ArenaFull, Usage, usage},
    boxes::{ArenaArc, ArenaBox},
    lock::{Condvar, Mutex, MutexGuard},
    queue::Lost,
    shareable::{Shareable, check_shareable},
    state::{count, has_code, pids, place, task_mode},
    task::{TaskError, TaskHandle, task, task_on},
    vec::{ArenaString, ArenaVec, IntoIter},
};

#[cfg(not(loom))]
pub(crate) use self::{
    arena::{LEAST as LEAST_ARENA, MOST as MOST_ARENA, SIZE as ARENA, set_size as set_arena_size},
    forker::{after_start, launch},
    ring::{MOST as MOST_VALUES, Ring},
    state::{identity, is_dead, is_shared, keep_or_own},
    wait::{Across, deaths, wait, wait_beside, wake, wake_across},
    worker::aside,
};

#[cfg(not(loom))]
use self::state::is_first;

/// Most worker processes.
#[cfg(not(loom))]
pub(crate) const MOST: usize = 200;

/// What this process is.
#[cfg(not(loom))]
mod state {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::arena::header;
    use super::table::{FORKER, place_of};
    use crate::start::{self, Mode};

    /// Place 0, for the first time: the program's first process, or its only one.
    const FIRST: u32 = 1;
    static IDENTITY: AtomicU32 = AtomicU32::new(FIRST);
    static IS_SHARED: AtomicBool = AtomicBool::new(false);

    pub(super) fn become_process(identity: u32) {
        IDENTITY.store(identity, Ordering::Relaxed);
    }

    pub(super) fn share() {
        IS_SHARED.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn identity() -> u32 {
        IDENTITY.load(Ordering::Relaxed)
    }

    pub(super) fn is_first() -> bool {
        identity() == FIRST
    }

    /// Whether there are other processes.
    #[inline]
    pub(crate) fn is_shared() -> bool {
        IS_SHARED.load(Ordering::Relaxed)
    }

    pub(crate) fn is_dead(process: u32) -> bool {
        header().table.is_dead(process)
    }

    /// Whether there are other processes; if not there never will be: the arena is this process's own from now on.
    pub(crate) fn keep_or_own() -> bool {
        header();
        is_shared()
    }

    /// Which of the program's processes this is: 0 the first one, from 1 on the workers. A replacement has the place of the
    /// one that died.
    pub fn place() -> usize {
        place_of(identity())
    }

    /// How many worker processes the program has; 0 if it is not in process mode.
    pub fn count() -> usize {
        super::forker::count()
    }

    /// Whether worker processes have the code at this address, which is a function's: whether it may run in a task. False if there
    /// are none. For addresses that a task's argument holds; [`task`](crate::task()) looks after its function itself.
    pub fn has_code(function: *const ()) -> bool {
        super::forker::has_code(function as usize)
    }

    /// The process ids of the workers that live at this moment. One that was just forked has a number before it takes tasks.
    pub fn pids() -> Vec<u32> {
        if !is_shared() {
            return Vec::new();
        }
        let workers = &header().table.processes[1..FORKER];
        workers.iter().map(|process| process.pid.load(Ordering::Relaxed)).filter(|&pid| pid != 0).collect()
    }

    /// Where a task runs by default: in another process, or on a thread of [`mode`](crate::mode())'s kind. Starts the process if it has
    /// not been started.
    pub fn task_mode() -> Mode {
        let mode = start::mode();
        if is_shared() { Mode::Process } else { mode }
    }
}
