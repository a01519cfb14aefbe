//! `futex` and `futex_waitv` over the wait table.
//!
//! Futexes on shared mappings that other processes may use stay the kernel's. Priority-inheritance futexes are emulated
//! without the inheritance: user threads have no priorities to inherit, and the kernel does not know their ids.

use crate::entry::Frame;
use crate::memory;
use crate::scheduling;
use crate::signal;
use crate::time::{Timespec, read_timespec};
use crate::wait::{
    Clock, Deadline, NEVER, Next, abandon, after, begin, e, fail, interrupted, interrupted_since, park, park_until,
};
use crate::words;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use heddle_core::park::Reason;
use heddle_core::sched::{self, RT, Sleeper, current};
use heddle_core::sys::{self, linux as l};
use heddle_core::thread::{FIRST_TID, State, Thread};
use heddle_core::wait_table::{Waiter, Wakeable};

const ALL_BITS: u32 = u32::MAX;

fn misplaced(address: usize) -> Option<isize> {
    if !address.is_multiple_of(4) {
        return Some(fail(e::EINVAL));
    }
    if words::load(address).is_none() {
        return Some(fail(e::EFAULT));
    }
    None
}

/// Why a wait did not begin, if nothing else: the word is not what was expected, or not there at all.
fn changed(there: bool) -> isize {
    fail(if there { e::EAGAIN } else { e::EFAULT })
}

/// Whether the word is `value`, for [`RT`]'s table, under its lock; whether it is there at all.
#[inline(always)]
fn is(address: usize, value: u32, there: &mut bool) -> bool {
    // In the order of the instructions: a load comes after the locked instruction that took the lock. pairs: futex.word
    let found = words::load(address);
    *there = found.is_some();
    found == Some(value)
}

/// The program's `struct timespec`, where a fault does not end the call (`inside` is false) too.
#[inline(always)]
fn read_time(inside: bool, address: usize) -> Result<Option<u64>, isize> {
    if !inside && address != 0 && (words::load(address).is_none() || words::load(address.wrapping_add(12)).is_none()) {
        return Err(fail(e::EFAULT));
    }
    read_timespec(address)
}

