//! Locks: those of `heddle::sync`, in the program's memory, with what C needs besides: who holds a lock. The shapes
//! of what is in [`waits`](crate::waits) are here, too.
//!
//! # Safety
//! Each of C's structures is at least as large and as aligned as what is in it, which assertions below say; and what
//! its static initialiser writes is what `new` makes, which they say too.

use std::ffi::c_int;
use std::mem::{forget, transmute};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use runtime::cancel::{Limit, WaitError};
use runtime::sync::{Barrier, Condvar, Event, Mutex, Once, RwLock, Semaphore, WaitGroup};

use crate::error::{Outcome, Refusal, answer, reference};
use crate::limit::{HEDDLE_FOREVER, heddle_token_t, limit, time};
use crate::waits::{BarrierWithCount, OnceWithOwner};

/// Names the calling thread or fiber among those that are there. A fiber may unlock on another thread than the one it
/// has locked on.
#[inline]
pub(crate) fn me() -> usize {
    // SAFETY: asks for nothing.
    runtime::fiber::named::address().unwrap_or_else(|| unsafe { libc::pthread_self() as usize })
}

/// A mutex. Initialise it by HEDDLE_MUTEX_INIT or heddle_mutex_init; it needs no end. Not recursive, and not fair: a
/// thread that comes just when it is freed may be faster than one that was woken. Usable by threads of all kinds, as
/// all that follow here.
#[repr(C)]
pub struct heddle_mutex_t {
    opaque: [u64; 3],
}

/// A lock for many readers or one writer. Initialise it by HEDDLE_RWLOCK_INIT or heddle_rwlock_init. Writers come
/// first: while one waits, no new reader gets in, so a thread that reads must not read again.
#[repr(C)]
pub struct heddle_rwlock_t {
    opaque: [u64; 4],
}

/// A condition variable. Initialise it by HEDDLE_COND_INIT or heddle_cond_init.
#[repr(C)]
pub struct heddle_cond_t {
    opaque: [u64; 2],
}

/// A barrier. Initialise it by HEDDLE_BARRIER_INIT(threads) or heddle_barrier_init.
#[repr(C)]
pub struct heddle_barrier_t {
    opaque: [u64; 4],
}

/// A counting semaphore. Initialise it by HEDDLE_SEMAPHORE_INIT(permits) or heddle_semaphore_init.
#[repr(C)]
pub struct heddle_semaphore_t {
    opaque: [u64; 2],
}

/// Something that is done once. Initialise it by HEDDLE_ONCE_INIT or heddle_once_init.
#[repr(C)]
pub struct heddle_once_t {
    opaque: [u64; 2],
}

/// A flag to wait for. Initialise it by HEDDLE_EVENT_INIT or heddle_event_init.
#[repr(C)]
pub struct heddle_event_t {
    opaque: [u64; 2],
}

/// A count of things under way, to wait for the end of. Initialise it by HEDDLE_WAIT_GROUP_INIT or
/// heddle_wait_group_init.
#[repr(C)]
pub struct heddle_wait_group_t {
    opaque: [u64; 2],
}

macro_rules! shapes {
    ($($name:ident holds $inner:ident;)*) => {$(
        const _: () = assert!(size_of::<$inner>() <= size_of::<$name>() && align_of::<$inner>() <= align_of::<$name>());

        impl $name {
            /// What is in it.
            ///
            /// # Safety
            /// Null, or it has been initialised and stays.
            pub(crate) unsafe fn of<'a>(this: *mut Self) -> Result<&'a $inner, Refusal> {
                // SAFETY: the caller's, and the assertion above.
                if this.is_aligned() { unsafe { reference(this.cast()) } } else { Err(libc::EINVAL.into()) }
            }

            /// Puts something new into it.
            ///
            /// # Safety
            /// Null, or the program's memory, which nobody else uses yet.
            pub(crate) unsafe fn set_up(this: *mut Self, inner: $inner) -> Outcome {
                if this.is_null() || !this.is_aligned() {
                    return Err(libc::EINVAL.into());
                }
                // SAFETY: the caller's, and the assertion above.
                unsafe {
                    this.write_bytes(0, 1);
                    this.cast::<$inner>().write(inner);
                }
                Ok(())
            }
        }
    )*};
}

