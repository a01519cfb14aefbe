//! Running one point's program once: started, limited in time, its output read, and its use of the machine measured.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Error;
use crate::interrupt;
use crate::plan::{Contender, Point, Program, Task};

static PROGRAMS: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/programs.rs"));
static RIVALS: &[(&str, &str, &str)] = include!(concat!(env!("OUT_DIR"), "/rivals.rs"));
static HEADERS: [(&str, &str); 2] =
    [("lab.h", include_str!("../programs/lab.h")), ("tree.h", include_str!("../programs/tree.h"))];
/// C programs that also run with the sharing detector.
static WATCHED: [(&str, &str); 1] = [("sharing", include_str!("../experiments/003-sharing/sharing.c"))];
/// Compilers that may have the instrumentation.
const WATCHING: [&str; 2] = ["gcc", "clang"];

/// What a run gave.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Why it does not count.
    pub failure: Option<String>,
    /// Figures: the program's own and what it used.
    pub figures: BTreeMap<String, f64>,
    /// Check values.
    pub checks: BTreeMap<String, String>,
}

/// Where programs lie, and how they are started.
#[derive(Debug)]
pub struct Bench {
    heddle: PathBuf,
    folder: PathBuf,
    /// Rivals that are not here, and why.
    absent: BTreeMap<&'static str, String>,
    /// Programs compiled for the detector.
    made: BTreeSet<&'static str>,
    /// The rivals in Rust, or why they are not here.
    contenders: Result<Kernels, String>,
}

/// How the reason begins why no program could be made for the detector.
pub const UNWATCHED: &str = "no compiler with the detector's instrumentation";

