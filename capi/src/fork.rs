//! Fork-join.

use std::ffi::{c_int, c_void};

use runtime::{Parallel, Scope};

use crate::call::{self, Argument};
use crate::error::answer;

/// Calls a(arg_a) and b(arg_b), the second perhaps on another thread meanwhile, and answers when both have returned.
///
/// Nothing is allocated and no stack is switched unless another thread has time for `b`. When `a` has ended before a
/// `b` that was taken, the caller parks; no other job runs on its stack meanwhile, so it may hold locks, but not one
/// that `b` wants. A C++ exception that leaves `a` or `b` ends the process by std::terminate. Error: EINVAL: a null
/// function; neither has been called.
///
/// # Safety
/// `a(arg_a)` may run here, and `b(arg_b)` on another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_fork_join(
    a: Option<extern "C" fn(*mut c_void)>,
    arg_a: *mut c_void,
    b: Option<extern "C" fn(*mut c_void)>,
    arg_b: *mut c_void,
) -> c_int {
    let (Some(a), Some(b)) = (a, b) else { return libc::EINVAL };
    let (arg_a, arg_b) = (Argument(arg_a), Argument(arg_b));
    // Neither closure can panic: the calls end unwinding.
    runtime::join(
        // SAFETY: the caller's.
        move || unsafe { call::without_result(a, arg_a) },
        // SAFETY: the caller's.
        move || unsafe { call::without_result(b, arg_b) },
    );
    0
}

/// Any number of jobs that end before heddle_scope returns.
pub struct heddle_scope_t {
    _opaque: [u8; 0],
}

/// Calls body(scope, arg), which may add jobs by heddle_scope_spawn, and answers when it and all jobs have ended.
///
/// It parks the calling thread when it must wait. What jobs did comes before what the caller does next. A C++
/// exception that leaves `body` or a job ends the process by std::terminate. Error: EINVAL: a null function.
///
/// # Safety
/// `body(scope, arg)` may run here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_scope(
    body: Option<extern "C" fn(*mut heddle_scope_t, *mut c_void)>,
    arg: *mut c_void,
) -> c_int {
    answer("heddle_scope", || {
        let body = body.ok_or(libc::EINVAL)?;
        runtime::scope(|scope| {
            let scope = std::ptr::from_ref(scope).cast_mut().cast::<heddle_scope_t>();
            // SAFETY: the caller's.
            unsafe { call::with_scope(body, scope, Argument(arg)) };
        });
        Ok(())
    })
}

/// Adds the job fn(arg) to a scope: it runs some time before heddle_scope returns, on this thread or another; never
/// inside this call. It may be called by the scope's body and its jobs, while the scope is there. It does not
/// block, and allocates memory only when 1000 jobs of the calling thread wait. Error: EINVAL: a null pointer.
///
/// # Safety
/// The scope is there; `fn(arg)` may run on another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_scope_spawn(
    scope: *mut heddle_scope_t,
    r#fn: Option<extern "C" fn(*mut c_void)>,
    arg: *mut c_void,
) -> c_int {
    answer("heddle_scope_spawn", || {
        let function = r#fn.ok_or(libc::EINVAL)?;
        let argument = Argument(arg);
        if scope.is_null() {
            return Err(libc::EINVAL.into());
        }
        // SAFETY: the pointer that `heddle_scope` gave, and the scope is there. Its lifetimes say what jobs may borrow: ours
        // borrow nothing.
        let scope: &'static Scope<'static, 'static> = unsafe { &*scope.cast() };
        // SAFETY: the caller's.
        scope.spawn(move || unsafe { call::without_result(function, argument) });
        Ok(())
    })
}

/// Indices, in pieces of `grain`, the last perhaps smaller.
struct Span {
    begin: usize,
    end: usize,
    grain: usize,
}

impl Parallel for Span {
    /// Begin and end of some pieces.
    type Item = (usize, usize);

    fn len(&self) -> usize {
        (self.end - self.begin).div_ceil(self.grain)
    }

    fn split_at(self, pieces: usize) -> (Self, Self) {
        let middle = self.begin + pieces.saturating_mul(self.grain).min(self.end - self.begin);
        (Self { end: middle, ..self }, Self { begin: middle, ..self })
    }

    fn each(self, mut f: impl FnMut((usize, usize))) {
        if self.begin < self.end {
            f((self.begin, self.end));
        }
    }
}

/// Calls body(i, j, arg) for parts [i, j) of the indices [begin, end), on this thread and others, and answers when
/// each index has been in one part and all calls have returned. Nothing is called if end <= begin.
///
/// Parts have a multiple of `grain` indices, but for the last one. Their size adapts to how long the calls take and
/// how many threads have time, so `grain` can be 1 (0 means 1 too) unless single indices are to stay together. It
/// parks the calling thread when it must wait. A C++ exception that leaves `body` ends the process by std::terminate.
/// Error: EINVAL: a null function.
///
/// # Safety
/// `body(i, j, arg)` may run on several threads at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_for(
    begin: usize,
    end: usize,
    grain: usize,
    body: Option<extern "C" fn(usize, usize, *mut c_void)>,
    arg: *mut c_void,
) -> c_int {
    answer("heddle_for", || {
        let body = body.ok_or(libc::EINVAL)?;
        let argument = Argument(arg);
        let span = Span { begin, end: end.max(begin), grain: grain.max(1) };
        // SAFETY: the caller's.
        runtime::for_each(span, |(begin, end)| unsafe { call::with_range(body, begin, end, argument) });
        Ok(())
    })
}
