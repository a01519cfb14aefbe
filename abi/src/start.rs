//! Start-up: at load (the constructor) and when the first thread is created.
//!
//! Until a program creates a thread, it runs as it always does: one kernel thread, its own signal mask and handlers, and
//! nearly all system calls made by the stub itself. The first thread turns the calling kernel thread into a worker and
//! its flow of control into a user thread.

use crate::entry;
use crate::report;
use crate::signal;
use crate::sites::{self, Entries};
use crate::{cpus, stats, vdso};
use core::ffi::CStr;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use heddle_core::arch;
use heddle_core::clock;
use heddle_core::identity::AltStack;
use heddle_core::sched::{Hooks, Options, RT};
use heddle_core::sys::{check, linux as l};
use heddle_core::thread::Thread;

static WORKERS: AtomicU32 = AtomicU32::new(0);
static SLICE: AtomicU64 = AtomicU64::new(10_000_000);
static READY: AtomicBool = AtomicBool::new(false);

const GO_WAY_OUT: &str = "run the program without heddle or with 'heddle run --mode kernel'";

/// What the launcher asks for.
#[derive(Clone, Copy, Default)]
pub struct Settings {
    /// Workers; 0: as many as CPUs may be used.
    pub workers: u32,
    /// Milliseconds that a thread may run while others wait; 0: the default, 10.
    pub slice_ms: u64,
    /// Print statistics at the end.
    pub stats: bool,
    /// This is the program that `heddle run` was given.
    pub launched: bool,
}

/// The auxiliary vector's words that matter.
#[derive(Clone, Copy, Default)]
pub struct Auxiliary {
    /// AT_SYSINFO_EHDR: the vDSO's ELF header.
    pub vdso: usize,
    /// AT_BASE: the loader's ELF header.
    pub loader: usize,
    /// AT_HWCAP2.
    pub hwcap2: u64,
}

/// Takes over the system-call sites of everything that is loaded. `own`: the address range of this library.
///
/// # Safety
/// Called once, by the library's constructor, before other constructors and with one thread.
pub unsafe fn load(settings: Settings, auxiliary: Auxiliary, own: Range<usize>) -> Result<(), &'static str> {
    if auxiliary.hwcap2 & 2 == 0 {
        if !settings.launched {
            return Ok(()); // `heddle run` found them: the program runs inside another that emulates a processor
        }
        return Err("the kernel does not allow FSGSBASE instructions (Linux 5.9 or newer is needed)");
    }
    WORKERS.store(settings.workers, Ordering::Relaxed);
    if settings.slice_ms != 0 {
        SLICE.store(settings.slice_ms * 1_000_000, Ordering::Relaxed);
    }
    if settings.stats {
        stats::want();
    }
    cpus::remember();
    // SAFETY: the kernel's vDSO, and the loader that loaded us.
    unsafe {
        clock::use_vdso(vdso::clock_gettime(auxiliary.vdso));
        vdso::read_rseq_offset(auxiliary.loader);
    }
    let entries = Entries {
        syscall: entry::enter as *const () as usize,
        syscall_full: entry::enter_extended as *const () as usize,
        post: entry::after_raw as *const () as usize,
    };
    // SAFETY: the caller's.
    match unsafe { sites::rewrite_all(entries, own) } {
        Ok(()) => {
            READY.store(true, Ordering::Relaxed);
            Ok(())
        }
        // `heddle run` refuses a Go program; this one is linked with a library that holds Go code. As children of others
        // both have their kernel threads.
        Err(sites::Error::Go(name)) if settings.launched => {
            let name = CStr::from_bytes_until_nul(&name).ok().and_then(|n| n.to_str().ok()).unwrap_or("a library");
            report::line(format_args!("{name}: {}; {GO_WAY_OUT}", sites::GO));
            // SAFETY: the program has not begun.
            unsafe { crate::process::end(126) }
        }
        Err(sites::Error::Go(_)) => Ok(()),
        Err(sites::Error::ReadMaps(_)) => Err("cannot read /proc/self/maps: mount /proc"),
        Err(sites::Error::NoStubMemory(_)) => Err("no memory for stubs near the program's libraries (RLIMIT_AS?)"),
        Err(sites::Error::Protect(_)) => {
            Err("the system forbids changing code in memory (SELinux execmod, PR_SET_MDWE)")
        }
    }
}

/// Whether system calls are taken over.
pub fn is_active() -> bool {
    READY.load(Ordering::Relaxed)
}

/// How many workers there are, or will be with the first thread.
pub fn workers() -> u32 {
    match WORKERS.load(Ordering::Relaxed) {
        0 => cpus::usable(),
        n => n,
    }
}

