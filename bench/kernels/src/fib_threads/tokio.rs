use std::pin::Pin;

use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    let (runtime, n) = (rivals::tokio(m.workers), m.size as u32);
    m.time(|| rivals::tokio_run(&runtime, fib(n)));
}

fn fib(n: u32) -> Pin<Box<dyn Future<Output = u64> + Send>> {
    Box::pin(async move {
        if n < 2 {
            return n.into();
        }
        let a = tokio::spawn(fib(n - 1));
        let b = fib(n - 2).await;
        a.await.unwrap() + b
    })
}
