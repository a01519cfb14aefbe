//! Where what lies in the file that the detector and `heddle sharing run` share. All values are 64-bit words.

/// First word of the file, written by the parent.
pub const MAGIC: u64 = 0x3173_6765_6c64_6465;
/// The version of the stub's table and of this layout.
pub const VERSION: u32 = 1;
/// The environment variable that names the file's descriptor.
pub const VARIABLE: &core::ffi::CStr = c"HEDDLE_SHARING";

/// Bytes per cache line.
pub const LINE: usize = 64;

/// Words of the header.
pub mod header {
    /// [`super::MAGIC`].
    pub const MAGIC: usize = 0;
    /// Modules whose stub has found the detector.
    pub const ATTACHED: usize = 1;
    /// Modules built for another version.
    pub const FOREIGN: usize = 2;
    /// Threads so far.
    pub const THREADS: usize = 3;
    /// Records used so far.
    pub const RECORDS: usize = 4;
    /// Allocation sites so far.
    pub const SITES: usize = 5;
    /// Modules listed.
    pub const MODULES: usize = 6;
    /// Lines that could not be watched because all records are in use.
    pub const MISSED_LINES: usize = 7;
    /// Threads that could not be watched because too many run at once.
    pub const MISSED_THREADS: usize = 8;
    /// Ownership changes (false ones) from which a line is kept; written by the parent.
    pub const THRESHOLD: usize = 9;
    /// Child processes that the program made by `fork` and that are not watched.
    pub const FORKS: usize = 10;
    /// Accesses of all threads, to whatever memory; those since a running thread's last pause are missing.
    pub const ACCESSES: usize = 11;
}
/// Words of the header in all.
pub const HEADER_WORDS: usize = 512;

/// Words of a module: base address, end address, path (NUL-terminated bytes).
pub const MODULE_WORDS: usize = 128;
/// Where the modules begin, in words.
pub const MODULES_AT: usize = HEADER_WORDS;
/// As many modules are listed.
pub const MAX_MODULES: usize = 128;

/// Words of a thread: the site it was made at plus 1, its start function.
pub const THREAD_WORDS: usize = 2;
/// Where the threads begin.
pub const THREADS_AT: usize = MODULES_AT + MAX_MODULES * MODULE_WORDS;
/// As many threads, in order of creation, have an entry.
pub const MAX_THREADS: usize = 1 << 16;

/// Words of a site: hash, then [`SITE_PCS`] return addresses, innermost first, ended by 0.
pub const SITE_WORDS: usize = 16;
/// Return addresses of a site.
pub const SITE_PCS: usize = 8;
/// Where the sites begin.
pub const SITES_AT: usize = THREADS_AT + MAX_THREADS * THREAD_WORDS;
/// As many different sites have an entry.
pub const MAX_SITES: usize = 1 << 14;

/// Words of a record, one per watched line.
pub mod record {
    /// The line's number: its address divided by 64.
    pub const LINE: usize = 0;
    /// 0: not in use, 1: in use, 2: its memory was given back.
    pub const STATE: usize = 1;
    /// How often this record was used for another line before.
    pub const GENERATION: usize = 2;
    /// 1 while somebody changes the words down to `PATIENCE`.
    pub const LOCK: usize = 3;
    /// The slot that wrote last, plus 1.
    pub const WRITER: usize = 4;
    /// The bytes that it wrote since nobody else had.
    pub const WRITTEN: usize = 5;
    /// One bit per slot: who else has read since then.
    pub const READERS: usize = 6;
    /// Ownership changes whose two sides used different bytes.
    pub const FALSE: usize = 7;
    /// Those whose sides used the same bytes.
    pub const TRUE: usize = 8;
    /// CPU time that the process had used at the first ownership change (ns).
    pub const FIRST: usize = 9;
    /// And at the last one, or shortly before it.
    pub const LAST: usize = 10;
    /// Accesses since the last one or the last yield.
    pub const QUIET: usize = 11;
    /// Give the CPU to another thread after so many.
    pub const PATIENCE: usize = 12;
    /// The last writer took the line for other bytes than these, which the other side had used.
    pub const TAKEN: usize = 13;
    /// Accesses by threads beyond the slots.
    pub const OTHERS: usize = 14;
    /// Four allocations that overlap the line: address, size, site plus 1, thread plus 1.
    pub const OBJECTS: usize = 16;
    /// As many.
    pub const MAX_OBJECTS: usize = 4;
    /// Whose stack the line is in: thread plus 1.
    pub const STACK: usize = 32;
    /// Where the slots begin.
    pub const SLOTS: usize = 64;
    /// As many threads are told apart.
    pub const MAX_SLOTS: usize = 32;
}

/// Words of a slot: what one thread did to the line.
pub mod slot {
    /// Thread number plus 1, times 65536, plus its place in the table of running threads.
    pub const THREAD: usize = 0;
    /// Bytes read.
    pub const READ: usize = 1;
    /// Bytes written.
    pub const WRITTEN: usize = 2;
    /// Reads.
    pub const READS: usize = 3;
    /// Writes.
    pub const WRITES: usize = 4;
    /// Bytes read since it last had to fetch the line; the record's lock protects it.
    pub const RESIDENT: usize = 5;
    /// Ownership changes that this thread caused, false ones.
    pub const FALSE: usize = 6;
    /// And true ones.
    pub const TRUE: usize = 7;
    /// Where the places begin.
    pub const PLACES: usize = 8;
    /// As many places.
    pub const MAX_PLACES: usize = 6;
    /// Words of a place: return address, what (see [`super::what`]), count, caller of the function.
    pub const PLACE_WORDS: usize = 4;
}
/// Words of a slot in all.
pub const SLOT_WORDS: usize = slot::PLACES + slot::MAX_PLACES * slot::PLACE_WORDS;
/// Words of a record in all.
pub const RECORD_WORDS: usize = record::SLOTS + record::MAX_SLOTS * SLOT_WORDS;
/// Where the records begin.
pub const RECORDS_AT: usize = SITES_AT + MAX_SITES * SITE_WORDS;
/// As many lines are watched at a time.
pub const MAX_RECORDS: usize = 1 << 14;
/// Words of the file.
pub const WORDS: usize = RECORDS_AT + MAX_RECORDS * RECORD_WORDS;

/// A write.
pub const WRITE: u32 = 1;
/// An atomic operation.
pub const ATOMIC: u32 = 2;

/// What a place does: flags, offset in the line and size, as one word.
pub fn what(flags: u32, offset: usize, size: usize) -> u64 {
    u64::from(flags) | (offset as u64) << 8 | (size as u64) << 16
}

/// The other way round: flags, offset, size.
pub fn unpack(what: u64) -> (u32, usize, usize) {
    ((what & 0xff) as u32, (what >> 8 & 0xff) as usize, (what >> 16 & 0xff) as usize)
}
