//! `--stats`: what happened, printed when the process ends.

use crate::report;
use crate::sites;
use core::sync::atomic::{AtomicBool, Ordering};
use heddle_core::sched::RT;

static WANTED: AtomicBool = AtomicBool::new(false);

/// Asks for the summary at the end.
pub fn want() {
    WANTED.store(true, Ordering::Relaxed);
}

/// Prints the summary if it was asked for. Once.
pub fn print() {
    if !WANTED.swap(false, Ordering::Relaxed) {
        return;
    }
    let c = RT.counters();
    report::line(format_args!(
        "threads created {}, switches {}, parks {}, steals {}, hand-offs {}, reactor wake-ups {}, preemptions {}, \
         notifications {}",
        c.created, c.switches, c.parks, c.steals, c.hand_offs, c.reactor_wakes, c.preemptions, c.notifications
    ));
    sites::for_each_report(&mut |name, rewritten, left| {
        let name = core::str::from_utf8(name).unwrap_or("?");
        report::line(format_args!("sites in {name}: {rewritten} rewritten, {left} left alone"));
    });
}
