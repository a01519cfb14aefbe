//! The ring of a mailbox: records one after the other in memory that the receiver owns.
//!
//! A record is a word with the length of its bytes, and the bytes, rounded up to whole words. The bytes of a long one begin on a
//! line, and one that does not fit before the end of the memory goes to its start; a word with [`SKIP`] says how many words are left
//! out before it. The memory is more than twice the budget: so a message that is within the budget finds a place in one piece when
//! nothing else is there, wherever the ring stands. Positions count words and never wrap; `tail` is stored
//! by who has the senders' lock, `head` by the receiver (or, where senders may drop what is oldest, under that lock by either).
//!
//! **Why on a line.** `memcpy` leaves copies of 2 KiB and more to the processor (`rep movsb`), and AMD's Zen 4 takes up to twenty
//! times as long for one that begins some bytes behind its original, whole pages not counted. Records that begin at any word meet that now
//! and then: with an original 16 bytes behind a line 64 KiB took 3.3 us on average, and 1.3 when each began on a line.
//!
//! # Safety
//! The words from `head` to `tail` hold records and are only read; the others belong to who has the senders' lock. A
//! position passes words to the other side: stored with Release after they were used, loaded with Acquire before.

#[cfg(loom)]
use crate::channel::cell::UnsafeCell;
use crate::prim::{AtomicUsize, Ordering, prefetch};
use crate::shard::CachePadded;

const WORD: usize = 8;
/// In place of a length, added to a number: so many words are left out, this one included.
const SKIP: u64 = 1 << 63;
/// Words of a line.
const LINE: usize = if cfg!(loom) { 2 } else { 8 };
/// Words of a record that is long.
const LONG: usize = if cfg!(loom) { 3 } else { 2048 / WORD };

/// The words of a line.
#[repr(align(64))]
struct Line([std::cell::UnsafeCell<u64>; LINE]);

pub struct Ring {
    /// Words that may be in use.
    limit: usize,
    lines: Box<[Line]>,
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
        // What is left out is less than the record and two lines: at the end less than the record with what precedes its line there,
        // and at the start what precedes its line.
        let lines = (2 * limit).div_ceil(LINE) + 2;
        Self {
            limit,
            lines: (0..lines).map(|_| Line([const { std::cell::UnsafeCell::new(0) }; LINE])).collect(),
            #[cfg(loom)]
            watched: (0..lines * LINE).map(|_| UnsafeCell::new(())).collect(),
            tail: CachePadded::new(AtomicUsize::new(0)),
            head: CachePadded::new(AtomicUsize::new(0)),
        }
    }

    /// How many words there are.
    fn words(&self) -> usize {
        self.lines.len() * LINE
    }

    /// A word of these, by the address of all: those behind it belong to whoever has it.
    fn word(&self, at: usize) -> *mut u64 {
        debug_assert!(at <= self.words());
        // SAFETY: within the lines, or just behind them.
        unsafe { (&raw const (*self.lines.as_ptr()).0).cast::<u64>().cast_mut().add(at) }
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
        self.tail.load(Ordering::Relaxed).wrapping_sub(head).min(self.words()) * WORD
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

    /// Where a record of so many words would go: words to leave out, and its place. `None`: there is no room.
    fn place(&self, tail: usize, head: usize, count: usize) -> Option<(usize, usize)> {
        let len = self.words();
        let used = tail.wrapping_sub(head);
        // The word behind `at`, where the bytes begin, is on a line.
        let from = |at: usize| if count < LONG { at } else { (at + 1).next_multiple_of(LINE) - 1 };
        let here = tail % len;
        let at = Some(from(here)).filter(|at| at + count <= len).unwrap_or_else(|| from(0));
        let skip = if at < here { len - here + at } else { at - here };
        let fits = used + count <= self.limit && used + skip + count <= len;
        fits.then_some((skip, at))
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
                let here = tail % self.words();
                self.touch(here, 1, true);
                *self.word(here) = SKIP + skip as u64;
            }
            self.touch(at, count, true);
            let word = self.word(at);
            *word = bytes as u64;
            write(std::slice::from_raw_parts_mut(word.add(1).cast(), bytes));
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
        let mut at = head % self.words();
        // SAFETY: a record is there, and stays until the head moves.
        unsafe {
            self.touch(at, 1, false);
            let mut bytes = *self.word(at);
            if bytes >= SKIP {
                head = head.wrapping_add((bytes - SKIP) as usize);
                at = head % self.words();
                self.touch(at, 1, false);
                bytes = *self.word(at);
            }
            let bytes = bytes as usize;
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
        if words <= LONGEST && seen.wrapping_sub(position) > AHEAD + words {
            let first = position.wrapping_add(AHEAD) % self.words();
            for word in (first..(first + words).min(self.words())).step_by(LINE) {
                prefetch(self.word(word));
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
        unsafe { std::slice::from_raw_parts(self.word(record.at).cast::<u8>(), record.bytes) }
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
