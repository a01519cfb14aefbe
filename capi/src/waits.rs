//! Barriers, semaphores, onces, events and wait groups. Their shapes are in [`sync`](crate::sync).

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use runtime::cancel::Limit;
use runtime::sync::{Barrier, Event, Once, Semaphore, WaitGroup};

use crate::call::{self, Argument};
use crate::error::{Outcome, Refusal, answer};
use crate::limit::{heddle_token_t, limit, time};
use crate::sync::{heddle_barrier_t, heddle_event_t, heddle_once_t, heddle_semaphore_t, heddle_wait_group_t, me};

#[repr(C)]
pub(crate) struct BarrierWithCount {
    /// As in the barrier; 0 in memory that is not initialised but zero.
    threads: u32,
    unused: u32,
    inner: Barrier,
}

/// Makes it a barrier for that many threads. Error: EINVAL: a null pointer, or 0 threads.
///
/// # Safety
/// `barrier` points to memory that nobody else uses yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_barrier_init(barrier: *mut heddle_barrier_t, threads: u32) -> c_int {
    answer("heddle_barrier_init", || {
        if threads == 0 {
            return Err(libc::EINVAL.into());
        }
        // SAFETY: the caller's.
        unsafe {
            heddle_barrier_t::set_up(barrier, BarrierWithCount { threads, unused: 0, inner: Barrier::new(threads) })
        }
    })
}

/// Waits until as many threads have come as it is for, again and again. It looks for a moment, then parks the calling
/// thread. *leader, which may be NULL, is true for one of them and false for the others. What each did before comes
/// before what all do after. Error: EINVAL: a null pointer, or a barrier for 0 threads.
///
/// # Safety
/// `barrier` points to an initialised one, `leader` to memory or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_barrier_wait(barrier: *mut heddle_barrier_t, leader: *mut bool) -> c_int {
    // SAFETY: the caller's.
    answer("heddle_barrier_wait", || unsafe { meet(barrier, leader, Limit::NEVER) })
}

/// # Safety
/// As [`heddle_barrier_wait`].
unsafe fn meet(barrier: *mut heddle_barrier_t, leader: *mut bool, limit: Limit<'_>) -> Outcome {
    // SAFETY: the caller's.
    let barrier = unsafe { heddle_barrier_t::of(barrier)? };
    if barrier.threads == 0 {
        return Err(libc::EINVAL.into());
    }
    let is_leader = barrier.inner.wait_until(limit)?;
    if !leader.is_null() {
        // SAFETY: the caller's.
        unsafe { leader.write(is_leader) };
    }
    Ok(())
}

/// As heddle_barrier_wait, for that many nanoseconds at most, and until `token`, which may be NULL, is cancelled.
/// Errors: ETIMEDOUT, ECANCELED: not all had come until then; the caller is not counted any more, and the others wait
/// for one more to come. EINVAL as there.
///
/// # Safety
/// As there; `token` is null or a token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_barrier_wait_within(
    barrier: *mut heddle_barrier_t,
    leader: *mut bool,
    nanoseconds: u64,
    token: *const heddle_token_t,
) -> c_int {
    // SAFETY: the caller's.
    answer("heddle_barrier_wait_within", || unsafe { meet(barrier, leader, limit(nanoseconds, token)?) })
}

/// Makes it a semaphore with that many permits. Error: EINVAL: a null pointer.
///
/// # Safety
/// `semaphore` points to memory that nobody else uses yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_semaphore_init(semaphore: *mut heddle_semaphore_t, permits: u32) -> c_int {
    // SAFETY: the caller's.
    answer("heddle_semaphore_init", || unsafe { heddle_semaphore_t::set_up(semaphore, Semaphore::new(permits)) })
}

/// Waits for a permit and takes it. It looks for a moment, then parks the calling thread. Error: EINVAL: a null
/// pointer.
///
/// # Safety
/// `semaphore` points to an initialised one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_semaphore_wait(semaphore: *mut heddle_semaphore_t) -> c_int {
    answer("heddle_semaphore_wait", || {
        // SAFETY: the caller's.
        unsafe { heddle_semaphore_t::of(semaphore)? }.acquire();
        Ok(())
    })
}

/// Takes a permit if there is one. It does not block. Errors: EAGAIN: there is none. EINVAL: a null pointer.
///
/// # Safety
/// `semaphore` points to an initialised one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_semaphore_trywait(semaphore: *mut heddle_semaphore_t) -> c_int {
    answer("heddle_semaphore_trywait", || {
        // SAFETY: the caller's.
        let got = unsafe { heddle_semaphore_t::of(semaphore)? }.try_acquire();
        if got { Ok(()) } else { Err(libc::EAGAIN.into()) }
    })
}

