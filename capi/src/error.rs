//! What functions answer.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::abort;

/// Why a function did not do what it was asked to: an errno value, perhaps with words.
pub(crate) struct Refusal {
    code: c_int,
    text: Option<String>,
}

impl Refusal {
    pub fn with_text(code: c_int, text: impl ToString) -> Self {
        Self { code, text: Some(text.to_string()) }
    }
}

impl From<c_int> for Refusal {
    fn from(code: c_int) -> Self {
        Self { code, text: None }
    }
}

pub(crate) type Outcome = Result<(), Refusal>;

thread_local! {
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Runs the body of a function; its outcome as the function's answer. A panic ends here.
#[inline]
pub(crate) fn answer(name: &str, body: impl FnOnce() -> Outcome) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(Refusal { code, text })) => {
            if let Some(text) = text {
                keep(text);
            }
            code
        }
        Err(_) => {
            eprintln!("heddle: {name} failed, which is a bug in it; the program ends here");
            abort()
        }
    }
}

/// Never inlined: a fiber that has waited may be on another thread than when it called us.
#[cold]
#[inline(never)]
fn keep(text: String) {
    // The thread may be ending: then nobody can ask any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = CString::new(text).ok());
}

/// The words for the last error of heddle_start, heddle_thread_create, heddle_fiber_create, heddle_task_create or
/// heddle_task_join in the calling thread, in English; an empty string if there was none. They stay until one of
/// these fails again in the same thread, or the thread ends; for a fiber, until it waits.
#[unsafe(no_mangle)]
pub extern "C" fn heddle_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ref().map_or(c"".as_ptr(), |text| text.as_ptr())).unwrap_or(c"".as_ptr())
}

/// What a pointer of the program's points to; null and misaligned ones are refused.
///
/// # Safety
/// Otherwise it points to a valid `T` that stays.
pub(crate) unsafe fn reference<'a, T>(pointer: *const T) -> Result<&'a T, Refusal> {
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(libc::EINVAL.into());
    }
    // SAFETY: the caller's.
    Ok(unsafe { &*pointer })
}

/// Writes where the program asked to; null and misaligned pointers are refused.
///
/// # Safety
/// Otherwise it points to memory for a `T`.
#[inline]
pub(crate) unsafe fn store<T>(pointer: *mut T, value: T) -> Outcome {
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(libc::EINVAL.into());
    }
    // SAFETY: the caller's.
    unsafe { pointer.write(value) };
    Ok(())
}

/// A structure that begins with its own size, as the program was compiled with it: fields that it does not know are
/// as in `defaults`, and fields that we do not know must be 0.
///
/// # Safety
/// Null, or the structure is as long as it says; `T` is plain integers and pointers and begins with the size.
#[inline]
pub(crate) unsafe fn sized<T: Copy>(pointer: *const T, least: usize, defaults: T) -> Result<T, Refusal> {
    if pointer.is_null() {
        return Ok(defaults);
    }
    if !pointer.is_aligned() {
        return Err(libc::EINVAL.into());
    }
    // SAFETY: the size comes first.
    let size = unsafe { pointer.cast::<usize>().read() };
    if size < least || size > 4096 {
        return Err(Refusal::with_text(libc::EINVAL, format!("a structure of {size} bytes: use its initialiser")));
    }
    let known = size.min(size_of::<T>());
    let mut value = defaults;
    // SAFETY: `known` bytes are there on both sides, and so are the bytes after them on one.
    unsafe {
        std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), (&raw mut value).cast::<u8>(), known);
        for at in known..size {
            if *pointer.cast::<u8>().add(at) != 0 {
                return Err(Refusal::with_text(libc::E2BIG, "this libheddle is older than the program's heddle.h"));
            }
        }
    }
    Ok(value)
}

/// Writes a structure that begins with its own size, as the program was compiled with it: as much as it has room for;
/// fields that we do not know become 0.
///
/// # Safety
/// Null, or the structure is as long as it says; `T` is plain integers and begins with the size.
pub(crate) unsafe fn fill<T: Copy>(pointer: *mut T, least: usize, value: T) -> Outcome {
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(libc::EINVAL.into());
    }
    // SAFETY: the size comes first.
    let size = unsafe { pointer.cast::<usize>().read() };
    if size < least || size > 4096 {
        return Err(Refusal::with_text(libc::EINVAL, format!("a structure of {size} bytes: use its initialiser")));
    }
    let head = size_of::<usize>();
    let known = size.min(size_of::<T>());
    let bytes = pointer.cast::<u8>();
    // SAFETY: `size` bytes are there, of ours `known`; the size itself stays.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>().add(head), bytes.add(head), known - head);
        bytes.add(known).write_bytes(0, size - known);
    }
    Ok(())
}
