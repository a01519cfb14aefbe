//! Fibers: threads that have a stack of their own and inherit the rest, libc's thread-locals, `errno`, name and signal mask, from the
//! thread that carries them just then.
//!
//! A [thread](crate::spawn()) of Heddle keeps its libc identity, which bounds how cheap it can be: its thread-locals are in pages of
//! their own, the CPU's register for them changes with each switch, and they are compared when the thread is used again. A
//! fiber does without. It is made and joined in tens of nanoseconds, and one that waits costs one page of memory. In return it has to
//! keep the rules below, which the compiler cannot check: making one is `unsafe`.
//!
//! ```
//! fn fib(n: u32) -> u64 {
//!     if n < 2 {
//!         return n.into();
//!     }
//!     // SAFETY: touches no thread-local, and the stack is large enough for 20 calls.
//!     let a = unsafe { heddle::fiber::spawn(move || fib(n - 1)) };
//!     let b = fib(n - 2);
//!     a.join().unwrap() + b
//! }
//! assert_eq!(fib(20), 6765);
//! ```
//!
//! # Who runs them
//! As many threads as there are workers, *carriers*, of the mode that the process has. Whatever of Heddle's a fiber waits for (a lock, a
//! channel, a mailbox, a task, [`sleep`](crate::sleep), another fiber), its carrier runs another one meanwhile, and it may go on on
//! another carrier. What waits otherwise (`std`'s locks and channels, input and output, system calls) blocks the carrier, as does waiting
//! inside the closures of [`join`](crate::join()) and [`scope`](crate::scope()), and [`park`](crate::park()), which is the
//! thread's; a carrier more is made when fibers lie still because of that, up to 64. A fiber that computes is not interrupted
//! for other fibers of its carrier; those are stolen by idle ones, or wait.
//!
//! # The rules
//! Whoever makes a fiber vouches that, while it runs,
//! - nothing that belongs to a thread is kept across a wait: no reference into a thread-local, no guard of a lock of `std`'s, or of
//!   any other that has to be given back by the thread that took it, no `Rc` that a thread-local shares;
//! - no function that waits is inlined into one that uses a thread-local, of Rust or C (`errno` too), before and after: the compiler may
//!   remember where it was. (Between two waits everything is as in a thread: `malloc`, `println!` and `errno` right after a call
//!   just work.)
//! - the control words of floating-point arithmetic are as they were found whenever it waits;
//! - its stack is large enough: below it is a page that cannot be touched, so it ends the process if it is not.
//!
//! In the child of a `fork` only the fiber is there that has forked.
//!
//! # Safety
//! A fiber's record has one user at a time: who made it, who runs it, who joins it; its state hands it over.

mod carrier;
mod claim;
mod clock;
#[doc(hidden)]
pub mod named;
mod queue;
mod record;
mod sleepers;
mod stack;
mod state;
mod switch;
mod table;

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::atomic::AtomicU32;
use std::thread::Result;
use std::time::Instant;

use crate::cancel::{Limit, WaitError};
use crate::carried::Carried;
use crate::futex;
use crate::prim::{relax, yield_worker};
use crate::start::LEAST_STACK;
use crate::thread::SpawnError;
use carrier::{After, Carrier, Pool, current, movable};
use record::{Act, Head, Ref, act, begin};
use state::{Now, State, WAITED};
use switch::Start;
use table::Waiter;

/// Waits while the word has this value, and the other one, if there is one, is 0, as [`crate::futex`] does. `None`: the caller is no
/// fiber, or one that has to wait with its carrier. False: the deadline has passed.
pub(crate) fn wait(word: &AtomicU32, value: u32, other: Option<&AtomicU32>, deadline: Option<Instant>) -> Option<bool> {
    let (carrier, me) = movable()?;
    let pool = match deadline {
        None => carrier.pool(),
        Some(_) => Pool::get().ok()?, // the clock runs: in the child of a fork it may have to be made
    };
    let waiter = Waiter::new(me, word, other);
    // SAFETY: the waiter is withdrawn, and leaves the table, before it goes.
    unsafe {
        let key = deadline.map(|time| pool.clock.add(time, &raw const waiter));
        if pool.table.enter(&waiter, value) {
            carrier.leave(me, After::Unlock, (&raw const waiter).cast());
            pool.table.leave(&waiter);
        }
        Some(key.is_none_or(|key| pool.clock.withdraw(&key)))
    }
}

