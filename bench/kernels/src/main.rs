//! Heddle's library beside its rivals: `README.md` says how to use it, `--help` what there is.

mod create;
mod external;
mod fib;
mod fib_threads;
mod kernel;
mod matmul;
mod measure;
mod mutex;
mod nqueens;
mod parked;
mod quicksort;
mod rivals;
mod run;
mod scopes;
mod skynet;
mod spawns;
mod strassen;
mod uts;
mod yields;

use std::process::ExitCode;

use external::Programs;
use kernel::{How, KERNELS, Kernel, Rival, Unit};
use measure::Measure;
use run::Series;

const HELP: &str = "\
kernels [OPTION...] [KERNEL...]     all kernels by default, each beside its rivals; medians
  --workers N[,N...]   how many workers, each in turn (1,2)
  --rounds N           processes of each contender, all in turn (5)
  --runs N             timed runs in each process, after one that is not (3)
  --rivals NAME[,...]  only contenders whose name has one of these in it (and the sequential ones, which some figures need)
  --size N             another size of the problem
  --quick              small problems, 2 rounds of 1 run: a look, not a result
  --list               names of the kernels and their contenders";

struct Options {
    kernels: Vec<&'static Kernel>,
    workers: Vec<usize>,
    rounds: usize,
    runs: usize,
    rivals: Vec<String>,
    size: Option<usize>,
    is_quick: bool,
}

fn options(arguments: &[String]) -> Result<Option<Options>, String> {
    let mut options = Options {
        kernels: Vec::new(),
        workers: vec![1, 2],
        rounds: 5,
        runs: 3,
        rivals: Vec::new(),
        size: None,
        is_quick: arguments.iter().any(|a| a == "--quick"),
    };
    if options.is_quick {
        (options.rounds, options.runs) = (2, 1);
    }
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument}: of what?"));
        let number = |text: &str| match text.parse() {
            Ok(0) | Err(_) => Err(format!("{text}: not a number above 0")),
            Ok(number) => Ok(number),
        };
        match argument.as_str() {
            "--help" | "-h" => {
                println!("{HELP}");
                return Ok(None);
            }
            "--list" => {
                for kernel in KERNELS {
                    let rivals: Vec<_> = kernel.rivals.iter().map(|rival| rival.name).collect();
                    println!("{}: {}", kernel.name, rivals.join("; "));
                }
                return Ok(None);
            }
            "--quick" => {}
            "--workers" => options.workers = value()?.split(',').map(number).collect::<Result<_, _>>()?,
            "--rounds" => options.rounds = number(value()?)?,
            "--runs" => options.runs = number(value()?)?,
            "--size" => options.size = Some(number(value()?)?),
            "--rivals" => options.rivals = value()?.split(',').map(str::to_string).collect(),
            name => match KERNELS.iter().find(|kernel| kernel.name == name) {
                Some(kernel) => options.kernels.push(kernel),
                None => return Err(format!("{name}: no such kernel or option; --help")),
            },
        }
    }
    if options.kernels.is_empty() {
        options.kernels = KERNELS.to_vec();
    }
    Ok(Some(options))
}

impl Options {
    fn wants(&self, rival: &Rival) -> bool {
        self.rivals.is_empty() || rival.is_single || self.rivals.iter().any(|name| rival.name.contains(name))
    }

    fn size(&self, kernel: &Kernel, rival: &Rival) -> usize {
        self.size.unwrap_or(if self.is_quick { kernel.quick } else { kernel.size }).min(rival.most)
    }
}

/// In a process of its own: `--contend KERNEL RIVAL WORKERS SIZE RUNS`.
fn contend(arguments: &[String]) -> Option<()> {
    let [kernel, rival, numbers @ ..] = arguments else { return None };
    let kernel = KERNELS.iter().find(|k| k.name == kernel)?;
    let rival = kernel.rivals.iter().find(|r| r.name == rival)?;
    let [workers, size, runs] = numbers else { return None };
    let measure = Measure { workers: workers.parse().ok()?, size: size.parse().ok()?, runs: runs.parse().ok()? };
    let How::Here(run) = rival.how else { return None };
    run(&measure);
    Some(())
}

/// A contender's figure.
struct Row {
    name: &'static str,
    figure: f64,
    median: f64,
    spread: (f64, f64),
    size: usize,
    bytes: Option<u64>,
}

