//! Start-up, the functions that the stub calls, and the threads' beginnings and ends.
//!
//! # Safety
//!
//! What `unsafe` rests on here: the tables are mapped once, before anything reads their pointers, and are never unmapped;
//! `RUNNING` is static; the thread-local word is null, `UNWATCHED` or the address of an entry of `RUNNING`.

use core::arch::{asm, global_asm, naked_asm};
use core::ffi::{CStr, c_int, c_void};
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

use crate::layout::{
    MAGIC, MAX_MODULES, MAX_SITES, MAX_THREADS, MODULE_WORDS, MODULES_AT, SITE_PCS, SITE_WORDS, SITES_AT, THREAD_WORDS,
    THREADS_AT, VARIABLE, VERSION, WORDS, header,
};
use crate::shadow::{After, FILTER_LINES, Shadow};
use crate::thread::{MAX_RUNNING, Thread};
use crate::{alloc, sys};

// The running thread's entry. Written out, because it must be in static TLS: the compiler's own way is a call.
global_asm!(
    ".pushsection .tbss.heddle_sharing,\"awT\",@nobits",
    ".globl heddle_sharing_self",
    ".hidden heddle_sharing_self",
    ".type heddle_sharing_self,@object",
    ".size heddle_sharing_self,8",
    ".p2align 3",
    "heddle_sharing_self: .zero 8",
    ".popsection",
);

/// A thread that is not watched: too many run at once, or it is ending.
const UNWATCHED: usize = 1;

/// The running threads.
static RUNNING: [Thread; MAX_RUNNING] = [const { Thread::new() }; MAX_RUNNING];
/// How many of them are in use.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Pauses so far.
static PAUSES: AtomicUsize = AtomicUsize::new(0);
/// An entry that was free a moment ago.
static FREE: AtomicUsize = AtomicUsize::new(0);
static FILTER: AtomicPtr<[AtomicU64; FILTER_LINES]> = AtomicPtr::new(ptr::null_mut());
static FILE: AtomicPtr<[AtomicU64; WORDS]> = AtomicPtr::new(ptr::null_mut());
static STARTED: AtomicBool = AtomicBool::new(false);
static KEY: AtomicU32 = AtomicU32::new(0);

/// The tables; `None` before they are there, and in processes that are not watched.
#[inline(always)]
pub fn shadow() -> Option<Shadow> {
    // Acquire: the tables are set up. pairs: sharing.tables
    let filter = FILTER.load(Acquire);
    // SAFETY: null or the mapping, which stays.
    let filter = unsafe { filter.as_ref() }?;
    // SAFETY: set before FILTER was.
    let file = unsafe { FILE.load(Relaxed).as_ref() }?;
    Some(Shadow::new(filter, file, &RUNNING, alloc::objects))
}

fn own_word() -> usize {
    let value: usize;
    // SAFETY: reads the thread-local word; the loader has room for it, since the library is loaded at start.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + heddle_sharing_self@GOTTPOFF]",
            "mov {0}, qword ptr fs:[{0}]",
            out(reg) value,
            options(nostack, preserves_flags, readonly)
        );
    }
    value
}

fn set_own_word(value: usize) {
    // SAFETY: writes the thread-local word, which nothing but this module knows.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + heddle_sharing_self@GOTTPOFF]",
            "mov qword ptr fs:[{0}], {1}",
            out(reg) _,
            in(reg) value,
            options(nostack, preserves_flags)
        );
    }
}

/// The calling thread's entry; made now if it has none. `None` if it is not watched.
#[inline(always)]
pub fn me(shadow: &Shadow) -> Option<&'static Thread> {
    match own_word() {
        0 => adopt(shadow),
        UNWATCHED => None,
        // SAFETY: an entry of RUNNING.
        address => Some(unsafe { &*(address as *const Thread) }),
    }
}

/// An entry for a new thread.
fn claim(shadow: &Shadow) -> Option<&'static Thread> {
    let first = FREE.load(Relaxed);
    let free = |place: &usize| {
        let serial = &RUNNING[*place].serial;
        serial.load(Relaxed) == 0 && serial.compare_exchange(0, usize::MAX, Relaxed, Relaxed).is_ok()
    };
    let Some(place) = (first..MAX_RUNNING).chain(0..first.min(MAX_RUNNING)).find(free) else {
        shadow.word(header::MISSED_THREADS).fetch_add(1, Relaxed);
        return None;
    };
    FREE.store(place + 1, Relaxed);
    COUNT.fetch_add(1, Relaxed);
    RUNNING[place].prepare(place, shadow.word(header::THREADS).fetch_add(1, Relaxed) as usize);
    Some(&RUNNING[place])
}

