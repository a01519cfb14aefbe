//! Carriers: the threads that run fibers, as many as there are workers, each on its own queue or, when that is empty, on what it
//! steals from others.
//!
//! A fiber that has to wait goes straight to the next one's stack; to the carrier's own only when there is none. What is to be done
//! when it has left its stack (others may run it from then on, or take the stack), whoever arrives next on that carrier does:
//! [`After`].
//!
//! **Calls.** Who adds a fiber calls a carrier that sleeps ([`sleepers`](super::sleepers)). But a single fiber in a queue is seldom
//! worth it: its adder is about to wait for it, as a rule, and to run it. So a searcher takes a single one only if its carrier has not
//! switched for a moment, and who has called in vain calls less often, at most every [`SELDOM`]th time. If all of that was wrong, the
//! watcher ([`clock`](super::clock)) sees a fiber that lies still and calls a carrier, or, when none sleeps because they wait in system
//! calls, makes one more.
//!
//! # Safety
//! Fields that are not atomic are the carrier's: they are used by its thread, in whichever context that is. A fiber that is in no
//! queue, in no table and nobody's current one belongs to whoever has its [`Ref`].

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use super::clock::Clock;
use super::named::Numbers;
use super::queue::Queue;
use super::record::{Fiber, Ref};
use super::sleepers::Sleepers;
use super::stack::{CLASSES, Stack, Stacks};
use super::switch::{Context, switch};
use super::table::Table;
use crate::fork::{self, Lane};
use crate::prim::heavy_fence;
use crate::{barrier, futex, start};

/// What is to be done about a fiber that has left its stack, [`Carrier::left`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum After {
    Nothing,
    /// It can go on.
    Ready,
    /// Its function has returned.
    Done,
    /// So it has, and somebody may wait on its state.
    Tell,
    /// So it has, and nobody wants to know.
    Free,
    /// It waits for the end of another one, `Carrier::with`.
    Join,
    /// It waits on words; its waiter is `Carrier::with`.
    Unlock,
}

/// Ends of fibers after which the one that waits goes on directly, before those that are ready have a turn.
const DIRECT: u32 = 64;
/// Every so many runs the fibers of other threads come first.
const INJECTED: usize = 64;
/// Looks of a searcher into all queues before it sleeps.
const LOOKS: u32 = 40;
/// Turns between two looks, and for which a single fiber has to lie still.
const STILL: u32 = 200;
/// How seldom at most somebody is called for a single fiber.
const SELDOM: u32 = 1023;
/// Free stacks of a size that a carrier keeps, and how many it then gives to all.
const KEPT: u32 = 64;
const GIVEN: u32 = 32;

/// See the module.
#[repr(align(128))]
pub struct Carrier {
    queue: Queue<Ref>,
    /// Its own context, while a fiber runs.
    base: Cell<Context>,
    /// What it runs; null: nothing.
    current: Cell<*const Fiber>,
    after: Cell<After>,
    left: Cell<*const Fiber>,
    with: Cell<*const c_void>,
    /// What its thread has for `join` and `scope`.
    lane: Cell<Option<&'static Lane>>,
    pool: Cell<&'static Pool>,
    /// Free stacks by size: the last one put back, and how many.
    free: [Cell<(*const Fiber, u32)>; CLASSES],
    /// Fibers that have ended here, modulo `DIRECT`.
    ends: Cell<u32>,
    /// For the fibers that have a name.
    pub(super) numbers: Numbers,
    /// Calls left out, of those for a single fiber.
    skipped: Cell<u32>,
    /// How many to leave out.
    futile: AtomicU32,
    /// Fibers run, for others to see whether it goes on.
    pub(super) runs: AtomicUsize,
    /// It sleeps on this while 0.
    bed: AtomicU32,
    pub(super) next: AtomicPtr<Carrier>,
}

// SAFETY: see the module.
unsafe impl Sync for Carrier {}

