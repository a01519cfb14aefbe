use super::{Matrix, PLAIN, check, combine, factors, plain, setup};
use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    let pool = rivals::rayon(m.workers);
    m.time_with(|| setup(m.size), |(a, b)| pool.install(|| multiply(a, b, m.size)), check);
}

fn multiply(a: &[f64], b: &[f64], n: usize) -> Matrix {
    if n == PLAIN {
        return plain(a, b);
    }
    let mut products = [const { Matrix::new() }; 7];
    parts(&mut products, 0, a, b, n);
    combine(&products, n)
}

/// The products from number `first`.
fn parts(products: &mut [Matrix], first: usize, a: &[f64], b: &[f64], n: usize) {
    if let [product] = products {
        let (a, b) = factors(first, a, b, n);
        *product = multiply(&a, &b, n / 2);
        return;
    }
    let half = products.len() / 2;
    let (some, others) = products.split_at_mut(half);
    rayon::join(|| parts(some, first, a, b, n), || parts(others, first + half, a, b, n));
}
