//! The scheduler: processors, workers, and what makes threads run. See `README.md` in this folder for the sleep/wake
//! protocol and its proof.
//!
//! A *worker* is a kernel thread of ours. A *processor* is the right to run threads: a run queue, a heap of deadlines,
//! counters. There are as many processors as CPUs the process may use; a worker needs one to run threads, and loses it
//! when it is stuck in the kernel while there is work (hand-off).

mod account;
mod errand;
mod holder;
mod idle;
mod inject;
mod lately;
mod limit;
mod monitor;
mod near;
mod sleepers;
mod spinning;
mod worker;

pub use account::{Watcher, cpu_time};
pub use errand::{Absent, Call, Errands, no_longer_held};
pub use holder::Holder;
pub use idle::Sleepers;
pub use inject::Why;
use inject::{Computing, Injection};
pub use monitor::{MONITOR, Monitor};
pub use near::{Peer, sent};
pub use worker::base;
pub use worker::{
    SIGNAL_STACK, Worker, back_from_kernel, blocking, blocking_for_long, calling, current, enter_kernel, exit_current,
    finish_switch, give_turn, give_way, hand_over, is_settled, park, park_for, preempt, prepare_to_settle, rest,
    sched_loop_entry, settle, stay, take_turns, this_processor, this_worker, worker, yield_now,
};

pub use lately::Lately;
use limit::Limit;

use crate::arch::{self, Context, ticks};
use crate::clock;
use crate::counters::{Counters, Sum};
use crate::fresh::Fresh;
use crate::lock::SpinLock;
use crate::park::{Reason, Ticket};
use crate::posted::Posted;
use crate::reactor::fd::Descriptors;
use crate::reactor::{BATCH, CLOCK, Event, Reactor, WAKE};
use crate::runq::RunQueue;
use crate::thread::{State, Table, Thread};
use crate::timer::Timers;
use crate::wait_table::{WaitTable, Wakeable};
use crate::wall::{Clock, Deadline, Offsets};
use crate::{mem, sys::linux as l};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Processors that one process can have.
pub const MAX_PROCESSORS: usize = 1024;

/// The right to run threads, and what goes with it.
#[repr(align(64))]
pub struct Processor {
    /// Runnable threads.
    pub queue: RunQueue<Thread>,
    /// Threads that were made runnable by [`launch`] and have not run yet.
    pub fresh: Fresh<Thread>,
    /// Threads that other processors' workers left to it.
    pub posted: Posted<Thread>,
    /// How many peers of its threads are near.
    share: near::Share,
    /// Threads that rest until they are given something to do; its worker's alone. See [`take_resting`].
    resting: Resting,
    /// Deadlines of threads that parked here.
    pub timers: Timers,
    /// Whether its worker is inside a system call that may block.
    pub holder: Holder,
    /// Counts switches; the monitor sees by it whether a thread has been running for long.
    pub tick: AtomicU32,
    /// The worker that holds it.
    pub worker: AtomicPtr<Worker>,
    /// A deadline was added since the last switch.
    pub armed: AtomicBool,
    /// So many injected threads come before those in the ring (see `turns::give_way`).
    pub favoured: AtomicU32,
    /// The time, not long ago.
    pub lately: Lately,
    /// What `lately` said at the last look at the deadlines.
    pub last_look: AtomicU64,
    /// The same at the last look at the reactor in passing.
    last_events: AtomicU64,
    /// `arch::ticks` when its worker asked the reactor last.
    heard: AtomicU64,
    /// Of the thread that runs.
    turn: Turn,
    /// Whether its threads do nothing but yield.
    spin: Spin,
    /// Whose turn it is, theirs that compute or theirs that wait.
    computing: Computing,
    /// Turns of polling before sleep that have paid off lately (see `idle`).
    pub patience: AtomicU32,
    /// The queue's `taken` when a searcher first left a single queued thread alone, and `arch::ticks` of then.
    pub watched: AtomicU32,
    /// See `watched`.
    pub watched_since: AtomicU64,
    /// `taken` of `fresh` at the last look, and `arch::ticks` of the first look that found it so (see `worker::overdue`).
    oldest_fresh: AtomicU32,
    oldest_since: AtomicU64,
    /// How long its workers have slept and napped, in ticks.
    slept: AtomicU64,
    /// Its worker naps (see `limit`).
    naps: AtomicBool,
    /// Its number.
    pub index: u32,
    /// What happened here.
    pub counters: Counters,
}

