//! rtrb: one sender, one receiver, no waiting: both look until they can go on.

use std::time::Instant;

fn stream<T: Copy + Send + 'static>(count: u64, value: T) -> f64 {
    let (mut sender, mut receiver) = rtrb::RingBuffer::new(super::ROOM);
    let start = Instant::now();
    let sending = std::thread::spawn(move || {
        for _ in 0..count {
            while sender.push(value).is_err() {
                std::hint::spin_loop();
            }
        }
    });
    for _ in 0..count {
        let value = loop {
            match receiver.pop() {
                Ok(value) => break value,
                Err(_) => std::hint::spin_loop(),
            }
        };
        std::hint::black_box(value);
    }
    sending.join().unwrap();
    start.elapsed().as_secs_f64()
}

pub fn run(figure: &str, count: u64) -> Option<f64> {
    match figure {
        "spsc8" => Some(stream(count, 7u64)),
        "spsc64" => Some(stream(count, [7u64; 8])),
        _ => None,
    }
}