/// `futex(2)`. On a kernel thread that is not ours `frame` is `None`.
///
/// # Safety
/// Inside the core (user threads); the arguments are the program's.
pub unsafe fn futex(mut frame: Option<&mut Frame>, args: [usize; 6]) -> isize {
    let [address, op, value, timeout, address2, value3] = args;
    let (command, private) =
        (op as u32 & !(l::FUTEX_PRIVATE_FLAG | l::FUTEX_CLOCK_REALTIME), op as u32 & l::FUTEX_PRIVATE_FLAG != 0);
    let clock = if op as u32 & l::FUTEX_CLOCK_REALTIME != 0 { Clock::Realtime } else { Clock::Monotonic };
    if !private && memory::is_shared(address) {
        // SAFETY: the program's own call.
        return unsafe {
            if is_pi(command) { shared_pi(frame, command, clock, args) } else { shared(frame, command, args) }
        };
    }
    // Who waits finds out whether there is such a word when it is compared.
    if !address.is_multiple_of(4) {
        return fail(e::EINVAL);
    }
    if !matches!(command, l::FUTEX_WAIT | l::FUTEX_WAIT_BITSET) && words::load(address).is_none() {
        return fail(e::EFAULT);
    }
    if joins_kernel_thread(args) {
        // SAFETY: the program's own call.
        return unsafe { shared(frame, command, args) };
    }
    // SAFETY: the program's arguments.
    unsafe {
        match command {
            l::FUTEX_WAIT | l::FUTEX_WAIT_BITSET => {
                let bits = if command == l::FUTEX_WAIT { ALL_BITS } else { value3 as u32 };
                if bits == 0 {
                    return fail(e::EINVAL);
                }
                let deadline = match read_time(frame.is_some(), timeout) {
                    Err(errno) => return errno,
                    Ok(None) => Deadline::NEVER,
                    Ok(Some(ns)) if command == l::FUTEX_WAIT => after(ns).into(),
                    Ok(Some(at)) => Deadline { at, clock },
                };
                wait(frame.as_deref_mut(), address, value as u32, bits, deadline)
            }
            l::FUTEX_WAKE => wake(address, value as i32, ALL_BITS),
            l::FUTEX_WAKE_BITSET if value3 as u32 == 0 => fail(e::EINVAL),
            l::FUTEX_WAKE_BITSET => wake(address, value as i32, value3 as u32),
            l::FUTEX_REQUEUE | l::FUTEX_CMP_REQUEUE => {
                if let Some(r) = misplaced(address2) {
                    return r;
                }
                if (value as i32) < 0 || (timeout as i32) < 0 {
                    return fail(e::EINVAL);
                }
                let check = command == l::FUTEX_CMP_REQUEUE;
                let mut there = true;
                let still = || !check || is(address, value3 as u32, &mut there);
                match RT.futexes.requeue(address, address2, value as i32 as usize, timeout as i32 as usize, still) {
                    None => changed(there),
                    Some((woken, moved)) => (woken + moved) as isize,
                }
            }
            l::FUTEX_WAKE_OP => wake_op(address, value as i32, timeout as i32, address2, value3 as u32),
            l::FUTEX_LOCK_PI | l::FUTEX_LOCK_PI2 | l::FUTEX_TRYLOCK_PI | l::FUTEX_UNLOCK_PI => {
                let waits = command == l::FUTEX_LOCK_PI || command == l::FUTEX_LOCK_PI2;
                let deadline = match read_time(frame.is_some(), if waits { timeout } else { 0 }) {
                    Err(errno) => return errno,
                    Ok(None) => Deadline::NEVER,
                    Ok(Some(at)) => Deadline { at, clock: pi_clock(command, clock) },
                };
                let t = current();
                if t.is_null() {
                    // A kernel thread that is not ours has an id that the kernel knows.
                    return sys::syscall6(l::__NR_futex as usize, args);
                }
                match command {
                    l::FUTEX_UNLOCK_PI => unlock_pi(address, (*t).identity.tid.load(Ordering::Relaxed), 0),
                    _ => lock_pi(frame, t, address, deadline, command == l::FUTEX_TRYLOCK_PI),
                }
            }
            _ => fail(e::ENOSYS),
        }
    }
}

fn is_pi(command: u32) -> bool {
    matches!(command, l::FUTEX_LOCK_PI | l::FUTEX_LOCK_PI2 | l::FUTEX_TRYLOCK_PI | l::FUTEX_UNLOCK_PI)
}

/// The clock of a priority-inheritance call's deadline: FUTEX_LOCK_PI has always meant CLOCK_REALTIME.
fn pi_clock(command: u32, flagged: Clock) -> Clock {
    if command == l::FUTEX_LOCK_PI { Clock::Realtime } else { flagged }
}

/// Whether a thread of the program's waits, as `pthread_join` does, for the end of a kernel thread that is not ours: the
/// kernel stores the 0 and wakes who waits with the kernel.
pub fn joins_kernel_thread(args: [usize; 6]) -> bool {
    const JOIN: u32 = l::FUTEX_WAIT_BITSET | l::FUTEX_CLOCK_REALTIME;
    let (op, tid) = (args[1] as u32, args[2] as u32);
    let process = signal::kernel::process();
    if op != JOIN || tid == 0 || tid >= FIRST_TID || tid as i32 == process || !RT.is_started() {
        return false;
    }
    // SAFETY: signal 0 tells whether there is such a thread.
    unsafe { heddle_core::sys!(l::__NR_tgkill, process, tid, 0) == 0 }
}

/// Whether these are the arguments of a priority-inheritance call about a futex that other processes may use.
pub fn is_shared_pi(args: [usize; 6]) -> bool {
    let op = args[1] as u32;
    is_pi(op & !(l::FUTEX_PRIVATE_FLAG | l::FUTEX_CLOCK_REALTIME))
        && op & l::FUTEX_PRIVATE_FLAG == 0
        && memory::is_shared(args[0])
}

