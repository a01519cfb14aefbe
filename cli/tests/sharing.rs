//! `heddle sharing`: finds what programs share falsely, and is silent about what they do not.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Place, assert_fails, has_tool, run, skipped, stderr, stdout, text};
use serde_json::Value;

/// The programs: three patterns, and those that must not be reported.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../sharing/patterns").join(name)
}

/// Builds a program with `heddle sharing build`.
fn build(place: &Place, command: &[&str], out: &str) -> PathBuf {
    let program = place.path(out);
    let mut build = place.heddle(&["sharing", "build", "--"]);
    let output = run(build.args(command).arg("-o").arg(&program));
    assert!(output.status.success(), "{command:?}: {}", stderr(&output));
    assert_eq!(stderr(&output), "", "{command:?}");
    program
}

/// Runs a program with the detector; the lines it reports.
fn lines(place: &Place, program: &Path, options: &[&str], args: &[&str]) -> Vec<Value> {
    let report = place.path("report.json");
    let mut command = place.heddle(&["sharing", "run", "--json", text(&report)]);
    let output = run(command.args(options).arg("--").arg(program).args(args));
    assert!(output.status.success(), "{}: {:?} {}", program.display(), output.status, stderr(&output));
    assert_eq!(stderr(&output), "");
    let report: Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    assert_eq!(report["lines_not_watched"], 0);
    assert_eq!(report["threads_not_watched"], 0);
    report["lines"].as_array().unwrap().clone()
}

/// The numbers of the lines of a source file that end with one of these comments.
fn marked(source: &Path, marks: &[&str]) -> Vec<u64> {
    let text = fs::read_to_string(source).unwrap();
    let is_marked =
        |line: &str| marks.iter().any(|m| line.ends_with(&format!("/* {m} */")) || line.ends_with(&format!("// {m}")));
    (1..).zip(text.lines()).filter(|(_, line)| is_marked(line)).map(|(number, _)| number).collect()
}

/// What is to be found in a pattern.
struct Expected {
    /// The variable's name ends so, or the comment at the allocation.
    object: &'static str,
    heap: bool,
    marks: &'static [&'static str],
    fix: &'static str,
}

fn expected(pattern: &str, body: u32) -> Expected {
    match pattern {
        "array" => {
            let fix = if body == 3 { "pad" } else { "localise" };
            Expected { object: "results", heap: false, marks: &["update"], fix }
        }
        "structures" => Expected { object: "block", heap: true, marks: &["done", "last"], fix: "allocate per thread" },
        _ => {
            let marks = &["remove", "removed", "append", "appended", "counted"];
            Expected { object: "queue", heap: false, marks, fix: "pad" }
        }
    }
}

/// Checks one reported line.
fn check(line: &Value, source: &Path, expected: &Expected) {
    let name = source.file_name().unwrap().to_str().unwrap();
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("no number in {line:#}"));
    if expected.heap {
        assert_eq!(line["kind"], "heap", "{line:#}");
        let site = &line["allocation"]["site"];
        assert!(site["file"].as_str().unwrap().ends_with(name), "{line:#}");
        assert!(marked(source, &[expected.object]).contains(&number(&site["line"])), "{line:#}");
        assert_eq!(line["allocation"]["thread"], 0, "{line:#}");
    } else {
        assert_eq!(line["kind"], "variable", "{line:#}");
        assert!(line["variable"]["name"].as_str().unwrap().ends_with(expected.object), "{line:#}");
        assert!(line["variable"]["declared"]["file"].as_str().unwrap().ends_with(name), "{line:#}");
    }
    assert_eq!(line["size"], 64);
    assert_eq!(line["fix"], expected.fix, "{line:#}");
    assert!(!line["advice"].as_str().unwrap().is_empty());
    assert!(number(&line["ownership_changes"]) >= 20, "{line:#}");

    let threads = line["threads"].as_array().unwrap();
    assert!(threads.len() >= 2, "{line:#}");
    let mut seen: Vec<u64> = Vec::new();
    for thread in threads {
        assert!(number(&thread["writes"]) > 0 && number(&thread["thread"]) > 0, "{line:#}");
        for run in thread["offsets"].as_array().unwrap() {
            let bytes = number(&run[0])..number(&run[0]) + number(&run[1]);
            assert!(bytes.end <= 64 && bytes.clone().all(|byte| !seen.contains(&byte)), "not apart: {line:#}");
            seen.extend(bytes);
        }
        let accesses = thread["accesses"].as_array().unwrap();
        let writes: Vec<&Value> = accesses.iter().filter(|access| access["write"] == true).collect();
        assert!(!writes.is_empty(), "{line:#}");
        for write in writes {
            assert!(write["file"].as_str().unwrap().ends_with(name), "{line:#}");
            assert!(marked(source, expected.marks).contains(&number(&write["line"])), "{line:#}");
            assert!(number(&write["count"]) > 0);
        }
    }
}

