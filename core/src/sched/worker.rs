//! Workers: the kernel threads that run user threads.
//!
//! # Safety
//! A worker record is reached through GS base by the kernel thread it belongs to; other kernel threads touch only its
//! atomic fields. The switching functions run inside the core, where no preemption happens.

pub mod base;
mod make;
mod settle;
mod turns;

pub(super) use make::{adopt, spawn, spawn_kernel_thread};
pub(super) use settle::make_wanted;
pub use settle::{is_settled, prepare_to_settle, settle, stay};
pub use turns::{give_turn, give_way, preempt, take_turns, yield_now};

use super::{Processor, RT, Why, take_context, try_take_context};
use crate::arch::{self, Context, EXTENDED_SIZE, Extended, switch, ticks};
use crate::park::Reason;
use crate::sys::linux as l;
use crate::thread::Thread;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Bytes of the stack for the kernel's signal frames.
pub const SIGNAL_STACK: usize = 64 * 1024;
/// Own work is put after injected threads, deadlines and the reactor once in so many switches.
const FAIRNESS: u32 = 64;
/// With more than that in its ring a worker takes no events off the reactor.
const DEEP: usize = crate::reactor::BATCH;

/// A kernel thread of ours. GS base points here; the assembly entry stubs know the first fields' offsets.
#[repr(C)]
pub struct Worker {
    /// Offset 0: this record.
    pub this: *mut Worker,
    /// Offset 8: not 0 while in the core (no preemption, no handlers).
    pub in_core: AtomicU8,
    /// Offset 12: a signal for the current thread arrived while in the core.
    pub attention: AtomicU32,
    /// Offset 16: the running thread, null on the scheduler's stack.
    pub current: *mut Thread,
    /// Offset 24: the processor held, null if none.
    pub processor: *const Processor,
    /// This record's address and [`base::MARK`].
    pub mark: usize,
    /// The signal mask for a child process that shares our memory.
    pub child_mask: AtomicU64,
    /// What it has in GS base.
    pub child_base: AtomicUsize,
    /// A kernel thread that is being created for its thread: 0 none, 1 it has not left this record, 2 it has.
    pub child_thread: AtomicU32,
    /// The kernel's id of this thread.
    pub tid: AtomicI32,
    /// Lowest address of the stack for signal frames.
    pub signal_stack: usize,
    /// A kick is under way to it.
    pub kicked: AtomicU8,
    /// Not 0: its thread has run for long, and is to step behind those that wait. Set by the monitor, which then calls
    /// [`super::Hooks::preempt`]. Each worker has a wish of its own, since several slices end at one look.
    pub preempt: AtomicU8,
    /// Not 0 while asleep, in the reactor, in a nap or without a processor: no lock is held, nothing is half done.
    pub asleep: AtomicU8,
    /// Whether its thread waits for the child of a `vfork`: 0, [`Worker::ENTERS`], [`Worker::HELD`] or [`Worker::NOTED`].
    pub held: AtomicU8,
    /// Errands that it has to do when it is no longer held, and how many.
    pub(super) owed: [[AtomicUsize; 7]; Worker::DEBTS],
    pub(super) owes: AtomicU32,
    /// Not 0 while it makes a call that was not to wait, but may wait because another thread was faster: the monitor then
    /// interrupts it, and it is not made again before it is time.
    pub brief: AtomicU8,
    /// Signals that it blocks for the call that it makes.
    pub shielded: AtomicU64,
    /// This record, if it runs only threads whose `home` it is; else null.
    only: *mut u8,
    scheduler: Context,
    /// Picked by a thread that could not wait for it, for the scheduler to run. Null if none.
    handed: *mut Thread,
    /// It has left its thread to others, and naps before it looks for another one.
    naps_next: bool,
    /// To be run after the next switch, on the new side: a thread's last act.
    last_act: Option<unsafe fn(*mut u8)>,
    last_act_of: *mut u8,
    /// A spare worker sleeps on this word while 0.
    wake: AtomicU32,
    /// A processor given to a spare worker.
    given: AtomicPtr<Processor>,
    /// The thread to run with it; null: any. Written before `given`.
    given_thread: *mut Thread,
    next: *mut Worker,
    /// The last errand it did.
    pub errand: AtomicU32,
    /// Which set of CPUs it runs on: the ABI layer's number for it, or [`Worker::ANY_CPUS`].
    pub cpus: AtomicU32,
    /// CPU time of this kernel thread, in nanoseconds, that has been charged to the threads it ran; see `account.rs`.
    pub(super) charged: AtomicU64,
    /// The next in the list of all workers; written before the worker is listed.
    pub(super) next_of_all: *mut Worker,
    /// Not 0 once it is listed. No thread runs on it before: see [`base`].
    pub(super) listed: AtomicU8,
}

