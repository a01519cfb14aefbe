//! Lanes of all threads, and the *helpers*: threads that take jobs out of other threads' lanes.
//!
//! A helper runs one stolen job at a time, at the bottom of its own stack. When a thread must wait for a job that was
//! stolen from it, it parks; nothing runs on top of it. Its processor is then another helper's:
//!
//! - `active` counts threads that compute: helpers that are awake, and one caller (callers are not known until they wait).
//!   There are to be as many as workers.
//! - Who parks takes itself off `active` and has a helper start; who goes on adds itself again. A helper that finds more
//!   active than workers goes to sleep after its job.
//! - When there are fewer, each lane has its `limit` set to 0, under the pool's lock. An owner reads that after each push,
//!   with a light fence between, and *attends*: has a helper start, and raises the limit again when there are enough. A
//!   helper that falls asleep sets the limits, makes a heavy fence, and looks into all lanes once more. So one of the two
//!   sees the other (store buffering): no job is left while there are fewer active threads than workers.
//!
//! A thread that waits for something else inside a job (a lock, a message, a device) keeps its place among the active ones.
//! What it waits for may be the work of a job in its own lane, and no helper may be left to take that. So a *watcher* looks
//! at all lanes every few milliseconds while there are jobs in any. (A kernel thread: for a user thread whoever computes would have to
//! be interrupted, twice a look.) A lane that has jobs and has not changed since the last
//! look gets one helper more, which sleeps again after that job: at once if the process has hardly used a CPU meanwhile,
//! and otherwise, since jobs that compute for long look the same, after a time that doubles with each that there is beyond
//! the workers. When all lanes are empty the watcher sets the limits,
//! looks once more, and sleeps until an owner attends.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::job::Job;
use super::lane::{Lane, Look};
use crate::prim::{AtomicPtr, heavy_fence};
use crate::sync::Mutex;
use crate::{barrier, futex, start};

/// All lanes that ever were.
static LANES: AtomicPtr<Lane> = AtomicPtr::new(ptr::null_mut());
static POOL: Mutex<Pool> =
    Mutex::new(Pool { active: 1, workers: 0, asleep: Vec::new(), helpers: 0, watcher: Watcher::None });
/// The watcher sleeps on this while 0.
static WATCH: AtomicU32 = AtomicU32::new(0);
/// Jobs that were taken from another thread's lane.
static STOLEN: AtomicUsize = AtomicUsize::new(0);
static PARKED: AtomicUsize = AtomicUsize::new(0);

struct Pool {
    active: isize,
    /// So many may be active; less when no more helpers are to be had.
    workers: isize,
    /// Helpers that may be woken.
    asleep: Vec<&'static Bed>,
    helpers: usize,
    watcher: Watcher,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Watcher {
    None,
    Asleep,
    Awake,
}

/// Where a helper sleeps.
struct Bed {
    /// 1: it may get up.
    word: AtomicU32,
}

thread_local! {
    static LANE: Cell<*const Lane> = const { Cell::new(ptr::null()) };
    static LEASE: Lease = const { Lease };
}

/// Gives the lane back when its thread ends.
struct Lease;

impl Drop for Lease {
    fn drop(&mut self) {
        let lane = LANE.replace(ptr::null());
        // SAFETY: lanes are never freed.
        if let Some(lane) = unsafe { lane.as_ref() } {
            // Release: what we did to it comes before the next owner. pairs: lane.taken
            lane.taken.store(0, Ordering::Release);
        }
    }
}

/// This thread's lane, if it has one.
#[inline(always)]
pub fn lane() -> Option<&'static Lane> {
    // SAFETY: null or a lane; these are never freed.
    unsafe { LANE.get().as_ref() }
}

/// This thread's lane. `None` while the thread ends.
#[cold]
#[inline(never)]
pub fn attach() -> Option<&'static Lane> {
    if let Some(lane) = lane() {
        return Some(lane);
    }
    LEASE.try_with(|_| ()).ok()?;
    {
        let mut pool = POOL.lock();
        if pool.workers == 0 {
            barrier::prepare();
            pool.workers = start::workers() as isize;
        }
    }
    // Its limit is 0 or right: it is one that was used, or new.
    let lane = unused_lane().unwrap_or_else(new_lane);
    LANE.set(lane);
    Some(lane)
}

/// If there are fewer active threads than workers, owners are to notice at their next push.
fn ask_for_helpers(pool: &Pool) {
    if pool.active < pool.workers {
        lanes().for_each(Lane::limit);
    }
}

fn unused_lane() -> Option<&'static Lane> {
    // Acquire: what its last owner did. pairs: lane.taken
    lanes().find(|lane| lane.taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok())
}

