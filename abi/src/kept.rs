//! Threads that the library crate keeps: one whose function has returned rests, with all that libc made for it, until it
//! is given another.
//!
//! Each has a [`Slot`], the library's record of it. What a function leaves behind in the thread (thread-locals, libc's own
//! state) is the library's to look at, which ends the thread instead of keeping it if there is anything; what Heddle keeps
//! for it is looked at here (`has_traces`).
//!
//! # Protocol of [`Slot::state`]
//! `RUNNING`, from before the launch; then by one exchange `DONE` or `ENDING`, by the thread. Who holds the handle may before that
//! change `RUNNING` to itself (a user thread that waits), to `WAITED` (somebody waits on the word as a futex), or to
//! `DETACHED`. The thread finds by its exchange whom to tell. A user thread that waits has written its wait into
//! `Thread::join_wait`; a signal may end that wait, and the next one is written there before the state is looked at again:
//! the thread exchanges the state, then reads the wait; the waiter writes the wait, then (a full fence between) reads the
//! state; so either the waiter sees the end, or the thread claims the wait that is open. A thread that waits stays in the state until the
//! end, so when it is found there, no exchange is needed: the state is written, and the claim of the wait is the fence, also if it fails.
//!
//! # Safety
//! Slots outlive their threads and handles; the library sees to that.

use crate::direct::{enter, enter_own, leave};
use crate::signal::pending;
use crate::wait;
use core::arch::{asm, naked_asm};
use core::ffi::c_void;
use core::sync::atomic::{Ordering, compiler_fence};
use heddle_core::arch;
use heddle_core::park::{Reason, Ticket};
use heddle_core::sched::{self, RT};
use heddle_core::thread::{State, Thread};
use heddle_interface::finished::{LAUNCHED, TRACES, UNWANTED};
use heddle_interface::slot::{DETACHED, DONE, ENDING, RUNNING, WAITED};
use heddle_interface::{Copy, Slot, joined};

/// # Safety
/// A slot of a thread that has run.
#[inline(always)]
unsafe fn thread_of(slot: *const Slot) -> *mut Thread {
    // SAFETY: the caller's.
    unsafe { (*slot).thread.load(Ordering::Relaxed).cast() }
}

/// The next thread that the caller creates has this slot and may be kept; null: it has none. False: the caller is not one of
/// our threads.
///
/// # Safety
/// A slot of its own.
pub unsafe fn prepare(slot: *mut Slot) -> bool {
    // SAFETY: the caller's; a thread's own field.
    unsafe { sched::calling().as_mut().map(|t| t.next_slot = slot as usize).is_some() }
}

/// Gives `t`, which `parent` is creating, the slot that was prepared, and makes it runnable.
///
/// # Safety
/// Inside the core; a new thread that is in no queue.
pub unsafe fn ready(parent: *mut Thread, t: *mut Thread) {
    // SAFETY: the caller's.
    unsafe {
        let slot = core::mem::take(&mut (*parent).next_slot);
        if slot == 0 {
            return sched::ready(t);
        }
        (*t).slot = slot;
        (*(slot as *mut Slot)).thread.store(t.cast(), Ordering::Relaxed);
        sched::launch(sched::this_processor(), t);
    }
}

/// The calling thread's slot, or null.
///
/// # Safety
/// A thread's own call.
pub unsafe fn own() -> *mut Slot {
    // SAFETY: the caller's; the block is the thread's wherever it runs.
    unsafe { sched::calling().as_ref().map_or(core::ptr::null_mut(), |t| t.slot as *mut Slot) }
}

