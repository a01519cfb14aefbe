//! The counts behind going to sleep and being woken, apart from what they are used with: no queue, no reactor, no clock,
//! so that loom can check them (`models::sleep`). `README.md` in this folder has the protocol and its proof.

use crate::prim::{AtomicU32, Ordering, fence};

/// How many workers sleep, how many marks of a searcher are out.
///
/// A mark is held by a worker that searches, or travels with a message: [`call`](Marks::call) makes the mark, the worker
/// that gets the message inherits it. While a mark is out nobody sends another message, so at most one is under way.
pub struct Marks {
    sleeping: AtomicU32,
    searching: AtomicU32,
}

impl Default for Marks {
    fn default() -> Self {
        Self::new()
    }
}

impl Marks {
    /// Nobody sleeps, nobody searches.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { sleeping: AtomicU32::new(0), searching: AtomicU32::new(0) }
    }
    /// Nobody sleeps, nobody searches.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { sleeping: AtomicU32::new(0), searching: AtomicU32::new(0) }
    }

    /// Back to the beginning, in a forked child.
    pub fn reset(&self) {
        self.sleeping.store(0, Ordering::Relaxed);
        self.searching.store(0, Ordering::Relaxed);
    }

    /// How many workers sleep, as one look tells.
    #[inline]
    pub fn sleeping(&self) -> u32 {
        self.sleeping.load(Ordering::Relaxed)
    }

    /// How many marks are out, as one look tells.
    #[inline]
    pub fn searching(&self) -> u32 {
        self.searching.load(Ordering::Relaxed)
    }

    /// Between making work visible and [`must_call`](Marks::must_call).
    #[inline]
    pub fn pushed(&self) {
        // SeqCst: the pusher's half of the store buffering in `fall_asleep` and `stop_searching`. pairs: sleep.fence
        fence(Ordering::SeqCst);
    }

    /// Whether somebody sleeps and nobody searches: the caller, who has [`pushed`](Marks::pushed), must call a sleeper.
    #[inline]
    pub fn must_call(&self) -> bool {
        self.sleeping() != 0 && self.searching() == 0
    }

    /// Makes the mark that travels with a message and sends the message, unless a mark is out. Returns whether it did.
    pub fn call(&self, send: impl FnOnce()) -> bool {
        // AcqRel: the mark is handed over with the message. pairs: sleep.searching
        let made = self.searching.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if made {
            send();
        }
        made
    }

    /// Takes a mark unless `limit` are out.
    pub fn start_searching(&self, limit: u32) -> bool {
        let few = self.searching() < limit;
        if few {
            // AcqRel: as in `call`. pairs: sleep.searching
            self.searching.fetch_add(1, Ordering::AcqRel);
        }
        few
    }

    /// A searcher, which has a mark, got the message too: gives the second mark back.
    pub fn message_while_searching(&self) {
        self.searching.fetch_sub(1, Ordering::Relaxed);
    }

    /// Gives the mark back. A searcher that found nothing goes on to [`fall_asleep`](Marks::fall_asleep), which looks
    /// again. One that found something passes the search on if it was the last: `true` means that the caller must
    /// [`call`](Marks::call) a sleeper; `more` is the look for work beyond what was found.
    #[must_use]
    pub fn stop_searching(&self, found: bool, more: impl FnOnce() -> bool) -> bool {
        // SeqCst: from here on pushers call sleepers themselves; what was pushed before is seen by the look that follows.
        // pairs: sleep.searching
        let last = self.searching.fetch_sub(1, Ordering::SeqCst) == 1;
        if !(found && last) {
            return false;
        }
        // SeqCst: a pusher that read our mark pushed before this fence, so `more` sees it; and so does, at its own last look, a
        // worker that is not counted asleep yet. pairs: sleep.fence
        fence(Ordering::SeqCst);
        self.must_call() && more()
    }

    /// The message reached a worker that does not sleep: gives the mark back. `true`: the caller must call a sleeper.
    #[must_use]
    pub fn message_taken(&self, more: impl FnOnce() -> bool) -> bool {
        // SeqCst: as in `stop_searching`. pairs: sleep.searching
        self.searching.fetch_sub(1, Ordering::SeqCst);
        fence(Ordering::SeqCst); // SeqCst: as in `stop_searching`. pairs: sleep.fence
        self.must_call() && more()
    }

    /// Counts the caller asleep unless `more` finds work. Returns whether it counts; then [`awake`](Marks::awake) follows.
    #[must_use]
    pub fn fall_asleep(&self, more: impl FnOnce() -> bool) -> bool {
        self.sleeping.fetch_add(1, Ordering::Relaxed);
        // SeqCst: either a pusher sees us asleep or we see what it pushed (store buffering). pairs: sleep.fence
        fence(Ordering::SeqCst);
        if more() {
            self.awake();
            return false;
        }
        true
    }

    /// The caller no longer sleeps. The monitor may have counted it: [`Doze::disturb`] follows.
    pub fn awake(&self) {
        self.sleeping.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The monitor's sleep without a timeout while all workers sleep.
pub struct Doze {
    /// 1 while the monitor sleeps or is about to.
    word: AtomicU32,
}

impl Default for Doze {
    fn default() -> Self {
        Self::new()
    }
}

impl Doze {
    /// Not dozing.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { word: AtomicU32::new(0) }
    }
    /// Not dozing.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { word: AtomicU32::new(0) }
    }

    /// Back to the beginning, in a forked child.
    pub fn reset(&self) {
        self.word.store(0, Ordering::Relaxed);
    }

    /// The monitor: calls `wait`, which blocks while the word is 1, if all workers sleep.
    pub fn doze(&self, all_sleep: impl FnOnce() -> bool, wait: impl FnOnce(&AtomicU32)) {
        self.word.store(1, Ordering::Relaxed);
        // SeqCst: see `disturb`. pairs: monitor.sleep
        fence(Ordering::SeqCst);
        if all_sleep() {
            wait(&self.word);
        }
        self.word.store(0, Ordering::Relaxed);
    }

    /// A worker that was counted asleep is awake again: calls `wake` if the monitor dozes.
    #[inline]
    pub fn disturb(&self, wake: impl FnOnce(&AtomicU32)) {
        // SeqCst: a worker counts itself awake, then reads the word; the monitor writes the word, then counts the
        // sleepers. One of them sees the other (store buffering). pairs: monitor.sleep
        fence(Ordering::SeqCst);
        if self.word.load(Ordering::Relaxed) != 0 {
            self.word.store(0, Ordering::Relaxed);
            wake(&self.word);
        }
    }
}
