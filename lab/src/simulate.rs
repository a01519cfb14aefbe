//! What limits fork-join on more CPUs than there are: a discrete-event simulation with costs measured here.
//!
//! The model: each worker works through a stack of jobs of its own, depth first, a node at a time. A fork pushes a job. A worker
//! without jobs takes the oldest job of another, chosen at random among those that have any; that takes the thief the measured
//! time of a theft, and costs every other worker an interrupt (the thief's heavy fence). A worker that finds nothing looks again
//! after [`LOOK`]. A join costs nothing but its part of the measured cost of a fork; memory, caches and page faults are not in the
//! model, so it is a bound from above.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use serde_json::{Value, json};

use crate::child;
use crate::claims::{View, short};
use crate::experiments;
use crate::stats::{self, Random};
use crate::store::Store;

/// Nanoseconds between two looks for work.
const LOOK: f64 = 500.0;
/// Nanoseconds that a theft costs each worker that is interrupted; measured on one machine only.
const INTERRUPT: f64 = 100.0;
/// Nanoseconds of a theft where it could not be measured (one CPU).
const THEFT: f64 = 2_000.0;
/// The largest fib that is simulated.
const LARGEST_FIB: u32 = 30;
/// Workers that are simulated.
const WORKERS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// Costs in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// A node without forks.
    pub node: f64,
    /// What forks add to a node on average.
    pub fork: f64,
    /// A theft, for the thief.
    pub theft: f64,
}

/// A tree of work: the children of a node are neighbours.
pub struct Tree {
    first: Vec<u32>,
    count: Vec<u32>,
}

impl Tree {
    /// The calls of fib(n).
    pub fn fib(n: u32) -> Self {
        Self::grow(n, |n, push| {
            if *n >= 2 {
                push(n - 1);
                push(n - 2);
            }
        })
    }

    /// The tree of the unbalanced search with that many children at the root, and that seed.
    pub fn search((of_root, seed): (u32, u32)) -> Self {
        Self::grow((child::root(seed), 0), |(state, depth), push| {
            for i in 0..child::children(state, *depth, of_root) {
                push((child::child(state, i), depth + 1));
            }
        })
    }

    fn grow<N>(root: N, children: impl Fn(&N, &mut dyn FnMut(N))) -> Self {
        let mut tree = Self { first: Vec::new(), count: Vec::new() };
        let mut queue = VecDeque::from([root]);
        let mut made = 1u32;
        while let Some(node) = queue.pop_front() {
            tree.first.push(made);
            let mut count = 0;
            children(&node, &mut |child| {
                queue.push_back(child);
                count += 1;
            });
            tree.count.push(count);
            made += count;
        }
        tree
    }

    /// Nodes.
    pub fn len(&self) -> usize {
        self.first.len()
    }
}

/// What a simulation says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Workers.
    pub workers: usize,
    /// Nanoseconds until the end.
    pub time: f64,
    /// Part of all workers' time without work.
    pub idle: f64,
    /// Thefts.
    pub thefts: usize,
}

