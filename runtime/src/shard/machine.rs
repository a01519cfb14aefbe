//! What the machine says: lines, and which CPU this is.
//!
//! # Safety
//! Two instructions that read what they are told to: `cpuid`, and `rdpid` where `cpuid` says that it is there.

use std::fs;
use std::sync::OnceLock;

fn number(path: &str) -> Option<usize> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Bytes of a cache line on this machine, as the system tells (64 if it does not).
pub fn line_size() -> usize {
    static LINE: OnceLock<usize> = OnceLock::new();
    *LINE.get_or_init(|| {
        // SAFETY: asks for a number.
        let libc = || usize::try_from(unsafe { libc::sysconf(libc::_SC_LEVEL1_DCACHE_LINESIZE) }).ok();
        let sane = |line: &usize| line.is_power_of_two() && (16..=1024).contains(line);
        number("/sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size")
            .filter(sane)
            .or_else(|| libc().filter(sane))
            .unwrap_or(64)
    })
}

/// Whether this machine fetches lines in pairs, so that values should be 128 bytes apart: Intel's spatial prefetcher, if its
/// switch can be read (as root, with the `msr` module) as that says, else presumed to be on. `None`: not known, as on other
/// makes.
pub fn pairs_of_lines() -> Option<bool> {
    use std::arch::x86_64::__cpuid;
    use std::os::unix::fs::FileExt;
    let leaf = __cpuid(0);
    let is_intel = [leaf.ebx, leaf.edx, leaf.ecx] == [*b"Genu", *b"ineI", *b"ntel"].map(u32::from_le_bytes);
    if !is_intel {
        return None;
    }
    // MISC_FEATURE_CONTROL; bit 1 switches the prefetcher of the adjacent line off.
    let mut bits = [0; 8];
    let msr = fs::File::open("/dev/cpu/0/msr").and_then(|file| file.read_exact_at(&mut bits, 0x1a4));
    Some(msr.is_err() || bits[0] & 2 == 0)
}

/// How many CPUs the machine may have, at least 1.
pub fn cpus() -> usize {
    static CPUS: OnceLock<usize> = OnceLock::new();
    *CPUS.get_or_init(|| {
        // SAFETY: asks for a number.
        usize::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }).unwrap_or(1).max(1)
    })
}

/// Whether there is `rdpid`: 0 not known yet.
static RDPID: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// The CPU that runs the caller, or did a moment ago.
#[inline]
pub fn cpu() -> usize {
    use std::sync::atomic::Ordering::Relaxed;
    if RDPID.load(Relaxed) == 1 {
        let word: u64;
        // SAFETY: reads a number. Linux puts the CPU into its low 12 bits.
        unsafe { std::arch::asm!("rdpid {}", out(reg) word, options(nomem, nostack, preserves_flags)) };
        return (word & 0xfff) as usize;
    }
    cpu_slowly()
}

#[cold]
fn cpu_slowly() -> usize {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    use std::sync::atomic::Ordering::Relaxed;
    if RDPID.load(Relaxed) == 0 {
        let has = __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ecx & 1 << 22 != 0;
        RDPID.store(if has { 1 } else { 2 }, Relaxed);
    }
    // SAFETY: asks for a number.
    usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_machine_answers() {
        assert!(line_size().is_power_of_two());
        assert!(cpu() < 4096 && cpu() < 4096);
        assert!(cpus() >= 1);
        let _ = pairs_of_lines();
    }
}
