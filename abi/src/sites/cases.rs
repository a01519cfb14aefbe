//! Tests of windows and stubs on functions written for them, in place and as a rewritten private copy.

extern crate std;

use super::elf::Image;
use super::find::{self, Found, Site};
use super::maps::Maps;
use super::stub::Chunk;
use super::*;
use core::arch::global_asm;
use core::sync::atomic::{AtomicUsize, Ordering};
use heddle_core::sys;
use heddle_core::sys::linux;
use std::vec::Vec;

// A text whose every function is one case; the frame descriptions that the assembler makes lead to them.
global_asm!(
    ".pushsection .text.heddle_site_cases, \"ax\", @progbits",
    ".globl heddle_case_start, heddle_case_end",
    ".hidden heddle_case_start, heddle_case_end",
    ".balign 64",
    "heddle_case_start:",
    // 0: the usual form; getppid.
    ".cfi_startproc",
    "mov eax, 110",
    "syscall",
    "ret",
    ".cfi_endproc",
    ".balign 64, 0xcc",
    // 64: the jump covers the syscall's bytes; write(-1, rsi, rdx), with the number set earlier.
    ".cfi_startproc",
    "mov eax, 1",
    "jmp 2f",
    "2:",
    "mov rdi, -1",
    "mov r10, r8",
    "syscall",
    "ret",
    ".cfi_endproc",
    ".balign 64, 0xcc",
    // 128: a jump to the syscall itself: the window is taken after it. rdi = -1 fails with EBADF, then rdi counts up.
    ".cfi_startproc",
    "mov eax, 3",
    "cmp rdi, -1",
    "je 3f",
    "nop",
    "3:",
    "syscall",
    "mov rdx, rax",
    "mov rax, rdx",
    "ret",
    ".cfi_endproc",
    ".balign 64, 0xcc",
    // 192: the displaced instruction addresses memory relative to itself.
    ".cfi_startproc",
    "mov eax, dword ptr [rip + 4f]",
    "syscall",
    "ret",
    "4: .long 110",
    ".cfi_endproc",
    ".balign 64, 0xcc",
    // 256: the two bytes inside another instruction: no site.
    ".cfi_startproc",
    "mov eax, 0x050f0000",
    "mov eax, 0x0000050f",
    "ret",
    ".cfi_endproc",
    ".balign 64, 0xcc",
    // 320: no room: a label on every boundary.
    ".cfi_startproc",
    "xor eax, eax",
    "5:",
    "syscall",
    "6:",
    "dec edi",
    "jz 5b",
    "js 6b",
    "ret",
    ".cfi_endproc",
    ".balign 64, 0xcc",
    // 384: a jump from elsewhere to the middle of the window would be fatal; see 448.
    ".cfi_startproc",
    "xor eax, eax",
    "mov al, 110",
    "7:",
    "xor edi, edi",
    "mov esi, edi",
    "syscall",
    "nop",
    "mov rdx, rax",
    "ret",
    ".cfi_endproc",
    ".balign 64, 0xcc",
    // 448
    ".cfi_startproc",
    ".byte 0xe9",
    ".long 7b - . - 4",
    ".cfi_endproc",
    ".balign 64, 0xcc",
    // 512: endbr64 may be jumped to from anywhere.
    ".cfi_startproc",
    "mov eax, 110",
    "nop",
    "endbr64",
    "syscall",
    "mov rdx, rax",
    "ret",
    ".cfi_endproc",
    ".balign 64, 0xcc",
    // 576: what follows the first syscall would make room for either; close(-1), then getppid.
    ".cfi_startproc",
    "mov eax, 3",
    "cmp rdi, -1",
    "je 8f",
    "nop",
    "8:",
    "syscall",
    "mov rdx, rax",
    "lea eax, [rdx + 119]",
    "syscall",
    "mov rdx, rax",
    "ret",
    ".cfi_endproc",
    ".balign 64, 0xcc",
    // 640: code without description behind a function that doesn't run on.
    ".cfi_startproc",
    "mov eax, 110",
    "jmp 9f",
    ".cfi_endproc",
    "mov eax, 110",
    "9:",
    "nop",
    "mov eax, 110",
    "syscall",
    "ret",
    ".balign 64, 0xcc",
    // 704: a jump table with an entry for the middle of what would be the window.
    ".cfi_startproc",
    "lea rdx, [rip + heddle_case_table]",
    "movsxd rax, dword ptr [rdx + rdi * 4]",
    "add rax, rdx",
    "jmp rax",
    "20: mov eax, 110",
    "21: xor edi, edi",
    "mov esi, edi",
    "syscall",
    "ret",
    ".cfi_endproc",
    ".balign 64, 0xcc",
    // 768: the same, with a jump whose targets can't be known.
    ".cfi_startproc",
    "lea rdx, [rip + heddle_case_start]",
    "add rax, rdx",
    "jmp rax",
    "mov eax, 110",
    "xor edi, edi",
    "mov esi, edi",
    "syscall",
    "mov eax, 110",
    "syscall",
    "ret",
    ".cfi_endproc",
    ".balign 64, 0xcc",
    // 832: a short jump from the neighbour, 896, to the middle of what would be the window.
    ".cfi_startproc",
    "mov eax, 110",
    "22: xor edi, edi",
    "mov esi, edi",
    "syscall",
    "ret",
    ".cfi_endproc",
    ".balign 64, 0xcc",
    // 896
    ".cfi_startproc",
    ".byte 0xeb, 22b - . - 1",
    ".cfi_endproc",
    ".balign 64, 0xcc",
    "heddle_case_end:",
    ".pushsection .rodata.heddle_case_table, \"a\", @progbits",
    ".balign 4",
    "heddle_case_table:",
    ".long 20b - heddle_case_table, 21b - heddle_case_table",
    ".popsection",
    ".popsection",
    // The entry points: they make the call, count it, and go on behind the site.
    ".globl heddle_test_syscall, heddle_test_raw, heddle_test_raw_post, heddle_test_post, heddle_test_call",
    ".hidden heddle_test_syscall, heddle_test_raw, heddle_test_raw_post, heddle_test_post, heddle_test_call",
    // The function before them ends with a call that does not return: nothing runs on into what follows.
    ".cfi_startproc",
    "call heddle_test_raw",
    ".cfi_endproc",
    "heddle_test_syscall:",
    "lock inc qword ptr [rip + {calls}]",
    "mov [rip + {saved}], rcx",
    "syscall",
    "mov rcx, [rip + {saved}]",
    "lea rcx, [rcx + {done}]",
    "jmp rcx",
    "heddle_test_raw:",
    "jmp rcx",
    "heddle_test_raw_post:",
    "lea rcx, [rcx + {raw_post}]",
    "jmp rcx",
    "heddle_test_post:",
    "lock inc qword ptr [rip + {posts}]",
    "jmp rcx",
    // heddle_test_call(function, argument, state): calls the function with every register and the red zone filled, and
    // leaves what they are afterwards in `state`.
    "heddle_test_call:",
    "push rbx", "push rbp", "push r12", "push r13", "push r14", "push r15",
    "push rdx",
    "sub rsp, 256",
    "mov rax, rdi", "mov rdi, rsi", "mov rbp, 100", "mov rbx, 101", "mov r8, 102", "mov r9, 103", "mov r12, 104",
    "mov r13, 105", "mov r14, 106", "mov r15, 107", "movq xmm0, r8", "movq xmm15, r9",
    // The function's red zone starts below its return address.
    "mov [rsp - 16], r12", "mov [rsp - 136], r13",
    "xor edx, edx", "stc",
    "call rax",
    "setc dl",
    "mov rcx, [rsp + 256]",
    "mov [rcx], rax", "mov [rcx + 8], rbp", "mov [rcx + 16], rbx", "mov [rcx + 24], r8", "mov [rcx + 32], r9",
    "mov [rcx + 40], r12", "mov [rcx + 48], r13", "mov [rcx + 56], r14", "mov [rcx + 64], r15",
    "movq [rcx + 72], xmm0", "movq [rcx + 80], xmm15",
    "mov rax, [rsp - 16]", "mov [rcx + 88], rax", "mov rax, [rsp - 136]", "mov [rcx + 96], rax",
    "movzx edx, dl", "mov [rcx + 104], rdx",
    "add rsp, 264",
    "pop r15", "pop r14", "pop r13", "pop r12", "pop rbp", "pop rbx",
    "ret",
    calls = sym CALLS,
    saved = sym SAVED,
    posts = sym POSTS,
    done = const DONE,
    raw_post = const RAW_POST,
);

