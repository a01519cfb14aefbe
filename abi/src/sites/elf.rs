//! What the finder needs of an ELF object: bytes by virtual address, and the bounds of functions.

use super::file::{Fd, File};
use super::known::BEGINNING;
use super::maps::{Mapping, Maps};
use alloc::vec::Vec;
use core::cell::OnceCell;
use core::ops::Range;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_NOTE: u32 = 4;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PF_X: u32 = 1;

/// A program header.
#[derive(Clone, Copy)]
struct Segment {
    kind: u32,
    flags: u32,
    offset: u64,
    vaddr: u64,
    file_size: u64,
}

/// Where an object's bytes are read.
enum View<'a> {
    /// In memory, as the loader mapped it: the readable ranges of the object.
    Loaded { bias: u64, readable: Vec<Range<usize>>, path: Vec<u8>, inode: u64, file: OnceCell<Option<File>> },
    /// The file, mapped as it is.
    File(&'a [u8]),
}

/// An ELF object.
pub struct Image<'a> {
    view: View<'a>,
    segments: Vec<Segment>,
    index: Option<FrameIndex<'a>>,
    beginning: &'a [u8],
}

/// `.eh_frame_hdr`'s sorted table: pairs of signed 32-bit offsets (function, frame description), relative to `base`.
struct FrameIndex<'a> {
    base: u64,
    table: &'a [[u8; 8]],
}

impl FrameIndex<'_> {
    /// The start of the function of entry `i`.
    fn start(&self, i: usize) -> Option<u64> {
        let [a, b, c, d, ..] = *self.table.get(i)?;
        Some(self.base.wrapping_add_signed(i64::from(i32::from_le_bytes([a, b, c, d]))))
    }

    /// The frame description of entry `i`.
    fn frame(&self, i: usize) -> Option<u64> {
        let [.., a, b, c, d] = *self.table.get(i)?;
        Some(self.base.wrapping_add_signed(i64::from(i32::from_le_bytes([a, b, c, d]))))
    }
}

/// What is known of the function an address belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// Start and end, as the object declares them.
    pub range: Range<u64>,
    /// Code without a description may follow up to here (the next described function).
    pub limit: u64,
}

/// Go's table of functions: pairs of 32-bit numbers, the first an offset from `text`.
pub struct GoFunctions {
    text: u64,
    entries: u64,
    count: usize,
}

