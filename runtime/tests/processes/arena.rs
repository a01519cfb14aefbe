//! Values and locks in the arena.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use heddle::cancel::WaitError;
use heddle::process::{ArenaArc, ArenaBox, ArenaFull, ArenaString, ArenaVec, Condvar, Mutex, TaskError, usage};
use heddle::task;

use super::*;

pub const SAME: &[Test] = tests! {
    values_in_the_arena lists_and_text shared_values a_lock_for_all conditions
};
pub const PROCESS: &[Test] = tests! {
    a_full_arena
};

fn values_in_the_arena() {
    let before = usage().used;
    let mut row = ArenaBox::new([7_u8; 100_000]);
    row = task(
        |mut row: ArenaBox<[u8; 100_000]>| {
            row[99_999] = 1;
            row
        },
        row,
    )
    .join()
    .unwrap();
    assert_eq!((row[0], row[99_999]), (7, 1));
    let nested = ArenaBox::new((ArenaBox::new(1_u32), ArenaVec::from([ArenaString::from("a"), "b".into()])));
    let nested = task(
        |mut nested: ArenaBox<(ArenaBox<u32>, ArenaVec<ArenaString>)>| {
            *nested.0 += 1;
            nested.1.push("c".into());
            nested
        },
        nested,
    );
    let (number, texts) = nested.join().unwrap().into_inner();
    assert_eq!((*number, texts.concat().as_str()), (2, "abc"));
    drop((number, texts, row));
    assert_eq!(usage().used, before);

    // Blocks are reused, whoever frees them.
    let round = || {
        let made = task(|n: u64| (0..n).collect::<ArenaVec<u64>>(), 10_000).join().unwrap();
        task(|list: ArenaVec<u64>| drop(list), made).join().unwrap();
    };
    (0..20).for_each(|_| round());
    let touched = usage().touched;
    (0..200).for_each(|_| round());
    assert!(usage().touched <= touched + (2 << 20), "{touched} {:?}", usage());
    assert_eq!(usage().used, before);

    #[repr(align(256))]
    struct Aligned(u8);
    // SAFETY: plain data.
    unsafe impl heddle::process::Shareable for Aligned {}
    let boxes: Vec<_> = (0..50).map(|n| ArenaBox::new(Aligned(n))).collect();
    assert!((0..50).zip(&boxes).all(|(n, aligned)| aligned.0 == n && (&raw const **aligned).addr() % 256 == 0));
    let large = ArenaVec::<u8>::with_capacity(3 << 20);
    assert!(large.capacity() >= 3 << 20);
}