impl Worker {
    /// In [`Worker::cpus`]: not known, what the creator had.
    pub const ANY_CPUS: u32 = u32::MAX;
    /// In [`Worker::held`]: about to wait.
    pub const ENTERS: u8 = 1;
    /// As well: all its signals are blocked until that is over.
    pub const HELD: u8 = 2;
    /// As well, and somebody writes down an errand for it just now.
    pub const NOTED: u8 = 3;
    /// Errands that a held worker can put off.
    pub(super) const DEBTS: usize = 16;

    /// The thread that it runs just now, as one look tells. For any kernel thread.
    pub fn running(&self) -> *mut Thread {
        let current = (&raw const self.current).cast_mut();
        // SAFETY: a record, which is never unmapped. The word is written by its worker; a stale value is a control block
        // all the same.
        unsafe { AtomicPtr::from_ptr(current).load(Ordering::Relaxed) }
    }

    /// Whether it runs `t` just now, as one look tells. For any kernel thread.
    pub fn runs(&self, t: *mut Thread) -> bool {
        self.running() == t
    }
}

/// The worker record of this kernel thread; null on a kernel thread that is not ours.
#[inline(always)]
pub fn worker() -> *mut Worker {
    arch::worker_pointer() as *mut Worker
}

/// The worker record of this kernel thread, for callers that run on a worker: half the price. Faults elsewhere.
#[inline(always)]
pub fn this_worker() -> *mut Worker {
    arch::this_worker_pointer() as *mut Worker
}

/// The calling user thread, for callers outside the core, whom a preemption may move to another worker after any
/// instruction: read by one. Null on a kernel thread that is not ours.
#[inline(always)]
pub fn calling() -> *mut Thread {
    if worker().is_null() {
        return core::ptr::null_mut(); // and never will be ours
    }
    let t: *mut Thread;
    // SAFETY: GS base is a worker's record, whichever; its current thread is the one that reads.
    unsafe {
        core::arch::asm!("mov {}, gs:[{at}]", out(reg) t, at = const core::mem::offset_of!(Worker, current),
            options(nostack, preserves_flags, readonly));
    }
    t
}

/// The running user thread, for callers in the core; null on a kernel thread that is not ours.
#[inline(always)]
pub fn current() -> *mut Thread {
    let w = worker();
    // SAFETY: our own record.
    if w.is_null() { core::ptr::null_mut() } else { unsafe { (*w).current } }
}

/// The processor of the worker that the caller runs on; faults elsewhere.
#[inline]
pub fn this_processor() -> Option<&'static Processor> {
    // SAFETY: our own record; processors are never unmapped.
    unsafe { (*this_worker()).processor.as_ref() }
}

/// The processor of the worker that the caller runs on, if it runs on one.
#[inline]
pub(super) fn my_processor() -> Option<&'static Processor> {
    let w = worker();
    if w.is_null() {
        return None;
    }
    // SAFETY: our own record; processors are never unmapped.
    unsafe { (*w).processor.as_ref() }
}