/// Gives an entry back.
fn release(thread: &Thread) {
    thread.stack_end.store(0, Relaxed);
    FREE.fetch_min(thread.place.load(Relaxed) - 1, Relaxed);
    COUNT.fetch_sub(1, Relaxed);
    thread.serial.store(0, Relaxed);
}

/// The calling thread was made by somebody whose `pthread_create` was not seen, or is the first.
#[cold]
fn adopt(shadow: &Shadow) -> Option<&'static Thread> {
    set_own_word(UNWATCHED);
    let thread = claim(shadow)?;
    settle(thread);
    Some(thread)
}

/// The calling thread takes its entry.
fn settle(thread: &'static Thread) {
    // What follows allocates, and must not come here again.
    set_own_word(UNWATCHED);
    let mut attr = [0; 8];
    let (mut at, mut size) = (0, 0);
    // SAFETY: `attr` has the size and alignment of a pthread_attr_t; the others are plain words.
    unsafe {
        if sys::pthread_getattr_np(sys::pthread_self(), &raw mut attr) == 0 {
            sys::pthread_attr_getstack(&raw const attr, &raw mut at, &raw mut size);
            sys::pthread_attr_destroy(&raw mut attr);
        }
        sys::pthread_setspecific(KEY.load(Relaxed), ptr::from_ref(thread).cast());
    }
    thread.stack.store(at, Relaxed);
    thread.stack_end.store(at + size, Relaxed);
    set_own_word(ptr::from_ref(thread) as usize);
}

/// The thread ends: the C library calls this with what `settle` left.
extern "C" fn end(thread: *mut c_void) {
    set_own_word(UNWATCHED);
    // SAFETY: `settle` left an entry of RUNNING.
    let thread = unsafe { &*thread.cast::<Thread>() };
    if let Some(shadow) = shadow() {
        shadow.word(header::ACCESSES).fetch_add(thread.since_pause() as u64, Relaxed);
    }
    release(thread);
}

/// What `pthread_create` starts: takes the entry, then is the start function. No frame of ours stays, because
/// cancellation unwinds through all frames there are.
#[unsafe(naked)]
extern "C" fn begin(_thread: *mut c_void) -> *mut c_void {
    naked_asm!(
        "push rdi",
        "call {settle}",
        "pop rdi",
        "mov rax, [rdi]",
        "mov rdi, [rdi + 8]",
        "jmp rax",
        settle = sym begin_settled,
    )
}

extern "C" fn begin_settled(thread: &'static Thread) {
    settle(thread);
}

/// `pthread_create`; passes its caller's address on as a fifth argument.
///
/// # Safety
///
/// As its manual says.
#[unsafe(naked)]
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_create(_: *mut usize, _: *const c_void, _: usize, _: usize) -> c_int {
    naked_asm!("mov r8, [rsp]", "jmp {}", sym create)
}

type Create = unsafe extern "C" fn(*mut usize, *const c_void, usize, usize) -> c_int;

extern "C" fn create(id: *mut usize, attr: *const c_void, start: usize, argument: usize, caller: usize) -> c_int {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    if REAL.load(Relaxed) == 0 {
        // SAFETY: a NUL-terminated name.
        REAL.store(unsafe { sys::dlsym(sys::NEXT, c"pthread_create".as_ptr()) } as usize, Relaxed);
    }
    // SAFETY: the C library has a function of this name and type.
    let real: Create = unsafe { transmute(REAL.load(Relaxed)) };
    let thread = shadow().and_then(|shadow| {
        let thread = claim(&shadow)?;
        thread.start.store(start, Relaxed);
        thread.argument.store(argument, Relaxed);
        let number = thread.serial.load(Relaxed) - 1;
        if number < MAX_THREADS {
            let at = THREADS_AT + number * THREAD_WORDS;
            shadow.word(at).store(site(&shadow, me(&shadow), caller), Relaxed);
            shadow.word(at + 1).store(start as u64, Relaxed);
        }
        Some(thread)
    });
    // SAFETY: the caller's own arguments, or `begin` with an entry that holds them.
    let result = unsafe {
        match thread {
            Some(thread) => real(id, attr, begin as *const () as usize, ptr::from_ref(thread) as usize),
            None => real(id, attr, start, argument),
        }
    };
    if let (Some(thread), true) = (thread, result != 0) {
        release(thread);
    }
    result
}

