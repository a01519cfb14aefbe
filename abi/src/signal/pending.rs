//! Pending signals, of threads and of the process.
//!
//! Each queue is a list in one pool of `siginfo_t`s for the whole process, as the kernel bounds them by RLIMIT_SIGPENDING
//! and not for each thread. When the pool is full a real-time signal is refused (EAGAIN) to who sent it with a value, and
//! loses its `siginfo_t` otherwise.
//!
//! A signal for the process is given to one thread that takes it. That thread may block it, end, or be content with
//! another one before it looks; then it passes the signal on (`pass_on`), as the kernel does.

mod handed;

pub use handed::{hand_over, send_own, take_back};

use super::actions;
use super::bit;
use crate::timer;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use heddle_core::identity::{PendingSignals, SigInfo};
use heddle_core::lock::SpinLock;
use heddle_core::park::Reason;
use heddle_core::prim::{fence, fence_after_rmw};
use heddle_core::sched::{Absent, RT, current, ready};
use heddle_core::sys::{self, linux as l};
use heddle_core::thread::Thread;

/// Why a signal was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The thread has ended.
    Gone,
    /// No room for one more `siginfo_t`.
    Full,
}

/// `siginfo_t`s that the process can have pending.
const POOL: usize = 32_768;
const SI_USER: i32 = 0;
const SI_TIMER: i32 = -2;
const SI_TKILL: i32 = -6;

#[derive(Clone, Copy)]
struct Entry {
    info: SigInfo,
    /// The next in its queue or in the list of free ones: number, 0 = none.
    next: u32,
}

struct Pool {
    /// Entry n is number n + 1. Zeroed memory that is not touched before it is used.
    entries: [Entry; POOL],
    free: u32,
    /// Entries that were ever used.
    fresh: u32,
}

static ENTRIES: SpinLock<Pool> =
    SpinLock::new(Pool { entries: [Entry { info: [0; 16], next: 0 }; POOL], free: 0, fresh: 0 });

impl Pool {
    fn at(&mut self, number: u32) -> &mut Entry {
        &mut self.entries[number as usize - 1]
    }

    /// 0: there is none left.
    fn allocate(&mut self, info: &SigInfo) -> u32 {
        let mut n = self.free;
        if n != 0 {
            self.free = self.at(n).next;
        } else if (self.fresh as usize) < POOL {
            self.fresh += 1;
            n = self.fresh;
        } else {
            return 0;
        }
        *self.at(n) = Entry { info: *info, next: 0 };
        n
    }

    /// Adds an entry to the end of a list.
    fn append(&mut self, list: &mut PendingSignals, number: u32) {
        self.at(number).next = 0;
        if list.first == 0 {
            list.first = number;
        } else {
            self.at(list.last).next = number;
        }
        list.last = number;
    }

    fn release(&mut self, number: u32) {
        self.at(number).next = self.free;
        self.free = number;
    }
}

static PROCESS_SET: AtomicU64 = AtomicU64::new(0);
static PROCESS: SpinLock<PendingSignals> = SpinLock::new(PendingSignals::of(0));
/// Signals of the process that some thread was told to take.
static GIVEN: AtomicU64 = AtomicU64::new(0);

fn number(info: &SigInfo) -> u32 {
    info[0] as u32
}

fn code(info: &SigInfo) -> i32 {
    info[1] as u32 as i32
}

