//! The product of two matrices, stored by rows and by tiles, by threads and processes, with small and huge pages.

use crate::claims::{Claim, Outcome, Ratio, Verdict, View, all_above, all_of, all_within, any_above, mostly_above};
use crate::plan::{Curve, Experiment, Plot, Point, Program, Setting, Size, Task};

const ID: &str = "000-matrix";

fn order(setting: &Setting) -> u64 {
    setting.size.pick(64, 512, 2048)
}

/// Huge pages that three matrices need.
fn huge_pages_needed(setting: &Setting) -> u64 {
    3 * (8 * order(setting) * order(setting)).div_ceil(2 << 20)
}

fn has_huge_pages(setting: &Setting) -> bool {
    setting.machine.huge_pages >= huge_pages_needed(setting)
}

fn points(setting: &Setting) -> Vec<Point> {
    let (k, part) = (order(setting), setting.size.pick(1, 4, 1));
    let counts: &[u64] = setting.size.pick(&[1, 2], &[1, 2, 16, 128], &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
    let mut points = Vec::new();
    for layout in ["rows", "tiles"] {
        for &n in counts {
            let mut add = |name: &str, task, args: &str| {
                let point = Point::new(format!("{layout} {name}"), n as f64, task, Program::C("matrix"));
                points.push(
                    point.args(format!("n={n} k={k} part={part} layout={layout} {args}")).group(format!("{n} {k}")),
                );
            };
            add("T", Task::Kernel, "kind=t memory=malloc thp=on affinity=interleave");
            add("T-N", Task::Kernel, "kind=t memory=malloc thp=off affinity=interleave");
            add("T-M", Task::Kernel, "kind=t memory=shared thp=off affinity=interleave");
            add("P", Task::Process, "kind=p memory=shared thp=off affinity=interleave");
            add("U", Task::User, "kind=t memory=shared thp=off");
            if has_huge_pages(setting) {
                add("HP.T-M", Task::Kernel, "kind=t memory=huge affinity=interleave");
                add("HP.P", Task::Process, "kind=p memory=huge affinity=interleave");
            }
            if layout == "rows" && n == 16 {
                add("T-M, none", Task::Kernel, "kind=t memory=shared thp=off affinity=none");
                add("T-M, group", Task::Kernel, "kind=t memory=shared thp=off affinity=group");
            }
        }
    }
    points
}

fn limits(setting: &Setting) -> Vec<String> {
    let mut limits = Vec::new();
    if !has_huge_pages(setting) {
        limits.push(format!(
            "{} huge pages are reserved, {} are needed (sysctl vm.nr_hugepages={}): no curves with explicit huge pages",
            setting.machine.huge_pages,
            huge_pages_needed(setting),
            huge_pages_needed(setting)
        ));
    }
    if setting.size != Size::Full {
        limits.push(format!("matrices of order {} instead of 2048, and a quarter of the rows", order(setting)));
    }
    limits
}

/// The pairs with the same pages: threads to processes.
fn same_pages(view: &View, layout: &str, wanted: impl Fn(f64) -> bool) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    for (t, p) in [("T-M", "P"), ("T-N", "P"), ("HP.T-M", "HP.P")] {
        let (t, p) = (format!("{layout} {t}"), format!("{layout} {p}"));
        let xs = view.store.xs(ID, &t).into_iter().filter(|x| wanted(*x));
        ratios.extend(xs.filter_map(|x| view.ratio(ID, "wall", &t, &p, x)));
    }
    ratios
}

/// The same, processes to threads.
fn inverse(view: &View, layout: &str, wanted: impl Fn(f64) -> bool) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    for (t, p) in [("T-M", "P"), ("T-N", "P"), ("HP.T-M", "HP.P")] {
        let (t, p) = (format!("{layout} {t}"), format!("{layout} {p}"));
        let xs = view.store.xs(ID, &t).into_iter().filter(|x| wanted(*x));
        ratios.extend(xs.filter_map(|x| view.ratio(ID, "wall", &p, &t, x)));
    }
    ratios
}

fn or_not(view: &View, ratios: &[Ratio], rule: impl FnOnce(&[Ratio]) -> Verdict) -> Verdict {
    if ratios.is_empty() { Verdict::not_measured(view.why_not(ID)) } else { rule(ratios) }
}