/// Has up to `count` fibers run that wait on the word at this address; answers how many.
#[inline]
pub(crate) fn wake(word: *const AtomicU32, count: u32) -> u32 {
    match Pool::present() {
        Some(pool) => pool.table.wake(word, count, carrier::make_ready),
        None => 0,
    }
}

/// Whether the caller is a fiber.
pub fn is_fiber() -> bool {
    current().is_some()
}

/// Whether there are fibers in this process, or were.
#[inline]
pub(crate) fn are_in_use() -> bool {
    Pool::present().is_some()
}

/// Lets other fibers that are ready run first. False: the caller is no fiber, or there are none. Asked where there
/// [are](are_in_use) fibers.
#[inline]
pub(crate) fn give_turn() -> bool {
    // SAFETY: the calling fiber.
    movable().is_some_and(|(carrier, me)| unsafe { carrier.give_turn(me) })
}

/// A fiber to be made.
#[derive(Clone, Debug, Default)]
#[must_use = "a builder makes a fiber when `spawn` is called"]
pub struct Builder {
    stack_size: Option<usize>,
}

/// The class of a stack of 64 KiB.
const STACK: u8 = match stack::class(64 * 1024) {
    Some(class) => class,
    None => unreachable!(),
};

impl Builder {
    /// A stack of 64 KiB.
    pub const fn new() -> Self {
        Self { stack_size: None }
    }

    /// Its stack in bytes, at least 16 KiB, at most 1 GiB; rounded up to a power of two. Only what is used costs memory.
    pub const fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Makes the fiber. Error: the stack's size, or the system's reason.
    ///
    /// # Safety
    /// What the function does keeps [the rules](crate::fiber#the-rules).
    #[inline]
    pub unsafe fn spawn<F, T>(self, f: F) -> std::result::Result<JoinHandle<T>, SpawnError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: the caller's.
        unsafe { self.spawn_as(current(), 0, f) }
    }

    /// Makes it for the caller, `here`, with a [name](named); or with 0 for none.
    ///
    /// # Safety
    /// As for [`spawn`](Self::spawn).
    #[inline]
    unsafe fn spawn_as<F, T>(self, here: Here, name: u64, f: F) -> std::result::Result<JoinHandle<T>, SpawnError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let class = match self.stack_size {
            None => STACK,
            Some(size) if size < LEAST_STACK => return Err(SpawnError::Stack(size)),
            Some(size) => stack::class(size).ok_or(SpawnError::Stack(size))?,
        };
        // SAFETY: the caller's.
        unsafe { make(here, class, name, f) }.map_err(SpawnError::System)
    }
}

/// Makes a fiber with a stack of 64 KiB.
///
/// # Safety
/// What the function does keeps [the rules](crate::fiber#the-rules).
///
/// # Panics
/// If there is no memory for it; [`Builder::spawn`] answers an error instead.
#[inline]
pub unsafe fn spawn<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    // SAFETY: the caller's.
    match unsafe { Builder::new().spawn(f) } {
        Ok(handle) => handle,
        Err(why) => panic!("{why}"),
    }
}

/// The calling fiber and its carrier; `None`: the caller is none.
type Here = Option<(&'static Carrier, Ref)>;

/// # Safety
/// As for [`Builder::spawn`]; `here` is [`current`].
unsafe fn make<F, T>(here: Here, class: u8, name: u64, f: F) -> io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let stack = match here {
        Some((carrier, _)) => carrier.take_stack(class)?,
        None => Pool::get()?.take_stack(class)?,
    };
    let record = stack.0.as_ptr();
    // SAFETY: the stack is ours; the record is at its top, and what is below it is free.
    let fiber = unsafe {
        (&raw mut (*record).head).write(Head {
            start: UnsafeCell::new(Start::new(begin)),
            context: Cell::new(record.cast()),
            carrier: Cell::new(std::ptr::null()),
            state: State::new(),
            act: Cell::new(act::<F, T>),
            next: Cell::new(std::ptr::null()),
            class: Cell::new(class),
        });
        let fiber = Ref(stack.0);
        if name != 0 {
            fiber.claim.set(name);
        }
        fiber.room.put(&Carried::new(f));
        fiber
    };
    match here {
        Some((carrier, _)) => carrier.add(fiber),
        None => Pool::get()?.inject(fiber),
    }
    Ok(JoinHandle { fiber, result: PhantomData })
}