/// A priority-inheritance futex that other processes may use. The kernel looks for the owner by an id that it does not
/// know if that is a user thread, of this process or another; so threads of Heddle, and processes that have no threads yet,
/// take turns without it: who finds the lock taken looks again after a pause. The word is used as the kernel uses it,
/// so that the death of an owner is seen whoever announces it.
unsafe fn shared_pi(mut frame: Option<&mut Frame>, command: u32, clock: Clock, args: [usize; 6]) -> isize {
    const PAUSE_MIN: u64 = 20_000;
    const PAUSE_MAX: u64 = 1_000_000;
    let [address, _, _, timeout, ..] = args;
    if let Some(r) = misplaced(address) {
        return r;
    }
    // SAFETY: the program's word; the current thread, or a kernel thread that is not ours.
    unsafe {
        let t = current();
        let me = match t.as_ref() {
            Some(t) => t.identity.tid.load(Ordering::Relaxed),
            None => heddle_core::sys!(l::__NR_gettid) as u32,
        };
        if command == l::FUTEX_UNLOCK_PI {
            if t.is_null() {
                // The kernel may have waiters of its own: of processes outside.
                return sys::syscall6(l::__NR_futex as usize, args);
            }
            return match words::load(address) {
                Some(v) if v & l::FUTEX_TID_MASK != me => fail(e::EPERM),
                // A Release on this architecture: the critical section happens before the next owner's. pairs: futex.pi
                Some(_) if words::store(address, 0) => 0,
                _ => fail(e::EFAULT),
            };
        }
        let deadline = match read_time(frame.is_some(), if command == l::FUTEX_TRYLOCK_PI { 0 } else { timeout }) {
            Err(errno) => return errno,
            Ok(None) => Deadline::NEVER,
            Ok(Some(at)) => Deadline { at, clock: pi_clock(command, clock) },
        };
        let mut pause = PAUSE_MIN;
        loop {
            let Some(v) = words::load(address) else { return fail(e::EFAULT) };
            let owner = v & l::FUTEX_TID_MASK;
            if owner == me {
                return fail(e::EDEADLK);
            }
            if owner == 0 {
                // The last owner's critical section happened before. pairs: futex.pi
                match words::exchange(address, v, v | me) {
                    Some(Ok(())) => return 0,
                    Some(Err(_)) => continue,
                    None => return fail(e::EFAULT),
                }
            }
            if command == l::FUTEX_TRYLOCK_PI {
                return fail(e::EAGAIN);
            }
            let left = deadline.at.saturating_sub(deadline.clock.now());
            if left == 0 {
                return fail(e::ETIMEDOUT);
            }
            let turn = left.min(pause);
            pause = (pause * 2).min(PAUSE_MAX);
            match frame.as_deref_mut() {
                None => {
                    let ts = Timespec::from_ns(turn);
                    heddle_core::sys!(l::__NR_nanosleep, &raw const ts, 0);
                }
                Some(frame) => match begin(t) {
                    Some(ticket) => {
                        park(t, ticket, after(turn), State::Futex);
                    }
                    None => {
                        interrupted(frame, true); // LOCK_PI is restarted after any handler
                    }
                },
            }
        }
    }
}

/// A futex that other processes may use: the kernel's. The waits block the worker.
unsafe fn shared(frame: Option<&mut Frame>, command: u32, args: [usize; 6]) -> isize {
    let waits = matches!(command, l::FUTEX_WAIT | l::FUTEX_WAIT_BITSET);
    // SAFETY: the program's own call.
    unsafe {
        match frame {
            Some(frame) if waits => crate::dispatch::blocking_for_long(
                frame,
                l::__NR_futex as usize,
                args,
                command != l::FUTEX_WAIT || args[3] == 0,
            ),
            _ => sys::syscall6(l::__NR_futex as usize, args),
        }
    }
}

fn wake(address: usize, limit: i32, bits: u32) -> isize {
    // The kernel wakes one waiter for 0 too.
    RT.futexes.wake(address, limit.max(1) as usize, bits) as isize
}

/// Stores 0 at a thread's CLEARTID address and wakes who joins it.
///
/// # Safety
/// The thread has left its stack.
pub unsafe fn clear_and_wake(address: usize) {
    // SAFETY: where the program wants it. As in the kernel it is no error if it cannot be written. Before it reads the table a wake
    // makes a full fence. pairs: futex.word
    let _ = unsafe { words::store(address, 0) };
    if memory::is_shared(address) {
        // SAFETY: a wake uses only the address.
        unsafe { heddle_core::sys!(l::__NR_futex, address, l::FUTEX_WAKE, 1, 0, 0, 0) };
    } else {
        RT.futexes.wake(address, 1, ALL_BITS);
    }
}