/// The site of a call from `caller`, with the functions around it: its number plus 1, or 0.
pub fn site(shadow: &Shadow, me: Option<&Thread>, caller: usize) -> u64 {
    let mut path = [0_u64; SITE_PCS];
    path[0] = caller as u64;
    for (to, from) in path[1..].iter_mut().zip(me.into_iter().flat_map(Thread::path)) {
        *to = from as u64;
    }
    let hash = path.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &pc| (hash ^ pc).wrapping_mul(0x0100_0000_01b3));
    let hash = (hash ^ hash >> 29) | 1;
    for i in 0..64 {
        let number = (hash as usize + i) % MAX_SITES;
        let at = SITES_AT + number * SITE_WORDS;
        match shadow.word(at).compare_exchange(0, hash, Relaxed, Relaxed) {
            Ok(_) => {
                shadow.word(header::SITES).fetch_add(1, Relaxed);
                for (i, pc) in path.into_iter().enumerate() {
                    shadow.word(at + 1 + i).store(pc, Relaxed);
                }
            }
            Err(other) if other != hash => continue,
            Err(_) => {}
        }
        return number as u64 + 1;
    }
    0
}

/// The stub's `hook_access`.
extern "C" fn access(address: usize, size: usize, caller: usize, flags: u32) {
    let Some(shadow) = shadow() else { return };
    let Some(me) = me(&shadow) else { return };
    let after = shadow.access(me, address, size, caller, flags);
    if after != After::Nothing {
        make_room(after);
    }
}

/// How long a thread pauses (us): long enough for others to get a CPU even on a busy machine.
const PAUSE: u32 = 2000;
/// All threads together pause so long so many times; later ones are as short as a `NAP`, so that a program with very many
/// threads is not slowed down.
const LONG_PAUSES: usize = 500;
/// The shortest sleep (us).
const NAP: u32 = 100;

/// Lets other threads run.
#[cold]
fn make_room(after: After) {
    if COUNT.load(Relaxed) < 2 {
        return;
    }
    // SAFETY: neither function takes pointers; errno is the program's, so it is put back.
    unsafe {
        let errno = sys::__errno_location();
        let before = *errno;
        match after {
            After::Pause if PAUSES.fetch_add(1, Relaxed) < LONG_PAUSES => sys::usleep(PAUSE),
            _ => sys::usleep(NAP),
        };
        *errno = before;
    }
}

/// The stub's `hook_entry`.
extern "C" fn enter(caller: usize) {
    let sp: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags)) };
    let Some(shadow) = shadow() else { return };
    if let Some(me) = me(&shadow) {
        me.enter(caller, sp);
    }
}

/// The stub's `hook_exit`.
extern "C" fn leave() {
    if own_word() > UNWATCHED {
        // SAFETY: an entry of RUNNING.
        unsafe { &*(own_word() as *const Thread) }.leave();
    }
}

/// The stub's table.
#[repr(C)]
pub struct Table {
    access: AtomicUsize,
    enter: AtomicUsize,
    leave: AtomicUsize,
}

/// A module's stub has found this library.
///
/// # Safety
///
/// `table` is the table of a stub of `version`.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn heddle_sharing_attach(table: *const Table, version: u32) {
    start();
    let Some(shadow) = shadow() else { return };
    if version != VERSION {
        shadow.word(header::FOREIGN).fetch_add(1, Relaxed);
        return;
    }
    // SAFETY: of this version, so it has this layout.
    let table = unsafe { &*table };
    table.enter.store(enter as *const () as usize, Relaxed);
    table.leave.store(leave as *const () as usize, Relaxed);
    table.access.store(access as *const () as usize, Relaxed);
    shadow.word(header::ATTACHED).fetch_add(1, Relaxed);
    // SAFETY: the callback has the type that the C library calls, and looks at what it is given during the call.
    unsafe { sys::dl_iterate_phdr(list_module, ptr::null_mut()) };
}

