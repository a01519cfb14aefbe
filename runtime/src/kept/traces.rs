//! What a function leaves behind in its thread: thread-locals of whatever library, and what libc keeps for the thread
//! (thread-specific data, cancellation, the list of destructors). A thread is given another function only if there is
//! nothing: all of that is compared with a copy made before the first.
//!
//! Where it lies: each loaded object's block of thread-locals (`dl_iterate_phdr`), and libc's control block, whose size and
//! one field that changes by itself (the list of all threads) libc describes for debuggers (`_thread_db_*`). Without that
//! description no thread is kept. The other one is the area that the kernel keeps up to date for restartable sequences
//! (`__rseq_offset`): which CPU the thread is on.
//!
//! Most of it, 2.6 KiB in a small program, is 0 and is looked at without a copy that it is compared with: half as much to
//! read for each thread, and all of it is to stay in the cache while threads take turns.
//!
//! # Safety
//! Reads the calling thread's own memory.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

/// What there is to know about libc's control block.
#[derive(Clone, Copy)]
struct Block {
    size: usize,
    /// Of the list of all threads.
    list: usize,
    list_size: usize,
    /// Of the pointer to the vector of blocks of thread-locals.
    vector: usize,
    /// The size of its entries.
    entry: usize,
    /// From the thread pointer, as that counts: where the kernel writes which CPU the thread runs on.
    kernels: Option<isize>,
}

/// Bytes of the area for restartable sequences: what libc registers has had this size since there is one.
const KERNELS: usize = 32;

/// A field, as libc describes it: bits, how many, where (bytes).
type Field = [u32; 3];

fn described<T: Copy>(name: &CStr) -> Option<T> {
    // SAFETY: a name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: libc's description, constant.
    (!found.is_null()).then(|| unsafe { *found.cast::<T>() })
}

fn block() -> Option<Block> {
    static BLOCK: OnceLock<Option<Block>> = OnceLock::new();
    *BLOCK.get_or_init(|| {
        let size = described::<u32>(c"_thread_db_sizeof_pthread")? as usize;
        let [bits, _, list] = described::<Field>(c"_thread_db_pthread_list")?;
        let [_, _, vector] = described::<Field>(c"_thread_db_pthread_dtvp")?;
        let [entry, ..] = described::<Field>(c"_thread_db_dtv_dtv")?;
        let (list, list_size) = (list as usize, bits as usize / 8);
        let kernels = described::<isize>(c"__rseq_offset");
        let block = Block { size, list, list_size, vector: vector as usize, entry: entry as usize / 8, kernels };
        let plausible = list_size != 0 && list + list_size <= size && block.vector + 8 <= size && block.entry >= 8;
        plausible.then_some(block)
    })
}

/// See the module.
pub struct Traces {
    lines: Lines,
    differ: unsafe fn(&Lines) -> bool,
    generation: u32,
    errno: *mut c_int,
}

/// What `dl_iterate_phdr` tells.
#[derive(Default)]
struct Found {
    areas: Vec<(usize, usize)>,
    modules: usize,
}

unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: the loader's record, and ours.
    let (info, found) = unsafe { (&*info, &mut *found.cast::<Found>()) };
    found.modules = found.modules.max(info.dlpi_tls_modid);
    // SAFETY: the object's headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    if let Some(tls) = headers.iter().find(|h| h.p_type == libc::PT_TLS)
        && !info.dlpi_tls_data.is_null()
    {
        found.areas.push((info.dlpi_tls_data as usize, tls.p_memsz as usize));
    }
    0
}

fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: the first word of the control block is its own address.
    unsafe { std::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags)) };
    pointer
}

