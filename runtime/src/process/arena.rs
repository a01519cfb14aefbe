//! The arena: memory that all processes of the program have at the same address, and its allocator.
//!
//! It is reserved at once and costs memory where it is used. At its beginning are the tables of processes and tasks, behind
//! them blocks.
//!
//! # Allocator
//! Sizes are rounded up to classes, multiples of 16 up to 128 bytes, then four per doubling. For each class there is a stack of free blocks,
//! in each of a few shards (a process uses the one of its place in the table first, then the others, then makes new blocks). Push and pop are one compare-and-swap
//! each (`free.rs`), so a process may be killed at any moment and the stacks are whole: there is no lock to recover and no
//! process's cache to be gone through. New blocks come from the top, again with one compare-and-swap.
//!
//! What a process that dies has cost: the blocks that it owned, which nobody frees (what a task owned that it had begun), and at
//! most one run of new blocks, 4 KiB, for each of its threads that was in the middle of making one.
//!
//! Blocks are not joined to larger ones; of freed blocks from 1 MiB on the memory is given back to the system, not the addresses.

use std::alloc::Layout;
use std::fmt;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use super::free::Free;
use super::table::Table;
use crate::sync::Mutex;

/// Least size, beside the tables.
pub(crate) const LEAST: usize = 1 << 20;
/// Most, so that the number of a block's 16 bytes fits into a head.
pub(crate) const MOST: usize = 1 << 39;
/// By default.
pub(crate) const SIZE: usize = 1 << 30;

const SHARDS: usize = 8;
const UNIT: usize = 16;
const SMALL: usize = 128;
const CLASSES: usize = SMALL / UNIT + 4 * (40 - 7);
/// Blocks up to this size are made several at once, in runs of 4 KiB.
const IN_RUNS: usize = 512;
const PAGE: usize = 4096;
/// From here on a free block keeps only its first page.
const GIVEN_BACK: usize = 1 << 20;

/// The arena has no room for that many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaFull {
    /// What was asked for.
    pub bytes: usize,
}

impl fmt::Display for ArenaFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the arena has no room for {} bytes (`Options::arena` sets its size)", self.bytes)
    }
}

impl std::error::Error for ArenaFull {}

/// How much of the arena is in use; see [`usage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Bytes for blocks in all.
    pub size: usize,
    /// Bytes in blocks that are allocated, by the living and by the dead.
    pub used: usize,
    /// Bytes that have ever been made blocks of.
    pub touched: usize,
}

#[repr(C, align(64))]
struct Shard {
    free: [Free; CLASSES],
    used: AtomicI64,
}

/// What is at the beginning of the arena. All of it may be 0 at first but the sizes.
#[repr(C, align(4096))]
pub(super) struct Header {
    size: AtomicUsize,
    /// Where blocks begin.
    start: AtomicUsize,
    top: AtomicUsize,
    shards: [Shard; SHARDS],
    pub(super) table: Table,
}

static HEADER: AtomicPtr<Header> = AtomicPtr::new(ptr::null_mut());
static MAKING: Mutex<()> = Mutex::new(());
/// The size that `Options` has asked for, before the arena is made.
static WANTED: AtomicUsize = AtomicUsize::new(SIZE);
/// The file of an arena that several processes have; else -1.
static FILE: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(-1);

pub(crate) fn set_size(bytes: usize) {
    WANTED.store(bytes, Ordering::Relaxed);
}

/// The arena; of this process alone if there has been none so far.
#[inline]
pub(super) fn header() -> &'static Header {
    // Acquire: the header's sizes are written. pairs: arena.header
    let header = HEADER.load(Ordering::Acquire);
    if header.is_null() {
        return make_own();
    }
    // SAFETY: never unmapped.
    unsafe { &*header }
}

#[cold]
fn make_own() -> &'static Header {
    let _guard = MAKING.lock();
    // Acquire: as above. pairs: arena.header
    if HEADER.load(Ordering::Acquire).is_null()
        && let Err(why) = make(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    {
        panic!("no address space for the arena: {why}");
    }
    // Acquire: as above. pairs: arena.header
    // SAFETY: made, and never unmapped.
    unsafe { &*HEADER.load(Ordering::Acquire) }
}

