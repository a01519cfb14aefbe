//! Reading, writing, sending, receiving, accepting, connecting: tried without blocking, then parked.

use crate::entry::Frame;
use crate::fd::{self, Kind, blocking_since, is_nonblocking, set_kind, socket_timeout};
use crate::poll::HIDDEN_PAUSE;
use crate::signal;
use crate::wait::{NEVER, Next, abandon, after, begin, e, ended_early, fail, interrupted, park};
use core::sync::atomic::{AtomicBool, Ordering};
use heddle_core::park::Reason;
use heddle_core::reactor::fd::{IN, Node, OUT, Wait};
use heddle_core::sched::{self, RT, blocking, current};
use heddle_core::sys::{self, linux as l};
use heddle_core::thread::State;
use linux_raw_sys::{ioctl, net};

const AGAIN: isize = fail(e::EAGAIN);
const RWF_NOWAIT: usize = 8;
const RWF_NOSIGNAL: usize = 0x100;
const WAIT_FOR_ONE: usize = 0x10000; // MSG_WAITFORONE

/// One segment of a scatter/gather list.
#[repr(C)]
#[derive(Clone, Copy)]
struct Segment {
    base: usize,
    len: usize,
}

/// How an operation waits.
struct How {
    /// IN or OUT.
    interest: u32,
    /// SO_RCVTIMEO or SO_SNDTIMEO; 0: no timeout.
    timeout: u32,
}

const RECEIVE: How = How { interest: IN, timeout: net::SO_RCVTIMEO_OLD };
const SEND: How = How { interest: OUT, timeout: net::SO_SNDTIMEO_OLD };

/// Makes `op` (which never blocks; it returns EAGAIN instead) on `fd`; parks until it succeeds, as a blocking descriptor
/// would. `op` is told which descriptor to use: the program may have closed the first one meanwhile.
///
/// # Safety
/// The current thread, inside the core; `op` is the program's call.
unsafe fn until_ready(frame: &mut Frame, fd: i32, how: &How, op: &mut dyn FnMut(i32) -> isize) -> isize {
    // SAFETY: the caller's.
    unsafe { until_ready_since(frame, fd, how, op, &mut 0) }
}

/// As [`until_ready`]; `seen` becomes the count of events before the try that was the last.
unsafe fn until_ready_since(
    frame: &mut Frame,
    fd: i32,
    how: &How,
    op: &mut dyn FnMut(i32) -> isize,
    seen: &mut u32,
) -> isize {
    *seen = fd::events(fd, how.interest);
    // SAFETY: the caller's.
    unsafe {
        let r = attempt(frame, fd, how, false, op);
        if r != AGAIN {
            return r;
        }
        let since = blocking_since(fd);
        if since.is_some() { keep_trying(frame, fd, how, since, None, op, seen) } else { r }
    }
}

/// Makes `op`, and makes it again when a signal ended it: one that was not for this thread, or whose handlers have SA_RESTART, or
/// one that came before anything was waited for (`waited`: the program's call has waited already).
#[inline(always)]
unsafe fn attempt(frame: &mut Frame, fd: i32, how: &How, waited: bool, op: &mut dyn FnMut(i32) -> isize) -> isize {
    let r = op(fd);
    if !is_unfinished(r) {
        return r;
    }
    // SAFETY: the caller's.
    unsafe { attempt_again(frame, fd, how, waited, op, r) }
}

/// Whether a call is to be made again if the signal that ended it does not say otherwise.
#[inline(always)]
fn is_unfinished(r: isize) -> bool {
    r == fail(e::EINTR) || r == signal::kernel::NOT_MADE
}

