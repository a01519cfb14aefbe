//! Agents whose state may be in another process: the same in all modes, and what deaths do to them.

use std::os::unix::process::ExitStatusExt;
use std::thread;
use std::time::{Duration, Instant};

use heddle::agent::across::{self, Address, AgentError, Builder, Reply};
use heddle::agent::{End, Handle, Next, RequestError, Restart};
use heddle::cancel::{Token, WaitError};
use heddle::channel::across as channel;
use heddle::channel::{SendUntilError, TrySendError, unbounded};
use heddle::process::{ArenaArc, ArenaString, TaskError, pids, usage};
use heddle::{Mode, task};

use super::{Test, eventually, is_process, libc_kill, tests};

pub const SAME: &[Test] = tests! {
    agents agents_have_limits agents_without_room agents_that_panic agents_made_anew agents_stop an_agent_ends_without_addresses
    agents_ask_agents more_agents_than_workers agents_refused
};
pub const PROCESS: &[Test] = tests! {
    an_agent_is_elsewhere a_request_of_a_killed_agent_says_how an_agent_is_made_anew_after_a_kill
    a_request_that_waits_for_a_dead_agent
    a_reply_that_dies_elsewhere_is_told who_looks_after_an_agent_dies agents_and_kills an_agent_without_processes
};

const SHORT: Duration = Duration::from_millis(10);
const LONG: Duration = Duration::from_secs(20);
const ANY_TIME: Duration = Duration::from_secs(3600);

heddle::shareable! {
    enum Message {
        Add(u64),
        Note(ArenaString),
        Sum(Reply<u64>),
        Notes(Reply<ArenaString>),
        Pid(Reply<u32>),
        Panic(Reply<u64>),
        Die(Reply<u64>),
        /// Says that it was begun, and waits for the other end.
        Hold((channel::Sender<u32>, channel::Receiver<()>)),
        Stop,
    }
}

/// Holds what cannot cross.
struct State {
    sum: u64,
    notes: Vec<String>,
}

fn open(sum: u64) -> State {
    State { sum, notes: Vec::new() }
}

fn handle(state: &mut State, message: Message) -> Next {
    match message {
        Message::Add(n) => state.sum += n,
        Message::Note(text) => state.notes.push(text.to_string()),
        Message::Sum(reply) => drop(reply.send(state.sum)),
        Message::Notes(reply) => drop(reply.send((*state.notes.join(" ")).into())),
        Message::Pid(reply) => drop(reply.send(std::process::id())),
        Message::Panic(reply) => assert!(!reply.is_wanted(), "asked for {}", state.sum),
        Message::Die(reply) => {
            kill(std::process::id());
            thread::sleep(LONG);
            drop(reply);
        }
        Message::Hold((begun, go)) => {
            let _ = begun.send(std::process::id());
            let _ = go.recv();
        }
        Message::Stop => return Next::Stop,
    }
    Next::Continue
}

fn kill(pid: u32) {
    // SAFETY: a child's child, or ourselves.
    unsafe { libc_kill(pid, 9) };
}

fn summer() -> (Address<Message>, Handle) {
    across::spawn(100, open, handle).unwrap()
}

/// Keeps the agent busy until the sender is dropped; its process.
fn hold(address: &Address<Message>) -> (channel::Sender<()>, u32) {
    let ((begun, begun_in), (go, go_in)) = (channel::bounded(1), channel::bounded(1));
    address.send(Message::Hold((begun, go_in))).unwrap();
    (go, begun_in.recv().unwrap())
}

fn is_kill(end: &End) -> bool {
    matches!(end, End::Died(how) if how.signal() == Some(9))
}

