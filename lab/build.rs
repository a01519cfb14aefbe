//! Compiles the experiments' C programs, so that the lab needs no compiler where it runs. Rivals (OpenMP, TBB, Go) are not
//! among them: they are compiled where they are found, at run time.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

fn fail(why: &str) -> ! {
    eprintln!("heddle-lab's build script: {why}");
    exit(1);
}

/// The files in a folder, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| fail(&format!("{}: {e}", folder.display())));
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    files
}

fn main() {
    println!("cargo::rerun-if-changed=experiments");
    println!("cargo::rerun-if-changed=programs");
    println!("cargo::rerun-if-env-changed=CC");
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| fail("cargo did not set its folder")));
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_else(|| fail("cargo did not set OUT_DIR")));
    let cc = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut table = String::from("&[\n");
    let mut rivals = String::from("&[\n");
    for source in files(&here.join("experiments")).iter().flat_map(|folder| files(folder)) {
        let (Some(stem), Some(kind)) =
            (source.file_stem().and_then(|s| s.to_str()), source.extension().and_then(|e| e.to_str()))
        else {
            continue;
        };
        if kind == "cpp" || kind == "go" || (kind == "c" && stem.ends_with("_omp")) {
            let _ = writeln!(rivals, "    ({stem:?}, {kind:?}, include_str!({source:?})),");
        } else if kind == "c" {
            let program = out.join(stem);
            let status = Command::new(&cc)
                .args(["-std=gnu17", "-O2", "-pthread", "-I"])
                .arg(here.join("programs"))
                .arg(&source)
                .arg("-o")
                .arg(&program)
                .status()
                .unwrap_or_else(|e| fail(&format!("{cc}: {e} (CC names another C compiler)")));
            if !status.success() {
                fail(&format!("{cc} could not compile {}", source.display()));
            }
            let _ = writeln!(table, "    ({stem:?}, include_bytes!({program:?})),");
        }
    }
    table.push_str("]\n");
    rivals.push_str("]\n");
    fs::write(out.join("programs.rs"), table).unwrap_or_else(|e| fail(&e.to_string()));
    fs::write(out.join("rivals.rs"), rivals).unwrap_or_else(|e| fail(&e.to_string()));
}
