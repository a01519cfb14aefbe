//! Where objects wait that others have dropped: many threads push chains, one takes all.
//!
//! # Safety
//! A link in a chain belongs to who has the chain: the pusher before the push, the taker after it took. Nobody takes one link out,
//! so a pusher that compares with an old head is not deceived by a head that was away and came back.

use std::marker::PhantomData;
use std::ptr::null_mut;

use crate::channel::cell::UnsafeCell;
use crate::prim::{AtomicPtr, AtomicUsize, Ordering};

/// What each of them begins with.
#[repr(C)]
pub struct Link {
    pub next: UnsafeCell<*mut Link>,
}

impl Link {
    pub fn new() -> Self {
        Self { next: UnsafeCell::new(null_mut()) }
    }

    /// # Safety
    /// The link is the caller's.
    #[inline]
    pub unsafe fn set_next(&self, next: *mut Link) {
        // SAFETY: the caller's.
        self.next.with_mut(|at| unsafe { *at = next });
    }

    /// # Safety
    /// The link is the caller's.
    #[inline]
    pub unsafe fn next(&self) -> *mut Link {
        // SAFETY: the caller's.
        self.next.with(|at| unsafe { *at })
    }
}

/// Words in a parcel: with what else is in it, eight lines.
#[cfg(not(loom))]
pub const ROOM: usize = 62;
#[cfg(loom)]
pub const ROOM: usize = 2;

/// Objects on their way home, as words which its maker and its taker understand. Its maker fills it, pushes it, and may fill it again
/// when it is empty.
#[repr(C, align(64))]
pub struct Parcel {
    link: Link,
    /// How many. Written by the maker before the push, and by the taker when it has them.
    count: AtomicUsize,
    words: UnsafeCell<[*mut Link; ROOM]>,
}

impl Parcel {
    pub fn new() -> Self {
        let words = UnsafeCell::new([null_mut(); ROOM]);
        Self { link: Link::new(), count: AtomicUsize::new(0), words }
    }

    /// Whether the taker is done with it.
    pub fn is_empty(&self) -> bool {
        // Acquire: the taker has read the words and the link before we write others. pairs: pool.parcel
        self.count.load(Ordering::Acquire) == 0
    }

    /// # Safety
    /// The parcel is the caller's, and `at` less than [`ROOM`].
    #[inline]
    pub unsafe fn put(&self, at: usize, word: *mut Link) {
        // SAFETY: the caller's.
        self.words.with_mut(|words| unsafe { (&raw mut (*words)[0]).add(at).write(word) });
    }

    /// Before the push.
    pub fn seal(&self, count: usize) {
        self.count.store(count, Ordering::Relaxed); // the push passes it on
    }

    /// What was put there.
    ///
    /// # Safety
    /// The parcel is the caller's, who has put so many.
    pub unsafe fn read(&self, count: usize, with: impl FnOnce(&[*mut Link])) {
        // SAFETY: the caller's.
        self.words.with(|words| unsafe { with(&(&*words)[..count]) });
    }

    /// For the taker, who has read the link before: it may be filled again afterwards.
    ///
    /// # Safety
    /// The parcel was taken by the caller.
    pub unsafe fn empty(&self, with: impl FnOnce(&[*mut Link])) {
        let count = self.count.load(Ordering::Relaxed);
        // SAFETY: the caller's; the maker put so many there.
        unsafe { self.read(count, with) };
        // Release: the link and the words were read before. pairs: pool.parcel
        self.count.store(0, Ordering::Release);
    }
}

/// A stack of what begins with a [`Link`].
pub struct Returns<T> {
    head: AtomicPtr<Link>,
    items: PhantomData<*mut T>,
}

impl<T> Returns<T> {
    pub fn new() -> Self {
        Self { head: AtomicPtr::new(null_mut()), items: PhantomData }
    }

    /// What is after one that was taken.
    ///
    /// # Safety
    /// It is the caller's.
    #[inline]
    pub unsafe fn next(item: *mut T) -> *mut T {
        // SAFETY: the caller's; it begins with its link.
        unsafe { (*item.cast::<Link>()).next().cast() }
    }

