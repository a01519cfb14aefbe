//! The spin lock's word: one holder at a time, each sees what the last one wrote.

use crate::lock::SpinLock;
use loom::thread;
use std::sync::Arc;

#[test]
fn two_holders() {
    loom::model(|| {
        let lock = Arc::new(SpinLock::alone(0));
        let other = thread::spawn({
            let lock = lock.clone();
            move || *lock.lock() += 1
        });
        *lock.lock() += 1;
        if let Some(mut value) = lock.try_lock() {
            *value += 10;
        }
        other.join().unwrap();
        assert!([2, 12].contains(&*lock.lock()));
    });
}
