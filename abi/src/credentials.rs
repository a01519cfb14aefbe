//! User and group ids, capabilities, and what else the kernel keeps for each kernel thread and a program takes for its own
//! for good: filters, no_new_privs, security bits.
//!
//! A user thread runs on any worker, so all kernel threads of ours have the same. A call that changes it is made by the
//! caller's worker first, which tells whether it is allowed (all are in the same state, so all would get the same answer),
//! then as an errand by all others, the monitor included.
//!
//! glibc has each thread make a call of its `setuid` family: the others first, in the handler of a signal of its own, then
//! the caller. The first of them is the one that counts; the others get its result (`once`). To make the call again
//! would not do: `setuid(0)` with a saved id of 0 gives the effective id, and the next time all three.
//!
//! A program that makes such a call itself, not by glibc's function, means the calling thread alone, and so do `setfsuid` and
//! `setfsgid`. That thread then has a kernel thread for itself (`sched::settle`), makes its own calls there from then on, by
//! glibc too, and those of others leave it out.

use crate::entry::Frame;
use crate::report;
use crate::signal;
use crate::sites;
use crate::wait::{e, fail};
use core::sync::atomic::{AtomicI32, Ordering};
use heddle_core::lock::SpinLock;
use heddle_core::mem;
use heddle_core::sched::{self, Absent, Call, RT};
use heddle_core::sys::{check, linux as l, syscall6};
use heddle_core::thread::Thread;
use linux_raw_sys::prctl as p;

const SECCOMP_MODE_STRICT: u32 = 1;
const SECCOMP_MODE_FILTER: u32 = 2;
const SECCOMP_SET_MODE_STRICT: u32 = 0;
const SECCOMP_SET_MODE_FILTER: u32 = 1;
const SECCOMP_FILTER_FLAG_TSYNC: usize = 1;
const SECCOMP_FILTER_FLAG_NEW_LISTENER: usize = 8;
const SECCOMP_FILTER_FLAG_TSYNC_ESRCH: usize = 16;

fn call(number: usize, a: [usize; 6]) -> Call {
    [number, a[0], a[1], a[2], a[3], a[4], a[5]]
}

/// Kernel threads that were alike have become different: going on would be a hole. glibc ends such a process too.
#[cold]
pub fn inconsistent(number: usize, errno: i32) -> ! {
    report::line(format_args!(
        "system call {number} succeeded on one kernel thread and failed on another (error {errno}): the process ends"
    ));
    // SAFETY: the process is to end.
    unsafe {
        signal::actions::default(l::SIGABRT);
        crate::process::end(134)
    }
}

/// Has every kernel thread make the call, if it succeeds here and `changed` says so.
///
/// # Safety
/// The current thread, inside the core; the call's pointers stay valid meanwhile.
unsafe fn on_all(number: usize, args: [usize; 6], changed: impl FnOnce() -> bool) -> isize {
    let own = || {
        // SAFETY: the program's call.
        let r = unsafe { syscall6(number, args) };
        (r, (r >= 0 && changed()).then(|| call(number, args)))
    };
    // SAFETY: the caller's.
    let r = unsafe {
        match number as u32 {
            l::__NR_prctl | l::__NR_personality => RT.errands.everywhere(Absent::Later, own, signal::kernel::kick),
            l::__NR_landlock_restrict_self => RT.errands.everywhere(Absent::Wait, own, signal::kernel::kick),
            _ => RT.errands.on_shared(own, signal::kernel::kick),
        }
    };
    match r {
        Ok(r) => r,
        Err(errno) => inconsistent(number, errno),
    }
}

/// What comes before the `syscall` of glibc's function of that name, which calls what it is told: the arguments, moved by one.
const GENERIC: [u8; 18] =
    [0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca, 0x4d, 0x89, 0xc2, 0x4d, 0x89, 0xc8];

