//! Locks and their kin, for user threads, kernel threads and threads that know nothing of Heddle alike.
//!
//! Each is one or a few words and the futex system call, which means the same on every kind of thread. Who waits looks
//! again for a moment, then parks: a user thread leaves its worker to others, a kernel thread sleeps in the kernel.
//!
//! Whatever waits has a variant that ends in `_until` and takes a [`Limit`](crate::cancel::Limit): a deadline, a duration, a
//! token to cancel by.
//!
//! Nothing is poisoned by a panic: `lock()` answers the guard.

#[cfg(not(loom))]
mod barrier;
mod condvar;
#[cfg(not(loom))]
mod event;
#[cfg(all(loom, test))]
mod models;
mod mutex;
#[cfg(not(loom))]
mod once;
mod rwlock;
mod semaphore;
#[cfg(not(loom))]
mod wait_group;

#[cfg(not(loom))]
pub use barrier::Barrier;
pub use condvar::Condvar;
#[cfg(not(loom))]
pub use event::Event;
pub use mutex::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub use once::{Once, OnceLock};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::Semaphore;
#[cfg(not(loom))]
pub use wait_group::WaitGroup;
