//! `poll`, `select`, `epoll_wait` and their kin: the kernel is asked without blocking; between two questions the thread is
//! parked on all descriptors concerned.

use crate::entry::Frame;
use crate::fd;
use crate::signal;
use crate::time::Timespec;
use crate::wait::{NEVER, Next, abandon, after, begin, e, fail, interrupted, park};
use crate::words;
use heddle_core::clock;
use heddle_core::mem;
use heddle_core::park::Reason;
use heddle_core::reactor::fd::{IN, Node, OUT, Wait};
use heddle_core::sched::{RT, current};
use heddle_core::sys::linux as l;
use heddle_core::thread::State;

/// Nanoseconds between two questions about descriptors that the reactor cannot watch.
pub const HIDDEN_PAUSE: u64 = 10_000_000;
/// How many nodes fit on the stack.
const FEW: usize = 8;

/// The descriptors that a call asks about.
struct Asked<'a> {
    /// The i-th of `count` and what it is watched for, if there is one.
    interest: &'a dyn Fn(usize) -> Option<(i32, u32)>,
    count: usize,
    /// So many of them at most.
    most: usize,
    /// The only one had nothing to tell when its count of events was this.
    since: Option<u32>,
}

/// Counts of events before a question: if one of these has moved on when the thread is linked, there may be another answer, and
/// if none has there is not.
struct Before {
    counts: [(i32, u32); FEW],
    /// How many are known; 0 if there are too many.
    len: usize,
}

impl Before {
    fn take(asked: &Asked) -> Self {
        let mut before = Self { counts: [(-1, 0); FEW], len: 0 };
        for (fd, what) in (0..asked.count).filter_map(asked.interest) {
            if before.len == FEW {
                before.len = 0;
                break;
            }
            before.counts[before.len] = (fd, fd::events(fd, what));
            before.len += 1;
        }
        before
    }

    /// The count of that descriptor, if it was the n-th. (The program may have changed its array.)
    fn of(&self, n: usize, fd: i32) -> Option<u32> {
        self.counts[..self.len].get(n).and_then(|&(known, count)| (known == fd).then_some(count))
    }
}

