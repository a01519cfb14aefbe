//! Exchanges: arrays that grow, shrink and go round a ring of pipes.

use crate::claims::{Claim, Ratio, Verdict, View, all_above, all_of, all_within};
use crate::plan::{Curve, Experiment, Plot, Point, Program, Setting, Size, Task};

const ID: &str = "000-exchange";
/// The soft limit of open files with which the paper's program failed.
const USUAL_LIMIT: u64 = 1024;

fn points(setting: &Setting) -> Vec<Point> {
    let k = setting.size.pick(1 << 10, 1 << 13, 1 << 18);
    let rebuild = u8::from(setting.size == Size::Full);
    let counts: &[u64] = setting.size.pick(&[1, 2], &[1, 2, 8, 32, 128, 512], &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
    let mut points = Vec::new();
    for &n in counts {
        let mut add = |series: &str, task, args: &str| {
            let point = Point::new(series, n as f64, task, Program::C("exchange"));
            points.push(point.args(format!("n={n} k={k} rebuild={rebuild} {args}")));
        };
        add("T", Task::Kernel, "kind=t affinity=interleave");
        add("P", Task::Process, "kind=p affinity=interleave");
        add("U", Task::User, "kind=t");
        if n == 32 {
            add("T, none", Task::Kernel, "kind=t affinity=none");
            add("P, none", Task::Process, "kind=p affinity=none");
        }
    }
    for (series, task, kind) in [("T, 1024 files", Task::Kernel, "t"), ("P, 1024 files", Task::Process, "p")] {
        let mut point =
            Point::new(series, 512.0, task, Program::C("exchange")).args(format!("n=512 k={k} kind={kind}"));
        point.files = Some(USUAL_LIMIT);
        point.may_fail = true;
        point.rounds = Some(1);
        points.push(point);
    }
    points
}

fn limits(setting: &Setting) -> Vec<String> {
    match setting.size {
        Size::Full => Vec::new(),
        _ => vec!["the heap is not built anew for each addition, and there are fewer iterations".to_owned()],
    }
}

fn crossover(view: &View) -> Verdict {
    let small: Vec<Ratio> = view
        .ratios(ID, "wall", "P", "T")
        .into_iter()
        .zip(view.store.xs(ID, "P"))
        .filter(|(_, n)| *n < 128.0)
        .map(|p| p.0)
        .collect();
    let large: Vec<Ratio> =
        [128.0, 256.0, 512.0].into_iter().filter_map(|n| view.ratio(ID, "wall", "T", "P", n)).collect();
    if small.is_empty() || large.is_empty() {
        return Verdict::not_measured(view.why_not(ID));
    }
    all_of(&[
        all_above(&small, 1.0, "below 128 tasks, processes to threads"),
        all_above(&large, 1.0, "from 128 tasks on, threads to processes"),
    ])
}

fn fewer_iterations(view: &View) -> Verdict {
    let cpus = view.cpus();
    let most = view.store.xs(ID, "T").last().copied().unwrap_or_default();
    let at = |n, metric| view.get(ID, "T", n, metric);
    let Some(((less, more), (less_done, more_done))) =
        Option::zip(Option::zip(at(cpus, "time"), at(most, "time")), Option::zip(at(cpus, "done"), at(most, "done")))
    else {
        return Verdict::not_measured(view.why_not(ID));
    };
    let per = |times: &[f64], done: &[f64]| -> Vec<f64> { times.iter().zip(done).map(|(t, d)| t / d).collect() };
    let (each_less, each_more) = (per(&less, &less_done), per(&more, &more_done));
    let share = crate::stats::median(&more_done) / crate::stats::median(&less_done);
    all_of(&[
        all_above(
            &[Ratio::new(format!("T at {cpus} / at {most}:"), &less, &more)],
            1.0,
            "time with as many threads as CPUs to that with many",
        ),
        all_within(
            &[Ratio::new("time of one iteration, many to few threads:", &each_more, &each_less)],
            0.8,
            1.25,
            "if fewer iterations explain it, an iteration costs the same",
        ),
    ])
    .and(format!("Iterations done with {most} tasks to those with {cpus}: {}.", crate::claims::short(share)))
}

fn descriptors_end(view: &View) -> Verdict {
    let find = |series: &str| view.store.samples.iter().find(|s| s.experiment == ID && s.series == series);
    let (Some(threads), Some(processes)) = (find("T, 1024 files"), find("P, 1024 files")) else {
        return Verdict::not_measured(view.why_not(ID));
    };
    let says = |failure: &Option<String>| failure.clone().unwrap_or_else(|| "success".to_owned());
    Verdict::counted(
        threads.failure.is_some(),
        format!(
            "512 threads with a limit of 1024 open files: {}. 512 processes: {} (here the main program opens all pipes).",
            says(&threads.failure),
            says(&processes.failure)
        ),
    )
}

fn not_the_switch_alone(view: &View) -> Verdict {
    let ratios = (|| {
        let moderate = |experiment: &str, label: &str, a: &str, b: &str| {
            let ratio = |n: f64| view.ratio(experiment, "wall", a, b, n);
            let ratios: Vec<Ratio> = [2.0, 4.0, 8.0, 16.0, 32.0].into_iter().filter_map(ratio).collect();
            Ratio::pooled(label, &ratios)
        };
        Some(vec![
            moderate("000-alloc", "allocation, threads / processes:", "T, frees", "P, frees")?,
            moderate(ID, "exchanges, processes / threads:", "P", "T")?,
        ])
    })();
    let Some(ratios) = ratios else { return Verdict::not_measured(view.why_not(ID)) };
    let switch = |series: &str| view.get("000-space", series, 0.0, "turn").map(|v| crate::stats::median(&v));
    let switches = Option::zip(switch("threads"), switch("processes")).map_or_else(String::new, |(t, p)| {
        let short = crate::claims::short;
        format!("A switch takes {} ns between threads and {} ns between processes in both.", short(t), short(p))
    });
    all_above(
        &ratios,
        1.0,
        "with the same switches processes win where memory is managed and threads where data is exchanged (2 to 32 tasks)",
    )
    .and(switches)
}

static CLAIMS: [Claim; 4] = [
    Claim {
        id: "C000-14",
        says: "Exchanges: threads are faster when there are few, processes from 128 tasks on",
        rule: crossover,
    },
    Claim {
        id: "C000-15",
        says: "Exchanges: time falls with the number of tasks because the first to finish has fewer iterations",
        rule: fewer_iterations,
    },
    Claim { id: "C000-16", says: "Exchanges: 512 threads hit the limit of open files", rule: descriptors_end },
    Claim {
        id: "C000-21",
        says: "The speed of context switches alone is no criterion: what counts is how much a program manages resources and how much it exchanges",
        rule: not_the_switch_alone,
    },
];

pub static EXPERIMENT: Experiment = Experiment {
    id: ID,
    title: "Arrays passed round a ring of pipes",
    readme: include_str!("README.md"),
    seconds: 27.0,
    hours: 1.5,
    points,
    limits,
    claims: &CLAIMS,
    plots: &[Plot {
        title: "Time until the end, by number of tasks",
        series: &["T", "P", "U"],
        metric: "wall",
        axes: ("tasks", "s"),
        published: &[
            Curve {
                name: "threads, 2 x Xeon X5675",
                points: &[
                    (1.0, 80.621),
                    (2.0, 62.323),
                    (4.0, 37.922),
                    (8.0, 20.562),
                    (16.0, 12.790),
                    (32.0, 8.963),
                    (64.0, 7.179),
                    (128.0, 6.388),
                    (256.0, 6.924),
                ],
            },
            Curve {
                name: "processes, 2 x Xeon X5675",
                points: &[
                    (1.0, 90.608),
                    (2.0, 65.855),
                    (4.0, 39.451),
                    (8.0, 22.577),
                    (16.0, 13.821),
                    (32.0, 10.316),
                    (64.0, 7.397),
                    (128.0, 6.317),
                    (256.0, 5.637),
                    (512.0, 5.126),
                ],
            },
        ],
    }],
    published: &[("threads, 512 tasks", "failed: no more descriptors")],
};