/// Whether the program makes this call itself, not by glibc's function for it.
///
/// # Safety
/// `t` is the current thread and has just come through a site, by `frame`.
pub unsafe fn is_raw(t: *const Thread, frame: &Frame) -> bool {
    // SAFETY: the continuation is a stub's; the site's function has at least one byte before it, and so has its mapping
    // the rest of a page.
    unsafe {
        if (*t).extended {
            return true; // not glibc's code
        }
        const MOVE: usize = 5; // of the last argument, which the stub's jump may have replaced
        let site = sites::site_end(frame.continuation as usize) - 2 - MOVE;
        site % 4096 >= GENERIC.len() && *((site - GENERIC.len()) as *const [u8; GENERIC.len()]) == GENERIC
    }
}

/// A call that is for the calling thread alone, if it changes something (`None`: it is for all, as ever).
unsafe fn for_itself(t: *mut Thread, number: u32, args: [usize; 6]) -> Option<isize> {
    // SAFETY: the program's call; nothing parks in between.
    unsafe {
        if sched::is_settled() {
            return Some(syscall6(number as usize, args));
        }
        // The library's threads are used again for other things, and its main thread's are for all.
        let plain = (*t).slot == 0 && (*t).next_slot == 0;
        if !plain || (*t).identity.in_setxid || RT.threads.live() == 1 {
            return None;
        }
        if matches!(number, l::__NR_setfsuid | l::__NR_setfsgid) {
            let now = sys!(number, u32::MAX); // asks only
            if args[0] as u32 == u32::MAX || args[0] as u32 == now as u32 {
                return Some(now);
            }
        }
        if !sched::prepare_to_settle() {
            return Some(fail(e::EAGAIN));
        }
        let before = Ids::now();
        let r = syscall6(number as usize, args);
        if r >= 0 && (number == l::__NR_setgroups || Ids::now() != before) {
            sched::settle();
        } else {
            sched::stay();
        }
        Some(r)
    }
}

/// What a call of the `setuid` family may change.
#[derive(PartialEq, Eq)]
struct Ids {
    ids: [u32; 8],
    capabilities: [u32; 6],
}

impl Ids {
    fn now() -> Self {
        const VERSION_3: u32 = 0x2008_0522;
        let mut now = Self { ids: [0; 8], capabilities: [0; 6] };
        let mut header = [VERSION_3, 0];
        let id = now.ids.as_mut_ptr();
        // SAFETY: writes the locals. An id of -1 changes nothing.
        unsafe {
            sys!(l::__NR_getresuid, id, id.add(1), id.add(2));
            sys!(l::__NR_getresgid, id.add(3), id.add(4), id.add(5));
            *id.add(6) = sys!(l::__NR_setfsuid, u32::MAX) as u32;
            *id.add(7) = sys!(l::__NR_setfsgid, u32::MAX) as u32;
            sys!(l::__NR_capget, header.as_mut_ptr(), now.capabilities.as_mut_ptr());
        }
        now
    }
}

/// The call that glibc is having all threads make, and its result, if a thread has made it that stands for others; nothing between
/// such calls.
static ROUND: SpinLock<Option<([usize; 4], Option<isize>)>> = SpinLock::new(None);

/// The number and those arguments that count.
fn key(number: u32, args: [usize; 6]) -> [usize; 4] {
    let count = match number {
        l::__NR_setresuid | l::__NR_setresgid => 3,
        l::__NR_setreuid | l::__NR_setregid | l::__NR_setgroups => 2,
        _ => 1,
    };
    let mut key = [number as usize, 0, 0, 0];
    key[1..=count].copy_from_slice(&args[..count]);
    key
}

