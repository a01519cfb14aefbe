//! What a function leaves behind in its thread: thread-locals of whatever library, and what libc keeps for the thread
//! (thread-specific data, cancellation, the list of destructors). A thread is given another function only if there is
//! nothing: all of that is compared with a copy made before the first.
//!
//! Where it lies: each loaded object's block of thread-locals (`dl_iterate_phdr`), and libc's control block, whose size and
//! the one field that changes by itself (the list of all threads) libc describes for debuggers (`_thread_db_*`). Without that
//! description no thread is kept.
//!
//! # Safety
//! Reads the calling thread's own memory.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

/// What there is to know about libc's control block.
#[derive(Clone, Copy)]
struct Block {
    size: usize,
    /// Of the list of all threads.
    list: usize,
    list_size: usize,
    /// Of the pointer to the vector of blocks of thread-locals.
    vector: usize,
    /// The size of its entries.
    entry: usize,
}

/// A field, as libc describes it: bits, how many, where (bytes).
type Field = [u32; 3];

fn described<T: Copy>(name: &CStr) -> Option<T> {
    // SAFETY: a name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: libc's description, constant.
    (!found.is_null()).then(|| unsafe { *found.cast::<T>() })
}

fn block() -> Option<Block> {
    static BLOCK: OnceLock<Option<Block>> = OnceLock::new();
    *BLOCK.get_or_init(|| {
        let size = described::<u32>(c"_thread_db_sizeof_pthread")? as usize;
        let [bits, _, list] = described::<Field>(c"_thread_db_pthread_list")?;
        let [_, _, vector] = described::<Field>(c"_thread_db_pthread_dtvp")?;
        let [entry, ..] = described::<Field>(c"_thread_db_dtv_dtv")?;
        let (list, list_size) = (list as usize, bits as usize / 8);
        let block = Block { size, list, list_size, vector: vector as usize, entry: entry as usize / 8 };
        let plausible = list_size != 0 && list + list_size <= size && block.vector + 8 <= size && block.entry >= 8;
        plausible.then_some(block)
    })
}

/// See the module.
pub struct Traces {
    areas: Vec<(usize, usize)>,
    copy: Vec<u8>,
    generation: u32,
    errno: *mut c_int,
}

/// What `dl_iterate_phdr` tells.
#[derive(Default)]
struct Found {
    areas: Vec<(usize, usize)>,
    modules: usize,
}

unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: the loader's record, and ours.
    let (info, found) = unsafe { (&*info, &mut *found.cast::<Found>()) };
    found.modules = found.modules.max(info.dlpi_tls_modid);
    // SAFETY: the object's headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    if let Some(tls) = headers.iter().find(|h| h.p_type == libc::PT_TLS)
        && !info.dlpi_tls_data.is_null()
    {
        found.areas.push((info.dlpi_tls_data as usize, tls.p_memsz as usize));
    }
    0
}

fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: the first word of the control block is its own address.
    unsafe { std::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags)) };
    pointer
}

impl Traces {
    /// The calling thread as it is now. `None`: it cannot be known.
    pub fn now(generation: u32) -> Option<Self> {
        let block = block()?;
        let mut found = Found::default();
        // SAFETY: the callback fits; the record outlives the call. `free` of a first allocation: libc makes the thread's
        // cache, which is to stay.
        let errno = unsafe {
            libc::free(libc::malloc(1));
            libc::dl_iterate_phdr(Some(note), (&raw mut found).cast());
            libc::__errno_location()
        };
        let mut areas = found.areas;
        let pointer = thread_pointer();
        areas.push((pointer, block.list));
        areas.push((pointer + block.list + block.list_size, block.size - block.list - block.list_size));
        // SAFETY: a field of the control block; the vector has an entry for each module, and one before.
        unsafe {
            let vector = ((pointer + block.vector) as *const usize).read();
            let entries = (vector as *const usize).byte_sub(block.entry).read();
            areas.push((vector, (found.modules + 1).min(entries) * block.entry));
            errno.write(0);
        }
        // One comparison for what lies side by side; what is between two objects' blocks is nobody's.
        const GAP: usize = 64;
        areas.retain(|a| a.1 != 0);
        areas.sort_unstable();
        areas.dedup_by(|next, last| {
            let beside = next.0 - (last.0 + last.1) <= GAP && next.0 != pointer + block.list + block.list_size;
            if beside {
                last.1 = next.0 + next.1 - last.0;
            }
            beside
        });
        let mut copy = Vec::<u8>::with_capacity(areas.iter().map(|a| a.1).sum());
        for &(start, len) in &areas {
            // SAFETY: the thread's own memory. By libc's function: the compiler must not believe that it knows it.
            unsafe {
                libc::memcpy(copy.as_mut_ptr().add(copy.len()).cast(), start as *const c_void, len);
                copy.set_len(copy.len() + len);
            }
        }
        Some(Self { areas, copy, generation, errno })
    }

    /// Whether there are none: the calling thread is as it was.
    pub fn none(&self, generation: u32) -> bool {
        if generation != self.generation {
            return false;
        }
        // SAFETY: the thread's own.
        unsafe { self.errno.write(0) };
        let mut at = 0;
        self.areas.iter().all(|&(start, len)| {
            // SAFETY: the thread's own memory, and the copy of it.
            let same = unsafe { libc::memcmp(self.copy.as_ptr().add(at).cast(), start as *const c_void, len) == 0 };
            at += len;
            same
        })
    }
}
