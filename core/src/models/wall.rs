//! Clocks that are set while waits are entered: each entry ends up where the clock's last setting puts it.

use crate::lock::SpinLock;
use crate::wall::{Clock, Deadline, Offsets};
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use std::sync::Arc;

const DEADLINE: Deadline = Deadline { at: 1000, clock: Clock::Realtime };

struct World {
    /// What CLOCK_REALTIME is ahead. Stands for the kernel's: who asks has what was stored last.
    ahead: AtomicU64,
    offsets: Offsets,
    /// Stands for a processor's heap with room for one entry: when it ends, by CLOCK_MONOTONIC.
    heap: SpinLock<Option<u64>>,
}

impl World {
    fn new() -> Arc<Self> {
        let world = Self { ahead: AtomicU64::new(100), offsets: Offsets::new(), heap: SpinLock::new(None) };
        world.hear();
        Arc::new(world)
    }

    /// `Timers::arm`.
    fn arm(&self) {
        let mut heap = self.heap.lock();
        *heap = self.offsets.monotonic(DEADLINE);
    }

    /// `Runtime::clocks_were_set`.
    fn hear(&self) {
        // A read-modify-write, since the kernel's answer is never an old one.
        self.offsets.renew(
            |_| -(self.ahead.fetch_add(0, Ordering::Relaxed) as i64),
            || {
                let mut heap = self.heap.lock();
                if heap.is_some() {
                    *heap = self.offsets.monotonic(DEADLINE);
                }
            },
        );
    }

    /// The clock is set; the event comes after it, to whoever polls.
    fn set(&self, ahead: u64) {
        self.ahead.swap(ahead, Ordering::Relaxed);
        self.hear();
    }
}

/// A wait begins while the clock is set, once or twice, and two workers hear of it.
fn run(settings: &'static [u64]) {
    loom::model(move || {
        let world = World::new();
        let setters: Vec<_> = settings
            .iter()
            .map(|&ahead| {
                let world = world.clone();
                thread::spawn(move || world.set(ahead))
            })
            .collect();
        world.arm();
        setters.into_iter().for_each(|setter| setter.join().unwrap());
        let ahead = world.ahead.load(Ordering::Relaxed);
        assert_eq!(*world.heap.lock(), Some(DEADLINE.at - ahead));
    });
}

#[test]
fn set_while_a_wait_begins() {
    run(&[300]);
}

#[test]
fn set_twice_and_heard_of_at_once() {
    run(&[300, 50]);
}
