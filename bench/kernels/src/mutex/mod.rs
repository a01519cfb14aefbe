//! Locking and unlocking around an increment: by one thread, and by five.

use crate::kernel::{Kernel, Rival, Unit};

mod heddle;
mod parking_lot;
mod std;

pub const ALONE: Kernel = Kernel {
    name: "mutex-1",
    unit: Unit::Each,
    size: 5_000_000,
    quick: 500_000,
    items: |n| n as f64,
    expected: |n| n as u64,
    rivals: &[
        Rival::here("heddle", |m| heddle::run(m, 1)),
        Rival::here("std", |m| std::run(m, 1)),
        Rival::here("parking_lot", |m| parking_lot::run(m, 1)),
        Rival::pthread("mutex.c").with(&["1"]),
        Rival::go("mutex.go").with(&["1"]),
    ],
};

pub const FIVE: Kernel = Kernel {
    name: "mutex-5",
    rivals: &[
        Rival::here("heddle", |m| heddle::run(m, 5)),
        Rival::here("std", |m| std::run(m, 5)),
        Rival::here("parking_lot", |m| parking_lot::run(m, 5)),
        Rival::pthread("mutex.c").with(&["5"]),
        Rival::go("mutex.go").with(&["5"]),
    ],
    ..ALONE
};
