//! Errands: a system call that every kernel thread of ours makes, because the kernel keeps its effect for each of them
//! while a program takes it for the process's (user ids and the like).
//!
//! # Protocol
//! * `round` is odd while an errand is under way. The lock is held from before the first kernel thread makes the call until
//!   after the last one has made it, and by whoever starts a kernel thread, from before its record is listed until the
//!   kernel has made it.
//! * A kernel thread that finds an odd round which is not its last one makes the call, then notes the round. Workers look
//!   when they are kicked (in the handler, wherever they are: an errand is raw system calls only) and before they open
//!   their signal mask for the first time; the monitor looks at each turn.
//! * The sender waits until all listed workers and the monitor have noted the round.
//!
//! None is left out: a worker that is started while an errand is under way would need the lock; one that was started before
//! is listed, or inherits from a creator that is itself waited for. The call's words do not change under a reader's eyes:
//! who reads them has not noted the round, so the sender still waits.
//!
//! A worker whose thread waits for the child of a `vfork` answers no kick, and the child may wait for the sender. So where
//! the call allows it ([`Absent`]) the sender notes the round for it. That, and the worker's return, are exchanges of
//! `Worker::held`: either the worker comes back with the round noted, or it is back and answers. It runs nothing of the
//! program before it has looked at what it owes.

use super::{RT, Worker, worker};
use crate::lock::{Guard, SpinLock};
use crate::prim::fence;
use crate::sys::{linux as l, syscall6};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicIsize, AtomicU32, AtomicUsize, Ordering};

/// A system call: its number and arguments.
pub type Call = [usize; 7];

/// What is done about a worker whose thread waits for the child of a `vfork`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    /// It is waited for.
    Wait,
    /// It need not make the call: what that is for it looks at when it is back.
    Spare,
    /// It makes the call when it is back. The call's arguments are plain numbers.
    Later,
}

/// How long the sender waits before it kicks again who has not done it, in nanoseconds. (A kick can be lost to the limit
/// on queued signals.)
const PATIENCE: i64 = 20_000_000;

/// The errand under way, if there is one.
pub struct Errands {
    /// A record of a worker that the kernel refused to make, to be used for the next one.
    lock: SpinLock<usize>,
    round: AtomicU32,
    /// Counts kernel threads that have made a call; the sender sleeps on it.
    done: AtomicU32,
    call: [AtomicUsize; 7],
    /// It is not for settled workers (`worker/settle.rs`).
    shared: AtomicBool,
    /// The first error of another kernel thread.
    failed: AtomicI32,
    /// The result of a kernel thread other than ESRCH.
    answer: AtomicIsize,
}

const ESRCH: isize = -(linux_raw_sys::errno::ESRCH as isize);

impl Errands {
    /// Nothing to do.
    pub const fn new() -> Self {
        Self {
            lock: SpinLock::new(0),
            round: AtomicU32::new(0),
            done: AtomicU32::new(0),
            call: [const { AtomicUsize::new(0) }; 7],
            shared: AtomicBool::new(false),
            failed: AtomicI32::new(0),
            answer: AtomicIsize::new(ESRCH),
        }
    }

    /// Forgets everything, in a forked child.
    ///
    /// # Safety
    /// The caller is the only thread.
    pub(super) unsafe fn reset(&self) {
        // SAFETY: the caller's.
        unsafe { self.lock.force_unlock() };
        *self.lock.lock() = 0;
        self.round.store(0, Ordering::Relaxed);
    }