#[cold]
unsafe fn attempt_again(
    frame: &mut Frame,
    fd: i32,
    how: &How,
    mut waited: bool,
    op: &mut dyn FnMut(i32) -> isize,
    mut r: isize,
) -> isize {
    while is_unfinished(r) {
        waited |= r == fail(e::EINTR);
        // SAFETY: the caller's.
        unsafe {
            let timed = how.timeout != 0 && socket_timeout(fd, how.timeout, None).is_some();
            if ended_early(frame, !timed) == Next::Interrupted && waited {
                return fail(e::EINTR);
            }
        }
        r = op(fd);
    }
    r
}

/// The waiting half of [`until_ready`]. `since`: what [`blocking_since`] said, if it was asked.
unsafe fn keep_trying(
    frame: &mut Frame,
    fd: i32,
    how: &How,
    since: Option<u32>,
    deadline: Option<u64>,
    op: &mut dyn FnMut(i32) -> isize,
    seen: &mut u32,
) -> isize {
    let t = current();
    let mut using = fd;
    let mut timed = false;
    let deadline = deadline.unwrap_or_else(|| {
        match if how.timeout == 0 { None } else { socket_timeout(fd, how.timeout, since) } {
            Some(ns) => {
                timed = true;
                after(ns)
            }
            None => NEVER,
        }
    });
    let result = loop {
        // SAFETY: the current thread, inside the core; the node is left before its frame ends.
        unsafe {
            let Some(ticket) = begin(t) else {
                match interrupted(frame, !timed) {
                    Next::Restart => continue,
                    Next::Interrupted => break fail(e::EINTR),
                }
            };
            let mut node = Node::new(t, ticket, how.interest);
            let linked = match RT.descriptors.wait(&RT.reactor, using, &mut node, Some(*seen)) {
                Wait::Again => {
                    abandon(t, ticket);
                    None
                }
                Wait::Cannot(errno) if errno == e::EPERM as i32 => {
                    abandon(t, ticket);
                    set_kind(using, Kind::Plain);
                    break AGAIN;
                }
                // The kernel has no memory or watches left for it: it is asked again and again.
                Wait::Cannot(_) => Some(false),
                Wait::Linked => Some(true),
            };
            if let Some(watched) = linked {
                let until = if watched { deadline } else { deadline.min(after(HIDDEN_PAUSE)) };
                let reason = park(t, ticket, until, State::Io);
                if watched {
                    if reason != Reason::Woken {
                        RT.descriptors.leave(&mut node);
                    }
                    using = node.fd.load(Ordering::Relaxed);
                }
                match reason {
                    Reason::Timeout if until == deadline => break attempt(frame, using, how, true, op),
                    Reason::Timeout | Reason::Woken => {}
                    Reason::Signal => match interrupted(frame, !timed) {
                        Next::Restart => {}
                        Next::Interrupted => break fail(e::EINTR),
                    },
                }
            }
        }
        *seen = fd::events(using, how.interest);
        // SAFETY: as above.
        let r = unsafe { attempt(frame, using, how, true, op) };
        if r != AGAIN {
            break r;
        }
    };
    if using != fd {
        RT.descriptors.done(&RT.reactor, using);
    }
    result
}

/// As [`may_wait`], for a call that is to be interrupted if it waits: it takes all or nothing.
unsafe fn is_not_to_wait(number: usize, args: &[usize; 6]) -> isize {
    // SAFETY: the current thread's worker; the caller's. The thread may be on another one afterwards, whose mark is not set.
    unsafe {
        let w = sched::this_worker();
        (*w).brief.store(1, Ordering::Relaxed);
        let t = current();
        blocking(|| {
            let r = signal::masks::on_terminal(t, || signal::kernel::interruptible(t, number, args));
            (*w).brief.store(0, Ordering::Relaxed);
            r
        })
    }
}

/// A call on a descriptor that was ready: it blocks the worker if somebody else is faster, until a signal comes.
unsafe fn may_wait(number: usize, args: &[usize; 6]) -> isize {
    let t = current();
    // SAFETY: the program's call by the current thread, inside the core.
    unsafe { blocking(|| signal::masks::on_terminal(t, || signal::kernel::interruptible(t, number, args))) }
}

