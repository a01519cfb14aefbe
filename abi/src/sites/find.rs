//! Finding the sites of an object, and for each the window of whole instructions that its jump replaces.
//!
//! 1. The two bytes of `syscall` are searched in the whole text.
//! 2. The function around each hit (its bounds are in the frame descriptions, the dynamic symbols or Go's own table) is
//!    decoded from its start. A hit that is no instruction boundary is data or part of another instruction.
//! 3. Labels are collected: places that something may jump to. Direct branches of the decoded functions; near jumps
//!    of the whole text, taken from its raw bytes (a superset); short jumps next to a decoded function, the same
//!    way; entries of jump tables.
//! 4. A window is chosen that has no label except at its start.

use super::decode::{self, Insn, Reader, Refers};
use super::elf::{Function, Image};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// The longest sequence of instructions that is moved into a stub, beside the `syscall` itself.
pub const MOVED_MAX: usize = 17;
/// The length of the jump that replaces a window.
pub const JUMP: usize = 5;
/// No window reaches farther than this from its site.
const REACH: usize = MOVED_MAX + 2;
/// Longest jump table looked at.
const TABLE_MAX: u64 = 1024;

/// A site and its window. Positions are relative to the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Where the window starts.
    pub start: u32,
    /// Bytes of whole instructions in the window before the `syscall`.
    pub prefix: u8,
    /// Bytes of whole instructions in the window after it.
    pub suffix: u8,
}

impl Site {
    /// Where the `syscall` is.
    pub fn syscall(&self) -> u32 {
        self.start + u32::from(self.prefix)
    }

    /// The window's end.
    pub fn end(&self) -> u32 {
        self.syscall() + 2 + u32::from(self.suffix)
    }
}

/// The sites of one text.
#[derive(Default)]
pub struct Found {
    /// Sites with a window, in ascending order.
    pub sites: Vec<Site>,
    /// Where sites without one are, returns from a signal handler, and hits in code that nothing describes.
    pub left: Vec<u32>,
    /// A function with a site touches state beyond xmm0-15.
    pub wide: bool,
}

/// A decoded function.
struct Decoded {
    start: u32,
    end: u32,
    /// Its instructions next to hits, as positions in the list of instructions.
    insns: Range<usize>,
    /// The hits that are sites, as positions in the list of sites.
    sites: Range<usize>,
    /// It jumps where we can't see: only a window with no boundary but the syscall's own is safe.
    opaque: bool,
}

/// Finds the sites in `text`, an executable part of `image` at virtual address `vaddr`.
pub fn find(image: &Image, text: &[u8], vaddr: u64) -> Found {
    let mut found = Found::default();
    if text.len() > i32::MAX as usize {
        return found;
    }
    let mut hits = Vec::new();
    scan(text, &mut hits);
    if hits.is_empty() {
        return found;
    }
    let near = Near::new(text.len(), &hits);
    let mut finder = Finder { image, text, vaddr, near, insns: Vec::new(), labels: Vec::new(), functions: Vec::new() };
    let sites = finder.decode_all(&hits, &mut found);
    if sites.is_empty() {
        return found;
    }
    finder.sort_labels();
    let exposed = finder.choose_all(&sites, &mut found.sites);
    if !exposed.is_empty() {
        finder.add_outside_labels(&exposed);
        finder.choose_all(&sites, &mut found.sites);
    }
    let chosen = |at: &u32| found.sites.binary_search_by_key(at, Site::syscall).is_ok();
    found.left.extend(sites.iter().filter(|at| !chosen(at)));
    found
}

/// The bytes around `at` that unwinders recognise as the return from a signal handler: `mov $15, %rax; syscall`, also
/// in its short form. It must stay as it is.
pub fn is_sigreturn(text: &[u8], at: usize) -> bool {
    text[..at].ends_with(&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0]) || text[..at].ends_with(&[0xb8, 0x0f, 0, 0, 0])
}

