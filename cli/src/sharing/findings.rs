//! What the detector left behind, and which of its lines are falsely shared.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use heddle_sharing::layout::{
    self, LINE, MAX_MODULES, MAX_RECORDS, MAX_THREADS, MODULE_WORDS, MODULES_AT, RECORD_WORDS, RECORDS_AT, SITE_PCS,
    SITE_WORDS, SITES_AT, SLOT_WORDS, THREAD_WORDS, THREADS_AT, WRITE, header, record, slot,
};

/// What a thread does from a place less often than this share (one of so many) of all that it does to the line tells
/// nothing about the line: a result stored at the end, a flag set once, a node linked in.
const RARE: u64 = 100;
/// A thread takes part if it caused at least this share (one of so many) of a line's ownership changes.
const SHARE: u64 = 100;
/// Lines with fewer changes than this per second of CPU time cost next to nothing.
const SLOWEST: u64 = 10;

/// All of it.
pub struct Findings {
    /// Modules that the detector got into.
    pub attached: u64,
    /// Modules built for another version.
    pub foreign: u64,
    /// Lines that could not be watched.
    pub missed_lines: u64,
    /// Threads that could not be watched.
    pub missed_threads: u64,
    /// Forked child processes.
    pub forks: u64,
    /// Threads in all.
    pub threads: u64,
    /// Accesses of all threads to whatever memory, at least.
    pub accesses: u64,
    /// What was loaded.
    pub modules: Vec<Module>,
    /// The falsely shared lines, the busiest first.
    pub lines: Vec<Line>,
}

/// The program or a library.
pub struct Module {
    /// Where it was loaded.
    pub base: u64,
    /// Its end.
    pub end: u64,
    /// Its file.
    pub path: PathBuf,
}

/// A watched line.
pub struct Line {
    /// Its address.
    pub address: u64,
    /// Whether its memory was given back.
    pub freed: bool,
    /// Ownership changes between threads that used different bytes.
    pub false_changes: u64,
    /// And between threads that used the same.
    pub true_changes: u64,
    /// Nanoseconds of CPU time from the first change to the last.
    pub lasted: u64,
    /// The blocks in it.
    pub blocks: Vec<Block>,
    /// The thread whose stack it is in.
    pub stack: Option<u64>,
    /// The threads that take part.
    pub users: Vec<User>,
}

impl Line {
    /// How often it could change hands at most: each time, somebody other than its busiest user uses it.
    pub fn chances(&self) -> u64 {
        let accesses = |user: &User| user.reads + user.writes;
        let all: u64 = self.users.iter().map(accesses).sum();
        all - self.users.iter().map(accesses).max().unwrap_or(0)
    }
}

/// A block of allocated memory.
pub struct Block {
    /// Its address.
    pub address: u64,
    /// Its size.
    pub size: u64,
    /// Who asked for it, innermost function first.
    pub site: Vec<u64>,
    /// The thread that did.
    pub thread: Option<u64>,
}

/// What a thread did to a line.
pub struct User {
    /// Its number: 0 is the first.
    pub thread: u64,
    /// The function it runs.
    pub start: u64,
    /// Who made it.
    pub created: Vec<u64>,
    /// One bit for each byte it read.
    pub read: u64,
    /// And wrote.
    pub written: u64,
    /// How often it read.
    pub reads: u64,
    /// And wrote.
    pub writes: u64,
    /// Ownership changes that it caused.
    pub changes: u64,
    /// From where.
    pub places: Vec<Place>,
}

impl User {
    /// The bytes it used.
    pub fn used(&self) -> u64 {
        self.read | self.written
    }

    /// Forgets what it does rarely, and the bytes that it uses only so.
    fn forget_rare(&mut self) {
        let all = self.reads + self.writes;
        let rare = |place: &Place| place.count * RARE < all;
        // There is room for few places: what is not listed may not be rare.
        let listed: u64 = self.places.iter().map(|place| place.count).sum();
        if all.saturating_sub(listed) * RARE >= all {
            return;
        }
        let bytes = |places: &[Place], writes: bool| {
            let places = places.iter().filter(|place| (place.flags & WRITE != 0) == writes);
            places.fold(0, |bytes, place| bytes | place.bytes())
        };
        self.places.retain(|place| !rare(place));
        (self.read, self.written) = (bytes(&self.places, false), bytes(&self.places, true));
    }
}

