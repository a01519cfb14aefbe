//! What a kernel and a contender are.

use crate::measure::Measure;

/// A problem that all contenders solve.
pub struct Kernel {
    pub name: &'static str,
    pub unit: Unit,
    pub size: usize,
    /// With `--quick`.
    pub quick: usize,
    /// How many of what the unit counts there are.
    pub items: fn(usize) -> f64,
    /// The only right result.
    pub expected: fn(usize) -> u64,
    pub rivals: &'static [Rival],
}

/// What is shown. In all but the rate, less is better.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds per fork beyond what a plain call costs: (workers x time - sequential time) / forks.
    Overhead,
    /// Nanoseconds per item.
    Each,
    /// Million items per second.
    Rate,
    /// The time of the whole.
    Millis,
    /// Seconds until all threads wait, and bytes each.
    Parked,
}

impl Unit {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Overhead => "ns per fork",
            Self::Each => "ns each",
            Self::Rate => "M/s",
            Self::Millis => "ms",
            Self::Parked => "s",
        }
    }
}

/// One contender: `src/KERNEL/RIVAL.rs`, or a program in `external/`.
pub struct Rival {
    pub name: &'static str,
    pub how: How,
    /// It is too slow, or cannot do more: figures per item come from a smaller problem.
    pub most: usize,
    /// It knows nothing of workers.
    pub is_single: bool,
    /// Further arguments of a program.
    pub arguments: &'static [&'static str],
}

pub enum How {
    Here(fn(&Measure)),
    Program(Tool, &'static str),
}

/// What makes a program out of a source.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    C,
    Pthread,
    OpenmpGcc,
    OpenmpClang,
    Tbb,
    Go,
    /// The C interface, from the archive.
    Heddle,
}

impl Rival {
    pub const fn here(name: &'static str, run: fn(&Measure)) -> Self {
        Self::new(name, How::Here(run))
    }

    const fn new(name: &'static str, how: How) -> Self {
        Self { name, how, most: usize::MAX, is_single: false, arguments: &[] }
    }

    /// An OpenMP source without OpenMP.
    pub const fn c(source: &'static str) -> Self {
        Self::new("C, sequential", How::Program(Tool::C, source))
    }

    pub const fn pthread(source: &'static str) -> Self {
        Self::new("glibc", How::Program(Tool::Pthread, source))
    }

    pub const fn heddle_fibers_c(source: &'static str) -> Self {
        Self::new("heddle, fibers, C", How::Program(Tool::Heddle, source))
    }

    pub const fn openmp_gcc(source: &'static str) -> Self {
        Self::new("OpenMP, gcc", How::Program(Tool::OpenmpGcc, source))
    }

    pub const fn openmp_clang(source: &'static str) -> Self {
        Self::new("OpenMP, clang", How::Program(Tool::OpenmpClang, source))
    }

    pub const fn tbb(source: &'static str) -> Self {
        Self::new("TBB", How::Program(Tool::Tbb, source))
    }

    pub const fn go(source: &'static str) -> Self {
        Self::new("Go", How::Program(Tool::Go, source))
    }

    pub const fn at_most(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    pub const fn single(mut self) -> Self {
        self.is_single = true;
        self
    }

    pub const fn with(mut self, arguments: &'static [&'static str]) -> Self {
        self.arguments = arguments;
        self
    }
}

pub const KERNELS: &[&Kernel] = &[
    &crate::fib::KERNEL,
    &crate::scopes::KERNEL,
    &crate::spawns::KERNEL,
    &crate::fib_threads::KERNEL,
    &crate::create::KERNEL,
    &crate::yields::KERNEL,
    &crate::mutex::ALONE,
    &crate::mutex::FIVE,
    &crate::uts::KERNEL,
    &crate::nqueens::KERNEL,
    &crate::matmul::KERNEL,
    &crate::skynet::KERNEL,
    &crate::quicksort::KERNEL,
    &crate::strassen::KERNEL,
    &crate::parked::KERNEL,
];
