//! The monitor: a kernel thread that looks at the processors now and then.
//!
//! It takes processors away from workers stuck in the kernel, asks for the preemption of threads that run for long while
//! others wait, fires deadlines and polls the reactor when all workers are busy and leave it alone, and wakes a sleeper for work that a
//! guess left lying. While every worker sleeps it sleeps too, without a timeout.

use super::limit::{Climber, Sample};
use super::sleepers::Doze;
use super::spinning::{Alone, Spinning};
use super::{MAX_PROCESSORS, RT, account, worker};
use crate::arch::ticks;
use crate::clock;
use crate::mem;
use crate::sys::linux as l;
use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use linux_raw_sys::prctl::{PR_GET_NAME, PR_SET_NAME};

const STACK: usize = 64 * 1024;
/// Shortest and longest pause between two looks, in nanoseconds.
const PAUSE_MIN: u64 = 500_000;
const PAUSE_MAX: u64 = 5_000_000;
/// Deadlines may be this late before the monitor fires them, in nanoseconds.
const LATE: u64 = 100_000;
/// How long a thread may have run when one that the monitor had to wake takes its place, in nanoseconds.
const LATE_SLICE: u64 = 300_000;
/// Threads that were woken wait for this part of a slice at most, those that were preempted themselves for a whole one: as
/// with the kernel's scheduler, who has slept comes before who has computed. (Python's threads pass their lock on by waking
/// each other: with whole slices a turn of theirs took ten times as long as on the kernel.)
const WOKEN_SHARE: u64 = 4;
/// A thread that was found spinning runs for this part of a slice while others wait: what it waits for is likely to be one
/// of them, and that one may spin as well. Threads that compute keep whole ones: with shorter slices for all of them
/// `xz -T8`, whose threads find the caches cold at each turn, took a third longer.
const SPINNER_SHARE: u64 = 4;
/// More threads than that in a queue of a worker are more than it should have to run alone.
const MANY: usize = 2 * crate::reactor::BATCH;
/// While a worker asks the reactor more often than that, in ticks, about 2 ms, events are left to the workers,
const HEARD: u64 = 5 << 20;
/// if it also switches more often than that between two looks: who computes or spins asks when it is preempted, and then no more.
const SHORT_TURNS: u64 = 32;
/// A worker that made more calls than that between two looks makes short ones.
const SHORT_CALLS: u32 = 32;
/// If such a worker is still in the same one, the kernel has probably given its CPU to somebody else, for a slice of the
/// kernel's, of so many nanoseconds at most.
const SWITCHED_OUT: u64 = 4_000_000;
/// Looks that find all workers asleep before the monitor sleeps itself.
const QUIET: u32 = 20;

/// The name of its kernel thread, by which other processes know that this one has user threads.
pub const MONITOR: &CStr = c"heddle-monitor";

/// The watchdog's state.
pub struct Monitor {
    tid: AtomicI32,
    slice: AtomicU64,
    doze: Doze,
    stack: AtomicU64,
    /// The name of the kernel thread that started it, in two words.
    starter: [AtomicU64; 2],
    /// The last errand it did.
    pub errand: AtomicU32,
}

#[derive(Clone, Copy)]
struct Seen {
    tick: u32,
    since: u64,
    /// The worker's CPU time then.
    ran: u64,
    /// A thread waits that only the monitor could wake.
    urgent: bool,
    /// How many system calls that may block were begun, which look saw the last of them first, and how many were begun
    /// between that look and the one before.
    calls: u32,
    called: u64,
    made: u32,
    /// Switches at the last look.
    switches: u64,
    /// What `Spin::alone_for` was at the last look.
    alone_for: u64,
}

impl Monitor {
    /// Not started.
    pub const fn new() -> Self {
        Self {
            tid: AtomicI32::new(0),
            slice: AtomicU64::new(10_000_000),
            doze: Doze::new(),
            stack: AtomicU64::new(0),
            starter: [const { AtomicU64::new(0) }; 2],
            errand: AtomicU32::new(0),
        }
    }

    /// The kernel's id of the monitor's thread.
    pub fn tid(&self) -> i32 {
        self.tid.load(Ordering::Relaxed)
    }

