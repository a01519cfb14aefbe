//! A function on its way to the thread or fiber that runs it, and its result on the way back: in the room that the record of
//! either has for them, or, if they do not fit, in memory of their own.
//!
//! # Safety
//! A room holds one value at a time; who may touch it, its owner says.

use std::cell::UnsafeCell;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::thread::Result;

/// Bytes of a function with what it holds, or of its result, that need no memory of their own.
const ROOM: usize = 256;

/// See the module.
#[repr(C, align(16))]
pub struct Room(UnsafeCell<MaybeUninit<[u8; ROOM]>>);

impl Room {
    /// It holds nothing.
    pub const fn new() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }

    /// Puts a value into it.
    ///
    /// # Safety
    /// The room is the caller's and holds nothing; the value is the room's from here on.
    #[inline]
    pub unsafe fn put<V>(&self, value: &Carried<V>) {
        // SAFETY: the caller's; what is there is what `FITS` says.
        unsafe {
            let room = self.0.get();
            if Carried::<V>::FITS {
                ptr::copy_nonoverlapping((&raw const value.itself).cast::<V>(), room.cast(), 1);
            } else {
                room.cast::<*mut V>().write(value.elsewhere);
            }
        }
    }

    /// Takes out what was put.
    ///
    /// # Safety
    /// [`put`](Self::put) was called with this type, and this is the only take.
    #[inline]
    pub unsafe fn get_out<V>(&self) -> V {
        let mut value = Carried::<V>::empty();
        // SAFETY: the caller's.
        unsafe {
            value.copy_from(self);
            value.open()
        }
    }

    /// Runs the function that it holds, and puts there what came of it.
    ///
    /// # Safety
    /// The room is the caller's, and holds an `F`.
    pub unsafe fn run<F: FnOnce() -> T, T>(&self) {
        // SAFETY: the caller's.
        unsafe {
            let f = self.get_out::<F>();
            let result: Result<T> = catch_unwind(AssertUnwindSafe(f));
            self.put(&Carried::new(result));
        }
    }

    /// Drops the result that nobody asks for.
    ///
    /// # Safety
    /// The room is the caller's, and holds what came of a function that answers a `T`.
    pub unsafe fn drop_result<T>(&self) {
        // SAFETY: the caller's.
        let result = unsafe { self.get_out::<Result<T>>() };
        // As in `std`: a result that panics when it is dropped, with nobody to tell, ends the process.
        if catch_unwind(AssertUnwindSafe(|| drop(result))).is_err() {
            eprintln!("heddle: the result of a thread panicked when it was dropped");
            std::process::abort();
        }
    }
}

/// A value on its way to a room or from one: itself, or where it is if it does not fit. Copying it there is no more than that.
pub union Carried<V> {
    itself: ManuallyDrop<V>,
    elsewhere: *mut V,
}

impl<V> Carried<V> {
    const FITS: bool = size_of::<V>() <= ROOM && align_of::<V>() <= align_of::<Room>();

    /// On its way.
    #[inline]
    pub fn new(value: V) -> Self {
        if Self::FITS {
            Self { itself: ManuallyDrop::new(value) }
        } else {
            Self { elsewhere: Box::into_raw(Box::new(value)) }
        }
    }

    /// For [`copy_from`](Self::copy_from).
    #[inline]
    pub const fn empty() -> Self {
        Self { elsewhere: ptr::null_mut() }
    }

    /// Takes it from a room.
    ///
    /// # Safety
    /// A room that [`put`](Room::put) filled with a `V`, and holds nothing from here on.
    #[inline]
    pub unsafe fn copy_from(&mut self, room: &Room) {
        let room = room.0.get();
        // SAFETY: the caller's.
        unsafe {
            if Self::FITS {
                ptr::copy_nonoverlapping(room.cast::<V>(), (&raw mut self.itself).cast(), 1);
            } else {
                self.elsewhere = room.cast::<*mut V>().read();
            }
        }
    }

    /// The value.
    ///
    /// # Safety
    /// It is here, and the caller's.
    #[inline]
    pub unsafe fn open(self) -> V {
        // SAFETY: the caller's.
        unsafe { if Self::FITS { ManuallyDrop::into_inner(self.itself) } else { *Box::from_raw(self.elsewhere) } }
    }
}
