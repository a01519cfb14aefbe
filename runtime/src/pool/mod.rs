//! Pools: objects of one type, made by one thread and dropped by any, whose memory goes home.
//!
//! ```
//! use heddle::pool::Pool;
//!
//! let pool = Pool::new();
//! let (sender, receiver) = heddle::channel::bounded(16);
//! let thread = heddle::spawn(move || receiver.iter().map(|order: heddle::pool::Pooled<[u64; 6]>| order[0]).sum::<u64>());
//! for n in 0..100 {
//!     sender.send(pool.make([n; 6])).unwrap(); // dropped over there, and its memory used again here
//! }
//! drop(sender);
//! assert_eq!(thread.join().unwrap(), 4950);
//! ```
//!
//! With an allocator for everything, an object that a stranger frees goes to a list, an arena or a heap that both threads
//! lock, or stays with the stranger: then a producer allocates for ever what a consumer hoards. Here each thread that makes
//! objects of a pool has a *home*: memory in blocks, whose objects are in groups of up to 64. An object's block, and so its home and its
//! group, is found from its address. Dropped by its maker, it is free there. Dropped by another thread, it is a bit: that thread
//! collects those of one group, puts them into a parcel when it drops an object of another group, and pushes the parcel to the home
//! with one atomic exchange when it has seven groups, or when the thread drops an object of another home, or ends. The maker takes all
//! parcels when it has nothing free, adds the bits to those of their groups, and makes objects where they say, before it takes more
//! memory. So a stranger's drop writes nothing to the object's line, which may be in the maker's cache, and what goes from cache
//! to cache is a parcel for some hundred objects.
//!
//! So memory is bounded by the most objects that were out at a time, plus [`BATCH`] for each thread that drops others' (64 if objects
//! have more than 512 bytes). The homes of threads that have ended, with what is or comes home there, go to threads that begin.
//!
//! Making and dropping never blocks, but for the lock of the list of homes the first time a thread uses a pool and when it ends.
//! User threads, kernel threads and threads that know nothing of Heddle are alike.

mod returns;
#[cfg(not(loom))]
mod shape;

#[cfg(not(loom))]
pub use with_threads::{BATCH, Pool, Pooled};

