//! Builds and installs the library as `install.sh` does, compiles the examples and the test programs against it with every
//! compiler that is here, all warnings errors, and runs them with user and with kernel threads.

use std::env;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const SOURCES: &str = env!("CARGO_MANIFEST_DIR");
const WARNINGS: [&str; 5] = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-O2"];

/// The folder that this profile is built in: .../TARGET/PROFILE/deps/programs-... is what runs.
fn built() -> PathBuf {
    env::current_exe().expect("our own path").ancestors().nth(2).expect("a profile's folder").to_path_buf()
}

fn scratch() -> PathBuf {
    let profile = built().file_name().expect("a profile").to_string_lossy().into_owned();
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("capi-{profile}"))
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Where the library is installed for these tests.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = scratch().join("installed");
        let _ = fs::remove_dir_all(&prefix);
        let built = built();
        let profile = match built.file_name().and_then(OsStr::to_str) {
            Some("debug") | None => "dev",
            Some(other) => other,
        };
        run(Command::new(Path::new(SOURCES).join("install.sh"))
            .args(["--profile", profile, "--target-dir"])
            .arg(built.parent().expect("the target folder"))
            .arg(&prefix)
            .env("CARGO", env!("CARGO"))
            .env_remove("DESTDIR"));
        prefix
    })
}

/// The compilers that are here. One for each language must be.
fn compilers(all: &[&'static str]) -> Vec<&'static str> {
    let here: Vec<_> = all
        .iter()
        .copied()
        .filter(|c| Command::new(c).arg("--version").output().is_ok_and(|o| o.status.success()))
        .collect();
    assert!(!here.is_empty(), "none of {all:?} is here");
    here
}

enum Link {
    Shared,
    Static,
}

fn compile(compiler: &str, standard: &str, source: &str, link: &Link) -> PathBuf {
    let lib = prefix().join("lib");
    let source = Path::new(SOURCES).join(source);
    let name = source.file_stem().and_then(OsStr::to_str).expect("a name");
    let how = match link {
        Link::Shared => "shared",
        Link::Static => "static",
    };
    let program = scratch().join(format!("{name}-{compiler}-{standard}-{how}"));
    let mut command = Command::new(compiler);
    command.args(WARNINGS).arg(format!("-std={standard}")).arg("-I").arg(prefix().join("include")).arg(source);
    command.arg("-o").arg(&program).arg("-pthread");
    match link {
        Link::Shared => {
            let mut rpath = std::ffi::OsString::from("-Wl,-rpath,");
            rpath.push(&lib);
            command.arg("-L").arg(&lib).arg("-lheddle").arg(rpath);
        }
        Link::Static => {
            command.arg(lib.join("libheddle.a")).args(["-lgcc_s", "-lutil", "-lrt", "-lm", "-ldl"]);
        }
    }
    run(&mut command);
    program
}

/// Runs the program in a mode, with a limit on its time.
fn start(program: &Path, mode: &str, workers: u32, arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "120"]).arg(program).args(arguments);
    command.env("HEDDLE_MODE", mode).env("HEDDLE_WORKERS", workers.to_string());
    command
}

fn check_output(program: &Path, expected: &str) {
    for (mode, workers) in [("user", 1), ("user", 2), ("user", 4), ("kernel", 2)] {
        let output = run(&mut start(program, mode, workers, &[]));
        assert_eq!(text(&output), expected.replace("MODE", mode), "{program:?}, {mode} mode, {workers} workers");
    }
}

