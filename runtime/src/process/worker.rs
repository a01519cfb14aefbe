//! A worker process: runners, threads of its own runtime that take tasks and run them.
//!
//! As many runners are active as the process has workers. If they do not use the processor although tasks are queued, they
//! wait for something, so the watch (the process's first thread) has one more take a task, then two, four and so on; a
//! runner that is done with a task while more than that are active goes to sleep.
//!
//! # Safety
//! System calls on the process's own state.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::arena::{self, header};
use super::state::become_process;
use super::{task, wait};
use crate::cancel::Limit;
use crate::futex;
use crate::start::{self, Mode, Options};

/// Most runners of a process.
const RUNNERS: usize = 1024;
/// How often the watch looks while tasks are queued, and while none is.
const SOON: Duration = Duration::from_millis(1);
const LATER: Duration = Duration::from_millis(4);

/// Runners that do not sleep.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);
/// Runners that run a task.
static BUSY: AtomicUsize = AtomicUsize::new(0);
/// Turns on for one sleeping runner each.
static ADMITTED: AtomicU32 = AtomicU32::new(0);
static SLEEPING: AtomicUsize = AtomicUsize::new(0);
/// The watch sleeps until a task begins.
static DOZES: AtomicU32 = AtomicU32::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(1);

/// How often a thread looks before it waits for another process.
pub fn looks() -> u32 {
    static LOOKS: AtomicU32 = AtomicU32::new(u32::MAX);
    match LOOKS.load(Ordering::Relaxed) {
        u32::MAX => {
            // With one CPU nobody else runs meanwhile.
            let looks = if thread::available_parallelism().is_ok_and(|n| n.get() > 1) { 200 } else { 0 };
            LOOKS.store(looks, Ordering::Relaxed);
            looks
        }
        looks => looks,
    }
}

/// The life of a worker process, from the fork on.
pub fn run(identity: u32, place: usize, parent: libc::pid_t, mask: &libc::sigset_t, workers: usize) -> ! {
    become_process(identity);
    // SAFETY: the process's own state.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            libc::_exit(0);
        }
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
            overlook(signal);
        }
        let name = format!("heddle-{place}\0");
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, mask, std::ptr::null_mut());
    }
    let options = Options::new().workers(workers);
    if start::start(options.clone().mode(Mode::User)).is_err() {
        let _ = start::start(options.mode(Mode::Kernel));
    }
    if let Err(why) = arena::announce() {
        eprintln!("heddle: a worker process cannot map the arena: {why}");
        // SAFETY: nothing to clean up.
        unsafe { libc::_exit(1) };
    }
    LIMIT.store(workers, Ordering::Relaxed);
    header().table.process(identity).pid.store(std::process::id(), Ordering::Relaxed);
    watch(workers)
}

/// What a terminal sends to all processes of a program is for the first one: its handlers must not run here, too, and
/// programs that are executed from here must not find the signal ignored, so there is a handler that does nothing.
///
/// # Safety
/// The process has one thread.
unsafe fn overlook(signal: i32) {
    extern "C" fn nothing(_: i32) {}
    // SAFETY: a place for the old disposition, and a new one whose handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action);
        if action.sa_sigaction == libc::SIG_IGN {
            return;
        }
        action = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
    }
}

/// One more active runner.
fn add() -> bool {
    ACTIVE.fetch_add(1, Ordering::Relaxed);
    if SLEEPING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
        ADMITTED.fetch_add(1, Ordering::Relaxed);
        futex::wake(&raw const ADMITTED, 1);
        return true;
    }
    static MADE: AtomicUsize = AtomicUsize::new(0);
    if MADE.load(Ordering::Relaxed) < RUNNERS {
        let builder = thread::Builder::new().name("heddle-task".to_string());
        if crate::thread::spawn_std(builder, runner).is_ok() {
            MADE.fetch_add(1, Ordering::Relaxed);
            return true;
        }
    }
    ACTIVE.fetch_sub(1, Ordering::Relaxed);
    false
}

