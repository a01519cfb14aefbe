//! Files of `/proc` that describe one thread: the kernel has them for its own threads, not for ours.
//!
//! `open` of such a file of one of our threads gives a memory file with the text that the kernel would show. What is
//! written to `comm` is the thread's new name; the descriptor is remembered for that.
//!
//! The folder `/proc/self/task` is the kernel's, but its list leaves our kernel threads out and goes on with our threads.
//! How far a reader has come is kept where the kernel keeps it, in the open file's offset: beyond `OURS` it counts
//! places in the table of threads. So it may be duplicated, inherited and sought in as always.

use crate::fd::{self, Kind};
use crate::signal;
use crate::wait::{e, fail};
use core::fmt::Write;
use core::sync::atomic::Ordering;
use heddle_core::sched::{RT, current};
use heddle_core::sys::{check, linux as l};
use heddle_core::thread::{FIRST_TID, State, Thread};

/// Paths that are looked at are shorter.
const PATH: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum File {
    Comm,
    Stat,
    Status,
    /// The same for all threads of a process.
    Common,
    /// The folder of all threads.
    Threads,
}

/// Files whose contents do not depend on the thread.
const COMMON: [&[u8]; 12] = [
    b"maps",
    b"smaps",
    b"smaps_rollup",
    b"statm",
    b"cgroup",
    b"cpuset",
    b"limits",
    b"cmdline",
    b"environ",
    b"mountinfo",
    b"mounts",
    b"oom_score_adj",
];

fn number(text: &[u8]) -> Option<u32> {
    if text.is_empty() || text.len() > 10 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    u32::try_from(text.iter().fold(0u64, |n, b| n * 10 + u64::from(b - b'0'))).ok()
}

/// Whose file a path names, and which: of one of our threads, or `comm` of the main thread.
fn parse(path: &[u8]) -> Option<(u32, File)> {
    let mut parts = path.strip_prefix(b"/proc/")?.split(|&b| b == b'/').filter(|p| !p.is_empty());
    let main = signal::kernel::process() as u32;
    let mut tid = match parts.next()? {
        b"self" => main,
        // SAFETY: the current thread's block, if there is one.
        b"thread-self" => unsafe { current().as_ref() }?.identity.tid.load(Ordering::Relaxed),
        other => number(other)?,
    };
    let whole_process = tid == main;
    let mut file = parts.next()?;
    let mut by_task = false;
    if file == b"task" && whole_process {
        let Some(of) = parts.next() else { return Some((main, File::Threads)) };
        tid = number(of)?;
        file = parts.next()?;
        by_task = true;
    }
    if parts.next().is_some() || tid < FIRST_TID && tid != main {
        return None;
    }
    let file = match file {
        b"comm" => File::Comm,
        b"stat" if tid != main || by_task => File::Stat,
        b"status" if tid != main || by_task => File::Status,
        f if tid != main && COMMON.contains(&f) => File::Common,
        _ => return None,
    };
    Some((tid, file))
}

/// `open` and `openat` of such a file; `None`: of any other.
///
/// # Safety
/// The program's arguments: `path` and `flags`.
pub unsafe fn open(path: usize, flags: usize) -> Option<isize> {
    // SAFETY: the caller's.
    unsafe {
        let path = copy(path)?;
        let (tid, file) = parse(path.text())?;
        open_task_file(path.text(), tid, file, flags)
    }
}

/// A copy of the program's path if it begins with `/proc/` and is short.
///
/// # Safety
/// The program's string, or null.
#[inline]
unsafe fn copy(path: usize) -> Option<Text<PATH>> {
    // SAFETY: read up to its end or the first byte that does not fit.
    unsafe {
        let bytes = path as *const u8;
        if bytes.is_null() || !b"/proc/".iter().enumerate().all(|(i, &expected)| *bytes.add(i) == expected) {
            return None;
        }
        let mut copy = Text::new();
        for i in 0..PATH {
            match *bytes.add(i) {
                0 => return Some(copy),
                b => copy.put(&[b]),
            }
        }
        None
    }
}

/// A path that is asked about in place of another.
pub struct StandIn(Text<80>);

impl StandIn {
    /// The arguments with this path as argument `at`.
    pub fn in_place_of(&self, mut args: [usize; 6], at: usize) -> [usize; 6] {
        args[at] = self.0.bytes.as_ptr() as usize;
        args
    }
}

/// For `stat`, `access` and the like of the folder of one of our threads, or of what is in it: the same of the main
/// thread's. `None`: of any other path.
///
/// # Safety
/// The program's string, or null.
#[inline]
pub unsafe fn stand_in(path: usize) -> Option<StandIn> {
    // SAFETY: the caller's.
    unsafe { of_another(&copy(path)?) }
}

