//! Waiting for one of several channels, or for a time to pass.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::kind::{End, Entered, Kind};
use super::wait::{Node, Patience, Waiter};
use super::{Receiver, RecvError, SendError, Sender, TryRecvError, TrySendError};
use crate::cancel::Limit;
use crate::prim::{is_user_thread, yield_worker};
#[cfg(not(loom))]
use crate::process::{Across, deaths};

/// One of the things that a `select!` may do.
///
/// # Safety
/// `enter` answers what it has linked or counted; after `leave` nobody else uses the node.
#[doc(hidden)]
pub unsafe trait Arm {
    /// Does it if it can be done at once.
    fn attempt(&mut self) -> bool;
    /// Whether it is done, by us or by whoever claimed us.
    fn is_done(&self) -> bool;
    /// Whether all that it has done is to find its channel closed.
    fn found_end(&self) -> bool;
    /// Does it, while it is still entered, if its other end may count on that.
    fn attempt_entered(&mut self) -> bool;
    /// Its end, and its channel if another process may be at the other one.
    fn across(&self) -> (End, Option<*const ()>);
    #[doc(hidden)]
    unsafe fn enter(&self, node: *mut NodeOf, besides: u32) -> Entered;
    #[doc(hidden)]
    unsafe fn leave(&self, node: *mut NodeOf);
    #[doc(hidden)]
    fn packet(&self) -> *mut ();
}

/// A node, whose insides are this module's.
#[doc(hidden)]
pub struct NodeOf(Node);

/// Receives.
#[doc(hidden)]
pub struct RecvArm<'a, T, C: Kind<T>> {
    channel: &'a Receiver<T, C>,
    /// What a sender has left here.
    packet: UnsafeCell<Option<T>>,
    result: Option<Result<T, RecvError>>,
}

impl<'a, T, C: Kind<T>> RecvArm<'a, T, C> {
    pub fn new(channel: &'a Receiver<T, C>) -> Self {
        Self { channel, packet: UnsafeCell::new(None), result: None }
    }

    pub fn result(mut self) -> Result<T, RecvError> {
        match self.result.take().or_else(|| self.packet.into_inner().map(Ok)) {
            Some(result) => result,
            None => unreachable!("asked of an arm that is done"),
        }
    }
}

// SAFETY: as the channel does.
unsafe impl<T, C: Kind<T>> Arm for RecvArm<'_, T, C> {
    fn attempt(&mut self) -> bool {
        match self.channel.try_recv() {
            Ok(value) => self.result = Some(Ok(value)),
            Err(TryRecvError::Disconnected) => self.result = Some(Err(RecvError)),
            Err(TryRecvError::Empty) => return false,
        }
        true
    }

    fn is_done(&self) -> bool {
        // SAFETY: asked when nobody else can claim us.
        self.result.is_some() || unsafe { (*self.packet.get()).is_some() }
    }

    fn found_end(&self) -> bool {
        matches!(self.result, Some(Err(_)))
    }

    fn attempt_entered(&mut self) -> bool {
        self.channel.kind.across().is_some() && self.attempt()
    }

    fn across(&self) -> (End, Option<*const ()>) {
        (End::Receiver, self.channel.kind.across())
    }

    unsafe fn enter(&self, node: *mut NodeOf, besides: u32) -> Entered {
        // SAFETY: the caller's; the handle is borrowed by this thread.
        unsafe { self.channel.kind.enter_select(End::Receiver, &raw mut (*node).0, besides) }
    }

    unsafe fn leave(&self, node: *mut NodeOf) {
        // SAFETY: as above.
        unsafe { self.channel.kind.leave_select(End::Receiver, &raw mut (*node).0) }
    }

    fn packet(&self) -> *mut () {
        self.packet.get().cast()
    }
}

/// Sends.
#[doc(hidden)]
pub struct SendArm<'a, T, C: Kind<T>> {
    channel: &'a Sender<T, C>,
    /// The value, until it is sent.
    packet: UnsafeCell<Option<T>>,
    is_closed: bool,
}

impl<'a, T, C: Kind<T>> SendArm<'a, T, C> {
    pub fn new(channel: &'a Sender<T, C>, value: T) -> Self {
        Self { channel, packet: UnsafeCell::new(Some(value)), is_closed: false }
    }

    pub fn result(self) -> Result<(), SendError<T>> {
        self.packet.into_inner().map_or(Ok(()), |value| Err(SendError(value)))
    }
}

