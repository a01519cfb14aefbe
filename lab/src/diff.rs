//! Two folders of results: two machines, or two dates.

use std::fmt::Write;
use std::path::Path;

use crate::Error;
use crate::claims::short;
use crate::plan::Plot;
use crate::report;
use crate::stats;
use crate::store::Store;

/// Less than this is no difference between two runs: so much drifts from one to the next on one machine.
const MARGIN: f64 = 0.03;

/// What differs: verdicts, and figures at the same points.
pub fn diff(a: &Path, b: &Path) -> Result<String, Error> {
    let (first, second) = (Store::load(a)?, Store::load(b)?);
    let mut text = String::new();
    for ((name, x), (_, y)) in first.machine.lines().into_iter().zip(second.machine.lines()) {
        if x != y {
            let _ = writeln!(text, "{name}: {x} | {y}");
        }
    }
    if text.is_empty() {
        text.push_str("The same machine.\n");
    }
    if first.size != second.size {
        let _ =
            writeln!(text, "Sizes differ ({} | {}): times are not compared.", first.size.name(), second.size.name());
    }
    let (judged, others) = (report::judge(&first), report::judge(&second));
    let mut changed = 0;
    for (x, y) in judged.iter().zip(&others) {
        if x.verdict.outcome != y.verdict.outcome {
            changed += 1;
            let (before, after) = (x.verdict.outcome.words(), y.verdict.outcome.words());
            let _ = writeln!(text, "{}: {before} | {after}: {}", x.claim.id, x.claim.says);
        }
    }
    let same = judged.len() - changed;
    let _ = writeln!(
        text,
        "{same} of {} verdicts agree ({:.0} %).",
        judged.len(),
        100.0 * same as f64 / judged.len() as f64
    );
    if first.size == second.size {
        figures(&mut text, &first, &second);
    }
    Ok(text)
}

fn figures(text: &mut String, first: &Store, second: &Store) {
    let mut compared = 0;
    let mut lines = Vec::new();
    for e in crate::experiments::ALL {
        let plots: Vec<&Plot> = e.plots.iter().collect();
        for plot in plots {
            for series in plot.series {
                for x in first.xs(e.id, series) {
                    let (a, b) =
                        (first.values(e.id, series, x, plot.metric), second.values(e.id, series, x, plot.metric));
                    if a.is_empty() || b.is_empty() {
                        continue;
                    }
                    compared += 1;
                    if let Some(ratio) = stats::clear_ratio(&b, &a, MARGIN) {
                        lines.push((ratio, format!("{} {series} at {x}, {}", e.id, plot.metric)));
                    }
                }
            }
        }
    }
    lines.sort_by(|a, b| b.0.ln().abs().total_cmp(&a.0.ln().abs()));
    let _ = writeln!(
        text,
        "{} of {compared} figures differ clearly; the second to the first, the largest differences:",
        lines.len()
    );
    for (ratio, what) in lines.iter().take(20) {
        let _ = writeln!(text, "  {:>6} {what}", short(*ratio));
    }
}
