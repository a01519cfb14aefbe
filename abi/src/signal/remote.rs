//! Signals to a thread of another process under Heddle, whose id the kernel does not know: `tgkill`, `rt_tgsigqueueinfo`, and
//! `tkill` and `kill`, which do not say whose thread it is, so that all such processes are asked in turn.
//!
//! # Protocol
//! The sender asks the process, which alone knows its threads; the kernel tells each end whom it talks to.
//! 1. The sender opens a pidfd and looks in `/proc` whether that process handles [`KICK`] and has a monitor: no other is
//!    sent that signal. (One that executes another program ignores kicks first, `process::exec`, and so does the new
//!    program; an id that is used again is not that of the pidfd.)
//! 2. It listens on an abstract socket whose name says what it asks: thread, signal, and a number of its own.
//! 3. It queues KICK, with the same as its value. This is where the kernel checks the right to send signals.
//! 4. A worker of the receiver connects to that name, once it is outside of the core (as with any signal: `kernel::route`).
//! 5. The sender accepts one connection, of the process that it asks, stops listening, and says that it is meant; then
//!    comes the `siginfo_t`, if it has one of its own.
//! 6. The receiver sends the signal to its thread, from whom the kernel says is at the other end, or with that `siginfo_t` if
//!    it is none of those that only the kernel makes, and answers.
//!
//! A request has one effect at most: a second connection is never told that it is meant. Nobody can send in another's name:
//! who can queue KICK may have the receiver ask anybody, but what is sent comes from who listens on a socket of that name
//! and says that it is meant.
//!
//! Both ends give up after a while. A receiver that is stopped, or cannot reach the sender's sockets (another network
//! namespace), does not answer: the signal is not sent, and the sender gets EAGAIN.
//!
//! Rejected: KICK with all that is needed as its value, which says nothing about whether there is such a thread, and whose
//! sender may write any process id and user id into it. A socket that each process listens on: two descriptors more in all
//! programs, and the right to send signals would be for us to judge.

use super::calls::{from_other_process, is_kernels};
use super::kernel::process;
use super::{KICK, bit};
use crate::task_files::Text;
use crate::wait::{e, fail};
use core::ffi::CStr;
use core::fmt::Write;
use core::sync::atomic::Ordering;
use heddle_core::arch;
use heddle_core::identity::SigInfo;
use heddle_core::sched::{MONITOR, RT, blocking, current, worker};
use heddle_core::sys::{check, linux as l};
use heddle_core::thread::FIRST_TID;
use linux_raw_sys::net;

const SI_QUEUE: i32 = -1;
/// How long the sender waits before it looks at its own signals, in milliseconds, and how often. It counts rounds, and no
/// time, since it may be stopped meanwhile.
const ROUND: i32 = 10;
const ROUNDS: u32 = 100;
/// And how often for the end of a process that has closed its descriptors.
const LAST_ROUNDS: u32 = 20;
/// How long the receiver, with signals blocked, waits for the sender, in microseconds.
const PATIENCE: i64 = 100_000;
/// Kernel threads among which the monitor is looked for: it is one of the first that a process has.
const FIRST: usize = 64;

/// A descriptor of ours, closed in the end.
struct Descriptor(i32);

impl Descriptor {
    fn of(result: isize) -> Result<Self, isize> {
        if result < 0 { Err(result) } else { Ok(Self(result as i32)) }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: our own descriptor.
        unsafe { sys!(l::__NR_close, self.0) };
    }
}

/// What the sender says when it is meant: the signal is from it; a `siginfo_t` follows.
const PLAIN: u8 = 1;
const QUEUED: u8 = 2;

/// What is asked: bits 0 to 31 the thread, 32 to 39 the signal, 40 to 63 the number.
#[derive(Clone, Copy)]
struct Request(u64);

impl Request {
    fn new(tid: u32, signal: u32) -> Self {
        Self(u64::from(tid) | u64::from(signal as u8) << 32 | (arch::ticks() >> 3) << 40)
    }

    fn of(info: &SigInfo) -> Self {
        Self(info[3])
    }

    fn tid(self) -> u32 {
        self.0 as u32
    }

    fn signal(self) -> u32 {
        u32::from((self.0 >> 32) as u8)
    }

