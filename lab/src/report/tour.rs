//! The tour: what matters to someone who has to choose between threads, processes and user threads on this machine.

use crate::claims::{Ratio, View, short};
use crate::stats;
use crate::store::Store;

/// How long something takes beside something else.
fn as_long_as(ratio: &Ratio, other: &str) -> String {
    if ratio.above(1.0) || ratio.below(1.0) {
        format!("{} times as long as {other}", short(ratio.value()))
    } else {
        format!("as long as {other} as far as these runs can tell ({})", short(ratio.value()))
    }
}

/// At most ten findings, each with its figures; only what was measured.
pub fn findings(store: &Store) -> Vec<String> {
    let view = View { store };
    let cpus = view.cpus();
    let mut all: Vec<Option<String>> = Vec::new();
    let median = |experiment: &str, series: &str, x: f64, metric: &str| {
        view.get(experiment, series, x, metric).map(|v| stats::median(&v))
    };
    all.push((|| {
        let nptl = median("002-fib", "threads, NPTL", cpus, "call")?;
        let ours = median("002-fib", "threads, Heddle", cpus, "call")?;
        let join = median("002-fib", "join", cpus, "call")?;
        Some(format!(
            "Making and joining a thread: {} us with the kernel's threads, {} us with user threads in the same program, {} ns as a \
             fork of the library.",
            short(nptl / 1e3),
            short(ours / 1e3),
            short(join)
        ))
    })());
    all.push((|| {
        let xs = view.store.xs("002-pingpong", "NPTL, all active");
        let n = *xs.last()?;
        let r = view.ratio("002-pingpong", "rate", "Heddle, all active", "NPTL, all active", n)?;
        let quiet = view.ratio("002-pingpong", "rate", "Heddle, 128 active", "NPTL, 128 active", n)?;
        Some(format!(
            "A thread per connection, {n} connections: user threads answer {} times as many requests with all active, {} times with \
             128 active.",
            short(r.value()),
            short(quiet.value())
        ))
    })());
    all.push((|| {
        let r = view.ratio("000-alloc", "wall", "P, frees", "T, frees", 32.0)?;
        Some(format!("32 tasks that allocate and free: processes take {}.", as_long_as(&r, "threads")))
    })());
    all.push((|| {
        let r = view.ratio("000-alloc", "wall", "U, frees", "T, frees", 512.0)?;
        Some(format!("512 tasks that allocate and free: user threads take {}.", as_long_as(&r, "kernel threads")))
    })());
    all.push((|| {
        let r = view.ratio("000-exchange", "wall", "P", "T", 128.0)?;
        let u = view.ratio("000-exchange", "wall", "U", "T", 128.0)?;
        Some(format!(
            "128 tasks that pass arrays round: processes take {}, user threads {}.",
            as_long_as(&r, "threads"),
            as_long_as(&u, "kernel threads")
        ))
    })());
    all.push((|| {
        let r = view.ratio("000-matrix", "wall", "rows T", "rows T-N", cpus)?;
        let tiles = view.ratio("000-matrix", "wall", "rows T-N", "tiles T-N", cpus)?;
        Some(format!(
            "A matrix product by rows takes with transparent huge pages {}; with small pages it takes {}.",
            as_long_as(&r, "without"),
            as_long_as(&tiles, "by tiles")
        ))
    })());
    all.push((|| {
        let threads = median("000-space", "threads", 0.0, "turn")?;
        let processes = median("000-space", "processes", 0.0, "turn")?;
        let t = median("000-space", "maps, threads", cpus, "round")?;
        let p = median("000-space", "maps, processes", cpus, "round")?;
        Some(format!(
            "A switch through a pipe: {} ns between threads, {} ns between processes. Mapping, touching and unmapping four pages on \
             {cpus} CPUs: {} ns in threads, {} ns in processes.",
            short(threads),
            short(processes),
            short(t),
            short(p)
        ))
    })());
    all.push((|| {
        let price = |series: &str| median("001-pass", series, 256.0, "price");
        Some(format!(
            "Handing objects to another thread, 256 at a time: {} ns each from the heap and freed there, {} ns copied, {} ns from the \
             maker's own ring.",
            short(price("allocs, shift 1")?),
            short(price("values, shift 1")?),
            short(price("ring, shift 1")?)
        ))
    })());
    all.push((|| {
        let packed = view.growth("003-sharing", "time", "array, packed, atomic", 2.0, 1.0)?;
        let padded = view.growth("003-sharing", "time", "array, pad64, atomic", 2.0, 1.0)?;
        Some(format!(
            "Counters of two threads in one cache line: {} times the time of one thread for the same work; a line each: {} times.",
            short(packed.value()),
            short(padded.value())
        ))
    })());
    all.push((|| {
        let pair = |series: &str| median("004-threads", series, 5.0, "pair");
        Some(format!(
            "One mutex, five threads: {} ns per lock and unlock with kernel threads, {} ns with user threads on one worker, {} ns on all.",
            short(pair("mutex, pthreads")?),
            short(pair("mutex, user, one worker")?),
            short(pair("mutex, user")?)
        ))
    })());
    all.into_iter().flatten().take(10).collect()
}