fn agents() {
    let before = usage().used;
    let (address, handle) = summer();
    for text in ["warp", "and", "weft"] {
        address.send(Message::Note(text.into())).unwrap();
    }
    assert_eq!(&*address.request(Message::Notes).unwrap(), "warp and weft");
    // From tasks, in whatever process.
    let add = |address: Address<Message>| {
        for n in 1..=100 {
            address.send(Message::Add(n)).unwrap();
            assert!(address.request(Message::Sum).unwrap() > 100);
        }
    };
    let tasks: Vec<_> = (0..4).map(|_| task(add, address.clone())).collect();
    tasks.into_iter().for_each(|task| task.join().unwrap());
    assert_eq!(address.request(Message::Sum), Ok(100 + 4 * 5050));
    assert_eq!(handle.restarts(), 0);
    handle.stop();
    assert_eq!(handle.join(), End::Stopped);
    assert!(address.is_closed() && address.send(Message::Add(1)).is_err());
    assert_eq!(address.request(Message::Sum), Err(RequestError::Closed));
    drop(address);
    eventually("all is freed", || usage().used == before);
}

fn agents_have_limits() {
    let (address, handle) = Builder::new().room(2).spawn(7, open, self::handle).unwrap();
    let (go, _) = hold(&address);
    let begin = Instant::now();
    assert_eq!(address.request_until(Message::Sum, SHORT), Err(RequestError::TimedOut));
    assert!(begin.elapsed() >= SHORT);
    let token = Token::new();
    let asks = {
        let (address, token) = (address.clone(), token.clone());
        heddle::spawn(move || address.request_until(Message::Sum, &token))
    };
    thread::sleep(SHORT);
    token.cancel();
    assert_eq!(asks.join().unwrap(), Err(RequestError::Cancelled));
    // Both are in its room, or the second found the token cancelled.
    while address.try_send(Message::Add(1)).is_ok() {}
    assert!(matches!(address.try_send(Message::Add(1)), Err(TrySendError::Full(Message::Add(1)))));
    assert!(matches!(address.send_until(Message::Add(1), SHORT), Err(SendUntilError::TimedOut(Message::Add(1)))));
    assert_eq!(address.request_until(Message::Sum, SHORT), Err(RequestError::TimedOut), "there is no room");
    assert_eq!(handle.wait_until(SHORT), Err(WaitError::TimedOut));
    drop(go);
    assert!(matches!(address.request_until(Message::Sum, LONG), Ok(7 | 8)));
    handle.stop();
    assert_eq!(handle.wait_until(LONG), Ok(End::Stopped));

    // The answer to who has given up is refused.
    fn late(
        _: &mut (),
        (begun, go, told, reply): (
            channel::Sender<()>,
            channel::Receiver<()>,
            channel::Sender<bool>,
            Reply<ArenaString>,
        ),
    ) {
        begun.send(()).unwrap();
        let _ = go.recv();
        assert!(!reply.is_wanted());
        told.send(reply.send("late".into()).is_err()).unwrap();
    }
    let (address, _handle) = across::spawn((), |()| (), late).unwrap();
    let ((begun, begun_in), (go, go_in), (tell, told)) =
        (channel::bounded(1), channel::bounded(1), channel::bounded(1));
    let asks = address.request_until(|reply| (begun, go_in, tell, reply), SHORT);
    assert_eq!(asks.map(drop), Err(RequestError::TimedOut));
    begun_in.recv().unwrap();
    drop(go);
    assert_eq!(told.recv(), Ok(true));
}

/// A send waits until the agent takes the message.
fn agents_without_room() {
    let (address, handle) = Builder::new().room(0).spawn(7, open, self::handle).unwrap();
    let (go, _) = hold(&address);
    assert!(matches!(address.try_send(Message::Add(1)), Err(TrySendError::Full(Message::Add(1)))));
    assert!(matches!(address.send_until(Message::Add(1), SHORT), Err(SendUntilError::TimedOut(Message::Add(1)))));
    assert_eq!(address.request_until(Message::Sum, SHORT), Err(RequestError::TimedOut));
    drop(go);
    address.send(Message::Add(1)).unwrap();
    assert_eq!(address.request(Message::Sum), Ok(8));
    assert_eq!(address.request(Message::Panic), Err(RequestError::Unanswered));
    assert_eq!(handle.join(), End::Panicked("asked for 8".into()));
}

