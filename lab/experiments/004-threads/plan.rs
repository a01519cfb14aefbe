//! A thread library of one's own: matrix products, bytes through a file, one mutex; and futexes, signals and slices.

use crate::claims::{Claim, Ratio, Verdict, View, all_above, all_of, all_within};
use crate::experiments::no_limits;
use crate::plan::{Experiment, Plot, Point, Program, Setting, Task};

const ID: &str = "004-threads";
/// Threads of the matrix and mutex tests.
const FIVE: f64 = 5.0;

fn points(setting: &Setting) -> Vec<Point> {
    let (times, each, pairs) =
        setting.size.pick((2, 1000, 500), (120, 1_000_000, 120_000), (1000, 1_000_000, 1_000_000));
    let count = setting.size.pick(50, 5_000, 100_000);
    let four = [
        ("pthreads", Task::Kernel, "t"),
        ("clone", Task::Clone, "c"),
        ("user, one worker", Task::User1, "t"),
        ("user", Task::User, "t"),
    ];
    let mut points = Vec::new();
    for (name, task, kind) in four {
        let matrix = Point::new(format!("matrix, {name}"), FIVE, task, Program::C("products"));
        points.push(matrix.args(format!("n=5 times={times} kind={kind}")));
        let lock = if kind == "c" { "own" } else { "pthread" };
        let mutex = Point::new(format!("mutex, {name}"), FIVE, task, Program::C("lock"));
        points.push(mutex.args(format!("n=5 each={each} lock={lock}")));
        for how in ["regular", "pipe", "yield"] {
            let file = Point::new(format!("{how}, {name}"), 2.0, task, Program::C("file"));
            points.push(file.args(format!("pairs={pairs} how={how} kind={kind}")));
        }
    }
    for private in [0, 1] {
        let point = Point::new("futex", f64::from(private), Task::Kernel, Program::C("small"));
        points.push(point.args(format!("what=futex private={private} count={}", count * 20)));
    }
    let mut operation = Point::new("operation", 1.0, Task::Kernel, Program::C("small")).args("what=operation");
    operation.rounds = Some(1);
    points.push(operation);
    for what in ["signal", "yield"] {
        let point = Point::new(format!("switch by {what}"), 1.0, Task::User1, Program::C("small"));
        points.push(point.args(format!("what={what} count={count}")));
    }
    for slice in [1, 100] {
        let mut matrix = Point::new("matrix by slice", f64::from(slice), Task::User1, Program::C("products"))
            .args(format!("n=5 times={times}"));
        matrix.slice = Some(slice);
        points.push(matrix);
        let mut answer = Point::new("answer by slice", f64::from(slice), Task::User1, Program::C("small"))
            .args(format!("what=answer spinners=2 count={}", setting.size.pick(2, 12, 50)));
        answer.slice = Some(slice);
        points.push(answer);
    }
    points
}

fn ratio(view: &View, metric: &str, a: &str, b: &str, x: f64) -> Vec<Ratio> {
    view.ratio(ID, metric, a, b, x).into_iter().collect()
}

fn rule(view: &View, ratios: &[Ratio], rule: impl FnOnce(&[Ratio]) -> Verdict) -> Verdict {
    if ratios.is_empty() { Verdict::not_measured(view.why_not(ID)) } else { rule(ratios) }
}

fn pthreads_best(view: &View) -> Verdict {
    let close = ratio(view, "time", "matrix, clone", "matrix, pthreads", FIVE);
    let far = ratio(view, "time", "matrix, user, one worker", "matrix, pthreads", FIVE);
    if close.is_empty() || far.is_empty() {
        return Verdict::not_measured(view.why_not(ID));
    }
    all_of(&[
        all_within(&close, 0.8, 1.25, "kernel threads of one's own close behind pthreads"),
        all_above(&far, 1.0, "user threads behind pthreads"),
    ])
}

fn one_processor(view: &View) -> Verdict {
    let cpus = view.cpus().min(FIVE);
    if cpus < 2.0 {
        return Verdict::cannot("this machine has one CPU, and so has everybody");
    }
    let ratios = ratio(view, "time", "matrix, user, one worker", "matrix, pthreads", FIVE);
    let many = ratio(view, "time", "matrix, user", "matrix, pthreads", FIVE);
    let many = many.first().map_or_else(String::new, |r| {
        format!("With as many workers as CPUs the ratio is {}.", crate::claims::short(r.value()))
    });
    rule(view, &ratios, |r| all_above(r, 0.6 * cpus, "user threads on one worker to pthreads")).and(many)
}

fn own_primitives(view: &View) -> Verdict {
    let ratios = ratio(view, "pair", "pipe, user, one worker", "yield, user, one worker", 2.0);
    rule(view, &ratios, |r| all_above(r, 1.0, "user threads on one worker: blocking calls to calls that do not block, with a yield"))
        .and("Under Heddle a blocking call of the program is made one that does not block, so both are served by the same means.")
}

fn equal_io(view: &View) -> Verdict {
    let mut ratios = ratio(view, "pair", "pipe, clone", "pipe, pthreads", 2.0);
    ratios.extend(ratio(view, "pair", "regular, clone", "regular, pthreads", 2.0));
    rule(view, &ratios, |r| all_within(r, 0.67, 1.2, "kernel threads of one's own to pthreads, a slight edge included"))
}

