//! What earlier processes have found in files that are mapped again: a file of records beside Heddle's library, so that a text
//! is not read again as long as its file does not change (`docs/design/020-known-sites.md`).
//!
//! # Trust
//! Who can write the file could as well replace the library that reads it: it is used only if it belongs to whom the library
//! belongs to, and nobody else may write it. It is named after the library, whose name is that of its contents, so another
//! version of the finder has another file.
//!
//! # When a record holds
//! A record is for one part of a file, named by device, inode, size, the time of the last change (ctime, which no program can set) and
//! the first KiB, which holds the build id. Sites are compared with the text all the same, as far as windows reach. A file
//! that was changed less than [`SETTLED`] seconds before is not recorded: it could change again within one tick of its
//! filesystem's clock. The kernel's own object is in no file: its record is named by the sum of all its bytes.
//!
//! # Writing
//! Records are appended by one `write` each time. Half a record at the end is ignored, and everything behind a damaged one;
//! then, or when the file is full, the next process that has something to add starts it anew. No lock: who comes second
//! may add what is there already.

use super::file::Fd;
use super::find::{Found, Site};
use alloc::vec::Vec;
use core::cell::Cell;
use heddle_core::sys;
use heddle_core::sys::linux;

/// The file's length in bytes from which on it is started anew.
const MOST: usize = 256 << 10;
/// In seconds.
const SETTLED: i64 = 2;
/// The upper half of a record's first word.
const MAGIC: u64 = 0x6865_6431;
/// Bytes of a mapping from which on it is worth a record.
const LEAST: usize = 32 << 10;
/// Bytes at the beginning of an object that are part of its identity.
pub const BEGINNING: usize = 1024;

/// One state of one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    seconds: i64,
    nanoseconds: u64,
    beginning: u64,
}

impl Identity {
    /// That of the file at `path`, if its inode is `inode`; `beginning` are an object's first bytes as they are mapped.
    pub fn at(path: &[u8], inode: u64, beginning: &[u8]) -> Option<Identity> {
        let name = terminated(path);
        let stat = stat(|to| {
            // SAFETY: a string that ends in a NUL, and room for the answer.
            unsafe { sys!(linux::__NR_newfstatat, linux::AT_FDCWD, name.as_ptr(), to, 0) }
        })?;
        Identity::of(&stat, beginning).filter(|identity| identity.inode == inode)
    }

    /// That of the file behind `fd`.
    pub fn behind(fd: i32, beginning: &[u8]) -> Option<Identity> {
        // SAFETY: writes the answer only.
        Identity::of(&stat(|to| unsafe { sys!(linux::__NR_fstat, fd, to) })?, beginning)
    }

    /// That of an object which is in no file: what tells its state is all that is in it.
    pub fn of_contents(contents: &[u8]) -> Identity {
        let size = contents.len() as u64;
        Identity { device: 0, inode: 0, size, seconds: 0, nanoseconds: 0, beginning: sum_of_bytes(contents, 0) }
    }

    fn of(stat: &linux::stat, beginning: &[u8]) -> Option<Identity> {
        is_regular(stat).then_some(Identity {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size as u64,
            seconds: stat.st_ctime as i64,
            nanoseconds: stat.st_ctime_nsec,
            beginning: sum_of_bytes(beginning, 0),
        })
    }

    fn words(&self) -> [u64; 6] {
        [self.device, self.inode, self.size, self.seconds as u64, self.nanoseconds, self.beginning]
    }
}

/// The parts of a record before its sites, in words.
mod at {
    /// Magic and the number of words.
    pub const LENGTH: usize = 0;
    /// Of all words that follow.
    pub const SUM: usize = 1;
    /// Six words.
    pub const IDENTITY: usize = 2;
    /// In the file.
    pub const OFFSET: usize = 8;
    /// The text's, in bytes.
    pub const TEXT: usize = 9;
    /// The sum of the windows' bytes.
    pub const WINDOWS: usize = 10;
    /// Sites; the upper half: sites left alone.
    pub const COUNTS: usize = 11;
    pub const WIDE: usize = 12;
    /// A word for each site, then one for each that is left alone.
    pub const SITES: usize = 13;
}

