//! The kernel-level handler.
//!
//! Runs on the worker's signal stack with all signals blocked, anywhere: in the program, in the core with its locks held.
//! It touches only atomics, pending queues (whose holders cannot be interrupted on the same kernel thread: they are in
//! the core, where this handler does not take locks but counts), and the interrupted context.
//!
//! # Safety
//! See each function; the handler's own rule is the paragraph above.

use super::actions::{self, Action, DEFAULT, IGNORE};
use super::context::{SignalFrame, UContext, float_size};
use super::deliver;
use super::masks::{QUEUED, base_mask, receives, relieve, worker_mask};
use super::pending;
use super::remote;
use super::{KICK, bit};
use crate::report;
use crate::wait::{e, fail};
use crate::words;
use crate::{dispatch, entry};
use core::arch::naked_asm;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use heddle_core::arch;
use heddle_core::clock;
use heddle_core::identity::SigInfo;
use heddle_core::prim::fence;
use heddle_core::sched::{SIGNAL_STACK, Worker, base, worker};
use heddle_core::sys::linux as l;
use heddle_core::thread::Thread;

const SA_RESTORER: u64 = 0x0400_0000;
pub(super) const ALL: u64 = u64::MAX;

/// Room for signals that arrived while the worker was in the core; emptied when it leaves.
pub struct Inbox {
    infos: [SigInfo; 16],
    pub(super) len: usize,
    /// It is nearly full: the worker blocks signals until it has been emptied, so that the kernel keeps what comes.
    pub(super) closed: bool,
}

/// A worker's `attention` while it routes the last signal of its inbox.
const ROUTING: u32 = 2;

/// Signals that an instruction may raise; the kernel ends a process that blocks them then.
pub(super) const FAULTS: u64 =
    bit(l::SIGSEGV) | bit(l::SIGBUS) | bit(l::SIGILL) | bit(l::SIGTRAP) | bit(l::SIGFPE) | bit(l::SIGSYS);

/// What the kernel is told for an armed signal.
pub fn our_action(flags: u64) -> Action {
    let keep = flags & (l::SA_NOCLDSTOP | l::SA_NOCLDWAIT) as u64;
    Action {
        handler: on_signal as *const () as usize,
        flags: keep | (l::SA_SIGINFO | l::SA_ONSTACK) as u64 | SA_RESTORER,
        restorer: restore as *const () as usize,
        mask: ALL,
    }
}

/// `__restore_rt`: unwinders and debuggers know a signal frame by these very bytes.
///
/// # Safety
/// Returned to by a handler only, with the stack pointer at the kernel's frame.
#[unsafe(naked)]
pub unsafe extern "C" fn restore() {
    naked_asm!(".byte 0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05")
}

/// The result of [`interruptible`] where the call has not been made. No system call returns it.
pub const NOT_MADE: isize = -4096;

/// A system call that is not made ([`NOT_MADE`]) if `*attention` is set, or the worker's inbox is not empty: what comes
/// before the kernel sleeps must not be lost, so the handler moves a thread that it finds between the first look and the
/// call past it.
#[unsafe(naked)]
unsafe extern "C" fn guarded(attention: *const AtomicBool, args: *const [usize; 6], number: usize) -> isize {
    naked_asm!(
        "mov r11, rdi",
        "mov rax, rdx",
        "mov rdi, [rsi]",
        "mov rdx, [rsi + 16]",
        "mov r10, [rsi + 24]",
        "mov r8, [rsi + 32]",
        "mov r9, [rsi + 40]",
        "mov rsi, [rsi + 8]",
        ".globl heddle_guarded_start",
        ".hidden heddle_guarded_start",
        "heddle_guarded_start:",
        "cmp byte ptr [r11], 0",
        "jne heddle_guarded_out",
        "cmp dword ptr gs:[{inbox}], 0",
        "jne heddle_guarded_out",
        ".globl heddle_guarded_call",
        ".hidden heddle_guarded_call",
        "heddle_guarded_call:",
        "syscall",
        "ret",
        ".globl heddle_guarded_out",
        ".hidden heddle_guarded_out",
        "heddle_guarded_out:",
        "mov rax, {not_made}",
        "ret",
        inbox = const core::mem::offset_of!(Worker, attention),
        not_made = const NOT_MADE,
    )
}

