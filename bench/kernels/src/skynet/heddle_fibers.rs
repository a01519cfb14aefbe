//! # Safety
//! Fibers that touch no thread-local, on stacks of 64 KiB.

use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    let leaves = m.size as u64;
    rivals::heddle_fiber(m.workers, || m.time(|| skynet(0, leaves)));
}

fn skynet(number: u64, leaves: u64) -> u64 {
    if leaves == 1 {
        return number;
    }
    // SAFETY: see the module.
    let child = |i| unsafe { heddle::fiber::spawn(move || skynet(number + i * (leaves / 10), leaves / 10)) };
    let children: [_; 10] = std::array::from_fn(|i| child(i as u64));
    children.into_iter().map(|child| child.join().unwrap()).sum()
}