/// See `turns::take_turns`.
#[derive(Default)]
struct Turn {
    /// The processor's `tick` when it began.
    tick: AtomicU32,
    /// `arch::ticks` when it began.
    began: AtomicU64,
    /// The same, or `arch::ticks` when nobody else was found to be waiting.
    since: AtomicU64,
    /// How long it may last, in ticks.
    length: AtomicU64,
}

/// See `turns::look_beyond`.
#[derive(Default)]
struct Spin {
    /// Yields since `tick` and `since`.
    yields: AtomicU32,
    /// The processor's `tick` then.
    tick: AtomicU32,
    /// `arch::ticks` then.
    since: AtomicU64,
    /// The processor's `tick` when another one looked last: if it is still that, a thread computes.
    seen: AtomicU32,
    /// How long yields took that found nobody else to run, in ticks.
    alone_for: AtomicU64,
    /// When the last one of them ended (`arch::ticks`).
    last: AtomicU64,
    /// How many waits they were: those that follow each other at once are one.
    waits: AtomicU64,
}

/// Threads linked by `next`, the latest first.
struct Resting {
    head: AtomicPtr<Thread>,
    len: AtomicU32,
}

impl Resting {
    const fn new() -> Self {
        Self { head: AtomicPtr::new(core::ptr::null_mut()), len: AtomicU32::new(0) }
    }
}

/// Resting threads that one processor keeps.
const RESTING: u32 = 128;

impl Processor {
    /// Whether threads wait here to run, as one look tells.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        !self.queue.is_empty() || !self.fresh.is_empty() || !self.posted.is_empty()
    }
}

/// What the layer above wants to be told.
#[derive(Clone, Copy)]
pub struct Hooks {
    /// A new worker runs its first instructions on its own kernel thread, signals blocked.
    pub worker_started: unsafe fn(&mut Worker),
    /// Signals arrived while the worker was in the core: see to them. No locks are held.
    pub attend: unsafe fn(*mut Worker),
    /// Tell the worker on the kernel thread `tid` to look at its [`Worker::preempt`].
    pub preempt: unsafe fn(tid: i32),
}

/// Everything about the runtime of this process.
pub struct Runtime {
    started: AtomicBool,
    processors: AtomicPtr<Processor>,
    count: AtomicU32,
    injection: Injection,
    hooks: SpinLock<Option<Hooks>>,
    /// All workers, linked by `Worker::next_of_all`; only grows.
    all_workers: AtomicPtr<Worker>,
    /// Workers without a processor.
    spares: SpinLock<*mut Worker>,
    /// Kernel threads made as workers.
    workers: AtomicU32,
    /// The kernel has what `Fresh` needs.
    heavy_fences: AtomicBool,
    /// Most workers there may be.
    worker_cap: AtomicU32,
    /// Workers that the monitor is to make.
    wanted: AtomicU32,
    /// Those that it has made for threads that did not settle.
    prepared: AtomicU32,
    /// Who sleeps and who searches.
    pub sleepers: Sleepers,
    /// How many workers nap.
    limit: Limit,
    /// The watchdog.
    pub monitor: Monitor,
    /// What a switch has to do besides: `account::CHARGE`, `account::TELL`, `account::KEYS`.
    watched: AtomicU8,
    /// Told of each switch, while `account::TELL` is set.
    watcher: AtomicPtr<()>,
    /// What all kernel threads have to do.
    pub errands: Errands,
    /// The epoll instance.
    pub reactor: Reactor,
    /// How far the clocks are from CLOCK_MONOTONIC.
    offsets: Offsets,
    /// Threads parked on descriptors.
    pub descriptors: Descriptors,
    /// Threads parked on addresses.
    pub futexes: &'static WaitTable<Sleeper>,
    /// All threads.
    pub threads: Table,
}

