//! The command line.

use std::ffi::OsString;

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
    /// Tell what this machine allows and which steps Heddle takes on it
    Doctor,
    /// Measure two small programs on the kernel's threads and under Heddle (about 20 seconds)
    Demo,
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