/// Has a thread that rests run what `write` puts into its slot, and answers the slot. Null: there is none, or the caller's
/// attributes are to be inherited, or the caller is not one of our threads.
///
/// # Safety
/// `write` leaves the state `RUNNING`, and may be called with `context` inside the core.
#[inline]
pub unsafe fn start(write: Copy, context: *mut c_void) -> *mut Slot {
    // SAFETY: the caller's.
    unsafe {
        let Some(parent) = enter() else { return core::ptr::null_mut() };
        let plain = (*parent).attributes.load(Ordering::Relaxed) == 0 && !(*parent).apart;
        let resting = if plain { sched::take_resting() } else { None };
        let slot = resting.map_or(core::ptr::null_mut(), |t| {
            let slot = (*t).slot as *mut Slot;
            // As a new thread has it from its maker.
            arch::set_arithmetic(&raw mut (*t).context, arch::arithmetic());
            write(slot, context);
            launch_from(parent, t);
            slot
        });
        leave(parent);
        slot
    }
}

/// Lets a thread whose function has returned run what its slot says.
///
/// # Safety
/// The state is `RUNNING`, and nobody else refers to the thread.
pub unsafe fn launch(slot: *mut Slot) {
    // SAFETY: the caller's.
    unsafe {
        match enter() {
            Some(parent) => {
                launch_from(parent, thread_of(slot));
                leave(parent);
            }
            None => {
                (*thread_of(slot)).cpu_time.store(0, Ordering::Relaxed);
                sched::launch(None, thread_of(slot));
            }
        }
    }
}

/// # Safety
/// As [`launch`]; `parent` is the current thread, in the core.
#[inline]
unsafe fn launch_from(parent: *mut Thread, t: *mut Thread) {
    // SAFETY: the caller's.
    unsafe {
        let id = &mut (*t).identity;
        id.inherit_name(&(*parent).identity);
        id.sig_mask.store((*parent).identity.sig_mask.load(Ordering::Relaxed), Ordering::Relaxed);
        (*t).cpu_time.store(0, Ordering::Relaxed);
        if pending::deliverable(t) {
            (*t).attention.store(true, Ordering::Relaxed);
        }
        let p = sched::this_processor();
        if let Some(p) = p {
            p.counters.created.add(1);
        }
        sched::launch(p, t);
    }
}

/// Waits for the end of what the thread does, has `read` take the result, and lets the thread rest. One of [`joined`].
///
/// # Safety
/// The caller has the handle, which is used up unless the answer is `ELSEWHERE`. `read` may be called with `context` inside
/// the core.
#[inline]
pub unsafe fn join(slot: *mut Slot, read: Copy, context: *mut c_void) -> u32 {
    // SAFETY: the caller's.
    unsafe {
        let Some(mut t) = enter() else { return joined::ELSEWHERE };
        loop {
            // Acquire: what it did, its result, is visible. pairs: kept.state
            match (*slot).state.load(Ordering::Acquire) {
                DONE => {
                    read(slot, context);
                    let kept = sched::give_back(thread_of(slot));
                    leave(t);
                    return if kept { joined::RESTS } else { joined::SURPLUS };
                }
                ENDING => {
                    leave(t);
                    return joined::ENDS;
                }
                _ => {}
            }
            let ticket = (*t).park.open();
            (*t).join_wait.store(ticket.word(), Ordering::Relaxed);
            // SeqCst: a full fence, whatever the answer: the wait is written and open before state and attention are read;
            // see the protocol, and `wait::begin`. pairs: kept.state signal.attention
            let linked = match (*slot).state.compare_exchange(RUNNING, t as usize, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => true,
                Err(now) => now == t as usize,
            };
            if linked && !(*t).attention.load(Ordering::Relaxed) {
                (*t).set_state(State::Futex);
                if sched::park_for(thread_of(slot)) == Reason::Woken {
                    continue;
                }
            } else {
                wait::abandon(t, ticket);
                if !linked && (*slot).state.load(Ordering::Relaxed) == WAITED {
                    leave(t);
                    return joined::ELSEWHERE;
                }
            }
            // Signals are delivered on the way out.
            leave(t);
            t = enter_own();
        }
    }
}

/// Whether the current thread has anything of what Heddle keeps for it that the next function must not find.
#[inline]
fn has_traces(t: &Thread) -> bool {
    t.identity.alt_stack.size != 0
        || t.apart
        || t.identity.sig_pending.load(Ordering::Relaxed) != 0
        || t.attributes.load(Ordering::Relaxed) != 0
}

