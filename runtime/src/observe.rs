//! What the threads of this process are doing, and counters: for programs that want to look at themselves, and their tests.
//! (From outside, `kill -33` makes a process print the like.)
//!
//! User threads the runtime tells of; of kernel threads `/proc/self/task` does.
//!
//! # Safety
//! One system call, which copies memory of this process or says that it is not there.

use std::fs;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::fork;
use heddle_interface::{RESTING, ThreadRecord};

use crate::image::Image;
use crate::start::{self, Mode};

/// A thread of this process, as it was at some moment: see [`threads`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadInfo {
    /// Its id, as `gettid` tells it.
    pub id: u32,
    /// Its name, at most 15 bytes; that of the process if it has none.
    pub name: String,
    /// What it is.
    pub mode: Mode,
    /// What it was doing.
    pub state: ThreadState,
    /// CPU time that it has used. Of a kernel thread: the kernel's figure. Of a user thread: what was charged to it so far;
    /// samples, some milliseconds coarse, unless the program asks for CPU times of threads (`CLOCK_THREAD_CPUTIME_ID`).
    pub cpu_time: Duration,
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ThreadState {
    /// It runs, or waits in a system call that is not emulated (a file, say): it has a worker. Of a kernel thread: it runs, or
    /// the kernel has no CPU for it.
    Running,
    /// It could run, and waits for a worker. User threads only.
    Ready,
    /// It waits.
    Waiting(WaitsFor),
}

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaitsFor {
    /// A word in memory, at this address, to be changed by another thread: a lock, a condition, the end of a thread. Of several
    /// words the first. `None`: it cannot be told.
    Futex(Option<usize>),
    /// A descriptor, this one; `None`: several (`poll`), or it cannot be told.
    Descriptor(Option<RawFd>),
    /// Time to pass.
    Time,
    /// A signal.
    Signal,
    /// A child process.
    Child,
    /// The end of a system call of this number that is none of the above; `None`: it cannot be told.
    Call(Option<u32>),
}

/// What a waiting thread's system call waits for.
fn meaning(call: i64, argument: u64) -> WaitsFor {
    match call {
        libc::SYS_futex => WaitsFor::Futex(Some(behind(argument as usize))),
        // Behind the value of the first entry.
        libc::SYS_futex_waitv => WaitsFor::Futex(look::<[usize; 2]>(argument as usize).map(|entry| entry[1])),
        libc::SYS_read | libc::SYS_write | libc::SYS_readv | libc::SYS_writev => descriptor(argument),
        libc::SYS_pread64 | libc::SYS_pwrite64 | libc::SYS_preadv | libc::SYS_pwritev => descriptor(argument),
        libc::SYS_preadv2 | libc::SYS_pwritev2 => descriptor(argument),
        libc::SYS_recvfrom | libc::SYS_recvmsg | libc::SYS_recvmmsg => descriptor(argument),
        libc::SYS_sendto | libc::SYS_sendmsg | libc::SYS_sendmmsg => descriptor(argument),
        libc::SYS_accept | libc::SYS_accept4 | libc::SYS_connect | libc::SYS_flock | libc::SYS_fcntl => {
            descriptor(argument)
        }
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => descriptor(argument),
        libc::SYS_poll | libc::SYS_ppoll | libc::SYS_select | libc::SYS_pselect6 => WaitsFor::Descriptor(None),
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => WaitsFor::Time,
        libc::SYS_pause | libc::SYS_rt_sigsuspend | libc::SYS_rt_sigtimedwait => WaitsFor::Signal,
        libc::SYS_wait4 | libc::SYS_waitid => WaitsFor::Child,
        other => WaitsFor::Call(u32::try_from(other).ok()),
    }
}

fn descriptor(argument: u64) -> WaitsFor {
    WaitsFor::Descriptor(Some(argument as RawFd))
}

