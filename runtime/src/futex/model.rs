//! A futex for loom: words are compared, waiters queued and woken under one lock, as the kernel does it. A waiter of several words
//! is in several queues, and may be taken out of more than one before it runs. Deadlines never pass.

use std::time::Instant;

use loom::sync::{Arc, Condvar, Mutex};

use crate::prim::{AtomicU32, Ordering};

/// A waiter in the queue of the word at `key`.
struct Queued {
    key: usize,
    waiter: Arc<Waiter>,
}

struct Waiter {
    woken: AtomicU32,
    wake: Condvar,
}

loom::lazy_static! {
    static ref QUEUES: Mutex<Vec<Queued>> = Mutex::new(Vec::new());
}

fn key(word: *const AtomicU32) -> usize {
    word as usize
}

/// Waits while each of the words has its value.
pub fn wait_on(words: &[(&AtomicU32, u32)]) {
    let mut queues = QUEUES.lock().unwrap();
    if words.iter().any(|(word, value)| word.load(Ordering::Relaxed) != *value) {
        return;
    }
    let waiter = Arc::new(Waiter { woken: AtomicU32::new(0), wake: Condvar::new() });
    for (word, _) in words {
        queues.push(Queued { key: key(*word), waiter: waiter.clone() });
    }
    while waiter.woken.load(Ordering::Relaxed) == 0 {
        queues = waiter.wake.wait(queues).unwrap();
    }
    queues.retain(|q| !Arc::ptr_eq(&q.waiter, &waiter));
}

/// Waits while the word has the value.
pub fn wait(word: &AtomicU32, value: u32, _: Option<Instant>) -> bool {
    wait_on(&[(word, value)]);
    true
}

/// Waits while the word has the value and the other is 0.
pub fn wait_either(word: &AtomicU32, value: u32, other: &AtomicU32, _: Option<Instant>) -> bool {
    wait_on(&[(word, value), (other, 0)]);
    true
}

/// Wakes the oldest waiters.
pub fn wake(word: *const AtomicU32, count: i32) {
    let mut queues = QUEUES.lock().unwrap();
    for _ in 0..count {
        let Some(at) = queues.iter().position(|q| q.key == key(word)) else { break };
        let waiter = queues.remove(at).waiter;
        waiter.woken.store(1, Ordering::Relaxed);
        waiter.wake.notify_one();
    }
}
