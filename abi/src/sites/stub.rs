//! Stubs: what a site's jump leads to, and the memory they live in.
//!
//! ```text
//! slot (64 bytes, one cache line)
//!   0         the `prefix` bytes of instructions that stood before the syscall
//!   k         lea rcx, [rip + raw]
//!   k+7       jmp [rip + entry]              Entries.syscall or Entries.syscall_full
//!   k+13      8 bytes: address behind the original syscall
//!   raw=k+21  syscall; jmp done              RAW_PLAIN
//!   raw+4     syscall; lea rcx, [rip + done]; jmp [rip + post]      RAW_POST
//!   raw+19    done: the `suffix` bytes of instructions that stood after the syscall
//!             jmp back
//!   62        0x80 | prefix (0: no stub)
//!   63        suffix
//! ```
//! Neither the flags nor the stack are touched: the 128 bytes below rsp belong to the program.
//!
//! Stubs are grouped in *chunks*, one or more whole pages per rewritten mapping; its first slot holds the three entry
//! points. A chunk is filled while it is writable and not executable; from then on it is only executable. Chunks are
//! cut from *areas*, address space reserved within reach of the objects. Areas are never given back, so that
//! [`original_pc`] may look at them without a lock, even in a signal handler.
//!
//! The first area is part of this library, so that unwinders find a description of its code: a stub is a function of its
//! own, called with nothing pushed from the place in the object that it stands for. They come upon stubs in processes that
//! have no thread yet, whose handlers the kernel calls. Objects out of its reach (mostly the program itself, which seldom
//! has sites) have their stubs elsewhere, where unwinding ends.

use super::maps::Maps;
use super::{Entries, Error};
use core::arch::global_asm;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use heddle_core::sys;
use heddle_core::sys::linux;

/// Offset from a site's continuation (`raw`) of a `syscall` that returns into the program.
pub const RAW_PLAIN: usize = 0;
/// Offset from a site's continuation of a `syscall` that goes on to `Entries::post`, with rcx = `raw + DONE`.
pub const RAW_POST: usize = 4;
/// Offset from a site's continuation of the way back into the program without a system call.
pub const DONE: usize = 19;

/// Size and alignment of a stub.
pub const SLOT: usize = 64;
const PAGE: usize = 4096;
/// Address space reserved at a time.
const AREA: usize = 1 << 20;
const AREA_PAGES: usize = AREA / PAGE;
const AREAS: usize = 64;
/// Farthest from its stub that a site may be: `rel32`'s reach less the largest object parts moved along.
const REACH: usize = 0x7fff_0000;
/// Bytes of a stub up to `raw`, without the prefix.
const HEAD: usize = 21;

/// A reserved range and which of its pages hold executable stubs.
struct Area {
    start: AtomicUsize,
    live: [AtomicU64; AREA_PAGES / 64],
}

// The description says: the caller's stack pointer is ours, and so are all registers; its pc is computed from ours, as
// `original_pc` does it, plus one where that has not been executed yet: unwinders look one byte before what they take for a
// return address.
global_asm!(
    ".pushsection .bss.heddle_stubs, \"aw\", @nobits",
    ".balign 4096",
    ".globl heddle_stubs",
    ".hidden heddle_stubs",
    "heddle_stubs:",
    ".cfi_startproc",
    ".cfi_def_cfa rsp, 0",
    ".cfi_escape 0x16, 16, 54", // DW_CFA_val_expression of the return address, 54 bytes
    // The stack is given with its top at the right; `at` is the offset in the stub, `k` the bytes of its prefix.
    ".cfi_escape 0x80, 0",           // breg16 0: pc
    ".cfi_escape 0x12",              // dup
    ".cfi_escape 0x09, 0xc0, 0x1a",  // const1s -64, and: pc stub
    ".cfi_escape 0x16",              // swap
    ".cfi_escape 0x08, 0x3f, 0x1a",  // const1u 63, and: stub at
    ".cfi_escape 0x14",              // over
    ".cfi_escape 0x23, {tail}, 0x94, 1, 0x08, 0x7f, 0x1a", // plus_uconst, deref_size 1, const1u 0x7f, and: stub at k
    ".cfi_escape 0x12, 0x15, 3",     // dup, pick 3
    ".cfi_escape 0x22, 0x23, {end}, 0x06", // plus, plus_uconst, deref: stub at k end
    ".cfi_escape 0x17, 0x1c",        // rot, minus: stub end at-k
    ".cfi_escape 0x12, 0x30, 0x2d",  // dup, lit0, lt
    ".cfi_escape 0x28, 14, 0",       // bra to 1
    ".cfi_escape 0x12, 0x08, {done}, 0x2d", // dup, const1u, lt
    ".cfi_escape 0x28, 13, 0",       // bra to 2
    ".cfi_escape 0x08, {done} - 1, 0x1c, 0x22", // the suffix: const1u, minus, plus
    ".cfi_escape 0x2f, 7, 0",        // skip to 3
    ".cfi_escape 0x22, 0x31, 0x1c",  // 1, the prefix: plus, lit1, minus
    ".cfi_escape 0x2f, 1, 0",        // skip to 3
    ".cfi_escape 0x13",              // 2, between them: drop
    // 3
    ".skip {size}",
    ".cfi_endproc",
    ".popsection",
    tail = const SLOT - 2,
    end = const HEAD - 8,
    done = const HEAD + DONE,
    size = const AREA,
);