impl Bench {
    /// Lays the programs down in `folder`. `heddle` is this program itself.
    pub fn new(heddle: &Path, folder: &Path) -> Result<Self, Error> {
        let folder = folder.join("programs");
        fs::create_dir_all(&folder).map_err(|e| Error(format!("{}: {e}", folder.display())))?;
        let folder = folder.canonicalize().map_err(|e| Error(format!("{}: {e}", folder.display())))?;
        for (name, bytes) in PROGRAMS {
            let path = folder.join(name);
            if fs::read(&path).is_ok_and(|there| there == *bytes) {
                continue;
            }
            // Another file under the name: the old one may be running.
            let _ = fs::remove_file(&path);
            fs::write(&path, bytes)
                .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)))
                .map_err(|e| Error(format!("{}: {e}", path.display())))?;
        }
        let contenders = Kernels::find(heddle);
        Ok(Self { heddle: heddle.to_owned(), folder, absent: BTreeMap::new(), made: BTreeSet::new(), contenders })
    }

    /// Why a point cannot be measured here, if so. Compiles a rival's program when first asked for it.
    pub fn why_not(&mut self, point: &Point) -> Option<String> {
        if let Some(library) = point.preload
            && find_library(library).is_none()
        {
            return Some(format!("{library} is not installed"));
        }
        match point.program {
            Program::Rival(name) => self.rival(name),
            Program::Contender(contender) => match &self.contenders {
                Ok(kernels) if kernels.has(contender) => None,
                Ok(kernels) => Some(format!("{}: {} has no such contender", contender.name, kernels.program.display())),
                Err(why) => Some(format!("{}: {why}", contender.name)),
            },
            Program::Watched(name) => self.watched(name),
            Program::System(name) if find_in_path(name).is_none() => Some(format!("{name} is not installed")),
            _ => None,
        }
    }

    fn rival(&mut self, name: &'static str) -> Option<String> {
        let Some(&(_, kind, source)) = RIVALS.iter().find(|(rival, _, _)| *rival == name) else {
            return Some(format!("no such program: {name}"));
        };
        let output = self.folder.join(name);
        if let Some(why) = self.absent.get(name) {
            return Some(why.clone());
        }
        let source_file = self.folder.join(format!("{name}.{kind}"));
        if output.exists() && fs::read_to_string(&source_file).is_ok_and(|text| text == source) {
            return None;
        }
        let (tool, args): (&str, &[&str]) = match kind {
            "c" => ("cc", &["-std=gnu17", "-O2", "-pthread", "-fopenmp"]),
            "cpp" => ("c++", &["-std=c++17", "-O2", "-pthread"]),
            _ => ("go", &["build"]),
        };
        let mut command = Command::new(tool);
        command.args(args).current_dir(&self.folder).arg("-o").arg(&output);
        if kind != "go" {
            command.arg("-I.");
        }
        command.arg(&source_file);
        if kind == "cpp" {
            command.arg("-ltbb");
        }
        let written = HEADERS
            .iter()
            .try_for_each(|(header, text)| fs::write(self.folder.join(header), text))
            .and_then(|()| fs::write(&source_file, source));
        let why = match written.and_then(|()| command.output()) {
            Ok(done) if done.status.success() => return None,
            Ok(_) if kind == "cpp" => {
                format!("{name} could not be compiled with {tool}; it wants TBB (libtbb-dev)")
            }
            Ok(_) => format!("{name} could not be compiled with {tool}"),
            Err(e) => format!("{name} could not be compiled: {tool}: {e}"),
        };
        self.absent.insert(name, why.clone());
        let _ = fs::remove_file(&source_file);
        Some(why)
    }

    /// Compiles a program for the detector; answers why not.
    fn watched(&mut self, name: &'static str) -> Option<String> {
        let output = self.path(Program::Watched(name));
        if let Some(why) = self.absent.get(name) {
            return Some(why.clone());
        }
        // Made anew in each run of the lab: another version of the detector would refuse it.
        let source_file = output.with_extension("c");
        let source = WATCHED.iter().find(|(program, _)| *program == name).map_or("", |(_, source)| source);
        if fs::read_to_string(&source_file).is_ok_and(|text| text == source) && self.made.contains(name) {
            return None;
        }
        let written = HEADERS
            .iter()
            .try_for_each(|(header, text)| fs::write(self.folder.join(header), text))
            .and_then(|()| fs::write(&source_file, source));
        let mut why = match written {
            Ok(()) => format!("{UNWATCHED}: neither gcc nor clang is installed"),
            Err(e) => format!("{}: {e}", source_file.display()),
        };
        for compiler in WATCHING.iter().filter(|compiler| find_in_path(compiler).is_some()) {
            let mut command = Command::new(&self.heddle);
            command.args(["sharing", "build", "--", compiler, "-std=gnu17", "-O1", "-g", "-pthread", "-I."]);
            command.current_dir(&self.folder).stdin(Stdio::null()).arg(&source_file).arg("-o").arg(&output);
            match measure(&mut command, Duration::from_secs(60)).failure {
                None => {
                    self.made.insert(name);
                    return None;
                }
                Some(failure) => why = format!("{UNWATCHED}: {compiler}: {failure}"),
            }
        }
        self.absent.insert(name, why.clone());
        Some(why)
    }

    fn path(&self, program: Program) -> PathBuf {
        match program {
            Program::Watched(name) => self.folder.join(format!("{name}-watched")),
            Program::C(name) | Program::Rival(name) => self.folder.join(name),
            Program::Child(_) => self.heddle.clone(),
            // Without the program the point is not run.
            Program::Contender(_) => self.contenders.as_ref().map_or_else(|_| PathBuf::new(), |k| k.program.clone()),
            Program::System(name) => find_in_path(name).unwrap_or_else(|| name.into()),
        }
    }

    /// What the detector writes in a run.
    fn findings(&self) -> PathBuf {
        self.folder.join("findings.json")
    }

    /// The words that run a program with tasks of that kind.
    fn words(&self, point: &Point, program: Program, args: &[String]) -> Vec<String> {
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let mut words = Vec::new();
        if matches!(point.task, Task::User | Task::User1) {
            words.extend([text(self.heddle.clone()), "run".to_owned()]);
            let workers = if point.task == Task::User1 { Some(1) } else { point.workers };
            words.extend(workers.map(|n| format!("--workers={n}")));
            words.extend(point.slice.map(|ms| format!("--slice={ms}")));
            words.push("--".to_owned());
        }
        if let Program::Watched(_) = program {
            let heddle = text(self.heddle.clone());
            words.extend([heddle, "sharing".to_owned(), "run".to_owned(), "--json".to_owned(), text(self.findings())]);
            words.push("--".to_owned());
        }
        words.push(text(self.path(program)));
        if let Program::Child(name) = program {
            words.extend(["lab-child".to_owned(), name.to_owned()]);
        }
        if let Program::Contender(contender) = program {
            words.extend(["--contend", contender.kernel, contender.name].map(str::to_owned));
        }
        words.extend(args.iter().cloned());
        words
    }

    /// Runs it once.
    pub fn run(&self, point: &Point, patience: Duration) -> Outcome {
        let mut words = match &point.server {
            // The load runs on the kernel's threads, whatever the server runs on.
            None => self.words(point, point.program, &point.args),
            Some((server, args)) => {
                let mut words = vec![self.path(point.program).to_string_lossy().into_owned()];
                words.extend(point.args.iter().cloned());
                words.push("--".to_owned());
                words.extend(self.words(point, Program::C(server), args));
                words
            }
        };
        let mut command = Command::new(words.remove(0));
        command.args(words).stdin(Stdio::null());
        for name in ["HEDDLE_WORKERS", "HEDDLE_MODE", "HEDDLE_STATS", "HEDDLE_SLICE_MS", "LD_PRELOAD"] {
            command.env_remove(name);
        }
        if let Some(library) = point.preload.and_then(find_library) {
            command.env("LD_PRELOAD", library);
        }
        if let Some(workers) = point.workers {
            command.env("HEDDLE_WORKERS", workers.to_string());
        }
        if let Program::Contender(_) = point.program {
            // Some of them run other jobs on top of one that waits.
            command.env("RUST_MIN_STACK", (256 << 20).to_string());
        }
        limit_files(&mut command, point.files);
        let run = measure(&mut command, patience);
        let mut outcome = Outcome { failure: run.failure, figures: run.figures, checks: BTreeMap::new() };
        for line in run.stdout.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let (Program::Contender(contender), [time, result]) = (point.program, &words[..]) {
                if let Ok(time) = time.parse::<f64>() {
                    outcome.figures.insert("time".to_owned(), time / 1e9);
                    outcome.figures.insert(contender.figure.to_owned(), time / point.items);
                    outcome.checks.insert(contender.check.to_owned(), (*result).to_owned());
                }
                continue;
            }
            match words[..] {
                ["check", name, value] => {
                    outcome.checks.insert(name.to_owned(), value.to_owned());
                }
                [name, value] => {
                    if let Ok(value) = value.parse() {
                        outcome.figures.insert(name.to_owned(), value);
                    }
                }
                _ => {}
            }
        }
        if let (Program::Watched(_), None) = (point.program, &outcome.failure) {
            match lines_found(&self.findings()) {
                Ok(lines) => drop(outcome.figures.insert("lines".to_owned(), lines)),
                Err(why) => outcome.failure = Some(why),
            }
            let _ = fs::remove_file(self.findings());
        }
        if let Program::System(_) = point.program {
            // What such a program prints is what must be the same.
            outcome.checks.insert("output".to_owned(), fnv1a(run.stdout.as_bytes()).to_string());
        }
        outcome
    }
}

