use super::{BEFORE_B, Product, check, row, setup};
use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    rivals::heddle(m.workers);
    m.time_with(|| setup(m.size), multiply, check);
}

fn multiply(Product { width, a, b, c }: &mut Product) {
    let (width, b) = (*width, &b[BEFORE_B..]);
    let mut rows: Vec<_> = c.chunks_mut(width).zip(a.chunks(width)).collect();
    heddle::for_each(&mut rows[..], |(c, a)| row(c, a, b));
}
