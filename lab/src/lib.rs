//! The lab: experiments of five papers on threads, processes and user threads, run on the machine at hand, with a verdict
//! for each of the papers' 71 claims.
//!
//! - [`run()`]: runs experiments and keeps each sample in a folder ([`store`]); interrupted, it goes on where it was.
//! - [`report`]: one HTML page, Markdown, CSV and `report.json` from such a folder.
//! - [`diff`]: two folders.
//! - [`compare`]: a program of the user's, on the kernel's threads and under Heddle.
//!
//! `docs/design/014-lab.md` has the decisions; each experiment's folder says what the paper did and what differs here.

pub mod child;
pub mod claims;
pub mod compare;
pub mod diff;
mod experiments;
mod interrupt;
mod launch;
mod machine;
mod plan;
mod ratio;
pub mod report;
mod run;
mod simulate;
pub mod stats;
pub mod store;

pub use interrupt::{came as interrupted, watch as watch_signals};
pub use plan::{Size, Task};
pub use run::{Done, Request, default_out, run};

use claims::Claim;
use plan::Experiment;

/// Why the lab gave up: one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(pub String);

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// The experiments with these names, all if there are none. A claim's number stands for its experiment.
fn chosen(ids: &[String]) -> Result<Vec<&'static Experiment>, Error> {
    let find = |id: &String| {
        let named = |e: &&Experiment| e.id == id || e.claims.iter().any(|c| c.id.eq_ignore_ascii_case(id));
        experiments::ALL
            .iter()
            .copied()
            .find(named)
            .ok_or_else(|| Error(format!("no experiment or claim is called '{id}'; 'heddle lab list' names them")))
    };
    let wanted: Vec<&Experiment> = ids.iter().map(find).collect::<Result<_, _>>()?;
    let is_wanted = |e: &&Experiment| ids.is_empty() || wanted.iter().any(|w| w.id == e.id);
    Ok(experiments::ALL.iter().copied().filter(is_wanted).collect())
}

/// All claims, by number.
fn claims() -> Vec<(&'static Experiment, &'static Claim)> {
    let mut all: Vec<_> = experiments::ALL.iter().flat_map(|e| e.claims.iter().map(move |c| (*e, c))).collect();
    let number = |id: &str| {
        let (seed, claim) = id.trim_start_matches('C').split_once('-').unwrap_or((id, "0"));
        (seed.to_owned(), claim.parse::<u32>().unwrap_or(0))
    };
    all.sort_by_key(|(_, claim)| number(claim.id));
    all
}

/// What `heddle lab list` prints.
pub fn list() -> String {
    let mut text = String::from("Experiments\n");
    for e in experiments::ALL {
        text.push_str(&format!("  {:14} {} ({} claims)\n", e.id, e.title, e.claims.len()));
    }
    text.push_str("Claims\n");
    for (e, claim) in claims() {
        text.push_str(&format!("  {:8} {:14} {}\n", claim.id, e.id, claim.says));
    }
    text
}

/// What `heddle lab show ID` prints.
pub fn show(id: &str) -> Result<String, Error> {
    let ids = [id.to_owned()];
    let e = chosen(&ids)?[0];
    let mut text = format!("{}\n", e.readme.trim());
    if !e.published.is_empty() {
        text.push_str("\nPublished\n");
        for (what, figure) in e.published {
            text.push_str(&format!("  {what}: {figure}\n"));
        }
    }
    text.push_str("\nClaims\n");
    for claim in e.claims {
        text.push_str(&format!("  {:8} {}\n", claim.id, claim.says));
    }
    let setting = plan::Setting { size: Size::Quick, machine: machine::Machine::read() };
    let points = (e.points)(&setting);
    let mut series: Vec<(&str, &str, Vec<String>)> = Vec::new();
    for point in &points {
        match series.iter_mut().find(|(name, _, _)| *name == point.series) {
            Some((_, _, xs)) => xs.push(point.x.to_string()),
            None => series.push((&point.series, point.task.name(), vec![point.x.to_string()])),
        }
    }
    text.push_str("\nCurves of a quick run\n");
    for (name, task, xs) in series {
        text.push_str(&format!("  {name} ({task}): {}\n", xs.join(", ")));
    }
    for limit in (e.limits)(&setting) {
        text.push_str(&format!("  Left out: {limit}\n"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_name_their_experiment() {
        assert_eq!(chosen(&["c000-14".to_owned()]).unwrap()[0].id, "000-exchange");
        assert_eq!(chosen(&[]).unwrap().len(), experiments::ALL.len());
        assert!(chosen(&["nonsense".to_owned()]).is_err_and(|e| e.0.contains("nonsense")));
        assert!(show("C002-6").unwrap().contains("002-uts") || show("C002-6").unwrap().contains("tree"));
        assert_eq!(claims()[0].1.id, "C000-1");
        assert_eq!(claims()[70].1.id, "C004-10");
        assert!(list().lines().count() > 80);
    }
}
