//! `heddle sharing run`: runs the program with the detector, then reports.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;

use heddle_sharing::layout::{self, header};
use object::Endianness;
use object::elf as abi;
use object::read::elf::{FileHeader, ProgramHeader};
use rustix::fs::MemfdFlags;

use crate::commands::{Mode, SharingRun};
use crate::exec;
use crate::failure::Failure;
use crate::machine;
use crate::preload_file;
use crate::program;
use crate::sharing::findings::Findings;
use crate::sharing::report;

/// The stub's note in a program built for the detector.
const NOTE: u32 = 0x5348_4152;

/// Runs the program and reports; answers its exit status.
pub fn run(options: &SharingRun) -> Result<u8, Failure> {
    let name = &options.program[0];
    let path = program::find(name)?;
    check(&path)?;
    program::check(&path)?;
    let (_, library) = preload_file::extract_sharing()?;
    let json = match &options.json {
        Some(file) => {
            let open = File::create(file);
            Some(open.map_err(|e| Failure::own(format!("--json {}: {}", file.display(), program::reason(&e))))?)
        }
        None => None,
    };
    let file = shared_file(options.threshold)
        .map_err(|e| Failure::own(format!("no memory to share with the program: {}", program::reason(&e))))?;

    let mut preload = OsString::from(&library);
    if options.mode == Mode::User {
        machine::check(None)?;
        preload.push(":");
        preload.push(preload_file::extract_library()?);
    }
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let variable = layout::VARIABLE.to_str().unwrap_or_default();
    let mut command = Command::new(&path);
    command.arg0(name).args(&options.program[1..]).env("LD_PRELOAD", preload);
    if options.mode == Mode::User {
        // The library takes it out again, as after `heddle run`.
        command.env("HEDDLE_LAUNCHED", "1");
    }
    command.env(variable, file.as_raw_fd().to_string());
    let mut child = command.spawn().map_err(|e| {
        let text = format!("{}: {}", name.display(), program::reason(&e));
        if e.kind() == io::ErrorKind::NotFound { Failure::not_found(text) } else { Failure::refused(text) }
    })?;
    exec::leave_keys_to_the_child();
    let status = child.wait().map_err(|e| Failure::own(format!("cannot wait for the program: {e}")))?;
    // A child that outlives the program may hold the output; it is not waited for.
    let findings = Findings::read(&file, options.threshold)
        .map_err(|e| Failure::own(format!("cannot read what the detector found: {e}")))?;
    if findings.attached == 0 {
        let why = if findings.foreign > 0 {
            "it was built by another version of heddle; build it again"
        } else {
            "the program did not load it, or ended at once"
        };
        return Err(Failure::own(format!("{}: the detector saw nothing: {why}", name.display())));
    }
    let lines = report::describe(&findings);
    let written = match json {
        Some(mut out) => out.write_all(report::json(&lines, &findings, &path).pretty().as_bytes()),
        None => io::stderr().write_all(report::text(&lines, &findings).as_bytes()),
    };
    if let (Err(e), Some(name)) = (written, &options.json) {
        return Err(Failure::own(format!("--json {}: {}", name.display(), program::reason(&e))));
    }
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}

/// The file in memory that the detector writes to. The program inherits it.
fn shared_file(threshold: u64) -> io::Result<File> {
    let file = File::from(rustix::fs::memfd_create("heddle-sharing", MemfdFlags::empty())?);
    file.set_len(layout::WORDS as u64 * 8)?;
    let put = |word: usize, value: u64| file.write_all_at(&value.to_le_bytes(), word as u64 * 8);
    put(header::MAGIC, layout::MAGIC)?;
    put(header::THRESHOLD, threshold)?;
    Ok(file)
}

/// Checks that the program was built for the detector.
fn check(path: &Path) -> Result<(), Failure> {
    let refused = |why: &str| {
        Err(Failure::refused(format!(
            "{}: {why} 'heddle sharing build'; build it with: heddle sharing build -- gcc -O1 -g prog.c -o prog -pthread",
            path.display()
        )))
    };
    let data =
        std::fs::read(path).map_err(|e| Failure::refused(format!("{}: {}", path.display(), program::reason(&e))))?;
    match note(&data) {
        Some(version) if version == layout::VERSION => Ok(()),
        Some(_) => refused("was built by another version of"),
        None => refused("was not built with"),
    }
}

/// The version in the stub's note.
fn note(data: &[u8]) -> Option<u32> {
    let header = abi::FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    for segment in header.program_headers(endian, data).ok()? {
        let Ok(Some(mut notes)) = segment.notes(endian, data) else { continue };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == b"Heddle" && note.n_type(endian).0 == NOTE {
                return Some(u32::from_le_bytes(note.desc().try_into().ok()?));
            }
        }
    }
    None
}
