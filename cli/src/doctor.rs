//! `heddle doctor`: what this machine allows, which steps Heddle takes on it and why, and whether `heddle run` works.

use std::fmt::Write;
use std::fs;
use std::io;

use rustix::process::{Resource, getrlimit};
use rustix::thread::MembarrierCommand;

use crate::cpus::Cpus;
use crate::failure::{Failure, print};
use crate::machine::{self, GLIBC_NEEDED};
use crate::preload_file;
use crate::probe;

/// Width of the first two columns.
const NAME: usize = 20;
const VALUE: usize = 30;

/// The report while it is written, and what is wrong so far.
#[derive(Default)]
struct Report {
    text: String,
    failures: Vec<String>,
}

impl Report {
    fn heading(&mut self, text: &str) {
        let gap = if self.text.is_empty() { "" } else { "\n" };
        let _ = writeln!(self.text, "{gap}{text}");
    }

    fn row(&mut self, name: &str, value: impl Into<String>, remark: &str) {
        let value = value.into();
        let line = format!("  {name:NAME$} {value:VALUE$} {remark}");
        let _ = writeln!(self.text, "{}", line.trim_end());
    }

    /// A row for something that `heddle run` needs.
    fn need<T>(&mut self, name: &str, value: impl Into<String>, outcome: &Result<T, Failure>) {
        match outcome {
            Ok(_) => self.row(name, value, "good"),
            Err(failure) => {
                self.row(name, value, "NOT ENOUGH, see below");
                self.failures.push(failure.text().to_owned());
            }
        }
    }
}

/// Prints the report; answers the exit status: 1 if `heddle run` does not work here.
pub fn doctor() -> Result<u8, Failure> {
    let mut report = Report::default();
    let cpus = Cpus::read();
    let guards = probe::guard_pages();
    needs(&mut report);
    machine(&mut report, &guards);
    limits(&mut report, &cpus);
    steps(&mut report, &cpus, &guards);
    report.text.push('\n');
    if report.failures.is_empty() {
        report.text.push_str("heddle run works here.\n");
        print(&report.text)?;
        return Ok(0);
    }
    for why in &report.failures {
        let _ = writeln!(report.text, "heddle run does not work here: {why}");
    }
    print(&report.text)?;
    Ok(1)
}

/// What `heddle run` cannot do without.
fn needs(report: &mut Report) {
    report.heading("Needed by heddle run");
    let fsgsbase = machine::fsgsbase();
    report.need("FSGSBASE", yes(fsgsbase.is_ok()), &fsgsbase);
    let glibc = machine::running_glibc();
    let enough = (glibc >= GLIBC_NEEDED)
        .then_some(())
        .ok_or_else(|| Failure::own(format!("glibc is {glibc}, and Heddle needs {GLIBC_NEEDED} or newer")));
    report.need("glibc", glibc.to_string(), &enough);
    let calls = machine::system_calls();
    report.need("system calls", if calls.is_ok() { "allowed" } else { "denied by seccomp" }, &calls);
    // Laying the library down includes a trial of rewriting code.
    let library = preload_file::extract_library();
    report.need("rewriting of code", if library.is_ok() { "works" } else { "not possible" }, &library);
    if let Ok(path) = &library {
        report.row("preload library", "usable", &path.display().to_string());
    }
}

/// The kernel's and the processor's offers.
fn machine(report: &mut Report, guards: &io::Result<()>) {
    report.heading("Kernel and processor");
    let name = rustix::system::uname();
    report.row("kernel", name.release().to_string_lossy(), "");
    match probe::xsave() {
        Some((bytes, compact)) => {
            let remark = if compact { "XSAVE and XSAVEC; XSAVE is used" } else { "XSAVE" };
            report.row("XSAVE area", format!("{bytes} bytes"), remark);
        }
        None => report.row("XSAVE area", "none", "only the SSE registers exist"),
    }
    report.row("MADV_GUARD_INSTALL", outcome(guards), "guard pages that need no mapping of their own (Linux 6.13)");
    report.row("io_uring", outcome(&probe::io_uring()), "tried with a no-op");
    let barrier = rustix::thread::membarrier_query().contains_command(MembarrierCommand::PrivateExpedited);
    report.row("membarrier", yes(barrier), "private expedited");
    report.row("epoll_pwait2", yes(probe::epoll_pwait2()), "timeouts in nanoseconds (Linux 5.11)");
    let pages = setting("/sys/kernel/mm/transparent_hugepage/enabled");
    let chosen = pages.split(['[', ']']).nth(1).unwrap_or(&pages).to_owned();
    let remark = if chosen == "always" { "stacks may take 2 MiB each: see heddle run --no-thp" } else { "" };
    report.row("huge pages", chosen, remark);
    let overcommit = setting("/proc/sys/vm/overcommit_memory");
    let remark = match overcommit.as_str() {
        "0" => "heuristic",
        "1" => "always granted",
        "2" => "strict: reserved stacks count as used memory",
        _ => "",
    };
    report.row("vm.overcommit_memory", overcommit, remark);
    report.row("vm.max_map_count", setting("/proc/sys/vm/max_map_count"), "mappings in a process");
}

/// Limits on this process.
fn limits(report: &mut Report, cpus: &Cpus) {
    report.heading("Limits of this process");
    report.row("CPUs", cpus.allowed.to_string(), "affinity mask and cpuset");
    match &cpus.quota {
        Some(quota) => report.row("CPU quota", format!("{:.2} CPUs", quota.cpus), &quota.file.display().to_string()),
        None => report.row("CPU quota", "none", "cgroup v1 and v2"),
    }
    let files = getrlimit(Resource::Nofile);
    report.need(
        "open files",
        format!("{} (at most {})", number(files.current), number(files.maximum)),
        &machine::descriptors(None),
    );
    let threads = getrlimit(Resource::Nproc);
    report.row("processes", number(threads.current), "kernel threads of this user; user threads do not count");
    let stack = getrlimit(Resource::Stack);
    report.row("stack", bytes(stack.current), "glibc's size for a thread's stack, unless the program sets one");
    let space = getrlimit(Resource::As);
    report.row("address space", bytes(space.current), "");
}

/// Each choice that Heddle makes, and why.
fn steps(report: &mut Report, cpus: &Cpus, guards: &io::Result<()>) {
    report.heading("Steps that Heddle takes");
    match guards {
        Ok(()) => report.row("stack guards", "MADV_GUARD_INSTALL", "the kernel has it; a guard costs no mapping"),
        Err(e) => report.row("stack guards", "mprotect", &format!("the kernel refuses MADV_GUARD_INSTALL ({e})")),
    }
    report.row("reactor", "epoll", "taken even where io_uring works, which is hardly faster for what threads do");
    let workers = cpus.workers();
    let why = match &cpus.quota {
        Some(quota) if workers < cpus.allowed => format!("the quota of {:.2} CPUs, rounded up", quota.cpus),
        _ => "one for each CPU that this process may use".to_owned(),
    };
    report.row("workers", workers.to_string(), &format!("{why} (heddle run --workers N changes it)"));
}

fn yes(found: bool) -> &'static str {
    if found { "yes" } else { "no" }
}

fn outcome(probe: &io::Result<()>) -> String {
    match probe {
        Ok(()) => "works".to_owned(),
        Err(e) => format!("no: {}", crate::program::reason(e)),
    }
}

/// A kernel setting's text.
fn setting(file: &str) -> String {
    fs::read_to_string(file).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn number(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string())
}

fn bytes(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |limit| format!("{} KiB", limit >> 10))
}
