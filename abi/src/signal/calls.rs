//! The system calls about signals.

use super::actions::{self, Action};
use super::context::Stack;
use super::deliver::set_mask;
use super::pending::Refused;
use super::{bit, deliver, kernel, masks, pending};
use crate::entry::Frame;
use crate::time::read_timespec;
use crate::wait::{NEVER, after, begin, e, fail, park};
use core::ffi::CStr;
use core::sync::atomic::Ordering;
use heddle_core::identity::{AltStack, SigInfo};
use heddle_core::park::Reason;
use heddle_core::sched::{RT, current};
use heddle_core::sys;
use heddle_core::sys::{check, linux as l};
use heddle_core::thread::{FIRST_TID, State, Thread};

const SI_USER: i32 = 0;
const SI_TKILL: i32 = -6;
const SS_DISABLE: i32 = 2;
const SS_ONSTACK: i32 = 1;

/// `rt_sigaction`.
///
/// # Safety
/// The program's arguments.
pub unsafe fn sigaction(args: [usize; 6]) -> isize {
    if args[3] != 8 {
        return fail(e::EINVAL);
    }
    // SAFETY: the program's pointers.
    match unsafe { actions::sigaction(args[0] as u32, args[1] as *const Action, args[2] as *mut Action) } {
        Ok(()) => 0,
        Err(errno) => -(errno as isize),
    }
}

/// `rt_sigprocmask`.
///
/// # Safety
/// The current thread; the program's arguments.
pub unsafe fn sigprocmask(t: *mut Thread, args: [usize; 6]) -> isize {
    let [how, new, old, size, ..] = args;
    if size != 8 {
        return fail(e::EINVAL);
    }
    // SAFETY: the program's pointers.
    unsafe {
        let before = (*t).identity.sig_mask.load(Ordering::Relaxed);
        if new != 0 {
            let set = *(new as *const u64);
            let mask = match how as u32 {
                l::SIG_BLOCK => before | set,
                l::SIG_UNBLOCK => before & !set,
                l::SIG_SETMASK => set,
                _ => return fail(e::EINVAL),
            };
            if how as u32 == l::SIG_SETMASK {
                actions::settle(set);
            }
            if how as u32 != l::SIG_UNBLOCK {
                actions::note_blocked(set);
            }
            set_mask(t, mask);
        }
        if old != 0 {
            *(old as *mut u64) = before;
        }
    }
    0
}

/// `rt_sigpending`.
///
/// # Safety
/// The current thread; the program's arguments.
pub unsafe fn sigpending(t: *mut Thread, args: [usize; 6]) -> isize {
    // SAFETY: the program's pointer.
    unsafe {
        if args[1] > 8 {
            return fail(e::EINVAL);
        }
        masks::await_exec(u64::MAX);
        let set = (pending::pending(t) | masks::pending_kept()) & (*t).identity.sig_mask.load(Ordering::Relaxed);
        core::ptr::copy_nonoverlapping((&raw const set).cast::<u8>(), args[0] as *mut u8, args[1]);
    }
    0
}

/// `sigaltstack`.
///
/// # Safety
/// The current thread; the program's arguments.
pub unsafe fn sigaltstack(t: *mut Thread, frame: &Frame, args: [usize; 6]) -> isize {
    // SAFETY: the program's pointers.
    unsafe {
        let alt = (*t).identity.alt_stack;
        let on = alt.size != 0 && (alt.base..alt.base + alt.size).contains(&frame.sp());
        let new = if args[0] == 0 { None } else { Some(*(args[0] as *const Stack)) };
        if args[1] != 0 {
            *(args[1] as *mut Stack) = Stack {
                base: alt.base,
                flags: if alt.size == 0 { SS_DISABLE } else { (i32::from(on) * SS_ONSTACK) | alt.flags as i32 },
                size: alt.size,
            };
        }
        if let Some(s) = new {
            if on {
                return fail(e::EPERM);
            }
            let mode = s.flags & !(1 << 31);
            if !matches!(mode, 0 | SS_DISABLE | SS_ONSTACK) {
                return fail(e::EINVAL);
            }
            (*t).identity.alt_stack = if mode == SS_DISABLE {
                AltStack { base: 0, size: 0, flags: 0 }
            } else if s.size < l::MINSIGSTKSZ as usize {
                return fail(e::ENOMEM);
            } else {
                AltStack { base: s.base, size: s.size, flags: (s.flags as u32) & 1 << 31 }
            };
        }
    }
    0
}

fn info_of(signal: u32, code: i32) -> SigInfo {
    // SAFETY: no memory is touched.
    let uid = unsafe { sys!(l::__NR_getuid) } as u32;
    info_from(signal, code, kernel::process(), uid)
}