/// As heddle_semaphore_wait, for that many nanoseconds at most. Errors: ETIMEDOUT: there was none until then. EINVAL:
/// a null pointer.
///
/// # Safety
/// `semaphore` points to an initialised one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_semaphore_timedwait(semaphore: *mut heddle_semaphore_t, nanoseconds: u64) -> c_int {
    answer("heddle_semaphore_timedwait", || {
        // SAFETY: the caller's.
        Ok(unsafe { heddle_semaphore_t::of(semaphore)? }.acquire_until(time(nanoseconds))?)
    })
}

/// As heddle_semaphore_wait, for that many nanoseconds at most, and until `token`, which may be NULL, is cancelled.
/// What can be had without waiting is had in any case. Errors: ETIMEDOUT, ECANCELED: there was none until then.
/// EINVAL: a null pointer.
///
/// # Safety
/// `semaphore` points to an initialised one; `token` is null or a token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_semaphore_wait_within(
    semaphore: *mut heddle_semaphore_t,
    nanoseconds: u64,
    token: *const heddle_token_t,
) -> c_int {
    answer("heddle_semaphore_wait_within", || {
        // SAFETY: the caller's.
        unsafe { heddle_semaphore_t::of(semaphore)?.acquire_until(limit(nanoseconds, token)?).map_err(Refusal::from) }
    })
}

/// Adds `permits` permits. It does not block. Errors: EOVERFLOW: there would be more than 4294967295; none is added.
/// EINVAL: a null pointer.
///
/// # Safety
/// `semaphore` points to an initialised one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_semaphore_post(semaphore: *mut heddle_semaphore_t, permits: u32) -> c_int {
    answer("heddle_semaphore_post", || {
        // SAFETY: the caller's.
        let added = unsafe { heddle_semaphore_t::of(semaphore)? }.try_release_many(permits);
        if added { Ok(()) } else { Err(libc::EOVERFLOW.into()) }
    })
}

#[repr(C)]
pub(crate) struct OnceWithOwner {
    inner: Once,
    /// `me` of the thread that runs the function, as in [`MutexWithOwner`].
    runner: AtomicUsize,
}

/// Makes it one for which nothing has been done. Error: EINVAL: a null pointer.
///
/// # Safety
/// `once` points to memory that nobody else uses yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_once_init(once: *mut heddle_once_t) -> c_int {
    let new = OnceWithOwner { inner: Once::new(), runner: AtomicUsize::new(0) };
    // SAFETY: the caller's.
    answer("heddle_once_init", || unsafe { heddle_once_t::set_up(once, new) })
}

/// Calls fn(arg) unless this or another call with the same `once` has done so; waits while another does, which parks
/// the calling thread. What the function did comes before what any caller does next. A C++ exception that leaves it
/// ends the process by std::terminate. Errors: EDEADLK: the function calls its own once. EINVAL: a null pointer.
///
/// # Safety
/// `once` points to an initialised one; `fn(arg)` may run here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_once(
    once: *mut heddle_once_t,
    r#fn: Option<extern "C" fn(*mut c_void)>,
    arg: *mut c_void,
) -> c_int {
    answer("heddle_once", || {
        // SAFETY: the caller's.
        let once = unsafe { heddle_once_t::of(once)? };
        let function = r#fn.ok_or(libc::EINVAL)?;
        if once.inner.is_completed() {
            return Ok(());
        }
        if once.runner.load(Ordering::Relaxed) == me() {
            return Err(libc::EDEADLK.into());
        }
        once.inner.call_once(|| {
            once.runner.store(me(), Ordering::Relaxed);
            // SAFETY: the caller's.
            unsafe { call::without_result(function, Argument(arg)) };
            once.runner.store(0, Ordering::Relaxed);
        });
        Ok(())
    })
}

/// Makes it an event that has not happened. Error: EINVAL: a null pointer.
///
/// # Safety
/// `event` points to memory that nobody else uses yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_event_init(event: *mut heddle_event_t) -> c_int {
    // SAFETY: the caller's.
    answer("heddle_event_init", || unsafe { heddle_event_t::set_up(event, Event::new()) })
}

/// It has happened: all that wait go on, and so do those that come later, until it is reset. It does not block.
/// Error: EINVAL: a null pointer.
///
/// # Safety
/// `event` points to an initialised one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_event_set(event: *mut heddle_event_t) -> c_int {
    answer("heddle_event_set", || {
        // SAFETY: the caller's.
        unsafe { heddle_event_t::of(event)? }.set();
        Ok(())
    })
}

