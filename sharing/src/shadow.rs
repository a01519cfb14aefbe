//! What is known about each cache line.
//!
//! A table with one word per line (by its low address bits) says which thread used the line last and whether it wrote: a
//! thread that keeps to its own lines is done after one load and one comparison. A line that threads took from each other
//! twice gets a record, in which every thread has a slot of its own (bytes, counts, places), and all share the state that a
//! coherence protocol would give the line: who wrote it last, who has read it since, and which bytes. An access that would
//! fetch or take the line from another running thread is an ownership change: a true one if the other side used the same
//! bytes meanwhile, a false one if not (the classes of Dubois et al., "The detection and elimination of useless misses in
//! multiprocessors", ISCA 1993).

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::layout::{
    LINE, MAX_RECORDS, RECORD_WORDS, RECORDS_AT, SLOT_WORDS, WORDS, WRITE, header, record, slot, what,
};
use crate::sys;
use crate::thread::{CACHE, FIRST_PAUSE, Thread};

/// Lines that the filter tells apart: those of 1 GiB in a row.
pub const FILTER_LINES: usize = 1 << 24;

/// Filter word: who used the line last (its place in the table of threads, plus 1).
const OWNER: u64 = 0xffff;
/// Several threads have read it and nobody has written since.
const SHARED: u64 = 0xffff;
/// The owner has written.
const WRITTEN: u64 = 1 << 16;
/// How often the owner changed.
const CHANGE: u64 = 1 << 17;
const CHANGES: u64 = 0x7f << 17;
/// The line's high address bits.
const TAG: u64 = 0x1_ffff << 24;
const TAG_AT: u32 = 24;
const RECORD_AT: u32 = 41;
/// The line has a record, whose number stands in the bits from `RECORD_AT`.
const WATCHED: u64 = 1 << 63;

/// A line is watched after so many changes.
const ENOUGH_CHANGES: u64 = 2;
/// From so many ownership changes on, only one access in `SAMPLE` is looked at for them.
const MANY: u64 = 1 << 16;
const SAMPLE: u64 = 16;
/// Quiet accesses before others are given the CPU.
const PATIENCE: u64 = 256;
/// It doubles each time that did not help, up to here.
const MAX_PATIENCE: u64 = 1 << 16;
/// From here on the thread sleeps longer.
const PAUSE_FROM: u64 = 4 * PATIENCE;
/// After so many ownership changes there is no doubt any more, and the patience begins at `MUCH_PATIENCE`.
const NO_DOUBT: u64 = 1000;
const MUCH_PATIENCE: u64 = 1 << 14;
/// Attempts at a record's lock. Whoever holds it keeps it for some 50 instructions, unless it was preempted.
const ATTEMPTS: u32 = 100;

/// What the accessing thread should do after an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// Go on.
    Nothing,
    /// Let others run: somebody else may want the line.
    Nap,
    /// Sleep until others have surely run.
    Pause,
}

/// An access to bytes of one line.
#[derive(Clone, Copy)]
struct Access {
    line: usize,
    offset: usize,
    size: usize,
    caller: usize,
    flags: u32,
}

impl Access {
    fn mask(self) -> u64 {
        (u64::MAX >> (64 - self.size)) << self.offset
    }

    fn writes(self) -> bool {
        self.flags & WRITE != 0
    }
}

/// Finds what is allocated in a line: calls back with address, size, site plus 1 and thread plus 1.
pub type Objects = fn(line: usize, found: &mut dyn FnMut([u64; 4]));

/// The tables.
pub struct Shadow {
    filter: &'static [AtomicU64; FILTER_LINES],
    file: &'static [AtomicU64; WORDS],
    running: &'static [Thread],
    objects: Objects,
}

/// Adds to a word that only one thread changes at a time.
fn add(word: &AtomicU64, count: u64) {
    word.store(word.load(Relaxed).wrapping_add(count), Relaxed);
}

impl Shadow {
    /// With tables that are all zero.
    pub fn new(
        filter: &'static [AtomicU64; FILTER_LINES],
        file: &'static [AtomicU64; WORDS],
        running: &'static [Thread],
        objects: Objects,
    ) -> Self {
        Self { filter, file, running, objects }
    }

