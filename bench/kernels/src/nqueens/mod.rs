//! All ways to place n queens: one task for each queen that can be placed, with a copy of the board, no cutoff.

use crate::kernel::{Kernel, Rival, Unit};

mod chili;
mod heddle;
mod rayon;
mod sequential;

pub const KERNEL: Kernel = Kernel {
    name: "nqueens",
    unit: Unit::Millis,
    size: 12,
    quick: 9,
    items: |_| 1.0,
    expected: |n| [1, 1, 0, 0, 2, 10, 4, 40, 92, 352, 724, 2_680, 14_200, 73_712, 365_596][n],
    rivals: &[
        Rival::here("sequential", sequential::run).single(),
        Rival::c("nqueens.c").single(),
        Rival::here("heddle", heddle::run),
        Rival::here("rayon", rayon::run),
        Rival::here("chili", chili::run),
        Rival::openmp_gcc("nqueens.c"),
        Rival::openmp_clang("nqueens.c"),
        Rival::tbb("nqueens.cpp"),
        Rival::go("nqueens.go"),
    ],
};

/// The columns of the queens in the first `rows` rows.
#[derive(Clone, Copy)]
pub struct Board {
    columns: [u8; 16],
    pub rows: usize,
}

impl Board {
    pub const EMPTY: Self = Self { columns: [0; 16], rows: 0 };

    pub fn with(mut self, column: u8) -> Self {
        self.columns[self.rows] = column;
        self.rows += 1;
        self
    }

    fn is_free(&self, column: u8) -> bool {
        self.columns[..self.rows].iter().enumerate().all(|(row, &other)| {
            let distance = (self.rows - row) as u8;
            other != column && other != column.wrapping_add(distance) && other != column.wrapping_sub(distance)
        })
    }

    /// The columns in the next row that no queen threatens, and how many there are.
    pub fn free(&self, n: usize) -> ([u8; 16], usize) {
        let (mut free, mut count) = ([0; 16], 0);
        for column in 0..n as u8 {
            if self.is_free(column) {
                free[count] = column;
                count += 1;
            }
        }
        (free, count)
    }
}
