use super::{Matrix, PLAIN, check, combine, factors, plain, setup};
use crate::measure::Measure;

pub fn run(m: &Measure) {
    m.time_with(|| setup(m.size), |(a, b)| multiply(a, b, m.size), check);
}

pub fn multiply(a: &[f64], b: &[f64], n: usize) -> Matrix {
    if n == PLAIN {
        return plain(a, b);
    }
    let part = |i| {
        let (a, b) = factors(i, a, b, n);
        multiply(&a, &b, n / 2)
    };
    combine(&std::array::from_fn(part), n)
}
