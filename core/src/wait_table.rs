//! The wait table: threads parked on the address of a 32-bit word. Heddle's futex.
//!
//! Buckets of waiters, each behind a spin lock. A waiter lives on the stack of whoever waits: a user thread, or a kernel
//! thread that is not Heddle's.
//!
//! # Protocol
//! * Wait: lock the bucket; compare the word; if it still has the expected value, link the waiter; unlock; park.
//! * Wake: lock; for each waiter of that address whose bits match: unlink it, then claim its ticket. A claim that fails
//!   means a deadline or a signal was first: such a waiter is not counted and the next one is tried.
//! * After waking for whatever reason the waiter unlinks itself if it is still linked, under the lock, before its stack
//!   frame goes away.
//!
//! No wake-up is lost: the waker changes the word before it takes the lock. If the waiter took the lock first, it is linked
//! and found; if the waker was first, the waiter's comparison sees the changed word (the lock orders them).
//!
//! A waker that sees, after a full fence, that the lock is free and then that the list is empty, leaves without the lock.
//! Taking the lock is a full fence between the lock's word and the comparison. So a waiter whose taking the waker did not see
//! compares later than the waker changed the word, and does not wait; and if it did see that waiter's release of the lock, it
//! sees the list with it too. (Rejected: a count of waiters that is raised before the lock is taken. It says the same for two
//! more locked instructions.)
//!
//! No wake-up is wasted: a waiter is counted only if its claim succeeded, so the thread does run because of it.
//! Requeue moves waiters between two buckets, locked in address order; a waiter therefore re-reads its bucket after
//! locking it.
//!
//! A list is sorted by rank, the highest first, and by age within a rank. All who have no real-time priority have rank 0,
//! so they are appended to the end, and nobody looks at ranks on the way.

use crate::lock::{Guard, SpinLock};
#[cfg(not(loom))]
use crate::prim::AtomicU64;
use crate::prim::{AtomicPtr, Ordering, fence_after_rmw};
use core::mem::MaybeUninit;

/// Number of buckets: of a million waiters fifteen are in each. Fewer in tests, which have tables on their stacks, and under
/// loom.
pub const BUCKETS: usize = if cfg!(loom) {
    2
} else if cfg!(test) {
    1 << 12
} else {
    1 << 16
};
/// Buckets of one page.
#[cfg(not(loom))]
const PAGE: usize = 4096 / size_of::<Bucket<()>>();

/// What the wait table asks of whatever can wait.
pub trait Wakeable: Copy {
    /// Claims the wait; `false` if something else did. After `true`, [`run`](Self::run) will be called once.
    fn claim(&self) -> bool;
    /// Makes the waiter run. Called without locks. `alone`: no other is woken with it.
    fn run(&self, alone: bool);
}

/// One waiter on one address. Lives on the waiting thread's stack, pinned between `wait` and `leave`.
pub struct Waiter<W> {
    next: *mut Waiter<W>,
    prev: *mut Waiter<W>,
    key: usize,
    bits: u32,
    /// Who has a higher one is woken first.
    rank: u32,
    who: W,
    /// The bucket it is linked in, null if none. Changed only under that bucket's lock.
    bucket: AtomicPtr<Bucket<W>>,
}

impl<W> Waiter<W> {
    /// A waiter that is not linked. Of those on one address, who has a higher `rank` is woken first.
    #[cfg(not(loom))]
    pub const fn new(who: W, rank: u32) -> Self {
        Self {
            next: core::ptr::null_mut(),
            prev: core::ptr::null_mut(),
            key: 0,
            bits: 0,
            rank,
            who,
            bucket: AtomicPtr::new(core::ptr::null_mut()),
        }
    }
    /// As well.
    #[cfg(loom)]
    pub fn new(who: W, rank: u32) -> Self {
        Self {
            next: core::ptr::null_mut(),
            prev: core::ptr::null_mut(),
            key: 0,
            bits: 0,
            rank,
            who,
            bucket: AtomicPtr::new(core::ptr::null_mut()),
        }
    }
}

struct Tail<W>(*mut Waiter<W>);
// SAFETY: waiters are touched only under the bucket's lock, or by their owner when unlinked.
unsafe impl<W> Send for Tail<W> {}