fn info_from(signal: u32, code: i32, process: i32, uid: u32) -> SigInfo {
    let mut info: SigInfo = [0; 16];
    info[0] = u64::from(signal);
    info[1] = u64::from(code as u32);
    info[2] = u64::from(process as u32) | u64::from(uid) << 32;
    info
}

/// `tgkill` and `tkill`; `None`: not one of our threads, ask the kernel.
///
/// # Safety
/// Inside the core or on a kernel thread that is not ours.
pub unsafe fn tgkill(process: Option<i32>, tid: i32, signal: u32) -> Option<isize> {
    if process.is_some_and(|p| p != kernel::process()) {
        return None;
    }
    if (tid as u32) < FIRST_TID && tid != kernel::process() {
        return None;
    }
    if signal > 64 || tid <= 0 || process.is_some_and(|p| p <= 0) {
        return Some(fail(e::EINVAL));
    }
    // SAFETY: the caller's.
    Some(unsafe { to_thread(tid as u32, signal, || info_of(signal, SI_TKILL)) })
}

/// Sends `signal` (0: none) to one of our threads, if there is such a thread.
unsafe fn to_thread(tid: u32, signal: u32, info: impl FnOnce() -> SigInfo) -> isize {
    if RT.threads.find(tid).is_none() {
        return fail(e::ESRCH);
    }
    if signal == 0 {
        return 0;
    }
    if signal == l::SIGKILL || signal == l::SIGSTOP || masks::is_kept(signal) {
        // SAFETY: no memory is touched.
        return unsafe { sys!(l::__NR_kill, kernel::process(), signal) };
    }
    // SAFETY: the caller's.
    sent(unsafe { pending::send_to_thread(tid, &info()) })
}

/// A process that may do so sends `signal`, at most 64, to one of our threads by its id, perhaps with a `siginfo_t` of its own.
///
/// # Safety
/// As [`tgkill`].
pub unsafe fn from_other_process(tid: u32, signal: u32, process: i32, uid: u32, own: Option<SigInfo>) -> isize {
    if signal > 64 {
        return fail(e::EINVAL);
    }
    let info = || own.map_or_else(|| info_from(signal, SI_TKILL, process, uid), |info| numbered(info, signal));
    // SAFETY: the caller's.
    unsafe { to_thread(tid, signal, info) }
}

/// A program's `siginfo_t` with the number of the signal that it is sent with.
fn numbered(mut info: SigInfo, signal: u32) -> SigInfo {
    info[0] = info[0] & !0xffff_ffff | u64::from(signal);
    info
}

/// Whether this is one that a program may not send to others: the kernel alone says such things.
pub fn is_kernels(info: &SigInfo) -> bool {
    let code = info[1] as u32 as i32;
    code >= 0 || code == SI_TKILL
}

/// The caller's id.
fn own_id() -> u32 {
    let t = current();
    // SAFETY: the current thread; touches no other memory.
    unsafe { if t.is_null() { sys!(l::__NR_gettid) as u32 } else { (*t).identity.tid.load(Ordering::Relaxed) } }
}

fn sent(result: Result<(), Refused>) -> isize {
    own(result.map(|()| 0))
}

fn own(result: Result<isize, Refused>) -> isize {
    match result {
        Ok(r) => r,
        Err(Refused::Gone) => fail(e::ESRCH),
        Err(Refused::Full) => fail(e::EAGAIN),
    }
}

/// `rt_tgsigqueueinfo`; `None`: ask the kernel.
///
/// # Safety
/// The program's arguments.
pub unsafe fn tgsigqueueinfo(args: [usize; 6]) -> Option<isize> {
    let [process, tid, signal, info, ..] = args;
    if process as i32 != kernel::process() {
        return None;
    }
    // SAFETY: checks the arguments without sending.
    let r = unsafe { tgkill(Some(process as i32), tid as i32, 0) }?;
    // SAFETY: the program's siginfo_t; the caller's.
    unsafe {
        let info = (info as *const SigInfo).read_unaligned();
        Some(match r {
            _ if (tid as i32) > 0 && is_kernels(&info) && tid as u32 != own_id() => fail(e::EPERM),
            0 if signal > 64 => fail(e::EINVAL),
            0 => to_thread(tid as u32, signal as u32, || numbered(info, signal as u32)),
            errno => errno,
        })
    }
}

