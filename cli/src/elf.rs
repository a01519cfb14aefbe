//! Checks a program's ELF file: dynamically linked, 64-bit x86-64, for a glibc that Heddle knows, without privileges.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use object::elf as abi;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, ReadCache, ReadRef};
use rustix::fs::Mode;
use rustix::io::Errno;

use crate::machine::{self, GLIBC_NEEDED, Glibc};
use crate::program::WAY_OUT;

/// What an ELF file is, as far as Heddle cares.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// A program that names its dynamic loader.
    Dynamic { loader: String },
    /// Something that Heddle does not run, and why not.
    Refused(String),
}

/// Checks the program in `file`, which begins with `head`; answers why Heddle refuses it, with the way out.
pub fn check(file: &File, head: &[u8]) -> Result<(), String> {
    if !head.starts_with(&abi::ELFMAG) {
        return Err("not a program (neither ELF nor a script that begins with '#!')".to_owned());
    }
    check_privileges(file)?;
    match kind(&ReadCache::new(file), head) {
        Kind::Dynamic { loader } => check_loader(&loader),
        Kind::Refused(why) => Err(why),
    }
}

/// Refuses programs that the kernel starts with more rights than the caller has: the loader ignores LD_PRELOAD in them.
fn check_privileges(file: &File) -> Result<(), String> {
    let mode = file.metadata().map_err(|e| e.to_string())?.mode();
    let refused = |what| Err(format!("{what}, and the loader preloads nothing into such programs; {WAY_OUT}"));
    if mode & Mode::SUID.bits() != 0 {
        return refused("is setuid");
    }
    // Without the group's execute bit, setgid meant mandatory locking and gives no rights.
    if mode & Mode::SGID.bits() != 0 && mode & Mode::XGRP.bits() != 0 {
        return refused("is setgid");
    }
    match rustix::fs::fgetxattr(file, "security.capability", &mut [0_u8; 64]) {
        Ok(_) => refused("has file capabilities"),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        // A value longer than any kernel writes is still a value.
        Err(Errno::RANGE) => refused("has file capabilities"),
        Err(e) => Err(format!("cannot read its file capabilities: {e}")),
    }
}

/// What kind of program this is.
fn kind<'data>(data: impl ReadRef<'data>, head: &[u8]) -> Kind {
    let refused = |what: &str| Kind::Refused(format!("{what}; {WAY_OUT}"));
    let damaged = || Kind::Refused("is a damaged ELF file".to_owned());
    let byte = |at: usize| head.get(at).copied().unwrap_or_default();
    let machine = u16::from_le_bytes([byte(18), byte(19)]);
    if byte(4) == abi::ELFCLASS32.0 {
        return refused("is a 32-bit program, and Heddle runs 64-bit x86-64 programs");
    }
    if byte(5) != abi::ELFDATA2LSB.0 || machine != abi::EM_X86_64.0 {
        let name = architecture(u16::from_be_bytes([byte(18), byte(19)]), machine);
        return refused(&format!("is a program for {name}, and Heddle runs x86-64 programs"));
    }
    let Ok(header) = abi::FileHeader64::<Endianness>::parse(data) else { return damaged() };
    let Ok(endian) = header.endian() else { return damaged() };
    let kind = header.e_type(endian);
    if kind != abi::ET_EXEC && kind != abi::ET_DYN {
        return Kind::Refused("is an ELF file but not a program (an object file or a core dump)".to_owned());
    }
    let Ok(segments) = header.program_headers(endian, data) else { return damaged() };
    for segment in segments {
        match segment.interpreter(endian, data) {
            Ok(Some(_)) if is_go(segments, endian, data) => {
                return refused(
                    "holds Go code, whose goroutines' stacks are too small for Heddle's part of a system call",
                );
            }
            Ok(Some(loader)) => return Kind::Dynamic { loader: String::from_utf8_lossy(loader).into_owned() },
            Ok(None) => {}
            Err(_) => return damaged(),
        }
    }
    if kind == abi::ET_EXEC {
        return refused("is statically linked, and Heddle enters a program through its dynamic loader");
    }
    let mut names = false;
    let mut pie = false;
    for segment in segments {
        match segment.dynamic(endian, data) {
            Ok(Some(entries)) => {
                for entry in entries {
                    names |= entry.d_tag.get(endian) == abi::DT_SONAME;
                    pie |= entry.d_tag.get(endian) == abi::DT_FLAGS_1 && entry.d_val.get(endian) & abi::DF_1_PIE.0 != 0;
                }
            }
            Ok(None) => {}
            Err(_) => return damaged(),
        }
    }
    if names && !pie {
        return Kind::Refused("is a shared library, not a program".to_owned());
    }
    refused("is statically linked (static-pie), and Heddle enters a program through its dynamic loader")
}

