//! `heddle lab` and `heddle compare`: the command line of the crate `heddle-lab`.

use std::path::PathBuf;
use std::time::Duration;

use heddle_lab::{Error, Request, Size, Task};

use crate::commands::{CompareOptions, LabCommand, LabRun};
use crate::failure::{Failure, print};
use crate::program;

/// Exit status: the lab did its work, but programs failed.
const PROGRAMS_FAILED: u8 = 1;
/// Exit status: Ctrl-C, as shells say it.
const INTERRUPTED: u8 = 130;

fn failed(error: Error) -> Failure {
    if heddle_lab::interrupted() { Failure::with_status(INTERRUPTED, error.0) } else { Failure::own(error.0) }
}

fn this_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|e| Failure::own(format!("cannot find this program's own file: {e}")))
}

/// Does what is asked of the lab; answers the exit status.
pub fn lab(command: LabCommand) -> Result<u8, Failure> {
    match command {
        LabCommand::List => print(&heddle_lab::list()).map(|()| 0),
        LabCommand::Show { id } => print(&heddle_lab::show(&id).map_err(failed)?).map(|()| 0),
        LabCommand::Run(options) => run(options),
        LabCommand::Report { mut folders } => {
            if folders.is_empty() {
                folders.push(heddle_lab::default_out().to_owned());
            }
            print(&report(&folders)?).map(|()| 0)
        }
        LabCommand::Diff { a, b } => print(&heddle_lab::diff::diff(&a, &b).map_err(failed)?).map(|()| 0),
    }
}

fn report(folders: &[PathBuf]) -> Result<String, Failure> {
    let (files, line) = heddle_lab::report::write_all(folders).map_err(failed)?;
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    Ok(format!("{line}\nWritten: {}\n", names.join(", ")))
}

fn task(name: &String) -> Result<Task, Failure> {
    let names: Vec<&str> = Task::ALL.iter().map(|(_, name)| *name).collect();
    Task::ALL.iter().find(|(_, known)| known == name).map(|(task, _)| *task).ok_or_else(|| {
        Failure::own(format!("--tasks: no kind of task is called '{name}'; there are {}", names.join(", ")))
    })
}

fn run(options: LabRun) -> Result<u8, Failure> {
    let size = match (options.tiny, options.full) {
        (true, _) => Size::Tiny,
        (_, true) => Size::Full,
        _ => Size::Quick,
    };
    let request = Request {
        ids: options.ids,
        size,
        tasks: options.tasks.iter().map(task).collect::<Result<_, _>>()?,
        out: options.out.unwrap_or_else(|| heddle_lab::default_out().to_owned()),
        rounds: options.rounds,
        heddle: this_program()?,
    };
    heddle_lab::watch_signals();
    let done = heddle_lab::run(&request).map_err(failed)?;
    let mut text = String::new();
    for complaint in &done.complaints {
        text.push_str(&format!("failed: {complaint}\n"));
    }
    if !done.unfinished.is_empty() {
        let names = done.unfinished.join(", ");
        text.push_str(&format!("Too few rounds fitted into the time to decide {names}: the same command goes on.\n"));
    }
    if !request.ids.is_empty() {
        text.push_str(&heddle_lab::report::verdicts(done.store.folder(), &request.ids).map_err(failed)?);
    }
    text.push_str(&report(&[done.store.folder().to_owned()])?);
    print(&text)?;
    Ok(if done.complaints.is_empty() { 0 } else { PROGRAMS_FAILED })
}

/// Runs a part of an experiment in this process.
pub fn child(name: &str, args: &[String]) -> Result<(), Failure> {
    print(&heddle_lab::child::run(name, args).map_err(failed)?)
}

/// Measures the user's program in four ways.
pub fn compare(options: CompareOptions) -> Result<(), Failure> {
    let path = program::find(&options.program[0])?;
    program::check(&path)?;
    let request = heddle_lab::compare::Request {
        heddle: this_program()?,
        program: options.program,
        rounds: options.rounds,
        budget: Duration::from_secs(options.seconds.into()),
        patience: Duration::from_secs(options.patience.into()),
    };
    heddle_lab::watch_signals();
    print(&heddle_lab::compare::compare(&request).map_err(failed)?)
}