fn equal_up_to_cores(view: &View) -> Verdict {
    let cpus = view.cpus();
    // Both pairs have small pages: at each number of tasks they ask the same.
    let numbers = view.store.xs(ID, "rows P").into_iter().filter(|n| *n <= cpus);
    let at = |n: f64| Ratio::pooled(format!("{n} tasks:"), &same_pages(view, "rows", |x| x == n));
    let ratios: Vec<Ratio> = numbers.filter_map(at).collect();
    or_not(view, &ratios, |r| all_within(r, 0.8, 1.25, "threads to processes, same pages, not more tasks than CPUs"))
}

fn threads_win_beyond(view: &View) -> Verdict {
    let cpus = view.cpus();
    let ratios = inverse(view, "rows", |n| n > cpus);
    or_not(view, &ratios, |r| mostly_above(r, 0.5, "threads faster, same pages, more tasks than CPUs"))
}

fn natural_threads_can_be_slower(view: &View) -> Verdict {
    let mut ratios = view.ratios(ID, "wall", "rows T", "rows P");
    ratios.extend(view.ratios(ID, "wall", "tiles T", "tiles P"));
    or_not(view, &ratios, |r| {
        any_above(r, 1.4, "much slower: threads with memory from malloc (huge pages) to processes with shared memory")
    })
}

fn huge_pages_may_harm(view: &View) -> Verdict {
    let explicit = !view.store.xs(ID, "rows HP.P").is_empty();
    let pairs: &[(&str, &str)] = if explicit { &[("HP.T-M", "T-M"), ("HP.P", "P")] } else { &[("T", "T-N")] };
    let at = |n: f64| {
        let both = ["rows", "tiles"].into_iter().flat_map(|layout| pairs.iter().map(move |pair| (layout, pair)));
        let ratio = |(layout, (a, b)): (&str, &(&str, &str))| {
            view.ratio(ID, "wall", &format!("{layout} {a}"), &format!("{layout} {b}"), n)
        };
        Ratio::pooled(format!("{n} tasks:"), &both.filter_map(ratio).collect::<Vec<_>>())
    };
    let at_each: Vec<Ratio> = view.store.xs(ID, "rows P").into_iter().filter_map(at).collect();
    let verdict = or_not(view, &at_each, |r| {
        let together: Vec<Ratio> = Ratio::pooled("all numbers of tasks:", r).into_iter().collect();
        all_of(&[
            all_above(
                &together,
                0.95,
                "no help by themselves: time with huge pages to that with small ones, rows and tiles",
            ),
            any_above(r, 1.25, "considerably slower at some number of tasks"),
        ])
    });
    if explicit {
        verdict
    } else {
        verdict.and("No huge pages are reserved here, so transparent ones stand in for them.")
    }
}

fn thp_on_intel(view: &View) -> Verdict {
    let ratios: Vec<Ratio> = view.ratios(ID, "wall", "rows T", "rows T-N").into_iter().collect();
    let verdict =
        or_not(view, &ratios, |r| any_above(r, 1.5, "rows, time with transparent huge pages to that without"));
    if view.machine().vendor == "GenuineIntel" {
        return verdict;
    }
    Verdict {
        outcome: Outcome::Untestable,
        evidence: format!(
            "The claim is about Intel's processors; this is {}. Here: {}",
            view.machine().cpu,
            verdict.evidence
        ),
        ..verdict
    }
}

fn huge_pages_harm_tiles(view: &View) -> Verdict {
    let mut ratios = view.ratios(ID, "wall", "tiles T", "tiles T-N");
    ratios.extend(view.ratios(ID, "wall", "tiles HP.T-M", "tiles T-M"));
    ratios.extend(view.ratios(ID, "wall", "tiles HP.P", "tiles P"));
    or_not(view, &ratios, |r| all_above(r, 1.0, "tiles, time with huge pages to that without"))
}

fn tiles_are_faster(view: &View) -> Verdict {
    let mut ratios = Vec::new();
    for name in ["T-M", "T-N", "P"] {
        ratios.extend(view.ratios(ID, "wall", &format!("rows {name}"), &format!("tiles {name}")));
    }
    let cpus = view.cpus();
    let small = same_pages(view, "tiles", |n| n <= cpus);
    if ratios.is_empty() || small.is_empty() {
        return Verdict::not_measured(view.why_not(ID));
    }
    all_of(&[
        all_above(&ratios, 1.0, "time with rows to that with tiles"),
        any_above(&small, 1.0, "tiles, threads to processes, not more tasks than CPUs"),
    ])
}

fn processes_win_most(view: &View) -> Verdict {
    let mut ratios = same_pages(view, "rows", |_| true);
    ratios.extend(same_pages(view, "tiles", |_| true));
    or_not(view, &ratios, |r| mostly_above(r, 0.5, "processes faster, same pages, rows and tiles"))
}