static CALLS: AtomicUsize = AtomicUsize::new(0);
static SAVED: AtomicUsize = AtomicUsize::new(0);
static POSTS: AtomicUsize = AtomicUsize::new(0);
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

unsafe extern "C" {
    static heddle_case_start: u8;
    static heddle_case_end: u8;
    fn heddle_test_syscall();
    fn heddle_test_raw();
    fn heddle_test_raw_post();
    fn heddle_test_post();
    fn heddle_test_call(function: usize, argument: usize, state: *mut [usize; 14]);
}

/// The cases in place, and what `find` says of them.
fn cases() -> (usize, &'static [u8], Found) {
    let maps = Maps::read().unwrap();
    let start = &raw const heddle_case_start as usize;
    let m = maps.list.iter().find(|m| m.range.contains(&start)).unwrap();
    // SAFETY: the test program's own text, which nobody changes.
    unsafe {
        let image = Image::loaded(&maps, m).unwrap();
        let (at, vaddr, len) = image
            .executable(m.offset, m.range.len())
            .find(|&(at, _, len)| (m.range.start + at..m.range.start + at + len).contains(&start))
            .unwrap();
        let text = core::slice::from_raw_parts((m.range.start + at) as *const u8, len);
        (start - text.as_ptr() as usize, text, find::find(&image, text, vaddr))
    }
}