/// Collects the positions of `syscall`'s two bytes.
fn scan(text: &[u8], hits: &mut Vec<u32>) {
    use core::arch::x86_64::*;
    let mut at = 0;
    while at + 65 <= text.len() {
        // SAFETY: SSE2 is part of x86-64; the 65 bytes from `at` are in `text`.
        let mut mask = unsafe {
            let first = _mm_set1_epi8(0x0f);
            let second = _mm_set1_epi8(0x05);
            let p = text.as_ptr().add(at);
            let part = |n: usize| {
                let a = _mm_loadu_si128(p.add(n).cast());
                let b = _mm_loadu_si128(p.add(n + 1).cast());
                _mm_and_si128(_mm_cmpeq_epi8(a, first), _mm_cmpeq_epi8(b, second))
            };
            let parts = [part(0), part(16), part(32), part(48)];
            let any = _mm_or_si128(_mm_or_si128(parts[0], parts[1]), _mm_or_si128(parts[2], parts[3]));
            if _mm_movemask_epi8(any) == 0 {
                0u64
            } else {
                (0..4).map(|i| u64::from(_mm_movemask_epi8(parts[i]) as u32) << (16 * i)).sum()
            }
        };
        while mask != 0 {
            hits.push((at + mask.trailing_zeros() as usize) as u32);
            mask &= mask - 1;
        }
        at += 64;
    }
    for i in at..text.len().saturating_sub(1) {
        if text[i..i + 2] == [0x0f, 0x05] {
            hits.push(i as u32);
        }
    }
}

struct Finder<'a> {
    image: &'a Image<'a>,
    text: &'a [u8],
    vaddr: u64,
    /// The positions next to hits: what lies elsewhere is not kept. It covers every position that a window may have.
    near: Near,
    insns: Vec<Insn>,
    /// Positions next to hits that something may jump to; sorted before use.
    labels: Vec<u32>,
    functions: Vec<Decoded>,
}