/// Simulates.
pub fn simulate(tree: &Tree, costs: Costs, workers: usize) -> Prediction {
    // A job is a range of siblings: from..to.
    let mut stacks: Vec<VecDeque<(u32, u32)>> = vec![VecDeque::new(); workers];
    stacks[0].push_back((0, 1));
    let mut delays = vec![0.0f64; workers];
    let mut random = Random(42);
    let (mut left, mut end, mut busy, mut thefts) = (tree.len(), 0.0f64, 0.0, 0);
    // Times in picoseconds, since heaps want an order.
    let mut events: BinaryHeap<Reverse<(u64, usize)>> = (0..workers).map(|w| Reverse((0, w))).collect();
    // Each worker's event.
    let mut times = vec![0u64; workers];
    while let Some(Reverse((at, worker))) = events.pop() {
        if left == 0 {
            break;
        }
        let now = at as f64 / 1e3;
        let mut next = now + std::mem::take(&mut delays[worker]);
        if stacks[worker].is_empty() {
            // The oldest job of somebody who has at least one waiting besides the one at hand.
            let offset = random.draw() as usize % workers;
            let victim = (0..workers).map(|i| (i + offset) % workers).find(|v| *v != worker && stacks[*v].len() > 1);
            match victim.and_then(|v| stacks[v].pop_front()) {
                Some(job) => {
                    stacks[worker].push_back(job);
                    next += costs.theft;
                    thefts += 1;
                    for (other, delay) in delays.iter_mut().enumerate() {
                        if other != worker && !stacks[other].is_empty() {
                            *delay += INTERRUPT;
                        }
                    }
                }
                None => {
                    // Looks before somebody with work does something find nothing either: they need not be simulated one by one.
                    // (A theft measured on a busy machine may take milliseconds.)
                    let with_work = (0..workers).filter(|w| !stacks[*w].is_empty()).map(|w| times[w]);
                    let wait = with_work.min().map_or(0.0, |soonest| soonest as f64 / 1e3 - next);
                    next += LOOK * (wait / LOOK).ceil().max(1.0);
                }
            }
        } else if let Some((from, to)) = stacks[worker].pop_back() {
            if to - from > 1 {
                // A fork: the second half waits, the first is gone on with.
                let middle = from + (to - from) / 2;
                stacks[worker].push_back((middle, to));
                stacks[worker].push_back((from, middle));
            } else {
                let node = from as usize;
                let (first, count) = (tree.first[node], tree.count[node]);
                if count > 0 {
                    stacks[worker].push_back((first, first + count));
                }
                let cost = costs.node + costs.fork;
                next += cost;
                busy += cost;
                left -= 1;
                end = end.max(next);
            }
        }
        times[worker] = (next * 1e3) as u64;
        events.push(Reverse((times[worker], worker)));
    }
    Prediction { workers, time: end, idle: (1.0 - busy / (end * workers as f64)).max(0.0), thefts }
}

/// One program's predictions.
pub struct Study {
    /// What was simulated.
    pub title: String,
    /// With these costs.
    pub costs: Costs,
    /// Nanoseconds of the plain program.
    plain: f64,
    /// Workers, predicted, and measured nanoseconds where there are any.
    pub rows: Vec<(Prediction, Option<f64>)>,
    /// What the papers say.
    pub published: &'static str,
}

impl Study {
    /// Speedup over the plain program.
    pub fn speedup(&self, time: f64) -> f64 {
        self.plain / time
    }

    /// Head and cells of a table.
    pub fn table(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let head = ["workers", "predicted ms", "speedup", "idle %", "thefts", "measured ms", "predicted / measured"];
        let rows = self.rows.iter().map(|(p, measured)| {
            vec![
                p.workers.to_string(),
                short(p.time / 1e6),
                short(self.speedup(p.time)),
                short(p.idle * 100.0),
                p.thefts.to_string(),
                measured.map_or_else(String::new, |m| short(m / 1e6)),
                measured.map_or_else(String::new, |m| short(p.time / m)),
            ]
        });
        (head.map(str::to_owned).to_vec(), rows.collect())
    }

    /// The costs, in words.
    pub fn costs(&self) -> String {
        let c = self.costs;
        format!(
            "a node {} ns, its forks {} ns, a theft {} ns for the thief and {INTERRUPT} ns for each other worker that is busy",
            short(c.node),
            short(c.fork),
            short(c.theft)
        )
    }
}

fn study(
    view: &View,
    experiment: &str,
    metric: &str,
    tree: &Tree,
    title: String,
    published: &'static str,
) -> Option<Study> {
    let median =
        |series: &str, x: f64, metric: &str| view.get(experiment, series, x, metric).map(|v| stats::median(&v));
    let (plain, join) = (median("plain", 1.0, metric)?, median("join", 1.0, metric)?);
    let cpus = view.cpus();
    let theft = view.get("002-fib", "theft", cpus, "theft").map_or(THEFT, |v| stats::median(&v));
    let costs = Costs { node: plain, fork: (join - plain).max(0.0), theft };
    let rows = WORKERS.map(|workers| {
        let measured = median("join", workers as f64, metric).map(|ns| ns * tree.len() as f64);
        (simulate(tree, costs, workers), measured)
    });
    Some(Study { title, costs, plain: plain * tree.len() as f64, rows: rows.to_vec(), published })
}

