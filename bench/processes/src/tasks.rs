//! By `heddle::task`.

use std::time::Duration;

use heddle::{Mode, Options, task};

const TIME: Duration = Duration::from_millis(300);

fn one(mode: Mode) -> f64 {
    heddle::start(Options::new().mode(mode).processes(1)).expect("a start");
    super::measure(TIME, 1, |n| assert_eq!(task(|n| n + 1, n).join().expect("a result"), n + 1))
}

pub fn there_and_back() -> f64 {
    one(Mode::Process)
}

pub fn on_user_threads() -> f64 {
    one(Mode::User)
}

pub fn on_kernel_threads() -> f64 {
    one(Mode::Kernel)
}

pub fn many() -> f64 {
    heddle::start(Options::new().mode(Mode::Process).processes(1)).expect("a start");
    let mut handles = Vec::new();
    super::measure(TIME, 64, |n| {
        handles.extend((0..64).map(|i| task(|n| n + 1, n + i)));
        let sum: u64 = handles.drain(..).map(|handle| handle.join().expect("a result")).sum();
        assert_eq!(sum, 64 * (n + 1) + 63 * 32);
    })
}