/// A bucket. Aligned so that two locks never share a line.
#[repr(align(64))]
pub struct Bucket<W> {
    /// The list's last waiter. The lock is the whole list's.
    tail: SpinLock<Tail<W>>,
    /// The list's first waiter. Written under the lock; a wake that finds null and the lock free need not take it.
    head: AtomicPtr<Waiter<W>>,
}

/// A bucket's list, locked.
struct List<'a, W> {
    bucket: &'a Bucket<W>,
    tail: Guard<'a, Tail<W>>,
}

/// The table.
pub struct WaitTable<W> {
    buckets: [Bucket<W>; BUCKETS],
    /// A bit for each page of buckets of which one has ever been locked: a forked child resets those, and does not touch the
    /// others, most of which are not even there.
    #[cfg(not(loom))]
    used: [AtomicU64; BUCKETS / PAGE / 64],
}

/// Waiters to be made runnable once the locks are released.
struct Woken<W> {
    some: [MaybeUninit<W>; 16],
    len: usize,
}

impl<W: Wakeable> Woken<W> {
    fn new() -> Self {
        Self { some: [const { MaybeUninit::uninit() }; 16], len: 0 }
    }
    fn is_full(&self) -> bool {
        self.len == self.some.len()
    }
    fn add(&mut self, w: W) {
        self.some[self.len].write(w);
        self.len += 1;
    }
    fn run(&mut self) {
        for w in &self.some[..self.len] {
            // SAFETY: `add` wrote the first `len`.
            unsafe { w.assume_init() }.run(self.len == 1);
        }
        self.len = 0;
    }
}

impl<W: Wakeable> Default for WaitTable<W> {
    #[cfg(not(loom))]
    fn default() -> Self {
        Self::new()
    }
    #[cfg(loom)]
    fn default() -> Self {
        Self::new()
    }
}

