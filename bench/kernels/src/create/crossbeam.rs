use crate::measure::Measure;

pub fn run(m: &Measure) {
    m.time(|| {
        let each = |i: u64| crossbeam_utils::thread::scope(|s| s.spawn(move |_| i).join().unwrap()).unwrap();
        (0..m.size as u64).map(each).sum()
    });
}
