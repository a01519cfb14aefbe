//! Where memory comes from: the allocator's functions, taken over to know address, size and caller of each block.
//!
//! Blocks are kept in a table by the hash of their address; one that finds no room in its bucket replaces another, which
//! then has no known origin. The blocks' addresses and sizes are what they are without the detector: a header before each
//! would move the objects apart that share a line.

use core::arch::naked_asm;
use core::ffi::{CStr, c_int, c_void};
use core::mem::{offset_of, transmute};
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize};

use crate::layout::LINE;
use crate::thread::Thread;
use crate::{hooks, sys};

/// A block: address (1: being written), size, site plus 1 and (shifted by 32) thread plus 1.
type Block = [AtomicU64; 3];
/// Blocks with the same hash.
const BUCKET: usize = 8;
const BUCKETS: usize = 1 << 18;
/// Blocks larger than this are kept in a list of their own, so that a search for the block around an address is short.
const LARGE: usize = 64 << 10;
const MAX_LARGE: usize = 4096;
/// What the allocator aligns to.
const GRANULE: usize = 16;

static BLOCKS: AtomicPtr<[[Block; BUCKET]; BUCKETS]> = AtomicPtr::new(ptr::null_mut());
static LARGE_BLOCKS: [Block; MAX_LARGE] = [const { [const { AtomicU64::new(0) }; 3] }; MAX_LARGE];
/// As many of them were ever in use.
static LARGE_USED: AtomicUsize = AtomicUsize::new(0);

/// Maps the table.
pub fn set_up() -> bool {
    let Some(table) = sys::map(size_of::<[[Block; BUCKET]; BUCKETS]>(), None) else { return false };
    // Release: nothing yet; the memory is zero. pairs: sharing.blocks
    BLOCKS.store(table.cast(), Release);
    true
}

/// Where a block of this address may be.
fn bucket(address: usize) -> Option<&'static [Block]> {
    // Acquire: the memory is there. pairs: sharing.blocks
    // SAFETY: null, or mapped by `set_up` for good.
    let blocks = unsafe { BLOCKS.load(Acquire).as_ref() }?;
    let hash = (address / GRANULE).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BUCKETS.trailing_zeros());
    Some(&blocks[hash % BUCKETS])
}

fn fill(block: &Block, address: usize, size: usize, origin: u64) {
    block[1].store(size as u64, Relaxed);
    block[2].store(origin, Relaxed);
    // Release: whoever finds the address finds the rest. pairs: sharing.block
    block[0].store(address as u64, Release);
}

fn insert(address: usize, size: usize, origin: u64) {
    let free =
        |block: &&Block| block[0].load(Relaxed) == 0 && block[0].compare_exchange(0, 1, Relaxed, Relaxed).is_ok();
    if size > LARGE {
        if let Some(at) = LARGE_BLOCKS.iter().position(|block| free(&block)) {
            LARGE_USED.fetch_max(at + 1, Relaxed);
            fill(&LARGE_BLOCKS[at], address, size, origin);
        }
        return;
    }
    let Some(blocks) = bucket(address) else { return };
    let block = blocks.iter().find(free).unwrap_or(&blocks[address / GRANULE % BUCKET]);
    fill(block, address, size, origin);
}

fn is_at(block: &Block, address: usize) -> bool {
    // Acquire: the rest belongs to the address. pairs: sharing.block
    block[0].load(Acquire) == address as u64
}

/// The small block that begins here.
fn small(address: usize) -> Option<&'static Block> {
    bucket(address)?.iter().find(|block| is_at(block, address))
}

/// The block that begins here.
fn find(address: usize) -> Option<&'static Block> {
    let large = &LARGE_BLOCKS[..LARGE_USED.load(Relaxed).min(MAX_LARGE)];
    small(address).or_else(|| large.iter().find(|block| is_at(block, address)))
}

/// The blocks that overlap a line; see [`crate::shadow::Objects`].
pub fn objects(line: usize, found: &mut dyn FnMut([u64; 4])) {
    let start = line * LINE;
    let mut tell = |block: &Block| {
        let origin = block[2].load(Relaxed);
        let (address, size) = (block[0].load(Relaxed), block[1].load(Relaxed));
        if address < (start + LINE) as u64 && address + size > start as u64 {
            found([address, size, origin & 0xffff_ffff, origin >> 32]);
            return true;
        }
        false
    };
    for block in &LARGE_BLOCKS[..LARGE_USED.load(Relaxed).min(MAX_LARGE)] {
        if tell(block) {
            return;
        }
    }
    // Small ones that begin in the line, then the nearest before it.
    for at in (start..start + LINE).step_by(GRANULE) {
        if let Some(block) = small(at) {
            tell(block);
        }
    }
    for back in 1..=LARGE / GRANULE {
        let Some(at) = start.checked_sub(back * GRANULE) else { return };
        if let Some(block) = small(at) {
            tell(block);
            return;
        }
    }
}

