//! tokio's channels between its tasks.

use std::time::Instant;

use tokio::sync::mpsc::channel;

async fn stream<T: Copy + Send + 'static>(senders: u64, count: u64, value: T) {
    let (sender, mut receiver) = channel(super::ROOM);
    for _ in 0..senders {
        let sender = sender.clone();
        tokio::spawn(async move {
            for _ in 0..count / senders {
                assert!(sender.send(value).await.is_ok());
            }
        });
    }
    drop(sender);
    let receiving = tokio::spawn(async move {
        while let Some(value) = receiver.recv().await {
            std::hint::black_box(value);
        }
    });
    receiving.await.unwrap();
}

async fn ping_pong(count: u64) {
    let (to, mut from) = channel(1);
    let (back, mut answers) = channel(1);
    let ping = tokio::spawn(async move {
        for n in 0..count {
            to.send(n).await.unwrap();
            assert_eq!(answers.recv().await, Some(n));
        }
    });
    let pong = tokio::spawn(async move {
        while let Some(n) = from.recv().await {
            back.send(n).await.unwrap();
        }
    });
    ping.await.unwrap();
    pong.await.unwrap();
}

pub fn run(figure: &str, count: u64) -> Option<f64> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let start = Instant::now();
    match figure {
        "spsc8" => runtime.block_on(stream(1, count, 7u64)),
        "spsc64" => runtime.block_on(stream(1, count, [7u64; 8])),
        "mpsc4" => runtime.block_on(stream(4, count, 7u64)),
        "pingpong" => runtime.block_on(ping_pong(count)),
        _ => return None,
    }
    Some(start.elapsed().as_secs_f64())
}