impl<W: Wakeable> WaitTable<W> {
    /// An empty table.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            buckets: [const {
                Bucket { tail: SpinLock::new(Tail(core::ptr::null_mut())), head: AtomicPtr::new(core::ptr::null_mut()) }
            }; BUCKETS],
            used: [const { AtomicU64::new(0) }; BUCKETS / PAGE / 64],
        }
    }
    /// An empty table.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self {
            buckets: core::array::from_fn(|_| Bucket {
                tail: SpinLock::new(Tail(core::ptr::null_mut())),
                head: AtomicPtr::new(core::ptr::null_mut()),
            }),
        }
    }

    #[inline]
    fn index(key: usize) -> usize {
        let h = (key >> 2).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (h >> 40) % BUCKETS
    }

    /// The bucket of a key, to be locked.
    #[inline]
    fn bucket(&self, key: usize) -> &Bucket<W> {
        let i = Self::index(key);
        #[cfg(not(loom))]
        {
            let (word, bit) = (&self.used[i / PAGE / 64], 1 << (i / PAGE % 64));
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
        &self.buckets[i]
    }

    /// Links `waiter` to `key` if `still(…)` is true under the lock. Returns whether it did. It is a full fence for the caller.
    ///
    /// # Safety
    /// `waiter` is not linked, stays where it is, and [`leave`](Self::leave) is called before it goes away.
    #[inline(always)]
    pub unsafe fn wait(&self, waiter: *mut Waiter<W>, key: usize, bits: u32, still: impl FnOnce() -> bool) -> bool {
        let bucket = self.bucket(key);
        let mut list = bucket.lock();
        // A waker changes the word, then reads the lock; we write the lock, then read the word. One of the two must see the
        // other's write (store buffering), or the wake would be lost. pairs: wait.lock
        fence_after_rmw();
        if !still() {
            return false;
        }
        // SAFETY: the caller's waiter, unlinked.
        unsafe {
            (*waiter).key = key;
            (*waiter).bits = bits;
            (*waiter).bucket.store(core::ptr::from_ref(bucket).cast_mut(), Ordering::Relaxed);
            list.insert(waiter);
        }
        true
    }

    /// Unlinks the waiter if it is still linked. Returns whether it was.
    ///
    /// # Safety
    /// `waiter` is the caller's.
    pub unsafe fn leave(&self, waiter: *mut Waiter<W>) -> bool {
        loop {
            // Acquire: if null, the unlinker is done with the waiter. pairs: wait.unlink
            // SAFETY: the caller's waiter.
            let bucket = unsafe { (*waiter).bucket.load(Ordering::Acquire) };
            if bucket.is_null() {
                return false;
            }
            // SAFETY: buckets live as long as the table.
            let mut list = unsafe { &*bucket }.lock();
            // SAFETY: as above; a requeue may have moved it before we had the lock.
            if unsafe { (*waiter).bucket.load(Ordering::Relaxed) } == bucket {
                // SAFETY: linked in this bucket, whose lock we hold.
                unsafe { list.unlink(waiter) };
                return true;
            }
        }
    }

    /// Wakes up to `limit` waiters of `key` that share a bit with `bits`: the highest rank first, and of one rank the oldest.
    /// Returns how many.
    pub fn wake(&self, key: usize, limit: usize, bits: u32) -> usize {
        // Who is linked there has used it.
        let bucket = &self.buckets[Self::index(key)];
        // Somebody there: the lock decides. Who has it before us is linked, who has it after us sees the word as the caller left
        // it. Nobody is only believed after a fence.
        if bucket.looks_empty() {
            // SeqCst: orders the caller's change of the word before this read of the lock. pairs: wait.lock
            crate::prim::fence(Ordering::SeqCst);
            if bucket.looks_empty() {
                return 0;
            }
        }
        if limit == 1 {
            let Some(one) = bucket.lock().next(&mut Cursor::start(), key, bits) else { return 0 };
            // SAFETY: claimed, so it stays until it is made runnable.
            unsafe { (*one).who }.run(true);
            return 1;
        }
        let mut done = 0;
        let mut woken = Woken::new();
        while done < limit {
            done += bucket.lock().wake(key, limit - done, bits, &mut woken);
            let more = woken.is_full();
            woken.run();
            if !more {
                break;
            }
        }
        done
    }

    /// Wakes up to `limit` waiters of `from` and moves up to `limit_move` others to `to`, if `still()` holds under the
    /// locks. `None` if it does not; else (woken, moved).
    pub fn requeue(
        &self,
        from: usize,
        to: usize,
        limit: usize,
        limit_move: usize,
        still: impl FnOnce() -> bool,
    ) -> Option<(usize, usize)> {
        let (a, b) = (self.bucket(from), self.bucket(to));
        let mut woken = Woken::new();
        let (mut done, mut moved) = (0, 0);
        let mut still = Some(still);
        let ok = loop {
            let (mut la, mut lb) = lock_both(a, b);
            // As in `wait`: wakers of either address either see that we have the locks, or had changed the word before.
            // pairs: wait.lock
            fence_after_rmw();
            if let Some(still) = still.take()
                && !still()
            {
                break false;
            }
            done += la.wake(from, limit - done, u32::MAX, &mut woken);
            if woken.is_full() {
                drop(la);
                drop(lb);
                woken.run();
                continue;
            }
            let mut w = la.head();
            while !w.is_null() && moved < limit_move {
                // SAFETY: linked waiters are valid under the lock.
                unsafe {
                    let next = (*w).next;
                    if (*w).key == from {
                        moved += 1;
                        (*w).key = to;
                        if let Some(lb) = lb.as_mut() {
                            la.unlink_only(w);
                            (*w).bucket.store(core::ptr::from_ref(b).cast_mut(), Ordering::Relaxed);
                            lb.insert(w);
                        }
                    }
                    w = next;
                }
            }
            break true;
        };
        woken.run();
        ok.then_some((done, moved))
    }

    /// Runs `f` with the bucket of `key` locked: no waiter of that address comes or goes meanwhile.
    pub fn locked<R>(&self, key: usize, f: impl FnOnce() -> R) -> R {
        let _list = self.bucket(key).lock();
        f()
    }

    /// Wakes the first waiter of `key` (see [`wake`](Self::wake)) that can still be woken, after telling `decide`, under the
    /// lock, who it is and whether others remain; or tells it that there is none.
    pub fn hand_over(&self, key: usize, decide: impl FnOnce(Option<(W, bool)>)) {
        let mut list = self.bucket(key).lock();
        let mut at = Cursor::start();
        // SAFETY: claimed, so it stays until it is made runnable.
        let chosen = list.next(&mut at, key, u32::MAX).map(|one| unsafe { (*one).who });
        decide(chosen.map(|c| (c, list.has_from(at, key))));
        drop(list);
        if let Some(c) = chosen {
            c.run(true);
        }
    }

    /// Whether someone waits on `key`.
    pub fn has_waiter(&self, key: usize) -> bool {
        self.bucket(key).lock().has_from(Cursor::start(), key)
    }

    /// Whether two addresses share a bucket.
    #[cfg(test)]
    pub(crate) fn same_bucket(&self, a: usize, b: usize) -> bool {
        core::ptr::eq(self.bucket(a), self.bucket(b))
    }

    /// Whether a wake of `key` would leave without the lock.
    #[cfg(test)]
    pub(crate) fn looks_empty(&self, key: usize) -> bool {
        self.bucket(key).looks_empty()
    }

    /// The buckets of the pages that are in use.
    #[cfg(not(loom))]
    fn used_buckets(&self) -> impl Iterator<Item = &Bucket<W>> {
        let words = self.used.iter().map(|word| word.load(Ordering::Relaxed)).enumerate();
        let pages = words
            .filter(|&(_, word)| word != 0)
            .flat_map(|(at, word)| (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| 64 * at + bit));
        pages.flat_map(|page| &self.buckets[page * PAGE..(page + 1) * PAGE])
    }

    #[cfg(loom)]
    fn used_buckets(&self) -> impl Iterator<Item = &Bucket<W>> {
        self.buckets.iter()
    }

    /// Forgets all waiters, in a forked child.
    ///
    /// # Safety
    /// The caller is the only thread and waits on nothing.
    pub unsafe fn reset(&self) {
        for b in self.used_buckets() {
            // SAFETY: the caller's.
            unsafe { b.tail.force_unlock() };
            // Read first: the page may be shared with the parent.
            if !b.head.load(Ordering::Relaxed).is_null() {
                b.head.store(core::ptr::null_mut(), Ordering::Relaxed);
                b.tail.lock().0 = core::ptr::null_mut();
            }
        }
    }
}

