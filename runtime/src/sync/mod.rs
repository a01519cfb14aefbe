//! Locks and their kin, for user threads, kernel threads and threads that know nothing of Heddle alike.
//!
//! Each is one or a few words and the futex system call, which means the same on every kind of thread. Who waits looks
//! again for a moment, then parks: a user thread leaves its worker to others, a kernel thread sleeps in the kernel.
//!
//! Nothing is poisoned by a panic: `lock()` answers the guard.

mod barrier;
mod condvar;
mod event;
mod mutex;
mod once;
mod rwlock;
mod semaphore;
mod wait_group;

pub use barrier::Barrier;
pub use condvar::Condvar;
pub use event::Event;
pub use mutex::{Mutex, MutexGuard};
pub use once::{Once, OnceLock};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::Semaphore;
pub use wait_group::WaitGroup;
