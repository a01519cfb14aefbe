//! What is known of each descriptor.

use core::fmt::Write;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::task_files::Text;
use heddle_core::sched::RT;
use heddle_core::sys::{check, linux as l};
use linux_raw_sys::errno as e;
use linux_raw_sys::net;

/// The level of TCP's own socket options.
pub const IPPROTO_TCP: u32 = 6;

/// The kind of file behind a descriptor, as far as waiting goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Not looked at yet.
    Unknown = 0,
    /// Used with the reactor but not looked at.
    Seen = 1,
    /// A socket: per-call MSG_DONTWAIT.
    Socket = 2,
    /// A pipe, FIFO or anonymous file that takes RWF_NOWAIT.
    NoWait = 3,
    /// A terminal or anonymous file that must be polled first.
    Poll = 4,
    /// A regular file, directory or disk: never waits long, or cannot be polled.
    Plain = 5,
    /// The `comm` of a thread of ours: what is written is its name.
    Name = 6,
    /// The folder of the process's threads.
    Threads = 7,
}

/// The kind of `fd`, looked up once.
pub fn kind(fd: i32) -> Kind {
    let Some(d) = RT.descriptors.get(fd) else { return Kind::Plain };
    match d.kind.load(Ordering::Relaxed) {
        2 => Kind::Socket,
        3 => Kind::NoWait,
        4 => Kind::Poll,
        5 => Kind::Plain,
        6 => Kind::Name,
        7 => Kind::Threads,
        _ => look(fd),
    }
}

/// Whether `fd` is known to be of that kind; it is not looked up.
pub fn is_known_as(fd: i32, kind: Kind) -> bool {
    RT.descriptors.get(fd).is_some_and(|d| d.kind.load(Ordering::Relaxed) == kind as u8)
}

/// Notes what was learnt of a descriptor.
pub fn set_kind(fd: i32, kind: Kind) {
    RT.descriptors.set_kind(fd, kind as u8);
}

#[cold]
fn look(fd: i32) -> Kind {
    // SAFETY: a zeroed stat is valid; fstat fills it.
    let mut stat: l::stat = unsafe { core::mem::zeroed() };
    // SAFETY: writes the local.
    if check(unsafe { heddle_core::sys!(l::__NR_fstat, fd, &mut stat as *mut _) }).is_err() {
        return Kind::Plain; // the call itself reports EBADF
    }
    let kind = match stat.st_mode & l::S_IFMT {
        l::S_IFSOCK => Kind::Socket,
        l::S_IFIFO => Kind::NoWait,
        l::S_IFCHR => {
            // Terminals and the like wait; null, zero and random do not. Memory devices have major number 1.
            if stat.st_rdev >> 8 & 0xfff == 1 { Kind::Plain } else { Kind::Poll }
        }
        l::S_IFREG | l::S_IFDIR | l::S_IFBLK | l::S_IFLNK => Kind::Plain,
        _ => Kind::NoWait, // anonymous: eventfd, timerfd, signalfd, epoll, inotify, pidfd
    };
    if let Some(d) = RT.descriptors.get(fd) {
        // Local sockets end a read early at a message with descriptors, so only TCP can be known to be drained, and only
        // without a layer above it that has records.
        let is_tcp = kind == Kind::Socket && is_stream(fd) && is_internet(fd) && !has_upper_layer(fd);
        d.stream.store(is_tcp, Ordering::Relaxed);
    }
    set_kind(fd, kind);
    kind
}

fn is_internet(fd: i32) -> bool {
    let (mut family, mut size) = (0u32, 4u32);
    // SAFETY: writes two locals.
    let r = unsafe {
        heddle_core::sys!(
            l::__NR_getsockopt,
            fd,
            net::SOL_SOCKET,
            net::SO_DOMAIN,
            &mut family as *mut _,
            &mut size as *mut _
        )
    };
    r == 0 && (family == net::AF_INET || family == net::AF_INET6)
}

/// Whether something lies between TCP and the program: TLS in the kernel, for instance.
fn has_upper_layer(fd: i32) -> bool {
    let (mut name, mut size) = ([0u8; 16], 16u32);
    // SAFETY: writes two locals.
    let r = unsafe {
        heddle_core::sys!(l::__NR_getsockopt, fd, IPPROTO_TCP, net::TCP_ULP, name.as_mut_ptr(), &mut size as *mut _)
    };
    r == 0 && size != 0 && name[0] != 0
}

/// Whether `fd` is a stream socket.
pub fn is_stream(fd: i32) -> bool {
    let (mut kind, mut size) = (0u32, 4u32);
    // SAFETY: writes two locals.
    let r = unsafe {
        heddle_core::sys!(
            l::__NR_getsockopt,
            fd,
            net::SOL_SOCKET,
            net::SO_TYPE,
            &mut kind as *mut _,
            &mut size as *mut _
        )
    };
    r == 0 && kind == net::SOCK_STREAM
}