fn new_lane() -> &'static Lane {
    let lane: &'static Lane = Box::leak(Box::new(Lane::new()));
    let mut first = LANES.load(Ordering::Relaxed);
    loop {
        lane.next.store(first, Ordering::Relaxed);
        // Release: the lane is written. pairs: pool.lanes
        match LANES.compare_exchange(first, ptr::from_ref(lane).cast_mut(), Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return lane,
            Err(now) => first = now,
        }
    }
}

fn lanes() -> impl Iterator<Item = &'static Lane> {
    // Acquire: the lanes are written. pairs: pool.lanes
    let mut next = LANES.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: null or a lane; these are never freed.
        let lane = unsafe { next.as_ref() }?;
        next = lane.next.load(Ordering::Relaxed);
        Some(lane)
    })
}

/// After a push that found the lane's limit reached.
///
/// # Safety
/// The caller owns the lane.
#[cold]
#[inline(never)]
pub unsafe fn attend(lane: &Lane) {
    // SAFETY: the caller's.
    unsafe { lane.make_room() };
    call_watcher();
    if call_helper(false) {
        crate::thread::give_away();
    }
    let pool = POOL.lock();
    if pool.active >= pool.workers && pool.watcher != Watcher::Asleep {
        // SAFETY: the caller's.
        unsafe { lane.unlimit() };
    }
}

fn call_watcher() {
    let before = {
        let mut pool = POOL.lock();
        std::mem::replace(&mut pool.watcher, Watcher::Awake)
    };
    match before {
        Watcher::Awake => {}
        Watcher::Asleep => {
            // Release: it is awake, as the pool says. pairs: pool.watch
            WATCH.store(1, Ordering::Release);
            futex::wake(&WATCH, 1);
        }
        Watcher::None => {
            let builder = thread::Builder::new().name("watcher".to_string()).stack_size(64 * 1024);
            // Without one, jobs that wait for each other may wait for ever where there are too few workers.
            let _ = crate::thread::spawn_kernel(builder, watch);
        }
    }
}

/// Between two looks of the watcher.
const LOOK: Duration = Duration::from_millis(5);

/// CPU time that the process has used.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the local.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// The watcher's life.
fn watch() {
    let mut seen: Vec<Look> = Vec::new();
    let (mut used, mut patience) = (cpu_time(), 0u32);
    loop {
        thread::sleep(LOOK);
        let before = std::mem::replace(&mut used, cpu_time());
        let is_idle = used.saturating_sub(before) < LOOK / 10;
        let mut stuck = 0;
        let mut busy = false;
        for (i, now) in lanes().map(Lane::look).enumerate() {
            // New lanes come first in the list, so numbers shift when there is one: then this look tells nothing.
            let before = seen.get(i).copied();
            busy |= !now.is_empty();
            stuck += usize::from(!now.is_empty() && before == Some(now));
        }
        seen = lanes().map(Lane::look).collect();
        if stuck > 0 {
            patience += 1;
            let beyond = {
                let pool = POOL.lock();
                (pool.active - pool.workers).clamp(0, 10)
            };
            if is_idle || patience >= 1 << beyond {
                patience = 0;
                call_helper(true);
            }
        } else {
            patience = 0;
        }
        if busy {
            continue;
        }
        WATCH.store(0, Ordering::Relaxed);
        {
            let mut pool = POOL.lock();
            pool.watcher = Watcher::Asleep;
            lanes().for_each(Lane::limit);
        }
        heavy_fence(); // what we asked for comes before our look. pairs: pool.limit
        if lanes().any(|lane| !lane.is_empty()) {
            call_watcher(); // ourselves
        }
        // Acquire: the pool says that we are awake. pairs: pool.watch
        while WATCH.load(Ordering::Acquire) == 0 {
            futex::wait(&WATCH, 0);
        }
    }
}

/// Wakes a helper, or makes one, if there are fewer active threads than workers, or `anyway`; answers whether it did.
fn call_helper(anyway: bool) -> bool {
    let mut pool = POOL.lock();
    if pool.active >= pool.workers && !anyway {
        return false;
    }
    pool.active += 1;
    let Some(bed) = pool.asleep.pop() else {
        pool.helpers += 1;
        let number = pool.helpers;
        drop(pool);
        if new_helper(number) {
            return true;
        }
        // No memory for another thread: those that there are do it all.
        let mut pool = POOL.lock();
        pool.active -= 1;
        pool.helpers -= 1;
        if !anyway {
            pool.workers = pool.active.max(1);
        }
        return false;
    };
    drop(pool);
    // Release: it has been counted. pairs: pool.bed
    bed.word.store(1, Ordering::Release);
    futex::wake(&bed.word, 1);
    true
}

fn new_helper(number: usize) -> bool {
    let builder = thread::Builder::new().name(format!("helper {number}")).stack_size(start::helper_stack());
    crate::thread::spawn_std(builder, help).is_ok()
}

