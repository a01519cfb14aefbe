//! Ours.

use std::time::Instant;

use heddle::mailbox::{Overflow, mailbox};
use heddle::pool::Pool;
use heddle::{Mode, Options};

fn mail(count: u64, bytes: usize) -> f64 {
    let (address, mut mailbox) = mailbox(300 * 1024, Overflow::Block);
    let start = Instant::now();
    let message = vec![7u8; bytes];
    let sending = heddle::spawn(move || (0..count).for_each(|_| address.send(&message[..]).unwrap()));
    let receiving = heddle::spawn(move || {
        while let Ok(message) = mailbox.recv() {
            std::hint::black_box(message[message.len() - 1]);
        }
    });
    sending.join().unwrap();
    receiving.join().unwrap();
    start.elapsed().as_secs_f64()
}

pub fn run(mode: Mode, figure: &str, count: u64) -> Option<f64> {
    heddle::start(Options::new().mode(mode).workers(2)).expect("a start");
    let pool = Pool::new();
    let make = move |v| pool.make(v);
    let join = |thread: heddle::JoinHandle<()>| thread.join().unwrap();
    if let Some(how) = super::handover::parse(figure) {
        return Some(super::handover::run(how, count, make, heddle::spawn, join));
    }
    match figure {
        "mail16" => Some(mail(count, 16)),
        "mail256" => Some(mail(count, 256)),
        "mail4096" => Some(mail(count, 4096)),
        "mail65536" => Some(mail(count, 65536)),
        "oneway" => Some(super::handover::one_way(make, heddle::spawn, join)),
        _ => super::threads!(figure, count, heddle::spawn, heddle::channel::bounded, many: yes),
    }
}
