//! Running the program's handlers.

use super::actions::{self, DEFAULT, IGNORE};
use super::context::{SignalFrame, UContext};
use super::{bit, kernel, masks, pending};
use crate::dispatch;
use crate::entry::Frame;
use core::arch::naked_asm;
use core::sync::atomic::{Ordering, compiler_fence};
use heddle_core::arch::{self, Extended};
use heddle_core::identity::SigInfo;
use heddle_core::prim::fence;
use heddle_core::sched::{self, base, worker};
use heddle_core::sys::linux as l;
use heddle_core::thread::Thread;

/// SS_AUTODISARM.
const AUTODISARM: u32 = 1 << 31;

/// Leaves the core: delivers what is due, then lets preemption and handlers in again.
///
/// # Safety
/// The current thread, inside the core, is about to go on in the program with the registers of `frame`.
#[inline]
pub unsafe fn leave_core(frame: &mut Frame) {
    loop {
        let w = sched::this_worker();
        // SAFETY: our own record; the current thread.
        unsafe {
            let t = (*w).current;
            if (*w).attention.load(Ordering::Relaxed) != 0 {
                kernel::empty_inbox(w);
                if kernel::preempt_wanted(&*w) {
                    sched::give_way();
                    continue; // on another worker, perhaps
                }
            }
            if (*t).attention.load(Ordering::Relaxed) {
                deliver(frame);
                continue; // a handler may have taken us to another worker
            }
            (*w).in_core.store(0, Ordering::Relaxed);
            // A signal on this kernel thread sees `in_core` either set, and leaves us a note, or clear, and acts itself.
            compiler_fence(Ordering::SeqCst); // SeqCst: orders the two for signals on this kernel thread. pairs: worker.in_core
            if (*w).attention.load(Ordering::Relaxed) == 0 && !(*t).attention.load(Ordering::Relaxed) {
                dispatch::depart(t);
                return;
            }
            // On another worker, perhaps, and with the program's GS base: the thread may have been interrupted meanwhile.
            base::arrive();
        }
    }
}

/// Delivers all signals that are due to the current thread, which is inside the system call of `frame`. `None`: no handler ran;
/// else whether the first one has SA_RESTART: as in the kernel, the others interrupt that one, or come after it, when the call has
/// been decided about.
///
/// # Safety
/// Inside the core, linked nowhere, no wait open, no lock held.
#[cold]
pub unsafe fn deliver(frame: &mut Frame) -> Option<bool> {
    let t = sched::current();
    let mut floats = FloatArea([0; 512]);
    let mut restart = None;
    // SAFETY: the caller's.
    unsafe {
        core::arch::asm!("fxsave64 [{}]", in(reg) &mut floats, options(nostack));
        while let Some((info, action)) = next(t, &|| UContext::of_call(frame, 0, core::ptr::null_mut())) {
            let mut context = UContext::of_call(frame, 0, (&raw mut floats).cast());
            let end = context.regs.rip;
            run(t, &info, &action, &mut context);
            context.back_to(frame, end);
            restart = restart.or(Some(action.flags & l::SA_RESTART as u64 != 0));
        }
    }
    restart
}

#[repr(C, align(16))]
struct FloatArea([u8; 512]);

/// The end of the part of `t`'s alternate stack that is free for frames, if the stack pointer that a signal finds is
/// `interrupted`.
///
/// # Safety
/// `t` is the current thread.
pub(super) unsafe fn alternate_top(t: *mut Thread, interrupted: usize) -> usize {
    // SAFETY: the caller's.
    unsafe {
        let alt = (*t).identity.alt_stack;
        let inside = |at: usize| (alt.base..alt.base + alt.size).contains(&at);
        // In a handler on the alternate stack, or on the thread's own in or below the one that it is taken for.
        if inside((*t).alt_taken) && (inside(interrupted) || interrupted < (*t).alt_taken_for) {
            return (*t).alt_taken;
        }
        (*t).alt_taken = 0; // the handler has jumped out
        alt.base + alt.size
    }
}

/// An address on the present stack.
#[inline(always)]
fn stack_pointer() -> usize {
    let sp;
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags)) };
    sp
}