unsafe extern "C" {
    #[link_name = "heddle_guarded_start"]
    safe static GUARDED_START: u8;
    #[link_name = "heddle_guarded_call"]
    safe static GUARDED_CALL: u8;
    #[link_name = "heddle_guarded_out"]
    safe static GUARDED_OUT: u8;
}

/// Makes a system call that a signal for `t` interrupts, even one that comes just before the kernel sleeps, and any signal
/// that the kernel gives to this worker, whoever it is for: nobody else would route it.
///
/// One that comes before the call is made is told apart ([`NOT_MADE`]): to the program it came before the call, so that its
/// handler runs and the call is made then. If that were EINTR, calls that never wait, as opening a file, would fail as no
/// program expects.
///
/// # Safety
/// The current thread, on a worker; the program's call.
pub unsafe fn interruptible(t: *const Thread, number: usize, args: &[usize; 6]) -> isize {
    // SAFETY: the caller's; the flag lives in the control block.
    unsafe { guarded(&raw const (*t).attention, args, number) }
}

/// Makes a worker look at its thread's signals and its own mask; one kick under way is enough.
pub fn kick(w: &Worker) {
    // SeqCst: the sender has written what the worker is to see, then looks whether a kick is under way; the handler notes
    // that it has come, then looks at what was written. pairs: worker.kicked
    fence(Ordering::SeqCst);
    if w.kicked.swap(1, Ordering::Relaxed) == 0 && !send_kick(w.tid.load(Ordering::Relaxed)) {
        w.kicked.store(0, Ordering::Relaxed);
    }
}

/// Kicks are real-time signals: the kernel refuses them while the user has as many of those pending as RLIMIT_SIGPENDING
/// allows. That mostly ends soon. Returns whether it was sent.
fn send_kick(tid: i32) -> bool {
    for _ in 0..64 {
        // SAFETY: the signal's handler is ours.
        let r = unsafe { heddle_core::sys!(l::__NR_tgkill, PROCESS.load(Ordering::Relaxed), tid, KICK) };
        if r != fail(e::EAGAIN) {
            return r == 0;
        }
        heddle_core::lock::yield_cpu();
    }
    false
}

static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Remembers the process id, at start and in a forked child.
pub fn set_process(pid: i32) {
    PROCESS.store(pid, Ordering::Relaxed);
}

/// The process id.
pub fn process() -> i32 {
    PROCESS.load(Ordering::Relaxed)
}

/// Asks the worker's thread to step behind the others: its wish is in the record.
///
/// # Safety
/// Called by the monitor.
pub unsafe fn preempt(tid: i32) {
    send_kick(tid);
}

/// Whether the monitor wants the thread of this worker, ours, to step behind the others; clears the wish.
pub fn preempt_wanted(w: &Worker) -> bool {
    w.preempt.load(Ordering::Relaxed) != 0 && {
        w.preempt.store(0, Ordering::Relaxed);
        true
    }
}

/// Gives a worker its signal stack and opens its mask.
///
/// # Safety
/// On the worker's kernel thread, signals blocked, its record in GS base.
pub unsafe fn worker_started(w: &mut Worker) {
    let stack = super::context::Stack { base: w.signal_stack, flags: 0, size: SIGNAL_STACK };
    relieve(w);
    let open = worker_mask(w);
    // SAFETY: the stack is the worker's own.
    unsafe {
        heddle_core::sys!(l::__NR_sigaltstack, &stack as *const _, 0);
        heddle_core::sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &open as *const _, 0, 8);
    }
}

/// Whether a signal is the direct effect of the interrupted instruction.
fn is_fault(signal: u32, info: &SigInfo) -> bool {
    let code = (info[1] as u32) as i32;
    matches!(signal, l::SIGSEGV | l::SIGBUS | l::SIGILL | l::SIGFPE | l::SIGTRAP | l::SIGSYS) && code > 0
}