/// Wakes one waiter of the word (robust lists).
pub fn wake_one(address: usize) {
    RT.futexes.wake(address, 1, ALL_BITS);
}

unsafe fn wait(frame: Option<&mut Frame>, address: usize, value: u32, bits: u32, deadline: Deadline) -> isize {
    let Some(frame) = frame else {
        // SAFETY: the caller's.
        return unsafe { wait_outside(address, value, bits, deadline) };
    };
    let t = current();
    // SAFETY: the current thread.
    unsafe { sched::waits_on(t, address) };
    loop {
        // SAFETY: the current thread, inside the core; the waiter outlives its link (it is left before the frame ends).
        unsafe {
            let ticket = (*t).park.open();
            let mut waiter = Waiter::new(Sleeper::Thread(t, ticket), scheduling::rank(t));
            let mut there = true;
            if !RT.futexes.wait(&mut waiter, address, bits, || is(address, value, &mut there)) {
                abandon(t, ticket);
                return changed(there);
            }
            let reason = if interrupted_since(t, ticket) {
                Reason::Signal
            } else {
                park_until(t, ticket, deadline, State::Futex)
            };
            if reason != Reason::Woken {
                RT.futexes.leave(&mut waiter);
            }
            match reason {
                Reason::Woken => return 0,
                Reason::Timeout => return fail(e::ETIMEDOUT),
                Reason::Signal => match interrupted(frame, deadline.at == NEVER) {
                    Next::Restart => {}
                    Next::Interrupted => return fail(e::EINTR),
                },
            }
        }
    }
}

/// What a kernel thread that is not ours sleeps on in the kernel, on its stack.
#[repr(C)]
struct Outside {
    word: AtomicU32,
    /// `OUTSIDE`: tells whoever looks at the sleeping thread (`observe`) that the address follows.
    mark: u32,
    /// The word of the program that it waits on.
    address: usize,
}

/// See `Outside`.
pub const OUTSIDE: u32 = 0x6f75_7473;

impl Outside {
    fn new(address: usize) -> Self {
        Self { word: AtomicU32::new(0), mark: OUTSIDE, address }
    }
}

/// Where a process that shares our memory waits: not on its stack, since it may be killed there, and somebody else's data
/// come to be where its waiter was linked.
struct Seat {
    /// Who has it; 0: nobody, -1: who clears it.
    process: AtomicI32,
    word: AtomicU32,
    waiter: UnsafeCell<Waiter<Sleeper>>,
}

// SAFETY: the waiter is touched by whom the seat belongs to, and under the lock of the bucket that it is linked in.
unsafe impl Sync for Seat {}

static SEATS: [Seat; 64] = [const {
    Seat {
        process: AtomicI32::new(0),
        word: AtomicU32::new(0),
        waiter: UnsafeCell::new(Waiter::new(Sleeper::Child(core::ptr::null(), 0), 0)),
    }
}; 64];

impl Seat {
    /// A seat for `process`; `None`: all have somebody in them.
    fn take(process: i32) -> Option<&'static Self> {
        let free = || {
            SEATS.iter().find(|s| {
                // Acquire: who had it is done with it. pairs: futex.seat
                s.process.compare_exchange(0, process, Ordering::Acquire, Ordering::Relaxed).is_ok()
            })
        };
        free().or_else(|| {
            for s in &SEATS {
                let of = s.process.load(Ordering::Relaxed);
                if of > 0 && sys::has_ended(of) {
                    s.clear(of);
                }
            }
            free()
        })
    }

    /// Frees the seat of a process that does not come back.
    fn clear(&self, of: i32) {
        // Acquire: as it left it. pairs: futex.seat
        if self.process.compare_exchange(of, -1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            self.leave();
        }
    }

    fn leave(&self) {
        // SAFETY: the seat is the caller's.
        unsafe { RT.futexes.leave(self.waiter.get()) };
        // Release: the waiter is not linked. pairs: futex.seat
        self.process.store(0, Ordering::Release);
    }
}

