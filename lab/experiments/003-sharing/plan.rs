//! False sharing: an array, structures and a queue, packed and mended, with three loop bodies.

use crate::claims::{Claim, Outcome, Ratio, Verdict, View, all_above, all_of};
use crate::experiments::{doubling, no_limits};
use crate::launch::UNWATCHED;
use crate::plan::{Curve, Experiment, Plot, Point, Program, Setting, Task};

const ID: &str = "003-sharing";
/// How the names of points begin that the detector watches.
const WATCHED: &str = "detector: ";
const BODIES: [&str; 3] = ["plain", "mixed", "atomic"];

fn points(setting: &Setting) -> Vec<Point> {
    let (many, few, items) = setting.size.pick(
        (100_000, 50_000, 2_000),
        (30_000_000, 4_000_000, 500_000),
        (200_000_000, 50_000_000, 4_000_000),
    );
    let mut points = Vec::new();
    let mut add = |series: String, n: u64, args: String| {
        points.push(Point::new(series, n as f64, Task::Kernel, Program::C("sharing")).args(format!("n={n} {args}")));
    };
    for n in doubling(setting.machine.cpus.clamp(2, 16)) {
        for body in BODIES {
            let count = if body == "atomic" { few } else { many };
            for layout in ["packed", "local", "pad64", "pad128"] {
                add(
                    format!("array, {layout}, {body}"),
                    n,
                    format!("pattern=array body={body} layout={layout} count={count}"),
                );
            }
            for layout in ["packed", "pad64", "own"] {
                let count = count / 2;
                add(
                    format!("structures, {layout}, {body}"),
                    n,
                    format!("pattern=struct body={body} layout={layout} count={count}"),
                );
            }
        }
    }
    for n in [1, 2] {
        for (name, live) in [("prefilled", 0), ("live", 1)] {
            for layout in ["packed", "pad64", "pad128"] {
                add(
                    format!("queue {name}, {layout}"),
                    n,
                    format!("pattern=queue live={live} layout={layout} count={items}"),
                );
            }
        }
    }
    // What the detector says of the same programs. Counted, so one length is enough for all sizes.
    for body in BODIES {
        for (layouts, pattern) in [(&["packed", "local", "pad64"], "array"), (&["packed", "own", "pad64"], "struct")] {
            for layout in layouts {
                points.push(watched(
                    format!("{pattern}, {layout}, {body}"),
                    format!("pattern={pattern} body={body} layout={layout} count=200000"),
                ));
            }
        }
    }
    for (name, live) in [("prefilled", 0), ("live", 1)] {
        for layout in ["packed", "pad64"] {
            points.push(watched(
                format!("queue {name}, {layout}"),
                format!("pattern=queue live={live} layout={layout} count=50000"),
            ));
        }
    }
    points
}

fn watched(series: String, args: String) -> Point {
    let mut point = Point::new(format!("{WATCHED}{series}"), 2.0, Task::Kernel, Program::Watched("sharing"));
    point.rounds = Some(2);
    point.args(format!("n=2 meet=200 {args}"))
}

/// Time with n threads to that with one.
fn slowdown(view: &View, series: &str) -> Vec<Ratio> {
    let more = view.store.xs(ID, series).into_iter().filter(|n| *n > 1.0);
    more.filter_map(|n| view.growth(ID, "time", series, n, 1.0)).collect()
}

/// Time with one thread to that with n, as a part of n.
fn efficiency(view: &View, series: &str) -> Vec<Ratio> {
    let more = view.store.xs(ID, series).into_iter().filter(|n| *n > 1.0);
    more.filter_map(|n| {
        let (one, many) = (view.get(ID, series, 1.0, "time")?, view.get(ID, series, n, "time")?);
        let ideal: Vec<f64> = many.iter().map(|t| t * n).collect();
        Some(Ratio::new(format!("{series}, speedup with {n} threads / {n}:"), &one, &ideal))
    })
    .collect()
}

