use super::Board;
use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    rivals::heddle(m.workers);
    m.time(|| solutions(&Board::EMPTY, m.size));
}

fn solutions(board: &Board, n: usize) -> u64 {
    if board.rows == n {
        return 1;
    }
    let (free, count) = board.free(n);
    among(board, &free[..count], n)
}

fn among(board: &Board, columns: &[u8], n: usize) -> u64 {
    match columns {
        [] => 0,
        [column] => solutions(&board.with(*column), n),
        _ => {
            let (some, others) = columns.split_at(columns.len() / 2);
            let (a, b) = heddle::join(|| among(board, some, n), || among(board, others, n));
            a + b
        }
    }
}
