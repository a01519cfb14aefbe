//! The instructions that compilers and libc's assembly use most, decoded without the disassembler.
//!
//! A general disassembler builds tables of every instruction there is before it decodes the first one: most of a
//! megabyte, in each process. All that the finder asks is where an instruction ends and what it does to the flow of
//! control. Here that is answered for the usual ones, and for nothing else: what is not known for certain (VEX, EVEX,
//! x87, three-byte opcodes, unusual prefixes, encodings that not all operands allow) is left to the disassembler. The
//! tests compare every answer given here with its.

use super::decode::{Decoded, ENDS, FLOW, INDIRECT, LANDING, RELATIVE, Refers, SYSCALL};

/// A class: known here.
const KNOWN: u16 = 1;
/// It has a ModRM byte.
const MODRM: u16 = 2;
/// Its operand is in memory, not in a register.
const MEMORY: u16 = 4;
/// Its operand is in a register.
const REGISTER: u16 = 8;
/// A byte of immediate data follows.
const BYTE: u16 = 16;
/// Immediate data of the operand size, at most 32 bits, follow.
const WORD: u16 = 32;
/// It is a near branch; its distance is the immediate data.
const NEAR: u16 = 64;
/// It never falls through.
const LAST: u16 = 128;
/// With no mandatory prefix, 66, F3, F2: which of them make an instruction.
const BARE: u16 = 1 << 8;
const P66: u16 = 2 << 8;
const PF3: u16 = 4 << 8;
const PF2: u16 = 8 << 8;
/// None of them matters.
const ALL: u16 = BARE | P66 | PF3 | PF2;

/// Gives the opcodes from `first` to `last` the class.
const fn set(mut table: [u16; 256], first: usize, last: usize, class: u16) -> [u16; 256] {
    let mut i = first;
    while i <= last {
        table[i] = class | KNOWN;
        i += 1;
    }
    table
}

/// Opcodes of one byte.
static FIRST: [u16; 256] = {
    let mut t = [0; 256];
    let mut i = 0;
    // add, or, adc, sbb, and, sub, xor, cmp
    while i < 0x40 {
        t = set(t, i, i + 3, MODRM);
        t = set(t, i + 4, i + 4, BYTE);
        t = set(t, i + 5, i + 5, WORD);
        i += 8;
    }
    t = set(t, 0x50, 0x5f, 0); // push, pop
    t = set(t, 0x63, 0x63, MODRM); // movsxd
    t = set(t, 0x68, 0x68, WORD); // push
    t = set(t, 0x69, 0x69, MODRM | WORD); // imul
    t = set(t, 0x6a, 0x6a, BYTE); // push
    t = set(t, 0x6b, 0x6b, MODRM | BYTE); // imul
    t = set(t, 0x70, 0x7f, BYTE | NEAR); // jcc
    t = set(t, 0x80, 0x80, MODRM | BYTE); // add to cmp
    t = set(t, 0x81, 0x81, MODRM | WORD);
    t = set(t, 0x83, 0x83, MODRM | BYTE);
    t = set(t, 0x84, 0x8b, MODRM); // test, xchg, mov
    t = set(t, 0x8d, 0x8d, MODRM | MEMORY); // lea
    t = set(t, 0x90, 0x99, 0); // nop, xchg, cdqe, cqo
    t = set(t, 0xa4, 0xa7, 0); // movs, cmps
    t = set(t, 0xa8, 0xa8, BYTE); // test
    t = set(t, 0xa9, 0xa9, WORD);
    t = set(t, 0xaa, 0xaf, 0); // stos, lods, scas
    t = set(t, 0xb0, 0xb7, BYTE); // mov
    t = set(t, 0xb8, 0xbf, WORD); // mov; eight bytes with REX.W
    t = set(t, 0xc0, 0xc1, MODRM | BYTE); // shifts
    t = set(t, 0xc3, 0xc3, LAST); // ret
    t = set(t, 0xc6, 0xc6, MODRM | BYTE); // mov
    t = set(t, 0xc7, 0xc7, MODRM | WORD);
    t = set(t, 0xc9, 0xc9, 0); // leave
    t = set(t, 0xcc, 0xcc, LAST); // int3
    t = set(t, 0xd0, 0xd3, MODRM); // shifts
    t = set(t, 0xd9, 0xd9, MODRM | MEMORY); // fldenv, fldcw, fnstenv, fnstcw
    t = set(t, 0xe8, 0xe8, WORD | NEAR); // call
    t = set(t, 0xe9, 0xe9, WORD | NEAR | LAST); // jmp
    t = set(t, 0xeb, 0xeb, BYTE | NEAR | LAST);
    t = set(t, 0xf4, 0xf4, LAST); // hlt
    t = set(t, 0xf6, 0xf7, MODRM); // test, not, neg, mul, imul, div, idiv
    t = set(t, 0xf8, 0xf9, 0); // clc, stc
    t = set(t, 0xfc, 0xfd, 0); // cld, std
    t = set(t, 0xfe, 0xff, MODRM); // inc, dec, call, jmp, push
    t
};

