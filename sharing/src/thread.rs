//! The program's threads: who runs, and on which path through the program's functions.

use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

/// Functions of the path that are kept.
const FRAMES: usize = 64;
/// A thread pauses after so many accesses, after twice as many more, and so on, so that short-lived threads meet at all:
/// the first might be done before the second has begun.
pub const FIRST_PAUSE: usize = 256;
/// Slots whose place a thread remembers.
pub const CACHE: usize = 16;
/// As many threads are watched at once; the rest go unseen and are counted.
pub const MAX_RUNNING: usize = 4096;

/// A running thread. Written by itself (or by its parent before it starts); others read `serial` and the stack's bounds.
#[repr(C)]
pub struct Thread {
    /// What it runs, and with what; `hooks::begin` jumps there, so the first two fields have fixed places.
    pub start: AtomicUsize,
    /// The start function's argument.
    pub argument: AtomicUsize,
    /// Who called `operator new`, for the `malloc` in it; `alloc` has this field's place in its assembly.
    pub new_caller: AtomicUsize,
    /// Thread number plus 1; 0: this entry is free, `usize::MAX`: it is being prepared.
    pub serial: AtomicUsize,
    /// The stack's lowest address.
    pub stack: AtomicUsize,
    /// The end of the stack.
    pub stack_end: AtomicUsize,
    /// This entry's number in the table, plus 1.
    pub place: AtomicUsize,
    /// Accesses until it pauses.
    pub until_pause: AtomicUsize,
    /// The last distance between two pauses.
    pub pause: AtomicUsize,
    depth: AtomicUsize,
    frames: [[AtomicUsize; 2]; FRAMES],
    /// Where this thread's slot in a record was: (record, generation) and slot.
    pub cache: [[AtomicUsize; 2]; CACHE],
}

impl Thread {
    /// A free entry.
    pub const fn new() -> Self {
        Self {
            start: AtomicUsize::new(0),
            argument: AtomicUsize::new(0),
            new_caller: AtomicUsize::new(0),
            serial: AtomicUsize::new(0),
            stack: AtomicUsize::new(0),
            stack_end: AtomicUsize::new(0),
            place: AtomicUsize::new(0),
            until_pause: AtomicUsize::new(0),
            pause: AtomicUsize::new(0),
            depth: AtomicUsize::new(0),
            frames: [const { [const { AtomicUsize::new(0) }; 2] }; FRAMES],
            cache: [const { [const { AtomicUsize::new(0) }; 2] }; CACHE],
        }
    }

    /// Makes a claimed entry a thread's own.
    pub fn prepare(&self, place: usize, serial: usize) {
        for field in [&self.start, &self.argument, &self.new_caller, &self.stack, &self.stack_end, &self.depth] {
            field.store(0, Relaxed);
        }
        self.pause.store(0, Relaxed);
        self.until_pause.store(FIRST_PAUSE, Relaxed);
        for entry in &self.cache {
            entry[0].store(0, Relaxed);
        }
        self.place.store(place + 1, Relaxed);
        self.serial.store(serial + 1, Relaxed);
    }

    /// Accesses since the last pause, or since the thread's begin.
    pub fn since_pause(&self) -> usize {
        self.pause.load(Relaxed).max(FIRST_PAUSE).saturating_sub(self.until_pause.load(Relaxed))
    }

    /// A function begins: `caller` is where it returns to, `sp` its stack pointer. Frames below `sp` were left by
    /// `longjmp`.
    pub fn enter(&self, caller: usize, sp: usize) {
        let mut depth = self.depth.load(Relaxed);
        while (1..=FRAMES).contains(&depth) && self.frames[depth - 1][1].load(Relaxed) <= sp {
            depth -= 1;
        }
        if let Some(frame) = self.frames.get(depth) {
            frame[0].store(caller, Relaxed);
            frame[1].store(sp, Relaxed);
        }
        self.depth.store(depth + 1, Relaxed);
    }

    /// A function ends.
    pub fn leave(&self) {
        self.depth.store(self.depth.load(Relaxed).saturating_sub(1), Relaxed);
    }

    /// Where the innermost functions return to, innermost first.
    pub fn path(&self) -> impl Iterator<Item = usize> {
        let depth = self.depth.load(Relaxed).min(FRAMES);
        self.frames[..depth].iter().rev().map(|frame| frame[0].load(Relaxed))
    }
}

impl Default for Thread {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_follows_calls_returns_and_jumps() {
        let thread = Thread::new();
        thread.enter(1, 1000);
        thread.enter(2, 900);
        thread.enter(3, 800);
        assert_eq!(thread.path().collect::<Vec<_>>(), [3, 2, 1]);
        thread.leave();
        assert_eq!(thread.path().collect::<Vec<_>>(), [2, 1]);
        thread.enter(4, 700);
        thread.enter(5, 600);
        // A longjmp to the function at 900, which calls again.
        thread.enter(6, 850);
        assert_eq!(thread.path().collect::<Vec<_>>(), [6, 2, 1]);
    }

    #[test]
    fn a_deep_path_keeps_its_outer_part() {
        let thread = Thread::new();
        for i in 0..100 {
            thread.enter(i, 100_000 - i);
        }
        assert_eq!(thread.path().count(), FRAMES);
        for _ in 0..99 {
            thread.leave();
        }
        assert_eq!(thread.path().collect::<Vec<_>>(), [0]);
        thread.leave();
        thread.leave();
        assert_eq!(thread.path().count(), 0);
    }
}