impl<'a> Image<'a> {
    /// The object whose executable mapping is `m`, read in memory. `None` when it is no ELF object, or its header
    /// isn't mapped.
    ///
    /// # Safety
    /// The mappings in `maps` that belong to `m`'s file stay mapped and unchanged during `'a`.
    pub unsafe fn loaded(maps: &Maps, m: &Mapping) -> Option<Image<'a>> {
        let same = |o: &&Mapping| o.inode == m.inode && maps.path(o) == maps.path(m);
        // The header of *this* copy of the object: the last one at or below the mapping.
        let mut upto = maps.list.iter().filter(same).filter(|o| o.range.start <= m.range.start);
        let head = upto.rfind(|o| o.offset == 0 && o.prot & 1 != 0)?;
        // SAFETY: the caller vouches for the mapping, which is readable.
        let bytes = unsafe { core::slice::from_raw_parts(head.range.start as *const u8, head.range.len()) };
        let segments = segments(bytes)?;
        let vaddr = address_of(&segments, m.offset)?;
        let bias = (m.range.start as u64).wrapping_sub(vaddr);
        let span =
            segments.iter().filter(|s| s.kind == PT_LOAD).map(|s| bias.wrapping_add(s.vaddr + s.file_size)).max()?;
        let readable = maps.list.iter().filter(|o| o.prot & 1 != 0 && o.range.start >= head.range.start);
        let readable = readable.take_while(|o| (o.range.start as u64) < span).map(|o| o.range.clone()).collect();
        let view = View::Loaded { bias, readable, path: maps.path(m).to_vec(), inode: m.inode, file: OnceCell::new() };
        let beginning = &bytes[..bytes.len().min(BEGINNING)];
        Some(Image { view, segments, index: None, beginning }.indexed())
    }

    /// The object in `file`, a whole ELF file.
    pub fn file(file: &'a [u8]) -> Option<Image<'a>> {
        let segments = segments(file)?;
        let beginning = &file[..file.len().min(BEGINNING)];
        Some(Image { view: View::File(file), segments, index: None, beginning }.indexed())
    }

    /// Its first bytes, [`BEGINNING`] of them if it has so many.
    pub fn beginning(&self) -> &'a [u8] {
        self.beginning
    }

    fn indexed(mut self) -> Self {
        self.index = self.frame_index();
        self
    }

    /// `len` bytes at virtual address `vaddr`.
    pub fn at(&self, vaddr: u64, len: usize) -> Option<&'a [u8]> {
        match &self.view {
            View::Loaded { bias, readable, .. } => {
                let start = bias.wrapping_add(vaddr) as usize;
                let end = start.checked_add(len)?;
                readable.iter().find(|r| r.start <= start && end <= r.end)?;
                // SAFETY: the range is inside a readable mapping, which `loaded`'s caller keeps as it is.
                Some(unsafe { core::slice::from_raw_parts(start as *const u8, len) })
            }
            View::File(file) => {
                let s = self
                    .segments
                    .iter()
                    .find(|s| s.kind == PT_LOAD && vaddr >= s.vaddr && vaddr - s.vaddr < s.file_size)?;
                let offset = usize::try_from(s.offset + (vaddr - s.vaddr)).ok()?;
                file.get(offset..offset.checked_add(len)?)
            }
        }
    }

    fn word(&self, vaddr: u64) -> Option<u32> {
        Some(u32::from_le_bytes(self.at(vaddr, 4)?.try_into().ok()?))
    }

    fn quad(&self, vaddr: u64) -> Option<u64> {
        Some(u64::from_le_bytes(self.at(vaddr, 8)?.try_into().ok()?))
    }

    /// The difference between a pointer stored in the object's data and the virtual address it means: the loader has
    /// relocated what is in memory, but not what is in the file.
    pub fn pointer_bias(&self) -> u64 {
        match self.view {
            View::Loaded { bias, .. } => bias,
            View::File(_) => 0,
        }
    }

    /// The parts of the mapping of `len` bytes at file offset `offset` that belong to executable segments, as
    /// (position in the mapping, virtual address, length).
    pub fn executable(&self, offset: u64, len: usize) -> impl Iterator<Item = (usize, u64, usize)> + '_ {
        self.segments.iter().filter(|s| s.kind == PT_LOAD && s.flags & PF_X != 0).filter_map(move |s| {
            let start = s.offset.max(offset);
            let end = s.offset.saturating_add(s.file_size).min(offset.saturating_add(len as u64));
            (start < end).then(|| ((start - offset) as usize, s.vaddr + (start - s.offset), (end - start) as usize))
        })
    }

    fn frame_index(&self) -> Option<FrameIndex<'a>> {
        let base = self.segments.iter().find(|s| s.kind == PT_GNU_EH_FRAME)?.vaddr;
        let head = self.at(base, 4)?;
        // Version 1; a signed 32-bit pc-relative pointer; an unsigned 32-bit count; 32-bit offsets from the header.
        if head != [1, 0x1b, 0x03, 0x3b] {
            return None;
        }
        let count = self.word(base + 8)? as usize;
        let table = self.at(base + 12, count.checked_mul(8)?)?.as_chunks().0;
        Some(FrameIndex { base, table })
    }

    /// The function that `vaddr` lies in or, with `vaddr` past its declared end, that it may continue.
    pub fn function(&self, vaddr: u64) -> Option<Function> {
        let index = self.index.as_ref()?;
        let (mut low, mut high) = (0, index.table.len());
        while low < high {
            let middle = (low + high) / 2;
            if index.start(middle)? <= vaddr { low = middle + 1 } else { high = middle }
        }
        let found = low.checked_sub(1)?;
        let start = index.start(found)?;
        let length = self.frame_length(index.frame(found)?)?;
        let limit = index.start(low).unwrap_or(u64::MAX);
        Some(Function { range: start..start.checked_add(length)?, limit })
    }

    /// The length of the function that the frame description at `fde` describes.
    fn frame_length(&self, fde: u64) -> Option<u64> {
        if self.word(fde)? == u32::MAX {
            return None;
        }
        let parent = (fde + 4).checked_sub(u64::from(self.word(fde + 4)?))?;
        match self.pointer_encoding(parent)? & 0x0f {
            0x03 | 0x0b => Some(u64::from(self.word(fde + 12)?)),
            0x00 | 0x04 | 0x0c => self.quad(fde + 16),
            _ => None,
        }
    }

    /// How the descriptions with common part `cie` encode pointers.
    fn pointer_encoding(&self, cie: u64) -> Option<u8> {
        let mut at = cie + 8;
        let byte = |at: &mut u64| {
            let b = self.at(*at, 1)?[0];
            *at += 1;
            Some(b)
        };
        let skip_leb = |at: &mut u64| {
            while byte(at)? & 0x80 != 0 {}
            Some(())
        };
        let version = byte(&mut at)?;
        let mut letters = at;
        while byte(&mut at)? != 0 {}
        if byte(&mut letters)? != b'z' {
            return Some(0);
        }
        skip_leb(&mut at)?;
        skip_leb(&mut at)?;
        if version == 1 {
            byte(&mut at).map(|_| ())?
        } else {
            skip_leb(&mut at)?
        }
        skip_leb(&mut at)?;
        loop {
            match byte(&mut letters)? {
                b'R' => return byte(&mut at),
                b'L' => at += 1,
                b'P' => {
                    at += match byte(&mut at)? & 0x0f {
                        0x03 | 0x0b => 4,
                        0x00 | 0x04 | 0x0c => 8,
                        _ => return None,
                    }
                }
                b'S' | b'B' => {}
                _ => return Some(0),
            }
        }
    }

    /// The whole file; of a loaded object, mapped on first use.
    fn whole(&self) -> Option<&[u8]> {
        match &self.view {
            View::File(file) => Some(file),
            View::Loaded { path, inode, file, .. } => {
                let file = file.get_or_init(|| File::map(Fd::open(path)?.0, *inode));
                file.as_ref().map(File::bytes)
            }
        }
    }

    /// The address of the section called `name`. Section headers are not loaded, so this opens the file.
    fn section(&self, name: &[u8]) -> Option<u64> {
        let file = self.whole()?;
        let number = |at: usize, len: usize| {
            let bytes = file.get(at..at.checked_add(len)?)?;
            usize::try_from(bytes.iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b))).ok()
        };
        let table = number(0x28, 8)?;
        let header = |i: usize| Some(table.checked_add(64 * i)?).filter(|at| at.checked_add(64).is_some());
        let names = number(header(number(0x3e, 2)?)? + 24, 8)?;
        for i in 0..number(0x3c, 2)? {
            let at = header(i)?;
            let found = file.get(names.checked_add(number(at, 4)?)?..)?;
            if found.starts_with(name) && found.get(name.len()) == Some(&0) {
                return Some(number(at + 16, 8)? as u64);
            }
        }
        None
    }

    /// Calls `f` with the range of each function in the dynamic symbol table.
    pub fn symbols(&self, f: &mut dyn FnMut(Range<u64>)) {
        for symbol in self.dynamic_symbols().unwrap_or(&[]).as_chunks::<24>().0 {
            let number = |at: usize| symbol[at..at + 8].iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b));
            // STT_FUNC or STT_GNU_IFUNC, in a section.
            if matches!(symbol[4] & 0xf, 2 | 10) && symbol[6..8] != [0, 0] {
                f(number(8)..number(8).saturating_add(number(16)));
            }
        }
    }

    /// The dynamic symbol table.
    fn dynamic_symbols(&self) -> Option<&'a [u8]> {
        let dynamic = self.segments.iter().find(|s| s.kind == PT_DYNAMIC)?;
        let (mut symbols, mut hash, mut gnu_hash) = (None, None, None);
        for i in 0..dynamic.file_size / 16 {
            let value = self.quad(dynamic.vaddr + 16 * i + 8)?;
            match self.quad(dynamic.vaddr + 16 * i)? {
                0 => break,
                4 => hash = Some(self.unrelocated(value)),
                6 => symbols = Some(self.unrelocated(value)),
                0x6fff_fef5 => gnu_hash = Some(self.unrelocated(value)),
                _ => {}
            }
        }
        let count = match (hash, gnu_hash) {
            (Some(hash), _) => self.word(hash + 4)?,
            (None, Some(gnu_hash)) => self.gnu_hash_count(gnu_hash)?,
            (None, None) => return None,
        };
        self.at(symbols?, 24 * count as usize)
    }

    /// Whether Go's linker made this object, or part of it: it leaves a note, which is loaded.
    pub fn is_go(&self) -> bool {
        let notes = self.segments.iter().filter(|s| s.kind == PT_NOTE && s.file_size < 4096);
        let mut notes = notes.filter_map(|s| self.at(s.vaddr, s.file_size as usize));
        notes.any(|notes| notes.as_chunks::<4>().0.contains(b"Go\0\0"))
    }

    /// The table of functions that Go's linker makes, whatever is stripped: Go's code has no frame descriptions.
    pub fn go_functions(&self) -> Option<GoFunctions> {
        // The file is opened for Go's objects only.
        if !self.is_go() {
            return None;
        }
        let table = self.section(b".gopclntab")?;
        // Go 1.18 and 1.20; pointers of 8 bytes.
        if !matches!(self.word(table)?, 0xffff_fff0 | 0xffff_fff1) || self.at(table + 7, 1)? != [8] {
            return None;
        }
        let mut text = self.quad(table + 24)?;
        if text == 0 {
            // Since Go 1.26 in the module data only, behind a pointer, six slices and three addresses.
            text = self.quad(self.section(b".go.module")? + 176)?;
        }
        // Position-independent code in a file: not known before it is relocated.
        let text = Some(self.unrelocated(text)).filter(|&text| text != 0)?;
        let count = usize::try_from(self.quad(table + 8)?).ok()?;
        let entries = table + self.quad(table + 64)?;
        self.at(entries, count.checked_mul(8)?.checked_add(4)?)?;
        Some(GoFunctions { text, entries, count })
    }

    /// The Go function that `vaddr` lies in.
    pub fn go_function(&self, go: &GoFunctions, vaddr: u64) -> Option<Range<u64>> {
        let start_of = |i: usize| Some(go.text + u64::from(self.word(go.entries + 8 * i as u64)?));
        let (mut low, mut high) = (0, go.count + 1);
        while low < high {
            let middle = (low + high) / 2;
            if start_of(middle)? <= vaddr { low = middle + 1 } else { high = middle }
        }
        (low >= 1 && low <= go.count).then_some(start_of(low.wrapping_sub(1))?..start_of(low)?)
    }

    /// The addresses between the first described function and the end of the last one: where code is, when an object
    /// has it in one segment with its data.
    pub fn described(&self) -> Option<Range<u64>> {
        let index = self.index.as_ref()?;
        let first = index.start(0)?;
        Some(first..self.function(u64::MAX)?.range.end)
    }

    /// The loader turns the addresses in a loaded object's dynamic section into pointers, or leaves them alone.
    fn unrelocated(&self, value: u64) -> u64 {
        let bias = self.pointer_bias();
        if value >= bias { value - bias } else { value }
    }

    /// The number of dynamic symbols, from the GNU hash table: one past the end of the last chain.
    fn gnu_hash_count(&self, table: u64) -> Option<u32> {
        let (buckets, first, bloom) = (self.word(table)?, self.word(table + 4)?, self.word(table + 8)?);
        let heads = table + 16 + 8 * u64::from(bloom);
        let chains = heads + 4 * u64::from(buckets);
        let mut last = 0;
        for i in 0..u64::from(buckets) {
            last = last.max(self.word(heads + 4 * i)?);
        }
        if last < first {
            return Some(first);
        }
        while self.word(chains + 4 * u64::from(last - first))? & 1 == 0 {
            last += 1;
        }
        Some(last + 1)
    }
}