    /// The socket's address and its length.
    fn address(self) -> (net::sockaddr_un, usize) {
        let mut name = Text::<64>::new();
        let _ = write!(name, "\0heddle tgkill {:x}", self.0);
        let mut path = [0; 108];
        for (to, from) in path.iter_mut().zip(name.text()) {
            *to = *from as _;
        }
        (net::sockaddr_un { sun_family: net::AF_UNIX as u16, sun_path: path }, 2 + name.text().len())
    }
}

fn socket() -> Result<Descriptor, isize> {
    // SAFETY: touches no memory.
    Descriptor::of(unsafe { sys!(l::__NR_socket, net::AF_UNIX, net::SOCK_STREAM | l::O_CLOEXEC, 0) })
}

/// Whom the kernel says is at the other end: process and effective user.
fn peer(socket: &Descriptor) -> Option<(i32, u32)> {
    let (mut is, mut size) = (net::ucred { pid: 0, uid: 0, gid: 0 }, size_of::<net::ucred>() as u32);
    let to = &raw mut is;
    // SAFETY: writes the locals.
    let r = unsafe { sys!(l::__NR_getsockopt, socket.0, net::SOL_SOCKET, net::SO_PEERCRED, to, &raw mut size) };
    (r == 0).then_some((is.pid as i32, is.uid))
}

fn put(socket: &Descriptor, byte: u8) -> bool {
    let flags = net::MSG_NOSIGNAL | net::MSG_DONTWAIT;
    // SAFETY: reads the local.
    unsafe { sys!(l::__NR_sendto, socket.0, &raw const byte, 1, flags, 0, 0) == 1 }
}

fn get(socket: &Descriptor) -> Option<u8> {
    let mut byte = 0u8;
    // SAFETY: writes the local.
    let r = unsafe { sys!(l::__NR_recvfrom, socket.0, &raw mut byte, 1, 0, 0, 0) };
    (r == 1).then_some(byte)
}

fn put_info(socket: &Descriptor, info: &SigInfo) -> bool {
    let flags = net::MSG_NOSIGNAL | net::MSG_DONTWAIT;
    // SAFETY: reads the caller's.
    unsafe { sys!(l::__NR_sendto, socket.0, info.as_ptr(), size_of::<SigInfo>(), flags, 0, 0) == 128 }
}

fn get_info(socket: &Descriptor) -> Option<SigInfo> {
    let mut info: SigInfo = [0; 16];
    // SAFETY: writes the local.
    let r =
        unsafe { sys!(l::__NR_recvfrom, socket.0, info.as_mut_ptr(), size_of::<SigInfo>(), net::MSG_WAITALL, 0, 0) };
    (r == 128).then_some(info)
}

// --- the sender ---------------------------------------------------------------------------------

/// Whether `tid` of process `of` is the id of a thread of another process that the kernel cannot know.
pub fn is_elsewhere(of: i32, tid: i32) -> bool {
    // SAFETY: touches no memory.
    of > 0 && tid >= FIRST_TID as i32 && of != unsafe { sys!(l::__NR_getpid) } as i32
}

/// Whether `tid` is such an id and no thread of this process has it.
pub fn is_not_ours(tid: i32) -> bool {
    tid >= FIRST_TID as i32 && RT.threads.find(tid as u32).is_none()
}

/// `tgkill` to such a thread.
///
/// # Safety
/// A user thread inside the core, no locks held; or a kernel thread that is not ours, or of a process without user threads.
pub unsafe fn tgkill(of: i32, tid: u32, signal: u32) -> isize {
    // SAFETY: the caller's.
    unsafe { undisturbed(|| ask(of, tid, signal, None)) }
}

/// `rt_tgsigqueueinfo` to such a thread.
///
/// # Safety
/// As [`tgkill`]; `info` is the program's.
pub unsafe fn tgsigqueueinfo(args: [usize; 6]) -> isize {
    let [of, tid, signal, info, ..] = args;
    // SAFETY: the caller's; the kernel has read the program's memory.
    unsafe {
        // It judges the arguments before it finds no such thread.
        let r = sys!(l::__NR_rt_tgsigqueueinfo, of, tid, signal, info);
        if r != fail(e::ESRCH) {
            return r;
        }
        let info = (info as *const SigInfo).read_unaligned();
        undisturbed(|| ask(of as i32, tid as u32, signal as u32, Some(&info)))
    }
}