/// Asks until `ask` returns something but 0, or the deadline passes (0), or a handler has run (EINTR).
///
/// A thread that waits asks twice: before, and when it is woken. Not a third time when it is linked to its descriptors: what has
/// happened since the question has moved a count of events, as for a read that is tried before it waits (`core/src/reactor/fd.rs`).
///
/// # Safety
/// The current thread, inside the core; `ask` does not block.
unsafe fn until_some(frame: &mut Frame, asked: &Asked, deadline: u64, ask: &mut dyn FnMut() -> isize) -> isize {
    // The kernel may answer EINTR even if it is not to wait, for a signal that is for another thread. One for this thread is
    // found when the wait begins.
    let mut ask = || loop {
        let r = ask();
        if r != fail(e::EINTR) {
            break r;
        }
    };
    let mut before = Before::take(asked);
    // Nothing to ask: it would tell nothing.
    if asked.since.is_none()
        || deadline == 0
        || asked.since != before.counts[..before.len].first().map(|&(_, count)| count)
    {
        let r = ask();
        if r != 0 || deadline == 0 {
            return r;
        }
    }
    let t = current();
    let mut few: [core::mem::MaybeUninit<Node>; FEW] = [const { core::mem::MaybeUninit::uninit() }; FEW];
    let size = asked.most * size_of::<Node>();
    let many = if asked.most > FEW {
        match mem::map(size) {
            Ok(p) => p.cast::<Node>(),
            Err(_) => return fail(e::ENOMEM),
        }
    } else {
        core::ptr::null_mut()
    };
    let nodes = if many.is_null() { few.as_mut_ptr().cast::<Node>() } else { many };
    let result = loop {
        // SAFETY: the current thread, inside the core; nodes are left before they go away.
        unsafe {
            let Some(ticket) = begin(t) else {
                // None of these calls is ever restarted after a handler.
                if interrupted(frame, false) == Next::Interrupted {
                    break fail(e::EINTR);
                }
                continue;
            };
            let mut linked = 0;
            let mut hidden = false;
            let mut unsure = false;
            let mut again = false;
            for (n, (fd, what)) in (0..asked.count).filter_map(asked.interest).enumerate() {
                let node = nodes.add(linked);
                node.write(Node::new(t, ticket, what));
                let seen = before.of(n, fd);
                unsure |= seen.is_none();
                match RT.descriptors.wait(&RT.reactor, fd, node, seen) {
                    Wait::Linked => linked += 1,
                    // There was an event: the next question tells.
                    Wait::Again => again = true,
                    // A regular file, or closed meanwhile: the question answers at once.
                    Wait::Cannot(errno) if matches!(errno as u32, e::EPERM | e::EBADF) => unsure = true,
                    Wait::Cannot(_) => hidden = true,
                }
                if again {
                    break;
                }
            }
            // What the reactor cannot watch (its limits are reached) is asked about again and again.
            let until = if hidden { deadline.min(after(HIDDEN_PAUSE)) } else { deadline };
            // Linked everywhere: what happens from now on wakes us. What happened before has moved a count, or is seen by this
            // question.
            let r = if again || !(hidden || unsure) { 0 } else { ask() };
            let reason = if again || r != 0 {
                abandon(t, ticket);
                None
            } else {
                Some(park(t, ticket, until, State::Io))
            };
            for i in 0..linked {
                let node = nodes.add(i);
                RT.descriptors.leave(node);
                let fd = (*node).fd.load(core::sync::atomic::Ordering::Relaxed);
                RT.descriptors.done(&RT.reactor, fd);
            }
            if r != 0 {
                break r;
            }
            if reason == Some(Reason::Signal)
                && signal::deliverable(t)
                && interrupted(frame, false) == Next::Interrupted
            {
                break fail(e::EINTR);
            }
            before = Before::take(asked);
            let r = ask();
            if r != 0 || deadline <= clock::now() {
                break r;
            }
        }
    };
    if !many.is_null() {
        // SAFETY: our mapping; all nodes have been left.
        unsafe { mem::unmap(many.cast(), size) };
    }
    result
}

fn interest_of(events: i16) -> u32 {
    let e = events as u32;
    let mut what = 0;
    // An error or hang-up is always of interest; it comes with both.
    if e & (l::POLLOUT | l::POLLWRNORM | l::POLLWRBAND) != 0 {
        what |= OUT;
    }
    if what == 0 || e & !(l::POLLOUT | l::POLLWRNORM | l::POLLWRBAND) != 0 {
        what |= IN;
    }
    what
}

/// Whether these events are none but those of which a stream that has been read to its end has none, until there is an event.
fn asks_for_input(events: i16) -> bool {
    events as u32 & !(l::POLLIN | l::POLLRDNORM | l::POLLPRI | l::POLLRDHUP | l::POLLERR | l::POLLHUP) == 0
}

/// `poll` and `ppoll`. `deadline`: nanoseconds, 0 = do not wait.
unsafe fn poll_until(frame: &mut Frame, fds: usize, count: usize, deadline: u64) -> isize {
    let interest = |i: usize| {
        // `struct pollfd`. The kernel has read the array, and when it does so next it tells if that is gone.
        let at = fds.wrapping_add(8 * i);
        let (fd, events) = (words::load(at)? as i32, words::load(at.wrapping_add(4))? as i16);
        (fd >= 0).then_some((fd, interest_of(events)))
    };
    // What is read by one thread alone, as a rule: a connection.
    let since = if count == 1 && words::load(fds.wrapping_add(4)).is_some_and(|events| asks_for_input(events as i16)) {
        interest(0).and_then(|(fd, _)| fd::drained_at(fd))
    } else {
        None
    };
    let asked = Asked { interest: &interest, count, most: count, since };
    // SAFETY: the program's call without its timeout.
    unsafe { until_some(frame, &asked, deadline, &mut || heddle_core::sys!(l::__NR_poll, fds, count, 0)) }
}

