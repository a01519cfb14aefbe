//! What has been rewritten so far, behind one lock.

use super::Entries;
use super::stub::Chunk;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::ops::Range;
use heddle_core::lock::{Guard, SpinLock};
use heddle_core::sys;
use heddle_core::sys::linux;

/// Longest name kept in a report.
const NAME_MAX: usize = 63;
/// Ranges of generated code that are remembered; a compiler at run time has one or two that it opens and shuts by turns.
const REMEMBERED: usize = 16;

/// A rewritten mapping.
pub(super) struct Object {
    pub mapping: Range<usize>,
    /// From the first patched byte to the last.
    pub patched: Range<usize>,
    /// Its stubs; `None` when it has no site.
    pub chunk: Option<Chunk>,
    report: usize,
}

struct Report {
    name: [u8; NAME_MAX],
    name_len: u8,
    /// Mappings that this report counts and that still exist.
    mapped: u32,
    rewritten: u32,
    left: u32,
}

/// The state behind the lock.
pub(super) struct Registry {
    pub entries: Option<Entries>,
    pub skip: Range<usize>,
    /// The path of our own library.
    pub library: Vec<u8>,
    objects: Vec<Object>,
    reports: Vec<Report>,
    /// Where nothing but anonymous memory was when the kernel was asked; see [`Registry::is_anonymous`].
    anonymous: [Range<usize>; REMEMBERED],
    /// Of these, the one that was noted first.
    oldest: usize,
}

impl Registry {
    const fn new() -> Self {
        Self {
            entries: None,
            skip: 0..0,
            library: Vec::new(),
            objects: Vec::new(),
            reports: Vec::new(),
            anonymous: [const { 0..0 }; REMEMBERED],
            oldest: 0,
        }
    }

    /// Whether there is nothing but anonymous memory in the range, and all calls that could have changed it were seen.
    pub fn is_anonymous(&self, range: &Range<usize>) -> bool {
        self.anonymous.iter().any(|a| a.start <= range.start && range.end <= a.end)
    }

    /// The kernel has said that only anonymous memory is there.
    pub fn note_anonymous(&mut self, range: Range<usize>) {
        // The heap, below the program break, shrinks without a call that is seen here.
        // SAFETY: a question.
        if range.start < unsafe { sys!(linux::__NR_brk, 0) } as usize {
            return;
        }
        self.anonymous[self.oldest] = range;
        self.oldest = (self.oldest + 1) % REMEMBERED;
    }

    /// Something else may be there now.
    pub fn changed(&mut self, range: &Range<usize>) {
        for a in self.anonymous.iter_mut().filter(|a| a.start < range.end && range.start < a.end) {
            *a = 0..0;
        }
    }

    /// Notes that `mapping` of the object `name` was dealt with.
    pub fn add(
        &mut self,
        name: &[u8],
        mapping: Range<usize>,
        patched: Range<usize>,
        chunk: Option<Chunk>,
        rewritten: u32,
        left: u32,
    ) {
        let name = &name[..name.len().min(NAME_MAX)];
        let known = self.reports.iter().position(|r| &r.name[..usize::from(r.name_len)] == name);
        let report = known.unwrap_or_else(|| {
            let mut r = Report { name: [0; NAME_MAX], name_len: name.len() as u8, mapped: 0, rewritten: 0, left: 0 };
            r.name[..name.len()].copy_from_slice(name);
            self.reports.push(r);
            self.reports.len() - 1
        });
        let r = &mut self.reports[report];
        if r.mapped == 0 {
            // Loaded again after it was unloaded: not twice as many sites.
            (r.rewritten, r.left) = (0, 0);
        }
        r.mapped += 1;
        r.rewritten += rewritten;
        r.left += left;
        self.objects.push(Object { mapping, patched, chunk, report });
    }

    /// Whether a part of `range` has been rewritten already.
    pub fn overlaps(&self, range: &Range<usize>) -> bool {
        self.objects.iter().any(|o| o.mapping.start < range.end && range.start < o.mapping.end)
    }