/// A process that shared our memory does not any more: it waits nowhere.
pub fn clear_seats(process: i32) {
    for s in SEATS.iter().filter(|s| s.process.load(Ordering::Relaxed) == process) {
        s.clear(process);
    }
}

/// Nobody sits anywhere, in a forked child.
///
/// # Safety
/// The caller is the only thread, and the wait table is empty.
pub unsafe fn reset() {
    for s in SEATS.iter().filter(|s| s.process.load(Ordering::Relaxed) != 0) {
        // SAFETY: the caller's.
        unsafe { *s.waiter.get() = Waiter::new(Sleeper::Child(core::ptr::null(), 0), 0) };
        s.process.store(0, Ordering::Relaxed);
    }
}

/// The wait of a kernel thread that is not ours: it sleeps in the kernel on a word of its own.
unsafe fn wait_outside(address: usize, value: u32, bits: u32, deadline: Deadline) -> isize {
    // SAFETY: touches no memory.
    let process = unsafe { sys!(l::__NR_getpid) } as i32;
    if process != signal::kernel::process()
        && let Some(seat) = Seat::take(process)
    {
        let sleeper = Sleeper::Child(&seat.word, process);
        seat.word.store(0, Ordering::Relaxed);
        // SAFETY: the seat is ours until we leave it.
        unsafe {
            *seat.waiter.get() = Waiter::new(sleeper, 0);
            let mut there = true;
            let r = if RT.futexes.wait(seat.waiter.get(), address, bits, || is(address, value, &mut there)) {
                sleep_outside(&seat.word, sleeper, deadline).unwrap_or(0)
            } else {
                changed(there)
            };
            seat.leave();
            return r;
        }
    }
    let mine = Outside::new(address);
    let sleeper = Sleeper::Kernel(&mine.word);
    let mut waiter = Waiter::new(sleeper, 0);
    // SAFETY: the waiter is left before this frame ends.
    unsafe {
        let mut there = true;
        if !RT.futexes.wait(&mut waiter, address, bits, || is(address, value, &mut there)) {
            return changed(there);
        }
        match sleep_outside(&mine.word, sleeper, deadline) {
            None => 0,
            Some(r) => {
                RT.futexes.leave(&mut waiter);
                r
            }
        }
    }
}

/// Sleeps in the kernel until the sleeper, whose word this is, is woken (`None`), or a deadline or a signal claims it.
///
/// # Safety
/// The sleeper's waiters are linked; the caller takes them back.
unsafe fn sleep_outside(mine: &AtomicU32, sleeper: Sleeper, deadline: Deadline) -> Option<isize> {
    let ts = Timespec::from_ns(deadline.at);
    let timeout = if deadline.at == NEVER { 0 } else { &raw const ts as usize };
    let clock = if deadline.clock == Clock::Realtime { l::FUTEX_CLOCK_REALTIME } else { 0 };
    loop {
        let op = l::FUTEX_WAIT_BITSET | l::FUTEX_PRIVATE_FLAG | clock;
        // SAFETY: a word and a time of ours.
        let r = unsafe { heddle_core::sys!(l::__NR_futex, mine.as_ptr(), op, 0, timeout, 0, ALL_BITS) };
        let ended = match mine.load(Ordering::Acquire) {
            // Acquire: what the waker did is visible. pairs: kernel.sleeper
            2 => return None,
            1 => false, // claimed: the wake is on its way and touches our word
            _ => r == fail(e::ETIMEDOUT) || r == fail(e::EINTR),
        };
        if ended && sleeper.claim() {
            return Some(r);
        }
        core::hint::spin_loop();
    }
}