/// Whether `fd` is the terminal of a process in the background: the kernel refuses calls on it, or stops the process, at once.
fn is_of_others(fd: i32) -> bool {
    let mut group = 0;
    // SAFETY: writes the local.
    unsafe {
        sys!(l::__NR_ioctl, fd, ioctl::TIOCGPGRP, &raw mut group) == 0 && group as isize != sys!(l::__NR_getpgid, 0)
    }
}

/// Whether a write to nobody by the current thread need not send SIGPIPE.
#[inline(always)]
fn is_quiet() -> bool {
    // SAFETY: the current thread.
    signal::actions::spares_broken_pipe(|| unsafe { (*current()).identity.sig_mask.load(Ordering::Relaxed) })
}

/// The flags of a send that does not wait.
#[inline(always)]
fn send_flags() -> u32 {
    if is_quiet() { net::MSG_DONTWAIT | net::MSG_NOSIGNAL } else { net::MSG_DONTWAIT }
}

/// The kernel does not know [`RWF_NOSIGNAL`] (before Linux 6.18).
static ONLY_WITH_SIGNAL: AtomicBool = AtomicBool::new(false);

/// `pwritev2` at the file's own place, without waiting.
unsafe fn write_now(fd: i32, segments: *const Segment, count: usize) -> isize {
    let call = |flags: usize| {
        // SAFETY: the program's call.
        unsafe { sys!(l::__NR_pwritev2, fd, segments, count, -1isize, -1isize, flags) }
    };
    if is_quiet() && !ONLY_WITH_SIGNAL.load(Ordering::Relaxed) {
        let r = call(RWF_NOWAIT | RWF_NOSIGNAL);
        if r != fail(e::EOPNOTSUPP) {
            return r;
        }
        let r = call(RWF_NOWAIT);
        ONLY_WITH_SIGNAL.store(r != fail(e::EOPNOTSUPP), Ordering::Relaxed);
        return r;
    }
    call(RWF_NOWAIT)
}

/// A read-like or write-like call with a buffer list, on a descriptor that may wait.
///
/// # Safety
/// The program's call: `segments` are `count` segments.
unsafe fn vectored(
    frame: &mut Frame,
    fd: i32,
    write: bool,
    segments: *const Segment,
    count: usize,
    original: usize,
    args: [usize; 6],
) -> isize {
    let how = if write { &SEND } else { &RECEIVE };
    // SAFETY: the program's call.
    unsafe {
        match fd::kind(fd) {
            Kind::Socket => {
                let mut message: net::msghdr = core::mem::zeroed();
                message.msg_iov = segments as *mut _;
                message.msg_iovlen = count as _;
                let mut op = |fd| sys!(l::__NR_recvmsg, fd, &message as *const _, net::MSG_DONTWAIT);
                if write {
                    whole(frame, fd, segments, count, &mut |fd, s, n| {
                        let mut m: net::msghdr = core::mem::zeroed();
                        m.msg_iov = s as *mut _;
                        m.msg_iovlen = n as _;
                        sys!(l::__NR_sendmsg, fd, &m as *const _, send_flags())
                    })
                } else {
                    until_ready(frame, fd, how, &mut op)
                }
            }
            Kind::NoWait if fd::takes_nowait(fd, write) => {
                let r = if write {
                    whole(frame, fd, segments, count, &mut |fd, s, n| write_now(fd, s, n))
                } else {
                    let mut op = |fd| sys!(l::__NR_preadv2, fd, segments, count, -1isize, -1isize, RWF_NOWAIT);
                    let r = until_ready(frame, fd, how, &mut op);
                    signal::kernel::collect();
                    r
                };
                if r == AGAIN && fd::kind(fd) == Kind::Plain {
                    return crate::dispatch::blocking(frame, original, args, true);
                }
                if r == fail(e::EOPNOTSUPP) {
                    fd::refuses_nowait(fd, write);
                    return vectored(frame, fd, write, segments, count, original, args);
                }
                r
            }
            // One that waits, with a full counter, keeps its worker until the monitor takes that away.
            Kind::NoWait if write && fd::is_counter(fd) => crate::dispatch::blocking(frame, original, args, true),
            Kind::Poll | Kind::NoWait => {
                let events = if write { l::POLLOUT } else { l::POLLIN };
                let mut op = |fd| {
                    let mut a = args;
                    a[0] = fd as usize;
                    match fd::is_ready(fd, events) || is_of_others(fd) {
                        false => AGAIN,
                        true if write => may_wait(original, &a),
                        true => is_not_to_wait(original, &a),
                    }
                };
                if is_nonblocking(fd) {
                    return attempt(frame, fd, how, false, &mut |_| may_wait(original, &args));
                }
                let r = until_ready(frame, fd, how, &mut op);
                if r == AGAIN && fd::kind(fd) == Kind::Plain {
                    return crate::dispatch::blocking(frame, original, args, true);
                }
                r
            }
            _ => crate::dispatch::blocking(frame, original, args, true),
        }
    }
}