/// What can be simulated with the costs that these results hold.
pub fn studies(store: &Store) -> Vec<Study> {
    let view = View { store };
    let check = |experiment: &str, name: &str| {
        let found =
            store.samples.iter().find(|s| s.experiment == experiment && s.series == "join" && s.failure.is_none());
        found.and_then(|s| s.checks.get(name)?.parse::<u64>().ok())
    };
    let mut studies = Vec::new();
    // Laid out call by call, so a smaller one stands for what was measured: the cost of a call does not depend on it.
    if let Some(n) = check("002-fib", "fib").and_then(index_of_fib).map(|n| n.min(LARGEST_FIB)) {
        let title = format!("fib({n})");
        let published = "light threads: 72 ns per thread on 1 core, about 80 ns on 32";
        studies.extend(study(&view, "002-fib", "call", &Tree::fib(n), title, published));
    }
    if let Some(nodes) = check("002-uts", "nodes") {
        // The sizes that runs have; another is not simulated.
        let tree = experiments::TREES.into_iter().map(Tree::search).find(|tree| tree.len() as u64 == nodes);
        if let Some(tree) = tree {
            let published =
                "near-linear to about 10 cores, about 3 at 32 with fresh stacks (which fork-join does not have)";
            let title = format!("unbalanced tree search, {nodes} nodes");
            studies.extend(study(&view, "002-uts", "node", &tree, title, published));
        }
    }
    studies
}

fn index_of_fib(value: u64) -> Option<u32> {
    let (mut a, mut b) = (0u64, 1u64);
    (0..40).find(|_| {
        let found = a == value;
        (a, b) = (b, a + b);
        found
    })
}

/// As JSON.
pub fn to_json(studies: &[Study]) -> Value {
    let study = |s: &Study| {
        let rows: Vec<Value> = s
            .rows
            .iter()
            .map(|(p, measured)| {
                json!({
                    "workers": p.workers, "predicted_ns": p.time, "speedup": s.speedup(p.time), "idle": p.idle,
                    "thefts": p.thefts, "measured_ns": measured,
                })
            })
            .collect();
        json!({"title": s.title, "costs": s.costs(), "published": s.published, "rows": rows})
    };
    Value::Array(studies.iter().map(study).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs { node: 100.0, fork: 10.0, theft: 1000.0 };

    #[test]
    fn trees_have_their_sizes() {
        assert_eq!(Tree::fib(10).len(), 177);
        assert_eq!(Tree::search((20, 42)).len(), 6213);
        assert_eq!(index_of_fib(377), Some(14));
    }

    #[test]
    fn one_worker_does_all_the_work() {
        let tree = Tree::fib(15);
        let p = simulate(&tree, COSTS, 1);
        assert!((p.time - tree.len() as f64 * 110.0).abs() < tree.len() as f64);
        assert!(p.thefts == 0 && p.idle < 0.01);
    }

    /// Costs measured on a busy machine made the report take minutes: every look of every idle worker was simulated.
    #[test]
    fn a_theft_that_takes_long_is_not_simulated_look_by_look() {
        let costs = Costs { theft: 1e12, ..COSTS };
        let p = simulate(&Tree::fib(15), costs, 128);
        // A theft of 1000 s would be some 10^11 looks.
        assert!(p.thefts > 0 && p.time > 1e12, "{p:?}");
    }

    #[test]
    fn more_workers_are_faster_within_bounds() {
        let tree = Tree::fib(20);
        let one = simulate(&tree, COSTS, 1).time;
        let mut before = f64::INFINITY;
        for workers in [1, 2, 4, 8, 16] {
            let p = simulate(&tree, COSTS, workers);
            assert!(p.time < before && p.time >= one / workers as f64 * 0.99, "{p:?}");
            before = p.time;
        }
        // A chain cannot be shared.
        let chain = Tree { first: (1..=100).collect(), count: (0..100).map(|i| u32::from(i < 99)).collect() };
        assert!(simulate(&chain, COSTS, 8).time >= simulate(&chain, COSTS, 1).time * 0.99);
        assert_eq!(simulate(&tree, COSTS, 8), simulate(&tree, COSTS, 8), "the same each time");
    }
}