/// A block was handed out.
fn born(address: *mut c_void, size: usize, caller: usize) {
    let Some(shadow) = hooks::shadow() else { return };
    if address.is_null() {
        return;
    }
    let me = hooks::me(&shadow);
    let new_caller = me.map_or(0, |me| me.new_caller.load(Relaxed));
    let caller = if new_caller == 0 { caller } else { new_caller };
    if let Some(me) = me {
        me.new_caller.store(0, Relaxed);
    }
    let thread = me.map_or(0, |me| me.serial.load(Relaxed) as u64);
    insert(address as usize, size, hooks::site(&shadow, me, caller) | thread << 32);
}

/// A block is about to be given back; answers what it was.
fn dead(address: *mut c_void) -> Option<(usize, u64)> {
    let shadow = hooks::shadow()?;
    if address.is_null() {
        return None;
    }
    let block = find(address as usize)?;
    let (size, origin) = (block[1].load(Relaxed) as usize, block[2].load(Relaxed));
    block[0].store(0, Relaxed);
    shadow.forget(address as usize, size);
    Some((size, origin))
}

/// The functions behind ours.
static REAL: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];
const NAMES: [&CStr; 17] = [
    c"malloc",
    c"calloc",
    c"realloc",
    c"free",
    c"posix_memalign",
    c"aligned_alloc",
    c"memalign",
    c"valloc",
    c"pvalloc",
    c"_Znwm",
    c"_Znam",
    c"_ZnwmRKSt9nothrow_t",
    c"_ZnamRKSt9nothrow_t",
    c"_ZnwmSt11align_val_t",
    c"_ZnamSt11align_val_t",
    c"_ZnwmSt11align_val_tRKSt9nothrow_t",
    c"_ZnamSt11align_val_tRKSt9nothrow_t",
];

/// They are found, or are being looked for.
static RESOLVING: AtomicBool = AtomicBool::new(false);
#[repr(align(16))]
struct Arena(#[allow(dead_code, reason = "used through its address")] [AtomicU64; 1024]);
static ARENA: Arena = Arena([const { AtomicU64::new(0) }; 1024]);
static ARENA_USED: AtomicUsize = AtomicUsize::new(0);

fn from_arena(size: usize) -> *mut c_void {
    let at = ARENA_USED.fetch_add(size.next_multiple_of(GRANULE), Relaxed);
    if at.saturating_add(size) > size_of::<Arena>() {
        return ptr::null_mut();
    }
    // Atomics, so that they may be written through a shared reference.
    ptr::from_ref(&ARENA).cast::<u8>().wrapping_add(at).cast_mut().cast()
}

fn is_from_arena(address: *mut c_void) -> bool {
    let start = ptr::from_ref(&ARENA) as usize;
    (start..start + size_of::<Arena>()).contains(&(address as usize))
}

/// Finds them all, before the program has threads: the loader may allocate meanwhile.
pub fn resolve() {
    if RESOLVING.swap(true, Relaxed) {
        return;
    }
    for (real, name) in REAL.iter().zip(NAMES) {
        // SAFETY: a NUL-terminated name.
        real.store(unsafe { sys::dlsym(sys::NEXT, name.as_ptr()) } as usize, Relaxed);
    }
}

/// The function behind ours; 0 while that is being found out, and if there is none.
extern "C" fn real(index: usize) -> usize {
    if !RESOLVING.load(Relaxed) {
        resolve();
    }
    REAL[index].load(Relaxed)
}

/// Calls the function behind ours with two arguments (those that take one ignore the second).
///
/// # Safety
///
/// The arguments are right for that function.
unsafe fn call(index: usize, a: usize, b: usize) -> Option<*mut c_void> {
    let function = real(index);
    if function == 0 {
        return None;
    }
    // SAFETY: a C function of integer arguments that answers a pointer; the caller vouches for the arguments.
    unsafe {
        let function: unsafe extern "C" fn(usize, usize) -> *mut c_void = transmute(function);
        Some(function(a, b))
    }
}

extern "C" fn malloc_for(size: usize, caller: usize) -> *mut c_void {
    // SAFETY: any size is right.
    let Some(address) = (unsafe { call(0, size, 0) }) else { return from_arena(size) };
    born(address, size, caller);
    address
}

extern "C" fn calloc_for(count: usize, size: usize, caller: usize) -> *mut c_void {
    // SAFETY: any sizes are right. The arena is zero.
    let Some(address) = (unsafe { call(1, count, size) }) else { return from_arena(count.saturating_mul(size)) };
    born(address, count.wrapping_mul(size), caller);
    address
}

extern "C" fn realloc_for(old: *mut c_void, size: usize, caller: usize) -> *mut c_void {
    if is_from_arena(old) {
        let new = malloc_for(size, caller);
        if !new.is_null() {
            let start = ptr::from_ref(&ARENA) as usize;
            let length = size.min(start + size_of::<Arena>() - old as usize);
            // SAFETY: `length` bytes from `old` are in the arena, and `new` has `size`.
            unsafe { ptr::copy_nonoverlapping(old.cast::<u8>(), new.cast(), length) };
        }
        return new;
    }
    let before = dead(old);
    // SAFETY: the program's own arguments.
    let new = unsafe { call(2, old as usize, size) }.unwrap_or_else(|| from_arena(size));
    if !new.is_null() {
        born(new, size, caller);
    } else if let (Some((old_size, origin)), true) = (before, size != 0) {
        // It failed, and the old block is still there.
        insert(old as usize, old_size, origin);
    }
    new
}

extern "C" fn free_for(address: *mut c_void) {
    if is_from_arena(address) {
        return;
    }
    dead(address);
    let function = real(3);
    if function != 0 {
        // SAFETY: the C library's free, with the program's argument.
        unsafe {
            let function: unsafe extern "C" fn(*mut c_void) = transmute(function);
            function(address);
        }
    }
}

extern "C" fn posix_memalign_for(to: *mut *mut c_void, align: usize, size: usize, caller: usize) -> c_int {
    const ENOMEM: c_int = 12;
    let function = real(4);
    if function == 0 {
        return ENOMEM;
    }
    // SAFETY: the C library's function, with the program's arguments; on success it has written the address.
    unsafe {
        let function: unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int = transmute(function);
        let error = function(to, align, size);
        if error == 0 {
            born(*to, size, caller);
        }
        error
    }
}

extern "C" fn aligned_alloc_for(align: usize, size: usize, caller: usize) -> *mut c_void {
    aligned(5, align, size, caller)
}

extern "C" fn memalign_for(align: usize, size: usize, caller: usize) -> *mut c_void {
    aligned(6, align, size, caller)
}

fn aligned(index: usize, align: usize, size: usize, caller: usize) -> *mut c_void {
    // SAFETY: the program's own arguments.
    let address = unsafe { call(index, align, size) }.unwrap_or(ptr::null_mut());
    born(address, size, caller);
    address
}

extern "C" fn valloc_for(size: usize, caller: usize) -> *mut c_void {
    aligned_pages(7, size, caller)
}

extern "C" fn pvalloc_for(size: usize, caller: usize) -> *mut c_void {
    aligned_pages(8, size, caller)
}

fn aligned_pages(index: usize, size: usize, caller: usize) -> *mut c_void {
    // SAFETY: any size is right.
    let address = unsafe { call(index, size, 0) }.unwrap_or(ptr::null_mut());
    born(address, size, caller);
    address
}

/// Exports a C function that passes its caller's address on as one more argument.
macro_rules! with_caller {
    ($($name:ident($($argument:ident),*) $register:literal $to:ident;)*) => {$(
        /// The C library's function of this name.
        ///
        /// # Safety
        ///
        /// As its manual says.
        #[unsafe(naked)]
        #[cfg_attr(feature = "export", unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($argument: usize),*) -> usize {
            naked_asm!(concat!("mov ", $register, ", [rsp]"), "jmp {}", sym $to)
        }
    )*};
}

