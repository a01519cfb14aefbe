//! Fibers that wait on words: the library's futexes, for threads that the scheduler underneath does not know.
//!
//! A [`Waiter`] lies on the fiber's stack and is linked into the list of its word, or of two words, of which either wakes it.
//! The lists are in buckets, each with a lock.
//!
//! *Wait*: take the locks; count the waiter; *fence*; compare the words; link it. The fiber then leaves its stack, and
//! only who runs next on its carrier gives the locks back: who finds a waiter finds a fiber that can be run.
//!
//! *Wake* (the words have been changed before): *fence*; if the bucket counts nobody, there is nobody; take the lock, and claim and
//! unlink waiters of the word.
//!
//! **Why no wake is missed.** Waiter: "count; fence; read the word"; waker: "write the word; fence; read the count" (store
//! buffering). One of the two sees the other's write: either the waiter does not wait, or the waker takes the lock, after the
//! waiter has given it back, linked. **Why a waiter is woken once.** It is linked in two lists perhaps, and its time may be over
//! just then: who wants to run it claims it first, by a compare-and-swap. It unlinks itself from what is left when it runs again, before its
//! frame is gone; and its deadline is withdrawn under the clock's lock, under which others are carried out.
//!
//! # Safety
//! Lists are touched under their bucket's lock; a waiter is in its place until it has [left](Table::leave).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ptr;

use crate::channel::cell::UnsafeCell;
use crate::prim::{AtomicU32, Ordering, fence};
use crate::spin::Spin;

const BUCKETS: usize = if cfg!(loom) { 2 } else { 1024 };

/// A place in the list of a word's waiters.
struct Link<T> {
    word: *const AtomicU32,
    waiter: *const Waiter<T>,
    /// Neighbours, in a ring; null: in no list.
    next: *mut Link<T>,
    last: *mut Link<T>,
}

/// What waits; see the module.
pub struct Waiter<T> {
    fiber: T,
    /// 1: somebody is to run it, or the time was over before it waited.
    claimed: AtomicU32,
    /// The second may be null: there is one.
    words: [*const AtomicU32; 2],
    links: [UnsafeCell<Link<T>>; 2],
}

/// Addresses are spread by themselves, but for their lowest bits.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are addresses")
    }
    fn write_usize(&mut self, address: usize) {
        self.0 = spread(address);
    }
}

/// Multiplicative hashing (Knuth, The Art of Computer Programming 3, 6.4).
fn spread(address: usize) -> u64 {
    if cfg!(loom) {
        return (address / size_of::<AtomicU32>()) as u64; // neighbours are in different buckets
    }
    (address as u64 >> 2).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32)
}

struct Bucket<T> {
    lock: Spin,
    /// Links in lists, and waiters about to be linked.
    count: AtomicU32,
    /// By word: the first of its ring.
    rings: UnsafeCell<HashMap<usize, *mut Link<T>, BuildHasherDefault<Spread>>>,
}

impl<T> Bucket<T> {
    /// Counts a bucket's waiter, or one less; for who holds the lock.
    fn count(&self, change: i32) {
        let count = self.count.load(Ordering::Relaxed);
        self.count.store(count.wrapping_add_signed(change), Ordering::Relaxed);
    }

    /// Links it as the newest.
    ///
    /// # Safety
    /// The lock is the caller's; the link is in no list, and stays where it is while it is in this one.
    unsafe fn append(&self, link: *mut Link<T>) {
        self.rings.with_mut(|rings| {
            // SAFETY: the caller's; links in lists are there.
            unsafe {
                let first = *(*rings).entry((*link).word as usize).or_insert(link);
                if first == link {
                    (*link).next = link;
                    (*link).last = link;
                } else {
                    let newest = (*first).last;
                    (*link).next = first;
                    (*link).last = newest;
                    (*newest).next = link;
                    (*first).last = link;
                }
            }
        });
    }

    /// # Safety
    /// The lock is the caller's; the link is in the list of its word.
    unsafe fn unlink(&self, link: *mut Link<T>) {
        self.rings.with_mut(|rings| {
            // SAFETY: the caller's; links in lists are there.
            unsafe {
                let (word, next, last) = ((*link).word as usize, (*link).next, (*link).last);
                if next == link {
                    (*rings).remove(&word);
                } else {
                    (*next).last = last;
                    (*last).next = next;
                    if (*rings).get(&word) == Some(&link) {
                        (*rings).insert(word, next);
                    }
                }
                (*link).next = ptr::null_mut();
            }
        });
        self.count(-1);
    }
}

/// See the module.
pub struct Table<T> {
    buckets: Box<[Bucket<T>]>,
}

// SAFETY: lists are touched under their locks.
unsafe impl<T: Send> Sync for Table<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Table<T> {}

impl<T: Copy> Waiter<T> {
    /// Of one or two words; the second is waited for while it is 0.
    pub fn new(fiber: T, word: &AtomicU32, other: Option<&AtomicU32>) -> Self {
        let words = [ptr::from_ref(word), other.map_or(ptr::null(), ptr::from_ref)];
        let link =
            |word| UnsafeCell::new(Link { word, waiter: ptr::null(), next: ptr::null_mut(), last: ptr::null_mut() });
        Self { fiber, claimed: AtomicU32::new(0), words, links: words.map(link) }
    }

    /// One or two.
    fn words(&self) -> &[*const AtomicU32] {
        &self.words[..1 + usize::from(!self.words[1].is_null())]
    }

    /// The links of its words.
    fn links(&self) -> &[UnsafeCell<Link<T>>] {
        &self.links[..self.words().len()]
    }

