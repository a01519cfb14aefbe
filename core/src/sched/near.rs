//! Threads whose peers, the clients of a server on the same machine, run on the same CPU.
//!
//! A send wakes the peer. If that runs on the sender's CPU it takes it over, and has often answered before the send returns. If it runs
//! on another CPU, an interrupt is sent there; and since a worker has nearly always used more than its share of its CPU, the
//! peer takes that CPU from the worker there at once. In a virtual machine that costs both sides more than the switch. So a thread
//! that serves such a peer is better run where the peer is, which the kernel does not tell; but whether the answer is there at
//! once can be asked, now and then. `docs/design/021-peers-on-the-same-cpu.md`.

use super::worker::this_worker;
use super::{Processor, RT};
use crate::thread::Thread;
use core::sync::atomic::{AtomicU32, Ordering};

/// After so many sends it is asked whether the answer is there.
const ASKS: u32 = 16;
/// So many times in a row it must not be there before the thread tries another processor; at first.
const FAR: u32 = 4;
/// After each try in vain it is twice as many, at most this power of two.
const TRIES: u32 = 6;
/// In [`Share`]: all.
const ALL: u32 = 256;
/// A processor takes part if at least so many of the answers to its threads are there at once. Where fewer are, the peers are
/// elsewhere, or are one thread: to follow that would crowd all threads on its CPU.
const ENOUGH: u32 = ALL / 4;

/// What a thread knows of where its peer is. All-zero: nothing.
#[derive(Default)]
pub struct Peer {
    /// The index of the processor, and 1, on which the answer was there at the last question; 0: none. Others read it.
    near: AtomicU32,
    sends: u32,
    /// Questions in a row to which the answer was no.
    far: u32,
    /// Processors tried in vain.
    tries: u32,
}

/// Of the answers that a processor's threads asked for lately, so many of [`ALL`] were there. Written by its worker.
#[derive(Default)]
pub struct Share(AtomicU32);

impl Share {
    fn add(&self, answered: bool) {
        let old = self.0.load(Ordering::Relaxed);
        self.0.store(old - old / 8 + if answered { ALL / 8 } else { 0 }, Ordering::Relaxed);
    }

    fn is_enough(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= ENOUGH
    }
}

/// To be called after the current thread has sent something to who may answer. `answered`: a system call that tells whether there
/// is something to receive; made now and then.
///
/// # Safety
/// Inside the core, on a user thread.
#[inline]
pub unsafe fn sent(answered: impl FnOnce() -> bool) {
    // SAFETY: our own record; the thread's own fields.
    unsafe {
        let t = (*this_worker()).current;
        (*t).peer.sends = (*t).peer.sends.wrapping_add(1);
        if (*t).peer.sends.is_multiple_of(ASKS) && RT.processors().len() > 1 {
            note(t, answered());
        }
    }
}

/// # Safety
/// As [`sent`], `t` is the current thread.
#[cold]
unsafe fn note(t: *mut Thread, answered: bool) {
    // SAFETY: our own record; the thread's own fields.
    unsafe {
        let Some(p) = (*this_worker()).processor.as_ref() else { return };
        p.share.add(answered);
        (*t).peer.near.store(if answered { p.index + 1 } else { 0 }, Ordering::Relaxed);
        if answered {
            ((*t).peer.far, (*t).peer.tries) = (0, 0);
        } else {
            (*t).peer.far += 1;
        }
    }
}

/// An event has made `t` runnable, noticed by the worker of `p`. If its peer was found to be near another processor, leaves it to
/// that one. `Some`: the thread that the caller must run instead, that or another one.
///
/// # Safety
/// As for [`super::ready`], with the thread's state set.
#[inline]
pub(super) unsafe fn leave_near_peer(p: &Processor, t: *mut Thread) -> Option<*mut Thread> {
    // SAFETY: a control block.
    let near = unsafe { (*t).peer.near.load(Ordering::Relaxed) };
    if near == 0 || near == p.index + 1 || !p.share.is_enough() {
        return Some(t);
    }
    RT.processors().get(near as usize - 1).map_or(Some(t), |near| near.posted.post(t))
}

/// Where `t`, the current thread of the worker of `p`, should try instead, since its peer does not seem to be near.
///
/// # Safety
/// Inside the core, on the thread.
pub(super) unsafe fn elsewhere(p: &Processor, t: *mut Thread, now: u64) -> Option<&'static Processor> {
    let all = RT.processors();
    // SAFETY: the thread's own fields.
    unsafe {
        // Where a CPU is idle a peer takes none from a worker.
        if (*t).peer.far < FAR << (*t).peer.tries
            || !p.share.is_enough()
            || RT.sleepers.sleeping() != 0
            || all.len() < 2
        {
            return None;
        }
        (*t).peer.far = 0;
        (*t).peer.tries = ((*t).peer.tries + 1).min(TRIES);
    }
    // Any other one.
    let step = 1 + (now >> 6) as usize % (all.len() - 1);
    all.get((p.index as usize + step) % all.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_follows_the_answers() {
        let share = Share::default();
        assert!(!share.is_enough(), "nothing is known");
        (0..3).for_each(|_| share.add(true));
        assert!(share.is_enough());
        (0..1000).for_each(|_| share.add(true));
        assert!(share.0.load(Ordering::Relaxed) <= ALL);
        (0..1000).for_each(|_| share.add(false));
        assert!(!share.is_enough(), "they went elsewhere");
        // One of two: peers that are anywhere.
        (0..1000).for_each(|i| share.add(i % 2 == 0));
        assert!(share.is_enough());
    }
}
