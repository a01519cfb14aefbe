//! Replacing sites by jumps to their stubs.

use super::decode::{self, Reader};
use super::elf::Image;
use super::file::{Fd, File};
use super::find::{self, Found, JUMP, MOVED_MAX, Site};
use super::known::{Identity, Known};
use super::maps::{self, Mapping, Maps};
use super::registry::{Registry, hold};
use super::stub::{self, Chunk};
use super::{Entries, Error};
use crate::fd;
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

/// Where the unchanged contents of a mapping are.
enum Source<'a> {
    /// In the file at this path.
    Path(&'a [u8]),
    /// In the file behind this descriptor.
    Descriptor(i32),
    /// Nowhere else: the mapping is the kernel's own.
    Kernel,
}

/// The text of a mapping. While it is open, it is writable and not executable; dropped open, it gets its protection back.
struct Text<'a> {
    mapping: Range<usize>,
    prot: u32,
    source: Source<'a>,
    /// In the file.
    offset: u64,
    open: bool,
}

impl<'a> Text<'a> {
    fn new(mapping: Range<usize>, prot: u32, source: Source<'a>, offset: u64) -> Text<'a> {
        Text { mapping, prot, source, offset, open: false }
    }

    /// Makes it writable, and not executable. `windows`: what is going to be looked at and changed.
    ///
    /// # Safety
    /// Nothing runs in the mapping until it is shut or dropped.
    unsafe fn open(&mut self, windows: impl Iterator<Item = Range<usize>>) -> Result<(), Error> {
        if self.open {
            return Ok(());
        }
        // SAFETY: what is not the kernel's is of a file; the caller vouches that nothing needs the text to be executable.
        unsafe {
            if !matches!(self.source, Source::Kernel) {
                empty(&self.mapping);
            }
            self.protect(READ | WRITE)?;
        }
        self.open = true;
        copy_pages(windows);
        Ok(())
    }

    /// Restores its protection. Should the system refuse to make changed text executable, it is the unchanged one afterwards.
    fn shut(&mut self) -> Result<(), Error> {
        if !self.open {
            return Ok(());
        }
        self.open = false;
        // SAFETY: it is the protection that the mapping had.
        let result = unsafe { self.protect(self.prot) };
        if result.is_err() {
            // SAFETY: who opened it vouches that nothing runs there.
            unsafe { self.restore() };
        }
        result
    }

    /// Maps the unchanged file over it.
    ///
    /// # Safety
    /// Nothing runs in the mapping, and it is that of the file's part at `offset`.
    unsafe fn restore(&self) {
        let file = match self.source {
            Source::Path(path) => Fd::open(path),
            Source::Descriptor(fd) => Fd::duplicate(fd),
            Source::Kernel => None,
        };
        let Some(file) = file else { return };
        let flags = linux::MAP_PRIVATE | linux::MAP_FIXED;
        let Range { start, end } = self.mapping;
        // SAFETY: the same file at the same place: the text as it was before it was changed.
        unsafe { sys!(linux::__NR_mmap, start, end - start, self.prot, flags, file.0, self.offset) };
    }

    unsafe fn protect(&self, prot: u32) -> Result<(), Error> {
        // SAFETY: the caller knows what the mapping is used for; its extent is that of a whole mapping.
        sys::check(unsafe { sys!(linux::__NR_mprotect, self.mapping.start, self.mapping.len(), prot) })
            .map(|_| ())
            .map_err(Error::Protect)
    }
}

impl Drop for Text<'_> {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _ = self.shut();
    }
}

/// A mapping with its stubs made and its text still unchanged.
struct Plan<'a> {
    name: &'a [u8],
    text: Text<'a>,
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

