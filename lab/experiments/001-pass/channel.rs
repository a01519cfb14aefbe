//! Values that go through the library's channels, with as much room as goes through at a time.

use heddle::channel::{Receiver, Sender, bounded};

use super::hand::{Arrived, Object, Size, measure, object};
use crate::Error;

/// Hands them on; answers what is printed.
pub fn run(user: bool, size: Size) -> Result<String, Error> {
    let (senders, mut receivers): (Vec<_>, Vec<_>) = (0..size.threads).map(|_| bounded(size.objects)).unzip();
    receivers.rotate_left(1);
    measure(user, size, senders.into_iter().zip(receivers).collect(), work)
}

fn work(size: Size, (sender, receiver): (Sender<Object>, Receiver<Object>)) -> bool {
    let mut arrived = Arrived::default();
    for cycle in 0..size.cycles {
        for at in 0..size.objects {
            if sender.send(object(cycle * size.objects + at)).is_err() {
                return false;
            }
        }
        for _ in 0..size.objects {
            if !receiver.recv().is_ok_and(|object| arrived.is_next(&object)) {
                return false;
            }
        }
    }
    true
}
