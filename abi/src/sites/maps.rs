//! `/proc/self/maps`, read with raw system calls.

use alloc::vec::Vec;
use core::ops::Range;
use heddle_core::sys;
use heddle_core::sys::linux;

/// One line of `/proc/self/maps`.
#[derive(Clone)]
pub struct Mapping {
    /// Addresses covered.
    pub range: Range<usize>,
    /// Protection, as `mprotect` takes it.
    pub prot: u32,
    /// Copy-on-write (`p`), so that writes stay in this process.
    pub private: bool,
    /// Offset in the file.
    pub offset: u64,
    /// Inode of the file; 0 for anonymous memory.
    pub inode: u64,
    path: Range<usize>,
}

/// A snapshot of the process's mappings, in ascending order of address.
pub struct Maps {
    text: Vec<u8>,
    /// The mappings.
    pub list: Vec<Mapping>,
}

impl Maps {
    /// Reads the mappings of this process. The error is an errno value.
    pub fn read() -> Result<Maps, i32> {
        let mut text = Vec::with_capacity(32 << 10);
        // SAFETY: the path is a NUL-terminated constant; opening it touches no memory of ours.
        let fd = sys::check(unsafe {
            sys!(linux::__NR_openat, linux::AT_FDCWD, c"/proc/self/maps".as_ptr(), linux::O_RDONLY | linux::O_CLOEXEC)
        })?;
        let result = loop {
            if text.capacity() - text.len() < 4096 {
                text.reserve(32 << 10);
            }
            let room = text.spare_capacity_mut();
            // SAFETY: the kernel writes at most `room.len()` bytes to `room`, which is ours.
            match sys::check(unsafe { sys!(linux::__NR_read, fd, room.as_mut_ptr(), room.len()) }) {
                Ok(0) => break Ok(()),
                // SAFETY: the kernel has just initialised `n` more bytes, within the capacity.
                Ok(n) => unsafe { text.set_len(text.len() + n) },
                Err(e) if e as u32 == linux_raw_sys::errno::EINTR => {}
                Err(e) => break Err(e),
            }
        };
        // SAFETY: `fd` was opened above and is used no more.
        unsafe { sys!(linux::__NR_close, fd) };
        result?;
        let list = parse(&text);
        Ok(Maps { text, list })
    }

    #[cfg(test)]
    pub fn from_text(text: &[u8]) -> Maps {
        Maps { text: text.to_vec(), list: parse(text) }
    }

    /// The path shown for `m`: a file, `[heap]` and the like, or nothing.
    pub fn path(&self, m: &Mapping) -> &[u8] {
        &self.text[m.path.clone()]
    }

    /// Notes that something is mapped at `range`, which was a gap when the mappings were read.
    pub fn taken(&mut self, range: Range<usize>) {
        let at = self.list.partition_point(|m| m.range.start < range.start);
        self.list.insert(at, Mapping { range, prot: 0, private: true, offset: 0, inode: 0, path: 0..0 });
    }

    /// The start of `size` unmapped bytes, a multiple of `size`'s page, from which and to which every address of
    /// `near` is at most `reach` bytes away. The nearest gap below `near` is preferred: memory that grows (the heap
    /// behind a program) grows upwards. The block stays clear of the stack's guard gap.
    pub fn gap(&self, near: &Range<usize>, size: usize, reach: usize) -> Option<usize> {
        const LOWEST: usize = 0x1_0000;
        const HIGHEST: usize = 0x7fff_ffff_f000;
        const GUARD: usize = 1 << 20;
        let low = near.end.saturating_sub(reach).max(LOWEST).next_multiple_of(4096);
        let high = near.start.saturating_add(reach).min(HIGHEST);
        // Gap number i lies below mapping number i; the last one above all mappings. In each, the highest place.
        let place = |i: usize| {
            let bottom = if i == 0 { LOWEST } else { self.list[i - 1].range.end }.max(low);
            let top = match self.list.get(i) {
                Some(m) if self.path(m) == b"[stack]" => m.range.start.saturating_sub(GUARD),
                Some(m) => m.range.start,
                None => HIGHEST,
            };
            let start = top.min(high).checked_sub(size)? & !4095;
            (start >= bottom).then_some(start)
        };
        let split = self.list.partition_point(|m| m.range.start < near.start);
        (0..=split).rev().find_map(place).or_else(|| (split + 1..=self.list.len()).find_map(place))
    }
}

