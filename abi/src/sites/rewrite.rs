//! Replacing sites by jumps to their stubs.

use super::decode::{self, Reader};
use super::elf::Image;
use super::file::{Fd, File};
use super::find::{self, Found, JUMP, MOVED_MAX, Site};
use super::known::{Identity, Known};
use super::maps::{Mapping, Maps};
use super::registry::{Registry, hold};
use super::stub::{self, Chunk};
use super::{Entries, Error};
use crate::memory;
use crate::words;
use alloc::vec::Vec;
use core::ops::Range;
use heddle_core::sys;
use heddle_core::sys::linux;

const READ: u32 = linux::PROT_READ;
const WRITE: u32 = linux::PROT_WRITE;
const EXEC: u32 = linux::PROT_EXEC;

/// Objects built for baseline x86-64 whose system calls stand in functions with the standard calling convention: at
/// their sites no vector state beyond xmm0-15 is live. For other objects that can't be told from the function alone:
/// a compiler may keep a ymm register across a call when it sees that the callee spares it (GCC's `-fipa-ra`).
const BASELINE: [&[u8]; 7] = [b"libc.so", b"libc-2", b"ld-linux", b"libpthread", b"libgomp", b"libstdc++", b"librt"];

/// A mapping with its stubs made and its text still unchanged.
struct Plan<'a> {
    name: &'a [u8],
    mapping: Range<usize>,
    prot: u32,
    chunk: Option<Chunk>,
    patches: Vec<Patch>,
    left: u32,
}

/// `len` bytes at `at` are to become a jump to `stub`, padded with traps.
pub(super) struct Patch {
    at: usize,
    stub: usize,
    len: u8,
}

/// Has the kernel map all of a text that is to be read from the page cache, in one call instead of a fault for every
/// sixteen pages. Kernels before 5.14 refuse, which does not matter.
fn fill(text: &Range<usize>) {
    let start = text.start & !4095;
    // SAFETY: reads the pages; changes nothing that a program could see.
    unsafe { sys!(linux::__NR_madvise, start, text.end - start, linux::MADV_POPULATE_READ) };
}

/// Whether all pages can be read: a mapping may reach beyond the end of its file, which may have become shorter.
fn is_there(range: &Range<usize>) -> bool {
    (range.start & !4095..range.end).step_by(4096).all(|page| words::load(page).is_some())
}

/// The sites of a mapping of an object: for each executable part, its text and what was found in it.
struct Survey {
    parts: Vec<(Range<usize>, u64, Found)>,
}

impl Survey {
    /// # Safety
    /// `mapping` maps `image`'s file from `offset` on, readable, and does not change meanwhile.
    unsafe fn new(image: &Image, mapping: &Range<usize>, offset: u64) -> Survey {
        // SAFETY: the caller's.
        unsafe { Survey::with(image, mapping, offset, &mut Known::default(), None) }
    }

    /// As `new`, but a text that is known is not searched. `file`: the state that the mapped file is in.
    ///
    /// # Safety
    /// As for `new`.
    unsafe fn with(
        image: &Image,
        mapping: &Range<usize>,
        offset: u64,
        known: &mut Known,
        file: Option<Identity>,
    ) -> Survey {
        let parts = image.executable(offset, mapping.len()).filter_map(|(at, vaddr, len)| {
            let text = mapping.start + at..mapping.start + at + len;
            // SAFETY: the caller vouches for the mapping; the part is within it. Whether the file is that long is asked before it
            // is read, or was when this state of it was searched.
            let bytes = unsafe { core::slice::from_raw_parts(text.start as *const u8, text.len()) };
            let from = offset + at as u64;
            if let Some(found) = file.and_then(|file| known.find(&file, from, bytes)) {
                return Some((text, vaddr, found));
            }
            fill(&text);
            if !is_there(&text) {
                return None;
            }
            let found = find::find(image, bytes, vaddr);
            if let Some(file) = file {
                known.learn(&file, from, bytes, &found);
            }
            Some((text, vaddr, found))
        });
        Survey { parts: parts.collect() }
    }

    fn sites(&self) -> usize {
        self.parts.iter().map(|p| p.2.sites.len()).sum()
    }
}

