//! The hand-off: a processor is held by one worker, whatever the monitor and those who come back from the kernel do.

use super::holder::Holder;
use crate::lock::SpinLock;
use crate::prim::relax;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::thread;
use std::sync::Arc;

const WORKERS: usize = 2;

/// One processor, two workers, the list of spares.
struct World {
    holder: Holder,
    /// The processor's queue, counters and so on: for its holder only, in the kernel for nobody or the next holder.
    inside: UnsafeCell<u32>,
    spares: SpinLock<Vec<usize>>,
    /// `Worker::given`.
    given: [AtomicBool; WORKERS],
    /// Times the monitor took the processor away.
    hand_offs: AtomicU32,
    /// The monitor will give no more.
    over: AtomicBool,
}

impl World {
    fn new() -> Self {
        Self {
            holder: Holder::new(),
            inside: UnsafeCell::new(0),
            spares: SpinLock::new(Vec::new()),
            given: core::array::from_fn(|_| AtomicBool::new(false)),
            hand_offs: AtomicU32::new(0),
            over: AtomicBool::new(false),
        }
    }

    fn use_processor(&self) {
        // SAFETY: loom checks that nobody else uses the cell.
        self.inside.with_mut(|n| unsafe { *n += 1 });
    }

    /// `sched_loop_entry` and `blocking`. Returns whether the worker holds the processor at the end.
    fn worker(&self, me: usize, mut holds: bool, calls: u32) -> bool {
        for _ in 0..calls {
            if !holds {
                // wait_for_processor
                self.spares.lock().push(me);
                // Acquire: as in wait_for_processor. pairs: worker.given
                while !self.given[me].load(Ordering::Acquire) {
                    // Acquire: what was given before is seen. pairs: model.over
                    if self.over.load(Ordering::Acquire) && !self.given[me].load(Ordering::Relaxed) {
                        return false;
                    }
                    relax();
                }
                self.given[me].store(false, Ordering::Relaxed);
            }
            self.use_processor();
            self.holder.enter(me + 1);
            holds = self.holder.back(me + 1);
            if holds {
                self.use_processor();
            }
        }
        holds
    }

    /// `hand_off`.
    fn monitor(&self, looks: u32) {
        for _ in 0..looks {
            relax();
            let Some(spare) = self.spares.lock().pop() else {
                // A new worker is refused.
                if let Some(mark) = self.holder.take() {
                    self.use_processor();
                    self.holder.put_back(mark);
                }
                continue;
            };
            if self.holder.take().is_some() {
                self.hand_offs.fetch_add(1, Ordering::Relaxed);
                // The monitor may look at what the last holder left.
                self.use_processor();
                // Release: as in hand_off. pairs: worker.given
                self.given[spare].store(true, Ordering::Release);
            } else {
                self.spares.lock().push(spare);
            }
        }
        // Release: after the last gift. pairs: model.over
        self.over.store(true, Ordering::Release);
    }
}

fn run(calls: [u32; WORKERS], looks: u32, hand_offs: u32) {
    let handed_off = Arc::new(core::sync::atomic::AtomicU32::new(0));
    let most = handed_off.clone();
    loom::model(move || {
        let world = Arc::new(World::new());
        let handles = [(0, true), (1, false)].map(|(me, holds)| {
            let world = world.clone();
            thread::spawn(move || world.worker(me, holds, calls[me]))
        });
        world.monitor(looks);
        let holders = handles.into_iter().map(|h| h.join().unwrap()).filter(|&h| h).count();
        // Given to a worker that had made its last call and gone.
        let unclaimed = world.given.iter().filter(|g| g.load(Ordering::Relaxed)).count();
        // Taken from one that came back, then put back.
        let free = usize::from(world.holder.call().0);
        assert_eq!(holders + unclaimed + free, 1, "held by one worker, or to be taken");
        most.fetch_max(world.hand_offs.load(Ordering::Relaxed), Ordering::Relaxed);
    });
    assert!(handed_off.load(Ordering::Relaxed) >= hand_offs, "the model reaches the hand-offs");
}

#[test]
fn worker_comes_back_while_its_processor_is_taken() {
    run([1, 1], 1, 1);
}

#[test]
fn old_holder_comes_back_while_the_new_one_is_in_the_kernel() {
    run([2, 2], 3, 2);
}
