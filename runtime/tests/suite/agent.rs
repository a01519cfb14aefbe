//! Agents on threads of all kinds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use heddle::agent::{self, Address, Builder, End, Handle, Next, Reply, RequestError, Restart};
use heddle::cancel::{Token, WaitError};
use heddle::channel::{SendUntilError, TrySendError, unbounded};
use heddle::sync::Event;
use heddle::{Mode, SpawnError};

super::tests![
    agent_requests,
    agent_deadlines,
    agent_cancelled,
    agent_back_pressure,
    agent_panics,
    agent_restarts,
    agent_restarts_no_more,
    agent_make_panics,
    agent_stop_drains,
    agent_stops_itself,
    agent_ends_without_addresses,
    agent_forwards_replies,
    agent_requests_meet_the_end,
    agent_ring,
    agent_makes_agents,
    agent_in_no_process,
];

/// Holds an agent up.
#[derive(Default)]
struct Gate {
    reached: Event,
    open: Event,
}

impl Gate {
    fn pass(&self) {
        self.reached.set();
        self.open.wait();
    }
}

enum Message {
    Add(usize),
    Sum(Reply<usize>),
    Panic(Reply<usize>),
    Crash,
    Wait(Arc<Gate>),
    Stop,
}

fn handle(sum: &mut usize, message: Message) -> Next {
    match message {
        Message::Add(n) => *sum += n,
        Message::Sum(reply) => drop(reply.send(*sum)),
        Message::Panic(reply) => assert!(!reply.is_wanted(), "asked for {}", *sum),
        Message::Crash => panic!("without being asked"),
        Message::Wait(gate) => gate.pass(),
        Message::Stop => return Next::Stop,
    }
    Next::Continue
}

/// Of one of the kinds that the mode has.
fn builder(i: usize) -> Builder {
    let user = heddle::mode() == Mode::User && i.is_multiple_of(2);
    Builder::new().mode(if user { Mode::User } else { Mode::Kernel })
}

fn summer(i: usize) -> (Address<Message>, Handle) {
    builder(i).spawn(0, handle).unwrap()
}

fn agent_requests() {
    for i in 0..2 {
        let (address, handle) = summer(i);
        super::on_threads(4, {
            let address = heddle::sync::Mutex::new(address.clone());
            move |_| {
                let address = address.lock().clone();
                for _ in 0..200 {
                    address.send(Message::Add(1)).unwrap();
                    assert!(address.request(Message::Sum).unwrap() > 0);
                }
            }
        });
        assert_eq!(address.request(Message::Sum), Ok(800));
        drop(address);
        assert_eq!(handle.join(), End::Stopped);
    }
}

fn agent_deadlines() {
    let (address, handle) = summer(0);
    let go = Arc::new(Gate::default());
    address.send(Message::Wait(go.clone())).unwrap();
    let begin = Instant::now();
    let most = Duration::from_millis(20);
    assert_eq!(address.request_until(Message::Sum, most), Err(RequestError::TimedOut));
    assert!(begin.elapsed() >= most);
    assert_eq!(handle.wait_until(Duration::from_millis(1)), Err(WaitError::TimedOut));
    go.open.set();
    assert_eq!(address.request_until(Message::Sum, Duration::from_secs(60)), Ok(0));
    // The answer to who has given up is refused.
    let (tell, told) = unbounded();
    let (late, _) = agent::spawn((), move |_, (go, reply): (Arc<Gate>, Reply<()>)| {
        go.pass();
        tell.send((reply.is_wanted(), reply.send(()))).unwrap();
    });
    let go = Arc::new(Gate::default());
    assert_eq!(late.request_until(|reply| (go.clone(), reply), most), Err(RequestError::TimedOut));
    go.open.set();
    assert_eq!(told.recv(), Ok((false, Err(()))));
}

fn agent_cancelled() {
    let (address, _handle) = summer(1);
    let (go, token) = (Arc::new(Gate::default()), Token::new());
    address.send(Message::Wait(go.clone())).unwrap();
    let asks = {
        let (address, token) = (address.clone(), token.clone());
        heddle::spawn(move || address.request_until(Message::Sum, &token))
    };
    token.cancel();
    assert_eq!(asks.join().unwrap(), Err(RequestError::Cancelled));
    go.open.set();
}