/// A helper's life.
fn help() {
    let Some(lane) = attach() else { return };
    let bed: &'static Bed = Box::leak(Box::new(Bed { word: AtomicU32::new(0) }));
    let (mut fruitless, mut small) = (0u32, 0u32);
    loop {
        if let Some(job) = find(lane) {
            fruitless = 0;
            let start = ticks();
            // SAFETY: we took the job; its maker waits for it.
            unsafe { ((*job).run)(job) };
            // What it left in our lane belongs to scopes of others.
            // SAFETY: our lane; jobs of scopes live until they have run.
            while let Some(job) = unsafe { lane.take_newest(0, None) } {
                // SAFETY: as above.
                unsafe { ((*job).run)(job) };
            }
            small = if ticks().wrapping_sub(start) < SMALL { (small + 1).min(MOST_SMALL) } else { 0 };
            if too_many() {
                sleep(bed);
            } else {
                // Whom we have told that his job is done is to run now, beside us.
                crate::thread::give_away();
                // A theft interrupts the owner: not for every job that is not worth one.
                for _ in 0..small * PAUSES {
                    pause(1);
                }
            }
            continue;
        }
        fruitless += 1;
        if fruitless < ROUNDS {
            pause(fruitless);
        } else {
            fruitless = 0;
            sleep(bed);
        }
    }
}

/// Ticks of the CPU's counter below which a job was hardly worth its theft: a few microseconds.
const SMALL: u64 = 10_000;
/// So many small jobs in a row make the pause before the next theft as long as it gets.
const MOST_SMALL: u32 = 4;
/// Looks that the pause is longer for each.
const PAUSES: u32 = 8;

/// The CPU's counter.
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU that Heddle runs on has the instruction.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Looks that a helper takes before it sleeps: about 50 microseconds.
const ROUNDS: u32 = 64;

fn pause(round: u32) {
    if round.is_multiple_of(4) {
        thread::yield_now();
    }
    for _ in 0..16 {
        std::hint::spin_loop();
    }
}

/// Steals a job from any lane but our own.
fn find(own: &Lane) -> Option<*const Job> {
    let job = lanes().filter(|lane| !ptr::eq(*lane, own)).find_map(Lane::steal)?;
    STOLEN.fetch_add(1, Ordering::Relaxed);
    Some(job)
}

fn too_many() -> bool {
    let pool = POOL.lock();
    pool.active > pool.workers
}

/// Sleeps until there is work to be had.
fn sleep(bed: &'static Bed) {
    bed.word.store(0, Ordering::Relaxed);
    let crowded = {
        let mut pool = POOL.lock();
        pool.active -= 1;
        pool.asleep.push(bed);
        ask_for_helpers(&pool);
        pool.active >= pool.workers
    };
    if !crowded {
        heavy_fence(); // what we asked for comes before our look. pairs: pool.limit
        if lanes().any(|lane| !lane.is_empty()) {
            call_helper(false); // perhaps ourselves
        }
    }
    // Acquire: who called us has counted us. pairs: pool.bed
    while bed.word.load(Ordering::Acquire) == 0 {
        futex::wait(&bed.word, 0);
    }
}

/// Parks the caller, whose lane this is, until `done`. Its processor goes to a helper meanwhile. Afterwards it counts as active
/// when somebody has called [`goes_on`] for it.
#[cold]
pub fn wait(lane: &Lane, done: impl Fn() -> bool) {
    PARKED.fetch_add(1, Ordering::Relaxed);
    {
        let mut pool = POOL.lock();
        pool.active -= 1;
        ask_for_helpers(&pool);
    }
    if !done() {
        call_helper(false);
    }
    lane.wait(done);
}

/// A thread that waits for a job is about to be told that it is done: it is active again. Counted by the teller, who
/// would not notice otherwise, when he is a helper, that there are too many, and take the next job instead of making room.
pub fn goes_on() {
    POOL.lock().active += 1;
}

/// Turns for which a thread looks whether its job is done before it parks.
const TURNS: u32 = 32;

/// Waits until a job that was stolen from `lane`, the caller's, is done.
///
/// # Safety
/// It was stolen.
#[cold]
#[inline(never)]
pub unsafe fn wait_for(lane: &Lane, job: &Job) {
    // SAFETY: the caller's.
    let is_done = || unsafe { job.is_done() };
    for _ in 0..TURNS {
        if is_done() {
            return;
        }
        std::hint::spin_loop();
    }
    // SAFETY: the caller's.
    if unsafe { job.wait_on(lane) } {
        wait(lane, is_done);
    }
}

/// Jobs stolen, times parked, helpers made.
pub fn counters() -> (usize, usize, usize) {
    (STOLEN.load(Ordering::Relaxed), PARKED.load(Ordering::Relaxed), POOL.lock().helpers)
}