/// All patterns with one compiler: found when packed, silent when mended.
fn patterns(compiler: &str, extension: &str) {
    if !has_tool(compiler) {
        return skipped("sharing", &format!("no {compiler}"));
    }
    let place = Place::new();
    for pattern in ["array", "structures", "queue"] {
        let source = source(&format!("{pattern}.{extension}"));
        for body in 1..=3 {
            let has_own = pattern != "queue" && body == 1;
            let has_thread_local = extension == "c";
            for mended in (0..=3).filter(|&mended| (mended != 2 || has_own) && (mended != 3 || has_thread_local)) {
                let (b, m) = (format!("-DBODY={body}"), format!("-DMENDED={mended}"));
                let program = build(&place, &[compiler, "-O1", "-g", &b, &m, text(&source), "-pthread"], "pattern");
                let found = lines(&place, &program, &[], &[]);
                let what = format!("{compiler} {pattern} body {body} mended {mended}: {found:#?}");
                assert_eq!(found.is_empty(), mended != 0, "{what}");
                for line in &found {
                    check(line, &source, &expected(pattern, body));
                }
            }
        }
    }
}

#[test]
fn patterns_with_gcc() {
    patterns("gcc", "c");
}

#[test]
fn patterns_with_gxx() {
    patterns("g++", "cpp");
}

#[test]
fn patterns_with_clang() {
    patterns("clang", "c");
}

#[test]
fn patterns_with_clangxx() {
    patterns("clang++", "cpp");
}

#[test]
fn what_is_shared_truly_or_not_at_all_is_not_reported() {
    if !has_tool("gcc") {
        return skipped("sharing", "no gcc");
    }
    let place = Place::new();
    let program = build(&place, &["gcc", "-O1", "-g", text(&source("silent.c")), "-pthread"], "silent");
    for case in ["counter", "lock", "queue", "readers", "ring", "local", "stacks", "malloc", "turns", "reuse"] {
        let found = lines(&place, &program, &[], &[case]);
        assert!(found.is_empty(), "{case}: {found:#?}");
    }
}

#[test]
fn compiling_and_linking_apart_with_any_optimisation() {
    if !has_tool("gcc") {
        return skipped("sharing", "no gcc");
    }
    let place = Place::new();
    let source = source("structures.c");
    for level in ["-O0", "-O2", "-O3"] {
        let object = build(&place, &["gcc", level, "-c", text(&source)], "structures.o");
        let program = build(&place, &["gcc", text(&object), "-pthread"], "structures");
        let found = lines(&place, &program, &[], &[]);
        assert!(!found.is_empty(), "{level}");
        found.iter().for_each(|line| check(line, &source, &expected("structures", 1)));
    }
}

#[test]
fn a_program_runs_plainly_and_keeps_its_output_status_and_environment() {
    if !has_tool("gcc") {
        return skipped("sharing", "no gcc");
    }
    let place = Place::new();
    let program = build(&place, &["gcc", "-O1", text(&source("array.c")), "-pthread"], "array");
    let plain = run(&mut std::process::Command::new(&program));
    assert!(plain.status.success());
    let watched = run(place.heddle(&["sharing", "run", "--"]).arg(&program));
    assert_eq!(stdout(&watched), stdout(&plain));
    let report = stderr(&watched);
    assert!(report.contains("variable `results`, ") && report.contains("fix: localise."), "{report}");

    let code = b"#include <stdlib.h>\n#include <unistd.h>\n#include <sys/wait.h>\n#include <signal.h>\n\
        int main(int argc, char **argv) {\n\
            if (getenv(\"HEDDLE_SHARING\") || getenv(\"LD_PRELOAD\")) return 1;\n\
            int status; if (fork() == 0) _exit(7); wait(&status);\n\
            if (WEXITSTATUS(status) != 7) return 2;\n\
            if (argc > 1) raise(SIGKILL);\n\
            _exit(42);\n\
        }\n";
    let code = place.file("ends.c", code, 0o644);
    let program = build(&place, &["gcc", text(&code)], "ends");
    let output = run(place.heddle(&["sharing", "run", "--"]).arg(&program));
    assert_eq!(output.status.code(), Some(42), "{}", stderr(&output));
    assert!(stderr(&output).contains("no line is falsely shared"));
    let output = run(place.heddle(&["sharing", "run", "--"]).arg(&program).arg("x"));
    assert_eq!(output.status.code(), Some(128 + 9), "{}", stderr(&output));
}