/// The window of the case at `offset`, as (start in the case, prefix, suffix).
fn case(offset: usize) -> Option<(usize, u8, u8)> {
    let windows = windows(offset);
    assert!(windows.len() <= 1);
    windows.first().copied()
}

/// As `case`, for any number of sites.
fn windows(offset: usize) -> Vec<(usize, u8, u8)> {
    let (base, _, found) = cases();
    let range = base + offset..base + offset + 64;
    let sites = found.sites.iter().filter(|s| range.contains(&(s.start as usize)));
    sites.map(|s| (s.start as usize - range.start, s.prefix, s.suffix)).collect()
}

#[test]
fn windows_of_the_cases() {
    assert_eq!(case(0), Some((0, 5, 0)), "mov and syscall");
    // Longer, so that the syscall's own bytes stay.
    assert_eq!(case(64), Some((7, 10, 0)), "two moves and syscall");
    assert_eq!(case(128), Some((12, 0, 3)), "syscall and what follows");
    assert_eq!(case(192), Some((0, 6, 0)), "relative to rip");
    assert_eq!(case(256), None, "data in an instruction");
    assert_eq!(case(320), None, "no room");
    assert_eq!(case(384), Some((4, 4, 0)), "from the label that case 448 jumps to");
    assert_eq!(case(512), Some((10, 0, 3)), "not over endbr64");
    assert_eq!(windows(576), [(12, 0, 3), (17, 3, 0)], "side by side");
    assert_eq!(case(640), None, "no description");
    assert_eq!(case(704), Some((21, 4, 0)), "from the jump table's second target");
    assert_eq!(windows(768), [(23, 5, 0)], "only the one that nothing can jump into");
    assert_eq!(case(832), Some((5, 4, 0)), "from the label that case 896 jumps to");
}

