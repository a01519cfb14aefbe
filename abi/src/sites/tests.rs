//! Tests on the test program's own libc and loader, found and mapped anew.

extern crate std;

use super::decode::{self, Reader};
use super::elf::Image;
use super::find::{self, Site};
use super::maps::{Mapping, Maps};
use super::*;
use heddle_core::sys;
use heddle_core::sys::linux;
use std::vec::Vec;

fn executable(maps: &Maps, name: &[u8]) -> Mapping {
    let wanted = |m: &&Mapping| m.prot & linux::PROT_EXEC != 0 && maps.path(m).windows(name.len()).any(|w| w == name);
    maps.list.iter().find(wanted).unwrap().clone()
}

/// libc as loaded: its image, text, and the text's virtual address.
fn libc() -> (Image<'static>, &'static [u8], u64) {
    let maps = Maps::read().unwrap();
    let m = executable(&maps, b"/libc.so");
    // SAFETY: nothing unloads or changes libc while the tests run.
    unsafe {
        let image = Image::loaded(&maps, &m).unwrap();
        let (at, vaddr, len) = image.executable(m.offset, m.range.len()).next().unwrap();
        let text = core::slice::from_raw_parts((m.range.start + at) as *const u8, len);
        (image, text, vaddr)
    }
}

fn bytes(text: &[u8], site: &Site) -> Vec<u8> {
    text[site.start as usize..site.end() as usize].to_vec()
}

#[test]
fn libc_windows_are_whole_instructions_and_disjoint() {
    let (image, text, vaddr) = libc();
    let found = find::find(&image, text, vaddr);
    assert!(found.sites.len() > 300, "only {} sites", found.sites.len());
    assert!(found.left.len() <= 1, "sites left alone: {:x?}", found.left);
    assert!(!found.wide, "this libc is built for baseline x86-64");
    let mut last = 0;
    for site in &found.sites {
        assert_eq!(text[site.syscall() as usize..][..2], [0x0f, 0x05]);
        assert!(site.end() - site.start >= 5);
        assert!(site.start >= last, "windows overlap at {:x}", site.start);
        last = site.end();
        let window = bytes(text, site);
        let mut reader = Reader::new(&window, 0, 0);
        let (mut at, mut calls) = (0, 0);
        while at < window.len() {
            let (insn, _) = reader.next().unwrap();
            calls += u32::from(insn.is(decode::SYSCALL));
            assert!(insn.is(decode::SYSCALL) || !insn.is(decode::FLOW), "a branch would be moved at {:x}", site.start);
            at = insn.end() as usize;
        }
        assert_eq!((at, calls), (window.len(), 1));
    }
}

#[test]
fn nothing_in_libc_branches_into_a_window() {
    let (image, text, vaddr) = libc();
    let found = find::find(&image, text, vaddr);
    // The whole text, decoded function after function as the object itself describes them.
    let mut at = image.described().unwrap().start;
    let (mut branches, mut functions) = (0, 0);
    while let Some(f) = image.function(at) {
        let start = f.range.start.wrapping_sub(vaddr) as usize;
        let end = (f.range.end.wrapping_sub(vaddr) as usize).min(text.len());
        if start < end {
            functions += 1;
            let mut reader = Reader::new(&text[..end], vaddr, start);
            while let Some((_, refers)) = reader.next() {
                let decode::Refers::Branch(to) = refers else { continue };
                branches += 1;
                let Ok(to) = u32::try_from(to.wrapping_sub(vaddr)) else { continue };
                let behind = found.sites.partition_point(|s| s.start < to);
                if let Some(site) = behind.checked_sub(1).map(|i| &found.sites[i]) {
                    assert!(to >= site.end(), "a branch to {to:x}, inside {site:x?}");
                }
            }
        }
        if f.limit == u64::MAX {
            break;
        }
        at = f.limit;
    }
    assert!(functions > 2000 && branches > 20_000, "{functions} functions, {branches} branches");
}

#[test]
fn the_return_from_signal_handlers_stays() {
    let (image, text, vaddr) = libc();
    let pattern = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
    let at = text.windows(pattern.len()).position(|w| w == pattern).unwrap() as u32;
    let found = find::find(&image, text, vaddr);
    assert!(!found.sites.iter().any(|s| s.start < at + 9 && at < s.end()));
    assert!(found.left.contains(&(at + 7)), "it is counted");
    assert!(find::is_sigreturn(text, at as usize + 7));
    assert!(find::is_sigreturn(&[0xb8, 15, 0, 0, 0, 0x0f, 0x05], 5));
    assert!(!find::is_sigreturn(&[0xb8, 14, 0, 0, 0, 0x0f, 0x05], 5));
}