    /// Forgets the mappings whose patched part lies in `range`, and frees their stubs.
    pub fn forget(&mut self, range: &Range<usize>) {
        self.changed(range);
        let Registry { objects, reports, .. } = self;
        objects.retain(|o| {
            let part = if o.chunk.is_some() { &o.patched } else { &o.mapping };
            let gone = range.start <= part.start && part.end <= range.end;
            if gone {
                reports[o.report].mapped -= 1;
                if let Some(chunk) = &o.chunk {
                    chunk.free();
                }
            }
            !gone
        });
    }
}

struct Shared(UnsafeCell<Registry>);

// SAFETY: the registry is reached through `Hold` only, which exists once at a time.
unsafe impl Sync for Shared {}

static REGISTRY: Shared = Shared(UnsafeCell::new(Registry::new()));
static LOCK: SpinLock<()> = SpinLock::new(());

/// Exclusive use of the site tables, until dropped.
pub struct Hold(#[expect(dead_code, reason = "a lock's guard")] Guard<'static, ()>);

/// Waits for exclusive use of the site tables. Not from a signal handler.
pub fn hold() -> Hold {
    Hold(LOCK.lock())
}

/// As [`hold`], for a thread that forks, so that the child finds the tables whole and unlocked.
pub fn hold_for_fork() {
    LOCK.hold_for_fork();
}

/// Ends that, in the parent and in the child.
///
/// # Safety
/// The fork is over, or who began it is no more.
pub unsafe fn let_go_after_fork() {
    // SAFETY: the caller's.
    unsafe { LOCK.let_go_after_fork() };
}

impl Hold {
    pub(super) fn registry(&mut self) -> &mut Registry {
        // SAFETY: `Hold` is the lock's token, and it is borrowed mutably.
        unsafe { &mut *REGISTRY.0.get() }
    }
}

/// The mapping of `len` bytes at `start` is going away, or something else is being mapped over it: forgets its sites
/// and reuses its stubs' memory.
pub fn forget(start: usize, len: usize) {
    hold().registry().forget(&(start..start.saturating_add(len)));
}

/// What is in the range is about to be unmapped or moved, or something has been moved there. To be called before, since others
/// may be given the addresses at once, and for `mremap` afterwards too.
pub fn moving(range: Range<usize>) {
    hold().registry().changed(&range);
}

/// Calls `f` for each object with its file name (63 bytes at most), the number of sites rewritten and the number of
/// sites left alone. `[anon]` counts executable mappings without a file, not sites. Not from a signal handler.
pub fn for_each_report(f: &mut dyn FnMut(&[u8], u32, u32)) {
    for r in &hold().registry().reports {
        f(&r.name[..usize::from(r.name_len)], r.rewritten, r.left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_memory_is_remembered_until_something_else_is_mapped_there() {
        const ABOVE: usize = 0x7e00_0000_0000;
        let mut r = Registry::new();
        let at = |range: Range<usize>| ABOVE + range.start..ABOVE + range.end;
        assert!(!r.is_anonymous(&at(0x1000..0x2000)));
        r.note_anonymous(at(0x1000..0x9000));
        r.note_anonymous(at(0x20000..0x30000));
        assert!(r.is_anonymous(&at(0x1000..0x9000)) && r.is_anonymous(&at(0x2000..0x3000)));
        assert!(!r.is_anonymous(&at(0x8000..0xa000)), "a part of it is unknown");
        r.changed(&at(0x9000..0xa000));
        assert!(r.is_anonymous(&at(0x1000..0x9000)), "beside it");
        r.forget(&at(0x8000..0xa000));
        assert!(!r.is_anonymous(&at(0x2000..0x3000)), "unmapped in part: none of it is relied on");
        assert!(r.is_anonymous(&at(0x20000..0x30000)));
        r.note_anonymous(0x1000..0x2000);
        assert!(!r.is_anonymous(&(0x1000..0x2000)), "below the program break");
        let place = |i: usize| at(0x100000 * (i + 1)..0x100000 * (i + 1) + 0x1000);
        (0..REMEMBERED).for_each(|i| r.note_anonymous(place(i)));
        assert!(!r.is_anonymous(&at(0x20000..0x30000)), "the oldest goes");
        assert!((0..REMEMBERED).all(|i| r.is_anonymous(&place(i))));
    }
}
