//! Threads.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::time::Duration;

use runtime::cancel::{Limit, WaitError};
use runtime::{Builder, Priority, SpawnError};

use crate::call::{self, Argument};
use crate::error::{Outcome, Refusal, answer, sized, store};
use crate::limit::{HEDDLE_FOREVER, heddle_token_t, limit, time};
use crate::start::{HEDDLE_MODE_DEFAULT, heddle_mode_t, read_mode};
use crate::threads::{self, Owner, Record};

/// A thread. No two threads of a process ever have the same, so that a thread that has been joined, or was detached
/// and has ended, is answered by ESRCH.
pub type heddle_thread_t = u64;

/// No thread.
pub const HEDDLE_THREAD_NONE: heddle_thread_t = 0;

/// The priority of the thread that makes it.
pub const HEDDLE_PRIORITY_INHERITED: c_int = 127;

/// What a new thread is to be. Set it by HEDDLE_ATTR_INIT, then change what is to be different.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct heddle_attr_t {
    /// Size of this structure; set by the initialiser.
    pub size: usize,
    /// Its name, which debuggers show; copied. NULL: none.
    pub name: *const c_char,
    /// Its stack in bytes, at least 16384; 0: 2 MiB. Only what is used costs memory.
    pub stack_size: usize,
    /// What it is to be; HEDDLE_MODE_DEFAULT: what the process has. Not HEDDLE_MODE_PROCESS: a thread is in its
    /// process; tasks (heddle_task_create) run in others.
    pub mode: heddle_mode_t,
    /// A nice value, -20 (preferred) to 19, or HEDDLE_PRIORITY_INHERITED. A kernel thread gets it from the kernel,
    /// which asks for a privilege below the process's own; a user thread is told it, and it changes nothing about
    /// when it runs.
    pub priority: c_int,
}

/// Makes a thread that runs fn(arg), and stores it in *thread. `attr` may be NULL: the defaults. It starts the
/// process if nothing has.
///
/// `fn` ends by returning. A C++ exception that leaves it ends the process by std::terminate, as in a std::thread; it
/// must not be left by pthread_exit, longjmp or cancellation.
///
/// What the caller did before comes before what the thread does. It does not wait for other threads' work. Errors,
/// with words in heddle_last_error; no thread is made then: EINVAL: a null pointer, a stack of less than 16384 bytes,
/// not a mode or priority. ENOTSUP: a user thread was asked for and the process has none. EACCES, EPERM: a priority
/// that the system does not allow. EAGAIN, ENOMEM: the system has no room.
///
/// # Safety
/// The pointers are what the header says; `fn(arg)` may run on another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_thread_create(
    thread: *mut heddle_thread_t,
    attr: *const heddle_attr_t,
    r#fn: Option<extern "C" fn(*mut c_void) -> *mut c_void>,
    arg: *mut c_void,
) -> c_int {
    answer("heddle_thread_create", || {
        let defaults = heddle_attr_t {
            size: size_of::<heddle_attr_t>(),
            name: std::ptr::null(),
            stack_size: 0,
            mode: HEDDLE_MODE_DEFAULT,
            priority: HEDDLE_PRIORITY_INHERITED,
        };
        // SAFETY: the caller's.
        let asked = unsafe { sized(attr, size_of::<heddle_attr_t>(), defaults)? };
        let function = r#fn.ok_or_else(|| Refusal::with_text(libc::EINVAL, "a thread without a function"))?;
        // SAFETY: the caller's.
        unsafe { store(thread, HEDDLE_THREAD_NONE)? };
        // SAFETY: the caller's: null or a string.
        let name = (!asked.name.is_null()).then(|| unsafe { CStr::from_ptr(asked.name) });
        let id = create(&asked, name, function, Argument(arg))?;
        // SAFETY: the caller's.
        unsafe { store(thread, id) }
    })
}

