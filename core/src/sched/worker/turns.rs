//! Threads that let others run before they must wait: those that yield, that have received for a while, or that computed for a
//! slice. `docs/design/007-turns-of-connections.md` and `018-turns-of-computing-threads.md` say why they do it when they do.

use super::{
    FAIRNESS, Worker, deadlines_are_due, inject_extended, leave, leave_extended, leave_for_queued, leave_to_scheduler,
    look_at_reactor, this_processor, this_worker,
};
use crate::arch::ticks;
use crate::sched::{Processor, RT, Why, near};
use crate::thread::Thread;
use core::sync::atomic::{AtomicU64, Ordering};

/// Threads that come before those in the ring after a preemption.
const MOST_FAVOURED: usize = 32;
/// How long a thread may go on receiving without waiting while others wait, in ticks: about 16 us (see `take_turns`).
const TURN: u64 = 5 << 13;
/// So much longer, in ticks, for each that waits, about 1.2 us: the more there are, the less each finds in the caches when its
/// turn comes.
const FOR_EACH: u64 = 3 << 10;
/// If more than these wait, a turn is [`LONG_TURN`].
const MANY: usize = 160;
/// In ticks, about 0.4 ms.
const LONG_TURN: u64 = 1 << 20;

/// After so many yields it is looked what they led to.
const YIELDS: u32 = 256;
/// Yields that come faster than one in so many ticks, about 1 us, are those of threads that wait.
const SPIN: u64 = 1 << 12;

/// Yields alone with less between them, in ticks, about 0.2 us, are of one wait.
const BETWEEN: u64 = 1 << 9;

/// After [`YIELDS`] yields on `p`. If its threads do nothing but yield, they wait for others, who may be queued on another
/// processor, behind a thread that computes, and nobody is idle who would come for them: some are taken from there. So are some
/// where there are more, by a thread that yields alone.
///
/// # Safety
/// Inside the core, on a worker that holds `p`.
#[cold]
#[inline(never)]
unsafe fn look_beyond(p: &Processor) {
    let spin = &p.spin;
    let (tick, now) = (p.tick.load(Ordering::Relaxed), ticks());
    // Each switch was a yield's.
    let all = tick.wrapping_sub(spin.tick.load(Ordering::Relaxed)) <= YIELDS + 1;
    let fast = now.wrapping_sub(spin.since.load(Ordering::Relaxed)) < u64::from(YIELDS) * SPIN;
    spin.yields.store(0, Ordering::Relaxed);
    spin.tick.store(tick, Ordering::Relaxed);
    spin.since.store(now, Ordering::Relaxed);
    if all {
        p.computing.is_due_now();
    }
    let alone = !p.has_work();
    let computes = |victim: &Processor| {
        let tick = victim.tick.load(Ordering::Relaxed);
        victim.spin.seen.swap(tick, Ordering::Relaxed) == tick
    };
    if all
        && fast
        && let Ok(found) = RT.steal(p, |victim| computes(victim) || alone && victim.queue.len() > 1)
    {
        // SAFETY: runnable, and in no queue.
        unsafe { RT.enqueue(p, found) };
    }
}

/// The usual turn: others wait in the ring, and nothing but taking turns is due. All that is inlined, down to the switch. Returns false
/// with nothing done if there is more to it.
///
/// # Safety
/// Inside the core, on user thread `t` of worker `w`, the caller's, which holds `p`.
#[inline(always)]
unsafe fn usual_turn(w: *mut Worker, p: &Processor, t: *mut Thread) -> bool {
    let yields = p.spin.yields.load(Ordering::Relaxed) + 1;
    // SAFETY: the thread's own field.
    let plain = unsafe { !(*t).extended };
    // The same questions as below and in `pick`; what any of them leads to is done there.
    let usual = !p.queue.is_empty()
        && p.fresh.is_empty()
        && yields < YIELDS
        && !p.tick.load(Ordering::Relaxed).is_multiple_of(FAIRNESS)
        && !p.armed.load(Ordering::Relaxed)
        && plain;
    if !usual {
        return false;
    }
    p.lately.switching();
    if deadlines_are_due(p) || p.queue.push(t).is_err() {
        return false;
    }
    p.spin.yields.store(yields, Ordering::Relaxed);
    // SAFETY: the thread is in a queue; who is taken out of it is left to.
    unsafe {
        match p.queue.pop() {
            Some(next) => leave_for_queued(w, t, next),
            None => leave(), // taken by others, the caller too
        }
    }
    true
}

