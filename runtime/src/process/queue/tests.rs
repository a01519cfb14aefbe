use super::*;
use crate::process::ArenaArc;
use crate::process::ring::Ring;
use crate::process::wait::System;

fn ring() -> ArenaArc<Ring<u32>> {
    let ring = Ring::new(Some(3)).unwrap();
    assert!((1..=3).all(|n| ring.put(n).is_ok()));
    assert_eq!(ring.take(), Ok(1));
    ring
}

#[test]
fn a_send_that_was_cut_off_is_counted_unless_the_value_is_there() {
    let ring = ring();
    // Its place was written, the number was not stored.
    ring.queue.begin(&System, SENDS, 3);
    // SAFETY: a free place, and nobody else has the ring.
    unsafe { ring.rooms.write(3, 4) };
    ring.queue.repair(&System);
    assert_eq!((ring.len(), ring.lost().values), (2, 1));
    // The number was stored, the journal was not cleared.
    ring.queue.begin(&System, SENDS, 3);
    // SAFETY: as above.
    unsafe { ring.rooms.write(3, 5) };
    ring.queue.set_state(&System, 1, 3);
    ring.queue.repair(&System);
    assert_eq!((ring.len(), ring.lost().values), (3, 1));
    assert_eq!([ring.take(), ring.take(), ring.take(), ring.take()], [Ok(2), Ok(3), Ok(5), Err(false)]);
}

#[test]
fn a_value_that_nobody_came_back_with_is_put_back() {
    let ring = ring();
    ring.queue.begin(&System, RECEIVES, 1);
    ring.queue.repair(&System); // it was read, the number was not stored
    assert_eq!(ring.len(), 2);
    ring.queue.begin(&System, RECEIVES, 1);
    ring.queue.set_state(&System, 2, 1);
    ring.queue.repair(&System);
    assert_eq!([ring.take(), ring.take(), ring.take()], [Ok(2), Ok(3), Err(false)]);
    ring.queue.repair(&System); // nothing was begun
    assert_eq!((ring.len(), ring.lost()), (0, Lost::default()));
}

#[test]
fn a_value_that_was_being_taken_back_is_there_or_lost() {
    let ring = Ring::new(Some(0)).unwrap();
    // SAFETY: a free place, and nobody else has the ring.
    unsafe { ring.rooms.write(0, 7) };
    ring.queue.set_state(&System, 0, 1);
    ring.queue.begin(&System, SENDS, 0);
    ring.queue.repair(&System); // it was read, the number was not stored
    assert_eq!((ring.queue.state(), ring.lost().values), ((0, 1), 0));
    ring.queue.begin(&System, SENDS, 0);
    ring.queue.set_state(&System, 0, 0);
    ring.queue.repair(&System);
    assert_eq!((ring.queue.state(), ring.lost().values), ((0, 0), 1));
    assert_eq!(ring.take(), Err(false));
}

#[test]
fn numbers_wrap_and_places_grow() {
    let ring = Ring::<u32>::new(None).unwrap();
    ring.queue.set_state(&System, u32::MAX - 2, 0);
    for n in 0..100 {
        ring.put(n).unwrap();
    }
    assert!((0..100).all(|n| ring.take() == Ok(n)) && ring.take() == Err(false));
}