    /// Puts a chain before the others.
    ///
    /// # Safety
    /// The chain from `first` to `last` is the caller's.
    pub unsafe fn push(&self, first: *mut T, last: *mut T) {
        let (first, last) = (first.cast::<Link>(), last.cast::<Link>());
        // Mostly the taker has taken all. A look first would fetch the line twice, to read and to write.
        let mut head = null_mut();
        loop {
            // SAFETY: the caller's until the exchange succeeds.
            unsafe { (*last).set_next(head) };
            // Release: the links, and the end of the values, come before the taker. pairs: pool.returns
            match self.head.compare_exchange(head, first, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => head = other,
            }
        }
    }

    /// Takes all. Without a look first, as above.
    #[inline]
    pub fn take(&self) -> *mut T {
        // Acquire: what the pushers did before is visible. pairs: pool.returns
        self.head.swap(null_mut(), Ordering::Acquire).cast()
    }
}

#[cfg(all(test, loom))]
mod models {
    use std::sync::Arc;

    use super::*;

    struct Shared(Returns<Link>, Vec<Link>);
    // SAFETY: links belong to who has them, which loom checks.
    unsafe impl Send for Shared {}
    // SAFETY: as above.
    unsafe impl Sync for Shared {}

    fn taken(mut link: *mut Link) -> usize {
        let mut count = 0;
        while !link.is_null() {
            count += 1;
            // SAFETY: taken by the caller.
            link = unsafe { (*link).next() };
        }
        count
    }

    /// Two threads bring a chain and a link, also one that has been taken and dropped again; the owner takes each once.
    #[test]
    fn each_comes_home_once() {
        loom::model(|| {
            let shared = Arc::new(Shared(Returns::new(), (0..3).map(|_| Link::new()).collect()));
            let bring = |range: std::ops::Range<usize>| {
                let shared = shared.clone();
                loom::thread::spawn(move || {
                    let links: Vec<*mut Link> =
                        shared.1[range].iter().map(|link| std::ptr::from_ref(link).cast_mut()).collect();
                    // SAFETY: this thread's links.
                    unsafe {
                        for pair in links.windows(2) {
                            (*pair[0]).set_next(pair[1]);
                        }
                        shared.0.push(links[0], links[links.len() - 1]);
                    }
                })
            };
            let threads = [bring(0..2), bring(2..3)];
            let first = shared.0.take();
            let mut count = taken(first);
            if !first.is_null() {
                // SAFETY: one link of those just taken.
                unsafe {
                    (*first).set_next(null_mut());
                    shared.0.push(first, first);
                }
                count -= 1;
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            count += taken(shared.0.take());
            assert_eq!(count, 3);
        });
    }

    struct Posted(Returns<Parcel>, Parcel);
    // SAFETY: the parcel belongs to who has it, which loom checks.
    unsafe impl Send for Posted {}
    // SAFETY: as above.
    unsafe impl Sync for Posted {}

    /// A parcel is filled, sent, emptied, and filled again by its maker as soon as it is empty.
    #[test]
    fn a_parcel_goes_to_and_fro() {
        loom::model(|| {
            let posted = Arc::new(Posted(Returns::new(), Parcel::new()));
            let mut links = [Link::new(), Link::new()].map(Box::new);
            let addresses = links.each_mut().map(|link| std::ptr::from_mut(&mut **link) as usize);
            let maker = {
                let posted = posted.clone();
                loom::thread::spawn(move || {
                    for round in 0..2 {
                        while !posted.1.is_empty() {
                            loom::thread::yield_now();
                        }
                        // SAFETY: empty: it is ours.
                        unsafe {
                            posted.1.put(0, addresses[round] as *mut Link);
                            posted.1.seal(1);
                            let parcel = std::ptr::from_ref(&posted.1).cast_mut();
                            posted.0.push(parcel, parcel);
                        }
                    }
                })
            };
            let mut seen = Vec::new();
            while seen.len() < 2 {
                let parcel = posted.0.take();
                if parcel.is_null() {
                    loom::thread::yield_now();
                    continue;
                }
                // SAFETY: taken.
                unsafe {
                    assert!(Returns::next(parcel).is_null());
                    (*parcel).empty(|objects| seen.extend(objects.iter().map(|object| *object as usize)));
                }
            }
            assert_eq!(seen, addresses);
            maker.join().unwrap();
        });
    }
}
