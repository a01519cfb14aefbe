use super::*;

/// Tables of their own for one test, with a few threads; they are not given back.
fn tables(threads: usize) -> (Shadow, &'static [Thread]) {
    fn zeroed<const N: usize>() -> &'static [AtomicU64; N] {
        let at = sys::map(N * 8, None).unwrap().cast::<[AtomicU64; N]>();
        // SAFETY: mapped just now, zeroed, and never unmapped.
        unsafe { &*at }
    }
    let running: &'static [Thread] = (0..threads).map(|_| Thread::new()).collect::<Vec<_>>().leak();
    for (place, thread) in running.iter().enumerate() {
        thread.prepare(place, place + 10);
    }
    let shadow = Shadow::new(zeroed(), zeroed(), running, |_, _| ());
    shadow.word(header::THRESHOLD).store(100, Relaxed);
    (shadow, running)
}

const BASE: usize = 0x7f00_0000_1000;

/// The record's words, if the first line has one in use.
fn found(shadow: &Shadow, word: usize) -> u64 {
    let used = shadow.word(header::RECORDS).load(Relaxed) as usize;
    let mut sum = 0;
    for number in 0..used {
        let at = Shadow::at(number);
        if shadow.word(at + record::STATE).load(Relaxed) != 0 {
            sum += shadow.word(at + word).load(Relaxed);
        }
    }
    sum
}

/// `count` times, each of the threads writes its bytes in turn.
fn take_turns(shadow: &Shadow, threads: &[Thread], count: usize, offset: impl Fn(usize) -> usize) {
    for _ in 0..count {
        for (i, thread) in threads.iter().enumerate() {
            shadow.access(thread, BASE + offset(i), 8, 0x1000 + i, WRITE);
        }
    }
}

#[test]
fn neighbours_cause_false_changes_only() {
    let (shadow, threads) = tables(2);
    take_turns(&shadow, threads, 500, |i| 8 * i);
    assert!(found(&shadow, record::FALSE) > 990, "{}", found(&shadow, record::FALSE));
    assert_eq!(found(&shadow, record::TRUE), 0);
}

#[test]
fn the_same_bytes_cause_true_changes_only() {
    let (shadow, threads) = tables(3);
    take_turns(&shadow, threads, 500, |_| 8);
    assert!(found(&shadow, record::TRUE) > 1400);
    assert_eq!(found(&shadow, record::FALSE), 0);
}

#[test]
fn readers_and_ones_own_line_need_no_record() {
    let (shadow, threads) = tables(2);
    for i in 0..1000 {
        shadow.access(&threads[0], BASE, 8, 1, WRITE);
        shadow.access(&threads[1], BASE + LINE, 8, 2, WRITE);
        shadow.access(&threads[i % 2], BASE + 2 * LINE, 8, 3, 0);
    }
    assert_eq!(shadow.word(header::RECORDS).load(Relaxed), 0);
}

#[test]
fn a_reader_of_other_bytes_is_disturbed() {
    let (shadow, threads) = tables(2);
    for _ in 0..100 {
        shadow.access(&threads[0], BASE, 8, 1, WRITE);
        shadow.access(&threads[1], BASE + 8, 8, 2, 0);
    }
    assert!(found(&shadow, record::FALSE) > 190);
    assert_eq!(found(&shadow, record::TRUE), 0);
}

#[test]
fn a_line_fetched_for_other_bytes_and_then_used_is_shared_truly() {
    let (shadow, threads) = tables(2);
    for _ in 0..100 {
        shadow.access(&threads[0], BASE, 8, 1, WRITE);
        shadow.access(&threads[1], BASE + 8, 8, 2, 0);
        shadow.access(&threads[1], BASE, 8, 3, 0);
    }
    assert!(found(&shadow, record::TRUE) > 190);
    assert!(found(&shadow, record::FALSE) < 5);
}

/// What a queue under a lock does: each side looks at the count, moves an index of its own, and changes the count.
#[test]
fn what_is_used_together_with_shared_bytes_is_shared_truly() {
    for looks_first in [true, false] {
        let (shadow, threads) = tables(2);
        for _ in 0..100 {
            for (i, thread) in threads.iter().enumerate() {
                if looks_first {
                    shadow.access(thread, BASE, 4, 1, 0);
                }
                shadow.access(thread, BASE + 8 + 8 * i, 8, 2, WRITE);
                shadow.access(thread, BASE, 4, 3, WRITE);
            }
        }
        assert!(found(&shadow, record::TRUE) > 190, "{looks_first}");
        assert!(found(&shadow, record::FALSE) < 5, "{looks_first}: {}", found(&shadow, record::FALSE));
    }
}

