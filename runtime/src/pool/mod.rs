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
//! objects of a pool has a *home*: memory in chunks, and addresses of free objects that only it touches. The home of a small object is
//! found from its address. Dropped by its maker, it is free there. Dropped by another thread, its address goes into a parcel of
//! objects of the same home, and the parcel, once it has [`BATCH`] addresses, or when the thread drops one of another home or ends, is
//! pushed to the home with one atomic exchange. So a stranger's drop writes nothing to the object's line, which may be in
//! the maker's cache. The maker takes all that has come home when it has nothing free, before it takes more memory.
//!
//! So memory is bounded by the most objects that were out at a time, plus [`BATCH`] for each thread that drops others'. The homes
//! of threads that have ended, with what is or comes home there, go to threads that begin.
//!
//! Making and dropping never blocks, but for the lock of the list of homes the first time a thread uses a pool and when it ends.
//! User threads, kernel threads and threads that know nothing of Heddle are alike.

mod returns;

#[cfg(not(loom))]
pub use with_threads::{BATCH, Pool, Pooled};

#[cfg(not(loom))]
mod with_threads {
    use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
    use std::cell::{Cell, RefCell, UnsafeCell};
    use std::fmt;
    use std::marker::PhantomData;
    use std::ops::{Deref, DerefMut};
    use std::ptr::{NonNull, null, null_mut};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Weak};

    use super::returns::{Link, Parcel, Returns};
    use crate::shard::CachePadded;
    use crate::sync::Mutex;

    /// How many objects go home at once.
    pub const BATCH: usize = super::returns::ROOM;
    /// Fewer than so many are linked to each other instead: a parcel of a few addresses would be dearer than the objects.
    const FEW: usize = 8;
    /// Parcels that a thread may have on their way besides those that hold as many objects as its pool has.
    const SPARE: usize = 8;
    /// What a home's address stands at the beginning of, if its objects are small.
    const PAGE: usize = 4096;
    /// Objects larger than this, or aligned to more, have their home's address before them.
    const SMALL: usize = 512;
    /// Large objects of a home's first chunk. Each further chunk has twice as many as the one before, up to about so many bytes.
    const FIRST: usize = 32;
    const MOST_BYTES: usize = 256 * 1024;

    /// How objects of a type lie in a chunk.
    #[derive(Clone, Copy)]
    struct Shape {
        /// In pages that begin with their home's address; else the address is in the word before each object.
        paged: bool,
        /// Where the first object of a page, or a large object in its slot, begins.
        first: usize,
        size: usize,
        align: usize,
    }

    impl Shape {
        const fn of<T>() -> Self {
            let align = if align_of::<T>() > align_of::<Link>() { align_of::<T>() } else { align_of::<Link>() };
            let paged = size_of::<T>() <= SMALL && align <= SMALL;
            let content = if size_of::<T>() > size_of::<Link>() { size_of::<T>() } else { size_of::<Link>() };
            // `align` is at least a word, which is what the home's address needs.
            let size = (if paged { content } else { align + content }).next_multiple_of(align);
            Self { paged, first: align, size, align }
        }

        /// Objects of a page.
        fn in_page(self) -> usize {
            (PAGE - self.first) / self.size
        }

        /// A chunk of so many pages, or of so many large objects.
        fn chunk(self, count: usize) -> Layout {
            let (each, align) = if self.paged { (PAGE, PAGE) } else { (self.size, self.align) };
            match each.checked_mul(count).map(|size| Layout::from_size_align(size, align)) {
                Some(Ok(layout)) => layout,
                _ => panic!("objects too large for a pool"),
            }
        }

        /// How many objects are in such a chunk.
        fn objects(self, count: usize) -> usize {
            if self.paged { count * self.in_page() } else { count }
        }
    }

    /// Where a thread's objects come from. It is never freed before all of them are home.
    struct Home {
        own: UnsafeCell<Own>,
        /// Addresses of objects that others have dropped.
        parcels: CachePadded<Returns<Parcel>>,
        /// Objects that others have dropped, linked.
        loose: Returns<Link>,
        shared: Weak<Shared>,
    }

    /// What only the thread that has the home touches.
    struct Own {
        /// The free objects. Not a list through them: who dropped them may have their lines. Room for all of them.
        free: Vec<*mut Link>,
        chunks: Vec<(NonNull<u8>, usize)>,
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
                let own =
                    Own { free: Vec::new(), chunks: Vec::new(), parcels: Vec::new(), turn: 0, filling: null_mut() };
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
        /// Their addresses; null until there was one.
        parcel: Cell<*mut Parcel>,
        count: Cell<usize>,
    }

    thread_local! {
        /// Those of this thread.
        #[allow(clippy::vec_box)] // each stays where it is: `LAST` points to it
        static LOCALS: RefCell<Vec<Box<Local>>> = const { RefCell::new(Vec::new()) };
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
                        Some(local) => &raw const **local,
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
                            locals.push(Box::new(Local {
                                shared: this.clone(),
                                home,
                                of: Cell::new(null()),
                                parcel: Cell::new(filling),
                                count: Cell::new(0),
                            }));
                            &raw const **locals.last().expect("just pushed")
                        }
                    };
                    LAST.set(local);
                    local
                })
                .ok()
        }
    }

    impl Home {
        /// A free object: one of those at hand, of those that have come home, or of a new chunk.
        ///
        /// # Safety
        /// The home is the caller's.
        #[inline]
        unsafe fn take(&self, shared: &Shared) -> *mut Link {
            // SAFETY: the caller's.
            unsafe {
                match (*self.own.get()).free.pop() {
                    Some(link) => link,
                    None => self.more(shared),
                }
            }
        }

        #[cold]
        unsafe fn more(&self, shared: &Shared) -> *mut Link {
            // SAFETY: the caller's.
            let own = unsafe { &mut *self.own.get() };
            // SAFETY: as above.
            unsafe { self.fetch(own) };
            if let Some(link) = own.free.pop() {
                return link;
            }
            let shape = shared.shape;
            let (first, most) = if shape.paged { (1, MOST_BYTES / PAGE) } else { (FIRST, MOST_BYTES / shape.size) };
            let count = own.chunks.last().map_or(first, |(_, count)| count * 2).min(most.max(1));
            let (layout, objects) = (shape.chunk(count), shape.objects(count));
            let all: usize = own.chunks.iter().map(|(_, count)| shape.objects(*count)).sum();
            own.free.reserve(all + objects);
            // SAFETY: a layout that is not empty.
            let Some(chunk) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
            own.chunks.push((chunk, count));
            shared.bytes.fetch_add(layout.size(), Ordering::Relaxed);
            // From the last to the first, which is then taken first.
            for at in (0..count).rev() {
                // SAFETY: within the chunk, and aligned as its shape says.
                unsafe {
                    if shape.paged {
                        let page = chunk.add(at * PAGE);
                        page.cast::<*const Home>().write(self);
                        let object = |n| page.add(shape.first + n * shape.size).cast().as_ptr();
                        own.free.extend((0..shape.in_page()).rev().map(object));
                    } else {
                        let object = chunk.add(at * shape.size + shape.first);
                        object.cast::<*const Home>().sub(1).write(self);
                        own.free.push(object.cast().as_ptr());
                    }
                }
            }
            own.free.pop().expect("a chunk has objects")
        }

        /// Brings what has come home to the free objects.
        unsafe fn fetch(&self, own: &mut Own) {
            // SAFETY: what was taken is ours: links, and parcels until they are emptied.
            unsafe {
                let mut parcel = self.parcels.take();
                while !parcel.is_null() {
                    let next = Returns::next(parcel);
                    (*parcel).empty(|objects| own.free.extend_from_slice(objects));
                    parcel = next;
                }
                let mut link = self.loose.take();
                while !link.is_null() {
                    own.free.push(link);
                    link = Returns::next(link);
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
            if self.parcels.len() > SPARE + objects / BATCH {
                return null_mut();
            }
            let parcel = NonNull::from(Box::leak(Box::new(Parcel::new())));
            self.parcels.insert(self.turn, parcel);
            self.turn = (self.turn + 1) % self.parcels.len();
            parcel.as_ptr()
        }
    }

    impl Local {
        /// Takes an object back that this thread has dropped.
        ///
        /// # Safety
        /// The object is free and the caller's.
        #[inline]
        unsafe fn give(&self, home: *const Home, link: *mut Link) {
            // SAFETY: the caller's, and our home.
            unsafe {
                if home == self.home.as_ptr() {
                    (*self.home.as_ref().own.get()).free.push(link);
                    return;
                }
                if home != self.of.get() || self.count.get() == BATCH {
                    self.start(home);
                }
                let count = self.count.get();
                (*self.parcel.get()).put(count, link);
                self.count.set(count + 1);
                if count + 1 == BATCH {
                    self.send_home();
                }
            }
        }

        /// The parcel goes on with objects of this home.
        #[cold]
        fn start(&self, home: *const Home) {
            self.send_home();
            self.of.set(home);
            if self.parcel.get().is_null() {
                self.parcel.set(self.empty_parcel());
            }
        }

        fn empty_parcel(&self) -> *mut Parcel {
            // SAFETY: our home.
            unsafe { (*self.home.as_ref().own.get()).parcel(&self.shared) }
        }

        /// Sends the parcel, or what is in it.
        fn send_home(&self) {
            let (parcel, count) = (self.parcel.get(), self.count.replace(0));
            if count == 0 {
                return;
            }
            let other = if count < FEW { null_mut() } else { self.empty_parcel() };
            // SAFETY: parcel and objects are ours; the objects' home stays while one is not home.
            unsafe {
                let home = &*self.of.get();
                if other.is_null() {
                    let (first, last) = (*parcel).chain(count);
                    home.loose.push(first, last);
                } else {
                    self.parcel.set(other);
                    (*parcel).seal(count);
                    home.parcels.push(parcel, parcel);
                }
            }
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
                    if own.free.len() == own.chunks.iter().map(|(_, count)| self.shape.objects(*count)).sum::<usize>() {
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
                let at = (*local).home.as_ref().take(&(*local).shared).cast::<T>();
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
                let at = home.as_ref().take(&self.shared).cast::<T>();
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
        let link = at.as_ptr().cast::<Link>();
        // SAFETY: the caller's. A small object's page begins with the home's address, so its own line is not touched; else that
        // is the word before it.
        unsafe {
            let home = if Pool::<T>::SHAPE.paged {
                *link.map_addr(|at| at & !(PAGE - 1)).cast::<*const Home>()
            } else {
                *link.cast::<*const Home>().sub(1)
            };
            let local = LAST.get();
            // A part of another pool would do too, but would go the slow way. It stays while it is the last one used.
            if !local.is_null() && std::ptr::eq((*home).shared.as_ptr(), Arc::as_ptr(&(*local).shared)) {
                (*local).give(home, link);
            } else {
                go_home_slowly(home, link);
            }
        }
    }

    #[cold]
    unsafe fn go_home_slowly(home: *const Home, link: *mut Link) {
        // SAFETY: the caller's.
        unsafe {
            let shared = (*home).shared.upgrade();
            match shared.as_ref().and_then(Shared::local) {
                Some(local) => (*local).give(home, link),
                // The pool is gone, or the thread is going.
                None => (*home).loose.push(link, link),
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