fn figure(kernel: &Kernel, size: usize, workers: usize, seconds: f64, plain: f64) -> f64 {
    let items = (kernel.items)(size);
    match kernel.unit {
        Unit::Overhead => seconds * workers as f64 / items * 1e9 - plain,
        Unit::Each => seconds / items * 1e9,
        Unit::Rate => items / seconds / 1e6,
        Unit::Millis => seconds * 1e3,
        Unit::Parked => seconds,
    }
}

/// Measures a kernel with a number of workers and prints its table. False: something failed.
fn table(options: &Options, programs: &mut Programs, kernel: &Kernel, workers: usize) -> bool {
    let rivals: Vec<_> = kernel.rivals.iter().filter(|rival| options.wants(rival)).collect();
    let mut series: Vec<Series> = rivals.iter().map(|rival| Series::new(rival, programs)).collect();
    let rounds = if kernel.unit == Unit::Parked { 1 } else { options.rounds };
    for _ in 0..rounds {
        for (rival, series) in rivals.iter().zip(&mut series) {
            let size = options.size(kernel, rival);
            series.round(kernel, workers, size, options.runs);
        }
    }
    // What a plain call costs.
    let plain = series.iter().find(|series| series.rival.name == "sequential").and_then(Series::median);
    let plain = plain.map_or(0.0, |s| s / (kernel.items)(options.size(kernel, rivals[0])) * 1e9);
    let mut rows = Vec::new();
    let mut all_right = true;
    println!("\n{} ({}), {workers} worker{}", kernel.name, kernel.unit.name(), if workers == 1 { "" } else { "s" });
    for series in &series {
        let name = series.rival.name;
        let Some(median) = series.median() else {
            let why = series.why.as_deref().unwrap_or("no result");
            all_right &= series.is_absent;
            println!("  {name:18} {}: {why}", if series.is_absent { "ABSENT" } else { "FAILED" });
            continue;
        };
        let size = options.size(kernel, series.rival);
        let used = if series.rival.is_single { 1 } else { workers };
        let plain = if name == "sequential" { 0.0 } else { plain };
        let of = |seconds| figure(kernel, size, used, seconds, plain);
        let bytes = series.samples.iter().filter_map(|sample| sample.bytes).max();
        rows.push(Row {
            name,
            figure: of(median),
            median,
            spread: (of(series.least()), of(series.most())),
            size,
            bytes,
        });
    }
    let is_ours = |row: &Row| row.name.starts_with("heddle");
    let is_plain = |row: &Row| row.name.contains("sequential");
    let better = |ours: &Row, other: &Row| match kernel.unit {
        Unit::Rate => ours.figure / other.figure,
        Unit::Millis | Unit::Each | Unit::Overhead | Unit::Parked => other.figure / ours.figure,
    };
    let order = |a: &&Row, b: &&Row| better(a, b).total_cmp(&1.0);
    let best = rows.iter().filter(|row| !is_ours(row) && !is_plain(row)).max_by(order);
    let plain = rows.iter().filter(|row| is_plain(row) && kernel.unit != Unit::Overhead).max_by(order);
    for row in &rows {
        let (low, high) = (row.spread.0.min(row.spread.1), row.spread.0.max(row.spread.1));
        print!("  {:18} {:12.2}   ({low:.2} to {high:.2}; {:.2} ms", row.name, row.figure, row.median * 1e3);
        if row.size != options.size.unwrap_or(if options.is_quick { kernel.quick } else { kernel.size }) {
            print!(", size {}", row.size);
        }
        print!(")");
        if let Some(bytes) = row.bytes {
            print!("   {bytes} bytes each");
        }
        if is_ours(row) {
            for other in [best, plain].into_iter().flatten() {
                print!("   {:.2} x {}", better(row, other), other.name);
            }
        }
        println!();
    }
    all_right
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "--contend") {
        return if contend(&arguments[1..]).is_some() { ExitCode::SUCCESS } else { ExitCode::from(2) };
    }
    let options = match options(&arguments) {
        Ok(Some(options)) => options,
        Ok(None) => return ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let mode = std::env::var("HEDDLE_MODE").unwrap_or("user".to_string());
    println!(
        "medians of {} runs, {} in each of {} processes; Heddle in {mode} mode",
        options.rounds * options.runs,
        options.runs,
        options.rounds
    );
    println!(
        "in brackets: least and greatest, and the median time; \"1.20 x NAME\": 1.20 times better than the best rival, or plain code"
    );
    let mut programs = Programs::default();
    let mut all_right = true;
    for kernel in &options.kernels {
        for &workers in &options.workers {
            all_right &= table(&options, &mut programs, kernel, workers);
        }
    }
    if all_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
