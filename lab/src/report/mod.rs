//! The report: one HTML page that needs nothing else, the same as Markdown, the samples as CSV, and `report.json`.

mod html;
mod markdown;
mod svg;
mod tour;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::Error;
use crate::claims::{Claim, Outcome, Verdict, View};
use crate::experiments;
use crate::plan::Experiment;
use crate::simulate::{self, Study};
use crate::stats;
use crate::store::{Store, write};

/// A claim with what became of it.
pub(crate) struct Judged {
    pub experiment: &'static Experiment,
    pub claim: &'static Claim,
    pub verdict: Verdict,
}

/// Judges all claims by these results.
pub(crate) fn judge(store: &Store) -> Vec<Judged> {
    let view = View { store };
    crate::claims()
        .into_iter()
        .map(|(experiment, claim)| Judged { experiment, claim, verdict: (claim.rule)(&view) })
        .collect()
}

/// Judges by several runs on one machine: where two of them decide differently, chance has decided.
fn judge_all(stores: &[Store]) -> Vec<Judged> {
    let mut judged = judge(&stores[0]);
    for store in &stores[1..] {
        for (first, other) in judged.iter_mut().zip(judge(store)) {
            let (a, b) = (first.verdict.outcome, other.verdict.outcome);
            if a == b {
                continue;
            }
            let folder = store.folder().display().to_string();
            let words = format!("Another run ({folder}) says: {}.", b.words());
            if matches!(a, Outcome::Holds | Outcome::Fails) || matches!(b, Outcome::Holds | Outcome::Fails) {
                first.verdict.outcome = Outcome::Undecided;
            }
            first.verdict = first.verdict.clone().and(words);
        }
    }
    judged
}

/// How many claims have each outcome.
pub(crate) fn counts(judged: &[Judged]) -> [(Outcome, usize); 4] {
    [Outcome::Holds, Outcome::Fails, Outcome::Undecided, Outcome::Untestable]
        .map(|outcome| (outcome, judged.iter().filter(|j| j.verdict.outcome == outcome).count()))
}

/// With a capital letter, for people.
pub(crate) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// A date of seconds since 1970, in UTC.
pub(crate) fn date(seconds: u64) -> String {
    let days = (seconds / 86_400).cast_signed();
    // Howard Hinnant's algorithm: days since 1970 to a date.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let of_era = z.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

/// Each point's figures in short: experiment, series, x, metric, samples.
pub(crate) fn points(store: &Store) -> Vec<(String, String, f64, String, Vec<f64>)> {
    let mut list: Vec<(String, String, f64, String, Vec<f64>)> = Vec::new();
    for s in store.samples.iter().filter(|s| s.failure.is_none()) {
        for (metric, value) in &s.figures {
            let same = |p: &&mut (String, String, f64, String, Vec<f64>)| {
                p.2 == s.x && p.3 == *metric && p.1 == s.series && p.0 == s.experiment
            };
            match list.iter_mut().find(same) {
                Some(p) => p.4.push(*value),
                None => list.push((s.experiment.clone(), s.series.clone(), s.x, metric.clone(), vec![*value])),
            }
        }
    }
    list
}

fn to_json(store: &Store, judged: &[Judged], studies: &[Study]) -> Value {
    let claims: Vec<Value> = judged.iter().map(|j| j.verdict.to_json(j.claim, j.experiment.id)).collect();
    let points: Vec<Value> = points(store)
        .into_iter()
        .map(|(experiment, series, x, metric, values)| {
            let i = stats::median_interval(&values);
            json!({
                "experiment": experiment, "series": series, "x": x, "metric": metric, "median": i.value, "low": i.low,
                "high": i.high, "samples": values,
            })
        })
        .collect();
    let counts: serde_json::Map<String, Value> =
        counts(judged).iter().map(|(outcome, n)| (outcome.name().to_owned(), json!(n))).collect();
    json!({
        "heddle_lab": 1, "size": store.size.name(), "began": store.began, "machine": store.machine.to_json(),
        "counts": counts, "claims": claims, "tour": tour::findings(store),
        "simulation": simulate::to_json(studies),
        "left_out": store.absent.iter().map(|(e, why)| json!({"experiment": e, "why": why})).collect::<Vec<_>>(),
        "points": points,
    })
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\"").replace('\n', " "))
}

