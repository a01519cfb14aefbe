//! The process that forks the worker processes, again when one dies.
//!
//! It is forked from the program before that has a second thread, and never has one itself: so each worker begins as a copy
//! of a process in which nothing was going on, also when the program has long had threads. It is the workers' parent, reaps them,
//! and buries what they had begun.
//!
//! It is made with no signal to its parent, so that `wait` for any child does not find it and `SIGCHLD` does not come. It
//! waits for the end of the program's first process by a pidfd (the kernel's signal for the death of a parent comes when the parent's
//! *thread* ends that forked), and for a pipe that closes when that process executes another program. It has one thread, so its workers
//! can rely on that signal: when it is gone, for whatever reason, they are killed.
//!
//! # Safety
//! System calls of a process with one thread, on descriptors and memory of its own.

use std::fs;
use std::io::{self, Write};
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::state::{become_process, share};
use super::table::{FORKER, Table};
use super::{arena, arena::header, worker};
use crate::image::Image;
use crate::start::StartError;
use crate::sync::OnceLock;

/// A worker that dies sooner, without having begun a task, is replaced ever later.
const TOO_SOON: Duration = Duration::from_millis(100);
const LATEST: Duration = Duration::from_secs(1);

static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The forking process, as the first one knows it.
static FORKER_FD: AtomicI32 = AtomicI32::new(-1);
/// Where the program had code when it was started.
static CODE: OnceLock<Vec<(usize, usize)>> = OnceLock::new();

pub fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// Whether every process has the code at this address.
pub fn has_code(address: usize) -> bool {
    let Some(code) = CODE.get() else { return false };
    let after = code.partition_point(|&(start, _)| start <= address);
    after > 0 && address < code[after - 1].1
}

fn code() -> io::Result<Vec<(usize, usize)>> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let range = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let executable = rest.as_bytes().get(2) == Some(&b'x');
        executable.then_some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
    };
    Ok(maps.lines().filter_map(range).collect())
}

fn pidfd(pid: libc::pid_t) -> io::Result<i32> {
    // SAFETY: numbers only. The descriptor is closed by `exec`.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(fd as i32) }
}

fn close(fd: i32) {
    // SAFETY: a descriptor of ours.
    unsafe { libc::close(fd) };
}

fn poll(fds: &mut [libc::pollfd], time: Option<Duration>) -> bool {
    let ms = time.map_or(-1, |time| time.as_millis().try_into().unwrap_or(i32::MAX));
    // SAFETY: an array of that length.
    unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, ms) > 0 }
}

fn readable(fd: i32) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

fn set_name(name: &std::ffi::CStr) {
    // SAFETY: a string.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Makes the shared arena and the process that forks. Workers begin in here and do not return.
///
/// The process must have one thread.
pub(crate) fn launch(processes: usize, workers: usize, slice_ms: u64) -> Result<(), StartError> {
    let refused = |what: &str, why: io::Error| StartError::Refused(format!("{what}: {why}"));
    let code = code().map_err(|why| refused("cannot read /proc/self/maps", why))?;
    // SAFETY: the caller's process has this number.
    let parent = pidfd(unsafe { libc::getpid() }).map_err(|why| refused("no pidfd", why))?;
    let mut pipe = [0; 2];
    // SAFETY: a place for two descriptors.
    if unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(refused("no pipe", io::Error::last_os_error()));
    }
    if !arena::make_shared().map_err(|why| refused("no arena", why))? {
        return Err(StartError::Refused("the arena has been used before the start".to_string()));
    }
    let _ = CODE.set(code);
    COUNT.store(processes, Ordering::Relaxed);
    share();
    // What is in the buffers of standard output would be written by each process that exits.
    let _ = io::stdout().flush();
    // SAFETY: flushes all streams of C.
    unsafe { libc::fflush(std::ptr::null_mut()) };

    // No handler of the program runs in the process that forks.
    // SAFETY: signal sets of ours; the fork is of a process with one thread.
    let (child, mask) = unsafe {
        let (mut all, mut mask) = (mem::zeroed(), mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, &raw mut mask);
        // Without flags, so without a signal when it ends, and everything copied.
        let child = libc::syscall(libc::SYS_clone, 0_usize, 0_usize, 0_usize, 0_usize, 0_usize);
        (child, mask)
    };
    if child == 0 {
        close(pipe[1]);
        let mut forker = Forker { parent, pipe: pipe[0], mask, workers, slice_ms, processes: Vec::new() };
        forker.run(processes);
    }
    let why = io::Error::last_os_error();
    // SAFETY: as it was.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut()) };
    close(parent);
    close(pipe[0]);
    // The other end stays open until this process ends or executes another program.
    if child < 0 {
        return Err(refused("no process", why));
    }
    let fd = pidfd(child as libc::pid_t).map_err(|why| refused("no pidfd", why))?;
    FORKER_FD.store(fd, Ordering::Relaxed);
    Ok(())
}

