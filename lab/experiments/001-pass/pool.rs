//! Objects of the library's pool, handed over through slots: whoever empties a slot drops them, and their memory goes home.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use heddle::pool::{Pool, Pooled};

use super::hand::{Arrived, Object, Size, measure, object};
use crate::Error;

#[derive(Default)]
#[repr(align(128))]
struct Slot {
    full: AtomicBool,
    objects: UnsafeCell<Vec<Pooled<Object>>>,
}

// SAFETY: one thread fills a slot, while `full` is false, and one empties it, while it is true.
unsafe impl Sync for Slot {}

impl Slot {
    fn wait(&self, full: bool, pause: fn()) {
        // Acquire: what the other did to the objects, pairs: slot
        while self.full.load(Ordering::Acquire) != full {
            pause();
        }
    }

    fn set(&self, full: bool) {
        // Release: what was done to the objects, pairs: slot
        self.full.store(full, Ordering::Release);
    }
}

struct Part {
    pool: Pool<Object>,
    slots: Arc<Vec<Slot>>,
    id: usize,
    pause: fn(),
}

/// Hands them on; answers what is printed.
pub fn run(user: bool, size: Size) -> Result<String, Error> {
    let slots: Arc<Vec<Slot>> = Arc::new((0..size.threads).map(|_| Slot::default()).collect());
    let pool = Pool::new();
    let pause: fn() = if user { heddle::yield_now } else { std::thread::yield_now };
    let part = |id| Part { pool: pool.clone(), slots: slots.clone(), id, pause };
    measure(user, size, (0..size.threads).map(part).collect(), work)
}

fn work(size: Size, part: Part) -> bool {
    let (fill, clear) = (&part.slots[part.id], &part.slots[(part.id + 1) % size.threads]);
    let (mut arrived, mut right) = (Arrived::default(), true);
    for cycle in 0..size.cycles {
        fill.wait(false, part.pause);
        // SAFETY: the slot is empty, and only this thread fills it.
        let objects = unsafe { &mut *fill.objects.get() };
        objects.extend((0..size.objects).map(|at| part.pool.make(object(cycle * size.objects + at))));
        fill.set(true);
        clear.wait(true, part.pause);
        // SAFETY: the slot is full, and only this thread empties it.
        let objects = unsafe { &mut *clear.objects.get() };
        right &= objects.len() == size.objects;
        for object in objects.drain(..) {
            right &= arrived.is_next(&object);
        }
        clear.set(false);
    }
    right
}
