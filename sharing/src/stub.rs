//! The object file of `stub.s`: see there.
#![no_std]
core::arch::global_asm!(include_str!("stub.s"));
