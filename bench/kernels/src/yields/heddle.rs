use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    rivals::heddle(m.workers);
    let each = m.size / 2;
    m.time(|| {
        let threads = [0, 1].map(|_| heddle::spawn(move || (0..each).map(|_| heddle::yield_now()).count()));
        threads.into_iter().map(|thread| thread.join().unwrap() as u64).sum()
    });
}
