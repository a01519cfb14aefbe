//! The files that this binary carries, laid down where the loader and the kernel can use them.
//!
//! They go to a folder of the user's, named by their contents: whoever comes first writes them, all others use them.
//! The folder and the files must belong to the user and be writable by nobody else, since what is in them is run.

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{geteuid, getpid};

use crate::elf;
use crate::failure::Failure;
use crate::probe::{self, NoRewriting};

/// A file inside this binary.
pub struct Embedded {
    name: &'static str,
    contents: &'static [u8],
}

/// The library that is preloaded into a program.
const LIBRARY: Embedded = Embedded { name: heddle_image::FILE_NAME, contents: heddle_image::LIBRARY };

/// The demo's echo server and its load.
pub const ECHO_SERVER: Embedded = Embedded {
    name: concat!("echo_server-", env!("HEDDLE_ECHO_SERVER_HASH")),
    contents: include_bytes!(env!("HEDDLE_ECHO_SERVER_FILE")),
};

/// The demo's thread figures.
pub const THREADS: Embedded = Embedded {
    name: concat!("threads-", env!("HEDDLE_THREADS_HASH")),
    contents: include_bytes!(env!("HEDDLE_THREADS_FILE")),
};

/// The folder with what `heddle sharing` needs.
const SHARING_FOLDER: &str = concat!("sharing-", env!("HEDDLE_SHARING_HASH"));

/// The detector that is preloaded into a program.
const SHARING: Embedded =
    Embedded { name: "libheddle_sharing.so", contents: include_bytes!(env!("HEDDLE_SHARING_FILE")) };

/// What the compiler finds under the names of the sanitizer's library: gcc's driver asks for an object and for a library,
/// and a linker takes a text file for either.
const SANITIZER: [Embedded; 3] = [
    Embedded { name: SHARING_STUB, contents: include_bytes!(env!("HEDDLE_STUB_FILE")) },
    Embedded { name: "libtsan.so", contents: b"/* GNU ld script */\nINPUT(heddle-sharing-stub.o)\n" },
    Embedded { name: "libtsan_preinit.o", contents: b"/* GNU ld script: nothing */\n" },
];

/// The object with the functions that instrumented code calls.
pub const SHARING_STUB: &str = "heddle-sharing-stub.o";

/// Names a folder to use instead of the usual ones.
const FOLDER_VARIABLE: &str = "HEDDLE_CACHE_DIR";

/// Whether a file of this name is a library of Heddle's, of this version or another.
pub fn is_library_name(name: &[u8]) -> bool {
    let hash = name.strip_prefix(b"libheddle-").and_then(|rest| rest.strip_suffix(b".so"));
    hash.is_some_and(|hash| hash.len() == 16 && hash.iter().all(u8::is_ascii_hexdigit))
}

/// Lays down the library; answers its path, which fits into LD_PRELOAD.
pub fn extract_library() -> Result<PathBuf, Failure> {
    extract(&LIBRARY)
}

/// Lays down the sharing detector and what is linked for it; answers the folder and the detector's path in it.
pub fn extract_sharing() -> Result<(PathBuf, PathBuf), Failure> {
    first_that_does(|folder| {
        open_folder(folder)?;
        let inner = folder.join(SHARING_FOLDER);
        for file in &SANITIZER {
            lay_down(&inner, file)?;
        }
        Ok((inner.clone(), extract_to(&inner, &SHARING)?))
    })
}

/// Lays down a file; answers its path.
pub fn extract(file: &Embedded) -> Result<PathBuf, Failure> {
    first_that_does(|folder| extract_to(folder, file))
}

/// Does it in the first folder where it can be done.
fn first_that_does<T>(work: impl Fn(&Path) -> Result<T, Unusable>) -> Result<T, Failure> {
    let mut reasons = Vec::new();
    for folder in folders() {
        match work(&folder) {
            Ok(done) => return Ok(done),
            Err(Unusable::Policy(e)) => {
                return Err(Failure::own(format!(
                    "this process may not change code and run it ({e}): a security policy (SELinux execmod, systemd's \
                     MemoryDenyWriteExecute, PR_SET_MDWE) must allow it for Heddle to rewrite system calls"
                )));
            }
            Err(Unusable::Folder(why)) => reasons.push(format!("{} {why}", folder.display())),
        }
    }
    Err(Failure::own(format!(
        "no place for the preload library: {}; set {FOLDER_VARIABLE} to a folder of your own where programs may be executed",
        reasons.join(", ")
    )))
}