unsafe extern "C" {
    #[link_name = "heddle_stubs"]
    safe static FIRST_AREA: u8;
}

static AREA_TABLE: [Area; AREAS] =
    [const { Area { start: AtomicUsize::new(0), live: [const { AtomicU64::new(0) }; AREA_PAGES / 64] } }; AREAS];

impl Area {
    fn is_live(&self, page: usize) -> bool {
        // Acquire: the stubs in the page were written before it was marked. pairs: stub.area.live
        self.live[page / 64].load(Ordering::Acquire) >> (page % 64) & 1 != 0
    }

    fn mark(&self, pages: Range<usize>, live: bool) {
        for page in pages {
            let bit = 1 << (page % 64);
            // Release: publishes the page's stubs to `original_pc`. pairs: stub.area.live
            if live {
                self.live[page / 64].fetch_or(bit, Ordering::Release);
            } else {
                self.live[page / 64].fetch_and(!bit, Ordering::Release);
            }
        }
    }

    /// The first of `count` free pages in a row.
    fn free_pages(&self, count: usize) -> Option<usize> {
        let mut run = 0;
        for page in 0..AREA_PAGES {
            run = if self.is_live(page) { 0 } else { run + 1 };
            if run == count {
                return Some(page + 1 - count);
            }
        }
        None
    }
}

fn areas() -> impl Iterator<Item = (&'static Area, usize)> {
    // Acquire: an area's address is stored after it was reserved. pairs: stub.area.start
    AREA_TABLE.iter().map(|a| (a, a.start.load(Ordering::Acquire))).take_while(|&(_, start)| start != 0)
}

/// Stub memory for one mapping: writable until [`Chunk::seal`].
#[derive(Clone, Debug)]
pub struct Chunk {
    /// The memory.
    pub range: Range<usize>,
    used: usize,
}

