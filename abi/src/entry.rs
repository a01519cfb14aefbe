//! The way in and out: assembly that rewritten sites jump to, and the dispatcher's frame.
//!
//! A site's stub comes here with every register as the program left it, except rcx, which a system call destroys and
//! which holds the site's continuation. The entry saves all general registers, the flags and xmm0-15 below the red zone
//! of the thread's own stack, and calls [`crate::dispatch::dispatch`]. That returns how the stub goes on: past the system
//! call (it was emulated), or into one of its two raw `syscall` instructions.
//!
//! # Safety
//! Assembly; each routine states the register contract it relies on.

use core::arch::naked_asm;
use heddle_core::sched::{RT, Worker, base};

/// The registers of a thread inside a system call, as the entry pushed them (lowest address first).
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct Frame {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r9: u64,
    pub r8: u64,
    pub r10: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    /// The number on the way in, the result on the way out.
    pub rax: u64,
    /// Where the stub goes on.
    pub continuation: u64,
    pub flags: u64,
}

/// Bytes below the stack pointer that belong to the interrupted function.
pub const RED_ZONE: usize = 128;

impl Frame {
    /// The program's stack pointer at the system call.
    pub fn sp(&self) -> usize {
        core::ptr::from_ref(self) as usize + size_of::<Frame>() + RED_ZONE
    }

    /// The six arguments.
    pub fn arguments(&self) -> [usize; 6] {
        [self.rdi as usize, self.rsi as usize, self.rdx as usize, self.r10 as usize, self.r8 as usize, self.r9 as usize]
    }
}

/// Pushes what a [`Frame`] has from rdi down to r15.
macro_rules! push_general {
    () => {
        concat!(
            "push rdi; push rsi; push rdx; push r10; push r8; push r9;",
            "push rbx; push rbp; push r12; push r13; push r14; push r15;",
        )
    };
}

/// Pops it.
macro_rules! pop_general {
    () => {
        concat!(
            "pop r15; pop r14; pop r13; pop r12; pop rbp; pop rbx;",
            "pop r9; pop r8; pop r10; pop rdx; pop rsi; pop rdi;",
        )
    };
}

/// Writes xmm0-15 to the 256 bytes at rsp, which is aligned.
macro_rules! save_vectors {
    () => {
        concat!(
            "movaps [rsp], xmm0; movaps [rsp + 16], xmm1;",
            "movaps [rsp + 32], xmm2; movaps [rsp + 48], xmm3;",
            "movaps [rsp + 64], xmm4; movaps [rsp + 80], xmm5;",
            "movaps [rsp + 96], xmm6; movaps [rsp + 112], xmm7;",
            "movaps [rsp + 128], xmm8; movaps [rsp + 144], xmm9;",
            "movaps [rsp + 160], xmm10; movaps [rsp + 176], xmm11;",
            "movaps [rsp + 192], xmm12; movaps [rsp + 208], xmm13;",
            "movaps [rsp + 224], xmm14; movaps [rsp + 240], xmm15;",
        )
    };
}

/// Reads them.
macro_rules! load_vectors {
    () => {
        concat!(
            "movaps xmm0, [rsp]; movaps xmm1, [rsp + 16];",
            "movaps xmm2, [rsp + 32]; movaps xmm3, [rsp + 48];",
            "movaps xmm4, [rsp + 64]; movaps xmm5, [rsp + 80];",
            "movaps xmm6, [rsp + 96]; movaps xmm7, [rsp + 112];",
            "movaps xmm8, [rsp + 128]; movaps xmm9, [rsp + 144];",
            "movaps xmm10, [rsp + 160]; movaps xmm11, [rsp + 176];",
            "movaps xmm12, [rsp + 192]; movaps xmm13, [rsp + 208];",
            "movaps xmm14, [rsp + 224]; movaps xmm15, [rsp + 240];",
        )
    };
}

/// The way in, for each of the two entries. `$extended`: whether the vector state beyond xmm0-15 counts.
///
/// On a kernel thread that is no worker of ours most calls are the kernel's as they are. Those go back to the stub at once;
/// rcx and r11 suffice to see that, with instructions that leave the flags alone.
macro_rules! enter {
    ($extended:literal) => {
        naked_asm!(
            "mov r11, rcx",
            "rdgsbase rcx",
            "jrcxz 3f",
            "lea rsp, [rsp - 128]",
            "pushfq",
            "push r11",
            "push rax",
            concat!("mov r11d, ", $extended),
            "jmp {worker}",
            "3: lea rsp, [rsp - 128]",
            "push r11",
            "lea r11, [rip + {ours}]",
            "movzx ecx, al",
            "movzx ecx, byte ptr [r11 + rcx]",
            "jrcxz 4f",
            "pop r11",
            "pushfq",
            "push r11",
            "push rax",
            concat!("mov ecx, ", $extended),
            "jmp {outside}",
            "4: pop rcx",
            "lea rsp, [rsp + 128]",
            "jmp rcx",
            worker = sym enter_worker,
            outside = sym enter_outside,
            ours = sym crate::dispatch::PERHAPS_OURS,
        )
    };
}

/// Entry for sites in code that holds nothing but xmm0-15 across a system call.
///
/// # Safety
/// Reached from stubs only.
#[unsafe(naked)]
pub unsafe extern "C" fn enter() {
    enter!("0")
}

/// Entry for all other sites: the extended vector state is kept when the thread parks.
///
/// # Safety
/// Reached from stubs only.
#[unsafe(naked)]
pub unsafe extern "C" fn enter_extended() {
    enter!("1")
}

