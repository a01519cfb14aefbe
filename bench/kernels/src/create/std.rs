use crate::measure::Measure;

pub fn run(m: &Measure) {
    m.time(|| (0..m.size as u64).map(|i| std::thread::spawn(move || i).join().unwrap()).sum());
}