#[cfg(not(loom))]
mod with_threads {
    use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
    use std::cell::{Cell, RefCell, UnsafeCell};
    use std::fmt;
    use std::marker::PhantomData;
    use std::ops::{Deref, DerefMut};
    use std::ptr::{NonNull, null, null_mut, without_provenance_mut};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Weak};

    use super::returns::{Link, Parcel, ROOM, Returns};
    use super::shape::{GROUP, Group, MOST_BYTES, PAGE, RUNS, Shape};
    use crate::shard::{CachePadded, LINE};
    use crate::sync::Mutex;

    /// Most objects that go home at once.
    pub const BATCH: usize = (RUNS + 1) * GROUP;
    /// Fewer single ones than that are linked to each other instead: a parcel of a few would be dearer than the objects.
    const FEW: usize = 8;
    /// Parcels that a thread may have on their way besides those that hold as many single objects as its pool has.
    const SPARE: usize = 8;
    /// Large objects of a home's first chunk. Each further chunk has twice as many, or twice as many pages, as the one before, up to about
    /// [`MOST_BYTES`], and no more large objects than a group.
    const FIRST: usize = 32;

    /// What a block begins with. It never changes: others read it. Behind its line are the groups, and on lines of their own the objects.
    #[repr(C)]
    pub(super) struct Block {
        home: *const Home,
        /// The pool's, which stays as long as the home.
        shared: *const Shared,
    }

    /// What words of a parcel say.
    enum Found {
        Object(*mut Link),
        Several(*mut Group, u64),
    }

    /// In a word with a group's address: its objects' bits are in the next.
    const SEVERAL: usize = 1;

    /// What these words say: addresses of objects, or with [`SEVERAL`] of groups, and then their bits.
    fn found(words: &[*mut Link]) -> impl Iterator<Item = Found> {
        let mut words = words.iter();
        std::iter::from_fn(move || {
            let word = *words.next()?;
            Some(if word.addr() & SEVERAL == 0 {
                Found::Object(word)
            } else {
                let group = word.map_addr(|at| at - SEVERAL).cast();
                Found::Several(group, words.next().expect("the bits").addr() as u64)
            })
        })
    }

    /// Where a thread's objects come from. It is never freed before all of them are home.
    struct Home {
        own: UnsafeCell<Own>,
        /// Objects that others have dropped.
        parcels: CachePadded<Returns<Parcel>>,
        /// Objects that others have dropped, linked.
        loose: Returns<Link>,
        shared: Weak<Shared>,
    }

    /// Addresses, the last first, on lines of their own: each thread writes to its stack with every object.
    struct Stack {
        base: *mut *mut u8,
        len: usize,
        room: usize,
    }

    impl Stack {
        const fn new() -> Self {
            Self { base: null_mut(), len: 0, room: 0 }
        }

        fn layout(room: usize) -> Layout {
            Layout::array::<*mut u8>(room).and_then(|all| all.align_to(LINE)).expect("a stack smaller than its objects")
        }

        /// Makes room for so many in all.
        fn reserve(&mut self, room: usize) {
            let room = room.max(2 * self.room).next_multiple_of(LINE / size_of::<*mut u8>());
            let layout = Self::layout(room);
            // SAFETY: a layout that is not empty; so many are in the old one, which nobody else has.
            unsafe {
                let base = alloc(layout).cast::<*mut u8>();
                if base.is_null() {
                    handle_alloc_error(layout);
                }
                if self.len != 0 {
                    base.copy_from_nonoverlapping(self.base, self.len);
                }
                *self = Self { base, len: self.len, room };
            }
        }

        /// # Safety
        /// There is room.
        #[inline]
        unsafe fn push(&mut self, object: *mut u8) {
            // SAFETY: the caller's.
            unsafe { self.base.add(self.len).write(object) };
            self.len += 1;
        }

        #[inline]
        fn pop(&mut self) -> Option<*mut u8> {
            self.len = self.len.checked_sub(1)?;
            // SAFETY: one that was pushed.
            Some(unsafe { *self.base.add(self.len) })
        }
    }

    impl Drop for Stack {
        fn drop(&mut self) {
            if self.room != 0 {
                // SAFETY: made with this layout.
                unsafe { dealloc(self.base.cast(), Self::layout(self.room)) };
            }
        }
    }

    /// What only the thread that has the home touches.
    struct Own {
        /// Free objects that it dropped itself. Not a list through them: their lines may be elsewhere. Room for all objects.
        free: Stack,
        /// Free objects of the group that was opened last, and its first object.
        bits: u64,
        first: *mut u8,
        /// The other groups that have bits.
        groups: *mut Group,
        chunks: Vec<(NonNull<u8>, usize)>,
        /// In all chunks.
        objects: usize,
        /// For what it drops of others': each in turn.
        parcels: Vec<NonNull<Parcel>>,
        turn: usize,
        /// The empty one that the thread before was about to fill.
        filling: *mut Parcel,
    }

    // SAFETY: `own` is used by one thread at a time: by the one whose `Local` the home is in, else under the lock of `Shared`.
    unsafe impl Send for Home {}
    // SAFETY: as above.
    unsafe impl Sync for Home {}

    /// What a pool's handles and the threads that use it share.
    struct Shared {
        shape: Shape,
        /// In all chunks.
        bytes: AtomicUsize,
        homes: Mutex<Homes>,
    }

    #[derive(Default)]
    struct Homes {
        all: Vec<NonNull<Home>>,
        /// Those that no thread has.
        idle: Vec<NonNull<Home>>,
    }

    // SAFETY: homes may be used by any thread, see there.
    unsafe impl Send for Homes {}

    impl Homes {
        /// One that no thread has, or a new one.
        fn get(&mut self, shared: &Arc<Shared>) -> NonNull<Home> {
            self.idle.pop().unwrap_or_else(|| {
                let own = Own {
                    free: Stack::new(),
                    bits: 0,
                    first: null_mut(),
                    groups: null_mut(),
                    chunks: Vec::new(),
                    objects: 0,
                    parcels: Vec::new(),
                    turn: 0,
                    filling: null_mut(),
                };
                let home = NonNull::from(Box::leak(Box::new(Home {
                    own: UnsafeCell::new(own),
                    parcels: CachePadded::new(Returns::new()),
                    loose: Returns::new(),
                    shared: Arc::downgrade(shared),
                })));
                self.all.push(home);
                home
            })
        }
    }

    /// A thread's part in a pool.
    struct Local {
        shared: Arc<Shared>,
        home: NonNull<Home>,
        /// The home of the others' objects that are to be sent.
        of: Cell<*const Home>,
        /// Those of the group that is at hand, and the one that was the first of them.
        group: Cell<*mut Group>,
        bits: Cell<u64>,
        only: Cell<*mut u8>,
        /// Those of other groups; null until there was one. How many words are in it, and how many groups with several objects.
        parcel: Cell<*mut Parcel>,
        count: Cell<usize>,
        runs: Cell<usize>,
    }

    thread_local! {
        /// Those of this thread.
        #[allow(clippy::vec_box)] // each stays where it is: `LAST` points to it
        static LOCALS: RefCell<Vec<Box<CachePadded<Local>>>> = const { RefCell::new(Vec::new()) };
        /// The one that was used last.
        static LAST: Cell<*const Local> = const { Cell::new(null()) };
    }

    impl Shared {
        /// The calling thread's part. `None`: the thread is ending.
        fn local(this: &Arc<Self>) -> Option<*const Local> {
            LOCALS
                .try_with(|locals| {
                    let mut locals = locals.borrow_mut();
                    let found = locals.iter().find(|local| Arc::ptr_eq(&local.shared, this));
                    let local: *const Local = match found {
                        Some(local) => &raw const ***local,
                        None => {
                            // Pools that have nothing but this thread's part are let go.
                            locals.retain(|local| {
                                let keep = Arc::strong_count(&local.shared) > 1;
                                if !keep {
                                    LAST.set(null());
                                }
                                keep
                            });
                            let home = this.homes.lock().get(this);
                            // SAFETY: the home is ours now.
                            let filling = unsafe { (*home.as_ref().own.get()).filling };
                            locals.push(Box::new(CachePadded::new(Local {
                                shared: this.clone(),
                                home,
                                of: Cell::new(null()),
                                group: Cell::new(null_mut()),
                                bits: Cell::new(0),
                                only: Cell::new(null_mut()),
                                parcel: Cell::new(filling),
                                count: Cell::new(0),
                                runs: Cell::new(0),
                            })));
                            &raw const ***locals.last().expect("just pushed")
                        }
                    };
                    LAST.set(local);
                    local
                })
                .ok()
        }
    }

    impl Home {
        /// A free object: one that was dropped here, one that has come home, or one of a new chunk.
        ///
        /// # Safety
        /// The home is the caller's, and the pool one of `T`.
        #[inline]
        unsafe fn take<T>(&self, shared: &Shared) -> *mut u8 {
            // SAFETY: the caller's.
            let own = unsafe { &mut *self.own.get() };
            if let Some(object) = own.free.pop() {
                return object;
            }
            if own.bits == 0 {
                // SAFETY: the caller's.
                let linked = unsafe { self.more(shared) };
                if !linked.is_null() {
                    return linked;
                }
            }
            let number = own.bits.trailing_zeros() as usize;
            own.bits &= own.bits - 1;
            // SAFETY: an object of the group.
            unsafe { own.first.add(number * Pool::<T>::SHAPE.size) }
        }

        /// When no bits are left: takes those of the next group, of what has come home or of a new chunk. Or the answer is an object that
        /// came linked.
        ///
        /// # Safety
        /// The home is the caller's.
        #[inline(never)]
        unsafe fn more(&self, shared: &Shared) -> *mut u8 {
            // SAFETY: the caller's.
            let own = unsafe { &mut *self.own.get() };
            if own.groups.is_null() {
                // SAFETY: as above.
                unsafe { self.fetch(own) };
                if let Some(object) = own.free.pop() {
                    return object;
                }
            }
            if own.groups.is_null() {
                self.add_chunk(own, shared);
            }
            // SAFETY: a group of this home's, and of this shape.
            unsafe {
                let group = own.groups;
                own.first = shared.shape.first_of(group);
                (own.bits, own.groups) = ((*group).bits, (*group).next);
                (*group).bits = 0;
            }
            null_mut()
        }

        /// Brings what has come home to the groups, and linked ones to the free objects.
        ///
        /// # Safety
        /// The home is the caller's.
        unsafe fn fetch(&self, own: &mut Own) {
            // SAFETY: what was taken is ours: links, and parcels until they are emptied. Groups are of this home's.
            unsafe {
                let mut parcel = self.parcels.take();
                while !parcel.is_null() {
                    let next = Returns::next(parcel);
                    (*parcel).empty(|words| {
                        for found in found(words) {
                            match found {
                                Found::Object(object) => own.free.push(object.cast()),
                                Found::Several(group, bits) => {
                                    if (*group).bits == 0 {
                                        (*group).next = own.groups;
                                        own.groups = group;
                                    }
                                    (*group).bits |= bits;
                                }
                            }
                        }
                    });
                    parcel = next;
                }
                let mut link = self.loose.take();
                while !link.is_null() {
                    own.free.push(link.cast());
                    link = Returns::next(link);
                }
            }
        }

        /// Takes memory, all of it free.
        #[cold]
        fn add_chunk(&self, own: &mut Own, shared: &Shared) {
            let shape = shared.shape;
            let (first, most) = if shape.paged { (1, MOST_BYTES / PAGE) } else { (FIRST, shape.most) };
            let count = own.chunks.last().map_or(first, |(_, count)| count * 2).min(most);
            let (layout, pages) = (shape.chunk(count), if shape.paged { count } else { 1 });
            let objects = if shape.paged { shape.most } else { count };
            if own.objects + pages * objects > own.free.room {
                own.free.reserve(own.objects + pages * objects);
            }
            // SAFETY: a layout that is not empty.
            let Some(chunk) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
            own.chunks.push((chunk, count));
            own.objects += pages * objects;
            shared.bytes.fetch_add(layout.size(), Ordering::Relaxed);
            // From the last to the first, which is then opened first.
            for page in (0..pages).rev() {
                // SAFETY: within the chunk, and aligned as its shape says.
                unsafe {
                    let block = chunk.as_ptr().add(page * PAGE).cast::<Block>();
                    block.write(Block { home: self, shared: self.shared.as_ptr() });
                    if !shape.paged {
                        for number in 0..objects {
                            let object = block.cast::<u8>().add(shape.first + number * shape.size);
                            object.cast::<*mut Block>().sub(1).write(block);
                        }
                    }
                    for at in (0..objects.div_ceil(GROUP)).rev() {
                        let (group, count) = (Shape::groups(block).add(at), (objects - at * GROUP).min(GROUP));
                        group.write(Group { bits: u64::MAX >> (GROUP - count), next: own.groups });
                        own.groups = group;
                    }
                }
            }
        }
    }

    impl Own {
        /// An empty parcel. Null: all are on their way, and they are enough; never the first time.
        fn parcel(&mut self, shared: &Shared) -> *mut Parcel {
            // A single one is that which is being filled: it is as empty as others.
            if self.parcels.len() > 1 {
                let parcel = self.parcels[self.turn];
                // SAFETY: parcels are freed with the pool.
                if unsafe { parcel.as_ref() }.is_empty() {
                    self.turn = (self.turn + 1) % self.parcels.len();
                    return parcel.as_ptr();
                }
            }
            let objects = shared.bytes.load(Ordering::Relaxed) / shared.shape.size;
            if self.parcels.len() > SPARE + objects / ROOM {
                return null_mut();
            }
            let parcel = NonNull::from(Box::leak(Box::new(Parcel::new())));
            self.parcels.insert(self.turn, parcel);
            self.turn = (self.turn + 1) % self.parcels.len();
            parcel.as_ptr()
        }

        /// Whether all objects are home, after a fetch.
        fn is_whole(&self) -> bool {
            let (mut count, mut group) = (self.free.len + self.bits.count_ones() as usize, self.groups);
            while !group.is_null() {
                // SAFETY: a group of this home's.
                let Group { bits, next } = unsafe { &*group };
                (count, group) = (count + bits.count_ones() as usize, *next);
            }
            count == self.objects
        }
    }

    impl Local {
        /// Takes an object back that this thread has dropped.
        ///
        /// # Safety
        /// The object is free and the caller's, and of this pool; its block.
        #[inline]
        unsafe fn give(&self, shape: Shape, block: *mut Block, object: *mut u8) {
            // SAFETY: the caller's, and our home.
            unsafe {
                let home = (*block).home;
                if home == self.home.as_ptr() {
                    (*self.home.as_ref().own.get()).free.push(object);
                    return;
                }
                let (group, bit) = shape.place(block, object);
                if group != self.group.get() {
                    self.turn_to(home, group, object);
                }
                self.bits.set(self.bits.get() | bit);
            }
        }

        /// What is given from here on is of this group of this home.
        #[inline(never)]
        fn turn_to(&self, home: *const Home, group: *mut Group, object: *mut u8) {
            if home != self.of.get() {
                self.send_home();
                self.of.set(home);
            } else if self.bits.get() != 0 {
                self.put();
                if self.runs.get() == self.shared.shape.runs || self.count.get() + 2 > ROOM {
                    self.send();
                }
            }
            self.group.set(group);
            self.only.set(object);
        }

        /// Puts what is at hand into the parcel, which has room for two words.
        #[inline]
        fn put(&self) {
            if self.parcel.get().is_null() {
                self.parcel.set(self.empty_parcel());
            }
            let (bits, count) = (self.bits.replace(0), self.count.get());
            // SAFETY: the parcel is ours.
            unsafe {
                let parcel = &*self.parcel.get();
                if bits & (bits - 1) == 0 {
                    parcel.put(count, self.only.get().cast());
                    self.count.set(count + 1);
                } else {
                    parcel.put(count, self.group.get().cast::<Link>().map_addr(|at| at + SEVERAL));
                    parcel.put(count + 1, without_provenance_mut(bits as usize));
                    self.count.set(count + 2);
                    self.runs.set(self.runs.get() + 1);
                }
            }
        }

        fn empty_parcel(&self) -> *mut Parcel {
            // SAFETY: our home.
            unsafe { (*self.home.as_ref().own.get()).parcel(&self.shared) }
        }

        /// Sends what is to be sent.
        fn send_home(&self) {
            if self.bits.get() != 0 {
                self.put();
            }
            if self.count.get() != 0 {
                self.send();
            }
        }

        /// Sends the parcel, or what is in it.
        fn send(&self) {
            let (parcel, count, runs) = (self.parcel.get(), self.count.replace(0), self.runs.replace(0));
            let other = if runs == 0 && count < FEW { null_mut() } else { self.empty_parcel() };
            // SAFETY: parcel and objects are ours; the objects' home stays while one is not home.
            unsafe {
                let home = &*self.of.get();
                if other.is_null() {
                    (*parcel).read(count, |words| self.send_linked(home, words));
                } else {
                    self.parcel.set(other);
                    (*parcel).seal(count);
                    home.parcels.push(parcel, parcel);
                }
            }
        }

        /// Links the objects to each other instead.
        ///
        /// # Safety
        /// They are the caller's, at least one, and of this home.
        #[cold]
        unsafe fn send_linked(&self, home: &Home, words: &[*mut Link]) {
            let (mut first, mut last) = (null_mut::<Link>(), null_mut::<Link>());
            // SAFETY: the caller's.
            let mut add = |link: *mut Link| unsafe {
                link.write(Link::new());
                (*link).set_next(first);
                first = link;
                if last.is_null() {
                    last = link;
                }
            };
            for found in found(words) {
                match found {
                    Found::Object(object) => add(object),
                    Found::Several(group, mut bits) => {
                        let shape = self.shared.shape;
                        while bits != 0 {
                            // SAFETY: an object of the group.
                            add(unsafe { shape.first_of(group).add(bits.trailing_zeros() as usize * shape.size) }
                                .cast());
                            bits &= bits - 1;
                        }
                    }
                }
            }
            // SAFETY: the caller's.
            unsafe { home.loose.push(first, last) };
        }
    }

    impl Drop for Local {
        fn drop(&mut self) {
            LAST.set(null());
            self.send_home();
            // SAFETY: our home.
            unsafe { (*self.home.as_ref().own.get()).filling = self.parcel.get() };
            self.shared.homes.lock().idle.push(self.home);
        }
    }

    impl Drop for Shared {
        fn drop(&mut self) {
            // No thread has a part in it: the homes are ours. First all, because parcels of one may be with another.
            let homes = self.homes.get_mut();
            for home in &homes.all {
                // SAFETY: as above.
                unsafe { home.as_ref().fetch(&mut *home.as_ref().own.get()) };
            }
            for home in homes.all.drain(..) {
                // SAFETY: as above. What is out keeps its home and all of its memory, for good; it comes linked, in no parcel.
                unsafe {
                    let own = &mut *home.as_ref().own.get();
                    for parcel in own.parcels.drain(..) {
                        drop(Box::from_raw(parcel.as_ptr()));
                    }
                    if own.is_whole() {
                        for (chunk, count) in own.chunks.drain(..) {
                            dealloc(chunk.as_ptr(), self.shape.chunk(count));
                        }
                        drop(Box::from_raw(home.as_ptr()));
                    }
                }
            }
        }
    }

    /// Makes objects whose memory goes back to the thread that made them. A clone is the same pool.
    ///
    /// The memory is freed when all handles are dropped, the threads that used the pool have ended or gone on to others, and all objects
    /// are home. The memory of a thread one of whose objects outlives that is not freed any more.
    pub struct Pool<T> {
        shared: Arc<Shared>,
        objects: PhantomData<fn() -> T>,
    }

    impl<T> Clone for Pool<T> {
        fn clone(&self) -> Self {
            Self { shared: self.shared.clone(), objects: self.objects }
        }
    }

    impl<T> Default for Pool<T> {
        fn default() -> Self {
            Self::new()
        }
    }

    impl<T> Pool<T> {
        const SHAPE: Shape = Shape::of::<T>();

        /// An empty one.
        pub fn new() -> Self {
            let shared = Shared { shape: Self::SHAPE, bytes: AtomicUsize::new(0), homes: Mutex::default() };
            Self { shared: Arc::new(shared), objects: PhantomData }
        }

        /// Makes an object.
        #[doc(alias("alloc", "get", "take", "insert"))]
        #[inline]
        pub fn make(&self, value: T) -> Pooled<T> {
            let mut local = LAST.get();
            // SAFETY: null or this thread's, which stays while it is the last one used.
            if local.is_null() || unsafe { !Arc::ptr_eq(&(*local).shared, &self.shared) } {
                local = match Shared::local(&self.shared) {
                    Some(local) => local,
                    None => return self.make_at_the_end(value),
                };
            }
            // SAFETY: as above; the home is this thread's; an object of this type.
            unsafe {
                let at = (*local).home.as_ref().take::<T>(&(*local).shared).cast::<T>();
                at.write(value);
                Pooled { at: NonNull::new_unchecked(at), owns: PhantomData }
            }
        }

        /// For a thread that is ending: with a home that it gives back at once.
        #[cold]
        fn make_at_the_end(&self, value: T) -> Pooled<T> {
            let mut homes = self.shared.homes.lock();
            let home = homes.get(&self.shared);
            // SAFETY: an idle home, under the lock; an object of this type.
            let pooled = unsafe {
                let at = home.as_ref().take::<T>(&self.shared).cast::<T>();
                at.write(value);
                Pooled { at: NonNull::new_unchecked(at), owns: PhantomData }
            };
            homes.idle.push(home);
            pooled
        }

        /// How much memory it has taken for objects, in bytes, whether objects are in it or not.
        pub fn memory(&self) -> usize {
            self.shared.bytes.load(Ordering::Relaxed)
        }
    }

    impl<T> fmt::Debug for Pool<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Pool").field("homes", &self.shared.homes.lock().all.len()).finish()
        }
    }

    /// An object of a [`Pool`]: owned, like a `Box`. Dropped, its memory goes home.
    pub struct Pooled<T> {
        at: NonNull<T>,
        owns: PhantomData<T>,
    }

    // SAFETY: it owns the value; the way home is made for any thread.
    unsafe impl<T: Send> Send for Pooled<T> {}
    // SAFETY: a shared one gives shared access to the value.
    unsafe impl<T: Sync> Sync for Pooled<T> {}

    impl<T> Pooled<T> {
        /// The value.
        pub fn into_inner(self) -> T {
            let this = std::mem::ManuallyDrop::new(self);
            // SAFETY: the value is ours, and is not used afterwards; so is the object.
            unsafe {
                let value = this.at.read();
                go_home(this.at);
                value
            }
        }
    }

    /// # Safety
    /// The object is the caller's, and its value is gone.
    #[inline]
    unsafe fn go_home<T>(at: NonNull<T>) {
        let (shape, object) = (Pool::<T>::SHAPE, at.as_ptr().cast::<u8>());
        // SAFETY: the caller's. What is read are lines that nobody writes to, but for a large object's, before which its block's address is.
        unsafe {
            let block = shape.block_of(object);
            let local = LAST.get();
            // A part of another pool would do too, but would go the slow way. It stays while it is the last one used.
            if !local.is_null() && (*block).home == (*local).home.as_ptr() {
                (*(*local).home.as_ref().own.get()).free.push(object);
            } else if !local.is_null() && std::ptr::eq((*block).shared, Arc::as_ptr(&(*local).shared)) {
                (*local).give(shape, block, object);
            } else {
                go_home_slowly(shape, block, object);
            }
        }
    }

    #[cold]
    unsafe fn go_home_slowly(shape: Shape, block: *mut Block, object: *mut u8) {
        // SAFETY: the caller's.
        unsafe {
            let home = (*block).home;
            let shared = (*home).shared.upgrade();
            match shared.as_ref().and_then(Shared::local) {
                Some(local) => (*local).give(shape, block, object),
                // The pool is gone, or the thread is going.
                None => {
                    let link = object.cast::<Link>();
                    link.write(Link::new());
                    (*home).loose.push(link, link);
                }
            }
        }
    }

    impl<T> Drop for Pooled<T> {
        #[inline]
        fn drop(&mut self) {
            /// Also when the value's drop panics.
            struct Back<T>(NonNull<T>);
            impl<T> Drop for Back<T> {
                #[inline]
                fn drop(&mut self) {
                    // SAFETY: the value is gone.
                    unsafe { go_home(self.0) };
                }
            }
            let back = Back(self.at);
            // SAFETY: the value is ours.
            unsafe { back.0.drop_in_place() };
        }
    }

    impl<T> Deref for Pooled<T> {
        type Target = T;
        #[inline]
        fn deref(&self) -> &T {
            // SAFETY: the value is ours.
            unsafe { self.at.as_ref() }
        }
    }

    impl<T> DerefMut for Pooled<T> {
        #[inline]
        fn deref_mut(&mut self) -> &mut T {
            // SAFETY: the value is ours.
            unsafe { self.at.as_mut() }
        }
    }

    impl<T: fmt::Debug> fmt::Debug for Pooled<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            (**self).fmt(f)
        }
    }
}
