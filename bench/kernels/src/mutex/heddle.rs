use std::sync::Arc;

use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure, threads: usize) {
    rivals::heddle(m.workers);
    let each = m.size / threads;
    m.time(|| {
        let mutex = Arc::new(heddle::sync::Mutex::new(0u64));
        let body = |mutex: Arc<heddle::sync::Mutex<u64>>| move || (0..each).for_each(|_| *mutex.lock() += 1);
        let threads: Vec<_> = (0..threads).map(|_| heddle::spawn(body(mutex.clone()))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        *mutex.lock()
    });
}
