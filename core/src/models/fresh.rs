//! New threads: each is taken once, with all that was written to it. The ring has four places here.

use crate::fresh::{CAPACITY, Fresh, MOST};
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;

/// Taking it writes to it: loom refuses that if two do so, or if the pusher's write is not visible.
struct Item(UnsafeCell<u32>);

struct Shared {
    fresh: Fresh<Item>,
    items: Vec<Item>,
}
// SAFETY: loom checks who touches the cells.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Just before the positions wrap round, so that every model crosses that border.
    fn new(items: usize) -> Arc<Self> {
        let items = (0..items).map(|_| Item(UnsafeCell::new(0))).collect();
        Arc::new(Self { fresh: Fresh::starting_at(u32::MAX - 1), items })
    }

    fn item(&self, i: usize) -> *mut Item {
        core::ptr::from_ref(&self.items[i]).cast_mut()
    }

    fn push(&self, i: usize) -> bool {
        // SAFETY: loom checks that nobody else uses the cell.
        self.items[i].0.with_mut(|t| unsafe { *t += 10 });
        self.fresh.push(self.item(i)).is_ok()
    }

    fn pop(&self, i: usize) {
        if self.fresh.pop(self.item(i)) {
            take(Some(self.item(i)));
        }
    }

    fn thief(self: &Arc<Self>, tries: usize) -> thread::JoinHandle<()> {
        let this = self.clone();
        thread::spawn(move || (0..tries).for_each(|_| take(this.fresh.steal(|t| take(Some(t))))))
    }

    fn check(&self) {
        while let Some(item) = self.fresh.take_own() {
            take(Some(item));
        }
        for (i, item) in self.items.iter().enumerate() {
            // SAFETY: all threads have ended.
            assert_eq!(item.0.with(|t| unsafe { *t }), 11, "item {i}: 10 for the push, 1 for the only take");
        }
    }
}

fn take(item: Option<*mut Item>) {
    if let Some(item) = item {
        // SAFETY: loom checks that nobody else uses the cell.
        unsafe { (*item).0.with_mut(|t| *t += 1) };
    }
}

#[test]
fn owner_against_thief() {
    loom::model(|| {
        let shared = Shared::new(2);
        let thief = shared.thief(1);
        assert!(shared.push(0) && shared.push(1));
        shared.pop(1);
        shared.pop(0);
        thief.join().unwrap();
        shared.check();
    });
}

#[test]
fn another_in_the_same_place() {
    loom::model(|| {
        let shared = Shared::new(2);
        let thief = shared.thief(1);
        for i in 0..2 {
            assert!(shared.push(i));
            shared.pop(i);
        }
        thief.join().unwrap();
        shared.check();
    });
}

#[test]
fn the_owner_takes_from_both_ends() {
    loom::model(|| {
        let shared = Shared::new(2);
        assert!(shared.push(0) && shared.push(1));
        let thieves = [shared.thief(1), shared.thief(1)];
        take(shared.fresh.take_own());
        shared.pop(1);
        for thief in thieves {
            thief.join().unwrap();
        }
        shared.check();
    });
}

#[test]
fn a_full_ring_reuses_a_place_only_after_its_taker() {
    loom::model(|| {
        let shared = Shared::new(CAPACITY + MOST + 1);
        assert!((0..CAPACITY).all(|i| shared.push(i)));
        let thief = shared.thief(1);
        for i in CAPACITY..=CAPACITY + MOST {
            if !shared.push(i) {
                take(Some(shared.item(i))); // given back: still ours
            }
        }
        thief.join().unwrap();
        shared.check();
    });
}