fn watch(workers: usize) -> ! {
    for _ in 0..workers {
        add();
    }
    let mut burst = 1;
    let mut last = (Instant::now(), cpu_time());
    loop {
        let queued = header().table.len.load(Ordering::Relaxed) as usize;
        let now = (Instant::now(), cpu_time());
        let (time, used) = (now.0 - last.0, now.1.saturating_sub(last.1));
        last = now;
        if queued != 0 && BUSY.load(Ordering::Relaxed) >= ACTIVE.load(Ordering::Relaxed) {
            if used < time / 2 {
                let admitted = (0..queued.min(burst)).take_while(|_| add()).count();
                burst = (admitted * 2).clamp(1, RUNNERS);
            } else {
                burst = 1;
            }
        }
        if BUSY.load(Ordering::Relaxed) == 0 {
            burst = 1;
            // A runner that begins a task after this store sees it; one that began before is seen here.
            // SeqCst: store, then load, against the runner's. pairs: process.dozes
            DOZES.store(1, Ordering::SeqCst);
            // SeqCst: as above. pairs: process.dozes
            if BUSY.load(Ordering::SeqCst) == 0 {
                futex::wait(&DOZES, 1);
            }
            DOZES.store(0, Ordering::Relaxed);
            last = (Instant::now(), cpu_time());
        }
        thread::sleep(if queued == 0 { LATER } else { SOON });
    }
}

fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn runner() {
    let table = &header().table;
    let me = super::identity();
    loop {
        let number = next();
        table.process(me).begun.fetch_add(1, Ordering::Relaxed);
        // SeqCst: see `watch`. pairs: process.dozes
        BUSY.fetch_add(1, Ordering::SeqCst);
        // SeqCst: as above. pairs: process.dozes
        if DOZES.load(Ordering::SeqCst) != 0 && DOZES.swap(0, Ordering::Relaxed) != 0 {
            futex::wake(&raw const DOZES, 1);
        }
        task::perform(number);
        BUSY.fetch_sub(1, Ordering::Relaxed);
        if is_one_too_many() {
            rest();
        }
    }
}

/// Runs a task that lasts and mostly waits: its runner, which calls this, does not count as active meanwhile.
pub fn aside(task: impl FnOnce()) {
    struct Back;
    impl Drop for Back {
        fn drop(&mut self) {
            ACTIVE.fetch_add(1, Ordering::Relaxed);
            BUSY.fetch_add(1, Ordering::Relaxed); // the task is about to be over: the watch may oversleep it
        }
    }
    BUSY.fetch_sub(1, Ordering::Relaxed);
    if ACTIVE.fetch_sub(1, Ordering::Relaxed) <= LIMIT.load(Ordering::Relaxed) {
        add();
    }
    let _back = Back;
    task();
}

fn is_one_too_many() -> bool {
    ACTIVE.load(Ordering::Relaxed) > LIMIT.load(Ordering::Relaxed)
}

/// The next task.
fn next() -> u32 {
    let table = &header().table;
    let me = super::identity();
    loop {
        for _ in 0..looks() {
            if table.len.load(Ordering::Relaxed) != 0 {
                break;
            }
            std::hint::spin_loop();
        }
        let deaths = wait::deaths();
        let sleep = !is_one_too_many();
        match table.take(me, sleep) {
            Ok(number) => return number,
            Err(_) if !sleep => rest(),
            Err(calls) => {
                let _ = wait::wait(&table.calls, calls, deaths, &Limit::NEVER);
                table.awake(me);
            }
        }
    }
}

/// Sleeps until the watch has more use for runners.
fn rest() {
    SLEEPING.fetch_add(1, Ordering::Relaxed);
    ACTIVE.fetch_sub(1, Ordering::Relaxed);
    loop {
        let admitted = ADMITTED.load(Ordering::Relaxed);
        if admitted == 0 {
            futex::wait(&ADMITTED, 0);
        } else if ADMITTED.compare_exchange(admitted, admitted - 1, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}
