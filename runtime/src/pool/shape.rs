//! Where the objects of a pool lie: blocks, in them groups, and how an object's are found from its address.

use std::alloc::Layout;

use super::with_threads::Block;

/// Groups of which several objects go home at once. There may be as many single ones between them as there is room, fewer than a group.
pub const RUNS: usize = 7;
/// Most objects of a group: the bits of its word.
pub const GROUP: usize = 64;
/// Bytes of a block of small objects, and what its address is a multiple of.
pub const PAGE: usize = 4096;
/// Objects larger than this, or aligned to more, have their block's address before them.
const SMALL: usize = 512;
/// About the most bytes of a chunk, and of a block of large objects.
pub const MOST_BYTES: usize = 256 * 1024;
const CACHE_LINE: usize = 64;

/// Up to 64 objects that lie side by side. Only who has the home touches it.
pub struct Group {
    /// Of those that have come home.
    pub bits: u64,
    /// The next that has such bits.
    pub next: *mut Group,
}

/// How objects of a type lie in a block.
#[derive(Clone, Copy)]
pub struct Shape {
    /// The block is a page; else its address is in the word before each object.
    pub paged: bool,
    /// Where the first object begins.
    pub first: usize,
    pub size: usize,
    /// Of a block.
    align: usize,
    /// Most objects of a block.
    pub most: usize,
    /// Most groups of which several objects go home at once.
    pub runs: usize,
}

impl Shape {
    pub const fn of<T>() -> Self {
        let (align, word) = (const_max(align_of::<T>(), align_of::<usize>()), size_of::<usize>());
        let paged = size_of::<T>() <= SMALL && align <= SMALL;
        let size = (const_max(size_of::<T>(), word) + if paged { 0 } else { align }).next_multiple_of(align);
        // The groups of as many objects as there would be without groups.
        let (bytes, most) = if paged { (PAGE, PAGE / size) } else { (MOST_BYTES, GROUP) };
        let head = CACHE_LINE + most.div_ceil(GROUP) * size_of::<Group>();
        let first = head.next_multiple_of(CACHE_LINE).next_multiple_of(align) + if paged { 0 } else { align };
        let fit = const_max((bytes - const_min(bytes, first)) / size, 1);
        Self {
            paged,
            first,
            size,
            align: if paged { PAGE } else { const_max(align, CACHE_LINE) },
            most: const_min(most, fit),
            runs: if paged { RUNS } else { 1 },
        }
    }

    /// A chunk of so many pages, or a block of so many large objects.
    pub fn chunk(self, count: usize) -> Layout {
        let (each, more) = if self.paged { (PAGE, 0) } else { (self.size, self.first) };
        let size = each.checked_mul(count).and_then(|size| size.checked_add(more));
        match size.map(|size| Layout::from_size_align(size, self.align)) {
            Some(Ok(layout)) => layout,
            _ => panic!("objects too large for a pool"),
        }
    }

    /// The block of an object.
    ///
    /// # Safety
    /// It is an object of this shape.
    #[inline(always)]
    pub unsafe fn block_of(self, object: *mut u8) -> *mut Block {
        if self.paged {
            object.map_addr(|at| at & !(PAGE - 1)).cast()
        } else {
            // SAFETY: the caller's: the word before it.
            unsafe { *object.cast::<*mut Block>().sub(1) }
        }
    }

    /// The group of an object, and its bit there.
    ///
    /// # Safety
    /// As above, and its block.
    #[inline(always)]
    pub unsafe fn place(self, block: *mut Block, object: *mut u8) -> (*mut Group, u64) {
        let number = (object.addr() - block.addr() - self.first) / self.size;
        // SAFETY: the block has a group for each 64 objects.
        (unsafe { Self::groups(block).add(number / GROUP) }, 1 << (number % GROUP))
    }

    /// The first group of a block.
    ///
    /// # Safety
    /// It is a block.
    #[inline(always)]
    pub unsafe fn groups(block: *mut Block) -> *mut Group {
        // SAFETY: they are behind the first line.
        unsafe { block.cast::<u8>().add(CACHE_LINE).cast() }
    }

    /// The first object of a group.
    ///
    /// # Safety
    /// It is a group of a block of this shape.
    #[inline]
    pub unsafe fn first_of(self, group: *mut Group) -> *mut u8 {
        // A page's groups are near its beginning; of another block there is one.
        let before = if self.paged { group.addr() % PAGE } else { CACHE_LINE };
        let number = (before - CACHE_LINE) / size_of::<Group>();
        // SAFETY: within the block.
        unsafe { group.cast::<u8>().sub(before).add(self.first + number * GROUP * self.size) }
    }
}

const fn const_max(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

const fn const_min(a: usize, b: usize) -> usize {
    if a < b { a } else { b }
}