/// Whether a mapping in the range has a file, asked for that range alone, which takes microseconds where reading all
/// mappings takes milliseconds in a process with thousands. Error: an errno value, ENOTTY from a kernel before 6.11.
pub fn has_file(range: &Range<usize>) -> Result<bool, i32> {
    // SAFETY: as in `read`.
    let fd = sys::check(unsafe {
        sys!(linux::__NR_openat, linux::AT_FDCWD, c"/proc/self/maps".as_ptr(), linux::O_RDONLY | linux::O_CLOEXEC)
    })?;
    let mut at = range.start;
    let result = loop {
        if at >= range.end {
            break Ok(false);
        }
        let mut query =
            Query { size: size_of::<Query>() as u64, flags: Query::OR_NEXT, at: at as u64, ..Query::default() };
        // SAFETY: the kernel writes at most as many bytes as `size` says.
        match sys::check(unsafe { sys!(linux::__NR_ioctl, fd, Query::NUMBER, &raw mut query) }) {
            Ok(_) if query.start as usize >= range.end => break Ok(false),
            Ok(_) if query.inode != 0 => break Ok(true),
            Ok(_) => at = query.end as usize,
            // Nothing there, nor above.
            Err(e) if e as u32 == linux_raw_sys::errno::ENOENT => break Ok(false),
            Err(e) if e as u32 == linux_raw_sys::errno::EINTR => {}
            Err(e) => break Err(e),
        }
    };
    // SAFETY: `fd` was opened above and is used no more.
    unsafe { sys!(linux::__NR_close, fd) };
    result
}

/// `struct procmap_query` of `linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    at: u64,
    start: u64,
    end: u64,
    protection: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

impl Query {
    /// `PROCMAP_QUERY`: `_IOWR('f', 17, struct procmap_query)`.
    const NUMBER: usize = 3 << 30 | size_of::<Query>() << 16 | (b'f' as usize) << 8 | 17;
    /// `PROCMAP_QUERY_COVERING_OR_NEXT_VMA`.
    const OR_NEXT: u64 = 0x10;
}

fn parse(text: &[u8]) -> Vec<Mapping> {
    let mut list = Vec::with_capacity(text.len() / 64);
    let mut at = 0;
    while at < text.len() {
        let end = text[at..].iter().position(|&b| b == b'\n').map_or(text.len(), |n| at + n);
        if let Some(m) = parse_line(&text[at..end], at) {
            list.push(m);
        }
        at = end + 1;
    }
    list
}

/// `start-end rwxp offset major:minor inode   path`, the line starting at byte `base` of the whole text.
fn parse_line(line: &[u8], base: usize) -> Option<Mapping> {
    let mut at = 0;
    let start = number(line, &mut at, 16)? as usize;
    let end = number(line, &mut at, 16)? as usize;
    let flags = line.get(at..at + 4)?;
    at += 5;
    let offset = number(line, &mut at, 16)?;
    number(line, &mut at, 16)?;
    number(line, &mut at, 16)?;
    let inode = number(line, &mut at, 10)?;
    while line.get(at) == Some(&b' ') {
        at += 1;
    }
    let mut prot = 0;
    for (flag, bit) in [(b'r', linux::PROT_READ), (b'w', linux::PROT_WRITE), (b'x', linux::PROT_EXEC)] {
        if flags.contains(&flag) {
            prot |= bit;
        }
    }
    let path = base + at.min(line.len())..base + line.len();
    Some(Mapping { range: start..end, prot, private: flags[3] == b'p', offset, inode, path })
}