const C: [(&str, &str); 11] = [
    ("examples/hello.c", "1 squared is 1\n2 squared is 4\n3 squared is 9\n4 squared is 16\nshuttle is detached\n"),
    (
        "examples/fib.c",
        "fib(27) = 196418\nwarp has 4 letters\nweft has 4 letters\nloom has 4 letters\nshuttle has 7 letters\nsum 46150000\n",
    ),
    ("examples/fibers.c", "fib(22) = 17711\npassed on 10000 times\n"),
    ("examples/pipeline.c", "10000 items, sum 45000\n"),
    ("tests/programs/refused.c", "all refused\n"),
    ("tests/programs/fiber.c", "fibers\n"),
    ("tests/programs/limits.c", "11 kinds of waits\n"),
    ("tests/programs/sync.c", "300 rounds by 6 threads\n"),
    ("tests/programs/modes.c", "MODE mode, 3 workers\n"),
    ("tests/programs/channels.c", "12 sizes\n"),
    ("tests/programs/observe.c", "seen\n"),
];
const EXCEPTIONS: (&str, &str) =
    ("examples/exceptions.cpp", "caught 40, odd 4, unwound 360, alive 0\nrefused: deadlock\n");
const CPP: [(&str, &str); 2] = [EXCEPTIONS, ("examples/fibers.cpp", "caught 250, odd 50\n")];

#[test]
fn c_programs() {
    for (at, (source, expected)) in C.iter().enumerate() {
        for compiler in compilers(&["gcc", "clang"]) {
            // Each compiler's programs are run in one standard; they are to compile in both.
            let program = compile(compiler, "c11", source, &Link::Shared);
            if source.starts_with("examples") {
                compile(compiler, "c99", source, &Link::Shared);
            }
            if compiler == "gcc" || at == 0 {
                check_output(&program, expected);
            }
        }
    }
}

#[test]
fn cpp_programs() {
    for (source, expected) in CPP {
        for compiler in compilers(&["g++", "clang++"]) {
            for standard in ["c++11", "c++17"] {
                check_output(&compile(compiler, standard, source, &Link::Shared), expected);
            }
        }
    }
}

/// In threads and in worker processes, from the shared library, and from the archive, whose code is the program's own.
#[test]
fn tasks() {
    for link in [Link::Shared, Link::Static] {
        let in_c = compile("gcc", "c11", "tests/programs/tasks.c", &link);
        let in_cpp = compile("g++", "c++11", "tests/programs/typed.cpp", &link);
        for (mode, workers) in [("user", 2), ("kernel", 2), ("process", 1), ("process", 2), ("process", 4)] {
            let place = if mode == "process" { "processes" } else { "threads" };
            let output = text(&run(&mut start(&in_c, mode, workers, &[])));
            assert_eq!(output, format!("200 tasks in {place}\n"), "{mode} mode, {workers} workers");
            assert_eq!(
                text(&run(&mut start(&in_cpp, mode, workers, &[]))),
                "typed\n",
                "{mode} mode, {workers} workers"
            );
        }
    }
    for compiler in compilers(&["clang", "clang++"]) {
        let (standard, source) = if compiler == "clang" { ("c99", "tasks.c") } else { ("c++17", "typed.cpp") };
        compile(compiler, standard, &format!("tests/programs/{source}"), &Link::Shared);
    }
}

#[test]
fn linked_statically() {
    let (source, expected) = C[0];
    check_output(&compile("gcc", "c99", source, &Link::Static), expected);
    let (source, expected) = EXCEPTIONS;
    check_output(&compile("g++", "c++17", source, &Link::Static), expected);
}

#[test]
fn the_first_use_starts() {
    let program = compile("gcc", "c11", "tests/programs/lazy.c", &Link::Shared);
    check_output(&program, "started\n");
    assert_eq!(text(&run(&mut start(&program, "user", 2, &["other"]))), "started\n");
}

#[test]
fn exceptions_that_leave_terminate() {
    let program = compile("g++", "c++17", "tests/programs/leaves.cpp", &Link::Shared);
    for mode in ["user", "kernel"] {
        for what in ["thread", "light", "join", "scope", "for", "once"] {
            let output = start(&program, mode, 2, &[what]).output().expect("a program");
            assert_eq!(
                (output.status.code(), text(&output).as_str()),
                (Some(3), "terminated: left\n"),
                "{mode} {what}"
            );
        }
    }
}

