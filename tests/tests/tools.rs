//! Installed programs in a quick form: compressors, sort, ripgrep, git, an HTTP server, each with many threads, on NPTL and
//! under Heddle; what one wrote the other reads.

mod harness;

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use harness::{Job, Mode, Scratch, compare, modes, out_dir, skip, tool, with_machine};

/// Bytes that look like text, repeat now and then and are always the same.
fn generate(size: usize) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "thread", "futex", "park", "worker", "stack", "signal", "queue", "wake", "the", "of", "and", "steal", "switch",
        "reactor", "loom", "warp",
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bytes = Vec::with_capacity(size + 64);
    while bytes.len() < size {
        let n = next();
        match n % 8 {
            0 => bytes.extend_from_slice(format!("{n:016x}\n").as_bytes()),
            1 => bytes.extend_from_slice(format!(" {}\n", n % 100_000).as_bytes()),
            _ => {
                bytes.extend_from_slice(WORDS[(n >> 8) as usize % 16].as_bytes());
                bytes.push(if n % 5 == 0 { b'\n' } else { b' ' });
            }
        }
    }
    bytes.truncate(size - 1);
    bytes.push(b'\n');
    bytes
}

/// The input of most tests: 8 MiB in a file, written once.
fn input() -> &'static (PathBuf, Vec<u8>) {
    static INPUT: OnceLock<(PathBuf, Vec<u8>)> = OnceLock::new();
    INPUT.get_or_init(|| {
        let path = out_dir().join("input-8MiB");
        let bytes = generate(8 << 20);
        if fs::read(&path).is_ok_and(|there| there == bytes) {
            return (path, bytes);
        }
        let partial = path.with_extension(format!("partial-{}", std::process::id()));
        fs::write(&partial, &bytes).expect("write the input");
        fs::rename(&partial, &path).expect("rename the input");
        (path, bytes)
    })
}

/// True if the tool is there; says that its test is skipped otherwise.
fn installed(name: &str) -> bool {
    let found = tool(name).is_some();
    if !found {
        skip(name, &format!("{name} is not installed"));
    }
    found
}

fn job(words: &[&str], file: &Path) -> Job {
    let mut argv: Vec<OsString> = words.iter().map(Into::into).collect();
    argv.push(file.into());
    Job::new(argv)
}

/// Compresses in every mode to the same bytes, and decompresses them in every mode, from a file and from a pipe.
fn compressor(compress: &[&str], decompress: &[&str]) {
    if !installed(compress[0]) {
        return;
    }
    let (path, bytes) = input();
    with_machine(true, || {
        let packed = compare(&job(compress, path), &[2, 1]);
        let scratch = Scratch::new(compress[0]);
        let file = scratch.path().join("packed");
        fs::write(&file, &packed[0].stdout).expect("write");
        assert!(packed[0].stdout.len() > 1000 && packed[0].stdout.len() < bytes.len());
        for outcome in compare(&job(decompress, &file), &[2, 1]) {
            assert!(outcome.assert_clean().stdout == *bytes, "{}", outcome.report());
        }
        let piped = Job::new(decompress).stdin(packed[0].stdout.clone());
        for outcome in compare(&piped, &[2]) {
            assert!(outcome.assert_clean().stdout == *bytes, "{}", outcome.report());
        }
        for outcome in compare(&Job::new(compress).stdin(bytes.clone()), &[2]) {
            outcome.assert_clean();
        }
    });
}

#[test]
fn xz() {
    compressor(&["xz", "-T8", "-1", "--block-size=512KiB", "-c"], &["xz", "-T8", "-d", "-c"]);
}

#[test]
fn zstd() {
    compressor(&["zstd", "-q", "-T8", "-3", "-B512K", "-c"], &["zstd", "-q", "-d", "-c"]);
}

#[test]
fn pigz() {
    compressor(&["pigz", "-p8", "-n", "-c"], &["pigz", "-p8", "-d", "-c"]);
}