/// Starts the runtime: the caller becomes the first user thread. Error: errno.
///
/// # Safety
/// On the process's only thread, inside an entry from a stub.
pub unsafe fn start() -> Result<*mut Thread, i32> {
    let all = u64::MAX;
    let mut mask = 0u64;
    // SAFETY: the process has one thread; the calls read and write locals and the thread's own registrations.
    unsafe {
        heddle_core::sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &all as *const _, &mut mask as *mut _, 8);
        let r = take_over(mask);
        if r.is_err() {
            heddle_core::sys!(l::__NR_rt_sigprocmask, l::SIG_SETMASK, &mask as *const _, 0, 8);
        }
        r
    }
}

unsafe fn take_over(mask: u64) -> Result<*mut Thread, i32> {
    // SAFETY: as in `start`.
    unsafe {
        let pid = heddle_core::sys!(l::__NR_getpid) as i32;
        signal::kernel::set_process(pid);
        signal::masks::receive_here();
        let seed = (arch::ticks() >> 4) as u32 ^ (pid as u32).wrapping_mul(0x9E37_79B9);
        RT.threads.reserve(seed)?;
        let Some(main) = RT.threads.allocate() else { return Err(linux_raw_sys::errno::EAGAIN as i32) };
        let id = &mut (*main).identity;
        id.tid.store(pid as u32, Ordering::Relaxed);
        (*main).signals.lock().owner = pid as u32;
        id.sig_mask.store(mask, Ordering::Relaxed);
        let mut alt = signal::context::Stack { base: 0, flags: 0, size: 0 };
        heddle_core::sys!(l::__NR_sigaltstack, 0, &mut alt as *mut _);
        if alt.flags & 2 == 0 {
            id.alt_stack = AltStack { base: alt.base, size: alt.size, flags: alt.flags as u32 & 1 << 31 };
        }
        let (mut head, mut len) = (0usize, 0usize);
        heddle_core::sys!(l::__NR_get_robust_list, 0, &mut head as *mut _, &mut len as *mut _);
        id.robust_head = head;
        id.clear_tid = clear_tid_address(pid as u32);
        let mut name = [0u8; 16];
        heddle_core::sys!(l::__NR_prctl, linux_raw_sys::prctl::PR_GET_NAME, name.as_mut_ptr());
        id.set_name(name);
        crate::thread::take_over();
        crate::credentials::take_over();
        crate::scheduling::take_over(main);
        (*main).thread_pointer = arch::thread_pointer();
        let options =
            Options { workers: workers(), slice: SLICE.load(Ordering::Relaxed), single_cpu: cpus::allowed() == 1 };
        signal::actions::take_over(mask);
        signal::pending::take_over(pid as u32, u64::MAX);
        let hooks = Hooks {
            worker_started: signal::kernel::worker_started,
            attend: signal::kernel::empty_inbox,
            preempt: signal::kernel::preempt,
        };
        if let Err(errno) = RT.start(options, hooks, main) {
            signal::actions::give_back(false);
            signal::pending::give_back(main);
            RT.reset_in_child();
            crate::scheduling::reset();
            report::line(format_args!("cannot start (error {errno}): descriptor, process or memory limit reached"));
            return Err(linux_raw_sys::errno::EAGAIN as i32);
        }
        // This kernel thread is a worker now: what the kernel kept for the main thread is kept by us.
        heddle_core::sys!(l::__NR_set_robust_list, 0, 24);
        leave_rseq((*main).thread_pointer);
        crate::memory::take_over_keys();
        Ok(main)
    }
}

/// Where the main thread's end is to be announced: what it gave to `set_tid_address` before we could see it.
fn clear_tid_address(pid: u32) -> usize {
    /// Offset of `tid` in glibc's `struct pthread`, the same since 2.4; used when the kernel does not tell.
    const TID: usize = 720;
    let mut address = 0usize;
    // SAFETY: writes a local; the main thread's control block is larger than TID.
    unsafe {
        let asked = heddle_core::sys!(l::__NR_prctl, linux_raw_sys::prctl::PR_GET_TID_ADDRESS, &mut address as *mut _);
        if asked == 0 && address != 0 {
            return address;
        }
        let guess = arch::thread_pointer() + TID;
        if *(guess as *const u32) == pid { guess } else { 0 }
    }
}

/// Ends the main thread's registration for restartable sequences: the kernel would write the CPU number of the first
/// worker into it wherever the main thread runs.
unsafe fn leave_rseq(thread_pointer: usize) {
    const SIGNATURE: u32 = 0x5305_3053;
    const UNREGISTER: u32 = 1;
    const UNINITIALIZED: i32 = -1;
    let offset = vdso::rseq_offset();
    if offset == 0 {
        return;
    }
    let area = thread_pointer.wrapping_add_signed(offset);
    // SAFETY: glibc's area of 32 bytes in the thread control block; the kernel checks the address.
    unsafe {
        if check(heddle_core::sys!(l::__NR_rseq, area, 32, UNREGISTER, SIGNATURE)).is_ok() {
            ((area + 4) as *mut i32).write(UNINITIALIZED);
        }
    }
}