    /// A word of the file.
    pub fn word(&self, at: usize) -> &'static AtomicU64 {
        &self.file[at]
    }

    /// Notes that `me` accesses these bytes.
    #[inline]
    pub fn access(&self, me: &Thread, address: usize, size: usize, caller: usize, flags: u32) -> After {
        let (line, offset) = (address / LINE, address % LINE);
        let left = me.until_pause.load(Relaxed);
        me.until_pause.store(left.wrapping_sub(1), Relaxed);
        if left == 0 {
            return self.pause(me, address, size, caller, flags);
        }
        if offset + size > LINE || size == 0 {
            return self.long_access(me, address, size, caller, flags);
        }
        let seen = self.filter[line % FILTER_LINES].load(Relaxed);
        let mine = Self::tag(line) | me.place.load(Relaxed) as u64;
        if (seen ^ mine) & (TAG | OWNER | WATCHED) == 0 && (seen & WRITTEN != 0 || flags & WRITE == 0) {
            return After::Nothing;
        }
        self.slow(me, seen, Access { line, offset, size, caller, flags })
    }

    /// An access at which the thread pauses.
    #[cold]
    fn pause(&self, me: &Thread, address: usize, size: usize, caller: usize, flags: u32) -> After {
        let last = me.pause.load(Relaxed);
        self.word(header::ACCESSES).fetch_add(last.max(FIRST_PAUSE) as u64, Relaxed);
        let next = last.saturating_mul(2).max(FIRST_PAUSE);
        me.pause.store(next, Relaxed);
        me.until_pause.store(next, Relaxed);
        self.access(me, address, size, caller, flags);
        After::Pause
    }

    /// An access to several lines.
    #[cold]
    fn long_access(&self, me: &Thread, address: usize, size: usize, caller: usize, flags: u32) -> After {
        let end = address.saturating_add(size);
        let (mut at, mut after) = (address, After::Nothing);
        while at < end {
            let next = ((at / LINE + 1) * LINE).min(end);
            match self.access(me, at, next - at, caller, flags) {
                After::Nothing => {}
                todo => after = todo,
            }
            at = next;
        }
        after
    }

    fn tag(line: usize) -> u64 {
        ((line / FILTER_LINES) as u64) << TAG_AT & TAG
    }

    /// The filter does not say that all is well.
    #[cold]
    #[inline(never)]
    fn slow(&self, me: &Thread, seen: u64, access: Access) -> After {
        let word = &self.filter[access.line % FILTER_LINES];
        let tag = Self::tag(access.line);
        let mine = tag | me.place.load(Relaxed) as u64 | if access.writes() { WRITTEN } else { 0 };
        let other_line = (seen ^ tag) & TAG != 0;
        if seen & WATCHED != 0 {
            // Another line that shares the filter's word with a watched one goes unseen.
            return if other_line { After::Nothing } else { self.watched(me, (seen >> RECORD_AT) as usize, access) };
        }
        // Whoever loses a race for the word is seen the next time.
        let change = |to: u64| {
            let _ = word.compare_exchange(seen, to, Relaxed, Relaxed);
            After::Nothing
        };
        let owner = seen & OWNER;
        if owner == 0 || other_line {
            return change(mine);
        }
        if owner == mine & OWNER {
            return change(seen | WRITTEN);
        }
        if !access.writes() && seen & WRITTEN == 0 {
            return change(seen & !OWNER | SHARED);
        }
        let runs = owner == SHARED || self.running[owner as usize - 1].serial.load(Relaxed) != 0;
        let changes = (seen & CHANGES) / CHANGE + u64::from(runs);
        if changes < ENOUGH_CHANGES {
            return change(mine | (changes * CHANGE));
        }
        let Some(found) = self.new_record(access.line) else {
            self.word(header::MISSED_LINES).fetch_add(1, Relaxed);
            return change(mine);
        };
        let to = WATCHED | tag | (found as u64) << RECORD_AT;
        // Release: the record is complete before it can be found. pairs: sharing.record
        if word.compare_exchange(seen, to, Release, Relaxed).is_err() {
            self.recycle(found);
        }
        After::Nothing
    }

    fn at(number: usize) -> usize {
        RECORDS_AT + number * RECORD_WORDS
    }

    /// An empty record for this line: one that was given back, or the next that was never used.
    fn new_record(&self, line: usize) -> Option<usize> {
        let state = |number: usize| self.word(Self::at(number) + record::STATE);
        let claim = |number: usize| state(number).compare_exchange(0, 1, Relaxed, Relaxed).is_ok();
        let used = (self.word(header::RECORDS).load(Relaxed) as usize).min(MAX_RECORDS);
        // The few last ones only: a record that is missed is not lost, it waits until all others are used.
        let recent = used.saturating_sub(16)..used;
        let number = match { recent }.find(|&number| claim(number)) {
            Some(number) => number,
            None => loop {
                let next = self.word(header::RECORDS).fetch_add(1, Relaxed) as usize;
                if next >= MAX_RECORDS {
                    // Not to count without end.
                    self.word(header::RECORDS).store(MAX_RECORDS as u64, Relaxed);
                    break (0..MAX_RECORDS).find(|&number| claim(number))?;
                }
                // Another thread may have found it among the last ones just now.
                if claim(next) {
                    break next;
                }
            },
        };
        let at = Self::at(number);
        self.word(at + record::LINE).store(line as u64, Relaxed);
        self.word(at + record::PATIENCE).store(PATIENCE, Relaxed);
        let mut next = at + record::OBJECTS;
        (self.objects)(line, &mut |object| {
            if next < at + record::OBJECTS + 4 * record::MAX_OBJECTS {
                for value in object {
                    self.word(next).store(value, Relaxed);
                    next += 1;
                }
            }
        });
        let inside = |thread: &&Thread| {
            let address = line * LINE;
            (thread.stack.load(Relaxed)..thread.stack_end.load(Relaxed)).contains(&address)
        };
        if let Some(thread) = self.running.iter().find(inside) {
            self.word(at + record::STACK).store(thread.serial.load(Relaxed) as u64, Relaxed);
        }
        Some(number)
    }

    /// Empties a record that nobody will find any more.
    fn recycle(&self, number: usize) {
        let at = Self::at(number);
        for i in 0..record::MAX_SLOTS {
            let slot = at + record::SLOTS + i * SLOT_WORDS;
            if self.word(slot + slot::THREAD).load(Relaxed) == 0 {
                break;
            }
            for i in 0..SLOT_WORDS {
                self.word(slot + i).store(0, Relaxed);
            }
        }
        add(self.word(at + record::GENERATION), 1);
        for i in (record::LOCK..record::SLOTS).chain([record::LINE]) {
            self.word(at + i).store(0, Relaxed);
        }
        self.word(at + record::STATE).store(0, Relaxed);
    }

    /// These bytes are given back: what happens to them next is another object's history.
    pub fn forget(&self, address: usize, size: usize) {
        if size == 0 {
            return;
        }
        for line in address / LINE..=(address + size - 1) / LINE {
            let word = &self.filter[line % FILTER_LINES];
            let seen = word.load(Relaxed);
            if seen == 0 || (seen ^ Self::tag(line)) & TAG != 0 {
                continue;
            }
            // Acquire: the record as its maker left it. pairs: sharing.record
            if word.compare_exchange(seen, 0, Acquire, Relaxed).is_ok() && seen & WATCHED != 0 {
                let number = (seen & !WATCHED) >> RECORD_AT;
                let at = Self::at(number as usize);
                if self.word(at + record::FALSE).load(Relaxed) < self.word(header::THRESHOLD).load(Relaxed) {
                    self.recycle(number as usize);
                } else {
                    self.word(at + record::STATE).store(2, Relaxed);
                }
            }
        }
    }

    /// This thread's slot in a record.
    fn slot(&self, me: &Thread, number: usize) -> Option<usize> {
        let at = Self::at(number);
        let key = (number + 1) << 32 | self.word(at + record::GENERATION).load(Relaxed) as u32 as usize;
        let cached = &me.cache[number % CACHE];
        if cached[0].load(Relaxed) == key {
            return Some(cached[1].load(Relaxed));
        }
        let name = (me.serial.load(Relaxed) << 16 | me.place.load(Relaxed)) as u64;
        let found = (0..record::MAX_SLOTS).find(|i| {
            let owner = self.word(at + record::SLOTS + i * SLOT_WORDS + slot::THREAD);
            match owner.load(Relaxed) {
                0 => owner.compare_exchange(0, name, Relaxed, Relaxed).is_ok(),
                other => other == name,
            }
        })?;
        cached[1].store(found, Relaxed);
        cached[0].store(key, Relaxed);
        Some(found)
    }

    /// Whether the thread that a slot belongs to still runs.
    fn runs(&self, slot: usize) -> bool {
        let name = self.word(slot + slot::THREAD).load(Relaxed);
        let place = (name & 0xffff) as usize;
        place
            .checked_sub(1)
            .and_then(|i| self.running.get(i))
            .is_some_and(|thread| thread.serial.load(Relaxed) as u64 == name >> 16 && name != 0)
    }

    /// An access to a line that has a record.
    fn watched(&self, me: &Thread, number: usize, access: Access) -> After {
        let number = number & (MAX_RECORDS - 1);
        let at = Self::at(number);
        // A word read before the line was given back: the record may be another line's by now.
        if self.word(at + record::LINE).load(Relaxed) != access.line as u64 {
            return After::Nothing;
        }
        let Some(index) = self.slot(me, number) else {
            self.word(at + record::OTHERS).fetch_add(1, Relaxed);
            return After::Nothing;
        };
        let slot = at + record::SLOTS + index * SLOT_WORDS;
        let mask = access.mask();
        let (bytes, count) = if access.writes() { (slot::WRITTEN, slot::WRITES) } else { (slot::READ, slot::READS) };
        let bytes = self.word(slot + bytes);
        if bytes.load(Relaxed) & mask != mask {
            bytes.store(bytes.load(Relaxed) | mask, Relaxed);
        }
        add(self.word(slot + count), 1);
        self.note_place(me, slot, access);

        let changes = self.word(at + record::FALSE).load(Relaxed) + self.word(at + record::TRUE).load(Relaxed);
        if changes > MANY && !self.word(slot + count).load(Relaxed).is_multiple_of(SAMPLE) {
            return After::Nothing;
        }
        let lock = self.word(at + record::LOCK);
        let mut attempts = 0;
        // Acquire: what the last holder left behind. pairs: sharing.lock
        while lock.load(Relaxed) != 0 || lock.compare_exchange_weak(0, 1, Acquire, Relaxed).is_err() {
            attempts += 1;
            if attempts == ATTEMPTS {
                return After::Nothing;
            }
            core::hint::spin_loop();
        }
        let after = self.transition(at, index, mask, access.writes());
        // Release: for the next holder. pairs: sharing.lock
        lock.store(0, Release);
        after
    }

    /// Counts the access at its place in the program.
    fn note_place(&self, me: &Thread, slot: usize, access: Access) {
        let what = what(access.flags, access.offset, access.size);
        for i in 0..slot::MAX_PLACES {
            let place = slot + slot::PLACES + i * slot::PLACE_WORDS;
            let caller = self.word(place).load(Relaxed);
            if caller == 0 {
                self.word(place + 1).store(what, Relaxed);
                self.word(place + 3).store(me.path().next().unwrap_or(0) as u64, Relaxed);
                self.word(place).store(access.caller as u64, Relaxed);
            } else if caller != access.caller as u64 || self.word(place + 1).load(Relaxed) != what {
                continue;
            }
            add(self.word(place + 2), 1);
            return;
        }
    }

    /// The state of the line after an access by slot `index`, under the record's lock.
    fn transition(&self, at: usize, index: usize, mask: u64, writes: bool) -> After {
        let slot_at = |i: usize| at + record::SLOTS + i * SLOT_WORDS;
        let slot = slot_at(index);
        let bit = 1_u64 << index;
        let get = |word: usize| self.word(at + word).load(Relaxed);
        let set = |word: usize, value: u64| self.word(at + word).store(value, Relaxed);
        let resident = self.word(slot + slot::RESIDENT);
        let resident_of = |i: usize| self.word(slot_at(i) + slot::RESIDENT).load(Relaxed);
        let (writer, written, readers) = (get(record::WRITER) as usize, get(record::WRITTEN), get(record::READERS));
        let mine = writer == index + 1;
        let stranger = writer != 0 && !mine && self.runs(slot_at(writer - 1));

        // The bytes that the other side used, if the line has to come from there.
        let mut other: Option<u64> = None;
        if writes {
            if stranger {
                other = Some(written | resident_of(writer - 1));
            }
            let mut rest = readers & !bit;
            while rest != 0 {
                let i = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                if self.runs(slot_at(i)) {
                    other = Some(other.unwrap_or(0) | resident_of(i));
                }
            }
            // It has the line already, fetched for what the other wrote: the same change goes on.
            if stranger && readers & bit != 0 && written & resident.load(Relaxed) != 0 {
                other = other.map(|bytes| bytes | mask);
            }
            if mine && readers & !bit == 0 {
                set(record::WRITTEN, written | mask);
                self.use_taken(at, slot, mask);
            } else {
                let taken = other.filter(|bytes| bytes & mask == 0);
                set(record::TAKEN, taken.unwrap_or(0));
                set(record::WRITER, index as u64 + 1);
                set(record::WRITTEN, mask);
                set(record::READERS, 0);
                resident.store(0, Relaxed);
            }
        } else if mine {
            resident.store(resident.load(Relaxed) | mask, Relaxed);
            self.use_taken(at, slot, mask);
        } else if readers & bit != 0 {
            let before = resident.load(Relaxed);
            resident.store(before | mask, Relaxed);
            // It fetched the line for other bytes, and now uses what the other wrote: the change was a true one.
            if stranger && mask & written != 0 && before & written == 0 {
                self.count_over(at, slot);
            }
        } else {
            if stranger {
                other = Some(written);
            }
            set(record::READERS, readers | bit);
            resident.store(mask, Relaxed);
        }

        let Some(other) = other else { return self.quiet(at) };
        let same = other & mask != 0;
        add(self.word(at + if same { record::TRUE } else { record::FALSE }), 1);
        add(self.word(slot + if same { slot::TRUE } else { slot::FALSE }), 1);
        let changes = get(record::FALSE) + get(record::TRUE);
        // The clock is a system call.
        if changes < SAMPLE || changes.is_multiple_of(SAMPLE) {
            let now = sys::cpu_time();
            if get(record::FIRST) == 0 {
                set(record::FIRST, now);
            }
            set(record::LAST, now);
        }
        set(record::QUIET, 0);
        set(record::PATIENCE, if changes < NO_DOUBT { PATIENCE } else { MUCH_PATIENCE });
        After::Nothing
    }

    /// A false change turns out to have been a true one.
    fn count_over(&self, at: usize, slot: usize) {
        for (base, fields) in [(at, [record::FALSE, record::TRUE]), (slot, [slot::FALSE, slot::TRUE])] {
            let wrong = self.word(base + fields[0]);
            if wrong.load(Relaxed) != 0 {
                add(wrong, u64::MAX);
                add(self.word(base + fields[1]), 1);
            }
        }
    }

    /// The writer uses these bytes too: if the line was taken for others, and these are the other side's, it would have been
    /// taken anyway.
    fn use_taken(&self, at: usize, slot: usize, mask: u64) {
        let taken = self.word(at + record::TAKEN);
        if taken.load(Relaxed) & mask != 0 {
            taken.store(0, Relaxed);
            self.count_over(at, slot);
        }
    }

    /// Nobody else wanted the line. Perhaps nobody else could: then somebody should be let run.
    fn quiet(&self, at: usize) -> After {
        let quiet = self.word(at + record::QUIET);
        let patience = self.word(at + record::PATIENCE);
        add(quiet, 1);
        if quiet.load(Relaxed) < patience.load(Relaxed) {
            return After::Nothing;
        }
        quiet.store(0, Relaxed);
        let waited = patience.load(Relaxed);
        patience.store((waited * 2).min(MAX_PATIENCE), Relaxed);
        if waited < PAUSE_FROM { After::Nap } else { After::Pause }
    }
}

#[cfg(test)]
mod tests;
