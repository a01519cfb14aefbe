//! The lane, the job's word and the helpers' sleep under loom: every interleaving with up to `LOOM_MAX_PREEMPTIONS`
//! preemptions. `ci/models.sh` runs them.
//!
//! Both halves of the asymmetric fence are SeqCst fences here. A wait on a futex is a look and a yield.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;

use super::job::Job;
use super::lane::Lane;
use crate::prim::heavy_fence;

unsafe fn nothing(_: *const Job) {}

/// A job that counts how often it was taken.
#[repr(C)]
struct Counted {
    job: Job,
    taken: UnsafeCell<u32>,
}

impl Counted {
    fn new() -> Self {
        Self { job: Job::new(nothing), taken: UnsafeCell::new(0) }
    }

    /// Who takes it has it alone: loom checks the cell.
    unsafe fn take(job: *const Job) {
        // SAFETY: models keep their jobs.
        unsafe { (*job.cast::<Self>()).taken.with_mut(|n| *n += 1) };
    }

    fn taken(&self) -> u32 {
        // SAFETY: all threads of the model have ended.
        self.taken.with(|n| unsafe { *n })
    }
}

struct Shared {
    lane: Lane,
    jobs: Vec<Counted>,
}
// SAFETY: who takes a job has it alone, which is what the models check.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn new(jobs: usize) -> Arc<Self> {
        Arc::new(Self { lane: Lane::new(), jobs: (0..jobs).map(|_| Counted::new()).collect() })
    }

    fn thief(self: &Arc<Self>, tries: usize) -> thread::JoinHandle<()> {
        let this = self.clone();
        thread::spawn(move || {
            for _ in 0..tries {
                if let Some(job) = this.lane.steal() {
                    // SAFETY: we took it.
                    unsafe { Counted::take(job) };
                }
            }
        })
    }

    /// The owner: pushes job `i`.
    fn push(&self, i: usize) {
        // SAFETY: the model's first thread is the owner.
        unsafe {
            self.lane.push(&raw const self.jobs[i].job);
            if !self.lane.is_attended() {
                self.lane.make_room();
                self.lane.unlimit();
            }
        }
    }

    /// The owner: takes job `i`, the newest, back if it can.
    fn pop(&self, i: usize) {
        // SAFETY: as above.
        unsafe {
            if self.lane.pop() {
                Counted::take(&raw const self.jobs[i].job);
            }
        }
    }

    fn check(&self) {
        for job in &self.jobs {
            assert_eq!(job.taken(), 1);
        }
        assert!(self.lane.is_empty());
    }
}

#[test]
fn each_job_is_taken_once() {
    loom::model(|| {
        let shared = Shared::new(2);
        let thief = shared.thief(1);
        shared.push(0);
        shared.push(1);
        shared.pop(1);
        shared.pop(0);
        thief.join().unwrap();
        shared.check();
    });
}

#[test]
fn a_second_job_in_the_same_place() {
    loom::model(|| {
        let shared = Shared::new(2);
        let thief = shared.thief(1);
        for i in 0..2 {
            shared.push(i);
            shared.pop(i);
        }
        thief.join().unwrap();
        shared.check();
    });
}

#[test]
fn two_thieves_and_a_stack_that_grows() {
    loom::model(|| {
        let shared = Shared::new(2);
        shared.push(0);
        let thieves = [shared.thief(1), shared.thief(1)];
        // The second push fills the stack, which then grows.
        shared.push(1);
        shared.pop(1);
        shared.pop(0);
        for thief in thieves {
            thief.join().unwrap();
        }
        shared.check();
    });
}

#[test]
fn a_place_is_used_again_after_a_theft() {
    loom::model(|| {
        let shared = Shared::new(3);
        let thief = shared.thief(2);
        shared.push(0);
        shared.push(1);
        shared.pop(1);
        shared.push(2);
        shared.pop(2);
        shared.pop(0);
        thief.join().unwrap();
        shared.check();
    });
}

#[test]
fn jobs_of_scopes_beside_one_of_a_join() {
    loom::model(|| {
        let shared = Shared::new(3);
        let thief = shared.thief(2);
        // SAFETY: the model's first thread is the owner.
        unsafe { shared.lane.add(&raw const shared.jobs[1].job) };
        shared.push(0);
        // SAFETY: as above.
        unsafe { shared.lane.add(&raw const shared.jobs[2].job) };
        shared.pop(0);
        // SAFETY: as above; we took what we take.
        unsafe {
            while let Some(job) = shared.lane.take_newest(0, |_| true) {
                Counted::take(job);
            }
        }
        thief.join().unwrap();
        shared.check();
    });
}

#[test]
fn the_maker_goes_on_when_its_job_is_done() {
    loom::model(|| {
        let shared = Shared::new(1);
        // SAFETY: the runner below is the thief.
        unsafe { Job::claim(&raw const shared.jobs[0].job) };
        let runner = {
            let shared = shared.clone();
            thread::spawn(move || {
                let job = &raw const shared.jobs[0].job;
                // SAFETY: this thread has the job.
                unsafe {
                    Counted::take(job);
                    Job::finish(job);
                }
            })
        };
        let job = &shared.jobs[0].job;
        // SAFETY: the job was stolen.
        unsafe {
            if job.wait_on(&shared.lane) {
                shared.lane.wait(|| job.is_done());
            }
        }
        // Visible, and nobody touches it any more: loom checks the cell.
        // SAFETY: the job is done.
        unsafe { Counted::take(job) };
        assert_eq!(shared.jobs[0].taken(), 2);
        runner.join().unwrap();
    });
}

#[test]
fn the_maker_waits_for_its_thief() {
    loom::model(|| {
        let shared = Shared::new(1);
        let thief = {
            let shared = shared.clone();
            thread::spawn(move || {
                if let Some(job) = shared.lane.steal() {
                    // SAFETY: we took it.
                    unsafe {
                        Counted::take(job);
                        Job::finish(job);
                    }
                }
            })
        };
        shared.push(0);
        let job = &shared.jobs[0].job;
        // SAFETY: the owner; a job that is not ours was stolen.
        unsafe {
            if shared.lane.pop() {
                Counted::take(job);
            } else if job.wait_on(&shared.lane) {
                shared.lane.wait(|| job.is_done());
            }
        }
        // Visible: loom checks the cell.
        assert_eq!(shared.jobs[0].taken(), 1);
        thief.join().unwrap();
    });
}

/// `pool::sleep`, up to where it blocks, beside what forks, up to the call of a helper: one of the two sees the other.
fn a_job_and_a_helper_that_falls_asleep(fork: unsafe fn(&Lane, *const Job)) {
    loom::model(move || {
        let shared = Shared::new(1);
        // SAFETY: the model's first thread is the owner.
        unsafe { shared.lane.unlimit() };
        let helper = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.lane.limit();
                heavy_fence();
                !shared.lane.is_empty()
            })
        };
        // SAFETY: as above.
        let called = unsafe {
            fork(&shared.lane, &raw const shared.jobs[0].job);
            !shared.lane.is_attended()
        };
        let found = helper.join().unwrap();
        assert!(called || found, "the job is left");
    });
}

#[test]
fn no_job_is_left_while_a_helper_sleeps() {
    a_job_and_a_helper_that_falls_asleep(Lane::push);
}

#[test]
fn no_job_of_a_scope_is_left_while_a_helper_sleeps() {
    a_job_and_a_helper_that_falls_asleep(Lane::add);
}
