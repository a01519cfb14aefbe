//! Objects handed from thread to thread by what the library brings: `lab-child pass-pool` and `lab-child pass-channel`.
//!
//! As in `pass.c` with shift 1, each thread fills its own slot or channel and empties its neighbour's.

use std::time::Instant;

use crate::Error;

/// 48 bytes.
pub type Object = [u64; 6];

/// How much is handed over.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Threads.
    pub threads: usize,
    /// How often each fills and empties.
    pub cycles: usize,
    /// Objects at a time.
    pub objects: usize,
}

/// The object with that number.
pub fn object(number: usize) -> Object {
    [number as u64, 0, 0, 0, 0, 0]
}

/// Checks that the objects of one thread arrive once each, in their order.
#[derive(Debug, Default)]
pub struct Arrived(u64);

impl Arrived {
    /// Takes note of one; answers whether it was the next.
    pub fn is_next(&mut self, object: &Object) -> bool {
        self.0 += 1;
        object[0] == self.0 - 1
    }
}

/// Runs `work` on as many threads as it is given parts, user threads if `user`; answers what is printed.
pub fn measure<P: Send + 'static>(
    user: bool,
    size: Size,
    parts: Vec<P>,
    work: fn(Size, P) -> bool,
) -> Result<String, Error> {
    let failed = || Error("a thread panicked".to_owned());
    let start = Instant::now();
    let right: Vec<bool> = if user {
        let threads: Vec<_> = parts.into_iter().map(|part| heddle::spawn(move || work(size, part))).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| failed())).collect::<Result<_, _>>()?
    } else {
        let threads: Vec<_> = parts.into_iter().map(|part| std::thread::spawn(move || work(size, part))).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| failed())).collect::<Result<_, _>>()?
    };
    let took = start.elapsed().as_secs_f64();
    if right.contains(&false) {
        return Err(Error("objects were lost, doubled or out of order".to_owned()));
    }
    let all = size.threads * size.cycles * size.objects;
    Ok(format!("price {}\ntime {took}\ncheck objects {all}\n", took * 1e9 / all as f64))
}