unsafe extern "C" fn on_signal(signal: u32, info: *mut SigInfo, context: *mut UContext) {
    // SAFETY: the kernel's frame; our own record.
    unsafe {
        let at = (*context).regs.rip;
        if is_fault(signal, &*info)
            && let Some(next) =
                words::after_fault(at).or_else(|| entry::after_fault(at)).or_else(|| base::after_fault(at))
        {
            (*context).regs.rip = next;
            return;
        }
        let found = arch::worker_pointer();
        let w = base::interrupted(&raw const found as usize);
        if w.is_null() || w as usize == found {
            return on_worker(signal, info, context, w);
        }
        // What is in GS base is the program's.
        if !base::listed().is_null() {
            report::line(format_args!("the program has put back what it found in GS base: use --mode kernel"));
            actions::default(l::SIGABRT);
        }
        arch::set_worker_pointer(w as usize);
        on_worker(signal, info, context, w);
        if (*w).in_core.load(Ordering::Relaxed) != 0 {
            (*(*w).current).gs_base = found; // it is in the core now
        } else if found != 0 {
            arch::set_worker_pointer(found);
        }
    }
}

/// As [`on_signal`], on worker `w`, with its record in GS base, or on a kernel thread that is not ours, `w` being null.
unsafe fn on_worker(signal: u32, info: *mut SigInfo, context: *mut UContext, w: *mut Worker) {
    // SAFETY: the kernel's frame; our own record.
    unsafe {
        let request = signal == KICK && remote::is_request(&*info);
        let kick = signal == KICK && !request;
        if w.is_null() {
            if request {
                return remote::pass_on(&*info);
            }
            // A kernel thread that is not ours, or a vfork child: as if the handler were the program's own.
            let a = actions::get(signal);
            if a.handler > IGNORE {
                let f: extern "C" fn(u32, *mut SigInfo, *mut UContext) = core::mem::transmute(a.handler);
                f(signal, info, context);
            } else if a.handler == DEFAULT && signal != KICK {
                actions::default(signal);
            }
            return;
        }
        if signal == KICK && crate::robust::ends_without(w) {
            crate::robust::stand_still();
        }
        if kick && (*info)[1] as u32 as i32 == 0 {
            report::dump(); // somebody outside wants to know: kill -33
            return;
        }
        if kick {
            (*w).kicked.store(0, Ordering::Relaxed);
            // SeqCst: see `kick`. pairs: worker.kicked
            fence(Ordering::SeqCst);
            heddle_core::sched::RT.errands.attend(&(*w).errand);
            crate::scheduling::kicked(w);
            (*context).mask = worker_mask(&*w);
        }
        let t = (*w).current;
        let in_core = (*w).in_core.load(Ordering::Relaxed) != 0 || base::is_arriving((*context).regs.rip);
        if is_fault(signal, &*info) {
            fault(w, signal, &*info, &mut *context, in_core);
            return;
        }
        if !kick {
            ARRIVING.fetch_add(1, Ordering::Relaxed);
        }
        if t.is_null() && (*w).asleep.load(Ordering::Relaxed) != 0 {
            if !kick {
                // Without its processor, so that what becomes runnable is injected, and somebody woken for it.
                let p = core::mem::replace(&mut (*w).processor, core::ptr::null());
                arrive_after_inbox(w, &*info);
                (*w).processor = p;
            }
            return;
        }
        if in_core || t.is_null() {
            let rip = (*context).regs.rip as usize;
            if (&raw const GUARDED_START as usize..=&raw const GUARDED_CALL as usize).contains(&rip) {
                (*context).regs.rip = &raw const GUARDED_OUT as u64;
            }
            if kick {
                if (*w).preempt.load(Ordering::Relaxed) != 0 {
                    // A note: a thread that makes one call after the other is seldom found in the program.
                    (*w).attention.store(1, Ordering::Relaxed);
                }
            } else if inbox_add(w, &*info) {
                (*context).mask |= ALL & !FAULTS;
            }
            return;
        }
        if kick {
            let due = (*t).attention.load(Ordering::Relaxed);
            let preempted = (*w).preempt.load(Ordering::Relaxed) != 0;
            if preempted {
                (*t).note_preempted((*context).regs.rip as usize);
            }
            if due || preempted {
                redirect(t, &mut *context, false, due);
            }
            return;
        }
        // In the program: no lock of ours is held by this kernel thread.
        (*w).in_core.store(1, Ordering::Relaxed);
        arrive_after_inbox(w, &*info);
        (*w).in_core.store(0, Ordering::Relaxed);
        if (*t).attention.load(Ordering::Relaxed) {
            let signal = if request { remote::signal_of(&*info) } else { signal };
            redirect(t, &mut *context, actions::get(signal).flags & l::SA_ONSTACK as u64 != 0, true);
        }
    }
}

