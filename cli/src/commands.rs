//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// The most workers that can be asked for.
pub const MAX_WORKERS: u32 = 1024;

/// What `heddle run --help` says at its end.
const AFTER_HELP: &str = "\
The process becomes the program, so process id, exit status and signals are the program's own. If it cannot, the exit
status is 125 (heddle's own failure), 126 (the program cannot be executed, or not under Heddle) or 127 (not found).

The library that goes into the program is kept in a folder of yours: $XDG_RUNTIME_DIR/heddle, /tmp/heddle-UID or
~/.cache/heddle; HEDDLE_CACHE_DIR names another.";

/// Runs unmodified threaded programs on user threads.
#[derive(Parser)]
#[command(name = "heddle", version, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What heddle can do.
#[derive(Subcommand)]
pub enum Command {
    /// Run a program with its threads on Heddle
    Run(RunOptions),
    /// Find data of different threads that shares a cache line by accident
    #[command(subcommand)]
    Sharing(Sharing),
    /// Tell what this machine allows and which steps Heddle takes on it
    Doctor,
    /// Measure two small programs on the kernel's threads and under Heddle (about 20 seconds)
    Demo,
    /// Measure a program of yours on the kernel's threads and under Heddle, with and without huge pages
    Compare(CompareOptions),
    /// Run the experiments of five papers on threads, processes and user threads, and judge their claims
    #[command(subcommand)]
    Lab(LabCommand),
    /// A part of the lab's experiments
    #[command(hide = true)]
    LabChild {
        /// Which part
        name: String,
        /// name=value
        args: Vec<String>,
    },
}

/// Options of `heddle compare`.
#[derive(Args)]
#[command(override_usage = "heddle compare [OPTIONS] -- PROGRAM [ARGS]...")]
pub struct CompareOptions {
    /// Run it at least so often in each way, 6 to 1000: fewer cannot show a difference
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(6..=1000))]
    pub rounds: u32,

    /// Go on for about so many seconds if the program is short
    #[arg(long, value_name = "S", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub seconds: u32,

    /// End a run that takes longer than so many seconds
    #[arg(long, value_name = "S", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub patience: u32,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    pub program: Vec<OsString>,
}

/// What the lab can do.
#[derive(Subcommand)]
pub enum LabCommand {
    /// Name the experiments and claims
    List,
    /// Describe an experiment: what the paper did, what differs here, its claims and curves
    Show {
        /// An experiment or a claim
        id: String,
    },
    /// Run experiments; what a run that was interrupted has done already is kept
    Run(LabRun),
    /// Write the report: HTML, Markdown, CSV and JSON
    Report {
        /// Folders of results; verdicts in which several disagree are undecided [default: heddle-lab]
        folders: Vec<PathBuf>,
    },
    /// Compare two folders of results: two machines or two dates
    Diff {
        /// One folder
        a: PathBuf,
        /// The other
        b: PathBuf,
    },
}

/// Options of `heddle lab run`.
#[derive(Args)]
pub struct LabRun {
    /// Experiments, or claims whose experiments are wanted [default: all]
    pub ids: Vec<String>,

    /// All experiments within four minutes on two CPUs (this is the default)
    #[arg(long, conflicts_with_all = ["full", "tiny"])]
    pub quick: bool,

    /// The papers' parameters, where memory allows: about half a day
    #[arg(long, conflicts_with = "tiny")]
    pub full: bool,

    /// Everything once and as small as possible: for tests, it decides nothing
    #[arg(long, hide = true)]
    pub tiny: bool,

    /// Only these kinds of task: user, user1, kernel, process, clone, join, rival [default: all]
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub tasks: Vec<String>,

    /// Measure each point at most so often, 1 to 1000 [default: quick 12 if there is time, full 7]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,

    /// Where results go [default: heddle-lab]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Where a program's threads run.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Heddle's user threads
    User,
    /// The kernel's threads, without Heddle (for comparison)
    Kernel,
}

/// Options of `heddle run`.
#[derive(Args)]
#[command(override_usage = "heddle run [OPTIONS] -- PROGRAM [ARGS]...", after_help = AFTER_HELP)]
pub struct RunOptions {
    /// Kernel threads that run the program's threads, 1 to 1024 [default: the CPUs it may use]
    #[arg(long, value_name = "N", env = "HEDDLE_WORKERS", hide_env = true,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_WORKERS)))]
    pub workers: Option<u32>,

    /// What the program's threads run on
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Mode::User)]
    pub mode: Mode,

    /// Disable transparent huge pages for the program
    #[arg(long)]
    pub no_thp: bool,

    /// Print counters (threads, switches, steals ...) on stderr when the program ends
    #[arg(long)]
    pub stats: bool,

    /// Leave the programs it starts to the kernel's threads
    #[arg(long)]
    pub no_children: bool,

    /// Milliseconds a thread may keep its worker while others wait, 1 to 10000
    #[arg(long, value_name = "MS", env = "HEDDLE_SLICE_MS", hide_env = true,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub slice: Option<u32>,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    pub program: Vec<OsString>,
}

/// What `heddle sharing --help` says of the build at its end.
const AFTER_BUILD: &str = "\
COMPILER is gcc, g++, clang, clang++, cc, c++ or another name of one of them. It is run with the instrumentation for memory
accesses (-fsanitize=thread), and with -g unless there is such an option; where it links, the functions that this
instrumentation calls are linked in place of the sanitizer's library. Compiling and linking may be separate steps:

    make CC='heddle sharing build -- gcc'

The program runs without heddle too, several times slower than usual.";

/// What `heddle sharing run --help` says at its end.
const AFTER_SHARING_RUN: &str = "\
The exit status is the program's own (128 and the signal's number if a signal ended it), 125 (heddle's own failure), 126
(the program cannot be executed, or was not built for this) or 127 (not found). Child processes are not watched.";

/// The false-sharing detector.
#[derive(Subcommand)]
pub enum Sharing {
    /// Compile or link a program so that its memory accesses can be watched
    #[command(override_usage = "heddle sharing build -- COMPILER [ARGS]...", after_help = AFTER_BUILD)]
    Build {
        /// The compiler and its arguments
        #[arg(value_name = "COMPILER", required = true, trailing_var_arg = true)]
        command: Vec<OsString>,
    },
    /// Run such a program and report the cache lines that its threads share falsely
    #[command(override_usage = "heddle sharing run [OPTIONS] -- PROGRAM [ARGS]...", after_help = AFTER_SHARING_RUN)]
    Run(SharingRun),
}

/// Options of `heddle sharing run`.
#[derive(Args)]
pub struct SharingRun {
    /// Write the report as JSON to FILE instead of as text to stderr
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Report a line from so many false ownership changes on
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub threshold: u64,

    /// What the program's threads run on
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Mode::Kernel)]
    pub mode: Mode,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    pub program: Vec<OsString>,
}