unsafe fn wake_op(address: usize, limit: i32, limit2: i32, address2: usize, code: u32) -> isize {
    if let Some(r) = misplaced(address2) {
        return r;
    }
    let op = code >> 28 & 7;
    let compare = code >> 24 & 15;
    let mut operand = ((code << 8) as i32 >> 20) as u32;
    let reference = (code << 20) as i32 >> 20;
    if code >> 31 != 0 {
        operand = 1 << (operand & 31);
    }
    let old = loop {
        let Some(old) = words::load(address2) else { return fail(e::EFAULT) };
        let new = match op {
            l::FUTEX_OP_SET => operand,
            l::FUTEX_OP_ADD => old.wrapping_add(operand),
            l::FUTEX_OP_OR => old | operand,
            l::FUTEX_OP_ANDN => old & !operand,
            l::FUTEX_OP_XOR => old ^ operand,
            _ => return fail(e::ENOSYS),
        };
        // SAFETY: what the program wants. A full fence: it comes before the wakes read the table, as in the kernel. pairs: futex.word
        match unsafe { words::exchange(address2, old, new) } {
            Some(Ok(())) => break old as i32,
            Some(Err(_)) => {}
            None => return fail(e::EFAULT),
        }
    };
    let also = match compare {
        l::FUTEX_OP_CMP_EQ => old == reference,
        l::FUTEX_OP_CMP_NE => old != reference,
        l::FUTEX_OP_CMP_LT => old < reference,
        l::FUTEX_OP_CMP_LE => old <= reference,
        l::FUTEX_OP_CMP_GT => old > reference,
        l::FUTEX_OP_CMP_GE => old >= reference,
        _ => return fail(e::ENOSYS),
    };
    let mut n = wake(address, limit, ALL_BITS);
    if also {
        n += wake(address2, limit2, ALL_BITS);
    }
    n
}

/// `FUTEX_LOCK_PI` and `FUTEX_TRYLOCK_PI`: the word holds the owner's id and two flags; an unlock hands the lock to the
/// first waiter.
unsafe fn lock_pi(
    frame: Option<&mut Frame>,
    t: *mut Thread,
    address: usize,
    deadline: Deadline,
    only_try: bool,
) -> isize {
    // SAFETY: the current thread inside the core; the program's word.
    unsafe {
        let me = (*t).identity.tid.load(Ordering::Relaxed);
        let Some(frame) = frame else { return fail(e::ENOSYS) };
        loop {
            let ticket = if only_try { None } else { begin(t) };
            if ticket.is_none() && !only_try {
                // LOCK_PI is restarted after any handler.
                interrupted(frame, true);
                continue;
            }
            let mut waiter = ticket.map(|k| Waiter::new(Sleeper::Thread(t, k), scheduling::rank(t)));
            let mut result = None;
            let mut decide = || {
                loop {
                    let Some(v) = words::load(address) else {
                        result = Some(fail(e::EFAULT));
                        return false;
                    };
                    let owner = v & l::FUTEX_TID_MASK;
                    let new = if owner == 0 {
                        v & l::FUTEX_OWNER_DIED | me
                    } else if owner == me {
                        result = Some(fail(e::EDEADLK));
                        return false;
                    } else if only_try {
                        result = Some(fail(e::EAGAIN));
                        return false;
                    } else {
                        v | l::FUTEX_WAITERS
                    };
                    // A full fence: taking the lock or announcing a waiter is ordered with the owner's unlock. pairs: futex.pi
                    match words::exchange(address, v, new) {
                        Some(Ok(())) if owner == 0 => {
                            result = Some(0);
                            return false;
                        }
                        Some(Ok(())) => return true,
                        Some(Err(_)) => {}
                        None => {
                            result = Some(fail(e::EFAULT));
                            return false;
                        }
                    }
                }
            };
            let linked = match waiter.as_mut() {
                Some(w) => RT.futexes.wait(w, address, ALL_BITS, decide),
                None => RT.futexes.locked(address, decide_once(&mut decide)),
            };
            let Some(k) = ticket else { return result.unwrap_or(fail(e::EAGAIN)) };
            if !linked {
                abandon(t, k);
                return result.unwrap_or(fail(e::EAGAIN));
            }
            let reason = park_until(t, k, deadline, State::Futex);
            if let Some(w) = waiter.as_mut() {
                RT.futexes.leave(w);
            }
            match reason {
                Reason::Woken => return 0, // the unlocker made us the owner
                Reason::Timeout => return fail(e::ETIMEDOUT),
                Reason::Signal => {
                    interrupted(frame, true);
                }
            }
        }
    }
}

fn decide_once<'a>(f: &'a mut dyn FnMut() -> bool) -> impl FnOnce() -> bool + 'a {
    move || f()
}