/// A blocking write takes all of its data before it returns, unless it fails or is interrupted after some.
unsafe fn whole(
    frame: &mut Frame,
    fd: i32,
    segments: *const Segment,
    count: usize,
    write: &mut dyn FnMut(i32, *const Segment, usize) -> isize,
) -> isize {
    let first = write(fd, segments, count);
    // SAFETY: the program's segments.
    let total: usize = unsafe { (0..count).map(|i| (*segments.add(i)).len).sum() };
    if first < 0 && first != AGAIN || first >= 0 && first as usize >= total || is_nonblocking(fd) {
        return first;
    }
    let mut done = first.max(0) as usize;
    loop {
        let so_far = done;
        // SAFETY: the program's segments, walked from the first byte not yet written.
        let r = unsafe {
            until_ready(frame, fd, &SEND, &mut |fd| {
                let mut skip = so_far;
                let mut i = 0;
                while i < count && skip >= (*segments.add(i)).len {
                    skip -= (*segments.add(i)).len;
                    i += 1;
                }
                // Up to 8 segments at a time; the first may be cut.
                let mut some = [Segment { base: 0, len: 0 }; 8];
                let n = (count - i).min(8);
                for (k, s) in some[..n].iter_mut().enumerate() {
                    *s = *segments.add(i + k);
                }
                some[0].base += skip;
                some[0].len -= skip;
                write(fd, some.as_ptr(), n)
            })
        };
        if r < 0 {
            return if done > 0 { done as isize } else { r };
        }
        done += r as usize;
        if done >= total {
            return done as isize;
        }
    }
}

/// `read`, `write`.
///
/// # Safety
/// The program's call.
pub unsafe fn simple(frame: &mut Frame, number: usize, args: [usize; 6], write: bool) -> isize {
    let [fd, buffer, len, ..] = args;
    let fd = fd as i32;
    // SAFETY: the program's call.
    unsafe {
        if len == 0 {
            return sys::syscall6(number, args);
        }
        if fd::kind(fd) == Kind::Socket {
            if !write {
                return receive_some(frame, fd, buffer, len);
            }
            let r = sys!(l::__NR_sendto, fd, buffer, len, send_flags(), 0, 0);
            if r == len as isize || r < 0 && r != AGAIN && r != fail(e::ENOTSOCK) {
                return r;
            }
            if r >= 0 || r == AGAIN {
                return rest(frame, fd, r, buffer, len, 0);
            }
        }
        if write && fd::kind(fd) == Kind::Name {
            return crate::task_files::write(fd, buffer, len);
        }
        let segment = Segment { base: buffer, len };
        vectored(frame, fd, write, &segment, 1, number, args)
    }
}