/// Makes the stubs for what was found in `mapping`.
///
/// # Safety
/// As for `Survey::new`, whose result `survey` is.
unsafe fn plan<'a>(
    name: &'a [u8],
    mapping: Range<usize>,
    prot: u32,
    survey: &Survey,
    entries: &Entries,
    maps: &mut dyn FnMut() -> Result<Maps, i32>,
) -> Result<Plan<'a>, Error> {
    let left = survey.parts.iter().map(|p| p.2.left.len() as u32).sum();
    let mut plan = Plan { name, mapping, prot, chunk: None, patches: Vec::new(), left };
    let count = survey.sites();
    if count == 0 {
        return Ok(plan);
    }
    let mut chunk = Chunk::new(count, &plan.mapping, entries, maps)?;
    let baseline = BASELINE.iter().any(|b| name.starts_with(b)) && !survey.parts.iter().any(|p| p.2.wide);
    plan.patches.reserve(count);
    for (text, _, found) in &survey.parts {
        // SAFETY: the caller vouches for the mapping.
        let bytes = unsafe { core::slice::from_raw_parts(text.start as *const u8, text.len()) };
        for site in &found.sites {
            match patch(&mut chunk, bytes, site, !baseline) {
                Some(patch) => plan.patches.push(patch),
                None => plan.left += 1,
            }
        }
    }
    if let Err(e) = chunk.seal() {
        chunk.free();
        return Err(e);
    }
    plan.chunk = Some(chunk);
    Ok(plan)
}

/// Makes the stub for `site`. `None` when it can't be: an address is out of reach.
pub(super) fn patch(chunk: &mut Chunk, text: &[u8], site: &Site, full: bool) -> Option<Patch> {
    let (start, syscall, end) = (site.start as usize, site.syscall() as usize, site.end() as usize);
    let at = chunk.next_stub();
    let base = text.as_ptr() as usize;
    let mut prefix = [0; MOVED_MAX];
    let mut suffix = [0; MOVED_MAX];
    let prefix = relocate(&text[start..syscall], base + start, stub::prefix_at(at), &mut prefix)?;
    let suffix_at = stub::suffix_at(at, prefix.len());
    let suffix = relocate(&text[syscall + 2..end], base + syscall + 2, suffix_at, &mut suffix)?;
    let stub = chunk.add(base + start, prefix, suffix, full)?;
    // The syscall's own bytes stay when the jump fits before them: a jump to them which nobody could foresee still
    // makes the call.
    let len = if usize::from(site.prefix) >= JUMP { syscall - start } else { end - start };
    Some(Patch { at: base + start, stub, len: len as u8 })
}

/// Writes a jump.
///
/// # Safety
/// The text it goes to is writable, and nothing runs in it.
pub(super) unsafe fn write(p: &Patch) {
    let distance = (p.stub as isize - (p.at + JUMP) as isize) as i32;
    let mut code = [0xcc; MOVED_MAX + 2];
    code[0] = 0xe9;
    code[1..JUMP].copy_from_slice(&distance.to_le_bytes());
    for (i, byte) in code[..usize::from(p.len)].iter().enumerate() {
        // Volatile, so that it doesn't become a call to `memcpy`: the text may be the one that has it.
        // SAFETY: the caller vouches for the text; the window lies in it.
        unsafe { (p.at as *mut u8).add(i).write_volatile(*byte) };
    }
}

/// Copies instructions to `out` so that at address `to` they do what they did at address `from`.
fn relocate<'o>(code: &[u8], from: usize, to: usize, out: &'o mut [u8; MOVED_MAX]) -> Option<&'o [u8]> {
    let out = out.get_mut(..code.len())?;
    out.copy_from_slice(code);
    let mut reader = Reader::new(code, from as u64, 0);
    let mut at = 0;
    while at < code.len() {
        let (insn, _) = reader.next()?;
        if insn.is(decode::RELATIVE) {
            let field = insn.at as usize + reader.displacement()?;
            let field = out.get_mut(field..field + 4)?;
            let old = i32::from_le_bytes([field[0], field[1], field[2], field[3]]);
            let new = i64::from(old) + (from as i64 - to as i64);
            field.copy_from_slice(&i32::try_from(new).ok()?.to_le_bytes());
        }
        at = insn.end() as usize;
    }
    (at == code.len()).then_some(out)
}

