//! Tests that hold in every mode.

mod agent;
mod cancel;
mod channel;
mod fiber;
mod fork;
mod interop;
mod kept;
mod mailbox;
mod observe;
mod pool;
mod shard;
mod sync;
mod thread;

/// A test: its name and what it does; it fails by panicking.
pub type Test = (&'static str, fn());

/// All of them.
#[rustfmt::skip] // one per line
pub const ALL: &[&[Test]] = &[
    agent::TESTS,
    cancel::TESTS,
    channel::TESTS,
    fiber::TESTS,
    fork::TESTS,
    interop::TESTS,
    kept::TESTS,
    mailbox::TESTS,
    observe::TESTS,
    pool::TESTS,
    shard::TESTS,
    sync::TESTS,
    thread::TESTS,
];

/// The tests of a module, by name.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        /// The tests of this module.
        pub const TESTS: &[super::Test] = &[$((stringify!($name), $name)),*];
    };
}
pub(crate) use tests;

/// Runs `f` on that many threads, of all kinds that the mode has, at once.
pub(crate) fn on_threads<F: Fn(u32) + Send + Sync + 'static>(count: u32, f: F) {
    let f = std::sync::Arc::new(f);
    let user = heddle::mode() == heddle::Mode::User;
    let modes = if user { [heddle::Mode::User, heddle::Mode::Kernel] } else { [heddle::Mode::Kernel; 2] };
    let threads: Vec<_> = (0..count)
        .map(|i| {
            let f = f.clone();
            heddle::Builder::new().mode(modes[i as usize % 2]).spawn(move || f(i)).unwrap()
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Counts how often such are dropped.
pub(crate) struct Counts(pub std::sync::Arc<std::sync::atomic::AtomicUsize>);

impl Drop for Counts {
    fn drop(&mut self) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

/// Waits until it is so, or fails.
pub(crate) fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !is_so() {
        assert!(start.elapsed() < std::time::Duration::from_secs(20), "{what}");
        heddle::sleep(std::time::Duration::from_millis(1));
    }
}