/// A plain read from a socket. After a read that drained a stream the next one parks without asking the kernel first: an
/// event that came since is remembered by the reactor.
unsafe fn receive_some(frame: &mut Frame, fd: i32, buffer: usize, len: usize) -> isize {
    // SAFETY: the program's buffer.
    unsafe {
        let mut op = |fd| sys!(l::__NR_recvfrom, fd, buffer, len, net::MSG_DONTWAIT, 0, 0);
        let mut seen = 0;
        let r = match fd::blocks_since(fd) {
            Some(count) => {
                seen = count;
                keep_trying(frame, fd, &RECEIVE, None, Some(NEVER), &mut op, &mut seen)
            }
            None => until_ready_since(frame, fd, &RECEIVE, &mut op, &mut seen),
        };
        fd::note_read(fd, r, len, seen);
        r
    }
}

/// The rest of a blocking send of which the first try took `first` bytes.
unsafe fn rest(frame: &mut Frame, fd: i32, first: isize, buffer: usize, len: usize, flags: usize) -> isize {
    if is_nonblocking(fd) {
        return first;
    }
    let mut done = first.max(0) as usize;
    while done < len {
        let so_far = done;
        // SAFETY: the program's buffer.
        let r = unsafe {
            until_ready(frame, fd, &SEND, &mut |fd| {
                sys!(l::__NR_sendto, fd, buffer + so_far, len - so_far, flags | send_flags() as usize, 0, 0)
            })
        };
        if r < 0 {
            return if done > 0 { done as isize } else { r };
        }
        done += r as usize;
    }
    done as isize
}

/// `readv`, `writev`.
///
/// # Safety
/// The program's call.
pub unsafe fn scattered(frame: &mut Frame, number: usize, args: [usize; 6], write: bool) -> isize {
    let [fd, segments, count, ..] = args;
    // SAFETY: the program's call.
    unsafe {
        if count == 0 || count > 1024 || segments == 0 {
            return sys::syscall6(number, args);
        }
        vectored(frame, fd as i32, write, segments as *const Segment, count, number, args)
    }
}

/// `recvfrom`, `recvmsg`.
///
/// # Safety
/// The program's call.
pub unsafe fn receive(frame: &mut Frame, number: u32, args: [usize; 6]) -> isize {
    let fd = args[0] as i32;
    let at = if number == l::__NR_recvfrom { 3 } else { 2 };
    let flags = args[at];
    // SAFETY: the program's call.
    unsafe {
        if flags & (net::MSG_DONTWAIT | net::MSG_ERRQUEUE) as usize != 0 || fd::kind(fd) != Kind::Socket {
            let seen = fd::events(fd, IN);
            let r = sys::syscall6(number as usize, args);
            if number == l::__NR_recvfrom && flags == net::MSG_DONTWAIT as usize {
                fd::note_read(fd, r, args[2], seen);
            }
            return r;
        }
        let mut a = args;
        a[at] = flags | net::MSG_DONTWAIT as usize;
        if flags & net::MSG_WAITALL as usize != 0 {
            if number == l::__NR_recvfrom && flags & net::MSG_PEEK as usize == 0 {
                return receive_all(frame, fd, a);
            }
            // Peeking at all, or gathering all into several buffers: rare; the kernel waits.
            return crate::dispatch::blocking(frame, number as usize, args, true);
        }
        if number == l::__NR_recvfrom && flags == 0 && a[4] == 0 {
            return receive_some(frame, fd, a[1], a[2]);
        }
        until_ready(frame, fd, &RECEIVE, &mut |fd| {
            a[0] = fd as usize;
            sys::syscall6(number as usize, a)
        })
    }
}

