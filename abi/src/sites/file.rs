//! Files, opened and mapped with raw system calls.

use alloc::vec::Vec;
use core::ops::Range;
use heddle_core::sys;
use heddle_core::sys::linux;

/// An open descriptor, closed when dropped.
pub struct Fd(pub usize);

impl Fd {
    /// Opens the file at `path` to be read.
    pub fn open(path: &[u8]) -> Option<Fd> {
        let mut name = Vec::with_capacity(path.len() + 1);
        name.extend_from_slice(path);
        name.push(0);
        let flags = linux::O_RDONLY | linux::O_CLOEXEC;
        // SAFETY: `name` ends in a NUL.
        sys::check(unsafe { sys!(linux::__NR_openat, linux::AT_FDCWD, name.as_ptr(), flags) }).ok().map(Fd)
    }

    /// Another descriptor of the file behind `fd`.
    pub fn duplicate(fd: i32) -> Option<Fd> {
        // SAFETY: makes a descriptor, nothing else.
        sys::check(unsafe { sys!(linux::__NR_fcntl, fd, linux::F_DUPFD_CLOEXEC, 0) }).ok().map(Fd)
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: the descriptor was opened by `open` and is used no more.
        unsafe { sys!(linux::__NR_close, self.0) };
    }
}

/// A whole file, mapped to be read.
pub struct File(Range<usize>);

impl File {
    /// Maps the file behind `fd`, if it is number `inode` (0: any).
    pub fn map(fd: usize, inode: u64) -> Option<File> {
        // SAFETY: `stat` is plain data, for which zeros are a value; the kernel fills it.
        let stat = unsafe {
            let mut stat: linux::stat = core::mem::zeroed();
            sys::check(sys!(linux::__NR_fstat, fd, &raw mut stat)).ok()?;
            stat
        };
        if inode != 0 && inode != stat.st_ino as u64 {
            return None;
        }
        let size = stat.st_size as usize;
        let (prot, flags) = (linux::PROT_READ, linux::MAP_PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = sys::check(unsafe { sys!(linux::__NR_mmap, 0, size, prot, flags, fd, 0) }).ok()?;
        Some(File(start..start + size))
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is ours until drop, and readable. A file that shrinks meanwhile would kill the loader,
        // which has the same file mapped, just as well.
        unsafe { core::slice::from_raw_parts(self.0.start as *const u8, self.0.len()) }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`; `bytes` borrowed `self`.
        unsafe { sys!(linux::__NR_munmap, self.0.start, self.0.len()) };
    }
}