const NO_NOWAIT: [u8; 2] = [1, 2];

/// Whether a descriptor of kind [`Kind::NoWait`] takes RWF_NOWAIT in that direction, as far as is known.
pub fn takes_nowait(fd: i32, write: bool) -> bool {
    RT.descriptors.get(fd).is_none_or(|d| d.flags.load(Ordering::Relaxed) & NO_NOWAIT[usize::from(write)] == 0)
}

/// It does not: poll first, unless it is an event counter.
pub fn refuses_nowait(fd: i32, write: bool) {
    let Some(d) = RT.descriptors.get(fd) else { return };
    let mut flags = NO_NOWAIT[usize::from(write)];
    if write && name(fd, &mut [0; 64]) == b"anon_inode:[eventfd]" {
        flags |= COUNTER;
    }
    d.flags.fetch_or(flags, Ordering::Relaxed);
}

/// What has refused a write without waiting is an eventfd.
const COUNTER: u8 = 4;

/// Whether `fd` is known to be an eventfd: a write to it waits only if its counter is full, at 2^64 - 2.
pub fn is_counter(fd: i32) -> bool {
    RT.descriptors.get(fd).is_some_and(|d| d.flags.load(Ordering::Relaxed) & COUNTER != 0)
}

/// The name of what is behind `fd`, as far as it fits; empty if /proc does not tell.
pub fn name(fd: i32, link: &mut [u8]) -> &[u8] {
    let mut path = Text::<32>::new();
    let _ = write!(path, "/proc/self/fd/{fd}\0");
    // SAFETY: the path ends in a NUL; the kernel writes at most the buffer's length.
    let n = check(unsafe {
        heddle_core::sys!(l::__NR_readlinkat, l::AT_FDCWD, path.text().as_ptr(), link.as_mut_ptr(), link.len())
    });
    &link[..n.unwrap_or(0)]
}

/// Something about waiting changed on some descriptor: what is remembered of all of them is void. Counts up.
static EPOCH: AtomicU32 = AtomicU32::new(1);

/// `fcntl(F_SETFL)`, `ioctl(FIONBIO)`, `setsockopt(SO_RCVTIMEO, ...)`: forget what is remembered of blocking.
pub fn waiting_changed() {
    EPOCH.fetch_add(1, Ordering::Relaxed);
}

/// What kind of socket `fd` is has changed.
pub fn socket_changed(fd: i32) {
    if let Some(d) = RT.descriptors.get(fd)
        && d.kind.load(Ordering::Relaxed) == Kind::Socket as u8
    {
        d.kind.store(Kind::Seen as u8, Ordering::Relaxed);
    }
}

/// Whether `fd` is a socket known to block without a timeout; then what is known of it need not be asked again. Another
/// process that shares the open socket and makes it non-blocking is noticed after the next change of our own.
fn known_to_block(fd: i32) -> bool {
    RT.descriptors.get(fd).is_some_and(|d| d.known.load(Ordering::Relaxed) == EPOCH.load(Ordering::Relaxed))
}

/// Remembers that the socket blocks without a timeout in either direction.
fn remember_blocking(fd: i32, epoch: u32) {
    if let Some(d) = RT.descriptors.get(fd)
        && d.kind.load(Ordering::Relaxed) == Kind::Socket as u8
    {
        d.known.store(epoch, Ordering::Relaxed);
    }
}

/// The present epoch, to be taken before a descriptor is asked.
fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

/// If a read would find nothing for sure, since the last one drained a stream socket whose events have been watched since:
/// the count of events before that read. An event since then is found by it.
pub fn drained_at(fd: i32) -> Option<u32> {
    RT.descriptors.get(fd)?.drained_at()
}

/// The same, if a read would wait then.
pub fn blocks_since(fd: i32) -> Option<u32> {
    if known_to_block(fd) { drained_at(fd) } else { None }
}

/// A read took `got` (or an error) of the `len` bytes it had room for; `seen` is the count of events before it. Of a descriptor that has
/// not been looked at that says nothing.
pub fn note_read(fd: i32, got: isize, len: usize, seen: u32) {
    if let Some(d) = RT.descriptors.get(fd)
        && d.kind.load(Ordering::Relaxed) == Kind::Socket as u8
        && d.is_watched_stream()
    {
        d.note_drained(got == -(e::EAGAIN as isize) || got > 0 && (got as usize) < len, seen);
    }
}