shapes! {
    heddle_mutex_t holds MutexWithOwner;
    heddle_rwlock_t holds RwLockWithOwner;
    heddle_cond_t holds Condvar;
    heddle_barrier_t holds BarrierWithCount;
    heddle_semaphore_t holds Semaphore;
    heddle_once_t holds OnceWithOwner;
    heddle_event_t holds Event;
    heddle_wait_group_t holds WaitGroup;
}

macro_rules! first_word_then_zeros {
    ($($type:ty = $new:expr, $first:expr;)*) => {$(
        const _: () = {
            // SAFETY: atomics, without gaps: if there were any, reading them would fail at compile time.
            let words: [u32; size_of::<$type>() / 4] = unsafe { transmute::<$type, _>($new) };
            let mut at = 1;
            assert!(words[0] == $first);
            while at < words.len() {
                assert!(words[at] == 0);
                at += 1;
            }
        };
    )*};
}

// What the static initialisers of the header rest on.
first_word_then_zeros! {
    Mutex<()> = Mutex::new(()), 0;
    RwLock<()> = RwLock::new(()), 0;
    Condvar = Condvar::new(), 0;
    Barrier = Barrier::new(12), 12;
    Semaphore = Semaphore::new(34), 34;
    Once = Once::new(), 0;
    Event = Event::new(), 0;
    WaitGroup = WaitGroup::new(), 0;
}

#[repr(C)]
pub(crate) struct MutexWithOwner {
    inner: Mutex<()>,
    /// `me` of the thread or fiber that holds it, or 0. Only that itself writes its name here and takes it away, so
    /// it is told apart from others without an ordering.
    owner: AtomicUsize,
}

impl MutexWithOwner {
    const fn new() -> Self {
        Self { inner: Mutex::new(()), owner: AtomicUsize::new(0) }
    }

    fn is_ours(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == me()
    }

    fn set_ours(&self, ours: bool) {
        self.owner.store(if ours { me() } else { 0 }, Ordering::Relaxed);
    }

    fn check_ours(&self) -> Outcome {
        if self.is_ours() { Ok(()) } else { Err(libc::EPERM.into()) }
    }

    fn check_not_ours(&self) -> Outcome {
        if self.is_ours() { Err(libc::EDEADLK.into()) } else { Ok(()) }
    }

    fn lock_until(&self, limit: Limit<'_>) -> Outcome {
        self.check_not_ours()?;
        forget(self.inner.lock_until(limit)?);
        self.set_ours(true);
        Ok(())
    }
}

/// Makes it a free mutex. Error: EINVAL: a null pointer.
///
/// # Safety
/// `mutex` points to memory that nobody else uses yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_mutex_init(mutex: *mut heddle_mutex_t) -> c_int {
    // SAFETY: the caller's.
    answer("heddle_mutex_init", || unsafe { heddle_mutex_t::set_up(mutex, MutexWithOwner::new()) })
}

/// Waits until nobody else holds it, and takes it. It looks for a moment, then parks the calling thread. Errors:
/// EDEADLK: the calling thread holds it. EINVAL: a null pointer.
///
/// # Safety
/// `mutex` points to an initialised one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_mutex_lock(mutex: *mut heddle_mutex_t) -> c_int {
    answer("heddle_mutex_lock", || {
        // SAFETY: the caller's.
        let mutex = unsafe { heddle_mutex_t::of(mutex)? };
        mutex.check_not_ours()?;
        forget(mutex.inner.lock());
        mutex.set_ours(true);
        Ok(())
    })
}

/// Takes it if nobody holds it. It does not block. Errors: EBUSY: somebody holds it, perhaps the caller. EINVAL: a
/// null pointer.
///
/// # Safety
/// `mutex` points to an initialised one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_mutex_trylock(mutex: *mut heddle_mutex_t) -> c_int {
    answer("heddle_mutex_trylock", || {
        // SAFETY: the caller's.
        let mutex = unsafe { heddle_mutex_t::of(mutex)? };
        forget(mutex.inner.try_lock().ok_or(libc::EBUSY)?);
        mutex.set_ours(true);
        Ok(())
    })
}