/// `tkill` to a thread with such an id, whosever it is.
///
/// # Safety
/// As [`tgkill`].
pub unsafe fn tkill(tid: u32, signal: u32) -> isize {
    // SAFETY: the caller's.
    unsafe { undisturbed(|| ask_all(tid, signal).map(|(_, r)| r)) }
}

/// `kill` by the id of a thread, whosever it is: to its process.
///
/// # Safety
/// As [`tgkill`].
pub unsafe fn kill(tid: u32, signal: u32) -> isize {
    // SAFETY: the caller's; the program's call.
    unsafe { undisturbed(|| ask_all(tid, 0).map(|(process, _)| sys!(l::__NR_kill, process, signal))) }
}

/// Asks with no handler of the program's in the middle of it.
unsafe fn undisturbed(ask: impl FnOnce() -> Result<isize, isize>) -> isize {
    let answer = || ask().unwrap_or_else(|errno| errno);
    if !current().is_null() {
        return answer();
    }
    let (all, mut before) = (u64::MAX, 0u64);
    // SAFETY: the kernel thread's own mask, which is put back.
    unsafe {
        sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &raw const all, &raw mut before, 8);
        let r = answer();
        sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &raw const before, 0, 8);
        r
    }
}

/// Asks each process until one has the thread; which it is, and what it says.
unsafe fn ask_all(tid: u32, signal: u32) -> Result<(i32, isize), isize> {
    // SAFETY: touches no memory.
    let own = unsafe { sys!(l::__NR_getpid) } as u64;
    let none = fail(e::ESRCH);
    let mut found = Err(none);
    each_number(c"/proc", &mut |process| {
        if process == own {
            return false;
        }
        // SAFETY: the caller's.
        match unsafe { ask(process as i32, tid, signal, None) } {
            Ok(r) if r != none => {
                found = Ok((process as i32, r));
                true
            }
            // It may be that one's.
            Err(errno) if errno == fail(e::EAGAIN) => {
                found = Err(errno);
                false
            }
            _ => false,
        }
    });
    found
}

unsafe fn ask(of: i32, tid: u32, signal: u32, info: Option<&SigInfo>) -> Result<isize, isize> {
    let none = fail(e::ESRCH);
    // SAFETY: the caller's; the calls are about descriptors of ours.
    unsafe {
        let process = Descriptor::of(sys!(l::__NR_pidfd_open, of, 0)).map_err(|_| none)?;
        if !answers(of) {
            return Err(none);
        }
        // These are for the whole process: is there such a thread?
        let whole = signal == l::SIGKILL || signal == l::SIGSTOP;
        let asked = if whole || signal > 64 { 0 } else { signal };
        let mut rounds = ROUNDS;
        let mut r = None;
        while r.is_none() && rounds > 0 {
            r = ask_once(&process, of, Request::new(tid, asked), info, &mut rounds)?;
        }
        match r {
            None => Err(fail(e::EAGAIN)),
            Some(0) if signal > 64 => Ok(fail(e::EINVAL)),
            Some(0) if whole => Ok(sys!(l::__NR_pidfd_send_signal, process.0, signal, 0, 0)),
            Some(errno) => Ok(-(errno as isize)),
        }
    }
}

