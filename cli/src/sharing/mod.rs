//! `heddle sharing`: builds a program so that its memory accesses can be watched, and runs it with the detector.

mod build;
mod findings;
mod json;
mod report;
mod run;
mod symbols;

pub use build::build;
pub use run::run;
