//! Ends of waits: times, and tokens that somebody cancels.

use std::ffi::c_int;
use std::time::Duration;

use runtime::cancel::{Limit, Token, WaitError};

use crate::error::{Refusal, answer, reference, store};

/// Without an end; for all functions that take a time in nanoseconds.
pub const HEDDLE_FOREVER: u64 = 0xffff_ffff_ffff_ffff;

/// Says to whoever waits with it that what it waits for is not wanted any more. Made by heddle_token_create.
pub struct heddle_token_t {
    _opaque: [u8; 0],
}

/// Makes a token and stores it in *token. If `parent` is not NULL, it is cancelled with that one, and can be by
/// itself; the parent may be destroyed before it. It allocates memory and does not block. Error: EINVAL: a null
/// pointer.
///
/// # Safety
/// `token` points to a pointer; `parent` is null or a token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_token_create(token: *mut *mut heddle_token_t, parent: *const heddle_token_t) -> c_int {
    answer("heddle_token_create", || {
        // SAFETY: the caller's.
        unsafe { store(token, std::ptr::null_mut())? };
        let new = if parent.is_null() {
            Token::new()
        } else {
            // SAFETY: the caller's.
            unsafe { reference(parent.cast::<Token>())? }.child()
        };
        // SAFETY: the caller's.
        unsafe { store(token, Box::into_raw(Box::new(new)).cast()) }
    })
}

/// Ends all waits with this token or a child of it, and those to come, by ECANCELED. It does not wait for them. What
/// the caller did before comes before what those do next. Error: EINVAL: a null pointer.
///
/// # Safety
/// `token` is a token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_token_cancel(token: *mut heddle_token_t) -> c_int {
    answer("heddle_token_cancel", || {
        // SAFETY: the caller's.
        unsafe { reference(token.cast::<Token>())? }.cancel();
        Ok(())
    })
}

/// Whether it has been cancelled; for threads that work without waiting. False for NULL.
///
/// # Safety
/// `token` is null or a token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_token_is_cancelled(token: *const heddle_token_t) -> bool {
    // SAFETY: the caller's.
    unsafe { reference(token.cast::<Token>()) }.is_ok_and(Token::is_cancelled)
}

/// Frees it. No thread may wait with it or use it any more. Error: EINVAL: a null pointer.
///
/// # Safety
/// `token` is a token that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_token_destroy(token: *mut heddle_token_t) -> c_int {
    answer("heddle_token_destroy", || {
        let token = token.cast::<Token>();
        // SAFETY: the caller's.
        unsafe {
            reference(token)?;
            drop(Box::from_raw(token));
        }
        Ok(())
    })
}

/// When a wait ends at the latest.
///
/// # Safety
/// `token` is null or a token that stays as long as the limit.
pub(crate) unsafe fn limit<'a>(nanoseconds: u64, token: *const heddle_token_t) -> Result<Limit<'a>, Refusal> {
    let most = (nanoseconds != HEDDLE_FOREVER).then(|| Duration::from_nanos(nanoseconds));
    if token.is_null() {
        return Ok(most.map_or(Limit::NEVER, Limit::from));
    }
    // SAFETY: the caller's.
    let token = unsafe { reference(token.cast::<Token>())? };
    Ok(most.map_or_else(|| Limit::from(token), |most| Limit::from((most, token))))
}

/// As [`limit`], without a token.
pub(crate) fn time(nanoseconds: u64) -> Limit<'static> {
    // SAFETY: null.
    unsafe { limit(nanoseconds, std::ptr::null()) }.unwrap_or(Limit::NEVER)
}

impl From<WaitError> for Refusal {
    fn from(why: WaitError) -> Self {
        match why {
            WaitError::Cancelled => libc::ECANCELED.into(),
            _ => libc::ETIMEDOUT.into(),
        }
    }
}