/// Exactly the functions that the header declares are exported, with their version.
#[test]
fn exported_symbols() {
    let library = prefix().join("lib/libheddle.so");
    let header = fs::read_to_string(prefix().join("include/heddle.h")).expect("the header");
    let mut expected: Vec<String> = header
        .lines()
        // A declaration begins at the start of a line, and is the only thing there with an opening parenthesis.
        .filter(|line| !line.starts_with(['#', ' ', '/', '}']) && !line.starts_with("typedef"))
        .filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next().map(str::to_string))
        .collect();
    expected.sort();
    assert!(expected.len() > 50, "{expected:?}");
    let symbols = text(&run(Command::new("nm").args(["-D", "--defined-only"]).arg(&library)));
    let mut found: Vec<_> = symbols.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    found.sort_unstable();
    let wanted: Vec<_> = std::iter::once("HEDDLE_0.1".to_string())
        .chain(expected.iter().map(|name| format!("{name}@@HEDDLE_0.1")))
        .collect();
    assert_eq!(found, wanted);
    let dynamic = text(&run(Command::new("readelf").args(["-dW"]).arg(&library)));
    assert!(dynamic.contains("Library soname: [libheddle.so.0.1]"), "{dynamic}");
}

/// As a stranger would use it: with pkg-config, the header first and alone, in both languages.
#[test]
fn header_and_pkg_config() {
    let mut source = String::from("#include <heddle.h>\nint main(void) { heddle_thread_t t = HEDDLE_THREAD_NONE;\n");
    for (kind, init) in [
        ("mutex", "MUTEX_INIT"),
        ("rwlock", "RWLOCK_INIT"),
        ("cond", "COND_INIT"),
        ("barrier", "BARRIER_INIT(2)"),
        ("semaphore", "SEMAPHORE_INIT(3)"),
        ("once", "ONCE_INIT"),
        ("event", "EVENT_INIT"),
        ("wait_group", "WAIT_GROUP_INIT"),
        ("attr", "ATTR_INIT"),
        ("fiber", "FIBER_INIT"),
        ("fiber_attr", "FIBER_ATTR_INIT"),
        ("options", "OPTIONS_INIT"),
        ("counters", "COUNTERS_INIT"),
    ] {
        let _ = writeln!(source, "static heddle_{kind}_t a_{kind} = HEDDLE_{init}; (void)a_{kind};");
    }
    source.push_str("return heddle_thread_equal(t, 0) ? 0 : 1; }\n");
    let (as_c, as_cpp) = (scratch().join("alone.c"), scratch().join("alone.cpp"));
    prefix();
    fs::write(&as_c, &source).expect("a source");
    fs::write(&as_cpp, &source).expect("a source");
    let flags = Command::new("pkg-config")
        .args(["--cflags", "--libs", "heddle"])
        .env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"))
        .output();
    let flags: Vec<String> = match flags {
        Ok(flags) if flags.status.success() => text(&flags).split_whitespace().map(str::to_string).collect(),
        Ok(flags) => panic!("pkg-config: {}", String::from_utf8_lossy(&flags.stderr)),
        Err(_) => {
            // Not installed: what the file says, by hand.
            let file = fs::read_to_string(prefix().join("lib/pkgconfig/heddle.pc")).expect("heddle.pc");
            assert!(file.contains("Libs: -L${libdir} -lheddle\n"), "{file}");
            let at = prefix().display();
            vec![format!("-I{at}/include"), format!("-L{at}/lib"), "-lheddle".to_string()]
        }
    };
    for (compilers, standards, source) in [
        (compilers(&["gcc", "clang"]), ["c99", "c11", "c17"], &as_c),
        (compilers(&["g++", "clang++"]), ["c++11", "c++17", "c++20"], &as_cpp),
    ] {
        for compiler in compilers {
            for standard in standards {
                let program = scratch().join(format!("alone-{compiler}"));
                run(Command::new(compiler)
                    .args(WARNINGS)
                    .arg(format!("-std={standard}"))
                    .arg(source)
                    .args(&flags)
                    .arg("-o")
                    .arg(&program));
                run(Command::new(&program).env("LD_LIBRARY_PATH", prefix().join("lib")));
            }
        }
    }
}
