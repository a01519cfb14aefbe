use super::{BEFORE_B, Product, check, row, setup};
use crate::measure::Measure;

pub fn run(m: &Measure) {
    m.time_with(|| setup(m.size), multiply, check);
}

pub fn multiply(Product { width, a, b, c }: &mut Product) {
    for (c, a) in c.chunks_mut(*width).zip(a.chunks(*width)) {
        row(c, a, &b[BEFORE_B..]);
    }
}