#[test]
fn neighbouring_variables_and_flags_are_named() {
    if !has_tool("gcc") {
        return skipped("sharing", "no gcc");
    }
    let place = Place::new();
    let code = b"#include <pthread.h>\n\
        long one __attribute__((section(\".data.together\"), aligned(64))) = 1;\n\
        long two __attribute__((section(\".data.together\"))) = 1;\n\
        static void *ones(void *p) { for (long i = 0; i < 400000; i++) *(volatile long *)&one += 1; return p; }\n\
        static void *twos(void *p) { for (long i = 0; i < 400000; i++) *(volatile long *)&two += 1; return p; }\n\
        int main(void) {\n\
            pthread_t a, b; pthread_create(&a, 0, ones, 0); pthread_create(&b, 0, twos, 0);\n\
            pthread_join(a, 0); pthread_join(b, 0); return 0;\n\
        }\n";
    let code = place.file("two.c", code, 0o644);
    let program = build(&place, &["gcc", "-O1", "-fno-toplevel-reorder", text(&code), "-pthread"], "two");
    let found = lines(&place, &program, &[], &[]);
    assert_eq!(found.len(), 1, "{found:#?}");
    let mut names = [&found[0]["variable"]["name"], &found[0]["others"][0]["name"]].map(|name| name.as_str().unwrap());
    names.sort_unstable();
    assert_eq!(names, ["one", "two"], "{found:#?}");
    assert_eq!(found[0]["fix"], "pad");
}

/// `s` and `f` were once named `short` and `float`: mangled, these types are one letter.
#[test]
fn names_of_one_letter_are_not_taken_for_types() {
    if !has_tool("gcc") {
        return skipped("sharing", "no gcc");
    }
    let place = Place::new();
    let code = b"#include <pthread.h>\n\
        long s[2] __attribute__((aligned(64)));\n\
        static void *f(void *i) { for (long k = 0; k < 400000; k++) *(volatile long *)&s[(long)i] += 1; return 0; }\n\
        int main(void) {\n\
            pthread_t a, b; pthread_create(&a, 0, f, 0); pthread_create(&b, 0, f, (void *)1);\n\
            pthread_join(a, 0); pthread_join(b, 0); return 0;\n\
        }\n";
    let code = place.file("s.c", code, 0o644);
    let program = build(&place, &["gcc", "-O1", "-g", text(&code), "-pthread"], "s");
    let found = lines(&place, &program, &[], &[]);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0]["variable"]["name"], "s");
    let thread = &found[0]["threads"][0];
    assert_eq!((&thread["start"], &thread["accesses"][0]["function"]), (&"f".into(), &"f".into()), "{found:#?}");
}

/// Two threads that run `one` and `two`, in C; the program's report.
fn two_threads(place: &Place, compiler: &[&str], code: &str) -> Vec<Value> {
    let main = "#include <pthread.h>\n\
        #include <stdlib.h>\n\
        static void *one(void *), *two(void *);\n\
        static void set_up(void);\n\
        int main(void) {\n\
            pthread_t a, b; set_up(); pthread_create(&a, 0, one, 0); pthread_create(&b, 0, two, 0);\n\
            pthread_join(a, 0); pthread_join(b, 0); return 0;\n\
        }\n";
    let code = place.file("threads.c", format!("{main}{code}").as_bytes(), 0o644);
    let program = build(place, &[compiler, &["-g", text(&code), "-pthread"]].concat(), "threads");
    lines(place, &program, &[], &[])
}

/// The writer sets the flag once, at the end: that it uses these bytes too once kept the line from being reported.
#[test]
fn a_flag_that_one_polls_beside_what_the_other_counts() {
    if !has_tool("gcc") {
        return skipped("sharing", "no gcc");
    }
    let found = two_threads(
        &Place::new(),
        &["gcc", "-O1"],
        "static struct { long count; int stop; } state __attribute__((aligned(64)));\n\
         static void set_up(void) {}\n\
         static void *one(void *p) {\n\
            for (long i = 0; i < 400000; i++) *(volatile long *)&state.count += 1;\n\
            __atomic_store_n(&state.stop, 1, __ATOMIC_RELAXED); return p;\n\
         }\n\
         static void *two(void *p) { while (!__atomic_load_n(&state.stop, __ATOMIC_RELAXED)); return p; }\n",
    );
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!((&found[0]["variable"]["name"], &found[0]["fix"]), (&"state".into(), &"pad".into()), "{found:#?}");
}