/// Where a thread used a line.
#[derive(Clone, Copy)]
pub struct Place {
    /// The return address of the instrumentation's call.
    pub caller: u64,
    /// Where the function around it returns to.
    pub outer: u64,
    /// [`layout::WRITE`] and [`layout::ATOMIC`].
    pub flags: u32,
    /// Offset in the line.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
    /// How often.
    pub count: u64,
}

impl Place {
    /// One bit for each byte.
    fn bytes(&self) -> u64 {
        (u64::MAX >> LINE.saturating_sub(self.size).min(LINE - 1)) << self.offset
    }
}

/// Reads words of the file.
struct Words<'a>(&'a File);

impl Words<'_> {
    fn get(&self, at: usize, count: usize) -> io::Result<Vec<u64>> {
        let mut bytes = vec![0; count * 8];
        self.0.read_exact_at(&mut bytes, at as u64 * 8)?;
        Ok(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    /// The return addresses of a site, by its number plus 1.
    fn site(&self, number: u64) -> io::Result<Vec<u64>> {
        let Some(number) = (number as usize).checked_sub(1).filter(|&number| number < layout::MAX_SITES) else {
            return Ok(Vec::new());
        };
        let words = self.get(SITES_AT + number * SITE_WORDS + 1, SITE_PCS)?;
        Ok(words.into_iter().take_while(|&pc| pc != 0).collect())
    }

    /// The start function of a thread and who made it.
    fn thread(&self, number: u64) -> io::Result<(u64, Vec<u64>)> {
        if number >= MAX_THREADS as u64 {
            return Ok((0, Vec::new()));
        }
        let words = self.get(THREADS_AT + number as usize * THREAD_WORDS, THREAD_WORDS)?;
        Ok((words[1], self.site(words[0])?))
    }

    fn module(words: &[u64]) -> Module {
        let path: Vec<u8> = words[2..].iter().flat_map(|word| word.to_le_bytes()).take_while(|&b| b != 0).collect();
        Module { base: words[0], end: words[1], path: PathBuf::from(OsString::from_vec(path)) }
    }

    fn line(&self, number: usize, threads: &mut HashMap<u64, (u64, Vec<u64>)>) -> io::Result<Option<Line>> {
        let words = self.get(RECORDS_AT + number * RECORD_WORDS, RECORD_WORDS)?;
        if words[record::STATE] == 0 || words[record::FALSE] == 0 {
            return Ok(None);
        }
        let mut line = Line {
            address: words[record::LINE] * LINE as u64,
            freed: words[record::STATE] == 2,
            false_changes: words[record::FALSE],
            true_changes: words[record::TRUE],
            lasted: words[record::LAST].saturating_sub(words[record::FIRST]),
            blocks: Vec::new(),
            stack: words[record::STACK].checked_sub(1),
            users: Vec::new(),
        };
        for block in words[record::OBJECTS..].as_chunks::<4>().0.iter().take(record::MAX_OBJECTS) {
            if block[0] != 0 {
                let (site, thread) = (self.site(block[2])?, block[3].checked_sub(1));
                line.blocks.push(Block { address: block[0], size: block[1], site, thread });
            }
        }
        for words in words[record::SLOTS..].chunks_exact(SLOT_WORDS) {
            let Some(thread) = (words[slot::THREAD] >> 16).checked_sub(1) else { continue };
            let (start, created) = match threads.get(&thread) {
                Some(known) => known.clone(),
                None => threads.entry(thread).or_insert(self.thread(thread)?).clone(),
            };
            let places = words[slot::PLACES..].as_chunks::<4>().0.iter().filter(|place| place[0] != 0);
            let places = places.map(|&[caller, what, count, outer]| {
                let (flags, offset, size) = layout::unpack(what);
                Place { caller, outer, flags, offset, size, count }
            });
            line.users.push(User {
                thread,
                start,
                created,
                read: words[slot::READ],
                written: words[slot::WRITTEN],
                reads: words[slot::READS],
                writes: words[slot::WRITES],
                changes: words[slot::FALSE] + words[slot::TRUE],
                places: places.collect(),
            });
        }
        Ok(Some(line))
    }
}

impl Findings {
    /// Reads the file; keeps the lines that are falsely shared.
    pub fn read(file: &File, threshold: u64) -> io::Result<Self> {
        let words = Words(file);
        let head = words.get(0, layout::HEADER_WORDS)?;
        let count = (head[header::MODULES] as usize).min(MAX_MODULES);
        let modules = words.get(MODULES_AT, count * MODULE_WORDS)?;
        let mut threads = HashMap::new();
        let mut lines = Vec::new();
        for number in 0..(head[header::RECORDS] as usize).min(MAX_RECORDS) {
            lines.extend(words.line(number, &mut threads)?.and_then(|line| falsely_shared(line, threshold)));
        }
        lines.sort_by_key(|line| (u64::MAX - line.false_changes, line.address));
        Ok(Self {
            attached: head[header::ATTACHED],
            foreign: head[header::FOREIGN],
            missed_lines: head[header::MISSED_LINES],
            missed_threads: head[header::MISSED_THREADS],
            forks: head[header::FORKS],
            threads: head[header::THREADS],
            accesses: head[header::ACCESSES],
            modules: modules.chunks_exact(MODULE_WORDS).map(Words::module).collect(),
            lines,
        })
    }
}

/// The line with those threads that take part, if they share it falsely: often and fast enough, mostly through different
/// bytes, and with bytes that one of them writes and another leaves alone. (Threads that use the same bytes under a lock
/// change owners for different bytes now and then; on the whole each of them uses all.)
fn falsely_shared(mut line: Line, threshold: u64) -> Option<Line> {
    let changes = line.false_changes + line.true_changes;
    if line.false_changes < threshold || line.false_changes < line.true_changes {
        return None;
    }
    if u128::from(line.lasted) * u128::from(SLOWEST) > u128::from(changes) * 1_000_000_000 {
        return None;
    }
    line.users.iter_mut().for_each(User::forget_rare);
    line.users.retain(|user| user.changes * SHARE >= changes && user.changes != 0);
    let apart = |a: &User, b: &User| a.written & !b.used() != 0 && b.used() & !a.written != 0;
    let users = &line.users;
    let found = users.iter().any(|a| users.iter().any(|b| a.thread != b.thread && apart(a, b)));
    found.then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(thread: u64, read: u64, written: u64, changes: u64) -> User {
        let (reads, writes) = (changes, changes);
        User { thread, start: 0, created: Vec::new(), read, written, reads, writes, changes, places: Vec::new() }
    }

    fn line(false_changes: u64, true_changes: u64, users: Vec<User>) -> Line {
        let (address, freed, lasted) = (64, false, 1_000_000_000);
        Line { address, freed, false_changes, true_changes, lasted, blocks: Vec::new(), stack: None, users }
    }

    fn neighbours() -> Vec<User> {
        vec![user(1, 0xff, 0xff, 500), user(2, 0xff00, 0xff00, 500)]
    }

    #[test]
    fn neighbours_share_falsely() {
        assert_eq!(falsely_shared(line(1000, 0, neighbours()), 100).unwrap().users.len(), 2);
    }

    #[test]
    fn a_reader_beside_a_writer_is_enough() {
        let users = vec![user(1, 0xff, 0, 500), user(2, 0, 0xff00, 500)];
        assert!(falsely_shared(line(1000, 0, users), 100).is_some());
    }

    /// Nodes of a list, two in a line, that all use under a lock: one thread has linked them.
    #[test]
    fn what_was_done_once_does_not_set_threads_apart() {
        let place = |flags, offset, count| Place { caller: 1, outer: 0, flags, offset, size: 8, count };
        let mut users = vec![user(1, 0xff_ff00_00ff, 0xff_ff00_00ff, 500), user(2, 0xff, 0xff, 500)];
        users[0].places = vec![place(0, 0, 500), place(WRITE, 0, 499), place(WRITE, 24, 1)];
        assert!(falsely_shared(line(600, 400, users), 100).is_none());
    }

    #[test]
    fn seldom_and_slow_changes_are_not_worth_a_report() {
        assert!(falsely_shared(line(99, 0, neighbours()), 100).is_none());
        let mut slow = line(1000, 0, neighbours());
        slow.lasted = 1_000_000_000_000;
        assert!(falsely_shared(slow, 100).is_none());
    }

    #[test]
    fn one_who_looks_in_now_and_then_takes_no_part() {
        let mut users = neighbours();
        users.push(user(0, u64::MAX, u64::MAX, 2));
        let line = falsely_shared(line(1000, 2, users), 100).unwrap();
        assert_eq!(line.users.iter().map(|user| user.thread).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn fields_that_all_use_under_a_lock_are_shared_truly() {
        let users = vec![user(1, 0xffff, 0xffff, 500), user(2, 0xffff, 0xffff, 500)];
        assert!(falsely_shared(line(600, 400, users), 100).is_none());
        assert!(falsely_shared(line(400, 600, neighbours()), 100).is_none());
    }
}