/// `poll`.
///
/// # Safety
/// The program's call.
pub unsafe fn poll(frame: &mut Frame, args: [usize; 6]) -> isize {
    let ms = args[2] as i32;
    let deadline = match ms {
        0 => 0,
        ms if ms < 0 => NEVER,
        ms => after(ms as u64 * 1_000_000),
    };
    // SAFETY: the program's call.
    unsafe { poll_until(frame, args[0], args[1], deadline) }
}

/// The deadline of the program's relative timespec or timeval; 0 = do not wait.
fn deadline_of(time: Option<Timespec>) -> Result<u64, isize> {
    match time {
        None => Ok(NEVER),
        Some(ts) => match ts.to_ns()? {
            0 => Ok(0),
            ns => Ok(after(ns)),
        },
    }
}

/// Writes back what is left of the time. As in the kernel it is no error if that cannot be written: what the call found is told.
unsafe fn write_rest(address: usize, deadline: u64, micro: bool) {
    if address == 0 {
        return;
    }
    let left = if deadline == 0 { 0 } else { deadline.saturating_sub(clock::now()) };
    let mut ts = Timespec::from_ns(left);
    if micro {
        ts.nanos /= 1000;
    }
    // SAFETY: the program's.
    let _ = unsafe { words::store_all(address, &[ts.seconds as u64, ts.nanos as u64]) };
}

/// `ppoll`.
///
/// # Safety
/// The current thread; the program's call.
pub unsafe fn ppoll(frame: &mut Frame, args: [usize; 6]) -> isize {
    let [fds, count, timeout, mask, size, _] = args;
    if mask != 0 && size != 8 {
        return fail(e::EINVAL);
    }
    // SAFETY: the program's pointers.
    unsafe {
        let time = if timeout == 0 { None } else { Some((timeout as *const Timespec).read_unaligned()) };
        let deadline = match deadline_of(time) {
            Ok(d) => d,
            Err(errno) => return errno,
        };
        let t = current();
        let before = signal::calls::mask_for(t, mask);
        let r = poll_until(frame, fds, count, deadline);
        signal::calls::unmask(t, before);
        write_rest(timeout, deadline, false);
        r
    }
}

/// `select` and `pselect6`: `time` is the program's timeval or timespec at `timeout`.
unsafe fn select_until(frame: &mut Frame, args: [usize; 6], deadline: u64) -> isize {
    const WORDS: usize = 16; // 1024 descriptors, as FD_SETSIZE
    let count = args[0] as i32;
    let sets = [args[1], args[2], args[3]];
    if !(0..=(WORDS * 64) as i32).contains(&count) {
        // Sets larger than FD_SETSIZE: the kernel waits.
        // SAFETY: the program's call.
        return unsafe { crate::dispatch::blocking(frame, frame.rax as usize, args, false) };
    }
    let words = (count as usize).div_ceil(64);
    let mut wanted = [[0u64; WORDS]; 3];
    for (w, &s) in wanted.iter_mut().zip(&sets) {
        if s != 0 {
            // SAFETY: the program's set.
            unsafe { core::ptr::copy_nonoverlapping(s as *const u64, w.as_mut_ptr(), words) };
        }
    }
    let interest = |i: usize| {
        let has = |k: usize| wanted[k][i / 64] >> (i % 64) & 1 != 0;
        let what = if has(0) || has(2) { IN } else { 0 } | if has(1) { OUT } else { 0 };
        (what != 0).then_some((i as i32, what))
    };
    let mut result = [[0u64; WORDS]; 3];
    let most = (0..WORDS).map(|w| (wanted[0][w] | wanted[1][w] | wanted[2][w]).count_ones() as usize).sum();
    let asked = Asked { interest: &interest, count: count as usize, most, since: None };
    // SAFETY: asks about copies of the sets, without waiting.
    let r = unsafe {
        until_some(frame, &asked, deadline, &mut || {
            result = wanted;
            let zero = [0i64; 2];
            let at = |k: usize, r: &mut [[u64; WORDS]; 3]| if sets[k] == 0 { 0 } else { r[k].as_mut_ptr() as usize };
            let (a, b, c) = (at(0, &mut result), at(1, &mut result), at(2, &mut result));
            heddle_core::sys!(l::__NR_select, count, a, b, c, zero.as_ptr())
        })
    };
    if r >= 0 {
        for (k, &s) in sets.iter().enumerate() {
            if s != 0 {
                let set = if r == 0 { [0; WORDS] } else { result[k] };
                // The kernel writes whole words of its `long`s.
                // SAFETY: the program's set.
                if !unsafe { words::store_all(s, &set[..words]) } {
                    return fail(e::EFAULT); // the caller sets its mask back
                }
            }
        }
    }
    r
}

