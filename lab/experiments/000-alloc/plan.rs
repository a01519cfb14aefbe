//! Allocation: rings of heap blocks that grow, are walked along and shrink at random, by threads and by processes.

use crate::claims::{Claim, Ratio, Verdict, View, all_above, all_of, all_within};
use crate::experiments::no_limits;
use crate::plan::{Curve, Experiment, Plot, Point, Program, Setting, Task};

const ID: &str = "000-alloc";
/// How many tasks the single comparisons have.
const MANY: u64 = 32;

fn points(setting: &Setting) -> Vec<Point> {
    // Half the memory is enough for everybody: an iteration leaves 290 bytes behind, and full size wants 5 GB.
    let full = if setting.machine.available_mib > 10_000 { 1 << 24 } else { 1 << 21 };
    let k = setting.size.pick(1 << 10, 1 << 18, full);
    let counts: &[u64] = setting.size.pick(&[1, 2], &[1, 2, 8, 32, 128, 512], &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
    let mut points = Vec::new();
    let alloc = |series: &str, n: u64, task, args: &str| {
        let point = Point::new(series, n as f64, task, Program::C("alloc"));
        point.args(format!("n={n} {args}")).group(format!("{n} {k}"))
    };
    let mut add = |series: &str, n: u64, task, args: &str| points.push(alloc(series, n, task, args));
    for &n in counts {
        add("T, frees", n, Task::Kernel, &format!("k={k} kind=t free=1 affinity=interleave"));
        add("T, keeps", n, Task::Kernel, &format!("k={k} kind=t free=0 affinity=interleave"));
        add("P, frees", n, Task::Process, &format!("k={k} kind=p free=1 affinity=interleave"));
        add("P, keeps", n, Task::Process, &format!("k={k} kind=p free=0 affinity=interleave"));
        add("U, frees", n, Task::User, &format!("k={k} kind=t free=1"));
    }
    // No claim rests on threads that keep what they have: a curve is enough.
    for point in points.iter_mut().filter(|p| p.series == "T, keeps") {
        point.rounds = Some(setting.size.rounds().min(5));
    }
    for affinity in ["none", "group"] {
        for (name, task, kind) in [("T", Task::Kernel, 't'), ("P", Task::Process, 'p')] {
            let args = format!("k={k} kind={kind} free=1 affinity={affinity}");
            points.push(alloc(&format!("{name}, {affinity}"), MANY, task, &args));
        }
    }
    for (name, library) in ALLOCATORS {
        let point = Point::new(format!("T, {name}"), MANY as f64, Task::Kernel, Program::C("alloc"));
        let mut point =
            point.args(format!("n={MANY} k={k} kind=t free=1 affinity=interleave")).group(format!("{MANY} {k}"));
        point.preload = Some(library);
        points.push(point);
    }
    // The same work for each task, however many there are.
    for &n in counts.iter().filter(|n| **n <= MANY) {
        let each = k / MANY;
        let point = Point::new("P, constant work", n as f64, Task::Process, Program::C("alloc"));
        points.push(point.args(format!("n={n} k={each} constant=1 kind=p affinity=interleave")));
    }
    points
}

const ALLOCATORS: [(&str, &str); 3] =
    [("jemalloc", "libjemalloc.so.2"), ("mimalloc", "libmimalloc.so.2"), ("tcmalloc", "libtcmalloc_minimal.so.4")];

fn processes_win(view: &View) -> Verdict {
    let fair = view.ratios(ID, "wall", "T, frees", "P, frees");
    let Some((many, few)) = Option::zip(view.get(ID, "P, frees", 512.0, "wall"), view.get(ID, "T, frees", 8.0, "wall"))
    else {
        return Verdict::not_measured(view.why_not(ID));
    };
    let five = Ratio::new("T at 8 / P at 512:", &few, &many);
    let published = view.ratios(ID, "wall", "T, frees", "P, keeps");
    let unfair: Vec<String> = published.iter().map(|r| crate::claims::short(r.value())).collect();
    all_of(&[
        all_above(&fair, 1.0, "time of threads to that of processes, both freeing all"),
        all_above(&[five], 5.0, "512 processes against 8 threads"),
    ])
    .and(format!("As the paper compared, with threads that free and processes that do not: {}.", unfair.join(", ")))
}

fn processes_fall(view: &View) -> Verdict {
    let xs = view.store.xs(ID, "P, keeps");
    let steps: Vec<Ratio> = xs.windows(2).filter_map(|w| view.growth(ID, "wall", "P, keeps", w[0], w[1])).collect();
    if steps.is_empty() {
        return Verdict::not_measured(view.why_not(ID));
    }
    let constant = view.growth(ID, "wall", "P, constant work", 1.0, 2.0);
    let constant = constant.map_or_else(String::new, |r| {
        format!(" With constant work per process the step from 1 to 2 is {}.", crate::claims::short(r.value()))
    });
    all_above(&steps, 1.0, "time of processes, each number of them to the next").and(constant.trim())
}

fn threads_grow(view: &View) -> Verdict {
    let cpus = view.cpus();
    let more = view.store.xs(ID, "T, frees").into_iter().filter(|n| *n > cpus);
    let ratios: Vec<Ratio> = more.filter_map(|n| view.growth(ID, "wall", "T, frees", n, cpus)).collect();
    if ratios.is_empty() {
        return Verdict::not_measured(format!("no point with as many threads as CPUs. {}", view.why_not(ID)));
    }
    let together: Vec<Ratio> = Ratio::pooled("all numbers beyond the CPUs:", &ratios).into_iter().collect();
    let each: Vec<String> = ratios.iter().map(Ratio::words).collect();
    all_above(&together, 1.2, "time with more threads than CPUs to that with as many")
        .and(format!("{}.", each.join("; ")))
}

fn threads_settle(view: &View) -> Verdict {
    let (few, many, more) = (32.0, 128.0, 512.0);
    let growth = |to, from| view.growth(ID, "wall", "T, frees", to, from);
    let fall = Option::zip(growth(few, many), growth(few, more));
    // Both together: where it has settled they are the same.
    let fall = fall.and_then(|(a, b)| Ratio::pooled(format!("T, frees at {few} / at {many} and {more}:"), &[a, b]));
    match (fall, growth(many, more)) {
        (Some(fall), Some(rest)) => all_of(&[
            all_above(&[fall], 1.0, "it falls: time of some threads to that of very many"),
            all_within(&[rest], 0.75, 1.33, "it settles: time of many threads to that of very many"),
        ]),
        _ => Verdict::not_measured(view.why_not(ID)),
    }
}

fn mostly_allocator(view: &View) -> Verdict {
    let at = |metric| view.get(ID, "T, frees", MANY as f64, metric);
    // All numbers of threads together: the kernel counts such short times coarsely.
    let sum = |metric| -> Option<Vec<f64>> {
        let xs = view.store.xs(ID, "T, frees");
        let all: Vec<Vec<f64>> = xs.into_iter().filter_map(|n| view.get(ID, "T, frees", n, metric)).collect();
        let rounds = all.iter().map(Vec::len).min()?;
        Some((0..rounds).map(|i| all.iter().map(|values| values[i]).sum()).collect())
    };
    let Some((user, system)) = Option::zip(sum("user"), sum("system")) else {
        return Verdict::not_measured(view.why_not(ID));
    };
    let swapped: Vec<String> = ALLOCATORS
        .iter()
        .filter_map(|(name, _)| {
            let other = view.get(ID, &format!("T, {name}"), MANY as f64, "wall")?;
            let ours = at("wall")?;
            Some(format!("{name} {}", crate::claims::short(crate::stats::median(&other) / crate::stats::median(&ours))))
        })
        .collect();
    let swapped = if swapped.is_empty() {
        String::new()
    } else {
        format!("Time with other allocators to that with the system's: {}.", swapped.join(", "))
    };
    all_above(
        &[Ratio::new("user / system CPU time, all numbers of threads:", &user, &system)],
        1.0,
        "the allocator runs in user mode, the upkeep of the address space in the kernel",
    )
    .and(swapped)
}

fn affinity_matters_little(view: &View) -> Verdict {
    // All programs, threads and processes together: the question is what pinning does.
    let n = MANY as f64;
    let both = |experiment: &str, pairs: &[(&str, &str)], n: f64| {
        let ratio = |(a, b): &(&str, &str)| view.ratio(experiment, "wall", a, b, n);
        let ratios: Vec<Ratio> = pairs.iter().filter_map(ratio).collect();
        Ratio::pooled(format!("{experiment}:"), &ratios)
    };
    let free = [
        both(ID, &[("T, none", "T, frees"), ("P, none", "P, frees")], n),
        both("000-matrix", &[("rows T-M, none", "rows T-M")], 16.0),
        both("000-exchange", &[("T, none", "T"), ("P, none", "P")], n),
    ];
    let groups = [
        both(ID, &[("T, group", "T, frees"), ("P, group", "P, frees")], n),
        both("000-matrix", &[("rows T-M, group", "rows T-M")], 16.0),
    ];
    let (mut ratios, mut each) = (Vec::new(), Vec::new());
    for (setting, parts) in [("not pinned", &free[..]), ("in groups", &groups[..])] {
        let parts: Vec<Ratio> = parts.iter().flatten().cloned().collect();
        ratios.extend(Ratio::pooled(format!("{setting}, all programs:"), &parts));
        let words: Vec<String> = parts.iter().map(Ratio::words).collect();
        each.push(format!("{setting}: {}", words.join("; ")));
    }
    if ratios.is_empty() {
        return Verdict::not_measured(view.why_not(ID));
    }
    all_within(&ratios, 0.75, 1.33, "time without pinning, or pinned in groups, to that of tasks dealt out to the CPUs")
        .and(format!("One by one, {}.", each.join("; ")))
}

static CLAIMS: [Claim; 6] = [
    Claim {
        id: "C000-1",
        says: "Allocation: N processes beat N threads at every N, and 512 processes are more than 5 times faster than 8 threads",
        rule: processes_win,
    },
    Claim {
        id: "C000-2",
        says: "Allocation: the time of processes falls with their number, because each address space is smaller",
        rule: processes_fall,
    },
    Claim {
        id: "C000-3",
        says: "Allocation: the time of threads grows considerably once there are more than CPUs",
        rule: threads_grow,
    },
    Claim {
        id: "C000-4",
        says: "Allocation: with very many threads the time slowly falls again and settles",
        rule: threads_settle,
    },
    Claim {
        id: "C000-5",
        says: "Allocation: the cost is mainly the allocator and its locks, only partly the system's upkeep of the address space",
        rule: mostly_allocator,
    },
    Claim { id: "C000-17", says: "Pinning tasks to CPUs changes speed little", rule: affinity_matters_little },
];

pub static EXPERIMENT: Experiment = Experiment {
    id: ID,
    title: "Allocation by threads, processes and user threads",
    readme: include_str!("README.md"),
    seconds: 34.0,
    hours: 6.0,
    points,
    limits,
    claims: &CLAIMS,
    plots: &[Plot {
        title: "Time for all iterations, by number of tasks",
        series: &["T, frees", "T, keeps", "P, frees", "P, keeps", "U, frees"],
        metric: "wall",
        axes: ("tasks", "s"),
        published: &[
            Curve {
                name: "threads, 2 x Xeon X5675",
                points: &[
                    (1.0, 42.157),
                    (2.0, 19.804),
                    (4.0, 10.865),
                    (8.0, 7.455),
                    (16.0, 8.025),
                    (32.0, 13.540),
                    (64.0, 14.529),
                    (128.0, 13.429),
                    (256.0, 11.773),
                    (512.0, 11.768),
                ],
            },
            Curve {
                name: "processes, 2 x Xeon X5675",
                points: &[
                    (1.0, 40.521),
                    (2.0, 18.220),
                    (4.0, 8.931),
                    (8.0, 4.474),
                    (16.0, 2.504),
                    (32.0, 1.838),
                    (64.0, 1.112),
                    (128.0, 0.680),
                    (256.0, 0.449),
                    (512.0, 0.364),
                ],
            },
        ],
    }],
    published: &[],
};

fn limits(setting: &Setting) -> Vec<String> {
    let mut limits = no_limits(setting);
    if setting.size == crate::plan::Size::Full && setting.machine.available_mib <= 10_000 {
        limits.push("less than 10 GB of memory is free: 2^21 iterations instead of 2^24".to_owned());
    }
    limits
}