// SAFETY: the raw pointer in `spares` is reached only under its lock; workers are never freed.
unsafe impl Sync for Runtime {}

/// Apart from [`RT`], which is not zero at first and so is in the file.
#[cfg(not(loom))]
static FUTEXES: WaitTable<Sleeper> = WaitTable::new();

/// The runtime of this process.
#[cfg(not(loom))]
pub static RT: Runtime = Runtime {
    started: AtomicBool::new(false),
    processors: AtomicPtr::new(core::ptr::null_mut()),
    count: AtomicU32::new(0),
    injection: Injection::new(),
    hooks: SpinLock::new(None),
    all_workers: AtomicPtr::new(core::ptr::null_mut()),
    spares: SpinLock::new(core::ptr::null_mut()),
    workers: AtomicU32::new(0),
    heavy_fences: AtomicBool::new(false),
    // More than the kernel gives: its refusal is what programs know. With all workers in the kernel nobody runs.
    worker_cap: AtomicU32::new(65536),
    wanted: AtomicU32::new(0),
    prepared: AtomicU32::new(0),
    sleepers: Sleepers::new(),
    limit: Limit::new(),
    monitor: Monitor::new(),
    watched: AtomicU8::new(0),
    watcher: AtomicPtr::new(core::ptr::null_mut()),
    errands: Errands::new(),
    reactor: Reactor::new(),
    offsets: Offsets::new(),
    descriptors: Descriptors::new(),
    futexes: &FUTEXES,
    threads: Table::new(),
};

/// Who waits in the wait table: a user thread, or a kernel thread that is not ours.
#[derive(Clone, Copy)]
pub enum Sleeper {
    /// A user thread and its wait.
    Thread(*mut Thread, Ticket),
    /// A kernel thread that sleeps on this word: 0 = asleep, 1 = claimed, 2 = awake.
    Kernel(*const AtomicU32),
    /// As well, a kernel thread of a process that shares our memory, which may be killed while it waits.
    Child(*const AtomicU32, i32),
}

impl Wakeable for Sleeper {
    fn claim(&self) -> bool {
        match *self {
            // SAFETY: control blocks are never unmapped.
            Sleeper::Thread(t, ticket) => unsafe { (*t).park.claim(ticket, Reason::Woken) },
            Sleeper::Child(_, process) if crate::sys::has_ended(process) => false,
            // SAFETY: the word lives on the sleeper's stack, which it does not leave while linked or claimed; a child's stays.
            // AcqRel: as in `ParkWord::claim`. pairs: kernel.sleeper
            Sleeper::Kernel(word) | Sleeper::Child(word, _) => unsafe {
                (*word).compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            },
        }
    }
    fn run(&self, alone: bool) {
        match *self {
            // SAFETY: we claimed it.
            Sleeper::Thread(t, _) => unsafe {
                let p = worker::my_processor();
                if alone {
                    let now = p.map_or_else(ticks, |p| p.lately.ticks());
                    (*t).warm_until.store(now.wrapping_add(RT.sleepers.warmth()), Ordering::Relaxed);
                }
                ready_from(p, t);
            },
            Sleeper::Kernel(word) | Sleeper::Child(word, _) => {
                // SAFETY: once the word is 2 the sleeper may leave its frame: the futex wake uses only the address, and
                // a wake of an address nobody waits on does nothing.
                unsafe {
                    // Release: what we did happens before what the sleeper does. pairs: kernel.sleeper
                    (*word).store(2, Ordering::Release);
                    sys!(l::__NR_futex, word, l::FUTEX_WAKE | l::FUTEX_PRIVATE_FLAG, 1, 0, 0, 0);
                }
            }
        }
    }
}