/// Has the kernel make copies of the pages that the windows lie in, which are going to be changed: one call for neighbours
/// instead of a fault for each page. The text is open. Kernels before 5.14 refuse, which does not matter.
fn copy_pages(windows: impl Iterator<Item = Range<usize>>) {
    // SAFETY: the pages' contents stay as they are, and they were to become this process's own anyway.
    let copy = |r: &Range<usize>| unsafe { sys!(linux::__NR_madvise, r.start, r.len(), linux::MADV_POPULATE_WRITE) };
    let mut run = 0..0;
    for window in windows {
        let pages = window.start & !4095..window.end.next_multiple_of(4096);
        if (run.start..=run.end).contains(&pages.start) && !run.is_empty() {
            run.end = run.end.max(pages.end);
            continue;
        }
        if !run.is_empty() {
            copy(&run);
        }
        run = pages;
    }
    if !run.is_empty() {
        copy(&run);
    }
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
    /// `text` is of `image`'s file, readable, and does not change meanwhile.
    unsafe fn new(image: &Image, text: &mut Text) -> Survey {
        // SAFETY: the caller's; a text that is not known is not opened.
        unsafe { Survey::with(image, text, &mut Known::default(), None) }
    }

    /// As `new`, but a text that is known is not searched: it is open afterwards, if it has sites. `state`: what is mapped.
    ///
    /// # Safety
    /// As for `new`; if there is a `state`, nothing runs in the text until it is shut or dropped.
    unsafe fn with(image: &Image, text: &mut Text, known: &mut Known, state: Option<Identity>) -> Survey {
        let mut parts = Vec::new();
        for (at, vaddr, len) in image.executable(text.offset, text.mapping.len()) {
            let part = text.mapping.start + at..text.mapping.start + at + len;
            // SAFETY: the caller vouches for the mapping; the part is within it. Whether the file is that long is asked before it
            // is read, or was when this state of it was searched.
            let bytes = unsafe { core::slice::from_raw_parts(part.start as *const u8, part.len()) };
            let from = text.offset + at as u64;
            // The pages with sites are copied before they are looked at, which would only map the file's.
            let prepare = &mut |sites: &[Site]| {
                if !sites.is_empty() {
                    let windows = sites.iter().map(|s| part.start + s.start as usize..part.start + s.end() as usize);
                    // SAFETY: the caller's. If the system refuses, it will do so again when there is something to write.
                    let _ = unsafe { text.open(windows) };
                }
            };
            if let Some(found) = state.and_then(|state| known.find(&state, from, bytes, prepare)) {
                parts.push((part, vaddr, found));
                continue;
            }
            fill(&part);
            if !is_there(&part) {
                continue;
            }
            let found = find::find(image, bytes, vaddr);
            if let Some(state) = state {
                known.learn(&state, from, bytes, &found);
            }
            parts.push((part, vaddr, found));
        }
        Survey { parts }
    }

    fn sites(&self) -> usize {
        self.parts.iter().map(|p| p.2.sites.len()).sum()
    }
}

/// Makes the stubs for what was found in `text`.
///
/// # Safety
/// As for `Survey::new`, whose result `survey` is.
unsafe fn plan<'a>(
    name: &'a [u8],
    text: Text<'a>,
    survey: &Survey,
    entries: &Entries,
    maps: &mut dyn FnMut() -> Result<Maps, i32>,
) -> Result<Plan<'a>, Error> {
    let left = survey.parts.iter().map(|p| p.2.left.len() as u32).sum();
    let mut plan = Plan { name, text, chunk: None, patches: Vec::new(), left };
    let count = survey.sites();
    if count == 0 {
        return Ok(plan);
    }
    let mut chunk = Chunk::new(count, &plan.text.mapping, entries, maps)?;
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
    /// Nothing runs in the mapping until it is shut.
    unsafe fn open(&mut self) -> Result<(), Error> {
        // SAFETY: the caller's.
        unsafe { self.text.open(self.patches.iter().map(|p| p.at..p.at + usize::from(p.len))) }
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

    /// The patched part of the mapping.
    fn patched(&self) -> Range<usize> {
        match (self.patches.first(), self.patches.last()) {
            (Some(first), Some(last)) => first.at..last.at + usize::from(last.len),
            _ => self.text.mapping.start..self.text.mapping.start,
        }
    }

    fn register(self, registry: &mut Registry) {
        let patched = self.patched();
        let mapping = self.text.mapping.clone();
        registry.add(self.name, mapping, patched, self.chunk, self.patches.len() as u32, self.left);
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

/// Takes the pages of `mapping` out of the page tables, but for those that have been changed (by a debugger, say, or by the
/// loader). A fork copies an entry for each page of a mapping with changed pages, and a search has made one for every page
/// that there is; and a page that is there is more work to copy than one that is not.
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
    let mut plans: Vec<Plan> = Vec::new();
    let mut result = Ok(());
    for m in maps.list.iter().filter(wanted).filter(|m| m.prot & READ != 0) {
        // SAFETY: there is no other thread that could change a mapping, and nothing runs in it.
        let made = unsafe {
            let Some(image) = Image::loaded(&maps, m) else { continue };
            if image.is_go() {
                let mut name = [0; 48];
                file_name(maps.path(m)).iter().take(47).zip(&mut name).for_each(|(&from, to)| *to = from);
                result = Err(Error::Go(name));
                break;
            }
            let file = known.identity(m.range.len(), || Identity::at(maps.path(m), m.inode, image.beginning()));
            let mut text = Text::new(m.range.clone(), m.prot, Source::Path(maps.path(m)), m.offset);
            let survey = Survey::with(&image, &mut text, &mut known, file);
            // A reservation changes the mappings.
            let mut now = || Maps::read();
            plan(file_name(maps.path(m)), text, &survey, &entries, &mut now)
        };
        match made {
            Ok(plan) => plans.push(plan),
            Err(e) => {
                result = Err(e);
                break;
            }
        }
    }
    if result.is_ok() {
        // SAFETY: the caller vouches that nothing runs in these mappings meanwhile.
        result = unsafe { apply(&mut plans) };
    }
    for plan in plans {
        match result {
            Ok(()) if plan.chunk.is_some() || plan.left > 0 => plan.register(registry),
            Ok(()) => {}
            Err(_) => plan.chunk.iter().for_each(Chunk::free),
        }
    }
    result?;
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
            let mut text = Text::new(m.range.clone(), m.prot, Source::Kernel, m.offset);
            let contents = core::slice::from_raw_parts(m.range.start as *const u8, m.range.len());
            let survey = Survey::with(&image, &mut text, &mut known, Some(Identity::of_contents(contents)));
            rewrite_one(registry, &entries, b"[vdso]", text, &survey);
        }
    }
    known.save();
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