fn agents_that_panic() {
    let (address, handle) = summer();
    let (tell, told) = unbounded();
    handle.monitor(move |end| tell.send(end.clone()).unwrap());
    assert_eq!(address.request(Message::Panic), Err(RequestError::Unanswered));
    let end = End::Panicked("asked for 100".into());
    assert_eq!(told.recv().as_ref(), Ok(&end));
    assert!(address.is_closed());
    assert_eq!(address.request(Message::Sum), Err(RequestError::Closed));
    assert_eq!(handle.join(), end);

    let (address, handle) = across::spawn((), |()| -> u8 { panic!("never") }, |_, (): ()| ()).unwrap();
    assert_eq!(handle.join(), End::Panicked("never".into()));
    assert!(address.is_closed());
}

fn agents_made_anew() {
    let policy = Restart::at_most(2, ANY_TIME);
    let (address, handle) = across::restart(policy, 100, open, self::handle).unwrap();
    let (go, _) = hold(&address);
    address.send(Message::Add(1)).unwrap();
    let asks = {
        let address = address.clone();
        heddle::spawn(move || address.request(Message::Panic))
    };
    drop(go);
    assert_eq!(asks.join().unwrap(), Err(RequestError::Unanswered));
    // What was not begun is handled by the new one.
    let (go, _) = hold(&address);
    let asks = {
        let address = address.clone();
        heddle::spawn(move || address.request(Message::Panic))
    };
    eventually("it is asked", || format!("{address:?}").contains("waiting: 1"));
    (0..10).for_each(|_| address.send(Message::Add(1)).unwrap());
    drop(go);
    assert_eq!(asks.join().unwrap(), Err(RequestError::Unanswered));
    assert_eq!(address.request(Message::Sum), Ok(110));
    assert_eq!(handle.restarts(), 2);
    assert_eq!(address.request(Message::Panic), Err(RequestError::Unanswered));
    assert_eq!(handle.join(), End::Panicked("asked for 110".into()));
}

fn agents_stop() {
    // What was sent before is handled.
    let (address, handle) = Builder::new().unbounded().spawn(0, open, self::handle).unwrap();
    let (seen, seen_in) = channel::bounded(1);
    let (go, _) = hold(&address);
    (0..1000).for_each(|_| address.send(Message::Add(1)).unwrap());
    address.send(Message::Hold((seen, channel::bounded(1).1))).unwrap();
    handle.stop();
    assert!(address.send(Message::Add(1)).is_err());
    drop(go);
    assert!(seen_in.recv().is_ok());
    assert_eq!(handle.join(), End::Stopped);
    // It stops itself.
    let (address, handle) = summer();
    address.send(Message::Stop).unwrap();
    assert_eq!(handle.join(), End::Stopped);
    // A request that comes too late has an answer or an error.
    for _ in 0..20 {
        let (address, handle) = summer();
        let asks = task(|address: Address<Message>| while address.request(Message::Sum).is_ok() {}, address.clone());
        assert_eq!(address.request(Message::Sum), Ok(100));
        handle.stop();
        asks.join().unwrap();
        assert_eq!(handle.join(), End::Stopped);
    }
}

fn an_agent_ends_without_addresses() {
    let before = usage().used;
    let (address, handle) = summer();
    let sends =
        task(|address: Address<Message>| address.send(Message::Note("a note of some length".into())).is_ok(), address);
    assert!(sends.join().unwrap());
    assert_eq!(handle.wait_until(LONG), Ok(End::Stopped));
    drop(handle);
    eventually("all is freed", || usage().used == before);
}

