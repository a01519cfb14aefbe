//! How each contender is started with a number of workers.

/// Heddle; the mode is that of `HEDDLE_MODE`.
pub fn heddle(workers: usize) {
    heddle::start(heddle::Options::new().workers(workers)).expect("Heddle starts");
}

/// Heddle, and a fiber that measures. It borrows what the closure does, since it is joined here.
pub fn heddle_fiber(workers: usize, f: impl FnOnce() + Send) {
    heddle(workers);
    let f: Box<dyn FnOnce() + Send> = Box::new(f);
    // SAFETY: a fiber of this stack measures, touches no thread-local across a wait, and has ended before this returns.
    unsafe {
        let f = std::mem::transmute::<Box<dyn FnOnce() + Send + '_>, Box<dyn FnOnce() + Send + 'static>>(f);
        heddle::fiber::Builder::new().stack_size(4 << 20).spawn(f).expect("a stack").join().expect("no panic");
    }
}

/// A pool of rayon. It runs other jobs on top of a waiting one, so the stacks are large.
pub fn rayon(workers: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(workers).stack_size(256 << 20).build().expect("a pool")
}

/// A pool of chili, whose caller is one of the workers. `RUST_MIN_STACK` gives its threads large stacks.
pub fn chili(workers: usize) -> chili::ThreadPool {
    chili::ThreadPool::with_config(chili::Config {
        thread_count: std::num::NonZero::new(workers),
        ..Default::default()
    })
}

/// A runtime of tokio.
pub fn tokio(workers: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(workers).build().expect("a runtime")
}

/// The workers of may's coroutines.
pub fn may(workers: usize) {
    may::config().set_workers(workers);
}

/// Runs a task of tokio on a worker, not on the caller.
pub fn tokio_run<T: Send + 'static>(
    runtime: &tokio::runtime::Runtime,
    task: impl Future<Output = T> + Send + 'static,
) -> T {
    runtime.block_on(runtime.spawn(task)).expect("no panic")
}
