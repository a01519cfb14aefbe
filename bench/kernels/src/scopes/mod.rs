//! fib(n) by a scope with one job in each call, without a cutoff.

use crate::fib::{fib, sequential};
use crate::kernel::{Kernel, Rival, Unit};

mod heddle;
mod rayon;

pub const KERNEL: Kernel = Kernel {
    name: "scopes",
    unit: Unit::Overhead,
    size: 30,
    quick: 22,
    items: |n| (fib(n + 1) - 1) as f64,
    expected: |n| fib(n),
    rivals: &[
        Rival::here("sequential", sequential::run).single(),
        Rival::here("heddle", heddle::run),
        Rival::here("rayon", rayon::run),
    ],
};
