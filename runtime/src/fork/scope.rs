//! `scope`: any number of jobs that end before it does.
//!
//! # Safety
//! A job borrows what outlives the scope, and the scope is not left before its count of unfinished jobs is 0.

use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::job::Job;
use super::lane::Lane;
use super::pool;
use crate::sync::Mutex;

struct State {
    /// Jobs that have not ended, and one for the scope's own closure.
    unfinished: AtomicUsize,
    /// The lane of the thread that made the scope.
    owner: Option<&'static Lane>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl State {
    fn keep(&self, panic: Box<dyn Any + Send>) {
        self.panic.lock().get_or_insert(panic);
    }

    /// One has ended.
    ///
    /// # Safety
    /// The caller was counted, and touches the state no more.
    unsafe fn finish(state: *const Self) {
        // SAFETY: the caller is still counted.
        unsafe {
            let owner = (*state).owner;
            // AcqRel: what it and the others did comes before the scope's end. pairs: scope.unfinished
            if (*state).unfinished.fetch_sub(1, Ordering::AcqRel) == 1
                && let Some(owner) = owner
            {
                owner.tell();
            }
        }
    }

    fn is_finished(&self) -> bool {
        // Acquire: what the jobs did is visible. pairs: scope.unfinished
        self.unfinished.load(Ordering::Acquire) == 0
    }
}

#[repr(C)]
struct ScopeJob<F> {
    job: Job,
    state: *const State,
    closure: F,
}

impl<F: FnOnce() + Send> ScopeJob<F> {
    unsafe fn run(job: *const Job) {
        // SAFETY: made by `spawn` from a box; who runs it owns it. The state outlives its count.
        unsafe {
            let this = Box::from_raw(job.cast_mut().cast::<Self>());
            let Self { state, closure, .. } = *this;
            if let Err(panic) = catch_unwind(AssertUnwindSafe(closure)) {
                (*state).keep(panic);
            }
            State::finish(state);
        }
    }
}

/// What [`scope`] gives its closure.
pub struct Scope<'scope, 'env: 'scope> {
    state: State,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Adds a job, which may borrow whatever outlives the scope, and may itself add jobs. It runs some time before the scope
    /// ends, on this thread or another; never inside this call.
    pub fn spawn<F>(&'scope self, job: F)
    where
        F: FnOnce() + Send + 'scope,
    {
        let Some(lane) = pool::lane().or_else(pool::attach) else {
            // The thread is ending and has no lane any more.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(job)) {
                self.state.keep(panic);
            }
            return;
        };
        self.state.unfinished.fetch_add(1, Ordering::Relaxed);
        let job = ScopeJob { job: Job::new(ScopeJob::<F>::run), state: &raw const self.state, closure: job };
        // SAFETY: our lane; the box lives until the job has run.
        unsafe {
            lane.add(Box::into_raw(Box::new(job)).cast());
            if !lane.is_attended() {
                pool::attend(lane);
            }
        }
    }
}

/// Runs a closure that may add jobs with [`Scope::spawn`]; answers when it and all of them have ended.
///
/// If one panics, the others run to their end; then the first panic is passed on.
///
/// ```
/// let mut words = vec!["warp".to_string(), "weft".to_string()];
/// heddle::scope(|s| {
///     for word in &mut words {
///         s.spawn(|| word.make_ascii_uppercase());
///     }
/// });
/// assert_eq!(words, ["WARP", "WEFT"]);
/// ```
pub fn scope<'env, F, R>(f: F) -> R
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
{
    let lane = pool::lane().or_else(pool::attach);
    let scope = Scope {
        state: State { unfinished: AtomicUsize::new(1), owner: lane, panic: Mutex::new(None) },
        scope: PhantomData,
        env: PhantomData,
    };
    let base = lane.map_or(0, Lane::back);
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    if let Some(lane) = lane {
        let ours = |job: *const Job| {
            // SAFETY: the queue has jobs of scopes only.
            let job = unsafe { &*job.cast::<ScopeJob<()>>() };
            std::ptr::eq(job.state, &raw const scope.state)
        };
        // Those of outer scopes stay: one might want a lock that our caller holds.
        // SAFETY: our lane.
        while let Some(job) = unsafe { lane.take_newest(base, ours) } {
            // SAFETY: we took it.
            unsafe { ((*job).run)(job) };
        }
        // Acquire: what the jobs did is visible. pairs: scope.unfinished
        if scope.state.unfinished.fetch_sub(1, Ordering::Acquire) != 1 {
            wait(lane, &scope.state);
        }
    }
    let panic = scope.state.panic.lock().take();
    match (result, panic) {
        (Err(panic), _) | (Ok(_), Some(panic)) => resume_unwind(panic),
        (Ok(result), None) => result,
    }
}

#[cold]
fn wait(lane: &Lane, state: &State) {
    for _ in 0..32 {
        if state.is_finished() {
            return;
        }
        std::hint::spin_loop();
    }
    pool::wait(lane, || state.is_finished());
    // Who ended the last job does not know whether anybody waited.
    pool::goes_on();
}