impl Plan<'_> {
    /// Makes the text writable, and not executable.
    ///
    /// # Safety
    /// Nothing runs in the mapping until `close` has returned.
    unsafe fn open(&self) -> Result<(), Error> {
        // SAFETY: the caller vouches that nothing needs the text to be executable.
        unsafe { self.protect(READ | WRITE) }
    }

    unsafe fn protect(&self, prot: u32) -> Result<(), Error> {
        // SAFETY: the caller knows what the mapping is used for; its extent is that of a whole mapping.
        sys::check(unsafe { sys!(linux::__NR_mprotect, self.mapping.start, self.mapping.len(), prot) })
            .map(|_| ())
            .map_err(Error::Protect)
    }

    /// Writes the jumps.
    ///
    /// # Safety
    /// The text is writable (`open`), and nothing runs in it.
    unsafe fn write(&self) {
        for p in &self.patches {
            // SAFETY: the caller made the text writable.
            unsafe { write(p) };
        }
    }

    /// Restores the protection of the text. Should the system refuse to make the changed text executable, maps the
    /// unchanged file over it; `file` opens it.
    ///
    /// # Safety
    /// `file` yields a descriptor of the mapped file, which is mapped from `offset` on.
    unsafe fn close(&self, offset: u64, file: impl FnOnce() -> Option<Fd>) -> Result<(), Error> {
        // SAFETY: it is the protection that the mapping had.
        let result = unsafe { self.protect(self.prot) };
        if result.is_err()
            && let Some(fd) = file()
        {
            let flags = linux::MAP_PRIVATE | linux::MAP_FIXED;
            // SAFETY: the same file at the same place: the text as it was before it was changed.
            unsafe { sys!(linux::__NR_mmap, self.mapping.start, self.mapping.len(), self.prot, flags, fd.0, offset) };
        }
        result
    }

    /// The patched part of the mapping.
    fn patched(&self) -> Range<usize> {
        match (self.patches.first(), self.patches.last()) {
            (Some(first), Some(last)) => first.at..last.at + usize::from(last.len),
            _ => self.mapping.start..self.mapping.start,
        }
    }

    fn register(self, registry: &mut Registry) {
        let patched = self.patched();
        registry.add(self.name, self.mapping, patched, self.chunk, self.patches.len() as u32, self.left);
    }

    /// Gives up: the sites stay as they are.
    fn abandon(mut self, registry: &mut Registry) {
        if let Some(chunk) = self.chunk.take() {
            chunk.free();
        }
        self.left += self.patches.len() as u32;
        self.patches.clear();
        self.register(registry);
    }
}

/// Tries on a scratch mapping of a page of `m`'s file whether changed code may become executable.
fn probe(maps: &Maps, m: &Mapping) -> Result<(), Error> {
    let Some(fd) = Fd::open(maps.path(m)) else { return Ok(()) };
    // SAFETY: a new mapping, which is used and removed here only.
    let page = sys::check(unsafe { sys!(linux::__NR_mmap, 0, 4096, READ | WRITE, linux::MAP_PRIVATE, fd.0, m.offset) });
    drop(fd);
    let page = page.map_err(Error::Protect)?;
    // SAFETY: the page was mapped above: a private, writable one of a file that is longer than its offset.
    let result = unsafe {
        let first = page as *mut u8;
        first.write_volatile(first.read_volatile());
        let result = sys::check(sys!(linux::__NR_mprotect, page, 4096, READ | EXEC));
        sys!(linux::__NR_munmap, page, 4096);
        result
    };
    result.map(|_| ()).map_err(Error::Protect)
}

/// Takes the pages of `mapping`, whose text has been searched, out of the page tables again, but for those that have been
/// changed (by a debugger, say, or by the loader): a fork copies an entry for each page of a mapping with changed pages, and
/// the search has made one for every page that there is.
///
/// # Safety
/// `mapping` maps a file, privately.
pub(super) unsafe fn empty(mapping: &Range<usize>) {
    const PAGE: usize = 4096;
    let Some(pages) = Fd::open(b"/proc/self/pagemap") else { return };
    let mut entries = [0u64; 512];
    let mut start = mapping.start;
    while start < mapping.end {
        let count = entries.len().min((mapping.end - start) / PAGE);
        // SAFETY: the kernel writes at most as many bytes as the array has.
        let read = sys::check(unsafe {
            sys!(linux::__NR_pread64, pages.0, entries.as_mut_ptr(), 8 * count, start / PAGE * 8)
        });
        if read != Ok(8 * count) || count == 0 {
            return;
        }
        for same in entries[..count].chunk_by(|a, b| is_the_files(*a) == is_the_files(*b)) {
            let length = same.len() * PAGE;
            if is_the_files(same[0]) {
                // SAFETY: these pages are the file's, which are found again when somebody looks.
                unsafe { sys!(linux::__NR_madvise, start, length, linux::MADV_DONTNEED) };
            }
            start += length;
        }
    }
}