/// Opcodes of two bytes, the first of which is 0F.
static SECOND: [u16; 256] = {
    let mut t = [0; 256];
    t = set(t, 0x01, 0x01, MODRM | REGISTER | BARE); // rdtscp
    t = set(t, 0x05, 0x05, ALL); // syscall
    t = set(t, 0x0b, 0x0b, ALL | LAST); // ud2
    t = set(t, 0x10, 0x11, MODRM | ALL); // movups and the like
    t = set(t, 0x12, 0x12, MODRM | ALL); // movlps, movlpd (memory only), movsldup, movddup
    t = set(t, 0x13, 0x13, MODRM | MEMORY | BARE | P66);
    t = set(t, 0x14, 0x15, MODRM | BARE | P66);
    t = set(t, 0x16, 0x16, MODRM | BARE | P66 | PF3); // movhps, movhpd (memory only), movshdup
    t = set(t, 0x17, 0x17, MODRM | MEMORY | BARE | P66);
    t = set(t, 0x1e, 0x1e, MODRM | PF3); // endbr64
    t = set(t, 0x1f, 0x1f, MODRM | ALL); // nop
    t = set(t, 0x28, 0x29, MODRM | BARE | P66); // movaps
    t = set(t, 0x2a, 0x2a, MODRM | ALL); // conversions
    t = set(t, 0x2b, 0x2b, MODRM | MEMORY | BARE | P66);
    t = set(t, 0x2c, 0x2d, MODRM | ALL);
    t = set(t, 0x2e, 0x2f, MODRM | BARE | P66);
    t = set(t, 0x31, 0x31, ALL); // rdtsc
    t = set(t, 0x40, 0x4f, MODRM | ALL); // cmovcc
    t = set(t, 0x50, 0x50, MODRM | REGISTER | BARE | P66);
    t = set(t, 0x51, 0x51, MODRM | ALL);
    t = set(t, 0x54, 0x57, MODRM | BARE | P66);
    t = set(t, 0x58, 0x5a, MODRM | ALL);
    t = set(t, 0x5b, 0x5b, MODRM | BARE | P66 | PF3);
    t = set(t, 0x5c, 0x5f, MODRM | ALL);
    t = set(t, 0x60, 0x6b, MODRM | BARE | P66);
    t = set(t, 0x6c, 0x6d, MODRM | P66);
    t = set(t, 0x6e, 0x6e, MODRM | BARE | P66);
    t = set(t, 0x6f, 0x6f, MODRM | BARE | P66 | PF3);
    t = set(t, 0x70, 0x70, MODRM | BYTE | ALL);
    t = set(t, 0x71, 0x73, MODRM | REGISTER | BYTE | P66); // shifts
    t = set(t, 0x74, 0x76, MODRM | BARE | P66);
    t = set(t, 0x7e, 0x7f, MODRM | BARE | P66 | PF3);
    t = set(t, 0x80, 0x8f, WORD | NEAR | ALL); // jcc
    t = set(t, 0x90, 0x9f, MODRM | ALL); // setcc
    t = set(t, 0xa2, 0xa2, ALL); // cpuid
    t = set(t, 0xa3, 0xa3, MODRM | ALL); // bt
    t = set(t, 0xa4, 0xa4, MODRM | BYTE | ALL); // shld
    t = set(t, 0xa5, 0xa5, MODRM | ALL);
    t = set(t, 0xab, 0xab, MODRM | ALL); // bts
    t = set(t, 0xac, 0xac, MODRM | BYTE | ALL); // shrd
    t = set(t, 0xad, 0xad, MODRM | ALL);
    t = set(t, 0xae, 0xae, MODRM | BARE); // ldmxcsr, stmxcsr, lfence, mfence, sfence
    t = set(t, 0xaf, 0xaf, MODRM | ALL); // imul
    t = set(t, 0xb0, 0xb1, MODRM | ALL); // cmpxchg
    t = set(t, 0xb3, 0xb3, MODRM | ALL); // btr
    t = set(t, 0xb6, 0xb7, MODRM | ALL); // movzx
    t = set(t, 0xba, 0xba, MODRM | BYTE | ALL); // bt and the like
    t = set(t, 0xbb, 0xbf, MODRM | ALL); // btc, bsf, bsr, movsx
    t = set(t, 0xc0, 0xc1, MODRM | ALL); // xadd
    t = set(t, 0xc2, 0xc2, MODRM | BYTE | ALL); // cmpps and the like
    t = set(t, 0xc4, 0xc4, MODRM | BYTE | BARE | P66);
    t = set(t, 0xc5, 0xc5, MODRM | REGISTER | BYTE | BARE | P66);
    t = set(t, 0xc6, 0xc6, MODRM | BYTE | BARE | P66);
    t = set(t, 0xc7, 0xc7, MODRM | MEMORY | BARE); // cmpxchg8b, cmpxchg16b
    t = set(t, 0xc8, 0xcf, ALL); // bswap
    t = set(t, 0xd1, 0xd5, MODRM | BARE | P66);
    t = set(t, 0xd6, 0xd6, MODRM | P66);
    t = set(t, 0xd7, 0xd7, MODRM | REGISTER | BARE | P66);
    t = set(t, 0xd8, 0xe5, MODRM | BARE | P66);
    t = set(t, 0xe6, 0xe6, MODRM | P66 | PF3 | PF2);
    t = set(t, 0xe7, 0xe7, MODRM | MEMORY | BARE | P66);
    t = set(t, 0xe8, 0xef, MODRM | BARE | P66);
    t = set(t, 0xf1, 0xf6, MODRM | BARE | P66);
    t = set(t, 0xf8, 0xfe, MODRM | BARE | P66);
    t
};

