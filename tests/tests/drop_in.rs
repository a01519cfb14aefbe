//! What `heddle run` must keep besides the programs' own behaviour: process id, exit status, arguments, environment,
//! descriptors, children; what it must give: few kernel threads, idle processors, statistics; how it refuses.

mod harness;
#[path = "drop_in/turns.rs"]
mod turns;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use harness::{
    Job, Language, Mode, Outcome, Scratch, build, build_shared, compare, heddle_bin, out_dir, plain_only, signal, skip,
    with_machine,
};

/// The modes under Heddle; none if `HEDDLE_TEST_MODES` says `plain`.
fn under_heddle() -> Vec<Mode> {
    harness::modes(&[2]).into_iter().filter(|&mode| mode != Mode::Plain).collect()
}

/// One of `programs/drop_in`, with arguments; nothing where there is no compiler.
fn helper(name: &str, args: &[&str]) -> Option<Job> {
    program(Language::DropIn, name, args)
}

fn program(language: Language, name: &str, args: &[&str]) -> Option<Job> {
    if let Some(reason) = language.missing() {
        skip(name, &reason);
        return None;
    }
    let mut argv = build(language, name);
    argv.extend(args.iter().map(Into::into));
    Some(Job::new(argv))
}

fn sh(script: &str) -> Job {
    Job::new(["sh", "-c", script])
}

#[test]
fn process_id_is_kept() {
    for mode in under_heddle() {
        let outcome = sh("echo $$").run(mode);
        assert_eq!(outcome.assert_clean().out().trim(), outcome.pid.to_string());
    }
}

#[test]
fn exit_status_is_kept() {
    for mode in under_heddle() {
        for code in [0, 1, 42, 125, 255] {
            let outcome = sh(&format!("exit {code}")).run(mode);
            assert_eq!(outcome.status.code(), Some(code), "{}", outcome.report());
        }
        for number in [1, 2, 9, 15] {
            let outcome = sh(&format!("kill -{number} $$")).run(mode);
            assert_eq!(outcome.status.signal(), Some(number), "{}", outcome.report());
        }
    }
}

/// Each way to end, in the very process that `heddle run` became; `exit_kinds` checks the same in children.
#[test]
fn ends_as_the_program_ends() {
    let kinds = [
        ("return", 42),
        ("atexit", 3),
        ("exit-crowd", 4),
        ("exit-from-thread", 7),
        ("_exit-from-thread", 9),
        ("quick_exit", 11),
        ("main-pthread_exit", 0),
        ("main-pthread_exit-exit", 13),
        ("main-cancelled", 0),
        ("all-exit-main-last", 3),
        ("abort", 134),
        ("abort-from-thread", 134),
        ("fault-in-thread", 139),
        ("overflow-in-thread", 139),
        ("overflow-in-main", 139),
        ("raise-in-thread", 143),
        ("kill-in-thread", 137),
        ("unblock-in-thread", 143),
        ("kill-hup", 129),
        ("detached", 5),
        ("detached-left", 6),
    ];
    for (kind, code) in kinds {
        let Some(job) = program(Language::C, "exit_kinds", &[kind]) else { return };
        let mut plain: Option<Outcome> = None;
        for mode in harness::modes(&[2, 1]) {
            let outcome = job.run(mode);
            outcome.assert_ended();
            assert_eq!(outcome.code(), code, "{kind}: {}", outcome.report());
            let first = plain.get_or_insert_with(|| outcome.clone());
            assert_eq!(outcome.stdout, first.stdout, "{kind}: {}", outcome.report());
            // A report of a stack overflow is welcome; otherwise nothing is said.
            assert!(code == 139 || outcome.stderr.is_empty(), "{kind}: {}", outcome.report());
        }
    }
}

#[test]
fn arguments_pass_through() {
    compare(&Job::new(["printf", "%s|", "a", "b c", "", "--workers", "--", "-x", "\u{e4}\n*"]), &[2]);
}