/// Whether Go's linker has left its note.
fn is_go<'data, S: ProgramHeader<Endian = Endianness>>(
    segments: &[S],
    endian: Endianness,
    data: impl ReadRef<'data>,
) -> bool {
    let mut notes = segments.iter().filter_map(|segment| segment.notes(endian, data).ok().flatten());
    notes.any(|mut notes| core::iter::from_fn(|| notes.next().ok().flatten()).any(|note| note.name() == b"Go"))
}

/// How many bytes from the beginning of `file` on hold everything that is loaded; all of them if it is no ELF file.
pub fn loaded_length(file: &[u8]) -> usize {
    let find = || {
        let header = abi::FileHeader64::<Endianness>::parse(file).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, file).ok()?.iter();
        let ends = segments.filter(|s| s.p_type(endian) == abi::PT_LOAD).map(|s| {
            let (start, length) = s.file_range(endian);
            start.saturating_add(length)
        });
        usize::try_from(ends.max()?).ok()
    };
    find().map_or(file.len(), |length| length.min(file.len()))
}

/// Whether the program in the file at `path` asks for the address sanitizer's library.
pub fn needs_asan(path: &Path) -> bool {
    let find = || {
        let cache = ReadCache::new(File::open(path).ok()?);
        let elf = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
        let endian = elf.endian();
        let sections = elf.elf_section_table();
        for section in sections.iter() {
            let Some((entries, strings)) = section.dynamic(endian, &cache).ok()? else { continue };
            let strings = sections.section(strings).ok()?.data(endian, &cache).ok()?;
            let needed = entries.iter().filter(|entry| entry.d_tag.get(endian) == abi::DT_NEEDED);
            let mut names = needed.filter_map(|entry| strings.get(usize::try_from(entry.d_val.get(endian)).ok()?..));
            return Some(names.any(|name| name.starts_with(b"libasan.so")));
        }
        None
    };
    find().unwrap_or(false)
}

/// A readable name for an ELF file's machine, which a foreign byte order shows as `swapped`.
fn architecture(swapped: u16, machine: u16) -> String {
    let name = |machine| {
        Some(match abi::Machine(machine) {
            abi::EM_X86_64 => "x86-64",
            abi::EM_386 => "i386",
            abi::EM_AARCH64 => "aarch64",
            abi::EM_ARM => "arm",
            abi::EM_RISCV => "riscv",
            abi::EM_PPC64 => "powerpc64",
            abi::EM_S390 => "s390",
            abi::EM_MIPS => "mips",
            abi::EM_LOONGARCH => "loongarch",
            _ => return None,
        })
    };
    let name = name(machine).or_else(|| name(swapped));
    name.map_or_else(|| format!("another machine (ELF machine {machine})"), str::to_owned)
}

