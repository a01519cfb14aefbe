//! Linux's thread ABI over `heddle-core`.
#![no_std]
extern crate alloc;
pub mod sites;
