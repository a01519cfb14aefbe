use super::{BEFORE_B, Line, Product, check, row, setup};
use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    let pool = rivals::chili(m.workers);
    let multiply = |Product { width, a, b, c }: &mut Product| rows(&mut pool.scope(), c, a, &b[BEFORE_B..], *width);
    m.time_with(|| setup(m.size), multiply, check);
}

fn rows(scope: &mut chili::Scope<'_>, c: &mut [Line], a: &[Line], b: &[Line], width: usize) {
    let rest = c.len() / width;
    if rest == 1 {
        return row(c, a, b);
    }
    let (c, d) = c.split_at_mut(rest / 2 * width);
    let (a, e) = a.split_at(rest / 2 * width);
    scope.join(|s| rows(s, c, a, b, width), |s| rows(s, d, e, b, width));
}