/// Locks `a` and, if it is another bucket, `b`, in address order.
fn lock_both<'a, W>(a: &'a Bucket<W>, b: &'a Bucket<W>) -> (List<'a, W>, Option<List<'a, W>>) {
    if core::ptr::eq(a, b) {
        (a.lock(), None)
    } else if core::ptr::from_ref(a) < core::ptr::from_ref(b) {
        let la = a.lock();
        let lb = b.lock();
        (la, Some(lb))
    } else {
        let lb = b.lock();
        (a.lock(), Some(lb))
    }
}

impl<W> Bucket<W> {
    #[inline]
    fn lock(&self) -> List<'_, W> {
        List { bucket: self, tail: self.tail.lock() }
    }

    /// Nobody has the lock, and nobody was linked when it was last released.
    #[inline]
    fn looks_empty(&self) -> bool {
        self.tail.is_free() && self.head.load(Ordering::Relaxed).is_null()
    }
}

/// How far a list has been searched: what comes next, or its beginning.
struct Cursor<W>(Option<*mut Waiter<W>>);

impl<W> Cursor<W> {
    fn start() -> Self {
        Self(None)
    }
}

impl<W: Wakeable> List<'_, W> {
    /// Unlinks waiters of `key` that share a bit with `bits`, from `at` on, until one can be claimed: that one is to be made
    /// runnable once the lock is released, and is there until then.
    #[inline]
    fn next(&mut self, at: &mut Cursor<W>, key: usize, bits: u32) -> Option<*mut Waiter<W>> {
        let mut w = at.0.unwrap_or_else(|| self.head());
        while !w.is_null() {
            // SAFETY: linked waiters are valid under the lock; after a successful claim the waiter may go away as soon as
            // it is made runnable, which happens after the lock is released.
            unsafe {
                let next = (*w).next;
                if (*w).key == key && (*w).bits & bits != 0 {
                    let who = (*w).who;
                    self.unlink_only(w);
                    let claimed = who.claim();
                    // Release: the last touch of the waiter; its owner may return when it reads null. pairs: wait.unlink
                    (*w).bucket.store(core::ptr::null_mut(), Ordering::Release);
                    if claimed {
                        at.0 = Some(next);
                        return Some(w);
                    }
                }
                w = next;
            }
        }
        at.0 = Some(w);
        None
    }

    fn wake(&mut self, key: usize, limit: usize, bits: u32, woken: &mut Woken<W>) -> usize {
        let mut at = Cursor::start();
        let mut done = 0;
        while done < limit
            && !woken.is_full()
            && let Some(one) = self.next(&mut at, key, bits)
        {
            // SAFETY: claimed, so it stays until it is made runnable.
            woken.add(unsafe { (*one).who });
            done += 1;
        }
        done
    }

    /// Whether there is a waiter of `key` from `at` on.
    fn has_from(&self, at: Cursor<W>, key: usize) -> bool {
        let mut w = at.0.unwrap_or_else(|| self.head());
        while !w.is_null() {
            // SAFETY: linked waiters are valid under the lock.
            unsafe {
                if (*w).key == key {
                    return true;
                }
                w = (*w).next;
            }
        }
        false
    }
}