/// What is known, and what has been learnt since. The default has no file, and knows nothing.
#[derive(Default)]
pub struct Known {
    /// The file's name, which ends in a NUL, and its owner.
    place: Option<(Vec<u8>, u32)>,
    records: Vec<u64>,
    damaged: Cell<bool>,
    /// Where the last record was found: the next one that is wanted is often behind it.
    next: Cell<usize>,
    learnt: Vec<u64>,
}

impl Known {
    /// Reads what is known. `library`: the path of Heddle's own library; a name without a folder, or one that is not that of
    /// a library, has no such file.
    pub fn read(library: &[u8]) -> Known {
        let mut known = Known::default();
        let Some(stem) = library.strip_suffix(b".so").filter(|stem| stem.starts_with(b"/")) else { return known };
        let name = terminated(library);
        // SAFETY: a string that ends in a NUL, and room for the answer.
        let stat = stat(|to| unsafe { sys!(linux::__NR_newfstatat, linux::AT_FDCWD, name.as_ptr(), to, 0) })
            .filter(is_regular);
        let Some(owner) = stat.map(|stat| stat.st_uid) else { return known };
        let mut path = stem.to_vec();
        path.extend_from_slice(b".sites");
        if let Some(file) = open(&path, linux::O_RDONLY, owner) {
            known.records = file.words();
        }
        path.push(0);
        known.place = Some((path, owner));
        known
    }

    /// What `ask` tells of the file of a mapping that is so long, if there is use for it.
    pub fn identity(&self, length: usize, ask: impl FnOnce() -> Option<Identity>) -> Option<Identity> {
        self.place.as_ref().filter(|_| length >= LEAST).and_then(|_| ask())
    }

    /// What was found in `text`, which is at `offset` in the file. `prepare` is told which sites of it are going to be looked at.
    pub fn find(&self, file: &Identity, offset: u64, text: &[u8], prepare: &mut dyn FnMut(&[Site])) -> Option<Found> {
        let middle = self.next.get().min(self.records.len());
        self.find_from(middle, file, offset, text, prepare).or_else(|| self.find_from(0, file, offset, text, prepare))
    }

    fn find_from(
        &self,
        start: usize,
        file: &Identity,
        offset: u64,
        text: &[u8],
        prepare: &mut dyn FnMut(&[Site]),
    ) -> Option<Found> {
        let mut rest = &self.records[start..];
        while let Some(&first) = rest.get(at::LENGTH) {
            let length = (first & u64::from(u32::MAX)) as usize;
            if first >> 32 != MAGIC || length < at::SITES {
                self.damaged.set(true);
                return None;
            }
            let (record, behind) = rest.split_at_checked(length)?;
            rest = behind;
            if record[at::IDENTITY..at::OFFSET] != file.words()
                || record[at::OFFSET] != offset
                || record[at::TEXT] != text.len() as u64
            {
                continue;
            }
            if record[at::SUM] != sum(&record[at::IDENTITY..], 0) {
                self.damaged.set(true);
                return None;
            }
            let Some(found) = decode(record) else { continue };
            prepare(&found.sites);
            if windows(text, &found) == Some(record[at::WINDOWS]) {
                self.next.set(self.records.len() - rest.len());
                return Some(found);
            }
        }
        None
    }

    /// Notes what has been found in `text`.
    pub fn learn(&mut self, file: &Identity, offset: u64, text: &[u8], found: &Found) {
        if self.place.is_none() || now().is_none_or(|now| now - file.seconds < SETTLED) {
            return;
        }
        let Some(windows) = windows(text, found) else { return };
        let start = self.learnt.len();
        let length = at::SITES + found.sites.len() + found.left.len();
        self.learnt.extend([MAGIC << 32 | length as u64, 0]);
        self.learnt.extend(file.words());
        self.learnt.extend([offset, text.len() as u64, windows]);
        self.learnt.extend([found.sites.len() as u64 | (found.left.len() as u64) << 32, u64::from(found.wide)]);
        let site = |s: &Site| u64::from(s.start) | u64::from(s.prefix) << 32 | u64::from(s.suffix) << 40;
        self.learnt.extend(found.sites.iter().map(site));
        self.learnt.extend(found.left.iter().map(|&at| u64::from(at)));
        self.learnt[start + at::SUM] = sum(&self.learnt[start + at::IDENTITY..], 0);
    }

