//! `heddle lab` and `heddle compare`, with everything as small as possible: seconds, and no verdict means anything.

mod common;

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use common::{Place, assert_fails, run, skipped, stderr, stdout, text};
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
    fails(&["lab", "run", "--rounds", "0"], &["--rounds", "0"]);
    let file = place.file("a-file", b"", 0o644);
    fails(&["lab", "run", "--tiny", "--out", text(&file)], &["a-file", "not a folder"]);
    fails(&["lab", "report", text(&file)], &["a-file", "no results"]);
    fails(&["lab", "report", text(&folder)], &["no results", "lab run"]);
    fails(&["lab", "diff", text(&folder), text(&folder)], &["no results"]);
    fails(&["compare"], &["no program"]);
    fails(&["compare", "--rounds", "5", "--", "true"], &["--rounds", "5"]);
    assert_fails(
        &run(&mut place.heddle(&["compare", "--", "heddle-no-such-program"])),
        127,
        &["heddle-no-such-program"],
    );
    assert_fails(
        &run(&mut place.heddle(&["compare", "--", "sh", "-c", "exit 7"])),
        125,
        &["exit status 7", "end with 0"],
    );
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("about.json"), "{").unwrap();
    fails(&["lab", "report", text(&folder)], &["damaged", "move"]);
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
    let claims = claims(&folder);
    let verdict = |id: &str| verdict(&claims, id);
    assert_eq!(verdict("C002-19"), "holds", "edges are lost without the list, step by step");
    assert_eq!(verdict("C004-8"), "does-not-hold", "NPTL uses private futexes");
    assert_eq!(verdict("C000-1"), "undecided", "it was not run");
    assert!(fs::read_to_string(folder.join("report.html")).unwrap().contains("<svg"));

    let output = run(&mut place.heddle(&["lab", "diff", text(&folder), text(&folder)]));
    assert!(stdout(&output).contains("71 of 71 verdicts agree"), "{}", stdout(&output));
    let arguments = ["lab", "run", "--full", "002-waits", "--out", text(&folder)];
    assert_fails(&run(&mut place.heddle(&arguments)), 125, &["tiny", "--out"]);
}

/// A machine that is in another state for half a minute must not be that of all rounds of one experiment.
#[test]
fn the_rounds_of_each_experiment_are_spread_over_the_run() {
    let place = Place::new();
    let folder = place.path("results");
    let arguments = ["lab", "run", "--tiny", "--rounds", "2", "000-space", "002-waits", "--out", text(&folder)];
    let output = run(&mut place.heddle(&arguments));
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    let samples = fs::read_to_string(folder.join("results.jsonl")).unwrap();
    let mut order: Vec<(u64, String)> = samples
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|sample| (sample["round"].as_u64().unwrap(), sample["experiment"].as_str().unwrap().to_owned()))
        .collect();
    order.dedup();
    let expected = [(0, "000-space"), (0, "002-waits"), (1, "000-space"), (1, "002-waits")];
    assert_eq!(order, expected.map(|(round, id)| (round, id.to_owned())));
}

/// Claims of a report, each with what it must have.
fn claims(folder: &Path) -> Vec<Value> {
    let report = fs::read_to_string(folder.join("report.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    let claims = report["claims"].as_array().unwrap().clone();
    let mut ids: Vec<&str> = claims.iter().map(|c| c["id"].as_str().unwrap()).collect();
    ids.dedup();
    assert_eq!(ids.len(), 71);
    let counts = report["counts"].as_object().unwrap();
    assert_eq!(counts.values().map(|n| n.as_u64().unwrap()).sum::<u64>(), 71);
    for claim in &claims {
        let verdict = claim["verdict"].as_str().unwrap();
        assert!(["holds", "does-not-hold", "undecided", "cannot-be-tested"].contains(&verdict), "{claim}");
        for name in ["says", "experiment", "evidence", "test"] {
            assert!(claim[name].as_str().is_some_and(|text| !text.is_empty()), "{name} of {claim}");
        }
        assert!(claim["figures"].is_array());
    }
    claims
}

fn verdict<'a>(claims: &'a [Value], id: &str) -> &'a str {
    claims.iter().find(|c| c["id"] == id).unwrap()["verdict"].as_str().unwrap()
}