/// As heddle_mutex_lock, for that many nanoseconds at most. Errors: ETIMEDOUT: others held it until then. EDEADLK,
/// EINVAL as there.
///
/// # Safety
/// `mutex` points to an initialised one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_mutex_timedlock(mutex: *mut heddle_mutex_t, nanoseconds: u64) -> c_int {
    // SAFETY: the caller's.
    answer("heddle_mutex_timedlock", || unsafe { heddle_mutex_t::of(mutex)? }.lock_until(time(nanoseconds)))
}

/// As heddle_mutex_lock, for that many nanoseconds at most, and until `token`, which may be NULL, is cancelled. What
/// can be had without waiting is had in any case. Errors: ETIMEDOUT, ECANCELED: others held it until then. EDEADLK,
/// EINVAL as there.
///
/// # Safety
/// `mutex` points to an initialised one; `token` is null or a token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_mutex_lock_within(
    mutex: *mut heddle_mutex_t,
    nanoseconds: u64,
    token: *const heddle_token_t,
) -> c_int {
    answer("heddle_mutex_lock_within", || {
        // SAFETY: the caller's.
        unsafe { heddle_mutex_t::of(mutex)?.lock_until(limit(nanoseconds, token)?) }
    })
}

/// Frees it. It does not block. Errors: EPERM: the calling thread does not hold it. EINVAL: a null pointer.
///
/// # Safety
/// `mutex` points to an initialised one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_mutex_unlock(mutex: *mut heddle_mutex_t) -> c_int {
    answer("heddle_mutex_unlock", || {
        // SAFETY: the caller's.
        let mutex = unsafe { heddle_mutex_t::of(mutex)? };
        mutex.check_ours()?;
        mutex.set_ours(false);
        // SAFETY: we hold it; the guard was forgotten.
        drop(unsafe { mutex.inner.make_guard_unchecked() });
        Ok(())
    })
}

#[repr(C)]
pub(crate) struct RwLockWithOwner {
    inner: RwLock<()>,
    /// Readers that have not called unlock.
    readers: AtomicU32,
    /// `me` of the thread that writes, as in [`MutexWithOwner`].
    writer: AtomicUsize,
}

impl RwLockWithOwner {
    const fn new() -> Self {
        Self { inner: RwLock::new(()), readers: AtomicU32::new(0), writer: AtomicUsize::new(0) }
    }

    fn is_ours(&self) -> bool {
        self.writer.load(Ordering::Relaxed) == me()
    }

    fn check_not_ours(&self) -> Outcome {
        if self.is_ours() { Err(libc::EDEADLK.into()) } else { Ok(()) }
    }
}

/// Makes it a free lock. Error: EINVAL: a null pointer.
///
/// # Safety
/// `lock` points to memory that nobody else uses yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_rwlock_init(lock: *mut heddle_rwlock_t) -> c_int {
    // SAFETY: the caller's.
    answer("heddle_rwlock_init", || unsafe { heddle_rwlock_t::set_up(lock, RwLockWithOwner::new()) })
}