fn to_csv(store: &Store, judged: &[Judged]) -> (String, String) {
    let mut samples = String::from("experiment,series,x,round,figure,value,failure\n");
    for s in &store.samples {
        let failure = quoted(s.failure.as_deref().unwrap_or(""));
        let start = format!("{},{},{},{}", s.experiment, quoted(&s.series), s.x, s.round);
        if s.figures.is_empty() {
            samples.push_str(&format!("{start},,,{failure}\n"));
        }
        for (name, value) in &s.figures {
            samples.push_str(&format!("{start},{name},{value},{failure}\n"));
        }
    }
    let mut claims = String::from("id,verdict,says,evidence,test,confidence\n");
    for j in judged {
        let v = &j.verdict;
        let confidence = v.confidence.map_or_else(String::new, |c| c.to_string());
        let fields =
            [j.claim.id, v.outcome.name(), &quoted(j.claim.says), &quoted(&v.evidence), &quoted(v.test), &confidence];
        claims.push_str(&format!("{}\n", fields.join(",")));
    }
    (samples, claims)
}

/// Writes the report into the first of these folders of results; the others are further runs on the same machine, with which
/// verdicts must agree. Answers the files' names and a line about the verdicts.
pub fn write_all(folders: &[PathBuf]) -> Result<(Vec<PathBuf>, String), Error> {
    let stores: Vec<Store> = folders.iter().map(|folder| Store::load(folder)).collect::<Result<_, _>>()?;
    let Some(first) = stores.first() else { return Err(Error("no folder of results given".to_owned())) };
    if let Some(other) = stores.iter().find(|s| !s.machine.is_same(&first.machine)) {
        let name = other.folder().display();
        return Err(Error(format!("{name} is of another machine; 'heddle lab diff' compares machines")));
    }
    let judged = judge_all(&stores);
    let studies = simulate::studies(first);
    let (samples, claims) = to_csv(first, &judged);
    let json = format!("{:#}\n", to_json(first, &judged, &studies));
    let files = [
        ("report.html", html::page(first, &judged, &studies)),
        ("report.md", markdown::page(first, &judged, &studies)),
        ("report.json", json),
        ("samples.csv", samples),
        ("claims.csv", claims),
    ];
    let mut names = Vec::new();
    for (name, text) in files {
        let path: PathBuf = Path::new(first.folder()).join(name);
        write(&path, &text)?;
        names.push(path);
    }
    let line: Vec<String> = counts(&judged).iter().map(|(outcome, n)| format!("{n} {}", outcome.words())).collect();
    let mut line = format!("{} claims: {}", judged.len(), line.join(", "));
    let was_run = |e: &Experiment| stores.iter().any(|s| s.samples.iter().any(|sample| sample.experiment == e.id));
    let missing: Vec<&str> = experiments::ALL.iter().filter(|e| !was_run(e)).map(|e| e.id).collect();
    if !missing.is_empty() {
        line.push_str(&format!(" (not run: {})", missing.join(", ")));
    }
    Ok((names, line))
}