/// Whether a page of a private mapping, as `/proc/self/pagemap` tells of it, is the file's own, or not there.
fn is_the_files(entry: u64) -> bool {
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const FILE: u64 = 1 << 61;
    entry & (PRESENT | SWAPPED) == 0 || entry & FILE != 0
}

/// The last part of a path.
fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&b| b == b'/').next().unwrap_or(path)
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Rewrites every object that is mapped now, but for those in `skip`, the addresses of our own library.
///
/// All or nothing: when the system refuses, nothing has been changed. Sites that can't be replaced, and executable
/// memory that belongs to no file (generated code), are left to the kernel and counted.
///
/// # Safety
/// There is one thread, and it executes no code outside `skip` until this returns. The entries follow the protocol of
/// the stubs. Called once.
pub unsafe fn rewrite_all(entries: Entries, skip: Range<usize>) -> Result<(), Error> {
    let mut hold = hold();
    let registry = hold.registry();
    // SAFETY: the first to make stubs.
    unsafe { stub::use_first_area() }?;
    let maps = Maps::read().map_err(Error::ReadMaps)?;
    if let Some(own) = maps.list.iter().find(|m| overlap(&m.range, &skip)) {
        registry.library = maps.path(own).to_vec();
    }
    let mut known = Known::read(&registry.library);
    let wanted = |m: &&Mapping| m.prot & EXEC != 0 && m.inode != 0 && m.private && !overlap(&m.range, &skip);
    let mut plans: Vec<(Plan, &Mapping)> = Vec::new();
    let mut result = Ok(());
    for m in maps.list.iter().filter(wanted).filter(|m| m.prot & READ != 0) {
        // SAFETY: there is no other thread that could change a mapping.
        let made = unsafe {
            let Some(image) = Image::loaded(&maps, m) else { continue };
            if image.is_go() {
                let mut name = [0; 48];
                file_name(maps.path(m)).iter().take(47).zip(&mut name).for_each(|(&from, to)| *to = from);
                result = Err(Error::Go(name));
                break;
            }
            let file = known.identity(m.range.len(), || Identity::at(maps.path(m), m.inode, image.beginning()));
            let survey = Survey::with(&image, &m.range, m.offset, &mut known, file);
            // A reservation changes the mappings.
            let mut now = || Maps::read();
            plan(file_name(maps.path(m)), m.range.clone(), m.prot, &survey, &entries, &mut now)
        };
        match made {
            Ok(plan) => plans.push((plan, m)),
            Err(e) => {
                result = Err(e);
                break;
            }
        }
    }
    if result.is_ok()
        && let Some((_, m)) = plans.iter().find(|(p, _)| p.chunk.is_some())
    {
        result = probe(&maps, m);
    }
    if result.is_ok() {
        // SAFETY: the caller vouches that nothing runs in these mappings meanwhile.
        result = unsafe { apply(&plans, &maps) };
    }
    for (plan, _) in plans {
        match result {
            Ok(()) if plan.chunk.is_some() || plan.left > 0 => plan.register(registry),
            Ok(()) => {}
            Err(_) => plan.chunk.iter().for_each(Chunk::free),
        }
    }
    result?;
    known.save();
    // Those that were shared before their `mmap` could be seen.
    for m in maps.list.iter().filter(|m| !m.private && !is_kernels(maps.path(m))) {
        memory::note_mapped(m.range.start, m.range.end);
    }
    // The kernel's own shared object asks the kernel for what it does not know, such as a thread's CPU time. It may be
    // sealed; then that stays as it is.
    for m in maps.list.iter().filter(|m| maps.path(m) == b"[vdso]" && m.prot & (READ | EXEC) == READ | EXEC) {
        // SAFETY: as above.
        unsafe {
            let Some(image) = Image::loaded(&maps, m) else { continue };
            let survey = Survey::new(&image, &m.range, m.offset);
            rewrite_one(registry, &entries, b"[vdso]", m.range.clone(), m.prot, &survey, 0, || None);
        }
    }
    let anonymous = |m: &&Mapping| m.prot & EXEC != 0 && m.inode == 0 && !is_kernels(maps.path(m));
    for m in maps.list.iter().filter(anonymous).filter(|m| !overlap(&m.range, &skip)) {
        registry.add(b"[anon]", m.range.clone(), m.range.clone(), None, 0, 1);
    }
    registry.entries = Some(entries);
    registry.skip = skip;
    Ok(())
}

