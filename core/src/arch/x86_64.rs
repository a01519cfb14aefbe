//! x86-64.
//!
//! A suspended context is its stack pointer; there the stack holds what the compiler may not be told to keep:
//!
//! ```text
//!   higher addresses
//!   | rbx rbp                       |
//!   | where to go on                |
//!   | MXCSR (4), x87 CW (2), SW (2) |  <- Context::sp
//! ```
//!
//! A fresh context goes on at `context_start`, which finds in the first two places the argument and the function to call
//! with it. FS base (the libc thread pointer) belongs to the thread and is set by the scheduler when it picks
//! one; GS base belongs to the kernel thread and, in the core, points to its worker record; libc never uses it, and for programs that do see
//! `sched::base`.
//!
//! # Safety
//! Inline assembly that changes stacks and segment bases; each function says what its caller must uphold.

use core::arch::{asm, naked_asm};
use core::sync::atomic::{AtomicU8, AtomicUsize};

/// A suspended (or running) flow of control.
#[repr(C)]
pub struct Context {
    /// Where the saved registers are while suspended. Atomic, since who looks ahead reads it at any time.
    pub sp: AtomicUsize,
    /// Not 0 from the moment a worker picks the context until its registers are saved again. Whoever picks a context
    /// waits for 0 first (Acquire): a waker may queue a thread that has not left its stack yet.
    pub on_cpu: AtomicU8,
}

impl Context {
    /// A context that is running or will be filled in by [`fresh_context`].
    pub const fn new() -> Self {
        Self { sp: AtomicUsize::new(0), on_cpu: AtomicU8::new(0) }
    }
}

impl Default for Context {
    fn default() -> Self {
        Self::new()
    }
}

/// Suspends `from` and continues `to`; returns when something switches to `from` again, perhaps on another kernel
/// thread. After the registers are saved it stores 0 to `from.on_cpu`; on x86-64 a plain store is a Release, and the
/// picker's Acquire load pairs with it.
///
/// Part of its caller, and not a function of its own: a CPU predicts where a function returns to by where it was called
/// from, and that is another stack's affair now. Each return between here and code that was called on this stack is a
/// misprediction, about 8 ns; so the fewer functions, the better.
///
/// # Safety
/// `from` is the running context; `to` is suspended, its `on_cpu` was seen to be 0 and then set by the caller, who is the
/// only one to pick it. Both stay valid across the call.
#[inline(always)]
pub unsafe fn switch(from: *mut Context, to: *mut Context) {
    // SAFETY: the caller's. What the block does not list it saves itself; the stack pointer is as before at its end.
    unsafe {
        asm!(
            "push rbp",
            "push rbx",
            "lea rax, [rip + 9f]",
            "push rax",
            "sub rsp, 8",
            "stmxcsr [rsp]",
            "fnstcw [rsp + 4]",
            "fnstsw ax",
            "mov r8d, [rsp]",
            "movzx r9d, word ptr [rsp + 4]",
            "shl eax, 16",
            "or r9d, eax",
            // In one, as it is read: what two stores wrote could not be read for a while.
            "mov [rsp + 4], r9d",
            "mov [rdi], rsp",
            "mov rsp, [rsi]",
            // From here the old stack may be picked up by another worker.
            "mov byte ptr [rdi + 8], 0",
            // Loading the control words costs more than comparing them, and they are nearly always equal.
            "cmp r8d, [rsp]",
            "jne 6f",
            "7:",
            "cmp r9d, [rsp + 4]",
            "jne 8f",
            "5: add rsp, 8",
            "pop rax",
            "jmp rax",
            "6: ldmxcsr [rsp]",
            "jmp 7b",
            "8: call {load_x87}",
            "jmp 5b",
            "9:",
            "pop rbx",
            "pop rbp",
            load_x87 = sym load_x87,
            inout("rdi") from => _,
            inout("rsi") to => _,
            out("r12") _, out("r13") _, out("r14") _, out("r15") _,
            clobber_abi("C"),
        );
    }
}