/// Signals that handlers have seen and not routed yet.
static ARRIVING: AtomicU32 = AtomicU32::new(0);

/// No handler is at work, in a forked child.
pub fn reset() {
    ARRIVING.store(0, Ordering::Relaxed);
}

/// Routes a signal that a handler saw.
unsafe fn arrive(info: &SigInfo) {
    // SAFETY: the caller's.
    unsafe { route(info[0] as u32, info) };
    // Release: the thread it is for has been told. pairs: signal.arriving
    ARRIVING.fetch_sub(1, Ordering::Release);
}

/// As [`arrive`], in the handler, where no lock of ours is held: what came into the core just before comes first.
unsafe fn arrive_after_inbox(w: *mut Worker, info: &SigInfo) {
    // SAFETY: signals are blocked, so nobody else uses the inbox.
    unsafe {
        let b = inbox(w);
        for i in 0..core::mem::replace(&mut (*b).len, 0) {
            let earlier = (*b).infos[i];
            arrive(&earlier);
        }
        arrive(info);
    }
}

/// Decides whom a signal that the kernel gave to a worker is for.
unsafe fn route(signal: u32, info: &SigInfo) {
    if signal == KICK {
        // SAFETY: inside the core, or in the handler in the program.
        return unsafe { remote::serve(info) };
    }
    let t = heddle_core::sched::current();
    // SAFETY: inside the core.
    unsafe {
        // SIGPIPE and SIGXFSZ are for the thread whose call raised them.
        const SI_TIMER: i32 = -2;
        const SI_TKILL: i32 = -6;
        if actions::is_about_child(signal, info[1] as u32 as i32) {
            return;
        }
        let _ = if !t.is_null() && matches!(signal, l::SIGPIPE | l::SIGXFSZ) {
            pending::send_to_thread((*t).identity.tid.load(Ordering::Relaxed), info)
        } else if info[1] as u32 as i32 == SI_TIMER {
            let mut info = *info;
            if !crate::timer::expired(&mut info) {
                return;
            }
            match crate::timer::target(info[2] as u32) {
                Some(target) => pending::send_to_thread(target, &info),
                None => pending::send_to_process(&info),
            }
        } else if info[1] as u32 as i32 == SI_TKILL && (*worker()).tid.load(Ordering::Relaxed) == process() {
            // Main's: sent by another process, or before the runtime started.
            pending::send_to_thread(process() as u32, info)
        } else {
            pending::send_to_process(info)
        };
    }
}

/// A worker's inbox lies at the foot of its signal stack.
pub(super) unsafe fn inbox(w: *mut Worker) -> *mut Inbox {
    // SAFETY: the signal stack is large; frames start at its other end.
    unsafe { (*w).signal_stack as *mut Inbox }
}

/// Returns whether the kernel is to keep what comes next.
unsafe fn inbox_add(w: *mut Worker, info: &SigInfo) -> bool {
    // SAFETY: only this kernel thread uses the inbox: this handler with signals blocked, and `empty_inbox` likewise.
    unsafe {
        let b = inbox(w);
        let room = (*b).infos.len();
        if (*b).len < room {
            (*b).infos[(*b).len] = *info;
            (*b).len += 1;
        } else {
            ARRIVING.fetch_sub(1, Ordering::Relaxed);
        }
        (*w).attention.store(1, Ordering::Relaxed);
        // Some room is left for what comes before the mask is in force everywhere (`after_raw` opens it).
        (*b).closed = (*b).len >= room - 4;
        (*b).closed
    }
}