/// Makes a call that glibc has all threads make, once for all of them. The calls from its signal's handler open a round;
/// that of the thread which asked for them comes last, from outside a handler, and ends it.
unsafe fn once(t: *mut Thread, number: u32, args: [usize; 6], make: impl FnOnce() -> isize) -> isize {
    let key = key(number, args);
    // Held while others wait for the first call's result. They do errands meanwhile, in the handler of the kick.
    let mut round = ROUND.lock();
    // SAFETY: the current thread's own field.
    let in_handler = unsafe { (*t).identity.in_setxid };
    let known = round.filter(|r| r.0 == key).and_then(|r| r.1);
    if sched::is_settled() {
        // SAFETY: the program's call, for this thread alone.
        let result = unsafe { syscall6(number as usize, args) };
        *round = in_handler.then_some((key, known));
        return result;
    }
    let result = known.unwrap_or_else(make);
    *round = in_handler.then_some((key, Some(result)));
    result
}

/// A kernel thread of the program's own makes such a call for itself: it may be the last of a round.
pub fn end_round() {
    *ROUND.lock() = None;
}

/// Forgets what is under way, in a forked child.
///
/// # Safety
/// The caller is the only thread.
pub unsafe fn reset() {
    // SAFETY: the caller's.
    unsafe { ROUND.force_unlock() };
    *ROUND.lock() = None;
}

/// `setuid`, `setgid`, `setreuid`, `setregid`, `setresuid`, `setresgid`; `raw` is what [`is_raw`] says.
///
/// # Safety
/// `t` is the current thread, inside the core.
pub unsafe fn set_ids(t: *mut Thread, raw: bool, number: u32, args: [usize; 6]) -> isize {
    // SAFETY: the caller's.
    unsafe {
        if raw && let Some(r) = for_itself(t, number, args) {
            return r;
        }
        once(t, number, args, || change_ids(number, args))
    }
}

/// `setfsuid`, `setfsgid`, which glibc leaves to the thread.
///
/// # Safety
/// `t` is the current thread, inside the core.
pub unsafe fn set_file_ids(t: *mut Thread, number: u32, args: [usize; 6]) -> isize {
    // SAFETY: the caller's.
    unsafe { for_itself(t, number, args).unwrap_or_else(|| change_ids(number, args)) }
}

unsafe fn change_ids(number: u32, args: [usize; 6]) -> isize {
    let before = Ids::now();
    // SAFETY: the caller's; no pointers.
    unsafe {
        on_all(number as usize, args, || {
            let changed = Ids::now() != before;
            if changed {
                DEATH_SIGNAL.store(0, Ordering::Relaxed); // the kernel forgets it
            }
            changed
        })
    }
}

/// Supplementary groups up to this number are compared; more are always set everywhere.
const FEW: usize = 64;

fn groups(list: &mut [u32; FEW]) -> Option<usize> {
    // SAFETY: writes at most FEW words.
    check(unsafe { sys!(l::__NR_getgroups, FEW, list.as_mut_ptr()) }).ok()
}

/// `setgroups`; `raw` is what [`is_raw`] says.
///
/// # Safety
/// `t` is the current thread, inside the core; the program's arguments.
pub unsafe fn set_groups(t: *mut Thread, raw: bool, args: [usize; 6]) -> isize {
    // SAFETY: the caller's.
    unsafe {
        if raw && let Some(r) = for_itself(t, l::__NR_setgroups, args) {
            return r;
        }
        once(t, l::__NR_setgroups, args, || change_groups(args))
    }
}

unsafe fn change_groups(args: [usize; 6]) -> isize {
    let number = l::__NR_setgroups as usize;
    let mut copy = (core::ptr::null_mut::<u8>(), 0);
    let own = || {
        let (mut old, mut new) = ([0; FEW], [0; FEW]);
        // SAFETY: the program's call; the copy is ours.
        unsafe {
            let before = groups(&mut old);
            let r = syscall6(number, args);
            if r < 0 {
                return (r, None);
            }
            let after = groups(&mut new);
            if before.is_some() && before == after && old == new {
                return (r, None);
            }
            // All others set what this one has got: the program's list might change meanwhile.
            let count = sys!(l::__NR_getgroups, 0, 0).max(0) as usize;
            let size = (count * 4).max(4);
            let mut a = args;
            if let Ok(list) = mem::map(size) {
                copy = (list, size);
                sys!(l::__NR_getgroups, count, list);
                (a[0], a[1]) = (count, list as usize);
            }
            (r, Some(call(number, a)))
        }
    };
    // SAFETY: the caller's; the copy is used by nobody any more.
    unsafe {
        let r = RT.errands.on_shared(own, signal::kernel::kick);
        if !copy.0.is_null() {
            mem::unmap(copy.0, copy.1);
        }
        r.unwrap_or_else(|errno| inconsistent(number, errno))
    }
}