/// The scheduler's loop of one worker.
///
/// # Safety
/// Runs on the scheduler's stack of worker `w` only.
pub unsafe extern "C" fn sched_loop_entry(w: *mut u8) -> ! {
    let w: *mut Worker = w.cast();
    // SAFETY: the record is this kernel thread's own.
    unsafe {
        finish_switch();
        loop {
            let handed = core::mem::replace(&mut (*w).handed, core::ptr::null_mut());
            if !handed.is_null() {
                if !may_run(w, handed) {
                    settle::pass(w, handed);
                    continue;
                }
                take_context(&raw mut (*handed).context);
                run(w, &raw mut (*w).scheduler, handed);
                continue;
            }
            if (*w).attention.load(Ordering::Relaxed) != 0 {
                (RT.hooks().attend)(w);
            }
            if (*w).processor.is_null() {
                wait_for_processor(w);
                continue;
            }
            if !(*w).only.is_null() {
                settle::pass(w, core::ptr::null_mut());
                continue;
            }
            let p = &*(*w).processor;
            if core::mem::replace(&mut (*w).naps_next, false) {
                RT.nap(p);
                continue;
            }
            let idle = || {
                p.lately.forget();
                RT.idle(p)
            };
            let Some(t) = pick(p).or_else(idle) else { continue };
            if !may_run(w, t) {
                settle::pass(w, t);
                continue;
            }
            take_context(&raw mut (*t).context);
            run(w, &raw mut (*w).scheduler, t);
        }
    }
}

/// Whether `t` may run on worker `w`, the caller's.
#[inline(always)]
unsafe fn may_run(w: *mut Worker, t: *mut Thread) -> bool {
    // SAFETY: our own record; a control block. Who took `t` out of its queue sees what it wrote before it was put there.
    unsafe { (*t).home.load(Ordering::Relaxed) == (*w).only }
}

/// The next thread to run without searching elsewhere.
///
/// # Safety
/// The caller's worker holds `p`.
#[inline]
unsafe fn pick(p: &Processor) -> Option<*mut Thread> {
    let tick = p.tick.load(Ordering::Relaxed);
    if tick.is_multiple_of(FAIRNESS) {
        // SAFETY: the caller's.
        if let Some(t) = unsafe { look_around(p) } {
            return Some(t);
        }
    } else {
        // SAFETY: the caller's.
        unsafe { look_at_deadlines(p) };
    }
    if !p.posted.is_empty() {
        // SAFETY: the caller's.
        unsafe { take_posted(p) };
    }
    // SAFETY: the caller's.
    p.queue.pop().or_else(|| p.fresh.take_own()).or_else(|| unsafe { pick_injected(p) })
}

/// What others have left to the processor comes behind those in its ring.
///
/// # Safety
/// As [`pick`].
#[cold]
#[inline(never)]
unsafe fn take_posted(p: &Processor) {
    // No more than are here now: posters may never stop.
    for _ in 0..p.posted.len() {
        let Some(t) = p.posted.take() else { return };
        // SAFETY: taken out: runnable, and in no queue.
        unsafe { RT.enqueue(p, t) };
    }
}

/// From the injection queue, for a processor with nothing else to run. Before a thread that computes, and may keep it for a
/// slice, comes who has got what it waited for: threads that wait for each other's messages park one after the other, and
/// whoever is next was told a moment ago.
#[inline(never)]
unsafe fn pick_injected(p: &Processor) -> Option<*mut Thread> {
    if RT.injection.is_empty() {
        return None;
    }
    RT.take_waiting(p).or_else(|| {
        // SAFETY: the caller's: inside the core.
        unsafe {
            look_at_reactor();
            if p.timers.next() != crate::clock::NEVER {
                RT.expire(p, crate::clock::now());
            }
        }
        p.queue.pop().or_else(|| RT.take_preempted(p))
    })
}

