//! Running experiments: rounds over all points, so that what drifts on the machine drifts for all curves alike.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Error;
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
    /// This program.
    pub heddle: PathBuf,
}

/// All quick experiments together end within this.
const QUICK_LIMIT: Duration = Duration::from_secs(230);
/// Fewer repetitions than this decide nothing, so they are made even if it takes longer than planned.
const LEAST_ROUNDS: u32 = 4;

struct Progress {
    terminal: bool,
    start: Instant,
    planned: f64,
    done: f64,
    /// By how much the size makes everything longer than a quick run, roughly.
    scale: f64,
}

impl Progress {
    /// Says where we are; `within` is the part of the current experiment that is done.
    fn show(&self, experiment: &Experiment, within: f64, what: &str) {
        let part = ((self.done + within * experiment.seconds) / self.planned).clamp(0.0, 1.0);
        let elapsed = self.start.elapsed().as_secs_f64();
        // At first by plan, then more and more by what it took so far.
        let by_plan = self.planned * self.scale * (1.0 - part);
        let by_pace = if part > 0.0 { elapsed / part * (1.0 - part) } else { by_plan };
        let left = by_plan * (1.0 - part) + by_pace * part;
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

/// Runs what is asked for and not there yet; answers the results and sentences about what went wrong.
pub fn run(request: &Request) -> Result<(Store, Vec<String>), Error> {
    let experiments = crate::chosen(&request.ids)?;
    let machine = Machine::read();
    let setting = Setting { size: request.size, machine: machine.clone() };
    let mut store = Store::open(&request.out, request.size, machine)?;
    let mut bench = Bench::new(&request.heddle, &request.out)?;
    let mut progress = Progress {
        terminal: std::io::stderr().is_terminal(),
        start: Instant::now(),
        planned: experiments.iter().map(|e| e.seconds).sum(),
        done: 0.0,
        scale: request.size.pick(0.05, 1.0, 100.0),
    };
    let mut complaints = Vec::new();
    for experiment in experiments {
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
        run_one(experiment, &points, &setting, &bench, &mut store, &progress, &mut complaints)?;
        progress.done += experiment.seconds;
    }
    progress.clear();
    Ok((store, complaints))
}

fn run_one(
    experiment: &Experiment,
    points: &[Point],
    setting: &Setting,
    bench: &Bench,
    store: &mut Store,
    progress: &Progress,
    complaints: &mut Vec<String>,
) -> Result<(), Error> {
    let start = Instant::now();
    let mut expected: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for sample in store.samples.iter().filter(|s| s.experiment == experiment.id && s.failure.is_none()) {
        if let Some(point) = points.iter().find(|p| p.series == sample.series && p.x == sample.x)
            && let Some(group) = &point.group
        {
            expected.entry(group.clone()).or_insert_with(|| sample.checks.clone());
        }
    }
    let rounds = setting.size.rounds();
    for round in 0..rounds {
        let elapsed = start.elapsed().as_secs_f64();
        // A round that would not end in time is not begun.
        if setting.size == Size::Quick {
            let next = elapsed * f64::from(round + 1) / f64::from(round.max(1));
            let late = progress.start.elapsed() > QUICK_LIMIT;
            if round > 0 && (late || round >= LEAST_ROUNDS && next > experiment.seconds) {
                break;
            }
        }
        for turn in 0..points.len() {
            // Each round begins elsewhere, so that nobody is always the first or the one after a heavy one.
            let point = &points[(turn + round as usize * 7) % points.len()];
            let many = point.rounds.is_some_and(|most| round >= most);
            if many || store.has(experiment.id, &point.series, point.x, round) {
                continue;
            }
            if setting.size == Size::Quick && progress.start.elapsed() > QUICK_LIMIT {
                store.note_absent(experiment.id, "the time of a quick run was up")?;
                break;
            }
            let within = (f64::from(round) + turn as f64 / points.len() as f64) / f64::from(rounds);
            if progress.terminal || turn == 0 {
                progress.show(experiment, within, &format!("round {} of {rounds}", round + 1));
            }
            let outcome = bench.run(point, setting.size.patience());
            let mut failure = outcome.failure;
            if let (None, Some(group)) = (&failure, &point.group) {
                let agreed = expected.entry(group.clone()).or_insert_with(|| outcome.checks.clone());
                if *agreed != outcome.checks {
                    failure = Some(format!("wrong result: {:?} where others have {agreed:?}", outcome.checks));
                }
            }
            if let (Some(why), false) = (&failure, point.may_fail) {
                let line = format!("{}: {}: {why}", experiment.id, point.key());
                if !complaints.contains(&line) {
                    complaints.push(line);
                }
            }
            store.add(Sample {
                experiment: experiment.id.to_owned(),
                series: point.series.clone(),
                x: point.x,
                round,
                failure,
                figures: outcome.figures,
                checks: outcome.checks,
            })?;
        }
    }
    Ok(())
}

/// The default folder of results.
pub fn default_out() -> &'static Path {
    Path::new("heddle-lab")
}