impl Traces {
    /// The calling thread as it is now. `None`: it cannot be known.
    pub fn now(generation: u32) -> Option<Self> {
        let block = block()?;
        let mut found = Found::default();
        // SAFETY: the callback fits; the record outlives the call. `free` of a first allocation: libc makes the thread's
        // cache, which is to stay.
        let errno = unsafe {
            libc::free(libc::malloc(1));
            libc::dl_iterate_phdr(Some(note), (&raw mut found).cast());
            libc::__errno_location()
        };
        let mut areas = found.areas;
        let pointer = thread_pointer();
        areas.push((pointer, block.size));
        // SAFETY: a field of the control block; the vector has an entry for each module, and one before.
        unsafe {
            let vector = ((pointer + block.vector) as *const usize).read();
            let entries = (vector as *const usize).byte_sub(block.entry).read();
            areas.push((vector, (found.modules + 1).min(entries) * block.entry));
            errno.write(0);
        }
        // One comparison for what lies side by side; what is between two objects' blocks is nobody's.
        const GAP: usize = 64;
        areas.retain(|a| a.1 != 0);
        areas.sort_unstable();
        areas.dedup_by(|next, last| {
            let beside = next.0 - (last.0 + last.1) <= GAP;
            if beside {
                last.1 = next.0 + next.1 - last.0;
            }
            beside
        });
        let list = pointer + block.list;
        let kernels = block.kernels.map_or(0..0, |offset| {
            let start = pointer.wrapping_add_signed(offset);
            start..start + KERNELS
        });
        let changes = |byte| (list..list + block.list_size).contains(&byte) || kernels.contains(&byte);
        let mut lines = Lines::default();
        for &(start, len) in &areas {
            for at in (start / LINE * LINE..start + len).step_by(LINE) {
                let counts = |byte| (start..start + len).contains(&byte) && !changes(byte);
                let ours = |byte: usize| if counts(at + byte) { u8::MAX } else { 0 };
                let mask = Line(std::array::from_fn(ours));
                // SAFETY: part of the line, so of its page, is the thread's own memory; nobody writes to the rest meanwhile, or
                // what is read of it does not count.
                let before = unsafe { anew(at as *const Line).read_volatile() };
                let line = at as *const Line;
                if mask.0 != [u8::MAX; LINE] {
                    lines.in_part.push(InPart { before, mask, line });
                } else if before.0 != [0; LINE] {
                    lines.used.push(line);
                    lines.before.push(before);
                } else {
                    match lines.empty.last_mut() {
                        Some(run) if run.first.wrapping_add(run.count) == line => run.count += 1,
                        _ => lines.empty.push(Run { first: line, count: 1 }),
                    }
                }
            }
        }
        // CPUs that have the last of these do not slow down for long registers.
        let has_avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vbmi");
        let differ = match is_x86_feature_detected!("avx2") {
            true if has_avx512 => differ_with_avx512,
            true => differ_with_avx2,
            false => differ,
        };
        Some(Self { lines, differ, generation, errno })
    }

    /// Whether there are none: the calling thread is as it was.
    pub fn none(&self, generation: u32) -> bool {
        if generation != self.generation {
            return false;
        }
        // SAFETY: the thread's own memory.
        unsafe {
            // Not written without need: what was just written cannot be read with what is beside it for a while.
            if *self.errno != 0 {
                self.errno.write(0);
            }
            !(self.differ)(&self.lines)
        }
    }
}

/// Bytes that are compared at once.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u8; LINE]);
const LINE: usize = 64;

/// What is compared, in as little memory as it takes.
#[derive(Default)]
struct Lines {
    /// Those that held nothing but zeros.
    empty: Vec<Run>,
    /// The others, and what they held.
    used: Vec<*const Line>,
    before: Vec<Line>,
    in_part: Vec<InPart>,
}

/// Lines side by side.
#[repr(C)]
struct Run {
    first: *const Line,
    count: usize,
}

/// One that is only in part the thread's: what it held, and the bytes that count.
#[repr(C)]
struct InPart {
    before: Line,
    mask: Line,
    line: *const Line,
}

/// The same address; but the compiler no longer believes to know what is there: thread-locals change unseen.
#[inline(always)]
fn anew<T>(mut address: *const T) -> *const T {
    // SAFETY: changes nothing.
    unsafe { std::arch::asm!("/* {} */", inout(reg) address, options(nostack, preserves_flags)) };
    address
}