/// Routes the signals that arrived while the worker was in the core.
///
/// # Safety
/// Inside the core, no locks held.
#[cold]
pub unsafe fn empty_inbox(w: *mut Worker) {
    loop {
        let mut info: SigInfo = [0; 16];
        let (all, mut before) = (ALL, 0u64);
        // SAFETY: signals are blocked while the inbox is read.
        unsafe {
            heddle_core::sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &all as *const _, &mut before as *mut _, 8);
            let b = inbox(w);
            let any = (*b).len != 0;
            if any {
                info = (*b).infos[0];
                let len = (*b).len;
                (*b).infos.copy_within(1..len, 0);
                (*b).len -= 1;
            }
            let last = (*b).len == 0;
            if last {
                (*w).attention.store(if any { ROUTING } else { 0 }, Ordering::Relaxed);
                if (*b).closed {
                    (*b).closed = false;
                    before = worker_mask(&*w);
                }
            }
            heddle_core::sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &before as *const _, 0, 8);
            if any {
                arrive(&info);
                // Release: the signal is pending. A handler on this kernel thread may have set it to 1 meanwhile.
                // pairs: worker.inbox
                let _ = (*w).attention.compare_exchange(ROUTING, 0, Ordering::Release, Ordering::Relaxed);
            }
            if last {
                return;
            }
        }
    }
}

/// Takes the signals that the kernel holds for the process, and gives them to the threads they are for. Called before a call
/// returns what another process did (the byte it wrote, the word it changed, its end): if that process sent a signal first,
/// the program may count on it, while the worker that the kernel chose for it may not have run yet, or not have got to the
/// end of its handler. One gap is left: a worker that the kernel takes the CPU from between choosing the signal and entering
/// the handler. Costs nothing while no handler is set.
///
/// # Safety
/// Inside the core, no locks held.
pub unsafe fn collect() {
    const PATIENCE: u64 = 2_000_000;
    /// For the receiver, which may have to wait for a CPU first, with dozens of others that compute.
    const PATIENCE_QUEUED: u64 = 200_000_000;
    // SAFETY: the caller's.
    unsafe { super::masks::await_exec(actions::armed()) };
    let wanted = actions::armed() & !base_mask();
    if wanted == 0 {
        return;
    }
    // SAFETY: the caller's.
    unsafe {
        let (queued, others) = (wanted & QUEUED, wanted & !QUEUED);
        if others != 0 || receives(&*worker()) {
            take_all(others);
        }
        // A worker in a call that cannot be interrupted keeps what arrived for as long as that takes: not for ever.
        let mut start = 0;
        loop {
            let w = worker();
            let (mut held, mut patience) = (0u64, PATIENCE);
            if queued != 0 && !receives(&*w) {
                heddle_core::sys!(l::__NR_rt_sigpending, &mut held as *mut _, 8);
            }
            if held & queued != 0 {
                patience = PATIENCE_QUEUED;
            // Acquire: what the handler told our thread. pairs: signal.arriving
            } else if ARRIVING.load(Ordering::Acquire) == 0 {
                return;
            }
            if (*w).attention.load(Ordering::Relaxed) != 0 {
                empty_inbox(w);
                continue;
            }
            let now = clock::now();
            if start == 0 {
                start = now;
            }
            if now - start >= patience {
                return;
            }
            heddle_core::sys!(l::__NR_sched_yield);
        }
    }
}

/// Takes what the kernel holds of `wanted` for the process. If that is nothing, it is a call all the same: when it returns, the
/// receiver has what was sent before in its inbox.
unsafe fn take_all(wanted: u64) {
    let (mut info, now): (SigInfo, [u64; 2]) = ([0; 16], [0; 2]);
    // SAFETY: writes the local; inside the core.
    unsafe {
        while heddle_core::sys!(l::__NR_rt_sigtimedwait, &wanted as *const _, info.as_mut_ptr(), now.as_ptr(), 8) > 0 {
            route(info[0] as u32, &info);
        }
    }
}

