//! A job: something that may be run by another thread, in the frame of who made it or in a box.
//!
//! A job that somebody steals gets a word that tells how far it is: *pending*, *waited for* (by its maker, who cannot go on),
//! *done*. The maker's memory may be gone as soon as the word says done. So who has run it
//!
//! 1. tries to go from pending to done, and then touches it no more;
//! 2. if it is waited for, reads who waits, stores done, and wakes that lane, which is never freed.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

use crate::prim::{AtomicU32, AtomicUsize, Ordering};

use super::lane::Lane;

const PENDING: u32 = 0;
const WAITED_FOR: u32 = 1;
const DONE: u32 = 2;

/// The part of a job that all kinds have; the first field of each.
#[repr(C)]
pub struct Job {
    /// Runs it, given its address, and says that it is done.
    pub run: unsafe fn(*const Job),
    /// Written by the thief, under the lane's lock.
    word: UnsafeCell<MaybeUninit<AtomicU32>>,
    /// Who waits; written before the word says so.
    waiter: UnsafeCell<MaybeUninit<*const Lane>>,
}

impl Job {
    /// One that nobody has stolen.
    #[inline(always)]
    pub const fn new(run: unsafe fn(*const Job)) -> Self {
        Self { run, word: UnsafeCell::new(MaybeUninit::uninit()), waiter: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// It has been stolen: it is pending.
    ///
    /// # Safety
    /// Called once, by the thief, before the maker looks for it.
    pub unsafe fn claim(job: *const Job) {
        // SAFETY: the caller's.
        unsafe { (*(*job).word.get()).write(AtomicU32::new(PENDING)) };
    }

    /// # Safety
    /// The job was stolen.
    unsafe fn word(&self) -> &AtomicU32 {
        // SAFETY: the caller's.
        unsafe { (*self.word.get()).assume_init_ref() }
    }

    /// Says that it is done and wakes who waits.
    ///
    /// # Safety
    /// The caller has run the job and touches it no more.
    pub unsafe fn finish(job: *const Job) {
        // SAFETY: until the word says done the maker keeps the job; who waits is written if the word says that somebody does.
        let waiter = unsafe {
            // Release: what the job did comes before its maker goes on. Acquire: who waits has told so. pairs: job.done
            match (*job).word().compare_exchange(PENDING, DONE, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return,
                Err(_) => {
                    let waiter = (*(*job).waiter.get()).assume_init();
                    #[cfg(not(loom))]
                    super::pool::goes_on();
                    // Release: as above. pairs: job.done
                    (*job).word().store(DONE, Ordering::Release);
                    waiter
                }
            }
        };
        // SAFETY: lanes are never freed.
        unsafe { (*waiter).tell() };
    }

    /// Whether the thief has run it to its end.
    ///
    /// # Safety
    /// The job was stolen.
    pub unsafe fn is_done(&self) -> bool {
        // SAFETY: the caller's.
        let word = unsafe { self.word() };
        // Acquire: all that the job did is visible. pairs: job.done
        word.load(Ordering::Acquire) == DONE
    }

    /// Makes `lane`, the caller's, the one to be told. False: the job is done.
    ///
    /// # Safety
    /// The job was stolen.
    pub unsafe fn wait_on(&self, lane: &Lane) -> bool {
        // SAFETY: nobody reads the waiter before the word says that somebody waits; the word is the caller's.
        let word = unsafe {
            (*self.waiter.get()).write(lane);
            self.word()
        };
        // Release: the waiter is written. Acquire: all that the job did is visible. pairs: job.done
        word.compare_exchange(PENDING, WAITED_FOR, Ordering::Release, Ordering::Acquire).is_ok()
    }
}

/// The part of a scope's job that all have; the first field of each.
///
/// A scope counts the jobs that it has to wait for: those that other threads than its own add, from the start, and those of its
/// own thread when they are stolen. What its own thread adds and runs costs no locked instruction.
#[repr(C)]
pub struct Scoped {
    pub job: Job,
    /// The scope's count, which also names the scope.
    count: *const AtomicUsize,
    /// It is among those. Written by the thief, under the lane's lock.
    is_counted: UnsafeCell<bool>,
    /// It is in a place of a lane's, not in a box.
    pub in_room: bool,
}

impl Scoped {
    pub fn new(run: unsafe fn(*const Job), count: *const AtomicUsize, is_counted: bool, in_room: bool) -> Self {
        Self { job: Job::new(run), count, is_counted: UnsafeCell::new(is_counted), in_room }
    }

    /// Names the scope.
    pub fn scope(&self) -> usize {
        self.count as usize
    }

    /// It is stolen: the scope has to wait for it.
    ///
    /// # Safety
    /// The caller has taken the job and holds the lane's lock.
    pub unsafe fn count(job: *const Self) {
        // SAFETY: the caller's; the scope waits for its jobs.
        unsafe {
            if !*(*job).is_counted.get() {
                *(*job).is_counted.get() = true;
                (*(*job).count).fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Whether the scope waits for it.
    ///
    /// # Safety
    /// The caller has taken the job.
    pub unsafe fn is_counted(job: *const Self) -> bool {
        // SAFETY: the caller's.
        unsafe { *(*job).is_counted.get() }
    }
}
