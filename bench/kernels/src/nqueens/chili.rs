use super::Board;
use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    let pool = rivals::chili(m.workers);
    m.time(|| solutions(&mut pool.scope(), &Board::EMPTY, m.size));
}

fn solutions(scope: &mut chili::Scope<'_>, board: &Board, n: usize) -> u64 {
    if board.rows == n {
        return 1;
    }
    let (free, count) = board.free(n);
    among(scope, board, &free[..count], n)
}

fn among(scope: &mut chili::Scope<'_>, board: &Board, columns: &[u8], n: usize) -> u64 {
    match columns {
        [] => 0,
        [column] => solutions(scope, &board.with(*column), n),
        _ => {
            let (some, others) = columns.split_at(columns.len() / 2);
            let (a, b) = scope.join(|s| among(s, board, some, n), |s| among(s, board, others, n));
            a + b
        }
    }
}
