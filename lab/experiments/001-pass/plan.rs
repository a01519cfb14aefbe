//! Objects handed from thread to thread: what costs, the allocation or the handing over?

use crate::claims::{Claim, Outcome, Ratio, Verdict, View, all_above, all_of, any_above};
use crate::experiments::no_limits;
use crate::plan::{Experiment, Plot, Point, Program, Setting, Task};

const ID: &str = "001-pass";
/// Objects per hand-over at which the handing over itself hardly counts.
const MANY: f64 = 256.0;

fn points(setting: &Setting) -> Vec<Point> {
    let cycles = setting.size.pick(200, 60_000, 1_000_000u64);
    let n = setting.machine.cpus.max(2);
    let mut points = Vec::new();
    let pass = |series: String, v: u64, task, shift: u64, mode: &str| {
        // The same number of objects, but for a lower bound of cycles.
        let cycles = (cycles * 4 / (v + 3)).max(50);
        let point = Point::new(series, v as f64, task, Program::C("pass"));
        point.args(format!("n={n} cycles={cycles} v={v} shift={shift} mode={mode}"))
    };
    for v in setting.size.pick(vec![1, 256], vec![1, 16, 256], vec![1, 16, 256, 4096]) {
        for shift in [1, 0] {
            for mode in ["allocs", "assigns"] {
                points.push(pass(format!("{mode}, shift {shift}"), v, Task::Kernel, shift, mode));
                points.push(pass(format!("U {mode}, shift {shift}"), v, Task::User, shift, mode));
            }
        }
        for mode in ["values", "return", "ring"] {
            points.push(pass(format!("{mode}, shift 1"), v, Task::Kernel, 1, mode));
        }
        for what in ["pool", "channel"] {
            let program = Program::Child(if what == "pool" { "pass-pool" } else { "pass-channel" });
            for (series, task, mode) in
                [(what.to_owned(), Task::Kernel, "plain"), (format!("U {what}"), Task::User, "user")]
            {
                let cycles = (cycles * 4 / (v + 3)).max(50);
                let point = Point::new(format!("{series}, shift 1"), v as f64, task, program);
                let point = point.args(format!("n={n} cycles={cycles} v={v} mode={mode}"));
                points.push(point.group(format!("library, {v}")));
            }
        }
        if v == 256 {
            for (name, library) in [
                ("jemalloc", "libjemalloc.so.2"),
                ("mimalloc", "libmimalloc.so.2"),
                ("tcmalloc", "libtcmalloc_minimal.so.4"),
            ] {
                let mut point = pass(format!("allocs, shift 1, {name}"), v, Task::Kernel, 1, "allocs");
                point.preload = Some(library);
                points.push(point);
            }
        }
    }
    for what in ["cas", "spin", "mutex"] {
        let point = Point::new(what, n as f64, Task::Kernel, Program::C("primitives"));
        points.push(point.args(format!("what={what} n={n} count={}", cycles * 10)));
    }
    points
}

fn price(view: &View, series: &str, v: f64) -> Option<Vec<f64>> {
    view.get(ID, series, v, "price")
}

fn ratio(view: &View, a: &str, b: &str, v: f64) -> Option<Ratio> {
    Some(Ratio::new(format!("{a} / {b}, {v} at a time:"), &price(view, a, v)?, &price(view, b, v)?))
}

fn rule(view: &View, ratios: Option<Vec<Ratio>>, threshold: f64, what: &str) -> Verdict {
    ratios.map_or_else(|| Verdict::not_measured(view.why_not(ID)), |ratios| all_above(&ratios, threshold, what))
}

fn delete_eats_it(view: &View) -> Verdict {
    let parts = (|| {
        let (allocs, assigns) = (price(view, "allocs, shift 1", MANY)?, price(view, "assigns, shift 1", MANY)?);
        let allocation: Vec<f64> = allocs.iter().zip(&assigns).map(|(a, b)| a - b).collect();
        Some(vec![Ratio::new(
            "price of allocation, freed by the other, / price of handing over:",
            &allocation,
            &assigns,
        )])
    })();
    rule(view, parts, 1.0, "with 256 objects at a time, so that the hand-over is shared by many")
}

fn crossing_is_slow(view: &View) -> Verdict {
    let ratios = ratio(view, "allocs, shift 1", "allocs, shift 0", 1.0).map(|r| vec![r]);
    rule(view, ratios, 2.0, "objects freed by another thread to objects of one's own (the paper: 5.7)")
}

fn exchange_is_the_limit(view: &View) -> Verdict {
    let ratios = (|| {
        Some((
            ratio(view, "assigns, shift 1", "assigns, shift 0", 1.0)?,
            ratio(view, "assigns, shift 1", "allocs, shift 1", 1.0)?,
        ))
    })();
    let Some((crossing, share)) = ratios else { return Verdict::not_measured(view.why_not(ID)) };
    all_of(&[
        all_above(&[crossing], 4.0, "without allocation, crossing threads to staying (the paper: 43)"),
        all_above(
            &[share],
            1.0 / 3.0,
            "a large part of the price with allocation: without it to with it, crossing threads",
        ),
    ])
}

