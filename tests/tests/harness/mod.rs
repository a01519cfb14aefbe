//! Compiles a program, runs it on NPTL and under `heddle run`, and compares what they print.
//!
//! Environment:
//! - `HEDDLE_BIN`: the `heddle` to test; without it, the workspace's is built in release form once per test binary.
//! - `HEDDLE_NO_SKIP=1`: a test whose tool is missing fails instead of being skipped.
//! - `HEDDLE_TEST_MODES`: where to run programs instead of each test's own choice: a comma list of `plain` and worker
//!   counts, for instance `plain` (no Heddle at all) or `plain,1,2,4`.
//! - `HEDDLE_TEST_REPEAT=N`: run each program N times in each mode.
//! - `HEDDLE_TEST_TIMEOUT=S`: seconds before a program is killed (60).
#![allow(dead_code, reason = "each test binary uses a part of the harness")]

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

unsafe extern "C" {
    fn kill(pid: i32, signal: i32) -> i32;
    #[link_name = "signal"]
    fn set_handler(signal: i32, handler: usize) -> usize;
}

const SIGKILL: i32 = 9;
/// SIGHUP, SIGINT and SIGQUIT: ignored by who was started with `nohup`, or by a script in the background.
const OF_A_TERMINAL: [i32; 3] = [1, 2, 3];
const SIG_DFL: usize = 0;

/// `tests/programs` in the source tree.
pub fn programs_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

/// Where compiled programs, generated inputs and scratch directories go.
pub fn out_dir() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("heddle-tests");
    fs::create_dir_all(&dir).expect("create the output directory");
    dir
}

/// A number no other caller in this process got.
fn ticket() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// An empty directory of its own, removed when dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes the directory.
    pub fn new(name: &str) -> Scratch {
        let dir = out_dir().join(format!("scratch-{name}-{}-{}", std::process::id(), ticket()));
        fs::create_dir_all(&dir).expect("create a scratch directory");
        Scratch(dir)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The `heddle` under test, built on first use.
pub fn heddle_bin() -> PathBuf {
    static BIN: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match BIN.get_or_init(find_heddle) {
        Ok(path) => path.clone(),
        Err(why) => panic!("{why}"),
    }
}

fn find_heddle() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("HEDDLE_BIN") {
        let path = PathBuf::from(path);
        return path.canonicalize().map_err(|e| format!("HEDDLE_BIN={}: {e}", path.display()));
    }
    // CARGO_TARGET_TMPDIR is `tmp` in the target directory that this test binary was built into.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target directory");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("workspace root");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let out = Command::new(cargo)
        .args(["build", "--release", "-p", "heddle-cli", "--target-dir"])
        .arg(target)
        .current_dir(root)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("cargo build -p heddle-cli: {e}"))?;
    if !out.status.success() {
        return Err(format!("cargo build -p heddle-cli failed:\n{}", String::from_utf8_lossy(&out.stderr)));
    }
    let bin = target.join("release/heddle");
    if bin.exists() { Ok(bin) } else { Err(format!("{} was not built", bin.display())) }
}

/// Where a program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// On the kernel's threads, without Heddle.
    Plain,
    /// Under `heddle run --workers N`.
    Heddle(u32),
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Mode::Plain => write!(f, "plain"),
            Mode::Heddle(n) => write!(f, "heddle, {n} workers"),
        }
    }
}

/// The modes to run in: `HEDDLE_TEST_MODES`, or plain and `workers`.
pub fn modes(workers: &[u32]) -> Vec<Mode> {
    match std::env::var("HEDDLE_TEST_MODES") {
        Ok(list) => list
            .split(',')
            .map(|word| match word.trim() {
                "plain" => Mode::Plain,
                n => Mode::Heddle(n.parse().expect("HEDDLE_TEST_MODES: `plain` or worker counts")),
            })
            .collect(),
        Err(_) => [Mode::Plain].into_iter().chain(workers.iter().map(|&n| Mode::Heddle(n))).collect(),
    }
}

/// True if `HEDDLE_TEST_MODES` leaves Heddle out.
pub fn plain_only() -> bool {
    !modes(&[2]).iter().any(|m| matches!(m, Mode::Heddle(_)))
}

