//! Messages to the user: one line each, on standard error, without libc.

use crate::signal::context::UContext;
use core::fmt::{self, Write};
use core::sync::atomic::Ordering;
use heddle_core::identity::SigInfo;
use heddle_core::sys::linux as l;
use heddle_core::thread::Thread;

/// A line under construction; what does not fit is cut.
pub struct Line {
    text: [u8; 512],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let n = s.len().min(self.text.len() - self.len);
        self.text[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}

/// Writes one line to standard error.
pub fn line(text: fmt::Arguments<'_>) {
    let mut l = Line { text: [0; 512], len: 0 };
    let _ = l.write_str("heddle: ");
    let _ = l.write_fmt(text);
    let _ = l.write_str("\n");
    raw(&l.text[..l.len]);
}

/// Writes bytes to standard error.
pub fn raw(text: &[u8]) {
    // SAFETY: reads the text.
    unsafe { heddle_core::sys!(l::__NR_write, 2, text.as_ptr(), text.len()) };
}

fn name(t: *const Thread) -> ([u8; 16], usize) {
    // SAFETY: a live control block.
    let n = unsafe { (*t).identity.name() };
    let len = n.iter().position(|&b| b == 0).unwrap_or(16);
    (n, len)
}

fn overflow(t: *const Thread, at: usize) -> bool {
    // SAFETY: a live control block.
    unsafe {
        let id = &(*t).identity;
        id.stack_base != 0
            && at >= id.stack_base.saturating_sub(1 << 16)
            && at < id.stack_base + (1 << 16).min(id.stack_size / 4)
    }
}

fn overflow_line(t: *const Thread) {
    let (n, len) = name(t);
    // SAFETY: a live control block.
    let (tid, size) =
        unsafe { ((*t).identity.tid.load(core::sync::atomic::Ordering::Relaxed), (*t).identity.stack_size) };
    let n = core::str::from_utf8(&n[..len]).unwrap_or("?");
    line(format_args!("thread {tid} '{n}' overflowed its stack of {} KiB", size / 1024));
}

/// A fault that no handler of the program takes.
pub fn fault(t: *const Thread, signal: u32, info: &SigInfo, context: &UContext, in_core: bool) {
    let address = info[2] as usize;
    if !t.is_null() && signal == l::SIGSEGV && overflow(t, address) {
        overflow_line(t);
    } else if in_core {
        line(format_args!("signal {signal} inside the runtime at {:#x}, address {address:#x}", context.regs.rip));
    }
}

/// A signal frame does not fit on the thread's stack.
pub fn no_room(t: *const Thread) {
    overflow_line(t);
}

/// Writes what every thread is doing. Racy, without locks: for people who debug a program that hangs (`kill -33 PID`).
pub fn dump() {
    use core::sync::atomic::Ordering::Relaxed;
    use heddle_core::sched::RT;
    RT.threads.for_each(&mut |t| {
        // SAFETY: a live control block; the fields are read as they are.
        unsafe {
            let id = &(*t).identity;
            let (n, len) = name(t);
            line(format_args!(
                "thread {} '{}': state {}, park {:#x}, on a CPU {}, sp {:#x}, attention {}, pending {:#x}, blocked {:#x}",
                id.tid.load(Relaxed),
                core::str::from_utf8(&n[..len]).unwrap_or("?"),
                (*t).state.load(Relaxed),
                (*t).park.word(),
                (*t).context.on_cpu.load(Relaxed),
                (*t).context.sp.load(Ordering::Relaxed),
                u8::from((*t).attention.load(Relaxed)),
                id.sig_pending.load(Relaxed),
                id.sig_mask.load(Relaxed)
            ));
        }
        true
    });
    for p in RT.processors() {
        line(format_args!(
            "processor {}: queued {}, new {}, posted {}, tick {}, worker {:#x}",
            p.index,
            p.queue.len(),
            p.fresh.len(),
            p.posted.len(),
            p.tick.load(Relaxed),
            p.worker.load(Relaxed) as usize
        ));
    }
    let (sleeping, injected) = (RT.sleepers.sleeping(), RT.injected());
    line(format_args!("workers asleep {sleeping}, threads injected {injected}"));
}