/// `kill` to the own process; `None`: ask the kernel.
///
/// # Safety
/// Inside the core.
pub unsafe fn kill(process: i32, signal: u32) -> Option<isize> {
    if process as u32 >= FIRST_TID && process > 0 && RT.threads.find(process as u32).is_some() {
        // As the kernel does for the id of any thread of a process.
        let own = kernel::process();
        // SAFETY: inside the core.
        return unsafe { kill(own, signal).or_else(|| Some(sys!(l::__NR_kill, own, signal))) };
    }
    if process == kernel::process() && signal == l::SIGKILL {
        // SAFETY: inside the core; the process ends now.
        unsafe {
            crate::robust::process_ends();
            return Some(sys!(l::__NR_kill, process, signal));
        }
    }
    if process != kernel::process() || signal == 0 || signal > 64 || signal == l::SIGKILL || signal == l::SIGSTOP {
        return None;
    }
    if masks::is_kept(signal) {
        return None;
    }
    if signal == l::SIGCONT {
        // SAFETY: inside the core.
        unsafe { masks::end_stops() };
    }
    // SAFETY: inside the core.
    Some(unsafe { own(pending::send_own(&info_of(signal, SI_USER), || sys!(l::__NR_kill, process, signal))) })
}

/// `pidfd_send_signal` to the own process; `None`: ask the kernel, which would choose a worker, and the caller would go on
/// before that has passed the signal on.
///
/// # Safety
/// The program's arguments.
pub unsafe fn pidfd_send_signal(args: [usize; 6]) -> Option<isize> {
    let [descriptor, signal, info, flags, ..] = args;
    if flags != 0 || info != 0 || signal > 64 || process_of(descriptor as i32) != Some(kernel::process()) {
        return None;
    }
    // SAFETY: inside the core.
    unsafe { kill(kernel::process(), signal as u32) }
}

/// The process that a pidfd or a directory `/proc/PID` stands for.
fn process_of(descriptor: i32) -> Option<i32> {
    let number = |text: &[u8]| {
        let digits = text.iter().skip_while(|b| b.is_ascii_whitespace()).take_while(|b| b.is_ascii_digit());
        digits.fold(None, |n: Option<i32>, b| n.unwrap_or(0).checked_mul(10)?.checked_add(i32::from(b - b'0')))
    };
    let mut text = [0; 512];
    if let Some(n) = read_at(descriptor, c"stat", &mut text) {
        return number(&text[..n]);
    }
    let mut name = *b"/proc/self/fdinfo/\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut place = 1;
    while descriptor / place >= 10 {
        place *= 10;
    }
    for byte in &mut name[18..] {
        if place == 0 {
            break;
        }
        *byte = b'0' + (descriptor / place % 10) as u8;
        place /= 10;
    }
    let n = read_at(l::AT_FDCWD, CStr::from_bytes_until_nul(&name).ok()?, &mut text)?;
    let line = text[..n].split(|&b| b == b'\n').find_map(|line| line.strip_prefix(b"Pid:"))?;
    number(line)
}

/// The beginning of a small file.
fn read_at(folder: i32, name: &CStr, text: &mut [u8]) -> Option<usize> {
    // SAFETY: the name ends in a NUL, and the kernel writes at most the buffer's length. Nothing here waits.
    unsafe {
        let flags = l::O_RDONLY | l::O_CLOEXEC;
        let file = check(sys!(l::__NR_openat, folder, name.as_ptr(), flags)).ok()?;
        let n = check(sys!(l::__NR_read, file, text.as_mut_ptr(), text.len()));
        sys!(l::__NR_close, file);
        n.ok()
    }
}

/// `rt_sigqueueinfo` to the own process; `None`: ask the kernel.
///
/// # Safety
/// The program's arguments.
pub unsafe fn sigqueueinfo(args: [usize; 6]) -> Option<isize> {
    let [process, signal, info, ..] = args;
    if process as i32 != kernel::process() || signal == 0 || signal > 64 {
        return None;
    }
    if masks::is_kept(signal as u32) {
        return None;
    }
    // SAFETY: the program's siginfo_t.
    unsafe {
        let info = (info as *const SigInfo).read_unaligned();
        if is_kernels(&info) && process as u32 != own_id() {
            return Some(fail(e::EPERM));
        }
        let info = numbered(info, signal as u32);
        let to_kernel = || sys!(l::__NR_rt_sigqueueinfo, process, signal, info.as_ptr());
        Some(own(pending::send_own(&info, to_kernel)))
    }
}