/// Options of the runtime.
#[derive(Clone, Copy)]
pub struct Options {
    /// Processors, at least 1.
    pub workers: u32,
    /// How long a thread may run while others wait, in nanoseconds.
    pub slice: u64,
    /// Do not poll before sleeping (one CPU only).
    pub single_cpu: bool,
}

impl Runtime {
    /// Whether the runtime runs threads.
    #[inline]
    pub fn is_started(&self) -> bool {
        self.started.load(Ordering::Acquire) // Acquire: processors and hooks are there. pairs: rt.started
    }

    /// The processors.
    #[inline]
    pub fn processors(&self) -> &[Processor] {
        let n = self.count.load(Ordering::Relaxed) as usize;
        let p = self.processors.load(Ordering::Relaxed);
        if p.is_null() {
            return &[];
        }
        // SAFETY: `count` processors were written at start and are never unmapped.
        unsafe { core::slice::from_raw_parts(p, n) }
    }

    /// Starts the runtime on a process with one thread: the calling kernel thread becomes the first worker and its flow of
    /// control the first user thread, `main`. Signals must be blocked. Error: errno, nothing changed but memory reserved.
    ///
    /// # Safety
    /// The process has no other thread that uses the runtime; `main` is a fresh block whose identity is filled in.
    pub unsafe fn start(&self, options: Options, hooks: Hooks, main: *mut Thread) -> Result<(), i32> {
        let n = options.workers.clamp(1, MAX_PROCESSORS as u32);
        if self.processors.load(Ordering::Relaxed).is_null() {
            let p: *mut Processor = mem::map(MAX_PROCESSORS * size_of::<Processor>())?.cast();
            self.processors.store(p, Ordering::Relaxed);
        }
        let p = self.processors.load(Ordering::Relaxed);
        self.descriptors.reserve()?;
        self.reactor.open()?;
        if self.reactor.hears_of_clocks() {
            self.offsets.renew(Clock::to_monotonic, || ());
        }
        for i in 0..n {
            // SAFETY: room for MAX_PROCESSORS, used by nobody else yet.
            unsafe {
                p.add(i as usize).write(Processor {
                    // Only other processors' workers steal.
                    queue: if n == 1 { RunQueue::unshared() } else { RunQueue::new() },
                    fresh: Fresh::new(),
                    posted: Posted::new(),
                    share: near::Share::default(),
                    resting: Resting::new(),
                    timers: Timers::new(),
                    holder: Holder::new(),
                    tick: AtomicU32::new(0),
                    worker: AtomicPtr::new(core::ptr::null_mut()),
                    armed: AtomicBool::new(false),
                    lately: Lately::default(),
                    last_look: AtomicU64::new(0),
                    last_events: AtomicU64::new(0),
                    heard: AtomicU64::new(0),
                    turn: Turn::default(),
                    spin: Spin::default(),
                    computing: Computing::default(),
                    patience: AtomicU32::new(idle::PATIENCE_MAX / 2),
                    favoured: AtomicU32::new(0),
                    watched: AtomicU32::new(0),
                    watched_since: AtomicU64::new(0),
                    oldest_fresh: AtomicU32::new(0),
                    oldest_since: AtomicU64::new(0),
                    slept: AtomicU64::new(0),
                    naps: AtomicBool::new(false),
                    index: i,
                    counters: Counters::default(),
                })
            };
        }
        self.count.store(1, Ordering::Relaxed);
        self.heavy_fences.store(crate::prim::has_heavy_fence(), Ordering::Relaxed);
        *self.hooks.lock() = Some(hooks);
        self.sleepers.configure(options.single_cpu);
        // SAFETY: this kernel thread is alone.
        unsafe {
            worker::adopt(main, &*p)?;
            // Release: all of the above happens before a worker or a foreign thread sees `started`. pairs: rt.started
            self.started.store(true, Ordering::Release);
            // The monitor first: without it nothing may run. Fewer workers than asked for are no reason to fail.
            self.monitor.start(options.slice)?;
            for i in 1..n {
                self.count.store(i + 1, Ordering::Relaxed);
                if worker::spawn(Some(&*p.add(i as usize))).is_err() {
                    self.count.store(i, Ordering::Relaxed);
                    break;
                }
            }
            // Last, since it lets signals in: the kernel threads above inherit a mask that blocks them.
            (hooks.worker_started)(&mut *worker::worker());
        }
        Ok(())
    }