    pub(super) unsafe fn start(&self, slice: u64) -> Result<(), i32> {
        self.slice.store(slice, Ordering::Relaxed);
        let size = STACK + MAX_PROCESSORS * size_of::<Seen>();
        if self.stack.load(Ordering::Relaxed) == 0 {
            self.stack.store(mem::map(size)? as u64, Ordering::Relaxed);
        }
        let base = self.stack.load(Ordering::Relaxed) as usize;
        let mut own = [0u64; 2];
        // SAFETY: the stack is the monitor's own; the array of what it has seen lies below it, not touched by the stack
        // (the core's depth is bounded). The names are read and written where they are. It inherits its name, so that it
        // has it before there is a thread that could tell another process its id.
        let tid = unsafe {
            sys!(l::__NR_prctl, PR_GET_NAME, own.as_mut_ptr());
            sys!(l::__NR_prctl, PR_SET_NAME, MONITOR.as_ptr());
            let tid = worker::spawn_kernel_thread((base + size) as *mut u8, monitor_start, base as *mut u8);
            sys!(l::__NR_prctl, PR_SET_NAME, own.as_ptr());
            tid?
        };
        for (word, value) in self.starter.iter().zip(own) {
            word.store(value, Ordering::Relaxed);
        }
        self.tid.store(tid, Ordering::Relaxed);
        Ok(())
    }

    /// Names the calling worker, which the monitor may have made, as its process: a child that it forks has its name.
    pub(super) fn name_worker(&self) {
        let name = [0, 1].map(|i: usize| self.starter[i].load(Ordering::Relaxed));
        if name != [0, 0] {
            // SAFETY: reads the local, which ends in a zero as the kernel's did.
            unsafe { sys!(l::__NR_prctl, PR_SET_NAME, name.as_ptr()) };
        }
    }

    pub(super) fn reset(&self) {
        self.tid.store(0, Ordering::Relaxed);
        self.doze.reset();
        self.errand.store(0, Ordering::Relaxed);
    }

    /// Ends its doze, so that it does an errand; otherwise it looks at its next turn.
    pub(super) fn poke(&self) {
        self.worker_wakes();
    }

    /// A worker that was counted asleep is awake again.
    #[inline]
    pub(super) fn worker_wakes(&self) {
        // SAFETY: the word is ours.
        self.doze.disturb(|word| unsafe {
            sys!(l::__NR_futex, word.as_ptr(), l::FUTEX_WAKE | l::FUTEX_PRIVATE_FLAG, 1, 0, 0, 0);
        });
    }
}

impl Default for Monitor {
    fn default() -> Self {
        Self::new()
    }
}

unsafe extern "C" fn monitor_start(seen: *mut u8) -> ! {
    let m = &RT.monitor;
    // A new kernel thread inherits GS base: without this the monitor would take itself for its creator's worker, and push
    // to a run queue that is not its own.
    // SAFETY: the monitor is no worker.
    unsafe { crate::arch::set_worker_pointer(0) };
    let all = u64::MAX;
    // SAFETY: reads a local. The monitor has no libc identity and takes no signals; whoever started it had them blocked.
    unsafe { sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &all as *const _, 0, 8) };
    let seen: *mut Seen = seen.cast();
    let mut pause = PAUSE_MIN;
    let mut quiet = 0;
    let mut all_compute = false;
    let (mut climber, started) = (Climber::new(), (clock::now(), ticks()));
    let mut spinning = Spinning::new(ticks());
    loop {
        // While threads that compute have all processors nobody else hears of an event until a slice ends.
        let event = if all_compute { RT.reactor.await_event(pause) } else { sleep(pause) };
        // SAFETY: inside the core, without a processor.
        unsafe {
            RT.errands.attend(&m.errand);
            worker::make_wanted();
        }
        let keeps = crate::stack::trim(clock::now());
        let n = RT.processors().len();
        if (RT.sleepers.sleeping() + RT.limit.napping()) as usize == n {
            all_compute = false;
            pause = PAUSE_MAX;
            // Idle stacks still hold memory: stay until they have given it back.
            quiet = if keeps { 0 } else { quiet + 1 };
            if quiet >= QUIET && RT.limit.napping() != 0 {
                // They go to sleep with the others, and nobody dozes until they have.
                climber.idle();
                spinning.idle();
                RT.limit.set(0, wake_nappers);
            } else if quiet >= QUIET {
                // SAFETY: the word is ours.
                m.doze.doze(
                    || RT.sleepers.sleeping() as usize == n && !RT.errands.wait_for(&m.errand),
                    |word| unsafe {
                        sys!(l::__NR_futex, word.as_ptr(), l::FUTEX_WAIT | l::FUTEX_PRIVATE_FLAG, 1, 0, 0, 0);
                    },
                );
                quiet = 0;
                pause = PAUSE_MIN;
            }
            continue;
        }
        quiet = 0;
        // SAFETY: the array is the monitor's own.
        let seen = unsafe { look(seen, m.slice.load(Ordering::Relaxed), event) };
        pause = if seen.found { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX).min(seen.due.max(PAUSE_MIN)) };
        all_compute = seen.all_compute;
        if n > 1 {
            let sample = sample(&climber, started, seen.trouble);
            let spinners = spinning.look(&seen.alone, &sample);
            RT.limit.set(climber.look(&sample).max(spinners), wake_nappers);
            if spinning.is_measuring() {
                pause = PAUSE_MIN;
            }
        }
        // While all workers are busy the monitor keeps the deadlines.
        if RT.sleepers.sleeping() == 0 {
            let next = RT.next_deadline();
            if next != clock::NEVER {
                pause = pause.min((next + LATE).saturating_sub(clock::now()).max(PAUSE_MIN / 5));
            }
        }
    }
}

