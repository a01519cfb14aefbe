//! Running experiments: rounds over all points, so that what drifts on the machine drifts for all curves alike.

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
/// Fewer repetitions than this decide nothing, so they are made even if it takes up to twice as long as planned.
const LEAST_ROUNDS: u32 = 6;

struct Progress {
    terminal: bool,
    start: Instant,
    size: Size,
    rounds: u32,
    planned: f64,
    done: f64,
    /// Seconds after which no more is begun.
    limit: f64,
}

impl Progress {
    /// Seconds that an experiment takes, roughly.
    fn takes(&self, experiment: &Experiment) -> f64 {
        let part = f64::from(self.rounds) / f64::from(self.size.rounds());
        match self.size {
            Size::Tiny => experiment.seconds * 0.05 * part,
            Size::Quick => experiment.seconds,
            Size::Full => experiment.hours * 3600.0 * part,
        }
    }

    /// Says where we are; `within` is the part of the current experiment that is done.
    fn show(&self, experiment: &Experiment, within: f64, what: &str) {
        let part = ((self.done + within * self.takes(experiment)) / self.planned).clamp(0.0, 1.0);
        let elapsed = self.start.elapsed().as_secs_f64();
        // At first by plan, then more and more by what it took so far.
        let by_plan = self.planned * (1.0 - part);
        let by_pace = if part > 0.0 { elapsed / part * (1.0 - part) } else { by_plan };
        let left = (by_plan * (1.0 - part) + by_pace * part).min(self.limit - elapsed).max(1.0);
        let left = match left {
            7200.0.. => format!("{:.0} hours", left / 3600.0),
            90.0.. => format!("{:.0} min", left / 60.0),
            _ => format!("{left:.0} s"),
        };
        let bar: String = (0..20).map(|i| if (i as f64) < part * 20.0 { '#' } else { '.' }).collect();
        let line = format!("[{bar}] {:3.0} %  {} {what}, about {left} left", part * 100.0, experiment.id);
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

/// Runs what is asked for and not there yet.
pub fn run(request: &Request) -> Result<Done, Error> {
    let experiments = crate::chosen(&request.ids)?;
    let machine = Machine::read();
    let setting = Setting { size: request.size, machine: machine.clone() };
    let mut store = Store::open(&request.out, request.size, machine)?;
    let mut bench = Bench::new(&request.heddle, &request.out)?;
    let rounds = request.rounds.unwrap_or(request.size.rounds());
    let mut progress = Progress {
        terminal: std::io::stderr().is_terminal(),
        start: Instant::now(),
        size: request.size,
        rounds,
        planned: 0.0,
        done: 0.0,
        limit: if request.size == Size::Quick { QUICK_LIMIT.as_secs_f64() } else { f64::INFINITY },
    };
    progress.planned = experiments.iter().map(|e| progress.takes(e)).sum();
    let (mut complaints, mut unfinished) = (Vec::new(), Vec::new());
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
        // What others took too long, or did not need, all that follow share.
        let left = QUICK_LIMIT.saturating_sub(progress.start.elapsed()).as_secs_f64();
        let share = left * progress.takes(experiment) / (progress.planned - progress.done);
        let limit = match request.size {
            Size::Quick => share.min(QUICK_LIMIT.as_secs_f64() / 4.0),
            _ => f64::INFINITY,
        };
        let part = Part { experiment, points: &points, size: request.size, rounds, limit };
        let made = part.run(&bench, &mut store, &progress, &mut complaints)?;
        if made < rounds.min(LEAST_ROUNDS) && !points.is_empty() {
            let why = format!("only {made} rounds fitted into the time of a quick run; the same command goes on");
            store.note_absent(experiment.id, &why)?;
            unfinished.push(experiment.id);
        }
        progress.done += progress.takes(experiment);
    }
    progress.clear();
    Ok(Done { store, complaints, unfinished })
}

/// One experiment's turn.
struct Part<'a> {
    experiment: &'a Experiment,
    points: &'a [Point],
    size: Size,
    rounds: u32,
    /// Seconds that it may take, roughly.
    limit: f64,
}

impl Part<'_> {
    /// What the points of each group must print, as far as samples say.
    fn expected(&self, store: &Store) -> BTreeMap<String, BTreeMap<String, String>> {
        let mut expected = BTreeMap::new();
        for sample in store.samples.iter().filter(|s| s.experiment == self.experiment.id && s.failure.is_none()) {
            if let Some(point) = self.points.iter().find(|p| p.series == sample.series && p.x == sample.x)
                && let Some(group) = &point.group
            {
                expected.entry(group.clone()).or_insert_with(|| sample.checks.clone());
            }
        }
        expected
    }

    /// Answers how many whole rounds there are.
    fn run(
        &self,
        bench: &Bench,
        store: &mut Store,
        progress: &Progress,
        complaints: &mut Vec<String>,
    ) -> Result<u32, Error> {
        let (experiment, points, start) = (self.experiment, self.points, Instant::now());
        let mut expected = self.expected(store);
        let mut before = 0.0;
        for round in 0..self.rounds {
            let is_there = |p: &Point, store: &Store| {
                p.rounds.is_some_and(|most| round >= most) || store.has(experiment.id, &p.series, p.x, round)
            };
            if points.iter().all(|p| is_there(p, store)) {
                continue;
            }
            // A round that would not end in time is not begun. It takes as long as the one before it.
            let begin = start.elapsed().as_secs_f64();
            let next = begin + (begin - before);
            before = begin;
            let late = self.size == Size::Quick && progress.start.elapsed() > QUICK_LIMIT;
            let enough = if round < LEAST_ROUNDS { 2.0 * self.limit } else { self.limit };
            if round > 0 && (late || next > enough) {
                return Ok(round);
            }
            for turn in 0..points.len() {
                // Each round begins elsewhere, so that nobody is always the first or the one after a heavy one.
                let point = &points[(turn + round as usize * 7) % points.len()];
                if is_there(point, store) {
                    continue;
                }
                if self.size == Size::Quick && progress.start.elapsed() > QUICK_LIMIT {
                    return Ok(round);
                }
                let within = (f64::from(round) + turn as f64 / points.len() as f64) / f64::from(self.rounds);
                if progress.terminal || turn == 0 {
                    progress.show(experiment, within, &format!("round {} of {}", round + 1, self.rounds));
                }
                let sample = self.sample(point, round, bench, &mut expected)?;
                if let (Some(why), false) = (&sample.failure, point.may_fail) {
                    let line = format!("{}: {}: {why}", experiment.id, point.key());
                    if !complaints.contains(&line) {
                        complaints.push(line);
                    }
                }
                store.add(sample)?;
            }
        }
        Ok(self.rounds)
    }

    fn sample(
        &self,
        point: &Point,
        round: u32,
        bench: &Bench,
        expected: &mut BTreeMap<String, BTreeMap<String, String>>,
    ) -> Result<Sample, Error> {
        let outcome = bench.run(point, self.size.patience());
        if interrupt::came() {
            // What it did is no failure of the program's.
            return Err(Error("interrupted; the same command goes on from here".to_owned()));
        }
        let mut failure = outcome.failure;
        if let (None, Some(group)) = (&failure, &point.group) {
            let agreed = expected.entry(group.clone()).or_insert_with(|| outcome.checks.clone());
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