/// The calling thread's function has returned and left no traces in libc: tells who waits, and rests until the thread is
/// launched again.
///
/// A function like any other, but it returns by a jump, and is to be called by one, with the return address pushed: then the CPU, which
/// predicts where functions return to by where they were called from, on whichever stack, has nothing of it on its list. As a rule it leaves
/// for who waits for the thread, which goes on with returns of its own, and comes back on behalf of one who is about to.
///
/// # Safety
/// The thread's own slot. From here on the slot is whoever's has the handle, until the next launch.
#[unsafe(naked)]
pub unsafe extern "C" fn finish(slot: *mut Slot) -> u32 {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rbp, 0",
        "push rbx",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rbx, 0",
        "push r12",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r12, 0",
        "push r13",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r13, 0",
        "push r14",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r14, 0",
        "push r15",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r15, 0",
        "mov rsi, rsp",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        // For debuggers.
        "lea rax, [rip + 2f]",
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "jmp {finish}",
        ".cfi_adjust_cfa_offset -8",
        "nop",
        "2: ud2",
        ".cfi_endproc",
        finish = sym finish_above,
    )
}

/// [`finish`], above what that has saved.
unsafe extern "C" fn finish_above(slot: *mut Slot, saved: *const usize) -> ! {
    // SAFETY: the caller's. What is saved lies where this thread's stack was.
    unsafe {
        let answer = finish_here(slot);
        asm!(
            "mov rsp, {saved}",
            "pop r15",
            "pop r14",
            "pop r13",
            "pop r12",
            "pop rbx",
            "pop rbp",
            "pop rcx",
            "jmp rcx",
            saved = in(reg) saved,
            in("eax") answer,
            options(noreturn),
        )
    }
}

#[inline(always)]
unsafe fn finish_here(slot: *mut Slot) -> u32 {
    // SAFETY: the caller's.
    unsafe {
        let t = enter_undisturbed();
        if has_traces(&*t) {
            leave(t);
            return TRACES;
        }
        let mask = (*t).identity.sig_mask.load(Ordering::Relaxed);
        (*t).identity.sig_mask.store(u64::MAX, Ordering::Relaxed);
        (*t).set_state(State::Resting);
        // Acquire: the wait of who is linked is written. pairs: kept.state
        let linked = (*slot).state.load(Ordering::Acquire);
        let waiter = if is_thread(linked) {
            // Release: the result happens before who sees the state goes on. pairs: kept.state
            (*slot).state.store(DONE, Ordering::Release);
            claim_linked(linked as *mut Thread)
        } else {
            // SeqCst: as above, and a full fence between it and the wait that is read (see the protocol), and between the
            // mask and the look at what is pending. pairs: kept.state signal.mask
            let before = (*slot).state.swap(DONE, Ordering::SeqCst);
            if before == DETACHED {
                (*t).set_state(State::Runnable);
                (*t).identity.sig_mask.store(mask, Ordering::Relaxed);
                leave(t);
                return UNWANTED;
            }
            waiter(slot, before)
        };
        pass_on(t);
        // One call, which is inlined: a return here would be one from another stack.
        sched::rest(waiter);
        leave(t);
        LAUNCHED
    }
}

/// The calling thread has left no traces, and nobody has a handle: it rests until it is launched again. False: there are
/// enough that do.
///
/// # Safety
/// As [`finish`].
pub unsafe fn rest() -> bool {
    // SAFETY: the caller's.
    unsafe {
        let t = enter_undisturbed();
        if has_traces(&*t) {
            leave(t);
            return false;
        }
        // SeqCst: a full fence before the look at what is pending. pairs: signal.mask
        let mask = (*t).identity.sig_mask.swap(u64::MAX, Ordering::SeqCst);
        (*t).set_state(State::Resting);
        let kept = sched::give_back(t);
        if kept {
            pass_on(t);
            sched::rest(core::ptr::null_mut());
        } else {
            (*t).set_state(State::Runnable);
            (*t).identity.sig_mask.store(mask, Ordering::Relaxed);
        }
        leave(t);
        kept
    }
}

