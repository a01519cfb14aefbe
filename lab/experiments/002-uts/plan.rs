//! Unbalanced tree search: does the load find its way to all workers?

use crate::claims::{Claim, Ratio, Verdict, View, all_above, all_below, all_of, refutable};
use crate::experiments::doubling;
use crate::plan::{Curve, Experiment, Plot, Point, Program, Setting, Size, Task};

const ID: &str = "002-uts";

/// Children of the root, and the seed: 2000 and 42 is the sample tree T3. The others are smaller and as unbalanced; that of a
/// quick run has 378,865 nodes.
pub const TREES: [(u32, u32); 3] = [(20, 42), (200, 13), (2000, 42)];

/// Children of the roots, the first seed, and how many trees: whether OpenMP's threads share the work of one tree or do it one
/// after the other depends on how its first tasks fall.
const FOREST: (u32, u32, u32) = (100, 12, 20);

fn tree(setting: &Setting) -> (u32, u32) {
    setting.size.pick(TREES[0], TREES[1], TREES[2])
}

fn points(setting: &Setting) -> Vec<Point> {
    let whole = tree(setting);
    let few = setting.size.pick((5, 42), (20, 42), TREES[1]);
    let mut points = Vec::new();
    let uts = |series: &str, x: u64, task, program, (root, seed): (u32, u32), args: &str| {
        let mut point = Point::new(series, x as f64, task, program)
            .args(format!("root={root} seed={seed} {args}"))
            .group(format!("tree {root} {seed}"));
        point.workers = u32::try_from(x).ok();
        point
    };
    let (root, seed, count) = setting.size.pick((5, 42, 3), FOREST, FOREST);
    points.push(uts("plain C", 1, Task::Plain, Program::C("uts"), whole, "mode=plain"));
    points.push(uts("plain", 1, Task::Plain, Program::Child("uts"), whole, "mode=plain"));
    for workers in doubling(setting.machine.cpus) {
        points.push(uts("join", workers, Task::Join, Program::Child("uts"), whole, "mode=join"));
        for (series, program) in [("OpenMP", "uts_omp"), ("TBB", "uts_tbb")] {
            let args = format!("threads={workers}");
            points.push(uts(series, workers, Task::Rival, Program::Rival(program), whole, &args));
        }
        let args = format!("threads={workers} trees={count}");
        let forest = uts("OpenMP, many trees", workers, Task::Rival, Program::Rival("uts_omp"), (root, seed), &args);
        points.push(forest.group(format!("{count} trees")));
        for (series, args) in [
            ("threads, Heddle", "mode=threads"),
            ("stacks touched before", "mode=threads warm=1"),
            ("stacks freed at the end", "mode=threads detach=1"),
        ] {
            points.push(uts(series, workers, Task::User, Program::C("uts"), few, args));
        }
    }
    // Thousands of kernel threads live at the same time in a larger tree.
    points.push(uts(
        "threads, NPTL",
        setting.machine.cpus,
        Task::Kernel,
        Program::C("uts"),
        if few.0 > 20 { TREES[0] } else { few },
        "mode=threads",
    ));
    points
}

fn limits(setting: &Setting) -> Vec<String> {
    match setting.size {
        Size::Full => vec![
            "one thread per node only in the tree of a quick run, on the kernel's threads only in one of 6213 nodes"
                .to_owned(),
        ],
        _ => vec![format!(
            "a tree with {} children of the root instead of 2000; one thread per node in a smaller one",
            tree(setting).0
        )],
    }
}

fn time(view: &View, series: &str, workers: f64) -> Option<Vec<f64>> {
    view.get(ID, series, workers, "time")
}

fn speedup(view: &View, series: &str, plain: &str, workers: f64) -> Option<Ratio> {
    Some(Ratio::new(
        format!("speedup of {series} with {workers} workers:"),
        &time(view, plain, 1.0)?,
        &time(view, series, workers)?,
    ))
}