/// The prefixes of an instruction, as far as they are known here.
#[derive(Default)]
struct Prefixes {
    /// 66
    size: bool,
    /// F2 or F3, or 0
    repeat: u8,
    /// F0
    lock: bool,
    /// REX.W
    wide: bool,
}

/// More than what is read of an instruction.
const READ: usize = 24;

/// Decodes the instruction that `code` begins with, which is at `address`. `None`: the disassembler is to be asked.
#[inline]
pub fn decode(code: &[u8], address: u64) -> Option<Decoded> {
    let mut last = [0; READ];
    let bytes = match code.first_chunk() {
        Some(bytes) => bytes,
        None => {
            // What is read behind the end shows in the length.
            last[..code.len()].copy_from_slice(code);
            &last
        }
    };
    let mut prefixes = Prefixes::default();
    let mut at = 0;
    loop {
        match bytes[at] {
            0x66 => prefixes.size = true,
            b @ (0xf2 | 0xf3) if prefixes.repeat == 0 => prefixes.repeat = b,
            0xf0 => prefixes.lock = true,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 => {}
            _ => break,
        }
        at += 1;
        if at > 4 {
            return None;
        }
    }
    if bytes[at] & 0xf0 == 0x40 {
        prefixes.wide = bytes[at] & 8 != 0;
        at += 1;
    }
    let two = bytes[at] == 0x0f;
    at += usize::from(two);
    let opcode = bytes[at];
    at += 1;
    let class = if two { SECOND[usize::from(opcode)] } else { FIRST[usize::from(opcode)] };
    if class & KNOWN == 0 || two && !is_instruction(class, &prefixes) {
        return None;
    }

    let mut flags = if class & NEAR != 0 { FLOW } else { 0 };
    if class & LAST != 0 {
        flags |= if class & NEAR != 0 { ENDS } else { FLOW | ENDS };
    }
    let mut immediate = match class {
        _ if class & BYTE != 0 => 1,
        _ if class & WORD == 0 => 0,
        _ if class & NEAR != 0 => 4,
        _ if prefixes.wide && !two && opcode & 0xf8 == 0xb8 => 8,
        _ if prefixes.size && !prefixes.wide => 2,
        _ => 4,
    };
    let mut refers = Refers::Nothing;
    let (mut displacement, mut memory) = (0, false);
    let mut register = 0;
    if class & MODRM != 0 {
        let modrm = bytes[at];
        at += 1;
        memory = modrm < 0xc0;
        register = modrm >> 3 & 7;
        if class & MEMORY != 0 && !memory || class & REGISTER != 0 && memory {
            return None;
        }
        let relative = modrm & 0xc7 == 5;
        let mut length = match modrm >> 6 {
            1 => 1,
            2 => 4,
            _ => 0,
        };
        if memory && modrm & 7 == 4 {
            if modrm < 0x40 && bytes[at] & 7 == 5 {
                length = 4;
            }
            at += 1;
        }
        if relative {
            length = 4;
            flags |= RELATIVE;
        }
        if length == 4 {
            displacement = at;
        }
        let offset = match length {
            1 => i64::from(bytes[at] as i8),
            4 => i64::from(word(bytes, at)),
            _ => 0,
        };
        at += length;
        match (two, opcode, register) {
            // Immediate data for `test` only.
            (false, 0xf6, 0 | 1) => immediate = 1,
            (false, 0xf7, 0 | 1) => immediate = if prefixes.size && !prefixes.wide { 2 } else { 4 },
            (false, 0xf6 | 0xf7 | 0xfe, _) if opcode != 0xfe || register < 2 => {}
            (false, 0xff, 0 | 1 | 6) => {}
            (false, 0xff, 2) => flags |= FLOW,
            (false, 0xff, 4) => {
                flags |= FLOW | ENDS | INDIRECT;
                if memory && !relative {
                    refers = Refers::Data(offset as u64);
                }
            }
            (false, 0xfe | 0xff, _) => return None,
            (false, 0xc6 | 0xc7, 1..) | (false, 0xd9, ..4) => return None,
            (false, 0x8d, _) if relative => {
                refers = Refers::Data(address.wrapping_add(at as u64).wrapping_add_signed(offset));
            }
            (true, 0x12 | 0x16, _) if prefixes.size && !memory => return None,
            (true, 0x1e, 7) if modrm == 0xfa => flags |= LANDING,
            (true, 0x1e, _) | (true, 0x1f, 1..) => return None,
            (true, 0x71 | 0x72, 0 | 1 | 3 | 5 | 7) | (true, 0x73, 0 | 1 | 4 | 5) => return None,
            (true, 0x01, _) if modrm != 0xf9 => return None,
            (true, 0xae, _) if memory != matches!(register, 2 | 3) || register < 2 || register == 4 => return None,
            (true, 0xba, ..4) | (true, 0xc7, 0 | 2..) => return None,
            _ => {}
        }
    } else if two && opcode == 0x05 {
        flags |= SYSCALL | FLOW;
    }
    if prefixes.lock && !(memory && may_lock(two, opcode, register)) {
        return None;
    }
    if class & NEAR != 0 {
        let distance = if immediate == 1 { i64::from(bytes[at] as i8) } else { i64::from(word(bytes, at)) };
        refers = Refers::Branch(address.wrapping_add((at + immediate) as u64).wrapping_add_signed(distance));
    }
    let length = at + immediate;
    (length <= code.len().min(15)).then_some(Decoded {
        len: length as u8,
        flags,
        displacement: displacement as u8,
        refers,
    })
}