fn create(
    asked: &heddle_attr_t,
    name: Option<&CStr>,
    function: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: Argument,
) -> Result<u64, Refusal> {
    let mut builder = Builder::new();
    if let Some(name) = name {
        builder = builder.name(name.to_string_lossy().into_owned());
    }
    if asked.stack_size != 0 {
        builder = builder.stack_size(asked.stack_size);
    }
    if let Some(mode) = read_mode(asked.mode)? {
        builder = builder.mode(mode);
    }
    if asked.priority != HEDDLE_PRIORITY_INHERITED {
        let wrong = || Refusal::with_text(libc::EINVAL, format!("{} is not a nice value", asked.priority));
        builder = builder.priority(Priority::from_nice(asked.priority).ok_or_else(wrong)?);
    }
    let (id, record) = threads::take().ok_or_else(|| Refusal::with_text(libc::EAGAIN, "too many threads"))?;
    // The record is locked until the handle is in it: the thread may give its own handle to others at once.
    let made = record.set_up(Owner::Joinable, |state| {
        let body = move || {
            threads::set_current(id);
            // SAFETY: the program's function, its argument.
            let result = unsafe { call::with_result(function, argument) };
            has_ended(id, record);
            result
        };
        match builder.spawn(body) {
            Ok(handle) => {
                state.handle = Some(handle);
                state.name = name.map(CStr::to_owned);
                Ok(())
            }
            Err(why) => Err(why),
        }
    });
    made.map_err(|why| {
        threads::give_back(id, record);
        Refusal::with_text(code_of(&why), why)
    })?;
    Ok(id)
}

/// The errno value for why there is no thread.
pub(crate) fn code_of(why: &SpawnError) -> c_int {
    match why {
        SpawnError::Stack(_) | SpawnError::Name(_) | SpawnError::Process => libc::EINVAL,
        SpawnError::NoUserThreads => libc::ENOTSUP,
        SpawnError::System(e) | SpawnError::Priority(_, e) => e.raw_os_error().unwrap_or(libc::EAGAIN),
        _ => libc::EAGAIN,
    }
}

/// The thread's function has returned: a record that nobody will join is free.
fn has_ended(id: u64, record: &Record) {
    let is_detached = record.with(id, |state| {
        state.has_ended = true;
        state.owner == Owner::Detached
    });
    if matches!(is_detached, Ok(true)) {
        threads::give_back(id, record);
    }
}

/// Waits until the thread has ended, and forgets it. What its function returned is stored in *result, which may be
/// NULL.
///
/// It parks the calling thread. What the thread did comes before what the caller does next. Errors: ESRCH: there is
/// no such thread: it has been joined, or was detached and has ended. EINVAL: it is detached, or another thread joins
/// it, or it was not made by heddle_thread_create. EDEADLK: it is the calling thread.
///
/// # Safety
/// `result` is null or points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_thread_join(thread: heddle_thread_t, result: *mut *mut c_void) -> c_int {
    // SAFETY: the caller's.
    answer("heddle_thread_join", || unsafe { join(thread, result, time(HEDDLE_FOREVER)) })
}

/// As heddle_thread_join, for that many nanoseconds at most, and until `token`, which may be NULL, is cancelled.
/// Errors: ETIMEDOUT, ECANCELED: it had not ended until then, and may be joined again. ESRCH, EINVAL, EDEADLK as
/// there.
///
/// # Safety
/// `result` is null or points to a pointer; `token` is null or a token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_thread_join_within(
    thread: heddle_thread_t,
    result: *mut *mut c_void,
    nanoseconds: u64,
    token: *const heddle_token_t,
) -> c_int {
    // SAFETY: the caller's.
    answer("heddle_thread_join_within", || unsafe { join(thread, result, limit(nanoseconds, token)?) })
}

/// # Safety
/// `result` is null or points to a pointer.
unsafe fn join(thread: heddle_thread_t, result: *mut *mut c_void, limit: Limit<'_>) -> Outcome {
    if !result.is_aligned() {
        return Err(libc::EINVAL.into());
    }
    let record = threads::find(thread)?;
    if thread == threads::known_current() {
        return Err(libc::EDEADLK.into());
    }
    let handle = record.with(thread, |state| match state.owner {
        Owner::Joinable => {
            state.owner = Owner::Joining;
            state.handle.take().ok_or(libc::EINVAL)
        }
        _ => Err(libc::EINVAL),
    })??;
    if limit.deadline().is_some() || limit.token().is_some() {
        let ended: Result<(), WaitError> = handle.wait_until(limit);
        if let Err(why) = ended {
            record.with(thread, |state| {
                state.owner = Owner::Joinable;
                state.handle = Some(handle);
            })?;
            return Err(why.into());
        }
    }
    let returned = handle.join();
    threads::give_back(thread, record);
    let Ok(returned) = returned else { panic!("a thread of the program panicked outside its function") };
    if !result.is_null() {
        // SAFETY: the caller's.
        unsafe { store(result, returned.0)? };
    }
    Ok(())
}