#[test]
fn standard_input_passes_through() {
    let text: Vec<u8> = (0..3_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    compare(&Job::new(["cat"]).stdin(text.clone()), &[2]);
    compare(&Job::new(["sort", "--parallel=4"]).stdin(text), &[2]);
}

#[test]
fn inherited_state_is_the_same() {
    let Some(job) = helper("inherited_state", &["one", "two words", ""]) else { return };
    compare(&job.clone().env("SOME_VARIABLE", "some value").env("EMPTY", ""), &[2]);
    // Ignored and blocked signals, a umask, limits, an open descriptor: set by a shell that becomes heddle.
    let argv = &job.argv;
    let setup = "trap '' HUP USR1; umask 037; ulimit -n 777; ulimit -s 4096; exec 7</dev/null; exec \"$@\"";
    let mut first: Option<Outcome> = None;
    for mode in harness::modes(&[2]) {
        let mut words: Vec<_> = ["sh", "-c", setup, "sh"].iter().map(Into::into).collect();
        if let Mode::Heddle(workers) = mode {
            words.push(heddle_bin().into());
            words.extend(["run", "--workers", &workers.to_string(), "--"].iter().map(Into::into));
        }
        words.extend(argv.iter().cloned());
        let outcome = Job::new(words).cwd("/").run(Mode::Plain);
        outcome.assert_clean();
        let plain = first.get_or_insert_with(|| outcome.clone()).out();
        let only =
            |a: &str, b: &str| a.lines().filter(|l| !b.lines().any(|m| m == *l)).map(str::to_owned).collect::<Vec<_>>();
        let (missing, extra) = (only(&plain, &outcome.out()), only(&outcome.out(), &plain));
        assert!(missing.is_empty() && extra.is_empty(), "[{mode}]\nmissing: {missing:#?}\nextra: {extra:#?}");
    }
}

/// A preloaded library of the user's keeps working.
#[test]
fn preloaded_libraries_are_kept() {
    if let Some(reason) = Language::C.missing() {
        return skip("preloaded_libraries_are_kept", &reason);
    }
    let scratch = Scratch::new("preload");
    let (source, library) = (scratch.path().join("lib.c"), scratch.path().join("lib.so"));
    // It is loaded into heddle itself too, on the way to the program.
    let text = r#"
        #define _GNU_SOURCE
        #include <errno.h>
        #include <string.h>
        #include <unistd.h>
        __attribute__((constructor)) static void loaded(void) {
            if (strcmp(program_invocation_short_name, "heddle") && write(1, "loaded\n", 7) < 0) _exit(1);
        }
    "#;
    fs::write(&source, text).unwrap();
    let cc = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status().unwrap();
    assert!(cc.success());
    let outcomes = compare(&Job::new(["true"]).env("LD_PRELOAD", &library), &[2]);
    assert!(plain_only() || outcomes.iter().filter(|o| o.mode != Mode::Plain).all(|o| o.out() == "loaded\n"));
}

/// Libraries that stand before libc's functions: an allocator, a proxy, a fake clock.
#[test]
fn interposed_functions() {
    let Some(job) = helper("interposed", &[]) else { return };
    let library = build_shared(Language::DropIn, "interposer_lib");
    // Heddle's launcher is interposed too, as with every LD_PRELOAD.
    for outcome in compare(&job.env("LD_PRELOAD", library), &[2, 1]) {
        assert_eq!(outcome.out(), "connections 40 threads 41\nok\n", "{}", outcome.report());
    }
}

/// A library of the user's audits the loader, in a namespace with a second C library.
#[test]
fn audited_programs() {
    let Some(job) = helper("interposed", &[]) else { return };
    let library = build_shared(Language::DropIn, "audit_lib");
    for outcome in compare(&job.env("LD_AUDIT", library), &[2, 1]) {
        assert_eq!(outcome.out(), "bound\nok\n", "{}", outcome.report());
    }
}

/// The same program linked in other ways.
#[test]
fn linked_in_other_ways() {
    let Some(job) = helper("interposed", &[]) else { return };
    let scratch = Scratch::new("linked");
    let source = Language::DropIn.source("interposed");
    let ways: [&[&str]; 5] =
        [&["-Wl,-z,now"], &["-Wl,-z,lazy", "-s"], &["-no-pie"], &["-no-pie", "-s", "-Wl,-z,now"], &["-static-pie"]];
    for (number, &way) in ways.iter().enumerate() {
        let program = scratch.path().join(format!("program-{number}"));
        let built = Command::new("cc")
            .args(["-std=gnu17", "-O2", "-pthread", "-o"])
            .args([&program, &source])
            .args(way)
            .output();
        if !built.is_ok_and(|out| out.status.success()) {
            skip("linked_in_other_ways", &format!("cc {} does not work here", way.join(" ")));
        } else if way == ["-static-pie"] {
            refused(&[], &[program], 126..=126, &["statically linked (static-pie)", "--mode kernel"]);
        } else {
            for outcome in compare(&Job { argv: vec![program.into()], ..job.clone() }, &[2]) {
                assert_eq!(outcome.out(), "ok\n", "{way:?}: {}", outcome.report());
            }
        }
    }
}

/// Another library's constructor starts threads, perhaps before Heddle's own constructor ran.
#[test]
fn threads_older_than_heddle() {
    let Some(job) = helper("kernel_threads", &["50"]) else { return };
    let library = build_shared(Language::DropIn, "early_threads_lib");
    for mode in harness::modes(&[2, 1]) {
        let outcome = job.clone().env("LD_PRELOAD", &library).run(mode);
        assert!(outcome.assert_clean().out().contains("ok early threads\n"), "{}", outcome.report());
    }
}

/// The runtime was left as it is in the child of a fork by a kernel thread: who joined a thread there waited for ever.
#[test]
fn forks_by_kernel_threads_give_ordinary_processes() {
    for mode in harness::modes(&[2, 1, 4]) {
        let least: &[&str] = if mode == Mode::Plain { &[] } else { &["4194304"] };
        let Some(job) = helper("forks_from_kernel_threads", least) else { return };
        assert_eq!(job.run(mode).assert_clean().out(), "ok\n");
    }
}

/// A worker that had slept was counted asleep until it had queued what it was woken for, and one that had found something by
/// searching called a sleeper whether there was one or not: it wrote to itself for nearly every second look at the reactor.
#[test]
fn one_worker_calls_no_sleeper() {
    let Some(job) = helper("pairs", &[]) else { return };
    let outcome = job.heddle_option("--stats").run(Mode::Heddle(1));
    outcome.assert_ended();
    assert!(outcome.status.success() && outcome.err().contains("notifications 0\n"), "{}", outcome.report());
}

#[test]
fn statistics_are_printed() {
    let Some(job) = helper("kernel_threads", &["100"]) else { return };
    for mode in under_heddle() {
        let outcome = job.clone().heddle_option("--stats").run(mode);
        outcome.assert_ended();
        assert!(outcome.status.success(), "{}", outcome.report());
        let text = outcome.err().to_lowercase();
        println!("{text}");
        let created = text
            .lines()
            .find(|line| line.contains("threads created"))
            .unwrap_or_else(|| panic!("no line of threads created:\n{}", outcome.report()));
        let digits: String = created.chars().filter(char::is_ascii_digit).collect();
        assert!(digits.parse::<u64>().is_ok_and(|n| n >= 100), "{created}");
        for word in ["switches", "parks", "steals", "hand-offs", "wake-ups", "libc"] {
            assert!(text.contains(word), "no {word}:\n{}", outcome.report());
        }
        assert_eq!(outcome.out().lines().count(), 1, "statistics belong on stderr: {}", outcome.report());
    }
}

/// What was found in a file is written down beside the library, and used as long as it is whole.
#[test]
fn sites_are_remembered() {
    let Some(job) = helper("kernel_threads", &["10"]) else { return };
    for mode in under_heddle() {
        let scratch = Scratch::new("sites");
        let folder = scratch.path().join("heddle");
        let job = job.clone().heddle_option("--stats").env("HEDDLE_CACHE_DIR", &folder);
        let sites = || {
            let outcome = job.run(mode);
            outcome.assert_ended();
            assert!(outcome.status.success(), "{}", outcome.report());
            let text = outcome.err();
            let lines: Vec<_> = text.lines().filter(|line| line.contains(".so")).map(str::to_owned).collect();
            assert!(lines.iter().any(|line| line.contains("libc.so")), "{}", outcome.report());
            lines
        };
        let records = || {
            let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
            files.filter(|path| path.extension().is_some_and(|e| e == "sites")).collect::<Vec<_>>()
        };
        let first = sites();
        let [file] = &records()[..] else { panic!("{:?}", records()) };
        let bytes = fs::read(file).unwrap();
        assert!(bytes.len() > 1000, "{} bytes", bytes.len());
        assert_eq!(sites(), first);
        assert_eq!(fs::read(file).unwrap(), bytes, "what is known is not added again");
        for damage in [vec![0xff; 50_000], bytes[..bytes.len() / 2].to_vec(), Vec::new()] {
            fs::write(file, damage).unwrap();
            assert_eq!(sites(), first);
            assert_eq!(sites(), first);
        }
        assert_eq!(fs::read(file).unwrap(), bytes);
        fs::remove_file(file).unwrap();
        let mut limited = vec!["sh".into(), "-c".into(), "ulimit -f 0 && exec \"$@\"".into(), "sh".into()];
        limited.extend([heddle_bin().into_os_string(), "run".into(), "--".into(), "true".into()]);
        let outcome = Job::new(limited).env("HEDDLE_CACHE_DIR", &folder).run(Mode::Plain);
        outcome.assert_clean();
        assert!(records().is_empty(), "no file may be longer than 0");
    }
}

/// True if the library is in the program, and in its child.
fn library_in(mode: Mode, option: Option<&str>) -> (bool, bool) {
    let mut job = sh("grep -c heddle /proc/$$/maps; grep -c heddle /proc/self/maps; :");
    if let Some(option) = option {
        job = job.heddle_option(option);
    }
    let outcome = job.run(mode);
    let counts: Vec<u32> = outcome.assert_clean().out().lines().map(|l| l.parse().unwrap()).collect();
    assert_eq!(counts.len(), 2, "{}", outcome.report());
    (counts[0] > 0, counts[1] > 0)
}

#[test]
fn children_inherit_unless_told_otherwise() {
    for mode in under_heddle() {
        assert_eq!(library_in(mode, None), (true, true));
        assert_eq!(library_in(mode, Some("--no-children")), (true, false));
        let outcome = sh("env; :").heddle_option("--no-children").run(mode);
        let out = outcome.assert_clean().out();
        let left: Vec<_> = out.lines().filter(|l| l.starts_with("HEDDLE") || l.starts_with("LD_PRELOAD")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// A program that clears its children's environment means it.
#[test]
fn children_without_environment() {
    let outcomes = compare(&sh("env -i /bin/sh -c 'env | grep -v -e ^PWD= -e ^_= -e ^SHLVL='; :"), &[2]);
    for outcome in outcomes {
        let out = outcome.out();
        let left: Vec<_> = out.lines().filter(|l| !l.starts_with("HEDDLE") && !l.starts_with("LD_PRELOAD")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn kernel_mode_leaves_threads_to_the_kernel() {
    let Some(job) = helper("kernel_threads", &["200"]) else { return };
    for mode in under_heddle() {
        let mut job = job.clone();
        job.heddle_options.extend(["--mode".into(), "kernel".into()]);
        assert_eq!(job.run(mode).assert_clean().out(), "201\n");
    }
}

#[test]
fn few_kernel_threads() {
    let Some(job) = helper("kernel_threads", &["1000"]) else { return };
    for mode in under_heddle() {
        let outcome = job.run(mode);
        let count: u32 = outcome.assert_clean().out().trim().parse().unwrap();
        println!("[{mode}] {count} kernel threads for 1000 threads");
        assert!(count < 30, "{count}");
    }
}

/// The first thread's stack was mapped before the runtime ran, so it was none of the runtime's: a program with one thread at a
/// time ran them all on it, and each gave its memory back to the kernel.
#[test]
fn threads_one_at_a_time_keep_their_stack() {
    let Some(job) = helper("one_at_a_time", &[]) else { return };
    for mode in under_heddle() {
        let faulted: u32 = job.run(mode).assert_clean().out().trim().parse().unwrap();
        assert!(faulted < 200, "{faulted} of 400 threads");
    }
}

/// A thread of glibc blocks all signals but one while it ends. From the first such end on all signals came to the runtime's
/// handler, and the child of each fork had 62 actions to give back.
#[test]
fn the_end_of_a_thread_catches_no_signals() {
    let Some(job) = helper("caught_after_end", &[]) else { return };
    for mode in under_heddle() {
        let outcome = job.run(mode);
        let caught = u64::from_str_radix(outcome.assert_clean().out().trim(), 16).unwrap();
        let (hangup, child, terminate) = (1 << 0, 1 << 16, 1 << 14);
        assert_eq!(caught & (hangup | child | terminate), 0, "[{mode}] {caught:x}");
    }
}

#[test]
fn idle_threads_use_no_processor() {
    let Some(job) = helper("idle_cpu", &[]) else { return };
    with_machine(true, || {
        for mode in harness::modes(&[2, 1]) {
            let outcome = job.run(mode);
            let micros: u64 = outcome.assert_clean().out().trim().parse().unwrap();
            println!("[{mode}] {micros} us of processor time in 2 s: {:.2} % of one", micros as f64 / 20_000.0);
            assert!(micros < 100_000, "{micros}");
        }
    });
}

#[test]
fn descriptors_are_the_programs() {
    let Some(job) = helper("closes_descriptors", &[]) else { return };
    for outcome in compare(&job, &[2, 1]) {
        outcome.assert_clean();
    }
}

#[test]
fn every_descriptor_may_be_closed() {
    let Some(job) = helper("closes_descriptors", &["all"]) else { return };
    for outcome in compare(&job, &[2, 1]) {
        outcome.assert_clean();
    }
}

#[test]
fn start_up_is_short() {
    with_machine(true, || {
        let time = |mode| {
            let mut times: Vec<_> = (0..21).map(|_| Job::new(["true"]).run(mode).assert_clean().wall).collect();
            times.sort();
            times[10]
        };
        for mode in under_heddle() {
            let (plain, ours) = (time(Mode::Plain), time(mode));
            println!("[{mode}] true takes {ours:.1?}, {plain:.1?} without");
            assert!(ours < plain + Duration::from_millis(50), "{ours:?} {plain:?}");
        }
    });
}

#[test]
fn signals_reach_the_program() {
    for mode in under_heddle() {
        for (number, script) in [(15, "sleep 100 & wait"), (2, "exec sleep 100"), (1, "while :; do sleep 0.01; done")] {
            let mut child = sh(script).start(mode);
            thread::sleep(Duration::from_millis(300));
            signal(child.id(), number);
            let start = Instant::now();
            let status = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    break status;
                }
                if start.elapsed() > Duration::from_secs(20) {
                    let _ = child.kill();
                    panic!("signal {number} did not end `{script}`");
                }
                thread::sleep(Duration::from_millis(5));
            };
            assert_eq!(status.signal(), Some(number), "{script}");
            let _ = Command::new("sh")
                .arg("-c")
                .arg(format!("kill -9 -{}", child.id()))
                .stderr(std::process::Stdio::null())
                .status();
        }
    }
}

/// Runs `heddle run OPTIONS -- PROGRAM` expecting a refusal: one line on stderr, nothing on stdout, the given status.
fn refused(options: &[&str], program: &[PathBuf], codes: std::ops::RangeInclusive<i32>, words: &[&str]) {
    if plain_only() {
        return;
    }
    let mut argv: Vec<std::ffi::OsString> = vec![heddle_bin().into(), "run".into()];
    argv.extend(options.iter().map(Into::into));
    argv.push("--".into());
    argv.extend(program.iter().map(Into::into));
    let outcome = Job::new(argv).run(Mode::Plain);
    let report = outcome.assert_ended().report();
    assert!(codes.contains(&outcome.code()), "status: {report}");
    assert!(outcome.stdout.is_empty(), "stdout: {report}");
    let text = outcome.err();
    assert!(
        text.starts_with("heddle: ") && text.ends_with('\n') && text.trim_end().lines().count() == 1,
        "one line: {report}"
    );
    for word in words {
        assert!(text.contains(word), "`{word}`: {report}");
    }
}

#[test]
fn missing_program() {
    refused(&[], &["/no/such/program".into()], 127..=127, &["/no/such/program"]);
    refused(&[], &["no-such-program-in-path".into()], 127..=127, &["no-such-program-in-path"]);
}

#[test]
fn program_that_cannot_be_executed() {
    let scratch = Scratch::new("refused");
    let file = scratch.path().join("text");
    fs::write(&file, "nothing").unwrap();
    refused(&[], &[file], 126..=126, &[]);
    refused(&[], &[scratch.path().into()], 126..=126, &[]);
}

#[test]
fn unknown_options() {
    refused(&["--no-such-option"], &["true".into()], 125..=125, &["--no-such-option"]);
    refused(&["--workers", "0"], &["true".into()], 125..=125, &[]);
    refused(&["--workers", "many"], &["true".into()], 125..=125, &["many"]);
    refused(&["--mode", "magic"], &["true".into()], 125..=125, &["magic"]);
    refused(&[], &[], 125..=125, &[]);
}

/// An executable file with these bytes.
fn executable(scratch: &Scratch, name: &str, bytes: &[u8], mode: u32) -> PathBuf {
    let (draft, path) = (scratch.path().join("draft"), scratch.path().join(name));
    fs::write(&draft, bytes).unwrap();
    // Another process writes it: a descriptor of this one's would live on for a moment in children that other tests start,
    // and until then the kernel does not execute the file (ETXTBSY).
    let done = Command::new("install").arg("-m").arg(format!("{mode:o}")).args([&draft, &path]).status();
    assert!(done.is_ok_and(|status| status.success()));
    path
}

#[test]
fn foreign_programs() {
    let scratch = Scratch::new("foreign");
    let mut elf = fs::read("/bin/true").unwrap();
    elf[18] = 183; // e_machine: AArch64
    refused(&[], &[executable(&scratch, "aarch64", &elf, 0o755)], 125..=126, &["aarch64"]);
    let mut elf = vec![0; 200];
    elf[..7].copy_from_slice(b"\x7fELF\x01\x01\x01"); // 32 bits
    (elf[16], elf[18], elf[20]) = (2, 3, 1);
    refused(&[], &[executable(&scratch, "i386", &elf, 0o755)], 125..=126, &["32"]);
    refused(&[], &[executable(&scratch, "short", b"\x7fELF", 0o755)], 125..=126, &[]);
}

#[test]
fn static_program() {
    let scratch = Scratch::new("static");
    let (source, output) = (scratch.path().join("static.c"), scratch.path().join("static"));
    fs::write(&source, "int main(void) { return 3; }\n").unwrap();
    match Command::new("cc").arg("-static").arg("-o").args([&output, &source]).output() {
        Ok(out) if out.status.success() => refused(&[], &[output], 125..=126, &["static"]),
        _ => skip("static_program", "cc -static does not work here"),
    }
}

/// Goroutines' stacks are too small for us: such a program is refused, and as a child of another it is left to the kernel.
#[test]
fn go_programs() {
    let scratch = Scratch::new("go");
    let (source, program) = (scratch.path().join("main.go"), scratch.path().join("go-program"));
    let text = r#"
        package main

        // static int twice(int x) { return 2 * x; }
        import "C"
        import "fmt"

        func main() {
            results := make(chan int)
            for i := 0; i < 200; i++ {
                go func(i int) { results <- int(C.twice(C.int(i))) }(i)
            }
            sum := 0
            for i := 0; i < 200; i++ {
                sum += <-results
            }
            fmt.Println("sum", sum)
        }
    "#;
    fs::write(&source, text).unwrap();
    if !go_builds(&program, &source, "1", &[]) {
        return skip("go_programs", "go build does not work here");
    }
    refused(&[], std::slice::from_ref(&program), 126..=126, &["Go code", "--mode kernel"]);
    let name = program.display();
    for script in [format!("{name}; true"), format!("exec {name}")] {
        for outcome in compare(&sh(&script), &[2]) {
            assert_eq!(outcome.out(), "sum 39800\n", "{}", outcome.report());
        }
        for mode in under_heddle() {
            let outcome = sh(&script).heddle_option("--no-children").run(mode);
            assert_eq!(outcome.assert_clean().out(), "sum 39800\n");
        }
    }
    // From threads; and a statically linked one.
    let (source, fixed) = (scratch.path().join("static.go"), scratch.path().join("static-program"));
    let (from, to) = ("        // static int twice(int x) { return 2 * x; }\n        import \"C\"\n", "");
    fs::write(&source, text.replace(from, to).replace("int(C.twice(C.int(i)))", "2 * i")).unwrap();
    assert!(go_builds(&fixed, &source, "0", &[]));
    refused(&[], std::slice::from_ref(&fixed), 126..=126, &["statically linked", "--mode kernel"]);
    let Some(mut job) = helper("runs_others", &[]) else { return };
    job.argv.extend([&program, &fixed, &program, &fixed].map(Into::into));
    for outcome in compare(&job, &[2, 1]) {
        assert_eq!(outcome.out(), "sum 39800\n".repeat(9), "{}", outcome.report());
    }
}

fn go_builds(output: &Path, source: &Path, with_c: &str, flags: &[&str]) -> bool {
    let built = Command::new("go")
        .arg("build")
        .args(flags)
        .arg("-o")
        .args([output, source])
        .env("CGO_ENABLED", with_c)
        .env("GO111MODULE", "off")
        .env("GOCACHE", out_dir().join("go-cache"))
        .output();
    built.is_ok_and(|out| out.status.success())
}

/// A program linked with a library that holds Go code: nobody sees that before the loader has run.
#[test]
fn go_libraries() {
    let scratch = Scratch::new("go-library");
    let [source, library, user, program] =
        ["lib.go", "libsum.so", "user.c", "program"].map(|name| scratch.path().join(name));
    let text = r#"
        package main

        import "C"

        //export Sum
        func Sum(n C.int) C.int {
            results := make(chan int)
            sum := 0
            for i := 0; i < int(n); i++ {
                go func(i int) { results <- i }(i)
            }
            for i := 0; i < int(n); i++ {
                sum += <-results
            }
            return C.int(sum)
        }

        func main() {}
    "#;
    fs::write(&source, text).unwrap();
    if !go_builds(&library, &source, "1", &["-buildmode=c-shared"]) {
        return skip("go_libraries", "go build does not work here");
    }
    let text = r#"
        #include <pthread.h>
        #include <stdio.h>
        int Sum(int n);
        static void *body(void *argument) { return (char *)argument + Sum(100); }
        int main(void) {
            pthread_t threads[20];
            void *result;
            long sum = 0;
            for (int i = 0; i < 20; i++) pthread_create(&threads[i], 0, body, 0);
            for (int i = 0; i < 20; i++) pthread_join(threads[i], &result), sum += (long)result;
            printf("%ld\n", sum);
        }
    "#;
    fs::write(&user, text).unwrap();
    let built = Command::new("cc").args(["-pthread", "-o"]).args([&program, &user, &library]).output();
    assert!(built.is_ok_and(|out| out.status.success()));
    refused(&[], std::slice::from_ref(&program), 126..=126, &["libsum.so: holds Go code", "--mode kernel"]);
    let name = program.display();
    for script in [format!("{name}; true"), format!("exec {name}")] {
        for outcome in compare(&sh(&script), &[2]) {
            assert_eq!(outcome.out(), "99000\n", "{}", outcome.report());
        }
    }
    // Loaded when the program runs, it is too late to refuse. The program may not survive it, but is told why.
    let text = r#"
        #include <dlfcn.h>
        #include <unistd.h>
        int main(int argc, char **argv) { _exit(argc < 2 || !dlopen(argv[1], RTLD_NOW)); }
    "#;
    fs::write(&user, text).unwrap();
    let built = Command::new("cc").args(["-pthread", "-o"]).args([&program, &user]).output();
    assert!(built.is_ok_and(|out| out.status.success()));
    for mode in under_heddle() {
        let outcome = Job::new([&program, &library]).run(mode);
        let said = outcome.err().lines().next().unwrap_or("").to_owned();
        assert!(said.starts_with("heddle: libsum.so: holds Go code"), "{}", outcome.report());
    }
}

/// The address sanitizer wants its library to be the first, and finds what it finds.
#[test]
fn address_sanitizer() {
    let scratch = Scratch::new("asan");
    let (source, program) = (scratch.path().join("asan.c"), scratch.path().join("asan"));
    let text = r#"
        #include <pthread.h>
        #include <stdio.h>
        #include <stdlib.h>
        static void *body(void *argument) {
            char *block = malloc(100);
            free(block);
            if (argument) block[3] = 1;
            return argument;
        }
        int main(int argc, char **argv) {
            for (int i = 0; i < 50; i++) {
                pthread_t thread;
                pthread_create(&thread, 0, body, i == 40 && argc > 1 ? argv : 0);
                pthread_join(thread, 0);
            }
            puts("fine");
        }
    "#;
    fs::write(&source, text).unwrap();
    let built =
        Command::new("cc").args(["-g", "-fsanitize=address", "-pthread", "-o"]).args([&program, &source]).output();
    if !built.is_ok_and(|out| out.status.success()) {
        return skip("address_sanitizer", "cc -fsanitize=address does not work here");
    }
    for outcome in compare(&Job::new([program.as_os_str()]), &[2]) {
        assert_eq!(outcome.out(), "fine\n", "{}", outcome.report());
    }
    for mode in under_heddle() {
        let outcome = Job::new([program.as_os_str(), "bad".as_ref()]).run(mode);
        assert!(outcome.code() == 1 && outcome.err().contains("heap-use-after-free"), "{}", outcome.report());
    }
}

/// A debugger finds where the thread was that ended the program: its frames, and nothing of Heddle's below them. Where the
/// machine sends core files elsewhere, or allows none, there is nothing to see.
#[test]
fn core_files_show_the_thread_that_ended_the_program() {
    const NAME: &str = "core_files_show_the_thread_that_ended_the_program";
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let Some(gdb) = harness::tool("gdb") else { return skip(NAME, "gdb is not installed") };
    if pattern.trim() != "core" || !sh("ulimit -c unlimited").run(Mode::Plain).status.success() {
        return;
    }
    if let Some(reason) = Language::DropIn.missing() {
        return skip(NAME, &reason);
    }
    let program = build(Language::DropIn, "dumps_core").remove(0);
    for mode in harness::modes(&[2]) {
        for (how, by) in [("null", 11), ("overflow", 11), ("abort", 6), ("blocked", 3), ("computing", 3)] {
            let scratch = Scratch::new("core");
            let script = "ulimit -c unlimited; exec \"$0\" \"$1\"";
            let outcome = Job::new(["sh".as_ref(), "-c".as_ref(), script.as_ref(), program.as_os_str(), how.as_ref()])
                .cwd(scratch.path())
                .run(mode);
            assert_eq!(outcome.status.signal(), Some(by), "{how}: {}", outcome.report());
            if how == "overflow" && mode != Mode::Plain {
                assert!(outcome.err().contains("'unlucky' overflowed its stack of "), "{}", outcome.report());
            }
            let core = fs::read_dir(scratch.path()).unwrap().next().expect("a core file").unwrap().path();
            let read = Command::new(&gdb)
                .args(["-batch", "-nx", "-ex", "bt -6", "-ex", "bt 8"])
                .args([program.as_os_str(), core.as_os_str()])
                .output()
                .expect("gdb");
            let text = String::from_utf8_lossy(&read.stdout);
            let frames: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
            let report = || format!("{how}, {mode:?}:\n{text}\n{}", String::from_utf8_lossy(&read.stderr));
            for name in [" innermost ", " middle ", " outermost "] {
                assert!(frames.iter().any(|line| line.contains(name)), "no{name}in {}", report());
            }
            assert!(!frames.iter().any(|line| line.contains("heddle")), "{}", report());
        }
    }
}

#[test]
fn setuid_program() {
    let scratch = Scratch::new("setuid");
    let program = executable(&scratch, "setuid", &fs::read("/bin/true").unwrap(), 0o4755);
    refused(&[], &[program], 125..=126, &["set"]);
}

#[test]
fn scripts_run() {
    let scratch = Scratch::new("script");
    let script = executable(&scratch, "script", b"#!/bin/sh\necho \"script $0 $*\"\nexit 9\n", 0o755);
    for outcome in compare(&Job::new([script.into_os_string(), "a b".into(), "c".into()]), &[2]) {
        assert!(outcome.code() == 9 && outcome.out().ends_with("script a b c\n"), "{}", outcome.report());
    }
}

/// What `abi/COMPAT.md` says is not as on Linux is so.
#[test]
fn documented_deviations() {
    let Some(job) = helper("deviations", &[]) else { return };
    for mode in under_heddle() {
        let outcome = job.run(mode);
        let report = outcome.assert_ended().report();
        assert!(outcome.code() == 0 && outcome.out() == "ok\n", "{report}");
        assert!(outcome.err().lines().all(|line| line.starts_with("heddle: ")), "{report}");
        for word in ["strict mode", "PR_SET_SYSCALL_USER_DISPATCH", "unshare", "setns"] {
            assert!(outcome.err().contains(word), "{word}: {report}");
        }
        let Some(other) = helper("deviations_outside", &[]) else { return };
        assert_eq!(other.run(mode).assert_clean().out(), "ok\n");
    }
    if !plain_only() {
        let Some(alone) = helper("deviations_one_worker", &[]) else { return };
        assert_eq!(alone.run(Mode::Heddle(1)).assert_clean().out(), "ok\n");
    }
}

/// A program that reads GS base, which is the runtime's, and puts that back on another worker cannot go on.
#[test]
fn a_gs_base_that_is_put_back_elsewhere_ends_the_program() {
    if plain_only() {
        return;
    }
    let Some(job) = helper("put_back", &[]) else { return };
    for workers in [2, 4] {
        let outcome = job.run(Mode::Heddle(workers));
        let report = outcome.assert_ended().report();
        assert!(outcome.code() == 128 + 6, "{report}");
        assert!(outcome.err().contains("GS base"), "{report}");
    }
}

/// A write to nobody costs no handler where SIGPIPE is ignored, though a thread has blocked it.
#[test]
fn broken_pipes_send_no_signal() {
    let Some(job) = helper("broken_pipes", &[]) else { return };
    for mode in under_heddle() {
        assert_eq!(job.run(mode).assert_clean().out(), "ok\n");
    }
}

/// Under limits it works or says what is wrong; it does not crash, hang or start half.
#[test]
fn tight_limits() {
    for mode in under_heddle() {
        let Mode::Heddle(workers) = mode else { continue };
        let bin = heddle_bin();
        for limit in ["-n 4", "-n 8", "-n 20", "-v 20000", "-v 100000", "-v 400000", "-d 1000", "-s 128", "-l 0"] {
            if !sh(&format!("ulimit {limit} && exec sh -c 'echo fine'")).run(Mode::Plain).status.success() {
                continue; // too tight for the program itself
            }
            let script =
                format!("ulimit {limit} && exec {} run --workers {workers} -- sh -c 'echo fine'", bin.display());
            let outcome = sh(&script).run(Mode::Plain);
            let report = outcome.assert_ended().report();
            println!("ulimit {limit}: {} {}", outcome.code(), outcome.err().trim());
            match outcome.code() {
                0 => assert!(outcome.out() == "fine\n" && outcome.stderr.is_empty(), "ulimit {limit}: {report}"),
                125..=127 => {
                    assert!(outcome.stdout.is_empty() && !outcome.stderr.is_empty(), "ulimit {limit}: {report}")
                }
                _ => panic!("ulimit {limit}: {report}"),
            }
        }
    }
}
