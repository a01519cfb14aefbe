//! fib: what it costs to make and join a task, as one thread per call and as fork-join.

use crate::claims::{Claim, Ratio, Verdict, View, all_above, all_of, all_within, refutable};
use crate::experiments::{doubling, no_limits};
use crate::plan::{Contender, Curve, Experiment, Plot, Point, Program, Setting, Task};

const ID: &str = "002-fib";

/// The rivals in Rust, and whether they make something like a thread for each call, or fork and join.
static CONTENDERS: [(Contender, bool); 4] = [
    (Contender { kernel: "fib", name: "rayon", check: "fib", figure: "call" }, false),
    (Contender { kernel: "fib", name: "chili", check: "fib", figure: "call" }, false),
    (Contender { kernel: "fib-threads", name: "tokio", check: "fib", figure: "call" }, true),
    (Contender { kernel: "fib-threads", name: "may", check: "fib", figure: "call" }, true),
];

/// All rivals.
const RIVALS: [&str; 7] = ["OpenMP", "TBB", "Go", "rayon", "chili", "tokio", "may"];

/// How many calls fib(n) makes.
fn calls(n: u64) -> f64 {
    let (next, _) = (0..=n).fold((0.0, 1.0), |(a, b), _| (b, a + b));
    2.0 * next - 1.0
}

fn points(setting: &Setting) -> Vec<Point> {
    let large = setting.size.pick(15, 33, 40);
    let (threads, rivals) = (setting.size.pick(6, 15, 20), setting.size.pick(8, 23, 27));
    let fib = |series: &str, x: u64, task, program, n: u64, args: &str| {
        let mut point =
            Point::new(series, x as f64, task, program).args(format!("n={n} {args}")).group(format!("fib {n}"));
        point.workers = u32::try_from(x).ok();
        point
    };
    let mut points = vec![
        fib("plain C", 1, Task::Plain, Program::C("fib"), large, "mode=plain"),
        fib("plain", 1, Task::Plain, Program::Child("fib"), large, "mode=plain"),
        fib("far join", 1, Task::Join, Program::Child("fib"), large, "mode=far"),
    ];
    for workers in doubling(setting.machine.cpus) {
        points.push(fib("join", workers, Task::Join, Program::Child("fib"), large, "mode=join"));
        points.push(fib("spawn", workers, Task::User, Program::Child("fib"), threads, "mode=spawn"));
        points.push(fib("threads, Heddle", workers, Task::User, Program::C("fib"), threads, "mode=threads"));
        for (series, contender, n) in
            CONTENDERS.iter().map(|(c, of_threads)| (c.name, c, if *of_threads { threads } else { rivals }))
        {
            let mut point = fib(series, workers, Task::Rival, Program::Contender(contender), n, "");
            point.args = [workers, n, 1].map(|n| n.to_string()).to_vec();
            point.items = calls(n);
            points.push(point);
        }
        for (series, program) in [("OpenMP", "fib_omp"), ("TBB", "fib_tbb"), ("Go", "fib_go")] {
            let args = format!("threads={workers}");
            points.push(fib(series, workers, Task::Rival, Program::Rival(program), rivals, &args));
        }
    }
    if setting.machine.cpus > 1 {
        let theft = Point::new("theft", setting.machine.cpus as f64, Task::Join, Program::Child("theft"));
        points.push(theft.args(format!("mode=join count={}", setting.size.pick(50, 2000, 20_000))));
    }
    let nptl = Point::new("threads, NPTL", setting.machine.cpus as f64, Task::Kernel, Program::C("fib"));
    points.push(nptl.args(format!("n={} mode=threads", threads - 2)).group(format!("fib {}", threads - 2)));
    points
}

/// CPU nanoseconds per call with that many workers.
fn cost(view: &View, series: &str, workers: f64) -> Option<Vec<f64>> {
    Some(view.get(ID, series, workers, "call")?.into_iter().map(|ns| ns * workers).collect())
}

fn seventy_two(view: &View) -> Verdict {
    let Some(one) = cost(view, "threads, Heddle", 1.0) else { return Verdict::not_measured(view.why_not(ID)) };
    let join = cost(view, "join", 1.0).map_or(f64::NAN, |join| crate::stats::median(&join));
    let verdict = all_within(
        &[Ratio::new(
            "a user thread made and joined by pthread_create and pthread_join, 1 worker, / 72 ns:",
            &one,
            &vec![72.0; one.len()],
        )],
        0.0,
        1.25,
        "the interface that programs have",
    )
    .and(format!("A fork and join of the library costs {} ns per call.", crate::claims::short(join)));
    refutable(verdict, "The second half of the claim wants 32 cores.")
}