fn lu(_: &View) -> Verdict {
    Verdict::cannot(
        "lu.D of the NAS benchmarks is not part of the lab: it wants some 10 GB and, on the paper's 12 cores, 100 minutes for \
         each run. The curves T and T-N of this experiment ask the same of a matrix product.",
    )
}

fn unequal_pages_cannot_be_compared(view: &View) -> Verdict {
    // All numbers of tasks together: the question is whether the pages matter.
    let pooled = |layout: &str| {
        let ratios = view.ratios(ID, "wall", &format!("{layout} T"), &format!("{layout} T-M"));
        Ratio::pooled(format!("{layout}, all numbers of threads:"), &ratios)
    };
    let ratios: Vec<Ratio> = ["rows", "tiles"].into_iter().filter_map(pooled).collect();
    or_not(view, &ratios, |r| {
        let equal = all_within(r, 0.87, 1.15, "threads with huge pages to threads with small ones");
        // Equal would mean that the pages do not matter.
        let outcome = match equal.outcome {
            Outcome::Holds => Outcome::Fails,
            Outcome::Fails => Outcome::Holds,
            other => other,
        };
        Verdict { outcome, ..equal }
            .and("If they differ, the natural threads and processes do not show what threads cost.")
    })
}

static CLAIMS: [Claim; 10] = [
    Claim {
        id: "C000-6",
        says: "Product by rows, same pages: threads and processes are about equal up to as many as cores",
        rule: equal_up_to_cores,
    },
    Claim {
        id: "C000-7",
        says: "Product by rows, same pages, more tasks than cores: threads are faster in most cases",
        rule: threads_win_beyond,
    },
    Claim {
        id: "C000-8",
        says: "The natural program with threads (malloc) can be much slower than the natural one with processes",
        rule: natural_threads_can_be_slower,
    },
    Claim {
        id: "C000-9",
        says: "Huge pages do not help by themselves and may slow the product considerably",
        rule: huge_pages_may_harm,
    },
    Claim {
        id: "C000-10",
        says: "Transparent huge pages slow the product by rows almost twofold on Intel's processors",
        rule: thp_on_intel,
    },
    Claim { id: "C000-11", says: "With tiles huge pages cost time in all cases", rule: huge_pages_harm_tiles },
    Claim {
        id: "C000-12",
        says: "Tiles are faster than rows, and yet processes win many cases also with few tasks",
        rule: tiles_are_faster,
    },
    Claim {
        id: "C000-13",
        says: "Of all points with the same pages, rows and tiles, processes win 58.6 % (here: more than half)",
        rule: processes_win_most,
    },
    Claim { id: "C000-18", says: "lu.D of the NAS benchmarks loses 13.6 % with transparent huge pages", rule: lu },
    Claim {
        id: "C000-22",
        says: "Threads with huge pages and processes with small ones are no fair test of what the TLB costs",
        rule: unequal_pages_cannot_be_compared,
    },
];