impl Chunk {
    /// Memory for `count` stubs, each within reach of every address in `near`.
    /// `maps` tells what is mapped, should a new area be needed.
    pub fn new(
        count: usize,
        near: &Range<usize>,
        entries: &Entries,
        maps: &mut dyn FnMut() -> Result<Maps, i32>,
    ) -> Result<Chunk, Error> {
        let size = ((count + 1) * SLOT).next_multiple_of(PAGE);
        let in_reach =
            |start: usize| near.end.saturating_sub(start) < REACH && (start + AREA).saturating_sub(near.start) < REACH;
        let pages = size / PAGE;
        let found = areas()
            .filter(|&(_, start)| in_reach(start))
            .find_map(|(a, start)| a.free_pages(pages).map(|page| start + page * PAGE));
        let start = match found {
            Some(start) => start,
            None if pages > AREA_PAGES => return Err(Error::NoStubMemory(ENOMEM)),
            None => reserve(near, maps().map_err(Error::ReadMaps)?)?,
        };
        // SAFETY: the pages belong to an area of ours and hold no live stub.
        sys::check(unsafe { sys!(linux::__NR_mprotect, start, size, linux::PROT_READ | linux::PROT_WRITE) })
            .map_err(Error::NoStubMemory)?;
        // All its pages at once instead of a fault for each. Kernels before 5.14 refuse, which does not matter.
        // SAFETY: as above.
        unsafe { sys!(linux::__NR_madvise, start, size, linux::MADV_POPULATE_WRITE) };
        let mut chunk = Chunk { range: start..start + size, used: SLOT };
        // The entry points' slot; its last bytes stay 0, "no stub".
        for (i, entry) in [entries.syscall, entries.syscall_full, entries.post].into_iter().enumerate() {
            chunk.write(8 * i, &entry.to_le_bytes());
        }
        Ok(chunk)
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.range.len());
        // SAFETY: within the chunk, which is writable and known to nobody else until it is sealed.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), (self.range.start + offset) as *mut u8, bytes.len()) };
    }

    /// The address of the next stub.
    pub fn next_stub(&self) -> usize {
        self.range.start + self.used
    }

    /// Adds a stub for the window at `start`; `prefix` and `suffix` are its instructions around the `syscall`, ready
    /// to run at [`prefix_at`] and [`suffix_at`]. `None` when there is no room, or the way back is too far.
    pub fn add(&mut self, start: usize, prefix: &[u8], suffix: &[u8], full: bool) -> Option<usize> {
        let stub = self.next_stub();
        let (k, m) = (prefix.len(), suffix.len());
        if self.used + SLOT > self.range.len() || k + m > super::find::MOVED_MAX {
            return None;
        }
        let raw = k + HEAD;
        let done = raw + DONE;
        let relative = |from: usize, to: usize| Some(i32::try_from(to.wrapping_sub(from) as isize).ok()?.to_le_bytes());
        let entry_slot = self.range.start + if full { 8 } else { 0 };
        let post_slot = self.range.start + 16;
        let site_end = start + k + 2;
        let mut code = [0xcc; SLOT];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            code[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(prefix);
        put(&[0x48, 0x8d, 0x0d]);
        put(&relative(k + 7, raw)?);
        put(&[0xff, 0x25]);
        put(&relative(stub + k + 13, entry_slot)?);
        put(&site_end.to_le_bytes());
        put(&[0x0f, 0x05, 0xeb, (DONE - RAW_POST) as u8]);
        put(&[0x0f, 0x05, 0x48, 0x8d, 0x0d]);
        put(&relative(raw + RAW_POST + 9, done)?);
        put(&[0xff, 0x25]);
        put(&relative(stub + done, post_slot)?);
        put(suffix);
        put(&[0xe9]);
        put(&relative(stub + done + m + 5, site_end + m)?);
        code[62] = 0x80 | k as u8;
        code[63] = m as u8;
        // The jump to the stub must reach as well.
        relative(start + 5, stub)?;
        self.write(self.used, &code);
        self.used += SLOT;
        Some(stub)
    }

    /// Makes the stubs executable, and no longer writable.
    pub fn seal(&self) -> Result<(), Error> {
        let prot = linux::PROT_READ | linux::PROT_EXEC;
        // SAFETY: the pages are the chunk's; they were never executable, so nobody runs in them.
        sys::check(unsafe { sys!(linux::__NR_mprotect, self.range.start, self.range.len(), prot) })
            .map_err(Error::Protect)?;
        self.mark(true);
        Ok(())
    }

    /// Gives the memory back. Nobody may jump to its stubs any more.
    pub fn free(&self) {
        self.mark(false);
        // SAFETY: the pages are the chunk's, and unused from now on; the reservation stays, readable.
        unsafe {
            sys!(linux::__NR_mprotect, self.range.start, self.range.len(), linux::PROT_READ);
            sys!(linux::__NR_madvise, self.range.start, self.range.len(), linux::MADV_DONTNEED);
        }
    }

    fn mark(&self, live: bool) {
        if let Some((area, start)) = areas().find(|&(_, start)| (start..start + AREA).contains(&self.range.start)) {
            let first = (self.range.start - start) / PAGE;
            area.mark(first..first + self.range.len() / PAGE, live);
        }
    }
}

const ENOMEM: i32 = linux_raw_sys::errno::ENOMEM as i32;
const EEXIST: i32 = linux_raw_sys::errno::EEXIST as i32;

/// Adds the area in this library to the others.
///
/// # Safety
/// Called once, before any stub is made.
pub unsafe fn use_first_area() -> Result<(), Error> {
    let start = &raw const FIRST_AREA as usize;
    // SAFETY: zeroed memory of our own that nobody uses.
    let protect = |prot| sys::check(unsafe { sys!(linux::__NR_mprotect, start, AREA, prot) });
    // A system that lets nothing become executable says so here, where nothing has been changed.
    protect(linux::PROT_READ | linux::PROT_EXEC)
        .map_err(|errno| if errno == ENOMEM { Error::NoStubMemory(errno) } else { Error::Protect(errno) })?;
    // Then all of it is again what the loader made of it, and what lies around it: one mapping less for a fork to copy. It
    // stays readable, since leak checkers search the data of all libraries.
    protect(linux::PROT_READ | linux::PROT_WRITE).map_err(Error::NoStubMemory)?;
    // Release: as for all areas. pairs: stub.area.start
    AREA_TABLE[0].start.store(start, Ordering::Release);
    Ok(())
}

