//! Symbols of objects that the loader mapped before us, read from their ELF tables: the vDSO's clock, glibc's
//! `__rseq_offset`.

use core::sync::atomic::{AtomicIsize, Ordering};

static RSEQ_OFFSET: AtomicIsize = AtomicIsize::new(0);

/// Remembers where glibc keeps its restartable-sequences area, relative to the thread pointer.
fn set_rseq_offset(offset: isize) {
    RSEQ_OFFSET.store(offset, Ordering::Relaxed);
}

/// That offset; 0 = there is none.
pub fn rseq_offset() -> isize {
    RSEQ_OFFSET.load(Ordering::Relaxed)
}

#[repr(C)]
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    vaddr: u64,
    paddr: u64,
    file_size: u64,
    memory_size: u64,
    align: u64,
}

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;

/// `__vdso_clock_gettime` in the vDSO whose ELF header is at `base`, or 0.
///
/// # Safety
/// `base` is 0 or the kernel's AT_SYSINFO_EHDR.
pub unsafe fn clock_gettime(base: usize) -> usize {
    // SAFETY: the caller's.
    unsafe { symbol(base, c"__vdso_clock_gettime") }
}

/// Reads glibc's `__rseq_offset` from the loader at `base` (AT_BASE).
///
/// # Safety
/// `base` is 0 or the address of the loader's ELF header.
pub unsafe fn read_rseq_offset(base: usize) {
    // SAFETY: the caller's; the variable is a ptrdiff_t.
    unsafe {
        let (offset, size) = (symbol(base, c"__rseq_offset"), symbol(base, c"__rseq_size"));
        if offset != 0 && size != 0 && *(size as *const u32) != 0 {
            set_rseq_offset(*(offset as *const isize));
        }
    }
}

/// The address of a defined symbol of the image at `base`, or 0.
///
/// # Safety
/// `base` is 0 or the ELF header of a well-formed image that is entirely mapped.
unsafe fn symbol(base: usize, wanted: &core::ffi::CStr) -> usize {
    if base == 0 {
        return 0;
    }
    // SAFETY: the caller's; tables are relative to the first segment, or already relocated in place.
    unsafe {
        let headers = (base + *((base + 32) as *const u64) as usize) as *const ProgramHeader;
        let count = *((base + 56) as *const u16) as usize;
        let (mut bias, mut dynamic) = (None, 0);
        for i in 0..count {
            let h = &*headers.add(i);
            if h.kind == PT_LOAD && bias.is_none() {
                bias = Some(base.wrapping_add(h.offset as usize).wrapping_sub(h.vaddr as usize));
            } else if h.kind == PT_DYNAMIC {
                dynamic = h.vaddr as usize;
            }
        }
        let Some(bias) = bias else { return 0 };
        if dynamic == 0 {
            return 0;
        }
        let (mut strings, mut symbols) = (0, 0);
        let mut d = bias.wrapping_add(dynamic) as *const u64;
        while *d != 0 {
            let value = *d.add(1) as usize;
            let at = if value >= base { value } else { bias.wrapping_add(value) };
            match *d {
                DT_STRTAB => strings = at,
                DT_SYMTAB => symbols = at,
                _ => {}
            }
            d = d.add(2);
        }
        // The linker puts the string table right behind the symbol table.
        if symbols == 0 || strings <= symbols {
            return 0;
        }
        let table = symbols as *const Symbol;
        for i in 0..(strings - symbols) / size_of::<Symbol>() {
            let s = &*table.add(i);
            let name = core::ffi::CStr::from_ptr((strings + s.name as usize) as *const core::ffi::c_char);
            if s.section != 0 && name == wanted {
                return bias.wrapping_add(s.value as usize);
            }
        }
    }
    0
}
