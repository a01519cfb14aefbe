//! fib(n) by `join`, without a cutoff: nothing but forks, Fib(n + 1) - 1 of them.

use crate::kernel::{Kernel, Rival, Unit};

mod chili;
mod heddle;
mod rayon;
pub mod sequential;

pub const KERNEL: Kernel = Kernel {
    name: "fib",
    unit: Unit::Overhead,
    size: 32,
    quick: 25,
    items: |n| (fib(n + 1) - 1) as f64,
    expected: |n| fib(n),
    rivals: &[
        Rival::here("sequential", sequential::run).single(),
        Rival::here("heddle", heddle::run),
        Rival::here("rayon", rayon::run),
        Rival::here("chili", chili::run),
        Rival::openmp_gcc("fib.c").at_most(24),
        Rival::openmp_clang("fib.c").at_most(24),
        Rival::tbb("fib.cpp").at_most(26),
    ],
};

/// By counting up.
pub fn fib(n: usize) -> u64 {
    (0..n).fold((0, 1), |(a, b), _| (b, a + b)).0
}