/// The answer, an error number or 0; `None`: there was none.
unsafe fn ask_once(
    process: &Descriptor,
    of: i32,
    what: Request,
    own: Option<&SigInfo>,
    rounds: &mut u32,
) -> Result<Option<u8>, isize> {
    // SAFETY: reads and writes locals; the process handles the signal.
    unsafe {
        let connection = {
            let listener = socket()?;
            let (address, size) = what.address();
            let bound = sys!(l::__NR_bind, listener.0, &raw const address, size);
            if bound < 0 || sys!(l::__NR_listen, listener.0, 0) < 0 {
                *rounds -= 1; // somebody has the same number
                return Ok(None);
            }
            let mut info: SigInfo = [0; 16];
            info[0] = u64::from(KICK);
            info[1] = SI_QUEUE as u32 as u64;
            info[2] = sys!(l::__NR_getpid) as u64;
            info[3] = what.0;
            let sent = sys!(l::__NR_pidfd_send_signal, process.0, KICK, &raw const info, 0);
            if sent != 0 {
                return Err(sent);
            }
            loop {
                if !readable(&listener, rounds) {
                    return Ok(None);
                }
                let connection = sys!(l::__NR_accept4, listener.0, 0, 0, l::O_CLOEXEC);
                let Ok(connection) = Descriptor::of(connection) else { continue };
                if peer(&connection).is_some_and(|(process, _)| process == of) {
                    break connection;
                }
            }
        };
        let said = match own {
            None => put(&connection, PLAIN),
            Some(info) => put(&connection, QUEUED) && put_info(&connection, info),
        };
        if !said || !readable(&connection, rounds) {
            return Ok(None);
        }
        // It may end before it has answered: by this very signal, as a rule.
        let ended = || readable(process, &mut LAST_ROUNDS.min(*rounds)).then_some(0);
        Ok(get(&connection).or_else(ended))
    }
}

/// Waits until something can be read. Meanwhile the caller's kernel thread does what others want of it: who is asked may be
/// asking us.
unsafe fn readable(descriptor: &Descriptor, rounds: &mut u32) -> bool {
    let mut poll = l::pollfd { fd: descriptor.0, events: l::POLLIN as i16, revents: 0 };
    while *rounds > 0 {
        // SAFETY: writes the local; the caller's.
        unsafe {
            let r = blocking(|| sys!(l::__NR_poll, &raw mut poll, 1, ROUND));
            if r > 0 {
                return true;
            }
            let w = worker();
            if !w.is_null() && (*w).attention.load(Ordering::Relaxed) != 0 {
                super::kernel::empty_inbox(w);
            }
        }
        *rounds -= 1;
    }
    false
}

/// Whether a process handles KICK as we do, going by what `/proc` tells of it.
fn answers(of: i32) -> bool {
    let (mut text, mut own) = ([0; 2048], [0; 2048]);
    let Some(path) = path(format_args!("/proc/{of}/status")) else { return false };
    let size = crate::cpus::read(&path, &mut text);
    let text = &text[..size];
    let handled = field(text, b"SigCgt:").map_or(0, |digits| {
        digits.iter().fold(0u64, |n, &digit| n << 4 | (digit as char).to_digit(16).map_or(0, u64::from))
    });
    if handled & bit(KICK) == 0 {
        return false;
    }
    let size = crate::cpus::read(c"/proc/self/status", &mut own);
    let own = &own[..size];
    // A folder that is of another namespace of processes tells of others.
    // SAFETY: touches no memory.
    let pid = unsafe { sys!(l::__NR_getpid) } as u64;
    // What a filter may not let it do, it is not asked to do.
    let filters = |text| (field(text, b"Seccomp:"), field(text, b"Seccomp_filters:"));
    field(own, b"Tgid:").and_then(crate::cpus::number) == Some(pid) && filters(own) == filters(text) && has_monitor(of)
}

/// The rest of the line of a status file that begins with `name`.
fn field<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let line = text.split(|&b| b == b'\n').find_map(|line| line.strip_prefix(name))?;
    Some(line.trim_ascii())
}

fn has_monitor(of: i32) -> bool {
    let Some(folder) = path(format_args!("/proc/{of}/task")) else { return false };
    let (mut seen, mut found) = (0, false);
    each_number(&folder, &mut |tid| {
        let mut name = [0; 16];
        if let Some(path) = path(format_args!("/proc/{of}/task/{tid}/comm")) {
            let size = crate::cpus::read(&path, &mut name);
            found = name[..size].trim_ascii_end() == MONITOR.to_bytes();
        }
        seen += 1;
        found || seen >= FIRST
    });
    found
}