/// All that fibers share.
pub struct Pool {
    carriers: AtomicPtr<Carrier>,
    started: AtomicBool,
    starting: Mutex<()>,
    pub(super) made: AtomicUsize,
    injected: Mutex<VecDeque<Ref>>,
    injected_len: AtomicUsize,
    sleepers: Sleepers<Sleeper>,
    pub(super) table: Table<Ref>,
    pub(super) clock: Clock,
    stacks: Stacks,
}

static POOL: AtomicPtr<Pool> = AtomicPtr::new(ptr::null_mut());

thread_local! {
    static CARRIER: Cell<*const Carrier> = const { Cell::new(ptr::null()) };
}

/// The calling thread's, if it is a carrier. Never inlined: a function that goes on on another thread would remember where this one's is.
#[inline(never)]
pub fn carrier() -> Option<&'static Carrier> {
    // SAFETY: null or a carrier; these are never freed.
    unsafe { CARRIER.get().as_ref() }
}

/// The fiber that calls, and its carrier.
#[inline]
pub fn current() -> Option<(&'static Carrier, Ref)> {
    let carrier = carrier()?;
    NonNull::new(carrier.current.get().cast_mut()).map(|fiber| (carrier, Ref(fiber)))
}

/// As [`current`], if the fiber may leave its carrier: not from inside `join` or `scope`, which belong to the thread, and not while it
/// panics, which the thread counts.
#[inline]
pub fn movable() -> Option<(&'static Carrier, Ref)> {
    current().filter(|(carrier, _)| carrier.may_be_left())
}

