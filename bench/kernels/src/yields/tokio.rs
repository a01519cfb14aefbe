use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    let (runtime, each) = (rivals::tokio(m.workers), m.size / 2);
    m.time(|| {
        rivals::tokio_run(&runtime, async move {
            let task = || async move {
                for _ in 0..each {
                    tokio::task::yield_now().await;
                }
                each as u64
            };
            let (a, b) = (tokio::spawn(task()), tokio::spawn(task()));
            a.await.unwrap() + b.await.unwrap()
        })
    });
}
