//! Who runs when, beside whom, and on which worker.

use super::harness::{self, Mode, with_machine};
use super::{helper, under_heddle};

/// Threads that spun with `sched_yield` kept a processor from being idle, and so from taking the thread that they waited for
/// from the queue of one where another computed.
#[test]
fn threads_that_yield_fetch_whom_they_wait_for() {
    let Some(job) = helper("yields_for_others", &[]) else { return };
    let job = job.env("HEDDLE_SLICE_MS", "10000");
    for mode in under_heddle() {
        assert_eq!(job.run(mode).assert_clean().out().trim(), "0 missed");
    }
}

/// The wish to preempt was one word for all workers: when two slices ended at one look of the monitor's, the worker that was
/// found first took the wish of the other, whose thread ran on for up to a second.
#[test]
fn slices_that_end_together_end_on_all_workers() {
    let Some(job) = helper("slices_on_two_workers", &[]) else { return };
    for mode in under_heddle() {
        let long: u32 = job.run(mode).assert_clean().out().trim().parse().unwrap();
        assert!(long < 10, "{long} % of the time went to threads that kept their workers for three slices and more");
    }
}

/// What `--stats` says of a name.
fn counter(report: &str, name: &str) -> u32 {
    let (_, rest) = report.split_once(&format!("{name} ")).expect(report);
    rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// Whoever was found in the kernel at two looks of the monitor was taken for one that is stuck there, though these were two
/// calls of a microsecond: threads that work on files lost their processors 600 times in a second, and a third of their speed.
#[test]
fn who_makes_many_short_calls_keeps_its_processor() {
    let Some(job) = helper("short_calls", &[]) else { return };
    let job = job.heddle_option("--stats");
    with_machine(true, || {
        for mode in harness::modes(&[2]).into_iter().filter(|&mode| mode != Mode::Plain) {
            let outcome = job.run(mode);
            let calls: u32 = outcome.assert_ended().out().trim().parse().unwrap();
            let hand_offs = counter(&outcome.err(), "hand-offs");
            assert!(calls > 10_000 && hand_offs < 100, "{hand_offs} hand-offs in {calls} calls");
        }
    });
}

/// The monitor counted the time during which the kernel had given the CPU to others as the slice of whoever the worker ran, and
/// who is preempted comes after all who wait: some of a server's connections waited for up to 0.4 s beside a busy client.
#[test]
fn who_is_switched_out_with_its_worker_is_not_preempted_for_it() {
    let Some(job) = helper("switched_out", &[]) else { return };
    let job = job.heddle_option("--stats");
    for mode in harness::modes(&[1]).into_iter().filter(|&mode| mode != Mode::Plain) {
        let outcome = job.run(mode);
        let rounds: u32 = outcome.assert_ended().out().trim().parse().unwrap();
        let err = outcome.err();
        let preemptions = counter(&err, "preemptions");
        assert!(
            rounds > 1000 && preemptions < 30,
            "{preemptions} preemptions in {rounds} rounds, 0.1 ms and less each"
        );
    }
}

/// Preempted threads were picked once in so many switches, for a slice each, and before the reactor was looked at: pairs that
/// take turns came round 4,000 times in a second by semaphores, and 350 times by pipes, beside threads that compute (100,000
/// times and more on the kernel's threads). With one worker the monitor took the pipes' events from under its eyes.
#[test]
fn pairs_that_take_turns_have_their_share_beside_computing_threads() {
    let Some(job) = helper("beside_computing", &[]) else { return };
    for mode in harness::modes(&[2, 1]).into_iter().filter(|&mode| mode != Mode::Plain) {
        let outcome = job.run(mode);
        let rounds: Vec<u32> = outcome.assert_clean().out().split_whitespace().map(|n| n.parse().unwrap()).collect();
        assert!(rounds[0] > 40_000 && rounds[1] > 4_000, "{rounds:?} rounds by semaphores and pipes");
    }
}