/// What a lock of the pool's protects; nobody panics in it.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Carrier {
    fn new(pool: &'static Pool) -> &'static Self {
        Box::leak(Box::new(Self {
            queue: Queue::new(),
            base: Cell::new(ptr::null_mut()),
            current: Cell::new(ptr::null()),
            after: Cell::new(After::Nothing),
            left: Cell::new(ptr::null()),
            with: Cell::new(ptr::null()),
            lane: Cell::new(None),
            pool: Cell::new(pool),
            free: [const { Cell::new((ptr::null(), 0)) }; CLASSES],
            ends: Cell::new(0),
            numbers: Numbers::default(),
            skipped: Cell::new(0),
            futile: AtomicU32::new(0),
            runs: AtomicUsize::new(0),
            bed: AtomicU32::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
        }))
    }

    /// Whether its fiber, the caller, may leave it: see [`movable`].
    #[inline]
    pub fn may_be_left(&self) -> bool {
        !self.lane.get().is_some_and(Lane::is_nested) && !thread::panicking()
    }

    pub fn pool(&self) -> &'static Pool {
        self.pool.get()
    }

    /// How many fibers wait for it.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// A stack of that class.
    #[inline]
    pub fn take_stack(&self, class: u8) -> io::Result<Stack> {
        let free = &self.free[class as usize];
        let (first, count) = free.get();
        match NonNull::new(first.cast_mut()) {
            Some(fiber) => {
                free.set((Ref(fiber).next.get(), count - 1));
                Ok(Stack(fiber))
            }
            None => self.pool().stacks.take(class),
        }
    }

    /// Puts back the stack of a fiber that is no more.
    #[inline]
    pub fn put_stack(&self, fiber: Ref) {
        fiber.claim.clear();
        let free = &self.free[fiber.class.get() as usize];
        let (first, count) = free.get();
        fiber.next.set(first);
        free.set((fiber.0.as_ptr(), count + 1));
        if count >= KEPT {
            self.give_stacks(fiber.class.get());
        }
    }

    #[cold]
    fn give_stacks(&self, class: u8) {
        let free = &self.free[class as usize];
        for _ in 0..GIVEN {
            let (first, count) = free.get();
            let Some(fiber) = NonNull::new(first.cast_mut()) else { return };
            free.set((Ref(fiber).next.get(), count - 1));
            self.pool().stacks.put(class, Stack(fiber));
        }
    }

    /// Adds a new fiber.
    #[inline]
    pub fn add(&self, fiber: Ref) {
        // SAFETY: this is the carrier's thread.
        unsafe { self.queue.push_new(fiber) };
        self.call();
    }

    /// A fiber can go on.
    #[inline]
    pub fn make_ready(&self, fiber: Ref) {
        // SAFETY: this is the carrier's thread.
        unsafe { self.queue.push_ready(fiber) };
        self.call();
    }

    /// Something was added: somebody who sleeps may have it.
    #[inline]
    fn call(&self) {
        let pool = self.pool();
        if pool.sleepers.wanted() {
            self.call_for(self.queue.len());
        }
    }

    #[cold]
    fn call_for(&self, added: usize) {
        let skipped = self.skipped.get();
        if added < 2 && skipped < self.futile.load(Ordering::Relaxed) {
            return self.skipped.set(skipped + 1);
        }
        self.skipped.set(0);
        self.pool().wake_one();
    }

    /// The next fiber, of its own or those of other threads.
    #[inline]
    fn pick(&self) -> Option<Ref> {
        let pool = self.pool();
        let runs = self.runs.load(Ordering::Relaxed) + 1;
        self.runs.store(runs, Ordering::Relaxed);
        if runs.is_multiple_of(INJECTED)
            && let Some(fiber) = pool.take_injected()
        {
            return Some(fiber);
        }
        // SAFETY: this is the carrier's thread.
        unsafe { self.queue.next() }.or_else(|| pool.take_injected())
    }

    /// Goes to a fiber, from the context that is saved there.
    ///
    /// # Safety
    /// The fiber is the caller's, and can go on. After it the caller may be on another carrier.
    #[inline(always)]
    unsafe fn go(&self, save: *mut Context, fiber: Ref) {
        fiber.carrier.set(self);
        self.current.set(fiber.0.as_ptr());
        // SAFETY: the caller's.
        unsafe { switch(save, fiber.context.get(), fiber.0.as_ptr().cast()) };
    }

    /// Somebody has come to this carrier from another context: does what that left.
    #[inline(always)]
    pub fn arrive(&self) {
        if self.after.get() != After::Nothing {
            self.finish_leaving();
        }
    }

    #[inline(never)]
    fn finish_leaving(&self) {
        // Never null when there is something to be done.
        let Some(left) = NonNull::new(self.left.get().cast_mut()) else { return };
        let (left, with) = (Ref(left), self.with.get());
        match self.after.replace(After::Nothing) {
            After::Nothing => {}
            After::Ready => self.make_ready(left),
            after @ (After::Done | After::Tell) => {
                let word = left.state.word();
                left.state.done();
                if after == After::Tell {
                    futex::wake(word, i32::MAX);
                }
            }
            After::Free => self.put_stack(left),
            After::Join => {
                if NonNull::new(with.cast_mut()).is_none_or(|other| !Ref(other.cast()).state.await_end(left.number())) {
                    self.make_ready(left);
                }
            }
            // SAFETY: the waiter's fiber has left, and nobody has run it.
            After::Unlock => unsafe { self.pool().table.unlock(with.cast()) },
        }
    }

    /// What whoever comes next is to do.
    #[inline(always)]
    fn set_after(&self, left: Ref, after: After, with: *const c_void) {
        self.left.set(left.0.as_ptr());
        self.after.set(after);
        self.with.set(with);
    }

    /// The caller, a fiber, leaves its stack. It comes back when somebody has it run again, perhaps on another carrier.
    ///
    /// # Safety
    /// `me` is the calling fiber, on this carrier; `with` is what [`After`] says.
    #[inline(never)]
    pub unsafe fn leave(&self, me: Ref, after: After, with: *const c_void) {
        let next = self.pick();
        self.set_after(me, after, with);
        // SAFETY: the next one was in a queue: it can go on. A carrier's own context waits while a fiber runs.
        unsafe {
            match next {
                Some(next) => self.go(me.context.as_ptr(), next),
                None => {
                    self.current.set(ptr::null());
                    switch(me.context.as_ptr(), self.base.get(), ptr::null());
                }
            }
        }
        me.carrier().arrive();
    }

    /// The caller lets others go first. False: there are none.
    ///
    /// # Safety
    /// As for [`leave`](Self::leave).
    #[inline]
    pub unsafe fn give_turn(&self, me: Ref) -> bool {
        let Some(next) = self.pick() else { return false };
        self.set_after(me, After::Ready, ptr::null());
        // SAFETY: it was in a queue.
        unsafe { self.go(me.context.as_ptr(), next) };
        me.carrier().arrive();
        true
    }

    /// Runs a fiber that the caller has just made, and that nobody has begun: the caller goes on when it has ended. False: it is not the newest
    /// one here.
    ///
    /// # Safety
    /// As for [`leave`](Self::leave); the fiber's handle is the caller's.
    #[inline]
    pub unsafe fn run_newest(&self, me: Ref, fiber: Ref) -> bool {
        // SAFETY: this is the carrier's thread; the fiber is ours when it was taken.
        unsafe {
            if !self.queue.take_newest(fiber) {
                return false;
            }
            fiber.state.begin_for(me.number());
            self.runs.store(self.runs.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            self.go(me.context.as_ptr(), fiber);
        }
        me.carrier().arrive();
        true
    }

    /// A fiber has ended: goes to the one that waits for it. Inlined, as is all on the way here: a call that never returns would leave its
    /// return address with the CPU, for the next fiber's return.
    ///
    /// # Safety
    /// As for [`leave`](Self::leave), and it is not gone to again; the waiter is one that waits for it.
    #[inline(always)]
    pub unsafe fn leave_for(&self, me: Ref, waiter: Ref) {
        let ends = self.ends.get() + 1;
        self.ends.set(ends % DIRECT);
        // Not a new one: each that begins out of its turn is one more line of fibers that are half done.
        // SAFETY: the caller's; one from the queue can go on, and is ours.
        let other = if ends == DIRECT { unsafe { self.queue.take_ready() } } else { None };
        if other.is_some() {
            self.set_after(waiter, After::Ready, ptr::null());
        }
        // SAFETY: as above.
        unsafe { self.go(me.context.as_ptr(), other.unwrap_or(waiter)) };
    }

    /// The life of a carrier.
    fn run(&'static self) -> ! {
        CARRIER.set(self);
        self.lane.set(fork::attach());
        loop {
            let fiber = self.pick().unwrap_or_else(|| self.search());
            // SAFETY: it was in a queue.
            unsafe { self.go(self.base.as_ptr(), fiber) };
            self.arrive();
        }
    }

    /// Looks for something to run, and sleeps while there is nothing.
    fn search(&'static self) -> Ref {
        let pool = self.pool();
        loop {
            pool.sleepers.begin_search();
            let found = (0..LOOKS).find_map(|_| {
                let found = self.steal();
                if found.is_none() {
                    (0..STILL).for_each(|_| std::hint::spin_loop());
                    crate::prim::yield_worker();
                }
                found
            });
            pool.sleepers.end_search();
            if let Some(fiber) = found {
                pool.clock.begin_watch();
                // There may be more, which nobody was called for because of us.
                if pool.sleepers.wanted() && (pool.injected() != 0 || self.queue.len() != 0) {
                    pool.wake_one();
                }
                return fiber;
            }
            self.sleep();
        }
    }

    fn steal(&self) -> Option<Ref> {
        let pool = self.pool();
        if let Some(fiber) = pool.take_injected() {
            return Some(fiber);
        }
        // Beginning behind itself, so that not all take from the same one.
        // Acquire: the carrier is written. pairs: fiber.carriers
        let behind = NonNull::new(self.next.load(Ordering::Acquire)).map(|next| Carriers(next.as_ptr()));
        for other in behind.into_iter().flatten().chain(pool.carriers()) {
            if ptr::eq(other, self) || !other.has_some() {
                continue;
            }
            let mut stolen = other.queue.steal().into_iter();
            if let Some(first) = stolen.next() {
                other.futile.store(0, Ordering::Relaxed);
                // SAFETY: this is the carrier's thread.
                stolen.for_each(|fiber| unsafe { self.queue.push_ready(fiber) });
                return Some(first);
            }
        }
        None
    }

    /// Whether there is something here for others.
    fn has_some(&self) -> bool {
        let runs = self.runs.load(Ordering::Relaxed);
        match self.queue.len() {
            0 => false,
            1 => {
                (0..STILL).for_each(|_| std::hint::spin_loop());
                self.queue.len() != 0 && self.runs.load(Ordering::Relaxed) == runs
            }
            _ => true,
        }
    }

    fn sleep(&'static self) {
        let pool = self.pool();
        self.bed.store(0, Ordering::Relaxed);
        pool.sleepers.lie_down(Sleeper(self));
        if pool.injected() == 0 && !pool.carriers().any(|other| !ptr::eq(other, self) && other.has_some()) {
            for other in pool.carriers() {
                let futile = other.futile.load(Ordering::Relaxed);
                other.futile.store((2 * futile + 1).min(SELDOM), Ordering::Relaxed);
            }
            while self.bed.load(Ordering::Relaxed) == 0 {
                futex::wait_as_thread(&self.bed, 0, None);
            }
        }
        // Also when it was woken: by one, perhaps, who took it from the list for an earlier sleep, which it gave up.
        pool.sleepers.get_up(Sleeper(self));
    }
}