    /// After `fork` in the child: back to a process whose one kernel thread is not ours.
    ///
    /// # Safety
    /// Called in the child, on its only thread.
    pub unsafe fn reset_in_child(&self) {
        self.started.store(false, Ordering::Relaxed);
        // SAFETY: the only thread; everything below belongs to threads that do not exist here.
        unsafe {
            crate::arch::set_worker_pointer(0);
            self.hooks.force_unlock();
            self.spares.force_unlock();
            self.injection.reset();
            *self.spares.lock() = core::ptr::null_mut();
            self.workers.store(0, Ordering::Relaxed);
            self.all_workers.store(core::ptr::null_mut(), Ordering::Relaxed);
            for p in self.processors() {
                p.timers.reset();
                p.fresh.reset();
                p.posted.reset();
                p.resting.head.store(core::ptr::null_mut(), Ordering::Relaxed);
                p.resting.len.store(0, Ordering::Relaxed);
            }
            self.sleepers.reset();
            self.limit.reset();
            self.monitor.reset();
            self.errands.reset();
            self.wanted.store(0, Ordering::Relaxed);
            self.prepared.store(0, Ordering::Relaxed);
            self.watched.store(0, Ordering::Relaxed);
            self.futexes.reset();
            self.threads.reset();
            self.descriptors.reset();
            self.reactor.close();
            self.offsets.forget();
        }
    }

    fn hooks(&self) -> Hooks {
        match *self.hooks.lock() {
            Some(h) => h,
            None => unreachable!("hooks are set before the first worker"),
        }
    }

    /// Calls `f` for each worker.
    pub fn for_each_worker(&self, f: &mut dyn FnMut(&Worker)) {
        // Acquire: the worker's record is written. pairs: rt.all_workers
        let mut w = self.all_workers.load(Ordering::Acquire);
        while !w.is_null() {
            // SAFETY: records are never unmapped.
            let record = unsafe { &*w };
            f(record);
            w = record.next_of_all;
        }
    }

    /// Whether the kernel's thread `tid` is one of ours.
    pub fn owns_kernel_thread(&self, tid: i32) -> bool {
        // One that is being started exists before it is listed.
        self.errands.after_births();
        let mut ours = tid == self.monitor.tid();
        self.for_each_worker(&mut |w| ours |= w.tid.load(Ordering::Relaxed) == tid);
        ours
    }

    /// The sum of all processors' counters.
    pub fn counters(&self) -> Sum {
        let mut sum = Sum::default();
        for p in self.processors() {
            sum.add(&p.counters);
        }
        sum
    }

    /// Adds to the queue of `p`, the caller's own; a full ring sends half of it to the injection queue.
    ///
    /// # Safety
    /// `thread` is runnable and in no queue; the caller's worker holds `p`.
    #[inline]
    unsafe fn enqueue(&self, p: &Processor, thread: *mut Thread) {
        if p.queue.push(thread).is_err() {
            // SAFETY: the caller's.
            unsafe { self.enqueue_in_full(p, thread) };
        }
    }

    /// # Safety
    /// As [`enqueue`](Self::enqueue).
    #[cold]
    #[inline(never)]
    unsafe fn enqueue_in_full(&self, p: &Processor, thread: *mut Thread) {
        for _ in 0..crate::runq::CAPACITY / 2 {
            match p.queue.pop() {
                // SAFETY: we took it off the ring.
                Some(t) => unsafe { self.inject(t, Why::LeftOver) },
                None => break,
            }
        }
        if p.queue.push(thread).is_err() {
            // SAFETY: still ours.
            unsafe { self.inject(thread, Why::LeftOver) };
        }
    }