#[test]
fn pbzip2() {
    compressor(&["pbzip2", "-p8", "-1", "-c"], &["pbzip2", "-p8", "-d", "-c"]);
}

#[test]
fn sort() {
    if installed("sort") {
        with_machine(true, || compare(&job(&["sort", "--parallel=8", "-S", "200M"], &input().0), &[2, 1]));
        // With files between, which other threads compress.
        let words = ["sort", "--parallel=8", "-S", "2M", "--compress-program=gzip", "--batch-size=4"];
        with_machine(true, || compare(&job(&words, &input().0), &[2]));
    }
}

/// A tool that emulates a processor without FSGSBASE: what runs inside has kernel threads, which is not its fault.
#[test]
fn valgrind_has_kernel_threads_inside() {
    if installed("valgrind") && installed("sort") {
        let words = ["valgrind", "--quiet", "--tool=none", "sort", "--parallel=4", "-S", "50M"];
        // It may have a word to say about our library.
        with_machine(true, || {
            let outcomes: Vec<_> = modes(&[2]).iter().map(|&mode| job(&words, &input().0).run(mode)).collect();
            for outcome in &outcomes {
                let same = outcome.assert_ended().status.success() && outcome.stdout == outcomes[0].stdout;
                assert!(same, "{}", outcome.report());
            }
        });
    }
}

/// A tree of a few hundred files.
fn tree(dir: &Path) {
    let bytes = &input().1;
    for i in 0..300 {
        let sub = dir.join(format!("d{}", i % 20));
        fs::create_dir_all(&sub).expect("create");
        let from = i * 20_000;
        fs::write(sub.join(format!("f{i}.txt")), &bytes[from..from + 5_000 + i * 50]).expect("write");
    }
}

#[test]
fn ripgrep() {
    if !installed("rg") {
        return;
    }
    let scratch = Scratch::new("rg");
    tree(scratch.path());
    with_machine(true, || {
        for words in
            [&["rg", "-j8", "-n", "futex pa.k"][..], &["rg", "-j8", "-c", "^reactor"], &["rg", "-j8", "--files"]]
        {
            let job = Job::new(words.iter().copied().chain(["."])).cwd(scratch.path());
            let mut first = None;
            for mode in modes(&[2, 1]) {
                let outcome = job.run(mode);
                let mut lines: Vec<_> = outcome.assert_clean().out().lines().map(str::to_owned).collect();
                lines.sort(); // files come in any order
                assert!(lines.len() >= 50, "{}", outcome.report());
                assert!(lines == *first.get_or_insert_with(|| lines.clone()), "{}", outcome.report());
            }
        }
        let sorted = Job::new(["rg", "-j8", "--sort=path", "-o", "[0-9a-f]{16}", "."]).cwd(scratch.path());
        compare(&sorted, &[2]);
    });
}

fn git(dir: &Path, arguments: &[&str]) -> Job {
    let who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "gc.auto=0"];
    let mut job = Job::new(["git"].iter().chain(&who).chain(arguments)).cwd(dir);
    for name in ["GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"] {
        job = job.env(name, "2020-01-01T00:00:00Z");
    }
    job.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1")
}