    /// The right to start kernel threads, with room for a record that was not used; `None` while an errand is under way.
    pub(super) fn births(&self) -> Option<Guard<'_, usize>> {
        self.lock.try_lock()
    }

    /// Waits until no kernel thread is being started.
    pub(super) fn after_births(&self) {
        drop(self.lock.lock());
    }

    /// Whether a kernel thread that noted `last` has something to do.
    #[inline]
    pub fn wait_for(&self, last: &AtomicU32) -> bool {
        // Acquire: the call is written. pairs: errand.round
        let round = self.round.load(Ordering::Acquire);
        round % 2 == 1 && last.load(Ordering::Relaxed) != round
    }

    /// Makes the call of the errand under way, unless this kernel thread, whose last round is `last`, has done so.
    ///
    /// # Safety
    /// `last` is the caller's own. Safe in signal handlers.
    #[inline]
    pub unsafe fn attend(&self, last: &AtomicU32) {
        if self.wait_for(last) {
            // SAFETY: the caller's.
            unsafe { self.run(last) };
        }
    }

    #[cold]
    unsafe fn run(&self, last: &AtomicU32) {
        let word = |i: usize| self.call[i].load(Ordering::Relaxed);
        // A settled worker is unlike the others: it may be refused what they are not.
        let settled = super::is_settled();
        // SAFETY: the sender's call; it keeps what it points to until all have made it.
        unsafe {
            let r = if settled && self.shared.load(Ordering::Relaxed) {
                ESRCH
            } else {
                syscall6(word(0), core::array::from_fn(|i| word(i + 1)))
            };
            if !settled && (-4095..0).contains(&r) {
                let _ = self.failed.compare_exchange(0, r as i32, Ordering::Relaxed, Ordering::Relaxed);
            }
            if r != ESRCH {
                self.answer.store(r, Ordering::Relaxed);
            }
            // Release: the call is made. pairs: errand.done
            last.store(self.round.load(Ordering::Relaxed), Ordering::Release);
            self.done.fetch_add(1, Ordering::Relaxed);
            sys!(l::__NR_futex, self.done.as_ptr(), l::FUTEX_WAKE | l::FUTEX_PRIVATE_FLAG, 1, 0, 0, 0);
        }
    }

    /// Calls `own`, which does what the caller's kernel thread has to do and tells what all others have to do (`None`:
    /// nothing) with the caller's result; returns when they have. Other errands and new kernel threads wait meanwhile.
    /// `kick` interrupts a worker. Error: the first one of another kernel thread.
    ///
    /// # Safety
    /// Inside the core on a worker, signals open; the call may be made by every kernel thread at any time.
    pub unsafe fn everywhere<R>(
        &self,
        absent: Absent,
        own: impl FnOnce() -> (R, Option<Call>),
        kick: fn(&Worker),
    ) -> Result<R, i32> {
        // SAFETY: the caller's.
        unsafe { self.wherever(absent, own, kick, false) }
    }

    /// As [`everywhere`](Self::everywhere), but not on kernel threads that are one thread's alone.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn on_shared<R>(&self, own: impl FnOnce() -> (R, Option<Call>), kick: fn(&Worker)) -> Result<R, i32> {
        // SAFETY: the caller's.
        unsafe { self.wherever(Absent::Wait, own, kick, true) }
    }

    unsafe fn wherever<R>(
        &self,
        absent: Absent,
        own: impl FnOnce() -> (R, Option<Call>),
        kick: fn(&Worker),
        shared: bool,
    ) -> Result<R, i32> {
        let _order = self.lock.lock();
        let (result, call) = own();
        let Some(call) = call else { return Ok(result) };
        self.shared.store(shared, Ordering::Relaxed);
        // SAFETY: the caller's; the lock is held.
        unsafe { self.all_others(absent, call, kick) };
        match self.failed.load(Ordering::Relaxed) {
            0 => Ok(result),
            error => Err(-error),
        }
    }

    /// A call that the kernel lets one kernel thread make and refuses all others with ESRCH: its result there.
    ///
    /// # Safety
    /// As for [`everywhere`](Self::everywhere).
    pub unsafe fn somewhere(&self, call: Call, kick: fn(&Worker)) -> isize {
        let _order = self.lock.lock();
        // SAFETY: the caller's; the lock is held.
        unsafe {
            let own = syscall6(call[0], core::array::from_fn(|i| call[i + 1]));
            if own != ESRCH {
                return own;
            }
            self.shared.store(false, Ordering::Relaxed);
            self.all_others(Absent::Wait, call, kick);
        }
        self.answer.load(Ordering::Relaxed)
    }

    /// Has all other kernel threads make the call.
    ///
    /// # Safety
    /// As for [`everywhere`](Self::everywhere), and the caller holds the lock.
    unsafe fn all_others(&self, absent: Absent, call: Call, kick: fn(&Worker)) {
        for (word, value) in self.call.iter().zip(call) {
            word.store(value, Ordering::Relaxed);
        }
        self.failed.store(0, Ordering::Relaxed);
        self.answer.store(ESRCH, Ordering::Relaxed);
        let round = self.round.load(Ordering::Relaxed).wrapping_add(1);
        // SAFETY: our own record.
        unsafe { (*worker()).errand.store(round, Ordering::Relaxed) };
        // Release: the call is written. pairs: errand.round
        self.round.store(round, Ordering::Release);
        // SeqCst: the round is visible before the monitor's doze is looked at (`Monitor::poke`); the monitor says that it
        // dozes, then looks at the round. pairs: monitor.sleep
        fence(Ordering::SeqCst);
        loop {
            let seen = self.done.load(Ordering::Relaxed);
            let mut all = true;
            RT.for_each_worker(&mut |w| {
                // Acquire: it has made the call. pairs: errand.done
                if w.errand.load(Ordering::Acquire) != round && !put_off(w, absent, call, round) {
                    all = false;
                    kick(w);
                }
            });
            // Acquire: as above. pairs: errand.done
            if RT.monitor.tid() != 0 && RT.monitor.errand.load(Ordering::Acquire) != round {
                all = false;
                RT.monitor.poke();
            }
            if all {
                break;
            }
            // They answer one by one: wait until nobody has for a while, then look and kick again.
            let mut last = seen;
            loop {
                let pause = l::timespec { tv_sec: 0, tv_nsec: PATIENCE };
                // SAFETY: the word is ours; reads a local.
                let r = unsafe {
                    let wait = l::FUTEX_WAIT | l::FUTEX_PRIVATE_FLAG;
                    sys!(l::__NR_futex, self.done.as_ptr(), wait, last, &pause as *const _, 0, 0)
                };
                let now = self.done.load(Ordering::Relaxed);
                if r == -(linux_raw_sys::errno::ETIMEDOUT as isize) || self.complete(round) {
                    break;
                }
                last = now;
            }
        }
        self.round.store(round.wrapping_add(1), Ordering::Relaxed);
    }

    fn complete(&self, round: u32) -> bool {
        let mut all = RT.monitor.tid() == 0 || RT.monitor.errand.load(Ordering::Relaxed) == round;
        RT.for_each_worker(&mut |w| all &= w.errand.load(Ordering::Relaxed) == round);
        all
    }
}