/// The paper does not give the loop's body: holds if it holds with each, and fails if it fails with one.
fn with_each_body(view: &View, pattern: &str) -> Verdict {
    let parts: Vec<Verdict> = BODIES
        .iter()
        .map(|body| {
            let ratios = slowdown(view, &format!("{pattern}, packed, {body}"));
            if ratios.is_empty() {
                return Verdict::not_measured(view.why_not(ID));
            }
            all_above(&ratios, 1.0, &format!("{body} body, time with more threads to that with one"))
        })
        .collect();
    let whole = all_of(&parts);
    let by = |outcome: Outcome| {
        let with = BODIES.iter().zip(&parts).filter(|(_, part)| part.outcome == outcome).map(|(body, _)| *body);
        with.collect::<Vec<_>>().join(" and ")
    };
    let (holds, fails) = (by(Outcome::Holds), by(Outcome::Fails));
    if holds.is_empty() || fails.is_empty() {
        return whole;
    }
    whole.and(format!(
        "The loop's body decides, which the paper does not give: it holds with {holds}, and not with {fails}."
    ))
}

fn array_slower(view: &View) -> Verdict {
    with_each_body(view, "array")
}

fn structures_slower(view: &View) -> Verdict {
    with_each_body(view, "structures")
}

fn sockets(view: &View) -> Verdict {
    match view.machine().sockets {
        1 => Verdict::cannot("this machine has one socket"),
        _ => Verdict::not_measured("the lab does not place threads by socket yet"),
    }
}

fn queue_slower(view: &View) -> Verdict {
    let mut ratios = slowdown(view, "queue prefilled, packed");
    ratios.extend(slowdown(view, "queue live, packed"));
    if ratios.is_empty() {
        return Verdict::not_measured(view.why_not(ID));
    }
    all_above(&ratios, 1.2, "time of a reader and a writer to that of one thread in both parts (the paper: 3.4)")
}

fn local_is_linear(view: &View) -> Verdict {
    let ratios: Vec<Ratio> =
        BODIES.iter().flat_map(|body| efficiency(view, &format!("array, local, {body}"))).collect();
    if ratios.is_empty() {
        return Verdict::not_measured(view.why_not(ID));
    }
    all_above(&ratios, 0.75, "speedup as a part of the threads")
}

fn padding_mends(view: &View) -> Verdict {
    let mut ratios = Vec::new();
    for pattern in ["array", "structures"] {
        for body in BODIES {
            ratios.extend(efficiency(view, &format!("{pattern}, pad64, {body}")));
        }
    }
    let mut queue = Vec::new();
    for kind in ["prefilled", "live"] {
        queue.extend(efficiency(view, &format!("queue {kind}, pad64")));
    }
    if ratios.is_empty() || queue.is_empty() {
        return Verdict::not_measured(view.why_not(ID));
    }
    all_of(&[
        all_above(&ratios, 0.75, "array and structures padded by a line, speedup as a part of the threads"),
        all_above(&queue, 0.75, "the queue likewise"),
    ])
}

fn thirty_times(view: &View) -> Verdict {
    let threads = view.cpus().min(16.0);
    let ratios: Vec<Ratio> = BODIES
        .iter()
        .filter_map(|body| {
            let series = format!("array, packed, {body}");
            let (one, many) = (view.get(ID, &series, 1.0, "time")?, view.get(ID, &series, threads, "time")?);
            let expected: Vec<f64> = one.iter().map(|t| t / threads).collect();
            Some(Ratio::new(format!("{series}, time with {threads} threads / expected:"), &many, &expected))
        })
        .collect();
    if threads < 16.0 {
        let words: Vec<String> = ratios.iter().map(Ratio::words).collect();
        return Verdict::cannot("the claim is about 16 threads on 16 cores.").and(match words.join("; ") {
            words if words.is_empty() => words,
            words => format!("Here: {words}."),
        });
    }
    if ratios.is_empty() {
        return Verdict::not_measured(view.why_not(ID));
    }
    crate::claims::any_above(&ratios, 25.0, "time with 16 threads to the expected")
}