/// Makes those runnable whose descriptors are ready, in passing.
unsafe fn look_at_reactor() {
    // SAFETY: the caller's: inside the core.
    let (_, message) = unsafe { RT.poll_reactor(Some(0), || ()) };
    if message {
        RT.sleepers.message_taken(&RT);
    }
}

/// Ticks between two looks at the deadlines, or at the reactor where switches are quick, about 14 us.
const LOOK: u64 = 40_000;

/// Whether it is time to look at the deadlines.
#[inline(always)]
fn deadlines_are_due(p: &Processor) -> bool {
    p.timers.next() != crate::clock::NEVER && p.lately.ticks().wrapping_sub(p.last_look.load(Ordering::Relaxed)) > LOOK
}

/// Makes those runnable whose deadline has passed, if it is time to look.
#[inline]
unsafe fn look_at_deadlines(p: &Processor) {
    p.lately.switching();
    if deadlines_are_due(p) {
        p.last_look.store(p.lately.ticks(), Ordering::Relaxed);
        // SAFETY: inside the core.
        unsafe { RT.expire(p, crate::clock::now()) };
    }
}

#[cold]
unsafe fn look_around(p: &Processor) -> Option<*mut Thread> {
    let favoured = p.favoured.load(Ordering::Relaxed);
    if favoured != 0 {
        p.favoured.store(favoured - 1, Ordering::Relaxed);
        if let Some(t) = RT.take_woken() {
            if favoured > 1 {
                // The switch adds one: the next pick comes here again.
                p.tick.store(p.tick.load(Ordering::Relaxed) | (FAIRNESS - 1), Ordering::Relaxed);
            }
            return Some(t);
        }
        p.favoured.store(0, Ordering::Relaxed);
    }
    // SAFETY: inside the core.
    unsafe {
        if p.timers.next() != crate::clock::NEVER {
            RT.expire(p, crate::clock::now());
        }
        // A deep queue is left to shrink first: events wait in the order they came, where every worker finds them, and a
        // ring that ran over would put new threads before old ones. Not for ever: some threads never stop yielding.
        let deep = p.queue.len() > DEEP && !p.tick.load(Ordering::Relaxed).is_multiple_of(FAIRNESS * 16);
        p.lately.switching();
        let now = p.lately.ticks();
        if !p.queue.is_empty() && !deep && now.wrapping_sub(p.last_events.load(Ordering::Relaxed)) > LOOK {
            p.last_events.store(now, Ordering::Relaxed);
            look_at_reactor();
        }
    }
    let due = RT.preempted_are_due(p);
    // In turn, if there are both: threads that never stop yielding make them due again at once.
    if due && (p.tick.load(Ordering::Relaxed) / FAIRNESS).is_multiple_of(2) {
        return RT.take_preempted(p).or_else(|| RT.take_waiting(p));
    }
    overdue(p).or_else(|| RT.take_waiting(p)).or_else(|| if due { RT.take_preempted(p) } else { None })
}

/// How long the oldest new thread waits while others take turns in the ring, or are chosen by those who wait for them, in
/// ticks: about 2 ms. Not counted in turns: where threads make threads and wait for them, starting one out of turn leaves
/// more of them half done, and their stacks in use.
const OVERDUE: u64 = 1 << 22;

fn overdue(p: &Processor) -> Option<*mut Thread> {
    if p.fresh.is_empty() {
        return None;
    }
    let (taken, now) = (p.fresh.taken(), ticks());
    if p.oldest_fresh.swap(taken, Ordering::Relaxed) != taken {
        p.oldest_since.store(now, Ordering::Relaxed);
    }
    if now.wrapping_sub(p.oldest_since.load(Ordering::Relaxed)) < OVERDUE {
        return None;
    }
    p.fresh.take_own()
}