/// Waits until no writer holds it or waits for it, and reads. Parks the calling thread when it must wait. Errors:
/// EDEADLK: the calling thread writes. EINVAL: a null pointer.
///
/// # Safety
/// `lock` points to an initialised one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_rwlock_rdlock(lock: *mut heddle_rwlock_t) -> c_int {
    answer("heddle_rwlock_rdlock", || {
        // SAFETY: the caller's.
        let lock = unsafe { heddle_rwlock_t::of(lock)? };
        lock.check_not_ours()?;
        forget(lock.inner.read());
        lock.readers.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
}

/// Reads if no writer holds it or waits for it. It does not block. Errors: EBUSY: one does. EINVAL: a null pointer.
///
/// # Safety
/// `lock` points to an initialised one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_rwlock_tryrdlock(lock: *mut heddle_rwlock_t) -> c_int {
    answer("heddle_rwlock_tryrdlock", || {
        // SAFETY: the caller's.
        let lock = unsafe { heddle_rwlock_t::of(lock)? };
        forget(lock.inner.try_read().ok_or(libc::EBUSY)?);
        lock.readers.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
}

/// Waits until nobody else holds it, and writes. Parks the calling thread when it must wait; a thread that reads
/// waits for ever. Errors: EDEADLK: the calling thread writes. EINVAL: a null pointer.
///
/// # Safety
/// `lock` points to an initialised one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_rwlock_wrlock(lock: *mut heddle_rwlock_t) -> c_int {
    answer("heddle_rwlock_wrlock", || {
        // SAFETY: the caller's.
        let lock = unsafe { heddle_rwlock_t::of(lock)? };
        lock.check_not_ours()?;
        forget(lock.inner.write());
        lock.writer.store(me(), Ordering::Relaxed);
        Ok(())
    })
}

/// Writes if nobody holds it. It does not block. Errors: EBUSY: somebody does. EINVAL: a null pointer.
///
/// # Safety
/// `lock` points to an initialised one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_rwlock_trywrlock(lock: *mut heddle_rwlock_t) -> c_int {
    answer("heddle_rwlock_trywrlock", || {
        // SAFETY: the caller's.
        let lock = unsafe { heddle_rwlock_t::of(lock)? };
        forget(lock.inner.try_write().ok_or(libc::EBUSY)?);
        lock.writer.store(me(), Ordering::Relaxed);
        Ok(())
    })
}

/// As heddle_rwlock_rdlock, for that many nanoseconds at most, and until `token`, which may be NULL, is cancelled.
/// What can be had without waiting is had in any case. Errors: ETIMEDOUT, ECANCELED: a writer held it or waited for
/// it until then. EDEADLK, EINVAL as there.
///
/// # Safety
/// `lock` points to an initialised one; `token` is null or a token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_rwlock_rdlock_within(
    lock: *mut heddle_rwlock_t,
    nanoseconds: u64,
    token: *const heddle_token_t,
) -> c_int {
    answer("heddle_rwlock_rdlock_within", || {
        // SAFETY: the caller's.
        let (lock, limit) = unsafe { (heddle_rwlock_t::of(lock)?, limit(nanoseconds, token)?) };
        lock.check_not_ours()?;
        forget(lock.inner.read_until(limit)?);
        lock.readers.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
}

/// As heddle_rwlock_wrlock, for that many nanoseconds at most, and until `token`, which may be NULL, is cancelled.
/// What can be had without waiting is had in any case. Errors: ETIMEDOUT, ECANCELED: others held it until then.
/// EDEADLK, EINVAL as there.
///
/// # Safety
/// `lock` points to an initialised one; `token` is null or a token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_rwlock_wrlock_within(
    lock: *mut heddle_rwlock_t,
    nanoseconds: u64,
    token: *const heddle_token_t,
) -> c_int {
    answer("heddle_rwlock_wrlock_within", || {
        // SAFETY: the caller's.
        let (lock, limit) = unsafe { (heddle_rwlock_t::of(lock)?, limit(nanoseconds, token)?) };
        lock.check_not_ours()?;
        forget(lock.inner.write_until(limit)?);
        lock.writer.store(me(), Ordering::Relaxed);
        Ok(())
    })
}

/// Ends reading or writing. It does not block. Errors: EPERM: nobody reads, and the calling thread does not write.
/// (One that does not read while others do is not found out.) EINVAL: a null pointer.
///
/// # Safety
/// `lock` points to an initialised one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_rwlock_unlock(lock: *mut heddle_rwlock_t) -> c_int {
    answer("heddle_rwlock_unlock", || {
        // SAFETY: the caller's.
        let lock = unsafe { heddle_rwlock_t::of(lock)? };
        if lock.is_ours() {
            lock.writer.store(0, Ordering::Relaxed);
            // SAFETY: we write; the guard was forgotten.
            drop(unsafe { lock.inner.make_write_guard_unchecked() });
            return Ok(());
        }
        let less = |readers: u32| readers.checked_sub(1);
        lock.readers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).map_err(|_| libc::EPERM)?;
        // SAFETY: the caller reads, or takes the place of one that does and would have to: there are as many guards
        // to be made as `readers` was.
        drop(unsafe { lock.inner.make_read_guard_unchecked() });
        Ok(())
    })
}