/// An agent asks another, whose address and reply travel.
fn agents_ask_agents() {
    heddle::shareable! {
        enum Front {
            Ask(Reply<u64>),
            HandOn(Reply<u64>),
        }
    }
    fn serve(behind: &mut Address<Message>, message: Front) {
        match message {
            Front::Ask(reply) => drop(reply.send(behind.request(Message::Sum).unwrap() + 1)),
            Front::HandOn(reply) => behind.send(Message::Sum(reply)).unwrap(),
        }
    }
    let (behind, behind_handle) = summer();
    let (front, front_handle) = across::spawn(behind, |behind: Address<Message>| behind, serve).unwrap();
    for _ in 0..50 {
        assert_eq!(front.request(Front::Ask), Ok(101));
        assert_eq!(front.request(Front::HandOn), Ok(100));
    }
    drop(front);
    assert_eq!(front_handle.join(), End::Stopped);
    assert_eq!(behind_handle.join(), End::Stopped, "the front had its only address");
}

fn more_agents_than_workers() {
    let agents: Vec<_> = (0..30).map(|_| summer()).collect();
    for (n, (address, _)) in agents.iter().enumerate() {
        address.send(Message::Add(n as u64)).unwrap();
    }
    let tasks: Vec<_> = (0..50_u64).map(|n| task(|n| n, n)).collect();
    assert_eq!(tasks.into_iter().map(|task| task.join().unwrap()).sum::<u64>(), 49 * 25);
    for (n, (address, handle)) in agents.into_iter().enumerate() {
        assert_eq!(address.request(Message::Sum), Ok(100 + n as u64));
        drop(address);
        assert_eq!(handle.join(), End::Stopped);
    }
}

fn agents_refused() {
    let refused = Builder::new().room(1 << 40).spawn(0, open, handle);
    assert!(matches!(refused, Err(AgentError::Channel(channel::ChannelError::Capacity(_)))));
    if !is_process() {
        let refused = Builder::new().mode(Mode::Process).spawn(0, open, handle);
        assert!(matches!(refused, Err(AgentError::Task(TaskError::NoProcesses))));
    }
}

fn an_agent_is_elsewhere() {
    let (address, handle) = summer();
    let pid = address.request(Message::Pid).unwrap();
    assert!(pid != std::process::id() && pids().contains(&pid));
    // Unless it is asked for here.
    let (here, _) = Builder::new().mode(Mode::Kernel).spawn(0, open, self::handle).unwrap();
    assert_eq!(here.request(Message::Pid), Ok(std::process::id()));
    let text = format!("{handle:?} {address:?}");
    assert!(text.contains("end: None") && text.contains("closed: false"), "{text}");
}

fn a_request_of_a_killed_agent_says_how() {
    let (address, handle) = summer();
    let (tell, told) = unbounded();
    handle.monitor(move |end| tell.send(end.clone()).unwrap());
    match address.request(Message::Die) {
        Err(RequestError::Died(how)) => assert_eq!(how.signal(), Some(9)),
        other => panic!("{other:?}"),
    }
    assert!(is_kill(&told.recv().unwrap()));
    let end = handle.join();
    assert!(is_kill(&end) && end.to_string().contains("signal: 9"), "{end}");
    assert!(address.is_closed());
    assert_eq!(address.request(Message::Sum), Err(RequestError::Closed));
    // Another way to die.
    fn exit(_: &mut (), _: Reply<()>) {
        std::process::exit(3)
    }
    let (address, handle) = across::spawn((), |()| (), exit).unwrap();
    let why = address.request(|reply| reply).unwrap_err();
    assert!(matches!(why, RequestError::Died(how) if how.code() == Some(3)), "{why}");
    assert!(matches!(handle.join(), End::Died(how) if how.code() == Some(3)));
}