/// GS base, in rcx, is not 0: on one of our workers, or a value of the program's ([`base`]). r11 is what goes on in rcx.
#[unsafe(naked)]
unsafe extern "C" fn enter_worker() {
    naked_asm!(
        push_general!(),
        "cld",
        "cmp qword ptr [rip + {rt} + {list}], 0",
        "je heddle_enter_odd",
        "lea rdx, [rcx + {mark}]",
        "mov ecx, r11d",
        ".globl heddle_enter_check",
        ".hidden heddle_enter_check",
        "heddle_enter_check:",
        "cmp rdx, gs:[{at_mark}]",
        "jne heddle_enter_odd",
        // From here on we are in the core, if we were not before.
        "movzx r12d, byte ptr gs:[8]",
        "mov byte ptr gs:[8], 1",
        // Until the store the thread may be preempted, and go on on another worker: only now it is known which.
        "mov r11, gs:[0]",
        "jmp {common}",
        ".globl heddle_enter_odd",
        ".hidden heddle_enter_odd",
        "heddle_enter_odd:",
        "mov r13d, r11d",
        "xor r12d, r12d",
        "call {arrive}",
        "mov ecx, r13d",
        "mov r11, rax",
        "jmp {common}",
        rt = sym RT,
        list = const base::ALL_WORKERS,
        mark = const base::MARK,
        at_mark = const core::mem::offset_of!(Worker, mark),
        arrive = sym base::arrive,
        common = sym enter_common,
    )
}

unsafe extern "C" {
    #[link_name = "heddle_enter_check"]
    safe static CHECK: u8;
    #[link_name = "heddle_enter_odd"]
    safe static ODD: u8;
}

/// Where to go on after a fault at `instruction`, if that is the look at what GS base points to.
#[inline]
pub fn after_fault(instruction: u64) -> Option<u64> {
    (instruction == &raw const CHECK as u64).then_some(&raw const ODD as u64)
}

/// On another kernel thread.
#[unsafe(naked)]
unsafe extern "C" fn enter_outside() {
    naked_asm!(
        push_general!(),
        "cld",
        "xor r12d, r12d",
        "xor r11d, r11d",
        "jmp {common}",
        common = sym enter_common,
    )
}

#[unsafe(naked)]
unsafe extern "C" fn enter_common() {
    naked_asm!(
        "mov rbx, rsp",
        "sub rsp, 256",
        "and rsp, -16",
        save_vectors!(),
        "mov rdi, rbx",
        "mov rsi, rcx",
        "mov rdx, r12",
        "mov rcx, r11",
        "call {dispatch}",
        "jmp {leave}",
        dispatch = sym crate::dispatch::dispatch,
        leave = sym leave,
    )
}

/// The way out of an abandoned call: as if dispatch had returned, with rbx at the frame and rsp at the saved registers.
///
/// # Safety
/// The kernel-level handler sends the thread here with those registers.
#[unsafe(naked)]
pub unsafe extern "C" fn abandon() {
    naked_asm!("mov rdi, rbx", "call {faulted}", "jmp {leave}", faulted = sym crate::dispatch::faulted, leave = sym leave)
}

/// Where the entry keeps xmm0-15, given the frame's address.
pub fn saved_registers(frame: usize) -> usize {
    (frame - 256) & !15
}

#[unsafe(naked)]
unsafe extern "C" fn leave() {
    naked_asm!(
        "add [rbx + 8*13], rax", // continuation += what dispatch says
        load_vectors!(),
        "mov rdi, rbx",
        "jmp {resume}",
        resume = sym resume,
    )
}

/// Loads the registers of a frame and goes on at its continuation.
///
/// # Safety
/// `frame` is at its place on the thread's stack, `continuation` complete; nothing below it is needed any more.
#[unsafe(naked)]
pub unsafe extern "C" fn resume(frame: *mut Frame) -> ! {
    naked_asm!(
        "mov rsp, rdi",
        pop_general!(),
        // Left are rax, the continuation and the flags. `popfq` takes as long as all the rest here, so it is for flags
        // that nobody sets: those of computing are loaded by an addition (overflow) and by `sahf` (the others).
        "mov r11d, [rsp + 16]",
        "test r11d, {others}",
        "jnz 2f",
        "mov eax, r11d",
        "shr eax, 8",
        "and eax, 8",
        "add al, 0x78",
        "mov ah, [rsp + 16]",
        "sahf",
        "pop rax",
        "pop rcx",
        "lea rsp, [rsp + 136]",
        "jmp rcx",
        "2: pop rax",
        "pop rcx",
        "popfq",
        "lea rsp, [rsp + 128]",
        "jmp rcx",
        // All but CF, PF, AF, ZF, SF and OF, and IF and the bit that is always set.
        others = const !(0x8d5 | 0x202_i32),
    )
}

/// Where a stub comes after its second raw `syscall` (fork and its kin): rax is the result, rcx the continuation.
///
/// # Safety
/// Reached from stubs only. In the child of a fork that shares the stack with its parent nothing above the red zone of
/// the stack pointer is written.
#[unsafe(naked)]
pub unsafe extern "C" fn after_raw() {
    naked_asm!(
        "lea rsp, [rsp - 128]",
        "pushfq",
        "push rcx",
        "push rax",
        push_general!(),
        "cld",
        "mov rbx, rsp",
        "sub rsp, 256",
        "and rsp, -16",
        save_vectors!(),
        "mov rdi, rbx",
        "call {after}",
        load_vectors!(),
        "mov rdi, rbx",
        "jmp {resume}",
        after = sym crate::process::after_raw,
        resume = sym resume,
    )
}
