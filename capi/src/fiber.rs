//! Fibers. What is said of a pointer's validity there holds for handles: they are copied structures, but ones that we
//! have made.

use std::ffi::{c_int, c_void};

use runtime::cancel::Limit;
use runtime::fiber::named::{self, Caller, Name, Refused};
use runtime::fiber::{Builder, JoinHandle};

use crate::call::{self, Argument};
use crate::error::{Outcome, Refusal, answer, sized, store};
use crate::limit::{heddle_token_t, limit};
use crate::thread::code_of;

/// A fiber: a thread that has a stack of its own and inherits the rest, thread-locals, errno, name and signal mask,
/// from the thread that carries it just then. No two fibers of a process ever have the same handle, so that a fiber
/// that has been joined, or was detached and has ended, is answered by ESRCH. Handles are those that
/// heddle_fiber_create and heddle_fiber_self give, copies of them, and HEDDLE_FIBER_INIT, which is no fiber's.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct heddle_fiber_t {
    opaque: [u64; 2],
}

/// What a new fiber is to be. Set it by HEDDLE_FIBER_ATTR_INIT, then change what is to be different.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct heddle_fiber_attr_t {
    /// Size of this structure; set by the initialiser.
    pub size: usize,
    /// Its stack in bytes, 16384 to 1 GiB; 0: 64 KiB. Rounded up to a power of two. Only what is used costs memory, a
    /// page at least. Below it is a page that cannot be touched: who needs more ends the process.
    pub stack_size: usize,
}

const _: () = assert!(size_of::<Name>() == size_of::<heddle_fiber_t>());

impl heddle_fiber_t {
    fn name(self) -> Name {
        // SAFETY: as large, and numbers.
        unsafe { std::mem::transmute::<Self, Name>(self) }
    }

    fn of(name: Name) -> Self {
        // SAFETY: as above.
        unsafe { std::mem::transmute::<Name, Self>(name) }
    }
}

impl From<Refused> for Refusal {
    fn from(why: Refused) -> Self {
        match why {
            Refused::Gone => libc::ESRCH.into(),
            Refused::Taken => libc::EINVAL.into(),
        }
    }
}

/// Makes a fiber that runs fn(arg), and stores it in *fiber. `attr` may be NULL: the defaults. It starts the process
/// if nothing has. Making and joining one costs tens of nanoseconds, since it has no thread-locals of its own; for
/// that, fn keeps these rules:
///
/// Whenever it calls something of this header that parks or yields, another fiber may run on its thread, and it may
/// go on on another thread. So it keeps nothing of a thread's across such a call: no address of a thread-local, no
/// lock that its own thread has to give back, as pthread_mutex_t (heddle_mutex_t and the others of this header may be
/// held). The function that makes such a call does not use errno or a thread-local both before and after it, since
/// compilers remember where they are; other functions that it calls may. It does not make such a call in a C++ catch
/// block, or in a destructor while an exception is under way. The control words of floating-point arithmetic are then
/// as it found them.
///
/// What waits otherwise (the C library's calls, heddle_fork_join and the like in the functions that they call) blocks
/// the thread that carries the fiber; others carry on the other fibers. A fiber that computes is not interrupted for
/// other fibers. It has no heddle_thread_t: heddle_thread_self answers HEDDLE_THREAD_NONE, and heddle_park EAGAIN.
///
/// `fn` ends by returning. A C++ exception that leaves it ends the process by std::terminate, as in a thread; it must
/// not be left by pthread_exit, longjmp or cancellation.
///
/// What the caller did before comes before what the fiber does. It does not wait for other fibers' work. Errors, with
/// words in heddle_last_error; no fiber is made then: EINVAL: a null pointer, a stack of less than 16384 bytes or
/// more than 1 GiB. E2BIG: an attribute that this library does not know. EAGAIN, ENOMEM: the system has no room.
///
/// # Safety
/// The pointers are what the header says; `fn(arg)` keeps its rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_fiber_create(
    fiber: *mut heddle_fiber_t,
    attr: *const heddle_fiber_attr_t,
    r#fn: Option<extern "C" fn(*mut c_void) -> *mut c_void>,
    arg: *mut c_void,
) -> c_int {
    answer("heddle_fiber_create", || {
        let defaults = heddle_fiber_attr_t { size: size_of::<heddle_fiber_attr_t>(), stack_size: 0 };
        // SAFETY: the caller's.
        let asked = unsafe { sized(attr, size_of::<heddle_fiber_attr_t>(), defaults)? };
        let function = r#fn.ok_or_else(|| Refusal::with_text(libc::EINVAL, "a fiber without a function"))?;
        // SAFETY: the caller's.
        unsafe { store(fiber, heddle_fiber_t::of(Name::NONE))? };
        let builder = match asked.stack_size {
            0 => Builder::new(),
            size => Builder::new().stack_size(size),
        };
        let argument = Argument(arg);
        // SAFETY: the program's function, its argument, and its rules.
        let made = unsafe { named::spawn(builder, move || call::with_result(function, argument)) };
        let name = made.map_err(|why| Refusal::with_text(code_of(&why), why))?;
        // SAFETY: the caller's.
        unsafe { store(fiber, heddle_fiber_t::of(name)) }
    })
}