/// The first process has its runtime.
pub(crate) fn after_start() -> Result<(), StartError> {
    arena::announce().map_err(|why| StartError::Refused(format!("cannot map the arena: {why}")))
}

struct Worker {
    place: usize,
    times: u32,
    /// 0: to be forked, at that time.
    pid: libc::pid_t,
    fd: i32,
    /// Closes when it dies, or executes another program.
    pipe: i32,
    since: Instant,
    pause: Duration,
}

struct Forker {
    parent: i32,
    pipe: i32,
    mask: libc::sigset_t,
    workers: usize,
    slice_ms: u64,
    processes: Vec<Worker>,
}

impl Forker {
    fn run(&mut self, processes: usize) -> ! {
        set_name(c"heddle-fork");
        // The program may ignore it, and then its children cannot be waited for. A handler of the program's does not run here.
        // SAFETY: the default.
        let child = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        let identity = header().table.admit(FORKER, 1);
        become_process(identity);
        if let Ok(None) = Image::present() {
            // Once for all workers, who else would each do it, which is most of the time that they need to start. Without
            // a second thread here it changes nothing but how system calls are made. If it is refused, they find out, too.
            // SAFETY: this process has one thread.
            let _ = unsafe { Image::bring(self.workers as u32, self.slice_ms) };
        }
        let now = Instant::now();
        self.processes = (1..=processes)
            .map(|place| Worker { place, times: 0, pid: 0, fd: -1, pipe: -1, since: now, pause: Duration::ZERO })
            .collect();
        loop {
            self.fork_missing(child);
            self.wait(None);
            self.bury();
        }
    }

