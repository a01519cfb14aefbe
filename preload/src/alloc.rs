//! The allocator: what the site tables need while objects are searched. Size classes of powers of two on free lists, cut
//! from mappings; nothing of libc.
//!
//! # Safety
//! Blocks come from private mappings that are never unmapped; a free block's first word links it.

use core::alloc::{GlobalAlloc, Layout};
use heddle_core::lock::SpinLock;
use heddle_core::mem;

const CHUNK: usize = 256 * 1024;
const SMALLEST: u32 = 4;
const LARGEST: u32 = 16;

struct State {
    lists: [*mut u8; (LARGEST + 1) as usize],
    next: *mut u8,
    left: usize,
}
// SAFETY: reached only under the lock.
unsafe impl Send for State {}

struct Allocator(SpinLock<State>);

#[global_allocator]
static ALLOCATOR: Allocator = Allocator(SpinLock::new(State {
    lists: [core::ptr::null_mut(); (LARGEST + 1) as usize],
    next: core::ptr::null_mut(),
    left: 0,
}));

/// The site tables cannot be built: nothing of the program has run yet, or it is loading a library.
fn out_of_memory() -> ! {
    heddle_abi::report::line(format_args!(
        "no memory for the runtime: raise the limit (ulimit -d, -v) or use --mode kernel"
    ));
    // SAFETY: ends the process.
    unsafe { heddle_abi::process::end(125) }
}

fn class(layout: Layout) -> u32 {
    layout.size().max(layout.align()).next_power_of_two().trailing_zeros().max(SMALLEST)
}

// SAFETY: blocks are disjoint, aligned to their power-of-two size (chunks are page-aligned and cut in order of need), and
// at least as large as asked for; large ones are mappings of their own.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let class = class(layout);
        if class > LARGEST {
            return mem::map(layout.size().next_multiple_of(4096)).unwrap_or_else(|_| out_of_memory());
        }
        let size = 1usize << class;
        let mut s = self.0.lock();
        let head = s.lists[class as usize];
        if !head.is_null() {
            // SAFETY: a free block links the next one.
            s.lists[class as usize] = unsafe { head.cast::<*mut u8>().read() };
            return head;
        }
        let skip = (s.next as usize).next_multiple_of(size) - s.next as usize;
        if s.left < size + skip {
            match mem::map(CHUNK) {
                Ok(p) => {
                    s.next = p;
                    s.left = CHUNK;
                }
                Err(_) => out_of_memory(),
            }
        } else {
            // SAFETY: within the chunk.
            s.next = unsafe { s.next.add(skip) };
            s.left -= skip;
        }
        let block = s.next;
        // SAFETY: within the chunk.
        s.next = unsafe { block.add(size) };
        s.left -= size;
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let class = class(layout);
        if class > LARGEST {
            // SAFETY: a mapping of its own.
            unsafe { mem::unmap(block, layout.size().next_multiple_of(4096)) };
            return;
        }
        let mut s = self.0.lock();
        // SAFETY: the block is free now and large enough for a pointer.
        unsafe { block.cast::<*mut u8>().write(s.lists[class as usize]) };
        s.lists[class as usize] = block;
    }
}