/// A result that is stored once made each thread's part too large for a local variable, and was listed like all else.
#[test]
fn what_a_thread_does_once_does_not_count() {
    if !has_tool("gcc") {
        return skipped("sharing", "no gcc");
    }
    let found = two_threads(
        &Place::new(),
        &["gcc", "-O1"],
        "static struct part { long count, result; } *parts;\n\
         static void set_up(void) { parts = aligned_alloc(64, 64); parts[0].count = parts[1].count = 0; }\n\
         static void *run(struct part *p) {\n\
            for (long i = 0; i < 400000; i++) *(volatile long *)&p->count += 1;\n\
            p->result = p->count; return p;\n\
         }\n\
         static void *one(void *p) { (void)p; return run(parts); }\n\
         static void *two(void *p) { (void)p; return run(parts + 1); }\n",
    );
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0]["fix"], "localise", "{found:#?}");
    for thread in found[0]["threads"].as_array().unwrap() {
        assert_eq!(thread["offsets"][0][1], 8, "{found:#?}");
    }
}

/// A line at the border of two threads' parts was reported, though it was one of hundreds.
#[test]
fn the_border_of_two_parts_of_an_array_is_not_worth_a_report() {
    if !has_tool("gcc") {
        return skipped("sharing", "no gcc");
    }
    let found = two_threads(
        &Place::new(),
        &["gcc", "-O1"],
        "static volatile long all[40000] __attribute__((aligned(64)));\n\
         static void set_up(void) {}\n\
         static void *run(long from) {\n\
            for (int round = 0; round < 60; round++) for (long i = from; i < from + 19996; i++) all[i] += i;\n\
            return 0;\n\
         }\n\
         static void *one(void *p) { (void)p; return run(0); }\n\
         static void *two(void *p) { (void)p; return run(19996); }\n",
    );
    assert!(found.is_empty(), "{found:#?}");
}

/// clang splits variables that only one file knows, and makes a variable of what is allocated once: the report then named
/// `queue.1` and `queue.body`, declared nowhere, and recommended the padding that was there.
#[test]
fn variables_that_clang_has_taken_apart_keep_their_names() {
    if !has_tool("clang") {
        return skipped("sharing", "no clang");
    }
    let code = |queue: &str, set_up: &str| {
        format!(
            "static struct queue {{ long head; char pad[128]; long tail; }} {queue};\n\
             static void set_up(void) {{ {set_up} }}\n\
             static void *one(void *p) {{ for (long i = 0; i < 400000; i++) *(volatile long *)&HEAD += 1; return p; }}\n\
             static void *two(void *p) {{ for (long i = 0; i < 400000; i++) *(volatile long *)&TAIL += 1; return p; }}\n"
        )
    };
    let place = Place::new();
    for (options, queue, set_up) in [
        (["-DHEAD=queue.head", "-DTAIL=queue.tail"], "queue", ""),
        (["-DHEAD=queue->head", "-DTAIL=queue->tail"], "*queue", "queue = malloc(sizeof *queue);"),
    ] {
        let found = two_threads(&place, &[&["clang", "-O1"][..], &options].concat(), &code(queue, set_up));
        for line in &found {
            assert_eq!(line["variable"]["name"], "queue", "{found:#?}");
            assert_eq!(line["variable"]["declared"]["line"], 8, "{found:#?}");
        }
        // Whether they are taken apart is the compiler's to decide.
        if let (Some(line), "queue") = (found.first(), queue) {
            let parts = [&line["variable"]["part"], &line["others"][0]["part"]].map(Value::as_u64);
            assert!(parts.contains(&Some(0)) && parts.contains(&Some(136)), "{found:#?}");
            assert!(line["advice"].as_str().unwrap().contains("padding between them is gone"), "{found:#?}");
        }
    }
}

