//! What Heddle needs of the machine: each need is checked before a program is started, and `heddle doctor` shows them all.

use std::env;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use rustix::process::{Resource, getrlimit};

use crate::cpus;
use crate::failure::Failure;
use crate::probe;

/// A version of glibc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Glibc(u32, u32);

/// Since this version, libpthread is inside libc.so.6 and its threads look as Heddle expects them.
pub const GLIBC_NEEDED: Glibc = Glibc(2, 34);

/// AT_HWCAP2: the kernel lets programs use `wrfsbase` and its like (Linux 5.9).
const HWCAP2_FSGSBASE: usize = 1 << 1;

/// Descriptors that Heddle needs for itself beside the program's own: some in all, and some for each worker.
const DESCRIPTORS: u64 = 16;
const DESCRIPTORS_PER_WORKER: u64 = 4;

/// The hidden first argument that makes heddle try the system calls of [`CALLS`].
const CALL_PROBE: &str = "__probe-calls";

impl Glibc {
    /// Reads a version string as glibc gives it ("2.36").
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map(str::parse);
        Some(Self(numbers.next()?.ok()?, numbers.next()?.ok()?))
    }

    /// Reads the name of one of its symbol versions ("GLIBC_2.34").
    pub fn from_symbol_version(name: &[u8]) -> Option<Self> {
        Self::parse(std::str::from_utf8(name).ok()?.strip_prefix("GLIBC_")?)
    }
}

impl Display for Glibc {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// The glibc that this very process runs with.
pub fn running_glibc() -> Glibc {
    Glibc::parse(&probe::glibc_version()).unwrap_or(Glibc(0, 0))
}

/// Checks everything Heddle needs of the machine to run a program on `workers` workers.
pub fn check(workers: Option<u32>) -> Result<(), Failure> {
    fsgsbase()?;
    descriptors(workers)?;
    system_calls()
}

/// Whether user code may change its thread pointer: a thread switch is built on it.
pub fn fsgsbase() -> Result<(), Failure> {
    fsgsbase_in(rustix::param::linux_hwcap().1)
}

fn fsgsbase_in(hwcap2: usize) -> Result<(), Failure> {
    if hwcap2 & HWCAP2_FSGSBASE != 0 {
        return Ok(());
    }
    Err(Failure::own(
        "the kernel does not offer FSGSBASE (a thread switch needs it): use Linux 5.9 or newer, without 'nofsgsbase' on its \
         command line",
    ))
}

/// Whether the limit on open files leaves room for what Heddle opens itself.
pub fn descriptors(workers: Option<u32>) -> Result<(), Failure> {
    let workers = workers.map_or_else(|| cpus::Cpus::read().workers(), u64::from);
    descriptors_in(getrlimit(Resource::Nofile).current, workers)
}

fn descriptors_in(limit: Option<u64>, workers: u64) -> Result<(), Failure> {
    let needed = DESCRIPTORS + DESCRIPTORS_PER_WORKER * workers;
    match limit {
        Some(limit) if limit < needed => Err(Failure::own(format!(
            "the limit of {limit} open files is too low for {workers} workers: raise it to {needed} or more (ulimit -n {needed})"
        ))),
        _ => Ok(()),
    }
}

/// What happens when a call is tried: the reason why it failed, if it did.
type Attempt = fn() -> std::io::Result<()>;

/// System calls without which no program runs under Heddle. A seccomp filter may deny any of them.
const CALLS: [(&str, Attempt); 7] = [
    ("clone (of a thread)", || {
        std::thread::Builder::new().spawn(|| ()).map(|thread| thread.join().unwrap_or_default())
    }),
    ("futex", || {
        let word = std::sync::atomic::AtomicU32::new(0);
        rustix::thread::futex::wake(&word, rustix::thread::futex::Flags::PRIVATE, 1)?;
        Ok(())
    }),
    ("epoll_create1", || Ok(rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).map(drop)?)),
    ("epoll_wait", || {
        let poll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?;
        let mut events: Vec<rustix::event::epoll::Event> = Vec::with_capacity(1);
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), Some(&at_once))?;
        Ok(())
    }),
    ("eventfd2", || Ok(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).map(drop)?)),
    ("sched_getaffinity", || Ok(rustix::thread::sched_getaffinity(None).map(drop)?)),
    ("tgkill", probe::signal_self_with_nothing),
];

/// Whether a seccomp filter is active and denies a call that Heddle needs.
///
/// A filter may kill whoever makes a call it denies, so a child process makes them.
pub fn system_calls() -> Result<(), Failure> {
    if !has_seccomp_filter() {
        return Ok(());
    }
    let denied = |what: &str| {
        Err(Failure::own(format!(
            "a seccomp filter denies {what}, which Heddle needs: allow it in the sandbox's profile (Docker: --security-opt \
             seccomp=...), or use 'heddle run --mode kernel'"
        )))
    };
    let child = Command::new("/proc/self/exe")
        .arg(CALL_PROBE)
        .env("LD_PRELOAD", "")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let output = match child {
        Ok(output) => output,
        Err(e) => return denied(&format!("a child process ({e})")),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or("the start of a child process");
    if output.status.success() {
        return Ok(());
    }
    match output.status.signal() {
        Some(libc::SIGSYS) => denied(last),
        Some(signal) => denied(&format!("{last} (a trial was killed by signal {signal})")),
        None => denied(last),
    }
}

fn has_seccomp_filter() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"))
}

/// Whether this process is the child that [`system_calls`] starts.
pub fn is_call_probe() -> bool {
    env::args_os().nth(1).is_some_and(|arg| arg == CALL_PROBE)
}

/// Makes each call of [`CALLS`], its name printed first; answers the exit status.
pub fn probe_calls() -> u8 {
    let mut out = std::io::stdout();
    for (name, attempt) in CALLS {
        // Nobody reads it if it cannot be written.
        let _ = writeln!(out, "{name}").and_then(|()| out.flush());
        if attempt().is_err() {
            return 1;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fsgsbase_is_the_second_bit() {
        assert!(fsgsbase_in(0b10).is_ok() && fsgsbase_in(0b11).is_ok());
        assert!(fsgsbase_in(0b101).unwrap_err().text().contains("FSGSBASE"));
    }

    #[test]
    fn descriptors_are_counted_by_worker() {
        assert!(descriptors_in(None, 1024).is_ok());
        assert!(descriptors_in(Some(24), 2).is_ok());
        assert!(descriptors_in(Some(23), 2).unwrap_err().text().contains("ulimit -n 24"));
    }

    #[test]
    fn glibc_versions_compare_by_number() {
        assert!(Glibc::parse("2.4") < Glibc::parse("2.34"));
        assert!(Glibc::from_symbol_version(b"GLIBC_2.2.5") < Some(GLIBC_NEEDED));
        assert_eq!(Glibc::from_symbol_version(b"GLIBC_PRIVATE"), None);
        assert!(running_glibc() > Glibc(2, 0));
    }

    #[test]
    fn the_needed_calls_work_here() {
        for (name, attempt) in CALLS {
            attempt().unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }
}