/// Waits for a fiber's end. Dropped, it lets the fiber go on by itself.
pub struct JoinHandle<T> {
    fiber: Ref,
    result: PhantomData<T>,
}

// SAFETY: the result, of type T, goes to whoever has the handle.
unsafe impl<T: Send> Send for JoinHandle<T> {}
// SAFETY: a shared handle tells whether the fiber has ended, and no more.
unsafe impl<T> Sync for JoinHandle<T> {}

impl<T> JoinHandle<T> {
    /// Waits until the fiber has ended. Error: what it panicked with. A fiber that joins another one leaves its carrier to others; a
    /// thread parks.
    #[inline]
    pub fn join(self) -> Result<T> {
        self.join_as(current())
    }

    /// As [`join`](Self::join), where the caller has been asked for already.
    #[inline]
    fn join_as(self, here: Here) -> Result<T> {
        let this = ManuallyDrop::new(self);
        let me = this.wait_for_end(here);
        // SAFETY: the function has returned, and the handle is gone with this call.
        unsafe {
            let result = this.fiber.room.get_out::<Result<T>>();
            match me {
                Some(me) => me.carrier().put_stack(this.fiber),
                None => this.put_back(),
            }
            result
        }
    }

    /// Answers who waited, if it was a fiber that went straight on.
    #[inline]
    fn wait_for_end(&self, here: Here) -> Option<Ref> {
        let state = &self.fiber.state;
        if let Some((carrier, me)) = here.filter(|(carrier, _)| carrier.may_be_left()) {
            // SAFETY: the calling fiber; the handle is ours.
            unsafe {
                if !carrier.run_newest(me, self.fiber) && !state.is_done() {
                    carrier.leave(me, After::Join, self.fiber.0.as_ptr().cast());
                }
            }
            if state.is_for(me.number()) {
                return Some(me);
            }
        }
        let _ = self.wait_until(Limit::NEVER);
        None
    }

    /// Puts the stack back.
    ///
    /// # Safety
    /// The fiber has ended, its result was taken, and the handle is not used again.
    #[cold]
    unsafe fn put_back(&self) {
        match current() {
            Some((carrier, _)) => carrier.put_stack(self.fiber),
            None => {
                if let Some(pool) = Pool::present() {
                    pool.put_stack(self.fiber);
                }
            }
        }
    }

    /// Waits until the fiber has ended, or until the limit. Several may wait.
    pub fn wait_until<'l>(&self, limit: impl Into<Limit<'l>>) -> std::result::Result<(), WaitError> {
        let (limit, state) = (limit.into(), &self.fiber.state);
        let mut turns = 0;
        loop {
            match state.ask() {
                Now::Done => return Ok(()),
                Now::Soon => {
                    turns += 1;
                    if turns % 64 == 0 { yield_worker() } else { relax() }
                }
                // SAFETY: the state is there as long as the handle.
                Now::Waited => match futex::wait_within(unsafe { &*state.word() }, WAITED as u32, &limit) {
                    Err(_) if state.is_done() => {}
                    result => result?,
                },
            }
        }
    }

    /// Whether its function has returned.
    pub fn is_finished(&self) -> bool {
        self.fiber.state.is_done()
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        loop {
            match self.fiber.state.detach() {
                Some(true) => return,
                Some(false) => break,
                None => yield_worker(),
            }
        }
        // SAFETY: the function has returned, and the handle is gone with this call.
        unsafe {
            (self.fiber.act.get())(&self.fiber.room, Act::Drop);
            self.put_back();
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("finished", &self.is_finished()).finish_non_exhaustive()
    }
}
