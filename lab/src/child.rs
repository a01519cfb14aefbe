//! Experiments that use the library: `heddle lab-child NAME name=value ...`, started by the lab.
//!
//! Output is that of the C programs: `name number` for a figure, `check name number` for what must be the same everywhere.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::Error;

#[path = "../experiments/001-pass/channel.rs"]
mod channel;
#[path = "../experiments/001-pass/hand.rs"]
mod hand;
#[path = "../experiments/001-pass/pool.rs"]
mod pool;

fn text<'a>(args: &'a [String], name: &str) -> Option<&'a str> {
    args.iter().find_map(|arg| arg.strip_prefix(name)?.strip_prefix('='))
}

fn number(args: &[String], name: &str, otherwise: u64) -> Result<u64, Error> {
    text(args, name)
        .map_or(Ok(otherwise), |value| value.parse().map_err(|_| Error(format!("{name}: not a number: {value}"))))
}

/// Runs the part with that name; answers what it prints.
pub fn run(name: &str, args: &[String]) -> Result<String, Error> {
    let mode = text(args, "mode").unwrap_or("plain");
    // Before anything else: user threads are to be had only while the process has one thread.
    if mode != "plain" {
        heddle::start(heddle::Options::new()).map_err(|e| Error(format!("user threads are not to be had: {e}")))?;
    }
    match name {
        "fib" => fib(mode, number(args, "n", 20)?),
        "uts" => uts(mode, number(args, "root", 2000)?, number(args, "seed", 42)?),
        "theft" => Ok(theft(number(args, "count", 1000)?)),
        "pass-pool" => pool::run(mode != "plain", handed(args)?),
        "pass-channel" => channel::run(mode != "plain", handed(args)?),
        _ => Err(Error(format!("no such part: {name}"))),
    }
}

fn handed(args: &[String]) -> Result<hand::Size, Error> {
    let size = |name| match number(args, name, 2)? {
        n @ 1..=1_000_000_000 => Ok(n as usize),
        n => Err(Error(format!("{name}: 1 to a thousand million, not {n}"))),
    };
    Ok(hand::Size { threads: size("n")?, cycles: size("cycles")?, objects: size("v")? })
}

fn timed(work: impl Fn() -> u64) -> (u64, f64) {
    let start = Instant::now();
    let result = std::hint::black_box(work());
    (result, start.elapsed().as_nanos() as f64)
}

#[inline(never)]
fn plain_fib(n: u64) -> u64 {
    if n < 2 { n } else { plain_fib(n - 1) + plain_fib(n - 2) }
}

fn join_fib(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (a, b) = heddle::join(|| join_fib(n - 1), || join_fib(n - 2));
    a + b
}

/// The same with calls that are not compiled into one another, as through a shared library.
#[inline(never)]
fn far_join(n: u64, f: fn(u64) -> u64) -> u64 {
    let f = std::hint::black_box(f);
    let (a, b) = heddle::join(move || f(n - 1), move || f(n - 2));
    a + b
}

fn far_fib(n: u64) -> u64 {
    if n < 2 { n } else { std::hint::black_box(far_join as fn(u64, fn(u64) -> u64) -> u64)(n, far_fib) }
}

fn spawn_fib(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let a = heddle::spawn(move || spawn_fib(n - 1));
    let b = heddle::spawn(move || spawn_fib(n - 2));
    a.join().unwrap_or(0) + b.join().unwrap_or(0)
}

fn fib(mode: &str, n: u64) -> Result<String, Error> {
    let work = match mode {
        "plain" => plain_fib,
        "join" => join_fib,
        "far" => far_fib,
        "spawn" => spawn_fib,
        _ => return Err(Error(format!("no such mode: {mode}"))),
    };
    // Threads and stacks that are kept are made before the clock runs.
    std::hint::black_box(work(n.min(12)));
    // The least of three: what disturbs a few milliseconds only adds to them. Threads are dear enough as it is.
    let times = if mode == "spawn" { 1 } else { 3 };
    let all: Vec<(u64, f64)> = (0..times).map(|_| timed(|| work(std::hint::black_box(n)))).collect();
    let result = all[0].0;
    let time = all.iter().map(|(_, time)| *time).fold(f64::INFINITY, f64::min);
    let (mut a, mut b) = (0.0, 1.0);
    for _ in 0..=n {
        (a, b) = (b, a + b);
    }
    let calls = 2.0 * a - 1.0;
    Ok(format!("call {}\ntime {}\ncheck fib {result}\n", time / calls, time / 1e9))
}

/// How long a theft takes: the first half of a join waits, computing, for what only the other half does, so another worker has
/// to take that.
fn theft(count: u64) -> String {
    let mut times = Vec::new();
    for _ in 0..count {
        let (made, taken) = (Instant::now(), AtomicU64::new(0));
        heddle::join(
            || {
                while taken.load(Ordering::Relaxed) == 0 {
                    std::hint::spin_loop();
                }
            },
            || {
                let at = made.elapsed();
                taken.store(at.as_nanos().max(1) as u64, Ordering::Relaxed);
                // Long enough that the thief goes on looking for work.
                while made.elapsed() < at + std::time::Duration::from_micros(20) {
                    std::hint::spin_loop();
                }
            },
        );
        times.push(taken.into_inner() as f64);
    }
    format!("theft {}\n", crate::stats::median(&times))
}