/// Where to try, in order.
fn folders() -> Vec<PathBuf> {
    let var = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = var(FOLDER_VARIABLE) {
        return vec![folder];
    }
    let user = geteuid().as_raw();
    let mut folders: Vec<PathBuf> = vec![PathBuf::from(format!("/tmp/heddle-{user}"))];
    if let Some(runtime) = var("XDG_RUNTIME_DIR") {
        // Root's programs often change to another user, who cannot look into root's own folders: root tries /tmp first.
        folders.insert(usize::from(user == 0), runtime.join("heddle"));
    }
    let cache = var("XDG_CACHE_HOME").or_else(|| var("HOME").map(|home| home.join(".cache")));
    folders.extend(cache.map(|cache| cache.join("heddle")));
    folders
}

/// Why a folder does not do.
#[derive(Debug)]
enum Unusable {
    /// Something about this folder: another may do.
    Folder(String),
    /// A policy on this process: no folder will do.
    Policy(Errno),
}

impl From<Errno> for Unusable {
    fn from(e: Errno) -> Self {
        Unusable::Folder(format!("cannot be used: {}", crate::program::reason(&io::Error::from(e))))
    }
}

impl From<io::Error> for Unusable {
    fn from(e: io::Error) -> Self {
        Unusable::Folder(format!("cannot be used: {}", crate::program::reason(&e)))
    }
}

/// Lays down `file` in `folder`, unless it is there already, and checks that code in it can be run.
fn extract_to(folder: &Path, file: &Embedded) -> Result<PathBuf, Unusable> {
    let found = lay_down(folder, file)?;
    match probe::rewriting(&found) {
        Ok(()) => Ok(folder.join(file.name)),
        Err(NoRewriting::Mapping(_)) => Err(Unusable::Folder("is on a filesystem mounted noexec".to_owned())),
        Err(NoRewriting::Protection(e)) => Err(Unusable::Policy(e)),
    }
}

/// Lays down `file` in `folder`, unless it is there already; answers it, open.
fn lay_down(folder: &Path, file: &Embedded) -> Result<File, Unusable> {
    if !folder.is_absolute() {
        return Err(Unusable::Folder("is not an absolute path".to_owned()));
    }
    if folder.as_os_str().as_bytes().iter().any(|b| matches!(b, b' ' | b':')) {
        return Err(Unusable::Folder("has a space or a colon in its name, which LD_PRELOAD cannot hold".to_owned()));
    }
    let dir = open_folder(folder)?;
    match find(&dir, file)? {
        Some(found) => Ok(found),
        None => {
            write(&dir, file)?;
            find(&dir, file)?.ok_or_else(|| Unusable::Folder("changes while it is used".to_owned()))
        }
    }
}

/// Opens the folder, making it if need be; it must be ours and nobody else's to write.
fn open_folder(folder: &Path) -> Result<OwnedFd, Unusable> {
    // Others may look into root's, because root's programs may change to another user; nobody else's is their business.
    let mode = if geteuid().is_root() { Mode::from_raw_mode(0o755) } else { Mode::RWXU };
    if let Some(parent) = folder.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match rustix::fs::mkdirat(CWD, folder, mode) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = match rustix::fs::openat(CWD, folder, flags, Mode::empty()) {
        Err(Errno::LOOP | Errno::NOTDIR) => {
            return Err(Unusable::Folder("is not a folder (a link, perhaps)".to_owned()));
        }
        dir => dir?,
    };
    let found = rustix::fs::fstat(&dir)?;
    if found.st_uid != geteuid().as_raw() {
        return Err(Unusable::Folder("belongs to another user".to_owned()));
    }
    if found.st_mode & 0o022 != 0 {
        return Err(Unusable::Folder("can be written by other users".to_owned()));
    }
    Ok(dir)
}

/// The file in `dir`, open, if it is there, ours, and has the size and the contents it should have, as far as they are
/// loaded: six sevenths of the library are line numbers for debuggers, which are not worth reading at each start.
fn find(dir: &OwnedFd, file: &Embedded) -> Result<Option<File>, Unusable> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let found = match rustix::fs::openat(dir, file.name, flags, Mode::empty()) {
        Ok(found) => found,
        // Not there, a link, or not ours to read: it is written anew.
        Err(Errno::NOENT | Errno::LOOP | Errno::ACCESS) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let stat = rustix::fs::fstat(&found)?;
    let regular = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
    let ours = stat.st_uid == geteuid().as_raw() && stat.st_mode & 0o022 == 0 && stat.st_mode & 0o500 == 0o500;
    if !regular || !ours || stat.st_size as u64 != file.contents.len() as u64 {
        return Ok(None);
    }
    let mut found = File::from(found);
    let loaded = elf::loaded_length(file.contents);
    Ok(begins_with(&mut found, &file.contents[..loaded])?.then_some(found))
}