/// Reserves a new area within reach of `near`; returns its start. Called under the lock of the sites only.
fn reserve(near: &Range<usize>, mut maps: Maps) -> Result<usize, Error> {
    let slot = AREA_TABLE.iter().find(|a| a.start.load(Ordering::Relaxed) == 0).ok_or(Error::NoStubMemory(ENOMEM))?;
    let flags = linux::MAP_PRIVATE | linux::MAP_ANONYMOUS | linux::MAP_NORESERVE | linux::MAP_FIXED_NOREPLACE;
    let start = loop {
        let start = maps.gap(near, AREA, REACH).ok_or(Error::NoStubMemory(ENOMEM))?;
        // SAFETY: NOREPLACE never touches an existing mapping; kernels that don't know it take the address as a hint.
        match sys::check(unsafe { sys!(linux::__NR_mmap, start, AREA, linux::PROT_NONE, flags, usize::MAX, 0) }) {
            Ok(got) if got == start => break start,
            Ok(got) => {
                // SAFETY: the mapping was made by the call above and is used by nobody.
                unsafe { sys!(linux::__NR_munmap, got, AREA) };
            }
            Err(EEXIST) => {}
            Err(errno) => return Err(Error::NoStubMemory(errno)),
        }
        // Mapped since the list was read: by the list's own memory, if there are many mappings, or by another thread.
        maps.taken(start..start + AREA);
    };
    // Release: the area is reserved. pairs: stub.area.start
    slot.start.store(start, Ordering::Release);
    Ok(start)
}

/// Where the prefix of the stub at `stub` runs.
pub fn prefix_at(stub: usize) -> usize {
    stub
}

/// Where the suffix of the stub at `stub` with `prefix` bytes of prefix runs.
pub fn suffix_at(stub: usize, prefix: usize) -> usize {
    stub + prefix + HEAD + DONE
}

/// The address behind the original `syscall` of the site whose continuation is `raw`.
///
/// # Safety
/// `raw` is the value of rcx with which a stub entered `Entries::syscall` or `Entries::syscall_full`.
#[inline]
pub unsafe fn site_end(raw: usize) -> usize {
    // SAFETY: the caller vouches for `raw`; a stub holds the address in the 8 bytes before it.
    unsafe { ((raw - 8) as *const usize).read_unaligned() }
}

/// If `pc` lies in a stub: the address in the object that it stands for.
///
/// Instructions that were moved stand for themselves; everything between them and the raw `syscall`s, which have not
/// been executed yet, for the original `syscall`; whatever follows a `syscall` for the address behind it (in a window
/// taken after the site: for the moved instruction, then the end of the window).
/// It is for showing to the program (a `ucontext`, an unwinder) and no address to resume at, since the code there has
/// been replaced. Safe to call from a signal handler.
pub fn original_pc(pc: usize) -> Option<usize> {
    let (area, start) = areas().find(|&(_, start)| (start..start + AREA).contains(&pc))?;
    if !area.is_live((pc - start) / PAGE) {
        return None;
    }
    let stub = pc & !(SLOT - 1);
    // SAFETY: the page is live, so readable; a slot is whole within it.
    let tail = unsafe { ((stub + 62) as *const [u8; 2]).read() };
    if tail[0] & 0x80 == 0 {
        return None;
    }
    let (k, m) = (usize::from(tail[0] & 0x7f), usize::from(tail[1]));
    let raw = k + HEAD;
    // SAFETY: as above; the slot holds a stub whose continuation is `raw`.
    let end = unsafe { site_end(stub + raw) };
    let at = pc - stub;
    Some(match at {
        _ if at < k => end - 2 - k + at,
        _ if at <= raw || at == raw + RAW_POST => end - 2,
        _ if at < raw + DONE => end,
        _ => end + (at - raw - DONE).min(m),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_that_was_taken_since_the_maps_were_read_is_passed_over() {
        let here = reserve as *const () as usize & !(PAGE - 1);
        let near = here..here + PAGE;
        let _hold = super::super::hold();
        let maps = Maps::read().unwrap();
        let gap = maps.gap(&near, AREA, REACH).unwrap();
        let flags = linux::MAP_PRIVATE | linux::MAP_ANONYMOUS | linux::MAP_FIXED_NOREPLACE;
        // SAFETY: NOREPLACE never touches an existing mapping. If another test was faster, the gap is taken as well.
        let _ = unsafe { sys!(linux::__NR_mmap, gap, PAGE, linux::PROT_NONE, flags, usize::MAX, 0) };
        let start = reserve(&near, maps).unwrap();
        assert!(start + AREA <= gap || start >= gap + PAGE);
        assert!(near.start.abs_diff(start) < REACH);
    }
}