/// Where the kernel-level handler sends a thread that was interrupted in the program; see `kernel::trampoline`.
///
/// # Safety
/// Called by the trampoline, with its signal frame.
pub(super) unsafe extern "C" fn interrupted_thread(frame: *mut SignalFrame) {
    // SAFETY: the frame is on this thread's stack; the whole vector state is in it.
    unsafe {
        (*worker()).in_core.store(1, Ordering::Relaxed);
        let t = sched::current();
        (*t).extended = false;
        loop {
            if kernel::preempt_wanted(&*worker()) {
                sched::preempt();
            }
            if (*worker()).attention.load(Ordering::Relaxed) != 0 {
                kernel::empty_inbox(worker());
            }
            if (*t).attention.load(Ordering::Relaxed) {
                while let Some((info, action)) = next(t, &|| (*frame).context) {
                    run(t, &info, &action, &mut (*frame).context);
                }
            } else if kernel::prepare_return(t, &mut (*frame).context) {
                break;
            }
        }
    }
}

/// Takes the next due signal that has a handler; does the default thing about the others. `interrupted` tells what the signal
/// interrupts: that is where the process ends, if it does.
///
/// # Safety
/// `t` is the current thread.
unsafe fn next(t: *mut Thread, interrupted: &dyn Fn() -> UContext) -> Option<(SigInfo, actions::Action)> {
    // SAFETY: the caller's.
    unsafe {
        loop {
            (*t).attention.store(false, Ordering::Relaxed);
            // SeqCst: a sender adds a signal, then sets the flag; we clear the flag, then look. pairs: signal.attention
            fence(Ordering::SeqCst);
            let wanted = !(*t).identity.sig_mask.load(Ordering::Relaxed);
            let Some(info) = pending::take_for(t, wanted) else {
                pending::pass_on(t);
                return None;
            };
            if pending::deliverable(t) {
                (*t).attention.store(true, Ordering::Relaxed);
            }
            let signal = info[0] as u32;
            let action = actions::get(signal);
            match action.handler {
                IGNORE => {}
                DEFAULT if actions::ends_process(signal) => kernel::end_at(signal, interrupted()),
                DEFAULT => actions::default(signal),
                _ => {
                    if action.flags & l::SA_RESETHAND as u64 != 0 {
                        actions::use_up(signal);
                    }
                    return Some((info, action));
                }
            }
        }
    }
}

/// What a frame of [`run`] has below it when it calls a handler on another stack, at most.
const BELOW: usize = 512;

/// Runs one handler and restores the mask it found. Sparing with stack: handlers nest on stacks of 16 KiB.
///
/// # Safety
/// Inside the core; `context` is the interrupted one, whose stack pointer tells whether the alternate stack is in use.
unsafe fn run(t: *mut Thread, info: &SigInfo, action: &actions::Action, context: &mut UContext) {
    let signal = info[0] as u32;
    // SAFETY: the caller's; stacks are the thread's own.
    unsafe {
        let id = &mut (*t).identity;
        let alt = id.alt_stack;
        let in_alt = |at: usize| alt.size != 0 && (alt.base..alt.base + alt.size).contains(&at);
        let interrupted = context.regs.rsp as usize;
        let (on_alt, frame_on_alt) = (in_alt(interrupted), in_alt(stack_pointer()));
        let free = alternate_top(t, interrupted);
        let has_room = free == alt.base + alt.size || free - alt.base >= l::MINSIGSTKSZ as usize;
        let use_alt = action.flags & l::SA_ONSTACK as u64 != 0 && alt.size != 0 && !on_alt && has_room;
        let taken = ((*t).alt_taken, (*t).alt_taken_for);
        // The frame of an interrupted thread may be on the other stack than the handler is to run on.
        let top = match (use_alt, frame_on_alt) {
            (true, false) => free,
            (false, true) if !on_alt => {
                let top = interrupted - crate::entry::RED_ZONE;
                ((*t).alt_taken, (*t).alt_taken_for) = (stack_pointer() - BELOW, top);
                top
            }
            _ => 0,
        };
        if use_alt && alt.flags & AUTODISARM != 0 {
            id.alt_stack.size = 0;
        }
        let mask = id.sig_mask.load(Ordering::Relaxed);
        context.mask = if id.sig_restore_mask_set { id.sig_restore_mask } else { mask };
        id.sig_restore_mask_set = false;
        context.stack = super::context::Stack {
            base: alt.base,
            flags: if alt.size == 0 { 2 } else { i32::from(on_alt) },
            size: alt.size,
        };
        let own = if action.flags & l::SA_NODEFER as u64 != 0 { 0 } else { bit(signal) };
        id.sig_mask.store(mask | action.mask | own, Ordering::Relaxed);
        let recover = core::mem::replace(&mut (*t).recover, 0);
        let handler_at = core::mem::replace(&mut (*t).handler_at, stack_pointer());
        let in_setxid = core::mem::replace(&mut (*t).identity.in_setxid, signal == super::KICK);
        let floats = context.regs.floats;
        let extended = core::mem::replace(&mut (*t).extended, false); // a handler begins without
        if extended {
            keeping_extended(context, info, action.handler, top);
        } else {
            outside_core(context, info, action.handler, top);
        }
        (*t).extended = extended;
        (*t).recover = recover;
        (*t).handler_at = handler_at;
        ((*t).alt_taken, (*t).alt_taken_for) = taken;
        (*t).identity.in_setxid = in_setxid;
        context.regs.floats = floats;
        set_mask(t, context.mask);
        if use_alt && alt.flags & AUTODISARM != 0 {
            (*t).identity.alt_stack = alt;
        }
    }
}