/// The verdicts on the claims of some experiments, a line each.
pub fn verdicts(folder: &Path, ids: &[String]) -> Result<String, Error> {
    let (store, wanted) = (Store::load(folder)?, crate::chosen(ids)?);
    let of = judge(&store).into_iter().filter(|j| wanted.iter().any(|e| e.id == j.experiment.id));
    Ok(of.map(|j| format!("{:8} {}: {}\n", j.claim.id, j.verdict.outcome.words(), j.claim.says)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::plan::Size;
    use crate::store::Sample;

    fn sample(round: u32, series: &str, x: f64, wall: f64) -> Sample {
        let value = wall * (1.0 + f64::from(round) * 0.001);
        let figures = [("wall", value), ("time", value), ("user", value), ("system", value / 9.0)];
        Sample {
            experiment: "000-alloc".into(),
            series: series.into(),
            x,
            round,
            failure: None,
            figures: figures.map(|(k, v)| (k.to_owned(), v)).into(),
            checks: [].into(),
        }
    }

    fn store(folder: &Path, p: f64) -> Store {
        let mut store = Store::open(folder, Size::Quick, Machine::read()).unwrap();
        for round in 0..8 {
            for x in [1.0, 8.0, 32.0, 512.0] {
                store.add(sample(round, "T, frees", x, 1.0)).unwrap();
                store.add(sample(round, "P, frees", x, p)).unwrap();
                store.add(sample(round, "P, keeps", x, p)).unwrap();
            }
        }
        store.note_absent("000-alloc", "<because & so>").unwrap();
        store
    }

    #[test]
    fn an_empty_run_has_71_claims_and_invents_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), Size::Quick, Machine::read()).unwrap();
        let judged = judge(&store);
        assert_eq!(judged.len(), 71);
        for j in &judged {
            assert!(
                matches!(j.verdict.outcome, Outcome::Undecided | Outcome::Untestable),
                "{}: {:?} of nothing",
                j.claim.id,
                j.verdict
            );
            let undecided = j.verdict.outcome == Outcome::Undecided;
            assert!(
                !undecided || j.verdict.evidence.contains("not measured: "),
                "{}: {}",
                j.claim.id,
                j.verdict.evidence
            );
        }
    }

    #[test]
    fn files_are_whole() {
        let folder = tempfile::tempdir().unwrap();
        store(folder.path(), 0.1);
        let (files, line) = write_all(&[folder.path().to_owned()]).unwrap();
        assert!(line.starts_with("71 claims") && line.contains("(not run: 000-matrix, "), "{line}");
        let verdicts = verdicts(folder.path(), &["c000-1".to_owned()]).unwrap();
        assert!(verdicts.starts_with("C000-1   holds here: Allocation") && verdicts.lines().count() == 6, "{verdicts}");
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(files.len(), 5);
        let json: Value = serde_json::from_str(&read("report.json")).unwrap();
        let claims = json["claims"].as_array().unwrap();
        assert_eq!(claims.len(), 71);
        for claim in claims {
            let verdict = claim["verdict"].as_str().unwrap();
            assert!(["holds", "does-not-hold", "undecided", "cannot-be-tested"].contains(&verdict));
            assert!(!claim["evidence"].as_str().unwrap().is_empty());
        }
        assert_eq!(claims[0]["id"], "C000-1");
        assert_eq!(claims[0]["verdict"], "holds");
        let html = read("report.html");
        assert!(
            html.starts_with("<!DOCTYPE html>") && html.contains("&lt;because &amp; so&gt;") && html.contains("<svg")
        );
        for outside in ["http://", "https://", "<link", "<script src", "@import"] {
            assert!(!html.contains(outside), "the page wants {outside}");
        }
        assert!(html.contains("prefers-color-scheme") && html.contains("width=device-width"));
        for tag in ["table", "figure", "section", "details", "svg", "ul", "tr", "td", "div", "p"] {
            let open = html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
            assert_eq!(open, html.matches(&format!("</{tag}>")).count(), "<{tag}>");
        }
        assert!(read("report.md").contains("| C004-10 |"));
        assert!(read("samples.csv").lines().count() > 60 && read("claims.csv").lines().count() == 72);
    }

    #[test]
    fn runs_that_disagree_leave_it_undecided() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let stores = [store(a.path(), 0.1), store(b.path(), 3.0)];
        let judged = judge_all(&stores);
        assert_eq!(judged[0].claim.id, "C000-1");
        assert_eq!(judged[0].verdict.outcome, Outcome::Undecided);
        assert!(judged[0].verdict.evidence.contains("Another run"));
    }

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_798_761_599), "2026-12-31 23:59 UTC");
    }
}
