//! Quicksort of 32-bit numbers: partitions one after the other, halves by `join`; up to 32 numbers by insertion.

use crate::kernel::{Kernel, Rival, Unit};

mod chili;
mod heddle;
mod rayon;
mod sequential;

pub const KERNEL: Kernel = Kernel {
    name: "quicksort",
    unit: Unit::Millis,
    size: 2_000_000,
    quick: 100_000,
    items: |_| 1.0,
    expected: |n| {
        let mut numbers = numbers(n);
        numbers.sort_unstable();
        check(numbers, ())
    },
    rivals: &[
        Rival::here("sequential", sequential::run).single(),
        Rival::c("quicksort.c").single(),
        Rival::here("heddle", heddle::run),
        Rival::here("rayon", rayon::run),
        Rival::here("chili", chili::run),
        Rival::openmp_gcc("quicksort.c"),
        Rival::openmp_clang("quicksort.c"),
        Rival::tbb("quicksort.cpp"),
        Rival::go("quicksort.go"),
    ],
};

/// What is to be sorted: the same numbers in every language.
pub fn numbers(n: usize) -> Vec<u32> {
    let mut x = 42u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 32) as u32
    };
    (0..n).map(|_| next()).collect()
}

/// Depends on each number and its place.
pub fn check(numbers: Vec<u32>, (): ()) -> u64 {
    numbers.iter().fold(0u64, |sum, &n| sum.wrapping_mul(31).wrapping_add(n.into()))
}

/// Sorts a few; true if that was all there was to be done.
pub fn sort_few(v: &mut [u32]) -> bool {
    if v.len() > 32 {
        return false;
    }
    for i in 1..v.len() {
        let x = v[i];
        let mut j = i;
        while j > 0 && v[j - 1] > x {
            v[j] = v[j - 1];
            j -= 1;
        }
        v[j] = x;
    }
    true
}

/// Hoare's partition around the median of three: none of the first part is greater than any of the second.
pub fn partition(v: &mut [u32]) -> (&mut [u32], &mut [u32]) {
    let (a, b, c) = (v[0], v[v.len() / 2], v[v.len() - 1]);
    let pivot = a.min(b).max(a.max(b).min(c));
    let (mut i, mut j) = (0, v.len() - 1);
    loop {
        while v[i] < pivot {
            i += 1;
        }
        while v[j] > pivot {
            j -= 1;
        }
        if i >= j {
            return v.split_at_mut(i);
        }
        v.swap(i, j);
        i += 1;
        j -= 1;
    }
}
