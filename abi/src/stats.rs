//! `--stats`: what happened, printed when the process ends.

use crate::report;
use crate::sites;
use core::sync::atomic::{AtomicI32, Ordering};
use heddle_core::sched::RT;

/// The process whose end is to be told of: not its children.
static PROCESS: AtomicI32 = AtomicI32::new(0);

fn pid() -> i32 {
    // SAFETY: touches no memory.
    unsafe { sys!(heddle_core::sys::linux::__NR_getpid) as i32 }
}

/// Asks for the summary at the end of this process.
pub fn want() {
    PROCESS.store(pid(), Ordering::Relaxed);
}

/// Prints the summary if it was asked for. Once.
pub fn print() {
    if PROCESS.load(Ordering::Relaxed) == 0 || PROCESS.swap(0, Ordering::Relaxed) != pid() {
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
