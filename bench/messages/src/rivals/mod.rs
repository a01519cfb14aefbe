//! The contenders, each in its file.

mod crossbeam;
mod flume;
mod go;
mod handover;
mod heddle;
mod kanal;
mod rtrb;
mod std_mpsc;
mod tokio;

pub use handover::SECONDS_SET;

/// Room of each bounded channel.
pub const ROOM: usize = 1024;

/// All of them.
pub const ALL: &[&str] = &[
    "heddle",
    "heddle-kernel",
    "crossbeam",
    "kanal",
    "flume",
    "std",
    "rtrb",
    "tokio",
    "go",
    "glibc",
    "mimalloc",
    "jemalloc",
    "tcmalloc",
    "assigns",
];

/// Allocators: contenders whose library is preloaded.
const ALLOCATORS: &[(&str, &str)] =
    &[("mimalloc", "libmimalloc.so.2"), ("jemalloc", "libjemalloc.so.2"), ("tcmalloc", "libtcmalloc_minimal.so.4")];

/// What to preload for a contender: nothing, or the library, if it is there.
pub fn preload(contender: &str) -> Result<Option<std::path::PathBuf>, String> {
    let Some((_, library)) = ALLOCATORS.iter().find(|(name, _)| *name == contender) else { return Ok(None) };
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"];
    let found = folders.iter().map(|folder| std::path::Path::new(folder).join(library)).find(|path| path.exists());
    found.map(Some).ok_or_else(|| format!("{contender} is absent: no {library} in {}", folders.join(", ")))
}

/// The seconds that a figure takes.
pub fn run(contender: &str, figure: &str, count: u64) -> Option<f64> {
    match contender {
        "heddle" => heddle::run(::heddle::Mode::User, figure, count),
        "heddle-kernel" => heddle::run(::heddle::Mode::Kernel, figure, count),
        "crossbeam" => crossbeam::run(figure, count),
        "kanal" => kanal::run(figure, count),
        "flume" => flume::run(figure, count),
        "std" => std_mpsc::run(figure, count),
        "rtrb" => rtrb::run(figure, count),
        "tokio" => tokio::run(figure, count),
        "go" => go::run(figure, count),
        "glibc" | "mimalloc" | "jemalloc" | "tcmalloc" => handover::boxes(figure, count, true),
        "assigns" => handover::boxes(figure, count, false),
        other => panic!("who is {other}?"),
    }
}

/// A run with blocking channels: `$spawn` makes a thread, `$bounded` a channel; its ends have `send` and `recv`.
macro_rules! threads {
    ($figure:expr, $count:expr, $spawn:path, $bounded:path, many: $many:tt) => {{
        use std::time::Instant;
        let count: u64 = $count;
        fn stream<T: Copy + Send + 'static>(count: u64, value: T) -> f64 {
            let (sender, receiver) = $bounded(crate::rivals::ROOM);
            let start = Instant::now();
            let sending = $spawn(move || (0..count).for_each(|_| sender.send(value).unwrap()));
            let receiving = $spawn(move || {
                for _ in 0..count {
                    std::hint::black_box(receiver.recv().unwrap());
                }
            });
            sending.join().unwrap();
            receiving.join().unwrap();
            start.elapsed().as_secs_f64()
        }
        match $figure {
            "spsc8" => Some(stream(count, 7u64)),
            "spsc64" => Some(stream(count, [7u64; 8])),
            "mpsc4" => {
                let (sender, receiver) = $bounded(crate::rivals::ROOM);
                let start = Instant::now();
                let sending = [(); 4].map(|()| {
                    let sender = sender.clone();
                    $spawn(move || (0..count / 4).for_each(|n| sender.send(n).unwrap()))
                });
                let receiving = $spawn(move || (0..count / 4 * 4).map(|_| receiver.recv().unwrap()).sum::<u64>());
                sending.into_iter().for_each(|thread| thread.join().unwrap());
                std::hint::black_box(receiving.join().unwrap());
                Some(start.elapsed().as_secs_f64())
            }
            "mpmc4x4" => $crate::rivals::threads!(@many $many, count, $spawn, $bounded),
            "pingpong" => {
                let (to, from) = $bounded(1);
                let (back, answers) = $bounded(1);
                let start = Instant::now();
                let ping = $spawn(move || {
                    for n in 0..count {
                        to.send(n).unwrap();
                        assert_eq!(answers.recv().unwrap(), n);
                    }
                });
                let pong = $spawn(move || (0..count).for_each(|_| back.send(from.recv().unwrap()).unwrap()));
                ping.join().unwrap();
                pong.join().unwrap();
                Some(start.elapsed().as_secs_f64())
            }
            _ => None,
        }
    }};
    (@many no, $count:expr, $spawn:path, $bounded:path) => { None };
    (@many yes, $count:expr, $spawn:path, $bounded:path) => {{
        let (sender, receiver) = $bounded(crate::rivals::ROOM);
        let start = Instant::now();
        let receiving = [(); 4].map(|()| {
            let receiver = receiver.clone();
            $spawn(move || {
                let mut sum = 0u64;
                while let Ok(n) = receiver.recv() {
                    sum += n;
                }
                sum
            })
        });
        drop(receiver);
        let sending = [(); 4].map(|()| {
            let sender = sender.clone();
            $spawn(move || (0..$count / 4).for_each(|n| sender.send(n).unwrap()))
        });
        drop(sender);
        sending.into_iter().for_each(|thread| thread.join().unwrap());
        receiving.into_iter().for_each(|thread| assert!(thread.join().is_ok()));
        Some(start.elapsed().as_secs_f64())
    }};
}
pub(crate) use threads;
