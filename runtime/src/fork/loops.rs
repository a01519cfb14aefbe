//! Parallel loops that split themselves when others have time.
//!
//! A loop works through its items in blocks. Before each it looks whether its thread's lane is empty: then whatever it had
//! to offer has been taken, and it splits what is left in two, by `join`. So a loop that nobody helps with splits a few
//! times and is otherwise a plain loop, and one that others help with splits as often as they come. Blocks grow until
//! one takes some microseconds, so that a look costs nothing beside it.

use std::ops::Range;

use super::join::join;
use super::pool::{self, ticks};

/// Something whose items a loop can work through in parts: ranges of integers, slices, and [`chunks`] of slices.
pub trait Parallel: Send + Sized {
    /// One item.
    type Item;

    /// How many items.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `n` items, which there are, and the rest.
    fn split_at(self, n: usize) -> (Self, Self);

    /// Hands over each item, in order.
    fn each(self, f: impl FnMut(Self::Item));
}

macro_rules! ranges {
    ($($int:ty),*) => {$(
        impl Parallel for Range<$int> {
            type Item = $int;

            fn len(&self) -> usize {
                if self.start >= self.end {
                    return 0;
                }
                // A range longer than the address space is worked through in parts of that length.
                usize::try_from(self.end.abs_diff(self.start)).unwrap_or(usize::MAX)
            }

            fn split_at(self, n: usize) -> (Self, Self) {
                let middle = self.start.wrapping_add(n as $int);
                (self.start..middle, middle..self.end)
            }

            fn each(self, f: impl FnMut($int)) {
                self.for_each(f);
            }
        }
    )*};
}
ranges!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize);

impl<'a, T: Sync> Parallel for &'a [T] {
    type Item = &'a T;

    fn len(&self) -> usize {
        (**self).len()
    }

    fn split_at(self, n: usize) -> (Self, Self) {
        <[T]>::split_at(self, n)
    }

    fn each(self, f: impl FnMut(&'a T)) {
        self.iter().for_each(f);
    }
}

impl<'a, T: Send> Parallel for &'a mut [T] {
    type Item = &'a mut T;

    fn len(&self) -> usize {
        (**self).len()
    }

    fn split_at(self, n: usize) -> (Self, Self) {
        self.split_at_mut(n)
    }

    fn each(self, f: impl FnMut(&'a mut T)) {
        self.iter_mut().for_each(f);
    }
}

/// See [`chunks`].
#[derive(Clone, Copy, Debug)]
pub struct Chunks<'a, T> {
    slice: &'a [T],
    size: usize,
}

/// See [`chunks_mut`].
#[derive(Debug)]
pub struct ChunksMut<'a, T> {
    slice: &'a mut [T],
    size: usize,
}

/// The slice in pieces of `size`, the last perhaps smaller.
///
/// # Panics
/// If `size` is 0.
pub fn chunks<T: Sync>(slice: &[T], size: usize) -> Chunks<'_, T> {
    assert_ne!(size, 0, "pieces of no items");
    Chunks { slice, size }
}

/// The slice in pieces of `size`, the last perhaps smaller, to be changed.
///
/// # Panics
/// If `size` is 0.
pub fn chunks_mut<T: Send>(slice: &mut [T], size: usize) -> ChunksMut<'_, T> {
    assert_ne!(size, 0, "pieces of no items");
    ChunksMut { slice, size }
}

impl<'a, T: Sync> Parallel for Chunks<'a, T> {
    type Item = &'a [T];

    fn len(&self) -> usize {
        self.slice.len().div_ceil(self.size)
    }

    fn split_at(self, n: usize) -> (Self, Self) {
        let (a, b) = self.slice.split_at(self.slice.len().min(n * self.size));
        (Self { slice: a, ..self }, Self { slice: b, ..self })
    }

    fn each(self, f: impl FnMut(&'a [T])) {
        self.slice.chunks(self.size).for_each(f);
    }
}

impl<'a, T: Send> Parallel for ChunksMut<'a, T> {
    type Item = &'a mut [T];

    fn len(&self) -> usize {
        self.slice.len().div_ceil(self.size)
    }

    fn split_at(self, n: usize) -> (Self, Self) {
        let size = self.size;
        let at = self.slice.len().min(n * size);
        let (a, b) = self.slice.split_at_mut(at);
        (Self { slice: a, size }, Self { slice: b, size })
    }

    fn each(self, f: impl FnMut(&'a mut [T])) {
        self.slice.chunks_mut(self.size).for_each(f);
    }
}

/// Ticks of the CPU's counter that a block should take at least: a few microseconds.
const BLOCK_TICKS: u64 = 10_000;
const LARGEST_BLOCK: usize = 1 << 20;

/// Whether what this thread had to offer has been taken.
fn is_wanted() -> bool {
    pool::lane().or_else(pool::attach).is_some_and(|lane| lane.is_empty())
}

fn drive<P, R>(
    mut items: P,
    mut block: usize,
    identity: &(impl Fn() -> R + Sync),
    fold: &(impl Fn(R, P) -> R + Sync),
    reduce: &(impl Fn(R, R) -> R + Sync),
) -> R
where
    P: Parallel,
    R: Send,
{
    let mut done = identity();
    loop {
        let len = items.len();
        if len == 0 {
            return done;
        }
        if len > 1 && is_wanted() {
            let (a, b) = items.split_at(len / 2);
            let (a, b) = join(|| drive(a, block, identity, fold, reduce), || drive(b, block, identity, fold, reduce));
            return reduce(done, reduce(a, b));
        }
        let (now, rest) = items.split_at(block.min(len));
        items = rest;
        let start = ticks();
        done = fold(done, now);
        if block < LARGEST_BLOCK && ticks().wrapping_sub(start) < BLOCK_TICKS {
            block *= 2;
        }
    }
}

/// Calls `f` for each item, on this thread and others.
///
/// ```
/// let mut squares = [1, 2, 3, 4];
/// heddle::for_each(&mut squares[..], |n| *n *= *n);
/// assert_eq!(squares, [1, 4, 9, 16]);
/// ```
pub fn for_each<P, F>(items: P, f: F)
where
    P: Parallel,
    F: Fn(P::Item) + Sync,
{
    drive(items, 1, &|| (), &|(), part: P| part.each(&f), &|(), ()| ());
}

/// Maps each item and combines the results, in their order: `reduce` must be associative but need not be commutative, and
/// `identity` its neutral element.
///
/// ```
/// let sum = heddle::map_reduce(0..1000u64, || 0, |n| n * n, |a, b| a + b);
/// assert_eq!(sum, 332_833_500);
/// ```
pub fn map_reduce<P, R, I, M, C>(items: P, identity: I, map: M, reduce: C) -> R
where
    P: Parallel,
    R: Send,
    I: Fn() -> R + Sync,
    M: Fn(P::Item) -> R + Sync,
    C: Fn(R, R) -> R + Sync,
{
    let fold = |done: R, part: P| {
        let mut done = Some(done);
        part.each(|item| done = done.take().map(|sofar| reduce(sofar, map(item))));
        match done {
            Some(done) => done,
            None => unreachable!("it is put back each time"),
        }
    };
    drive(items, 1, &identity, &fold, &reduce)
}