    /// The earliest deadline of all.
    fn next_deadline(&self) -> u64 {
        self.processors().iter().map(|p| p.timers.next()).min().unwrap_or(clock::NEVER)
    }

    /// Makes threads runnable whose deadline has passed. Returns how many.
    ///
    /// # Safety
    /// The caller is inside the core.
    unsafe fn expire(&self, p: &Processor, now: u64) -> usize {
        let mut n = 0;
        p.timers.expire(now, &Clock::now, &mut |t, ticket| {
            // SAFETY: control blocks are never unmapped; a claim entitles us to make it runnable.
            unsafe {
                if (*t).park.claim(ticket, Reason::Timeout) {
                    n += 1;
                    ready(t);
                }
            }
        });
        n
    }

    /// Polls the reactor and makes threads runnable. Returns (threads, a sleeper was to be woken and the caller got
    /// the message). `woken` is called when the wait is over, before anything is made of what it has brought.
    ///
    /// # Safety
    /// The caller is inside the core.
    unsafe fn poll_reactor(&self, timeout: Option<u64>, woken: impl FnOnce()) -> (usize, bool) {
        let mut events = [const { core::mem::MaybeUninit::<Event>::uninit() }; BATCH];
        let n = self.reactor.poll(&mut events, timeout);
        let w = worker::worker();
        if !w.is_null() {
            // SAFETY: our own record.
            unsafe { (*w).asleep.store(0, Ordering::Relaxed) };
        }
        woken();
        let (mut threads, mut message, mut clocks) = (0, false, false);
        // SAFETY: the kernel wrote the first n.
        self.fetch(events[..n].iter().map(|e| unsafe { e.assume_init() }.data));
        for e in &events[..n] {
            // SAFETY: the kernel wrote the first n.
            let Event { events: what, data } = unsafe { e.assume_init() };
            if data == WAKE {
                message = true;
                continue;
            }
            if data == CLOCK {
                clocks = true;
                continue;
            }
            // SAFETY: `event` hands over threads that it claimed.
            self.descriptors.event(data, what, &mut |t| unsafe {
                threads += 1;
                // libc looks at both when a call that waits returns.
                arch::prefetch((*t).thread_pointer);
                arch::prefetch((*t).thread_pointer + CANCELLATION);
                match worker::my_processor() {
                    Some(p) => {
                        (*t).set_state(State::Runnable);
                        if let Some(t) = near::leave_near_peer(p, t) {
                            ready_from(Some(p), t);
                        }
                    }
                    None => ready(t),
                }
            });
        }
        if let Some(p) = worker::my_processor() {
            p.counters.reactor_wakes.add(threads as u64);
            p.heard.store(ticks(), Ordering::Relaxed);
        }
        if clocks {
            // SAFETY: the caller's.
            threads += unsafe { self.clocks_were_set() };
        }
        (threads, message)
    }

    /// Asks for the memory of the threads that wait for these events: with thousands of threads none of it is in the caches, and
    /// whoever runs them one after the other waits for it line by line. `docs/design/016-what-a-cpu-waits-for.md`.
    #[inline]
    fn fetch(&self, events: impl Iterator<Item = u64> + Clone) {
        /// Lines of a stack from where the thread left it: up to the call that waits, with the node that an event claims.
        const LINES: usize = 12;
        let files = events.filter(|&data| data != WAKE && data != CLOCK);
        let threads = files.map(|data| self.descriptors.expected(data)).filter(|t| !t.is_null());
        for t in threads.clone() {
            // What it saved last, and what its waker claims.
            arch::prefetch(t as usize);
            arch::prefetch(t as usize + arch::LINE);
        }
        for t in threads {
            // SAFETY: blocks of threads are never unmapped.
            let sp = unsafe { (*t).context.sp.load(Ordering::Relaxed) };
            for line in 0..LINES {
                arch::prefetch(sp + line * arch::LINE);
            }
        }
    }