pub static EXPERIMENT: Experiment = Experiment {
    id: ID,
    title: "Matrix product by rows and by tiles, with small and huge pages",
    readme: include_str!("README.md"),
    seconds: 23.0,
    hours: 4.0,
    points,
    limits,
    claims: &CLAIMS,
    plots: &[
        Plot {
            title: "By rows: time by number of tasks",
            series: &["rows T", "rows T-N", "rows T-M", "rows P", "rows U", "rows HP.T-M", "rows HP.P"],
            metric: "wall",
            axes: ("tasks", "s"),
            published: &[
                Curve {
                    name: "T, X5675",
                    points: &[
                        (1.0, 88.701),
                        (2.0, 51.218),
                        (4.0, 32.850),
                        (8.0, 17.752),
                        (16.0, 17.294),
                        (32.0, 20.918),
                        (64.0, 22.961),
                        (128.0, 22.747),
                        (256.0, 26.625),
                        (512.0, 26.461),
                    ],
                },
                Curve {
                    name: "T-N, X5675",
                    points: &[
                        (1.0, 86.009),
                        (2.0, 52.536),
                        (4.0, 18.458),
                        (8.0, 9.190),
                        (16.0, 8.748),
                        (32.0, 7.189),
                        (64.0, 7.895),
                        (128.0, 7.875),
                        (256.0, 8.762),
                        (512.0, 10.591),
                    ],
                },
                Curve {
                    name: "T-M, X5675",
                    points: &[
                        (1.0, 87.240),
                        (2.0, 56.165),
                        (4.0, 25.152),
                        (8.0, 9.435),
                        (16.0, 8.631),
                        (32.0, 7.222),
                        (64.0, 7.792),
                        (128.0, 8.086),
                        (256.0, 8.897),
                        (512.0, 11.875),
                    ],
                },
                Curve {
                    name: "P, X5675",
                    points: &[
                        (1.0, 87.135),
                        (2.0, 54.011),
                        (4.0, 18.366),
                        (8.0, 9.405),
                        (16.0, 9.555),
                        (32.0, 8.867),
                        (64.0, 9.508),
                        (128.0, 9.517),
                        (256.0, 9.831),
                        (512.0, 8.221),
                    ],
                },
                Curve {
                    name: "T-M, A640",
                    points: &[
                        (1.0, 295.464),
                        (2.0, 153.986),
                        (4.0, 84.631),
                        (8.0, 84.389),
                        (16.0, 84.390),
                        (32.0, 85.028),
                        (64.0, 85.224),
                        (128.0, 86.667),
                        (256.0, 85.587),
                        (512.0, 85.544),
                    ],
                },
                Curve {
                    name: "P, A640",
                    points: &[
                        (1.0, 294.966),
                        (2.0, 153.913),
                        (4.0, 84.668),
                        (8.0, 84.461),
                        (16.0, 84.623),
                        (32.0, 85.000),
                        (64.0, 85.339),
                        (128.0, 85.760),
                        (256.0, 86.139),
                        (512.0, 86.785),
                    ],
                },
            ],
        },
        Plot {
            title: "By tiles: time by number of tasks",
            series: &["tiles T", "tiles T-N", "tiles T-M", "tiles P", "tiles U", "tiles HP.T-M", "tiles HP.P"],
            metric: "wall",
            axes: ("tasks", "s"),
            published: &[
                Curve {
                    name: "T, X5675",
                    points: &[
                        (1.0, 93.167),
                        (2.0, 60.820),
                        (4.0, 35.291),
                        (8.0, 34.178),
                        (16.0, 21.887),
                        (32.0, 20.808),
                        (64.0, 26.122),
                        (128.0, 28.632),
                        (256.0, 26.900),
                        (512.0, 26.614),
                    ],
                },
                Curve {
                    name: "T-N, X5675",
                    points: &[
                        (1.0, 80.874),
                        (2.0, 24.286),
                        (4.0, 12.586),
                        (8.0, 7.762),
                        (16.0, 6.057),
                        (32.0, 5.781),
                        (64.0, 6.051),
                        (128.0, 5.997),
                        (256.0, 5.877),
                        (512.0, 5.878),
                    ],
                },
                Curve {
                    name: "T-M, X5675",
                    points: &[
                        (1.0, 65.810),
                        (2.0, 23.925),
                        (4.0, 12.285),
                        (8.0, 20.067),
                        (16.0, 5.909),
                        (32.0, 5.702),
                        (64.0, 5.894),
                        (128.0, 5.845),
                        (256.0, 5.860),
                        (512.0, 6.120),
                    ],
                },
                Curve {
                    name: "P, X5675",
                    points: &[
                        (1.0, 70.085),
                        (2.0, 23.605),
                        (4.0, 12.284),
                        (8.0, 19.819),
                        (16.0, 5.954),
                        (32.0, 5.640),
                        (64.0, 5.907),
                        (128.0, 5.932),
                        (256.0, 5.892),
                        (512.0, 6.275),
                    ],
                },
                Curve {
                    name: "T-M, A640",
                    points: &[
                        (1.0, 120.204),
                        (2.0, 64.166),
                        (4.0, 38.648),
                        (8.0, 37.703),
                        (16.0, 39.657),
                        (32.0, 38.972),
                        (64.0, 39.217),
                        (128.0, 40.147),
                        (256.0, 39.959),
                        (512.0, 39.981),
                    ],
                },
                Curve {
                    name: "P, A640",
                    points: &[
                        (1.0, 120.712),
                        (2.0, 65.771),
                        (4.0, 38.631),
                        (8.0, 39.266),
                        (16.0, 37.940),
                        (32.0, 38.757),
                        (64.0, 40.094),
                        (128.0, 38.663),
                        (256.0, 40.472),
                        (512.0, 40.732),
                    ],
                },
            ],
        },
    ],
    published: &[
        ("lu.D, OpenMP, X5675, transparent huge pages on", "6157.79 s"),
        ("lu.D, OpenMP, X5675, transparent huge pages off", "5422.67 s"),
    ],
};