/// Sets the current thread's mask; signals that become deliverable are looked at before the thread leaves the core.
///
/// # Safety
/// `t` is the current thread.
pub unsafe fn set_mask(t: *mut Thread, mask: u64) {
    const UNBLOCKABLE: u64 = bit(l::SIGKILL) | bit(l::SIGSTOP);
    // SAFETY: the caller's.
    unsafe {
        let before = (*t).identity.sig_mask.load(Ordering::Relaxed);
        (*t).identity.sig_mask.store(mask & !UNBLOCKABLE, Ordering::Relaxed);
        if before & !mask == 0 {
            return; // what could be delivered before has been told already
        }
        // SeqCst: a sender adds a signal, then looks at the mask; we set it, then look what is pending. pairs: signal.mask
        fence(Ordering::SeqCst);
        let kept = masks::kept();
        if kept & !mask != 0 {
            masks::let_go(kept & !mask);
        }
        masks::await_exec(before & !mask);
        if pending::deliverable(t) {
            (*t).attention.store(true, Ordering::Relaxed);
        }
    }
}

#[inline(never)]
unsafe fn keeping_extended(context: &mut UContext, info: &SigInfo, handler: usize, top: usize) {
    let mut area = Extended::new();
    // SAFETY: the caller's.
    unsafe {
        arch::save_extended(area.as_mut_ptr());
        outside_core(context, info, handler, top);
        arch::restore_extended(area.as_ptr());
    }
}

#[inline(always)]
unsafe fn outside_core(context: &mut UContext, info: &SigInfo, handler: usize, top: usize) {
    // SAFETY: the caller's; another worker, perhaps, after the call, and any GS base.
    unsafe {
        call(context, info, handler, top);
        base::arrive();
    }
}

/// With what a handler is entered: its address and arguments.
#[repr(C)]
struct Start {
    handler: u64,
    signal: u64,
    info: u64,
    context: u64,
}

/// The handler of `frame` is about to begin: signals that are due under its mask interrupt it before its first instruction. So
/// the kernel does: it makes a frame for one pending signal after the other, the lowest number first, each under the mask of the
/// one before, and returns to the program when none is left; the handler that it was done with last runs first. Then
/// leaves the core.
///
/// # Safety
/// Called by [`call`], inside the core, with its frame, on the same stack.
unsafe extern "C" fn enter(frame: *mut SignalFrame, handler: usize, start: *mut Start) {
    // SAFETY: the caller's; `start` is in its frame. The current thread.
    unsafe {
        *start = Start {
            handler: handler as u64,
            signal: (*frame).info[0] & 0xffff_ffff,
            info: (&raw const (*frame).info) as u64,
            context: (&raw const (*frame).context) as u64,
        };
        loop {
            let w = sched::this_worker();
            let t = (*w).current;
            (*w).in_core.store(0, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst); // SeqCst: as in `leave_core`. pairs: worker.in_core
            if (*w).attention.load(Ordering::Relaxed) == 0 && !(*t).attention.load(Ordering::Relaxed) {
                dispatch::depart(t);
                return;
            }
            // On another worker, perhaps, and with the program's GS base: the thread may have been interrupted meanwhile.
            base::arrive();
            before_start(t, frame, &mut *start);
        }
    }
}