/// `rt_sigtimedwait`.
///
/// # Safety
/// The current thread; the program's arguments.
pub unsafe fn sigtimedwait(t: *mut Thread, args: [usize; 6]) -> isize {
    let [set, info, timeout, size, ..] = args;
    if size != 8 {
        return fail(e::EINVAL);
    }
    let deadline = match read_timespec(timeout) {
        Err(errno) => return errno,
        Ok(None) => NEVER,
        Ok(Some(ns)) => after(ns),
    };
    // SAFETY: the program's pointers; the current thread.
    unsafe {
        let wanted = *(set as *const u64) & !(bit(l::SIGKILL) | bit(l::SIGSTOP));
        actions::note_blocked(wanted);
        let id = &(*t).identity;
        id.sig_waited.store(wanted, Ordering::Relaxed);
        // SeqCst: as in `set_mask`. pairs: signal.mask
        heddle_core::prim::fence(Ordering::SeqCst);
        let mut taken = None;
        let result = loop {
            masks::await_exec(wanted);
            if let Some(found) = pending::take_for(t, wanted) {
                taken = Some(found);
                break (found[0] & 0xffff_ffff) as isize;
            }
            let kept = masks::kept() & wanted;
            if kept != 0 {
                let no_time = [0u64; 2];
                let r = sys!(l::__NR_rt_sigtimedwait, &raw const kept, info, no_time.as_ptr(), 8);
                if r > 0 || r == fail(e::EFAULT) {
                    break r;
                }
            }
            if deadline != NEVER && heddle_core::clock::now() >= deadline {
                break fail(e::EAGAIN);
            }
            if kept != 0 {
                masks::let_go(kept); // who waits is to be woken
                continue;
            }
            let Some(ticket) = begin(t) else { break fail(e::EINTR) };
            if pending::pending(t) & wanted != 0 {
                crate::wait::abandon(t, ticket);
                continue;
            }
            if park(t, ticket, deadline, State::SigWait) == Reason::Signal
                && pending::pending(t) & wanted == 0
                && pending::deliverable(t)
            {
                break fail(e::EINTR);
            }
        };
        id.sig_waited.store(0, Ordering::Relaxed);
        if pending::deliverable(t) {
            (*t).attention.store(true, Ordering::Relaxed);
        }
        // Last: if it cannot be written the call ends here.
        if info != 0
            && let Some(found) = taken
        {
            (info as *mut SigInfo).write_unaligned(found);
        }
        result
    }
}

/// `rt_sigsuspend` (with a mask) and `pause` (without): waits until a handler has run.
///
/// # Safety
/// The current thread; `mask` is the program's.
pub unsafe fn suspend(t: *mut Thread, frame: &mut Frame, mask: Option<u64>) -> isize {
    // SAFETY: the current thread, inside the core.
    unsafe {
        let before = (*t).identity.sig_mask.load(Ordering::Relaxed);
        if let Some(m) = mask {
            actions::note_blocked(m);
            (*t).identity.sig_restore_mask = before;
            (*t).identity.sig_restore_mask_set = true;
            set_mask(t, m);
        }
        let number = frame.rax;
        frame.rax = fail(e::EINTR) as u64;
        loop {
            if pending::deliverable(t) {
                // Signals whose default action is to be ignored do not end the wait.
                if deliver::deliver(frame).is_some() {
                    break;
                }
                continue;
            }
            if let Some(ticket) = begin(t) {
                park(t, ticket, NEVER, State::SigWait);
            }
        }
        frame.rax = number;
        (*t).identity.sig_restore_mask_set = false;
        if mask.is_some() {
            set_mask(t, before);
        }
        fail(e::EINTR)
    }
}

/// Puts a temporary mask in place for `ppoll` and its kin; the result is to be given to [`unmask`].
///
/// # Safety
/// The current thread; `set` is 0 or the program's pointer to 8 bytes.
pub unsafe fn mask_for(t: *mut Thread, set: usize) -> Option<u64> {
    if set == 0 {
        return None;
    }
    // SAFETY: the program's pointer.
    unsafe {
        let before = (*t).identity.sig_mask.load(Ordering::Relaxed);
        let new = *(set as *const u64);
        actions::note_blocked(new);
        (*t).identity.sig_restore_mask = before;
        (*t).identity.sig_restore_mask_set = true;
        set_mask(t, new);
        Some(before)
    }
}

/// Ends what [`mask_for`] began.
///
/// # Safety
/// The current thread.
pub unsafe fn unmask(t: *mut Thread, before: Option<u64>) {
    if let Some(m) = before {
        // SAFETY: the caller's.
        unsafe {
            (*t).identity.sig_restore_mask_set = false;
            set_mask(t, m);
        }
    }
}

/// Lets the kernel make a call with the thread's own mask in force, as `execve` must have it; EINTR if a signal came
/// before.
///
/// # Safety
/// The current thread; the call is the program's.
pub unsafe fn with_own_mask(t: *mut Thread, number: usize, args: [usize; 6]) -> isize {
    let mut before = 0u64;
    // SAFETY: the program's call; the worker's mask is put back.
    unsafe {
        let mask = (*t).identity.sig_mask.load(Ordering::Relaxed);
        sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &mask as *const _, &mut before as *mut _, 8);
        let r = kernel::interruptible(t, number, &args);
        sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &before as *const _, 0, 8);
        if r == kernel::NOT_MADE { fail(e::EINTR) } else { r }
    }
}