/// Whether a two-byte opcode of this class makes an instruction with these prefixes.
fn is_instruction(class: u16, prefixes: &Prefixes) -> bool {
    let prefix = match (prefixes.repeat, prefixes.size) {
        (0, false) => BARE,
        (0, true) => P66,
        // Which one counts is not worth knowing.
        (_, true) => return false,
        (0xf3, _) => PF3,
        _ => PF2,
    };
    class & prefix != 0
}

/// Whether the instruction, whose operand is in memory, may have a lock prefix.
fn may_lock(two: bool, opcode: u8, register: u8) -> bool {
    match (two, opcode) {
        (false, 0..=0x37) => opcode & 7 < 2,
        (false, 0x80 | 0x81 | 0x83) => register != 7,
        (false, 0x86 | 0x87) => true,
        (false, 0xf6 | 0xf7) => matches!(register, 2 | 3),
        (false, 0xfe | 0xff) => register < 2,
        (true, 0xab | 0xb0 | 0xb1 | 0xb3 | 0xbb | 0xc0 | 0xc1 | 0xc7) => true,
        (true, 0xba) => register >= 5,
        _ => false,
    }
}

/// The four bytes at `at`, as a signed number.
fn word(bytes: &[u8; READ], at: usize) -> i32 {
    i32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::super::decode::general;
    use super::*;
    use std::vec::Vec;

    const ADDRESS: u64 = 0x7f12_3456_7000;

    /// Compares with the disassembler what is decoded from `code`. Whether anything was.
    fn agrees(code: &[u8]) -> bool {
        let Some(mine) = decode(code, ADDRESS) else { return false };
        assert_eq!(Some(mine), general(code, ADDRESS), "{code:02x?}");
        true
    }

    #[test]
    fn the_disassembler_agrees_on_every_opcode() {
        let prefixes: [&[u8]; 11] = [
            &[],
            &[0x66],
            &[0xf2],
            &[0xf3],
            &[0xf0],
            &[0x64],
            &[0x66, 0x66],
            &[0x66, 0xf3],
            &[0xf2, 0x66],
            &[0xf0, 0xf3],
            &[0x2e, 0x66],
        ];
        let (mut known, mut code) = (0, Vec::new());
        for (prefix, rex) in prefixes.iter().flat_map(|p| [0, 0x40, 0x41, 0x48, 0x4f].map(|rex| (p, rex))) {
            for (opcode, modrm) in (0..512).flat_map(|o| (0..=255u8).map(move |m| (o, m))) {
                let sib = modrm < 0xc0 && modrm & 7 == 4;
                for byte in [0x25, 0x1c, 0xe3].iter().take(if sib { 3 } else { 1 }) {
                    code.clear();
                    code.extend_from_slice(prefix);
                    code.extend((rex != 0).then_some(rex));
                    code.extend((opcode >= 256).then_some(0x0f));
                    code.extend([opcode as u8, modrm, *byte, 0x81, 2, 3, 0xf4, 5, 6, 0x97, 8, 9]);
                    known += u32::from(agrees(&code));
                }
            }
        }
        assert!(known > 500_000, "{known}");
    }

    #[test]
    fn the_disassembler_agrees_on_noise() {
        let mut seed = 1u64;
        let mut next = || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as u8
        };
        let mut known = 0;
        for _ in 0..400_000 {
            let mut code: Vec<u8> = (0..20).map(|_| next()).collect();
            if next() & 1 == 0 {
                code[0] = [0x66, 0xf2, 0xf3, 0xf0, 0x48, 0x0f, 0x8b, 0x89][usize::from(next() & 7)];
            }
            // Cut off anywhere.
            code.truncate(if next() & 3 == 0 { usize::from(next() % 16) } else { 20 });
            known += u32::from(agrees(&code));
        }
        assert!(known > 100_000, "{known}");
    }
}
