//! Running experiments: rounds over all points of all experiments, so that what drifts on the machine drifts for all curves
//! alike, and the rounds of each experiment see the machine throughout the run.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Error;
use crate::interrupt;
use crate::launch::Bench;
use crate::machine::Machine;
use crate::plan::{Experiment, Point, Setting, Size, Task};
use crate::store::{Sample, Store};

/// What to run.
#[derive(Clone, Debug)]
pub struct Request {
    /// Experiments; all if none.
    pub ids: Vec<String>,
    /// How large.
    pub size: Size,
    /// Kinds of task; all if none.
    pub tasks: Vec<Task>,
    /// Where results go.
    pub out: PathBuf,
    /// How often each point is measured at most, if not as often as the size says.
    pub rounds: Option<u32>,
    /// This program.
    pub heddle: PathBuf,
}

/// All quick experiments together end within this.
const QUICK_LIMIT: Duration = Duration::from_secs(215);
/// Fewer repetitions than this decide nothing.
const LEAST_ROUNDS: u32 = 6;

struct Progress {
    terminal: bool,
    start: Instant,
    /// Seconds that all rounds take, roughly.
    planned: f64,
    /// Which part of the work was there before.
    already: f64,
    /// Seconds after which no more is begun.
    limit: f64,
}

impl Progress {
    fn elapsed(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Says where we are: `part` of the work is done.
    fn show(&self, part: f64, what: &str) {
        let elapsed = self.elapsed();
        // At first by plan, then more and more by what it took so far.
        let new = part - self.already;
        let by_plan = self.planned * (1.0 - part);
        let by_pace = if new > 0.0 { elapsed / new * (1.0 - part) } else { by_plan };
        let left = (by_plan * (1.0 - part) + by_pace * part).min(self.limit - elapsed).max(1.0);
        // What the time ends is done, too.
        let part = part.max(elapsed / self.limit).clamp(0.0, 1.0);
        let left = match left {
            7200.0.. => format!("{:.0} hours", left / 3600.0),
            90.0.. => format!("{:.0} min", left / 60.0),
            _ => format!("{left:.0} s"),
        };
        let bar: String = (0..20).map(|i| if (i as f64) < part * 20.0 { '#' } else { '.' }).collect();
        let line = format!("[{bar}] {:3.0} %  {what}, about {left} left", part * 100.0);
        let mut err = std::io::stderr().lock();
        let _ = if self.terminal { write!(err, "\r\x1b[K{line}") } else { writeln!(err, "{line}") };
        let _ = err.flush();
    }

    fn clear(&self) {
        if self.terminal {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }
}

/// What became of a run.
#[derive(Debug)]
pub struct Done {
    /// The results.
    pub store: Store,
    /// Sentences about what went wrong.
    pub complaints: Vec<String>,
    /// Experiments for which there was too little time to decide anything.
    pub unfinished: Vec<&'static str>,
}

/// Seconds that an experiment's rounds take, roughly.
fn takes(experiment: &Experiment, size: Size, rounds: u32) -> f64 {
    let part = f64::from(rounds) / f64::from(size.rounds());
    match size {
        Size::Tiny => experiment.seconds * 0.05 * part,
        Size::Quick => experiment.seconds * part,
        Size::Full => experiment.hours * 3600.0 * part,
    }
}

/// Runs what is asked for and not there yet.
pub fn run(request: &Request) -> Result<Done, Error> {
    let experiments = crate::chosen(&request.ids)?;
    let machine = Machine::read();
    let setting = Setting { size: request.size, machine: machine.clone() };
    let mut store = Store::open(&request.out, request.size, machine)?;
    let start = Instant::now();
    let mut bench = Bench::new(&request.heddle, &request.out)?;
    let rounds = request.rounds.unwrap_or(request.size.rounds());
    let mut parts = Vec::new();
    for experiment in experiments {
        // What an interrupted run, or one before something was installed, could not do may be there now.
        store.forget_absent(experiment.id);
        for limit in (experiment.limits)(&setting) {
            store.note_absent(experiment.id, &limit)?;
        }
        let mut points = Vec::new();
        for point in (experiment.points)(&setting) {
            if !request.tasks.is_empty() && !request.tasks.contains(&point.task) && point.task != Task::Plain {
                continue;
            }
            match bench.why_not(&point) {
                Some(why) => store.note_absent(experiment.id, &why)?,
                None => points.push(point),
            }
        }
        parts.push(Part::new(experiment, points, request.size, rounds, &store));
    }
    let planned: f64 = parts.iter().map(|part| part.takes).sum();
    let progress = Progress {
        terminal: std::io::stderr().is_terminal(),
        start,
        planned,
        already: parts.iter().map(|part| part.takes * part.already(&store, rounds)).sum::<f64>() / planned,
        limit: if request.size == Size::Quick { QUICK_LIMIT.as_secs_f64() } else { f64::INFINITY },
    };
    let mut complaints = Vec::new();
    for round in 0..rounds {
        let mut before = 0.0;
        let said = Cell::new(false);
        for part in &mut parts {
            let (begin, takes, id) = (progress.elapsed(), part.takes, part.experiment.id);
            // A round that would not end in time is not begun. It takes as long as the one before it.
            if begin + part.last_round <= progress.limit && part.missing(&store, round) {
                part.run(round, &bench, &mut store, &mut complaints, |within| {
                    if progress.terminal || !said.replace(true) {
                        let done = (before + within * takes) / planned;
                        let what = format!("round {} of {rounds}, {id}", round + 1);
                        progress.show((f64::from(round) + done) / f64::from(rounds), &what);
                    }
                    progress.elapsed() <= progress.limit
                })?;
                part.last_round = progress.elapsed() - begin;
            }
            before += takes;
        }
    }
    progress.clear();
    let mut unfinished = Vec::new();
    for part in &parts {
        let whole = (0..rounds).take_while(|round| !part.missing(&store, *round)).count();
        if whole < rounds.min(LEAST_ROUNDS) as usize {
            let why = format!("only {whole} rounds fitted into the time of a quick run; the same command goes on");
            store.note_absent(part.experiment.id, &why)?;
            unfinished.push(part.experiment.id);
        }
    }
    Ok(Done { store, complaints, unfinished })
}

/// What is to be run of one experiment.
struct Part {
    experiment: &'static Experiment,
    points: Vec<Point>,
    size: Size,
    /// Seconds that all its rounds take, roughly.
    takes: f64,
    /// Seconds that its last round took.
    last_round: f64,
    /// What the points of each group must print, as far as samples say.
    expected: BTreeMap<String, BTreeMap<String, String>>,
}

impl Part {
    fn new(experiment: &'static Experiment, points: Vec<Point>, size: Size, rounds: u32, store: &Store) -> Self {
        let mut expected = BTreeMap::new();
        for sample in store.samples.iter().filter(|s| s.experiment == experiment.id && s.failure.is_none()) {
            if let Some(point) = points.iter().find(|p| p.series == sample.series && p.x == sample.x)
                && let Some(group) = &point.group
            {
                expected.entry(group.clone()).or_insert_with(|| sample.checks.clone());
            }
        }
        Self { experiment, points, size, takes: takes(experiment, size, rounds), last_round: 0.0, expected }
    }

    fn is_there(&self, point: &Point, round: u32, store: &Store) -> bool {
        point.rounds.is_some_and(|most| round >= most) || store.has(self.experiment.id, &point.series, point.x, round)
    }

    /// Whether something of a round is not there yet.
    fn missing(&self, store: &Store, round: u32) -> bool {
        !self.points.iter().all(|point| self.is_there(point, round, store))
    }

    /// Which part of the rounds is there.
    fn already(&self, store: &Store, rounds: u32) -> f64 {
        (0..rounds).filter(|round| !self.missing(store, *round)).count() as f64 / f64::from(rounds)
    }

    /// Measures what is not there of a round, while `go_on` says so, which is told which part of the round is done.
    fn run(
        &mut self,
        round: u32,
        bench: &Bench,
        store: &mut Store,
        complaints: &mut Vec<String>,
        go_on: impl Fn(f64) -> bool,
    ) -> Result<(), Error> {
        let all = self.points.len();
        for turn in 0..all {
            // Each round begins elsewhere, so that nobody is always the first or the one after a heavy one.
            let point = self.points[(turn + round as usize * 7) % all].clone();
            if self.is_there(&point, round, store) {
                continue;
            }
            if !go_on(turn as f64 / all as f64) {
                return Ok(());
            }
            let sample = self.sample(&point, round, bench)?;
            if let (Some(why), false) = (&sample.failure, point.may_fail) {
                let line = format!("{}: {}: {why}", self.experiment.id, point.key());
                if !complaints.contains(&line) {
                    complaints.push(line);
                }
            }
            store.add(sample)?;
        }
        Ok(())
    }

    fn sample(&mut self, point: &Point, round: u32, bench: &Bench) -> Result<Sample, Error> {
        let outcome = bench.run(point, self.size.patience());
        if interrupt::came() {
            // What it did is no failure of the program's.
            return Err(Error("interrupted; the same command goes on from here".to_owned()));
        }
        let mut failure = outcome.failure;
        if let (None, Some(group)) = (&failure, &point.group) {
            let agreed = self.expected.entry(group.clone()).or_insert_with(|| outcome.checks.clone());
            if *agreed != outcome.checks {
                failure = Some(format!("wrong result: {:?} where others have {agreed:?}", outcome.checks));
            }
        }
        Ok(Sample {
            experiment: self.experiment.id.to_owned(),
            series: point.series.clone(),
            x: point.x,
            round,
            failure,
            figures: outcome.figures,
            checks: outcome.checks,
        })
    }
}

/// The default folder of results.
pub fn default_out() -> &'static Path {
    Path::new("heddle-lab")
}