    /// Moves the deadlines on clocks that have been set. Returns how many threads it made runnable.
    ///
    /// # Safety
    /// The caller is inside the core.
    #[cold]
    unsafe fn clocks_were_set(&self) -> usize {
        self.reactor.take_clock_event();
        self.offsets.renew(Clock::to_monotonic, || {
            self.processors().iter().for_each(|p| p.timers.convert_anew(&self.offsets));
        });
        // Who sleeps by a deadline that is earlier now must compute its timeout again: as after a push, it is counted and then looks
        // at the deadlines, or is seen here.
        self.sleepers.pushed();
        self.sleepers.wake_if_needed(self, true);
        // SAFETY: the caller's.
        unsafe { self.expire_all() }
    }
}

/// About where in libc's control block of a thread it says whether the thread is cancelled. For a hint only.
const CANCELLATION: usize = 0x300;

/// Makes a claimed or new thread runnable.
///
/// # Safety
/// The caller claimed the thread's wait (or made the thread) and calls this once; it is inside the core.
pub unsafe fn ready(thread: *mut Thread) {
    // SAFETY: the caller's.
    unsafe { ready_from(worker::my_processor(), thread) }
}

/// As [`ready`], on the worker that holds `p`.
#[inline]
unsafe fn ready_from(p: Option<&Processor>, thread: *mut Thread) {
    // SAFETY: the caller's.
    unsafe {
        (*thread).set_state(State::Runnable);
        match p {
            Some(p) => {
                RT.enqueue(p, thread);
                RT.sleepers.pushed();
                RT.sleepers.wake_if_needed(&RT, p.queue.len() > 1);
            }
            None => RT.inject(thread, Why::Woken),
        }
    }
}

/// Makes a thread runnable whose maker may soon wait for its end: among those it is the first to be run then, by the waiter's
/// worker and in its place. Otherwise as [`ready`], but others are called for it only if they can be seen to sleep already:
/// who falls asleep at the same time is called by the monitor, some milliseconds later.
///
/// # Safety
/// The thread is new, or rests, and the caller calls this once; it is inside the core, and `p` is its worker's.
#[inline]
pub unsafe fn launch(p: Option<&Processor>, thread: *mut Thread) {
    // SAFETY: the caller's.
    unsafe {
        match p {
            Some(p) if RT.heavy_fences.load(Ordering::Relaxed) && p.fresh.push(thread).is_ok() => {
                (*thread).set_state(State::Runnable);
                RT.sleepers.wake_if_needed(&RT, p.fresh.len() + p.queue.len() > 1);
            }
            _ => ready(thread),
        }
    }
}

