//! Memory for the jobs of scopes: places that belong to a lane and go back to it.
//!
//! The owner takes them off a list of its own. Who has run a job gives its place back: the lane's owner to that list, others to
//! a second one, whose places the owner takes over when its own is empty, all at once. So there is no place that is taken off
//! while others put some on, and an address that comes back does no harm.
//!
//! There are so many places, and no more: the jobs beyond them are boxed. A lane is never freed.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr;

use crate::prim::{AtomicPtr, Ordering};

/// Places that are made at once.
const TOGETHER: usize = if cfg!(loom) { 1 } else { 32 };
/// Most of a lane's.
pub const MOST: usize = if cfg!(loom) { 2 } else { 1024 };

/// What a job may need.
pub type Room = MaybeUninit<[u128; 7]>;

/// Memory for one job.
#[repr(C)]
pub struct Place {
    /// The next one of a list.
    link: AtomicPtr<Place>,
    home: *const Rooms,
    room: UnsafeCell<Room>,
}

/// A lane's places.
pub struct Rooms {
    /// The owner's list.
    free: UnsafeCell<*mut Place>,
    made: UnsafeCell<usize>,
    /// What others have given back.
    returned: AtomicPtr<Place>,
}

impl Rooms {
    pub fn new() -> Self {
        Self {
            free: UnsafeCell::new(ptr::null_mut()),
            made: UnsafeCell::new(0),
            returned: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Memory for a job. `None`: there are too many jobs.
    ///
    /// # Safety
    /// The owner, of one that stays where it is.
    #[inline]
    pub unsafe fn take(&self) -> Option<*mut Room> {
        // SAFETY: the owner's list; what is in it is nobody else's.
        unsafe {
            let mut first = *self.free.get();
            if first.is_null() {
                first = self.more()?;
            }
            *self.free.get() = (*first).link.load(Ordering::Relaxed);
            Some((*first).room.get())
        }
    }

    /// A list that is not empty.
    #[cold]
    unsafe fn more(&self) -> Option<*mut Place> {
        // Acquire: who gave them back has left them. pairs: room.returned
        let mut first = self.returned.swap(ptr::null_mut(), Ordering::Acquire);
        // SAFETY: the owner's.
        let made = unsafe { &mut *self.made.get() };
        if first.is_null() && *made < MOST {
            *made += TOGETHER;
            let places: Box<[Place]> = (0..TOGETHER)
                .map(|_| Place {
                    link: AtomicPtr::new(ptr::null_mut()),
                    home: self,
                    room: UnsafeCell::new(MaybeUninit::uninit()),
                })
                .collect();
            let places: *mut Place = Box::into_raw(places).cast();
            for at in (0..TOGETHER).rev() {
                // SAFETY: one of those just made.
                let place = unsafe { places.add(at) };
                // SAFETY: as above.
                unsafe { &*place }.link.store(first, Ordering::Relaxed);
                first = place;
            }
        }
        (!first.is_null()).then_some(first)
    }

    /// Gives memory back.
    ///
    /// # Safety
    /// It was taken from some lane's, and is not used any more; `own` are those of the calling thread, if it has a lane.
    #[inline]
    pub unsafe fn give_back(room: *mut Room, own: Option<&Self>) {
        // SAFETY: a room is in a place; lanes are never freed.
        unsafe {
            let place = room.byte_sub(std::mem::offset_of!(Place, room)).cast::<Place>();
            match own {
                Some(own) if ptr::eq(own, (*place).home) => {
                    (*place).link.store(*own.free.get(), Ordering::Relaxed);
                    *own.free.get() = place;
                }
                _ => (*(*place).home).come_back(place),
            }
        }
    }

    /// # Safety
    /// One of ours that is not used any more.
    #[cold]
    unsafe fn come_back(&self, place: *mut Place) {
        let mut first = self.returned.load(Ordering::Relaxed);
        loop {
            // SAFETY: the caller's.
            unsafe { &*place }.link.store(first, Ordering::Relaxed);
            // Release: the place has been left, and is linked. pairs: room.returned
            match self.returned.compare_exchange_weak(first, place, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }
}