/// `FUTEX_UNLOCK_PI`, and the death of an owner (`died` = FUTEX_OWNER_DIED): hands the lock to the first waiter.
///
/// # Safety
/// The program's word.
pub unsafe fn unlock_pi(address: usize, me: u32, died: u32) -> isize {
    match words::load(address) {
        None => return fail(e::EFAULT),
        Some(v) if v & l::FUTEX_TID_MASK != me => return fail(e::EPERM),
        Some(_) => {}
    }
    let mut there = true;
    RT.futexes.hand_over(address, |next: Option<(Sleeper, bool)>| {
        let value = match next {
            // SAFETY: control blocks are never unmapped.
            Some((Sleeper::Thread(t, _), more)) => unsafe {
                (*t).identity.tid.load(Ordering::Relaxed) | if more { l::FUTEX_WAITERS } else { 0 }
            },
            _ => 0,
        };
        // SAFETY: the caller's. A Release on this architecture: the critical section happens before the next owner's.
        // pairs: futex.pi
        there = unsafe { words::store(address, value | died) };
    });
    if there { 0 } else { fail(e::EFAULT) }
}

/// Entries of `futex_waitv` for which no memory is mapped.
const FEW: usize = 4;

/// An entry of `futex_waitv`, and room for its waiter.
struct Entry {
    value: u64,
    address: usize,
    flags: u32,
    reserved: u32,
    waiter: MaybeUninit<Waiter<Sleeper>>,
}

impl Entry {
    /// Reads a `struct futex_waitv`; `None` if it is not there.
    fn load(from: usize) -> Option<Self> {
        let word = |i: usize| words::load(from.wrapping_add(4 * i));
        let long = |i: usize| Some(u64::from(word(i)?) | u64::from(word(i + 1)?) << 32);
        let (value, address) = (long(0)?, long(2)? as usize);
        Some(Self { value, address, flags: word(4)?, reserved: word(5)?, waiter: MaybeUninit::uninit() })
    }
}

/// `futex_waitv(2)`: waits on several words at once; returns the index of one that was woken. On a kernel thread that is not
/// ours `frame` is `None`.
///
/// # Safety
/// Inside the core (user threads); the arguments are the program's.
pub unsafe fn waitv(frame: Option<&mut Frame>, args: [usize; 6]) -> isize {
    const STRIDE: usize = 24;
    let [entries, count, flags, timeout, clock, _] = args;
    if count == 0 || count > 128 || flags != 0 || entries == 0 {
        return fail(e::EINVAL);
    }
    let deadline = match read_time(frame.is_some(), timeout) {
        Err(errno) => return errno,
        Ok(None) => Deadline::NEVER,
        Ok(Some(at)) => match Clock::of(clock as u32) {
            Some(clock @ (Clock::Monotonic | Clock::Realtime)) => Deadline { at, clock },
            _ => return fail(e::EINVAL),
        },
    };
    let size = count * size_of::<Entry>();
    let mut few = [const { MaybeUninit::<Entry>::uninit() }; FEW];
    let mapped = if count <= FEW {
        None
    } else {
        match heddle_core::mem::map(size) {
            Ok(memory) => Some(memory),
            Err(_) => return fail(e::ENOMEM),
        }
    };
    let list: *mut Entry = mapped.map_or(few.as_mut_ptr().cast(), |memory| memory.cast());
    // Our own, since the program's may change or go while we wait.
    let read = (0..count).try_for_each(|i| {
        let entry = Entry::load(entries.wrapping_add(STRIDE * i)).ok_or(e::EFAULT)?;
        // SAFETY: room for `count` entries.
        unsafe { list.add(i).write(entry) };
        Ok(())
    });
    // SAFETY: the caller's; `count` entries were written if all were read; all waiters are left before they go.
    unsafe {
        let result = match read {
            Err(errno) => fail(errno),
            Ok(()) => wait_on_all(frame, core::slice::from_raw_parts_mut(list, count), deadline, args),
        };
        if let Some(memory) = mapped {
            heddle_core::mem::unmap(memory, size);
        }
        result
    }
}

