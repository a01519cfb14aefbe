//! Lists and text in the arena.

use std::alloc::Layout;
use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::slice;
use std::str;

use super::Shareable;
use super::arena::{self, ArenaFull};

/// A list in the arena, as `Vec` is one on the heap. An empty one has no block.
///
/// ```
/// use heddle::process::ArenaVec;
///
/// let numbers: ArenaVec<u64> = (1..=100).collect();
/// let sum = heddle::task(|numbers: ArenaVec<u64>| numbers.iter().sum::<u64>(), numbers).join()?;
/// assert_eq!(sum, 5050);
/// # Ok::<(), heddle::process::TaskError>(())
/// ```
pub struct ArenaVec<T: Shareable> {
    start: NonNull<T>,
    len: usize,
    capacity: usize,
    owns: PhantomData<T>,
}

// SAFETY: an address in the arena, which is the same everywhere.
unsafe impl<T: Shareable> Shareable for ArenaVec<T> {}
// SAFETY: it owns the values.
unsafe impl<T: Shareable> Send for ArenaVec<T> {}
// SAFETY: as above.
unsafe impl<T: Shareable + Sync> Sync for ArenaVec<T> {}

impl<T: Shareable> ArenaVec<T> {
    const FITS: () = arena::fits::<T>();

    /// An empty one.
    pub const fn new() -> Self {
        let () = Self::FITS;
        Self { start: NonNull::dangling(), len: 0, capacity: 0, owns: PhantomData }
    }

    /// An empty one with room for so many.
    ///
    /// # Panics
    /// If the arena is full; [`ArenaVec::try_with_capacity`] answers an error instead.
    pub fn with_capacity(capacity: usize) -> Self {
        Self::try_with_capacity(capacity).unwrap_or_else(|full| panic!("{full}"))
    }

    /// An empty one with room for so many.
    pub fn try_with_capacity(capacity: usize) -> Result<Self, ArenaFull> {
        let mut this = Self::new();
        this.try_reserve(capacity)?;
        Ok(this)
    }

    /// How many it has room for without another block.
    pub fn capacity(&self) -> usize {
        if size_of::<T>() == 0 { usize::MAX } else { self.capacity }
    }

    fn layout(capacity: usize) -> Result<Layout, ArenaFull> {
        Layout::array::<T>(capacity).map_err(|_| ArenaFull { bytes: usize::MAX })
    }

    /// Makes room for so many more. If the arena has none, nothing has changed.
    pub fn try_reserve(&mut self, more: usize) -> Result<(), ArenaFull> {
        let Some(wanted) = self.len.checked_add(more) else { return Err(ArenaFull { bytes: usize::MAX }) };
        if wanted <= self.capacity() {
            return Ok(());
        }
        let least = if self.capacity == 0 { wanted } else { wanted.max(self.capacity.saturating_mul(2)) };
        let place = match Self::layout(least).and_then(arena::allocate) {
            Ok(place) => {
                // SAFETY: both are blocks for at least `len` values, and different ones.
                unsafe { ptr::copy_nonoverlapping(self.start.as_ptr(), place.cast::<T>().as_ptr(), self.len) };
                self.free_block();
                self.capacity = least;
                place
            }
            Err(_) if least > wanted => {
                // Twice as much is not to be had; perhaps just enough.
                let place = Self::layout(wanted).and_then(arena::allocate)?;
                // SAFETY: as above.
                unsafe { ptr::copy_nonoverlapping(self.start.as_ptr(), place.cast::<T>().as_ptr(), self.len) };
                self.free_block();
                self.capacity = wanted;
                place
            }
            Err(full) => return Err(full),
        };
        self.start = place.cast();
        Ok(())
    }

    fn free_block(&mut self) {
        if self.capacity != 0
            && let Ok(layout) = Self::layout(self.capacity)
        {
            // SAFETY: our block; what it held has moved or been dropped.
            unsafe { arena::free(self.start.cast(), layout) };
        }
    }

    /// Appends a value.
    ///
    /// # Panics
    /// If the arena is full; [`ArenaVec::try_push`] answers an error instead.
    pub fn push(&mut self, value: T) {
        self.try_push(value).unwrap_or_else(|full| panic!("{full}"));
    }

    /// Appends a value. If the arena is full it is dropped: [`ArenaVec::try_reserve`] tells before.
    pub fn try_push(&mut self, value: T) -> Result<(), ArenaFull> {
        self.try_reserve(1)?;
        // SAFETY: there is room.
        unsafe { self.start.add(self.len).write(value) };
        self.len += 1;
        Ok(())
    }

    /// Takes the last value.
    pub fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: it was a value, and is none any more.
        Some(unsafe { self.start.add(self.len).read() })
    }

    /// Drops all values but the first so many.
    pub fn truncate(&mut self, len: usize) {
        while self.len > len {
            drop(self.pop());
        }
    }

    /// Drops all values; the block stays.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Appends copies of these.
    ///
    /// # Panics
    /// If the arena is full.
    pub fn extend_from_slice(&mut self, values: &[T])
    where
        T: Clone,
    {
        self.try_reserve(values.len()).unwrap_or_else(|full| panic!("{full}"));
        values.iter().for_each(|value| self.push(value.clone()));
    }
}

impl<T: Shareable> Default for ArenaVec<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Shareable> Drop for ArenaVec<T> {
    fn drop(&mut self) {
        // SAFETY: the values are ours, and nobody uses them after.
        unsafe { ptr::drop_in_place(ptr::from_mut::<[T]>(&mut *self)) };
        self.free_block();
    }
}