    /// Writes down what has been learnt. It does not matter if that fails.
    pub fn save(self) {
        let Some((path, owner)) = self.place.filter(|_| !self.learnt.is_empty()) else { return };
        let bytes = 8 * self.learnt.len();
        // SAFETY: no argument.
        let user = unsafe { sys!(linux::__NR_geteuid) } as u32;
        // A file that may not be longer than a limit says is a signal's business.
        if user != owner || bytes > MOST || !files_may_have(MOST) {
            return;
        }
        let flags = linux::O_WRONLY | linux::O_APPEND | linux::O_CREAT;
        let Some(file) = open(&path[..path.len() - 1], flags, owner) else { return };
        if self.damaged.get() || file.size + bytes > MOST {
            // SAFETY: our own file.
            unsafe { sys!(linux::__NR_ftruncate, file.fd.0, 0) };
        }
        // SAFETY: reads our own memory.
        unsafe { sys!(linux::__NR_write, file.fd.0, self.learnt.as_ptr(), bytes) };
    }
}

/// The sites in a record.
fn decode(record: &[u64]) -> Option<Found> {
    let counts = record[at::COUNTS];
    let (sites, left) = ((counts & u64::from(u32::MAX)) as usize, (counts >> 32) as usize);
    if sites.checked_add(left)? != record.len() - at::SITES {
        return None;
    }
    let (sites, left) = record[at::SITES..].split_at(sites);
    let site = |&w: &u64| Site { start: w as u32, prefix: (w >> 32) as u8, suffix: (w >> 40) as u8 };
    let left = left.iter().map(|&at| at as u32).collect();
    Some(Found { sites: sites.iter().map(site).collect(), left, wide: record[at::WIDE] != 0 })
}

/// The sum of the windows' bytes; `None` if one is not in the text, or holds no `syscall`.
fn windows(text: &[u8], found: &Found) -> Option<u64> {
    found.sites.iter().try_fold(0, |before, site| {
        let window = text.get(site.start as usize..site.end() as usize)?;
        window[usize::from(site.prefix)..].starts_with(&[0x0f, 0x05]).then(|| sum_of_bytes(window, before))
    })
}

fn mix(sum: u64, word: u64) -> u64 {
    let product = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
}

fn sum(words: &[u64], before: u64) -> u64 {
    words.iter().fold(before, |sum, &word| mix(sum, word))
}

fn sum_of_bytes(bytes: &[u8], before: u64) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let before = words.iter().fold(before, |sum, &word| mix(sum, u64::from_le_bytes(word)));
    let last = rest.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
    mix(before, (rest.len() as u64) << 56 | last)
}

fn terminated(path: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(path.len() + 1);
    name.extend_from_slice(path);
    name.push(0);
    name
}

/// Seconds of CLOCK_REALTIME.
fn now() -> Option<i64> {
    let mut now = linux::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the local.
    let r = unsafe { sys!(linux::__NR_clock_gettime, linux::CLOCK_REALTIME, &raw mut now) };
    (r == 0).then_some(now.tv_sec)
}

/// Whether RLIMIT_FSIZE lets a file have so many bytes.
fn files_may_have(bytes: usize) -> bool {
    let mut limit = linux::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes the local.
    let r = unsafe { sys!(linux::__NR_prlimit64, 0, linux::RLIMIT_FSIZE, 0, &raw mut limit) };
    r == 0 && limit.rlim_cur >= bytes as u64
}

fn stat(call: impl FnOnce(*mut linux::stat) -> isize) -> Option<linux::stat> {
    // SAFETY: plain data, for which zeros are a value.
    let mut stat: linux::stat = unsafe { core::mem::zeroed() };
    sys::check(call(&raw mut stat)).ok()?;
    Some(stat)
}

fn is_regular(stat: &linux::stat) -> bool {
    stat.st_mode & linux::S_IFMT == linux::S_IFREG
}

/// The file of records, open.
struct Open {
    fd: Fd,
    size: usize,
}

/// Opens the file of records, if it is `owner`'s alone.
fn open(path: &[u8], flags: u32, owner: u32) -> Option<Open> {
    let name = terminated(path);
    let flags = flags | linux::O_CLOEXEC | linux::O_NOFOLLOW | linux::O_NONBLOCK;
    // SAFETY: a string that ends in a NUL.
    let fd = sys::check(unsafe { sys!(linux::__NR_openat, linux::AT_FDCWD, name.as_ptr(), flags, 0o644) });
    let fd = Fd(fd.ok()?);
    // SAFETY: writes the answer only.
    let stat = stat(|to| unsafe { sys!(linux::__NR_fstat, fd.0, to) })?;
    let ours = is_regular(&stat) && stat.st_uid == owner && stat.st_mode & 0o022 == 0 && stat.st_nlink == 1;
    ours.then_some(Open { fd, size: stat.st_size as usize })
}