unsafe fn receive_all(frame: &mut Frame, fd: i32, args: [usize; 6]) -> isize {
    let (buffer, len) = (args[1], args[2]);
    let mut done = 0;
    loop {
        let mut a = args;
        // SAFETY: the program's buffer.
        let r = unsafe {
            until_ready(frame, fd, &RECEIVE, &mut |fd| {
                a[0] = fd as usize;
                a[1] = buffer + done;
                a[2] = len - done;
                sys::syscall6(l::__NR_recvfrom as usize, a)
            })
        };
        if r < 0 {
            return if done > 0 { done as isize } else { r };
        }
        done += r as usize;
        // The end of the stream, or a datagram, ends the wait.
        if r == 0 || done >= len || !fd::is_stream(fd) {
            return done as isize;
        }
    }
}

/// `sendto`, `sendmsg`.
///
/// # Safety
/// The program's call.
pub unsafe fn send(frame: &mut Frame, number: u32, args: [usize; 6]) -> isize {
    let fd = args[0] as i32;
    let at = if number == l::__NR_sendto { 3 } else { 2 };
    let flags = args[at];
    // SAFETY: the program's call.
    unsafe {
        if fd::kind(fd) != Kind::Socket {
            return sys::syscall6(number as usize, args);
        }
        let mut a = args;
        a[at] = flags | send_flags() as usize;
        let r = sys::syscall6(number as usize, a);
        if r > 0 {
            heddle_core::sched::sent(|| fd::is_ready(fd, l::POLLIN));
        }
        if flags & net::MSG_DONTWAIT as usize != 0 {
            return r;
        }
        if number == l::__NR_sendto {
            if r == AGAIN || r >= 0 && (r as usize) < args[2] {
                if args[4] != 0 && r == AGAIN {
                    // With an address: one datagram, all or nothing.
                    return until_ready(frame, fd, &SEND, &mut |fd| {
                        a[0] = fd as usize;
                        sys::syscall6(number as usize, a)
                    });
                }
                return rest(frame, fd, r, args[1], args[2], flags);
            }
            return r;
        }
        let m = &*(args[1] as *const net::msghdr);
        let (segments, count) = (m.msg_iov as *const Segment, m.msg_iovlen);
        let total: usize = (0..count).map(|i| (*segments.add(i)).len).sum();
        if r >= 0 && r as usize >= total || r < 0 && r != AGAIN || is_nonblocking(fd) {
            return r;
        }
        if r == AGAIN {
            let r = until_ready(frame, fd, &SEND, &mut |fd| {
                a[0] = fd as usize;
                sys::syscall6(number as usize, a)
            });
            if r < 0 || r as usize >= total {
                return r;
            }
            return finish_message(frame, fd, segments, count, r as usize, total, flags);
        }
        finish_message(frame, fd, segments, count, r as usize, total, flags)
    }
}

/// The rest of a stream message; control data went with its first byte.
unsafe fn finish_message(
    frame: &mut Frame,
    fd: i32,
    segments: *const Segment,
    count: usize,
    mut done: usize,
    total: usize,
    flags: usize,
) -> isize {
    let mut before = 0;
    for i in 0..count {
        // SAFETY: the program's segments.
        let s = unsafe { *segments.add(i) };
        while done < before + s.len {
            let at = done - before;
            // SAFETY: the program's buffer.
            let r = unsafe { rest_once(frame, fd, s.base + at, s.len - at, flags) };
            if r < 0 {
                return done as isize;
            }
            done += r as usize;
        }
        before += s.len;
    }
    debug_assert!(done >= total);
    done as isize
}

unsafe fn rest_once(frame: &mut Frame, fd: i32, buffer: usize, len: usize, flags: usize) -> isize {
    // SAFETY: the program's buffer.
    unsafe {
        until_ready(frame, fd, &SEND, &mut |fd| {
            sys!(l::__NR_sendto, fd, buffer, len, flags | send_flags() as usize, 0, 0)
        })
    }
}

