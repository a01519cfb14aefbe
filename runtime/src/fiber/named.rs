//! Fibers whose handle is a name that can be copied, and that is found out when it is old: for the C interface.
//!
//! # Safety
//! A name is one that [`spawn`] or [`this`] has given, or [`Name::NONE`].

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::carrier::{Carrier, Pool, current};
use super::claim::Claim;
use super::record::{Fiber, Ref};
use super::{Builder, JoinHandle};
use crate::thread::SpawnError;

pub use super::claim::Refused;

/// Names a fiber: its record, which stays mapped, and what is in that as long as it is the fiber's.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name {
    record: usize,
    name: u64,
}

impl Name {
    pub const NONE: Self = Self { record: 0, name: 0 };

    #[inline]
    fn claim(&self) -> Option<Ref> {
        let record = NonNull::new(self.record as *mut Fiber)?;
        (record.is_aligned() && self.name != 0).then_some(Ref(record))
    }
}

/// Numbers that a carrier takes at once.
const BLOCK: u64 = 1024;

/// Numbers that nobody has.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Numbers that a carrier has: the next one, and how many.
#[derive(Default)]
pub struct Numbers(Cell<(u64, u64)>);

impl Numbers {
    #[inline]
    fn next(&self) -> u64 {
        let (next, left) = match self.0.get() {
            (_, 0) => (NEXT.fetch_add(BLOCK, Ordering::Relaxed), BLOCK),
            some => some,
        };
        self.0.set((next + 1, left - 1));
        next
    }
}

/// Who calls: the fiber and its carrier, if it is one. It is asked once for all that a call has to know, and true until the call waits.
pub struct Caller(Option<(&'static Carrier, Ref)>);

impl Caller {
    /// It.
    #[inline]
    pub fn now() -> Self {
        Self(current())
    }

    /// Whether it is that fiber.
    #[inline]
    pub fn is(&self, name: Name) -> bool {
        name.name != 0 && self.0.is_some_and(|(_, me)| me.number() == name.record && me.claim.its_name() == name.name)
    }
}

/// As [`JoinHandle::join`], of a caller that has not waited since it was asked for.
///
/// # Errors
/// What the fiber panicked with.
#[inline]
pub fn join<T>(handle: JoinHandle<T>, caller: Caller) -> std::thread::Result<T> {
    handle.join_as(caller.0)
}

/// A name for a fiber that the caller makes.
#[inline]
fn new_name(caller: &Caller) -> u64 {
    Claim::name(match caller.0 {
        Some((carrier, _)) => carrier.numbers.next(),
        None => NEXT.fetch_add(1, Ordering::Relaxed),
    })
}

/// Makes a fiber that has a name.
///
/// # Safety
/// As for [`Builder::spawn`].
#[inline]
pub unsafe fn spawn<F, T>(builder: Builder, f: F) -> Result<Name, SpawnError>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let caller = Caller::now();
    let name = new_name(&caller);
    // SAFETY: the caller's.
    let handle = unsafe { builder.spawn_as(caller.0, name, f)? };
    let record = std::mem::ManuallyDrop::new(handle).fiber.number();
    Ok(Name { record, name })
}

/// The fiber's handle, for one of those that ask.
///
/// # Safety
/// The name is one, and its fiber answers a `T`.
#[inline]
pub unsafe fn take<T>(name: Name) -> Result<JoinHandle<T>, Refused> {
    let fiber = name.claim().ok_or(Refused::Gone)?;
    fiber.claim.take(name.name)?;
    Ok(JoinHandle { fiber, result: std::marker::PhantomData })
}

/// Gives back what [`take`] gave.
pub fn put_back<T>(handle: JoinHandle<T>) {
    std::mem::ManuallyDrop::new(handle).fiber.claim.put_back();
}

/// The calling fiber; [`Name::NONE`] if the caller is none, or has no name.
#[inline]
pub fn this() -> Name {
    match current() {
        Some((_, me)) if me.claim.its_name() != 0 => Name { record: me.number(), name: me.claim.its_name() },
        _ => Name::NONE,
    }
}

/// What no other fiber that is there has, and no thread as its thread pointer. `None`: the caller is no fiber.
#[inline]
pub fn address() -> Option<usize> {
    Pool::present()?;
    current().map(|(_, me)| me.number())
}