/// The one that it had taken fails, the others are answered by the new one.
fn an_agent_is_made_anew_after_a_kill() {
    let policy = Restart::at_most(3, ANY_TIME);
    let (address, handle) = across::restart(policy, 100, open, self::handle).unwrap();
    address.send(Message::Add(1)).unwrap();
    assert!(matches!(address.request(Message::Die), Err(RequestError::Died(how)) if how.signal() == Some(9)));
    assert_eq!((address.request(Message::Sum), handle.restarts()), (Ok(100), 1));
    for round in 2..=3 {
        address.send(Message::Add(50)).unwrap();
        assert_eq!(address.request(Message::Sum), Ok(148 + u64::from(round)));
        let (_go, pid) = hold(&address);
        let asks: Vec<_> = (0..5)
            .map(|_| {
                task(
                    |address: Address<Message>| address.request(Message::Sum).map_err(|why| why.to_string().len()),
                    address.clone(),
                )
            })
            .collect();
        let here = {
            let address = address.clone();
            heddle::spawn(move || address.request(Message::Pid))
        };
        address.send(Message::Add(1)).unwrap();
        kill(pid);
        assert_ne!(here.join().unwrap().unwrap(), pid);
        for ask in asks {
            // It may have been in the same process.
            assert!(matches!(ask.join(), Ok(Ok(100 | 101)) | Err(TaskError::Died(_))));
        }
        assert_eq!(address.request(Message::Sum), Ok(101));
        assert_eq!(handle.restarts(), round);
    }
    assert!(matches!(address.request(Message::Die), Err(RequestError::Died(_))));
    assert!(is_kill(&handle.join()));
    assert_eq!(address.request(Message::Sum), Err(RequestError::Closed));
}

/// A request that the agent has not come to when it dies for good.
fn a_request_that_waits_for_a_dead_agent() {
    let (address, handle) = summer();
    let (_go, pid) = hold(&address);
    let asks: Vec<_> = (0..3)
        .map(|_| {
            let address = address.clone();
            heddle::spawn(move || address.request(Message::Sum))
        })
        .collect();
    eventually("all wait", || format!("{address:?}").contains("waiting: 3"));
    kill(pid);
    for ask in asks {
        assert!(matches!(ask.join().unwrap(), Err(RequestError::Died(how)) if how.signal() == Some(9)));
    }
    assert!(is_kill(&handle.join()));
}

/// The agent lives, but has given the reply away, and the process that has it dies.
fn a_reply_that_dies_elsewhere_is_told() {
    heddle::shareable! {
        struct Ask { reply: Reply<u64>, to: channel::Sender<Given> }
        struct Given(u32, Option<Reply<u64>>);
        enum Last { Nobody, One(u32, Given) }
    }
    fn hand_on(_: &mut (), Ask { reply, to }: Ask) {
        assert!(to.send(Given(std::process::id(), Some(reply))).is_ok());
    }
    /// Dies if it is not where the agent is: else it gives the reply back.
    fn die(given: Last) -> Option<Given> {
        let Last::One(_, Given(agent, reply)) = given else { unreachable!("there is one") };
        if std::process::id() != agent {
            kill(std::process::id());
            thread::sleep(LONG);
        }
        Some(Given(agent, reply))
    }
    assert!(matches!(Last::Nobody, Last::Nobody));
    let (address, handle) = across::spawn((), |()| (), hand_on).unwrap();
    for _ in 0..3 {
        let (to, given) = channel::bounded(1);
        let asks = address.clone();
        let asks = thread::spawn(move || asks.request(|reply| Ask { reply, to }));
        let mut given = given.recv().unwrap();
        loop {
            match task(die, Last::One(7, given)).join() {
                Ok(back) => given = back.unwrap(),
                Err(why) => break assert!(matches!(why, TaskError::Died(_)), "{why}"),
            }
        }
        assert_eq!(asks.join().unwrap(), Err(RequestError::Unanswered));
    }
    // One that another process has sent on is as good as before.
    let (to, given) = channel::bounded(1);
    let asks = thread::spawn(move || address.request(|reply| Ask { reply, to }));
    let Given(_, reply) = given.recv().unwrap();
    let back = task(|reply: Option<Reply<u64>>| reply, reply).join().unwrap();
    assert!(back.as_ref().is_some_and(Reply::is_wanted));
    task(|reply: Option<Reply<u64>>| reply.unwrap().send(5).unwrap(), back).join().unwrap();
    assert_eq!(asks.join().unwrap(), Ok(5));
    assert_eq!(handle.join(), End::Stopped);
}