impl<T: Shareable> Deref for ArenaVec<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: so many values of ours.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Shareable> DerefMut for ArenaVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: so many values of ours.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Shareable> Extend<T> for ArenaVec<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        let values = values.into_iter();
        self.try_reserve(values.size_hint().0).unwrap_or_else(|full| panic!("{full}"));
        values.for_each(|value| self.push(value));
    }
}

impl<T: Shareable> FromIterator<T> for ArenaVec<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut this = Self::new();
        this.extend(values);
        this
    }
}

impl<T: Shareable + Clone> From<&[T]> for ArenaVec<T> {
    fn from(values: &[T]) -> Self {
        values.iter().cloned().collect()
    }
}

impl<T: Shareable, const N: usize> From<[T; N]> for ArenaVec<T> {
    fn from(values: [T; N]) -> Self {
        values.into_iter().collect()
    }
}

impl<T: Shareable + Clone> Clone for ArenaVec<T> {
    fn clone(&self) -> Self {
        (&**self).into()
    }
}

impl<T: Shareable + fmt::Debug> fmt::Debug for ArenaVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Shareable + PartialEq> PartialEq for ArenaVec<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Shareable + Eq> Eq for ArenaVec<T> {}

impl<'a, T: Shareable> IntoIterator for &'a ArenaVec<T> {
    type Item = &'a T;
    type IntoIter = slice::Iter<'a, T>;
    fn into_iter(self) -> slice::Iter<'a, T> {
        self.iter()
    }
}

impl<'a, T: Shareable> IntoIterator for &'a mut ArenaVec<T> {
    type Item = &'a mut T;
    type IntoIter = slice::IterMut<'a, T>;
    fn into_iter(self) -> slice::IterMut<'a, T> {
        self.iter_mut()
    }
}

impl<T: Shareable> IntoIterator for ArenaVec<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;
    fn into_iter(self) -> IntoIter<T> {
        let (list, next) = (ManuallyDrop::new(self), 0);
        IntoIter { list, next }
    }
}

/// The values of an [`ArenaVec`], one by one.
pub struct IntoIter<T: Shareable> {
    list: ManuallyDrop<ArenaVec<T>>,
    next: usize,
}

impl<T: Shareable> Iterator for IntoIter<T> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        if self.next == self.list.len {
            return None;
        }
        self.next += 1;
        // SAFETY: each value is read once.
        Some(unsafe { self.list.start.add(self.next - 1).read() })
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.list.len - self.next;
        (left, Some(left))
    }
}

impl<T: Shareable> ExactSizeIterator for IntoIter<T> {}

impl<T: Shareable> Drop for IntoIter<T> {
    fn drop(&mut self) {
        self.for_each(drop);
        self.list.free_block();
    }
}

impl<T: Shareable + fmt::Debug> fmt::Debug for IntoIter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.list[self.next..]).finish()
    }
}

/// Text in the arena, as `String` is one on the heap.
///
/// ```
/// use heddle::process::ArenaString;
///
/// let name = ArenaString::from("weft");
/// let long = heddle::task(|mut name: ArenaString| { name.push_str(" and warp"); name }, name).join()?;
/// assert_eq!(long, "weft and warp");
/// # Ok::<(), heddle::process::TaskError>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ArenaString {
    bytes: ArenaVec<u8>,
}

// SAFETY: nothing but its bytes.
unsafe impl Shareable for ArenaString {}

impl ArenaString {
    /// An empty one.
    pub const fn new() -> Self {
        Self { bytes: ArenaVec::new() }
    }

    /// A copy of this text.
    pub fn try_from_str(text: &str) -> Result<Self, ArenaFull> {
        let mut this = Self::new();
        this.try_push_str(text)?;
        Ok(this)
    }

    /// Appends a copy of this text.
    ///
    /// # Panics
    /// If the arena is full; [`ArenaString::try_push_str`] answers an error instead.
    pub fn push_str(&mut self, text: &str) {
        self.try_push_str(text).unwrap_or_else(|full| panic!("{full}"));
    }

    /// Appends a copy of this text. If the arena is full, nothing has changed.
    pub fn try_push_str(&mut self, text: &str) -> Result<(), ArenaFull> {
        self.bytes.try_reserve(text.len())?;
        self.bytes.extend_from_slice(text.as_bytes());
        Ok(())
    }

    /// Appends a character.
    ///
    /// # Panics
    /// If the arena is full.
    pub fn push(&mut self, character: char) {
        self.push_str(character.encode_utf8(&mut [0; 4]));
    }

    /// Makes it empty; the block stays.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        // SAFETY: whole pieces of text were appended, nothing else.
        unsafe { str::from_utf8_unchecked(&self.bytes) }
    }
}

impl Deref for ArenaString {
    type Target = str;
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for ArenaString {
    fn as_ref(&self) -> &str {
        self
    }
}

impl Borrow<str> for ArenaString {
    fn borrow(&self) -> &str {
        self
    }
}

impl std::hash::Hash for ArenaString {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl From<&str> for ArenaString {
    fn from(text: &str) -> Self {
        let mut this = Self::new();
        this.push_str(text);
        this
    }
}

impl From<String> for ArenaString {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<ArenaString> for String {
    fn from(text: ArenaString) -> Self {
        text.as_str().to_owned()
    }
}

impl PartialEq<str> for ArenaString {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for ArenaString {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl fmt::Write for ArenaString {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.try_push_str(text).map_err(|_| fmt::Error)
    }
}

impl fmt::Debug for ArenaString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Display for ArenaString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}