/// Switches from `from`, the running context of this worker, to thread `t`.
///
/// # Safety
/// `t` was taken out of a queue and its context taken.
#[inline(always)]
unsafe fn run(w: *mut Worker, from: *mut Context, t: *mut Thread) {
    // SAFETY: `t` is ours to run; the record is our own.
    unsafe {
        let p = &*(*w).processor;
        p.tick.store(p.tick.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        p.counters.switches.add(1);
        let before = core::mem::replace(&mut (*w).current, t);
        (*t).worker.store(w.cast(), Ordering::Relaxed);
        if RT.watched.load(Ordering::Relaxed) != 0 {
            super::account::switched(w, before, t);
        }
        arch::set_thread_pointer((*t).thread_pointer);
        switch(from, &raw mut (*t).context);
        finish_switch();
    }
}

/// What the context that was switched to does first: the last act of a thread that left for good.
///
/// # Safety
/// Called once after each switch, on the new side.
#[inline]
pub unsafe fn finish_switch() {
    let w = this_worker();
    // SAFETY: our own record.
    unsafe {
        if (*w).last_act.is_some()
            && let Some(f) = (*w).last_act.take()
        {
            f((*w).last_act_of);
        }
    }
}

/// Leaves the current thread's stack for the next thread or the scheduler; returns when the thread is picked again.
///
/// # Safety
/// The current thread is in a queue, or will be put in one by whoever claims its wait, or has a last act.
#[inline(never)]
unsafe fn leave() {
    let w = this_worker();
    // SAFETY: our own record; the caller's.
    unsafe {
        let next = match (*w).processor.as_ref() {
            Some(p) => {
                let next = pick(p);
                if next.is_some() && p.armed.load(Ordering::Relaxed) {
                    p.armed.store(false, Ordering::Relaxed);
                    RT.sleepers.new_deadline(&RT, p);
                }
                next
            }
            None => None,
        };
        leave_for(next);
    }
}

/// As [`leave`], always for the scheduler.
///
/// # Safety
/// As there.
#[inline(never)]
unsafe fn leave_to_scheduler() {
    // SAFETY: the caller's.
    unsafe { leave_for(None) };
}

/// As [`leave`], for this thread, or for the scheduler.
///
/// # Safety
/// As there; `next` was taken out of a queue.
#[inline(always)]
unsafe fn leave_for(next: Option<*mut Thread>) {
    let w = this_worker();
    // SAFETY: our own record; the caller's.
    unsafe {
        let t = (*w).current;
        match next {
            Some(next) if next == t => {
                // Woken before it left, or preempted and found in the injection queue while others wait in the ring. The
                // next pick must be another one: at the tick that looks there first it would find `t` for ever.
                if let Some(p) = (*w).processor.as_ref() {
                    p.tick.store(p.tick.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
                }
            }
            Some(next) if may_run(w, next) && try_take_context(&raw mut (*next).context) => {
                run(w, &raw mut (*t).context, next);
            }
            // It is another worker's, or `next` is still on its way off another worker, which may have picked `t` and be
            // waiting for us in turn. So we wait for it with `t`'s stack left: nobody waits for a scheduler's context.
            next => {
                (*w).handed = next.unwrap_or(core::ptr::null_mut());
                (*w).current = core::ptr::null_mut();
                if RT.watched.load(Ordering::Relaxed) != 0 {
                    super::account::left(w, t);
                }
                take_context(&raw mut (*w).scheduler);
                switch(&raw mut (*t).context, &raw mut (*w).scheduler);
                finish_switch();
            }
        }
    }
}

/// As [`leave_for`], for another that was found in a queue and that nothing keeps from running here, as a rule.
///
/// # Safety
/// As there; `t` is the current thread of worker `w`, the caller's.
#[inline(always)]
unsafe fn leave_for_queued(w: *mut Worker, t: *mut Thread, next: *mut Thread) {
    // SAFETY: the caller's.
    unsafe {
        // Acquire: as in `try_take_context`. pairs: on_cpu
        if next != t && may_run(w, next) && (*next).context.on_cpu.load(Ordering::Acquire) == 0 {
            (*next).context.on_cpu.store(1, Ordering::Relaxed); // only we may run it now
            run(w, &raw mut (*t).context, next);
        } else {
            leave_with_care(next);
        }
    }
}

#[cold]
#[inline(never)]
unsafe fn leave_with_care(next: *mut Thread) {
    // SAFETY: the caller's.
    unsafe { leave_for(Some(next)) };
}

/// Now and then those that wait for other things come before a thread that was chosen: one of them.
#[inline]
unsafe fn before_chosen(p: &Processor) -> Option<*mut Thread> {
    // SAFETY: the caller's: inside the core, its worker holds `p`.
    unsafe {
        if p.tick.load(Ordering::Relaxed).is_multiple_of(FAIRNESS) {
            return look_around(p).or_else(|| p.queue.pop());
        }
        look_at_deadlines(p);
        if p.armed.load(Ordering::Relaxed) {
            p.armed.store(false, Ordering::Relaxed);
            RT.sleepers.new_deadline(&RT, p);
        }
    }
    None
}

/// As [`park`], for the end of what `next` does: if that is the newest thread and has not run yet, it runs now, in the
/// current thread's place.
///
/// # Safety
/// As there; nothing is known about `next` but that it is a control block.
#[inline]
pub unsafe fn park_for(next: *mut Thread) -> Reason {
    // SAFETY: the caller's.
    unsafe {
        let t = (*this_worker()).current;
        let Some(p) = this_processor().filter(|_| !(*t).extended) else { return park() };
        p.counters.parks.add(1);
        match before_chosen(p).or_else(|| p.fresh.pop(next).then_some(next)) {
            None => leave(),
            chosen => leave_for(chosen),
        }
        (*t).park.reason()
    }
}

/// Leaves the current thread's stack until it is [launched](super::launch) again, for `next`, or whoever is next if that
/// is null. Its state is `Resting` already: it may have been launched.
///
/// # Safety
/// The caller claimed the wait of `next`; it is inside the core; whoever launches the current thread knows of it.
#[inline]
pub unsafe fn rest(next: *mut Thread) {
    // SAFETY: the caller's.
    unsafe {
        (*(*this_worker()).current).extended = false;
        hand_over(next);
    }
}

/// Makes `next` runnable and leaves the current thread's stack, for `next` if that is fair.
///
/// # Safety
/// The caller claimed the wait of `next`, or it is null; it is inside the core, and whoever is to make the current thread
/// runnable again knows of it.
#[inline]
pub unsafe fn hand_over(next: *mut Thread) {
    // SAFETY: the caller's.
    unsafe {
        let Some(p) = this_processor().filter(|_| !next.is_null()) else {
            if !next.is_null() {
                super::ready(next);
            }
            return leave();
        };
        if let Some(first) = before_chosen(p) {
            super::ready(next);
            return leave_for(Some(first));
        }
        (*next).set_state(crate::thread::State::Runnable);
        leave_for(Some(next));
    }
}

/// Parks the current thread until its open wait is claimed; tells why. Blocks the user thread only.
///
/// # Safety
/// The current thread has opened a wait and told its wakers; it is inside the core.
pub unsafe fn park() -> Reason {
    // SAFETY: the caller's.
    unsafe {
        let t = (*this_worker()).current;
        if let Some(p) = this_processor() {
            p.counters.parks.add(1);
        }
        if (*t).extended {
            leave_extended(t, false);
        } else {
            leave();
        }
        (*t).park.reason()
    }
}

#[inline(never)]
unsafe fn leave_extended(t: *mut Thread, queue: bool) {
    // SAFETY: the caller's.
    unsafe {
        let mut area = Extended::new();
        arch::save_extended(area.as_mut_ptr());
        if queue && let Some(p) = this_processor() {
            RT.enqueue(p, t);
        }
        leave();
        arch::restore_extended(area.as_ptr());
    }
}

const _: () = assert!(EXTENDED_SIZE == size_of::<Extended>());

/// Ends the current thread: leaves its stack for good, then runs `last_act(argument)` elsewhere.
///
/// # Safety
/// Inside the core, on a user thread that nothing will wake.
pub unsafe fn exit_current(last_act: unsafe fn(*mut u8), argument: *mut u8) -> ! {
    let w = this_worker();
    // SAFETY: our own record.
    unsafe {
        (*w).last_act = Some(last_act);
        (*w).last_act_of = argument;
        leave();
    }
    unreachable!("a thread that ended was picked again")
}

/// Makes a system call that may block the kernel thread. If it does for long while there is work, the processor goes to
/// another worker and the thread waits for one afterwards.
///
/// # Safety
/// Inside the core, or on a kernel thread that is not ours. After it, the caller may be on another worker.
pub unsafe fn blocking<R>(call: impl FnOnce() -> R) -> R {
    let w = worker();
    // SAFETY: our own record; processors are never unmapped.
    unsafe {
        if w.is_null() || (*w).current.is_null() || (*w).processor.is_null() {
            return call();
        }
        enter_kernel(w);
        let r = call();
        back_from_kernel(w);
        r
    }
}

/// The first half of [`blocking`], for a call that is made elsewhere.
///
/// # Safety
/// Inside the core on worker `w`, the caller's. Nothing but the call comes before [`back_from_kernel`].
#[inline(always)]
pub unsafe fn enter_kernel(w: *mut Worker) {
    // SAFETY: our own record; processors are never unmapped.
    if let Some(p) = unsafe { (*w).processor.as_ref() } {
        p.holder.enter(w as usize);
    }
}

/// The other half: afterwards the caller may be on another worker.
///
/// # Safety
/// As there; signals are open.
#[inline(always)]
pub unsafe fn back_from_kernel(w: *mut Worker) {
    // SAFETY: the caller's.
    unsafe {
        if let Some(p) = (*w).processor.as_ref()
            && !p.holder.back(w as usize)
        {
            lost_processor(w);
        }
    }
}

/// As [`blocking`], for a call that will probably block for long: if others need the processor, it goes to a spare worker
/// now instead of when the monitor looks.
///
/// # Safety
/// As [`blocking`].
pub unsafe fn blocking_for_long<R>(call: impl FnOnce() -> R) -> R {
    // SAFETY: our own record; a worker that is in the kernel may be robbed of its processor, by itself too.
    unsafe {
        blocking(|| {
            if let Some(p) = my_processor()
                && (p.has_work() || !RT.injection.is_empty() || RT.sleepers.sleeping() == 0)
            {
                let (all, mut before) = (u64::MAX, 0u64);
                sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &all as *const _, &mut before as *mut _, 8);
                hand_off(p);
                sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &before as *const _, 0, 8);
            }
            call()
        })
    }
}

