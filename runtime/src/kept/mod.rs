//! Threads that are kept: one whose function has returned rests until it is given another, with the stack, the control
//! block and the thread-locals that libc made for it, if the function has left nothing behind in them ([`traces`]). To
//! whoever uses it it is a new thread. The object that runs the threads has the other half (`heddle_abi::kept`).
//!
//! A [`Record`] belongs to the thread and to its handle. It is never freed but used for another thread; so a
//! [`Thread`](crate::Thread) may hold it for ever, and at worst wakes a stranger, who has to expect that.
//!
//! # Safety
//! Who may touch which field of a record is said there.

mod traces;

use std::arch::asm;
use std::cell::Cell;
use std::ffi::c_void;
use std::io;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::Result;

use crate::cancel::{Limit, WaitError};
use crate::carried::{Carried, Room};
use crate::futex;
use crate::image::Image;
use crate::sync::Mutex;
use heddle_interface::finished::{LAUNCHED, TRACES, UNWANTED};
use heddle_interface::joined::{ELSEWHERE, RESTS, SURPLUS};
use heddle_interface::slot::{DETACHED, DONE, ENDING, RUNNING, WAITED};
use heddle_interface::{Slot, ThreadCalls};
use traces::Traces;

/// See the module.
#[repr(C)]
pub struct Record {
    /// First: a slot's address is its record's.
    slot: Slot,
    /// What [`Record::park`] waits for.
    token: AtomicU32,
    /// Counts functions, so that two of them have different names.
    life: AtomicU64,
    /// Runs the function in `room` and puts its result there. Written by who launches, read by the thread.
    run: Cell<Option<unsafe fn(&Record)>>,
    /// Drops the result in `room`. Written with `run`, called by whoever has the result.
    drop_result: Cell<unsafe fn(&Record)>,
    /// The function, then its result.
    room: Room,
    /// libc's name of the thread. Written by its creator before the record is anybody else's.
    pthread: Cell<libc::pthread_t>,
    /// It may rest when its function has returned.
    keep: Cell<bool>,
}

// SAFETY: the fields that are not atomic have one user at a time, handed over with `slot.state` or the launch.
unsafe impl Sync for Record {}

/// Records of threads that have ended.
static FREE: Mutex<Vec<&'static Record>> = Mutex::new(Vec::new());

const EMPTY: u32 = 0;
const NOTIFIED: u32 = 1;
const PARKED: u32 = 2;

impl Record {
    fn get() -> &'static Self {
        if let Some(record) = FREE.lock().pop() {
            return record;
        }
        Box::leak(Box::new(Self {
            slot: Slot::new(),
            token: AtomicU32::new(EMPTY),
            life: AtomicU64::new(0),
            run: Cell::new(None),
            drop_result: Cell::new(|_| ()),
            room: Room::new(),
            pthread: Cell::new(0),
            keep: Cell::new(false),
        }))
    }

    /// The thread has ended, or will without looking at the record again, and so has the handle.
    fn free(&'static self) {
        FREE.lock().push(self);
    }

    fn slot(&self) -> *mut Slot {
        (&raw const self.slot).cast_mut()
    }

    /// # Safety
    /// A slot of ours, or null.
    unsafe fn of(slot: *mut Slot) -> Option<&'static Self> {
        // SAFETY: the caller's; records are never freed.
        unsafe { slot.cast::<Self>().as_ref() }
    }

    /// The calling thread's.
    pub fn own(calls: &ThreadCalls) -> Option<&'static Self> {
        // SAFETY: slots are ours.
        unsafe { Self::of((calls.own)()) }
    }

    /// What tells two threads apart.
    pub fn id(&'static self) -> (usize, u64) {
        (ptr::from_ref(self) as usize, self.life.load(Ordering::Relaxed))
    }

    /// Makes it that of a new thread, whose function is in the room, or comes there.
    fn begin<F: FnOnce() -> T, T>(&self) {
        self.token.store(EMPTY, Ordering::Relaxed);
        self.life.store(self.life.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.slot.state.store(RUNNING, Ordering::Relaxed);
        self.run.set(Some(run::<F, T>));
        self.drop_result.set(drop_result::<T>);
    }

    /// Parks the calling thread, whose record this is, until it is told, or the deadline.
    pub fn park(&self, deadline: Option<std::time::Instant>) {
        // Acquire: what was done before the `unpark`. pairs: kept.token
        if self.token.compare_exchange(EMPTY, PARKED, Ordering::Acquire, Ordering::Acquire).is_ok() {
            futex::wait_until(&self.token, PARKED, deadline);
        }
        self.token.swap(EMPTY, Ordering::Acquire); // Acquire: as above. pairs: kept.token
    }

    /// Ends the thread's park, or its next one.
    pub fn unpark(&self) {
        // Release: what the caller did happens before the end of the park. pairs: kept.token
        if self.token.swap(NOTIFIED, Ordering::Release) == PARKED {
            futex::wake(&raw const self.token, 1);
        }
    }
}

