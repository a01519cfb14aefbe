//! User threads, kernel threads and fork-join in one program: what each thread is, and that locks work between them.

use std::sync::Arc;

use heddle::sync::{Mutex, WaitGroup};
use heddle::{Builder, Mode};

fn main() {
    if let Err(why) = heddle::start(heddle::Options::new()) {
        eprintln!("on kernel threads only: {why}");
    }
    println!(
        "{:?} threads, {} workers; main is a {:?} thread",
        heddle::mode(),
        heddle::workers(),
        heddle::current_mode()
    );

    let lines = Arc::new(Mutex::new(Vec::new()));
    let group = Arc::new(WaitGroup::new());
    let modes = if heddle::mode() == Mode::User { vec![Mode::User, Mode::Kernel] } else { vec![Mode::Kernel] };
    for mode in modes {
        group.add(1);
        let (lines, group) = (lines.clone(), group.clone());
        let thread = Builder::new().name(format!("a {mode:?} thread")).mode(mode).spawn(move || {
            let (a, b) = heddle::join(heddle::current_mode, || 6 * 7);
            lines.lock().push(format!("{:?} is a {a:?} thread; {b}", heddle::current().name()));
            group.done();
        });
        thread.expect("a thread").join().expect("no panic");
    }
    group.wait();
    for line in lines.lock().iter() {
        println!("{line}");
    }
}
