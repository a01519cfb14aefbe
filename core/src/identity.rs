//! What the Linux kernel keeps for each thread and Heddle keeps for a user thread instead.
//!
//! Plain data: the rules about it are in the ABI layer. Fields without an atomic type belong to the thread itself (or to
//! its creator before it first runs); the others are locked or atomic because other threads look at them.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// One queued signal: the kernel's 128-byte `siginfo_t`.
pub type SigInfo = [u64; 16];

/// Signals sent to a thread and not yet delivered: a list in the ABI layer's pool.
#[derive(Clone, Copy)]
pub struct PendingSignals {
    /// The id of the thread they are for; 0 once it has ended.
    pub owner: u32,
    /// The oldest: its number in the pool, 0 = none.
    pub first: u32,
    /// The newest.
    pub last: u32,
}

impl PendingSignals {
    /// None, for the thread `owner`.
    pub const fn of(owner: u32) -> Self {
        Self { owner, first: 0, last: 0 }
    }
}

/// A thread's alternate signal stack, as `sigaltstack(2)` describes it.
#[derive(Clone, Copy)]
pub struct AltStack {
    /// Lowest address.
    pub base: usize,
    /// Bytes; 0 = none.
    pub size: usize,
    /// SS_AUTODISARM or 0.
    pub flags: u32,
}

/// The thread's identity towards libc and the program.
pub struct Identity {
    /// Thread id as `gettid` tells it.
    pub tid: AtomicU32,
    /// Where to store 0 and wake waiters at exit (CLONE_CHILD_CLEARTID), or 0.
    pub clear_tid: usize,
    /// Head of the robust futex list, or 0.
    pub robust_head: usize,
    /// The stack given to `clone`, or 0.
    pub stack_base: usize,
    /// Its size in bytes.
    pub stack_size: usize,
    /// Blocked signals: bit n-1 for signal n.
    pub sig_mask: AtomicU64,
    /// Signals that a running `sigwait` takes although they are blocked.
    pub sig_waited: AtomicU64,
    /// Which signals are in the thread's queue, or have lost their `siginfo_t` because the pool was full.
    pub sig_pending: AtomicU64,
    /// The mask to go back to after a `sigsuspend`-like call has been interrupted; valid if `sig_restore_mask_set`.
    pub sig_restore_mask: u64,
    /// See `sig_restore_mask`.
    pub sig_restore_mask_set: bool,
    /// In the handler by which libc has each thread change its ids.
    pub in_setxid: bool,
    /// The alternate signal stack.
    pub alt_stack: AltStack,
    /// The name, NUL-padded, in two words: other threads may set it.
    name: [AtomicU64; 2],
}

impl Identity {
    /// An empty identity.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            tid: AtomicU32::new(0),
            clear_tid: 0,
            robust_head: 0,
            stack_base: 0,
            stack_size: 0,
            sig_mask: AtomicU64::new(0),
            sig_waited: AtomicU64::new(0),
            sig_pending: AtomicU64::new(0),
            sig_restore_mask: 0,
            sig_restore_mask_set: false,
            in_setxid: false,
            alt_stack: AltStack { base: 0, size: 0, flags: 0 },
            name: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }

    /// The thread's name, NUL-padded. While somebody changes it, perhaps half the old and half the new one.
    pub fn name(&self) -> [u8; 16] {
        let mut name = [0; 16];
        for (bytes, word) in name.chunks_exact_mut(8).zip(&self.name) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        name
    }

    /// Names the thread as another one.
    #[inline]
    pub fn inherit_name(&self, other: &Self) {
        for (word, theirs) in self.name.iter().zip(&other.name) {
            word.store(theirs.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Names the thread; NUL-padded.
    pub fn set_name(&self, name: [u8; 16]) {
        let word = |i: usize| u64::from_ne_bytes(core::array::from_fn(|k| name[8 * i + k]));
        self.name[0].store(word(0), Ordering::Relaxed);
        self.name[1].store(word(1), Ordering::Relaxed);
    }
}

#[cfg(not(loom))]
impl Default for Identity {
    fn default() -> Self {
        Self::new()
    }
}