    fn fork_missing(&mut self, on_child: libc::sighandler_t) {
        let table = &header().table;
        for i in 0..self.processes.len() {
            let process = &mut self.processes[i];
            if process.pid != 0 || process.since > Instant::now() {
                continue;
            }
            process.times += 1;
            process.since = Instant::now();
            let identity = table.admit(process.place, process.times);
            let mut pipe = [-1; 2];
            // SAFETY: a place for two descriptors.
            unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) };
            // SAFETY: a number. The fork is of a process with one thread.
            let (own, pid) = unsafe { (libc::getpid(), libc::fork()) };
            if pid == 0 {
                let (number, mask, workers) = (process.place, self.mask, self.workers);
                let others = self.processes.iter().flat_map(|process| [process.fd, process.pipe]);
                for fd in others.chain([self.parent, self.pipe, pipe[0]]) {
                    if fd >= 0 {
                        close(fd);
                    }
                }
                // SAFETY: what the program had.
                unsafe { libc::signal(libc::SIGCHLD, on_child) };
                worker::run(identity, number, own, &mask, workers);
            }
            let fd = if pid > 0 { pidfd(pid).unwrap_or(-1) } else { -1 };
            if pipe[1] >= 0 {
                close(pipe[1]);
            }
            if fd < 0 || pipe[0] < 0 {
                // No process for now, or one that could not be waited for.
                table.forget(process.place);
                if pid > 0 {
                    // SAFETY: a child of ours.
                    unsafe {
                        libc::kill(pid, libc::SIGKILL);
                        libc::waitpid(pid, std::ptr::null_mut(), 0);
                    }
                }
                [fd, pipe[0]].into_iter().filter(|&fd| fd >= 0).for_each(close);
                process.since = Instant::now() + LATEST;
                continue;
            }
            (process.pid, process.fd, process.pipe) = (pid, fd, pipe[0]);
        }
    }

    /// Waits until a process has died, or one is to be forked. Ends this process when the program has ended.
    fn wait(&mut self, most: Option<Duration>) -> bool {
        let now = Instant::now();
        let to_fork = self.processes.iter().filter(|process| process.pid == 0);
        let next = to_fork.map(|process| process.since.saturating_duration_since(now) + Duration::from_millis(1)).min();
        let time = most.or(next);
        let living = self.processes.iter().filter(|process| process.pid != 0);
        let fds = living.flat_map(|process| [process.fd, process.pipe]);
        let mut fds: Vec<_> = [self.parent, self.pipe].into_iter().chain(fds).map(readable).collect();
        let any = poll(&mut fds, time);
        if any && (fds[0].revents != 0 || fds[1].revents != 0) {
            // The workers are killed by that.
            // SAFETY: nothing of the program's runs at this exit.
            unsafe { libc::_exit(0) };
        }
        let living = self.processes.iter_mut().filter(|process| process.pid != 0);
        for (process, fds) in living.zip(fds[2..].chunks_exact(2)) {
            if fds[1].revents != 0 {
                // It is dead, or it runs another program, and then will never come back to its tasks.
                // SAFETY: a child that has not been reaped.
                unsafe { libc::kill(process.pid, libc::SIGKILL) };
                close(process.pipe);
                process.pipe = -1;
            }
        }
        any
    }

    /// Reaps those that have died: `(identity, status)`.
    fn reap(&mut self) -> Vec<(u32, u32)> {
        let table = &header().table;
        let mut dead = Vec::new();
        for process in self.processes.iter_mut().filter(|process| process.pid != 0) {
            let mut status = 0;
            // SAFETY: a child of ours, and a place for its status.
            if unsafe { libc::waitpid(process.pid, &raw mut status, libc::WNOHANG) } != process.pid {
                continue;
            }
            [process.fd, process.pipe].into_iter().filter(|&fd| fd >= 0).for_each(close);
            let idle = table.processes[process.place].begun.load(Ordering::Relaxed) == 0;
            process.pause = if idle && process.since.elapsed() < TOO_SOON {
                (process.pause * 2).clamp(Duration::from_millis(10), LATEST)
            } else {
                Duration::ZERO
            };
            process.since = Instant::now() + process.pause;
            (process.pid, process.fd, process.pipe) = (0, -1, -1);
            table.processes[process.place].pid.store(0, Ordering::Relaxed);
            dead.push((table.forget(process.place), status.cast_unsigned()));
        }
        dead
    }

    /// Buries those that have died.
    fn bury(&mut self) {
        let mut dead = self.reap();
        while let Some((identity, status)) = dead.pop() {
            header().table.bury(identity, status, || {
                // Perhaps the holder has died, too: only we can find out.
                self.wait(Some(Duration::from_millis(1)));
                dead.extend(self.reap());
            });
            header().table.count_death();
        }
    }
}

/// The first process looks whether the one that forks lives. If not, it does the rest itself.
pub fn check() {
    static DONE: AtomicBool = AtomicBool::new(false);
    let fd = FORKER_FD.load(Ordering::Relaxed);
    if fd < 0 || !poll(&mut [readable(fd)], Some(Duration::ZERO)) || DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: a child of ours that has ended, which no other call finds.
    unsafe {
        libc::waitid(libc::P_PIDFD, fd as libc::id_t, &mut mem::zeroed(), libc::WEXITED | libc::WNOHANG | libc::__WALL)
    };
    lose(&header().table);
}

/// No process is left that could do anything for the tasks.
fn lose(table: &Table) {
    table.is_lost.store(1, Ordering::Relaxed);
    for (place, process) in table.processes.iter().enumerate().skip(1) {
        // Killed by the kernel already, but perhaps not dead.
        let pid = process.pid.swap(0, Ordering::Relaxed);
        if pid != 0
            && let Ok(fd) = pidfd(pid.cast_signed())
        {
            poll(&mut [readable(fd)], Some(Duration::from_secs(1)));
            close(fd);
        }
        let identity = table.forget(place);
        if identity != 0 {
            table.bury(identity, libc::SIGKILL.cast_unsigned(), std::thread::yield_now);
        }
    }
    table.lose_all();
    table.count_death();
}
