use crate::measure::Measure;

pub fn run(m: &Measure) {
    let each = m.size / 2;
    m.time(|| {
        let threads = [0, 1].map(|_| std::thread::spawn(move || (0..each).map(|_| std::thread::yield_now()).count()));
        threads.into_iter().map(|thread| thread.join().unwrap() as u64).sum()
    });
}