/// Whether the thread that runs on `p` was found spinning.
fn spins(p: &super::Processor) -> bool {
    let w = p.worker.load(Ordering::Relaxed);
    // SAFETY: worker records and control blocks are never unmapped; a stale one only makes a slice shorter or longer.
    unsafe { w.as_ref().and_then(|w| (&raw const w.current).read_volatile().as_ref()).is_some_and(|t| t.spins()) }
}

fn wake_nappers(word: &AtomicU32) {
    // SAFETY: the word is never unmapped.
    unsafe { sys!(l::__NR_futex, word.as_ptr(), l::FUTEX_WAKE | l::FUTEX_PRIVATE_FLAG, i32::MAX, 0, 0, 0) };
}

/// What `climber` wants to know; `started`: a time and the ticks of then.
fn sample(climber: &Climber, started: (u64, u64), trouble: bool) -> Sample {
    let sum = RT.counters();
    let mut s = Sample {
        now: clock::now(),
        woken: sum.reactor_wakes,
        switches: sum.switches,
        waits: RT.processors().iter().map(|p| p.spin.waits.load(Ordering::Relaxed)).sum(),
        accounted: 0,
        workers: RT.processors().len() as u32,
        trouble,
    };
    if climber.measures() {
        let (ns, all) = (s.now - started.0, ticks().wrapping_sub(started.1).max(1));
        for p in RT.processors() {
            // SAFETY: worker records are never unmapped.
            let ran = unsafe { p.worker.load(Ordering::Relaxed).as_ref() }.map_or(0, account::clock);
            let slept = u128::from(p.slept.load(Ordering::Relaxed)) * u128::from(ns) / u128::from(all);
            s.accounted += ran + slept as u64;
        }
    }
    s
}

/// Sleeps for so many nanoseconds.
fn sleep(pause: u64) -> bool {
    let ts = l::timespec { tv_sec: 0, tv_nsec: pause as i64 };
    // SAFETY: reads a local.
    unsafe { sys!(l::__NR_nanosleep, &ts as *const _, 0) };
    false
}

/// What a look at everything has shown.
struct Look {
    /// There was something to mend.
    found: bool,
    /// How long it is until the next slice ends.
    due: u64,
    /// On all processors a thread runs that has been running since the last look.
    all_compute: bool,
    /// A thread runs that has been running since the last look, or many wait, or some that no worker has in its queue:
    /// whoever naps is needed.
    trouble: bool,
    /// Whose threads yield alone.
    alone: Alone,
}

