//! The lane, the job's word and the helpers' sleep under loom: every interleaving with up to `LOOM_MAX_PREEMPTIONS`
//! preemptions. `ci/models.sh` runs them.
//!
//! Both halves of the asymmetric fence are SeqCst fences here. A wait on a futex is a look and a yield.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;

use super::job::{Job, Scoped};
use super::lane::Lane;
use super::room::{self, Rooms};
use crate::prim::{AtomicUsize, Ordering, heavy_fence};

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

/// A scope of the model's first thread, whose lane this is.
struct Scope {
    lane: Lane,
    jobs: Vec<ScopeJob>,
    /// As `scope::State::unfinished`.
    count: AtomicUsize,
    /// Another scope's, which nobody ends.
    outer: AtomicUsize,
}
// SAFETY: as for `Shared`.
unsafe impl Send for Scope {}
// SAFETY: as above.
unsafe impl Sync for Scope {}

#[repr(C)]
struct ScopeJob {
    scoped: Scoped,
    taken: UnsafeCell<u32>,
}

impl Scope {
    /// With so many jobs; those from `outer` on are the outer scope's.
    fn new(jobs: usize, outer: usize) -> Arc<Self> {
        Arc::new_cyclic(|this: &std::sync::Weak<Self>| {
            let this = this.as_ptr();
            // SAFETY: places in what is being made.
            let (ours, others) = unsafe { (&raw const (*this).count, &raw const (*this).outer) };
            let job = |i| ScopeJob {
                scoped: Scoped::new(nothing, if i < outer { ours } else { others }, false, false),
                taken: UnsafeCell::new(0),
            };
            let jobs = (0..jobs).map(job).collect();
            Self { lane: Lane::new(), jobs, count: AtomicUsize::new(1), outer: AtomicUsize::new(1) }
        })
    }

