//! Becoming the program.
//!
//! `std::process::Command::exec` resets the signal mask and SIGPIPE's disposition; a program run through heddle must inherit
//! both, so `execv` is called directly.
//!
//! # Safety
//!
//! Rules, all upheld here: the environment is changed only while this process has one thread, and the argument vector
//! given to `execv` is NUL-terminated strings ended by a null pointer, alive during the call.

#![allow(unsafe_code)]

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// A change to the environment: set to the value, or removed.
pub type Change = (&'static str, Option<OsString>);

/// Applies `changes` to the environment and replaces this process with the program at `path`. It returns only if that
/// failed, with the reason.
///
/// Heddle makes no thread before it calls this (`heddle run` has none at all).
pub fn become_program(path: &Path, args: &[OsString], changes: Vec<Change>) -> io::Error {
    let strings = || -> Result<(CString, Vec<CString>), std::ffi::NulError> {
        let c = |text: &OsStr| CString::new(text.as_bytes());
        Ok((c(path.as_os_str())?, args.iter().map(|arg| c(arg)).collect::<Result<_, _>>()?))
    };
    let (path, args) = match strings() {
        Ok(strings) => strings,
        Err(e) => return io::Error::from(e),
    };
    let mut pointers: Vec<*const libc::c_char> = args.iter().map(|arg| arg.as_ptr()).collect();
    pointers.push(ptr::null());
    for (name, value) in changes {
        match value {
            // SAFETY: this process has one thread (see above), so nobody reads the environment meanwhile.
            Some(value) => unsafe { env::set_var(name, value) },
            // SAFETY: as above.
            None => unsafe { env::remove_var(name) },
        }
    }
    // SAFETY: `path` and every element of `pointers` but the last, null one come from CStrings that live until the end of
    // this function.
    unsafe { libc::execv(path.as_ptr(), pointers.as_ptr()) };
    io::Error::last_os_error()
}

/// The keys that end a program (Ctrl-C and Ctrl-\) end the child, and not this process, which then reports.
pub fn leave_keys_to_the_child() {
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: no handler is installed, so no code runs at a signal.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
