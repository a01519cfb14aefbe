//! The table of the threads that C knows: handles are numbers that are never used twice, so that an old one is found
//! out.
//!
//! A record is used again for another thread under another generation; the upper half of a handle is the generation,
//! the lower the record's place plus one. Records stay where they are until the process ends.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::sync::atomic::{Ordering, fence};

use runtime::JoinHandle;
use runtime::cancel::{Limit, WaitError};
use runtime::sync::{Event, Mutex, OnceLock};

use crate::call::Argument;
use crate::error::Refusal;

/// Whose a record is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Nobody's.
    Nobody,
    /// A thread that heddle_thread_create has made and somebody may join.
    Joinable,
    /// One that somebody joins.
    Joining,
    /// One that nobody may join.
    Detached,
    /// Another thread, that has asked for its handle.
    Foreign,
}

/// What the table knows of a thread.
pub struct State {
    generation: u32,
    pub owner: Owner,
    /// The thread's function has returned.
    pub has_ended: bool,
    pub handle: Option<JoinHandle<Argument>>,
    pub name: Option<CString>,
}

/// The place of a thread in the table.
pub struct Record {
    state: Mutex<State>,
    /// Set by heddle_unpark.
    token: Event,
}

impl Record {
    const fn new() -> Self {
        let state = State { generation: 1, owner: Owner::Nobody, has_ended: false, handle: None, name: None };
        Self { state: Mutex::new(state), token: Event::new() }
    }
}

const FIRST: usize = 64;

/// Each twice as long as the one before.
static PARTS: [OnceLock<Box<[Record]>>; 26] = [const { OnceLock::new() }; 26];

struct Free {
    places: Vec<u32>,
    /// Places from here on have never been used.
    next: u32,
}

static FREE: Mutex<Free> = Mutex::new(Free { places: Vec::new(), next: 0 });

fn part_of(place: u32) -> (usize, usize) {
    let from_first = place as usize + FIRST;
    let part = (from_first / FIRST).ilog2() as usize;
    (part, from_first - (FIRST << part))
}

fn record(place: u32) -> Option<&'static Record> {
    let (part, at) = part_of(place);
    PARTS.get(part)?.get()?.get(at)
}

/// A record for a new thread, and its handle. `None`: there are too many threads.
pub fn take() -> Option<(u64, &'static Record)> {
    let place = {
        let mut free = FREE.lock();
        match free.places.pop() {
            Some(place) => place,
            None => {
                let place = free.next;
                let (part, _) = part_of(place);
                PARTS.get(part)?.get_or_init(|| (0..FIRST << part).map(|_| Record::new()).collect());
                free.next += 1;
                place
            }
        }
    };
    let record = record(place)?;
    let generation = record.state.lock().generation;
    Some((u64::from(generation) << 32 | u64::from(place + 1), record))
}

/// Gives a record back: its handle is nobody's from here on.
pub fn give_back(id: u64, record: &Record) {
    {
        let mut state = record.state.lock();
        let generation = state.generation.wrapping_add(1);
        *state = State { generation, owner: Owner::Nobody, has_ended: false, handle: None, name: None };
        record.token.reset();
    }
    FREE.lock().places.push(id as u32 - 1);
}

/// The record of a thread. Error: ESRCH, there is no such thread (any more).
pub fn find(id: u64) -> Result<&'static Record, Refusal> {
    (id as u32).checked_sub(1).and_then(record).ok_or(libc::ESRCH.into())
}

impl Record {
    /// What is known of a thread, if the record is still its. Error: ESRCH.
    pub fn with<R>(&self, id: u64, f: impl FnOnce(&mut State) -> R) -> Result<R, Refusal> {
        let mut state = self.state.lock();
        if state.generation != (id >> 32) as u32 || state.owner == Owner::Nobody {
            return Err(libc::ESRCH.into());
        }
        Ok(f(&mut state))
    }

    /// The record is a new thread's; `f` runs before anybody else can see it.
    pub fn set_up<R>(&self, owner: Owner, f: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        state.owner = owner;
        f(&mut state)
    }

    /// Lets the thread's next park return.
    pub fn unpark(&self, id: u64) -> Result<(), Refusal> {
        // Within the lock: the record cannot become another thread's before the event is set.
        self.with(id, |_| self.token.set())
    }

    /// Waits for `unpark`.
    pub fn park(&self, limit: Limit<'_>) -> Result<(), WaitError> {
        self.token.wait_until(limit)?;
        self.token.reset();
        // Acquire: one that unparked between the wait and the reset, too, did what it did before our caller goes on.
        // The reset reads what its `set` wrote. pairs: event.word
        fence(Ordering::Acquire);
        Ok(())
    }
}

/// The calling thread's handle, once it is known.
struct Current {
    id: Cell<u64>,
    is_foreign: Cell<bool>,
}

impl Drop for Current {
    fn drop(&mut self) {
        if self.is_foreign.get()
            && let Ok(record) = find(self.id.get())
        {
            give_back(self.id.get(), record);
        }
    }
}

thread_local! {
    static CURRENT: Current = const { Current { id: Cell::new(0), is_foreign: Cell::new(false) } };
}

/// The calling thread has been made by us and has this handle.
pub fn set_current(id: u64) {
    // A thread that we make is not ending yet.
    let _ = CURRENT.try_with(|current| current.id.set(id));
}

/// The calling thread's handle if it has one; does not give it one.
pub fn known_current() -> u64 {
    CURRENT.try_with(|current| current.id.get()).unwrap_or(0)
}

/// The calling thread's handle, and its record. A thread that we have not made gets them now. `None`: there are too
/// many threads, or it is ending, or the caller is a fiber, which cannot be parked: its thread would be.
pub fn current() -> Option<(u64, &'static Record)> {
    if runtime::fiber::is_fiber() {
        return None;
    }
    CURRENT
        .try_with(|current| {
            let id = current.id.get();
            if id != 0 {
                return Some((id, find(id).ok()?));
            }
            let (id, record) = take()?;
            record.set_up(Owner::Foreign, |_| ());
            current.id.set(id);
            current.is_foreign.set(true);
            Some((id, record))
        })
        .ok()?
}

/// Copies a name with its 0. Error: ERANGE.
pub fn copy_name(name: &CStr, to: &mut [u8]) -> Result<(), Refusal> {
    let bytes = name.to_bytes_with_nul();
    to.get_mut(..bytes.len()).ok_or(libc::ERANGE)?.copy_from_slice(bytes);
    Ok(())
}