#[test]
fn the_file_tells_the_same_as_memory() {
    let (image, text, vaddr) = libc();
    let maps = Maps::read().unwrap();
    let path = std::string::String::from_utf8(maps.path(&executable(&maps, b"/libc.so")).to_vec()).unwrap();
    let file = std::fs::read(path).unwrap();
    let other = Image::file(&file).unwrap();
    let (a, b) = (find::find(&image, text, vaddr), find::find(&other, text, vaddr));
    assert_eq!((&a.sites, &a.left, a.wide), (&b.sites, &b.left, b.wide));
    let (at, file_vaddr, len) = other.executable(0, file.len()).next().unwrap();
    assert_eq!((file_vaddr, &file[at..at + len]), (vaddr, text));
}

#[test]
fn mappings_come_and_go() {
    use std::io::{Seek, SeekFrom};
    use std::os::fd::AsRawFd;
    let maps = Maps::read().unwrap();
    let loaded = executable(&maps, b"/ld-linux");
    let path = std::string::String::from_utf8(maps.path(&loaded).to_vec()).unwrap();
    let mut file = std::fs::File::open(path).unwrap();
    file.seek(SeekFrom::Start(123)).unwrap();
    let (len, fd) = (loaded.range.len(), file.as_raw_fd());
    // Nothing runs in the mapping, so nothing enters.
    hold().registry().entries = Some(Entries { syscall: 1, syscall_full: 2, post: 3 });
    let report = || {
        let mut counts = None;
        for_each_report(&mut |name, rewritten, left| {
            if name.starts_with(b"ld-linux") {
                counts = Some((rewritten, left));
            }
        });
        counts
    };
    assert_eq!(report(), None);
    for round in 0..3 {
        let flags = linux::MAP_PRIVATE;
        // SAFETY: a new private mapping of a file's text, in which nothing runs.
        let start = unsafe {
            let start = sys::check(sys!(linux::__NR_mmap, 0, len, 5, flags, fd, loaded.offset)).unwrap();
            rewrite_mapping(start, len, fd, loaded.offset, 5);
            start
        };
        let (rewritten, left) = report().unwrap();
        assert!(rewritten > 20 && left == 1, "{rewritten} {left}");
        // The running copy has the same bytes, but for the jumps.
        // SAFETY: both are mapped and readable.
        let (copy, original) = unsafe {
            (
                core::slice::from_raw_parts(start as *const u8, len),
                core::slice::from_raw_parts(loaded.range.start as *const u8, len),
            )
        };
        let at = (0..len).find(|&i| copy[i] != original[i]).unwrap();
        assert_eq!(copy[at], 0xe9);
        let distance = i32::from_le_bytes(copy[at + 1..at + 5].try_into().unwrap());
        let stub = (start + at + 5).wrapping_add_signed(distance as isize);
        assert_eq!(original_pc(stub), Some(start + at));
        let now = Maps::read().unwrap();
        let protection = |a: usize| now.list.iter().find(|m| m.range.contains(&a)).unwrap().prot;
        assert_eq!((protection(start), protection(stub)), (5, 5));
        // Known already: nothing happens to it.
        let before = copy.to_vec();
        // SAFETY: as above.
        unsafe { rewrite_mapping(start, len, -1, 0, 5) };
        assert_eq!((copy, report()), (&before[..], Some((rewritten, left))));
        // A part without sites goes, then the rest.
        forget(start + len - 4096, 4096);
        assert_eq!(original_pc(stub), Some(start + at));
        forget(start, len);
        assert_eq!(original_pc(stub), None, "round {round}");
        // SAFETY: mapped above; nothing refers to it any more.
        unsafe { sys!(linux::__NR_munmap, start, len) };
        assert_eq!(report(), Some((rewritten, left)));
    }
    assert_eq!(file.stream_position().unwrap(), 123);
}