/// A copy of what is at an address of this process, perhaps on the stack of a thread that goes on meanwhile.
fn look<T: Copy + Default>(at: usize) -> Option<T> {
    let mut found = T::default();
    let to = libc::iovec { iov_base: (&raw mut found).cast(), iov_len: size_of::<T>() };
    let from = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: size_of::<T>() };
    // SAFETY: the kernel copies to the local, plain numbers, and says if the other is not there.
    let got = unsafe { libc::process_vm_readv(libc::getpid(), &raw const to, 1, &raw const from, 1, 0) };
    (got == size_of::<T>() as isize).then_some(found)
}

/// The word that a kernel thread waits for which sleeps on the word at `address`: where there are user threads it sleeps on one
/// of its own, `abi::futex::Outside`, behind which stands the other's address.
fn behind(address: usize) -> usize {
    const OUTSIDE: u64 = 0x6f75_7473;
    match start::image().and_then(|_| look::<[u64; 2]>(address)) {
        Some([words, other]) if words >> 32 == OUTSIDE => other as usize,
        _ => address,
    }
}

fn user_thread(r: &ThreadRecord) -> ThreadInfo {
    let by_call = || if r.call >= 0 { Some(meaning(r.call.into(), r.argument)) } else { None };
    // The numbers are `core::thread::State`'s.
    let state = match r.state {
        0 | 1 if r.running != 0 => ThreadState::Running,
        0 | 1 => ThreadState::Ready,
        2 => ThreadState::Waiting(WaitsFor::Futex((r.argument != 0).then_some(r.argument as usize))),
        3 => ThreadState::Waiting(match by_call() {
            Some(descriptor @ WaitsFor::Descriptor(_)) => descriptor,
            _ => WaitsFor::Descriptor(None),
        }),
        4 => ThreadState::Waiting(WaitsFor::Time),
        5 => ThreadState::Waiting(WaitsFor::Signal),
        6 => ThreadState::Waiting(WaitsFor::Child),
        _ => ThreadState::Waiting(by_call().unwrap_or(WaitsFor::Call(None))),
    };
    let len = r.name.iter().position(|&b| b == 0).unwrap_or(r.name.len());
    ThreadInfo {
        id: r.id,
        name: String::from_utf8_lossy(&r.name[..len]).into_owned(),
        mode: Mode::User,
        state,
        cpu_time: Duration::from_nanos(r.cpu_time),
    }
}

/// What `/proc/self/task/ID` tells. `None`: the thread has ended.
fn kernel_thread(id: u32) -> Option<ThreadInfo> {
    let read = |file: &str| fs::read_to_string(format!("/proc/self/task/{id}/{file}")).ok();
    let stat = read("stat")?;
    // The name stands in parentheses and may hold any.
    let (open, close) = (stat.find('(')?, stat.rfind(')')?);
    let mut fields = stat[close + 1..].split_ascii_whitespace();
    let state = match fields.next()? {
        "X" | "Z" => return None,
        "R" => ThreadState::Running,
        _ => match read("syscall") {
            None => ThreadState::Waiting(WaitsFor::Call(None)),
            Some(line) => {
                let mut words = line.split_ascii_whitespace();
                let argument = |word: Option<&str>| u64::from_str_radix(word?.strip_prefix("0x")?, 16).ok();
                match words.next().and_then(|call| call.parse().ok()) {
                    Some(call) => ThreadState::Waiting(meaning(call, argument(words.next()).unwrap_or(0))),
                    None => ThreadState::Running,
                }
            }
        },
    };
    // Time on CPUs in nanoseconds; where the kernel does not count that, ticks of 1/100 s.
    let exact = || read("schedstat")?.split_ascii_whitespace().next()?.parse().ok().map(Duration::from_nanos);
    let ticks = || {
        let (user, system): (u64, u64) = (fields.nth(10)?.parse().ok()?, fields.next()?.parse().ok()?);
        Some(Duration::from_millis((user + system) * 10))
    };
    Some(ThreadInfo {
        id,
        name: stat[open + 1..close].to_string(),
        mode: Mode::Kernel,
        state,
        cpu_time: exact().or_else(ticks).unwrap_or_default(),
    })
}

