//! Finding the program that was named, and checking that Heddle can run it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD};

use crate::elf;
use crate::failure::Failure;

/// How a program that Heddle refuses can be run all the same.
pub const WAY_OUT: &str = "run it without heddle or with 'heddle run --mode kernel'";

/// The kernel follows this many `#!` lines (fs/exec.c).
const MAX_SCRIPTS: u32 = 5;
/// The kernel looks at this many bytes for a `#!` line (BINPRM_BUF_SIZE).
const HEAD: usize = 256;
/// Where the kernel and libc look when there is no PATH.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// An error's reason in lower case and without its number, as other tools print it.
pub fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT) => "no such file or directory".to_owned(),
        Some(libc::EACCES) => "permission denied".to_owned(),
        Some(libc::ENOEXEC) => "not a program (neither ELF nor a script that begins with '#!')".to_owned(),
        Some(libc::E2BIG) => "the arguments and the environment are too long".to_owned(),
        _ => error.to_string(),
    }
}

/// Finds the program as `execvp` does: a name without a slash is looked for in PATH.
pub fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    let shown = name.display();
    if name.is_empty() {
        return Err(Failure::not_found("the program's name is empty"));
    }
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match can_execute(&path) {
            Ok(()) => Ok(path),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                Err(Failure::not_found(format!("{shown}: {}", reason(&e))))
            }
            Err(e) => Err(Failure::refused(format!("{shown}: {}", refusal(&path, &e)))),
        };
    }
    let mut denied = None;
    let path = env::var_os("PATH").unwrap_or_else(|| OsString::from(DEFAULT_PATH));
    for folder in env::split_paths(&path) {
        // An empty element is the current folder; "./" keeps a later `execv` and the messages clear about it.
        let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
        let candidate = folder.join(name);
        match can_execute(&candidate) {
            Ok(()) => return Ok(candidate),
            // A folder that may not be searched says "permission denied" too: there, nothing was found.
            Err(e) if e.kind() == ErrorKind::PermissionDenied && candidate.exists() => {
                denied.get_or_insert_with(|| format!("{}: {}", candidate.display(), refusal(&candidate, &e)));
            }
            Err(_) => {}
        }
    }
    Err(match denied {
        Some(text) => Failure::refused(text),
        None => Failure::not_found(format!("{shown}: not found in PATH; give its path if it is elsewhere")),
    })
}

/// Whether the kernel would let us execute this file (it says "permission denied" for a directory).
fn can_execute(path: &Path) -> io::Result<()> {
    let kind = path.metadata()?;
    if !kind.is_file() {
        return Err(io::Error::from(ErrorKind::PermissionDenied));
    }
    Ok(rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS)?)
}

/// Why [`can_execute`] said no, and the way out.
fn refusal(path: &Path, error: &io::Error) -> String {
    match path.metadata() {
        Ok(kind) if kind.is_dir() => "is a directory, not a program".to_owned(),
        Ok(kind) if !kind.is_file() => "is not a regular file".to_owned(),
        Ok(_) => format!("{} (not executable for this user; see chmod(1), or 'noexec' in mount(8))", reason(error)),
        Err(_) => reason(error),
    }
}

/// Checks that Heddle can run the program at `path`: a dynamically linked x86-64 program for glibc, or a script whose
/// interpreter is one.
pub fn check(path: &Path) -> Result<(), Failure> {
    let mut path = path.to_owned();
    let mut said_by = String::new();
    for _ in 0..=MAX_SCRIPTS {
        let context = |text: String| format!("{}{said_by}: {text}", path.display());
        let mut file = File::open(&path).map_err(|e| {
            let why = if e.kind() == ErrorKind::PermissionDenied {
                format!("can be executed but not read, so heddle cannot check it; {WAY_OUT}")
            } else {
                reason(&e)
            };
            Failure::refused(context(why))
        })?;
        let head = read_head(&mut file).map_err(|e| Failure::refused(context(reason(&e))))?;
        let Some(interpreter) = interpreter(&head) else {
            return elf::check(&file, &head).map_err(|why| Failure::refused(context(why)));
        };
        let interpreter = PathBuf::from(interpreter);
        if let Err(e) = can_execute(&interpreter) {
            let text = context(format!("its interpreter {}: {}", interpreter.display(), refusal(&interpreter, &e)));
            let missing = matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
            return Err(if missing { Failure::not_found(text) } else { Failure::refused(text) });
        }
        said_by = format!(" (interpreter of {})", path.display());
        path = interpreter;
    }
    Err(Failure::refused(format!("{}{said_by}: its '#!' lines lead to more and more scripts", path.display())))
}

/// What the kernel looks at to see what kind of file it is.
fn read_head(file: &mut File) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(HEAD);
    file.take(HEAD as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// The interpreter that a `#!` line names, by the kernel's rules; `None` if there is no such line.
fn interpreter(head: &[u8]) -> Option<OsString> {
    let line = head.strip_prefix(b"#!")?;
    let end = line.iter().position(|&b| b == b'\n');
    let line = &line[..end.unwrap_or(line.len())];
    let mut words = line.split(|&b| matches!(b, b' ' | b'\t' | 0)).filter(|word| !word.is_empty());
    let word = words.next()?;
    // A name that fills the head may go on after it: the kernel does not execute such a file.
    let whole = end.is_some() || head.len() < HEAD || !line.ends_with(word);
    whole.then(|| OsString::from_vec(word.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(head: &[u8]) -> Option<String> {
        interpreter(head).map(|name| name.into_string().unwrap())
    }

    #[test]
    fn interpreters_are_read_as_the_kernel_reads_them() {
        assert_eq!(named(b"#!/bin/sh\necho").unwrap(), "/bin/sh");
        assert_eq!(named(b"#! \t/usr/bin/env python3\n").unwrap(), "/usr/bin/env");
        assert_eq!(named(b"#!/bin/sh").unwrap(), "/bin/sh");
        assert_eq!(named(b"#!/bin/sh -e").unwrap(), "/bin/sh");
        assert_eq!(named(b"#!\n/bin/sh"), None);
        assert_eq!(named(b"#!"), None);
        assert_eq!(named(b"echo"), None);
        assert_eq!(named(b"\x7fELF"), None);
    }

    #[test]
    fn an_interpreters_name_that_is_cut_off_is_none() {
        let mut head = b"#!/".to_vec();
        head.resize(HEAD, b'a');
        assert_eq!(named(&head), None);
        *head.last_mut().unwrap() = b' ';
        assert_eq!(named(&head).unwrap().len(), HEAD - 3);
    }
}
