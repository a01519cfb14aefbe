//! What an experiment measures: points, each a program, its arguments and what its tasks are.

use std::time::Duration;

use crate::claims::Claim;
use crate::machine::Machine;

/// What a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Task {
    /// Kernel threads, made by the C library.
    Kernel,
    /// Processes.
    Process,
    /// User threads: the same program under Heddle, as many workers as CPUs.
    User,
    /// User threads on one worker.
    User1,
    /// Kernel threads made by `clone` itself, with locks of the program's own.
    Clone,
    /// The library's fork-join.
    Join,
    /// Another runtime: OpenMP, TBB, Go, rayon, chili, tokio, may.
    Rival,
    /// One task, nothing shared: what others are compared with.
    Plain,
}

impl Task {
    /// All kinds, with the names of the command line.
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::Kernel, "kernel"),
        (Self::Process, "process"),
        (Self::User, "user"),
        (Self::User1, "user1"),
        (Self::Clone, "clone"),
        (Self::Join, "join"),
        (Self::Rival, "rival"),
        (Self::Plain, "plain"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(task, _)| *task == self).map_or("", |(_, name)| name)
    }
}

/// What runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// One of the compiled C programs.
    C(&'static str),
    /// A part of this binary (see [`crate::child`]).
    Child(&'static str),
    /// A rival's program, compiled if its compiler is found.
    Rival(&'static str),
    /// A rival in Rust: a contender of `bench/kernels`, if its program is there.
    Contender(&'static Contender),
    /// A program of the system.
    System(&'static str),
    /// One of the C programs, compiled for the sharing detector if there is a compiler for that, and run with it. Its figure
    /// `lines` is how many shared lines were found.
    Watched(&'static str),
}

/// A contender of `bench/kernels`, which is built apart, since the lab's own build should not want every rival.
#[derive(Debug, PartialEq, Eq)]
pub struct Contender {
    /// The kernel, as that program calls it.
    pub kernel: &'static str,
    /// The contender, likewise.
    pub name: &'static str,
    /// What its result is called among the check values.
    pub check: &'static str,
    /// The figure per item.
    pub figure: &'static str,
}

/// One point of a curve.
#[derive(Clone, Debug)]
pub struct Point {
    /// The curve's name within the experiment.
    pub series: String,
    /// Where on the curve: tasks, workers, connections ...
    pub x: f64,
    /// What its tasks are.
    pub task: Task,
    /// What runs.
    pub program: Program,
    /// Its arguments.
    pub args: Vec<String>,
    /// Heddle's workers, if not as many as CPUs.
    pub workers: Option<u32>,
    /// Heddle's time slice in milliseconds.
    pub slice: Option<u32>,
    /// An allocator's library to load before.
    pub preload: Option<&'static str>,
    /// The soft limit of open files.
    pub files: Option<u64>,
    /// Points with the same mark must print the same check values.
    pub group: Option<String>,
    /// A failure is an outcome like others (the claim says that it fails).
    pub may_fail: bool,
    /// Measured only so often, if fewer than others (what does not vary).
    pub rounds: Option<u32>,
    /// What a contender's time is divided by.
    pub items: f64,
    /// A server that the program starts: its name, and it gets the rest of the arguments.
    pub server: Option<(&'static str, Vec<String>)>,
}

impl Point {
    /// A point with no specials.
    pub fn new(series: impl Into<String>, x: f64, task: Task, program: Program) -> Self {
        Self {
            series: series.into(),
            x,
            task,
            program,
            args: Vec::new(),
            workers: None,
            slice: None,
            preload: None,
            files: None,
            group: None,
            may_fail: false,
            rounds: None,
            items: 1.0,
            server: None,
        }
    }

    /// Appends arguments, given as one text with spaces between them.
    pub fn args(mut self, args: impl AsRef<str>) -> Self {
        self.args.extend(args.as_ref().split_whitespace().map(str::to_owned));
        self
    }

    /// Sets the mark of those that must agree.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// What tells it from the experiment's other points.
    pub fn key(&self) -> String {
        format!("{} @ {}", self.series, self.x)
    }
}

/// How large the experiments are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// For tests: seconds, and no verdict means anything.
    Tiny,
    /// All within four minutes on two cores.
    Quick,
    /// The papers' parameters where memory allows.
    Full,
}

impl Size {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }

    /// By its name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Tiny, Self::Quick, Self::Full].into_iter().find(|size| size.name() == name)
    }

    /// One of three, by size.
    pub fn pick<T>(self, tiny: T, quick: T, full: T) -> T {
        match self {
            Self::Tiny => tiny,
            Self::Quick => quick,
            Self::Full => full,
        }
    }

    /// How often each point is measured, if there is time.
    pub fn rounds(self) -> u32 {
        self.pick(1, 12, 7)
    }

    /// How long a program may take before it has failed.
    pub fn patience(self) -> Duration {
        Duration::from_secs(self.pick(120, 60, 3600))
    }
}

/// What an experiment makes its points from.
#[derive(Clone, Debug)]
pub struct Setting {
    /// How large.
    pub size: Size,
    /// The machine.
    pub machine: Machine,
}

/// A published curve.
pub struct Curve {
    /// Its name, with the machine.
    pub name: &'static str,
    /// x and y of each point.
    pub points: &'static [(f64, f64)],
}

/// A picture: which of our curves, and which of the paper's.
pub struct Plot {
    /// What it shows.
    pub title: &'static str,
    /// Our series.
    pub series: &'static [&'static str],
    /// Which of a sample's figures.
    pub metric: &'static str,
    /// What the axes are.
    pub axes: (&'static str, &'static str),
    /// The paper's curves.
    pub published: &'static [Curve],
}

/// An experiment.
pub struct Experiment {
    /// Its name on the command line.
    pub id: &'static str,
    /// What it is about, in a line.
    pub title: &'static str,
    /// What the paper did and what differs here.
    pub readme: &'static str,
    /// Seconds it may take when quick.
    pub seconds: f64,
    /// Hours that it takes when full on two CPUs, roughly.
    pub hours: f64,
    /// Its points.
    pub points: fn(&Setting) -> Vec<Point>,
    /// What the size or the machine leaves out, in sentences.
    pub limits: fn(&Setting) -> Vec<String>,
    /// The claims it decides.
    pub claims: &'static [Claim],
    /// Its pictures.
    pub plots: &'static [Plot],
    /// The papers' figures that are no curves: what, and the figure.
    pub published: &'static [(&'static str, &'static str)],
}
