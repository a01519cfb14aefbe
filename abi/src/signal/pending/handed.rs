//! What is pending while a thread tries `execve`: the kernel has it, for the new program.
//!
//! # Protocol
//! One thread at a time is here ([`process::exec`](crate::process::exec)), and all workers block the signals in question.
//! 1. What is pending leaves its queue for a list ([`HANDED`]), in its order; a copy of each is sent to the kernel. From then
//!    on threads of ours that send such a signal to the process send it to the kernel, too; until the copies are there
//!    they wait.
//! 2. If the call fails, all is asked back. What is a copy is on the list; the rest was sent meanwhile. The list comes before
//!    what is in the queue by now, that before the rest. [`SENDS`] is held over this, so that no thread sends one signal to the
//!    kernel and the next one to the queue in between.
//!
//! A signal that another process sends between the first and the last copy comes between them in the new program.

use super::*;

/// See above: changed under the lock of the process's queue.
static TO_KERNEL: AtomicU64 = AtomicU64::new(0);
/// The copies are in the kernel.
static READY: AtomicBool = AtomicBool::new(false);
static SENDS: SpinLock<()> = SpinLock::new(());

struct Handed {
    process: PendingSignals,
    thread: PendingSignals,
    /// Pending without a `siginfo_t`.
    bare: [u64; 2],
}

static HANDED: SpinLock<Handed> =
    SpinLock::new(Handed { process: PendingSignals::of(0), thread: PendingSignals::of(0), bare: [0; 2] });

/// A signal that a thread of ours sends to the process. `to_kernel` has the kernel send it.
///
/// # Safety
/// Inside the core, no locks held.
pub unsafe fn send_own(info: &SigInfo, to_kernel: impl Fn() -> isize) -> Result<isize, Refused> {
    let this = bit(number(info));
    loop {
        if TO_KERNEL.load(Ordering::Relaxed) & this == 0 {
            // SAFETY: the caller's.
            match unsafe { send_if(info, || TO_KERNEL.load(Ordering::Relaxed) & this == 0) } {
                Ok(true) => return Ok(0),
                Ok(false) => {}
                Err(refused) => return Err(refused),
            }
        }
        // Acquire: the copies are sent. pairs: signal.handed
        if READY.load(Ordering::Acquire) {
            let _order = SENDS.lock();
            if TO_KERNEL.load(Ordering::Relaxed) & this != 0 {
                return Ok(to_kernel());
            }
        }
        heddle_core::lock::yield_cpu();
    }
}

/// Moves what is in `mask` to the end of `to`. Returns what had no `siginfo_t`.
fn extract(set: &AtomicU64, from: &mut PendingSignals, mask: u64, to: &mut PendingSignals) -> u64 {
    let mut bare = set.fetch_and(!mask, Ordering::Relaxed) & mask;
    let mut pool = ENTRIES.lock();
    let (mut before, mut n) = (0, from.first);
    while n != 0 {
        let Entry { info, next } = *pool.at(n);
        if bit(number(&info)) & mask == 0 {
            before = n;
        } else {
            bare &= !bit(number(&info));
            if before == 0 {
                from.first = next;
            } else {
                pool.at(before).next = next;
            }
            if from.last == n {
                from.last = before;
            }
            pool.append(to, n);
        }
        n = next;
    }
    bare
}

/// Puts `list` before (`true`) or behind what is in `queue`.
fn join(queue: &mut PendingSignals, list: PendingSignals, first: bool) {
    let (a, b) = if first { (list, *queue) } else { (*queue, list) };
    if a.first != 0 && b.first != 0 {
        ENTRIES.lock().at(a.last).next = b.first;
    }
    queue.first = if a.first != 0 { a.first } else { b.first };
    queue.last = if b.first != 0 { b.last } else { a.last };
}

/// Hands what is pending for `t` and for the process, and is in `mask`, to the kernel, for the program that `t` executes.
///
/// # Safety
/// `t` is the current thread, inside the core; all kernel threads of ours block `mask`.
pub unsafe fn hand_over(t: *mut Thread, mask: u64) {
    if mask == 0 {
        return;
    }
    // SAFETY: the caller's.
    unsafe {
        let (pid, tid) = (crate::signal::kernel::process() as usize, sys!(l::__NR_gettid) as usize);
        let mut h = HANDED.lock();
        let h = &mut *h;
        h.bare[0] = extract(&(*t).identity.sig_pending, &mut (*t).signals.lock(), mask, &mut h.thread);
        {
            let mut q = PROCESS.lock();
            h.bare[1] = extract(&PROCESS_SET, &mut q, mask, &mut h.process);
            TO_KERNEL.store(mask, Ordering::Relaxed);
        }
        for (list, bare, own) in [(&h.thread, h.bare[0], true), (&h.process, h.bare[1], false)] {
            let send = |info: &SigInfo| {
                let (signal, at) = (number(info), core::ptr::from_ref(info) as usize);
                let n = signal as usize;
                if own {
                    let call = [l::__NR_rt_tgsigqueueinfo as usize, pid, tid, n, at, 0, 0];
                    queue(call, [l::__NR_tgkill as usize, pid, tid, n, 0, 0, 0], signal);
                } else {
                    let call = [l::__NR_rt_sigqueueinfo as usize, pid, n, at, 0, 0, 0];
                    queue(call, [l::__NR_kill as usize, pid, n, 0, 0, 0, 0], signal);
                }
            };
            let mut n = list.first;
            while n != 0 {
                let Entry { info, next } = *ENTRIES.lock().at(n);
                send(&info);
                n = next;
            }
            let mut left = bare;
            while left != 0 {
                let mut info = [0; 16];
                info[0] = u64::from(left.trailing_zeros() + 1);
                send(&info);
                left &= left - 1;
            }
        }
        // What the kernel keeps for a `signalfd` stays with it.
        let kept = crate::signal::masks::kept();
        for list in [&mut h.thread, &mut h.process] {
            let mut gone = PendingSignals::of(0);
            extract(&AtomicU64::new(0), list, kept, &mut gone);
            release_all(gone);
        }
        h.bare = h.bare.map(|bits| bits & !kept);
        // Release: the copies are sent. pairs: signal.handed
        READY.store(true, Ordering::Release);
    }
}

