//! The queue of a channel between processes: values in the arena, under a lock that survives its holder.
//!
//! # Deaths
//! 1. What is in the queue is told by one number, the first place and the length together, that is stored once. So who dies while it
//!    sends has sent or has not.
//! 2. Before it changes anything the holder of the lock writes into the *journal* what it is about to do, and clears that before it
//!    unlocks. Who takes the lock from a dead process finds there what was cut off: a value that is not in the queue is counted
//!    as lost; one that was taken out, by a thread that never came back with it, is put back: its bytes are still there.
//! 3. Each process that has used a handle is a *member*, with the number of its handles and of its threads that wait with a
//!    value to send. A handle belongs to the process that used it last: it may have crossed inside of something else, which nobody
//!    sees, so it carries that process's identity and is moved to another member with its first use there. When a process has
//!    died its member's handles are gone and its waiting values are lost.
//! 4. The sums over the members are hints: made anew when a lock was taken from the dead, or a member is gone.
//! 5. Who waits also waits for the count of deaths, and looks again after each.
//!
//! A handle that a process has given away and nobody has used yet goes with the giver. If it is used after all it is
//! counted again, and if the channel was closed for its lack only it is open again.
//!
//! # Safety
//! Places from the first on, as many as the length says, hold values; all are used under the lock only.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::arena::{self, ArenaFull};
use super::vec::ArenaVec;
use super::wait::{self, System};
use super::word::{Processes, Word};
use super::{ArenaArc, Shareable, identity, worker};
use crate::cancel::{Limit, WaitError};
use crate::channel::End;

/// The length is a half of the state.
pub const MOST: usize = 1 << 31;
/// Places that an unbounded channel begins with.
const FIRST: usize = 16;

const SENDS: u64 = 1 << 32;
const RECEIVES: u64 = 2 << 32;

/// What a process has of a channel.
#[derive(Default)]
struct Member {
    /// 0: nobody.
    identity: AtomicU32,
    handles: [AtomicU32; 2],
    /// Threads that wait for room, with a value.
    sending: AtomicU32,
}

// SAFETY: words.
unsafe impl Shareable for Member {}

/// Places for values.
struct Places {
    first: AtomicPtr<()>,
    /// A power of two, or 0.
    count: AtomicUsize,
}

/// What has been lost with processes that died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// Senders that they had.
    pub senders: usize,
    /// Receivers that they had.
    pub receivers: usize,
    /// Values that they were sending: the threads waited for room, or were putting the value in, and it is not in the channel.
    pub values: usize,
}

pub struct Ring<T: Shareable> {
    lock: Word,
    /// Change when a value was put in, and taken out; both when the channel is closed.
    put: AtomicU32,
    taken: AtomicU32,
    closed: AtomicU32,
    /// Threads that sleep until they change, by end; may be too many when processes have died.
    sleepers: [AtomicU32; 2],
    /// How many handles there are.
    handles: [AtomicU32; 2],
    /// The first value's number in the high half, how many there are in the low one.
    state: AtomicU64,
    journal: AtomicU64,
    /// Most values; 0: any number.
    limit: usize,
    /// Of an unbounded channel one of both is used, which is said by one word, so that a growth is done or is not.
    places: [Places; 2],
    used: AtomicU32,
    /// Up to which death the members are true.
    deaths: AtomicU32,
    lost: [AtomicU32; 3],
    /// By place in the table of processes.
    members: ArenaVec<Member>,
    values: std::marker::PhantomData<UnsafeCell<T>>,
}

// SAFETY: words, lists in the arena, and values that may cross.
unsafe impl<T: Shareable> Shareable for Ring<T> {}
// SAFETY: values are reached under the lock, and go from thread to thread.
unsafe impl<T: Shareable> Sync for Ring<T> {}

const SENDER: usize = 0;
const RECEIVER: usize = 1;

fn side(end: End) -> usize {
    match end {
        End::Sender => SENDER,
        End::Receiver => RECEIVER,
    }
}