/// Whether anything is not as it was.
///
/// # Safety
/// The thread's own memory.
unsafe fn differ(lines: &Lines) -> bool {
    // SAFETY: the caller's.
    let now = |line: *const Line| unsafe { anew(line).read_volatile().0 };
    lines.empty.iter().any(|&Run { first, count }| (0..count).any(|i| now(first.wrapping_add(i)) != [0; LINE]))
        || lines.used.iter().zip(&lines.before).any(|(line, before)| now(*line) != before.0)
        || lines.in_part.iter().any(|InPart { before, mask, line }| {
            let now = now(*line);
            (0..LINE).any(|i| (now[i] ^ before.0[i]) & mask.0[i] != 0)
        })
}

/// The same, with all differences gathered and looked at once: there are none as a rule. (`memcmp` and a whole copy: 46 ns where
/// this takes 20, and more when many threads take turns.)
///
/// # Safety
/// As [`differ`]; the CPU has AVX2.
#[target_feature(enable = "avx2")]
unsafe fn differ_with_avx2(lines: &Lines) -> bool {
    use std::arch::x86_64::{
        __m256i, _mm256_and_si256 as and, _mm256_load_si256 as load, _mm256_or_si256 as or, _mm256_setzero_si256,
        _mm256_testz_si256, _mm256_xor_si256 as xor,
    };
    // SAFETY: the caller's; a line is two halves.
    let halves = |line: *const Line| unsafe {
        let half = line.cast::<__m256i>();
        (load(half), load(half.add(1)))
    };
    let (mut low, mut high) = (_mm256_setzero_si256(), _mm256_setzero_si256());
    for &Run { first, count } in &lines.empty {
        let first = anew(first);
        for i in 0..count {
            let now = halves(first.wrapping_add(i));
            (low, high) = (or(low, now.0), or(high, now.1));
        }
    }
    for (line, before) in lines.used.iter().zip(&lines.before) {
        let (now, before) = (halves(anew(*line)), halves(before));
        (low, high) = (or(low, xor(now.0, before.0)), or(high, xor(now.1, before.1)));
    }
    for InPart { before, mask, line } in &lines.in_part {
        let (now, before, mask) = (halves(anew(*line)), halves(before), halves(mask));
        low = or(low, and(xor(now.0, before.0), mask.0));
        high = or(high, and(xor(now.1, before.1), mask.1));
    }
    let all = or(low, high);
    _mm256_testz_si256(all, all) == 0
}

/// The same by whole lines, as quick as they can be read: 15 ns.
///
/// # Safety
/// As [`differ`]; the CPU has AVX-512.
unsafe fn differ_with_avx512(lines: &Lines) -> bool {
    let (empty, used, in_part) = (lines.empty.as_ptr_range(), lines.used.as_ptr_range(), lines.in_part.as_ptr_range());
    let differs: u8;
    // SAFETY: the caller's; the lists are walked from one end to the other, of `before` there are as many as of `used`.
    unsafe {
        std::arch::asm!(
            "vpxor xmm0, xmm0, xmm0",
            "vpxor xmm1, xmm1, xmm1",
            "cmp {empty}, {empty_end}",
            "je 5f",
            "2: mov {at}, [{empty}]",
            "mov {end}, [{empty} + 8]",
            "shl {end}, 6",
            "add {end}, {at}",
            // Two at once; one by itself if their number is odd.
            "test byte ptr [{empty} + 8], 1",
            "jz 3f",
            "vporq zmm1, zmm1, [{at}]",
            "add {at}, 64",
            "cmp {at}, {end}",
            "je 4f",
            "3: vporq zmm0, zmm0, [{at}]",
            "vporq zmm1, zmm1, [{at} + 64]",
            "add {at}, 128",
            "cmp {at}, {end}",
            "jne 3b",
            "4: add {empty}, 16",
            "cmp {empty}, {empty_end}",
            "jne 2b",
            "5: cmp {used}, {used_end}",
            "je 7f",
            "6: mov {at}, [{used}]",
            "vmovdqa64 zmm2, [{before}]",
            "vpxorq zmm2, zmm2, [{at}]",
            "vporq zmm0, zmm0, zmm2",
            "add {used}, 8",
            "add {before}, 64",
            "cmp {used}, {used_end}",
            "jne 6b",
            "7: cmp {part}, {part_end}",
            "je 9f",
            "8: mov {at}, [{part} + 128]",
            "vmovdqa64 zmm2, [{part}]",
            "vpxorq zmm2, zmm2, [{at}]",
            "vpandq zmm2, zmm2, [{part} + 64]",
            "vporq zmm1, zmm1, zmm2",
            "add {part}, 192",
            "cmp {part}, {part_end}",
            "jne 8b",
            "9: vporq zmm0, zmm0, zmm1",
            "vextracti64x4 ymm1, zmm0, 1",
            "vpor ymm0, ymm0, ymm1",
            "vptest ymm0, ymm0",
            "setnz {differs}",
            "vzeroupper",
            empty = inout(reg) empty.start => _,
            empty_end = in(reg) empty.end,
            used = inout(reg) used.start => _,
            used_end = in(reg) used.end,
            before = inout(reg) lines.before.as_ptr() => _,
            part = inout(reg) in_part.start => _,
            part_end = in(reg) in_part.end,
            at = out(reg) _,
            end = out(reg) _,
            differs = out(reg_byte) differs,
            out("xmm0") _, out("xmm1") _, out("xmm2") _,
            options(nostack, readonly),
        );
    }
    differs != 0
}

