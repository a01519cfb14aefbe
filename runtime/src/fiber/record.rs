//! What there is to know about a fiber, and its beginning and end.
//!
//! # Safety
//! A record has one user at a time: who made it, who runs it, who joins it; its [state](State) hands it over.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::ops::Deref;
use std::ptr::{self, NonNull};

use super::carrier::{After, Carrier};
use super::claim::Claim;
use super::state::{End, State};
use super::switch::{Context, Start};
use crate::carried::Room;

/// What a fiber begins with, in one line of the cache.
#[repr(C, align(64))]
pub struct Head {
    /// The stack is below.
    pub start: UnsafeCell<Start>,
    pub context: Cell<Context>,
    pub carrier: Cell<*const Carrier>,
    pub state: State,
    /// Does that with what is in the room.
    pub act: Cell<unsafe fn(&Room, Act)>,
    /// The next one in a list.
    pub next: Cell<*const Fiber>,
    pub class: Cell<u8>,
}

const _: () = assert!(size_of::<Head>() == 64);

/// A fiber's record, at the top of its stack.
#[repr(C)]
pub struct Fiber {
    pub head: Head,
    /// Read by who has an old name, too, so it is not written with the rest.
    pub claim: Claim,
    pub room: Room,
}

impl Deref for Fiber {
    type Target = Head;
    fn deref(&self) -> &Head {
        &self.head
    }
}

/// What is done with the room.
pub enum Act {
    /// Its function runs, and its result takes its place.
    Run,
    /// Its result is dropped.
    Drop,
}

/// # Safety
/// The room is the caller's, and holds an `F`; or what it answered.
pub unsafe fn act<F: FnOnce() -> T, T>(room: &Room, act: Act) {
    // SAFETY: the caller's.
    unsafe {
        match act {
            Act::Run => room.run::<F, T>(),
            Act::Drop => room.drop_result::<T>(),
        }
    }
}

// SAFETY: see the module.
unsafe impl Sync for Fiber {}

impl Fiber {
    /// The carrier that it runs on.
    #[inline]
    pub fn carrier(&self) -> &'static Carrier {
        // SAFETY: set by who went to it; carriers are never freed.
        unsafe { &*self.carrier.get() }
    }
}

/// Where a fiber begins.
pub extern "C" fn begin(fiber: *const c_void) -> ! {
    // SAFETY: the argument is the fiber that was gone to; the room holds its function.
    unsafe {
        let me = Ref(NonNull::new_unchecked(fiber.cast_mut().cast::<Fiber>()));
        me.carrier().arrive();
        (me.act.get())(&me.room, Act::Run);
        end(me)
    }
}

/// Inlined: see [`Carrier::leave_for`].
///
/// # Safety
/// `me` is the calling fiber, whose function has returned.
#[inline(always)]
unsafe fn end(me: Ref) -> ! {
    // SAFETY: the calling fiber's carrier; who waits for it has left its own stack. It is not gone back to.
    unsafe {
        match me.state.end() {
            End::Fiber(waiter) => {
                let waiter = Ref(NonNull::new_unchecked(waiter as *mut Fiber));
                me.carrier().leave_for(me, waiter);
            }
            End::Tell(waited) => me.carrier().leave(me, if waited { After::Tell } else { After::Done }, ptr::null()),
            End::Nobody => {
                (me.act.get())(&me.room, Act::Drop);
                me.carrier().leave(me, After::Free, ptr::null());
            }
        }
        std::hint::unreachable_unchecked()
    }
}

/// A fiber, by its record, which is never unmapped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ref(pub NonNull<Fiber>);

// SAFETY: see the module: one has it at a time.
unsafe impl Send for Ref {}

impl Deref for Ref {
    type Target = Fiber;
    fn deref(&self) -> &Fiber {
        // SAFETY: records stay mapped.
        unsafe { self.0.as_ref() }
    }
}

impl Ref {
    /// As a fiber's state has it.
    pub fn number(self) -> usize {
        self.0.as_ptr() as usize
    }
}