/// Runs the handlers that interrupt another one at its start.
#[cold]
#[inline(never)]
unsafe fn before_start(t: *mut Thread, frame: *mut SignalFrame, start: &mut Start) {
    // SAFETY: as in `enter`.
    unsafe {
        if (*worker()).attention.load(Ordering::Relaxed) != 0 {
            kernel::empty_inbox(worker());
            if kernel::preempt_wanted(&*worker()) {
                sched::preempt();
            }
        }
        while (*t).attention.load(Ordering::Relaxed)
            && let Some((info, action)) = next(t, &|| (*frame).context)
        {
            let mut context = (*frame).context;
            let r = &mut context.regs;
            (r.rip, r.rdi, r.rsi, r.rdx) = (start.handler, start.signal, start.info, start.context);
            (r.rsp, r.rax) = (frame as u64, 0);
            r.flags &= !(0x1_0000 | 0x400 | 0x100); // RF, DF, TF
            run(t, &info, &action, &mut context);
            let r = &context.regs;
            *start = Start { handler: r.rip, signal: r.rdi, info: r.rsi, context: r.rdx };
        }
    }
}

/// Calls a handler. A frame for it is made below the stack pointer, or below `top` if that is not 0; its first word is the
/// address of the sigreturn instructions, so that to an unwinder the handler's caller was called by them, with the
/// interrupted context above. What the handler changed in the context is copied back. Leaves the core for it, by `enter`.
#[unsafe(naked)]
unsafe extern "C" fn call(context: *mut UContext, info: *const SigInfo, handler: usize, top: usize) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        "stmxcsr [rsp]",
        "fnstcw [rsp + 4]",
        "mov rbx, rsp",
        "mov r12, rdi",
        "mov r13, rdx",
        "mov rdx, rsi",
        "mov rax, rsp",
        "test rcx, rcx",
        "cmovnz rax, rcx",
        "sub rax, {size}",
        "and rax, -16",
        "sub rax, 8",
        "mov r15, rax",
        "mov rsp, rax",
        ".cfi_def_cfa rsp, 8",
        "lea rcx, [rip + {restore}]",
        "mov [rax], rcx",
        "lea rdi, [rax + {context}]",
        "mov rsi, r12",
        "mov ecx, {context_size}",
        "rep movsb",
        "lea rdi, [rax + {info}]",
        "mov rsi, rdx",
        "mov ecx, {info_size}",
        "rep movsb",
        "sub rsp, {start_size} + 8",
        ".cfi_adjust_cfa_offset {start_size} + 8",
        "mov rdi, r15",
        "mov rsi, r13",
        "mov rdx, rsp",
        "call {enter}",
        "mov rdi, [rsp + 8]",
        "mov rsi, [rsp + 16]",
        "mov rdx, [rsp + 24]",
        "xor eax, eax",
        "call [rsp]",
        "cld",
        "mov rdi, r12",
        "lea rsi, [r15 + {context}]",
        "mov ecx, {context_size}",
        "rep movsb",
        "mov rsp, rbx",
        "ldmxcsr [rsp]",
        "fldcw [rsp + 4]",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
        ".cfi_endproc",
        enter = sym enter,
        start_size = const size_of::<Start>(),
        restore = sym kernel::restore,
        size = const size_of::<SignalFrame>(),
        context = const core::mem::offset_of!(SignalFrame, context),
        context_size = const size_of::<UContext>(),
        info = const core::mem::offset_of!(SignalFrame, info),
        info_size = const size_of::<SigInfo>(),
    )
}