#[test]
fn sites_without_room_or_description_are_left() {
    let (base, text, found) = cases();
    let len = &raw const heddle_case_end as usize - &raw const heddle_case_start as usize;
    let left = |range: core::ops::Range<usize>| found.left.iter().filter(|&&at| range.contains(&(at as usize))).count();
    assert_eq!(left(base..base + len), 3, "cases 320, 640 and 768");
    let other = heddle_test_syscall as *const () as usize - text.as_ptr() as usize;
    assert_eq!(left(other..other + 64), 1, "neither a frame description nor a symbol with a size");
}

/// A private copy of the cases, rewritten; forgotten when dropped.
struct Rewritten {
    start: usize,
    len: usize,
    chunk: Chunk,
}

impl Rewritten {
    fn new(entry: unsafe extern "C" fn()) -> Rewritten {
        let (base, text, found) = cases();
        let len = &raw const heddle_case_end as usize - &raw const heddle_case_start as usize;
        let _stub_memory = hold();
        // SAFETY: a fresh mapping, which is filled and then made executable.
        unsafe {
            let flags = linux::MAP_PRIVATE | linux::MAP_ANONYMOUS;
            let start = sys::check(sys!(linux::__NR_mmap, 0, len, 3, flags, usize::MAX, 0)).unwrap();
            core::ptr::copy_nonoverlapping(text[base..].as_ptr(), start as *mut u8, len);
            let entries =
                Entries { syscall: 0xdead, syscall_full: entry as usize, post: heddle_test_post as *const () as usize };
            let mut maps = Maps::read;
            let mut chunk = Chunk::new(found.sites.len(), &(start..start + len), &entries, &mut maps).unwrap();
            let copy = core::slice::from_raw_parts(start as *const u8, len);
            let mut patches = Vec::new();
            for site in found.sites.iter().filter(|s| (base..base + len).contains(&(s.start as usize))) {
                let site = Site { start: site.start - base as u32, ..*site };
                patches.push(rewrite::patch(&mut chunk, copy, &site, true).unwrap());
            }
            chunk.seal().unwrap();
            patches.iter().for_each(|p| rewrite::write(p));
            sys::check(sys!(linux::__NR_mprotect, start, len, 5)).unwrap();
            Rewritten { start, len, chunk }
        }
    }

    /// Calls the case at `offset` with `argument` in rdi; checks that the other registers and the red zone are as they
    /// were, and returns rax and the carry flag, which was set.
    fn call(&self, offset: usize, argument: usize) -> (isize, bool) {
        let mut state = [0; 14];
        // SAFETY: the cases are functions that change rax, rdx, rcx, r11, rdi, rsi and r10 only.
        unsafe { heddle_test_call(self.start + offset, argument, &mut state) };
        assert_eq!(state[1..13], [100, 101, 102, 103, 104, 105, 106, 107, 102, 103, 104, 105]);
        (state[0] as isize, state[13] != 0)
    }
}

impl Drop for Rewritten {
    fn drop(&mut self) {
        let _stub_memory = hold();
        self.chunk.free();
        // SAFETY: made by `new`; nothing runs in it.
        unsafe { sys!(linux::__NR_munmap, self.start, self.len) };
    }
}

