//! Numbers for things that end once: as a thread's handle, one is never used twice, so that an old one is found out.

use runtime::sync::Mutex;

use crate::error::Refusal;

enum State<T> {
    Free,
    Here(T),
    /// Somebody has taken it, to wait for its end.
    Taken,
}

struct Place<T> {
    generation: u32,
    state: State<T>,
}

struct Table<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

/// Things, found by their numbers. The upper half of a number is the generation of its place, the lower the place plus one.
pub struct Handles<T>(Mutex<Table<T>>);

impl<T> Table<T> {
    fn find(&mut self, id: u64) -> Result<&mut Place<T>, Refusal> {
        let at = (id as u32).checked_sub(1).ok_or(libc::ESRCH)?;
        let place = self.places.get_mut(at as usize).ok_or(libc::ESRCH)?;
        if place.generation != (id >> 32) as u32 || matches!(place.state, State::Free) {
            return Err(libc::ESRCH.into());
        }
        Ok(place)
    }
}

impl<T> Handles<T> {
    pub const fn new() -> Self {
        Self(Mutex::new(Table { places: Vec::new(), free: Vec::new() }))
    }

    /// A number for something new.
    pub fn add(&self, thing: T) -> u64 {
        let mut table = self.0.lock();
        let at = match table.free.pop() {
            Some(at) => at,
            None => {
                table.places.push(Place { generation: 1, state: State::Free });
                (table.places.len() - 1) as u32
            }
        };
        let place = &mut table.places[at as usize];
        place.state = State::Here(thing);
        u64::from(place.generation) << 32 | u64::from(at + 1)
    }

    /// Takes the thing, to wait for its end. Errors: ESRCH: there is no such thing (any more); EINVAL: somebody has taken it.
    pub fn take(&self, id: u64) -> Result<T, Refusal> {
        let mut table = self.0.lock();
        let place = table.find(id)?;
        match std::mem::replace(&mut place.state, State::Taken) {
            State::Here(thing) => Ok(thing),
            _ => Err(libc::EINVAL.into()),
        }
    }

    /// Puts it back: it has not ended.
    pub fn put_back(&self, id: u64, thing: T) {
        if let Ok(place) = self.0.lock().find(id) {
            place.state = State::Here(thing);
        }
    }

    /// It has been taken and has ended: the number names nothing from here on.
    pub fn forget(&self, id: u64) {
        let mut table = self.0.lock();
        if let Ok(place) = table.find(id) {
            place.generation = place.generation.wrapping_add(1);
            place.state = State::Free;
            table.free.push(id as u32 - 1);
        }
    }
}