/// Lets the thread end by itself: nobody will join it. It does not block. Errors: ESRCH: there is no such thread.
/// EINVAL: it is detached already, or somebody joins it, or it was not made by heddle_thread_create.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_thread_detach(thread: heddle_thread_t) -> c_int {
    answer("heddle_thread_detach", || {
        let record = threads::find(thread)?;
        let (handle, has_ended) = record.with(thread, |state| match state.owner {
            Owner::Joinable => {
                state.owner = Owner::Detached;
                Ok((state.handle.take(), state.has_ended))
            }
            _ => Err(libc::EINVAL),
        })??;
        drop(handle);
        if has_ended {
            threads::give_back(thread, record);
        }
        Ok(())
    })
}

/// The calling thread. Threads that heddle_thread_create has not made, main for one, have a handle too, once they
/// have asked for it: to unpark and to compare. HEDDLE_THREAD_NONE in a fiber, and while thread-locals of such a
/// thread are being destroyed.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_thread_self() -> heddle_thread_t {
    threads::current().map_or(HEDDLE_THREAD_NONE, |(id, _)| id)
}

/// Whether both are the same thread.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_thread_equal(a: heddle_thread_t, b: heddle_thread_t) -> bool {
    a == b
}

/// Copies the name that the thread was given, with its final 0, to `name`, which has room for `size` bytes; an empty
/// string if it was given none. Errors: EINVAL: a null pointer. ESRCH: there is no such thread. ERANGE: it is longer.
///
/// # Safety
/// `name` points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_thread_name(thread: heddle_thread_t, name: *mut c_char, size: usize) -> c_int {
    answer("heddle_thread_name", || {
        if name.is_null() || size > isize::MAX as usize {
            return Err(libc::EINVAL.into());
        }
        // SAFETY: the caller's.
        let to = unsafe {
            std::ptr::write_bytes(name, 0, size);
            std::slice::from_raw_parts_mut(name.cast::<u8>(), size)
        };
        threads::find(thread)?.with(thread, |state| threads::copy_name(state.name.as_deref().unwrap_or(c""), to))?
    })
}

/// Lets other threads that are ready run first. Answers 0.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_yield() -> c_int {
    runtime::yield_now();
    0
}

/// Parks the calling thread for at least that many nanoseconds. Answers 0.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_sleep(nanoseconds: u64) -> c_int {
    runtime::sleep(Duration::from_nanos(nanoseconds));
    0
}

/// As heddle_sleep, and until `token`, which may be NULL, is cancelled. Error: ECANCELED: it was, before the time had
/// passed.
///
/// # Safety
/// `token` is null or a token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_sleep_within(nanoseconds: u64, token: *const heddle_token_t) -> c_int {
    // SAFETY: the caller's.
    answer("heddle_sleep_within", || Ok(runtime::cancel::sleep_until(unsafe { limit(nanoseconds, token)? })?))
}

fn park(limit: Limit<'_>) -> Outcome {
    let (_, record) = threads::current().ok_or(libc::EAGAIN)?;
    Ok(record.park(limit)?)
}

/// Parks the calling thread until heddle_unpark is called for it, or returns at once if that has happened since the
/// last park returned 0. What the other did before heddle_unpark comes before what the caller does next. Error:
/// EAGAIN: the calling thread has no handle (see heddle_thread_self).
#[unsafe(no_mangle)]
pub extern "C" fn heddle_park() -> c_int {
    answer("heddle_park", || park(Limit::NEVER))
}

/// As heddle_park, for that many nanoseconds at most. Error: ETIMEDOUT: it was not unparked until then.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_timedpark(nanoseconds: u64) -> c_int {
    answer("heddle_timedpark", || park(time(nanoseconds)))
}

/// As heddle_timedpark, and until `token`, which may be NULL, is cancelled. Errors: ETIMEDOUT, ECANCELED: it was not
/// unparked until then.
///
/// # Safety
/// `token` is null or a token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_park_within(nanoseconds: u64, token: *const heddle_token_t) -> c_int {
    // SAFETY: the caller's.
    answer("heddle_park_within", || park(unsafe { limit(nanoseconds, token)? }))
}

/// Lets the thread's heddle_park return: the one it is in, or else its next. It does not block. Error: ESRCH: there
/// is no such thread.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_unpark(thread: heddle_thread_t) -> c_int {
    answer("heddle_unpark", || threads::find(thread)?.unpark(thread))
}