impl<W> List<'_, W> {
    #[inline]
    fn head(&self) -> *mut Waiter<W> {
        self.bucket.head.load(Ordering::Relaxed)
    }

    #[inline]
    fn set_head(&mut self, w: *mut Waiter<W>) {
        self.bucket.head.store(w, Ordering::Relaxed);
    }

    /// Links `w` behind the last one whose rank is not lower.
    unsafe fn insert(&mut self, w: *mut Waiter<W>) {
        // SAFETY: the caller holds the lock and owns the unlinked waiter; linked ones are valid under the lock.
        unsafe {
            let mut before = self.tail.0;
            while (*w).rank != 0 && !before.is_null() && (*before).rank < (*w).rank {
                before = (*before).prev;
            }
            let after = if before.is_null() { self.head() } else { (*before).next };
            (*w).prev = before;
            (*w).next = after;
            if before.is_null() {
                self.set_head(w);
            } else {
                (*before).next = w;
            }
            if after.is_null() {
                self.tail.0 = w;
            } else {
                (*after).prev = w;
            }
        }
    }

    unsafe fn unlink_only(&mut self, w: *mut Waiter<W>) {
        // SAFETY: the caller holds the lock of the list that `w` is in; neighbours are linked, hence valid.
        unsafe {
            let (prev, next) = ((*w).prev, (*w).next);
            if prev.is_null() {
                self.set_head(next);
            } else {
                (*prev).next = next;
            }
            if next.is_null() {
                self.tail.0 = prev;
            } else {
                (*next).prev = prev;
            }
        }
    }

    unsafe fn unlink(&mut self, w: *mut Waiter<W>) {
        // SAFETY: the caller's.
        unsafe {
            self.unlink_only(w);
            (*w).bucket.store(core::ptr::null_mut(), Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::cell::{Cell, RefCell};
    use std::boxed::Box;
    use std::vec::Vec;

    const ALL: u32 = u32::MAX;

    /// What can wait: notes whether it was claimed, and in which order it ran.
    struct Fake {
        claimed: Cell<bool>,
        number: usize,
        order: *const RefCell<Vec<usize>>,
    }

    #[derive(Clone, Copy)]
    struct Who(*const Fake);

    impl Wakeable for Who {
        fn claim(&self) -> bool {
            // SAFETY: fakes outlive the test's waiters.
            !unsafe { &*self.0 }.claimed.replace(true)
        }
        fn run(&self, _alone: bool) {
            // SAFETY: as above.
            unsafe { (*(*self.0).order).borrow_mut().push((*self.0).number) }
        }
    }

    #[allow(clippy::vec_box)] // pointed to while more are added
    struct World {
        table: Box<WaitTable<Who>>,
        fakes: Vec<Box<Fake>>,
        waiters: Vec<Box<Waiter<Who>>>,
        order: Box<RefCell<Vec<usize>>>,
    }

    impl World {
        fn new() -> Self {
            Self { table: Box::default(), fakes: Vec::new(), waiters: Vec::new(), order: Box::default() }
        }

        fn wait(&mut self, key: usize, bits: u32) -> usize {
            self.wait_ranked(key, bits, 0)
        }

        fn wait_ranked(&mut self, key: usize, bits: u32, rank: u32) -> usize {
            let number = self.fakes.len();
            self.fakes.push(Box::new(Fake { claimed: Cell::new(false), number, order: &*self.order }));
            self.waiters.push(Box::new(Waiter::new(Who(&*self.fakes[number]), rank)));
            // SAFETY: boxed, and left or woken before the test ends (or never looked at again).
            assert!(unsafe { self.table.wait(&mut *self.waiters[number], key, bits, || true) });
            number
        }

        fn leave(&mut self, i: usize) -> bool {
            // SAFETY: a waiter of this table.
            unsafe { self.table.leave(&mut *self.waiters[i]) }
        }

        fn ran(&self) -> Vec<usize> {
            self.order.take()
        }
    }

    /// An address in another bucket than `key`, or in the same one.
    fn other(w: &World, key: usize, same: bool) -> usize {
        (1..).map(|i| key + i * 4).find(|&k| w.table.same_bucket(key, k) == same).unwrap()
    }

    #[test]
    fn oldest_first_up_to_the_limit() {
        let mut w = World::new();
        (0..5).for_each(|_| _ = w.wait(64, ALL));
        assert_eq!(w.table.wake(64, 2, ALL), 2);
        assert_eq!(w.ran(), [0, 1]);
        assert_eq!(w.table.wake(64, 0, ALL), 0);
        assert_eq!(w.table.wake(68, usize::MAX, ALL), 0, "another address");
        assert_eq!(w.table.wake(64, usize::MAX, ALL), 3);
        assert_eq!(w.ran(), [2, 3, 4]);
        assert!(w.table.looks_empty(64));
    }

    #[test]
    fn higher_ranks_come_first() {
        let mut w = World::new();
        let twin = other(&w, 64, true);
        for (key, rank) in [(64, 0), (twin, 7), (64, 2), (64, 9), (64, 0), (64, 2), (64, 5), (twin, 0)] {
            w.wait_ranked(key, ALL, rank);
        }
        assert!(w.leave(3), "the first can leave");
        assert_eq!(w.table.wake(64, 2, ALL), 2);
        assert_eq!(w.ran(), [6, 2]);
        assert_eq!(w.table.wake(twin, usize::MAX, ALL), 2);
        assert_eq!(w.ran(), [1, 7]);
        w.wait_ranked(64, ALL, 1);
        assert_eq!(w.table.wake(64, usize::MAX, ALL), 4);
        assert_eq!(w.ran(), [5, 8, 0, 4]);
        assert!(w.table.looks_empty(64));
        w.wait_ranked(64, ALL, 3);
        assert_eq!(w.table.wake(64, usize::MAX, ALL), 1);
    }

    #[test]
    fn a_moved_waiter_keeps_its_rank() {
        for same in [false, true] {
            let mut w = World::new();
            let to = other(&w, 64, same);
            w.wait(to, ALL);
            for rank in [0, 4, 8] {
                w.wait_ranked(64, ALL, rank);
            }
            assert_eq!(w.table.requeue(64, to, 1, usize::MAX, || true), Some((1, 2)));
            assert_eq!(w.ran(), [3]);
            assert_eq!(w.table.wake(to, usize::MAX, ALL), 3);
            assert_eq!(w.ran(), [2, 0, 1]);
        }
    }

    #[test]
    fn more_than_fit_one_batch() {
        let mut w = World::new();
        (0..100).for_each(|_| _ = w.wait(64, ALL));
        assert_eq!(w.table.wake(64, 99, ALL), 99);
        assert_eq!(w.ran(), (0..99).collect::<Vec<_>>());
        assert!(w.table.has_waiter(64));
        assert!(w.leave(99));
        assert!(!w.leave(99));
        assert!(!w.table.has_waiter(64));
    }

    #[test]
    fn a_changed_word_is_not_waited_on() {
        let w = World::new();
        let fake = Fake { claimed: Cell::new(false), number: 0, order: &*w.order };
        let mut waiter = Waiter::new(Who(&fake), 0);
        // SAFETY: not linked.
        assert!(!unsafe { w.table.wait(&mut waiter, 64, ALL, || false) });
        assert!(w.table.looks_empty(64));
        assert_eq!(w.table.wake(64, 1, ALL), 0);
    }

    #[test]
    fn bits_choose() {
        let mut w = World::new();
        w.wait(64, 1);
        w.wait(64, 2);
        w.wait(64, 3);
        assert_eq!(w.table.wake(64, usize::MAX, 2), 2);
        assert_eq!(w.ran(), [1, 2]);
        assert_eq!(w.table.wake(64, usize::MAX, ALL), 1);
    }

    #[test]
    fn who_was_claimed_elsewhere_is_passed_over() {
        let mut w = World::new();
        (0..3).for_each(|_| _ = w.wait(64, ALL));
        w.fakes[0].claimed.set(true);
        assert_eq!(w.table.wake(64, 1, ALL), 1);
        assert_eq!(w.ran(), [1]);
        assert!(!w.leave(0), "the waker took it out");
        assert!(w.leave(2));
    }

    #[test]
    fn addresses_of_one_bucket_are_told_apart() {
        let mut w = World::new();
        let twin = other(&w, 64, true);
        w.wait(64, ALL);
        w.wait(twin, ALL);
        assert_eq!(w.table.wake(twin, usize::MAX, ALL), 1);
        assert_eq!(w.ran(), [1]);
        assert!(w.table.has_waiter(64) && !w.table.has_waiter(twin));
    }

    #[test]
    fn requeue_wakes_some_and_moves_some() {
        for same in [false, true] {
            let mut w = World::new();
            let to = other(&w, 64, same);
            (0..6).for_each(|_| _ = w.wait(64, ALL));
            assert_eq!(w.table.requeue(64, to, 1, 3, || false), None, "the word was different");
            assert_eq!(w.table.requeue(64, to, 1, 3, || true), Some((1, 3)));
            assert_eq!(w.ran(), [0]);
            assert_eq!(w.table.wake(to, usize::MAX, ALL), 3);
            assert_eq!(w.ran(), [1, 2, 3]);
            assert_eq!(w.table.wake(64, usize::MAX, ALL), 2);
            assert_eq!(w.ran(), [4, 5]);
            assert!(w.table.looks_empty(64) && w.table.looks_empty(to));
        }
    }

    #[test]
    fn a_moved_waiter_can_leave() {
        let mut w = World::new();
        let to = other(&w, 64, false);
        w.wait(64, ALL);
        assert_eq!(w.table.requeue(64, to, 0, 1, || true), Some((0, 1)));
        assert!(w.leave(0));
        assert_eq!(w.table.wake(to, 1, ALL), 0);
    }

    #[test]
    fn requeue_wakes_more_than_one_batch() {
        let mut w = World::new();
        let to = other(&w, 64, false);
        (0..60).for_each(|_| _ = w.wait(64, ALL));
        assert_eq!(w.table.requeue(64, to, 40, usize::MAX, || true), Some((40, 20)));
        assert_eq!(w.ran(), (0..40).collect::<Vec<_>>());
        assert_eq!(w.table.wake(to, usize::MAX, ALL), 20);
    }

    #[test]
    fn hand_over_names_the_heir() {
        let mut w = World::new();
        (0..3).for_each(|_| _ = w.wait(64, ALL));
        w.fakes[0].claimed.set(true);
        let mut told = Vec::new();
        for _ in 0..3 {
            // SAFETY: fakes outlive the test.
            w.table.hand_over(64, |next| told.push(next.map(|(who, more)| (unsafe { (*who.0).number }, more))));
        }
        assert_eq!(told, [Some((1, true)), Some((2, false)), None]);
        assert_eq!(w.ran(), [1, 2]);
    }

    #[test]
    fn reset_forgets_all() {
        let mut w = World::new();
        w.wait(64, ALL);
        // SAFETY: the only thread; it waits on nothing.
        unsafe { w.table.reset() };
        assert_eq!(w.table.wake(64, 1, ALL), 0);
        w.wait(64, ALL);
        assert_eq!(w.table.wake(64, 1, ALL), 1);
    }
}