/// `capget` and `capset`: the id of any thread of ours stands for the caller's kernel thread.
///
/// # Safety
/// The current thread, inside the core; the program's arguments.
pub unsafe fn capabilities(t: *mut Thread, number: u32, args: [usize; 6]) -> isize {
    // SAFETY: the program's pointers; the copies live until all have made the call.
    unsafe {
        if args[0] == 0 {
            return syscall6(number as usize, args);
        }
        let mut header = *(args[0] as *const [u32; 2]);
        if header[1] == 0 || RT.threads.find(header[1]).is_none() {
            if number == l::__NR_capget || header[1] != 0 {
                return syscall6(number as usize, args);
            }
        } else if number == l::__NR_capset && header[1] != (*t).identity.tid.load(Ordering::Relaxed) {
            return fail(e::EPERM);
        }
        header[1] = 0;
        let mut a = args;
        a[0] = header.as_mut_ptr() as usize;
        if number == l::__NR_capget {
            let r = syscall6(number as usize, a);
            *(args[0] as *mut u32) = header[0]; // the version that the kernel prefers
            return r;
        }
        let mut data = [0u32; 6];
        const VERSION_1: u32 = 0x1998_0330;
        if args[1] != 0 {
            let words = if header[0] == VERSION_1 { 3 } else { 6 };
            for (i, word) in data.iter_mut().take(words).enumerate() {
                *word = *(args[1] as *const u32).add(i);
            }
            a[1] = data.as_ptr() as usize;
        }
        let r = if sched::is_settled() { syscall6(number as usize, a) } else { on_all(number as usize, a, || true) };
        if r == fail(e::EINVAL) {
            *(args[0] as *mut u32) = header[0];
        }
        r
    }
}

/// The signal for the parent's death, which one worker has on behalf of the process.
static DEATH_SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Notes what the main thread had set before it became one of ours.
///
/// # Safety
/// On the process's only thread.
pub unsafe fn take_over() {
    let mut signal = 0i32;
    // SAFETY: writes the local.
    unsafe { sys!(l::__NR_prctl, p::PR_GET_PDEATHSIG, &mut signal as *mut _) };
    DEATH_SIGNAL.store(signal, Ordering::Relaxed);
}

/// Those `prctl`s that change something which all kernel threads must have alike; `None`: not one of them.
///
/// # Safety
/// The current thread, inside the core; the program's arguments.
pub unsafe fn prctl(args: [usize; 6]) -> Option<isize> {
    let number = l::__NR_prctl as usize;
    // SAFETY: the program's call.
    unsafe {
        Some(match args[0] as u32 {
            p::PR_SET_NO_NEW_PRIVS
            | p::PR_SET_KEEPCAPS
            | p::PR_SET_SECUREBITS
            | p::PR_CAPBSET_DROP
            | p::PR_SET_TSC
            | p::PR_MCE_KILL
            | p::PR_SET_SPECULATION_CTRL
            | p::PR_SET_IO_FLUSHER => on_all(number, args, || true),
            p::PR_CAP_AMBIENT if args[1] as u32 != p::PR_CAP_AMBIENT_IS_SET => on_all(number, args, || true),
            p::PR_SET_SECCOMP => match args[1] as u32 {
                SECCOMP_MODE_FILTER => seccomp([SECCOMP_SET_MODE_FILTER as usize, 0, args[2], 0, 0, 0]),
                SECCOMP_MODE_STRICT => strict(),
                _ => return None,
            },
            p::PR_SET_PDEATHSIG => {
                // One kernel thread is enough, and more would be more than one signal; the others forget theirs.
                let own = || {
                    let r = syscall6(number, args);
                    let others = call(number, [args[0], 0, 0, 0, 0, 0]);
                    (r, (r >= 0).then_some(others))
                };
                match RT.errands.everywhere(Absent::Later, own, signal::kernel::kick) {
                    Ok(r) => {
                        if r >= 0 {
                            DEATH_SIGNAL.store(args[1] as i32, Ordering::Relaxed);
                        }
                        r
                    }
                    Err(errno) => inconsistent(number, errno),
                }
            }
            p::PR_GET_PDEATHSIG => {
                *(args[1] as *mut i32) = DEATH_SIGNAL.load(Ordering::Relaxed);
                0
            }
            p::PR_SET_SYSCALL_USER_DISPATCH if args[1] != 0 => {
                refuse("dispatch of system calls to the program (PR_SET_SYSCALL_USER_DISPATCH)", e::EINVAL)
            }
            _ => return None,
        })
    }
}