fn make(flags: i32, file: i32) -> io::Result<()> {
    let wanted = WANTED.load(Ordering::Relaxed).next_multiple_of(PAGE);
    let start = size_of::<Header>().next_multiple_of(PAGE);
    let size = start + wanted;
    if file >= 0 {
        // SAFETY: a file of ours.
        let result = unsafe { libc::ftruncate(file, size as libc::off_t) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, flags | libc::MAP_NORESERVE);
    // SAFETY: a new mapping.
    let base = unsafe { libc::mmap(ptr::null_mut(), size, prot, flags, file, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let header: *mut Header = base.cast();
    // SAFETY: zeroes are a header, and it is ours until it is published.
    unsafe {
        (*header).size.store(size, Ordering::Relaxed);
        (*header).start.store(start, Ordering::Relaxed);
        (*header).top.store(start, Ordering::Relaxed);
        (*header).table.admit(0, 1);
    }
    // Release: the header's sizes. pairs: arena.header
    HEADER.store(header, Ordering::Release);
    Ok(())
}

/// Makes the arena that this process's children will have too. False: there is one already, and it is this process's own.
pub(super) fn make_shared() -> io::Result<bool> {
    let _guard = MAKING.lock();
    if !HEADER.load(Ordering::Relaxed).is_null() {
        return Ok(false);
    }
    // SAFETY: a name.
    let file = unsafe { libc::memfd_create(c"heddle-arena".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    make(libc::MAP_SHARED, file)?;
    FILE.store(file, Ordering::Relaxed);
    Ok(true)
}

/// Maps the arena over itself. The runtime knows those shared mappings that are made while it is in the process, and the
/// arena may have been there before it: on words that it takes for the process's own nobody would be woken by another process.
pub(super) fn announce() -> io::Result<()> {
    let (header, file) = (HEADER.load(Ordering::Relaxed), FILE.load(Ordering::Relaxed));
    if header.is_null() || file < 0 {
        return Ok(());
    }
    let size = self::header().size.load(Ordering::Relaxed);
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED);
    // SAFETY: the same pages of the same file take their own place, in one step.
    let base = unsafe { libc::mmap(header.cast(), size, prot, flags, file, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // The child of a `fork` would share it without being one of us: it would drop what its parent has.
    // SAFETY: only a mark on the mapping.
    let result = unsafe { libc::madvise(header.cast(), size, libc::MADV_DONTFORK) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// How much of the arena is in use.
pub fn usage() -> Usage {
    let header = header();
    let (size, start) = (header.size.load(Ordering::Relaxed), header.start.load(Ordering::Relaxed));
    let used: i64 = header.shards.iter().map(|shard| shard.used.load(Ordering::Relaxed)).sum();
    Usage { size: size - start, used: used.max(0) as usize, touched: header.top.load(Ordering::Relaxed) - start }
}

/// The class of blocks for this layout, and their size.
fn class(layout: Layout) -> Option<(usize, usize)> {
    // Blocks whose size is a power of two lie at a multiple of it, up to a page.
    let size = if layout.align() > UNIT {
        layout.size().max(layout.align()).checked_next_power_of_two()?
    } else {
        layout.size().max(UNIT)
    };
    if size <= SMALL {
        let class = (size - 1) / UNIT;
        return Some((class, (class + 1) * UNIT));
    }
    let last = size - 1;
    let doubling = last.ilog2();
    let class = SMALL / UNIT + (doubling as usize - 7) * 4 + (last >> (doubling - 2) & 3);
    (class < CLASSES).then(|| (class, ((last >> (doubling - 2)) + 1) << (doubling - 2)))
}

fn shard() -> usize {
    super::place() % SHARDS
}

impl Header {
    fn at(&self, offset: usize) -> *mut u8 {
        ptr::from_ref(self).cast::<u8>().cast_mut().wrapping_add(offset)
    }

    /// The word of a free block that names the one under it.
    fn below(&self, number: u64) -> &AtomicU64 {
        // SAFETY: inside the arena, and aligned. A block that has been taken meanwhile holds anything there: who read it
        // finds that the head has changed. (Its new owner's stores are then not atomic, on a word that we read atomically
        // and throw away. The machine allows it.)
        unsafe { &*self.at(number as usize * UNIT).cast::<AtomicU64>() }
    }

    fn pop(&self, list: &Free) -> Option<usize> {
        list.pop(|number| self.below(number)).map(|number| number as usize * UNIT)
    }

    fn push(&self, list: &Free, offset: usize) {
        list.push((offset / UNIT) as u64, |number| self.below(number));
    }

    /// Addresses that nobody has had.
    fn fresh(&self, bytes: usize, align: usize) -> Option<usize> {
        let size = self.size.load(Ordering::Relaxed);
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            let at = top.next_multiple_of(align);
            let end = at.checked_add(bytes).filter(|&end| end <= size)?;
            match self.top.compare_exchange_weak(top, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(at),
                Err(now) => top = now,
            }
        }
    }

    fn make_blocks(&self, list: &Free, bytes: usize) -> Option<usize> {
        let align = (1 << bytes.trailing_zeros()).min(PAGE);
        if bytes > IN_RUNS {
            return self.fresh(bytes, align);
        }
        let Some(first) = self.fresh(PAGE / bytes * bytes, align) else { return self.fresh(bytes, align) };
        for i in 1..PAGE / bytes {
            self.push(list, first + i * bytes);
        }
        Some(first)
    }

    fn allocate(&self, class: usize, bytes: usize) -> Option<usize> {
        let own = &self.shards[shard()].free[class];
        let others = || self.shards.iter().find_map(|shard| self.pop(&shard.free[class]));
        // A larger one will do when nothing else is left; it stays of the smaller class.
        let larger = || {
            let lists = (class + 1..CLASSES).flat_map(|class| self.shards.iter().map(move |shard| &shard.free[class]));
            lists.into_iter().find_map(|list| self.pop(list))
        };
        self.pop(own).or_else(others).or_else(|| self.make_blocks(own, bytes)).or_else(larger)
    }
}

/// Memory for this layout, aligned to at most a page.
pub(super) fn allocate(layout: Layout) -> Result<NonNull<u8>, ArenaFull> {
    let full = ArenaFull { bytes: layout.size() };
    let header = header();
    let (class, bytes) = class(layout).ok_or(full)?;
    let offset = header.allocate(class, bytes).ok_or(full)?;
    header.shards[shard()].used.fetch_add(bytes as i64, Ordering::Relaxed);
    NonNull::new(header.at(offset)).ok_or(full)
}

/// Frees it.
///
/// # Safety
/// From [`allocate`], for the same layout, and not used any more.
pub(super) unsafe fn free(block: NonNull<u8>, layout: Layout) {
    let header = header();
    let Some((class, bytes)) = class(layout) else { return };
    let shard = &header.shards[shard()];
    if bytes >= GIVEN_BACK {
        let rest = block.as_ptr().wrapping_add(PAGE);
        let rest = rest.wrapping_sub(rest as usize % PAGE);
        let advice = if FILE.load(Ordering::Relaxed) < 0 { libc::MADV_DONTNEED } else { libc::MADV_REMOVE };
        // SAFETY: pages that belong to the block only. If it fails they keep their memory.
        unsafe { libc::madvise(rest.cast(), bytes - PAGE, advice) };
    }
    shard.used.fetch_sub(bytes as i64, Ordering::Relaxed);
    header.push(&shard.free[class], block.as_ptr() as usize - ptr::from_ref(header) as usize);
}

/// What a block must be aligned to at most; checked when the program is compiled.
pub(super) const fn fits<T>() {
    assert!(align_of::<T>() <= PAGE, "the arena aligns to a page at most");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_has_the_smallest_class_that_holds_it() {
        let mut last = (0, 16);
        for size in 1..300_000 {
            let now = class(Layout::from_size_align(size, 1).unwrap()).unwrap();
            assert!(
                now.1 >= size && (now == last || (now.0 == last.0 + 1 && size == last.1 + 1)),
                "{size} {now:?} {last:?}"
            );
            last = now;
        }
        assert_eq!(class(Layout::from_size_align(65, 64).unwrap()).unwrap().1, 128);
        assert_eq!(class(Layout::from_size_align(1, 4096).unwrap()).unwrap().1, 4096);
        assert!(class(Layout::from_size_align(1 << 41, 1).unwrap()).is_none());
    }
}
