//! The kernel's signal frame, as data.

use crate::entry::Frame;
use crate::sites;

/// The kernel's `struct ucontext`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct UContext {
    pub flags: u64,
    pub link: u64,
    pub stack: Stack,
    pub regs: Registers,
    pub mask: u64,
}

/// `stack_t`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct Stack {
    pub base: usize,
    pub flags: i32,
    pub size: usize,
}

/// The kernel's `struct sigcontext`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct Registers {
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub rdx: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rsp: u64,
    pub rip: u64,
    pub flags: u64,
    pub segments: u64,
    pub error: u64,
    pub trap: u64,
    pub old_mask: u64,
    pub cr2: u64,
    pub floats: *mut u8,
    pub reserved: [u64; 8],
}

/// What stands on the stack when a handler starts: the return address, then the context.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SignalFrame {
    /// Address of the sigreturn instructions.
    pub restorer: usize,
    /// The interrupted context.
    pub context: UContext,
    /// The `siginfo_t`.
    pub info: [u64; 16],
}

const _: () = assert!(size_of::<UContext>() == 304);

/// UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS.
const FLAGS: u64 = 6;
/// cs = 0x33, ss = 0x2b.
const SEGMENTS: u64 = 0x002b_0000_0000_0033;
const FP_XSTATE_MAGIC1: u32 = 0x4650_5853;

/// Bytes of an interrupted context's vector state.
///
/// # Safety
/// `floats` is null or points to the kernel's `_fpstate`.
pub unsafe fn float_size(floats: *const u8) -> usize {
    if floats.is_null() {
        return 0;
    }
    // SAFETY: sw_reserved is at 464: magic1, extended_size.
    unsafe {
        let software = floats.add(464).cast::<u32>();
        if *software == FP_XSTATE_MAGIC1 { *software.add(1) as usize } else { 512 }
    }
}

impl UContext {
    /// The context of a thread inside the system call of `frame`, as if it had just returned; `floats` is an FXSAVE area.
    pub fn of_call(frame: &Frame, mask: u64, floats: *mut u8) -> UContext {
        // SAFETY: continuations come from stubs.
        let rip = unsafe { sites::site_end(frame.continuation as usize) } as u64;
        UContext {
            flags: FLAGS,
            link: 0,
            stack: Stack { base: 0, flags: 2, size: 0 },
            regs: Registers {
                r8: frame.r8,
                r9: frame.r9,
                r10: frame.r10,
                r11: frame.flags,
                r12: frame.r12,
                r13: frame.r13,
                r14: frame.r14,
                r15: frame.r15,
                rdi: frame.rdi,
                rsi: frame.rsi,
                rbp: frame.rbp,
                rbx: frame.rbx,
                rdx: frame.rdx,
                rax: frame.rax,
                rcx: rip,
                rsp: frame.sp() as u64,
                rip,
                flags: frame.flags,
                segments: SEGMENTS,
                error: 0,
                trap: 0,
                old_mask: 0,
                cr2: 0,
                floats,
                reserved: [0; 8],
            },
            mask,
        }
    }

    /// Takes over what a handler changed in the context that [`of_call`](Self::of_call) made, with `end` as its rip.
    pub fn back_to(&self, frame: &mut Frame, end: u64) {
        let r = &self.regs;
        frame.r8 = r.r8;
        frame.r9 = r.r9;
        frame.r10 = r.r10;
        frame.r12 = r.r12;
        frame.r13 = r.r13;
        frame.r14 = r.r14;
        frame.r15 = r.r15;
        frame.rdi = r.rdi;
        frame.rsi = r.rsi;
        frame.rbp = r.rbp;
        frame.rbx = r.rbx;
        frame.rdx = r.rdx;
        frame.rax = r.rax;
        frame.flags = r.flags;
        if r.rip != end {
            frame.continuation = r.rip.wrapping_sub(sites::DONE as u64);
        }
    }
}