fn env_number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// What a run is given.
#[derive(Clone, Default)]
pub struct Job {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// What it reads from standard input; nothing without.
    pub stdin: Option<Vec<u8>>,
    /// Variables added to its environment.
    pub env: Vec<(OsString, OsString)>,
    /// Options to `heddle run` other than `--workers`.
    pub heddle_options: Vec<OsString>,
    /// Its working directory; a fresh scratch directory without.
    pub cwd: Option<PathBuf>,
}

impl Job {
    /// A job that runs `argv`.
    pub fn new<S: AsRef<OsStr>>(argv: impl IntoIterator<Item = S>) -> Job {
        Job { argv: argv.into_iter().map(|s| s.as_ref().to_owned()).collect(), ..Job::default() }
    }

    /// Adds a variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Job {
        self.env.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Gives it something to read.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Job {
        self.stdin = Some(bytes.into());
        self
    }

    /// Adds an option to `heddle run`.
    pub fn heddle_option(mut self, option: &str) -> Job {
        self.heddle_options.push(option.into());
        self
    }

    /// Runs it in this directory.
    pub fn cwd(mut self, dir: impl Into<PathBuf>) -> Job {
        self.cwd = Some(dir.into());
        self
    }

    fn command(&self, mode: Mode) -> Command {
        let mut command = match mode {
            Mode::Plain => {
                let mut c = Command::new(&self.argv[0]);
                c.args(&self.argv[1..]);
                c
            }
            Mode::Heddle(workers) => {
                let mut c = Command::new(heddle_bin());
                c.arg("run").arg("--workers").arg(workers.to_string());
                c.args(&self.heddle_options).arg("--").args(&self.argv);
                c
            }
        };
        // Cargo's LD_LIBRARY_PATH is for the test binary, not for the program; a fixed locale keeps messages comparable.
        command
            .env_remove("LD_LIBRARY_PATH")
            .env("LC_ALL", "C")
            .env("PYTHONWARNINGS", "ignore")
            .env("PYTHONUNBUFFERED", "1");
        command.envs(self.env.iter().map(|(k, v)| (k, v)));
        // However the tests were started: programs find the signals as a shell in a terminal leaves them.
        let defaults = || {
            // SAFETY: signal takes two integers.
            OF_A_TERMINAL.iter().for_each(|&number| _ = unsafe { set_handler(number, SIG_DFL) });
            Ok(())
        };
        // SAFETY: signal may be called between fork and exec.
        unsafe { command.pre_exec(defaults) };
        command
    }

    /// Starts it without waiting for it, in a process group of its own and in the present directory.
    pub fn start(&self, mode: Mode) -> std::process::Child {
        let mut command = self.command(mode);
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"))
    }

    /// Runs it to the end, or kills it and its process group after the time-out.
    pub fn run(&self, mode: Mode) -> Outcome {
        let scratch = Scratch::new("cwd");
        let dir = self.cwd.clone().unwrap_or_else(|| scratch.path().to_owned());
        let mut command = self.command(mode);
        command.current_dir(dir).process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.stdin(if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        let start = Instant::now();
        let mut child = command.spawn().unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
        let pid = child.id();
        if let (Some(bytes), Some(mut pipe)) = (self.stdin.clone(), child.stdin.take()) {
            thread::spawn(move || pipe.write_all(&bytes));
        }
        let stdout = collect(child.stdout.take().expect("piped"));
        let stderr = collect(child.stderr.take().expect("piped"));
        let (send, done) = mpsc::channel();
        let waiter = thread::spawn(move || {
            let status = child.wait();
            let _ = send.send(());
            status
        });
        let limit = Duration::from_secs(env_number("HEDDLE_TEST_TIMEOUT", 60));
        let timed_out = done.recv_timeout(limit).is_err();
        let state = if timed_out { kernel_threads(pid) } else { String::new() };
        if timed_out {
            kill_group(pid);
        }
        let status = waiter.join().expect("waiter").expect("wait");
        let wall = start.elapsed();
        // A descendant that outlives the program holds the pipes: give it a moment, then end the group.
        let grace = Instant::now() + Duration::from_secs(5);
        let left_over = !stdout.done_by(grace) || !stderr.done_by(grace);
        if left_over {
            kill_group(pid);
        }
        Outcome {
            mode,
            pid,
            status,
            stdout: stdout.take(),
            stderr: stderr.take(),
            wall,
            timed_out,
            left_over,
            state,
            line: format!("{command:?}"),
        }
    }
}

/// Sends a signal to a process that the caller has not waited for yet.
pub fn signal(pid: u32, signal: i32) {
    // SAFETY: kill takes two integers; the caller's child is there until it has been waited for.
    unsafe { kill(pid as i32, signal) };
}

fn kill_group(pid: u32) {
    // SAFETY: kill takes two integers; the group is the one that `process_group(0)` made for the child.
    unsafe { kill(-(pid as i32), SIGKILL) };
}

/// What the process's kernel threads are doing: for a report on one that hangs.
fn kernel_threads(pid: u32) -> String {
    let mut text = String::new();
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return text };
    for (n, task) in tasks.flatten().enumerate() {
        if n == 24 {
            text.push_str("  ...\n");
            break;
        }
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let status = read("status");
        let state = status.lines().find(|l| l.starts_with("State:")).unwrap_or("").to_owned();
        let _ = writeln!(
            text,
            "  kernel thread {} ({}) {state} wchan {} syscall {}",
            task.file_name().to_string_lossy(),
            read("comm").trim(),
            read("wchan").trim(),
            read("syscall").trim(),
        );
    }
    text
}

