//! The ring of a mailbox: records one after the other in memory that the receiver owns.
//!
//! A record is a word with the length of its bytes, and the bytes, rounded up to whole words. One that does not fit before
//! the end of the memory begins at its start, and a word [`SKIP`] says so. The memory is twice the budget: so a message that is
//! within the budget finds a place in one piece when nothing else is there, wherever the ring stands. Positions count words and never wrap; `tail` is stored
//! by who has the senders' lock, `head` by the receiver (or, where senders may drop what is oldest, under that lock by either).
//!
//! # Safety
//! The words from `head` to `tail` hold records and are only read; the others belong to who has the senders' lock. A
//! position passes words to the other side: stored with Release after they were used, loaded with Acquire before.

#[cfg(loom)]
use crate::channel::cell::UnsafeCell;
use crate::prim::{AtomicUsize, Ordering, prefetch};
use crate::shard::CachePadded;

const WORD: usize = 8;
/// In place of a length: the next record is at the start of the memory.
const SKIP: u64 = u64::MAX;

pub struct Ring {
    /// Words that may be in use.
    limit: usize,
    words: Box<[std::cell::UnsafeCell<u64>]>,
    /// What loom watches in place of the words.
    #[cfg(loom)]
    watched: Vec<UnsafeCell<()>>,
    tail: CachePadded<AtomicUsize>,
    head: CachePadded<AtomicUsize>,
}

// SAFETY: see the module.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

/// A record in the ring.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// The word at which its bytes begin.
    at: usize,
    bytes: usize,
    /// The position behind it.
    pub next: usize,
}

/// Words of a record of so many bytes.
pub fn words_of(bytes: usize) -> usize {
    1 + bytes.div_ceil(WORD)
}

impl Ring {
    /// Of so many bytes, rounded up to words.
    pub fn new(bytes: usize) -> Self {
        let limit = bytes.div_ceil(WORD).max(2);
        let count = 2 * limit;
        Self {
            limit,
            words: (0..count).map(|_| std::cell::UnsafeCell::new(0)).collect(),
            #[cfg(loom)]
            watched: (0..count).map(|_| UnsafeCell::new(())).collect(),
            tail: CachePadded::new(AtomicUsize::new(0)),
            head: CachePadded::new(AtomicUsize::new(0)),
        }
    }

    /// Bytes of the longest message.
    pub fn longest(&self) -> usize {
        (self.limit - 1) * WORD
    }

    /// Bytes in use, at some moment.
    #[cfg(not(loom))]
    pub fn used(&self) -> usize {
        // Acquire: the tail is at least that. pairs: mailbox.head
        let head = self.head.load(Ordering::Acquire);
        self.tail.load(Ordering::Relaxed).wrapping_sub(head).min(self.words.len()) * WORD
    }

    #[cfg(not(loom))]
    fn touch(&self, _: usize, _: usize, _: bool) {}

    #[cfg(loom)]
    fn touch(&self, first: usize, count: usize, writes: bool) {
        for watched in &self.watched[first..first + count] {
            if writes {
                watched.with_mut(|_| ());
            } else {
                watched.with(|_| ());
            }
        }
    }

    /// Where a record of so many words would go: words to skip, and its place. `None`: there is no room.
    fn place(&self, tail: usize, head: usize, count: usize) -> Option<(usize, usize)> {
        let len = self.words.len();
        let used = tail.wrapping_sub(head);
        let at = tail % len;
        let skip = if at + count <= len { 0 } else { len - at };
        let fits = used + count <= self.limit && used + skip + count <= len;
        fits.then_some((skip, if skip == 0 { at } else { 0 }))
    }

    fn head(&self) -> usize {
        // Acquire: the words were left before. pairs: mailbox.head
        self.head.load(Ordering::Acquire)
    }

    /// Whether a message of so many bytes would find room. With nothing in it, any that is not too long does.
    pub fn has_room(&self, bytes: usize) -> bool {
        // In this order: without the lock, a head that was read after the tail could be past it.
        let head = self.head();
        self.place(self.tail.load(Ordering::Relaxed), head, words_of(bytes)).is_some()
    }

    /// Appends a record that `write` fills, if there is room. `write` does not panic. `seen` is the head that the senders last saw:
    /// its line, which the receiver writes to, is looked at only when there is no room otherwise.
    ///
    /// # Safety
    /// The caller has the senders' lock.
    pub unsafe fn push(&self, seen: &mut usize, bytes: usize, write: impl FnOnce(&mut [u8])) -> bool {
        let (tail, count) = (self.tail.load(Ordering::Relaxed), words_of(bytes));
        let place = self.place(tail, *seen, count).or_else(|| {
            *seen = self.head();
            self.place(tail, *seen, count)
        });
        let Some((skip, at)) = place else { return false };
        // SAFETY: words that are free; the caller's lock.
        unsafe {
            if skip != 0 {
                self.touch(tail % self.words.len(), 1, true);
                *self.words[tail % self.words.len()].get() = SKIP;
            }
            self.touch(at, count, true);
            *self.words[at].get() = bytes as u64;
            write(std::slice::from_raw_parts_mut(self.words.as_ptr().add(at + 1).cast_mut().cast(), bytes));
        }
        // Release: the record was written before. pairs: mailbox.tail
        self.tail.store(tail.wrapping_add(skip + count), Ordering::Release);
        true
    }