/// `recvmmsg` and `sendmmsg`: the first message is waited for, the others are taken as far as they are there; without
/// MSG_WAITFORONE a `recvmmsg` goes on waiting until all have come.
///
/// # Safety
/// The program's call.
pub unsafe fn many(frame: &mut Frame, number: u32, args: [usize; 6]) -> isize {
    let fd = args[0] as i32;
    let (vector, count, flags) = (args[1], args[2], args[3]);
    const ENTRY: usize = 64; // struct mmsghdr
    // SAFETY: the program's call.
    unsafe {
        if flags & net::MSG_DONTWAIT as usize != 0 || fd::kind(fd) != Kind::Socket || count == 0 {
            return sys::syscall6(number as usize, args);
        }
        let receive = number == l::__NR_recvmmsg;
        if receive && args[4] != 0 {
            // With a timeout, whose meaning is peculiar: the kernel's.
            return crate::dispatch::blocking(frame, number as usize, args, true);
        }
        let how = if receive { &RECEIVE } else { &SEND };
        let mut done = 0;
        loop {
            let mut a = args;
            a[1] = vector + done * ENTRY;
            a[2] = count - done;
            a[3] = flags | if receive { net::MSG_DONTWAIT } else { send_flags() } as usize;
            let r = until_ready(frame, fd, how, &mut |fd| {
                a[0] = fd as usize;
                sys::syscall6(number as usize, a)
            });
            if r <= 0 {
                return if done > 0 { done as isize } else { r };
            }
            done += r as usize;
            if done >= count || flags & WAIT_FOR_ONE != 0 || is_nonblocking(fd) {
                return done as isize;
            }
        }
    }
}

/// `accept`, `accept4`.
///
/// # Safety
/// The program's call.
pub unsafe fn accept(frame: &mut Frame, number: usize, args: [usize; 6]) -> isize {
    let fd = args[0] as i32;
    // SAFETY: the program's call.
    unsafe {
        if fd::kind(fd) != Kind::Socket {
            return sys::syscall6(number, args);
        }
        let mut nonblocking = None;
        until_ready(frame, fd, &RECEIVE, &mut |fd| {
            let mut a = args;
            a[0] = fd as usize;
            if !fd::is_ready(fd, l::POLLIN) && !*nonblocking.get_or_insert_with(|| is_nonblocking(fd)) {
                return AGAIN;
            }
            is_not_to_wait(number, &a)
        })
    }
}

/// `connect`.
///
/// # Safety
/// The program's call.
pub unsafe fn connect(frame: &mut Frame, args: [usize; 6]) -> isize {
    let fd = args[0] as i32;
    let number = l::__NR_connect as usize;
    // SAFETY: the program's call.
    unsafe {
        let flags = sys!(l::__NR_fcntl, fd, l::F_GETFL);
        if flags < 0 || flags as u32 & l::O_NONBLOCK != 0 || fd::kind(fd) != Kind::Socket {
            return sys::syscall6(number, args);
        }
        let (mut family, mut size) = (0u32, 4u32);
        sys!(l::__NR_getsockopt, fd, net::SOL_SOCKET, net::SO_DOMAIN, &mut family as *mut _, &mut size as *mut _);
        if family != net::AF_INET && family != net::AF_INET6 {
            // A full backlog of a local socket cannot be polled for.
            return crate::dispatch::blocking(frame, number, args, true);
        }
        sys!(l::__NR_fcntl, fd, l::F_SETFL, flags as usize | l::O_NONBLOCK as usize);
        let r = sys::syscall6(number, args);
        sys!(l::__NR_fcntl, fd, l::F_SETFL, flags);
        if r != fail(e::EINPROGRESS) {
            return r;
        }
        let r = until_ready(frame, fd, &SEND, &mut |fd| {
            if !fd::is_ready(fd, l::POLLOUT) {
                return AGAIN;
            }
            let (mut error, mut size) = (0i32, 4u32);
            sys!(l::__NR_getsockopt, fd, net::SOL_SOCKET, net::SO_ERROR, &mut error as *mut _, &mut size as *mut _);
            -(error as isize)
        });
        if r == AGAIN { fail(e::EINPROGRESS) } else { r }
    }
}