with_caller! {
    malloc(_size) "rsi" malloc_for;
    calloc(_count, _size) "rdx" calloc_for;
    realloc(_old, _size) "rdx" realloc_for;
    free(_address) "rsi" free_for;
    posix_memalign(_to, _align, _size) "rcx" posix_memalign_for;
    aligned_alloc(_align, _size) "rdx" aligned_alloc_for;
    memalign(_align, _size) "rdx" memalign_for;
    valloc(_size) "rsi" valloc_for;
    pvalloc(_size) "rsi" pvalloc_for;
}

/// `operator new` in its forms: each leaves its caller's address for the `malloc` in it and goes on in the C++ library.
/// (One form calls another: the first is the program's.)
macro_rules! operator_new {
    ($($name:ident = $index:literal;)*) => {$(
        /// The C++ library's function of this name.
        ///
        /// # Safety
        ///
        /// As C++ says.
        #[unsafe(naked)]
        #[allow(non_snake_case)]
        #[cfg_attr(feature = "export", unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(_size: usize, _a: usize, _b: usize) -> usize {
            naked_asm!(
                "mov rax, qword ptr [rip + heddle_sharing_self@GOTTPOFF]",
                "mov rax, qword ptr fs:[rax]",
                "cmp rax, 1",
                "jbe 2f",
                "cmp qword ptr [rax + {field}], 0",
                "jne 2f",
                "mov rcx, [rsp]",
                "mov [rax + {field}], rcx",
                "2:",
                "push rdi",
                "push rsi",
                "push rdx",
                "mov edi, {index}",
                "call {real}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "test rax, rax",
                "jz 3f",
                "jmp rax",
                // A C++ library that only a plugin has is not found; there is no way to throw then.
                "3: mov rsi, [rsp]",
                "jmp {malloc}",
                field = const offset_of!(Thread, new_caller),
                index = const $index,
                real = sym real,
                malloc = sym malloc_for,
            )
        }
    )*};
}

operator_new! {
    _Znwm = 9;
    _Znam = 10;
    _ZnwmRKSt9nothrow_t = 11;
    _ZnamRKSt9nothrow_t = 12;
    _ZnwmSt11align_val_t = 13;
    _ZnamSt11align_val_t = 14;
    _ZnwmSt11align_val_tRKSt9nothrow_t = 15;
    _ZnamSt11align_val_tRKSt9nothrow_t = 16;
}