fn near_linear(view: &View) -> Verdict {
    let cpus = view.cpus();
    let Some(ours) = speedup(view, "join", "plain", cpus) else { return Verdict::not_measured(view.why_not(ID)) };
    let others: Vec<Ratio> = ["OpenMP", "TBB"]
        .into_iter()
        .filter_map(|other| {
            // Each against the plain search in its own language, so that compilers are not compared.
            let (a, b) = (time(view, "plain", 1.0)?, time(view, "plain C", 1.0)?);
            let language = crate::stats::median(&a) / crate::stats::median(&b);
            let theirs: Vec<f64> = time(view, other, cpus)?.iter().map(|t| t * language).collect();
            Some(Ratio::new(format!("time of {other} / of fork-join:"), &theirs, &time(view, "join", cpus)?))
        })
        .collect();
    let mut parts = vec![all_above(&[ours], 0.8 * cpus, "speedup over the plain search, near the number of workers")];
    if !others.is_empty() {
        parts.push(all_above(&others, 1.0, "other runtimes slower"));
    }
    let verdict = all_of(&parts);
    if cpus >= 10.0 { verdict } else { refutable(verdict, "The claim goes up to 10 cores.") }
}

fn wants_32(what: &str) -> Verdict {
    Verdict::cannot(format!("the claim is about {what}"))
}

fn degrades(view: &View) -> Verdict {
    match view.cpus() {
        n if n < 32.0 => {
            let here = speedup(view, "join", "plain", n).map_or_else(String::new, |r| format!("Here: {}.", r.words()));
            wants_32("more than 16 and 32 cores.").and(here)
        }
        _ => match (speedup(view, "join", "plain", 32.0), speedup(view, "join", "plain", 16.0)) {
            (Some(many), Some(_)) => all_below(&[many], 4.0, "speedup with 32 workers"),
            _ => Verdict::not_measured(view.why_not(ID)),
        },
    }
}

fn tbb_slower(view: &View) -> Verdict {
    let ratios: Vec<Ratio> = view
        .store
        .xs(ID, "TBB")
        .into_iter()
        .filter_map(|n| {
            let (a, b) = (time(view, "plain", 1.0)?, time(view, "plain C", 1.0)?);
            let language = crate::stats::median(&a) / crate::stats::median(&b);
            let theirs: Vec<f64> = time(view, "TBB", n)?.iter().map(|t| t * language).collect();
            Some(Ratio::new(format!("TBB / fork-join with {n} workers:"), &theirs, &time(view, "join", n)?))
        })
        .collect();
    if ratios.is_empty() {
        let absent = view.store.absent.iter().find(|(id, why)| id == ID && why.starts_with("uts_tbb "));
        return match absent {
            Some((_, why)) => Verdict::cannot(format!(
                "the claim is about TBB, which is not here ({why}); the same command measures it then"
            )),
            None => Verdict::not_measured(view.why_not(ID)),
        };
    }
    refutable(all_above(&ratios, 1.0, "TBB slower"), "That it degrades less shows beyond 16 cores.")
}

fn openmp_gains_nothing(view: &View) -> Verdict {
    let cpus = view.cpus();
    if cpus < 2.0 {
        return Verdict::cannot("one CPU lets nobody gain");
    }
    let gain = |series: &str| view.growth(ID, "time", series, 1.0, cpus);
    match Option::zip(gain("OpenMP, many trees"), gain("OpenMP")) {
        Some((many, one)) => all_below(&[many], 1.2, "gain of today's OpenMP tasks (the paper: GCC 4.4)").and(format!(
            "On the tree of the other curves alone it is {} to {}, by luck.",
            crate::claims::short(one.interval(1).low),
            crate::claims::short(one.interval(1).high)
        )),
        None => Verdict::not_measured(view.why_not(ID)),
    }
}

fn not_imbalance(view: &View) -> Verdict {
    let cpus = view.cpus();
    let all = (|| {
        let busy = |series: &str, workers| view.get(ID, series, workers, "busy");
        Some((time(view, "plain", 1.0)?, time(view, "join", cpus)?, busy("join", cpus)?, busy("plain", 1.0)?))
    })();
    let Some((plain, join, busy, alone)) = all else { return Verdict::not_measured(view.why_not(ID)) };
    if cpus < 2.0 {
        return Verdict::cannot("one CPU has no imbalance");
    }
    let base = crate::stats::median(&plain);
    let loss: Vec<f64> = join.iter().map(|t| (cpus - base / t) / cpus).collect();
    // One thread is never idle: what it does not get of its CPU, other programs have.
    let idle: Vec<f64> = busy.iter().zip(&alone).map(|(b, alone)| (1.0 - b / (cpus * alone)).max(0.0)).collect();
    let words = format!(
        "Here {} % of the time is idle, and {} % of the speedup is lost.",
        crate::claims::short(100.0 * crate::stats::median(&idle)),
        crate::claims::short(100.0 * crate::stats::median(&loss))
    );
    if crate::stats::median(&loss) < 0.03 {
        return Verdict::cannot(format!("There is no loss to explain on this many CPUs. {words}"));
    }
    all_below(&[Ratio::new("idle time / lost speedup:", &idle, &loss)], 0.5, "imbalance would make them equal")
        .and(words)
}