/// Adds without a locked instruction: under the lock.
fn add(count: &AtomicU32, by: u32) -> u32 {
    let now = count.load(Ordering::Relaxed).wrapping_add(by);
    count.store(now, Ordering::Relaxed);
    now
}

fn subtract(count: &AtomicU32, by: u32) {
    count.store(count.load(Ordering::Relaxed).saturating_sub(by), Ordering::Relaxed);
}

struct Guard<'a, T: Shareable>(&'a Ring<T>);

impl<T: Shareable> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.0.lock.unlock(&System);
    }
}

impl Places {
    const fn none() -> Self {
        Self { first: AtomicPtr::new(null_mut()), count: AtomicUsize::new(0) }
    }

    fn layout<T>(count: usize) -> Result<std::alloc::Layout, ArenaFull> {
        std::alloc::Layout::array::<T>(count).map_err(|_| ArenaFull { bytes: usize::MAX })
    }

    fn make<T>(&self, count: usize) -> Result<(), ArenaFull> {
        let first = match Self::layout::<T>(count)? {
            layout if layout.size() == 0 => NonNull::<T>::dangling().cast(),
            layout => arena::allocate(layout)?,
        };
        self.first.store(first.as_ptr().cast(), Ordering::Relaxed);
        self.count.store(count, Ordering::Relaxed);
        Ok(())
    }

    fn at<T>(&self, number: u32) -> *mut MaybeUninit<T> {
        let mask = self.count.load(Ordering::Relaxed) - 1;
        self.first.load(Ordering::Relaxed).cast::<MaybeUninit<T>>().wrapping_add(number as usize & mask)
    }

    /// # Safety
    /// They were made for this type, and nobody uses them afterwards.
    unsafe fn free<T>(&self) {
        let count = self.count.swap(0, Ordering::Relaxed);
        if let Ok(layout) = Self::layout::<T>(count)
            && layout.size() != 0
            && let Some(first) = NonNull::new(self.first.load(Ordering::Relaxed).cast())
        {
            // SAFETY: the caller's.
            unsafe { arena::free(first, layout) };
        }
    }
}

impl<T: Shareable> Ring<T> {
    const FITS: () = arena::fits::<T>();

    /// With one sender and one receiver, both of this process. `limit`: most values, 1 to [`MOST`].
    pub fn new(limit: Option<usize>) -> Result<ArenaArc<Self>, ArenaFull> {
        let () = Self::FITS;
        let mut members = ArenaVec::try_with_capacity(super::count() + 1)?;
        for _ in 0..=super::count() {
            members.try_push(Member::default())?;
        }
        let ring = Self {
            lock: Word::new(),
            put: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            closed: AtomicU32::new(0),
            sleepers: Default::default(),
            handles: Default::default(),
            state: AtomicU64::new(0),
            journal: AtomicU64::new(0),
            limit: limit.unwrap_or(0),
            places: [Places::none(), Places::none()],
            used: AtomicU32::new(0),
            deaths: AtomicU32::new(wait::deaths()),
            lost: Default::default(),
            members,
            values: std::marker::PhantomData,
        };
        ring.places[0].make::<T>(limit.unwrap_or(FIRST).next_power_of_two())?;
        for end in [SENDER, RECEIVER] {
            ring.count_handle(identity(), end);
        }
        ArenaArc::try_new(ring)
    }