/// The threads of this process: user threads, and kernel threads but for the runtime's own (workers). Those that come and go
/// meanwhile may be missing. Each is told of as it was at some moment of the call.
///
/// It takes no lock and stops nobody. It allocates, and costs about a microsecond for each user thread that waits; for each kernel
/// thread it reads four small files. Where `/proc` is not mounted kernel threads are missing. Starts the process if it has not
/// been started.
///
/// ```
/// use heddle::{ThreadState, WaitsFor};
///
/// let sleeper = heddle::Builder::new().name("sleeper".into()).spawn(heddle::park)?;
/// let asleep = || {
///     let threads = heddle::threads();
///     let state = threads.iter().find(|t| t.name == "sleeper").map(|t| t.state);
///     matches!(state, Some(ThreadState::Waiting(WaitsFor::Futex(Some(_)))))
/// };
/// while !asleep() {
///     heddle::yield_now();
/// }
/// sleeper.thread().unpark();
/// # Ok::<(), heddle::SpawnError>(())
/// ```
pub fn threads() -> Vec<ThreadInfo> {
    let image = start::image();
    let mut threads = Vec::new();
    let mut place = 0;
    while let Some((next, record)) = image.and_then(|image| image.thread(place)) {
        // Those that the library keeps for the next `spawn` have ended for their users.
        if record.state != RESTING {
            threads.push(user_thread(&record));
        }
        place = next;
    }
    // Kernel threads have the kernel's ids; the main thread is in both lists.
    const FIRST_USER: u32 = 1 << 22;
    let is_ours = |id: u32| image.is_some_and(|image: Image| id >= FIRST_USER || image.is_own_task(id as i32));
    let ids = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let known = threads.len();
    for id in ids.filter(|&id| !is_ours(id)) {
        if !threads[..known].iter().any(|t| t.id == id)
            && let Some(thread) = kernel_thread(id)
        {
            threads.push(thread);
        }
    }
    threads
}

/// Figures since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Jobs of fork-join that ran on another thread than the one that made them.
    pub stolen: usize,
    /// Times a thread parked because it had to wait for such a job.
    pub parked: usize,
    /// Helper threads that were made.
    pub helpers: usize,
    /// The scheduler's; `None` in kernel mode, where it is the kernel.
    pub scheduler: Option<SchedulerCounters>,
}

/// What the scheduler of user threads did since the process began, and what is to be done now. Read without a lock: each figure
/// by itself is right, sums of them need not be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchedulerCounters {
    /// Threads created.
    pub created: u64,
    /// Times a worker switched to a thread.
    pub switches: u64,
    /// Times a thread parked.
    pub parks: u64,
    /// Times a worker took threads out of another's queue.
    pub steals: u64,
    /// Times a worker stuck in the kernel lost its processor to another.
    pub hand_offs: u64,
    /// Threads woken because a descriptor was ready.
    pub reactor_wakes: u64,
    /// Times a thread was switched away from because its slice was over.
    pub preemptions: u64,
    /// Times an idle worker was woken.
    pub notifications: u64,
    /// Threads that live now.
    pub live: u64,
    /// Workers asleep now.
    pub asleep: u64,
    /// Threads that wait for a worker now.
    pub queued: u64,
}

/// The figures so far. Starts the process if it has not been started.
pub fn counters() -> Counters {
    let scheduler = start::image().map(Image::counters).map(|c| SchedulerCounters {
        created: c.created,
        switches: c.switches,
        parks: c.parks,
        steals: c.steals,
        hand_offs: c.hand_offs,
        reactor_wakes: c.reactor_wakes,
        preemptions: c.preemptions,
        notifications: c.notifications,
        live: c.live,
        asleep: c.asleep,
        queued: c.queued,
    });
    let (stolen, parked, helpers) = fork::counters();
    Counters { stolen, parked, helpers, scheduler }
}
