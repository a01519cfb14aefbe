//! Waiting for I/O: lost edges, starvation, useless wake-ups, and programs that run as they are.

use crate::claims::{Claim, Ratio, Verdict, View, all_above, all_below};
use crate::experiments::no_limits;
use crate::plan::{Experiment, Point, Program, Setting, Task};

const ID: &str = "002-waits";
/// Python threads, a queue and a lock: something large that knows nothing of us.
const PYTHON: &str = "import threading, queue\nq = queue.Queue()\nt = [threading.Thread(target=lambda i=i: [q.put(i * j) for j in range(200)]) for i in range(20)]\n[x.start() for x in t]\n[x.join() for x in t]\nprint('sum', sum(q.get() for _ in range(4000)))";

fn points(setting: &Setting) -> Vec<Point> {
    let rounds = setting.size.pick(3, 20, 100);
    let mut points = Vec::new();
    for reserve in [0, 1] {
        let point = Point::new(
            if reserve == 1 { "edges kept" } else { "edges not kept" },
            1.0,
            Task::Plain,
            Program::C("edge"),
        );
        points.push(point.args(format!("rounds={rounds} reserve={reserve}")));
    }
    let starve = Point::new("beside a thread that computes", 1.0, Task::User1, Program::C("starve"));
    points.push(starve.args(format!("ms={}", setting.size.pick(50, 200, 1000))));
    for (name, task) in [("NPTL", Task::Kernel), ("Heddle", Task::User)] {
        for mode in ["poll", "read"] {
            let point = Point::new(format!("{name}, {mode}"), 8.0, task, Program::C("waiters"));
            points.push(point.args(format!("n=8 bytes={} mode={mode}", setting.size.pick(20, 500, 5000))));
        }
        let mut python = Point::new(format!("{name}, python3"), 1.0, task, Program::System("python3")).group("python3");
        python.args = vec!["-c".to_owned(), PYTHON.to_owned()];
        python.rounds = Some(1);
        points.push(python);
    }
    points
}

fn edges(view: &View) -> Verdict {
    let all = Option::zip(view.get(ID, "edges not kept", 1.0, "lost"), view.get(ID, "edges kept", 1.0, "lost"));
    let Some((without, with)) = all else { return Verdict::not_measured(view.why_not(ID)) };
    Verdict::counted(
        without.iter().all(|x| *x == 1.0) && with.iter().all(|x| *x == 0.0),
        format!(
            "In the five steps of the paper, taken one by one, {} % of the wake-ups are lost without the list and {} % with it.",
            100.0 * crate::stats::median(&without),
            100.0 * crate::stats::median(&with)
        ),
    )
}

fn starvation(view: &View) -> Verdict {
    let Some(delay) = view.get(ID, "beside a thread that computes", 1.0, "delay") else {
        return Verdict::not_measured(view.why_not(ID));
    };
    // As a part of the time for which the other computes: 1 would be until its end.
    let whole = vec![1.0; delay.len()];
    let below = all_below(
        &[Ratio::new(
            "delay of a thread whose data has come / time for which another computes on the only worker:",
            &delay,
            &whole,
        )],
        0.5,
        "it does not wait until the other ends",
    );
    let outcome = match below.outcome {
        crate::claims::Outcome::Holds => crate::claims::Outcome::Fails,
        crate::claims::Outcome::Fails => crate::claims::Outcome::Holds,
        other => other,
    };
    Verdict { outcome, ..below }.and("The claim is about a scheduler that never preempts; this one does.")
}

fn unmodified(view: &View) -> Verdict {
    // The server's samples count too: the load checks each answer.
    let user: Vec<_> = crate::experiments::ALL
        .iter()
        .flat_map(|e| view.store.samples.iter().filter(move |s| s.experiment == e.id))
        .filter(|s| {
            s.series.contains("Heddle") || s.series.starts_with("U ") || s.series.starts_with("U,") || s.series == "U"
        })
        .collect();
    let mut programs: Vec<String> = user.iter().map(|s| format!("{}: {}", s.experiment, s.series)).collect();
    programs.sort();
    programs.dedup();
    if programs.is_empty() {
        return Verdict::not_measured(view.why_not(ID));
    }
    let bad: Vec<_> =
        user.iter().filter_map(|s| s.failure.as_ref().map(|why| format!("{}: {why}", s.series))).collect();
    let tail = if bad.is_empty() { String::new() } else { format!(" Failures: {}.", bad.join("; ")) };
    Verdict::counted(
        bad.is_empty(),
        format!(
            "{} runs of {} kinds of program with pthreads, the same files as on the kernel's threads, with LD_PRELOAD; results \
             checked.{tail}",
            user.len(),
            programs.len()
        ),
    )
}

fn useless_wakeups(view: &View) -> Verdict {
    // Each thread that was woken for nothing goes back to waiting, which the kernel counts as a switch.
    let ratios = view.ratios(ID, "switches", "NPTL, poll", "NPTL, read");
    if ratios.is_empty() {
        return Verdict::not_measured(view.why_not(ID));
    }
    all_above(&ratios, 1.5, "switches per byte, waiting in poll to waiting in read, 8 kernel threads on one pipe")
}

fn none_before(_: &View) -> Verdict {
    Verdict::cannot(
        "a statement about the systems of 2010, which are not here; what this one has is shown by C002-2, C002-14 and C002-21",
    )
}

static CLAIMS: [Claim; 5] = [
    Claim { id: "C002-19", says: "Edge-triggered epoll without a reserve list loses wake-ups", rule: edges },
    Claim {
        id: "C002-20",
        says: "Looking for I/O only when idle can starve threads for ever if one computes and never waits",
        rule: starvation,
    },
    Claim { id: "C002-21", says: "Programs for pthreads run unmodified through LD_PRELOAD", rule: unmodified },
    Claim {
        id: "C002-22",
        says: "A wait list that carries the parameters of the call avoids useless wake-ups where many wait for one descriptor",
        rule: useless_wakeups,
    },
    Claim {
        id: "C002-23",
        says: "No system before had light threads, efficient I/O and the pthread interface together",
        rule: none_before,
    },
];

pub static EXPERIMENT: Experiment = Experiment {
    id: ID,
    title: "Waiting: lost edges, starvation, useless wake-ups",
    readme: include_str!("README.md"),
    seconds: 7.0,
    hours: 0.1,
    points,
    limits: no_limits,
    claims: &CLAIMS,
    plots: &[],
    published: &[("light threads, efficient I/O, pthreads", "all three only in the paper's system, of ten compared")],
};