/// A carrier in the list of those that sleep.
#[derive(Clone, Copy)]
struct Sleeper(&'static Carrier);

impl PartialEq for Sleeper {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.0, other.0)
    }
}

/// A list of carriers, from one on.
struct Carriers(*mut Carrier);

impl Iterator for Carriers {
    type Item = &'static Carrier;
    fn next(&mut self) -> Option<&'static Carrier> {
        // SAFETY: null or a carrier; these are never freed.
        let carrier = unsafe { self.0.as_ref() }?;
        // Acquire: the next one is written. pairs: fiber.carriers
        self.0 = carrier.next.load(Ordering::Acquire);
        Some(carrier)
    }
}

impl Pool {
    fn new() -> &'static Self {
        Box::leak(Box::new(Self {
            carriers: AtomicPtr::new(ptr::null_mut()),
            started: AtomicBool::new(false),
            starting: Mutex::new(()),
            made: AtomicUsize::new(0),
            injected: Mutex::new(VecDeque::new()),
            injected_len: AtomicUsize::new(0),
            sleepers: Sleepers::new(),
            table: Table::new(),
            clock: Clock::new(),
            stacks: Stacks::default(),
        }))
    }

    /// The pool, if there are or were fibers in this process.
    #[inline]
    pub fn present() -> Option<&'static Self> {
        // Acquire: the pool is written. pairs: fiber.pool
        // SAFETY: null or a pool; these are never freed.
        unsafe { POOL.load(Ordering::Acquire).as_ref() }
    }

    /// The pool, with carriers that run.
    #[inline]
    pub fn get() -> io::Result<&'static Self> {
        match Self::present() {
            // Acquire: the carriers are there. pairs: fiber.started
            Some(pool) if pool.started.load(Ordering::Acquire) => Ok(pool),
            _ => Self::begin(),
        }
    }

    #[cold]
    fn begin() -> io::Result<&'static Self> {
        let pool = Self::present().unwrap_or_else(|| {
            let new = Self::new();
            // AcqRel: the pool is written; or another's is. pairs: fiber.pool
            match POOL.compare_exchange(
                ptr::null_mut(),
                ptr::from_ref(new).cast_mut(),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    // From here on wakes look for fibers. Who reads an old null after this did its wake before any fiber waited.
                    heavy_fence();
                    new
                }
                // SAFETY: as in `present`.
                Err(other) => unsafe { &*other },
            }
        });
        let _one = locked(&pool.starting);
        if !pool.started.load(Ordering::Relaxed) {
            barrier::prepare();
            static CHILD: std::sync::Once = std::sync::Once::new();
            // SAFETY: a function of ours, for the life of the process.
            CHILD.call_once(|| unsafe {
                libc::pthread_atfork(None, None, Some(in_child));
            });
            Clock::start(pool)?;
            for _ in 0..start::workers() {
                match pool.add_carrier() {
                    // Fewer will do.
                    Err(_) if pool.made.load(Ordering::Relaxed) != 0 => break,
                    made => made?,
                }
            }
            // Release: all is there. pairs: fiber.started
            pool.started.store(true, Ordering::Release);
        }
        Ok(pool)
    }

    /// Makes a carrier more.
    pub fn add_carrier(&'static self) -> io::Result<()> {
        let carrier = Carrier::new(self);
        let builder = thread::Builder::new().name("carrier".to_string()).stack_size(64 * 1024);
        crate::thread::spawn_std(builder, move || carrier.run())?;
        self.made.fetch_add(1, Ordering::Relaxed);
        self.list(carrier);
        Ok(())
    }

    fn list(&self, carrier: &'static Carrier) {
        let mut first = self.carriers.load(Ordering::Relaxed);
        loop {
            carrier.next.store(first, Ordering::Relaxed);
            let this = ptr::from_ref(carrier).cast_mut();
            // Release: the carrier is written. pairs: fiber.carriers
            match self.carriers.compare_exchange(first, this, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Whether no carrier runs.
    pub fn all_asleep(&self) -> bool {
        self.sleepers.count() >= self.made.load(Ordering::Relaxed)
    }

    pub fn carriers(&self) -> impl Iterator<Item = &'static Carrier> + use<> {
        // Acquire: the carrier is written. pairs: fiber.carriers
        Carriers(self.carriers.load(Ordering::Acquire))
    }

    /// A stack for a fiber that another thread makes.
    pub fn take_stack(&self, class: u8) -> io::Result<Stack> {
        self.stacks.take(class)
    }

    /// Puts back the stack of a fiber that is no more.
    pub fn put_stack(&self, fiber: Ref) {
        fiber.claim.clear();
        self.stacks.put(fiber.class.get(), Stack(fiber.0));
    }

    /// Has a fiber run that a thread has made or woken which is no carrier.
    pub fn inject(&self, fiber: Ref) {
        {
            let mut injected = locked(&self.injected);
            injected.push_back(fiber);
            self.injected_len.store(injected.len(), Ordering::Relaxed);
        }
        if self.sleepers.wanted() {
            self.wake_one();
        }
    }

    /// How many fibers of other threads wait.
    pub fn injected(&self) -> usize {
        self.injected_len.load(Ordering::Relaxed)
    }

    #[inline]
    fn take_injected(&self) -> Option<Ref> {
        if self.injected() == 0 { None } else { self.take_injected_now() }
    }

    #[cold]
    fn take_injected_now(&self) -> Option<Ref> {
        let mut injected = locked(&self.injected);
        let fiber = injected.pop_front();
        self.injected_len.store(injected.len(), Ordering::Relaxed);
        fiber
    }

    /// Wakes a carrier that sleeps. False: none does.
    pub fn wake_one(&self) -> bool {
        let Some(Sleeper(carrier)) = self.sleepers.take() else { return false };
        carrier.bed.store(1, Ordering::Relaxed);
        futex::wake_threads(&carrier.bed, 1);
        // Who called goes on computing, so the carrier is not to wait for this worker.
        crate::thread::give_away();
        true
    }
}

/// A fiber can go on.
pub fn make_ready(fiber: Ref) {
    match carrier() {
        Some(carrier) => carrier.make_ready(fiber),
        None => {
            if let Some(pool) = Pool::present() {
                pool.inject(fiber);
            }
        }
    }
}

/// In the child of a fork there is one thread, and if that was a carrier, the fiber that has forked: all others are gone.
extern "C" fn in_child() {
    POOL.store(ptr::null_mut(), Ordering::Relaxed);
    if let Some(carrier) = carrier() {
        let pool = Pool::new();
        carrier.pool.set(pool);
        carrier.next.store(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: the only thread, which is not in its queue; what that held is not run here, nor freed.
        unsafe { (&raw const carrier.queue).cast_mut().write(Queue::new()) };
        pool.list(carrier);
        POOL.store(ptr::from_ref(pool).cast_mut(), Ordering::Relaxed);
    }
}