/// Adds to a queue whose lock the caller holds.
fn add(set: &AtomicU64, q: &mut PendingSignals, info: &SigInfo) -> Result<(), Refused> {
    let signal = number(info);
    let already = set.load(Ordering::Relaxed) & bit(signal) != 0;
    let from_timer = code(info) == SI_TIMER;
    if already && from_timer {
        // A timer has one signal pending at most; it counts how often it would have been sent since.
        let mut pool = ENTRIES.lock();
        let mut n = q.first;
        while n != 0 {
            let e = pool.at(n);
            if number(&e.info) == signal && code(&e.info) == SI_TIMER && timer::of(&e.info) == timer::of(info) {
                timer::merge(&mut e.info, info);
                return Ok(());
            }
            n = e.next;
        }
    }
    // A standard signal that is pending already is merged.
    if !(already && signal < l::SIGRTMIN) {
        let mut pool = ENTRIES.lock();
        let n = pool.allocate(info);
        if n != 0 {
            pool.append(q, n);
        } else if signal >= l::SIGRTMIN && code(info) != SI_USER && !from_timer {
            return Err(Refused::Full);
        }
    }
    set.fetch_or(bit(signal), Ordering::Relaxed);
    Ok(())
}

fn take(set: &AtomicU64, queue: &SpinLock<PendingSignals>, wanted: u64) -> Option<SigInfo> {
    if set.load(Ordering::Relaxed) & wanted == 0 {
        return None;
    }
    let mut q = queue.lock();
    let ready = set.load(Ordering::Relaxed) & wanted;
    if ready == 0 {
        return None;
    }
    // Faults first, as in the kernel; then the lowest number.
    const FAULTS: u64 =
        bit(l::SIGSEGV) | bit(l::SIGBUS) | bit(l::SIGILL) | bit(l::SIGTRAP) | bit(l::SIGFPE) | bit(l::SIGSYS);
    let first = if ready & FAULTS != 0 { ready & FAULTS } else { ready };
    let signal = first.trailing_zeros() + 1;
    let mut found = None;
    let mut more = false;
    let mut pool = ENTRIES.lock();
    let (mut before, mut n) = (0, q.first);
    while n != 0 {
        let next = pool.at(n).next;
        if number(&pool.at(n).info) != signal {
            before = n;
        } else if found.is_some() {
            more = true;
            break;
        } else {
            found = Some(pool.at(n).info);
            if before == 0 {
                q.first = next;
            } else {
                pool.at(before).next = next;
            }
            if q.last == n {
                q.last = before;
            }
            pool.release(n);
        }
        n = next;
    }
    if !more {
        set.fetch_and(!bit(signal), Ordering::Relaxed);
    }
    Some(found.unwrap_or_else(|| {
        let mut bare = [0; 16];
        bare[0] = signal as u64;
        bare
    }))
}

/// Whether a signal can be delivered to `t` now.
///
/// # Safety
/// `t` is a control block.
#[inline]
pub unsafe fn deliverable(t: *mut Thread) -> bool {
    // SAFETY: the caller's; atomics only.
    unsafe {
        let id = &(*t).identity;
        let pending = id.sig_pending.load(Ordering::Relaxed) | PROCESS_SET.load(Ordering::Relaxed);
        pending & !id.sig_mask.load(Ordering::Relaxed) != 0
    }
}

/// Takes the next signal of `wanted` that is pending for the current thread, to deliver it.
///
/// # Safety
/// `t` is the current thread.
pub unsafe fn take_for(t: *mut Thread, wanted: u64) -> Option<SigInfo> {
    // SAFETY: the caller's.
    let info = unsafe {
        take(&(*t).identity.sig_pending, &(*t).signals, wanted).or_else(|| take(&PROCESS_SET, &PROCESS, wanted))
    }?;
    if code(&info) == SI_TIMER {
        timer::delivered(&info);
    }
    Some(info)
}

/// The set of signals pending for `t` or the process.
///
/// # Safety
/// `t` is a control block.
pub unsafe fn pending(t: *mut Thread) -> u64 {
    // SAFETY: the caller's.
    unsafe { (*t).identity.sig_pending.load(Ordering::Relaxed) | PROCESS_SET.load(Ordering::Relaxed) }
}

/// A signal is sent, whatever becomes of it: one that lets a stopped process go on drops those pending that would stop it,
/// and the other way round.
fn dropping_opposites(signal: u32) {
    let mut opposites = actions::opposites(signal);
    while opposites != 0 {
        discard(opposites.trailing_zeros() + 1);
        opposites &= opposites - 1;
    }
}