/// What users write: a vector of counters, small objects one after the other, locks with what they protect, atomics side by side.
#[test]
fn counters_in_containers_blocks_and_beside_locks() {
    if !has_tool("g++") {
        return skipped("sharing", "no g++");
    }
    let place = Place::new();
    let code = b"#include <atomic>\n#include <memory>\n#include <mutex>\n#include <thread>\n#include <vector>\n\
        struct Guarded { std::mutex lock; long count = 0; };\n\
        static Guarded guarded[4];\n\
        static struct { std::atomic<long> hits{0}, misses{0}; } stats;\n\
        template <class F> void run(int count, F f) {\n\
            std::vector<std::thread> threads;\n\
            for (int i = 0; i < count; i++) threads.emplace_back(f, i);\n\
            for (auto &thread : threads) thread.join();\n\
        }\n\
        int main(int argc, char **argv) {\n\
            const long rounds = 400000;\n\
            switch (argv[1][0]) {\n\
            case 'v': { std::vector<int> counts(4); run(4, [&](int i) { for (long k = 0; k < rounds; k++) counts[i] += k & 1; }); break; }\n\
            case 'b': {\n\
                std::vector<std::unique_ptr<long>> counts;\n\
                for (int i = 0; i < 4; i++) counts.push_back(std::make_unique<long>(0));\n\
                run(4, [&](int i) { for (long k = 0; k < rounds; k++) ++*(volatile long *)counts[i].get(); });\n\
                break;\n\
            }\n\
            case 'l': run(4, [](int i) { for (long k = 0; k < rounds; k++) { std::lock_guard<std::mutex> g(guarded[i].lock); guarded[i].count++; } }); break;\n\
            default: run(2, [](int i) { for (long k = 0; k < rounds; k++) { if (i) stats.hits++; else stats.misses.fetch_add(1, std::memory_order_relaxed); } });\n\
            }\n\
        }\n";
    let code = place.file("counters.cpp", code, 0o644);
    // Without optimisation the first is in memory for sure.
    let program = build(&place, &["g++", "-O0", "-g", text(&code), "-pthread"], "counters");
    for (case, kind, name) in
        [("v", "heap", ""), ("b", "heap", ""), ("l", "variable", "guarded"), ("a", "variable", "stats")]
    {
        let found = lines(&place, &program, &[], &[case]);
        assert!(!found.is_empty(), "{case}");
        for line in &found {
            assert_eq!(line["kind"], kind, "{case}: {line:#}");
            assert!(name.is_empty() || line["variable"]["name"] == name, "{case}: {line:#}");
        }
    }
}

#[test]
fn user_threads_are_told_apart() {
    if !has_tool("gcc") {
        return skipped("sharing", "no gcc");
    }
    let place = Place::new();
    let source = source("structures.c");
    for mended in 0..=2 {
        let program =
            build(&place, &["gcc", "-O1", "-g", &format!("-DMENDED={mended}"), text(&source), "-pthread"], "user");
        let found = lines(&place, &program, &["--mode", "user"], &[]);
        assert_eq!(found.is_empty(), mended != 0, "{found:#?}");
        found.iter().for_each(|line| check(line, &source, &expected("structures", 1)));
    }
}

#[test]
fn bad_input() {
    let place = Place::new();
    let fails = |args: &[&str], status: i32, words: &[&str]| {
        let mut command = place.heddle(&["sharing"]);
        assert_fails(&run(command.args(args)), status, words);
    };
    fails(&[], 125, &["no command given", "heddle sharing --help"]);
    fails(&["build"], 125, &["no compiler given", "heddle sharing build --help"]);
    fails(&["run"], 125, &["no program given", "heddle sharing run --help"]);
    fails(&["build", "--", "no-such-compiler", "a.c"], 127, &["no-such-compiler", "not found"]);
    fails(&["build", "--", "true", "a.c"], 125, &["neither gcc nor clang"]);
    fails(&["run", "--", "/no/such/program"], 127, &["no such file"]);
    fails(&["run", "--", "/bin/true"], 126, &["was not built with 'heddle sharing build'", "gcc -O1 -g"]);
    fails(&["run", "--threshold", "0", "--", "/bin/true"], 125, &["--threshold"]);
    let script = place.file("script", b"#!/bin/sh\n", 0o755);
    fails(&["run", "--", text(&script)], 126, &["was not built"]);
    if !has_tool("gcc") {
        return skipped("sharing", "no gcc");
    }
    let code = place.file("ok.c", b"int main(void) { return 0; }\n", 0o644);
    let program = build(&place, &["gcc", text(&code)], "ok");
    fails(&["run", "--json", "/no/such/folder/x", "--", text(&program)], 125, &["--json", "/no/such/folder/x"]);
    // The compiler's own errors are its own.
    let output = run(&mut place.heddle(&["sharing", "build", "--", "gcc", "/no/such.c"]));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no such.c") || stderr(&output).contains("/no/such.c"));
}