#[test]
fn a_thread_that_has_ended_is_not_disturbed() {
    let (shadow, threads) = tables(2);
    take_turns(&shadow, threads, 10, |i| 8 * i);
    let before = found(&shadow, record::FALSE);
    threads[0].serial.store(0, Relaxed);
    for _ in 0..100 {
        shadow.access(&threads[1], BASE + 8, 8, 2, WRITE);
    }
    assert_eq!(found(&shadow, record::FALSE), before);
}

#[test]
fn memory_given_back_has_no_past() {
    let (shadow, threads) = tables(2);
    take_turns(&shadow, threads, 10, |i| 8 * i);
    assert_ne!(found(&shadow, record::STATE), 0);
    shadow.forget(BASE, LINE);
    // Too little to keep: the record is free again, and the line starts anew.
    assert_eq!(found(&shadow, record::STATE), 0);
    take_turns(&shadow, threads, 1, |i| 8 * i);
    assert_eq!(found(&shadow, record::STATE), 0);
    take_turns(&shadow, threads, 500, |i| 8 * i);
    assert_eq!(shadow.word(header::RECORDS).load(Relaxed), 1);
    shadow.forget(BASE + 60, 100);
    assert_eq!(found(&shadow, record::STATE), 2);
}

#[test]
fn slots_tell_bytes_counts_and_places() {
    let (shadow, threads) = tables(2);
    take_turns(&shadow, threads, 200, |i| 16 * i);
    let slot = |i: usize, word: usize| {
        let at = Shadow::at(0) + record::SLOTS + i * SLOT_WORDS;
        shadow.word(at + word).load(Relaxed)
    };
    for i in 0..2 {
        let thread = (slot(i, slot::THREAD) & 0xffff) as usize - 1;
        assert_eq!(slot(i, slot::THREAD) >> 16, thread as u64 + 11);
        assert_eq!(slot(i, slot::WRITTEN), 0xff << (16 * thread));
        assert_eq!(slot(i, slot::READS), 0);
        assert!((197..=200).contains(&slot(i, slot::WRITES)));
        assert_eq!(slot(i, slot::PLACES), 0x1000 + thread as u64);
        assert_eq!(slot(i, slot::PLACES + 1), what(WRITE, 16 * thread, 8));
        assert_eq!(slot(i, slot::PLACES + 2), slot(i, slot::WRITES));
    }
}

#[test]
fn long_accesses_touch_all_their_lines() {
    let (shadow, threads) = tables(2);
    for _ in 0..10 {
        shadow.access(&threads[0], BASE + 60, 8, 1, WRITE);
        shadow.access(&threads[1], BASE, 200, 2, WRITE);
    }
    // The third and fourth line belong to one thread alone.
    assert_eq!(shadow.word(header::RECORDS).load(Relaxed), 2);
    assert_eq!(found(&shadow, record::FALSE), 0);
}

#[test]
fn lines_that_share_a_filter_word_do_not_mix() {
    let (shadow, threads) = tables(2);
    let far = BASE + FILTER_LINES * LINE;
    for _ in 0..100 {
        shadow.access(&threads[0], BASE, 8, 1, WRITE);
        shadow.access(&threads[1], far + 8, 8, 2, WRITE);
    }
    assert_eq!(shadow.word(header::RECORDS).load(Relaxed), 0);
}

#[test]
fn a_thread_pauses_ever_more_seldom_and_naps_when_alone_on_a_watched_line() {
    let (shadow, threads) = tables(2);
    let pauses = |thread: &Thread, address: usize, count: usize| {
        (0..count).filter(|_| shadow.access(thread, address, 8, 1, WRITE) != After::Nothing).count()
    };
    assert_eq!(pauses(&threads[0], BASE, 256 * 31), 5);
    take_turns(&shadow, threads, 5, |i| 8 * i);
    assert!(pauses(&threads[1], BASE + 8, 250) <= 1);
    assert!(pauses(&threads[1], BASE + 8, 3000) >= 3);
}

#[test]
fn records_run_out_and_are_counted() {
    let (shadow, threads) = tables(2);
    for line in 0..MAX_RECORDS + 10 {
        for i in 0..8 {
            shadow.access(&threads[i % 2], BASE + line * LINE + 8 * (i % 2), 8, 1, WRITE);
        }
    }
    assert_eq!(shadow.word(header::RECORDS).load(Relaxed), MAX_RECORDS as u64);
    assert!(shadow.word(header::MISSED_LINES).load(Relaxed) >= 10);
}
