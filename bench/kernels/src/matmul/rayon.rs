use rayon::prelude::*;

use super::{BEFORE_B, Product, check, row, setup};
use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    let pool = rivals::rayon(m.workers);
    m.time_with(|| setup(m.size), |made| pool.install(|| multiply(made)), check);
}

fn multiply(Product { width, a, b, c }: &mut Product) {
    let (width, b) = (*width, &b[BEFORE_B..]);
    c.par_chunks_mut(width).zip(a.par_chunks(width)).for_each(|(c, a)| row(c, a, b));
}
