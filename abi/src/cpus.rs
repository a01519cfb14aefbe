//! How many CPUs the process may use: its affinity, and the quota of its control groups.

use core::sync::atomic::{AtomicU64, Ordering};
use heddle_core::sys::{check, linux as l};

/// Words of a set of CPUs: enough for 8,192.
pub const WORDS: usize = 128;

/// The affinity mask that the program started with. What it sets for its main thread before it makes others is main's own.
static AT_LOAD: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

/// Remembers the affinity mask.
pub fn remember() {
    let mut mask = [0u64; WORDS];
    // SAFETY: writes at most 1,024 bytes.
    let r = unsafe { heddle_core::sys!(l::__NR_sched_getaffinity, 0, size_of_val(&mask), mask.as_mut_ptr()) };
    if r > 0 {
        for (to, from) in AT_LOAD.iter().zip(mask) {
            to.store(from, Ordering::Relaxed);
        }
    }
}

/// The affinity mask that the program started with.
pub fn at_load() -> [u64; WORDS] {
    core::array::from_fn(|i| AT_LOAD[i].load(Ordering::Relaxed))
}

/// CPUs in that mask.
pub fn allowed() -> u32 {
    at_load().iter().map(|w| w.count_ones()).sum::<u32>().max(1)
}

/// Workers by default: the CPUs allowed, less if the CPU quota (rounded up) is smaller.
pub fn usable() -> u32 {
    let cpus = allowed();
    quota().map_or(cpus, |q| q.clamp(1, cpus))
}

/// Reads the beginning of a file; 0 if it cannot.
pub fn read(path: &core::ffi::CStr, buffer: &mut [u8]) -> usize {
    // SAFETY: opens, reads into the buffer, closes.
    unsafe {
        let Ok(fd) =
            check(heddle_core::sys!(l::__NR_openat, l::AT_FDCWD, path.as_ptr(), l::O_RDONLY | l::O_CLOEXEC, 0))
        else {
            return 0;
        };
        let n = heddle_core::sys!(l::__NR_read, fd, buffer.as_mut_ptr(), buffer.len());
        heddle_core::sys!(l::__NR_close, fd);
        n.max(0) as usize
    }
}

/// The number that a text begins with.
pub fn number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    (digits > 0).then(|| text[..digits].iter().fold(0u64, |n, b| n.saturating_mul(10) + u64::from(b - b'0')))
}

/// The smallest quota on the way from the process's group to the root, in CPUs rounded up.
fn quota() -> Option<u32> {
    let mut groups = [0u8; 1024];
    let n = read(c"/proc/self/cgroup", &mut groups);
    let mut least: Option<u32> = None;
    for line in groups[..n].split(|&b| b == b'\n') {
        let mut fields = line.splitn(3, |&b| b == b':');
        let (Some(id), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
        if id == b"0" {
            walk(b"/sys/fs/cgroup", path, &mut |dir| {
                let mut text = [0u8; 64];
                let len = file(dir, b"/cpu.max", &mut text);
                if let Some(space) = text[..len].iter().position(|&b| b == b' ') {
                    note(&mut least, number(&text[..space]), number(&text[space + 1..len]));
                }
            });
        } else if controllers.split(|&b| b == b',').any(|c| c == b"cpu") {
            walk(b"/sys/fs/cgroup/cpu", path, &mut |dir| {
                let (mut a, mut b) = ([0u8; 32], [0u8; 32]);
                let (la, lb) = (file(dir, b"/cpu.cfs_quota_us", &mut a), file(dir, b"/cpu.cfs_period_us", &mut b));
                note(&mut least, number(&a[..la]), number(&b[..lb]));
            });
        }
    }
    least
}

fn note(least: &mut Option<u32>, quota: Option<u64>, period: Option<u64>) {
    if let (Some(q), Some(p)) = (quota, period)
        && p > 0
    {
        let cpus = q.div_ceil(p).clamp(1, 4096) as u32;
        *least = Some(least.map_or(cpus, |l| l.min(cpus)));
    }
}

fn file(dir: &[u8], name: &[u8], buffer: &mut [u8]) -> usize {
    let mut path = [0u8; 512];
    let len = dir.len() + name.len();
    if len >= path.len() {
        return 0;
    }
    path[..dir.len()].copy_from_slice(dir);
    path[dir.len()..len].copy_from_slice(name);
    core::ffi::CStr::from_bytes_until_nul(&path).map_or(0, |p| read(p, buffer))
}

fn walk(root: &[u8], group: &[u8], f: &mut dyn FnMut(&[u8])) {
    let mut path = [0u8; 480];
    let len = root.len() + group.len();
    if len > path.len() {
        return;
    }
    path[..root.len()].copy_from_slice(root);
    path[root.len()..len].copy_from_slice(group);
    let mut end = len;
    while end >= root.len() {
        f(&path[..end]);
        match path[..end].iter().rposition(|&b| b == b'/') {
            Some(slash) if slash >= root.len() => end = slash,
            _ if end > root.len() => end = root.len(),
            _ => break,
        }
    }
}
