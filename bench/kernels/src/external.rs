//! Contenders in other languages, compiled when they are first wanted.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::kernel::Tool;

/// Programs that were compiled or looked at before, or why they are not to be had.
#[derive(Default)]
pub struct Programs {
    known: HashMap<PathBuf, Result<PathBuf, String>>,
}

impl Programs {
    /// The program of this source.
    pub fn get(&mut self, tool: Tool, source: &str) -> Result<PathBuf, String> {
        let (directory, kind) = match tool {
            Tool::C => ("openmp", "c"),
            Tool::Pthread => ("pthread", "c"),
            Tool::OpenmpGcc => ("openmp", "gcc"),
            Tool::OpenmpClang => ("openmp", "clang"),
            Tool::Tbb => ("tbb", "tbb"),
            Tool::Go => ("go", "go"),
            Tool::Heddle => ("heddle", "heddle"),
        };
        let external = Path::new(env!("CARGO_MANIFEST_DIR")).join("external");
        let source = external.join(directory).join(source);
        let own = std::env::current_exe().map_err(|why| why.to_string())?;
        let out = own.with_file_name("kernel-programs");
        let stem = source.file_stem().and_then(|name| name.to_str()).ok_or("a source without a name")?;
        let program = out.join(format!("{stem}-{kind}"));
        let make = || {
            fs::create_dir_all(&out).map_err(|why| why.to_string())?;
            // The library may be newer than its program.
            if tool != Tool::Heddle
                && is_newer(&program, &[&source, &external.join("common"), &external.join("go/bench.go")])
            {
                return Ok(program.clone());
            }
            compile(tool, &source, &external, &program).map(|()| program.clone())
        };
        self.known.entry(program.clone()).or_insert_with(make).clone()
    }
}

fn is_newer(program: &Path, sources: &[&Path]) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let all = sources.iter().flat_map(|path| {
        let inside = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
        inside.chain([path.to_path_buf()])
    });
    let newest = all.filter_map(|path| time(&path)).max();
    time(program).zip(newest).is_some_and(|(program, newest)| program > newest)
}

fn compile(tool: Tool, source: &Path, external: &Path, program: &Path) -> Result<(), String> {
    let (compiler, arguments): (&str, &[&str]) = match tool {
        Tool::C => ("gcc", &["-O3", "-Wno-unknown-pragmas"]),
        Tool::Pthread => ("gcc", &["-O3", "-pthread"]),
        Tool::OpenmpGcc => ("gcc", &["-O3", "-fopenmp"]),
        Tool::OpenmpClang => ("clang", &["-O3", "-fopenmp"]),
        Tool::Tbb => ("g++", &["-O3", "-std=c++17"]),
        Tool::Go => ("go", &["build"]),
        Tool::Heddle => ("gcc", &["-O3", "-pthread"]),
    };
    let mut command = Command::new(compiler);
    command.args(arguments).arg("-o").arg(program);
    if tool == Tool::Go {
        command.arg(source).arg(external.join("go/bench.go"));
        command.env("GOFLAGS", "-mod=mod").env("GO111MODULE", "off");
    } else {
        command.arg("-I").arg(external.join("common")).arg(source);
        if source.file_stem().is_some_and(|stem| stem == "uts") {
            command.arg(hashing(external, program)?);
        }
        if tool == Tool::Tbb {
            command.arg("-ltbb");
        }
        if tool == Tool::Heddle {
            let library = library(program)?;
            command.arg("-I").arg(library.join("include")).arg(library.join("lib/libheddle.a"));
            command.args(["-lgcc_s", "-lutil", "-lrt", "-lm", "-ldl"]);
        }
    }
    run(command, compiler)
}

/// The object with the hashing of `uts`: by clang if it is there, as Rust's is.
fn hashing(external: &Path, program: &Path) -> Result<PathBuf, String> {
    let object = program.with_file_name("uts_hash.o");
    let make = |compiler| {
        let mut command = Command::new(compiler);
        command.args(["-O3", "-c", "-o"]).arg(&object).arg(external.join("common/uts_hash.c"));
        run(command, compiler)
    };
    make("clang").or_else(|_| make("gcc"))?;
    Ok(object)
}

/// Where libheddle is installed, built as this program is.
fn library(program: &Path) -> Result<PathBuf, String> {
    let prefix = program.with_file_name("libheddle");
    let target = program.ancestors().nth(3).ok_or("no folder that is built in")?;
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../capi/install.sh"));
    command.arg("--target-dir").arg(target).arg(&prefix).env_remove("DESTDIR");
    run(command, "libheddle")?;
    Ok(prefix)
}

fn run(mut command: Command, compiler: &str) -> Result<(), String> {
    let output = command.output().map_err(|why| format!("no {compiler}: {why}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().find(|line| line.contains("error")).or(said.lines().next()).unwrap_or("it fails");
    Err(format!("{compiler}: {}", line.trim()))
}
