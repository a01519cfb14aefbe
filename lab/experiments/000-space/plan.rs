//! What one address space costs: switches between threads and processes, the TLB after them, and maps that come and go.

use crate::claims::{Claim, Ratio, Verdict, View, all_above, all_below};
use crate::experiments::no_limits;
use crate::plan::{Experiment, Plot, Point, Program, Setting, Task};

const ID: &str = "000-space";
/// Pages touched in a turn.
const PAGES: u64 = 1024;

fn points(setting: &Setting) -> Vec<Point> {
    let turns = setting.size.pick(200, 10_000, 100_000);
    let rounds = setting.size.pick(100, 5_000, 50_000);
    let mut points = Vec::new();
    for pages in [0, PAGES] {
        for (series, task, kind) in [("threads", Task::Kernel, "t"), ("processes", Task::Process, "p")] {
            let point = Point::new(series, pages as f64, task, Program::C("turns"));
            points.push(point.args(format!("kind={kind} turns={turns} pages={pages}")));
        }
    }
    for (series, flush) in [("alone", 0), ("alone, TLB emptied", 1)] {
        let point = Point::new(series, PAGES as f64, Task::Plain, Program::C("turns"));
        points.push(point.args(format!("kind=alone turns={turns} pages={PAGES} flush={flush}")));
    }
    for n in crate::experiments::doubling(setting.machine.cpus) {
        for (series, task, kind) in [
            ("maps, threads", Task::Kernel, "t"),
            ("maps, processes", Task::Process, "p"),
            ("maps, user threads", Task::User, "t"),
        ] {
            let point = Point::new(series, n as f64, task, Program::C("maps"));
            points.push(point.args(format!("kind={kind} n={n} rounds={rounds} pages=4")).group(format!("maps {n}")));
        }
    }
    points
}

fn minus(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

fn tlb_survives(view: &View) -> Verdict {
    let at = |series: &str, pages: u64| view.get(ID, series, pages as f64, "turn");
    let all =
        (|| Some((at("threads", 0)?, at("threads", PAGES)?, at("alone", PAGES)?, at("alone, TLB emptied", PAGES)?)))();
    let Some((bare, touching, alone, emptied)) = all else { return Verdict::not_measured(view.why_not(ID)) };
    let control = Ratio::new("touching with an emptied TLB / without:", &emptied, &alone);
    if !control.above(1.2) {
        return Verdict::not_measured(
            "emptying the TLB does not show in the time of touching here, so its absence would prove nothing",
        );
    }
    // What touching costs more after a switch, as a part of what it costs more after the TLB was emptied.
    let extra = minus(&minus(&touching, &bare), &alone);
    let flush = minus(&emptied, &alone);
    let part = Ratio::new("part of the cost of an emptied TLB that a switch between threads has:", &extra, &flush);
    let processes =
        Option::zip(at("processes", 0), at("processes", PAGES)).map_or_else(String::new, |(bare, touching)| {
            let extra = minus(&minus(&touching, &bare), &alone);
            let part = crate::stats::median(&extra) / crate::stats::median(&flush);
            format!("Between processes the part is {}.", crate::claims::short(part))
        });
    all_below(&[part], 0.5, "after a switch between threads the pages are found as before").and(processes)
}

fn coherence_costs(view: &View) -> Verdict {
    let cpus = view.cpus();
    let at = |series: &str, n: f64, metric| view.get(ID, series, n, metric);
    let all = (|| {
        Some((
            at("maps, threads", cpus, "round")?,
            at("maps, processes", cpus, "round")?,
            at("processes", 0.0, "turn")?,
        ))
    })();
    let Some((threads, processes, turn)) = all else { return Verdict::not_measured(view.why_not(ID)) };
    if cpus < 2.0 {
        return Verdict::cannot("one CPU has nobody to be coherent with");
    }
    let extra = minus(&threads, &processes);
    all_above(
        &[Ratio::new(
            "what a map, touch and unmap costs threads more than processes / a switch between processes:",
            &extra,
            &turn,
        )],
        1.0,
        &format!("{cpus} tasks on {cpus} CPUs"),
    )
}

static CLAIMS: [Claim; 2] = [
    Claim {
        id: "C000-19",
        says: "Linux does not empty the TLB when it switches between threads of one process",
        rule: tlb_survives,
    },
    Claim {
        id: "C000-20",
        says: "Keeping one address space coherent over several CPUs may cost as much as switching between processes",
        rule: coherence_costs,
    },
];

pub static EXPERIMENT: Experiment = Experiment {
    id: ID,
    title: "What one address space costs: switches, the TLB, maps",
    readme: include_str!("README.md"),
    seconds: 11.0,
    hours: 0.2,
    points,
    limits: no_limits,
    claims: &CLAIMS,
    plots: &[Plot {
        title: "Map, touch and unmap four pages, by number of tasks",
        series: &["maps, threads", "maps, processes", "maps, user threads"],
        metric: "round",
        axes: ("tasks", "ns"),
        published: &[],
    }],
    published: &[],
};