impl Finder<'_> {
    /// The position in the text of virtual address `a`.
    fn position(&self, a: u64) -> Option<usize> {
        let p = a.wrapping_sub(self.vaddr);
        (p < self.text.len() as u64).then_some(p as usize)
    }

    /// Notes a place that something may jump to.
    fn add_label(&mut self, address: u64) {
        if let Some(p) = self.position(address).filter(|&p| self.near.has(p)) {
            self.labels.push(p as u32);
        }
    }

    /// Decodes the functions around `hits`; returns the hits that are sites, in ascending order.
    fn decode_all(&mut self, hits: &[u32], found: &mut Found) -> Vec<u32> {
        let bounds = self.bounds(hits);
        let mut sites = Vec::with_capacity(hits.len());
        let mut i = 0;
        while i < hits.len() {
            let first = i;
            i += 1;
            let Some(mut range) = bounds[first].clone() else {
                // Data in an executable segment is not worth counting.
                let address = self.vaddr + u64::from(hits[first]);
                if self.image.described().is_none_or(|d| d.contains(&address)) {
                    found.left.push(hits[first]);
                }
                continue;
            };
            while let Some(Some(next)) = bounds.get(i)
                && next.start == range.start
            {
                range.end = range.end.max(next.end);
                i += 1;
            }
            self.decode(range, &hits[first..i], &mut sites, found);
        }
        sites
    }

    /// For each hit, the function to decode.
    fn bounds(&self, hits: &[u32]) -> Vec<Option<Range<u64>>> {
        let text_end = self.vaddr + self.text.len() as u64;
        let mut function: Option<Function> = None;
        let mut bounds: Vec<_> = hits
            .iter()
            .map(|&hit| {
                let address = self.vaddr + u64::from(hit);
                // Hits are in order: it is often the same one.
                if function.as_ref().is_none_or(|f| address >= f.limit) {
                    function = self.image.function(address);
                }
                let f = function.as_ref()?;
                self.position(f.range.start)?;
                if address < f.range.end {
                    Some(f.range.start..f.range.end.min(text_end))
                } else if address < f.limit && self.runs_on(f) {
                    Some(f.range.start..f.limit.min(text_end))
                } else {
                    None
                }
            })
            .collect();
        if bounds.contains(&None) {
            let unknown: Vec<usize> = (0..hits.len()).filter(|&i| bounds[i].is_none()).collect();
            let address = |&i: &usize| self.vaddr + u64::from(hits[i]);
            self.image.symbols(&mut |range| {
                let first = unknown.partition_point(|i| address(i) < range.start);
                for &i in unknown[first..].iter().take_while(|i| address(i) < range.end) {
                    if range.start >= self.vaddr && range.end <= text_end {
                        bounds[i] = Some(range.clone());
                    }
                }
            });
        }
        if bounds.contains(&None)
            && let Some(go) = self.image.go_functions()
        {
            for (bound, &hit) in bounds.iter_mut().zip(hits).filter(|(b, _)| b.is_none()) {
                let function = self.image.go_function(&go, self.vaddr + u64::from(hit));
                *bound = function.filter(|f| f.start >= self.vaddr && f.end <= text_end);
            }
        }
        bounds
    }

    /// Whether control flows past the declared end of `f`, as in glibc's `clone`, whose description ends before its
    /// system call since the child has no caller to unwind to.
    fn runs_on(&self, f: &Function) -> bool {
        // A call that is a function's last instruction does not return.
        let goes_on = |last: &Insn| last.is(decode::SYSCALL) || !last.is(decode::ENDS) && !last.is(decode::FLOW);
        let (Some(start), Some(end)) = (self.position(f.range.start), self.position(f.range.end)) else { return false };
        let mut reader = Reader::new(self.text, self.vaddr, start);
        let mut last = None;
        let mut target = false;
        while let Some((insn, refers)) = reader.next() {
            if insn.at as usize >= end {
                return insn.at as usize == end && (target || last.is_some_and(|l: Insn| goes_on(&l)));
            }
            target |= matches!(refers, Refers::Branch(to) if to == f.range.end);
            last = Some(insn);
        }
        false
    }

    /// Decodes the function at `range`, in which `hits` lie. Keeps it only if one of them is a site.
    fn decode(&mut self, range: Range<u64>, hits: &[u32], sites: &mut Vec<u32>, found: &mut Found) {
        let (Some(start), Some(&last)) = (self.position(range.start), hits.last()) else { return };
        let end = (range.end - self.vaddr) as u32;
        let (first_insn, first_label, first_site) = (self.insns.len(), self.labels.len(), sites.len());
        let mut reader = Reader::new(&self.text[..end as usize], self.vaddr, start);
        let mut tables = Vec::new();
        let (mut wide, mut indirect, mut reached) = (false, false, start as u32);
        while let Some((insn, refers)) = reader.next() {
            if insn.is(decode::SYSCALL) && hits.contains(&insn.at) {
                sites.push(insn.at);
            }
            reached = insn.end();
            if insn.at > last && sites.len() == first_site {
                break;
            }
            match refers {
                Refers::Branch(to) => self.add_label(to),
                Refers::Data(at) => tables.push(at),
                Refers::Nothing => {}
            }
            wide |= insn.is(decode::WIDE);
            indirect |= insn.is(decode::INDIRECT);
            if self.near.has(insn.at as usize) {
                self.insns.push(insn);
            }
        }
        // Nothing is known behind bytes that are no code.
        found.left.extend(hits.iter().filter(|&&h| h >= reached));
        if sites.len() == first_site {
            self.insns.truncate(first_insn);
            self.labels.truncate(first_label);
            return;
        }
        found.wide |= wide;
        let opaque = reached < end || (indirect && !self.read_tables(&tables, &range));
        self.add_label(range.start);
        let insns = first_insn..self.insns.len();
        let sites = first_site..sites.len();
        self.functions.push(Decoded { start: start as u32, end: reached, insns, sites, opaque });
    }

    /// Reads what may be jump tables at `tables` and makes their entries labels. Whether any was one of the function
    /// at `range`.
    fn read_tables(&mut self, tables: &[u64], range: &Range<u64>) -> bool {
        let mut ours = false;
        for &table in tables {
            for i in 0..TABLE_MAX {
                // Offsets from the table, as compilers make them in position-independent code.
                let Some(entry) = self.image.at(table.wrapping_add(4 * i), 4) else { break };
                let offset = i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
                let target = table.wrapping_add_signed(i64::from(offset));
                if self.position(target).is_none() {
                    break;
                }
                ours |= range.contains(&target);
                self.add_label(target);
            }
            for i in 0..TABLE_MAX {
                // Addresses.
                let Some(entry) = self.image.at(table.wrapping_add(8 * i), 8) else { break };
                let value = entry.iter().rev().fold(0, |value, &b| value << 8 | u64::from(b));
                let target = value.wrapping_sub(self.image.pointer_bias());
                if self.position(target).is_none() {
                    break;
                }
                ours |= range.contains(&target);
                self.add_label(target);
            }
        }
        ours
    }

    fn sort_labels(&mut self) {
        self.labels.sort_unstable();
        self.labels.dedup();
    }

    /// Adds labels that the decoded functions don't show: the targets, next to the sites `exposed`, of near jumps
    /// anywhere in the text and of short jumps next to a function. Both are taken from raw bytes, so some are none; but
    /// what is no instruction boundary is surely none.
    fn add_outside_labels(&mut self, exposed: &[u32]) {
        let near = Near::new(self.text.len(), exposed);
        let mut targets = Vec::new();
        near_jumps(self.text, &near, &mut targets);
        for &site in exposed {
            if let Some(f) = self.decoded(site) {
                short_jumps_around(self.text, f.start as usize..f.end as usize, &near, &mut targets);
            }
        }
        targets.sort_unstable();
        targets.dedup();
        targets.retain(|&t| {
            let insns = self.decoded(t).map(|f| &self.insns[f.insns.clone()]);
            insns.is_some_and(|insns| insns.binary_search_by_key(&t, |i| i.at).is_ok())
        });
        self.labels.append(&mut targets);
        self.sort_labels();
    }

    /// The decoded function that `position` may lie in.
    fn decoded(&self, position: u32) -> Option<&Decoded> {
        let behind = self.functions.partition_point(|f| f.start <= position);
        self.functions.get(behind.checked_sub(1)?)
    }

    /// Chooses the windows of `sites`. Returns the exposed ones: their windows cover a boundary between instructions
    /// that will be overwritten, so that a jump to it would be fatal.
    fn choose_all(&self, sites: &[u32], chosen: &mut Vec<Site>) -> Vec<u32> {
        let mut taken = 0;
        let mut exposed = Vec::new();
        chosen.clear();
        for f in &self.functions {
            let insns = &self.insns[f.insns.clone()];
            for &at in sites[f.sites.clone()].iter().filter(|&&at| !is_sigreturn(self.text, at as usize)) {
                let Ok(i) = insns.binary_search_by_key(&at, |i| i.at) else { continue };
                if let Some(site) = self.choose(insns, i, taken, f.opaque) {
                    taken = site.end();
                    if !is_simple(insns, i, &site) {
                        exposed.push(at);
                    }
                    chosen.push(site);
                }
            }
        }
        exposed
    }

    /// The window for the `syscall` that is number `i` of `insns`; it must not start before `taken`. `endbr64` is never
    /// part of one: it may be jumped to from anywhere.
    fn choose(&self, insns: &[Insn], i: usize, taken: u32, opaque: bool) -> Option<Site> {
        let movable = |insn: &&Insn| !insn.is(decode::FLOW | decode::LANDING);
        let before = insns[..i].iter().rev().take_while(movable);
        let after = insns[i + 1..].iter().take_while(movable);
        let site = insns[i];
        // Every choice of whole instructions before and after, from the fewest before on.
        let starts = || core::iter::once(site.at).chain(before.clone().map(|b| b.at));
        let ends = || core::iter::once(site.end()).chain(after.clone().map(|a| a.end()));
        let fits = |start: u32, end: u32| {
            let first = self.labels.partition_point(|&l| l <= start);
            start >= taken
                && (JUMP..=MOVED_MAX + 2).contains(&((end - start) as usize))
                && self.labels.get(first).is_none_or(|&l| l >= end)
        };
        let site_of = |start, end| Site { start, prefix: (site.at - start) as u8, suffix: (end - site.end()) as u8 };
        // Best leave the syscall's own bytes alone; then cover them; then take what follows.
        let whole = starts().filter(|&s| (site.at - s) as usize >= JUMP).find(|&s| fits(s, site.end()));
        let chosen = whole.or_else(|| starts().find(|&s| fits(s, site.end()))).map(|s| site_of(s, site.end()));
        let chosen = chosen.or_else(|| starts().find_map(|s| ends().find(|&e| fits(s, e)).map(|e| site_of(s, e))));
        chosen.filter(|c| !opaque || is_simple(insns, i, c))
    }
}

