//! Strassen's matrix product: seven tasks at each level, down to 64 x 64. Numbers are small integers, so sums are exact.

use crate::kernel::{Kernel, Rival, Unit};

mod chili;
mod heddle;
mod rayon;
mod sequential;

pub const KERNEL: Kernel = Kernel {
    name: "strassen",
    unit: Unit::Millis,
    size: 512,
    quick: 256,
    items: |_| 1.0,
    expected: |n| {
        let (a, b) = setup(n);
        check((vec![], vec![]), sequential::multiply(&a, &b, n))
    },
    rivals: &[
        Rival::here("sequential", sequential::run).single(),
        Rival::c("strassen.c").single(),
        Rival::here("heddle", heddle::run),
        Rival::here("rayon", rayon::run),
        Rival::here("chili", chili::run),
        Rival::openmp_gcc("strassen.c"),
        Rival::openmp_clang("strassen.c"),
        Rival::tbb("strassen.cpp"),
    ],
};

pub type Matrix = Vec<f64>;

pub fn setup(n: usize) -> (Matrix, Matrix) {
    let matrix = |p: usize, q: usize| (0..n * n).map(|i| ((i * p + i / n) % q) as f64).collect();
    (matrix(7, 5), matrix(3, 7))
}

pub fn check(_: (Matrix, Matrix), c: Matrix) -> u64 {
    c.iter().enumerate().fold(0u64, |sum, (i, &x)| sum.wrapping_add((x as u64).wrapping_mul(i as u64 % 1009 + 1)))
}

/// At this size, the plain way.
pub const PLAIN: usize = 64;

#[inline(never)]
pub fn plain(a: &[f64], b: &[f64]) -> Matrix {
    let mut c = vec![0.0; PLAIN * PLAIN];
    let (b, _) = b.as_chunks::<PLAIN>();
    for (c, a) in c.as_chunks_mut::<PLAIN>().0.iter_mut().zip(a.as_chunks::<PLAIN>().0) {
        for (&x, b) in a.iter().zip(b) {
            for (c, &b) in c.iter_mut().zip(b) {
                *c += x * b;
            }
        }
    }
    c
}

/// The quarter at `row`, `column` (0 or 1), plus `sign` times another one.
#[inline(never)]
fn quarters(m: &[f64], n: usize, (row, column): (usize, usize), other: Option<(f64, (usize, usize))>) -> Matrix {
    let half = n / 2;
    let line = |(row, column): (usize, usize), i: usize| {
        let at = (row * half + i) * n + column * half;
        &m[at..at + half]
    };
    let mut result = Vec::with_capacity(half * half);
    for i in 0..half {
        let own = line((row, column), i);
        match other {
            None => result.extend_from_slice(own),
            Some((sign, other)) => result.extend(own.iter().zip(line(other, i)).map(|(x, y)| x + sign * y)),
        }
    }
    result
}

/// The factors of the product number `i`.
pub fn factors(i: usize, a: &[f64], b: &[f64], n: usize) -> (Matrix, Matrix) {
    let (q11, q12, q21, q22) = ((0, 0), (0, 1), (1, 0), (1, 1));
    let (left, right) = match i {
        0 => ((q11, Some((1.0, q22))), (q11, Some((1.0, q22)))),
        1 => ((q21, Some((1.0, q22))), (q11, None)),
        2 => ((q11, None), (q12, Some((-1.0, q22)))),
        3 => ((q22, None), (q21, Some((-1.0, q11)))),
        4 => ((q11, Some((1.0, q12))), (q22, None)),
        5 => ((q21, Some((-1.0, q11))), (q11, Some((1.0, q12)))),
        _ => ((q12, Some((-1.0, q22))), (q21, Some((1.0, q22)))),
    };
    (quarters(a, n, left.0, left.1), quarters(b, n, right.0, right.1))
}

/// The result out of the seven products.
#[inline(never)]
pub fn combine(m: &[Matrix; 7], n: usize) -> Matrix {
    let half = n / 2;
    let mut c = Vec::with_capacity(n * n);
    let line = |k: usize, i: usize| &m[k][i * half..(i + 1) * half];
    for i in 0..half {
        let (a, b, c0, d) = (line(0, i), line(3, i), line(4, i), line(6, i));
        c.extend(a.iter().zip(b).zip(c0.iter().zip(d)).map(|((a, b), (c, d))| a + b - c + d));
        c.extend(line(2, i).iter().zip(line(4, i)).map(|(a, b)| a + b));
    }
    for i in 0..half {
        c.extend(line(1, i).iter().zip(line(3, i)).map(|(a, b)| a + b));
        let (a, b, c0, d) = (line(0, i), line(1, i), line(2, i), line(5, i));
        c.extend(a.iter().zip(b).zip(c0.iter().zip(d)).map(|((a, b), (c, d))| a - b + c + d));
    }
    c
}
