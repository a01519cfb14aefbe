//! `heddle demo`: two unmodified programs on the kernel's threads (NPTL) and under Heddle, in turn, and one table.

use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::cpus::Cpus;
use crate::demo_child::{Child, Demo, Side};
use crate::demo_table::{Better, Figure, Table};
use crate::failure::{Failure, print};
use crate::preload_file::{self, ECHO_SERVER, THREADS};

/// Each side is measured this often, the sides in turn.
const ROUNDS: u32 = 3;
/// No further round begins if it would end later than this.
const BUDGET: Duration = Duration::from_secs(19);
/// How long each number of connections is measured, in milliseconds.
const LOAD_MS: u32 = 300;
/// Numbers of connections to the echo server.
const CONNECTIONS: [u64; 3] = [16, 128, 1024];
/// Descriptors that the server and its load each need beside their connections.
const SPARE_FILES: u64 = 64;

/// The figures that the thread program prints: its name for one, ours, and the unit.
const THREAD_FIGURES: [(&str, &str, &str); 4] = [
    ("create_join_from_thread", "create and join a thread, from a thread", "us"),
    ("create_join_from_main", "create and join a thread, from main", "us"),
    ("condvar_switch", "hand over by condition variable", "us"),
    ("mutex_lock_unlock", "lock and unlock, 5 threads and one mutex", "ns"),
];

/// Measures and prints the table.
pub fn demo() -> Result<(), Failure> {
    let demo = Demo { echo_server: preload_file::extract(&ECHO_SERVER)?, threads: preload_file::extract(&THREADS)? };
    let connections = raise_file_limit();
    print(
        "Two unmodified programs (Rust std threads), on the kernel's threads and under Heddle, in turn; about 20 seconds.\n",
    )?;
    let mut table = Table::default();
    let start = Instant::now();
    let mut rounds = 0;
    while rounds < ROUNDS && start.elapsed() * (rounds + 1) <= BUDGET * rounds.max(1) {
        for side in [Side::Nptl, Side::Heddle] {
            run_threads(&demo, side, &mut table)?;
            run_echo(&demo, side, &connections, &mut table)?;
        }
        rounds += 1;
    }
    print(&format!("\n{}\n", table.render()))?;
    let elapsed = start.elapsed().as_secs_f64();
    let cpus = Cpus::read().allowed;
    let mut notes = format!(
        "{rounds} rounds each in {elapsed:.1} s, medians; {cpus} CPUs. A ratio above 1 is Heddle's advantage.\n"
    );
    if connections.len() < CONNECTIONS.len() {
        notes.push_str(
            "Not measured: more connections than this process's limit of open files allows (see ulimit -n).\n",
        );
    }
    print(&notes)
}

/// Raises the soft limit of open files (children inherit it); answers the numbers of connections that fit.
fn raise_file_limit() -> Vec<u64> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = CONNECTIONS.iter().max().unwrap_or(&0) + SPARE_FILES;
    let mut current = limit.current.unwrap_or(u64::MAX);
    if current < wanted {
        let raised = wanted.min(limit.maximum.unwrap_or(u64::MAX));
        if setrlimit(Resource::Nofile, Rlimit { current: Some(raised), ..limit }).is_ok() {
            current = raised;
        }
    }
    CONNECTIONS.into_iter().filter(|count| count + SPARE_FILES <= current).collect()
}

/// Runs the thread program once.
fn run_threads(demo: &Demo, side: Side, table: &mut Table) -> Result<(), Failure> {
    let mut child = Child::start(side, format!("the thread program {side}"), &demo.threads, &[])?;
    let output = child.finish()?;
    let value = |name: &str| {
        let line = output.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok())
            .ok_or_else(|| Failure::own(format!("the thread program {side} did not print '{name}'")))
    };
    for (name, title, unit) in THREAD_FIGURES {
        table.add(Figure { title: title.to_owned(), unit, better: Better::Lower }, side, value(name)?);
    }
    let count = value("live_threads")?;
    let title = format!("{count} threads alive at a time, each");
    table.add(Figure { title, unit: "us", better: Better::Lower }, side, value("live_thread")?);
    Ok(())
}

/// Runs the echo server once and puts it under load; the load always runs on the kernel's threads.
fn run_echo(demo: &Demo, side: Side, connections: &[u64], table: &mut Table) -> Result<(), Failure> {
    let Some(most) = connections.last() else { return Ok(()) };
    let unexpected =
        |line: &str| Failure::own(format!("the echo server's test {side} printed '{line}', which makes no sense"));
    let mut server = Child::start(side, format!("the echo server {side}"), &demo.echo_server, &["serve"])?;
    let line = server.line()?;
    let port = line.strip_prefix("listening ").ok_or_else(|| unexpected(&line))?;

    let mut args = vec!["load".to_owned(), port.to_owned(), LOAD_MS.to_string()];
    args.extend(connections.iter().map(u64::to_string));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut load = Child::start(Side::Nptl, format!("the load on the echo server {side}"), &demo.echo_server, &args)?;
    let kernel_threads = server.most_threads_until_ended(&mut load)?;
    // If the server died, that is the reason, and not what the load made of it.
    let output = load.finish().map_err(|failure| server.death().unwrap_or(failure))?;

    for (count, line) in connections.iter().zip(&output) {
        let fields: Vec<&str> = line.split(' ').collect();
        let &["connections", found, "requests", requests, "seconds", seconds] = fields.as_slice() else {
            return Err(unexpected(line));
        };
        let (requests, seconds) = match (requests.parse::<f64>(), seconds.parse::<f64>()) {
            (Ok(requests), Ok(seconds)) if found == count.to_string() && seconds > 0.0 => (requests, seconds),
            _ => return Err(unexpected(line)),
        };
        let title = format!("echo server, {count} connections");
        table.add(Figure { title, unit: "k requests/s", better: Better::Higher }, side, requests / seconds / 1e3);
    }
    let title = format!("  its kernel threads, {most} connections");
    table.add(Figure { title, unit: "", better: Better::Unrated }, side, kernel_threads as f64);

    // What the load sent, the server must have served.
    let served = server.finish()?;
    let total =
        |lines: &[String], word: &str| lines.last().and_then(|line| line.strip_prefix(word)?.parse::<u64>().ok());
    let (sent, served) = (total(&output, "sent "), total(&served, "served "));
    if sent.is_none() || sent != served {
        return Err(Failure::own(format!("the echo server {side} served {served:?} requests of {sent:?}")));
    }
    // A few workers serve them all; the kernel's own threads would be one for each connection, and some.
    let few = Cpus::read().allowed * 2 + 16;
    if side == Side::Heddle && kernel_threads > few.max(*most) {
        return Err(Failure::own(format!(
            "the echo server {side} had {kernel_threads} kernel threads for {most} connections: Heddle did not take its threads \
             over"
        )));
    }
    Ok(())
}
