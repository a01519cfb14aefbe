//! Ping-pong: a server with a thread per connection.

use crate::claims::{Claim, Outcome, Ratio, Verdict, View, all_above, all_below, all_of, mostly_above};
use crate::plan::{Experiment, Plot, Point, Program, Setting, Size, Task};

const ID: &str = "002-pingpong";
const CONDITIONS: [&str; 3] = ["all active", "1/8 active", "128 active"];

fn connections(setting: &Setting) -> &'static [u64] {
    setting.size.pick(&[128], &[128, 512, 2048], &[128, 256, 512, 1024, 2048, 4096, 8192])
}

fn points(setting: &Setting) -> Vec<Point> {
    let ms = setting.size.pick(20, 120, 2000);
    let mut points = Vec::new();
    for &n in connections(setting) {
        for (condition, active) in CONDITIONS.into_iter().zip([n, n / 8, 128]) {
            for (name, task) in [("NPTL", Task::Kernel), ("Heddle", Task::User)] {
                let mut point = Point::new(format!("{name}, {condition}"), n as f64, task, Program::C("client"))
                    .args(format!("connections={n} active={active} ms={ms}"));
                point.server = Some(("server", vec![format!("connections={n}")]));
                points.push(point);
            }
        }
    }
    points
}

fn limits(setting: &Setting) -> Vec<String> {
    let mut limits =
        vec!["client and server share this machine and the loopback interface; the paper had two machines".to_owned()];
    if setting.size == Size::Full {
        limits.push("up to 8192 connections instead of 16384".to_owned());
    }
    limits
}

fn series(name: &str, condition: &str) -> String {
    format!("{name}, {condition}")
}

fn throughput(view: &View) -> Verdict {
    let ratios: Vec<Ratio> =
        CONDITIONS.iter().flat_map(|c| view.ratios(ID, "rate", &series("Heddle", c), &series("NPTL", c))).collect();
    if ratios.is_empty() {
        return Verdict::not_measured(view.why_not(ID));
    }
    let list: Vec<String> = ratios.iter().map(|r| crate::claims::short(r.value())).collect();
    mostly_above(&ratios, 0.66, "answers per second, user threads to kernel threads")
        .and(format!("The ratios: {}.", list.join(", ")))
}

/// A figure at the fewest connections and at the most.
fn ends(view: &View, series: &str, metric: &str) -> Option<(Vec<f64>, Vec<f64>)> {
    let xs = view.store.xs(ID, series);
    let (first, last) = (*xs.first()?, *xs.last()?);
    if first == last {
        return None;
    }
    Some((view.get(ID, series, first, metric)?, view.get(ID, series, last, metric)?))
}

fn falls(view: &View) -> Verdict {
    let mut ratios = Vec::new();
    for condition in &CONDITIONS[..2] {
        for name in ["NPTL", "Heddle"] {
            let series = series(name, condition);
            if let Some((few, many)) = ends(view, &series, "rate") {
                ratios.push(Ratio::new(format!("{series}: rate with few / with many connections:"), &few, &many));
            }
        }
    }
    if ratios.is_empty() {
        return Verdict::not_measured(view.why_not(ID));
    }
    all_above(&ratios, 1.0, "throughput falls with the number of connections")
}

fn waiting(view: &View) -> Verdict {
    // Per answer: what all CPUs together have time for, and what the server's own code (application and runtime, without the
    // kernel) takes of it; both conditions together, since the fall may be small.
    let cpus = view.cpus();
    let (mut falls, mut more, mut own) = (Vec::new(), Vec::new(), Vec::new());
    for condition in &CONDITIONS[..2] {
        let series = series("Heddle", condition);
        let all = Option::zip(ends(view, &series, "rate"), ends(view, &series, "server_user_us"));
        let Some(((few, many), (user_few, user_many))) = all else { return Verdict::not_measured(view.why_not(ID)) };
        falls.push(Ratio::new(format!("{condition}, rate with few / with many connections:"), &few, &many));
        let each = |rate: &f64| cpus * 1e6 / rate;
        add(&mut more, few.iter().zip(&many).map(|(few, many)| each(many) - each(few)));
        add(&mut own, user_few.iter().zip(&user_many).map(|(few, many)| many - few));
    }
    let words: Vec<String> = falls.iter().map(Ratio::words).collect();
    let words = format!("{}.", words.join("; "));
    let falling = all_above(&falls, 1.0, "throughput falls with the number of connections");
    match falling.outcome {
        Outcome::Fails => Verdict::cannot(format!("There is no fall to explain: {words}")),
        Outcome::Holds => {
            let label = "what an answer takes more of the server's own code / of all CPUs' time:";
            let own = Ratio::new(label, &own, &more);
            all_below(&[own], 0.5, "the smaller part of the fall is the application's and the runtime's own").and(words)
        }
        _ => falling.and("Without a fall that is sure there is nothing to explain."),
    }
}