/// Drops all pending instances of a signal.
pub fn discard(signal: u32) {
    while take(&PROCESS_SET, &PROCESS, bit(signal)).is_some() {}
    RT.threads.for_each(&mut |t| {
        // SAFETY: a live control block.
        unsafe { while take(&(*t).identity.sig_pending, &(*t).signals, bit(signal)).is_some() {} }
        true
    });
}

/// A thread ends: its own signals are dropped, the process's that it was told to take go to others.
///
/// # Safety
/// `t` is the current thread, inside the core; it takes no signal any more.
pub unsafe fn thread_ends(t: *mut Thread) {
    // SAFETY: the caller's.
    unsafe {
        (*t).identity.sig_mask.store(u64::MAX, Ordering::Relaxed);
        {
            let mut q = (*t).signals.lock();
            // The lock's, between the mask above and what `pass_on` reads: see `send_to_process`. pairs: signal.mask
            fence_after_rmw();
            q.owner = 0;
            while q.first != 0 {
                let mut pool = ENTRIES.lock();
                let next = pool.at(q.first).next;
                pool.release(q.first);
                q.first = next;
            }
        }
        pass_on(t);
    }
}

/// Takes over what the kernel holds of `set` for the process and for the caller's kernel thread, which stands for thread
/// `tid`, in order and with its values.
///
/// # Safety
/// Inside the core; all signals are blocked, and those of `set` on all kernel threads of ours.
pub unsafe fn take_over(tid: u32, set: u64) {
    let no_time = [0u64; 2];
    let mut info: SigInfo = [0; 16];
    // SAFETY: reads and writes locals; a live control block.
    unsafe {
        while sys!(l::__NR_rt_sigtimedwait, &set as *const _, &mut info as *mut _, &no_time as *const _, 8) > 0 {
            let _ = if code(&info) == SI_TKILL { send_to_thread(tid, &info) } else { send_to_process(&info) };
        }
    }
}

/// The opposite of [`take_over`]: the caller stays the only thread.
///
/// # Safety
/// All signals are blocked; `main` stands for the caller, no worker runs yet.
pub unsafe fn give_back(main: *mut Thread) {
    let all = u64::MAX;
    // SAFETY: as above.
    unsafe {
        let pid = sys!(l::__NR_getpid);
        while let Some(info) = take(&(*main).identity.sig_pending, &(*main).signals, all) {
            sys!(l::__NR_rt_tgsigqueueinfo, pid, pid, number(&info), &info as *const _);
        }
        while let Some(info) = take(&PROCESS_SET, &PROCESS, all) {
            sys!(l::__NR_rt_sigqueueinfo, pid, number(&info), &info as *const _);
        }
    }
}

/// Sends a signal to ourselves by `call`. The kernel lets only the process's first kernel thread send again what others,
/// or the kernel, have sent. If all fails, by `simple`, without the `siginfo_t`.
unsafe fn queue(call: [usize; 7], simple: [usize; 7], signal: u32) {
    let arguments = |c: [usize; 7]| [c[1], c[2], c[3], c[4], c[5], c[6]];
    // SAFETY: signals that this kernel thread and the others block.
    unsafe {
        let r = sys::syscall6(call[0], arguments(call));
        if r == -(linux_raw_sys::errno::EPERM as isize) {
            let _ = RT.errands.everywhere(Absent::Spare, || ((), Some(call)), super::kernel::kick);
        }
        let mut now = 0u64;
        sys!(l::__NR_rt_sigpending, &mut now as *mut _, 8);
        if r != 0 && now & bit(signal) == 0 {
            sys::syscall6(simple[0], arguments(simple));
        }
    }
}