/// Lets other threads run first. Returns at once if there are none.
///
/// # Safety
/// Inside the core, on a user thread.
pub unsafe fn yield_now() {
    let w = this_worker();
    // SAFETY: our own record; the thread is put in a queue once and then left.
    unsafe {
        let t = (*w).current;
        let Some(p) = (*w).processor.as_ref() else { return };
        if usual_turn(w, p, t) {
            return;
        }
        let yields = p.spin.yields.load(Ordering::Relaxed) + 1;
        p.spin.yields.store(yields, Ordering::Relaxed);
        if yields >= YIELDS {
            look_beyond(p);
        }
        if !p.has_work() && RT.injection.is_empty() {
            // A thread that yields alone must not keep the reactor and the deadlines from being looked at. (Otherwise
            // `leave` counts. Counting here too would keep the count from ever being a multiple of FAIRNESS where it looks:
            // two threads that yielded, one on each worker, kept all others waiting for seconds.)
            p.tick.store(p.tick.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            if p.tick.load(Ordering::Relaxed).is_multiple_of(FAIRNESS) {
                look_at_reactor();
                RT.expire(p, crate::clock::now());
            }
            if !p.has_work() && RT.injection.is_empty() {
                if RT.limit.wants_more() && (*w).only.is_null() && !(*t).extended {
                    return step_aside(t);
                }
                return yield_alone(p);
            }
        }
        // New threads come behind the ring; but before who yields.
        if let Some(new) = p.fresh.take_own() {
            RT.enqueue(p, new);
        }
        if (*t).extended {
            leave_extended(t, true);
        } else {
            RT.enqueue(p, t);
            leave();
        }
    }
}

/// The kernel's other threads may run.
fn yield_alone(p: &Processor) {
    let before = ticks();
    crate::lock::yield_cpu();
    let took = ticks().wrapping_sub(before);
    let add = |sum: &AtomicU64, n| sum.store(sum.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    if before.wrapping_sub(p.spin.last.load(Ordering::Relaxed)) > BETWEEN {
        add(&p.spin.waits, 1);
    }
    p.spin.last.store(before + took, Ordering::Relaxed);
    add(&p.spin.alone_for, took);
    // A yield during which the CPU was another's counts for as many as there could have been; its time is not the thread's.
    add(&p.spin.since, took);
    let more = (took / SPIN).min(u64::from(YIELDS)) as u32;
    p.spin.yields.store(p.spin.yields.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

/// Leaves the current thread to the other workers, and has this one nap (see `spinning`).
///
/// # Safety
/// As [`yield_now`], on a thread without extended state.
#[cold]
#[inline(never)]
unsafe fn step_aside(t: *mut Thread) {
    // SAFETY: our own record; the thread is put in a queue once and then left.
    unsafe {
        (*this_worker()).naps_next = true;
        RT.inject(t, Why::LeftOver);
        leave_to_scheduler();
    }
}

/// As [`yield_now`], for a caller that does not mean the kernel's other threads: nearly free if no thread of ours waits.
///
/// # Safety
/// As there.
#[inline(always)]
pub unsafe fn give_turn() {
    let w = this_worker();
    // SAFETY: the caller's; our own record.
    unsafe {
        let Some(p) = (*w).processor.as_ref() else { return };
        if !usual_turn(w, p, (*w).current) {
            give_unusual_turn(p);
        }
    }
}

/// # Safety
/// As [`give_turn`], on a worker that holds `p`.
#[inline(never)]
unsafe fn give_unusual_turn(p: &Processor) {
    // SAFETY: the caller's.
    unsafe {
        let tick = p.tick.load(Ordering::Relaxed);
        if p.has_work() || !RT.injection.is_empty() || tick.is_multiple_of(FAIRNESS) {
            yield_now();
        } else {
            p.tick.store(tick.wrapping_add(1), Ordering::Relaxed);
        }
    }
}

/// To be called when the current thread received something, perhaps without waiting for it. If it has gone on for a while
/// like that, it lets others run that wait for descriptors or in a queue.
///
/// A client that is woken takes the CPU from us, and has answered before the thread asks for the answer: then the thread
/// never parks, and nobody looks at the reactor until the slice ends, while others' requests lie there.
///
/// # Safety
/// Inside the core, on a user thread.
pub unsafe fn take_turns() {
    // SAFETY: our own record; the thread is between two calls, and in a queue once before it is left.
    unsafe {
        let Some(p) = this_processor() else { return };
        let turn = &p.turn;
        let (tick, now) = (p.tick.load(Ordering::Relaxed), ticks());
        if turn.tick.load(Ordering::Relaxed) != tick {
            turn.tick.store(tick, Ordering::Relaxed);
            turn.began.store(now, Ordering::Relaxed);
            turn.since.store(now, Ordering::Relaxed);
            turn.length.store(TURN, Ordering::Relaxed);
            return;
        }
        let length = turn.length.load(Ordering::Relaxed);
        if now.wrapping_sub(turn.since.load(Ordering::Relaxed)) < length {
            return;
        }
        if p.queue.len() <= MANY {
            look_at_reactor();
        }
        let waiting = p.queue.len() + p.fresh.len() + p.posted.len() + RT.injection.len();
        let fair = match waiting {
            0 => TURN,
            1..=MANY => TURN.max(waiting as u64 * FOR_EACH),
            _ => LONG_TURN,
        };
        let went = now.wrapping_sub(turn.began.load(Ordering::Relaxed));
        if waiting == 0 || went < fair {
            turn.since.store(now, Ordering::Relaxed);
            turn.length.store(if waiting == 0 { TURN * 2 } else { TURN.min(fair - went) }, Ordering::Relaxed);
        } else if !tries_elsewhere(p, now) {
            if p.queue.is_empty() {
                step_behind((*(*this_worker()).current).extended, Why::LeftOver);
            } else {
                yield_now();
            }
        }
    }
}

/// The current thread's turn on `p` is over; perhaps it is better run elsewhere (see `near`). Returns whether it was.
///
/// # Safety
/// As [`take_turns`].
unsafe fn tries_elsewhere(p: &Processor, now: u64) -> bool {
    // SAFETY: our own record; the thread is in one queue when it is left.
    unsafe {
        let t = (*this_worker()).current;
        if (*t).extended {
            return false;
        }
        let Some(other) = near::elsewhere(p, t, now) else { return false };
        match other.posted.post(t) {
            Some(refused) if refused == t => return false,
            // It lies there now, and this one is ours to run.
            Some(another) => RT.enqueue(p, another),
            None => {}
        }
        leave();
        true
    }
}

/// Puts the current thread, which was interrupted, behind all others because its slice is over.
///
/// # Safety
/// Inside the core, on a user thread; the extended state is saved elsewhere (a signal frame).
pub unsafe fn preempt() {
    // SAFETY: the caller's.
    unsafe { step_behind(false, Why::Preempted) }
}

/// As [`preempt`], for a thread at the end of a call.
///
/// # Safety
/// Inside the core, on a user thread.
pub unsafe fn give_way() {
    // SAFETY: the caller's.
    unsafe { step_behind((*(*this_worker()).current).extended, Why::Preempted) }
}

unsafe fn step_behind(extended: bool, why: Why) {
    let w = this_worker();
    // SAFETY: as in yield_now.
    unsafe {
        let t = (*w).current;
        if let Some(p) = (*w).processor.as_ref() {
            if why == Why::Preempted {
                // Perhaps this is why.
                look_at_reactor();
            }
            if !p.has_work() && RT.injection.is_empty() {
                return;
            }
            p.counters.preemptions.add(1);
            if why == Why::Preempted {
                p.computing.ends(p.tick.load(Ordering::Relaxed), ticks());
            }
            // Those that the monitor woke, since their deadline had passed or a descriptor was ready, are why this happens:
            // they come before all others, in their order. (Else threads in the ring come between them, and who takes
            // turns with those by waiting for the same lock is always the last in its line.)
            p.favoured.store(RT.injection.woken().min(MOST_FAVOURED) as u32, Ordering::Relaxed);
            if p.favoured.load(Ordering::Relaxed) != 0 {
                p.tick.store((p.tick.load(Ordering::Relaxed) | (FAIRNESS - 1)).wrapping_add(1), Ordering::Relaxed);
            }
        }
        if extended {
            inject_extended(t, why);
        } else {
            RT.inject(t, why);
            leave();
        }
    }
}