fn faults_are_the_cause(view: &View) -> Verdict {
    let cpus = view.cpus();
    let cost = Option::zip(view.get(ID, "threads, Heddle", 1.0, "node"), view.get(ID, "threads, Heddle", cpus, "node"));
    let here = cost.map_or_else(String::new, |(one, many)| {
        let short = crate::claims::short;
        format!(
            " Here a thread and its node cost {} ns on 1 worker and {} ns of CPU time on {cpus}.",
            short(crate::stats::median(&one)),
            short(crate::stats::median(&many) * cpus)
        )
    });
    Verdict::cannot(format!("the claim is about 32 cores that fault pages in at the same time.{here}"))
}

fn bound_lifetimes(view: &View) -> Verdict {
    let of = |metric| view.ratios(ID, metric, "threads, Heddle", "stacks freed at the end");
    let (faults, memory) = (of("faults"), of("memory_mib"));
    if faults.is_empty() {
        return Verdict::not_measured(view.why_not(ID));
    }
    all_of(&[
        all_above(&faults, 1.0, "page faults per node, stacks kept until the join to stacks freed at the end"),
        all_above(&memory, 1.0, "peak memory, likewise"),
    ])
}

fn touched_stacks(view: &View) -> Verdict {
    let ratios = view.ratios(ID, "node", "threads, Heddle", "stacks touched before");
    let here: Vec<String> = ratios.iter().map(|r| crate::claims::short(r.value())).collect();
    Verdict::cannot(format!(
        "the collapse that they remove shows on 32 cores. Here the time with fresh stacks to that with touched ones is {}.",
        here.join(", ")
    ))
}

static CLAIMS: [Claim; 8] = [
    Claim {
        id: "C002-6",
        says: "UTS: near-linear up to about 10 cores and faster than the others there",
        rule: near_linear,
    },
    Claim { id: "C002-7", says: "UTS: degrades beyond 16 cores, about 3 times the plain search at 32", rule: degrades },
    Claim { id: "C002-8", says: "UTS: TBB is slower up to about 16 cores but degrades less", rule: tbb_slower },
    Claim { id: "C002-9", says: "UTS: OpenMP tasks gain almost nothing from more cores", rule: openmp_gains_nothing },
    Claim {
        id: "C002-10",
        says: "UTS: the loss is not imbalance: idle time is far too small to explain it",
        rule: not_imbalance,
    },
    Claim {
        id: "C002-11",
        says: "UTS: the cause is page faults when stacks are first touched: making a thread costs 140 ns, on 32 cores 4020 ns",
        rule: faults_are_the_cause,
    },
    Claim {
        id: "C002-12",
        says: "UTS: stacks that can be used again only after the join mean more memory and more faults",
        rule: bound_lifetimes,
    },
    Claim { id: "C002-13", says: "UTS: stacks touched beforehand remove the collapse", rule: touched_stacks },
];

pub static EXPERIMENT: Experiment = Experiment {
    id: ID,
    title: "Unbalanced tree search",
    readme: include_str!("README.md"),
    seconds: 17.0,
    hours: 0.5,
    points,
    limits,
    claims: &CLAIMS,
    plots: &[
        Plot {
            title: "Time of the search, by workers",
            series: &["plain", "plain C", "join", "OpenMP", "TBB"],
            metric: "time",
            axes: ("workers", "s"),
            published: &[],
        },
        Plot {
            title: "Time of OpenMP for twenty small trees, by threads",
            series: &["OpenMP, many trees"],
            metric: "time",
            axes: ("threads", "s"),
            published: &[],
        },
        Plot {
            title: "A thread per node: nanoseconds per node, by workers",
            series: &["threads, Heddle", "stacks touched before", "stacks freed at the end", "threads, NPTL"],
            metric: "node",
            axes: ("workers", "ns"),
            published: &[Curve {
                name: "making a light thread, 8 x Opteron 2380",
                points: &[(1.0, 140.0), (32.0, 4020.0)],
            }],
        },
    ],
    published: &[
        ("speedup over the plain search, 32 cores", "about 3"),
        ("speedup over one's own time on 1 core, 32 cores", "about 4"),
        ("idle time that imbalance would need, and that was measured, 32 cores", "87.5 % and about 5 %"),
        ("the tree T3", "4,112,897 nodes, 3,599,034 leaves, depth 1572"),
    ],
};