unsafe fn wait_on_all(frame: Option<&mut Frame>, list: &mut [Entry], deadline: Deadline, args: [usize; 6]) -> isize {
    const SIZE_U32: u32 = 2;
    const PRIVATE: u32 = l::FUTEX_PRIVATE_FLAG;
    if list.iter().any(|x| x.flags & !PRIVATE != SIZE_U32 || x.reserved != 0) {
        return fail(e::EINVAL);
    }
    if list.iter().any(|x| x.flags & PRIVATE == 0 && memory::is_shared(x.address)) {
        let call = || {
            // SAFETY: the program's own call.
            unsafe { sys::syscall6(l::__NR_futex_waitv as usize, args) }
        };
        return match frame {
            // SAFETY: a user thread, inside the core.
            Some(_) => unsafe { heddle_core::sched::blocking(call) },
            None => call(),
        };
    }
    if list.iter().any(|x| !x.address.is_multiple_of(4)) {
        return fail(e::EINVAL);
    }
    // SAFETY: the caller's.
    unsafe {
        match frame {
            Some(frame) => waitv_user(frame, list, deadline),
            None => waitv_outside(list, deadline),
        }
    }
}

/// Links a waiter for each entry, up to the first whose word has another value. `Err`: how many were linked, and what is to be
/// answered.
///
/// # Safety
/// [`unlink`] is called before the entries go.
unsafe fn link(list: &mut [Entry], who: Sleeper, rank: u32) -> Result<(), (usize, isize)> {
    for (i, x) in list.iter_mut().enumerate() {
        let mut there = true;
        let same = || is(x.address, x.value as u32, &mut there);
        // SAFETY: the caller's.
        if !unsafe { RT.futexes.wait(x.waiter.write(Waiter::new(who, rank)), x.address, ALL_BITS, same) } {
            return Err((i, changed(there)));
        }
    }
    Ok(())
}

/// Takes the first `linked` waiters back. The first that was woken.
///
/// # Safety
/// They were linked by [`link`].
unsafe fn unlink(list: &mut [Entry], linked: usize) -> Option<usize> {
    let mut woken = None;
    for (i, x) in list[..linked].iter_mut().enumerate() {
        // SAFETY: the caller's.
        if !unsafe { RT.futexes.leave(x.waiter.as_mut_ptr()) } && woken.is_none() {
            woken = Some(i);
        }
    }
    woken
}

unsafe fn waitv_user(frame: &mut Frame, list: &mut [Entry], deadline: Deadline) -> isize {
    let t = current();
    // SAFETY: the current thread.
    unsafe { sched::waits_on(t, list[0].address) };
    loop {
        // SAFETY: the current thread inside the core; all waiters are left before the next turn.
        unsafe {
            let Some(ticket) = begin(t) else {
                match interrupted(frame, deadline.at == NEVER) {
                    Next::Restart => continue,
                    Next::Interrupted => return fail(e::EINTR),
                }
            };
            let (linked, reason) = match link(list, Sleeper::Thread(t, ticket), scheduling::rank(t)) {
                Ok(()) => (list.len(), Ok(park_until(t, ticket, deadline, State::Futex))),
                // A wake of an earlier word may have come already; then that is the result.
                Err((n, errno)) => (n, if (*t).park.close(ticket) { Err(errno) } else { Ok(sched::park()) }),
            };
            let woken = unlink(list, linked);
            match reason {
                Err(errno) => return errno,
                Ok(Reason::Woken) => return woken.unwrap_or(0) as isize,
                Ok(Reason::Timeout) => return fail(e::ETIMEDOUT),
                Ok(Reason::Signal) => match interrupted(frame, deadline.at == NEVER) {
                    Next::Restart => {}
                    Next::Interrupted => return fail(e::EINTR),
                },
            }
        }
    }
}

/// The wait of a kernel thread that is not ours: see `wait_outside`.
unsafe fn waitv_outside(list: &mut [Entry], deadline: Deadline) -> isize {
    let mine = Outside::new(list[0].address);
    let sleeper = Sleeper::Kernel(&mine.word);
    // SAFETY: all waiters are left before this frame ends.
    unsafe {
        let (linked, result) = match link(list, sleeper, 0) {
            Err((n, errno)) if sleeper.claim() => (n, Some(errno)),
            Err((n, _)) => (n, sleep_outside(&mine.word, sleeper, deadline)),
            Ok(()) => (list.len(), sleep_outside(&mine.word, sleeper, deadline)),
        };
        let woken = unlink(list, linked);
        result.unwrap_or_else(|| woken.unwrap_or(0) as isize)
    }
}
