//! `join`: two closures, perhaps at the same time.
//!
//! # Safety
//! The second closure is a job in the caller's frame, which is not left before the job is taken back or done: the guard
//! sees to that when the first closure panics.

use std::any::Any;
use std::cell::UnsafeCell;
use std::mem::{ManuallyDrop, MaybeUninit, forget};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::job::Job;
use super::lane::Lane;
use super::pool;

#[repr(C)]
struct JoinJob<F, R> {
    job: Job,
    closure: UnsafeCell<ManuallyDrop<F>>,
    result: UnsafeCell<MaybeUninit<Result<R, Box<dyn Any + Send>>>>,
}

impl<F: FnOnce() -> R + Send, R: Send> JoinJob<F, R> {
    #[inline(always)]
    fn new(closure: F) -> Self {
        Self {
            job: Job::new(Self::run),
            closure: UnsafeCell::new(ManuallyDrop::new(closure)),
            result: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Runs it on the thread that stole it.
    unsafe fn run(job: *const Job) {
        let this: *const Self = job.cast();
        // SAFETY: `job` is the first field of one of these; who runs it owns closure and result until it is done.
        unsafe {
            let closure = (*this).take();
            (*(*this).result.get()).write(catch_unwind(AssertUnwindSafe(closure)));
            Job::finish(job);
        }
    }

    /// The closure.
    ///
    /// # Safety
    /// Called once, by who took the job.
    #[inline(always)]
    unsafe fn take(&self) -> F {
        // SAFETY: the caller's.
        unsafe { ManuallyDrop::take(&mut *self.closure.get()) }
    }
}

/// The bytes of a closure that is small.
const SMALL: usize = 64;

/// Takes the job back, or waits for it, when the first closure panics.
struct Guard<'a, F: FnOnce() -> R + Send, R: Send> {
    lane: &'static Lane,
    job: &'a JoinJob<F, R>,
}

impl<F: FnOnce() -> R + Send, R: Send> Drop for Guard<'_, F, R> {
    // Inlined, so that the guard's fields need not be in memory while the first closure runs.
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: our lane and our job: as in `join`.
        unsafe { abandon(self.lane, self.job) };
    }
}

#[cold]
#[inline(never)]
unsafe fn abandon<F: FnOnce() -> R + Send, R: Send>(lane: &Lane, job: &JoinJob<F, R>) {
    // SAFETY: the caller's.
    unsafe {
        if lane.pop() {
            drop(job.take());
        } else {
            pool::wait_for(lane, &job.job);
            drop((*job.result.get()).assume_init_read());
        }
    }
}

/// Runs both closures, `b` perhaps on another thread meanwhile, and answers both results.
///
/// Nothing is allocated and no stack is switched unless another thread has time for `b`: then that thread takes it out of
/// the caller's frame. Otherwise the caller runs `b` itself after `a`. When `a` has ended before a `b` that was taken, the
/// caller parks; no other job runs on its stack meanwhile, so it may hold locks.
///
/// A panic in either closure is passed on when both have ended; that of `a` if both panic. If `a` panics and nobody has
/// taken `b`, `b` is dropped without being run.
///
/// ```
/// fn fib(n: u32) -> u64 {
///     if n < 2 {
///         return n.into();
///     }
///     let (a, b) = heddle::join(|| fib(n - 1), || fib(n - 2));
///     a + b
/// }
/// assert_eq!(fib(20), 6765);
/// ```
// Always inlined: the closures' captures need not go through memory then, and all that is rare is elsewhere.
#[inline(always)]
pub fn join<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA,
    B: FnOnce() -> RB + Send,
    RB: Send,
{
    // A small closure may stay in registers for us; a large one is not to be there twice.
    if size_of::<B>() <= SMALL {
        let b = ManuallyDrop::new(b);
        // SAFETY: one of the two is used: ours if we have the job, otherwise the job's.
        let job = JoinJob::new(unsafe { std::ptr::read(&*b) });
        // SAFETY: as above.
        unsafe { join_job(a, &job, || ManuallyDrop::into_inner(b)) }
    } else {
        let job = JoinJob::new(b);
        // SAFETY: we have the job then.
        unsafe { join_job(a, &job, || job.take()) }
    }
}

/// # Safety
/// The job is new. `take_back` is used at most once, when nobody else has the job.
#[inline(always)]
unsafe fn join_job<A, B, RA, RB>(a: A, job: &JoinJob<B, RB>, take_back: impl FnOnce() -> B) -> (RA, RB)
where
    A: FnOnce() -> RA,
    B: FnOnce() -> RB + Send,
    RB: Send,
{
    let Some(lane) = pool::lane().or_else(pool::attach) else {
        // SAFETY: we have the job.
        return one_by_one(a, unsafe { job.take() });
    };
    // SAFETY: our lane; the job stays in the caller's frame until it is taken back or done, also when `a` panics.
    unsafe {
        lane.push(&raw const job.job);
        if !lane.is_attended() {
            pool::attend(lane);
        }
    }
    let guard = Guard { lane, job };
    let a = a();
    forget(guard);
    // SAFETY: our lane; what `a` pushed it has taken back.
    if unsafe { lane.pop() } {
        return (a, take_back()());
    }
    // SAFETY: our lane; the job was stolen.
    (a, unsafe { stolen(lane, job) })
}

/// Waits for the job and answers its result.
///
/// # Safety
/// `lane` is the caller's, and the job was stolen from it.
#[cold]
#[inline(never)]
unsafe fn stolen<F: FnOnce() -> R + Send, R: Send>(lane: &Lane, job: &JoinJob<F, R>) -> R {
    // SAFETY: the job was stolen, and then is done: its result is written.
    let result = unsafe {
        pool::wait_for(lane, &job.job);
        (*job.result.get()).assume_init_read()
    };
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// The thread is ending: nothing of it may be lent to others any more.
#[cold]
#[inline(never)]
fn one_by_one<RA, RB>(a: impl FnOnce() -> RA, b: impl FnOnce() -> RB) -> (RA, RB) {
    (a(), b())
}
