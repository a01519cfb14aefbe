//! Making a thread and joining it, one at a time.

use crate::kernel::{Kernel, Rival, Unit};

mod crossbeam;
mod heddle;
mod heddle_fibers;
mod std;
mod tokio;

pub const KERNEL: Kernel = Kernel {
    name: "create-join",
    unit: Unit::Each,
    size: 20_000,
    quick: 2_000,
    items: |n| n as f64,
    expected: |n| (n * (n - 1) / 2) as u64,
    rivals: &[
        Rival::here("heddle", heddle::run),
        Rival::here("heddle, fibers", heddle_fibers::run),
        Rival::heddle_fibers_c("create.c"),
        Rival::here("tokio", tokio::run),
        Rival::go("create.go"),
        Rival::here("std", std::run).at_most(2_000),
        Rival::here("crossbeam", crossbeam::run).at_most(2_000),
    ],
};