    /// What makes [`front`](Self::front) look at the tail: for where others move the head too.
    #[cfg(not(loom))]
    pub fn nothing_seen(&self) -> usize {
        self.head.load(Ordering::Relaxed)
    }

    /// Whether there is a record.
    pub fn is_empty(&self) -> bool {
        // Acquire: as in `front`. pairs: mailbox.tail
        self.head.load(Ordering::Relaxed) == self.tail.load(Ordering::Acquire)
    }

    /// The first record. `seen` is the tail that the caller last saw: the senders' line is looked at only when all before that
    /// has been received.
    ///
    /// # Safety
    /// The caller is who may move the head, and nobody else has moved it past `seen`.
    pub unsafe fn front(&self, seen: &mut usize) -> Option<Record> {
        let mut head = self.head.load(Ordering::Relaxed);
        if head == *seen {
            // Acquire: the records were written before. pairs: mailbox.tail
            *seen = self.tail.load(Ordering::Acquire);
            if head == *seen {
                return None;
            }
        }
        let mut at = head % self.words.len();
        // SAFETY: a record is there, and stays until the head moves.
        unsafe {
            self.touch(at, 1, false);
            if *self.words[at].get() == SKIP {
                head = head.wrapping_add(self.words.len() - at);
                at = 0;
                self.touch(at, 1, false);
            }
            let bytes = *self.words[at].get() as usize;
            self.fetch_ahead(head, words_of(bytes), *seen);
            Some(Record { at: at + 1, bytes, next: head.wrapping_add(words_of(bytes)) })
        }
    }

    /// Asks for the lines of a record that will be read soon, if it is as long as this one, of so many words. Where it begins is
    /// known only when those before have come from the other CPU, so without this they come one by one.
    fn fetch_ahead(&self, position: usize, words: usize, seen: usize) {
        // In words: 2 KiB. Long records are in the cache's own hands.
        const AHEAD: usize = 256;
        const LONGEST: usize = 128;
        const LINE: usize = 8;
        if words <= LONGEST && seen.wrapping_sub(position) > AHEAD + words {
            let first = position.wrapping_add(AHEAD) % self.words.len();
            for word in (first..(first + words).min(self.words.len())).step_by(LINE) {
                prefetch(self.words[word].get());
            }
        }
    }

    /// A record's bytes.
    ///
    /// # Safety
    /// [`front`](Self::front) answered it, and the head has not moved since, nor does it while the bytes are used.
    pub unsafe fn bytes(&self, record: Record) -> &[u8] {
        self.touch(record.at - 1, words_of(record.bytes), false);
        // SAFETY: the caller's.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().add(record.at).cast::<u8>(), record.bytes) }
    }

    /// Leaves the records before that position.
    ///
    /// # Safety
    /// As [`front`](Self::front), which answered the position.
    pub unsafe fn leave(&self, position: usize) {
        // Release: we are done with the records. pairs: mailbox.head
        self.head.store(position, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod models {
    use std::sync::Arc;

    use super::*;

    /// Records of different lengths wrap around while they are read.
    #[test]
    fn records_are_whole() {
        loom::model(|| {
            let ring = Arc::new(Ring::new(24));
            let shared = ring.clone();
            let thread = loom::thread::spawn(move || {
                let mut seen = 0;
                for n in 1..=3u8 {
                    let bytes = usize::from(n) * 4;
                    // SAFETY: the model's only sender.
                    while !unsafe { shared.push(&mut seen, bytes, |out| out.fill(n)) } {
                        loom::thread::yield_now();
                    }
                }
            });
            let (mut n, mut seen) = (1u8, 0);
            while n <= 3 {
                // SAFETY: the model's only receiver.
                unsafe {
                    match ring.front(&mut seen) {
                        None => loom::thread::yield_now(),
                        Some(record) => {
                            let bytes = ring.bytes(record);
                            assert_eq!((bytes.len(), bytes[0]), (usize::from(n) * 4, n));
                            ring.leave(record.next);
                            n += 1;
                        }
                    }
                }
            }
            thread.join().unwrap();
            assert!(ring.is_empty());
        });
    }

    /// Who waits for room asks without the lock, while both ends move. (The head was once read after the tail, and past it.)
    #[test]
    fn room_may_be_asked_at_any_time() {
        loom::model(|| {
            let ring = Arc::new(Ring::new(24));
            let asked = ring.clone();
            let thread = loom::thread::spawn(move || assert!(!asked.has_room(asked.longest() + 1)));
            let mut seen = [0; 2];
            for _ in 0..2 {
                // SAFETY: the model's only sender and only receiver.
                unsafe {
                    assert!(ring.push(&mut seen[0], 4, |out| out.fill(1)));
                    let record = ring.front(&mut seen[1]).unwrap();
                    ring.leave(record.next);
                }
            }
            thread.join().unwrap();
        });
    }
}