/// A pipe's content, collected by a thread.
struct Collected {
    bytes: Arc<Mutex<Vec<u8>>>,
    done: mpsc::Receiver<()>,
}

fn collect(mut pipe: impl Read + Send + 'static) -> Collected {
    let bytes = Arc::new(Mutex::new(Vec::new()));
    let (send, done) = mpsc::channel();
    let into = Arc::clone(&bytes);
    thread::spawn(move || {
        let mut chunk = [0; 65536];
        while let Ok(n @ 1..) = pipe.read(&mut chunk) {
            into.lock().expect("collector").extend_from_slice(&chunk[..n]);
        }
        let _ = send.send(());
    });
    Collected { bytes, done }
}

impl Collected {
    fn done_by(&self, deadline: Instant) -> bool {
        self.done.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok()
    }

    fn take(&self) -> Vec<u8> {
        self.bytes.lock().expect("collector").clone()
    }
}

/// What a run did.
#[derive(Clone)]
pub struct Outcome {
    /// Where it ran.
    pub mode: Mode,
    /// The process that was started.
    pub pid: u32,
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it complained about.
    pub stderr: Vec<u8>,
    /// From start to end.
    pub wall: Duration,
    /// It was killed because it took too long.
    pub timed_out: bool,
    /// A descendant kept its output open after its end.
    pub left_over: bool,
    /// Its kernel threads when it was killed.
    pub state: String,
    line: String,
}

impl Outcome {
    /// Standard output as text.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Exit code, or 128 plus the signal, as a shell says it.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// Everything there is to say about the run.
    pub fn report(&self) -> String {
        let mut text = format!("[{}] {}\n  {} after {:.2?}\n", self.mode, self.line, self.status, self.wall);
        if self.timed_out {
            let _ = writeln!(text, "  KILLED: it ran out of time\n{}", self.state);
        }
        if self.left_over {
            text.push_str("  a process it left behind kept its output open\n");
        }
        for (name, bytes) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !bytes.is_empty() {
                let _ = writeln!(text, "  --- {name} ({} bytes)\n{}", bytes.len(), excerpt(bytes));
            }
        }
        text
    }

    /// Fails unless the program ended by itself and left nothing behind.
    pub fn assert_ended(&self) -> &Self {
        assert!(!self.timed_out && !self.left_over, "{}", self.report());
        self
    }

    /// Fails unless the program exited with 0 and said nothing on stderr.
    pub fn assert_clean(&self) -> &Self {
        self.assert_ended();
        assert!(self.status.success() && self.stderr.is_empty(), "{}", self.report());
        self
    }

    /// Fails unless the run printed, complained and ended just as `plain` did, and not absurdly later.
    pub fn assert_like(&self, plain: &Outcome) -> &Self {
        self.assert_ended();
        let same = self.code() == plain.code() && self.stdout == plain.stdout && self.stderr == plain.stderr;
        assert!(same, "not like plain:\n{}\n{}", self.report(), plain.report());
        // Who waits for a time slice, or a timeout, where a wake was due "passes" too. How fast things are is for the
        // benchmarks: tests run side by side, and beside whatever else the machine does.
        let bound = plain.wall * 10 + Duration::from_secs(20);
        assert!(self.wall <= bound, "too slow (plain took {:.2?}):\n{}", plain.wall, self.report());
        self
    }
}