/// Makes it a condition variable for which nobody waits. Error: EINVAL: a null pointer.
///
/// # Safety
/// `cond` points to memory that nobody else uses yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_cond_init(cond: *mut heddle_cond_t) -> c_int {
    // SAFETY: the caller's.
    answer("heddle_cond_init", || unsafe { heddle_cond_t::set_up(cond, Condvar::new()) })
}

/// Waits with the mutex freed. The inner error: there was no signal.
fn wait(cond: &Condvar, mutex: &MutexWithOwner, limit: Limit<'_>) -> Result<Result<(), WaitError>, Refusal> {
    mutex.check_ours()?;
    // SAFETY: we hold it; the guard was forgotten.
    let guard = unsafe { mutex.inner.make_guard_unchecked() };
    mutex.set_ours(false);
    let (guard, result) = cond.wait_until(guard, limit);
    forget(guard);
    mutex.set_ours(true);
    Ok(result)
}

/// Frees the mutex, waits for a signal, takes the mutex again. It parks the calling thread. It may return without a
/// signal, so look again for what is waited for. Errors: EPERM: the calling thread does not hold the mutex. EINVAL: a
/// null pointer.
///
/// # Safety
/// Both point to initialised ones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_cond_wait(cond: *mut heddle_cond_t, mutex: *mut heddle_mutex_t) -> c_int {
    answer("heddle_cond_wait", || {
        // SAFETY: the caller's.
        let (cond, mutex) = unsafe { (heddle_cond_t::of(cond)?, heddle_mutex_t::of(mutex)?) };
        Ok(wait(cond, mutex, time(HEDDLE_FOREVER))??)
    })
}

/// As heddle_cond_wait, for that many nanoseconds at most; then it takes the mutex again, however long that takes.
/// Errors: ETIMEDOUT: there was no signal until then; the caller holds the mutex. EPERM, EINVAL as there.
///
/// # Safety
/// Both point to initialised ones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_cond_timedwait(
    cond: *mut heddle_cond_t,
    mutex: *mut heddle_mutex_t,
    nanoseconds: u64,
) -> c_int {
    answer("heddle_cond_timedwait", || {
        // SAFETY: the caller's.
        let (cond, mutex) = unsafe { (heddle_cond_t::of(cond)?, heddle_mutex_t::of(mutex)?) };
        Ok(wait(cond, mutex, time(nanoseconds))??)
    })
}

/// As heddle_cond_timedwait, and until `token`, which may be NULL, is cancelled. Errors: ETIMEDOUT, ECANCELED: there
/// was no signal until then; the caller holds the mutex. EPERM, EINVAL as there.
///
/// # Safety
/// Both point to initialised ones; `token` is null or a token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_cond_wait_within(
    cond: *mut heddle_cond_t,
    mutex: *mut heddle_mutex_t,
    nanoseconds: u64,
    token: *const heddle_token_t,
) -> c_int {
    answer("heddle_cond_wait_within", || {
        // SAFETY: the caller's.
        let (cond, mutex, limit) =
            unsafe { (heddle_cond_t::of(cond)?, heddle_mutex_t::of(mutex)?, limit(nanoseconds, token)?) };
        Ok(wait(cond, mutex, limit)??)
    })
}

/// Wakes one thread that waits. It does not block. Error: EINVAL: a null pointer.
///
/// # Safety
/// `cond` points to an initialised one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_cond_signal(cond: *mut heddle_cond_t) -> c_int {
    answer("heddle_cond_signal", || {
        // SAFETY: the caller's.
        unsafe { heddle_cond_t::of(cond)? }.notify_one();
        Ok(())
    })
}

/// Wakes all threads that wait. It does not block. Error: EINVAL: a null pointer.
///
/// # Safety
/// `cond` points to an initialised one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_cond_broadcast(cond: *mut heddle_cond_t) -> c_int {
    answer("heddle_cond_broadcast", || {
        // SAFETY: the caller's.
        unsafe { heddle_cond_t::of(cond)? }.notify_all();
        Ok(())
    })
}