/// `select`.
///
/// # Safety
/// The program's call.
pub unsafe fn select(frame: &mut Frame, args: [usize; 6]) -> isize {
    let timeout = args[4];
    // SAFETY: the program's pointers.
    unsafe {
        let time = if timeout == 0 {
            None
        } else {
            let tv = (timeout as *const Timespec).read_unaligned();
            if tv.seconds < 0 || tv.nanos < 0 {
                return fail(e::EINVAL);
            }
            Some(Timespec { seconds: tv.seconds + tv.nanos / 1_000_000, nanos: tv.nanos % 1_000_000 * 1000 })
        };
        let deadline = match deadline_of(time) {
            Ok(d) => d,
            Err(errno) => return errno,
        };
        let r = select_until(frame, args, deadline);
        write_rest(timeout, deadline, true);
        r
    }
}

/// `pselect6`.
///
/// # Safety
/// The program's call.
pub unsafe fn pselect(frame: &mut Frame, args: [usize; 6]) -> isize {
    let (timeout, packed) = (args[4], args[5]);
    // SAFETY: the program's pointers.
    unsafe {
        let time = if timeout == 0 { None } else { Some((timeout as *const Timespec).read_unaligned()) };
        let deadline = match deadline_of(time) {
            Ok(d) => d,
            Err(errno) => return errno,
        };
        let (mask, size) = if packed == 0 { (0, 8) } else { *(packed as *const (usize, usize)) };
        if mask != 0 && size != 8 {
            return fail(e::EINVAL);
        }
        let t = current();
        let before = signal::calls::mask_for(t, mask);
        let r = select_until(frame, args, deadline);
        signal::calls::unmask(t, before);
        write_rest(timeout, deadline, false);
        r
    }
}

/// `epoll_wait`, `epoll_pwait` (milliseconds) and `epoll_pwait2` (timespec).
///
/// # Safety
/// The program's call.
pub unsafe fn epoll_wait(frame: &mut Frame, number: u32, args: [usize; 6]) -> isize {
    let [epoll, events, max, timeout, mask, size] = args;
    // SAFETY: the program's pointers.
    unsafe {
        let deadline = if number == l::__NR_epoll_pwait2 {
            let time = if timeout == 0 { None } else { Some((timeout as *const Timespec).read_unaligned()) };
            match deadline_of(time) {
                Ok(d) => d,
                Err(errno) => return errno,
            }
        } else {
            match timeout as i32 {
                0 => 0,
                ms if ms < 0 => NEVER,
                ms => after(ms as u64 * 1_000_000),
            }
        };
        let masked = number != l::__NR_epoll_wait && mask != 0;
        if masked && size != 8 {
            return fail(e::EINVAL);
        }
        let t = current();
        let before = if masked { signal::calls::mask_for(t, mask) } else { None };
        let asked = Asked { interest: &|_| Some((epoll as i32, IN)), count: 1, most: 1, since: None };
        let r =
            until_some(frame, &asked, deadline, &mut || heddle_core::sys!(l::__NR_epoll_wait, epoll, events, max, 0));
        signal::calls::unmask(t, before);
        r
    }
}
