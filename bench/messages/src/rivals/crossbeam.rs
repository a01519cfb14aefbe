//! crossbeam-channel; for messages of any length it carries boxes.

use std::time::Instant;

fn mail(count: u64, bytes: usize) -> f64 {
    let (sender, receiver) = crossbeam_channel::bounded::<Box<[u8]>>((300 * 1024 / bytes).max(1));
    let start = Instant::now();
    let message = vec![7u8; bytes];
    let sending = std::thread::spawn(move || (0..count).for_each(|_| sender.send(message[..].into()).unwrap()));
    let receiving = std::thread::spawn(move || {
        while let Ok(message) = receiver.recv() {
            std::hint::black_box(message[message.len() - 1]);
        }
    });
    sending.join().unwrap();
    receiving.join().unwrap();
    start.elapsed().as_secs_f64()
}

pub fn run(figure: &str, count: u64) -> Option<f64> {
    match figure {
        "mail16" => Some(mail(count, 16)),
        "mail256" => Some(mail(count, 256)),
        "mail4096" => Some(mail(count, 4096)),
        "mail65536" => Some(mail(count, 65536)),
        _ => super::threads!(figure, count, std::thread::spawn, crossbeam_channel::bounded, many: yes),
    }
}