/// The processor went to another worker: queue the thread for any worker, become a spare.
#[cold]
unsafe fn lost_processor(w: *mut Worker) {
    // SAFETY: our own record.
    unsafe {
        (*w).processor = core::ptr::null();
        let t = (*w).current;
        if (*t).extended {
            inject_extended(t, Why::LeftOver);
        } else {
            RT.inject(t, Why::LeftOver);
            leave();
        }
    }
}

#[inline(never)]
unsafe fn inject_extended(t: *mut Thread, why: Why) {
    // SAFETY: the caller's.
    unsafe {
        let mut area = Extended::new();
        arch::save_extended(area.as_mut_ptr());
        RT.inject(t, why);
        leave();
        arch::restore_extended(area.as_ptr());
    }
}

unsafe fn wait_for_processor(w: *mut Worker) {
    // SAFETY: our own record; the list is behind its lock.
    unsafe {
        if (*w).only.is_null() {
            list_spare(w);
        }
        loop {
            let p = (*w).given.swap(core::ptr::null_mut(), Ordering::Acquire); // Acquire: pairs: worker.given
            if !p.is_null() {
                (*w).processor = p;
                (*w).handed = core::mem::replace(&mut (*w).given_thread, core::ptr::null_mut());
                return;
            }
            // Asleep: the signal handler routes what comes, with no lock held here. What came before is seen to below.
            (*w).asleep.store(1, Ordering::Relaxed);
            core::sync::atomic::compiler_fence(Ordering::SeqCst); // SeqCst: for signals on this kernel thread. pairs: worker.asleep
            if (*w).attention.load(Ordering::Relaxed) == 0 {
                sys!(l::__NR_futex, (*w).wake.as_ptr(), l::FUTEX_WAIT | l::FUTEX_PRIVATE_FLAG, 0, 0, 0, 0);
            }
            (*w).asleep.store(0, Ordering::Relaxed);
            (*w).wake.store(0, Ordering::Relaxed);
            if (*w).attention.load(Ordering::Relaxed) != 0 {
                (RT.hooks().attend)(w);
            }
        }
    }
}