// SAFETY: as the channel does.
unsafe impl<T, C: Kind<T>> Arm for SendArm<'_, T, C> {
    fn attempt(&mut self) -> bool {
        let Some(value) = self.packet.get_mut().take() else { return true };
        match self.channel.try_send(value) {
            Ok(()) => return true,
            Err(TrySendError::Disconnected(value)) => {
                *self.packet.get_mut() = Some(value);
                self.is_closed = true;
            }
            Err(TrySendError::Full(value)) => *self.packet.get_mut() = Some(value),
        }
        self.is_closed
    }

    fn is_done(&self) -> bool {
        // SAFETY: asked when nobody else can claim us.
        self.is_closed || unsafe { (*self.packet.get()).is_none() }
    }

    fn found_end(&self) -> bool {
        self.is_closed
    }

    fn attempt_entered(&mut self) -> bool {
        false
    }

    fn across(&self) -> (End, Option<*const ()>) {
        (End::Sender, self.channel.kind.across())
    }

    unsafe fn enter(&self, node: *mut NodeOf, besides: u32) -> Entered {
        // SAFETY: the caller's; the handle is borrowed by this thread.
        unsafe { self.channel.kind.enter_select(End::Sender, &raw mut (*node).0, besides) }
    }

    unsafe fn leave(&self, node: *mut NodeOf) {
        // SAFETY: as above.
        unsafe { self.channel.kind.leave_select(End::Sender, &raw mut (*node).0) }
    }

    fn packet(&self) -> *mut () {
        self.packet.get().cast()
    }
}

/// Does one of the arms: the first that can be done, from a place that changes. False: none until the limit (`None`: only what
/// can be done at once).
#[doc(hidden)]
pub fn select(arms: &mut [&mut dyn Arm], limit: Option<Limit<'_>>) -> bool {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    // Not counted exactly: it only has to change. (Not in models, whose runs are to be alike.)
    let turn = TURN.load(Ordering::Relaxed);
    TURN.store(if cfg!(loom) { 0 } else { turn.wrapping_add(1) }, Ordering::Relaxed);
    let count = arms.len();
    let first = turn % count.max(1);
    let try_all = |arms: &mut [&mut dyn Arm]| (0..count).any(|i| arms[(first + i) % count].attempt());
    let done = try_all(arms);
    // Who comes again at once, as after a closed channel or a `default`, does not wait: others of this worker have a turn. (A
    // kernel thread shares its CPU by the kernel's rules.)
    if (limit.is_none() && !done || done && arms.iter().any(|arm| arm.found_end())) && is_user_thread() {
        yield_worker();
    }
    if done {
        return true;
    }
    let Some(limit) = limit else { return false };
    if Patience::new().look(0, || try_all(arms).then_some(())).is_some() {
        return true;
    }
    // Where other processes are to wake us, all that we wait for has to be in the arena.
    #[cfg(not(loom))]
    let is_across = arms.iter().any(|arm| arm.across().1.is_some());
    loop {
        #[cfg(not(loom))]
        let across = is_across.then(Across::new);
        let local = Waiter::new();
        let waiter = &local;
        #[cfg(not(loom))]
        let waiter = across.as_ref().map_or(waiter, Across::waiter);
        let mut nodes: Vec<NodeOf> =
            arms.iter().enumerate().map(|(i, arm)| NodeOf(Node::new(waiter, i, arm.packet()))).collect();
        let nodes = nodes.as_mut_ptr();
        let mut watched = Vec::new();
        let (mut ended, mut done) = (false, false);
        #[cfg(not(loom))]
        let deaths = across.as_ref().map(|_| deaths());
        // SAFETY: nodes, waiter and packets stay until all have been left.
        unsafe {
            let mut entered = 0;
            while entered < count {
                match arms[entered].enter(nodes.add(entered), besides(arms, entered)) {
                    Entered::Ready => break,
                    Entered::Linked => {}
                    Entered::Watched(word, value) => watched.push((word, value)),
                }
                entered += 1;
            }
            if entered < count {
                waiter.give_up();
            } else {
                #[cfg(not(loom))]
                let parked = match (&across, deaths) {
                    (Some(across), Some(deaths)) => across.park(&watched, deaths, &limit),
                    _ => waiter.park(&limit),
                };
                #[cfg(loom)]
                let parked = waiter.park(&limit);
                ended = parked.is_some();
                done = waiter.claimed().is_none() && (0..count).any(|i| arms[(first + i) % count].attempt_entered());
            }
            (0..entered).for_each(|i| arms[i].leave(nodes.add(i)));
        }
        if done {
            return true;
        }
        // Whose bell rang for us first: if we took another's value instead, nobody would take that one.
        if let Some(i) = waiter.claimed()
            && (arms[i].is_done() || arms[i].attempt())
        {
            return true;
        }
        if try_all(arms) {
            return true;
        }
        if ended {
            return false;
        }
    }
}