fn is_kernels(path: &[u8]) -> bool {
    [b"[vdso]".as_slice(), b"[vvar", b"[vsyscall]", b"[uprobes]"].iter().any(|p| path.starts_with(p))
}

/// Writes the jumps of all plans, or none.
///
/// # Safety
/// Nothing runs in the plans' mappings, which are those given beside them, of `maps`.
unsafe fn apply(plans: &[(Plan, &Mapping)], maps: &Maps) -> Result<(), Error> {
    let changed = || plans.iter().filter(|(p, _)| p.chunk.is_some());
    for (opened, (plan, _)) in changed().enumerate() {
        // SAFETY: the caller vouches that nothing runs there; it is a mapping of a file.
        if let Err(e) = unsafe {
            empty(&plan.mapping);
            plan.open()
        } {
            for (plan, _) in changed().take(opened) {
                // SAFETY: the text is unchanged; it gets its protection back.
                let _ = unsafe { plan.protect(plan.prot) };
            }
            return Err(e);
        }
    }
    let mut result = Ok(());
    for (plan, m) in changed() {
        // SAFETY: opened above. The mapping's path names its file.
        let closed = unsafe {
            if result.is_ok() {
                plan.write();
            }
            plan.close(m.offset, || Fd::open(maps.path(m)))
        };
        result = result.and(closed);
    }
    result
}

/// Rewrites a file mapping that the loader has just made executable, before any code in it runs.
///
/// With `fd >= 0`, `start..start+len` has just been mapped from that file at `file_offset`; with `fd < 0` it has just
/// been made executable by `mprotect`, and `/proc/self/maps` tells what it is. What can't be rewritten is left alone
/// and counted. The mapping's protection is `prot` before and after; the descriptor's offset is not moved.
///
/// # Safety
/// With `fd >= 0` the mapping is private (`MAP_PRIVATE`). Nothing runs in it, and it isn't changed or unmapped, until
/// this returns.
pub unsafe fn rewrite_mapping(start: usize, len: usize, fd: i32, file_offset: u64, prot: u32) {
    let range = start..start.saturating_add(len).next_multiple_of(4096);
    let mut hold = hold();
    let registry = hold.registry();
    let Some(entries) = registry.entries else { return };
    if overlap(&range, &registry.skip) || prot & (READ | EXEC) != READ | EXEC {
        return;
    }
    if fd >= 0 {
        // Whatever was there has just been mapped over.
        registry.forget(&range);
        let mut link = [0; 4096];
        let name = name_of(fd, &mut link);
        let Some(file) = File::map(fd as usize, 0) else { return };
        let Some(image) = Image::file(file.bytes()) else { return };
        if image.is_go() {
            warn_of_go(name);
        }
        let mut known = Known::read(&registry.library);
        let state = known.identity(range.len(), || Identity::behind(fd, image.beginning()));
        // SAFETY: the caller vouches for the mapping.
        unsafe {
            let survey = Survey::with(&image, &range, file_offset, &mut known, state);
            rewrite_one(registry, &entries, name, range, prot, &survey, file_offset, || Fd::duplicate(fd));
        }
        known.save();
        return;
    }
    let Ok(maps) = Maps::read() else { return };
    for m in maps.list.iter().filter(|m| overlap(&m.range, &range)) {
        if m.prot & (READ | EXEC) != READ | EXEC || m.inode == 0 || !m.private || registry.overlaps(&m.range) {
            continue;
        }
        let mut parts = maps.list.iter().filter(|o| o.inode == m.inode && o.prot & READ != 0);
        if !parts.all(|o| is_there(&o.range)) {
            continue;
        }
        // SAFETY: the caller vouches for the mapping; the rest of the object is what the loader mapped beside it.
        unsafe {
            let Some(image) = Image::loaded(&maps, m) else { continue };
            let survey = Survey::new(&image, &m.range, m.offset);
            let path = maps.path(m);
            if image.is_go() {
                warn_of_go(file_name(path));
            }
            rewrite_one(registry, &entries, file_name(path), m.range.clone(), m.prot, &survey, m.offset, || {
                Fd::open(path)
            });
        }
    }
}