fn mutex_slowest(view: &View) -> Verdict {
    let mut ratios = ratio(view, "pair", "mutex, pthreads", "mutex, clone", FIVE);
    ratios.extend(ratio(view, "pair", "mutex, pthreads", "mutex, user, one worker", FIVE));
    rule(view, &ratios, |r| all_above(r, 1.0, "pthreads to the others"))
}

fn own_mutex(view: &View) -> Verdict {
    let ratios = ratio(view, "pair", "mutex, pthreads", "mutex, clone", FIVE);
    rule(view, &ratios, |r| all_above(r, 1.25, "pthreads to a mutex that spins a little and then waits in a futex"))
}

fn user_mutex(view: &View) -> Verdict {
    let mut ratios = ratio(view, "pair", "mutex, pthreads", "mutex, user, one worker", FIVE);
    ratios.extend(ratio(view, "pair", "mutex, clone", "mutex, user, one worker", FIVE));
    rule(view, &ratios, |r| all_above(r, 1.0, "the others to user threads on one worker"))
}

fn private_futexes(view: &View) -> Verdict {
    let Some(private) = view.get(ID, "operation", 1.0, "private") else {
        return Verdict::not_measured(view.why_not(ID));
    };
    let speed = view.growth(ID, "call", "futex", 0.0, 1.0).map_or_else(String::new, |r| {
        format!(
            "A wake-up call of a shared futex takes {} times that of a private one.",
            crate::claims::short(r.value())
        )
    });
    let is_private = private.iter().all(|p| *p == 1.0);
    let words = if is_private { "a private" } else { "a shared" };
    Verdict::counted(
        !is_private,
        format!("A thread that waits for a pthread mutex waits in {words} futex, as /proc tells."),
    )
    .and(speed)
}

fn signals_cost(view: &View) -> Verdict {
    let all =
        Option::zip(view.get(ID, "switch by signal", 1.0, "switch"), view.get(ID, "switch by yield", 1.0, "switch"));
    let Some((signal, yielded)) = all else { return Verdict::not_measured(view.why_not(ID)) };
    all_above(
        &[Ratio::new("a signal whose handler yields / a yield:", &signal, &yielded)],
        1.0,
        "what a switch by signal costs more, on one worker",
    )
    .and("The other half of the argument, safety of library functions, is not a matter of time.")
}

fn quanta(view: &View) -> Verdict {
    let matrix = view.growth(ID, "time", "matrix by slice", 1.0, 100.0);
    let answer = view.growth(ID, "answer", "answer by slice", 100.0, 1.0);
    let Some((matrix, answer)) = Option::zip(matrix, answer) else { return Verdict::not_measured(view.why_not(ID)) };
    all_of(&[
        all_above(&[matrix], 1.0, "computing with slices of 1 ms to slices of 100 ms"),
        all_above(&[answer], 1.0, "answers beside computing threads, with slices of 100 ms to slices of 1 ms"),
    ])
}

static CLAIMS: [Claim; 10] = [
    Claim {
        id: "C004-1",
        says: "Computing: pthreads are best, kernel threads of one's own close behind",
        rule: pthreads_best,
    },
    Claim {
        id: "C004-2",
        says: "Computing: user threads are far slower, because they use one processor",
        rule: one_processor,
    },
    Claim {
        id: "C004-3",
        says: "I/O: calls of the library that do not block beat plain write and read under user threads",
        rule: own_primitives,
    },
    Claim { id: "C004-4", says: "I/O: pthreads and kernel threads of one's own are equal", rule: equal_io },
    Claim { id: "C004-5", says: "Mutex: pthreads are the slowest", rule: mutex_slowest },
    Claim {
        id: "C004-6",
        says: "Mutex: one's own is about 1.5 times faster: simpler, and it spins a little before it waits",
        rule: own_mutex,
    },
    Claim {
        id: "C004-7",
        says: "Mutex: user threads are the fastest (7.4 times), because no call is made",
        rule: user_mutex,
    },
    Claim { id: "C004-8", says: "Private futexes are faster than what NPTL uses", rule: private_futexes },
    Claim {
        id: "C004-9",
        says: "A scheduler that does not preempt is preferable: preemption by signals enters the kernel, and is not safe everywhere",
        rule: signals_cost,
    },
    Claim {
        id: "C004-10",
        says: "Computing is fastest with the longest slices, I/O wants frequent short ones",
        rule: quanta,
    },
];

pub static EXPERIMENT: Experiment = Experiment {
    id: ID,
    title: "Matrix, file and mutex on four kinds of thread",
    readme: include_str!("README.md"),
    seconds: 25.0,
    hours: 0.3,
    points,
    limits: no_limits,
    claims: &CLAIMS,
    plots: &[Plot {
        title: "Lock and unlock of one mutex by five threads",
        series: &["mutex, pthreads", "mutex, clone", "mutex, user, one worker", "mutex, user"],
        metric: "pair",
        axes: ("threads", "ns"),
        published: &[],
    }],
    published: &[
        ("mutex, 5 x 10^6, pthreads", "615,154 us: 123 ns per pair"),
        ("mutex, 5 x 10^6, kernel-space library", "about 410,000 us: 82 ns per pair"),
        ("mutex, 5 x 10^6, user-space library", "82,875 us: 16.6 ns per pair"),
    ],
};