    /// Runs a job as its thief.
    fn run(&self, job: *const Job) {
        // SAFETY: the caller took it; models keep their jobs.
        unsafe {
            (*job.cast::<ScopeJob>()).taken.with_mut(|n| *n += 1);
            if Scoped::is_counted(job.cast()) && (*job.cast::<Scoped>()).scope() == &raw const self.count as usize {
                // AcqRel: as in `State::finish`. pairs: scope.unfinished
                self.count.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    fn thief(self: &Arc<Self>, tries: usize) -> thread::JoinHandle<()> {
        let this = self.clone();
        thread::spawn(move || {
            for _ in 0..tries {
                if let Some(job) = this.lane.steal() {
                    this.run(job);
                }
            }
        })
    }

    fn add(&self, i: usize) {
        // SAFETY: the model's first thread is the owner.
        unsafe { self.lane.add(&raw const self.jobs[i].scoped) };
    }

    fn take(&self, scope: Option<&AtomicUsize>) -> bool {
        let scope = scope.map(|count| &raw const *count as usize);
        // SAFETY: as above.
        let job = unsafe { self.lane.take_newest(0, scope) };
        if let Some(job) = job {
            self.run(job);
        }
        job.is_some()
    }

    /// As the end of `scope`: afterwards its jobs' work is visible.
    fn end(&self) {
        while self.take(Some(&self.count)) {}
        // Acquire: as there. pairs: scope.unfinished
        if self.count.load(Ordering::Acquire) != 1 {
            self.count.fetch_sub(1, Ordering::Relaxed);
            // Acquire: as there. pairs: scope.unfinished
            while self.count.load(Ordering::Acquire) != 0 {
                thread::yield_now();
            }
        }
        for job in self.jobs.iter().filter(|job| job.scoped.scope() == &raw const self.count as usize) {
            // SAFETY: the scope's jobs have ended: loom checks the cell.
            assert_eq!(job.taken.with(|n| unsafe { *n }), 1);
        }
    }
}

#[test]
fn a_scope_ends_after_its_jobs() {
    loom::model(|| {
        let scope = Scope::new(2, 2);
        let thief = scope.thief(2);
        scope.add(0);
        scope.add(1);
        scope.end();
        thief.join().unwrap();
        assert!(scope.lane.is_empty());
    });
}

#[test]
fn a_place_of_the_queue_is_used_again() {
    loom::model(|| {
        let scope = Scope::new(3, 3);
        let thief = scope.thief(2);
        scope.add(0);
        scope.take(Some(&scope.count));
        scope.add(1);
        scope.add(2);
        scope.end();
        thief.join().unwrap();
        assert!(scope.lane.is_empty());
    });
}

#[test]
fn an_empty_queue_is_not_full_because_of_a_thief() {
    loom::model(|| {
        let scope = Scope::new(2, 2);
        let places = scope.lane.places();
        let thief = scope.thief(2);
        for i in 0..2 {
            scope.add(i);
            scope.take(Some(&scope.count));
        }
        assert_eq!(scope.lane.places(), places);
        scope.end();
        thief.join().unwrap();
    });
}

#[test]
fn an_inner_scope_takes_its_own_from_between() {
    loom::model(|| {
        let scope = Scope::new(3, 2);
        let thief = scope.thief(1);
        for i in [0, 2, 1] {
            scope.add(i);
        }
        scope.end();
        thief.join().unwrap();
        // What is left is the outer scope's.
        while scope.take(None) {}
        // SAFETY: all threads have ended.
        assert_eq!(scope.jobs[2].taken.with(|n| unsafe { *n }), 1);
        assert!(scope.lane.is_empty());
    });
}

#[test]
fn jobs_of_scopes_beside_one_of_a_join() {
    loom::model(|| {
        let scope = Scope::new(2, 2);
        let join = Arc::new(Scope::new(1, 1));
        let thief = scope.thief(2);
        scope.add(0);
        let job = &raw const join.jobs[0].scoped.job;
        // SAFETY: the model's first thread is the owner; who takes the job counts it.
        unsafe {
            scope.lane.push(job);
            scope.add(1);
            if scope.lane.pop() {
                join.jobs[0].taken.with_mut(|n| *n += 1);
            }
        }
        scope.end();
        thief.join().unwrap();
        // SAFETY: all threads have ended.
        assert_eq!(join.jobs[0].taken.with(|n| unsafe { *n }), 1);
        assert!(scope.lane.is_empty());
    });
}

#[test]
fn rooms_have_one_user_and_come_home() {
    struct House {
        rooms: Rooms,
        /// What is in the rooms, in the order in which they were first taken.
        inside: [UnsafeCell<u32>; room::MOST],
    }
    // SAFETY: who has a room has its cell, which is what loom checks.
    unsafe impl Send for House {}
    // SAFETY: as above.
    unsafe impl Sync for House {}
    loom::model(|| {
        let house = Arc::new(House { rooms: Rooms::new(), inside: std::array::from_fn(|_| UnsafeCell::new(0)) });
        // SAFETY: the model's first thread is the owner.
        let rooms = [unsafe { house.rooms.take() }.unwrap(), unsafe { house.rooms.take() }.unwrap()];
        let tenants: Vec<_> = rooms
            .iter()
            .enumerate()
            .map(|(i, &room)| {
                let (house, room) = (house.clone(), room as usize);
                thread::spawn(move || {
                    // SAFETY: the room is this thread's.
                    unsafe {
                        house.inside[i].with_mut(|n| *n += 1);
                        Rooms::give_back(room as *mut room::Room, None);
                    }
                })
            })
            .collect();
        let mut taken = 0;
        for _ in 0..3 {
            // SAFETY: as above.
            if let Some(room) = unsafe { house.rooms.take() } {
                let i = rooms.iter().position(|&known| known == room).expect("one of the two");
                // SAFETY: the room is ours.
                house.inside[i].with_mut(|n| unsafe { *n += 1 });
                taken += 1;
            }
        }
        assert!(taken <= 2);
        for tenant in tenants {
            tenant.join().unwrap();
        }
        // SAFETY: as above.
        unsafe {
            while house.rooms.take().is_some() {
                taken += 1
            }
        }
        assert_eq!(taken, 2);
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
fn a_job_and_a_helper_that_falls_asleep(fork: fn(&Lane, *const Job)) {
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
        fork(&shared.lane, &raw const shared.jobs[0].job);
        // SAFETY: as above.
        let called = unsafe { !shared.lane.is_attended() };
        let found = helper.join().unwrap();
        assert!(called || found, "the job is left");
    });
}

#[test]
fn no_job_is_left_while_a_helper_sleeps() {
    // SAFETY: the owner; the job stays.
    a_job_and_a_helper_that_falls_asleep(|lane, job| unsafe { lane.push(job) });
}

#[test]
fn no_job_of_a_scope_is_left_while_a_helper_sleeps() {
    a_job_and_a_helper_that_falls_asleep(|lane, _| {
        let count = Box::leak(Box::new(AtomicUsize::new(1)));
        let job = Box::leak(Box::new(Scoped::new(nothing, count, false, false)));
        // SAFETY: the owner; the job stays.
        unsafe { lane.add(job) }
    });
}
