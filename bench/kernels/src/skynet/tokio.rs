use std::pin::Pin;

use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    let (runtime, n) = (rivals::tokio(m.workers), m.size as u64);
    m.time(|| rivals::tokio_run(&runtime, skynet(0, n)));
}

fn skynet(number: u64, leaves: u64) -> Pin<Box<dyn Future<Output = u64> + Send>> {
    Box::pin(async move {
        if leaves == 1 {
            return number;
        }
        let children: [_; 10] =
            std::array::from_fn(|i| tokio::spawn(skynet(number + i as u64 * (leaves / 10), leaves / 10)));
        let mut sum = 0;
        for child in children {
            sum += child.await.unwrap();
        }
        sum
    })
}
