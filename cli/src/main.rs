//! `heddle`: runs unmodified threaded programs on user threads.
//!
//! `heddle run` checks a program, puts the preload library into its environment and becomes it; `heddle doctor` says what
//! this machine allows; `heddle demo` measures two programs with and without Heddle; `heddle sharing` finds data that shares
//! cache lines by accident; `heddle lab` and `heddle compare` are the crate `heddle-lab`. The library and all programs are
//! inside this binary (see `build.rs`), so there is nothing else to install.

#![deny(unsafe_code)]
#![cfg_attr(not(test), no_main)]

mod commands;
mod cpus;
mod demo;
mod demo_child;
mod demo_table;
mod doctor;
mod elf;
#[cfg(not(test))]
mod entry;
mod exec;
mod failure;
mod lab;
mod machine;
mod preload_file;
mod probe;
mod program;
mod run;
mod sharing;

use clap::Parser;
use clap::error::ErrorKind;
use commands::{Cli, Command, Sharing};
use failure::Failure;

/// Does what the command line asks for; answers the exit status.
fn heddle() -> u8 {
    if machine::is_call_probe() {
        return machine::probe_calls();
    }
    let done = parse().and_then(|cli| match cli {
        Some(Cli { command: Command::Run(options) }) => Err(run::run(options)),
        Some(Cli { command: Command::Sharing(Sharing::Build { command }) }) => Err(sharing::build(&command)),
        Some(Cli { command: Command::Sharing(Sharing::Run(options)) }) => sharing::run(&options),
        Some(Cli { command: Command::Doctor }) => doctor::doctor(),
        Some(Cli { command: Command::Demo }) => demo::demo().map(|()| 0),
        Some(Cli { command: Command::Compare(options) }) => lab::compare(options).map(|()| 0),
        Some(Cli { command: Command::Lab(command) }) => lab::lab(command),
        Some(Cli { command: Command::LabChild { name, args } }) => lab::child(&name, &args).map(|()| 0),
        None => Ok(0),
    });
    done.unwrap_or_else(|failure| failure.report())
}

/// The test harness brings an entry point of its own and wants this one by its side.
#[cfg(test)]
fn main() {
    std::process::exit(i32::from(heddle()));
}

/// Reads the command line; `None` when it asked for help or the version, which are then printed already.
fn parse() -> Result<Option<Cli>, Failure> {
    match Cli::try_parse() {
        Ok(cli) => Ok(Some(cli)),
        Err(e) if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            failure::print(&e.to_string())?;
            Ok(None)
        }
        Err(e) => Err(Failure::own(one_line(&e))),
    }
}

/// The first paragraph of clap's message, on one line, with where to read on.
fn one_line(error: &clap::Error) -> String {
    let arg = |n| std::env::args_os().nth(n).unwrap_or_default();
    let command = match (arg(1).to_str(), arg(2).to_str()) {
        (Some("run"), _) => "heddle run",
        (Some("sharing"), Some("build")) => "heddle sharing build",
        (Some("sharing"), Some("run")) => "heddle sharing run",
        (Some("sharing"), _) => "heddle sharing",
        (Some("compare"), _) => "heddle compare",
        (Some("lab"), _) => "heddle lab",
        _ => "heddle",
    };
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return format!("no command given; see '{command} --help'");
    }
    if error.kind() == ErrorKind::MissingRequiredArgument && command != "heddle lab" {
        let what = if command.ends_with("build") { "compiler" } else { "program" };
        return format!("no {what} given; see '{command} --help'");
    }
    let text = error.to_string();
    let paragraph: Vec<&str> = text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect();
    let line = paragraph.join(" ").replace("invalid digit found in string", "not a whole number");
    format!("{}; see '{command} --help'", line.strip_prefix("error: ").unwrap_or(&line))
}
