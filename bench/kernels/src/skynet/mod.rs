//! Skynet: a tree of tasks, ten children each, that adds up the numbers of its leaves.

use crate::kernel::{Kernel, Rival, Unit};

mod chili;
mod heddle;
mod heddle_fibers;
mod heddle_threads;
mod rayon;
mod sequential;
mod tokio;

pub const KERNEL: Kernel = Kernel {
    name: "skynet",
    unit: Unit::Each,
    size: 1_000_000,
    quick: 10_000,
    items: |n| n as f64,
    expected: |n| (n * (n - 1) / 2) as u64,
    rivals: &[
        Rival::here("sequential", sequential::run).single(),
        Rival::here("heddle", heddle::run),
        Rival::here("heddle, threads", heddle_threads::run).at_most(100_000),
        Rival::here("heddle, fibers", heddle_fibers::run),
        Rival::here("rayon", rayon::run),
        Rival::here("chili", chili::run),
        Rival::here("tokio", tokio::run),
        Rival::openmp_gcc("skynet.c"),
        Rival::openmp_clang("skynet.c"),
        Rival::tbb("skynet.cpp"),
        Rival::go("skynet.go"),
    ],
};
