//! One value in the arena: with one owner, or with several.

use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use super::Shareable;
use super::arena::{self, ArenaFull};

/// A value in the arena, as `Box` is one on the heap. Any process may have it, and drop it.
///
/// ```
/// use heddle::process::ArenaBox;
///
/// let row = ArenaBox::new([0_u64; 512]);
/// let row = heddle::task(|mut row: ArenaBox<[u64; 512]>| { row[7] = 1; row }, row).join()?;
/// assert_eq!(row[7], 1);
/// # Ok::<(), heddle::process::TaskError>(())
/// ```
pub struct ArenaBox<T: Shareable> {
    value: NonNull<T>,
    owns: PhantomData<T>,
}

// SAFETY: an address in the arena, which is the same everywhere.
unsafe impl<T: Shareable> Shareable for ArenaBox<T> {}
// SAFETY: it owns the value.
unsafe impl<T: Shareable> Send for ArenaBox<T> {}
// SAFETY: as above.
unsafe impl<T: Shareable + Sync> Sync for ArenaBox<T> {}

impl<T: Shareable> ArenaBox<T> {
    const FITS: () = arena::fits::<T>();

    /// Moves the value into the arena.
    ///
    /// # Panics
    /// If the arena is full; [`ArenaBox::try_new`] answers an error instead.
    pub fn new(value: T) -> Self {
        Self::try_new(value).unwrap_or_else(|full| panic!("{full}"))
    }

    /// Moves the value into the arena. If that is full, the value is dropped.
    pub fn try_new(value: T) -> Result<Self, ArenaFull> {
        let () = Self::FITS;
        let place = arena::allocate(Layout::new::<T>())?.cast::<T>();
        // SAFETY: a new block for it.
        unsafe { place.write(value) };
        Ok(Self { value: place, owns: PhantomData })
    }

    /// Moves the value out of the arena.
    pub fn into_inner(self) -> T {
        let this = ManuallyDrop::new(self);
        // SAFETY: the value is read once, and its block is not used after.
        unsafe {
            let value = this.value.read();
            arena::free(this.value.cast(), Layout::new::<T>());
            value
        }
    }
}

impl<T: Shareable> Drop for ArenaBox<T> {
    fn drop(&mut self) {
        // SAFETY: the value is ours, and nobody uses it after.
        unsafe {
            self.value.drop_in_place();
            arena::free(self.value.cast(), Layout::new::<T>());
        }
    }
}

impl<T: Shareable> Deref for ArenaBox<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: a value of ours.
        unsafe { self.value.as_ref() }
    }
}

impl<T: Shareable> DerefMut for ArenaBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: a value of ours.
        unsafe { self.value.as_mut() }
    }
}

impl<T: Shareable + Clone> Clone for ArenaBox<T> {
    fn clone(&self) -> Self {
        Self::new((**self).clone())
    }
}

impl<T: Shareable + fmt::Debug> fmt::Debug for ArenaBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Shareable + PartialEq> PartialEq for ArenaBox<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Shareable + Eq> Eq for ArenaBox<T> {}

#[repr(C)]
struct Counted<T> {
    owners: AtomicUsize,
    value: T,
}

/// A value in the arena that several own, in whatever processes, as `Arc` is one on the heap: how locks, channels and counters
/// are given to several tasks.
///
/// An owner that dies with its process is counted for ever, so the value is never dropped then.
///
/// ```
/// use heddle::process::{ArenaArc, Mutex};
///
/// let sum = ArenaArc::new(Mutex::new(0));
/// let add = |(sum, n): (ArenaArc<Mutex<u64>>, u64)| *sum.lock() += n;
/// let handles: Vec<_> = (1..=10).map(|n| heddle::task(add, (sum.clone(), n))).collect();
/// for handle in handles {
///     handle.join()?;
/// }
/// assert_eq!(*sum.lock(), 55);
/// # Ok::<(), heddle::process::TaskError>(())
/// ```
pub struct ArenaArc<T: Shareable + Sync> {
    inner: NonNull<Counted<T>>,
    owns: PhantomData<T>,
}

// SAFETY: an address in the arena, which is the same everywhere.
unsafe impl<T: Shareable + Sync> Shareable for ArenaArc<T> {}
// SAFETY: it shares the value, and whoever is last drops it.
unsafe impl<T: Shareable + Sync> Send for ArenaArc<T> {}
// SAFETY: as above.
unsafe impl<T: Shareable + Sync> Sync for ArenaArc<T> {}

impl<T: Shareable + Sync> ArenaArc<T> {
    const FITS: () = arena::fits::<T>();

    /// Moves the value into the arena, with one owner.
    ///
    /// # Panics
    /// If the arena is full; [`ArenaArc::try_new`] answers an error instead.
    pub fn new(value: T) -> Self {
        Self::try_new(value).unwrap_or_else(|full| panic!("{full}"))
    }

    /// Moves the value into the arena, with one owner. If that is full, the value is dropped.
    pub fn try_new(value: T) -> Result<Self, ArenaFull> {
        let () = Self::FITS;
        let inner = arena::allocate(Layout::new::<Counted<T>>())?.cast::<Counted<T>>();
        // SAFETY: a new block for it.
        unsafe { inner.write(Counted { owners: AtomicUsize::new(1), value }) };
        Ok(Self { inner, owns: PhantomData })
    }

    /// Whether both own the same value.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl<T: Shareable + Sync> Clone for ArenaArc<T> {
    fn clone(&self) -> Self {
        // SAFETY: we are an owner. Relaxed: there is another count than ours only because of us.
        unsafe { self.inner.as_ref() }.owners.fetch_add(1, Ordering::Relaxed);
        Self { inner: self.inner, owns: PhantomData }
    }
}

impl<T: Shareable + Sync> Drop for ArenaArc<T> {
    fn drop(&mut self) {
        // Release: what we did comes before the drop. pairs: arena.owners
        // SAFETY: we are an owner.
        if unsafe { self.inner.as_ref() }.owners.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        // Acquire: what all others did. pairs: arena.owners
        fence(Ordering::Acquire);
        // SAFETY: no other owner is left.
        unsafe {
            (&raw mut (*self.inner.as_ptr()).value).drop_in_place();
            arena::free(self.inner.cast(), Layout::new::<Counted<T>>());
        }
    }
}

impl<T: Shareable + Sync> Deref for ArenaArc<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: we are an owner.
        &unsafe { self.inner.as_ref() }.value
    }
}

impl<T: Shareable + Sync + fmt::Debug> fmt::Debug for ArenaArc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