/// Forgets all pending signals, in a forked child.
///
/// # Safety
/// The caller is the only thread.
pub unsafe fn reset() {
    // SAFETY: the caller's.
    unsafe {
        PROCESS.force_unlock();
        ENTRIES.force_unlock();
        handed::reset();
    }
    *PROCESS.lock() = PendingSignals::of(0);
    let mut pool = ENTRIES.lock();
    if pool.fresh != 0 {
        (pool.free, pool.fresh) = (0, 0);
    }
    PROCESS_SET.store(0, Ordering::Relaxed);
    GIVEN.store(0, Ordering::Relaxed);
}

unsafe fn takes(t: *mut Thread, signal: u32) -> bool {
    // SAFETY: a live control block.
    unsafe {
        let id = &(*t).identity;
        let blocked = id.sig_mask.load(Ordering::Relaxed) & bit(signal) != 0;
        !blocked || id.sig_waited.load(Ordering::Relaxed) & bit(signal) != 0
    }
}

/// Sends a signal to one thread.
///
/// # Safety
/// Inside the core.
pub unsafe fn send_to_thread(tid: u32, info: &SigInfo) -> Result<(), Refused> {
    let signal = number(info);
    let t = RT.threads.find(tid).ok_or(Refused::Gone)?;
    dropping_opposites(signal);
    // SAFETY: control blocks are never unmapped; the queue's owner tells whether this is still the thread.
    unsafe {
        let blocked = (*t).identity.sig_mask.load(Ordering::Relaxed) & bit(signal) != 0;
        if !blocked && actions::is_ignored(signal) {
            return Ok(());
        }
        {
            let mut q = (*t).signals.lock();
            if q.owner != tid {
                return Err(Refused::Gone);
            }
            add(&(*t).identity.sig_pending, &mut q, info)?;
        }
        // SeqCst: it is pending before we look whether the thread takes it. pairs: signal.mask
        fence(Ordering::SeqCst);
        if takes(t, signal) {
            alert(t);
        }
        Ok(())
    }
}

/// The thread that the kernel asks first whether it takes a signal for the process. Programs count on it, as their main thread
/// sleeps or waits for descriptors until a signal ends that, while others compute.
fn first_asked(info: &SigInfo) -> *mut Thread {
    const SI_KERNEL: i32 = 0x80;
    match (number(info), code(info)) {
        // Time that is used up: who uses it. Timers: who runs just then.
        (l::SIGPROF | l::SIGVTALRM | l::SIGXCPU, SI_KERNEL) | (_, SI_TIMER) if !current().is_null() => current(),
        (l::SIGCHLD, code) if actions::tells_of_child(code) => {
            RT.threads.find(crate::process::maker_of(info[2] as u32)).unwrap_or_else(main)
        }
        _ => main(),
    }
}

/// A thread that takes `signal`: `first`, else one that has not been told of another signal yet, else any.
unsafe fn taker(signal: u32, first: *mut Thread) -> *mut Thread {
    // SAFETY: live control blocks.
    unsafe {
        // One that runs looks soon, whatever else it has been told.
        let busy =
            |t: *mut Thread| (*t).attention.load(Ordering::Relaxed) && (*t).context.on_cpu.load(Ordering::Relaxed) == 0;
        // Whatever it has been told: who was told of a signal that another took waits with the flag set.
        if !first.is_null() && takes(first, signal) {
            return first;
        }
        let mut target: *mut Thread = core::ptr::null_mut();
        RT.threads.for_each(&mut |t| {
            if !takes(t, signal) {
                return true;
            }
            if target.is_null() || !busy(t) {
                target = t;
            }
            busy(t)
        });
        target
    }
}

/// The main thread, if it lives.
fn main() -> *mut Thread {
    RT.threads.find(super::kernel::process() as u32).unwrap_or(core::ptr::null_mut())
}

/// Sends a signal to the process: to the thread that the kernel asks first if it takes it, else to any other that does, else it
/// stays pending.
///
/// # Safety
/// Inside the core, or on a kernel thread that is not ours.
pub unsafe fn send_to_process(info: &SigInfo) -> Result<(), Refused> {
    // SAFETY: the caller's.
    unsafe { send_if(info, || true).map(|_| ()) }
}