/// A function on its way to a record: [`heddle_interface::Copy`].
unsafe extern "C" fn write_function<F: FnOnce() -> T, T>(slot: *mut Slot, function: *mut c_void) {
    // SAFETY: a slot of ours that nobody else has, and the function that `spawn` holds.
    unsafe {
        let record = &*slot.cast::<Record>();
        record.begin::<F, T>();
        record.room.put(&*function.cast::<Carried<F>>());
    }
}

/// A result on its way out of a record: [`heddle_interface::Copy`].
unsafe extern "C" fn read_result<T>(slot: *mut Slot, to: *mut c_void) {
    // SAFETY: a slot of ours whose function has returned, and the room that `join` has for the result.
    unsafe { (*to.cast::<Carried<Result<T>>>()).copy_from(&(*slot.cast::<Record>()).room) };
}

unsafe fn run<F: FnOnce() -> T, T>(record: &Record) {
    // SAFETY: the thread has the room; the function was put there by `spawn`.
    unsafe { record.room.run::<F, T>() };
}

unsafe fn drop_result<T>(record: &Record) {
    // SAFETY: the caller has the result.
    unsafe { record.room.drop_result::<T>() };
}

/// The only handle of a kept thread.
pub struct Handle<T> {
    record: &'static Record,
    calls: &'static ThreadCalls,
    result: PhantomData<T>,
}

// SAFETY: the result, of type T, goes to whoever has the handle.
unsafe impl<T: Send> Send for Handle<T> {}
// SAFETY: a shared handle tells whether the thread has ended, and no more.
unsafe impl<T> Sync for Handle<T> {}

/// Has a thread run the function, in the place of one that rests if `stack`, in bytes, is `None`, and such a thread rests.
/// `Err`: the function, if the caller is not a user thread, or why there is no thread.
pub fn spawn<F, T>(
    calls: &'static ThreadCalls,
    image: Image,
    stack: Option<usize>,
    f: F,
) -> std::result::Result<Handle<T>, NotKept<F>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let mut f = Carried::new(f);
    if stack.is_none() {
        // SAFETY: the function is the record's if a thread was found; the slots are records of ours.
        if let Some(record) = unsafe { Record::of((calls.start)(write_function::<F, T>, (&raw mut f).cast())) } {
            return Ok(Handle { record, calls, result: PhantomData });
        }
    }
    if !image.is_user_thread() {
        // SAFETY: it is still here.
        return Err(NotKept::Elsewhere(unsafe { f.open() }));
    }
    let record = Record::get();
    record.begin::<F, T>();
    record.keep.set(stack.is_none());
    // SAFETY: a record that nobody else has; the thread gets it when it is created.
    unsafe {
        record.room.put(&f);
        if let Err(why) = create(calls, record, stack) {
            drop(record.room.get_out::<F>());
            record.free();
            return Err(NotKept::System(why));
        }
    }
    Ok(Handle { record, calls, result: PhantomData })
}

/// Why there is no kept thread.
pub enum NotKept<F> {
    /// The caller is not a user thread.
    Elsewhere(F),
    /// The system's reason.
    System(io::Error),
}

/// Makes a thread for a record whose function is there.
///
/// # Safety
/// The record is the caller's, and from here on the thread's and the handle's.
unsafe fn create(calls: &ThreadCalls, record: &'static Record, stack: Option<usize>) -> io::Result<()> {
    // SAFETY: libc's objects, initialised before they are used.
    unsafe {
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        let attributes = attributes.as_mut_ptr();
        let check = |r: i32| if r == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(r)) };
        check(libc::pthread_attr_init(attributes))?;
        let size = stack.unwrap_or_else(default_stack).next_multiple_of(4096);
        let mut result = check(libc::pthread_attr_setstacksize(attributes, size));
        if result.is_ok() {
            let argument = ptr::from_ref(record).cast_mut().cast();
            (calls.prepare)(record.slot());
            result = check(libc::pthread_create(record.pthread.as_ptr(), attributes, thread, argument));
            (calls.prepare)(ptr::null_mut()); // if it failed before it came to that
        }
        libc::pthread_attr_destroy(attributes);
        result
    }
}

/// As `std` has it: `RUST_MIN_STACK`, or 2 MiB.
fn default_stack() -> usize {
    static BYTES: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *BYTES.get_or_init(|| {
        let asked = std::env::var("RUST_MIN_STACK").ok().and_then(|text| text.parse().ok());
        asked.unwrap_or(2 << 20).max(crate::start::LEAST_STACK)
    })
}

extern "C" fn thread(record: *mut c_void) -> *mut c_void {
    // SAFETY: the record that `create` was given.
    unsafe {
        let record: &'static Record = &*record.cast::<Record>();
        let Some(image) = crate::start::image() else { unreachable!("threads are made when it is there") };
        let calls = image.calls();
        let generation = || calls.generation.load(Ordering::Relaxed);
        let before = if record.keep.get() { Traces::now(generation()) } else { None };
        let none = || before.as_ref().is_some_and(|before| before.none(generation()));
        while let Some(run) = record.run.get() {
            run(record);
            let unwanted = match if none() { finish(calls, record.slot()) } else { TRACES } {
                LAUNCHED => continue,
                UNWANTED => true,
                _ => (calls.end)(record.slot()),
            };
            if !unwanted {
                return ptr::null_mut();
            }
            (record.drop_result.get())(record);
            record.run.set(None);
            if !none() || !(calls.rest)() {
                break;
            }
        }
        // Nobody asks for it; or it was launched once more, to end.
        end_alone(record);
        ptr::null_mut()
    }
}

