//! Naps: no more workers nap than are wanted to, and all naps end.

use super::Futex;
use super::naps::Limit;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use std::sync::Arc;

/// Two workers that run out of threads while the monitor lets one nap, and then ends all naps. If one slept on, loom would
/// report the deadlock.
#[test]
fn one_of_two_naps_and_wakes_up() {
    loom::model(|| {
        let (limit, futex, asleep) = (Arc::new(Limit::new()), Arc::new(Futex::default()), Arc::new(AtomicU32::new(0)));
        limit.set(1, |_| ());
        let worker = {
            let (limit, futex, asleep) = (limit.clone(), futex.clone(), asleep.clone());
            move || {
                limit.nap(|word, wanted| {
                    assert_eq!(asleep.fetch_add(1, Ordering::Relaxed), 0, "two nap");
                    futex.wait(|| word.load(Ordering::Relaxed) == wanted);
                    asleep.fetch_sub(1, Ordering::Relaxed);
                })
            }
        };
        let others = [thread::spawn(worker.clone()), thread::spawn(worker)];
        limit.set(0, |_| futex.wake_all());
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(limit.napping(), 0);
    });
}