/// Calls `f` with each number that is a name in `folder`, until it has seen enough.
fn each_number(folder: &CStr, f: &mut dyn FnMut(u64) -> bool) {
    const HEAD: usize = 19;
    let flags = l::O_RDONLY | l::O_DIRECTORY | l::O_CLOEXEC;
    // SAFETY: opens a folder; the kernel writes whole entries to the local buffer.
    unsafe {
        let Ok(folder) = Descriptor::of(sys!(l::__NR_openat, l::AT_FDCWD, folder.as_ptr(), flags)) else { return };
        let mut entries = [0u64; 128];
        while let Ok(size @ 1..) =
            check(sys!(l::__NR_getdents64, folder.0, entries.as_mut_ptr(), size_of_val(&entries)))
        {
            let bytes = core::slice::from_raw_parts(entries.as_ptr().cast::<u8>(), size);
            let mut at = 0;
            while at + HEAD < size {
                let len = usize::from(u16::from_ne_bytes([bytes[at + 16], bytes[at + 17]]));
                let entry = &bytes[at + HEAD..at + len];
                at += len;
                if crate::cpus::number(entry).is_some_and(&mut *f) {
                    return;
                }
            }
        }
    }
}

/// A C string.
struct Path(Text<64>);

impl core::ops::Deref for Path {
    type Target = CStr;
    fn deref(&self) -> &CStr {
        CStr::from_bytes_until_nul(self.0.text()).unwrap_or(c"")
    }
}

fn path(text: core::fmt::Arguments<'_>) -> Option<Path> {
    let mut path = Text::new();
    path.write_fmt(text).ok()?;
    path.put(b"\0");
    Some(Path(path))
}

// --- the receiver -------------------------------------------------------------------------------

/// Whether a KICK is such a request. (Ours come by `tgkill`.)
pub fn is_request(info: &SigInfo) -> bool {
    info[1] as u32 as i32 == SI_QUEUE
}

/// The signal that a request is about.
pub fn signal_of(info: &SigInfo) -> u32 {
    Request::of(info).signal().min(64)
}

/// A kernel thread that is not ours has got a request, and may hold locks of ours: it gives it to one that is.
///
/// # Safety
/// In the handler.
pub unsafe fn pass_on(info: &SigInfo) {
    let mut passed = false;
    RT.for_each_worker(&mut |w| {
        let tid = w.tid.load(Ordering::Relaxed);
        if !passed && tid != 0 {
            // SAFETY: reads the record.
            passed = unsafe { sys!(l::__NR_rt_tgsigqueueinfo, process(), tid, KICK, info.as_ptr()) } == 0;
        }
    });
}

/// Does what a request asks, if it comes from who it says.
///
/// # Safety
/// Inside the core, no locks held, or in the handler in the program; on a worker.
pub unsafe fn serve(info: &SigInfo) {
    let what = Request::of(info);
    let (all, mut before) = (u64::MAX, 0u64);
    // SAFETY: the worker's mask is put back; reads and writes locals.
    unsafe {
        sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &raw const all, &raw mut before, 8);
        if let Ok(connection) = socket() {
            let (time, size) = ([0, PATIENCE], 16);
            for option in [net::SO_SNDTIMEO, net::SO_RCVTIMEO] {
                sys!(l::__NR_setsockopt, connection.0, net::SOL_SOCKET, option, time.as_ptr(), size);
            }
            let (address, size) = what.address();
            if sys!(l::__NR_connect, connection.0, &raw const address, size) == 0
                && let Some((sender, effective)) = peer(&connection)
            {
                let r = match get(&connection) {
                    Some(PLAIN) => {
                        let uid = real_user(sender).unwrap_or(effective);
                        Some(from_other_process(what.tid(), what.signal(), sender, uid, None))
                    }
                    Some(QUEUED) => get_info(&connection).map(|info| {
                        let other = || from_other_process(what.tid(), what.signal(), sender, effective, Some(info));
                        if is_kernels(&info) { fail(e::EPERM) } else { other() }
                    }),
                    _ => None,
                };
                if let Some(r) = r {
                    put(&connection, -r as u8);
                }
            }
        }
        sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &raw const before, 0, 8);
    }
}

/// The real user of a process, which the kernel tells of senders.
fn real_user(process: i32) -> Option<u32> {
    let mut text = [0; 512];
    let size = crate::cpus::read(&path(format_args!("/proc/{process}/status"))?, &mut text);
    crate::cpus::number(field(&text[..size], b"Uid:")?).map(|uid| uid as u32)
}