/// Notes `round` for a worker that is held, if the call allows it.
fn put_off(w: &Worker, absent: Absent, call: Call, round: u32) -> bool {
    // Acquire: what it owed before has been done, or is listed. pairs: worker.held
    let noted = || w.held.compare_exchange(Worker::HELD, Worker::NOTED, Ordering::Acquire, Ordering::Relaxed).is_ok();
    if absent == Absent::Wait || !noted() {
        return false;
    }
    let owes = w.owes.load(Ordering::Relaxed) as usize;
    let done = match (absent, w.owed.get(owes)) {
        (Absent::Spare, _) => true,
        (_, Some(words)) => {
            for (word, value) in words.iter().zip(call) {
                word.store(value, Ordering::Relaxed);
            }
            w.owes.store(owes as u32 + 1, Ordering::Relaxed);
            true
        }
        (_, None) => false,
    };
    if done {
        w.errand.store(round, Ordering::Relaxed);
    }
    // Release: what it owes, and what the sender has changed before. pairs: worker.held
    w.held.store(Worker::HELD, Ordering::Release);
    done
}

/// Worker `w`, the caller's, is no longer held: it makes the calls that it owes. Error: the number of one that failed, though
/// it had succeeded elsewhere, and why.
///
/// # Safety
/// On its kernel thread, all signals blocked.
pub unsafe fn no_longer_held(w: *mut Worker) -> Result<(), (usize, i32)> {
    // SAFETY: our own record; the callers of `put_off` have made the calls before.
    unsafe {
        let w = &*w;
        // AcqRel: we see what has been put off, and what we do about it is done before the next time. pairs: worker.held
        while w.held.compare_exchange(Worker::HELD, 0, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            core::hint::spin_loop();
        }
        let mut result = Ok(());
        for words in &w.owed[..w.owes.swap(0, Ordering::Relaxed) as usize] {
            let word = |i: usize| words[i].load(Ordering::Relaxed);
            let r = syscall6(word(0), core::array::from_fn(|i| word(i + 1)));
            if !super::is_settled() && (-4095..0).contains(&r) {
                result = Err((word(0), -r as i32));
            }
        }
        result
    }
}

impl Default for Errands {
    fn default() -> Self {
        Self::new()
    }
}
