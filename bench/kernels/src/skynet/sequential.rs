use crate::measure::Measure;

pub fn run(m: &Measure) {
    m.time(|| skynet(0, m.size as u64));
}

#[inline(never)]
fn skynet(number: u64, leaves: u64) -> u64 {
    if leaves == 1 {
        return number;
    }
    (0..10).map(|i| skynet(number + i * (leaves / 10), leaves / 10)).sum()
}