fn release_all(list: PendingSignals) {
    let mut pool = ENTRIES.lock();
    let mut n = list.first;
    while n != 0 {
        let next = pool.at(n).next;
        pool.release(n);
        n = next;
    }
}

/// Walks a list beside the copies that come back: where the search for each number goes on.
struct Copies {
    list: PendingSignals,
    after: [u32; 65],
}

impl Copies {
    /// Whether this is the copy of the next one of its number on the list.
    fn has(&mut self, info: &SigInfo) -> bool {
        // What the kernel keeps of a `siginfo_t`.
        const KEPT: usize = 6;
        let signal = number(info);
        let mut pool = ENTRIES.lock();
        let after = self.after[signal as usize];
        let mut n = if after == 0 { self.list.first } else { pool.at(after).next };
        while n != 0 {
            let e = pool.at(n);
            if number(&e.info) == signal {
                // It may have been sent without its `siginfo_t`.
                let simple = matches!(code(info), SI_USER | SI_TKILL)
                    && info[2] as u32 as i32 == crate::signal::kernel::process();
                let same = e.info[1] as u32 == info[1] as u32 && e.info[2..KEPT] == info[2..KEPT];
                if same || simple {
                    self.after[signal as usize] = n;
                }
                return same || simple;
            }
            n = e.next;
        }
        false
    }
}

/// Undoes [`hand_over`].
///
/// # Safety
/// As there; all signals are blocked on the caller's kernel thread.
pub unsafe fn take_back(t: *mut Thread, mask: u64) {
    if mask == 0 {
        return;
    }
    let mut h = HANDED.lock();
    let thread = core::mem::replace(&mut h.thread, PendingSignals::of(0));
    let process = core::mem::replace(&mut h.process, PendingSignals::of(0));
    let bare = core::mem::take(&mut h.bare);
    drop(h);
    let mut copies = [Copies { list: process, after: [0; 65] }, Copies { list: thread, after: [0; 65] }];
    let (set, no_time) = (mask & !crate::signal::masks::kept(), [0u64; 2]);
    let (mut others, mut sent) = (PendingSignals::of(0), bare[1]);
    let mut info: SigInfo = [0; 16];
    // SAFETY: reads and writes locals; the current thread.
    unsafe {
        let order = SENDS.lock();
        let mut n = process.first;
        while n != 0 {
            let Entry { info, next } = *ENTRIES.lock().at(n);
            sent |= bit(number(&info));
            n = next;
        }
        let mut own = 0;
        n = thread.first;
        while n != 0 {
            let Entry { info, next } = *ENTRIES.lock().at(n);
            own |= bit(number(&info));
            n = next;
        }
        join(&mut (*t).signals.lock(), thread, true);
        (*t).identity.sig_pending.fetch_or(own | bare[0], Ordering::Relaxed);
        while sys!(l::__NR_rt_sigtimedwait, &raw const set, info.as_mut_ptr(), no_time.as_ptr(), 8) > 0 {
            if copies.iter_mut().any(|c| c.has(&info)) {
                continue;
            }
            let signal = number(&info);
            if code(&info) == SI_TKILL {
                let _ = send_to_thread((*t).identity.tid.load(Ordering::Relaxed), &info);
                continue;
            }
            if signal >= l::SIGRTMIN || sent & bit(signal) == 0 {
                let mut pool = ENTRIES.lock();
                let n = pool.allocate(&info);
                if n != 0 {
                    pool.append(&mut others, n);
                }
            }
            sent |= bit(signal);
        }
        {
            let mut q = PROCESS.lock();
            join(&mut q, process, true);
            join(&mut q, others, false);
            PROCESS_SET.fetch_or(sent, Ordering::Relaxed);
            TO_KERNEL.store(0, Ordering::Relaxed);
            READY.store(false, Ordering::Relaxed);
        }
        drop(order);
        while sent != 0 {
            tell(sent.trailing_zeros() + 1, super::main());
            sent &= sent - 1;
        }
    }
}

/// Nothing is handed over, in a forked child.
///
/// # Safety
/// The caller is the only thread.
pub unsafe fn reset() {
    // SAFETY: the caller's.
    unsafe {
        HANDED.force_unlock();
        SENDS.force_unlock();
    }
    *HANDED.lock() = Handed { process: PendingSignals::of(0), thread: PendingSignals::of(0), bare: [0; 2] };
    TO_KERNEL.store(0, Ordering::Relaxed);
    READY.store(false, Ordering::Relaxed);
}