/// Adds value by value.
fn add(to: &mut Vec<f64>, values: impl Iterator<Item = f64>) {
    let values: Vec<f64> = values.collect();
    to.resize(if to.is_empty() { values.len() } else { to.len().min(values.len()) }, 0.0);
    to.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
}

fn system_to_user(view: &View, conditions: &[&str]) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    for condition in conditions {
        let series = series("Heddle", condition);
        for n in view.store.xs(ID, &series) {
            if let Some((system, user)) =
                Option::zip(view.get(ID, &series, n, "server_system_us"), view.get(ID, &series, n, "server_user_us"))
            {
                ratios.push(Ratio::new(format!("{series}, {n} connections, system / user time:"), &system, &user));
            }
        }
    }
    ratios
}

fn calls_dominate(view: &View) -> Verdict {
    let ratios = system_to_user(view, &CONDITIONS[2..]);
    if ratios.is_empty() {
        return Verdict::not_measured(view.why_not(ID));
    }
    all_above(&ratios, 1.0, "the server's time in the kernel to its own, 128 active")
}

fn little_overhead(view: &View) -> Verdict {
    let ratios = system_to_user(view, &CONDITIONS);
    let growth: Vec<Ratio> = CONDITIONS
        .iter()
        .filter_map(|c| {
            let (few, many) = ends(view, &series("Heddle", c), "server_user_us")?;
            Some(Ratio::new(format!("user time per answer, {c}, many / few connections:"), &many, &few))
        })
        .collect();
    if ratios.is_empty() || growth.is_empty() {
        return Verdict::not_measured(view.why_not(ID));
    }
    all_of(&[
        all_above(&ratios, 1.0, "time in the kernel to time outside"),
        all_below(&growth, 1.5, "time outside the kernel hardly grows"),
    ])
}

static CLAIMS: [Claim; 5] = [
    Claim {
        id: "C002-14",
        says: "Ping-pong: higher throughput than with the system's threads under nearly all conditions",
        rule: throughput,
    },
    Claim {
        id: "C002-15",
        says: "Ping-pong: throughput falls with the number of connections with both kinds of thread",
        rule: falls,
    },
    Claim {
        id: "C002-16",
        says: "Ping-pong: with all or 1/8 of the connections active the fall comes from waiting, not from the runtime",
        rule: waiting,
    },
    Claim {
        id: "C002-17",
        says: "Ping-pong: with 128 active connections the calls for I/O dominate at every number of connections",
        rule: calls_dominate,
    },
    Claim {
        id: "C002-18",
        says: "Ping-pong: application and runtime without I/O calls cost little, and hardly more with more connections",
        rule: little_overhead,
    },
];

pub static EXPERIMENT: Experiment = Experiment {
    id: ID,
    title: "Ping-pong with a thread per connection",
    readme: include_str!("README.md"),
    seconds: 26.0,
    hours: 0.5,
    points,
    limits,
    claims: &CLAIMS,
    plots: &[Plot {
        title: "Answers per second, by connections",
        series: &[
            "NPTL, all active",
            "Heddle, all active",
            "NPTL, 1/8 active",
            "Heddle, 1/8 active",
            "NPTL, 128 active",
            "Heddle, 128 active",
        ],
        metric: "rate",
        axes: ("connections", "1/s"),
        published: &[],
    }],
    published: &[
        (
            "figures 8 and 9 (all, and 1/8 active)",
            "light threads above the system's in nearly all points; both fall, the light ones markedly",
        ),
        ("figure 10 (128 active)", "light threads above; the fall is less"),
    ],
};
