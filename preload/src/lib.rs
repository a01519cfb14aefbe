//! The constructor.
#![no_std]
