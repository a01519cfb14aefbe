//! Descriptors with a real epoll instance and pipes, and with events made up.

use super::*;
use crate::reactor::{BATCH, Event, Reactor};
use crate::thread::Table;
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::vec::Vec;

struct World {
    descriptors: Descriptors,
    reactor: Reactor,
    threads: Table,
    reader: PipeReader,
    writer: PipeWriter,
}

/// A parked thread's node and its ticket.
struct Parked {
    thread: *mut Thread,
    ticket: Ticket,
    node: std::boxed::Box<Node>,
}

impl World {
    fn new() -> Self {
        let (descriptors, reactor, threads) = (Descriptors::new(), Reactor::new(), Table::new());
        descriptors.reserve().unwrap();
        reactor.open().unwrap();
        threads.reserve(0).unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        Self { descriptors, reactor, threads, reader, writer }
    }

    fn fd(&self) -> i32 {
        self.reader.as_raw_fd()
    }

    fn wait(&self, fd: i32, interest: u32, seen: Option<u32>) -> (Parked, Wait) {
        let thread = self.threads.allocate().unwrap();
        // SAFETY: a block of the table; the node is boxed and is left or unlinked before it goes.
        unsafe {
            let ticket = (*thread).park.open();
            let mut node = std::boxed::Box::new(Node::new(thread, ticket, interest));
            let did = self.descriptors.wait(&self.reactor, fd, &mut *node, seen);
            (Parked { thread, ticket, node }, did)
        }
    }

    fn events(&self, fd: i32, interest: u32) -> u32 {
        self.descriptors.get(fd).unwrap().events(interest)
    }

    /// A thread that parks.
    fn parked(&self, fd: i32, interest: u32) -> Parked {
        let (parked, did) = self.wait(fd, interest, Some(self.events(fd, interest)));
        assert_eq!(did, Wait::Linked);
        parked
    }

    /// What epoll reports now, handed to the descriptors; the threads made runnable.
    fn poll(&self) -> Vec<*mut Thread> {
        let mut events = [const { core::mem::MaybeUninit::<Event>::uninit() }; BATCH];
        let n = self.reactor.poll(&mut events, Some(0));
        let mut run = Vec::new();
        for e in &events[..n] {
            // SAFETY: the kernel wrote the first n.
            let Event { events, data } = unsafe { e.assume_init() };
            self.descriptors.event(data, events, &mut |t| run.push(t));
        }
        run
    }

    fn leave(&self, p: &mut Parked) {
        // SAFETY: the node's owner.
        unsafe { self.descriptors.leave(&mut *p.node) };
    }
}

fn linked(p: &Parked) -> bool {
    p.node.at.load(Ordering::Relaxed) >= 0
}

#[test]
fn an_event_wakes_the_waiters_of_its_direction() {
    let mut w = World::new();
    let readers = [w.parked(w.fd(), IN), w.parked(w.fd(), IN | OUT)];
    let other = w.parked(w.fd(), OUT);
    assert_eq!(w.poll(), [], "the registration finds nothing ready");
    w.writer.write_all(b"x").unwrap();
    let mut run = w.poll();
    run.sort();
    let mut expected = [readers[0].thread, readers[1].thread];
    expected.sort();
    assert_eq!(run, expected);
    assert!(!linked(&readers[0]) && !linked(&readers[1]) && linked(&other));
    let mut other = other;
    w.leave(&mut other);
    assert!(!linked(&other));
}

#[test]
fn an_event_after_the_sample_is_not_slept_through() {
    let mut w = World::new();
    let mut p = w.parked(w.fd(), IN);
    w.leave(&mut p);
    let seen = w.events(w.fd(), IN);
    w.writer.write_all(b"x").unwrap();
    assert_eq!(w.poll(), []);
    assert_eq!(w.wait(w.fd(), IN, Some(seen)).1, Wait::Again);
    let mut p = w.parked(w.fd(), IN);
    w.leave(&mut p);
}

