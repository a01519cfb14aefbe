//! Asserts std's threads: names, ids, results, panics passed on by join, thread-locals with destructors, sleeping, a stack
//! size asked for, processes started from threads.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

static DROPPED: AtomicU32 = AtomicU32::new(0);

struct Counted(u32);

impl Drop for Counted {
    fn drop(&mut self) {
        assert!(self.0 != 0);
        DROPPED.fetch_add(1, SeqCst);
    }
}

thread_local! {
    static VALUE: Cell<u32> = const { Cell::new(0) };
    static COUNTED: RefCell<Option<Counted>> = const { RefCell::new(None) };
    static LAZY: String = thread::current().name().unwrap_or("none").to_owned();
}

fn body(i: u32) -> u32 {
    VALUE.set(i);
    COUNTED.with_borrow_mut(|c| *c = Some(Counted(i + 1)));
    for n in 0..30 {
        match n % 3 {
            0 => thread::yield_now(),
            1 => thread::sleep(Duration::from_micros(100)),
            _ => drop(Box::new([n; 100])),
        }
        assert_eq!(VALUE.get(), i);
        COUNTED.with_borrow(|c| assert_eq!(c.as_ref().unwrap().0, i + 1));
        LAZY.with(|name| assert_eq!(*name, format!("thread-{i}")));
    }
    assert_eq!(thread::current().name().unwrap(), format!("thread-{i}"));
    i * 2
}

fn main() {
    std::panic::set_hook(Box::new(|_| {})); // panics below are on purpose
    let threads: Vec<_> =
        (0..50).map(|i| thread::Builder::new().name(format!("thread-{i}")).spawn(move || body(i)).unwrap()).collect();
    let ids: HashSet<_> = threads.iter().map(|t| t.thread().id()).collect();
    assert_eq!(ids.len(), 50);
    for (i, t) in threads.into_iter().enumerate() {
        assert_eq!(t.join().unwrap(), 2 * i as u32);
    }
    assert_eq!(DROPPED.load(SeqCst), 50);
    println!("ok thread-locals, names");

    for i in 0..20 {
        let text = thread::spawn(move || -> u32 {
            COUNTED.with_borrow_mut(|c| *c = Some(Counted(1)));
            thread::sleep(Duration::from_micros(200));
            panic!("number {i}")
        })
        .join()
        .unwrap_err();
        assert_eq!(*text.downcast::<String>().unwrap(), format!("number {i}"));
    }
    assert_eq!(DROPPED.load(SeqCst), 70);
    let caught = std::panic::catch_unwind(|| {
        thread::scope(|s| {
            s.spawn(|| panic!("in a scope"));
        })
    });
    assert!(caught.is_err());
    println!("ok panics");

    fn deep(n: u64) -> u64 {
        let block = std::hint::black_box([n; 128]);
        if n == 0 { 0 } else { deep(n - 1) + block[(n % 128) as usize] }
    }
    let big = thread::Builder::new().stack_size(32 << 20).spawn(|| deep(20_000)).unwrap();
    assert_eq!(big.join().unwrap(), 20_000 * 20_001 / 2);
    println!("ok stack size");

    let start = Instant::now();
    let sleepers: Vec<_> = (0..300)
        .map(|i| {
            thread::spawn(move || {
                let start = Instant::now();
                thread::sleep(Duration::from_millis(50 + i % 50));
                assert!(start.elapsed() >= Duration::from_millis(50 + i % 50));
            })
        })
        .collect();
    sleepers.into_iter().for_each(|t| t.join().unwrap());
    assert!(start.elapsed() < Duration::from_secs(10));
    println!("ok sleep");

    let commands: Vec<_> = (0..16)
        .map(|i| {
            thread::spawn(move || {
                let out = Command::new("sh").arg("-c").arg(format!("echo out {i}; echo err {i} >&2; exit {i}")).output().unwrap();
                assert_eq!(out.status.code(), Some(i));
                assert_eq!((out.stdout, out.stderr), (format!("out {i}\n").into_bytes(), format!("err {i}\n").into_bytes()));
                let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
                let mut input = cat.stdin.take().unwrap();
                let writer = thread::spawn(move || input.write_all(&vec![b'0' + (i % 10) as u8; 300_000]).unwrap());
                let out = cat.wait_with_output().unwrap();
                writer.join().unwrap();
                assert!(out.status.success() && out.stdout == vec![b'0' + (i % 10) as u8; 300_000]);
                assert!(Command::new("/no/such/program").spawn().is_err());
            })
        })
        .collect();
    commands.into_iter().for_each(|t| t.join().unwrap());
    println!("ok processes");
}
