//! Instructions, as the finder sees them: those that `usual.rs` knows, and for the rest a disassembler.

use super::usual;
use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind};

/// One decoded instruction.
#[derive(Clone, Copy)]
pub struct Insn {
    /// Position in the text.
    pub at: u32,
    /// Length in bytes.
    pub len: u8,
    /// What kind it is, [`SYSCALL`] and the like.
    pub flags: u8,
}

/// It is a `syscall`.
pub const SYSCALL: u8 = 1;
/// It transfers control, or may: it can't run anywhere else.
pub const FLOW: u8 = 2;
/// It never falls through to the next instruction.
pub const ENDS: u8 = 4;
/// It addresses memory relative to itself.
pub const RELATIVE: u8 = 8;
/// It may be the target of an indirect branch (`endbr64`).
pub const LANDING: u8 = 16;
/// It touches state beyond xmm0-15: encoded with VEX, EVEX or XOP, or x87 (other than control words and environment).
pub const WIDE: u8 = 32;
/// It is an indirect jump.
pub const INDIRECT: u8 = 64;

impl Insn {
    /// The position behind it.
    pub fn end(&self) -> u32 {
        self.at + u32::from(self.len)
    }

    /// Whether it has one of the flags in `mask`.
    pub fn is(&self, mask: u8) -> bool {
        self.flags & mask != 0
    }
}

/// What an instruction refers to beside its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refers {
    /// Nothing of interest.
    Nothing,
    /// A direct branch to this address.
    Branch(u64),
    /// Data that may be a table of jump targets at this address.
    Data(u64),
}

/// What is known of an instruction wherever it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Length in bytes.
    pub len: u8,
    /// What kind it is.
    pub flags: u8,
    /// Where its 32-bit displacement starts in it; 0: it has none.
    pub displacement: u8,
    /// What it refers to.
    pub refers: Refers,
}

/// Decodes instructions one after the other.
pub struct Reader<'a> {
    text: &'a [u8],
    vaddr: u64,
    at: usize,
    displacement: u8,
}

impl<'a> Reader<'a> {
    /// Decodes `text`, which is at virtual address `vaddr`, from position `from`.
    pub fn new(text: &'a [u8], vaddr: u64, from: usize) -> Self {
        Reader { text, vaddr, at: from, displacement: 0 }
    }

    /// The next instruction; `None` where the bytes are none.
    #[inline]
    pub fn next(&mut self) -> Option<(Insn, Refers)> {
        let code = self.text.get(self.at..).filter(|code| !code.is_empty())?;
        let address = self.vaddr + self.at as u64;
        let d = usual::decode(code, address).or_else(|| general(code, address))?;
        let insn = Insn { at: self.at as u32, len: d.len, flags: d.flags };
        self.at += usize::from(d.len);
        self.displacement = d.displacement;
        Some((insn, d.refers))
    }

    /// Where the 32-bit displacement of the instruction just decoded starts in it.
    pub fn displacement(&self) -> Option<usize> {
        (self.displacement != 0).then_some(usize::from(self.displacement))
    }
}

/// Asks the disassembler for the instruction that `code` begins with, which is at `address`.
#[cold]
pub fn general(code: &[u8], address: u64) -> Option<Decoded> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    if !decoder.can_decode() {
        return None;
    }
    let i = decoder.decode();
    if i.is_invalid() {
        return None;
    }
    let mut flags = prefix_flags(&code[..i.len()]);
    let mut refers = Refers::Nothing;
    let near = i.op_count() > 0 && i.op0_kind() == OpKind::NearBranch64;
    if near {
        flags |= FLOW;
        refers = Refers::Branch(i.near_branch_target());
    }
    match i.mnemonic() {
        Mnemonic::Syscall => flags |= SYSCALL | FLOW,
        Mnemonic::Jmp if near => flags |= ENDS,
        Mnemonic::Jmp => {
            flags |= FLOW | ENDS | INDIRECT;
            if !i.is_ip_rel_memory_operand() && i.op0_kind() == OpKind::Memory {
                refers = Refers::Data(i.memory_displacement64());
            }
        }
        Mnemonic::Ret
        | Mnemonic::Retf
        | Mnemonic::Iret
        | Mnemonic::Iretd
        | Mnemonic::Iretq
        | Mnemonic::Ud0
        | Mnemonic::Ud1
        | Mnemonic::Ud2
        | Mnemonic::Hlt
        | Mnemonic::Int3
        | Mnemonic::Sysret
        | Mnemonic::Sysretq
        | Mnemonic::Sysexit
        | Mnemonic::Sysexitq => flags |= FLOW | ENDS,
        Mnemonic::Call
        | Mnemonic::Int
        | Mnemonic::Int1
        | Mnemonic::Into
        | Mnemonic::Sysenter
        | Mnemonic::Xabort
        | Mnemonic::Xend
        | Mnemonic::Xbegin => flags |= FLOW,
        Mnemonic::Endbr64 => flags |= LANDING,
        Mnemonic::Lea if i.is_ip_rel_memory_operand() => refers = Refers::Data(i.ip_rel_memory_address()),
        _ => {}
    }
    if i.is_ip_rel_memory_operand() {
        flags |= RELATIVE;
    }
    let c = decoder.get_constant_offsets(&i);
    let displacement =
        if c.has_displacement() && c.displacement_size() == 4 { c.displacement_offset() as u8 } else { 0 };
    Some(Decoded { len: i.len() as u8, flags, displacement, refers })
}

/// Looks at the opcode byte for encodings that reach beyond xmm0-15.
fn prefix_flags(bytes: &[u8]) -> u8 {
    let mut rest = bytes;
    while let [0x66 | 0xf2 | 0xf3 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65 | 0x67 | 0xf0 | 0x40..=0x4f, tail @ ..] =
        rest
    {
        rest = tail;
    }
    match rest {
        // In 64-bit mode C4, C5 and 62 are nothing but VEX and EVEX.
        [0xc4 | 0xc5 | 0x62, ..] => WIDE,
        // fldenv, fldcw, fnstenv, fnstcw: what `getcontext` and its kin do.
        [0xd9, modrm, ..] if modrm & 0xc0 != 0xc0 && modrm & 0x38 >= 0x20 => 0,
        [0xd8..=0xdf, ..] => WIDE,
        // 8F is XOP unless its map field is that of `pop`.
        [0x8f, map, ..] if map & 0x1f >= 8 => WIDE,
        _ => 0,
    }
}
