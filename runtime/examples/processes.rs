//! The same tasks in whatever mode: `HEDDLE_MODE=user`, `kernel` or `process`.

use heddle::process::{ArenaArc, ArenaString, Mutex, place, task_mode};

fn greet((name, seen): (ArenaString, ArenaArc<Mutex<u32>>)) -> ArenaString {
    *seen.lock() += 1;
    ArenaString::from(format!("{name}, in process {} of {}", place(), heddle::process::count()).as_str())
}

fn main() {
    if let Err(why) = heddle::start(heddle::Options::new()) {
        eprintln!("not as asked: {why}");
    }
    println!("{:?} mode, pid {}", task_mode(), std::process::id());
    let seen = ArenaArc::new(Mutex::new(0));
    let handles: Vec<_> =
        ["warp", "weft", "woof"].map(|name| heddle::task(greet, (name.into(), seen.clone()))).into_iter().collect();
    for handle in handles {
        match handle.join() {
            Ok(text) => println!("{text}"),
            Err(why) => println!("no greeting: {why}"),
        }
    }
    println!("{} greetings", *seen.lock());
}