fn lists_and_text() {
    let mut list: ArenaVec<u32> = (0..10).collect();
    assert_eq!((list.len(), list.pop(), list.first()), (10, Some(9), Some(&0)));
    list.extend([20, 21]);
    list.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(list[..3], [21, 20, 8]);
    let copy = list.clone();
    list.truncate(1);
    assert_eq!((list.len(), copy.len()), (1, 11));
    assert_eq!(copy.into_iter().take(2).collect::<Vec<_>>(), [21, 20]);
    list.clear();
    assert!(list.is_empty() && list.pop().is_none());
    for _ in 0..3 {
        list.extend_from_slice(&[1, 2, 3]);
    }
    assert_eq!(list.iter().sum::<u32>(), 18);
    list.iter_mut().for_each(|n| *n = 0);
    assert_eq!(list, ArenaVec::from([0; 9]));
    let units: ArenaVec<()> = std::iter::repeat_n((), 1000).collect();
    assert_eq!(units.len(), 1000);

    // Each is dropped once.
    let count = ArenaArc::new(AtomicU32::new(0));
    heddle::shareable! {
        struct Drops(ArenaArc<AtomicU32>);
    }
    impl Drop for Drops {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let mut drops: ArenaVec<Drops> = (0..10).map(|_| Drops(count.clone())).collect();
    drops.truncate(8);
    let mut values = drops.into_iter();
    drop(values.next());
    assert_eq!(count.load(Ordering::Relaxed), 3);
    drop(values);
    assert_eq!(count.load(Ordering::Relaxed), 10);

    let mut text = ArenaString::new();
    std::fmt::Write::write_fmt(&mut text, format_args!("{}-{:?}", 1, "zwei")).unwrap();
    text.push('ß');
    assert_eq!((text.as_str(), text.len(), text.to_string().as_str()), ("1-\"zwei\"ß", 10, "1-\"zwei\"ß"));
    assert_eq!(String::from(text.clone()), format!("{text}"));
    text.clear();
    assert_eq!(text, "");
    assert_eq!(text, ArenaString::default());
}

fn shared_values() {
    let count = ArenaArc::new(AtomicU64::new(0));
    let add = |count: ArenaArc<AtomicU64>| {
        for _ in 0..1000 {
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    let handles: Vec<_> = (0..20).map(|_| task(add, count.clone())).collect();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    assert_eq!(count.load(Ordering::Relaxed), 20_000);
    let before = usage().used;
    let other = count.clone();
    assert!(other.ptr_eq(&count));
    drop((count, other));
    assert!(usage().used < before);
}

fn a_lock_for_all() {
    let sum = ArenaArc::new(Mutex::new((0_u64, 0_u64)));
    let add = |sum: ArenaArc<Mutex<(u64, u64)>>| {
        for _ in 0..2000 {
            let mut sum = sum.lock();
            assert!(sum.0 == sum.1 && !sum.was_abandoned());
            sum.0 += 1;
            sum.1 += 1;
        }
    };
    let handles: Vec<_> = (0..10).map(|_| task(add, sum.clone())).collect();
    add(sum.clone());
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    assert_eq!(*sum.lock(), (22_000, 22_000));

    let guard = sum.lock();
    assert!(sum.try_lock().is_none() && sum.lock_until(Duration::from_millis(20)).is_err());
    let tried = task(|sum: ArenaArc<Mutex<(u64, u64)>>| sum.try_lock().is_none() && sum.is_locked(), sum.clone());
    assert!(tried.join().unwrap());
    drop(guard);
    // A panic frees it.
    let panics = task(
        |sum: ArenaArc<Mutex<(u64, u64)>>| -> () {
            let _guard = sum.lock();
            panic!("with the lock");
        },
        sum.clone(),
    );
    assert!(matches!(panics.join(), Err(TaskError::Panicked(_))));
    assert!(!sum.lock_until(Duration::from_secs(10)).expect("it is free").was_abandoned());
}

fn conditions() {
    let turn = ArenaArc::new((Mutex::new(0_u32), Condvar::new()));
    let play = |(turn, mine): (ArenaArc<(Mutex<u32>, Condvar)>, u32)| {
        for _ in 0..50 {
            let mut now = turn.1.wait_while(turn.0.lock(), |now| *now % 3 != mine);
            *now += 1;
            turn.1.notify_all();
        }
    };
    let handles: Vec<_> = (0..3).map(|mine| task(play, (turn.clone(), mine))).collect();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    let (guard, result) = turn.1.wait_until(turn.0.lock(), Duration::from_millis(20));
    assert_eq!((*guard, result), (150, Err(WaitError::TimedOut)));
}

fn a_full_arena() {
    let full = ArenaVec::<u8>::try_with_capacity(1 << 30).unwrap_err();
    assert_eq!(full, ArenaFull { bytes: 1 << 30 });
    const SIZE: usize = 64 << 10;
    let mut boxes = Vec::new();
    let full = loop {
        match ArenaBox::try_new([0_u8; SIZE]) {
            Ok(one) => boxes.push(one),
            Err(full) => break full,
        }
    };
    assert!(boxes.len() > 3500 && full.bytes == SIZE, "{} {full:?}", boxes.len());
    let why = task(|list: [u8; SIZE]| list[0], [0; SIZE]).join();
    assert!(matches!(why, Err(TaskError::Full(_))), "{why:?}");
    let why = task(|()| ArenaBox::new([0_u8; SIZE]), ()).join();
    assert!(matches!(&why, Err(TaskError::Panicked(text)) if text.contains("no room")), "{why:?}");
    drop(boxes);
    assert_eq!(task(|list: [u8; SIZE]| list[9], [1; SIZE]).join().unwrap(), 1);
}
