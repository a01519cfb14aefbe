//! The experiments: each has a folder in `experiments/` with its programs, its README and its plan.

use crate::plan::Experiment;

#[path = "../experiments/000-alloc/plan.rs"]
mod alloc;
#[path = "../experiments/000-exchange/plan.rs"]
mod exchange;
#[path = "../experiments/002-fib/plan.rs"]
mod fib;
#[path = "../experiments/000-matrix/plan.rs"]
mod matrix;
#[path = "../experiments/001-pass/plan.rs"]
mod pass;
#[path = "../experiments/002-pingpong/plan.rs"]
mod pingpong;
#[path = "../experiments/003-sharing/plan.rs"]
mod sharing;
#[path = "../experiments/000-space/plan.rs"]
mod space;
#[path = "../experiments/004-threads/plan.rs"]
mod threads;
#[path = "../experiments/002-uts/plan.rs"]
mod uts;
#[path = "../experiments/002-waits/plan.rs"]
mod waits;

pub use uts::TREES;

/// All, in the order in which they run.
pub static ALL: [&Experiment; 11] = [
    &alloc::EXPERIMENT,
    &matrix::EXPERIMENT,
    &exchange::EXPERIMENT,
    &space::EXPERIMENT,
    &pass::EXPERIMENT,
    &fib::EXPERIMENT,
    &uts::EXPERIMENT,
    &pingpong::EXPERIMENT,
    &waits::EXPERIMENT,
    &sharing::EXPERIMENT,
    &threads::EXPERIMENT,
];

/// Nothing is left out.
fn no_limits(_: &crate::plan::Setting) -> Vec<String> {
    Vec::new()
}

/// 1, 2, 4 ... up to `most`, and `most` itself.
fn doubling(most: u64) -> Vec<u64> {
    let mut list: Vec<u64> = std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < most).collect();
    list.push(most);
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::plan::{Setting, Size};
    use std::collections::BTreeSet;

    #[test]
    fn every_claim_has_a_rule_and_is_decided_once() {
        let mut expected = BTreeSet::new();
        for (seed, count) in [("000", 22), ("001", 8), ("002", 23), ("003", 8), ("004", 10)] {
            expected.extend((1..=count).map(|i| format!("C{seed}-{i}")));
        }
        assert_eq!(expected.len(), 71);
        let ids: Vec<String> = ALL.iter().flat_map(|e| e.claims).map(|c| c.id.to_owned()).collect();
        assert_eq!(ids.len(), 71, "a claim twice, or one too many");
        assert_eq!(ids.into_iter().collect::<BTreeSet<_>>(), expected);
        assert!(ALL.iter().flat_map(|e| e.claims).all(|c| c.says.len() > 20));
    }

    #[test]
    fn points_are_told_apart_and_quick_fits() {
        let total: f64 = ALL.iter().map(|e| e.seconds).sum();
        assert!(total <= 225.0, "{total} s planned for a quick run");
        for size in [Size::Tiny, Size::Quick, Size::Full] {
            let setting = Setting { size, machine: Machine::read() };
            for experiment in ALL {
                let points = (experiment.points)(&setting);
                let keys: BTreeSet<String> = points.iter().map(|p| p.key()).collect();
                assert_eq!(keys.len(), points.len(), "{}: two points with one name", experiment.id);
                assert!(!points.is_empty() && experiment.readme.len() > 200, "{}", experiment.id);
                for plot in experiment.plots {
                    assert!(
                        plot.series.iter().any(|s| points.iter().any(|p| p.series == *s)),
                        "{}: '{}' shows nothing",
                        experiment.id,
                        plot.title
                    );
                }
            }
        }
    }
}