/// A fault in the program, or in one of the core's accesses to the program's memory.
unsafe fn fault(w: *mut Worker, signal: u32, info: &SigInfo, context: &mut UContext, in_core: bool) {
    // SAFETY: our own record and the kernel's frame.
    unsafe {
        let t = (*w).current;
        if in_core && !t.is_null() && (*t).recover != 0 && matches!(signal, l::SIGSEGV | l::SIGBUS) {
            // The core touched the program's memory for a system call, holding no lock: the call fails with EFAULT.
            context.regs.rbx = (*t).recover as u64;
            context.regs.rsp = entry::saved_registers((*t).recover) as u64;
            context.regs.rip = entry::abandon as *const () as u64;
            (*t).recover = 0;
            return;
        }
        let action = actions::get(signal);
        if in_core && signal == l::SIGSYS && action.handler > IGNORE {
            // A filter of the program's traps a call that the core makes. Its own: the program has not made it, and what cannot be
            // done without fails. The program's: its handler comes when the core is left, finds the number in rax, as the kernel
            // leaves it, and puts the result there.
            let number = info[3] as u32;
            let frame = if t.is_null() { 0 } else { (*t).recover } as *const entry::Frame;
            if !frame.is_null() && (*frame).rax == u64::from(number) {
                // Handlers compare the place of the call with that in their context.
                let mut info = *info;
                info[2] = crate::sites::site_end((*frame).continuation as usize) as u64;
                let _ = pending::send_to_thread((*t).identity.tid.load(Ordering::Relaxed), &info);
            } else {
                // As files answer that cannot be asked without waiting: they are polled then.
                let refusal =
                    if matches!(number, l::__NR_preadv2 | l::__NR_pwritev2) { e::EOPNOTSUPP } else { e::ENOSYS };
                context.regs.rax = fail(refusal) as u64;
            }
            return;
        }
        let blocked = !t.is_null() && (*t).identity.sig_mask.load(Ordering::Relaxed) & bit(signal) != 0;
        if t.is_null() || in_core || blocked || action.handler <= IGNORE {
            report::fault(t, signal, info, context, in_core);
            crate::robust::process_ends();
            // The default action, with the faulting registers: return to the instruction with the signal's action reset.
            let plain = Action::default();
            heddle_core::sys!(l::__NR_rt_sigaction, signal, &plain as *const _, 0, 8);
            // Nothing else, such as a kick, comes before that.
            context.mask = ALL & !bit(signal);
            return;
        }
        (*w).in_core.store(1, Ordering::Relaxed);
        let _ = pending::send_to_thread((*t).identity.tid.load(Ordering::Relaxed), info);
        (*w).in_core.store(0, Ordering::Relaxed);
        redirect(t, context, action.flags & l::SA_ONSTACK as u64 != 0, true);
    }
}

/// Changes the interrupted context so that the thread goes on in the delivery code, with a copy of the interrupted context
/// as its signal frame. The frame is made on the thread's own stack. It is made on its alternate stack if the signal's
/// handler runs there (`alternate`), or if the stack pointer is not known to be in the thread's own stack, since a program
/// may keep it where nothing can be pushed (Erlang's and OCaml's compiled code do) if it has all its handlers run
/// elsewhere, or if its own stack has no room. With no room anywhere the thread dies if a signal is `due` and no handler runs, and is not
/// disturbed otherwise.
unsafe fn redirect(t: *mut Thread, context: &mut UContext, alternate: bool, due: bool) {
    // SAFETY: the context is the kernel's; the stack below the red zone is free, and so is the alternate one when the
    // stack pointer is not in it.
    unsafe {
        let floats = context.regs.floats;
        let size = float_size(floats);
        let own = context.regs.rsp as usize - entry::RED_ZONE;
        let id = &(*t).identity;
        let alt = &id.alt_stack;
        let place = |sp: usize| {
            let new_floats = (sp - size) & !63;
            (new_floats, ((new_floats - size_of::<SignalFrame>()) & !15) - 8)
        };
        // What delivers takes some 900 bytes; the rest is the handler's.
        let need = |sp: usize| place(sp).1 - 1536;
        let on_alt = (alt.base..alt.base + alt.size).contains(&(context.regs.rsp as usize));
        let free = deliver::alternate_top(t, context.regs.rsp as usize);
        let alt_has_room = !on_alt && alt.size >= 4096 && need(free) >= alt.base;
        let to_alt = alternate && !on_alt && alt.size != 0 && (free == alt.base + alt.size || alt_has_room);
        // The guard is part of the stack as libc tells it.
        const NEAR: usize = 64 << 10;
        let base = id.stack_base;
        let known = base != 0 && (base..base + id.stack_size).contains(&own);
        let full = known && (need(own) < base || need(own) - base < NEAR && !is_mapped(need(own)));
        let mut sp = own;
        if to_alt || alt_has_room && (!known || full) {
            sp = free;
        } else if full {
            // In a handler, whose end is on this stack: what is due waits for that. (Our frames are larger than the kernel's.
            // And who sent a signal may have seen the mask from before the handler.)
            let in_handler = (own..base + id.stack_size).contains(&(*t).handler_at);
            if !due || in_handler || !pending::deliverable(t) {
                return;
            }
            report::no_room(t);
            actions::default(l::SIGSEGV);
        }
        let (new_floats, frame) = place(sp);
        let new_floats = new_floats as *mut u8;
        core::ptr::copy_nonoverlapping(floats, new_floats, size);
        let frame = frame as *mut SignalFrame;
        (*frame).restorer = restore as *const () as usize;
        (*frame).context = *context;
        (*frame).context.regs.floats = if size == 0 { core::ptr::null_mut() } else { new_floats };
        (*frame).context.mask = (*t).identity.sig_mask.load(Ordering::Relaxed);
        context.regs.rsp = frame as u64;
        context.regs.rip = trampoline as *const () as u64;
        context.regs.rdi = frame as u64;
        context.regs.flags &= !(0x400 | 0x100); // DF, TF
        // From here on the thread is in the core: a signal that the kernel has kept for the moment of our return must not
        // find it in the trampoline and take that for the program. Kicks queue up while the worker has no CPU, and each of
        // them would put another frame on a stack that may be small. No system call is to be abandoned any more.
        (*t).recover = 0;
        (*worker()).in_core.store(1, Ordering::Relaxed);
    }
}