#[test]
fn rewritten_code_does_what_it_did() {
    let parent = std::os::unix::process::parent_id() as isize;
    let turn = ONE_AT_A_TIME.lock().unwrap();
    for (name, f, posts) in [
        ("emulated", heddle_test_syscall as unsafe extern "C" fn(), 0),
        ("raw", heddle_test_raw, 0),
        ("raw, then post", heddle_test_raw_post, 1),
    ] {
        let code = Rewritten::new(f);
        let before = (CALLS.load(Ordering::Relaxed), POSTS.load(Ordering::Relaxed));
        assert_eq!(code.call(0, 0), (parent, true), "{name}: getppid");
        assert_eq!(code.call(64, 0), (-9, true), "{name}: write to -1");
        assert_eq!(code.call(128, usize::MAX).0, -9, "{name}: close of -1, jumped to");
        assert_eq!(code.call(128, 1 << 20).0, -9, "{name}: close of no descriptor, fallen through");
        assert_eq!(code.call(192, 0), (parent, true), "{name}: number relative to rip");
        assert_eq!(code.call(256, 0).0, 0x050f, "{name}: no system call");
        assert_eq!(code.call(384, 0).0, parent, "{name}: with a label in front of the window");
        assert_eq!(code.call(512, 0).0, parent, "{name}: after endbr64");
        assert_eq!(code.call(576, usize::MAX).0, parent, "{name}: two calls side by side");
        let made = CALLS.load(Ordering::Relaxed) - before.0;
        assert_eq!(made, if name == "emulated" { 9 } else { 0 }, "{name}");
        assert_eq!(POSTS.load(Ordering::Relaxed) - before.1, 9 * posts, "{name}");
    }
    drop(turn);
}

#[test]
fn the_syscall_bytes_stay_when_the_jump_is_before_them() {
    let code = Rewritten::new(heddle_test_syscall);
    // SAFETY: the rewritten copy is readable while `code` lives.
    let text = unsafe { core::slice::from_raw_parts(code.start as *const u8, code.len) };
    assert_eq!((text[0], &text[5..8]), (0xe9, [0x0f, 0x05, 0xc3].as_slice()));
    assert_eq!(
        (text[64 + 7], &text[64 + 12..64 + 20]),
        (0xe9, [0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0x0f, 0x05, 0xc3].as_slice())
    );
    assert_eq!((text[384 + 4], text[384 + 9], text[384 + 10]), (0xe9, 0xcc, 0x90), "covered");
}

#[test]
fn stub_addresses_stand_for_the_object() {
    let code = Rewritten::new(heddle_test_syscall);
    let stub_of = |jump: usize| {
        // SAFETY: the rewritten copy is readable; a jump is there.
        let distance = unsafe { ((code.start + jump + 1) as *const i32).read_unaligned() };
        (code.start + jump + 5).wrapping_add_signed(distance as isize)
    };
    // Case 64: 10 bytes before the call.
    let (stub, start) = (stub_of(64 + 7), code.start + 64 + 7);
    let raw = stub + 10 + 21;
    // SAFETY: `raw` is the continuation of that stub.
    assert_eq!(unsafe { site_end(raw) }, start + 12);
    assert_eq!(original_pc(stub), Some(start));
    assert_eq!(original_pc(stub + 7), Some(start + 7));
    assert_eq!(original_pc(stub + 10), Some(start + 10), "about to enter");
    assert_eq!(original_pc(raw + RAW_PLAIN), Some(start + 10), "about to make the call");
    assert_eq!(original_pc(raw + RAW_PLAIN + 2), Some(start + 12), "made");
    assert_eq!(original_pc(raw + RAW_POST), Some(start + 10));
    assert_eq!(original_pc(raw + RAW_POST + 2), Some(start + 12));
    assert_eq!(original_pc(raw + DONE), Some(start + 12));
    // Case 128: 3 bytes after it.
    let (stub, start) = (stub_of(128 + 12), code.start + 128 + 12);
    let raw = stub + 21;
    assert_eq!(original_pc(raw + DONE), Some(start + 2), "the moved instruction");
    assert_eq!(original_pc(raw + DONE + 3), Some(start + 5), "on the way back");
    // No stub.
    assert_eq!(original_pc(code.chunk.range.start), None, "the entry points");
    assert_eq!(original_pc(start), None);
    let range = code.chunk.range.clone();
    drop(code);
    assert_eq!(original_pc(range.start + 64), None, "freed");
}