/// The agent goes on, and when it dies then, who asks it learns that it is gone.
fn who_looks_after_an_agent_dies() {
    eventually("both live", || pids().len() == 2);
    let make = |keep: ArenaArc<std::sync::atomic::AtomicU32>| {
        let (address, handle) = summer();
        // Not in the process that looks after it.
        let pid = address.request(Message::Pid).unwrap();
        keep.store(std::process::id(), std::sync::atomic::Ordering::Relaxed);
        drop(handle);
        (address, pid)
    };
    for _ in 0..20 {
        let keeper = ArenaArc::new(std::sync::atomic::AtomicU32::new(0));
        let (address, pid) = task(make, keeper.clone()).join().unwrap();
        assert_eq!(address.request(Message::Sum), Ok(100));
        let keeper = keeper.load(std::sync::atomic::Ordering::Relaxed);
        if keeper == pid {
            continue; // both would die
        }
        kill(keeper);
        eventually("it is dead", || !pids().contains(&keeper));
        assert_eq!(address.request(Message::Sum), Ok(100));
        let why = address.request(Message::Die).unwrap_err();
        assert!(matches!(why, RequestError::Unanswered), "{why}");
        return;
    }
    println!("both were in one process each time");
}

/// Each request has the right answer or an error, whatever is killed, and at the end there is an agent.
fn agents_and_kills() {
    let policy = Restart::at_most(u32::MAX, ANY_TIME);
    let agents: Vec<_> = (0..4).map(|n| across::restart(policy, n * 1000, open, handle).unwrap()).collect();
    let killer = heddle::spawn(|| {
        for i in 0..40 {
            thread::sleep(SHORT);
            let pids = pids();
            if !pids.is_empty() {
                kill(pids[i % pids.len()]);
            }
        }
    });
    let asks: Vec<_> = (0..4_u64)
        .map(|n| {
            let (address, token) = (agents[n as usize].0.clone(), Token::new());
            let stop = token.clone();
            let thread = heddle::spawn(move || {
                let (mut good, mut bad) = (0, 0);
                while !token.is_cancelled() {
                    match address.request_until(Message::Sum, LONG) {
                        Ok(sum) => {
                            assert_eq!(sum, n * 1000);
                            good += 1;
                        }
                        Err(RequestError::Died(how)) => {
                            assert_eq!(how.signal(), Some(9));
                            bad += 1;
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
                (good, bad)
            });
            (thread, stop)
        })
        .collect();
    killer.join().unwrap();
    for (thread, stop) in asks {
        stop.cancel();
        let (good, bad) = thread.join().unwrap();
        println!("{good} answered, {bad} failed");
        assert!(good > 0);
    }
    for (n, (address, handle)) in (0..).zip(agents) {
        assert_eq!(address.request(Message::Sum), Ok(n * 1000));
        handle.stop();
        assert_eq!(handle.join(), End::Stopped);
    }
}

/// The process that forks is killed, and all workers with it.
fn an_agent_without_processes() {
    let (address, handle) = across::restart(Restart::at_most(9, ANY_TIME), 1, open, self::handle).unwrap();
    let pid = address.request(Message::Pid).unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let forker = stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
    kill(forker);
    let end = handle.join();
    assert!(matches!(&end, End::Lost(why) if why.contains("no worker processes")), "{end:?}");
    assert_eq!(address.request(Message::Sum), Err(RequestError::Closed));
    let (_address, handle) = across::spawn(0, open, self::handle).unwrap();
    assert!(matches!(handle.join(), End::Lost(_)));
}