/// A thread that rests, for [`launch`]; its context is suspended, and the caller's.
///
/// # Safety
/// Inside the core.
#[inline]
pub unsafe fn take_resting() -> Option<*mut Thread> {
    let p = worker::this_processor()?;
    let t = p.resting.head.load(Ordering::Relaxed);
    // It was given back by who joined it, perhaps before it had left its stack: then it is somebody else's later.
    // Acquire: as in `try_take_context`. pairs: on_cpu
    // SAFETY: a control block.
    if t.is_null() || unsafe { (*t).context.on_cpu.load(Ordering::Acquire) != 0 } {
        return None;
    }
    p.resting.len.store(p.resting.len.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    // SAFETY: the list is the processor's, and the caller's worker holds it.
    p.resting.head.store(unsafe { (*t).next.load(Ordering::Relaxed) }, Ordering::Relaxed);
    Some(t)
}

/// Gives a thread that rests, or is about to, back for others. False: there are enough.
///
/// # Safety
/// Inside the core; nobody else refers to the thread.
#[inline]
pub unsafe fn give_back(thread: *mut Thread) -> bool {
    // SAFETY: a control block. One with a worker of its own is of no use to others.
    if unsafe { !(*thread).home.load(Ordering::Relaxed).is_null() } {
        return false;
    }
    let Some(p) = worker::this_processor() else { return false };
    let n = p.resting.len.load(Ordering::Relaxed);
    if n >= RESTING {
        return false;
    }
    p.resting.len.store(n + 1, Ordering::Relaxed);
    // SAFETY: as in `take_resting`.
    unsafe { (*thread).next.store(p.resting.head.load(Ordering::Relaxed), Ordering::Relaxed) };
    p.resting.head.store(thread, Ordering::Relaxed);
    true
}

/// The current thread has made others runnable and goes on computing: they are work for other workers now. Otherwise one
/// thread alone in a queue is left to its own worker for a while, which is about to run it as a rule.
///
/// # Safety
/// The caller is inside the core.
pub unsafe fn give_away() {
    let Some(p) = worker::this_processor() else { return };
    // Not all, if there are many: those are seen anyway.
    for _ in 0..p.queue.len().min(4) {
        let Some(thread) = p.queue.pop() else { return };
        // SAFETY: taken out of the queue; runnable.
        unsafe { RT.inject(thread, Why::Woken) };
    }
}

/// To be called when the current thread is about to wait on a futex: tells thieves whether taking it away paid off.
///
/// # Safety
/// `thread` is the current thread.
#[inline]
pub unsafe fn waits_on(thread: *mut Thread, futex: usize) {
    // SAFETY: the caller's.
    unsafe {
        let last = core::mem::replace(&mut (*thread).last_futex, futex);
        if (*thread).stolen_at != 0 {
            let since = core::mem::take(&mut (*thread).stolen_at);
            RT.sleepers.judge_theft(ticks().wrapping_sub(since), last == futex);
        }
    }
}

/// Arms a deadline for the open wait of the current thread. Error: ENOMEM.
///
/// # Safety
/// `thread` is the current thread and has no deadline armed.
pub unsafe fn arm(thread: *mut Thread, ticket: Ticket, deadline: Deadline) -> Result<(), i32> {
    if deadline.at == clock::NEVER {
        return Ok(());
    }
    let Some(p) = worker::this_processor() else { unreachable!("user threads run on processors") };
    // SAFETY: the caller's.
    unsafe {
        (*thread).timer_home = p.index;
        p.timers.arm(&raw mut (*thread).timer, thread, ticket, deadline, &RT.offsets)?;
    }
    p.armed.store(true, Ordering::Relaxed);
    Ok(())
}

/// Takes the current thread's deadline out if it has not passed.
///
/// # Safety
/// `thread` is the current thread and armed its deadline with [`arm`].
pub unsafe fn disarm(thread: *mut Thread, deadline: Deadline) {
    if deadline.at == clock::NEVER {
        return;
    }
    // SAFETY: the caller's; processors are never unmapped.
    unsafe {
        let home = (*thread).timer_home as usize;
        RT.processors()[home].timers.disarm(&raw mut (*thread).timer);
    }
}

/// Turns that a context which is leaving its stack is worth waiting for: a switch takes a few dozen instructions.
const LEAVING: u32 = 128;

/// Takes a context that was seen in a queue if it leaves its stack soon. Returns whether it did.
///
/// # Safety
/// The caller took the context out of a queue.
#[inline]
unsafe fn try_take_context(context: *mut Context) -> bool {
    // SAFETY: contexts live in control blocks or worker records, never unmapped.
    unsafe {
        let mut turns = 0;
        // Acquire: the saved registers and the stack are visible. pairs with the store in `arch::switch`, a Release on
        // this architecture. pairs: on_cpu
        while (*context).on_cpu.load(Ordering::Acquire) != 0 {
            turns += 1;
            if turns == LEAVING {
                return false;
            }
            core::hint::spin_loop();
        }
        // Relaxed: only we may run it now. The other end is in assembly. pairs: on_cpu
        (*context).on_cpu.store(1, Ordering::Relaxed);
        true
    }
}

/// Waits until a context that was seen in a queue has left its stack, and takes it. The caller is on a stack that nobody
/// waits for, a scheduler's: two threads that wait for each other to leave would wait for ever.
///
/// # Safety
/// The caller took the context out of a queue.
unsafe fn take_context(context: *mut Context) {
    // SAFETY: the caller's.
    while !unsafe { try_take_context(context) } {
        crate::lock::yield_cpu();
    }
}