fn hard_to_detect(view: &View) -> Verdict {
    let samples = view.store.samples.iter().filter(|s| s.experiment == ID && s.series.starts_with(WATCHED));
    let samples: Vec<_> = samples.collect();
    if let Some((_, why)) = view.store.absent.iter().find(|(id, why)| id == ID && why.starts_with(UNWATCHED))
        && samples.is_empty()
    {
        return Verdict::cannot(why);
    }
    if let Some(failed) = samples.iter().find(|s| s.failure.is_some()) {
        return Verdict::not_measured(format!("{}: {}", failed.series, failed.failure.as_deref().unwrap_or_default()));
    }
    let is_packed = |series: &str| series.contains(", packed");
    let (mut found, mut silent, mut packed, mut mended, mut wrong) = (0, 0, 0, 0, Vec::new());
    for sample in &samples {
        let Some(&lines) = sample.figures.get("lines") else { continue };
        let shared = is_packed(&sample.series);
        let (all, right) = if shared { (&mut packed, &mut found) } else { (&mut mended, &mut silent) };
        *all += 1;
        if (lines > 0.0) == shared {
            *right += 1;
        } else if !wrong.contains(&sample.series) {
            wrong.push(sample.series.clone());
        }
    }
    if packed == 0 || mended == 0 {
        return Verdict::not_measured(view.why_not(ID));
    }
    let evidence = format!(
        "The detector (heddle sharing) found shared lines in {found} of {packed} runs of the packed patterns and none in {silent} \
         of {mended} runs of the mended ones."
    );
    let verdict = Verdict::counted(!wrong.is_empty(), evidence);
    if wrong.is_empty() { verdict } else { verdict.and(format!("It was wrong about {}.", wrong.join("; "))) }
}

static CLAIMS: [Claim; 8] = [
    Claim { id: "C003-1", says: "Shared array, packed: any number of threads is slower than one", rule: array_slower },
    Claim { id: "C003-2", says: "Crossing sockets is clearly worse: 530 ms against 380 ms", rule: sockets },
    Claim {
        id: "C003-3",
        says: "Structures allocated by the parent in one block: time grows strongly with the threads",
        rule: structures_slower,
    },
    Claim {
        id: "C003-4",
        says: "Queue: a reader and a writer take 170 ms where one thread takes 50",
        rule: queue_slower,
    },
    Claim { id: "C003-5", says: "Local variables bring the speedup near linear", rule: local_is_linear },
    Claim {
        id: "C003-6",
        says: "Padding by a cache line removes the problem, with structures and the queue as with the array",
        rule: padding_mends,
    },
    Claim { id: "C003-7", says: "With 16 threads the speedup can be 30 times below the expected", rule: thirty_times },
    Claim { id: "C003-8", says: "False sharing is hard to detect", rule: hard_to_detect },
];

pub static EXPERIMENT: Experiment = Experiment {
    id: ID,
    title: "False sharing",
    readme: include_str!("README.md"),
    seconds: 24.0,
    hours: 0.3,
    points,
    limits: no_limits,
    claims: &CLAIMS,
    plots: &[
        Plot {
            title: "Shared array: time of the whole work, by threads",
            series: &[
                "array, packed, plain",
                "array, packed, mixed",
                "array, packed, atomic",
                "array, local, atomic",
                "array, pad64, atomic",
                "array, pad128, atomic",
            ],
            metric: "time",
            axes: ("threads", "s"),
            published: &[Curve {
                name: "packed, 2 x Xeon E5-2690",
                points: &[(1.0, 0.27), (2.0, 0.37), (5.0, 0.39), (6.0, 0.38), (8.0, 0.38), (11.0, 0.51), (16.0, 0.53)],
            }],
        },
        Plot {
            title: "Queue: time for all items, by threads",
            series: &["queue prefilled, packed", "queue prefilled, pad64", "queue live, packed", "queue live, pad64"],
            metric: "time",
            axes: ("threads", "s"),
            published: &[Curve { name: "2 x Xeon E5-2690", points: &[(1.0, 0.05), (2.0, 0.17)] }],
        },
    ],
    published: &[],
};
