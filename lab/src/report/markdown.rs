//! The report as Markdown.

use std::fmt::Write;

use crate::claims::short;
use crate::experiments;
use crate::report::{Judged, counts, date, points, sentence, tour};
use crate::simulate::Study;
use crate::stats;
use crate::store::Store;

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// The whole page.
pub fn page(store: &Store, judged: &[Judged], studies: &[Study]) -> String {
    let mut md = format!(
        "# Threads, processes and user threads on this machine\n\nA {} run of {}.\n\n",
        store.size.name(),
        date(store.began)
    );
    let findings = tour::findings(store);
    if !findings.is_empty() {
        md.push_str("## What matters for choosing\n\n");
        for finding in &findings {
            let _ = writeln!(md, "1. {finding}");
        }
        md.push('\n');
    }
    md.push_str("## The machine\n\n| | |\n| --- | --- |\n");
    for (name, value) in store.machine.lines() {
        let _ = writeln!(md, "| {name} | {} |", cell(&value));
    }
    md.push_str("\n## Claims\n\n");
    let line: Vec<String> = counts(judged).iter().map(|(outcome, n)| format!("{n} {}", outcome.words())).collect();
    let _ = writeln!(
        md,
        "{}.\n\n| claim | says | verdict | evidence | test |\n| --- | --- | --- | --- | --- |",
        line.join(", ")
    );
    for j in judged {
        let v = &j.verdict;
        let test = v.confidence.map_or_else(|| v.test.to_owned(), |c| format!("{}, {} %", v.test, c * 100.0));
        let _ = writeln!(
            md,
            "| {} | {} | {} | {} | {} |",
            j.claim.id,
            cell(j.claim.says),
            v.outcome.words(),
            cell(&sentence(&v.evidence)),
            cell(&test)
        );
    }
    let points = points(store);
    for e in experiments::ALL {
        let here: Vec<_> = points.iter().filter(|p| p.0 == e.id).collect();
        let _ = write!(md, "\n## {}: {}\n\n", e.id, e.title);
        for (_, why) in store.absent.iter().filter(|(id, _)| id == e.id) {
            let _ = writeln!(md, "- left out: {why}");
        }
        for (what, figure) in e.published {
            let _ = writeln!(md, "- published: {what}: {figure}");
        }
        let main: Vec<&str> = e.plots.iter().map(|p| p.metric).collect();
        let own = |metric: &str| main.contains(&metric) || (main.is_empty() && !SYSTEM.contains(&metric));
        if here.is_empty() {
            md.push_str("Not run.\n");
            continue;
        }
        md.push_str("\n| curve | at | figure | median | least to most | n |\n| --- | --- | --- | --- | --- | --- |\n");
        for (_, series, x, metric, values) in here.into_iter().filter(|p| own(&p.3)) {
            let (low, high) = (stats::quantile(values, 0.0), stats::quantile(values, 1.0));
            let _ = writeln!(
                md,
                "| {} | {x} | {metric} | {} | {} to {} | {} |",
                cell(series),
                short(stats::median(values)),
                short(low),
                short(high),
                values.len()
            );
        }
    }
    md.push_str("\n## Beyond the papers: fork-join on more CPUs, simulated\n\n");
    if studies.is_empty() {
        md.push_str("The costs that a simulation needs (002-fib, 002-uts) have not been measured.\n");
    } else {
        md.push_str("With costs measured here; memory, caches and page faults are not in it: a bound from above.\n");
    }
    for study in studies {
        let (head, rows) = study.table();
        let _ = write!(md, "\n### {}\n\nCosts: {}. The paper: {}.\n\n", study.title, study.costs(), study.published);
        let _ = writeln!(md, "| {} |\n|{}", head.join(" | "), " --- |".repeat(head.len()));
        for row in rows {
            let _ = writeln!(md, "| {} |", row.join(" | "));
        }
    }
    md
}

/// Figures that every program has.
pub const SYSTEM: [&str; 8] =
    ["wall", "user", "system", "cpu", "minor_faults", "voluntary", "involuntary", "memory_mib"];
