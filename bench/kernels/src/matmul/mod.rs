//! Matrix product as a parallel loop over the rows of the result; numbers are small integers, so sums are exact in any order.

use crate::kernel::{Kernel, Rival, Unit};

mod chili;
mod heddle;
mod rayon;
mod sequential;

pub const KERNEL: Kernel = Kernel {
    name: "matmul",
    unit: Unit::Millis,
    size: 384,
    quick: 128,
    items: |_| 1.0,
    expected: |n| {
        let mut made = setup(n);
        sequential::multiply(&mut made);
        check(made, ())
    },
    rivals: &[
        Rival::here("sequential", sequential::run).single(),
        Rival::c("matmul.c").single(),
        Rival::here("heddle", heddle::run),
        Rival::here("rayon", rayon::run),
        Rival::here("chili", chili::run),
        Rival::openmp_gcc("matmul.c"),
        Rival::openmp_clang("matmul.c"),
        Rival::tbb("matmul.cpp"),
    ],
};

/// A cache line of numbers: rows begin at one, in every language.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Line(pub [f32; 16]);

/// Lines before the first row of `b`.
pub const BEFORE_B: usize = 16;

pub struct Product {
    /// Lines of a row.
    pub width: usize,
    pub a: Vec<Line>,
    pub b: Vec<Line>,
    pub c: Vec<Line>,
}

pub fn setup(n: usize) -> Product {
    let line =
        |at: usize, p: usize, q: usize| Line(std::array::from_fn(|i| (((at + i) * p + (at + i) / n) % q) as f32));
    let matrix = |p, q| (0..n * n).step_by(16).map(move |at| line(at, p, q));
    // Rows of `b` are not to begin where those of `c` do, modulo 4096: a load would wait for the store before it.
    let b = [Line([0.0; 16]); BEFORE_B].into_iter().chain(matrix(3, 7)).collect();
    Product { width: n / 16, a: matrix(7, 5).collect(), b, c: vec![Line([0.0; 16]); n * n / 16] }
}

pub fn check(made: Product, (): ()) -> u64 {
    let numbers = made.c.iter().flat_map(|line| line.0).enumerate();
    numbers.fold(0u64, |sum, (i, x)| sum.wrapping_add((x as u64).wrapping_mul(i as u64 % 1009 + 1)))
}

/// One row of the result.
#[inline(never)]
pub fn row(c: &mut [Line], a: &[Line], b: &[Line]) {
    c.fill(Line([0.0; 16]));
    let factors = a.iter().flat_map(|line| &line.0);
    for (&x, b) in factors.zip(b.chunks_exact(c.len())) {
        for (c, b) in c.iter_mut().zip(b) {
            for (c, b) in c.0.iter_mut().zip(&b.0) {
                *c += x * b;
            }
        }
    }
}
