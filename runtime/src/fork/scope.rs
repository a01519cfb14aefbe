//! `scope`: any number of jobs that end before it does.
//!
//! # Safety
//! A job borrows what outlives the scope, and the scope is not left before its count of unfinished jobs is 0.

use std::any::Any;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::AtomicBool;

use super::job::{Job, Scoped};
use super::lane::Lane;
use super::pool;
use super::room::{Room, Rooms};
use crate::prim::{AtomicUsize, Ordering};
use crate::sync::Mutex;

struct State {
    /// Jobs that have not ended, but for those that the owner has added and nobody has stolen ([`Scoped`]); and one for the scope's
    /// own closure.
    unfinished: AtomicUsize,
    /// The lane of the thread that made the scope.
    owner: Option<&'static Lane>,
    /// Something is in `panic`.
    has_panicked: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl State {
    fn keep(&self, panic: Box<dyn Any + Send>) {
        self.panic.lock().get_or_insert(panic);
        self.has_panicked.store(true, Ordering::Relaxed);
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
    scoped: Scoped,
    state: *const State,
    closure: F,
}

impl<F: FnOnce() + Send> ScopeJob<F> {
    /// It fits into a place of the lane's.
    const IS_SMALL: bool = size_of::<Self>() <= size_of::<Room>() && align_of::<Self>() <= align_of::<Room>();

    unsafe fn run(job: *const Job) {
        let this: *mut Self = job.cast_mut().cast();
        // SAFETY: made by `spawn`; who runs it owns it. The state outlives its jobs.
        unsafe {
            let is_counted = Scoped::is_counted(this.cast());
            let state = (*this).state;
            let closure = (&raw const (*this).closure).read();
            // The memory is free before the closure runs: what that adds uses it again.
            if (*this).scoped.in_room {
                Rooms::give_back(this.cast(), pool::lane().map(|lane| &lane.rooms));
            } else {
                drop(Box::from_raw(this.cast::<MaybeUninit<Self>>()));
            }
            if let Err(panic) = catch_unwind(AssertUnwindSafe(closure)) {
                (*state).keep(panic);
            }
            if is_counted {
                State::finish(state);
            }
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
    ///
    /// The memory of small jobs (closures of up to 64 bytes) is the thread's and is used again and again: nothing is allocated as
    /// long as fewer than 1000 of its jobs wait.
    pub fn spawn<F>(&'scope self, job: F)
    where
        F: FnOnce() + Send + 'scope,
    {
        let (Some(lane), Some(owner)) = (pool::lane().or_else(pool::attach), self.state.owner) else {
            // The thread, or the scope's, is ending and has no lane any more.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(job)) {
                self.state.keep(panic);
            }
            return;
        };
        let is_counted = !std::ptr::eq(lane, owner);
        if is_counted {
            self.state.unfinished.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: our lane.
        let room = if ScopeJob::<F>::IS_SMALL { unsafe { lane.rooms.take() } } else { None };
        let job = ScopeJob {
            scoped: Scoped::new(ScopeJob::<F>::run, &raw const self.state.unfinished, is_counted, room.is_some()),
            state: &raw const self.state,
            closure: job,
        };
        // SAFETY: the room is large enough and nobody else's. Our lane; the memory is the job's until it is run.
        unsafe {
            let place = match room {
                Some(room) => {
                    let place = room.cast::<ScopeJob<F>>();
                    place.write(job);
                    place
                }
                None => Box::into_raw(Box::new(job)),
            };
            lane.add(place.cast());
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
        state: State {
            unfinished: AtomicUsize::new(1),
            owner: lane,
            has_panicked: AtomicBool::new(false),
            panic: Mutex::new(None),
        },
        scope: PhantomData,
        env: PhantomData,
    };
    let base = lane.map_or(0, |lane| {
        lane.count_scope(1);
        lane.back()
    });
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    if let Some(lane) = lane {
        let ours = (&raw const scope.state.unfinished) as usize;
        // Those of outer scopes stay: one might want a lock that our caller holds.
        // SAFETY: our lane.
        while let Some(job) = unsafe { lane.take_newest(base, Some(ours)) } {
            // SAFETY: we took it.
            unsafe { ((*job).run)(job) };
        }
        // Nobody but us and jobs that are counted can add more.
        // Acquire: what the jobs did is visible. pairs: scope.unfinished
        if scope.state.unfinished.load(Ordering::Acquire) != 1
            // Acquire: as above. pairs: scope.unfinished
            && scope.state.unfinished.fetch_sub(1, Ordering::Acquire) != 1
        {
            wait(lane, &scope.state);
        }
        lane.count_scope(-1);
    }
    // Seen as all else that the jobs did.
    let has_panicked = scope.state.has_panicked.load(Ordering::Relaxed);
    let panic = if has_panicked { scope.state.panic.lock().take() } else { None };
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
