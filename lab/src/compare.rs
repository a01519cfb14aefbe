//! `heddle compare`: the user's own program on the kernel's threads and under Heddle, with and without transparent huge
//! pages, in turn.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Error;
use crate::claims::{Ratio, short};
use crate::interrupt;
use crate::launch::{find_in_path, measure};
use crate::stats;

/// What to compare.
#[derive(Clone, Debug)]
pub struct Request {
    /// This program.
    pub heddle: PathBuf,
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// How often each way at least.
    pub rounds: u32,
    /// About how long all of it may take.
    pub budget: Duration,
    /// How long one run may take.
    pub patience: Duration,
}

/// The four ways, with the options of `heddle run`.
const WAYS: [(&str, &[&str]); 4] = [
    ("NPTL", &["--mode=kernel"]),
    ("NPTL, no huge pages", &["--mode=kernel", "--no-thp"]),
    ("Heddle", &["--mode=user"]),
    ("Heddle, no huge pages", &["--mode=user", "--no-thp"]),
];

/// The figures that are compared: name of the figure, for people, unit, and by what to multiply.
const FIGURES: [(&str, &str, &str); 3] =
    [("wall", "wall time", "s"), ("cpu", "CPU time", "s"), ("memory_mib", "peak memory", "MiB")];

type Samples = Vec<BTreeMap<String, f64>>;

/// Starting under Heddle takes less than this.
const START: Duration = Duration::from_millis(15);

/// No more rounds than this, however short the program.
const MOST_ROUNDS: u32 = 40;

/// Runs the program in the four ways and answers the table and the advice.
pub fn compare(request: &Request) -> Result<String, Error> {
    let name =
        request.program.first().ok_or_else(|| Error("no program given; see 'heddle compare --help'".to_owned()))?;
    let there = Path::new(name).is_file() || name.to_str().is_some_and(|name| find_in_path(name).is_some());
    if !there {
        return Err(Error(format!("{}: no such program", name.display())));
    }
    let mut samples: Vec<Samples> = vec![Vec::new(); WAYS.len()];
    let mut outputs: Vec<Option<String>> = vec![None; WAYS.len()];
    let start = Instant::now();
    let mut round = 0;
    // Each way once more, unless that would take too long; and never fewer than asked for.
    while round < request.rounds
        || (round < MOST_ROUNDS && start.elapsed() * (round + 1) / round.max(1) < request.budget)
    {
        for turn in 0..WAYS.len() {
            let way = (turn + round as usize) % WAYS.len();
            if std::io::stderr().is_terminal() {
                let _ = write!(std::io::stderr().lock(), "\r\x1b[Kround {}: {}", round + 1, WAYS[way].0);
            }
            let mut command = Command::new(&request.heddle);
            command.arg("run").args(WAYS[way].1).arg("--").args(&request.program).stdin(Stdio::null());
            let run = measure(&mut command, request.patience);
            if interrupt::came() {
                clear();
                return Err(Error("interrupted".to_owned()));
            }
            if let Some(why) = run.failure {
                clear();
                let hint =
                    if why.starts_with("exit status") { " (only runs that end with 0 can be compared)" } else { "" };
                return Err(Error(format!("{} ({}): {why}{hint}", name.display(), WAYS[way].0)));
            }
            outputs[way].get_or_insert(run.stdout);
            samples[way].push(run.figures);
        }
        round += 1;
    }
    clear();
    Ok(render(&samples, &outputs, round))
}

fn clear() {
    if std::io::stderr().is_terminal() {
        let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
    }
}

fn values(samples: &Samples, figure: &str) -> Vec<f64> {
    samples.iter().filter_map(|s| s.get(figure).copied()).collect()
}