fn excerpt(bytes: &[u8]) -> String {
    const MOST: usize = 4000;
    let text = String::from_utf8_lossy(bytes);
    if text.len() <= MOST {
        return text.into_owned();
    }
    let mut head = MOST / 2;
    let mut tail = text.len() - MOST / 2;
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    format!("{}\n  [...]\n{}", &text[..head], &text[tail..])
}

/// The counted skip of a test whose tool is not there.
pub fn skip(name: &str, reason: &str) {
    assert!(
        std::env::var_os("HEDDLE_NO_SKIP").is_none_or(|v| v != "1"),
        "SKIPPED {name}: {reason}, with HEDDLE_NO_SKIP=1"
    );
    static SKIPPED: AtomicUsize = AtomicUsize::new(0);
    let count = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
    // To the file behind stderr: the test runner keeps what a passing test prints through `eprintln!`.
    let line = format!("SKIPPED {name}: {reason} ({count} skipped so far)\n");
    match File::options().append(true).open("/dev/stderr") {
        Ok(mut stderr) => drop(stderr.write_all(line.as_bytes())),
        Err(_) => eprint!("{line}"),
    }
}

/// The tool's path, if it is installed.
pub fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|p| p.is_file())
}

/// What a program is written in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    /// C.
    C,
    /// C++.
    Cpp,
    /// C with OpenMP.
    OpenMp,
    /// Rust, without cargo.
    Rust,
    /// Python 3.
    Python,
    /// C programs of `drop_in.rs`, which are not run on their own.
    DropIn,
}

impl Language {
    /// Folder below `tests/programs`, and file extension.
    pub fn place(self) -> (&'static str, &'static str) {
        match self {
            Language::C => ("c", "c"),
            Language::Cpp => ("cpp", "cpp"),
            Language::OpenMp => ("openmp", "c"),
            Language::Rust => ("rust", "rs"),
            Language::Python => ("python", "py"),
            Language::DropIn => ("drop_in", "c"),
        }
    }

    /// The program's source.
    pub fn source(self, name: &str) -> PathBuf {
        let (dir, ext) = self.place();
        programs_dir().join(dir).join(format!("{name}.{ext}"))
    }

    /// Why programs in this language can't be built or run here, if they can't.
    pub fn missing(self) -> Option<String> {
        let tool_name = match self {
            Language::C | Language::OpenMp | Language::DropIn => "cc",
            Language::Cpp => "c++",
            Language::Rust => "rustc",
            Language::Python => "python3",
        };
        if tool(tool_name).is_none() {
            return Some(format!("{tool_name} is not installed"));
        }
        if self == Language::OpenMp {
            static OPENMP: OnceLock<bool> = OnceLock::new();
            let works = *OPENMP.get_or_init(|| {
                let scratch = Scratch::new("openmp");
                let source = scratch.path().join("probe.c");
                fs::write(&source, "#include <omp.h>\nint main(void) { return omp_get_max_threads() < 1; }\n")
                    .expect("write");
                let cc = Command::new("cc")
                    .arg("-fopenmp")
                    .arg(&source)
                    .arg("-o")
                    .arg(scratch.path().join("probe"))
                    .output();
                cc.is_ok_and(|out| out.status.success())
            });
            if !works {
                return Some("cc has no OpenMP".into());
            }
        }
        None
    }
}

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Compiles `source` to `output` with `compiler`, unless what is there is newer than the source, headers and flags.
fn compile(compiler: &str, flags: &[&str], source: &Path, output: &Path) {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR"));
    let others = ["programs/c/check.h", "programs/cpp/check.hpp", "tests/harness/mod.rs"];
    let newest = others.iter().map(|path| modified(&ours.join(path))).fold(modified(source), Ord::max);
    if modified(output) > newest {
        return;
    }
    let partial = output.with_extension(format!("partial-{}-{}", std::process::id(), ticket()));
    let out = Command::new(compiler)
        .args(flags)
        .arg("-o")
        .arg(&partial)
        .arg(source)
        .args(if compiler == "cc" { &["-lm"][..] } else { &[] })
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("{compiler}: {e}"));
    assert!(out.status.success(), "{compiler} {}:\n{}", source.display(), String::from_utf8_lossy(&out.stderr));
    if !out.stderr.is_empty() {
        println!("{}", String::from_utf8_lossy(&out.stderr));
    }
    fs::rename(&partial, output).expect("rename what was compiled");
}

