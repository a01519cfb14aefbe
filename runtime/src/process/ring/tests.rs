use super::*;

fn ring() -> ArenaArc<Ring<u32>> {
    let ring = Ring::new(Some(3)).unwrap();
    (1..=3).for_each(|n| ring.put(n).unwrap());
    assert_eq!(ring.take(), Ok(1));
    ring
}

#[test]
fn a_send_that_was_cut_off_is_counted_unless_the_value_is_there() {
    let ring = ring();
    // Its place was written, the number was not stored.
    ring.begin(SENDS, 3);
    // SAFETY: a free place, and nobody else has the ring.
    unsafe { ring.places().at::<u32>(3).write(MaybeUninit::new(4)) };
    ring.repair();
    assert_eq!((ring.len(), ring.lost().values), (2, 1));
    // The number was stored, the journal was not cleared.
    ring.begin(SENDS, 3);
    // SAFETY: as above.
    unsafe { ring.places().at::<u32>(3).write(MaybeUninit::new(5)) };
    ring.set_state(1, 3);
    ring.repair();
    assert_eq!((ring.len(), ring.lost().values), (3, 1));
    assert_eq!([ring.take(), ring.take(), ring.take(), ring.take()], [Ok(2), Ok(3), Ok(5), Err(false)]);
}

#[test]
fn a_value_that_nobody_came_back_with_is_put_back() {
    let ring = ring();
    ring.begin(RECEIVES, 1);
    ring.repair(); // it was read, the number was not stored
    assert_eq!(ring.len(), 2);
    ring.begin(RECEIVES, 1);
    ring.set_state(2, 1);
    ring.repair();
    assert_eq!([ring.take(), ring.take(), ring.take()], [Ok(2), Ok(3), Err(false)]);
    ring.repair(); // nothing was begun
    assert_eq!((ring.len(), ring.lost()), (0, Lost::default()));
}

#[test]
fn numbers_wrap_and_places_grow() {
    let ring = Ring::<u32>::new(None).unwrap();
    ring.set_state(u32::MAX - 2, 0);
    for n in 0..100 {
        ring.put(n).unwrap();
    }
    assert!((0..100).all(|n| ring.take() == Ok(n)) && ring.take() == Err(false));
}