    fn lock(&self) -> Guard<'_, T> {
        if self.lock.lock(&System, &Limit::NEVER) == Ok(true) {
            self.repair();
        }
        let guard = Guard(self);
        if self.deaths.load(Ordering::Relaxed) != wait::deaths() {
            self.forget_the_dead();
        }
        guard
    }

    /// The lock's last holder has died: ends what it had begun.
    #[cold]
    fn repair(&self) {
        let journal = self.journal.load(Ordering::Relaxed);
        let (first, len) = self.state();
        let number = journal as u32;
        match journal & !u64::from(u32::MAX) {
            SENDS if number == first.wrapping_add(len) => {
                add(&self.lost[2], 1);
            }
            RECEIVES if number != first => self.set_state(number, len + 1),
            _ => {}
        }
        self.journal.store(0, Ordering::Relaxed);
        self.forget_the_dead();
        // What it had changed others may wait for.
        self.wake_all();
    }

    #[cold]
    fn forget_the_dead(&self) {
        // Read first: who dies from here on is found next time.
        let deaths = wait::deaths();
        for member in &*self.members {
            let identity = member.identity.load(Ordering::Relaxed);
            if identity != 0 && System.is_dead(identity) {
                self.forget(member);
            }
        }
        for end in [SENDER, RECEIVER] {
            let sum = self.members.iter().map(|member| member.handles[end].load(Ordering::Relaxed)).sum();
            self.handles[end].store(sum, Ordering::Relaxed);
        }
        self.deaths.store(deaths, Ordering::Relaxed);
    }

    fn forget(&self, member: &Member) {
        for (count, lost) in member.handles.iter().chain([&member.sending]).zip(&self.lost) {
            add(lost, count.load(Ordering::Relaxed));
            count.store(0, Ordering::Relaxed);
        }
        member.identity.store(0, Ordering::Relaxed);
    }

    fn member(&self, identity: u32) -> &Member {
        &self.members[super::table::place_of(identity)]
    }

    /// Under the lock, or while nobody else has the ring.
    fn count_handle(&self, me: u32, end: usize) {
        let member = self.member(me);
        if member.identity.load(Ordering::Relaxed) != me {
            // Whoever had the place before is dead.
            self.forget(member);
            member.identity.store(me, Ordering::Relaxed);
        }
        add(&member.handles[end], 1);
        add(&self.handles[end], 1);
    }

    /// A handle that this process uses for the first time was another's.
    #[cold]
    pub fn adopt(&self, from: u32, end: End) {
        let _guard = self.lock();
        let end = side(end);
        let member = self.member(from);
        if member.identity.load(Ordering::Relaxed) == from {
            subtract(&member.handles[end], 1);
            subtract(&self.handles[end], 1);
        } else {
            subtract(&self.lost[end], 1); // it was not, after all
        }
        self.count_handle(identity(), end);
    }

    /// A handle of this process is cloned.
    pub fn add(&self, end: End) {
        let _guard = self.lock();
        self.count_handle(identity(), side(end));
    }

    /// A handle of this process is dropped.
    pub fn remove(&self, end: End) {
        let end = side(end);
        let guard = self.lock();
        subtract(&self.member(identity()).handles[end], 1);
        subtract(&self.handles[end], 1);
        if self.handles[end].load(Ordering::Relaxed) != 0 {
            return;
        }
        self.wake_all();
        drop(guard);
        if end == RECEIVER {
            self.close();
            while let Ok(value) = self.take() {
                drop(value);
            }
        }
    }

    fn state(&self) -> (u32, u32) {
        let state = self.state.load(Ordering::Relaxed);
        ((state >> 32) as u32, state as u32)
    }

    fn set_state(&self, first: u32, len: u32) {
        // Release: the value and the journal come before the number, should we die between them: who takes the lock then has
        // acquired the death, and with it all. (For others the lock orders them.)
        self.state.store(u64::from(first) << 32 | u64::from(len), Ordering::Release);
    }

    fn begin(&self, what: u64, number: u32) {
        // Release: as in `set_state`, the other way round: what was there before comes before it.
        self.journal.store(what | u64::from(number), Ordering::Release);
    }

    fn end(&self) {
        // Release: what was done comes before.
        self.journal.store(0, Ordering::Release);
    }

    fn places(&self) -> &Places {
        &self.places[self.used.load(Ordering::Relaxed) as usize]
    }

    /// Whether nothing more can be sent. Under the lock.
    fn is_shut(&self) -> bool {
        self.closed.load(Ordering::Relaxed) != 0
            || self.handles.iter().any(|handles| handles.load(Ordering::Relaxed) == 0)
    }

    /// Makes the places of an unbounded channel twice as many. Under the lock.
    fn grow(&self) -> Result<(), ArenaFull> {
        let used = self.used.load(Ordering::Relaxed);
        let (old, new) = (&self.places[used as usize], &self.places[1 - used as usize]);
        let count = old.count.load(Ordering::Relaxed);
        if count >= MOST {
            return Err(ArenaFull { bytes: usize::MAX });
        }
        new.make::<T>(count * 2)?;
        let (first, len) = self.state();
        for i in 0..len {
            let number = first.wrapping_add(i);
            // SAFETY: a value, and a place of its own for it. The old ones count no more after the next store.
            unsafe { new.at::<T>(number).copy_from_nonoverlapping(old.at(number), 1) };
        }
        // Release: the values come before, as in `set_state`.
        self.used.store(1 - used, Ordering::Release);
        // SAFETY: nobody uses the old places. (Who dies here leaves them allocated.)
        unsafe { old.free::<T>() };
        Ok(())
    }

    /// Sends if there is room. Error: the value; whether the channel is closed.
    pub fn put(&self, value: T) -> Result<(), (T, bool)> {
        let guard = self.lock();
        if self.is_shut() {
            return Err((value, true));
        }
        if !self.make_room() {
            return Err((value, false));
        }
        let (first, len) = self.state();
        let number = first.wrapping_add(len);
        self.begin(SENDS, number);
        // SAFETY: a free place, under the lock.
        unsafe { self.places().at::<T>(number).write(MaybeUninit::new(value)) };
        self.set_state(first, len + 1);
        self.end();
        self.tell(guard, RECEIVER);
        Ok(())
    }

    /// Whether there is room for one more. Under the lock.
    fn make_room(&self) -> bool {
        let len = self.state().1 as usize;
        match self.limit {
            0 => len < self.places().count.load(Ordering::Relaxed) || self.grow().is_ok(),
            limit => len < limit,
        }
    }

    /// Receives if a value is there. Error: whether the channel is closed.
    pub fn take(&self) -> Result<T, bool> {
        let guard = self.lock();
        let (first, len) = self.state();
        if len == 0 {
            return Err(self.is_shut());
        }
        self.begin(RECEIVES, first);
        // SAFETY: a value, under the lock; it is not in the queue after the next line.
        let value = unsafe { self.places().at::<T>(first).read().assume_init() };
        self.set_state(first.wrapping_add(1), len - 1);
        self.end();
        self.tell(guard, SENDER);
        Ok(value)
    }

    /// What those at this end wait for has come, for one of them.
    fn tell(&self, guard: Guard<'_, T>, end: usize) {
        let word = self.word(end);
        add(word, 1);
        let sleeps = self.sleepers[end].load(Ordering::Relaxed) != 0;
        drop(guard);
        if sleeps {
            wait::wake(word, 1);
        }
    }

    fn word(&self, end: usize) -> &AtomicU32 {
        if end == SENDER { &self.taken } else { &self.put }
    }

    /// Under the lock.
    fn wake_all(&self) {
        for end in [SENDER, RECEIVER] {
            add(self.word(end), 1);
            wait::wake(self.word(end), i32::MAX);
        }
    }

    /// Whether who is at this end would not wait, under the lock.
    fn is_ready_for(&self, end: usize) -> bool {
        self.is_shut() || if end == SENDER { self.make_room() } else { self.state().1 != 0 }
    }

    /// Counts a thread that is to sleep, unless it need not: then the answer is `None`; else the word that it waits for.
    pub fn enter(&self, end: End) -> Option<(&AtomicU32, u32)> {
        let end = side(end);
        let _guard = self.lock();
        if self.is_ready_for(end) {
            return None;
        }
        add(&self.sleepers[end], 1);
        if end == SENDER {
            add(&self.member(identity()).sending, 1);
        }
        let word = self.word(end);
        Some((word, word.load(Ordering::Relaxed)))
    }

    /// It sleeps no more. If it was woken and will do something else, another is: so each wake-up has somebody who uses it.
    pub fn leave(&self, end: End, uses_it: bool) {
        let end = side(end);
        let guard = self.lock();
        subtract(&self.sleepers[end], 1);
        if end == SENDER {
            subtract(&self.member(identity()).sending, 1);
        }
        let others = self.sleepers[end].load(Ordering::Relaxed) != 0;
        let pass_on = !uses_it && others && self.is_ready_for(end);
        drop(guard);
        if pass_on {
            wait::wake(self.word(end), 1);
        }
    }

    /// Looks for a moment, then sleeps, until the end may go on, or the limit.
    fn wait(&self, end: End, limit: &Limit<'_>) -> Result<(), WaitError> {
        let is_sender = end == End::Sender;
        for _ in 0..worker::looks() {
            let len = self.len();
            if if is_sender { self.limit != 0 && len < self.limit } else { len != 0 } {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        let deaths = wait::deaths();
        let Some((word, value)) = self.enter(end) else { return Ok(()) };
        let result = wait::wait(word, value, deaths, limit);
        self.leave(end, true);
        result
    }

    /// Tries until it is done or the limit comes: then the last try is later than that.
    fn until<R>(&self, end: End, limit: &Limit<'_>, mut attempt: impl FnMut() -> Option<R>) -> Result<R, WaitError> {
        let mut ended = Ok(());
        loop {
            match (attempt(), ended) {
                (Some(result), _) => return Ok(result),
                (None, Err(why)) => return Err(why),
                (None, Ok(())) => ended = self.wait(end, limit),
            }
        }
    }

    /// Error: the value, and what the limit said; `None`: the channel is closed.
    pub fn send(&self, value: T, limit: &Limit<'_>) -> Result<(), (T, Option<WaitError>)> {
        let mut left = Some(value);
        let result = self.until(End::Sender, limit, || match self.put(left.take()?) {
            Err((value, false)) => {
                left = Some(value);
                None
            }
            other => Some(other),
        });
        match (result, left) {
            (Ok(result), _) => result.map_err(|(value, _)| (value, None)),
            (Err(why), Some(value)) => Err((value, Some(why))),
            (Err(_), None) => unreachable!("a value is sent or kept"),
        }
    }

    /// Error: what the limit said; `None`: the channel is closed and empty.
    pub fn recv(&self, limit: &Limit<'_>) -> Result<T, Option<WaitError>> {
        let attempt = || match self.take() {
            Err(false) => None,
            other => Some(other),
        };
        self.until(End::Receiver, limit, attempt).map_err(Some)?.map_err(|_| None)
    }

    /// Nothing more is sent. True: it was open.
    pub fn close(&self) -> bool {
        let _guard = self.lock();
        let was_open = !self.is_shut();
        self.closed.store(1, Ordering::Relaxed);
        self.wake_all();
        was_open
    }

    pub fn is_closed(&self) -> bool {
        let _guard = self.lock();
        self.is_shut()
    }

    pub fn len(&self) -> usize {
        self.state().1 as usize
    }

    pub fn limit(&self) -> Option<usize> {
        (self.limit != 0).then_some(self.limit)
    }

    pub fn lost(&self) -> Lost {
        let _guard = self.lock();
        let [senders, receivers, values] = [0, 1, 2].map(|i: usize| self.lost[i].load(Ordering::Relaxed) as usize);
        Lost { senders, receivers, values }
    }
}

impl<T: Shareable> Drop for Ring<T> {
    fn drop(&mut self) {
        let (first, len) = self.state();
        for i in 0..len {
            // SAFETY: a value that is in the queue, dropped once.
            unsafe { (*self.places().at::<T>(first.wrapping_add(i))).assume_init_drop() };
        }
        // SAFETY: nobody uses them any more.
        unsafe { self.places().free::<T>() };
    }
}

#[cfg(test)]
mod tests;