/// The program of `bench/kernels`, which holds the rivals in Rust.
#[derive(Debug)]
struct Kernels {
    program: PathBuf,
    /// What it has, a kernel a line: `fib: sequential; rayon; ...`.
    list: String,
}

/// Names it, if it is not beside this program.
const KERNELS: &str = "HEDDLE_LAB_KERNELS";

impl Kernels {
    fn find(heddle: &Path) -> Result<Self, String> {
        let program = std::env::var_os(KERNELS).map_or_else(|| heddle.with_file_name("kernels"), PathBuf::from);
        let how = format!(
            "'cargo build --release -p heddle-bench-kernels' makes it in Heddle's source tree, {KERNELS} names it elsewhere"
        );
        if !program.is_file() {
            return Err(format!("not measured, for there is no {}; {how}", program.display()));
        }
        let run = measure(Command::new(&program).arg("--list").stdin(Stdio::null()), Duration::from_secs(10));
        match run.failure {
            None if run.stdout.contains("fib: ") => Ok(Self { program, list: run.stdout }),
            _ => Err(format!("not measured, for {} is not the program that holds it; {how}", program.display())),
        }
    }

    fn has(&self, contender: &Contender) -> bool {
        let line = self.list.lines().find_map(|line| line.strip_prefix(contender.kernel)?.strip_prefix(": "));
        line.is_some_and(|line| line.split("; ").any(|name| name == contender.name))
    }
}

