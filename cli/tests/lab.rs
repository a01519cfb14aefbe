//! `heddle lab` and `heddle compare`, with everything as small as possible: seconds, and no verdict means anything.

mod common;

use std::fs;

use common::{Place, assert_fails, run, stderr, stdout, text};
use serde_json::Value;

#[test]
fn list_and_show() {
    let place = Place::new();
    let list = stdout(&run(&mut place.heddle(&["lab", "list"])));
    let claims = list.lines().filter(|line| line.trim_start().starts_with("C00")).count();
    assert_eq!(claims, 71, "{list}");
    for id in ["000-alloc", "C003-6", "c004-10"] {
        let output = run(&mut place.heddle(&["lab", "show", id]));
        assert!(output.status.success() && stdout(&output).contains("Claims"), "{id}: {}", stderr(&output));
    }
}

#[test]
fn bad_input_is_one_line() {
    let place = Place::new();
    let folder = place.path("results");
    let fails = |args: &[&str], words: &[&str]| assert_fails(&run(&mut place.heddle(args)), 125, words);
    fails(&["lab"], &["heddle"]);
    fails(&["lab", "show", "C000-99"], &["C000-99", "lab list"]);
    fails(&["lab", "run", "nonsense", "--out", text(&folder)], &["nonsense", "lab list"]);
    fails(&["lab", "run", "--tasks", "fibres", "--out", text(&folder)], &["fibres", "kernel", "process"]);
    fails(&["lab", "run", "--quick", "--full"], &["--quick", "--full"]);
    fails(&["lab", "report", text(&folder)], &["no results", "lab run"]);
    fails(&["lab", "diff", text(&folder), text(&folder)], &["no results"]);
    fails(&["compare"], &["no program"]);
    fails(&["compare", "--rounds", "1", "--", "true"], &["--rounds"]);
    assert_fails(
        &run(&mut place.heddle(&["compare", "--", "heddle-no-such-program"])),
        127,
        &["heddle-no-such-program"],
    );
    assert_fails(&run(&mut place.heddle(&["compare", "--", "sh", "-c", "exit 7"])), 125, &["exit status 7"]);
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("about.json"), "{").unwrap();
    fails(&["lab", "report", text(&folder)], &["damaged"]);
    assert!(!folder.join("results.jsonl").exists());
}

#[test]
fn a_run_is_kept_resumed_reported_and_compared() {
    let place = Place::new();
    let folder = place.path("results");
    let arguments = ["lab", "run", "--tiny", "000-space", "002-waits", "C004-5", "--out", text(&folder)];
    let output = run(&mut place.heddle(&arguments));
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    assert!(stderr(&output).contains("left"), "progress with an estimate: {}", stderr(&output));
    let samples = fs::read_to_string(folder.join("results.jsonl")).unwrap();
    for line in samples.lines() {
        let sample: Value = serde_json::from_str(line).unwrap();
        assert!(sample["failure"].is_null(), "{line}");
    }

    // Half a line at the end, and the last whole line gone: only that point runs again.
    let lines: Vec<&str> = samples.lines().collect();
    let cut = lines.len() - 1;
    fs::write(folder.join("results.jsonl"), format!("{}\n{}", lines[..cut].join("\n"), &lines[cut][..20])).unwrap();
    assert!(run(&mut place.heddle(&arguments)).status.success());
    let again = fs::read_to_string(folder.join("results.jsonl")).unwrap();
    assert!(again.starts_with(&lines[..cut].join("\n")));
    assert_eq!(again.lines().count(), lines.len() + 1);

    let output = run(&mut place.heddle(&["lab", "report", text(&folder)]));
    assert!(output.status.success() && stdout(&output).contains("71 claims"), "{}", stderr(&output));
    let report: Value = serde_json::from_str(&fs::read_to_string(folder.join("report.json")).unwrap()).unwrap();
    let claims = report["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 71);
    let verdict = |id: &str| claims.iter().find(|c| c["id"] == id).unwrap()["verdict"].as_str().unwrap();
    assert_eq!(verdict("C002-19"), "holds", "edges are lost without the list, step by step");
    assert_eq!(verdict("C004-8"), "does-not-hold", "NPTL uses private futexes");
    assert_eq!(verdict("C000-1"), "undecided", "it was not run");
    assert!(fs::read_to_string(folder.join("report.html")).unwrap().contains("<svg"));

    let output = run(&mut place.heddle(&["lab", "diff", text(&folder), text(&folder)]));
    assert!(stdout(&output).contains("71 of 71 verdicts agree"), "{}", stdout(&output));
    let arguments = ["lab", "run", "--full", "002-waits", "--out", text(&folder)];
    assert_fails(&run(&mut place.heddle(&arguments)), 125, &["tiny", "--out"]);
}

#[test]
fn only_the_kinds_that_were_asked_for() {
    let place = Place::new();
    let folder = place.path("results");
    let arguments = ["lab", "run", "--tiny", "000-alloc", "--tasks", "process", "--out", text(&folder)];
    assert!(run(&mut place.heddle(&arguments)).status.success());
    let samples = fs::read_to_string(folder.join("results.jsonl")).unwrap();
    let mut lines = samples.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert!(lines.all(|sample| sample["series"].as_str().unwrap().starts_with("P, ")));
}

#[test]
fn compare_says_a_sentence() {
    let place = Place::new();
    let output = run(&mut place.heddle(&["compare", "--rounds", "4", "--seconds", "1", "--", "sh", "-c", "exit 0"]));
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    for word in ["NPTL", "Heddle, no huge pages", "wall time", "CPU time", "peak memory", "95 %"] {
        assert!(text.contains(word), "'{word}' is missing in: {text}");
    }
    let advice = text.lines().last().unwrap();
    assert!(advice.contains("no difference") || advice.starts_with("Leave") || advice.starts_with("Run"), "{advice}");
}
