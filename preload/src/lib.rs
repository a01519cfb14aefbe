//! The shared object that `heddle run` loads into a program (`LD_PRELOAD`): a constructor, and what a library without
//! libc needs of its own.
//!
//! Linked with `-z initfirst`, so that the constructor runs before those of all other libraries. A program that links the
//! library crate loads it when it runs already; then the constructor does nothing, and `interface` does its work.
//!
//! # Safety
//! The constructor runs on the process's only thread, with the vectors that the kernel put on the stack, unless the image
//! was marked as one that is loaded later.
#![no_std]

mod alloc;
mod interface;
mod mem;

use core::ffi::{CStr, c_char, c_int};
use heddle_abi::report;
use heddle_abi::start::{Auxiliary, Settings, load};

const AT_BASE: usize = 7;
const AT_HWCAP2: usize = 26;
const AT_SYSINFO_EHDR: usize = 33;

/// Set for the program that `heddle run` becomes, and for no other.
const LAUNCHED: &[u8] = b"HEDDLE_LAUNCHED=1";

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: unsafe extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) = constructor;

unsafe extern "C" {
    #[link_name = "__ehdr_start"]
    safe static IMAGE_START: u8;
    #[link_name = "_end"]
    safe static IMAGE_END: u8;
}

/// The addresses of this library.
fn own() -> core::ops::Range<usize> {
    &raw const IMAGE_START as usize..&raw const IMAGE_END as usize
}

/// Bytes of the constructor's stack.
const STACK: usize = 256 << 10;

unsafe extern "C" fn constructor(_argc: c_int, _argv: *mut *mut c_char, environment: *mut *mut c_char) {
    if interface::is_loaded_later() {
        return;
    }
    // On a stack of its own: programs that read what they have not written find on theirs what they find without us. Where there is
    // no memory, on the program's.
    let Ok(stack) = heddle_core::mem::map(STACK) else {
        // SAFETY: the caller's.
        return unsafe { begin(environment) };
    };
    // SAFETY: a stack that nobody else has, aligned as for a call; the old one is there again afterwards.
    unsafe {
        core::arch::asm!(
            "mov r12, rsp",
            "mov rsp, {top}",
            "call {begin}",
            "mov rsp, r12",
            top = in(reg) stack.add(STACK),
            begin = sym begin,
            in("rdi") environment,
            out("r12") _,
            clobber_abi("C"),
        );
        heddle_core::mem::unmap(stack, STACK);
    }
}

/// The constructor's work.
///
/// # Safety
/// As for that.
unsafe extern "C" fn begin(environment: *mut *mut c_char) {
    let mut settings = Settings::default();
    let mut auxiliary = Auxiliary::default();
    let mut children = true;
    // SAFETY: the kernel's vectors: strings, a null, then pairs up to AT_NULL.
    unsafe {
        let mut e = environment;
        while !(*e).is_null() {
            let text = CStr::from_ptr(*e).to_bytes();
            if let Some(v) = text.strip_prefix(b"HEDDLE_WORKERS=") {
                settings.workers = number(v) as u32;
            } else if let Some(v) = text.strip_prefix(b"HEDDLE_SLICE_MS=") {
                settings.slice_ms = number(v);
            } else if let Some(v) = text.strip_prefix(b"HEDDLE_STATS=") {
                // The launcher's process id, which its program keeps: children do not print.
                settings.stats = number(v)
                    == heddle_core::sys::syscall6(heddle_core::sys::linux::__NR_getpid as usize, [0; 6]) as u64;
            } else if let Some(v) = text.strip_prefix(b"HEDDLE_CHILDREN=") {
                children = v != b"0";
            } else if text == LAUNCHED {
                settings.launched = true;
            }
            e = e.add(1);
        }
        let mut a = e.add(1) as *const [usize; 2];
        while (*a)[0] != 0 {
            match (*a)[0] {
                AT_SYSINFO_EHDR => auxiliary.vdso = (*a)[1],
                AT_BASE => auxiliary.loader = (*a)[1],
                AT_HWCAP2 => auxiliary.hwcap2 = (*a)[1] as u64,
                _ => {}
            }
            a = a.add(1);
        }
        if !children {
            forget_environment(environment);
        } else if settings.launched {
            take_out(environment, &|variable| CStr::from_ptr(variable).to_bytes() == LAUNCHED);
        }
        if let Err(why) = load(settings, auxiliary, own()) {
            report::line(format_args!("{why}; use --mode kernel to run without user threads"));
            heddle_abi::process::end(125);
        }
    }
}

fn number(text: &[u8]) -> u64 {
    text.iter().take_while(|b| b.is_ascii_digit()).fold(0u64, |n, b| n.saturating_mul(10) + u64::from(b - b'0'))
}

/// `--no-children`: takes our variables out of the environment that child programs inherit.
unsafe fn forget_environment(environment: *mut *mut c_char) {
    // SAFETY: the caller's; the kernel's strings.
    unsafe {
        take_out(environment, &|variable| {
            let text = CStr::from_ptr(variable).to_bytes();
            text.starts_with(b"HEDDLE_") || text.starts_with(b"LD_PRELOAD=") && !keep_other_preloads(variable)
        });
    }
}

/// Takes the variables that `ours` says out of the environment.
unsafe fn take_out(environment: *mut *mut c_char, ours: &dyn Fn(*mut c_char) -> bool) {
    // SAFETY: the kernel's vector, edited in place before anyone has copied it.
    unsafe {
        let (mut from, mut to) = (environment, environment);
        while !(*from).is_null() {
            if !ours(*from) {
                *to = *from;
                to = to.add(1);
            }
            from = from.add(1);
        }
        *to = core::ptr::null_mut();
    }
}

/// Takes our library out of `LD_PRELOAD=...`; returns whether anything is left.
unsafe fn keep_other_preloads(variable: *mut c_char) -> bool {
    const NAME: usize = b"LD_PRELOAD=".len();
    // SAFETY: a string of ours to edit; it only gets shorter.
    unsafe {
        let len = CStr::from_ptr(variable).to_bytes().len();
        let text = core::slice::from_raw_parts_mut(variable.cast::<u8>(), len);
        let (mut from, mut to) = (NAME, NAME);
        while from < len {
            let end = text[from..].iter().position(|&b| b == b':' || b == b' ').map_or(len, |n| from + n);
            let item = from..end;
            let ours = text[item.clone()].windows(10).any(|w| w == b"libheddle-" || w == b"libheddle_");
            if !ours && !item.is_empty() {
                if to > NAME {
                    text[to] = b':';
                    to += 1;
                }
                text.copy_within(item.clone(), to);
                to += item.len();
            }
            from = end + 1;
        }
        *variable.add(to) = 0;
        to > NAME
    }
}

#[cfg(not(test))]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    report::line(format_args!("internal error: {info}"));
    // SAFETY: ends the process with SIGABRT's status.
    unsafe {
        heddle_core::sys::syscall6(heddle_core::sys::linux::__NR_exit_group as usize, [134, 0, 0, 0, 0, 0]);
    }
    loop {
        core::hint::spin_loop();
    }
}
