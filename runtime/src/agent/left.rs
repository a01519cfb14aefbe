//! Messages that nobody will receive: who sends to an agent that has ended drops them, or the agent does.
//!
//! A channel may take a message while it is closed and keep it until the last sender goes; the sender of a request would wait
//! for its answer until then.
//! 1. Who sends stores the message, then looks whether the agent is over.
//! 2. The agent says that it is over, leaves its receiver here, then looks for messages.
//! 3. Each needs a full fence between its store and its look, so that one of them sees the other's store: a light one in 1,
//!    which is done for each message, and a heavy one in 2.
//! 4. If it is the sender, the receiver is here, or comes here under the same lock and is looked through after that.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::channel::lock::Lock;
use crate::prim::{AtomicU32, Ordering, heavy_fence, light_fence};

/// What messages can be taken out of.
pub trait Rest {
    type Messages;
    /// Those that are there; waits for nothing and drops nothing.
    fn take(&self) -> Option<Self::Messages>;
}

pub struct Left<R> {
    over: AtomicU32,
    receiver: Lock<Option<R>>,
}

impl<R: Rest> Left<R> {
    pub fn new() -> Self
    where
        Lock<Option<R>>: Default,
    {
        Self { over: AtomicU32::new(0), receiver: Lock::default() }
    }

    /// A message has been sent: if nobody will receive it, it is dropped.
    #[inline]
    pub fn sent(&self) {
        light_fence();
        if self.over.load(Ordering::Relaxed) != 0 {
            self.sweep();
        }
    }

    /// The agent receives no more.
    pub fn end(&self, receiver: R) {
        self.over.store(1, Ordering::Relaxed);
        heavy_fence();
        self.receiver.with(|place| *place = Some(receiver));
        self.sweep();
    }

    #[cold]
    fn sweep(&self) {
        while let Some(messages) = self.receiver.with(|receiver| receiver.as_ref().and_then(Rest::take)) {
            // Without the lock: they may send on their way. One that panics while it is dropped has been reported.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(messages)));
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Room for two messages, with no order of its own.
    struct Slots([AtomicU32; 2], AtomicU32);

    impl Rest for Arc<Slots> {
        type Messages = ();
        fn take(&self) -> Option<()> {
            let taken = |slot: &AtomicU32| slot.load(Ordering::Relaxed) != 0 && slot.swap(0, Ordering::Relaxed) != 0;
            let count = self.0.iter().filter(|slot| taken(slot)).count() as u32;
            self.1.fetch_add(count, Ordering::Relaxed);
            (count != 0).then_some(())
        }
    }

    /// Two that send, and the agent's end: no message is left, none is dropped twice.
    #[test]
    fn who_sends_at_the_end_of_an_agent() {
        loom::model(|| {
            let slots = Arc::new(Slots([AtomicU32::new(0), AtomicU32::new(0)], AtomicU32::new(0)));
            let left = Arc::new(Left::new());
            let threads = [0, 1].map(|i| {
                let (slots, left) = (slots.clone(), left.clone());
                thread::spawn(move || {
                    slots.0[i].store(1, Ordering::Relaxed);
                    left.sent();
                })
            });
            left.end(slots.clone());
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(slots.1.load(Ordering::Relaxed), 2);
        });
    }
}