/// Whether 8 bytes at `address` can be read, found out without a fault.
fn is_mapped(address: usize) -> bool {
    const NO_SUCH_HOW: usize = 99;
    // SAFETY: the kernel reads the set, then refuses the call.
    let r = unsafe { heddle_core::sys!(l::__NR_rt_sigprocmask, NO_SUCH_HOW, address, 0, 8) };
    r == -(linux_raw_sys::errno::EINVAL as isize)
}

/// Where an interrupted thread goes on: on its own stack, as if called by `restore` with the signal frame above.
#[unsafe(naked)]
unsafe extern "C" fn trampoline() {
    naked_asm!(
        ".cfi_startproc",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {interrupted}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "ret", // to `restore`, with the stack pointer at the context
        ".cfi_endproc",
        interrupted = sym deliver::interrupted_thread,
    )
}

/// Ends the process by `signal`, whose default action that is, at `place`: a core file shows the thread there, and not in what
/// is ours below. (The stack is as the program left it but for what lies below the red zone.)
///
/// # Safety
/// The current thread, inside the core. `place` is where it goes on in the program.
pub unsafe fn end_at(signal: u32, mut place: UContext) -> ! {
    let all = ALL;
    // SAFETY: the process ends; the signal comes when the kernel has loaded the registers.
    unsafe {
        let w = worker();
        crate::robust::process_ends();
        actions::tell_default(signal);
        heddle_core::sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &raw const all, 0, 8);
        heddle_core::sys!(l::__NR_tgkill, process(), (*w).tid.load(Ordering::Relaxed), signal);
        place.mask = ALL & !bit(signal);
        place.stack = super::context::Stack { base: (*w).signal_stack, flags: 0, size: SIGNAL_STACK };
        go_to(&raw const place)
    }
}

/// Loads the registers of a context.
#[unsafe(naked)]
unsafe extern "C" fn go_to(context: *const UContext) -> ! {
    naked_asm!("mov rsp, rdi", "jmp {restore}", restore = sym restore)
}

/// Makes a signal frame ready for `rt_sigreturn` on the present worker, unless something has come that the thread must
/// look at first: `false`. No signal arrives between this and the return: those that come are blocked until then.
///
/// # Safety
/// The current thread `t` is about to return through the frame of `context`.
pub unsafe fn prepare_return(t: *const Thread, context: &mut UContext) -> bool {
    let all = ALL;
    // SAFETY: our own record; blocked signals arrive after sigreturn has opened the mask.
    unsafe {
        let w = worker();
        let open = worker_mask(&*w);
        heddle_core::sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &all as *const _, 0, 8);
        // A kick that came before this found us in the core and is gone; what it was for is visible.
        if (*t).attention.load(Ordering::Relaxed) || (*w).attention.load(Ordering::Relaxed) != 0 {
            heddle_core::sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &open as *const _, 0, 8);
            return false;
        }
        context.mask = open;
        context.stack = super::context::Stack { base: (*w).signal_stack, flags: 0, size: SIGNAL_STACK };
        (*w).in_core.store(0, Ordering::Relaxed);
        dispatch::depart(t);
        true
    }
}
