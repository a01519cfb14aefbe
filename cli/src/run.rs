//! `heddle run`: checks the program, prepares its environment, and becomes it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::commands::{Mode, RunOptions};
use crate::elf;
use crate::exec::{self, Change};
use crate::failure::Failure;
use crate::machine;
use crate::preload_file;
use crate::program;

/// Runs the program in place of this process. It returns only if it could not, with the reason.
pub fn run(options: RunOptions) -> Failure {
    match prepare(&options) {
        Err(failure) => failure,
        Ok((path, changes)) => {
            let error = exec::become_program(&path, &options.program, changes);
            let text = format!("{}: {}", options.program[0].display(), program::reason(&error));
            if error.kind() == io::ErrorKind::NotFound { Failure::not_found(text) } else { Failure::refused(text) }
        }
    }
}

/// Checks everything that can be checked before; answers the program's path and the changes to its environment.
fn prepare(options: &RunOptions) -> Result<(PathBuf, Vec<Change>), Failure> {
    let name = &options.program[0];
    let path = program::find(name)?;
    let preload = match options.mode {
        Mode::Kernel => None,
        Mode::User => {
            program::check(&path)?;
            machine::check(options.workers)?;
            Some(preload_file::extract_library()?)
        }
    };
    if options.no_thp {
        rustix::thread::disable_transparent_huge_pages(true)
            .map_err(|e| Failure::own(format!("--no-thp: the kernel refuses PR_SET_THP_DISABLE: {e}")))?;
    }
    let mut changes = environment(options, preload.as_deref(), env::var_os("LD_PRELOAD").as_deref());
    if preload.is_some() && elf::needs_asan(&path) {
        changes.push(("ASAN_OPTIONS", Some(asan_options(env::var_os("ASAN_OPTIONS")))));
    }
    Ok((path, changes))
}

/// The address sanitizer's options: it wants its library to be the first, and ours is. Ours defines nothing that it
/// intercepts.
fn asan_options(inherited: Option<OsString>) -> OsString {
    let mut options = inherited.filter(|options| !options.is_empty()).map_or_else(OsString::new, |mut options| {
        options.push(":");
        options
    });
    options.push("verify_asan_link_order=0");
    options
}

/// What changes in the program's environment; `inherited` is the LD_PRELOAD that heddle was started with.
fn environment(options: &RunOptions, preload: Option<&Path>, inherited: Option<&OsStr>) -> Vec<Change> {
    let mut changes = vec![("LD_PRELOAD", preload_list(preload, inherited))];
    if preload.is_none() {
        // Without the library its settings mean nothing; a `heddle run` further down must not find them.
        let names = ["HEDDLE_WORKERS", "HEDDLE_STATS", "HEDDLE_CHILDREN", "HEDDLE_SLICE_MS", "HEDDLE_LAUNCHED"];
        changes.extend(names.map(|name| (name, None)));
        return changes;
    }
    let number = |n: u32| Some(OsString::from(n.to_string()));
    // The library takes it out again: programs that this one executes, even in the same process, do not have it.
    changes.push(("HEDDLE_LAUNCHED", number(1)));
    if let Some(workers) = options.workers {
        changes.push(("HEDDLE_WORKERS", number(workers)));
    }
    if let Some(slice) = options.slice {
        changes.push(("HEDDLE_SLICE_MS", number(slice)));
    }
    if options.stats {
        // The process that becomes the program prints; its children do not.
        changes.push(("HEDDLE_STATS", number(std::process::id())));
    }
    if options.no_children {
        changes.push(("HEDDLE_CHILDREN", number(0)));
    }
    changes
}