fn of_another(path: &Text<PATH>) -> Option<StandIn> {
    let mut parts = path.text().strip_prefix(b"/proc/")?.split(|&b| b == b'/').filter(|p| !p.is_empty());
    let main = signal::kernel::process() as u32;
    let tid = match parts.next()? {
        b"self" => None,
        other if number(other)? == main => None,
        other => Some(number(other)?),
    };
    let tid = match tid {
        Some(tid) => tid,
        None if parts.next()? == b"task" => number(parts.next()?)?,
        None => return None,
    };
    if tid < FIRST_TID {
        return None;
    }
    RT.threads.find(tid)?; // the kernel says ENOENT
    let mut other = Text::new();
    let _ = write!(other, "/proc/{main}/task/{main}");
    for part in parts {
        other.put(b"/");
        other.put(part);
    }
    if path.text().ends_with(b"/") {
        other.put(b"/");
    }
    other.put(b"\0");
    Some(StandIn(other))
}

/// Offsets in an open `/proc/self/task` from which on our threads are listed. Proc's files end at 2 GiB.
const OURS: usize = 1 << 30;

/// What the kernel writes of an entry before its name.
#[repr(C)]
struct Entry {
    inode: u64,
    next: u64,
    size: u16,
    kind: u8,
}
/// Bytes before the name.
const HEAD: usize = 19;

/// `getdents64` of `/proc/self/task`.
///
/// # Safety
/// The program's call: descriptor, buffer, size.
pub unsafe fn list(args: [usize; 6]) -> isize {
    let [file, to, room, ..] = args;
    let mut entries = [0u64; 128];
    let room = (room as u32 as usize).min(size_of_val(&entries));
    // SAFETY: the kernel writes whole entries to the local buffer; the program's buffer has that much room.
    unsafe {
        let seek = |to: usize| sys!(l::__NR_lseek, file, to, l::SEEK_SET);
        let at = sys!(l::__NR_lseek, file, 0, l::SEEK_CUR);
        if at < 0 {
            return at;
        }
        let buffer: *mut u8 = entries.as_mut_ptr().cast();
        let mut len = 0;
        while len == 0 && (at as usize) < OURS {
            let got = sys!(l::__NR_getdents64, file, buffer, room);
            if got < 0 {
                return got;
            }
            if got == 0 {
                seek(OURS);
                break;
            }
            len = without_workers(buffer, got as usize);
        }
        if len == 0 {
            let mut place = (at as usize).saturating_sub(OURS) as u32;
            while let Some((at, t)) = RT.threads.from_place(place) {
                let tid = (*t).identity.tid.load(Ordering::Relaxed);
                if tid >= FIRST_TID {
                    let mut name = Text::<16>::new();
                    let _ = write!(name, "{tid}\0");
                    let size = (HEAD + name.len).next_multiple_of(8);
                    if len + size > room {
                        if len == 0 {
                            return fail(e::EINVAL);
                        }
                        break;
                    }
                    let next = OURS + at as usize + 1;
                    let entry = Entry { inode: u64::from(tid), next: next as u64, size: size as u16, kind: 4 }; // DT_DIR
                    buffer.add(len).cast::<Entry>().write(entry);
                    core::ptr::copy_nonoverlapping(name.bytes.as_ptr(), buffer.add(len + HEAD), name.len);
                    len += size;
                }
                place = at + 1;
            }
            seek(OURS + place as usize);
        }
        core::ptr::copy_nonoverlapping(buffer, to as *mut u8, len);
        len as isize
    }
}

/// Drops our kernel threads, all but the main one, from `len` bytes of entries; returns how many bytes are left.
///
/// # Safety
/// The kernel wrote the entries.
unsafe fn without_workers(entries: *mut u8, len: usize) -> usize {
    let main = signal::kernel::process();
    let (mut from, mut to) = (0, 0);
    while from < len {
        // SAFETY: an entry begins here, and ends with a name and a zero.
        unsafe {
            let size = usize::from((*entries.add(from).cast::<Entry>()).size);
            let name = core::ffi::CStr::from_ptr(entries.add(from + HEAD).cast()).to_bytes();
            let tid = number(name).map_or(0, |n| n as i32);
            if tid == main || !RT.owns_kernel_thread(tid) {
                core::ptr::copy(entries.add(from), entries.add(to), size);
                to += size;
            }
            from += size;
        }
    }
    to
}