fn render(samples: &[Samples], outputs: &[Option<String>], rounds: u32) -> String {
    let mut text = format!("{:24}", "");
    for (_, title, unit) in FIGURES {
        let _ = write!(text, "{:>28}", format!("{title}, {unit}"));
    }
    text.push('\n');
    for (way, (name, _)) in WAYS.iter().enumerate() {
        let _ = write!(text, "{name:24}");
        for (figure, _, _) in FIGURES {
            let i = stats::median_interval(&values(&samples[way], figure));
            let _ = write!(text, "{:>28}", format!("{} ({} to {})", short(i.value), short(i.low), short(i.high)));
        }
        text.push('\n');
    }
    let _ = writeln!(text, "Medians of {rounds} runs each, in turn, with their 95 % intervals.");
    if outputs.iter().any(|output| output != &outputs[0]) {
        text.push_str(
            "The program's output was not the same in all four ways: the times may not be of the same work.\n",
        );
    }
    let _ = writeln!(text, "{}", advice(samples));
    text
}

/// One sentence.
fn advice(samples: &[Samples]) -> String {
    let ratio =
        |a: usize, b: usize, figure: &str| Ratio::new("", &values(&samples[a], figure), &values(&samples[b], figure));
    let pages = |way: usize, name: &str| {
        let r = ratio(way, way + 1, "wall");
        if r.above(1.0) || r.below(1.0) {
            let (better, by) = if r.value() > 1.0 { ("off", r.value()) } else { ("on", 1.0 / r.value()) };
            format!(" {name} it is {} times as fast with transparent huge pages {better}.", short(by))
        } else {
            String::new()
        }
    };
    // A program that ends at once shows little but how long it takes to start.
    let extra = stats::median(&values(&samples[2], "wall")) - stats::median(&values(&samples[0], "wall"));
    let short_run = if extra > 0.0 && extra < START.as_secs_f64() {
        format!(
            " The difference is {} ms, about what starting under Heddle takes: a longer run would tell more.",
            short(extra * 1e3)
        )
    } else {
        String::new()
    };
    for (figure, _, _) in FIGURES {
        let r = ratio(0, 2, figure);
        let what = match figure {
            "wall" => "faster",
            "cpu" => "as fast, but takes less CPU time",
            _ => "as fast, but takes less memory",
        };
        if r.above(1.0) {
            return format!(
                "Run it under Heddle: it is {what} there, by a factor of {}.{}",
                short(r.value()),
                pages(2, "There")
            );
        }
        if r.below(1.0) {
            return format!(
                "Leave it on the kernel's threads: it is {what} there, by a factor of {}.{}{}",
                short(1.0 / r.value()),
                if figure == "memory_mib" { "" } else { &short_run },
                pages(0, "There")
            );
        }
    }
    let (kernel, user) = (pages(0, "On the kernel's threads"), pages(2, "Under Heddle"));
    format!("Between the kernel's threads and Heddle there is no difference that these runs can show.{kernel}{user}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(wall: f64, memory: f64) -> Samples {
        (0..6)
            .map(|i| {
                let by = 1.0 + f64::from(i) * 0.002;
                [("wall", wall * by), ("cpu", wall * by), ("memory_mib", memory)].map(|(k, v)| (k.to_owned(), v)).into()
            })
            .collect()
    }

    #[test]
    fn advice_follows_the_figures() {
        let better = advice(&[way(2.0, 5.0), way(2.0, 5.0), way(1.0, 5.0), way(1.0, 5.0)]);
        assert!(better.starts_with("Run it under Heddle: it is faster") && better.contains("2.0"), "{better}");
        let worse = advice(&[way(1.0, 5.0), way(2.0, 5.0), way(3.0, 5.0), way(3.0, 5.0)]);
        assert!(worse.starts_with("Leave it") && worse.contains("huge pages on"), "{worse}");
        let brief = advice(&[way(0.001, 5.0), way(0.001, 5.0), way(0.005, 5.0), way(0.005, 5.0)]);
        assert!(brief.contains("4.0") && brief.contains("a longer run"), "{brief}");
        assert!(!worse.contains("a longer run"), "{worse}");
        let same = advice(&[way(1.0, 5.0), way(1.0, 5.0), way(1.0, 5.0), way(1.0, 5.0)]);
        assert!(same.contains("no difference that these runs can show"), "{same}");
    }
}