/// It has not happened any more. It does not block. Error: EINVAL: a null pointer.
///
/// # Safety
/// `event` points to an initialised one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_event_reset(event: *mut heddle_event_t) -> c_int {
    answer("heddle_event_reset", || {
        // SAFETY: the caller's.
        unsafe { heddle_event_t::of(event)? }.reset();
        Ok(())
    })
}

/// Waits until it has happened. It parks the calling thread. What was done before heddle_event_set comes before what
/// the caller does next. Error: EINVAL: a null pointer.
///
/// # Safety
/// `event` points to an initialised one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_event_wait(event: *mut heddle_event_t) -> c_int {
    answer("heddle_event_wait", || {
        // SAFETY: the caller's.
        unsafe { heddle_event_t::of(event)? }.wait();
        Ok(())
    })
}

/// As heddle_event_wait, for that many nanoseconds at most; 0: only looks. Errors: ETIMEDOUT: it had not happened
/// until then. EINVAL: a null pointer.
///
/// # Safety
/// `event` points to an initialised one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_event_timedwait(event: *mut heddle_event_t, nanoseconds: u64) -> c_int {
    answer("heddle_event_timedwait", || {
        // SAFETY: the caller's.
        Ok(unsafe { heddle_event_t::of(event)? }.wait_until(time(nanoseconds))?)
    })
}

/// As heddle_event_wait, for that many nanoseconds at most, and until `token`, which may be NULL, is cancelled. What
/// can be had without waiting is had in any case. Errors: ETIMEDOUT, ECANCELED: it had not happened until then.
/// EINVAL: a null pointer.
///
/// # Safety
/// `event` points to an initialised one; `token` is null or a token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_event_wait_within(
    event: *mut heddle_event_t,
    nanoseconds: u64,
    token: *const heddle_token_t,
) -> c_int {
    answer("heddle_event_wait_within", || {
        // SAFETY: the caller's.
        unsafe { heddle_event_t::of(event)?.wait_until(limit(nanoseconds, token)?).map_err(Refusal::from) }
    })
}

/// Makes it a wait group with nothing under way. Error: EINVAL: a null pointer.
///
/// # Safety
/// `group` points to memory that nobody else uses yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_wait_group_init(group: *mut heddle_wait_group_t) -> c_int {
    // SAFETY: the caller's.
    answer("heddle_wait_group_init", || unsafe { heddle_wait_group_t::set_up(group, WaitGroup::new()) })
}

/// That many more things are under way. It does not block. Errors: EOVERFLOW: there would be more than 4294967295;
/// none is added. EINVAL: a null pointer.
///
/// # Safety
/// `group` points to an initialised one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_wait_group_add(group: *mut heddle_wait_group_t, more: u32) -> c_int {
    answer("heddle_wait_group_add", || {
        // SAFETY: the caller's.
        let added = unsafe { heddle_wait_group_t::of(group)? }.try_add(more);
        if added { Ok(()) } else { Err(libc::EOVERFLOW.into()) }
    })
}

/// One thing less is under way; the last one lets all that wait go on. It does not block. Errors: EPERM: nothing is
/// under way. EINVAL: a null pointer.
///
/// # Safety
/// `group` points to an initialised one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_wait_group_done(group: *mut heddle_wait_group_t) -> c_int {
    answer("heddle_wait_group_done", || {
        // SAFETY: the caller's.
        let done = unsafe { heddle_wait_group_t::of(group)? }.try_done();
        if done { Ok(()) } else { Err(libc::EPERM.into()) }
    })
}

/// Waits until nothing is under way. It parks the calling thread. What was done before each heddle_wait_group_done
/// comes before what the caller does next. Error: EINVAL: a null pointer.
///
/// # Safety
/// `group` points to an initialised one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_wait_group_wait(group: *mut heddle_wait_group_t) -> c_int {
    answer("heddle_wait_group_wait", || {
        // SAFETY: the caller's.
        unsafe { heddle_wait_group_t::of(group)? }.wait();
        Ok(())
    })
}

/// As heddle_wait_group_wait, for that many nanoseconds at most, and until `token`, which may be NULL, is cancelled.
/// What can be had without waiting is had in any case. Errors: ETIMEDOUT, ECANCELED: something was under way until
/// then. EINVAL: a null pointer.
///
/// # Safety
/// `group` points to an initialised one; `token` is null or a token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_wait_group_wait_within(
    group: *mut heddle_wait_group_t,
    nanoseconds: u64,
    token: *const heddle_token_t,
) -> c_int {
    answer("heddle_wait_group_wait_within", || {
        // SAFETY: the caller's.
        unsafe { heddle_wait_group_t::of(group)?.wait_until(limit(nanoseconds, token)?).map_err(Refusal::from) }
    })
}