/// How many events `fd` has had in the directions of `interest`; 0 if that is not known.
pub fn events(fd: i32, interest: u32) -> u32 {
    RT.descriptors.get(fd).map_or(0, |d| d.events(interest))
}

/// Whether the program made the descriptor non-blocking.
pub fn is_nonblocking(fd: i32) -> bool {
    blocking_since(fd).is_none()
}

/// If the descriptor is a blocking one: the epoch for which that holds.
pub fn blocking_since(fd: i32) -> Option<u32> {
    // Before it is asked: a change that the answer does not tell of makes the epoch an old one.
    let now = epoch();
    if known_to_block(fd) {
        return Some(now);
    }
    // SAFETY: touches no memory.
    let flags = unsafe { heddle_core::sys!(l::__NR_fcntl, fd, l::F_GETFL) };
    (flags >= 0 && flags as u32 & l::O_NONBLOCK == 0).then_some(now)
}

/// The socket's timeout (`option` = SO_RCVTIMEO or SO_SNDTIMEO) in nanoseconds, if it has one. `since`: what
/// [`blocking_since`] said, if the caller has asked.
pub fn socket_timeout(fd: i32, option: u32, since: Option<u32>) -> Option<u64> {
    if known_to_block(fd) {
        return None;
    }
    let ask = |option: u32| {
        let mut value = [0i64; 2];
        let mut size = 16u32;
        // SAFETY: writes two locals.
        let r = unsafe {
            heddle_core::sys!(l::__NR_getsockopt, fd, net::SOL_SOCKET, option, value.as_mut_ptr(), &mut size as *mut _)
        };
        let ns = value[0] as u64 * 1_000_000_000 + value[1] as u64 * 1000;
        (r == 0 && ns != 0).then_some(ns)
    };
    let (receive, send) = (ask(net::SO_RCVTIMEO_OLD), ask(net::SO_SNDTIMEO_OLD));
    if let (None, None, Some(epoch)) = (receive, send, since) {
        remember_blocking(fd, epoch);
    }
    if option == net::SO_RCVTIMEO_OLD { receive } else { send }
}

/// The program closes `fd` or puts another file in its place.
pub fn forget(fd: i32) {
    RT.descriptors.forget(&RT.reactor, fd);
}

/// `close`: the runtime's own descriptors do not exist for the program.
///
/// # Safety
/// The program's call.
pub unsafe fn close(fd: i32) -> isize {
    if RT.reactor.owns(fd) {
        return -(e::EBADF as isize);
    }
    forget(fd);
    // SAFETY: the program's call.
    unsafe { heddle_core::sys!(l::__NR_close, fd) }
}

/// `close_range`, sparing the runtime's own descriptors.
///
/// # Safety
/// The program's call.
pub unsafe fn close_range(first: u32, last: u32, flags: u32) -> isize {
    if first > last {
        return -(e::EINVAL as isize);
    }
    let top = last.min(heddle_core::reactor::fd::MAX as u32);
    const CLOEXEC: u32 = 4; // CLOSE_RANGE_CLOEXEC
    if flags & CLOEXEC == 0 {
        for fd in first..top.min(first.saturating_add(1 << 20)) {
            if RT.descriptors.get(fd as i32).is_some_and(|d| d.kind.load(Ordering::Relaxed) != 0) {
                forget(fd as i32);
            }
        }
    }
    close_others(first, last, flags)
}

/// `close_range` without looking at what is known of the descriptors.
pub fn close_others(first: u32, last: u32, flags: u32) -> isize {
    if first > last {
        return -(e::EINVAL as isize);
    }
    let mut from = first;
    let own = RT.reactor.own();
    let call = |a: u32, b: u32| {
        // SAFETY: the program's call, less our descriptors.
        if a <= b { unsafe { heddle_core::sys!(l::__NR_close_range, a, b, flags) } } else { 0 }
    };
    for fd in own {
        if fd >= 0 && (from..=last).contains(&(fd as u32)) {
            if fd as u32 > from {
                let r = call(from, fd as u32 - 1);
                if r < 0 {
                    return r;
                }
            }
            if fd as u32 == last {
                return 0;
            }
            from = fd as u32 + 1;
        }
    }
    call(from, last)
}

/// Whether `fd` is ready for some of `events` (POLLIN, POLLOUT ...) now, or is in error. An answer of EINTR, which the kernel
/// may give even if it is not to wait, is no answer.
pub fn is_ready(fd: i32, events: u32) -> bool {
    let mut p = l::pollfd { fd, events: events as i16, revents: 0 };
    loop {
        // SAFETY: writes the local.
        let r = unsafe { heddle_core::sys!(l::__NR_poll, &mut p as *mut _, 1, 0) };
        if r != -(e::EINTR as isize) {
            return r != 0;
        }
    }
}