/// Loads the x87 control and status words that lie above the return address and MXCSR; r9d: those that hold. The stack is
/// a suspended context's.
#[unsafe(naked)]
unsafe extern "C" fn load_x87() {
    naked_asm!(
        "mov eax, [rsp + 12]",
        "fldcw [rsp + 12]",
        // The sticky exception flags (bits 0-5 of the status word, our bits 16-21) have no load instruction of their own.
        "xor r9d, eax",
        "test r9d, 0x3f0000",
        "jz 2f",
        "fnclex",
        "test eax, 0x3f0000",
        "jz 2f",
        "shr eax, 16",
        "sub rsp, 32",
        "fnstenv [rsp]",
        "mov [rsp + 4], ax",
        "fldenv [rsp]",
        "add rsp, 32",
        "2: ret",
    )
}

#[unsafe(naked)]
unsafe extern "C" fn context_start() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip", // the root: unwinders stop here
        "xor ebp, ebp",
        "mov rdi, [rsp]",
        "call [rsp + 8]",
        "ud2",
        ".cfi_endproc",
    )
}

/// Prepares `context` so that switching to it calls `entry(argument)` on the stack that ends at `top`. The control words
/// are those of the caller. `entry` must not return.
///
/// # Safety
/// At least 512 writable bytes lie below `top`, and nothing else uses that stack.
pub unsafe fn fresh_context(
    context: &mut Context,
    top: *mut u8,
    entry: unsafe extern "C" fn(*mut u8) -> !,
    argument: *mut u8,
) {
    let top = (top as usize) & !15;
    let (mut mxcsr, mut fcw, mut fsw) = (0u32, 0u16, 0u16);
    // SAFETY: stores the control words and the status word to three locals.
    unsafe {
        asm!("stmxcsr [{}]", "fnstcw [{}]", "fnstsw [{}]",
            in(reg) &mut mxcsr, in(reg) &mut fcw, in(reg) &mut fsw, options(nostack));
    }
    let words: [usize; 4] = [
        mxcsr as usize | (fcw as usize) << 32 | (fsw as usize) << 48,
        context_start as *const () as usize,
        argument as usize,
        entry as *const () as usize,
    ];
    // In `context_start` rsp is top - 16, aligned, so that its call pushes onto an aligned stack.
    let sp = top - size_of_val(&words);
    // SAFETY: the caller gave us this memory.
    unsafe { (sp as *mut [usize; 4]).write(words) };
    *context.sp.get_mut() = sp;
}

/// The caller's ways of floating-point arithmetic (MXCSR and the x87 control word), as a suspended context keeps them; without x87
/// exceptions.
#[inline(always)]
pub fn arithmetic() -> u64 {
    let (mut mxcsr, mut fcw) = (0u32, 0u16);
    // SAFETY: stores the control words to two locals.
    unsafe {
        asm!("stmxcsr [{}]", "fnstcw [{}]", in(reg) &raw mut mxcsr, in(reg) &raw mut fcw,
            options(nostack, preserves_flags));
    }
    u64::from(mxcsr) | u64::from(fcw) << 32
}

/// Gives [`arithmetic`] to a context.
///
/// # Safety
/// It was suspended by [`switch`], its `on_cpu` was seen to be 0, and it is the caller's to continue.
#[inline(always)]
pub unsafe fn set_arithmetic(context: *mut Context, words: u64) {
    // SAFETY: the caller's; the words are what its stack pointer points to.
    unsafe { (*(*context).sp.as_ptr() as *mut u64).write(words) };
}

/// Bytes of a cache line.
pub const LINE: usize = 64;

/// Asks for the cache line at an address, if there is one.
#[inline(always)]
pub fn prefetch(address: usize) {
    // SAFETY: a hint, whatever the address.
    unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address as *const i8) };
}

/// The libc thread pointer (FS base).
#[inline(always)]
pub fn thread_pointer() -> usize {
    let r;
    // SAFETY: reads a register; FSGSBASE was checked before the runtime started.
    unsafe { asm!("rdfsbase {}", out(reg) r, options(nomem, nostack, preserves_flags)) };
    r
}

/// Sets the libc thread pointer (FS base).
///
/// # Safety
/// `value` is the thread pointer of the thread that is about to run.
#[inline(always)]
pub unsafe fn set_thread_pointer(value: usize) {
    // SAFETY: the caller's.
    unsafe { asm!("wrfsbase {}", in(reg) value, options(nostack, preserves_flags)) };
}