/// Writes the jumps of all plans, or none. A text that is left open is shut when its plan is dropped.
///
/// # Safety
/// Nothing runs in the plans' mappings.
unsafe fn apply(plans: &mut [Plan]) -> Result<(), Error> {
    for plan in plans.iter_mut().filter(|p| p.chunk.is_some()) {
        // SAFETY: the caller's.
        unsafe { plan.open() }?;
    }
    for i in 0..plans.len() {
        if plans[i].chunk.is_none() {
            continue;
        }
        // SAFETY: opened above.
        unsafe { plans[i].write() };
        if let Err(e) = plans[i].text.shut() {
            for plan in plans[..i].iter().filter(|p| p.chunk.is_some()) {
                // SAFETY: nothing has run there yet.
                unsafe { plan.text.restore() };
            }
            return Err(e);
        }
    }
    Ok(())
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
        let name = file_name(fd::name(fd, &mut link));
        let Some(file) = File::map(fd as usize, 0) else { return };
        let Some(image) = Image::file(file.bytes()) else { return };
        if image.is_go() {
            warn_of_go(name);
        }
        let mut known = Known::read(&registry.library);
        let state = known.identity(range.len(), || Identity::behind(fd, image.beginning()));
        // SAFETY: the caller vouches for the mapping.
        unsafe {
            let mut text = Text::new(range, prot, Source::Descriptor(fd), file_offset);
            let survey = Survey::with(&image, &mut text, &mut known, state);
            rewrite_one(registry, &entries, name, text, &survey);
        }
        known.save();
        return;
    }
    // Generated code, most likely, which some compilers open and shut for each piece of it.
    if registry.is_anonymous(&range) {
        return;
    }
    if maps::has_file(&range) == Ok(false) {
        return registry.note_anonymous(range);
    }
    let Ok(maps) = Maps::read() else { return };
    let there = || maps.list.iter().filter(|m| overlap(&m.range, &range));
    if there().all(|m| m.inode == 0) {
        return registry.note_anonymous(range);
    }
    for m in there() {
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
            let path = maps.path(m);
            let mut text = Text::new(m.range.clone(), m.prot, Source::Path(path), m.offset);
            let survey = Survey::new(&image, &mut text);
            if image.is_go() {
                warn_of_go(file_name(path));
            }
            rewrite_one(registry, &entries, file_name(path), text, &survey);
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
/// As for `rewrite_mapping`; `survey` is that of `text`.
unsafe fn rewrite_one(registry: &mut Registry, entries: &Entries, name: &[u8], text: Text, survey: &Survey) {
    let mapping = text.mapping.clone();
    // SAFETY: the caller vouches for the mapping.
    let Ok(mut plan) = (unsafe { plan(name, text, survey, entries, &mut Maps::read) }) else {
        let left = survey.parts.iter().map(|p| p.2.left.len()).sum::<usize>() + survey.sites();
        return registry.add(name, mapping.clone(), mapping, None, 0, left as u32);
    };
    if plan.chunk.is_none() {
        if plan.left > 0 {
            plan.register(registry);
        }
        return;
    }
    // SAFETY: the caller vouches that nothing runs in the mapping.
    let result = unsafe {
        plan.open().and_then(|()| {
            plan.write();
            plan.text.shut()
        })
    };
    match result {
        Ok(()) => plan.register(registry),
        Err(_) => plan.abandon(registry),
    }
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
            let mut text = Text::new(m.range.clone(), m.prot, Source::Path(maps.path(m)), m.offset);
            for (part, _, found) in &Survey::new(&image, &mut text).parts {
                f(maps.path(m), part.start, found);
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