/// A node's state.
pub(crate) type State = [u32; 5];

/// SHA-1 of one block.
fn sha1(block: [u32; 16]) -> State {
    let mut w = [0u32; 80];
    w[..16].copy_from_slice(&block);
    for i in 16..80 {
        w[i] = (w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16]).rotate_left(1);
    }
    let start: State = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476, 0xC3D2_E1F0];
    let [mut a, mut b, mut c, mut d, mut e] = start;
    for (i, word) in w.iter().enumerate() {
        let (f, k) = match i / 20 {
            0 => ((b & c) | (!b & d), 0x5A82_7999u32),
            1 => (b ^ c ^ d, 0x6ED9_EBA1),
            2 => ((b & c) | (b & d) | (c & d), 0x8F1B_BCDC),
            _ => (b ^ c ^ d, 0xCA62_C1D6),
        };
        let next = a.rotate_left(5).wrapping_add(f).wrapping_add(e).wrapping_add(k).wrapping_add(*word);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
    }
    let sums = [a, b, c, d, e];
    std::array::from_fn(|i| start[i].wrapping_add(sums[i]))
}

/// The root's state.
pub(crate) fn root(seed: u32) -> State {
    let mut block = [0; 16];
    block[4] = seed;
    block[5] = 0x8000_0000;
    block[15] = 20 * 8;
    sha1(block)
}

/// The state of a child.
pub(crate) fn child(parent: &State, i: u32) -> State {
    let mut block = [0; 16];
    block[..5].copy_from_slice(parent);
    block[5] = i;
    block[6] = 0x8000_0000;
    block[15] = 24 * 8;
    sha1(block)
}

/// How many children a node has.
pub(crate) fn children(state: &State, depth: u32, of_root: u32) -> u32 {
    if depth == 0 {
        of_root
    } else if f64::from(state[4] & 0x7fff_ffff) / 2_147_483_648.0 < 0.124_875 {
        8
    } else {
        0
    }
}

fn plain_search(state: &State, depth: u32, of_root: u32) -> u64 {
    1 + (0..children(state, depth, of_root)).map(|i| plain_search(&child(state, i), depth + 1, of_root)).sum::<u64>()
}

fn join_search(state: &State, depth: u32, of_root: u32) -> u64 {
    fn range(state: &State, depth: u32, of_root: u32, from: u32, to: u32) -> u64 {
        match to - from {
            0 => 0,
            1 => join_search(&child(state, from), depth + 1, of_root),
            n => {
                let middle = from + n / 2;
                let (a, b) = heddle::join(
                    || range(state, depth, of_root, from, middle),
                    || range(state, depth, of_root, middle, to),
                );
                a + b
            }
        }
    }
    1 + range(state, depth, of_root, 0, children(state, depth, of_root))
}

fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn uts(mode: &str, of_root: u64, seed: u64) -> Result<String, Error> {
    let of_root = u32::try_from(of_root).map_err(|_| Error("root: too many".to_owned()))?;
    let seed = u32::try_from(seed).map_err(|_| Error("seed: too large".to_owned()))?;
    let work = match mode {
        "plain" => plain_search,
        "join" => join_search,
        _ => return Err(Error(format!("no such mode: {mode}"))),
    };
    work(&root(seed), 0, of_root.min(20));
    let cpu = cpu_seconds();
    let (nodes, time) = timed(|| work(&root(seed), 0, of_root));
    let cpu = cpu_seconds() - cpu;
    let time = time / 1e9;
    Ok(format!("time {time}\nnode {}\nbusy {}\ncheck nodes {nodes}\n", time * 1e9 / nodes as f64, cpu / time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_sha1() {
        // SHA-1 of "abc", from the standard.
        let mut block = [0; 16];
        block[0] = 0x6162_6380;
        block[15] = 24;
        assert_eq!(sha1(block), [0xa999_3e36, 0x4706_816a, 0xba3e_2571, 0x7850_c26c, 0x9cd0_d89d]);
    }

    #[test]
    fn the_sample_tree_has_its_published_size() {
        assert_eq!(plain_search(&root(42), 0, 2000), 4_112_897);
    }

    #[test]
    fn objects_are_handed_on() {
        for name in ["pass-pool", "pass-channel"] {
            for (n, v) in [(1, 1), (2, 16), (3, 1)] {
                let args = [format!("n={n}"), "cycles=20".to_owned(), format!("v={v}")];
                let printed = run(name, &args).unwrap();
                assert!(printed.ends_with(&format!("check objects {}\n", n * 20 * v)), "{name}: {printed}");
            }
            assert!(run(name, &["n=0".to_owned()]).unwrap_err().0.contains("n: 1 to"));
        }
        let mut arrived = hand::Arrived::default();
        assert!(arrived.is_next(&hand::object(0)) && !arrived.is_next(&hand::object(0)));
    }

    #[test]
    fn bad_arguments_are_named() {
        assert!(run("fib", &["n=x".to_owned()]).unwrap_err().0.contains("n: not a number: x"));
        assert!(run("fob", &[]).unwrap_err().0.contains("fob"));
    }
}
