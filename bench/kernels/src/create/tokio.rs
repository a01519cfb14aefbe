use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    let (runtime, n) = (rivals::tokio(m.workers), m.size as u64);
    m.time(|| {
        rivals::tokio_run(&runtime, async move {
            let mut sum = 0;
            for i in 0..n {
                sum += tokio::spawn(async move { i }).await.unwrap();
            }
            sum
        })
    });
}
