use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    rivals::heddle(m.workers);
    m.time(|| (0..m.size as u64).map(|i| heddle::spawn(move || i).join().unwrap()).sum());
}