fn ten_microseconds(view: &View) -> Verdict {
    let cpus = view.cpus();
    let all = (|| Some((view.get(ID, "threads, NPTL", cpus, "call")?, cost(view, "join", 1.0)?)))();
    let Some((nptl, join)) = all else { return Verdict::not_measured(view.why_not(ID)) };
    let ten = vec![10_000.0; nptl.len()];
    all_of(&[
        all_within(
            &[Ratio::new("a kernel thread made and joined / 10 us:", &nptl, &ten)],
            0.316,
            3.16,
            "order of magnitude",
        ),
        all_above(
            &[Ratio::new("kernel thread / fork and join of the library:", &nptl, &join)],
            20.0,
            "negligible beside it",
        ),
    ])
}

fn grows_least(view: &View) -> Verdict {
    let cpus = view.cpus();
    if cpus < 2.0 {
        return Verdict::cannot("one CPU shows no growth");
    }
    let growth = |series: &str| {
        let (one, many) = (cost(view, series, 1.0)?, cost(view, series, cpus)?);
        let base = crate::stats::median(&one);
        Some((
            Ratio::new(format!("{series}, cost at {cpus} workers / at 1:"), &many, &one),
            many.iter().map(|x| x / base).collect::<Vec<f64>>(),
        ))
    };
    let Some((ours, our_growth)) = growth("threads, Heddle") else { return Verdict::not_measured(view.why_not(ID)) };
    let others: Vec<(Ratio, Vec<f64>)> = RIVALS.into_iter().filter_map(growth).collect();
    if others.is_empty() {
        return Verdict::not_measured("no other runtime is installed");
    }
    let against: Vec<Ratio> = others
        .iter()
        .map(|(_, growth)| Ratio::new("growth of another / of user threads:", growth, &our_growth))
        .collect();
    let mut all = vec![ours];
    all.extend(others.into_iter().map(|(ratio, _)| ratio));
    let verdict = all_of(&[all_above(&all, 1.0, "all grow"), all_above(&against, 1.0, "ours least")]);
    refutable(verdict, "The paper's growth shows from 8 cores on.")
}

fn cilk(_: &View) -> Verdict {
    Verdict::cannot("Cilk 5 of the paper is not to be had for today's compilers, and the lab runs no other Cilk")
}

fn switching_and_calls(view: &View) -> Verdict {
    let all = (|| Some((cost(view, "far join", 1.0)?, cost(view, "join", 1.0)?, cost(view, "spawn", 1.0)?)))();
    let Some((far, near, spawn)) = all else { return Verdict::not_measured(view.why_not(ID)) };
    all_of(&[
        all_above(
            &[Ratio::new("fork-join through calls that are not inlined / inlined:", &far, &near)],
            1.0,
            "calls cost",
        ),
        all_above(
            &[Ratio::new("a thread with its stack, switched to, / fork-join on one stack:", &spawn, &near)],
            1.0,
            "switches cost",
        ),
    ])
}

static CLAIMS: [Claim; 5] = [
    Claim { id: "C002-1", says: "fib(40): 72 ns per user thread on 1 core and about 80 ns on 32", rule: seventy_two },
    Claim {
        id: "C002-2",
        says: "The system's threads cost about 10 us to make and destroy, so the overhead of light ones is negligible",
        rule: ten_microseconds,
    },
    Claim {
        id: "C002-3",
        says: "The overhead of all runtimes grows with the cores, that of the light threads least",
        rule: grows_least,
    },
    Claim {
        id: "C002-4",
        says: "Cilk has the least overhead on 1 core; the difference is the context switch and calls",
        rule: cilk,
    },
    Claim {
        id: "C002-5",
        says: "The reasons: all registers and the stack are switched, and calls into a shared library are not inlined",
        rule: switching_and_calls,
    },
];

pub static EXPERIMENT: Experiment = Experiment {
    id: ID,
    title: "fib: making and joining a task",
    readme: include_str!("README.md"),
    seconds: 10.0,
    hours: 0.2,
    points,
    limits: no_limits,
    claims: &CLAIMS,
    plots: &[Plot {
        title: "Nanoseconds per call, by workers",
        series: &[
            "plain",
            "join",
            "far join",
            "spawn",
            "threads, Heddle",
            "threads, NPTL",
            "OpenMP",
            "TBB",
            "Go",
            "rayon",
            "chili",
            "tokio",
            "may",
        ],
        metric: "call",
        axes: ("workers", "ns"),
        published: &[Curve { name: "light threads, overhead, 8 x Opteron 2380", points: &[(1.0, 72.0), (32.0, 80.0)] }],
    }],
    published: &[
        (
            "light threads, cycles on 1 core: stacks, queue, switch, join, other",
            "17.9, 8.9, 22.2, 32.2, 36.5; sum 117.6",
        ),
        (
            "Cilk, cycles on 1 core: stacks, queue, switch, join, other",
            "14.8, 2.1, 2.0, 37.9, 5.6; sum 62.2 as printed",
        ),
        ("the system's threads", "of the order of 10 us"),
    ],
};