fn refuse(what: &str, errno: u32) -> isize {
    report::line(format_args!("{what} for one thread is not possible with user threads: use --mode kernel"));
    fail(errno)
}

/// Strict mode would end the process at the first wait of any thread.
fn strict() -> isize {
    refuse("seccomp's strict mode", e::EINVAL)
}

/// `seccomp`: a filter is for all kernel threads.
///
/// # Safety
/// The current thread, inside the core; the program's arguments.
pub unsafe fn seccomp(args: [usize; 6]) -> isize {
    let mut a = args;
    match args[0] as u32 {
        SECCOMP_SET_MODE_STRICT if args[1] == 0 && args[2] == 0 => return strict(),
        SECCOMP_SET_MODE_FILTER => {
            a[1] |= SECCOMP_FILTER_FLAG_TSYNC;
            if args[1] & SECCOMP_FILTER_FLAG_NEW_LISTENER != 0 {
                a[1] |= SECCOMP_FILTER_FLAG_TSYNC_ESRCH; // the kernel wants it with a listener
            }
        }
        _ => {}
    }
    // SAFETY: the program's call.
    let r = unsafe { syscall6(l::__NR_seccomp as usize, a) };
    // With TSYNC a positive result names a thread (here: of the program's own, not ours) that has another filter.
    if a[1] != args[1] && r > 0 && args[1] & SECCOMP_FILTER_FLAG_NEW_LISTENER == 0 {
        return fail(e::ESRCH);
    }
    r
}

/// `personality` and `landlock_restrict_self`.
///
/// # Safety
/// The current thread, inside the core; the program's arguments.
pub unsafe fn alike(number: u32, args: [usize; 6]) -> isize {
    // SAFETY: the caller's.
    unsafe { on_all(number as usize, args, || number != l::__NR_personality || args[0] as u32 != u32::MAX) }
}

/// `unshare` and `setns`: threads of ours share folder, descriptors and namespaces.
///
/// # Safety
/// The current thread, inside the core; the program's arguments.
pub unsafe fn separate(number: u32, args: [usize; 6]) -> isize {
    const TABLES: usize = (l::CLONE_FS | l::CLONE_FILES | l::CLONE_SYSVSEM) as usize;
    if number == l::__NR_unshare && args[0] & !TABLES == 0 && (RT.threads.live() == 1 || args[0] == 0) {
        return 0; // nobody shares them
    }
    const WHOLE: usize = (l::CLONE_THREAD | l::CLONE_SIGHAND | l::CLONE_VM | l::CLONE_NEWUSER) as usize;
    if number == l::__NR_unshare && args[0] & WHOLE != 0 {
        return fail(e::EINVAL); // as always with more than one thread
    }
    refuse(if number == l::__NR_unshare { "unshare" } else { "setns" }, e::EPERM)
}