/// How many shared lines a report of the detector names.
fn lines_found(report: &Path) -> Result<f64, String> {
    let text = fs::read_to_string(report).map_err(|e| format!("{}: {e}", report.display()))?;
    let report: serde_json::Value = serde_json::from_str(&text).map_err(|e| format!("the detector's report: {e}"))?;
    let unseen = |name: &str| report[name].as_u64() != Some(0);
    if unseen("lines_not_watched") || unseen("threads_not_watched") {
        return Err("the detector could not watch all lines and threads".to_owned());
    }
    report["lines"]
        .as_array()
        .map(|lines| lines.len() as f64)
        .ok_or_else(|| "the detector's report has no lines".to_owned())
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}

/// Sets the soft limit of open files: to `files`, or as high as allowed.
fn limit_files(command: &mut Command, files: Option<u64>) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the answer.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return;
    }
    limit.rlim_cur = files.map_or(limit.rlim_max, |files| files.min(limit.rlim_max));
    // SAFETY: setrlimit may be called between fork and exec; the closure allocates nothing.
    unsafe {
        command.pre_exec(move || {
            if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
}

/// Where a program is, by PATH.
pub fn find_in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn find_library(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"];
    folders.iter().map(|folder| Path::new(folder).join(name)).find(|file| file.exists())
}

/// What one run of a command gave.
#[derive(Debug, Default)]
pub struct Run {
    /// Why it does not count.
    pub failure: Option<String>,
    /// wall, user, system (seconds), faults, switches, memory (MiB).
    pub figures: BTreeMap<String, f64>,
    /// What it printed.
    pub stdout: String,
}

/// Runs a command, ended after `patience`; stdout and stderr are read. The figures are of the process and of those of its
/// children that it waited for.
pub fn measure(command: &mut Command, patience: Duration) -> Run {
    let fail = |why: String| Run { failure: Some(why), ..Run::default() };
    // A group of its own: what it started is ended with it.
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let start = Instant::now();
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => return fail(format!("{}: {e}", command.get_program().display())),
    };
    let pid = child.id().cast_signed();
    interrupt::begin(pid);
    let reader = |from: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut from) = from {
                let _ = from.read_to_end(&mut bytes);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let out = reader(child.stdout.take().map(|out| Box::new(out) as Box<dyn Read + Send>));
    let err = reader(child.stderr.take().map(|err| Box::new(err) as Box<dyn Read + Send>));
    let (ended, too_long) = std::sync::mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        if too_long.recv_timeout(patience) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            // SAFETY: the group is that of a child that is taken away only after this thread has ended.
            unsafe { libc::kill(-pid, libc::SIGKILL) };
            return true;
        }
        false
    });
    // Until wait4 takes it away the ended child keeps its number, so that no other group can have it.
    // SAFETY: a C structure of numbers, for which zeroes are a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is a valid place; the child is ours.
    while unsafe { libc::waitid(libc::P_PID, child.id(), &raw mut info, libc::WEXITED | libc::WNOWAIT) } < 0 {
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return fail(format!("waiting: {error}"));
        }
    }
    let wall = start.elapsed().as_secs_f64();
    drop(ended);
    let killed = watch.join().unwrap_or(false);
    // What it left behind (there should be nothing) would keep the pipes open.
    // SAFETY: the group is that of a child that has not been taken away yet.
    unsafe { libc::kill(-pid, libc::SIGKILL) };
    interrupt::done();
    let mut status = 0;
    // SAFETY: a C structure of numbers, for which zeroes are a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the places are valid; the child is ours, has ended, and is taken away only here.
    if unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } != pid {
        return fail(format!("waiting: {}", std::io::Error::last_os_error()));
    }
    let (stdout, stderr) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    let figures = [
        ("wall", wall),
        ("user", seconds(usage.ru_utime)),
        ("system", seconds(usage.ru_stime)),
        ("cpu", seconds(usage.ru_utime) + seconds(usage.ru_stime)),
        ("minor_faults", usage.ru_minflt as f64),
        ("voluntary", usage.ru_nvcsw as f64),
        ("involuntary", usage.ru_nivcsw as f64),
        ("memory_mib", usage.ru_maxrss as f64 / 1024.0),
    ];
    let first = stderr.lines().next().unwrap_or("nothing on stderr").to_owned();
    let failure = if killed {
        Some(format!("no end within {} s", patience.as_secs()))
    } else if libc::WIFSIGNALED(status) {
        Some(format!("ended by signal {}: {first}", libc::WTERMSIG(status)))
    } else if libc::WEXITSTATUS(status) != 0 {
        Some(format!("exit status {}: {first}", libc::WEXITSTATUS(status)))
    } else {
        None
    };
    Run { failure, figures: figures.map(|(name, value)| (name.to_owned(), value)).into(), stdout }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_failures_and_limits() {
        let seconds = Duration::from_secs(20);
        let run = measure(Command::new("sh").args(["-c", "echo a 1; echo b >&2"]), seconds);
        assert_eq!((run.failure, run.stdout.as_str()), (None, "a 1\n"));
        assert!(run.figures["wall"] > 0.0 && run.figures["memory_mib"] > 0.0);
        let run = measure(Command::new("sh").args(["-c", "echo because >&2; exit 3"]), seconds);
        assert_eq!(run.failure.unwrap(), "exit status 3: because");
        let run = measure(Command::new("sh").args(["-c", "sleep 60 & sleep 60"]), Duration::from_millis(50));
        assert!(run.failure.unwrap().contains("no end within"));
        assert!(measure(&mut Command::new("/nonexistent"), seconds).failure.is_some());
    }

    #[test]
    fn rivals_in_rust_are_found_or_named() {
        let folder = tempfile::tempdir().unwrap();
        let heddle = folder.path().join("heddle");
        let absent = Kernels::find(&heddle).unwrap_err();
        assert!(absent.contains("cargo build") && absent.contains(KERNELS), "{absent}");
        let (draft, program) = (folder.path().join("draft"), folder.path().join("kernels"));
        for (says, found) in [("fib: sequential; rayon", true), ("something else", false)] {
            fs::write(&draft, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
            // Another process writes it: a descriptor of this one's would live on for a moment in children that other tests
            // start, and until then the kernel does not execute the file (ETXTBSY).
            let done = Command::new("install").args([&draft, &program]).status().unwrap();
            assert!(done.success());
            assert_eq!(Kernels::find(&heddle).is_ok(), found, "{says}");
        }
        let kernels = Kernels { program, list: "fib: sequential; rayon\nfib-threads: tokio\n".to_owned() };
        let contender = |kernel, name| Contender { kernel, name, check: "fib", figure: "call" };
        assert!(kernels.has(&contender("fib", "rayon")) && kernels.has(&contender("fib-threads", "tokio")));
        assert!(!kernels.has(&contender("fib", "tokio")) && !kernels.has(&contender("uts", "rayon")));
    }
}