/// GS base: in the core the worker record of this kernel thread, 0 for a kernel thread that is not Heddle's. Never cached by the
/// compiler: after a park the caller may be on another kernel thread.
#[inline(always)]
pub fn worker_pointer() -> usize {
    let r;
    // SAFETY: reads a register. No `nomem`/`pure`, so that it is not moved across a switch.
    unsafe { asm!("rdgsbase {}", out(reg) r, options(nostack, preserves_flags)) };
    r
}

/// GS base, read from the record that it points to: quicker than `rdgsbase`. Faults if it is 0.
#[inline(always)]
pub fn this_worker_pointer() -> usize {
    let r;
    // SAFETY: the first word of a worker record is its address. No `pure`, so that it is not moved across a switch.
    unsafe { asm!("mov {}, gs:[0]", out(reg) r, options(nostack, preserves_flags, readonly)) };
    r
}

/// Sets GS base.
///
/// # Safety
/// `value` is 0 or a worker record that outlives this kernel thread, or the program's and the core is left.
#[inline(always)]
pub unsafe fn set_worker_pointer(value: usize) {
    // SAFETY: the caller's.
    unsafe { asm!("wrgsbase {}", in(reg) value, options(nostack, preserves_flags)) };
}

/// What the kernel gives a program as its rights to memory with protection keys: key 0 only.
pub const KEY_RIGHTS_AT_START: u32 = 0x5555_5554;

/// This kernel thread's rights to memory with protection keys.
///
/// # Safety
/// The kernel has protection keys: `pkey_alloc` has succeeded.
pub unsafe fn key_rights() -> u32 {
    let rights;
    // SAFETY: the caller's; reads a register.
    unsafe { asm!("rdpkru", in("ecx") 0, out("eax") rights, out("edx") _, options(nomem, nostack)) };
    rights
}

/// Sets them.
///
/// # Safety
/// As there; they are those of the thread that is to run.
pub unsafe fn set_key_rights(rights: u32) {
    // SAFETY: the caller's. Memory, since it changes what can be reached.
    unsafe { asm!("wrpkru", in("ecx") 0, in("edx") 0, in("eax") rights, options(nostack)) };
}

/// The time-stamp counter, for rate limits only (not a clock).
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: rdtsc touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Bytes that [`save_extended`] may write.
pub const EXTENDED_SIZE: usize = 2816;
/// x87, upper halves of ymm, mask registers, upper halves of zmm0-15, zmm16-31. Not xmm0-15 and MXCSR, which the entry
/// stub saves; not AMX tiles (8 KiB): a thread that parks at an inline system call with live tile data loses it.
const EXTENDED_MASK: u32 = 0b1110_0101;

/// Room for the vector state that a park must keep at a site outside ordinary library functions.
#[repr(C, align(64))]
pub struct Extended([u8; EXTENDED_SIZE]);

impl Extended {
    /// Uninitialised room, with a valid empty header.
    #[inline(always)]
    pub fn new() -> core::mem::MaybeUninit<Self> {
        core::mem::MaybeUninit::uninit()
    }
}

/// Saves the extended vector state.
///
/// # Safety
/// `area` is writable and 64-byte aligned. (Every CPU with FSGSBASE has XSAVE.)
#[inline]
pub unsafe fn save_extended(area: *mut Extended) {
    // XSAVE writes XSTATE_BV's chosen bits only and leaves the rest of the header, which XRSTOR wants to be zero.
    // SAFETY: the area is ours; the header is at 512.
    unsafe {
        let header = area.cast::<u8>().add(512).cast::<u64>();
        for i in 0..8 {
            header.add(i).write(0);
        }
        asm!("xsave64 [{}]", in(reg) area, in("eax") EXTENDED_MASK, in("edx") 0, options(nostack));
    }
}

/// Restores what [`save_extended`] saved.
///
/// # Safety
/// `area` was filled by [`save_extended`].
#[inline]
pub unsafe fn restore_extended(area: *const Extended) {
    // SAFETY: the caller's. x87 and the upper vector registers are not used by the core, so nothing of ours is lost.
    unsafe { asm!("xrstor64 [{}]", in(reg) area, in("eax") EXTENDED_MASK, in("edx") 0, options(nostack)) };
}