/// Whether the window is one instruction, long enough for the jump, before the `syscall`, which is number `i`: then
/// the only boundary within is that before the `syscall`, whose bytes stay.
fn is_simple(insns: &[Insn], i: usize, site: &Site) -> bool {
    usize::from(site.prefix) >= JUMP && i > 0 && insns[i - 1].at == site.start && site.suffix == 0
}

/// A bitmap of the positions next to sites.
struct Near(Vec<u64>);

impl Near {
    const GRANULE: usize = 64;

    fn new(len: usize, sites: &[u32]) -> Near {
        let mut bits = vec![0u64; len / (64 * Self::GRANULE) + 2];
        for &site in sites {
            let site = site as usize;
            for granule in site.saturating_sub(REACH) / Self::GRANULE..=(site + REACH) / Self::GRANULE {
                bits[granule / 64] |= 1 << (granule % 64);
            }
        }
        Near(bits)
    }

    #[inline]
    fn has(&self, position: usize) -> bool {
        let word = self.0.get(position / (64 * Self::GRANULE));
        word.is_some_and(|word| word >> (position / Self::GRANULE % 64) & 1 != 0)
    }
}

/// Collects the targets in `within` of what may be short jumps in the bytes next to it.
fn short_jumps_around(text: &[u8], within: Range<usize>, near: &Near, targets: &mut Vec<u32>) {
    let (start, end) = (within.start, within.end);
    let around = (start.saturating_sub(130)..start).chain(end..(end + 130).min(text.len()));
    for p in around.filter(|&p| matches!(text[p], 0x70..=0x7f | 0xe0..=0xe3 | 0xeb)) {
        let Some(&distance) = text.get(p + 1) else { return };
        if let Some(to) = (p + 2).checked_add_signed(isize::from(distance as i8))
            && within.contains(&to)
            && near.has(to)
        {
            targets.push(to as u32);
        }
    }
}

