//! The monitor: a kernel thread that looks at the processors now and then.
//!
//! It takes processors away from workers stuck in the kernel, asks for the preemption of threads that run for long while
//! others wait, fires deadlines and polls the reactor when all workers are busy, and wakes a sleeper for work that a
//! guess left lying. While every worker sleeps it sleeps too, without a timeout.

use super::{IN_KERNEL, MAX_PROCESSORS, RT, worker};
use crate::clock;
use crate::mem;
use crate::prim::fence;
use crate::sys::linux as l;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

const STACK: usize = 64 * 1024;
/// Shortest and longest pause between two looks, in nanoseconds.
const PAUSE_MIN: u64 = 500_000;
const PAUSE_MAX: u64 = 5_000_000;
/// Looks that find all workers asleep before the monitor sleeps itself.
const QUIET: u32 = 20;

/// The watchdog's state.
pub struct Monitor {
    tid: AtomicI32,
    slice: AtomicU64,
    /// 1 while the monitor sleeps without a timeout.
    asleep: AtomicU32,
    stack: AtomicU64,
}

#[derive(Clone, Copy)]
struct Seen {
    tick: u32,
    since: u64,
}

impl Monitor {
    /// Not started.
    pub const fn new() -> Self {
        Self {
            tid: AtomicI32::new(0),
            slice: AtomicU64::new(10_000_000),
            asleep: AtomicU32::new(0),
            stack: AtomicU64::new(0),
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
        // SAFETY: the stack is the monitor's own; the array of what it has seen lies below it, not touched by the stack
        // (the core's depth is bounded).
        let tid = unsafe { worker::spawn_kernel_thread((base + size) as *mut u8, monitor_start, base as *mut u8)? };
        self.tid.store(tid, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn reset(&self) {
        self.tid.store(0, Ordering::Relaxed);
        self.asleep.store(0, Ordering::Relaxed);
    }

    /// A worker has something to do again.
    #[inline]
    pub(super) fn worker_wakes(&self) {
        // SeqCst: a worker counts itself awake, then reads `asleep`; the monitor writes `asleep`, then counts the
        // sleepers. One of them sees the other (store buffering). pairs: monitor.sleep
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) != 0 {
            self.asleep.store(0, Ordering::Relaxed);
            // SAFETY: the word is ours.
            unsafe { sys!(l::__NR_futex, self.asleep.as_ptr(), l::FUTEX_WAKE | l::FUTEX_PRIVATE_FLAG, 1, 0, 0, 0) };
        }
    }
}

impl Default for Monitor {
    fn default() -> Self {
        Self::new()
    }
}

unsafe extern "C" fn monitor_start(seen: *mut u8) -> ! {
    let m = &RT.monitor;
    let seen: *mut Seen = seen.cast();
    let mut pause = PAUSE_MIN;
    let mut quiet = 0;
    loop {
        let ts = l::timespec { tv_sec: 0, tv_nsec: pause as i64 };
        // SAFETY: reads a local.
        unsafe { sys!(l::__NR_nanosleep, &ts as *const _, 0) };
        let n = RT.processors().len();
        if RT.sleepers.sleeping() as usize == n {
            pause = PAUSE_MAX;
            quiet += 1;
            if quiet >= QUIET {
                m.asleep.store(1, Ordering::Relaxed);
                // SeqCst: see `worker_wakes`. pairs: monitor.sleep
                fence(Ordering::SeqCst);
                if RT.sleepers.sleeping() as usize == n {
                    // SAFETY: the word is ours.
                    unsafe { sys!(l::__NR_futex, m.asleep.as_ptr(), l::FUTEX_WAIT | l::FUTEX_PRIVATE_FLAG, 1, 0, 0, 0) };
                }
                m.asleep.store(0, Ordering::Relaxed);
                quiet = 0;
                pause = PAUSE_MIN;
            }
            continue;
        }
        quiet = 0;
        // SAFETY: the array is the monitor's own.
        let found = unsafe { look(seen, m.slice.load(Ordering::Relaxed)) };
        pause = if found { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
    }
}

/// One look at everything; returns whether there was something to mend.
unsafe fn look(seen: *mut Seen, slice: u64) -> bool {
    let now = clock::now();
    let mut found = false;
    let hooks = RT.hooks();
    // SAFETY: the monitor is inside the core and has no processor: what it makes runnable is injected.
    unsafe {
        let nobody_listens = RT.sleepers.sleeping() == 0;
        for p in RT.processors() {
            if p.timers.next().saturating_add(100_000) < now {
                found |= RT.expire(p, now) > 0;
            }
        }
        if nobody_listens {
            let (n, message) = RT.poll_reactor(Some(0));
            if message {
                RT.sleepers.message_taken(&RT);
            }
            found |= n > 0;
        }
        for p in RT.processors() {
            let s = &mut *seen.add(p.index as usize);
            let tick = p.tick.load(Ordering::Relaxed);
            if s.tick != tick {
                *s = Seen { tick, since: now };
                continue;
            }
            let waiting = !p.queue.is_empty() || RT.inject_len.load(Ordering::Relaxed) != 0;
            if p.state.load(Ordering::Relaxed) == IN_KERNEL {
                // Stuck since the last look at least. Somebody must run what waits, and somebody must hear the reactor.
                if (waiting || RT.sleepers.sleeping() == 0) && s.since + PAUSE_MIN / 2 < now {
                    found |= worker::hand_off(p);
                    *s = Seen { tick, since: now };
                }
            } else if waiting {
                if RT.sleepers.sleeping() > 0 {
                    RT.sleepers.wake_if_needed(&RT, true);
                    found = true;
                }
                if now - s.since >= slice {
                    let w = p.worker.load(Ordering::Relaxed);
                    if !w.is_null() {
                        (hooks.preempt)((*w).tid.load(Ordering::Relaxed));
                    }
                    s.since = now;
                }
            }
        }
    }
    found
}