/// The program headers of a 64-bit little-endian x86-64 object that starts with `bytes`.
fn segments(bytes: &[u8]) -> Option<Vec<Segment>> {
    const HEADER: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, 1];
    let half = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?));
    let quad = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?));
    if bytes.get(..6)? != HEADER || half(18)? != 62 || half(54)? != 56 {
        return None;
    }
    let table = usize::try_from(quad(32)?).ok()?;
    let mut list = Vec::new();
    for i in 0..usize::from(half(56)?) {
        let at = table.checked_add(56 * i)?;
        let (kind, flags) = (word(at)?, word(at + 4)?);
        let s = Segment { kind, flags, offset: quad(at + 8)?, vaddr: quad(at + 16)?, file_size: quad(at + 32)? };
        // So that no sum of them overflows.
        if s.offset.max(s.vaddr).max(s.file_size) >= 1 << 62 {
            return None;
        }
        list.push(s);
    }
    Some(list)
}

/// The virtual address at which an executable segment maps file offset `offset`, which may be the start of the
/// segment's first page.
fn address_of(segments: &[Segment], offset: u64) -> Option<u64> {
    let executable = segments.iter().filter(|s| s.kind == PT_LOAD && s.flags & PF_X != 0);
    let mut within = executable.filter(|s| offset >= s.offset & !4095 && offset < s.offset + s.file_size);
    within.next().map(|s| s.vaddr.wrapping_sub(s.offset).wrapping_add(offset))
}
