//! Stacks of fibers, in slabs: a mapping for many at once, with a guard page at the low end of each, which is no mapping of its
//! own where the kernel has such pages (`MADV_GUARD_INSTALL`, Linux 6.13).
//!
//! A fiber's record is at the top of its stack, in the page that every stack needs, so one that waits costs that page and no
//! more. Slabs are never unmapped: what many fibers have used is kept for the next ones, but the memory of all but the
//! [`WARM`] stacks used last is given back.
//!
//! # Safety
//! A stack that is taken is its taker's until it is put back.

use std::io;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use super::record::Fiber;

/// The smallest size in bytes; each class is twice the one before.
const LEAST: usize = crate::start::LEAST_STACK;
/// How many sizes there are, up to 1 GiB.
pub const CLASSES: usize = 17;
const PAGE: usize = 4096;
/// Bytes of a slab, if one stack is not more.
const SLAB: usize = 1 << 20;
/// Free stacks of a size that keep their memory.
const WARM: usize = 1024;
/// Records begin at so many different places in their pages, so that many fibers' fit into a cache.
const COLOURS: usize = 8;
const COLOUR: usize = 128;

/// Which of the sizes; `None`: larger than any.
pub const fn class(bytes: usize) -> Option<u8> {
    let class = bytes.div_ceil(LEAST).next_power_of_two().trailing_zeros();
    if (class as usize) < CLASSES { Some(class as u8) } else { None }
}

fn bytes(class: u8) -> usize {
    LEAST << class
}

/// Free stacks of one size, each by its record.
#[derive(Default)]
struct Free {
    warm: Vec<Stack>,
    /// Without memory.
    cold: Vec<Stack>,
    /// Never used: where they begin, and how many.
    new: (usize, usize),
    /// Stacks that were made.
    made: usize,
}

/// A stack that nobody uses, by its record.
#[derive(Clone, Copy)]
pub struct Stack(pub ptr::NonNull<Fiber>);

// SAFETY: whoever has it has the stack.
unsafe impl Send for Stack {}

/// All free stacks.
#[derive(Default)]
pub struct Stacks([Mutex<Free>; CLASSES]);

impl Stacks {
    /// A stack of that class, whose record is not written yet.
    pub fn take(&self, class: u8) -> io::Result<Stack> {
        let mut free = self.0[class as usize].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stack) = free.warm.pop().or_else(|| free.cold.pop()) {
            return Ok(stack);
        }
        let stride = bytes(class) + PAGE;
        if free.new.1 == 0 {
            let count = (SLAB / stride).max(1);
            free.new = (slab(count, stride)?, count);
        }
        let (start, left) = free.new;
        free.new = (start + stride, left - 1);
        free.made += 1;
        let record = start + stride - size_of::<Fiber>() - free.made % COLOURS * COLOUR;
        // SAFETY: a place in the mapping, which is not null.
        Ok(Stack(unsafe { ptr::NonNull::new_unchecked(record as *mut Fiber) }))
    }

    /// Puts one back that [`take`](Self::take) gave.
    pub fn put(&self, class: u8, stack: Stack) {
        let mut free = self.0[class as usize].lock().unwrap_or_else(PoisonError::into_inner);
        if free.warm.len() < WARM {
            free.warm.push(stack);
            return;
        }
        let end = (stack.0.as_ptr() as usize + size_of::<Fiber>()).next_multiple_of(PAGE);
        // SAFETY: the stack, without its guard page; nobody uses it.
        unsafe { libc::madvise((end - bytes(class)) as *mut libc::c_void, bytes(class), libc::MADV_DONTNEED) };
        free.cold.push(stack);
    }
}

/// Maps so many stacks, with the guard page first in each.
fn slab(count: usize, stride: usize) -> io::Result<usize> {
    const MADV_GUARD_INSTALL: i32 = 102;
    let (prot, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: a new mapping, and parts of it.
    unsafe {
        let start = libc::mmap(ptr::null_mut(), count * stride, prot, flags, -1, 0);
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A touched page is to be one of 4 KiB, not of 2 MiB. Without huge pages there is nothing to refuse.
        libc::madvise(start, count * stride, libc::MADV_NOHUGEPAGE);
        for i in 0..count {
            let guard = start.byte_add(i * stride);
            if libc::madvise(guard, PAGE, MADV_GUARD_INSTALL) != 0 && libc::mprotect(guard, PAGE, libc::PROT_NONE) != 0
            {
                let why = io::Error::last_os_error();
                libc::munmap(start, count * stride);
                return Err(why);
            }
        }
        Ok(start as usize)
    }
}