#[inline(never)] // its buffers are not for every `open`'s stack
unsafe fn open_task_file(path: &[u8], tid: u32, file: File, flags: usize) -> Option<isize> {
    if file == File::Threads {
        let mut name = Text::<PATH>::new();
        name.put(path);
        name.put(b"\0");
        // SAFETY: a path of ours.
        let opened = unsafe { sys!(l::__NR_openat, l::AT_FDCWD, name.bytes.as_ptr(), flags, 0) };
        if opened >= 0 {
            fd::forget(opened as i32);
            fd::set_kind(opened as i32, Kind::Threads);
        }
        return Some(opened);
    }
    let t = RT.threads.find(tid)?; // the kernel says ENOENT
    if file == File::Common {
        let name = path.rsplit(|&b| b == b'/').next()?;
        let mut path = Text::<64>::new();
        let _ = write!(path, "/proc/self/{}\0", core::str::from_utf8(name).ok()?);
        // SAFETY: the program's call, of the process's file.
        return Some(unsafe { sys!(l::__NR_openat, l::AT_FDCWD, path.bytes.as_ptr(), flags, 0) });
    }
    const ACCESS: usize = 3;
    if file != File::Comm && flags & ACCESS != l::O_RDONLY as usize {
        return Some(fail(e::EACCES));
    }
    if flags & l::O_DIRECTORY as usize != 0 {
        return Some(fail(e::ENOTDIR));
    }
    let mut text = Whole::new();
    // SAFETY: a control block.
    unsafe {
        match file {
            File::Comm => text.name(t, true),
            File::Stat => stat(&mut text, t, tid),
            _ => status(&mut text, t, tid),
        }
        Some(memory_file(&text, flags, (file == File::Comm).then_some(tid)))
    }
}

/// A descriptor of a memory file with this text, opened as `flags` say.
unsafe fn memory_file(text: &Whole, flags: usize, names: Option<u32>) -> isize {
    // SAFETY: the descriptors are made here; the texts are ours.
    unsafe {
        let made = sys!(l::__NR_memfd_create, c"comm".as_ptr(), l::MFD_CLOEXEC);
        let Ok(file) = check(made) else { return made };
        sys!(l::__NR_pwrite64, file, text.bytes.as_ptr(), text.len, 0);
        let mut path = Text::<64>::new();
        let _ = write!(path, "/proc/self/fd/{file}\0");
        let opened = sys!(
            l::__NR_openat,
            l::AT_FDCWD,
            path.bytes.as_ptr(),
            flags & !(l::O_CREAT | l::O_EXCL | l::O_TRUNC | l::O_NOFOLLOW | l::O_APPEND) as usize,
            0
        );
        sys!(l::__NR_close, file);
        if opened >= 0 {
            fd::forget(opened as i32);
            if let (Some(tid), Some(d)) = (names, RT.descriptors.get(opened as i32)) {
                d.names.store(tid, Ordering::Relaxed);
                fd::set_kind(opened as i32, Kind::Name);
            }
        }
        opened
    }
}

/// `write` to the `comm` of a thread.
///
/// # Safety
/// The program's call; `fd` is of kind [`Kind::Name`].
pub unsafe fn write(fd: i32, buffer: usize, len: usize) -> isize {
    let Some(d) = RT.descriptors.get(fd) else { return fail(e::EBADF) };
    let tid = d.names.load(Ordering::Relaxed);
    // SAFETY: the program's buffer; the descriptor's own file.
    unsafe {
        // A descriptor that may not be written to says so.
        let allowed = sys!(l::__NR_write, fd, buffer, 0);
        if allowed < 0 {
            return allowed;
        }
        let mut name = [0u8; 16];
        for (i, b) in name.iter_mut().take(len.min(15)).enumerate() {
            *b = *(buffer as *const u8).add(i);
        }
        let Some(t) = RT.threads.find(tid) else { return fail(e::ESRCH) };
        set_name(t, name);
        let mut text = Text::<17>::new();
        text.name(t, true);
        sys!(l::__NR_ftruncate, fd, 0);
        sys!(l::__NR_pwrite64, fd, text.bytes.as_ptr(), text.len, 0);
    }
    len as isize
}

