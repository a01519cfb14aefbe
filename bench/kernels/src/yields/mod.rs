//! Two threads that do nothing but yield.

use crate::kernel::{Kernel, Rival, Unit};

mod heddle;
mod heddle_fibers;
mod std;
mod tokio;

pub const KERNEL: Kernel = Kernel {
    name: "yield",
    unit: Unit::Each,
    size: 400_000,
    quick: 40_000,
    items: |n| n as f64,
    expected: |n| n as u64,
    rivals: &[
        Rival::here("heddle", heddle::run),
        Rival::here("heddle, fibers", heddle_fibers::run),
        Rival::here("tokio", tokio::run),
        Rival::go("yield.go"),
        Rival::here("std", std::run),
    ],
};