fn agent_back_pressure() {
    let (address, handle) = builder(0).room(2).spawn(0, handle).unwrap();
    let go = Arc::new(Gate::default());
    address.send(Message::Wait(go.clone())).unwrap();
    go.reached.wait();
    address.try_send(Message::Add(1)).unwrap();
    address.try_send(Message::Add(1)).unwrap();
    assert!(matches!(address.try_send(Message::Add(1)), Err(TrySendError::Full(Message::Add(1)))));
    let late = address.send_until(Message::Add(0), Duration::from_millis(5));
    assert!(matches!(late, Err(SendUntilError::TimedOut(Message::Add(0)))));
    assert_eq!(address.request_until(Message::Sum, Duration::from_millis(5)), Err(RequestError::TimedOut));
    go.open.set();
    assert_eq!(address.request(Message::Sum), Ok(2));
    handle.stop();
    assert_eq!(handle.join(), End::Stopped);
    assert!(matches!(address.try_send(Message::Add(1)), Err(TrySendError::Disconnected(_))));
}

fn agent_panics() {
    for i in 0..2 {
        let (address, handle) = summer(i);
        let (tell, told) = unbounded();
        let again = tell.clone();
        handle.monitor(|_| panic!("a monitor's"));
        handle.monitor(move |end| tell.send(end.clone()).unwrap());
        address.send(Message::Add(3)).unwrap();
        assert_eq!(address.request(Message::Panic), Err(RequestError::Unanswered));
        let end = End::Panicked("asked for 3".into());
        assert_eq!(told.recv().as_ref(), Ok(&end));
        assert_eq!(handle.wait_until(Duration::ZERO).as_ref(), Ok(&end));
        handle.monitor(move |end| again.send(end.clone()).unwrap()); // it has ended: now
        assert_eq!(told.try_recv().as_ref(), Ok(&end));
        assert!(address.is_closed());
        assert!(address.send(Message::Add(1)).is_err());
        assert_eq!(address.request(Message::Sum), Err(RequestError::Closed));
        assert_eq!(handle.join(), end);
    }
}

fn agent_restarts() {
    for i in 0..2 {
        let policy = Restart::at_most(2, Duration::from_secs(3600));
        let (address, handle) = builder(i).restart(policy, || 100, handle).unwrap();
        let go = Arc::new(Gate::default());
        address.send(Message::Wait(go.clone())).unwrap();
        address.send(Message::Add(1)).unwrap();
        let asks = {
            let address = address.clone();
            heddle::spawn(move || address.request(Message::Panic))
        };
        go.open.set();
        assert_eq!(asks.join().unwrap(), Err(RequestError::Unanswered));
        // What was not begun is handled by the new one.
        let go = Arc::new(Gate::default());
        address.send(Message::Wait(go.clone())).unwrap();
        address.send(Message::Crash).unwrap();
        (0..10).for_each(|_| address.send(Message::Add(1)).unwrap());
        go.open.set();
        assert_eq!(address.request(Message::Sum), Ok(110));
        assert_eq!(handle.restarts(), 2);
        handle.stop();
        assert_eq!(handle.join(), End::Stopped);
    }
}

fn agent_restarts_no_more() {
    let policy = Restart::at_most(2, Duration::from_secs(3600));
    let (address, handle) = builder(0).restart(policy, || 0, handle).unwrap();
    for _ in 0..3 {
        assert_eq!(address.request(Message::Panic), Err(RequestError::Unanswered));
    }
    assert_eq!(handle.wait_until(Duration::from_secs(60)), Ok(End::Panicked("asked for 0".into())));
    assert_eq!(handle.restarts(), 2);
    assert_eq!(address.request(Message::Sum), Err(RequestError::Closed));
    // Panics long ago do not count.
    let policy = Restart::at_most(1, Duration::ZERO);
    let (address, handle) = builder(1).restart(policy, || 0, self::handle).unwrap();
    for _ in 0..5 {
        assert_eq!(address.request(Message::Panic), Err(RequestError::Unanswered));
        heddle::sleep(Duration::from_millis(1));
    }
    assert_eq!(address.request(Message::Sum), Ok(0));
    assert_eq!(handle.restarts(), 5);
}

fn agent_make_panics() {
    let mut left = 3;
    let make = move || {
        left -= 1;
        assert!(left == 0, "not yet");
        7
    };
    let (address, _handle) = builder(0).restart(Restart::at_most(2, Duration::from_secs(3600)), make, handle).unwrap();
    assert_eq!(address.request(Message::Sum), Ok(7));
    let (address, handle) =
        agent::restart(Restart::at_most(2, Duration::from_secs(3600)), || -> u8 { panic!("never") }, |_, (): ()| ());
    assert_eq!(handle.join(), End::Panicked("never".into()));
    assert!(address.is_closed());
}