#[test]
fn git_repository() {
    if !installed("git") {
        return;
    }
    let scratch = Scratch::new("git");
    let repository = scratch.path();
    tree(repository);
    git(repository, &["init", "-q"]).run(Mode::Plain).assert_clean();
    for round in 0..4 {
        for i in (round..300).step_by(4) {
            let path = repository.join(format!("d{}/f{i}.txt", i % 20));
            let mut text = fs::read(&path).expect("read");
            text.extend_from_slice(format!("round {round}\n").as_bytes());
            fs::write(&path, text).expect("write");
        }
        git(repository, &["add", "-A"]).run(Mode::Plain).assert_clean();
        git(repository, &["commit", "-q", "-m", &format!("round {round}")]).run(Mode::Plain).assert_clean();
    }
    with_machine(true, || {
        let objects = git(repository, &["rev-list", "--objects", "--all"]).run(Mode::Plain).out();
        assert!(objects.lines().count() > 500);
        for mode in modes(&[2, 1]) {
            let repack =
                ["-c", "pack.threads=8", "repack", "-q", "-a", "-d", "-f", "--threads=8", "--depth=20", "--window=10"];
            git(repository, &repack).run(mode).assert_clean();
            // Its own index of what it packed, read back by several threads.
            let packs: Vec<_> = fs::read_dir(repository.join(".git/objects/pack"))
                .expect("packs")
                .map(|e| e.expect("entry").path())
                .filter(|p| p.extension().is_some_and(|e| e == "pack"))
                .collect();
            assert_eq!(packs.len(), 1);
            let pack = packs[0].to_str().expect("UTF-8");
            let index = scratch.path().join("again.idx");
            git(repository, &["index-pack", "--threads=8", "-o", index.to_str().expect("UTF-8"), pack])
                .run(mode)
                .assert_ended();
            assert_eq!(fs::read(&index).expect("index"), fs::read(packs[0].with_extension("idx")).expect("its index"));
            fs::remove_file(&index).expect("remove");
            git(repository, &["fsck", "--strict", "--no-progress"]).run(Mode::Plain).assert_clean();
            assert_eq!(git(repository, &["rev-list", "--objects", "--all"]).run(mode).assert_clean().out(), objects);
        }
        compare(&git(repository, &["grep", "--threads=8", "-n", "futex park", "HEAD"]), &[2]);
        compare(
            &git(repository, &["-c", "core.preloadIndex=true", "-c", "index.threads=8", "status", "--short"]),
            &[2],
        );
    });
}

/// `python3 -m http.server` in one mode, `curl --parallel` fetching from it in another.
#[test]
fn http_server_and_curl() {
    if !installed("python3") || !installed("curl") {
        return;
    }
    let scratch = Scratch::new("http");
    let (site, copy) = (scratch.path().join("site"), scratch.path().join("copy"));
    fs::create_dir_all(&site).expect("create");
    tree(&site);
    with_machine(true, || {
        for mode in modes(&[2, 1]) {
            let mut server =
                Job::new(["python3", "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory"]);
            server.argv.push(site.clone().into());
            let mut server = server.start(mode);
            let mut line = String::new();
            BufReader::new(server.stdout.take().expect("piped")).read_line(&mut line).expect("the server's line");
            let port = line.split("port ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_else(|| {
                let _ = server.kill();
                panic!("the server says {line:?}")
            });
            let mut log = server.stderr.take().expect("piped");
            std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
            let mut urls = String::new();
            for i in 0..300 {
                urls += &format!(
                    "url = \"http://127.0.0.1:{port}/d{}/f{i}.txt\"\noutput = \"d{}/f{i}.txt\"\n",
                    i % 20,
                    i % 20
                );
            }
            fs::create_dir_all(&copy).expect("create");
            let words = [
                "curl",
                "-sS",
                "--fail",
                "--noproxy",
                "*",
                "--create-dirs",
                "--parallel",
                "--parallel-max",
                "50",
                "-K",
                "-",
            ];
            let fetch = Job::new(words);
            let outcome = fetch.stdin(urls).cwd(&copy).run(mode);
            std::thread::sleep(Duration::from_millis(10));
            harness::signal(server.id(), 15);
            let _ = server.wait();
            // Not assert_clean: some versions print a progress table to stderr whatever they are told.
            assert!(outcome.assert_ended().status.success(), "{}", outcome.report());
            let same = Command::new("diff").arg("-r").args([&site, &copy]).status().expect("diff");
            assert!(same.success(), "[{mode}] the files differ");
            fs::remove_dir_all(&copy).expect("remove");
        }
    });
}
