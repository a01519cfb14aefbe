//! The sleep protocol: never is work queued while a worker sleeps and no message is under way.
//!
//! A worker that takes an item is busy with it for ever, and there are as many items as workers that must take one: if an
//! item is left lying, its worker sleeps for ever and loom reports the deadlock.

use super::sleepers::Marks;
use crate::runq::RunQueue;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::Arc;

/// The eventfd in the epoll instance: each message reaches one worker that polls.
#[derive(Default)]
struct Reactor {
    messages: Mutex<u32>,
    sleepers: Condvar,
}

impl Reactor {
    fn wake(&self) {
        let mut messages = self.messages.lock().unwrap();
        assert_eq!(*messages, 0, "at most one message is under way");
        *messages += 1;
        self.sleepers.notify_one();
    }

    fn poll(&self, block: bool) -> bool {
        let mut messages = self.messages.lock().unwrap();
        while block && *messages == 0 {
            messages = self.sleepers.wait(messages).unwrap();
        }
        let message = *messages > 0;
        *messages -= u32::from(message);
        message
    }
}

/// The runtime around the marks: the injection queue, and the ring of a worker that pushes.
struct World {
    marks: Marks,
    reactor: Reactor,
    injected: AtomicU32,
    ring: RunQueue<()>,
}

impl World {
    fn new() -> Self {
        Self {
            marks: Marks::new(),
            reactor: Reactor::default(),
            injected: AtomicU32::new(0),
            ring: RunQueue::starting_at(0),
        }
    }

    /// `any_runnable_twice`.
    fn more(&self) -> bool {
        self.injected.load(Ordering::Relaxed) != 0 || self.ring.len() > 1
    }

    /// `take_injected`, else `steal`.
    fn take(&self) -> bool {
        let injected = self.injected.load(Ordering::Relaxed);
        if injected != 0 {
            // The lock of the queue, in short.
            let (now, ok) = (injected - 1, Ordering::Relaxed);
            return self.injected.compare_exchange(injected, now, ok, Ordering::Relaxed).is_ok();
        }
        self.ring.len() > 1 && self.ring.steal_into(&RunQueue::starting_at(0)).is_some()
    }

    fn call(&self) {
        self.marks.call(|| self.reactor.wake());
    }

    /// `inject`.
    fn inject(&self) {
        self.injected.fetch_add(1, Ordering::Relaxed);
        self.marks.pushed();
        if self.marks.must_call() {
            self.call();
        }
    }

    /// `ready` on a worker.
    fn push_own(&self) {
        assert!(self.ring.push(core::ptr::dangling_mut()).is_ok());
        self.marks.pushed();
        if self.ring.len() > 1 && self.marks.must_call() {
            self.call();
        }
    }

    /// `sched_loop_entry` until it has an item.
    fn worker(&self) {
        while !self.take() && !self.idle() {}
    }

    fn idle(&self) -> bool {
        (self.marks.start_searching(1) && self.search()) || self.sleep()
    }

    fn search(&self) -> bool {
        let found = self.take();
        if !found && self.reactor.poll(false) {
            self.marks.message_while_searching();
        }
        if self.marks.stop_searching(found, || self.more()) {
            self.call();
        }
        found
    }

    fn sleep(&self) -> bool {
        loop {
            if let Some(found) = self.sleep_once() {
                return found;
            }
        }
    }

    /// `None`: a message, but nothing to be found.
    fn sleep_once(&self) -> Option<bool> {
        if !self.marks.fall_asleep(|| self.more()) {
            let found = self.take();
            if found && self.more() && self.marks.must_call() {
                self.call();
            }
            return Some(found);
        }
        let message = self.reactor.poll(true);
        self.marks.awake();
        if !message { Some(false) } else { self.search().then_some(true) }
    }

    /// A busy worker looks at the reactor now and then (`look_around`).
    fn look_around(&self) {
        if self.reactor.poll(false) && self.marks.message_taken(|| self.more()) {
            self.call();
        }
    }
}

fn spawn(world: &Arc<World>, f: impl FnOnce(&World) + 'static) -> thread::JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || f(&world))
}

#[test]
fn pusher_against_a_worker_going_to_sleep() {
    loom::model(|| {
        let world = Arc::new(World::new());
        let worker = spawn(&world, World::worker);
        world.inject();
        worker.join().unwrap();
    });
}

#[test]
fn two_items_for_two_workers() {
    loom::model(|| {
        let world = Arc::new(World::new());
        let workers = [spawn(&world, World::worker), spawn(&world, World::worker)];
        world.inject();
        world.inject();
        workers.into_iter().for_each(|w| w.join().unwrap());
    });
}

#[test]
fn two_pushers() {
    loom::model(|| {
        let world = Arc::new(World::new());
        let worker = spawn(&world, |world| {
            world.worker();
            world.worker();
        });
        let pusher = spawn(&world, World::inject);
        world.inject();
        worker.join().unwrap();
        pusher.join().unwrap();
    });
}

#[test]
fn message_that_reaches_a_busy_worker() {
    loom::model(|| {
        let world = Arc::new(World::new());
        let worker = spawn(&world, World::worker);
        let busy = spawn(&world, World::look_around);
        world.inject();
        worker.join().unwrap();
        busy.join().unwrap();
    });
}

#[test]
fn second_thread_of_a_ring() {
    loom::model(|| {
        let world = Arc::new(World::new());
        let worker = spawn(&world, World::worker);
        // A worker makes two threads runnable and goes on running its own.
        world.push_own();
        world.push_own();
        worker.join().unwrap();
    });
}