/// Calls [`ThreadCalls::finish`] by a jump, so that the CPU does not expect a return: what it does next is to go on with who waits.
///
/// # Safety
/// As for that.
#[inline(always)]
unsafe fn finish(calls: &ThreadCalls, slot: *mut Slot) -> u32 {
    let answer;
    // SAFETY: a function is called, as the compiler does it but for the instruction.
    unsafe {
        asm!(
            "lea rax, [rip + 2f]",
            "push rax",
            "jmp rcx",
            "2:",
            inout("rcx") calls.finish => _,
            inout("rdi") slot => _,
            out("eax") answer,
            clobber_abi("C"),
        );
    }
    answer
}

/// The calling thread is about to end, and nobody will ask for it.
fn end_alone(record: &'static Record) {
    // SAFETY: the calling thread.
    unsafe { libc::pthread_detach(libc::pthread_self()) };
    record.free();
}

impl<T> Handle<T> {
    /// What names the thread.
    pub fn record(&self) -> &'static Record {
        self.record
    }

    /// Whether the function has returned.
    pub fn is_finished(&self) -> bool {
        // Acquire: what it did is visible. pairs: kept.state
        matches!(self.record.slot.state.load(Ordering::Acquire), DONE | ENDING)
    }

    /// Waits for the function's end, or until the limit.
    pub fn wait_within(&self, limit: &Limit<'_>) -> std::result::Result<(), WaitError> {
        let state = &self.record.slot.state;
        loop {
            if self.is_finished() {
                return Ok(());
            }
            // Acquire: as in `is_finished`. pairs: kept.state
            let before = state.compare_exchange(RUNNING, WAITED, Ordering::Acquire, Ordering::Acquire);
            if matches!(before, Ok(_) | Err(WAITED)) {
                // SAFETY: the low half of the state, on this architecture the first; it is never anything but a word.
                let word = unsafe { &*state.as_ptr().cast::<AtomicU32>() };
                match futex::wait_within(word, WAITED as u32, limit) {
                    Err(_) if self.is_finished() => {}
                    result => result?,
                }
            }
        }
    }

    /// Waits for the function's end; its result, or what it panicked with.
    pub fn join(self) -> Result<T> {
        let mut result = Carried::<Result<T>>::empty();
        // SAFETY: this is the handle.
        let how = unsafe { (self.calls.join)(self.record.slot(), read_result::<T>, (&raw mut result).cast()) };
        if how == ELSEWHERE {
            let _ = self.wait_within(&Limit::NEVER);
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: the function has returned, and the handle is gone with this call.
        unsafe {
            match how {
                RESTS => {}
                SURPLUS => this.end_surplus(),
                _ => {
                    result.copy_from(&this.record.room);
                    this.settle();
                }
            }
            result.open()
        }
    }

    /// What becomes of the thread and its record, after the result was taken out.
    ///
    /// # Safety
    /// Called once, last.
    unsafe fn settle(&self) {
        let record = self.record;
        // SAFETY: the handle's, which is used up.
        unsafe {
            if record.slot.state.load(Ordering::Relaxed) == ENDING {
                libc::pthread_join(record.pthread.get(), ptr::null_mut());
                record.free();
            } else if !(self.calls.give_back)(record.slot()) {
                self.end_surplus();
            }
        }
    }

    /// The thread is one too many that rest: it ends.
    ///
    /// # Safety
    /// As for [`settle`](Self::settle).
    #[cold]
    unsafe fn end_surplus(&self) {
        self.record.run.set(None);
        // SAFETY: the caller's.
        unsafe { (self.calls.launch)(self.record.slot()) };
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        let state = &self.record.slot.state;
        loop {
            // AcqRel: who drops the result has all that led to it, and the thread all that we did. pairs: kept.state
            match state.compare_exchange(RUNNING, DETACHED, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(WAITED) => {
                    // Nobody waits any more. Relaxed: the next round decides.
                    let _ = state.compare_exchange(WAITED, RUNNING, Ordering::Relaxed, Ordering::Relaxed);
                }
                Err(_) => break,
            }
        }
        // SAFETY: the function has returned, and the handle is gone with this call.
        unsafe {
            (self.record.drop_result.get())(self.record);
            if state.load(Ordering::Relaxed) == ENDING {
                // Not joined: it may take its time to end.
                libc::pthread_detach(self.record.pthread.get());
                self.record.free();
            } else {
                self.settle();
            }
        }
    }
}

impl<T> std::fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("finished", &self.is_finished()).finish_non_exhaustive()
    }
}
