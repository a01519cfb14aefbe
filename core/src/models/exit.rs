//! Leaving a stack: for the next thread's sake, for good, and for a joiner that frees it at once.

use super::{Place, Sleeper, Thread};
use crate::lock::SpinLock;
use crate::prim::relax;
use crate::wait_table::{WaitTable, Waiter};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use loom::thread;
use std::sync::Arc;

/// A thread's `arch::Context` with the stack it belongs to.
struct Context {
    sp: UnsafeCell<u32>,
    stack: UnsafeCell<u32>,
    on_cpu: AtomicU8,
}

impl Context {
    fn running() -> Self {
        Self { sp: UnsafeCell::new(0), stack: UnsafeCell::new(0), on_cpu: AtomicU8::new(1) }
    }

    fn use_stack(&self) {
        // SAFETY: loom checks that nobody else uses the cell.
        self.stack.with_mut(|s| unsafe { *s += 1 });
    }

    /// `arch::switch`, the half that leaves.
    fn leave(&self) {
        self.use_stack();
        // SAFETY: loom checks that nobody else uses the cell.
        self.sp.with_mut(|sp| unsafe { *sp = 1 });
        // Release: as the plain store of `switch` on this architecture. pairs: on_cpu
        self.on_cpu.store(0, Ordering::Release);
    }

    /// `sched::take_context` and `arch::switch`, the half that arrives.
    fn arrive(&self) {
        // Acquire: as in take_context. pairs: on_cpu
        while self.on_cpu.load(Ordering::Acquire) != 0 {
            relax();
        }
        self.on_cpu.store(1, Ordering::Relaxed);
        // SAFETY: loom checks that nobody writes it meanwhile.
        assert_eq!(self.sp.with(|sp| unsafe { *sp }), 1, "the registers are saved");
        self.use_stack();
    }
}

/// A waker claims a wait before the thread has left its stack; another worker picks it at once.
#[test]
fn thread_picked_before_it_left_its_stack() {
    loom::model(|| {
        let (t, context) = (Arc::new(Thread::default()), Arc::new(Context::running()));
        let ticket = t.park.open();
        let waker = thread::spawn({
            let (t, context) = (t.clone(), context.clone());
            move || {
                if t.park.claim(ticket, crate::park::Reason::Woken) {
                    context.arrive(); // taken from a queue: ours to run
                }
            }
        });
        context.leave();
        waker.join().unwrap();
    });
}

/// `thread::exit` and `last_act` of the ABI layer against `pthread_join` and a creator that gets the same control block.
#[test]
fn joiner_frees_the_stack_and_a_creator_takes_the_block() {
    const KEY: usize = 64;
    loom::model(|| {
        let context = Arc::new(Context::running());
        let clear_tid = Arc::new(AtomicU32::new(7));
        let futexes = Arc::new(WaitTable::<Sleeper>::new());
        let free = Arc::new(SpinLock::new(false));
        let exiting = thread::spawn({
            let (context, clear_tid, futexes, free) =
                (context.clone(), clear_tid.clone(), futexes.clone(), free.clone());
            move || {
                context.leave();
                // On the new side: finish_switch.
                *free.lock() = true;
                // Release: the stack was left before the joiner sees 0. pairs: model.join
                clear_tid.store(0, Ordering::Release);
                futexes.wake(KEY, 1, u32::MAX);
            }
        });
        let creator = thread::spawn({
            let (context, free) = (context.clone(), free.clone());
            move || {
                if *free.lock() {
                    assert_eq!(context.on_cpu.load(Ordering::Relaxed), 0, "a free block's context is at rest");
                    // SAFETY: loom checks that nobody else uses the cell: fresh_context.
                    context.sp.with_mut(|sp| unsafe { *sp = 0 });
                }
            }
        });
        let joiner = Arc::new(Thread::default());
        // Acquire: as in glibc's pthread_join. pairs: model.join
        while clear_tid.load(Ordering::Acquire) != 0 {
            let ticket = joiner.park.open();
            let mut waiter = Place(Box::new(Waiter::new(Sleeper(&*joiner, ticket), 0)));
            // SAFETY: the waiter is woken, hence unlinked, before it goes away.
            if unsafe { futexes.wait(&mut *waiter.0, KEY, u32::MAX, || clear_tid.load(Ordering::Relaxed) == 7) } {
                joiner.park();
            } else {
                assert!(joiner.park.close(ticket));
            }
        }
        context.use_stack(); // munmap
        exiting.join().unwrap();
        creator.join().unwrap();
    });
}

/// Two threads that are leaving, each made runnable already and picked by the other's worker.
#[test]
fn two_workers_pick_each_others_thread() {
    loom::model(|| {
        let contexts = Arc::new([Context::running(), Context::running()]);
        let worker = |me: usize, contexts: &[Context; 2]| {
            let (t, next) = (&contexts[me], &contexts[1 - me]);
            // `leave`: one turn for the next, then by way of the scheduler. Acquire: as in try_take_context. pairs: on_cpu
            if next.on_cpu.load(Ordering::Acquire) == 0 {
                t.leave();
                next.arrive();
            } else {
                t.leave();
                next.arrive(); // on the scheduler's stack
            }
        };
        let other = thread::spawn({
            let contexts = contexts.clone();
            move || worker(1, &contexts)
        });
        worker(0, &contexts);
        other.join().unwrap();
    });
}