/// A number at `*at`; moves past it and the one separator behind it.
fn number(line: &[u8], at: &mut usize, radix: u32) -> Option<u64> {
    let mut value = 0u64;
    let first = *at;
    while let Some(digit) = line.get(*at).and_then(|&b| (b as char).to_digit(radix)) {
        value = value * u64::from(radix) + u64::from(digit);
        *at += 1;
    }
    let found = *at > first;
    *at += 1;
    found.then_some(value)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    const TEXT: &[u8] = b"00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/a program\n\
        00e03000-00e24000 rw-p 00000000 00:00 0           [heap]\n\
        7f0000000000-7f0000001000 ---s 00001000 fd:01 7 \n\
        7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]\n";

    #[test]
    fn lines_are_parsed() {
        let maps = Maps::from_text(TEXT);
        assert_eq!(maps.list.len(), 4);
        let m = &maps.list[0];
        assert_eq!(m.range, 0x400000..0x452000);
        assert_eq!((m.prot, m.private, m.inode), (5, true, 173521));
        assert_eq!(maps.path(m), b"/usr/bin/a program");
        let m = &maps.list[2];
        assert_eq!((m.prot, m.private, m.offset), (0, false, 0x1000));
        assert_eq!(maps.path(m), b"");
        assert_eq!(maps.path(&maps.list[3]), b"[stack]");
    }

    #[test]
    fn gaps_are_near_and_free() {
        let maps = Maps::from_text(TEXT);
        let reach = 0x7000_0000;
        assert_eq!(maps.gap(&(0x400000..0x452000), 1 << 20, reach), Some(0x300000));
        // Too big for the room below: as far above as the reach allows.
        assert_eq!(maps.gap(&(0x400000..0x452000), 16 << 20, reach), Some(0x400000 + reach - (16 << 20)));
        assert_eq!(maps.gap(&(0x7f0000000000..0x7f0000001000), 4096, reach), Some(0x7f0000000000 - 4096));
        // Below the stack's guard gap.
        let above = maps.gap(&(0x7ffc00000000..0x7ffc00021000), 4096, reach).unwrap();
        assert_eq!(above, 0x7ffc00000000 - (1 << 20) - 4096);
        assert_eq!(maps.gap(&(0x400000..0x452000), 1 << 40, reach), None);
    }

    #[test]
    fn a_gap_that_was_taken_meanwhile_is_not_offered_again() {
        let mut maps = Maps::from_text(TEXT);
        let near = 0x7f0000000000..0x7f0000001000;
        let first = maps.gap(&near, 1 << 20, 0x7000_0000).unwrap();
        maps.taken(first..first + (1 << 20));
        assert_eq!(maps.gap(&near, 1 << 20, 0x7000_0000), Some(first - (1 << 20)));
    }

    #[test]
    fn a_range_is_asked_for_alone() {
        let file = a_range_is_asked_for_alone as *const () as usize & !4095;
        let text = has_file(&(file..file + 1));
        if text == Err(linux_raw_sys::errno::ENOTTY as i32) {
            return; // Linux before 6.11
        }
        assert_eq!(text, Ok(true));
        let pages = 8 * 4096;
        // SAFETY: a new mapping, parts of which are unmapped, protected and mapped over; nothing refers to it.
        unsafe {
            let anonymous = linux::MAP_PRIVATE | linux::MAP_ANONYMOUS;
            let at = sys::check(sys!(linux::__NR_mmap, 0, pages, 3, anonymous, usize::MAX, 0)).unwrap();
            assert_eq!(has_file(&(at..at + pages)), Ok(false));
            sys::check(sys!(linux::__NR_mprotect, at + 4096, 4096, 5)).unwrap();
            sys::check(sys!(linux::__NR_munmap, at + 3 * 4096, 4096)).unwrap();
            assert_eq!(has_file(&(at..at + pages)), Ok(false), "two protections and a hole");
            let own = std::fs::File::open("/proc/self/exe").unwrap();
            let fd = std::os::fd::AsRawFd::as_raw_fd(&own);
            let fixed = linux::MAP_PRIVATE | linux::MAP_FIXED;
            sys::check(sys!(linux::__NR_mmap, at + 5 * 4096, 4096, 1, fixed, fd, 0)).unwrap();
            assert_eq!(has_file(&(at..at + pages)), Ok(true), "the last but two");
            assert_eq!(has_file(&(at..at + 5 * 4096)), Ok(false), "before it");
            sys::check(sys!(linux::__NR_munmap, at, pages)).unwrap();
        }
        assert_eq!(has_file(&(usize::MAX - 8191..usize::MAX)), Ok(false), "above all mappings");
    }

    #[test]
    fn our_own_mappings_are_read() {
        let maps = Maps::read().unwrap();
        let here = our_own_mappings_are_read as *const () as usize;
        let m = maps.list.iter().find(|m| m.range.contains(&here)).unwrap();
        assert!(m.prot & linux::PROT_EXEC != 0 && m.private && m.inode != 0);
    }
}
