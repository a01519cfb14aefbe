//! What the runtime tells the library about itself: its threads and its counters, as records that only ever grow at their end.
//! The reader says how large a record it knows.

use crate::entry::Frame;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;
use heddle_core::sched::RT;
use heddle_core::sys::linux as l;
use heddle_core::thread::{State, Thread};
use heddle_interface::{CounterRecord, RESTING, ThreadRecord};

/// The counters now.
pub fn counters() -> CounterRecord {
    let c = RT.counters();
    CounterRecord {
        created: c.created,
        switches: c.switches,
        parks: c.parks,
        steals: c.steals,
        hand_offs: c.hand_offs,
        reactor_wakes: c.reactor_wakes,
        preemptions: c.preemptions,
        notifications: c.notifications,
        live: RT.threads.live().into(),
        asleep: RT.sleepers.sleeping() as u64,
        queued: RT.processors().iter().map(|p| (p.queue.len() + p.fresh.len() + p.posted.len()) as u64).sum::<u64>()
            + RT.injected() as u64,
    }
}

/// The first thread at or behind a place in the table, and the place behind it.
pub fn thread_from(place: u32) -> Option<(u32, ThreadRecord)> {
    let (at, t) = RT.threads.from_place(place)?;
    // SAFETY: a block of the table.
    Some((at + 1, unsafe { record(t) }))
}

/// Whether the kernel thread of this id is one of the runtime's own.
pub fn is_own(tid: i32) -> bool {
    RT.owns_kernel_thread(tid)
}

/// A copy of the frame of a system call, on the stack of a thread that may go on, and end, at any time.
fn frame_at(address: usize) -> Option<Frame> {
    let mut frame = MaybeUninit::<Frame>::uninit();
    let vector = |at: usize| [at, size_of::<Frame>()];
    let (to, from) = (vector(frame.as_mut_ptr() as usize), vector(address));
    // SAFETY: the kernel copies, and says if the memory is not there any more.
    unsafe {
        let pid = sys!(l::__NR_getpid);
        let got = sys!(l::__NR_process_vm_readv, pid, to.as_ptr(), 1, from.as_ptr(), 1, 0);
        (got == size_of::<Frame>() as isize).then(|| frame.assume_init())
    }
}

/// # Safety
/// A block of the table. Others change it meanwhile: fields that are not atomic are read as they are, and believed only if
/// the thread has waited all the time.
unsafe fn record(t: *mut Thread) -> ThreadRecord {
    // SAFETY: the caller's.
    unsafe {
        let look = || ((*t).identity.tid.load(Ordering::Relaxed), (*t).park.word(), (*t).state.load(Ordering::Relaxed));
        let before = look();
        let (id, _, state) = before;
        let running = (*t).context.on_cpu.load(Ordering::Relaxed);
        let mut r = ThreadRecord {
            id,
            state: state.into(),
            running: u32::from(running != 0),
            call: -1,
            argument: 0,
            cpu_time: (*t).cpu_time.load(Ordering::Relaxed),
            name: (*t).identity.name(),
        };
        if state <= State::Runnable as u8 {
            // No program can block all signals: see `kept`.
            if running == 0 && (*t).identity.sig_mask.load(Ordering::Relaxed) == u64::MAX {
                r.state = RESTING;
            }
            return r;
        }
        let (at, word) = ((&raw const (*t).recover).read_volatile(), (&raw const (*t).last_futex).read_volatile());
        let frame = if at == 0 { None } else { frame_at(at) };
        if look() != before {
            // It has gone on meanwhile.
            r.state = (*t).state.load(Ordering::Relaxed).max(State::Runnable as u8).into();
            return r;
        }
        if let Some(frame) = frame {
            r.call = frame.rax as i32;
            r.argument = frame.rdi;
        }
        if state == State::Futex as u8 {
            // Who waits for the end of a kept thread has no word.
            let joins = (*t).join_wait.load(Ordering::Relaxed) == before.1 >> 8;
            r.argument = if joins { 0 } else { word as u64 };
        }
        r
    }
}