#[test]
fn an_event_that_served_another_is_not_slept_through() {
    let mut w = World::new();
    let served = w.parked(w.fd(), IN);
    let mut late = w.parked(w.fd(), IN);
    // SAFETY: a block of the table.
    assert!(unsafe { (*late.thread).park.claim(late.ticket, Reason::Timeout) });
    let seen = w.events(w.fd(), IN);
    w.writer.write_all(b"x").unwrap();
    assert_eq!(w.poll(), [served.thread]);
    w.leave(&mut late);
    assert_eq!(w.wait(w.fd(), IN, Some(seen)).1, Wait::Again);
}

#[test]
fn registering_reports_what_is_ready_already() {
    let mut w = World::new();
    w.writer.write_all(b"x").unwrap();
    let p = w.parked(w.fd(), IN);
    assert_eq!(w.poll(), [p.thread]);
}

#[test]
fn more_waiters_than_one_batch() {
    let mut w = World::new();
    let waiters: Vec<_> = (0..50).map(|_| w.parked(w.fd(), IN)).collect();
    w.writer.write_all(b"x").unwrap();
    assert_eq!(w.poll().len(), 50);
    assert!(waiters.iter().all(|p| !linked(p)));
}

#[test]
fn a_thread_claimed_for_another_reason_is_not_run() {
    let mut w = World::new();
    let mut p = w.parked(w.fd(), IN);
    // SAFETY: a block of the table.
    assert!(unsafe { (*p.thread).park.claim(p.ticket, Reason::Timeout) });
    w.writer.write_all(b"x").unwrap();
    assert_eq!(w.poll(), []);
    w.leave(&mut p); // whether the event unlinked it or not
    assert!(!linked(&p));
}

#[test]
fn events_of_an_earlier_descriptor_of_that_number_are_ignored() {
    let w = World::new();
    let fd = w.fd();
    let mut p = w.parked(fd, IN);
    w.leave(&mut p);
    w.descriptors.forget(&w.reactor, fd);
    let mut p = w.parked(fd, IN);
    let old = fd as u64 | 1 << 32;
    w.descriptors.event(old, l::EPOLLIN, &mut |_| panic!("an old event"));
    assert!(linked(&p));
    w.leave(&mut p);
}

#[test]
fn a_waiter_keeps_the_file_that_the_program_closes() {
    let mut w = World::new();
    let fd = w.fd();
    let p = w.parked(fd, IN);
    w.descriptors.forget(&w.reactor, fd);
    // The program closes it: another file takes its number.
    let null = File::open("/dev/null").unwrap();
    // SAFETY: both descriptors are the test's own.
    unsafe { sys!(l::__NR_dup2, null.as_raw_fd(), fd) };
    w.writer.write_all(b"x").unwrap();
    assert_eq!(w.poll(), [p.thread]);
    let copy = p.node.fd.load(Ordering::Relaxed);
    assert_ne!(copy, fd);
    let mut byte = 0u8;
    // SAFETY: writes one local.
    assert_eq!(unsafe { sys!(l::__NR_read, copy, &raw mut byte, 1) }, 1);
    w.descriptors.done(&w.reactor, copy);
    // SAFETY: asks about a number.
    assert!(unsafe { sys!(l::__NR_fcntl, copy, l::F_GETFD) } < 0, "the last waiter closed the copy");
    assert_eq!(w.reader.read(&mut [0]).unwrap(), 0);
}

#[test]
fn what_cannot_be_watched_is_refused() {
    let w = World::new();
    let file = File::open("/proc/self/exe").unwrap();
    assert_eq!(w.wait(file.as_raw_fd(), IN, None).1, Wait::Cannot(linux_raw_sys::errno::EPERM as i32));
    assert_eq!(w.wait(-1, IN, None).1, Wait::Cannot(linux_raw_sys::errno::EBADF as i32));
    assert_eq!(w.wait(MAX as i32, IN, None).1, Wait::Cannot(linux_raw_sys::errno::EBADF as i32));
}

#[test]
fn reset_forgets_registrations_and_waiters() {
    let w = World::new();
    let p = w.parked(w.fd(), IN);
    // SAFETY: the only thread that uses them.
    unsafe { w.descriptors.reset() };
    w.reactor.close();
    w.reactor.open().unwrap();
    let mut again = w.parked(w.fd(), IN);
    w.leave(&mut again);
    drop(p); // never woken, never left: it belongs to a thread that does not exist in the child
}