#[test]
fn the_detector_decides_whether_false_sharing_is_hard_to_detect() {
    let place = Place::new();
    let folder = place.path("results");
    let output = run(&mut place.heddle(&["lab", "run", "--tiny", "C003-8", "--out", text(&folder)]));
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    let claims = claims(&folder);
    let claim = claims.iter().find(|c| c["id"] == "C003-8").unwrap();
    let evidence = claim["evidence"].as_str().unwrap();
    if verdict(&claims, "C003-8") == "cannot-be-tested" {
        return skipped("the_detector_decides_whether_false_sharing_is_hard_to_detect", evidence);
    }
    assert_eq!(verdict(&claims, "C003-8"), "does-not-hold", "{evidence}");
    assert!(evidence.contains("heddle sharing") && evidence.contains("none in"), "{evidence}");
    // Its figures are the detector's own: without them nothing is decided.
    let samples = fs::read_to_string(folder.join("results.jsonl")).unwrap();
    let kept: Vec<&str> = samples.lines().filter(|line| !line.contains("detector: ")).collect();
    assert!(kept.len() < samples.lines().count());
    fs::write(folder.join("results.jsonl"), kept.join("\n")).unwrap();
    assert!(run(&mut place.heddle(&["lab", "report", text(&folder)])).status.success());
    assert_eq!(verdict(&self::claims(&folder), "C003-8"), "undecided");
}

/// Processes whose program lies in this folder.
fn running_from(folder: &Path) -> usize {
    let is_from =
        |entry: &fs::DirEntry| fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe.starts_with(folder));
    fs::read_dir("/proc").unwrap().flatten().filter(is_from).count()
}

#[test]
fn an_interrupt_ends_what_is_measured_and_the_run_goes_on() {
    let place = Place::new();
    let folder = place.path("results");
    let arguments = ["lab", "run", "--tiny", "000-space", "002-waits", "--out", text(&folder)];
    let child = place.heddle(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // While a program of the lab is running, with some results there.
    let results = folder.join("results.jsonl");
    while fs::read_to_string(&results).unwrap_or_default().lines().count() < 3 || running_from(&folder) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: the child has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id().cast_signed(), libc::SIGINT) }, 0);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    let last = stderr(&output).lines().last().unwrap_or_default().to_owned();
    assert!(last.contains("interrupted") && last.contains("goes on"), "{last}");
    assert_eq!(running_from(&folder), 0, "a program was left behind");
    let before = fs::read_to_string(&results).unwrap();

    let output = run(&mut place.heddle(&arguments));
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    let after = fs::read_to_string(&results).unwrap();
    assert!(after.starts_with(&before) && after.len() > before.len());
    let mut keys = Vec::new();
    for line in after.lines() {
        let sample: Value = serde_json::from_str(line).unwrap();
        assert!(sample["failure"].is_null(), "the interrupt is no failure: {line}");
        keys.push(format!("{} {} {} {}", sample["experiment"], sample["series"], sample["x"], sample["round"]));
    }
    let all = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), all, "a point was measured twice");

    // Once more: all is there.
    assert!(run(&mut place.heddle(&arguments)).status.success());
    assert_eq!(fs::read_to_string(&results).unwrap(), after);
}

#[test]
fn the_page_needs_nothing_from_outside() {
    let place = Place::new();
    let folder = place.path("results");
    assert!(run(&mut place.heddle(&["lab", "run", "--tiny", "004-threads", "--out", text(&folder)])).status.success());
    claims(&folder);
    let page = fs::read_to_string(folder.join("report.html")).unwrap();
    for outside in ["http:", "https:", "<link", "<script", "<img", "<iframe", "@import", "url("] {
        assert!(!page.contains(outside), "the page has {outside}");
    }
    // Each reference is to a place in the page.
    for reference in page.split("href=\"").skip(1) {
        let target = reference.split('"').next().unwrap();
        let id = target.strip_prefix('#').unwrap_or_else(|| panic!("{target} is not in the page"));
        assert!(page.contains(&format!("id=\"{id}\"")), "nothing is called {id}");
    }
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
    let output = run(&mut place.heddle(&["compare", "--rounds", "6", "--seconds", "1", "--", "sh", "-c", "exit 0"]));
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    for word in ["NPTL", "Heddle, no huge pages", "wall time", "CPU time", "peak memory", "95 %"] {
        assert!(text.contains(word), "'{word}' is missing in: {text}");
    }
    let advice = text.lines().last().unwrap();
    assert!(advice.contains("no difference") || advice.starts_with("Leave") || advice.starts_with("Run"), "{advice}");
}
