//! Threads that are left to a processor by others' workers, which heard of an event for a thread that is better run there, or ran one
//! that should try there (`sched/near.rs` says when).
//!
//! A post sends no message. The worker of the processor looks here whenever it looks for a thread to run, so whoever is awake comes
//! by; to one that sleeps nothing may be left.
//!
//! # Protocol
//! 1. The worker, before it sleeps: `away = true`; *fence*; look. If something is here it does not sleep. When it is awake again:
//!    `away = false`.
//! 2. A poster: put the thread here; *fence*; read `away`. If it is set, take one thread back, whichever, and run it itself.
//!
//! Claim: nothing lies here while the worker sleeps. The two fences have an order. If the worker's was first, the poster reads
//! `away` as set, or the worker has woken since and will do step 1 again before it sleeps; if the poster's was first, the worker's
//! look sees the thread. It may have been posted by somebody else: each poster that reads `away` as set takes one back, so as many are
//! taken back as were put here too late; and a poster takes no more than it has put here, so what the worker's look saw is not made
//! less by them. Thieves take from here as well, but only to run it. Model: `models/posted.rs`.
//!
//! *Rejected:* a message to the sleeping worker, which its own wake-up would follow: the poster is awake and can run the thread at once.

use crate::lock::SpinLock;
use crate::prim::{AtomicBool, AtomicU32, Ordering, fence};

/// Places; tiny under loom so that they run out.
const PLACES: usize = if cfg!(loom) { 2 } else { 64 };

/// What others have left to one processor. `T` is what is left, by pointer.
#[repr(align(64))]
pub struct Posted<T> {
    ring: SpinLock<Ring<T>>,
    len: AtomicU32,
    /// How many have been taken, wrapping.
    taken: AtomicU32,
    /// The worker sleeps or is about to.
    away: AtomicBool,
}

struct Ring<T> {
    places: [*mut T; PLACES],
    first: usize,
    len: usize,
}
// SAFETY: only pointers, reached under the lock; whoever takes one out owns what it points to.
unsafe impl<T> Send for Ring<T> {}

impl<T> Ring<T> {
    const EMPTY: Self = Self { places: [core::ptr::null_mut(); PLACES], first: 0, len: 0 };
}

impl<T> Default for Posted<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Posted<T> {
    /// Nothing is here, the worker is awake.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            ring: SpinLock::new(Ring::EMPTY),
            len: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            away: AtomicBool::new(false),
        }
    }
    /// Nothing is here, the worker is awake.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self {
            ring: SpinLock::new(Ring::EMPTY),
            len: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            away: AtomicBool::new(false),
        }
    }

    /// How many are here, as one look tells.
    #[inline]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed) as usize
    }

    /// Whether none is here, as one look tells.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many have been taken, wrapping.
    #[inline]
    pub fn taken(&self) -> u32 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Leaves `item` here. `Some`: what the caller must run itself instead, that or another one.
    pub fn post(&self, item: *mut T) -> Option<*mut T> {
        if self.away.load(Ordering::Relaxed) {
            return Some(item);
        }
        {
            let mut ring = self.ring.lock();
            if ring.len == PLACES {
                return Some(item);
            }
            let at = (ring.first + ring.len) % PLACES;
            ring.places[at] = item;
            ring.len += 1;
            self.len.store(ring.len as u32, Ordering::Relaxed);
        }
        // SeqCst: step 2 of the protocol. pairs: posted.away
        fence(Ordering::SeqCst);
        if self.away.load(Ordering::Relaxed) { self.take() } else { None }
    }

    /// Takes the oldest.
    pub fn take(&self) -> Option<*mut T> {
        if self.is_empty() {
            return None;
        }
        let mut ring = self.ring.lock();
        if ring.len == 0 {
            return None;
        }
        let item = ring.places[ring.first];
        ring.first = (ring.first + 1) % PLACES;
        ring.len -= 1;
        self.len.store(ring.len as u32, Ordering::Relaxed);
        self.taken.store(self.taken().wrapping_add(1), Ordering::Relaxed);
        Some(item)
    }

    /// The worker is about to sleep: a SeqCst fence of its own follows, then a look whether something is here, and if so no sleep.
    #[inline]
    pub fn leaves(&self) {
        self.away.store(true, Ordering::Relaxed);
    }

    /// The worker is awake, or does not sleep after all.
    #[inline]
    pub fn is_back(&self) {
        self.away.store(false, Ordering::Relaxed);
    }

    /// In a forked child: empty, the worker awake.
    ///
    /// # Safety
    /// No other thread uses it.
    #[cfg(not(loom))]
    pub unsafe fn reset(&self) {
        // SAFETY: the caller's.
        unsafe { self.ring.force_unlock() };
        *self.ring.lock() = Ring::EMPTY;
        self.len.store(0, Ordering::Relaxed);
        self.is_back();
    }
}