/// Takes `p` away from a worker that is in the kernel and gives it to a spare or new worker. Returns whether it did.
///
/// # Safety
/// Signals are blocked: called by the monitor, or by the holder itself once it has entered the kernel.
pub(super) unsafe fn hand_off(p: &Processor) -> bool {
    let spare = take_spare();
    if spare.is_null() {
        // A kernel thread inherits what is its maker's alone.
        if settle::is_settled() {
            return false;
        }
        if RT.workers.load(Ordering::Relaxed) >= RT.worker_cap.load(Ordering::Relaxed) {
            return false;
        }
        let last = p.worker.load(Ordering::Relaxed);
        let Some(mark) = p.holder.take() else { return false };
        p.counters.hand_offs.add(1);
        // SAFETY: the caller's; nobody holds the processor.
        if unsafe { spawn(Some(p)) }.is_err() {
            p.worker.store(last, Ordering::Relaxed);
            p.holder.put_back(mark);
            return false;
        }
        return true;
    }
    // SAFETY: a spare worker waits for this; until it is given a processor only we know it.
    unsafe {
        if p.holder.take().is_none() {
            list_spare(spare);
            return false;
        }
        p.counters.hand_offs.add(1);
        give(spare, p, core::ptr::null_mut());
    }
    true
}

/// Adds a worker without a processor to the list of those that take any.
///
/// # Safety
/// It is not listed, and has none.
unsafe fn list_spare(w: *mut Worker) {
    let mut spares = RT.spares.lock();
    // SAFETY: the caller's.
    unsafe { (*w).next = *spares };
    *spares = w;
}

/// A worker without a processor, which is the caller's to give one; null: there is none.
fn take_spare() -> *mut Worker {
    let mut spares = RT.spares.lock();
    let w = *spares;
    if !w.is_null() {
        // SAFETY: listed workers are ours.
        *spares = unsafe { (*w).next };
    }
    w
}

/// Gives a processor to a worker, which is to run `t` first if that is not null.
///
/// # Safety
/// The processor is the caller's to give; nobody else gives one to that worker.
unsafe fn give(to: *mut Worker, p: &Processor, t: *mut Thread) {
    // SAFETY: the caller's. The worker reads the thread after it has found the processor.
    unsafe {
        p.worker.store(to, Ordering::Relaxed);
        (*to).given_thread = t;
        // Release: all about the processor happens before its new holder. pairs: worker.given
        (*to).given.store(core::ptr::from_ref(p).cast_mut(), Ordering::Release);
        (*to).wake.store(1, Ordering::Relaxed);
        sys!(l::__NR_futex, (*to).wake.as_ptr(), l::FUTEX_WAKE | l::FUTEX_PRIVATE_FLAG, 1, 0, 0, 0);
    }
}
