//! One thread that ends the waits of fibers whose time is over, and that watches the carriers.
//!
//! **Watching.** A fiber may block its carrier (a system call, a lock of `std`'s, a long computation), and what waits in that
//! carrier's queue then lies still, unless others take it; and they were perhaps not called. So while any carrier is awake, the thread looks
//! every 5 ms: where fibers wait and nothing has been run since the last look, it wakes a carrier that sleeps; if none does, it makes
//! one more, after ever longer times. It sleeps itself when all carriers have slept for some looks.
//!
//! # Safety
//! A waiter in the list is there: it withdraws its deadline, under the list's lock, before it goes.

use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::carrier::{Pool, locked, make_ready};
use super::record::Ref;
use super::table::Waiter;
use crate::futex;
use crate::prim::heavy_fence;

/// Between two looks at the carriers.
const LOOK: Duration = Duration::from_millis(5);
/// Looks without anything to do before the watch ends.
const IDLE: u32 = 4;
/// Most carriers beside as many as there are workers.
const MORE: usize = 64;

/// Which of those with the same time.
type Key = (Instant, usize);

struct Deadline(*const Waiter<Ref>);
// SAFETY: see the module.
unsafe impl Send for Deadline {}

/// See the module.
pub struct Clock {
    deadlines: Mutex<BTreeMap<Key, Deadline>>,
    count: AtomicUsize,
    /// Changes when there is something earlier to do.
    told: AtomicU32,
    /// A watch is on.
    watches: AtomicBool,
    /// There is the thread.
    runs: AtomicBool,
}

impl Clock {
    pub fn new() -> Self {
        Self {
            deadlines: Mutex::new(BTreeMap::new()),
            count: AtomicUsize::new(0),
            told: AtomicU32::new(0),
            watches: AtomicBool::new(false),
            runs: AtomicBool::new(false),
        }
    }

    /// Makes the thread, unless an earlier try has.
    pub fn start(pool: &'static Pool) -> io::Result<()> {
        if pool.clock.runs.load(Ordering::Relaxed) {
            return Ok(());
        }
        let builder = thread::Builder::new().name("fibers' clock".to_string()).stack_size(64 * 1024);
        crate::thread::spawn_std(builder, move || pool.clock.run(pool))?;
        pool.clock.runs.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn tell(&self) {
        // Release: what there is to do comes before the look at it. pairs: fiber.told
        self.told.fetch_add(1, Ordering::Release);
        futex::wake_threads(&self.told, 1);
    }

    /// A carrier is awake.
    #[inline]
    pub fn begin_watch(&self) {
        if !self.watches.load(Ordering::Relaxed) {
            self.watches.store(true, Ordering::Relaxed);
            self.tell();
        }
    }

    /// Ends a wait at that time, unless it is [withdrawn](Self::withdraw) before.
    ///
    /// # Safety
    /// The waiter is there until it is withdrawn.
    pub unsafe fn add(&self, time: Instant, waiter: *const Waiter<Ref>) -> Key {
        let key = (time, self.count.fetch_add(1, Ordering::Relaxed));
        let is_first = {
            let mut deadlines = locked(&self.deadlines);
            deadlines.insert(key, Deadline(waiter));
            deadlines.first_key_value().is_some_and(|(first, _)| *first == key)
        };
        if is_first {
            self.tell();
        }
        key
    }

    /// The wait has ended. False: its time was over.
    pub fn withdraw(&self, key: &Key) -> bool {
        locked(&self.deadlines).remove(key).is_some()
    }

    /// Ends what is due; answers when the next one is.
    fn expire(&self, pool: &Pool) -> Option<Instant> {
        let mut deadlines = locked(&self.deadlines);
        while let Some(first) = deadlines.first_entry() {
            let (time, _) = *first.key();
            if time > Instant::now() {
                return Some(time);
            }
            let Deadline(waiter) = first.remove();
            // SAFETY: it waits for this lock before it goes.
            unsafe { pool.table.expire(&*waiter, make_ready) };
        }
        None
    }

    fn run(&self, pool: &'static Pool) {
        let mut watch = Watch { looks: 0, still: 0, patience: 1, seen: Vec::new() };
        loop {
            // Acquire: what there is to do. pairs: fiber.told
            let told = self.told.load(Ordering::Acquire);
            let due = self.expire(pool);
            let look = self.watches.load(Ordering::Relaxed).then(|| Instant::now() + LOOK);
            let until = match (due, look) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (one, other) => one.or(other),
            };
            futex::wait_as_thread(&self.told, told, until);
            if look.is_some_and(|look| look <= Instant::now()) && !watch.goes_on(pool) {
                self.watches.store(false, Ordering::Relaxed);
                heavy_fence(); // before the look at who sleeps: who woke up meanwhile sees that there is no watch
                if !pool.all_asleep() {
                    self.watches.store(true, Ordering::Relaxed);
                }
            }
        }
    }
}

/// What the last look found.
struct Watch {
    /// Looks with nothing to do.
    looks: u32,
    /// Looks for which something has lain still.
    still: u32,
    /// So many of them make a new carrier.
    patience: u32,
    /// How many fibers each carrier has run, and whether some waited.
    seen: Vec<(usize, bool)>,
}

impl Watch {
    /// Looks at all carriers. False: there was nothing to do for a while.
    fn goes_on(&mut self, pool: &'static Pool) -> bool {
        if pool.all_asleep() && pool.injected() == 0 {
            self.looks += 1;
            return self.looks < IDLE;
        }
        self.looks = 0;
        let now: Vec<_> =
            pool.carriers().map(|carrier| (carrier.runs.load(Ordering::Relaxed), carrier.len() != 0)).collect();
        let same = now.len() == self.seen.len();
        let lies = same && now.iter().zip(&self.seen).any(|(now, before)| now == before && now.1);
        // What other threads have made waits for any carrier.
        let waits = same && pool.injected() != 0 && now.iter().zip(&self.seen).all(|(now, before)| now.0 == before.0);
        self.seen = now;
        if !lies && !waits {
            self.still = 0;
        } else if !pool.wake_one() {
            self.still += 1;
            if self.still >= self.patience && pool.made.load(Ordering::Relaxed) < crate::start::workers() + MORE {
                self.still = 0;
                self.patience = (self.patience * 2).min(256);
                // Without it, what lies there waits until its carrier goes on.
                let _ = pool.add_carrier();
            }
        }
        true
    }
}