/// Names a thread. The main thread's name is the process's for others who look, so the kernel is told.
///
/// # Safety
/// `t` is a control block.
pub unsafe fn set_name(t: *mut Thread, name: [u8; 16]) {
    // SAFETY: the caller's; the path and the name are ours.
    unsafe {
        (*t).identity.set_name(name);
        let pid = signal::kernel::process();
        if (*t).identity.tid.load(Ordering::Relaxed) == pid as u32 {
            let mut path = Text::<64>::new();
            let _ = write!(path, "/proc/self/task/{pid}/comm\0");
            let opened = sys!(l::__NR_openat, l::AT_FDCWD, path.bytes.as_ptr(), l::O_WRONLY | l::O_CLOEXEC, 0);
            if let Ok(fd) = check(opened) {
                let len = name.iter().position(|&b| b == 0).unwrap_or(15).max(1);
                sys!(l::__NR_write, fd, name.as_ptr(), len);
                sys!(l::__NR_close, fd);
            }
        }
    }
}

/// Room for a `status`.
type Whole = Text<2048>;

/// Text under construction; what does not fit is cut.
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    /// None yet.
    pub fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    /// What it is so far.
    pub fn text(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Adds to its end.
    pub fn put(&mut self, bytes: &[u8]) {
        let n = bytes.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + n].copy_from_slice(&bytes[..n]);
        self.len += n;
    }

    /// The thread's name.
    ///
    /// # Safety
    /// `t` is a control block.
    unsafe fn name(&mut self, t: *mut Thread, line: bool) {
        // SAFETY: the caller's.
        let name = unsafe { (*t).identity.name() };
        self.put(&name[..name.iter().position(|&b| b == 0).unwrap_or(16)]);
        if line {
            self.put(b"\n");
        }
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Write for Text<N> {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        self.put(s.as_bytes());
        Ok(())
    }
}

/// Reads a file of the process's main kernel thread.
unsafe fn of_main(file: &str, buffer: &mut [u8]) -> usize {
    let mut path = Text::<64>::new();
    let _ = write!(path, "/proc/self/{file}\0");
    // SAFETY: opens, reads into the buffer, closes.
    unsafe {
        let opened = sys!(l::__NR_openat, l::AT_FDCWD, path.bytes.as_ptr(), l::O_RDONLY | l::O_CLOEXEC, 0);
        let Ok(fd) = check(opened) else { return 0 };
        let n = sys!(l::__NR_read, fd, buffer.as_mut_ptr(), buffer.len());
        sys!(l::__NR_close, fd);
        n.max(0) as usize
    }
}

unsafe fn runs(t: *mut Thread) -> bool {
    // SAFETY: the caller's: a control block.
    unsafe { (*t).state.load(Ordering::Relaxed) == State::Runnable as u8 }
}

/// `stat`: the process's, with the thread's id, name and state.
unsafe fn stat(text: &mut Whole, t: *mut Thread, tid: u32) {
    let mut buffer = [0u8; 1024];
    // SAFETY: the caller's: a control block.
    unsafe {
        let n = of_main("stat", &mut buffer);
        // The name stands in parentheses and may hold any; the state follows the last one.
        let Some(end) = buffer[..n].iter().rposition(|&b| b == b')') else { return };
        let _ = write!(text, "{tid} (");
        text.name(t, false);
        text.put(if runs(t) { b") R " } else { b") S " });
        // What follows begins with the fourth field; the fourteenth and fifteenth are CPU times in hundredths.
        let rest = buffer[..n].get(end + 4..).unwrap_or(b"\n");
        for (i, field) in rest.split_inclusive(|&b| b == b' ').enumerate() {
            match i + 4 {
                14 => {
                    let _ = write!(text, "{} ", heddle_core::sched::cpu_time(t) / 10_000_000);
                }
                15 => text.put(b"0 "),
                _ => text.put(field),
            }
        }
    }
}

/// `status`: the process's, with the thread's id, name, state and signals.
unsafe fn status(text: &mut Whole, t: *mut Thread, tid: u32) {
    let mut buffer = [0u8; 1900];
    // SAFETY: the caller's: a control block.
    unsafe {
        let n = of_main("status", &mut buffer);
        let id = &(*t).identity;
        for line in buffer[..n].split_inclusive(|&b| b == b'\n') {
            if line.starts_with(b"Name:") {
                text.put(b"Name:\t");
                text.name(t, true);
            } else if line.starts_with(b"State:") {
                text.put(if runs(t) { b"State:\tR (running)\n" } else { b"State:\tS (sleeping)\n" });
            } else if line.starts_with(b"Pid:") {
                let _ = writeln!(text, "Pid:\t{tid}");
            } else if line.starts_with(b"SigPnd:") {
                let _ = writeln!(text, "SigPnd:\t{:016x}", id.sig_pending.load(Ordering::Relaxed));
            } else if line.starts_with(b"SigBlk:") {
                let _ = writeln!(text, "SigBlk:\t{:016x}", id.sig_mask.load(Ordering::Relaxed));
            } else {
                text.put(line);
            }
        }
    }
}
