//! Objects of 48 bytes handed to a neighbour who drops them (`hand1`), or dropped by their maker (`hand0`): the program of 2014.
//! There a vector has one object; with more of them the memory is measured and not the hand-over. `assigns` hands over the address
//! of one object, so it shows the hand-over alone.
//!
//! And a producer whose objects a consumer drops (`oneway`): how much more memory is resident after so many seconds than after
//! the first tenth.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use heddle::shard::{CachePadded, LINE};
use heddle::sync::Mutex;

/// How long a producer produces, unless [`SECONDS_SET`] says otherwise.
const SECONDS: f64 = 3.0;
/// Passes `--seconds` on to the process that measures.
pub const SECONDS_SET: &str = "HEDDLE_BENCH_SECONDS";

/// A vector that is full or empty, as its count says.
struct Slot<T>(AtomicUsize, Mutex<Vec<T>>);

/// What an object is.
pub type Demand = [u64; 6];

/// A figure's shift and vector.
pub fn parse(figure: &str) -> Option<(usize, usize)> {
    let (shift, vector) = figure.strip_prefix("hand")?.split_once('x')?;
    Some((shift.parse().ok()?, vector.parse().ok()?))
}

/// `count` objects on each of two threads that yield while they wait.
pub fn run<T: Send + 'static, J>(
    (shift, vector): (usize, usize),
    count: u64,
    make: impl Fn(Demand) -> T + Clone + Send + 'static,
    spawn: impl Fn(Box<dyn FnOnce() + Send>) -> J,
    join: impl Fn(J),
) -> f64 {
    // With more room than is used, so that the end of one vector and the beginning of the next are not on the same line.
    let slot = || Slot(AtomicUsize::new(0), Mutex::new(Vec::with_capacity(vector + LINE / size_of::<usize>())));
    let slots: Arc<[CachePadded<Slot<T>>; 2]> = Arc::new([(); 2].map(|()| CachePadded::new(slot())));
    let wait = |slot: &Slot<T>, full: bool| {
        // Acquire: the other's work on the vector.
        while (slot.0.load(Ordering::Acquire) != 0) != full {
            std::thread::yield_now();
        }
    };
    let start = Instant::now();
    let threads = [0, 1].map(|i| {
        let (slots, make) = (slots.clone(), make.clone());
        spawn(Box::new(move || {
            let (fill, clear) = (&slots[i], &slots[(i + shift) % 2]);
            for _ in 0..count / vector as u64 {
                wait(fill, false);
                fill.1.lock().extend((0..vector).map(|_| make([0; 6])));
                fill.0.store(vector, Ordering::Release); // Release: the vector was filled before
                wait(clear, true);
                clear.1.lock().clear();
                clear.0.store(0, Ordering::Release); // Release: the vector was emptied before
            }
        }))
    });
    threads.into_iter().for_each(join);
    start.elapsed().as_secs_f64()
}

/// The resident memory of this process in KiB.
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("statm");
    text.split(' ').nth(1).expect("a second word").parse::<f64>().expect("pages") * 4.0
}

/// What `make` makes goes through a channel of 1024 to a thread that drops it. In KiB.
pub fn one_way<T: Send + 'static, J>(
    make: impl Fn(Demand) -> T + Send + 'static,
    spawn: impl Fn(Box<dyn FnOnce() + Send>) -> J,
    join: impl Fn(J),
) -> f64 {
    let (sender, receiver) = heddle::channel::bounded(super::ROOM);
    let seconds = std::env::var(SECONDS_SET).map_or(SECONDS, |text| text.parse().expect("a number of seconds"));
    let grown = Arc::new(Mutex::new(0.0));
    let result = grown.clone();
    let consumer = spawn(Box::new(move || receiver.iter().for_each(drop::<T>)));
    let producer = spawn(Box::new(move || {
        let start = Instant::now();
        let mut early = None;
        while start.elapsed().as_secs_f64() < seconds {
            (0..1000).for_each(|n| assert!(sender.send(make([n; 6])).is_ok()));
            if start.elapsed().as_secs_f64() > seconds / 10.0 {
                early.get_or_insert_with(resident);
            }
        }
        *result.lock() = resident() - early.expect("a tenth has passed");
    }));
    join(producer);
    join(consumer);
    *grown.lock()
}

/// With the allocator that the process has, or none.
pub fn boxes(figure: &str, count: u64, alloc: bool) -> Option<f64> {
    static ONE: Demand = [0; 6];
    let spawn = std::thread::spawn::<Box<dyn FnOnce() + Send>, ()>;
    let join = |thread: std::thread::JoinHandle<()>| thread.join().unwrap();
    match parse(figure) {
        Some(how) if alloc => Some(run(how, count, |v| Box::new(std::hint::black_box(v)), spawn, join)),
        Some(how) => Some(run(how, count, |_| std::hint::black_box(&ONE), spawn, join)),
        None if figure == "oneway" && alloc => Some(one_way(|v| Box::new(std::hint::black_box(v)), spawn, join)),
        None => None,
    }
}