/// Checks that the program's dynamic loader is that of a glibc new enough.
fn check_loader(loader: &str) -> Result<(), String> {
    let path = Path::new(loader);
    let real =
        fs::canonicalize(path).map_err(|e| format!("its dynamic loader {loader}: {}", crate::program::reason(&e)))?;
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (asked, found) = (name(path), name(&real));
    if asked.contains("musl") || found.contains("musl") {
        return Err(format!("is linked against musl, and Heddle needs glibc; {WAY_OUT}"));
    }
    if !["ld-linux-x86-64.so", "ld-2.", "ld-lsb-x86-64.so"].iter().any(|known| found.starts_with(known)) {
        return Err(format!("uses the dynamic loader {loader}, and Heddle needs glibc's; {WAY_OUT}"));
    }
    // glibc installs its library beside its loader; where it does not, it is the one that heddle itself runs with.
    let glibc = glibc_of(&real.with_file_name("libc.so.6")).unwrap_or_else(machine::running_glibc);
    if glibc < GLIBC_NEEDED {
        return Err(format!("uses glibc {glibc}, and Heddle needs {GLIBC_NEEDED} or newer; {WAY_OUT}"));
    }
    Ok(())
}

/// The version of the glibc in this file: the newest of the symbol versions it defines.
///
/// Strings are taken out of a table that is read as a whole: `object`'s own way reads the file for each, and searches with
/// the vector instructions that it first asks the processor for, which takes a virtual machine longer than all the rest.
fn glibc_of(libc: &Path) -> Option<Glibc> {
    let file = File::open(libc).ok()?;
    let cache = ReadCache::new(file);
    let elf = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
    let endian = elf.endian();
    let mut newest = None;
    let sections = elf.elf_section_table();
    for section in sections.iter() {
        let Some((mut definitions, strings)) = section.gnu_verdef(endian, &cache).ok()? else { continue };
        let strings = sections.section(strings).ok()?.data(endian, &cache).ok()?;
        while let Some((_, mut names)) = definitions.next().ok()? {
            if let Some(name) = names.next().ok()? {
                let name = strings.get(name.vda_name.get(endian) as usize..)?.split(|&b| b == 0).next()?;
                newest = newest.max(Glibc::from_symbol_version(name));
            }
        }
    }
    newest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_image() -> Vec<u8> {
        fs::read("/proc/self/exe").unwrap()
    }

    fn why(image: &[u8]) -> String {
        match kind(image, &image[..image.len().min(256)]) {
            Kind::Refused(why) => why,
            Kind::Dynamic { loader } => panic!("accepted, with loader {loader}"),
        }
    }

    #[test]
    fn this_very_program_is_dynamic() {
        let image = own_image();
        assert_eq!(kind(&*image, &image[..256]), Kind::Dynamic { loader: "/lib64/ld-linux-x86-64.so.2".to_owned() });
    }

    #[test]
    fn a_cut_file_is_damaged() {
        assert!(why(&own_image()[..70]).contains("damaged"));
    }

    #[test]
    fn the_running_glibc_is_the_one_on_disk() {
        let loader = fs::canonicalize("/lib64/ld-linux-x86-64.so.2").unwrap();
        let on_disk = glibc_of(&loader.with_file_name("libc.so.6")).unwrap();
        // A glibc need not define symbols in each version, so the newest symbol may be older than the library.
        assert!(on_disk <= machine::running_glibc() && on_disk >= GLIBC_NEEDED, "{on_disk}");
    }

    #[test]
    fn foreign_byte_orders_are_named() {
        let mut image = own_image();
        image[5] = abi::ELFDATA2MSB.0;
        image[18..20].copy_from_slice(&abi::EM_S390.0.to_be_bytes());
        assert!(why(&image).contains("s390"), "{}", why(&image));
    }

    #[test]
    fn go_programs_are_refused() {
        let mut image = own_image();
        let name = image.windows(16).position(|note| note.starts_with(&[4, 0, 0, 0]) && note.ends_with(b"GNU\0"));
        let name = name.expect("a build id or another of GNU's notes") + 12;
        image[name - 12] = 3;
        image[name..name + 4].copy_from_slice(b"Go\0\0");
        assert!(why(&image).contains("Go code"), "{}", why(&image));
    }

    #[test]
    fn object_files_are_not_programs() {
        let mut image = own_image();
        image[16..18].copy_from_slice(&abi::ET_REL.0.to_le_bytes());
        assert!(why(&image).contains("not a program"));
    }
}
