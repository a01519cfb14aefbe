//! Probes that try the real thing: memory protection, guard pages, processor features, kernel interfaces.
//!
//! # Safety
//!
//! Every probe works on memory that it mapped itself and unmaps before it returns, or makes a system call that cannot touch
//! this process's memory. None of them leaves anything behind.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::io;
use std::os::fd::AsFd;
use std::ptr;

use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

/// One page: what the probes map.
const PAGE: usize = 4096;
/// `madvise`: make pages that fault like unmapped ones, without a mapping of their own (Linux 6.13).
const MADV_GUARD_INSTALL: i32 = 102;

/// A page mapped for a probe, unmapped when dropped.
struct Page(*mut c_void);

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the page was mapped by this module for one probe, which is over: nothing points into it any more.
        let _ = unsafe { rustix::mm::munmap(self.0, PAGE) };
    }
}

impl Page {
    fn protect(&self, flags: MprotectFlags) -> Result<(), Errno> {
        // SAFETY: the page belongs to a probe and holds nothing that anybody reads, writes or runs.
        unsafe { rustix::mm::mprotect(self.0, PAGE, flags) }
    }
}

/// Why code cannot be rewritten here.
#[derive(Debug, PartialEq, Eq)]
pub enum NoRewriting {
    /// The file cannot be mapped executable: its filesystem is mounted noexec.
    Mapping(Errno),
    /// The mapping cannot be made writable and executable again: a security policy forbids it.
    Protection(Errno),
}

/// Does with the first page of `file` what Heddle does with a library's code: map it executable, make it writable, change it, make
/// it executable again.
pub fn rewriting(file: impl AsFd) -> Result<(), NoRewriting> {
    let (executable, private) = (ProtFlags::READ | ProtFlags::EXEC, MapFlags::PRIVATE);
    // SAFETY: the kernel chooses the address, so no existing mapping is touched.
    let page = unsafe { rustix::mm::mmap(ptr::null_mut(), PAGE, executable, private, file, 0) };
    let page = Page(page.map_err(NoRewriting::Mapping)?);
    page.protect(MprotectFlags::READ | MprotectFlags::WRITE).map_err(NoRewriting::Protection)?;
    // SAFETY: the page is mapped, writable since the line above, private to this process and known to this function only.
    unsafe { page.0.cast::<u8>().write_volatile(0) };
    page.protect(MprotectFlags::READ | MprotectFlags::EXEC).map_err(NoRewriting::Protection)
}

/// Whether `madvise(MADV_GUARD_INSTALL)` works: a guarded page must be refused when the kernel is asked to read it.
pub fn guard_pages() -> io::Result<()> {
    // SAFETY: the kernel chooses the address, so no existing mapping is touched.
    let page = unsafe {
        rustix::mm::mmap_anonymous(ptr::null_mut(), PAGE, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    };
    let page = Page(page?);
    // SAFETY: the page is this probe's own and nobody reads it; guarding it changes nothing else.
    if unsafe { libc::madvise(page.0, PAGE, MADV_GUARD_INSTALL) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let (_reader, writer) = rustix::pipe::pipe()?;
    // SAFETY: the kernel reads the page, not this program; a page that it may not read makes the call fail with EFAULT.
    let written = unsafe { libc::write(std::os::fd::AsRawFd::as_raw_fd(&writer), page.0, 1) };
    if written < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT) {
        return Ok(());
    }
    Err(io::Error::other("the guarded page can still be read"))
}

/// Bytes that the processor saves for the features that are switched on, and whether it has XSAVEC; `None` without XSAVE.
pub fn xsave() -> Option<(u32, bool)> {
    // Before Rust 1.94 these two were unsafe to call.
    #![allow(unused_unsafe)]
    use std::arch::x86_64::__cpuid_count;

    const OSXSAVE: u32 = 1 << 27;
    const XSAVEC: u32 = 1 << 1;
    // SAFETY: every x86-64 processor has the CPUID instruction and leaf 1.
    let features = unsafe { __cpuid_count(1, 0) };
    if features.ecx & OSXSAVE == 0 {
        return None;
    }
    // SAFETY: as above; a processor with XSAVE has leaf 0xd.
    let (size, kinds) = unsafe { (__cpuid_count(0xd, 0), __cpuid_count(0xd, 1)) };
    Some((size.ebx, kinds.eax & XSAVEC != 0))
}

/// Submits a no-op to an io_uring and waits for its completion.
pub fn io_uring() -> io::Result<()> {
    const MARK: u64 = 0x4865_6464_6c65;
    let mut ring = io_uring::IoUring::new(2)?;
    let no_op = io_uring::opcode::Nop::new().build().user_data(MARK);
    // SAFETY: a no-op names no memory and no descriptor that would have to outlive it.
    unsafe { ring.submission().push(&no_op) }.map_err(io::Error::other)?;
    ring.submit_and_wait(1)?;
    match ring.completion().next() {
        Some(entry) if entry.user_data() == MARK && entry.result() >= 0 => Ok(()),
        _ => Err(io::Error::other("a no-op was not completed")),
    }
}

/// Whether the kernel has `epoll_pwait2` (timeouts in nanoseconds, Linux 5.11).
pub fn epoll_pwait2() -> bool {
    let epoll = match rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC) {
        Ok(epoll) => epoll,
        Err(_) => return false,
    };
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let fd = std::os::fd::AsRawFd::as_raw_fd(&epoll);
    let no_mask = ptr::null::<libc::sigset_t>();
    // SAFETY: `event` and `at_once` live during the call, and one event is what there is room for; there is no signal mask.
    let found = unsafe { libc::syscall(libc::SYS_epoll_pwait2, fd, &raw mut event, 1, &raw const at_once, no_mask, 0) };
    found == 0
}

/// Sends signal 0, which is none, to this thread: whether `tgkill` is allowed.
pub fn signal_self_with_nothing() -> io::Result<()> {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    // SAFETY: the call takes three numbers and touches no memory; signal 0 is only checked, never delivered.
    if unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, 0) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The version of the running glibc, in its own words ("2.36").
pub fn glibc_version() -> String {
    // SAFETY: glibc answers a pointer to a constant, NUL-terminated string.
    unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn an_ordinary_file_can_be_rewritten() {
        assert_eq!(rewriting(File::open("/proc/self/exe").unwrap()), Ok(()));
    }

    #[test]
    fn what_cannot_be_mapped_is_told_apart() {
        let folder = File::open("/").unwrap();
        assert!(matches!(rewriting(folder), Err(NoRewriting::Mapping(_))));
    }

    #[test]
    fn the_processor_saves_at_least_the_legacy_area() {
        let (bytes, _) = xsave().expect("every processor since 2011 has XSAVE");
        assert!((576..65536).contains(&bytes), "{bytes}");
    }
}