impl Open {
    /// Its contents, up to what it may hold; empty if it cannot be read.
    fn words(&self) -> Vec<u64> {
        let mut words: Vec<u64> = Vec::with_capacity(self.size.min(MOST) / 8);
        let wanted = 8 * words.capacity().min(MOST / 8);
        // SAFETY: the kernel writes at most as many bytes as there is room for.
        let read = sys::check(unsafe { sys!(linux::__NR_pread64, self.fd.0, words.as_mut_ptr(), wanted, 0) });
        // SAFETY: so many words have been written; any value is one.
        unsafe { words.set_len(read.unwrap_or(0) / 8) };
        words
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::{Path, PathBuf};
    use std::vec;

    /// A folder with a library in it, and a file that was changed long ago.
    struct Bench {
        folder: tempfile::TempDir,
        text: Vec<u8>,
    }

    impl Bench {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("libheddle-1.so"), "library").unwrap();
            let mut text = vec![0x90; 4096];
            text[100..105].copy_from_slice(&[0xb8, 1, 0, 0, 0]);
            text[105..107].copy_from_slice(&[0x0f, 0x05]);
            Bench { folder, text }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn known(&self) -> Known {
            Known::read(self.path("libheddle-1.so").as_os_str().as_bytes())
        }

        fn found(&self) -> Found {
            Found { sites: vec![Site { start: 100, prefix: 5, suffix: 0 }], left: vec![7, 9], wide: true }
        }

        fn learn(&self, file: &Identity) {
            let mut known = self.known();
            known.learn(file, 4096, &self.text, &self.found());
            known.save();
        }

        fn knows(&self, file: &Identity) -> bool {
            self.known().find(file, 4096, &self.text, &mut |_| ()).is_some()
        }

        fn length(&self) -> u64 {
            fs::metadata(self.path("libheddle-1.sites")).map_or(0, |m| m.len())
        }
    }

    const FILE: Identity =
        Identity { device: 1, inode: 2, size: 5000, seconds: 1_000_000_000, nanoseconds: 4, beginning: 5 };

    #[test]
    fn what_is_saved_is_found() {
        let bench = Bench::new();
        assert!(!bench.knows(&FILE));
        let other = Identity { inode: 3, ..FILE };
        bench.learn(&other);
        bench.learn(&FILE);
        let known = bench.known();
        for file in [FILE, other, other, FILE] {
            let found = known.find(&file, 4096, &bench.text, &mut |_| ()).unwrap();
            assert_eq!((found.sites, found.left, found.wide), (bench.found().sites, vec![7, 9], true));
        }
        assert!(known.find(&FILE, 0, &bench.text, &mut |_| ()).is_none());
        assert!(known.find(&FILE, 4096, &bench.text[1..], &mut |_| ()).is_none());
        assert_eq!(bench.length(), 2 * 8 * (at::SITES as u64 + 3));
        assert_eq!(fs::metadata(bench.path("libheddle-1.sites")).unwrap().permissions().mode() & 0o022, 0);
    }

    #[test]
    fn a_file_that_changed_is_not_known() {
        let bench = Bench::new();
        bench.learn(&FILE);
        for file in [
            Identity { device: 9, ..FILE },
            Identity { inode: 9, ..FILE },
            Identity { size: 9, ..FILE },
            Identity { seconds: 9, ..FILE },
            Identity { nanoseconds: 9, ..FILE },
            Identity { beginning: 9, ..FILE },
        ] {
            assert!(!bench.knows(&file), "{file:?}");
        }
        assert!(bench.knows(&FILE));
    }

    #[test]
    fn a_text_with_other_bytes_in_a_window_is_not_known() {
        let mut bench = Bench::new();
        bench.learn(&FILE);
        for at in [100, 104, 105, 106] {
            bench.text[at] ^= 0xcc;
            assert!(!bench.knows(&FILE), "{at}");
            bench.text[at] ^= 0xcc;
        }
        assert!(bench.knows(&FILE));
    }