    /// Whether the caller is the one who may run it.
    fn claim(&self) -> bool {
        // Relaxed: what is handed over is handed over with the bucket's lock and the carrier's queue.
        self.claimed.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl<T: Copy> Table<T> {
    /// Nobody waits.
    pub fn new() -> Self {
        let bucket =
            || Bucket { lock: Spin::new(), count: AtomicU32::new(0), rings: UnsafeCell::new(HashMap::default()) };
        Self { buckets: (0..BUCKETS).map(|_| bucket()).collect() }
    }

    fn bucket(&self, word: *const AtomicU32) -> usize {
        spread(word as usize) as usize % BUCKETS
    }

    /// The buckets of a waiter's words, in the order in which they are locked.
    fn buckets_of(&self, waiter: &Waiter<T>) -> (usize, Option<usize>) {
        let first = self.bucket(waiter.words[0]);
        match waiter.words().get(1).map(|word| self.bucket(*word)) {
            Some(second) if second != first => (first.min(second), Some(first.max(second))),
            _ => (first, None),
        }
    }

    fn each(&self, waiter: &Waiter<T>, f: impl Fn(&Bucket<T>)) {
        let (first, second) = self.buckets_of(waiter);
        f(&self.buckets[first]);
        if let Some(second) = second {
            f(&self.buckets[second]);
        }
    }

    /// For each of its links; the buckets are the caller's.
    fn count(&self, waiter: &Waiter<T>, change: i32) {
        waiter.words().iter().for_each(|word| self.buckets[self.bucket(*word)].count(change));
    }

    /// Begins a wait, if the words have these values and the time is not over. True: the locks are the caller's, who gives them
    /// back with [`unlock`](Self::unlock) as soon as the fiber can be run by others.
    ///
    /// # Safety
    /// The waiter stays where it is until [`leave`](Self::leave).
    pub unsafe fn enter(&self, waiter: &Waiter<T>, value: u32) -> bool {
        self.each(waiter, |bucket| bucket.lock.acquire());
        self.count(waiter, 1);
        // SeqCst: the count comes before the look at the words: see the module. pairs: fiber.wake
        fence(Ordering::SeqCst);
        // SAFETY: the caller's words, which outlive the wait. Relaxed: the caller looks again.
        let is = |(word, wanted): (&*const AtomicU32, u32)| unsafe { (**word).load(Ordering::Relaxed) == wanted };
        let unchanged = waiter.words().iter().zip([value, 0]).all(is);
        // Relaxed: written by the clock under one of these locks.
        if !unchanged || waiter.claimed.load(Ordering::Relaxed) != 0 {
            self.count(waiter, -1);
            self.each(waiter, |bucket| bucket.lock.release());
            return false;
        }
        for link in waiter.links() {
            link.with_mut(|link| {
                // SAFETY: the bucket is ours.
                unsafe {
                    (*link).waiter = waiter;
                    self.buckets[self.bucket((*link).word)].append(link);
                }
            });
        }
        true
    }

    /// Gives the locks back: the fiber has left its stack.
    ///
    /// # Safety
    /// After [`enter`](Self::enter), once; the waiter is still there: nobody has run its fiber.
    pub unsafe fn unlock(&self, waiter: *const Waiter<T>) {
        // SAFETY: the caller's. What is read of it is read before the first lock is given back.
        let (first, second) = self.buckets_of(unsafe { &*waiter });
        if let Some(second) = second {
            self.buckets[second].lock.release();
        }
        self.buckets[first].lock.release();
    }

    /// Ends a wait of a fiber that runs again: nobody finds the waiter any more.
    pub fn leave(&self, waiter: &Waiter<T>) {
        if waiter.words().len() == 1 {
            return; // who had it run has unlinked it
        }
        self.each(waiter, |bucket| bucket.lock.acquire());
        self.unlink_all(waiter);
        self.each(waiter, |bucket| bucket.lock.release());
    }

    /// Its buckets are the caller's.
    fn unlink_all(&self, waiter: &Waiter<T>) {
        for link in waiter.links() {
            link.with_mut(|link| {
                // SAFETY: the bucket is ours.
                unsafe {
                    if !(*link).next.is_null() {
                        self.buckets[self.bucket((*link).word)].unlink(link);
                    }
                }
            });
        }
    }

    /// Has up to `most` waiters of a word run, the longest waiting first; answers how many.
    pub fn wake(&self, word: *const AtomicU32, most: u32, mut run: impl FnMut(T)) -> u32 {
        // SeqCst: the caller's change of the word comes before the look at the count: see the module. pairs: fiber.wake
        fence(Ordering::SeqCst);
        let bucket = &self.buckets[self.bucket(word)];
        if bucket.count.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let mut woken = 0;
        bucket.lock.acquire();
        while woken < most {
            // SAFETY: the bucket is ours; waiters that are linked are there.
            unsafe {
                let Some(link) = bucket.rings.with(|rings| (*rings).get(&(word as usize)).copied()) else { break };
                bucket.unlink(link);
                let waiter = &*(*link).waiter;
                if waiter.claim() {
                    woken += 1;
                    run(waiter.fiber);
                }
            }
        }
        bucket.lock.release();
        woken
    }

    /// The waiter's time is over: has it run if nobody else does. If it does not wait yet, it will not.
    ///
    /// # Safety
    /// The waiter is there.
    pub unsafe fn expire(&self, waiter: &Waiter<T>, run: impl FnOnce(T)) -> bool {
        self.each(waiter, |bucket| bucket.lock.acquire());
        let claimed = waiter.claim();
        // SAFETY: its buckets are ours.
        let waits = waiter.links[0].with(|link| unsafe { !(*link).next.is_null() });
        if claimed && waits {
            self.unlink_all(waiter);
            run(waiter.fiber);
        }
        self.each(waiter, |bucket| bucket.lock.release());
        claimed
    }
}