/// The program's LD_PRELOAD: `preload` first, then what was there, without libraries of Heddle's (of this or any other
/// version: two of them in one process would fight over its system calls).
fn preload_list(preload: Option<&Path>, inherited: Option<&OsStr>) -> Option<OsString> {
    let inherited = inherited.unwrap_or_default().as_bytes();
    let is_ours = |entry: &[u8]| preload_file::is_library_name(entry.rsplit(|&b| b == b'/').next().unwrap_or_default());
    if preload.is_none() && !separated(inherited).any(is_ours) {
        return (!inherited.is_empty()).then(|| OsString::from_vec(inherited.to_vec()));
    }
    let mut list: Vec<&[u8]> = preload.iter().map(|path| path.as_os_str().as_bytes()).collect();
    list.extend(separated(inherited).filter(|entry| !is_ours(entry)));
    (!list.is_empty()).then(|| OsString::from_vec(list.join(&b':')))
}

/// The entries of an LD_PRELOAD value: spaces and colons separate them.
fn separated(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|&b| b == b' ' || b == b':').filter(|entry| !entry.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "/tmp/heddle-1/libheddle-0123456789abcdef.so";

    fn list(preload: Option<&str>, inherited: Option<&str>) -> Option<String> {
        preload_list(preload.map(Path::new), inherited.map(OsStr::new)).map(|list| list.into_string().unwrap())
    }

    fn options(args: &[&str]) -> RunOptions {
        use clap::Parser;
        let args = ["heddle", "run"].iter().chain(args).chain(&["--", "prog"]);
        match crate::commands::Cli::try_parse_from(args).unwrap().command {
            crate::commands::Command::Run(options) => options,
            _ => unreachable!("the command was 'run'"),
        }
    }

    #[test]
    fn the_library_goes_first_and_the_rest_stays() {
        assert_eq!(list(Some(OURS), None).unwrap(), OURS);
        assert_eq!(list(Some(OURS), Some("")).unwrap(), OURS);
        assert_eq!(list(Some(OURS), Some("a.so /b.so:c.so")).unwrap(), format!("{OURS}:a.so:/b.so:c.so"));
    }

    #[test]
    fn the_address_sanitizers_other_options_stay() {
        assert_eq!(asan_options(None), "verify_asan_link_order=0");
        assert_eq!(asan_options(Some("a=1".into())), "a=1:verify_asan_link_order=0");
    }

    #[test]
    fn nested_runs_leave_one_library() {
        let older = "/run/user/1/heddle/libheddle-ffffffffffffffff.so";
        assert_eq!(list(Some(OURS), Some(OURS)).unwrap(), OURS);
        assert_eq!(list(Some(OURS), Some(&format!("a.so:{older} {OURS}"))).unwrap(), format!("{OURS}:a.so"));
    }

    #[test]
    fn kernel_mode_takes_the_library_out_and_nothing_else() {
        assert_eq!(list(None, None), None);
        assert_eq!(list(None, Some(OURS)), None);
        assert_eq!(list(None, Some(&format!("{OURS}:a.so"))).unwrap(), "a.so");
        assert_eq!(list(None, Some("a.so  b.so")).unwrap(), "a.so  b.so");
        assert_eq!(list(None, Some("libheddle-short.so")).unwrap(), "libheddle-short.so");
    }

    #[test]
    fn options_become_the_librarys_settings() {
        let changes = |args: &[&str]| environment(&options(args), Some(Path::new(OURS)), None);
        let set = |name, value: &str| (name, Some(OsString::from(value)));
        assert_eq!(changes(&[]), [set("LD_PRELOAD", OURS), set("HEDDLE_LAUNCHED", "1")]);
        assert_eq!(
            changes(&["--workers", "3", "--stats", "--no-children", "--slice=20"]),
            [
                set("LD_PRELOAD", OURS),
                set("HEDDLE_LAUNCHED", "1"),
                set("HEDDLE_WORKERS", "3"),
                set("HEDDLE_SLICE_MS", "20"),
                set("HEDDLE_STATS", &std::process::id().to_string()),
                set("HEDDLE_CHILDREN", "0"),
            ]
        );
        let kernel = environment(&options(&["--mode", "kernel", "--workers", "3"]), None, None);
        assert!(kernel.len() == 6 && kernel.iter().all(|(_, value)| value.is_none()));
    }
}
