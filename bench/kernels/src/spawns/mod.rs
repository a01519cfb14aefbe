//! One scope with a million small jobs.

use crate::kernel::{Kernel, Rival, Unit};

mod heddle;
mod rayon;

pub const KERNEL: Kernel = Kernel {
    name: "spawns",
    unit: Unit::Each,
    size: 1_000_000,
    quick: 10_000,
    items: |n| n as f64,
    expected: |n| (0..n as u64).map(work).sum(),
    rivals: &[Rival::here("heddle", heddle::run), Rival::here("rayon", rayon::run)],
};

/// A job.
fn work(i: u64) -> u64 {
    i % 7
}