/// As [`send_to_process`], if `still()` holds under the lock of the process's queue. Returns whether it did.
unsafe fn send_if(info: &SigInfo, still: impl Fn() -> bool) -> Result<bool, Refused> {
    let signal = number(info);
    dropping_opposites(signal);
    // SAFETY: live control blocks.
    unsafe {
        if actions::is_ignored(signal) {
            let target = taker(signal, first_asked(info));
            if !target.is_null() && (*target).identity.sig_waited.load(Ordering::Relaxed) & bit(signal) == 0 {
                return Ok(true);
            }
        }
        {
            let mut q = PROCESS.lock();
            if !still() {
                return Ok(false);
            }
            add(&PROCESS_SET, &mut q, info)?;
        }
        tell(signal, first_asked(info));
        Ok(true)
    }
}

/// A signal of the process has become pending: a thread that takes it is told.
unsafe fn tell(signal: u32, first: *mut Thread) {
    // SAFETY: live control blocks.
    unsafe {
        loop {
            // SeqCst: it is pending before we look who takes it, and before it counts as given; a thread changes what it
            // takes, then looks at what is pending and given. pairs: signal.mask
            fence(Ordering::SeqCst);
            let target = taker(signal, first);
            if target.is_null() {
                return;
            }
            GIVEN.fetch_or(bit(signal), Ordering::Relaxed);
            alert(target);
            // SeqCst: as above, for a thread that ends. pairs: signal.mask
            fence(Ordering::SeqCst);
            if takes(target, signal) || PROCESS_SET.load(Ordering::Relaxed) & bit(signal) == 0 {
                return;
            }
        }
    }
}

/// The current thread has looked at its signals: those of the process that it was perhaps told to take, and does not take
/// now, go to others.
///
/// # Safety
/// `t` is the current thread, inside the core.
pub unsafe fn pass_on(t: *mut Thread) {
    // SAFETY: live control blocks.
    unsafe {
        let mut left = GIVEN.load(Ordering::Relaxed) & (*t).identity.sig_mask.load(Ordering::Relaxed);
        while left != 0 {
            let signal = left.trailing_zeros() + 1;
            left &= left - 1;
            if PROCESS_SET.load(Ordering::Relaxed) & bit(signal) != 0 {
                let target = taker(signal, main());
                if !target.is_null() {
                    if target != t {
                        alert(target);
                    }
                    continue;
                }
            }
            GIVEN.fetch_and(!bit(signal), Ordering::Relaxed);
            // SeqCst: one that is sent meanwhile is pending first. pairs: signal.mask
            fence(Ordering::SeqCst);
            if PROCESS_SET.load(Ordering::Relaxed) & bit(signal) != 0 && !taker(signal, main()).is_null() {
                GIVEN.fetch_or(bit(signal), Ordering::Relaxed);
            }
        }
    }
}

/// Makes a thread look at its pending signals: wakes it if it waits, kicks its worker if it runs.
///
/// # Safety
/// Inside the core; `t` is a live control block.
pub unsafe fn alert(t: *mut Thread) {
    // SAFETY: the caller's.
    unsafe {
        (*t).attention.store(true, Ordering::Relaxed);
        // SeqCst: see `wait::begin`. pairs: signal.attention
        fence(Ordering::SeqCst);
        if t == current() {
            return; // looks when it leaves the core
        }
        if (*t).park.claim_any(Reason::Signal) {
            ready(t);
            return;
        }
        // It runs, or is about to: a thread that is switched in after this looks at `attention` when it leaves the core.
        let w = (*t).worker.load(Ordering::Relaxed).cast::<heddle_core::sched::Worker>();
        if !w.is_null() && (*t).context.on_cpu.load(Ordering::Relaxed) != 0 {
            super::kernel::kick(&*w);
        }
    }
}
