//! Tests that hold in every mode.

mod fork;
mod sync;
mod thread;

/// A test: its name and what it does; it fails by panicking.
pub type Test = (&'static str, fn());

/// All of them.
pub const ALL: [&[Test]; 3] = [fork::TESTS, sync::TESTS, thread::TESTS];

/// The tests of a module, by name.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        /// The tests of this module.
        pub const TESTS: &[super::Test] = &[$((stringify!($name), $name)),*];
    };
}
pub(crate) use tests;