#[test]
fn a_known_text_that_differs_is_searched_and_executable_afterwards() {
    use std::os::fd::AsRawFd;
    let maps = Maps::read().unwrap();
    let loaded = executable(&maps, b"/ld-linux");
    let original = std::string::String::from_utf8(maps.path(&loaded).to_vec()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (library, copy) = (folder.path().join("libheddle-1.so"), folder.path().join("copy"));
    std::fs::write(&library, "library").unwrap();
    std::fs::copy(original, &copy).unwrap();
    // Else it is one that may still change, and not recorded.
    std::thread::sleep(std::time::Duration::from_millis(3100));
    let file = std::fs::File::open(copy).unwrap();
    let (len, fd) = (loaded.range.len(), file.as_raw_fd());
    let before = {
        let mut hold = hold();
        let registry = hold.registry();
        // Nothing runs in the mapping, so nothing enters.
        registry.entries = Some(Entries { syscall: 1, syscall_full: 2, post: 3 });
        core::mem::replace(&mut registry.library, library.to_str().unwrap().as_bytes().to_vec())
    };
    let records = || std::fs::metadata(library.with_extension("sites")).map_or(0, |m| m.len());
    let protection = |at: usize| Maps::read().unwrap().list.iter().find(|m| m.range.contains(&at)).unwrap().prot;
    // Rewrites a new mapping, in which bytes have been changed; answers where there are jumps.
    let rewrite = |changes: &[usize]| {
        // SAFETY: a new private mapping of a file's text, in which nothing runs.
        unsafe {
            let flags = linux::MAP_PRIVATE;
            let start = sys::check(sys!(linux::__NR_mmap, 0, len, 3, flags, fd, loaded.offset)).unwrap();
            let text = core::slice::from_raw_parts_mut(start as *mut u8, len);
            for &at in changes {
                text[at] = 0xcc;
            }
            let unchanged = text.to_vec();
            sys::check(sys!(linux::__NR_mprotect, start, len, 5)).unwrap();
            rewrite_mapping(start, len, fd, loaded.offset, 5);
            assert_eq!(protection(start), 5);
            let is_jump = |&at: &usize| text[at] == 0xe9 && unchanged[at] != 0xe9;
            let jumps: Vec<usize> = (0..len).filter(is_jump).collect();
            forget(start, len);
            sys!(linux::__NR_munmap, start, len);
            jumps
        }
    };
    let found = rewrite(&[]);
    let learnt = records();
    assert!(found.len() > 20 && learnt > 0, "{} jumps, {learnt} bytes", found.len());
    assert_eq!((rewrite(&[]), records()), (found.clone(), learnt), "known");
    // As a debugger would: a trap where a window begins.
    let broken = found[found.len() / 2];
    assert!(!rewrite(&[broken]).contains(&broken));
    assert!(records() > learnt, "searched again");
    assert_eq!(rewrite(&[]), found);
    hold().registry().library = before;
}

#[test]
fn emptying_a_text_keeps_what_was_changed_in_it() {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;
    let maps = Maps::read().unwrap();
    let path = std::string::String::from_utf8(maps.path(&executable(&maps, b"/libc.so")).to_vec()).unwrap();
    let file = std::fs::File::open(path).unwrap();
    // More than is looked at in one piece.
    let len = 700 * 4096;
    let len = len.min(file.metadata().unwrap().len() as usize & !4095);
    let changed = [0, 5, 6, len / 4096 - 1];
    // SAFETY: a new private mapping of a file, which is ours alone.
    let text = unsafe {
        let start = sys::check(sys!(linux::__NR_mmap, 0, len, 3, linux::MAP_PRIVATE, file.as_raw_fd(), 0)).unwrap();
        core::slice::from_raw_parts_mut(start as *mut u8, len)
    };
    let original = text.to_vec();
    for page in changed {
        text[4096 * page + 7] ^= 0xff;
    }
    let start = text.as_ptr() as usize;
    // SAFETY: as above.
    unsafe { rewrite::empty(&(start..start + len)) };
    let mut entries = std::vec![0u8; len / 4096 * 8];
    let pages = std::fs::File::open("/proc/self/pagemap").unwrap();
    pages.read_exact_at(&mut entries, (start / 4096 * 8) as u64).unwrap();
    let present: Vec<usize> = (0..len / 4096).filter(|page| entries[8 * page + 7] & 0x80 != 0).collect();
    assert_eq!(present, changed);
    for page in 0..len / 4096 {
        let at = 4096 * page + 7;
        assert_eq!(text[at] != original[at], changed.contains(&page), "page {page}");
        text[at] = original[at];
    }
    assert!(text == &original[..]);
    // SAFETY: mapped above; nothing refers to it any more.
    unsafe { sys!(linux::__NR_munmap, start, len) };
}

#[test]
fn symbols_are_found_in_memory() {
    unsafe extern "C" {
        fn getppid() -> i32;
    }
    let (image, text, vaddr) = libc();
    let wanted = (getppid as *const () as usize - text.as_ptr() as usize) as u64 + vaddr;
    let (mut found, mut count) = (None, 0);
    image.symbols(&mut |range| {
        count += 1;
        if range.start == wanted {
            found = Some(range);
        }
    });
    assert!(count > 1000, "{count}");
    let (symbol, described) = (found.unwrap(), image.function(wanted).unwrap());
    assert_eq!(symbol, described.range);
}

#[test]
fn damaged_files_do_no_harm() {
    let maps = Maps::read().unwrap();
    let path = std::string::String::from_utf8(maps.path(&executable(&maps, b"/ld-linux")).to_vec()).unwrap();
    let whole = std::fs::read(path).unwrap();
    let mut sites = 0;
    survey_file(&whole, &mut |_, found| sites += found.sites.len());
    assert!(sites > 20, "{sites}");
    // The ELF header, the program headers, the dynamic section's neighbourhood and the frame index.
    let mut seed = 7u64;
    let mut next = |below: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below
    };
    let mut survived = 0;
    for round in 0..60 {
        let mut file = whole.clone();
        for _ in 0..1 + round % 8 {
            let at = if round % 3 == 0 { next(whole.len()) } else { 16 + next(700) };
            file[at] = [0, 1, 0x7f, 0x80, 0xff, next(256) as u8][next(6)];
        }
        file.truncate(if round % 5 == 0 { next(whole.len()) } else { whole.len() });
        survey_file(&file, &mut |_, found| survived += usize::from(!found.sites.is_empty()));
    }
    assert!(survived > 0);
}
