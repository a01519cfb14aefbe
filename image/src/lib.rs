//! The shared object that takes over a program's system calls, as bytes.
//!
//! It is linked without libc and compiled with flags of its own (see the build script), because its code runs in the middle
//! of other people's. `heddle run` lays it down in a file for `LD_PRELOAD`; the library crate loads it into its own
//! process.

/// The library, as it is preloaded. Not a constant: there is one copy of it.
pub static LIBRARY: &[u8] = include_bytes!(env!("HEDDLE_PRELOAD_FILE"));

/// The name of its file: with a hash of its contents.
pub const FILE_NAME: &str = concat!("libheddle-", env!("HEDDLE_PRELOAD_HASH"), ".so");

const PRELOADED: &[u8] = b"heddle: preloaded";
const LOADED_LATER: &[u8] = b"heddle: loaded   ";

/// The library for a process that runs already: its constructor does nothing, and its table has a function that loads it, to be called.
pub fn for_loading() -> Vec<u8> {
    let at: usize = match include_str!(concat!(env!("OUT_DIR"), "/mark")).parse() {
        Ok(at) => at,
        Err(_) => unreachable!("the build script writes a number"),
    };
    let mut bytes = LIBRARY.to_vec();
    let mark = &mut bytes[at..at + PRELOADED.len()];
    assert_eq!(mark, PRELOADED, "the build script finds the mark");
    mark.copy_from_slice(LOADED_LATER);
    bytes
}