fn agent_stop_drains() {
    for i in 0..2 {
        let handled = Arc::new(AtomicUsize::new(0));
        let count = handled.clone();
        let go = Arc::new(Gate::default());
        let wait = go.clone();
        let handler = move |_: &mut (), (): ()| {
            wait.pass();
            count.fetch_add(1, Ordering::Relaxed);
        };
        let (address, handle) = builder(i).unbounded().spawn((), handler).unwrap();
        (0..1000).for_each(|_| address.send(()).unwrap());
        handle.stop();
        assert!(address.send(()).is_err());
        go.open.set();
        assert_eq!(handle.join(), End::Stopped);
        assert_eq!(handled.load(Ordering::Relaxed), 1000);
    }
}

fn agent_stops_itself() {
    let (address, handle) = summer(0);
    let go = Arc::new(Gate::default());
    address.send(Message::Wait(go.clone())).unwrap();
    address.send(Message::Stop).unwrap();
    let asks = {
        let address = address.clone();
        heddle::spawn(move || address.request(Message::Sum))
    };
    go.open.set();
    // Sent before it stops, or not.
    assert!(matches!(asks.join().unwrap(), Ok(0) | Err(RequestError::Closed | RequestError::Unanswered)));
    assert_eq!(handle.join(), End::Stopped);
}

fn agent_ends_without_addresses() {
    struct Dropped(Arc<AtomicUsize>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let (address, handle) = agent::spawn(Dropped(dropped.clone()), |_, _: Dropped| ());
    (0..10).for_each(|_| address.clone().send(Dropped(dropped.clone())).unwrap());
    drop(address);
    assert_eq!(handle.wait_until(Duration::from_secs(60)), Ok(End::Stopped));
    assert_eq!(dropped.load(Ordering::Relaxed), 11);
}

fn agent_forwards_replies() {
    let (behind, _b) = summer(1);
    let (front, _f) =
        builder(0).spawn((), move |_, reply: Reply<usize>| drop(behind.send(Message::Sum(reply)))).unwrap();
    assert_eq!(front.request(|reply| reply), Ok(0));
}

/// Whoever asks while an agent ends gets an answer or an error, although the message may have come too late.
fn agent_requests_meet_the_end() {
    for round in 0..100 {
        let (address, handle) = summer(round);
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let address = address.clone();
                heddle::spawn(move || while address.request(Message::Sum).is_ok() {})
            })
            .collect();
        if round % 4 < 2 {
            handle.stop();
        } else {
            let _ = address.request(Message::Panic);
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        handle.join();
    }
}

fn agent_ring() {
    const AGENTS: usize = 100;
    enum Ring {
        Next(Address<Ring>),
        Token(usize),
    }
    let (tell, told) = unbounded();
    let mut handles = Vec::new();
    let agents: Vec<Address<Ring>> = (0..AGENTS)
        .map(|i| {
            let tell = tell.clone();
            let handler = move |next: &mut Option<Address<Ring>>, message| match (message, &*next) {
                (Ring::Next(address), _) => *next = Some(address),
                (Ring::Token(0), _) => tell.send(i).unwrap(),
                (Ring::Token(n), Some(address)) => address.send(Ring::Token(n - 1)).unwrap(),
                (Ring::Token(_), None) => panic!("the ring is not closed"),
            };
            let (address, handle) = builder(i).stack_size(64 * 1024).spawn(None, handler).unwrap();
            handles.push(handle);
            address
        })
        .collect();
    for (i, agent) in agents.iter().enumerate() {
        agent.send(Ring::Next(agents[(i + 1) % AGENTS].clone())).unwrap();
    }
    for _ in 0..5 {
        agents[0].send(Ring::Token(3 * AGENTS + 7)).unwrap();
    }
    for _ in 0..5 {
        assert_eq!(told.recv(), Ok(7));
    }
    drop(agents); // each still has the address of the next
    handles.iter().for_each(Handle::stop);
    for handle in handles {
        assert_eq!(handle.join(), End::Stopped);
    }
}

fn agent_makes_agents() {
    fn tree((depth, reply): (u32, Reply<u32>)) {
        let below = match depth {
            0 => 0,
            _ => (0..2)
                .map(|_| {
                    let (child, _) = agent::spawn((), |_, message| tree(message));
                    child.request(|reply| (depth - 1, reply)).unwrap()
                })
                .sum(),
        };
        reply.send(below + 1).unwrap();
    }
    let (root, handle) = agent::spawn((), |_, message| tree(message));
    assert_eq!(root.request(|reply| (5, reply)), Ok(63));
    drop(root);
    assert_eq!(handle.join(), End::Stopped);
}

fn agent_in_no_process() {
    let refused = Builder::new().mode(Mode::Process).spawn((), |_, (): ()| ());
    assert!(matches!(refused, Err(SpawnError::Process)));
}
