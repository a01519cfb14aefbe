use std::sync::Arc;

use crate::measure::Measure;

pub fn run(m: &Measure, threads: usize) {
    let each = m.size / threads;
    m.time(|| {
        let mutex = Arc::new(std::sync::Mutex::new(0u64));
        let body = |mutex: Arc<std::sync::Mutex<u64>>| move || (0..each).for_each(|_| *mutex.lock().unwrap() += 1);
        let threads: Vec<_> = (0..threads).map(|_| std::thread::spawn(body(mutex.clone()))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        *mutex.lock().unwrap()
    });
}