/// Builds a program and returns how to start it.
pub fn build(language: Language, name: &str) -> Vec<OsString> {
    let source = language.source(name);
    let output = out_dir().join(format!("{}-{name}", language.place().0));
    match language {
        Language::C | Language::DropIn => {
            // -rdynamic: libraries that a program loads may ask for its symbols.
            let flags = ["-std=gnu17", "-O2", "-g", "-Wall", "-Wextra", "-pthread", "-rdynamic"];
            compile("cc", &flags, &source, &output);
        }
        Language::OpenMp => {
            compile("cc", &["-std=gnu17", "-O2", "-g", "-Wall", "-Wextra", "-fopenmp"], &source, &output)
        }
        Language::Cpp => compile("c++", &["-std=c++20", "-O2", "-g", "-Wall", "-Wextra", "-pthread"], &source, &output),
        Language::Rust => compile("rustc", &["-O", "-g", "--edition", "2024"], &source, &output),
        Language::Python => return vec!["python3".into(), source.into()],
    }
    vec![output.into()]
}

/// Builds a C file as a shared object.
pub fn build_shared(language: Language, name: &str) -> PathBuf {
    let output = out_dir().join(format!("{name}.so"));
    let flags = ["-std=gnu17", "-O2", "-g", "-Wall", "-Wextra", "-pthread", "-shared", "-fPIC"];
    compile("cc", &flags, &language.source(name), &output);
    output
}

/// Programs that load the machine so much that nothing else should run beside them hold this for writing.
static MACHINE: RwLock<()> = RwLock::new(());

/// Runs `body` beside other tests, or alone if `heavy`.
pub fn with_machine<T>(heavy: bool, body: impl FnOnce() -> T) -> T {
    let (_alone, _beside);
    if heavy {
        _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    } else {
        _beside = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    }
    body()
}

/// Runs `job` in every mode, the first being plain, and compares; returns the outcomes.
pub fn compare(job: &Job, workers: &[u32]) -> Vec<Outcome> {
    let repeat = env_number("HEDDLE_TEST_REPEAT", 1);
    let mut outcomes: Vec<Outcome> = Vec::new();
    for mode in modes(workers) {
        for _ in 0..repeat {
            let outcome = job.run(mode);
            println!("[{mode}] {:.3} s", outcome.wall.as_secs_f64());
            outcome.assert_ended();
            if let Some(first) = outcomes.first() {
                outcome.assert_like(first);
            }
            outcomes.push(outcome);
        }
    }
    outcomes
}

/// One program of the corpus, as its test describes it.
pub struct Program {
    /// Its language.
    pub language: Language,
    /// Its file's name without extension.
    pub name: &'static str,
    /// Worker counts to run it with.
    pub workers: &'static [u32],
    /// Its exit code, on NPTL and under Heddle.
    pub code: i32,
    /// Nothing else should run beside it.
    pub heavy: bool,
    /// Shared objects to build; their paths are its arguments.
    pub shared: &'static [&'static str],
    /// Words after those.
    pub args: &'static [&'static str],
    /// Variables it is given.
    pub env: &'static [(&'static str, &'static str)],
}

impl Program {
    /// An ordinary program: two workers, exit code 0.
    pub const fn new(language: Language, name: &'static str) -> Program {
        Program { language, name, workers: &[2], code: 0, heavy: false, shared: &[], args: &[], env: &[] }
    }

    /// Builds it, runs it everywhere and compares.
    pub fn test(&self) {
        if let Some(reason) = self.language.missing() {
            return skip(self.name, &reason);
        }
        let mut argv = build(self.language, self.name);
        argv.extend(self.shared.iter().map(|name| build_shared(Language::C, name).into_os_string()));
        argv.extend(self.args.iter().map(OsString::from));
        let mut job = Job::new(argv);
        for (name, value) in self.env {
            job = job.env(name, value);
        }
        with_machine(self.heavy, || {
            for outcome in compare(&job, self.workers) {
                assert!(outcome.code() == self.code && outcome.stderr.is_empty(), "{}", outcome.report());
            }
        });
    }
}