/// One look at everything. `event`: there is one that nobody but the monitor has heard of.
unsafe fn look(seen: *mut Seen, slice: u64, event: bool) -> Look {
    // Threads became runnable that nobody but the monitor noticed; a busy worker should run them soon.
    let mut late = event;
    let now = clock::now();
    let (mut found, mut due) = (false, u64::MAX);
    let mut all_compute = true;
    let mut trouble = RT.injected() != 0;
    let mut alone = Alone::new(ticks());
    let hooks = RT.hooks();
    // SAFETY: the monitor is inside the core and has no processor: what it makes runnable is injected.
    unsafe {
        // Who runs while another naps comes to the reactor soon, or there is trouble.
        let nobody_listens = RT.sleepers.sleeping() == 0 && RT.limit.napping() == 0;
        for p in RT.processors() {
            if p.timers.next().saturating_add(LATE) <= now {
                late |= RT.expire(p, now) > 0;
            }
        }
        let now_ticks = ticks();
        let mut heard = false;
        for p in RT.processors() {
            let switches = p.counters.switches.get();
            let before = core::mem::replace(&mut (*seen.add(p.index as usize)).switches, switches);
            heard |= switches.wrapping_sub(before) > SHORT_TURNS
                && now_ticks.wrapping_sub(p.heard.load(Ordering::Relaxed)) < HEARD;
        }
        // A worker that is preempted for an event hears of it itself, and runs who waits for it in its turn.
        if nobody_listens && !event && !heard {
            let (n, message) = RT.poll_reactor(Some(0), || ());
            if message {
                RT.sleepers.message_taken(&RT);
            }
            late |= n > 0;
        }
        found |= late;
        if RT.watched.load(Ordering::Relaxed) & super::account::CHARGE == 0 {
            for p in RT.processors() {
                super::account::sample(p.worker.load(Ordering::Relaxed));
            }
        }
        for p in RT.processors() {
            if p.naps.load(Ordering::Relaxed) {
                continue;
            }
            let s = &mut *seen.add(p.index as usize);
            let tick = p.tick.load(Ordering::Relaxed);
            let changed = s.tick != tick;
            let ran = account::time_of(p.worker.load(Ordering::Relaxed));
            let alone_for = p.spin.alone_for.load(Ordering::Relaxed);
            alone.add(alone_for.wrapping_sub(s.alone_for));
            s.alone_for = alone_for;
            if changed {
                *s = Seen { tick, since: now, ran, urgent: late, ..*s };
            }
            let (in_call, calls) = p.holder.call();
            let made = calls.wrapping_sub(s.calls);
            let same_call = in_call && made == 0;
            if made != 0 {
                (s.calls, s.called, s.made) = (calls, now, made);
            }
            all_compute &= !changed && !same_call;
            trouble |= !changed && RT.sleepers.sleeping() == 0 || p.queue.len() + p.fresh.len() > MANY;
            s.urgent |= late;
            let injected = RT.injection.len();
            let waiting = p.has_work() || injected != 0 || event;
            // Threads in the ring have waited for something that has happened; preempted ones are in the injection queue.
            let limit = match (s.urgent, p.queue.is_empty()) {
                (true, _) => LATE_SLICE.min(slice),
                (false, false) => slice / WOKEN_SHARE,
                (false, true) if injected != 0 && spins(p) => slice / SPINNER_SHARE,
                (false, true) => slice,
            };
            let w = p.worker.load(Ordering::Relaxed);
            let brief = w.as_ref().is_some_and(|w| w.brief.load(Ordering::Relaxed) != 0);
            if in_call && (waiting || brief || RT.sleepers.sleeping() == 0) {
                // The next look tells whether it lasts.
                due = due.min(PAUSE_MIN);
            }
            if changed {
                if waiting {
                    due = due.min(limit);
                }
            } else if same_call {
                // Stuck since the last look at least. What was not to wait ends by a signal, whether anybody needs the
                // processor or not: a worker in the kernel does not count as asleep.
                if let Some(w) = w.as_ref().filter(|_| brief) {
                    (hooks.preempt)(w.tid.load(Ordering::Relaxed));
                    found = true;
                }
                // Somebody must run what waits, and somebody must hear the reactor.
                let patience = if s.made > SHORT_CALLS { SWITCHED_OUT } else { PAUSE_MIN / 2 };
                if (waiting || RT.sleepers.sleeping() == 0) && s.called + patience < now {
                    found |= worker::hand_off(p);
                    *s = Seen { tick, since: now, ran, urgent: false, ..*s };
                }
            } else if waiting {
                if RT.sleepers.sleeping() > 0 {
                    RT.sleepers.wake_if_needed(&RT, true);
                    found = true;
                }
                found |= s.urgent;
                // Of its own time: while the kernel has given the CPU to others it cannot give way, and has had no turn. (Of the clock's if the
                // process may not read that.)
                let went = if ran == 0 { now - s.since } else { ran.saturating_sub(s.ran) };
                if went < limit {
                    due = due.min(limit - went);
                } else {
                    // If it gives way at once the next one's slice begins now.
                    *s = Seen { tick: tick.wrapping_add(1), since: now, ran, urgent: false, ..*s };
                    due = due.min(limit);
                    if let Some(w) = w.as_ref() {
                        w.preempt.store(1, Ordering::Relaxed);
                        (hooks.preempt)(w.tid.load(Ordering::Relaxed));
                    }
                }
            }
        }
    }
    if RT.sleepers.sleeping() != 0 {
        alone = Alone::new(alone.now);
    }
    Look { found, due, all_compute: all_compute && RT.sleepers.sleeping() == 0, trouble, alone }
}