/// The program loads Go code while it runs: too late to leave it all to the kernel.
fn warn_of_go(name: &[u8]) {
    crate::report::line(format_args!(
        "{}: {} and may overflow: use --mode kernel",
        core::str::from_utf8(name).unwrap_or("a library"),
        super::GO
    ));
}

/// # Safety
/// As for `rewrite_mapping`; `file` yields the mapped file, which is mapped from `offset` on.
#[expect(clippy::too_many_arguments, reason = "the two callers have them from different sources")]
unsafe fn rewrite_one(
    registry: &mut Registry,
    entries: &Entries,
    name: &[u8],
    mapping: Range<usize>,
    prot: u32,
    survey: &Survey,
    offset: u64,
    file: impl FnOnce() -> Option<Fd>,
) {
    // SAFETY: the caller vouches for the mapping.
    let plan = unsafe { plan(name, mapping.clone(), prot, survey, entries, &mut Maps::read) };
    let Ok(plan) = plan else {
        let left = survey.parts.iter().map(|p| p.2.left.len()).sum::<usize>() + survey.sites();
        return registry.add(name, mapping.clone(), mapping, None, 0, left as u32);
    };
    if plan.chunk.is_none() {
        if plan.left > 0 {
            plan.register(registry);
        }
        return;
    }
    // SAFETY: the caller vouches that nothing runs in the mapping, which is of a file if it is not the kernel's.
    let result = unsafe {
        if !is_kernels(name) {
            empty(&plan.mapping);
        }
        plan.open().and_then(|()| {
            plan.write();
            plan.close(offset, file)
        })
    };
    match result {
        Ok(()) => plan.register(registry),
        Err(_) => plan.abandon(registry),
    }
}

/// The name of the file behind `fd`.
fn name_of(fd: i32, link: &mut [u8; 4096]) -> &[u8] {
    let mut path = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0";
    let (mut digits, mut at) = (1, 14);
    while fd / digits >= 10 {
        digits *= 10;
    }
    while digits > 0 {
        path[at] = b'0' + (fd / digits % 10) as u8;
        at += 1;
        digits /= 10;
    }
    // SAFETY: the path ends in a NUL; the kernel writes at most the buffer's length.
    let n = sys::check(unsafe {
        sys!(linux::__NR_readlinkat, linux::AT_FDCWD, path.as_ptr(), link.as_mut_ptr(), link.len())
    });
    file_name(&link[..n.unwrap_or(0)])
}

/// What would be rewritten, without changing anything: calls `f` for each executable mapping of an object with its
/// path, the address of its text, and what was found there. For `heddle doctor`, tests and measurements.
///
/// # Safety
/// No mapping of an object changes meanwhile.
pub unsafe fn survey(f: &mut dyn FnMut(&[u8], usize, &Found)) -> Result<(), Error> {
    let maps = Maps::read().map_err(Error::ReadMaps)?;
    for m in maps.list.iter().filter(|m| m.prot & (READ | EXEC) == READ | EXEC && m.inode != 0 && m.private) {
        // SAFETY: the caller vouches for the mappings.
        unsafe {
            let Some(image) = Image::loaded(&maps, m) else { continue };
            for (text, _, found) in &Survey::new(&image, &m.range, m.offset).parts {
                f(maps.path(m), text.start, found);
            }
        }
    }
    Ok(())
}

/// What would be rewritten in an ELF file: calls `f` for each executable segment with its virtual address and what was
/// found there.
pub fn survey_file(file: &[u8], f: &mut dyn FnMut(u64, &Found)) {
    let Some(image) = Image::file(file) else { return };
    for (at, vaddr, len) in image.executable(0, file.len()) {
        f(vaddr, &find::find(&image, &file[at..at + len], vaddr));
    }
}
