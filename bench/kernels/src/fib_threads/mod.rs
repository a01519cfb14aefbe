//! fib(n) by full threads: each call but the smallest makes a thread for one half and joins it.

use crate::fib::{fib, sequential};
use crate::kernel::{Kernel, Rival, Unit};

mod heddle;
mod heddle_fibers;
mod may;
mod std;
mod tokio;

pub const KERNEL: Kernel = Kernel {
    name: "fib-threads",
    unit: Unit::Overhead,
    size: 22,
    quick: 14,
    items: |n| (fib(n + 1) - 1) as f64,
    expected: |n| fib(n),
    rivals: &[
        Rival::here("sequential", sequential::run).single(),
        Rival::here("heddle", heddle::run).at_most(30),
        Rival::here("heddle, fibers", heddle_fibers::run),
        Rival::heddle_fibers_c("fib_threads.c"),
        Rival::here("tokio", tokio::run),
        Rival::here("may", may::run),
        Rival::go("fib_threads.go"),
        Rival::here("std", std::run).at_most(12),
    ],
};