/// What the loops above count with.
const _: () = assert!(size_of::<Run>() == 16 && size_of::<InPart>() == 192);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        // Long enough for runs of even and odd numbers of lines.
        static LOCAL: [Cell<u8>; 500] = const { [const { Cell::new(0) }; 500] };
        static USED: Cell<u32> = const { Cell::new(0x0101_0101) };
    }

    fn traces() -> Traces {
        Traces::now(7).expect("glibc describes its threads")
    }

    /// What all ways to compare say that this CPU has.
    fn none(traces: &Traces) -> bool {
        // SAFETY: the thread's own memory; the CPU has what is asked for.
        unsafe {
            let plain = !differ(&traces.lines);
            if is_x86_feature_detected!("avx2") {
                assert_eq!(!differ_with_avx2(&traces.lines), plain);
            }
            if is_x86_feature_detected!("avx512f") {
                assert_eq!(!differ_with_avx512(&traces.lines), plain);
            }
            assert_eq!(traces.none(7), plain);
            plain
        }
    }

    #[test]
    fn every_byte_counts() {
        let traces = traces();
        assert!(none(&traces));
        LOCAL.with(|bytes| {
            for byte in bytes {
                byte.set(1);
                assert!(!none(&traces));
                byte.set(0);
            }
        });
        for bit in 0..32 {
            USED.set(USED.get() ^ 1 << bit);
            assert!(!none(&traces), "bit {bit}");
            USED.set(USED.get() ^ 1 << bit);
        }
        assert!(none(&traces));
    }

    #[test]
    fn thread_specific_data_counts() {
        let traces = traces();
        let mut key = 0;
        // SAFETY: a key of our own.
        unsafe {
            assert_eq!(libc::pthread_key_create(&raw mut key, None), 0);
            assert_eq!(libc::pthread_setspecific(key, (&raw const key).cast()), 0);
            assert!(!none(&traces));
            libc::pthread_setspecific(key, std::ptr::null());
            libc::pthread_key_delete(key);
        }
    }

    #[test]
    fn errno_and_the_list_of_threads_do_not_count() {
        let traces = traces();
        // SAFETY: the calling thread's.
        unsafe { *libc::__errno_location() = libc::EINVAL };
        // Before and behind us in the list.
        let others: Vec<_> = (0..4).map(|_| std::thread::spawn(std::thread::park)).collect();
        assert!(traces.none(7));
        others.into_iter().for_each(|other| {
            other.thread().unpark();
            other.join().unwrap();
        });
        assert!(traces.none(7));
    }

    #[test]
    fn the_cpu_that_the_thread_is_on_does_not_count() {
        let traces = traces();
        // SAFETY: the calling thread's own set; plain old data.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &raw mut set), 0);
            for cpu in (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &set)) {
                let mut one: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(cpu, &mut one);
                assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &raw const one), 0);
                assert!(none(&traces), "on CPU {cpu}");
            }
        }
    }

    #[test]
    fn another_generation_is_never_the_same() {
        assert!(!traces().none(8));
    }
}
