//! Which carriers sleep, and who wakes one.
//!
//! *Adder* (has added a fiber to a queue): *light fence*; if nobody searches and somebody sleeps, take a sleeper from the list and
//! wake it.
//!
//! *Sleeper* (has found nothing, and no longer counts as searching): write itself down; *heavy fence*; look into all queues; sleep, if
//! there is nothing.
//!
//! **Why no fiber is left while all sleep.** Both do "store mine; fence; read the other's" (store buffering): the adder sees the
//! sleeper in the list, and that it no longer searches, or the sleeper sees the fiber. A searcher that an adder relied on becomes such a sleeper, or
//! finds something; then it looks whether there is more, for the adder who did not call because of it.

use crate::channel::cell::UnsafeCell;
use crate::prim::{AtomicUsize, Ordering, heavy_fence, light_fence};
use crate::spin::Spin;

/// See the module.
pub struct Sleepers<T> {
    lock: Spin,
    list: UnsafeCell<Vec<T>>,
    /// How many are in the list.
    count: AtomicUsize,
    searching: AtomicUsize,
}

// SAFETY: the list is touched under the lock.
unsafe impl<T: Send> Sync for Sleepers<T> {}

impl<T: Copy + PartialEq> Sleepers<T> {
    /// Nobody sleeps.
    pub fn new() -> Self {
        Self {
            lock: Spin::new(),
            list: UnsafeCell::new(Vec::new()),
            count: AtomicUsize::new(0),
            searching: AtomicUsize::new(0),
        }
    }

    fn change<R>(&self, change: impl FnOnce(&mut Vec<T>) -> R) -> R {
        self.lock.acquire();
        let result = self.list.with_mut(|list| {
            // SAFETY: the lock is ours.
            let list = unsafe { &mut *list };
            let result = change(list);
            self.count.store(list.len(), Ordering::Relaxed);
            result
        });
        self.lock.release();
        result
    }

    /// How many sleep.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether who has added something, or leaves something behind, is to wake one.
    #[inline]
    pub fn wanted(&self) -> bool {
        light_fence(); // what was added comes before the looks: see the module. pairs: fiber.sleep
        self.count.load(Ordering::Relaxed) != 0 && self.searching.load(Ordering::Relaxed) == 0
    }

    /// One that is to be woken, no longer in the list.
    pub fn take(&self) -> Option<T> {
        self.change(Vec::pop)
    }

    /// The caller begins to search.
    pub fn begin_search(&self) {
        self.searching.fetch_add(1, Ordering::Relaxed);
    }

    /// It has found something, or gives up.
    pub fn end_search(&self) {
        self.searching.fetch_sub(1, Ordering::Relaxed);
    }

    /// The caller is about to sleep, unless it finds something now.
    pub fn lie_down(&self, sleeper: T) {
        self.change(|list| list.push(sleeper));
        heavy_fence(); // written down before the looks: see the module. pairs: fiber.sleep
    }

    /// It does not, or has been woken.
    pub fn get_up(&self, sleeper: T) {
        self.change(|list| list.retain(|other| *other != sleeper));
    }
}