/// Collects the targets next to sites of everything that looks like a near jump: E9 or 0F 80 to 0F 8F and a 32-bit
/// displacement, wherever it stands.
fn near_jumps(text: &[u8], near: &Near, targets: &mut Vec<u32>) {
    use core::arch::x86_64::*;
    // `p` is the position of the last opcode byte.
    let mut check = |p: usize| {
        let Some(d) = text.get(p + 1..p + 5) else { return };
        let to = (p + 5).wrapping_add_signed(i32::from_le_bytes([d[0], d[1], d[2], d[3]]) as isize);
        if near.has(to) {
            targets.push(to as u32);
        }
    };
    let (mut waiting, mut count) = ([0u32; 64], 0);
    let mut at = 1;
    while at + 64 <= text.len() {
        let mut mask = (0..4).fold(0u64, |mask, i| {
            // SAFETY: SSE2 is part of x86-64; the 65 bytes from `at - 1` are in `text`.
            let part = unsafe {
                let p = text.as_ptr().add(at + 16 * i);
                let before = _mm_loadu_si128(p.sub(1).cast());
                let here = _mm_loadu_si128(p.cast());
                let jump = _mm_cmpeq_epi8(here, _mm_set1_epi8(0xe9u8 as i8));
                // 80 to 8F are the sixteen lowest signed bytes.
                let condition = _mm_cmplt_epi8(here, _mm_set1_epi8(0x90u8 as i8));
                let condition = _mm_and_si128(condition, _mm_cmpeq_epi8(before, _mm_set1_epi8(0x0f)));
                _mm_movemask_epi8(_mm_or_si128(jump, condition)) as u32
            };
            mask | u64::from(part) << (16 * i)
        });
        // Most blocks have a few. A loop that ends after so many cannot be predicted; these steps are made for all.
        for _ in 0..4 {
            waiting[count] = (at + mask.trailing_zeros() as usize) as u32;
            count += usize::from(mask != 0);
            mask &= mask.wrapping_sub(1);
        }
        while mask != 0 {
            check(at + mask.trailing_zeros() as usize);
            mask &= mask - 1;
        }
        if count + 4 > waiting.len() {
            waiting[..count].iter().for_each(|&p| check(p as usize));
            count = 0;
        }
        at += 64;
    }
    waiting[..count].iter().for_each(|&p| check(p as usize));
    let is_jump = |p: usize| text[p] == 0xe9 || (p > 0 && text[p] & 0xf0 == 0x80 && text[p - 1] == 0x0f);
    for p in core::iter::once(0).chain(at..text.len()).filter(|&p| p < text.len() && is_jump(p)) {
        check(p);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    /// Bytes of which many are those that the scans look for.
    fn noise(len: usize, seed: &mut u64) -> Vec<u8> {
        let mut next = || {
            *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (*seed >> 33) as usize
        };
        (0..len).map(|_| [0x0f, 0x05, 0xe9, 0x84, 0x00, 0xff, 0x8f, 0x90][next() % 8]).collect()
    }

    #[test]
    fn the_fast_scans_find_what_slow_ones_find() {
        let mut seed = 1;
        for len in (0..200).chain([1000, 4096, 4159]) {
            let text = noise(len, &mut seed);
            let mut hits = Vec::new();
            scan(&text, &mut hits);
            let slow = (1..len).filter(|&i| text[i - 1..=i] == [0x0f, 0x05]).map(|i| i as u32 - 1);
            assert_eq!(hits, slow.collect::<Vec<_>>(), "length {len}");

            let everywhere: Vec<u32> = (0..len as u32).collect();
            let (near, mut targets) = (Near::new(len, &everywhere), Vec::new());
            near_jumps(&text, &near, &mut targets);
            targets.sort_unstable();
            let mut slow = Vec::new();
            for i in 0..len {
                let jump = text[i] == 0xe9 || (i > 0 && text[i - 1] == 0x0f && (0x80..=0x8f).contains(&text[i]));
                if jump && let Some(Ok(d)) = text.get(i + 1..i + 5).map(<[u8; 4]>::try_from) {
                    slow.extend(u32::try_from(i as i64 + 5 + i64::from(i32::from_le_bytes(d))).ok());
                }
            }
            slow.retain(|&to| near.has(to as usize));
            slow.sort_unstable();
            assert_eq!(targets, slow, "length {len}");
        }
    }
}