fn begins_with(file: &mut File, expected: &[u8]) -> io::Result<bool> {
    let mut buffer = [0; 64 << 10];
    let mut rest = expected;
    while !rest.is_empty() {
        let wanted = rest.len().min(buffer.len());
        let count = file.read(&mut buffer[..wanted])?;
        match rest.strip_prefix(&buffer[..count]) {
            Some(after) if count > 0 => rest = after,
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Writes the file under a name of its own, then gives it its name in one step: nobody ever finds half of it.
fn write(dir: &OwnedFd, file: &Embedded) -> Result<(), Unusable> {
    let temporary = format!(".{}.{}", file.name, getpid().as_raw_nonzero());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Left behind by a process of the same number that was killed while it wrote.
    let _ = rustix::fs::unlinkat(dir, &temporary, AtFlags::empty());
    let mut out = File::from(rustix::fs::openat(dir, &temporary, flags, Mode::RWXU)?);
    let written = out
        .write_all(file.contents)
        .and_then(|()| Ok(rustix::fs::fchmod(&out, Mode::from_raw_mode(0o555))?))
        .and_then(|()| Ok(rustix::fs::renameat(dir, &temporary, dir, OsStr::new(file.name))?));
    if let Err(e) = written {
        let _ = rustix::fs::unlinkat(dir, &temporary, AtFlags::empty());
        return Err(e.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    const SAMPLE: Embedded = Embedded { name: "sample", contents: &[7; 100_000] };

    fn folder_error(folder: &Path) -> String {
        match extract_to(folder, &SAMPLE) {
            Err(Unusable::Folder(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_second_time_finds_the_first_times_file() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("new/heddle");
        let path = extract_to(&folder, &SAMPLE).unwrap();
        let first = fs::metadata(&path).unwrap();
        assert_eq!(extract_to(&folder, &SAMPLE).unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().ino(), first.ino());
        assert_eq!(fs::read(&path).unwrap(), SAMPLE.contents);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = extract_to(dir.path(), &SAMPLE).unwrap();
        for damage in [&[7; 10][..], &[8; 100_000]] {
            fs::remove_file(&path).unwrap();
            fs::write(&path, damage).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o555)).unwrap();
            extract_to(dir.path(), &SAMPLE).unwrap();
            assert_eq!(fs::read(&path).unwrap(), SAMPLE.contents);
        }
    }

    #[test]
    fn damage_anywhere_in_the_loaded_part_is_seen() {
        let loaded = elf::loaded_length(LIBRARY.contents);
        assert!(loaded > LIBRARY.contents.len() / 20 && loaded < LIBRARY.contents.len());
        let dir = tempfile::tempdir().unwrap();
        let path = extract_to(dir.path(), &LIBRARY).unwrap();
        for at in [0, 70_000, loaded - 1] {
            let mut damaged = LIBRARY.contents.to_vec();
            damaged[at] ^= 1;
            fs::remove_file(&path).unwrap();
            fs::write(&path, damaged).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o555)).unwrap();
            extract_to(dir.path(), &LIBRARY).unwrap();
            assert!(fs::read(&path).unwrap() == LIBRARY.contents, "byte {at}");
        }
    }

    #[test]
    fn a_link_in_its_place_is_replaced_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = dir.path().join("elsewhere");
        fs::write(&elsewhere, "mine").unwrap();
        symlink(&elsewhere, dir.path().join(SAMPLE.name)).unwrap();
        let path = extract_to(dir.path(), &SAMPLE).unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(fs::read(&elsewhere).unwrap(), b"mine");
    }

    #[test]
    fn folders_of_doubtful_safety_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(folder_error(&open).contains("written by other users"));
        let link = dir.path().join("link");
        symlink(dir.path(), &link).unwrap();
        assert!(folder_error(&link).contains("not a folder"));
        assert!(folder_error(&dir.path().join("with space")).contains("space"));
        assert!(folder_error(Path::new("relative")).contains("absolute"));
        assert!(!Path::new("relative").exists());
    }

    #[test]
    fn library_names_are_known() {
        assert!(is_library_name(LIBRARY.name.as_bytes()));
        assert!(!is_library_name(b"libheddle-0123.so") && !is_library_name(b"libjemalloc.so"));
    }
}
