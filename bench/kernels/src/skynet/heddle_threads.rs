use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    rivals::heddle(m.workers);
    m.time(|| skynet(0, m.size as u64));
}

fn skynet(number: u64, leaves: u64) -> u64 {
    if leaves == 1 {
        return number;
    }
    let child = |i| heddle::spawn(move || skynet(number + i * (leaves / 10), leaves / 10));
    let children: [_; 10] = std::array::from_fn(|i| child(i as u64));
    children.into_iter().map(|child| child.join().unwrap()).sum()
}