/// Writes a module to the file, unless it is there.
extern "C" fn list_module(module: *const sys::Module, _: usize, _: *mut c_void) -> c_int {
    let Some(shadow) = shadow() else { return 1 };
    // SAFETY: the loader's description, valid during the call.
    let module = unsafe { &*module };
    // SAFETY: its segments.
    let segments = unsafe { core::slice::from_raw_parts(module.segments, module.count.into()) };
    let loaded = segments.iter().filter(|segment| segment.kind == 1);
    let end = loaded.map(|segment| module.base as u64 + segment.address + segment.size).max().unwrap_or(0);
    let used = (shadow.word(header::MODULES).load(Relaxed) as usize).min(MAX_MODULES);
    let at = |number: usize| MODULES_AT + number * MODULE_WORDS;
    let known = |number: usize| {
        shadow.word(at(number)).load(Relaxed) == module.base as u64 && shadow.word(at(number) + 1).load(Relaxed) == end
    };
    if used == MAX_MODULES || (0..used).any(known) {
        return 0;
    }
    let mut path = [0_u8; (MODULE_WORDS - 2) * 8];
    // SAFETY: a NUL-terminated name.
    let name = unsafe { CStr::from_ptr(module.name) }.to_bytes();
    if name.is_empty() {
        // SAFETY: the buffer is as long as said; its last byte stays 0.
        unsafe { sys::readlink(c"/proc/self/exe".as_ptr(), path.as_mut_ptr().cast(), path.len() - 1) };
    } else {
        let length = name.len().min(path.len() - 1);
        path[..length].copy_from_slice(&name[..length]);
    }
    for (i, bytes) in path.as_chunks::<8>().0.iter().enumerate() {
        shadow.word(at(used) + 2 + i).store(u64::from_le_bytes(*bytes), Relaxed);
    }
    shadow.word(at(used)).store(module.base as u64, Relaxed);
    shadow.word(at(used) + 1).store(end, Relaxed);
    shadow.word(header::MODULES).store(used as u64 + 1, Relaxed);
    0
}

/// A child made by `fork`: it has the parent's addresses but not its memory.
extern "C" fn forked() {
    if let Some(shadow) = shadow() {
        shadow.word(header::FORKS).fetch_add(1, Relaxed);
    }
    FILTER.store(ptr::null_mut(), Relaxed);
}

#[cfg(feature = "export")]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

/// Sets everything up, once: the library's constructor, or the first stub if that comes before.
extern "C" fn start() {
    if STARTED.swap(true, Relaxed) {
        return;
    }
    alloc::resolve();
    // SAFETY: NUL-terminated names; the process has one thread so early, so nobody changes the environment meanwhile.
    let descriptor = unsafe {
        let value = sys::getenv(VARIABLE.as_ptr());
        if value.is_null() {
            return;
        }
        let value = CStr::from_ptr(value).to_bytes();
        let number =
            value.iter().fold(0, |number: c_int, b| number.wrapping_mul(10) + c_int::from(b.wrapping_sub(b'0')));
        sys::unsetenv(VARIABLE.as_ptr());
        take_out_of_preload();
        number
    };
    let file = sys::map(WORDS * 8, Some(descriptor));
    // SAFETY: the descriptor was made for this library alone.
    unsafe { sys::close(descriptor) };
    let Some(file) = file.map(|at| at.cast::<[AtomicU64; WORDS]>()) else { return };
    // SAFETY: mapped just now, and as long as said.
    if unsafe { &*file }[header::MAGIC].load(Relaxed) != MAGIC || !alloc::set_up() {
        return;
    }
    let Some(filter) = sys::map(FILTER_LINES * 8, None) else { return };
    let mut key = 0;
    // SAFETY: `end` has the type that the C library calls; so has `forked`.
    unsafe {
        if sys::pthread_key_create(&raw mut key, end) != 0 {
            return;
        }
        sys::pthread_atfork(None, None, Some(forked));
    }
    KEY.store(key, Relaxed);
    FILE.store(file, Relaxed);
    // Release: the tables are set up. pairs: sharing.tables
    FILTER.store(filter.cast(), Release);
    if let Some(shadow) = shadow() {
        me(&shadow);
    }
}

/// Takes this library, which is the first, out of LD_PRELOAD: it is for this program and not for those it starts.
///
/// # Safety
///
/// Nobody else uses the environment meanwhile.
unsafe fn take_out_of_preload() {
    const NAME: &[u8] = b"LD_PRELOAD=";
    // SAFETY: `environ` ends with a null pointer and holds NUL-terminated strings, which may be written to.
    unsafe {
        let mut variable = sys::environ;
        while !variable.is_null() && !(*variable).is_null() {
            let text = (*variable).cast::<u8>();
            let length = CStr::from_ptr(text.cast()).count_bytes();
            let bytes = core::slice::from_raw_parts(text, length);
            if let Some(value) = bytes.strip_prefix(NAME) {
                match value.iter().position(|&b| b == b':') {
                    Some(end) => ptr::copy(text.add(NAME.len() + end + 1), text.add(NAME.len()), value.len() - end),
                    None => {
                        sys::unsetenv(c"LD_PRELOAD".as_ptr());
                    }
                }
                return;
            }
            variable = variable.add(1);
        }
    }
}