/// As [`enter_own`], with nothing left to deliver.
#[inline]
unsafe fn enter_undisturbed() -> *mut Thread {
    loop {
        // SAFETY: the caller's.
        unsafe {
            let t = enter_own();
            if !(*t).attention.load(Ordering::Relaxed) {
                return t;
            }
            leave(t);
        }
    }
}

/// What came for the process at the last moment, and was to be `t`'s, is another thread's.
#[inline]
unsafe fn pass_on(t: *mut Thread) {
    // SAFETY: the current thread, all signals blocked.
    unsafe {
        if (*t).attention.load(Ordering::Relaxed) {
            (*t).attention.store(false, Ordering::Relaxed);
            pending::pass_on(t);
        }
    }
}

/// The calling thread's function has returned, and the thread is about to end: tells who waits. Returns whether the handle
/// was gone.
///
/// # Safety
/// As [`finish`].
pub unsafe fn end(slot: *mut Slot) -> bool {
    // SAFETY: the caller's.
    unsafe {
        let t = enter();
        // SeqCst: as in `finish`. pairs: kept.state
        let before = (*slot).state.swap(ENDING, Ordering::SeqCst);
        let waiter = waiter(slot, before);
        if !waiter.is_null() {
            sched::ready(waiter);
        }
        if let Some(t) = t {
            leave(t);
        }
        before == DETACHED
    }
}

/// The thread to be told of an end, its wait claimed, or null.
#[inline]
unsafe fn waiter(slot: *mut Slot, before: usize) -> *mut Thread {
    match before {
        RUNNING | DETACHED => core::ptr::null_mut(),
        WAITED => {
            RT.futexes.wake(slot as usize + core::mem::offset_of!(Slot, state), usize::MAX, u32::MAX);
            core::ptr::null_mut()
        }
        thread => {
            let thread = thread as *mut Thread;
            // SAFETY: control blocks are never unmapped. A wait that a signal has ended is not claimed.
            unsafe {
                let wait = Ticket::from_word((*thread).join_wait.load(Ordering::Relaxed));
                if (*thread).park.claim(wait, Reason::Woken) { thread } else { core::ptr::null_mut() }
            }
        }
    }
}

/// Whether that state is the number of a thread that waits, which stays until the end.
#[inline]
fn is_thread(state: usize) -> bool {
    !matches!(state, RUNNING | DONE | ENDING | WAITED | DETACHED)
}

/// As [`waiter`], for a thread that was found in the state, which is `DONE` now without a fence. The claim is one, and between
/// the mask and the look at what is pending, too. If it fails, the wait that it was for was over before; the next one is found here or, by
/// whoever opens it, the state (see the protocol).
#[inline]
unsafe fn claim_linked(thread: *mut Thread) -> *mut Thread {
    // SAFETY: as in `waiter`.
    unsafe {
        let mut word = (*thread).join_wait.load(Ordering::Relaxed);
        while !(*thread).park.claim(Ticket::from_word(word), Reason::Woken) {
            // SeqCst: a locked instruction that fails is a full fence to the CPU; this makes it one to the compiler.
            // pairs: kept.state signal.mask
            compiler_fence(Ordering::SeqCst);
            let now = (*thread).join_wait.load(Ordering::Relaxed);
            if now == word {
                return core::ptr::null_mut();
            }
            word = now;
        }
        thread
    }
}

/// Gives a thread back whose function has returned, `DONE`, and whose result was taken. False: there are enough; it is to be
/// launched once more, to end.
///
/// # Safety
/// The caller has the handle, and uses it no more.
pub unsafe fn give_back(slot: *mut Slot) -> bool {
    // SAFETY: the caller's.
    unsafe {
        let Some(t) = enter() else { return false };
        let kept = sched::give_back(thread_of(slot));
        leave(t);
        kept
    }
}
