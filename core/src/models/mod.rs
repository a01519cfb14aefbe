//! The core's protocols under loom: every interleaving with up to `LOOM_MAX_PREEMPTIONS` preemptions. `ci/models.sh` runs
//! them.
//!
//! The code checked is the real one wherever it can be built without a CPU's context switch: run queue, park word, spin
//! lock, wait table, the clocks' offsets, the sleepers' marks, the monitor's doze, the hand-off word. What surrounds it in
//! the runtime (the scheduler's loop, epoll, a futex) is modelled here in a few lines; each such stand-in says what it stands
//! for.
//!
//! loom gives a SeqCst access no more than AcqRel: only SeqCst fences order stores before later loads. What relies on a
//! locked instruction being a fence uses `prim::fence_after_rmw`.

#![allow(clippy::arc_with_non_send_sync)] // loom's threads share one kernel thread, and its cells are checked, not Sync

mod exit;
mod fresh;
mod hand_off;
mod join;
mod limit;
mod lock;
mod monitor;
mod park;
mod posted;
mod runq;
mod sleep;
mod wait_table;
mod wall;

#[allow(dead_code)] // each model uses a part
#[path = "../sched/holder.rs"]
mod holder;
#[allow(dead_code)] // as above
#[path = "../sched/limit.rs"]
mod naps;
#[allow(dead_code)] // as above
#[path = "../sched/sleepers.rs"]
mod sleepers;

use crate::park::{ParkWord, Reason, Ticket};
use crate::wait_table::{Waiter, Wakeable};
use loom::cell::UnsafeCell;
use loom::sync::{Condvar, Mutex};

/// The kernel's futex, as far as one sleeper needs it.
#[derive(Default)]
struct Futex {
    bucket: Mutex<()>,
    queue: Condvar,
}

impl Futex {
    /// FUTEX_WAIT: blocks unless `still` is false under the kernel's lock.
    fn wait(&self, still: impl FnOnce() -> bool) {
        let bucket = self.bucket.lock().unwrap();
        if still() {
            drop(self.queue.wait(bucket).unwrap());
        }
    }

    /// FUTEX_WAKE of one.
    fn wake(&self) {
        let _bucket = self.bucket.lock().unwrap();
        self.queue.notify_one();
    }

    /// FUTEX_WAKE of all.
    fn wake_all(&self) {
        let _bucket = self.bucket.lock().unwrap();
        self.queue.notify_all();
    }
}

/// A thread that can wait: a control block and a run queue's promise to run it once per claim.
#[derive(Default)]
struct Thread {
    park: ParkWord,
    /// Times it was made runnable and has not run.
    runnable: Mutex<u32>,
    run: Condvar,
    /// Stands for the waiter's memory: a waker looks at it, its owner takes it away.
    frame: UnsafeCell<()>,
}

impl Thread {
    /// `sched::ready`.
    fn ready(&self) {
        *self.runnable.lock().unwrap() += 1;
        self.run.notify_one();
    }

    /// `sched::park`.
    fn park(&self) -> Reason {
        let mut runnable = self.runnable.lock().unwrap();
        while *runnable == 0 {
            runnable = self.run.wait(runnable).unwrap();
        }
        *runnable -= 1;
        drop(runnable);
        self.park.reason()
    }

    /// Nothing is left over.
    fn check(&self) {
        assert_eq!(*self.runnable.lock().unwrap(), 0, "made runnable twice");
    }
}

/// `sched::Sleeper` for a [`Thread`].
#[derive(Clone, Copy)]
struct Sleeper(*const Thread, Ticket);

impl Wakeable for Sleeper {
    fn claim(&self) -> bool {
        // SAFETY: models keep their threads until all who know them have ended.
        let t = unsafe { &*self.0 };
        t.frame.with(|_| ()); // the waiter is linked, so its frame is there
        t.park.claim(self.1, Reason::Woken)
    }
    fn run(&self, _alone: bool) {
        // SAFETY: as above.
        unsafe { &*self.0 }.ready();
    }
}

/// A waiter that threads of a model may hold.
struct Place(Box<Waiter<Sleeper>>);
// SAFETY: the wait table decides who touches it, which is what the models check.
unsafe impl Send for Place {}
