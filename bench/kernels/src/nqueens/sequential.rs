use super::Board;
use crate::measure::Measure;

pub fn run(m: &Measure) {
    m.time(|| solutions(&Board::EMPTY, m.size));
}

fn solutions(board: &Board, n: usize) -> u64 {
    if board.rows == n {
        return 1;
    }
    let (free, count) = board.free(n);
    free[..count].iter().map(|&column| solutions(&board.with(column), n)).sum()
}