/// Waits until the fiber has ended, and forgets it. What its function returned is stored in *result, which may be
/// NULL. Threads and fibers may join it.
///
/// It parks the calling thread; of a fiber that calls, the thread runs other fibers meanwhile. What the fiber did
/// comes before what the caller does next. Errors: ESRCH: there is no such fiber: it has been joined, or was detached
/// and has ended. EINVAL: it is detached, or another one joins it. EDEADLK: it is the calling fiber.
///
/// # Safety
/// The handle is one; `result` is null or points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_fiber_join(fiber: heddle_fiber_t, result: *mut *mut c_void) -> c_int {
    // SAFETY: the caller's.
    answer("heddle_fiber_join", || unsafe { join(fiber.name(), result, None) })
}

/// As heddle_fiber_join, for that many nanoseconds at most, and until `token`, which may be NULL, is cancelled.
/// Errors: ETIMEDOUT, ECANCELED: it had not ended until then, and may be joined again. ESRCH, EINVAL, EDEADLK as
/// there.
///
/// # Safety
/// The handle is one; `result` is null or points to a pointer; `token` is null or a token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_fiber_join_within(
    fiber: heddle_fiber_t,
    result: *mut *mut c_void,
    nanoseconds: u64,
    token: *const heddle_token_t,
) -> c_int {
    // SAFETY: the caller's.
    answer("heddle_fiber_join_within", || unsafe { join(fiber.name(), result, Some(limit(nanoseconds, token)?)) })
}

/// # Safety
/// The name is one; `result` is null or points to a pointer.
#[inline]
unsafe fn join(name: Name, result: *mut *mut c_void, limit: Option<Limit<'_>>) -> Outcome {
    if !result.is_aligned() {
        return Err(libc::EINVAL.into());
    }
    let caller = Caller::now();
    if caller.is(name) {
        return Err(libc::EDEADLK.into());
    }
    // SAFETY: the caller's; it is `heddle_fiber_create` that makes fibers with names.
    let handle: JoinHandle<Argument> = unsafe { named::take(name)? };
    let returned = match limit {
        None => named::join(handle, caller),
        Some(limit) => {
            if let Err(why) = handle.wait_until(limit) {
                named::put_back(handle);
                return Err(why.into());
            }
            handle.join()
        }
    };
    let Ok(returned) = returned else { panic!("a fiber of the program panicked outside its function") };
    if !result.is_null() {
        // SAFETY: the caller's.
        unsafe { store(result, returned.0)? };
    }
    Ok(())
}

/// Lets the fiber end by itself: nobody will join it. It does not block. Errors: ESRCH: there is no such fiber.
/// EINVAL: it is detached already, or somebody joins it.
///
/// # Safety
/// The handle is one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_fiber_detach(fiber: heddle_fiber_t) -> c_int {
    answer("heddle_fiber_detach", || {
        // SAFETY: the caller's.
        let handle: JoinHandle<Argument> = unsafe { named::take(fiber.name())? };
        drop(handle);
        Ok(())
    })
}

/// Lets other fibers that are ready run first, as heddle_yield does in a fiber. Error: EPERM: the caller is no fiber.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_fiber_yield() -> c_int {
    answer("heddle_fiber_yield", || {
        if !runtime::fiber::is_fiber() {
            return Err(libc::EPERM.into());
        }
        runtime::yield_now();
        Ok(())
    })
}

/// Whether the caller is a fiber.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_is_fiber() -> bool {
    runtime::fiber::is_fiber()
}

/// The calling fiber; HEDDLE_FIBER_INIT if the caller is none.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_fiber_self() -> heddle_fiber_t {
    heddle_fiber_t::of(named::this())
}

/// Whether both are the same fiber.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_fiber_equal(a: heddle_fiber_t, b: heddle_fiber_t) -> bool {
    a.name() == b.name()
}