/// How many of the arms before that one are at the other end of its channel, if that is across.
fn besides(arms: &[&mut dyn Arm], at: usize) -> u32 {
    let (end, channel) = arms[at].across();
    let faces = |arm: &&&mut dyn Arm| {
        let (other, its) = arm.across();
        channel.is_some() && its == channel && other != end
    };
    arms[..at].iter().filter(faces).count() as u32
}

/// Waits until one of several channels can be used, or a time has passed, and does that.
///
/// ```
/// use std::time::Duration;
/// use heddle::channel::{bounded, select, unbounded};
///
/// let (numbers, numbers_in) = bounded::<u32>(4);
/// let (words, words_in) = unbounded::<&str>();
/// words.send("warp").unwrap();
/// select! {
///     recv(numbers_in) -> n => panic!("no number was sent: {n:?}"),
///     recv(words_in) -> word => assert_eq!(word, Ok("warp")),
///     after(Duration::from_secs(1)) => panic!("a word was there"),
/// }
/// select! {
///     send(numbers, 5) -> sent => assert!(sent.is_ok()),
///     recv(words_in) -> _ => panic!("it was taken"),
/// }
/// assert_eq!(numbers_in.recv(), Ok(5));
/// ```
///
/// The arms: `recv(receiver) -> pattern => expression` with a `Result<T, RecvError>`; `send(sender, value) -> pattern =>
/// expression` with a `Result<(), SendError<T>>`, which gives the value back if the channel is closed (if another arm is done, the
/// value is dropped); and as the last one, either `after(limit) => expression`, done when none of the others could be until then (a
/// [`Limit`]: a duration, an instant, a token, or a pair of both), or `default => expression`, done when none can be at once. A closed channel's arm can be done: with an error.
///
/// If several can be done, a different one is looked at first each time. While it waits the thread is parked: a user
/// thread's worker runs others. A `select!` allocates when it has to park.
#[macro_export]
#[doc(hidden)]
macro_rules! __select {
    ($($rest:tt)*) => { $crate::__select_arms!([] $($rest)*) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __select_arms {
    // Each arm gets a variable of its own: names made in different expansions differ.
    ([$($done:tt)*] recv($channel:expr) -> $pattern:pat => $body:expr, $($rest:tt)*) => {
        $crate::__select_arms!([$($done)* (arm, $crate::channel::RecvArm::new(&$channel), $pattern, $body)] $($rest)*)
    };
    ([$($done:tt)*] recv($channel:expr) -> $pattern:pat => $body:expr) => {
        $crate::__select_arms!([$($done)*] recv($channel) -> $pattern => $body,)
    };
    ([$($done:tt)*] recv($channel:expr) -> $pattern:pat => $body:block $($rest:tt)*) => {
        $crate::__select_arms!([$($done)*] recv($channel) -> $pattern => $body, $($rest)*)
    };
    ([$($done:tt)*] send($channel:expr, $value:expr) -> $pattern:pat => $body:expr, $($rest:tt)*) => {
        $crate::__select_arms!(
            [$($done)* (arm, $crate::channel::SendArm::new(&$channel, $value), $pattern, $body)] $($rest)*
        )
    };
    ([$($done:tt)*] send($channel:expr, $value:expr) -> $pattern:pat => $body:expr) => {
        $crate::__select_arms!([$($done)*] send($channel, $value) -> $pattern => $body,)
    };
    ([$($done:tt)*] send($channel:expr, $value:expr) -> $pattern:pat => $body:block $($rest:tt)*) => {
        $crate::__select_arms!([$($done)*] send($channel, $value) -> $pattern => $body, $($rest)*)
    };
    ([$($done:tt)*] after($limit:expr) => $body:expr $(,)?) => {
        $crate::__select_arms!(@run (Some($crate::cancel::Limit::from($limit))) ($body) $($done)*)
    };
    ([$($done:tt)*] default => $body:expr $(,)?) => {
        $crate::__select_arms!(@run (None) ($body) $($done)*)
    };
    ([$($done:tt)+]) => {
        $crate::__select_arms!(@run (Some($crate::cancel::Limit::NEVER)) (unreachable!("it waits for ever")) $($done)*)
    };
    ([$($done:tt)*] $($rest:tt)+) => {
        compile_error!(
            "select! takes `recv(receiver) -> pattern => expression`, `send(sender, value) -> pattern => expression`, and as \
             the last one perhaps `after(limit) => expression` or `default => expression`, with commas between them"
        )
    };
    (@run ($most:expr) ($else:expr) $(($arm:ident, $new:expr, $pattern:pat, $body:expr))*) => {{
        $(let mut $arm = $new;)*
        $crate::channel::__select(&mut [$(&mut $arm as &mut dyn $crate::channel::Arm),*], $most);
        $(if $crate::channel::Arm::is_done(&$arm) {
            let $pattern = $arm.result();
            $body
        } else)* {
            $else
        }
    }};
}