fn same_picture(view: &View) -> Verdict {
    let both = all_of(&[crossing_is_slow(view), exchange_is_the_limit(view)]);
    let machine = view.machine();
    if machine.cpus == 2 && machine.virtual_machine {
        return both;
    }
    Verdict {
        outcome: if both.outcome == Outcome::Undecided { Outcome::Undecided } else { Outcome::Untestable },
        evidence: format!(
            "The claim is about a virtual machine with 2 CPUs, and this is none. Here: {}",
            both.evidence
        ),
        ..both
    }
}

fn allocation_waits_longer(view: &View) -> Verdict {
    let n = view.cpus().max(2.0);
    let ratios = (|| {
        let (allocs, assigns) = (price(view, "allocs, shift 1", MANY)?, price(view, "assigns, shift 1", MANY)?);
        let allocation: Vec<f64> = allocs.iter().zip(&assigns).map(|(a, b)| a - b).collect();
        let of = |what: &str| {
            Some(Ratio::new(format!("allocation freed by another / {what}:"), &allocation, &price(view, what, n)?))
        };
        Some(vec![of("cas")?, of("spin")?])
    })();
    rule(view, ratios, 1.0, "nanoseconds per operation, all CPUs busy with it")
}

fn copies_are_better(view: &View) -> Verdict {
    let numbers = view.store.xs(ID, "values, shift 1").into_iter();
    let ratios: Vec<Ratio> = numbers.filter_map(|v| ratio(view, "allocs, shift 1", "values, shift 1", v)).collect();
    let each: Vec<String> = ratios.iter().map(Ratio::words).collect();
    let together = Ratio::pooled("all numbers handed over at a time:", &ratios).map(|all| vec![all]);
    rule(view, together, 1.0, "pointers to objects of the heap to 48 bytes copied").and(format!("{}.", each.join("; ")))
}

fn one_thread(view: &View) -> Verdict {
    crossing_is_slow(view).and("The advice follows from that alone; it is not about work that is heavy or waits.")
}

fn proposals(view: &View) -> Verdict {
    let ratios = (|| {
        let mut ratios = Vec::new();
        for other in ["values, shift 1", "return, shift 1", "ring, shift 1"] {
            ratios.push(ratio(view, "allocs, shift 1", other, MANY)?);
        }
        Some(ratios)
    })();
    ratios.map_or_else(
        || Verdict::not_measured(view.why_not(ID)),
        |ratios| any_above(&ratios, 1.1, "malloc and a foreign free to copies, objects that return, and a ring"),
    )
}

static CLAIMS: [Claim; 8] = [
    Claim {
        id: "C001-1",
        says: "Where objects are made by one thread and deleted by another, lock-free queues bring little: delete eats the gain",
        rule: delete_eats_it,
    },
    Claim {
        id: "C001-2",
        says: "Handing objects across threads is several times slower than keeping them (4.2 against 24 million per second)",
        rule: crossing_is_slow,
    },
    Claim {
        id: "C001-3",
        says: "Without allocation too (6 against 267 million): the exchange of values itself is the limit",
        rule: exchange_is_the_limit,
    },
    Claim { id: "C001-4", says: "Linux in a virtual machine with 2 CPUs shows the same picture", rule: same_picture },
    Claim {
        id: "C001-5",
        says: "Waiting for allocation takes longer than waiting for a compare-and-swap or even a naive spinlock",
        rule: allocation_waits_longer,
    },
    Claim {
        id: "C001-6",
        says: "Prefer copying small values to passing pointers to the heap",
        rule: copies_are_better,
    },
    Claim {
        id: "C001-7",
        says: "Do as much as possible on one thread; use threads for what blocks or is heavy",
        rule: one_thread,
    },
    Claim {
        id: "C001-8",
        says: "Mailboxes should hold copies, or give memory back to the sender, or take it from a bounded ring",
        rule: proposals,
    },
];

pub static EXPERIMENT: Experiment = Experiment {
    id: ID,
    title: "Objects handed from thread to thread",
    readme: include_str!("README.md"),
    seconds: 16.0,
    hours: 0.5,
    points,
    limits: no_limits,
    claims: &CLAIMS,
    plots: &[Plot {
        title: "Nanoseconds per object, by objects handed over at a time",
        series: &[
            "allocs, shift 1",
            "assigns, shift 1",
            "allocs, shift 0",
            "values, shift 1",
            "return, shift 1",
            "ring, shift 1",
            "pool, shift 1",
            "channel, shift 1",
            "U allocs, shift 1",
            "U pool, shift 1",
            "U channel, shift 1",
        ],
        metric: "price",
        axes: ("objects at a time", "ns"),
        published: &[],
    }],
    published: &[
        ("4 cores, MSVC 2013: shift 1, allocs / assigns", "238 / 163 ns"),
        ("4 cores, MSVC 2013: shift 0, allocs / assigns", "42 / 3.75 ns"),
        ("Linux, 2 virtual CPUs, GCC 4.9: shift 1, allocs / assigns", "1534 / 1471 ns"),
        ("Linux, 2 virtual CPUs, GCC 4.9: shift 0, allocs / assigns", "67 / 11 ns"),
    ],
};
