//! `heddle sharing build`: the compiler with the instrumentation, and our functions in place of the sanitizer's library.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::exec;
use crate::failure::Failure;
use crate::preload_file::{self, SHARING_STUB};
use crate::program;

/// The two families of compilers: they take the instrumentation's run-time library from different places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compiler {
    Gcc,
    Clang,
}

/// Programs that run the compiler that is their first argument.
const LAUNCHERS: [&str; 3] = ["ccache", "distcc", "sccache"];

/// Runs the compiler in place of this process. It returns only if it could not, with the reason.
pub fn build(command: &[OsString]) -> Failure {
    match prepare(command) {
        Err(failure) => failure,
        Ok((path, args)) => {
            let error = exec::become_program(&path, &args, Vec::new());
            let text = format!("{}: {}", command[0].display(), program::reason(&error));
            if error.kind() == io::ErrorKind::NotFound { Failure::not_found(text) } else { Failure::refused(text) }
        }
    }
}

fn prepare(command: &[OsString]) -> Result<(std::path::PathBuf, Vec<OsString>), Failure> {
    let path = program::find(&command[0])?;
    let launched = LAUNCHERS.iter().any(|name| path.file_name() == Some(OsStr::new(name)));
    let compiler = match command.get(1) {
        Some(name) if launched => family(&program::find(name)?)?,
        _ => family(&path)?,
    };
    let (folder, _) = preload_file::extract_sharing()?;
    Ok((path, arguments(command, compiler, &folder)))
}

/// The compiler's family: by its name, or by what it says of itself.
fn family(path: &Path) -> Result<Compiler, Failure> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.contains("clang") {
        return Ok(Compiler::Clang);
    }
    if name.contains("gcc") || name.contains("g++") {
        return Ok(Compiler::Gcc);
    }
    let unknown = || Failure::own(format!("{}: is neither gcc nor clang, or another name of them", path.display()));
    let mut probe = Command::new(path);
    probe.args(["-dM", "-E", "-x", "c", "/dev/null"]).stdin(Stdio::null());
    let output = probe.output().map_err(|_| unknown())?;
    let defines = |name: &str| {
        let macros = output.stdout.split(|&b| b == b'\n');
        output.status.success()
            && macros.into_iter().any(|line| line.starts_with(format!("#define {name} ").as_bytes()))
    };
    match (defines("__clang__"), defines("__GNUC__")) {
        (true, _) => Ok(Compiler::Clang),
        (_, true) => Ok(Compiler::Gcc),
        _ => Err(unknown()),
    }
}

/// The command with what the instrumentation needs.
fn arguments(command: &[OsString], compiler: Compiler, folder: &Path) -> Vec<OsString> {
    // The sanitizer's own library must not come in, whatever the command says.
    let mut args: Vec<OsString> = command.iter().filter(|arg| *arg != "-static-libtsan").cloned().collect();
    let debug = |arg: &OsString| {
        let arg = arg.as_bytes();
        arg.starts_with(b"-g") && !arg.starts_with(b"-gno") && !arg.starts_with(b"-gcc")
    };
    if !command[1..].iter().any(debug) {
        args.push("-g".into());
    }
    args.push("-fsanitize=thread".into());
    match compiler {
        // Its driver looks here first for the library and for the object that it links with it.
        Compiler::Gcc => {
            let mut option = OsString::from("-B");
            option.push(folder);
            option.push("/");
            args.push(option);
        }
        Compiler::Clang => {
            args.push("-fno-sanitize-link-runtime".into());
            if links(&command[1..]) {
                // Not as a file name: `-x` would say what language it is in.
                let mut option = OsString::from("-Wl,");
                option.push(folder.join(SHARING_STUB));
                args.push(option);
            }
        }
    }
    args
}

/// Whether this command links.
fn links(args: &[OsString]) -> bool {
    const OTHERWISE: [&str; 11] = [
        "-c",
        "-S",
        "-E",
        "-M",
        "-MM",
        "-fsyntax-only",
        "--compile",
        "--assemble",
        "--preprocess",
        "-r",
        "--precompile",
    ];
    const WITH_VALUE: [&str; 11] =
        ["-o", "-x", "-I", "-L", "-D", "-include", "-isystem", "-Xclang", "-mllvm", "-target", "-T"];
    if args.iter().any(|arg| OTHERWISE.iter().any(|other| arg == other)) {
        return false;
    }
    let mut value = false;
    args.iter().any(|arg| {
        let input = !value && (!arg.as_bytes().starts_with(b"-") || arg == "-");
        value = !value && WITH_VALUE.iter().any(|option| arg == option);
        input || arg.as_bytes().starts_with(b"-l")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn changed(line: &str, compiler: Compiler) -> String {
        let args = arguments(&words(line), compiler, Path::new("/f"));
        args.join(OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn gcc_finds_the_stub_where_it_looks_for_the_library() {
        assert_eq!(changed("gcc -O1 -g a.c", Compiler::Gcc), "gcc -O1 -g a.c -fsanitize=thread -B/f/");
        assert_eq!(changed("gcc -c a.c", Compiler::Gcc), "gcc -c a.c -g -fsanitize=thread -B/f/");
        assert_eq!(changed("gcc -static-libtsan a.o -g0", Compiler::Gcc), "gcc a.o -g0 -fsanitize=thread -B/f/");
    }

    #[test]
    fn clang_gets_the_stub_only_when_it_links() {
        let with = "-fsanitize=thread -fno-sanitize-link-runtime";
        let stub = "-Wl,/f/heddle-sharing-stub.o";
        assert_eq!(changed("clang -g a.c -o a", Compiler::Clang), format!("clang -g a.c -o a {with} {stub}"));
        assert_eq!(changed("clang -g -c a.c", Compiler::Clang), format!("clang -g -c a.c {with}"));
        assert_eq!(changed("clang -g -v", Compiler::Clang), format!("clang -g -v {with}"));
        assert_eq!(changed("clang -g -o x -I y", Compiler::Clang), format!("clang -g -o x -I y {with}"));
    }
}