    #[test]
    fn a_file_that_has_just_been_changed_is_not_recorded() {
        let bench = Bench::new();
        let now = now().unwrap();
        for seconds in [now, now - 1, now + 100] {
            bench.learn(&Identity { seconds, ..FILE });
        }
        assert_eq!(bench.length(), 0);
        bench.learn(&Identity { seconds: now - 10, ..FILE });
        assert_ne!(bench.length(), 0);
    }

    #[test]
    fn damage_is_noticed_and_the_file_started_anew() {
        let bench = Bench::new();
        let path = bench.path("libheddle-1.sites");
        bench.learn(&FILE);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).unwrap();
            assert!(!bench.knows(&FILE), "byte {at}");
        }
        let mut damaged = whole.clone();
        damaged[5] ^= 1;
        fs::write(&path, damaged).unwrap();
        let mut known = bench.known();
        assert!(known.find(&FILE, 4096, &bench.text, &mut |_| ()).is_none());
        known.learn(&FILE, 4096, &bench.text, &bench.found());
        known.save();
        assert_eq!(fs::read(&path).unwrap(), whole);
    }

    #[test]
    fn half_a_record_at_the_end_does_not_hide_those_before() {
        let bench = Bench::new();
        let path = bench.path("libheddle-1.sites");
        bench.learn(&FILE);
        let mut bytes = fs::read(&path).unwrap();
        bytes.extend_from_within(..bytes.len() / 2);
        fs::write(&path, bytes).unwrap();
        assert!(bench.knows(&FILE));
        assert!(!bench.knows(&Identity { inode: 3, ..FILE }));
    }

    #[test]
    fn a_full_file_is_started_anew() {
        let bench = Bench::new();
        for inode in 0..3000 {
            bench.learn(&Identity { inode, ..FILE });
            assert!(bench.length() <= MOST as u64);
        }
        assert!(bench.knows(&Identity { inode: 2999, ..FILE }) && !bench.knows(&Identity { inode: 0, ..FILE }));
    }

    #[test]
    fn only_a_file_of_the_owners_alone_is_used() {
        let bench = Bench::new();
        bench.learn(&FILE);
        let path = bench.path("libheddle-1.sites");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(!bench.knows(&FILE));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(bench.knows(&FILE));
        let link = bench.path("link");
        fs::hard_link(&path, &link).unwrap();
        assert!(!bench.knows(&FILE));
        let before = bench.length();
        bench.learn(&Identity { inode: 3, ..FILE });
        assert_eq!(bench.length(), before);
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&link, &path).unwrap();
        assert!(!bench.knows(&FILE));
    }

    #[test]
    fn a_library_without_a_folder_has_no_records() {
        for library in ["libheddle-1.so", "/memfd:heddle (deleted)", "", "/nowhere/libheddle-1.so"] {
            assert!(Known::read(library.as_bytes()).identity(LEAST, || Some(FILE)).is_none(), "{library}");
        }
    }

    #[test]
    fn an_object_without_a_file_is_known_by_all_its_bytes() {
        let bench = Bench::new();
        let mut contents = vec![3; 8192];
        bench.learn(&Identity::of_contents(&contents));
        assert!(bench.knows(&Identity::of_contents(&contents)));
        assert!(!bench.knows(&Identity::of_contents(&contents[1..])));
        contents[8191] = 4;
        assert!(!bench.knows(&Identity::of_contents(&contents)));
    }

    #[test]
    fn short_mappings_are_not_recorded() {
        let known = Bench::new().known();
        assert!(known.identity(LEAST, || Some(FILE)).is_some() && known.identity(LEAST - 1, || Some(FILE)).is_none());
    }

    #[test]
    fn identities_are_those_of_files() {
        let bench = Bench::new();
        let path = bench.path("libheddle-1.so");
        let name = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let inode = fs::metadata(&path).unwrap().ino();
        let first = Identity::at(&name(&path), inode, b"abc").unwrap();
        assert_eq!(Identity::at(&name(&path), inode, b"abc"), Some(first));
        assert_ne!(Identity::at(&name(&path), inode, b"abd"), Some(first));
        assert_eq!(Identity::at(&name(&path), inode + 1, b"abc"), None);
        let file = fs::File::open(&path).unwrap();
        assert_eq!(Identity::behind(std::os::fd::AsRawFd::as_raw_fd(&file), b"abc"), Some(first));
        fs::write(&path, "LIBRARY").unwrap();
        assert_ne!(Identity::at(&name(&path), inode, b"abc"), Some(first));
    }
}
