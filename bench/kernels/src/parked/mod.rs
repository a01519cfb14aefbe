//! Very many threads that wait: how long it takes until all do, and how much memory each needs.

use crate::kernel::{Kernel, Rival, Unit};

mod heddle;
mod heddle_fibers;
mod std;
mod tokio;

pub const KERNEL: Kernel = Kernel {
    name: "parked",
    unit: Unit::Parked,
    size: 1_000_000,
    quick: 5_000,
    items: |n| n as f64,
    expected: |_| 0,
    rivals: &[
        // 9 KiB each: as many as most machines have memory for.
        Rival::here("heddle", heddle::run).at_most(300_000),
        Rival::here("heddle, fibers", heddle_fibers::run),
        Rival::here("tokio", tokio::run),
        Rival::go("parked.go"),
        Rival::here("std", std::run).at_most(10_000),
    ],
};
