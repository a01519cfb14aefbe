//! Values on lines of their own.

use std::fmt;
use std::ops::{Deref, DerefMut, Index, IndexMut};

/// A value that shares its cache line, and the line's neighbour, with nothing else. It takes a multiple of
/// [`LINE`](super::LINE) bytes.
///
/// ```
/// use heddle::shard::{CachePadded, LINE};
///
/// let pair = [CachePadded::new(1u8), CachePadded::new(2)];
/// assert_eq!(size_of_val(&pair), 2 * LINE);
/// assert_eq!(*pair[0] + *pair[1], 3);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(align(128))]
pub struct CachePadded<T> {
    value: T,
}

const _: () = assert!(align_of::<CachePadded<u8>>() == super::LINE);

impl<T> CachePadded<T> {
    /// Pads a value.
    pub const fn new(value: T) -> Self {
        Self { value }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<T> Deref for CachePadded<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for CachePadded<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> From<T> for CachePadded<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: fmt::Debug> fmt::Debug for CachePadded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// A slice in one allocation whose elements never share a line: one for each thread, say.
///
/// ```
/// use heddle::shard::PaddedSlice;
///
/// let mut sums = PaddedSlice::from_fn(2, |_| 0u64);
/// heddle::scope(|scope| {
///     for (i, sum) in sums.iter_mut().enumerate() {
///         scope.spawn(move || (0..1000).for_each(|n| *sum += n * (i as u64 + 1)));
///     }
/// });
/// assert_eq!(sums[1], 2 * sums[0]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PaddedSlice<T> {
    parts: Box<[CachePadded<T>]>,
}

impl<T> PaddedSlice<T> {
    /// That many elements, made one after the other.
    #[doc(alias("new"))]
    pub fn from_fn(len: usize, mut f: impl FnMut(usize) -> T) -> Self {
        (0..len).map(&mut f).collect()
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// One of them, if there are as many.
    pub fn get(&self, index: usize) -> Option<&T> {
        self.parts.get(index).map(|part| &**part)
    }

    /// The elements.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> + DoubleEndedIterator {
        self.parts.iter().map(|part| &**part)
    }

    /// The elements, to be changed, also by different threads.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut T> + DoubleEndedIterator {
        self.parts.iter_mut().map(|part| &mut **part)
    }
}

impl<T> FromIterator<T> for PaddedSlice<T> {
    fn from_iter<I: IntoIterator<Item = T>>(iter: I) -> Self {
        Self { parts: iter.into_iter().map(CachePadded::new).collect() }
    }
}

impl<T> Index<usize> for PaddedSlice<T> {
    type Output = T;
    #[inline]
    fn index(&self, index: usize) -> &T {
        &self.parts[index]
    }
}

impl<T> IndexMut<usize> for PaddedSlice<T> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut T {
        &mut self.parts[index]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn elements_are_apart() {
        let slice = PaddedSlice::from_fn(3, |i| i as u8);
        let at = |i: usize| std::ptr::from_ref(&slice[i]) as usize;
        assert_eq!([at(1) - at(0), at(2) - at(1), at(0) % 128], [128, 128, 0]);
        assert_eq!(slice.iter().copied().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(size_of::<CachePadded<[u8; 129]>>(), 256);
    }
}
