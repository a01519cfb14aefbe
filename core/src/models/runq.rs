//! The run queue: every item is taken once, with all that was written to it. The ring has four places here.

use crate::runq::{CAPACITY, RunQueue};
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;

/// What is queued. Taking it writes to it: loom refuses that if two do so, or if the pusher's write is not visible.
struct Item {
    taken: UnsafeCell<u32>,
}

struct Items(Vec<Item>);

impl Items {
    fn new(n: usize) -> Self {
        Self((0..n).map(|_| Item { taken: UnsafeCell::new(0) }).collect())
    }

    fn push(&self, queue: &RunQueue<Item>, i: usize) -> bool {
        let item = &self.0[i];
        // SAFETY: loom checks that nobody else uses the cell.
        item.taken.with_mut(|t| unsafe { *t += 10 });
        queue.push(core::ptr::from_ref(item).cast_mut()).is_ok()
    }

    fn check(&self) {
        for (i, item) in self.0.iter().enumerate() {
            // SAFETY: all threads have ended.
            assert_eq!(item.taken.with(|t| unsafe { *t }), 11, "item {i}: 10 for the push, 1 for the only take");
        }
    }
}

fn take(item: Option<*mut Item>) -> bool {
    // SAFETY: loom checks that nobody else uses the cell.
    item.map(|i| unsafe { (*i).taken.with_mut(|t| *t += 1) }).is_some()
}

fn drain(queue: &RunQueue<Item>) {
    while take(queue.pop()) {}
}

/// Just before the positions wrap round, so that every model crosses that border.
fn queue() -> Arc<RunQueue<Item>> {
    Arc::new(RunQueue::starting_at(u32::MAX - 1))
}

#[test]
fn owner_against_thief() {
    loom::model(|| {
        let (queue, items) = (queue(), Arc::new(Items::new(4)));
        assert!(items.push(&queue, 0) && items.push(&queue, 1));
        let thief = thread::spawn({
            let queue = queue.clone();
            move || {
                let own = RunQueue::starting_at(u32::MAX);
                take(queue.steal_into(&own));
                drain(&own);
            }
        });
        assert!(items.push(&queue, 2));
        take(queue.pop());
        assert!(items.push(&queue, 3));
        take(queue.pop());
        thief.join().unwrap();
        drain(&queue);
        items.check();
    });
}

#[test]
fn owner_against_popper() {
    loom::model(|| {
        let (queue, items) = (queue(), Arc::new(Items::new(4)));
        assert!(items.push(&queue, 0));
        let popper = thread::spawn({
            let queue = queue.clone();
            move || {
                take(queue.pop());
                take(queue.pop());
            }
        });
        assert!(items.push(&queue, 1));
        take(queue.pop());
        assert!(items.push(&queue, 2) && items.push(&queue, 3));
        popper.join().unwrap();
        drain(&queue);
        items.check();
    });
}

#[test]
fn full_ring_reuses_a_place_only_after_its_taker() {
    loom::model(|| {
        let (queue, items) = (queue(), Arc::new(Items::new(CAPACITY + 1)));
        for i in 0..CAPACITY {
            assert!(items.push(&queue, i));
        }
        let thief = thread::spawn({
            let queue = queue.clone();
            move || {
                let own = RunQueue::starting_at(0);
                take(queue.steal_into(&own));
                drain(&own);
            }
        });
        if !items.push(&queue, CAPACITY) {
            // Given back: still ours.
            take(Some(core::ptr::from_ref(&items.0[CAPACITY]).cast_mut()));
        }
        thief.join().unwrap();
        drain(&queue);
        items.check();
    });
}

#[test]
fn thief_of_a_thief() {
    loom::model(|| {
        let (queue, items) = (queue(), Arc::new(Items::new(4)));
        for i in 0..4 {
            assert!(items.push(&queue, i));
        }
        let middle = Arc::new(RunQueue::starting_at(u32::MAX));
        let second = thread::spawn({
            let middle = middle.clone();
            move || {
                let own = RunQueue::starting_at(0);
                take(middle.steal_into(&own));
                drain(&own);
            }
        });
        let third = thread::spawn({
            let queue = queue.clone();
            move || take(queue.pop())
        });
        take(queue.steal_into(&middle));
        second.join().unwrap();
        third.join().unwrap();
        drain(&middle);
        drain(&queue);
        items.check();
    });
}
