//! Channels beside their rivals: each figure of each contender in a process of its own, in turn, medians of several rounds.
//!
//! Rivals run on kernel threads, as they do anywhere; Heddle's channels on user threads of two workers, and on kernel threads. tokio
//! has two workers, Go two processors.
//! Allocators are preloaded into a process that hands over boxes. A contender that is not there (Go without a compiler) or does not have a figure is named with a dash.

mod rivals;

use std::env;
use std::process::{Command, Stdio};

use clap::Parser;
use clap::builder::PossibleValuesParser;

/// What is measured: name, unit, how many messages, whether more is better.
struct Figure {
    name: &'static str,
    unit: &'static str,
    count: u64,
    more: bool,
}

const fn figure(name: &'static str, unit: &'static str, count: u64) -> Figure {
    Figure { name, unit, count, more: unit.as_bytes()[0] == b'M' }
}

const FIGURES: &[Figure] = &[
    figure("spsc8", "M/s", 8_000_000),
    figure("spsc64", "M/s", 4_000_000),
    figure("mpsc4", "M/s", 3_000_000),
    figure("mpmc4x4", "M/s", 3_000_000),
    figure("pingpong", "ns", 200_000),
    figure("mail16", "M/s", 2_000_000),
    figure("mail256", "M/s", 2_000_000),
    figure("mail4096", "M/s", 300_000),
    figure("mail65536", "M/s", 20_000),
    figure("hand0x1", "M/s a thread", 300_000),
    figure("hand1x1", "M/s a thread", 300_000),
    figure("hand0x16", "M/s a thread", 2_000_000),
    figure("hand1x16", "M/s a thread", 2_000_000),
    figure("hand0x64", "M/s a thread", 3_000_000),
    figure("hand1x64", "M/s a thread", 3_000_000),
    figure("hand0x256", "M/s a thread", 3_000_000),
    figure("hand1x256", "M/s a thread", 3_000_000),
    figure("hand0x4096", "M/s a thread", 4_000_000),
    figure("hand1x4096", "M/s a thread", 4_000_000),
    // As it is: the child says KiB.
    figure("oneway", "KiB more", 1_000_000_000),
];

/// Channels, pools and mailboxes beside their rivals: medians of several rounds, all in turn.
#[derive(Parser)]
struct Options {
    /// Runs of each contender.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// These figures only.
    #[arg(long, value_name = "FIGURE", value_parser = PossibleValuesParser::new(FIGURES.iter().map(|f| f.name)))]
    only: Vec<String>,
    /// These contenders only.
    #[arg(long, value_name = "CONTENDER", value_parser = PossibleValuesParser::new(rivals::ALL))]
    with: Vec<String>,
    /// How long `oneway` takes.
    #[arg(long, value_name = "N", env = rivals::SECONDS_SET)]
    seconds: Option<f64>,
    /// Names figures and contenders.
    #[arg(long)]
    list: bool,
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [flag, contender, figure] = &arguments[..]
        && flag == "--child"
    {
        let figure = FIGURES.iter().find(|f| f.name == figure).expect("a figure");
        if let Some(seconds) = rivals::run(contender, figure.name, figure.count) {
            println!("{seconds}");
        }
        return;
    }
    let Options { rounds, only, with, seconds, list } = Options::parse();
    if list {
        println!("figures: {}", FIGURES.iter().map(|f| f.name).collect::<Vec<_>>().join(" "));
        println!("contenders: {}", rivals::ALL.join(" "));
        return;
    }
    let asked = |list: &[String], name: &str| list.is_empty() || list.iter().any(|n| n == name);
    let contenders: Vec<&str> = rivals::ALL.iter().copied().filter(|name| asked(&with, name)).collect();
    let (contenders, absent): (Vec<&str>, Vec<&str>) =
        contenders.into_iter().partition(|name| rivals::preload(name).is_ok());
    for reason in absent.into_iter().filter_map(|name| rivals::preload(name).err()) {
        println!("{reason}");
    }
    println!("{:10} {}", "", contenders.iter().map(|name| format!("{name:>13}")).collect::<String>());
    for figure in FIGURES.iter().filter(|figure| asked(&only, figure.name)) {
        let mut all = vec![Vec::new(); contenders.len()];
        for _ in 0..rounds {
            for (name, results) in contenders.iter().zip(&mut all) {
                results.extend(child(name, figure.name, seconds));
            }
        }
        let cells = all.into_iter().map(|mut seconds: Vec<f64>| {
            seconds.sort_by(f64::total_cmp);
            match seconds.get(seconds.len() / 2) {
                None => "-".to_string(),
                Some(median) if figure.more => format!("{:.1}", figure.count as f64 / median / 1e6),
                Some(median) => format!("{:.0}", median / figure.count as f64 * 1e9),
            }
        });
        println!("{:10} {}  {}", figure.name, cells.map(|cell| format!("{cell:>13}")).collect::<String>(), figure.unit);
    }
}

/// The seconds that one run takes, if the contender has this figure.
fn child(contender: &str, figure: &str, seconds: Option<f64>) -> Option<f64> {
    let this = env::current_exe().expect("our own path");
    let mut command = Command::new(this);
    if let Ok(Some(library)) = rivals::preload(contender) {
        command.env("LD_PRELOAD", library);
    }
    command.envs(seconds.map(|seconds| (rivals::SECONDS_SET, seconds.to_string())));
    let output = command.args(["--child", contender, figure]).stderr(Stdio::inherit()).output().expect("a child");
    assert!(output.status.success(), "{contender} {figure}: {}", output.status);
    String::from_utf8_lossy(&output.stdout).trim().parse().ok()
}
