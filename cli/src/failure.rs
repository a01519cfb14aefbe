//! How heddle fails: one line on stderr and an exit status as `env(1)` gives it.

use std::io::{self, Write};

/// Exit status: heddle itself could not do its work, or was asked for something it does not have.
const OWN: u8 = 125;
/// Exit status: the program is there but cannot be executed, or not under Heddle.
const REFUSED: u8 = 126;
/// Exit status: there is no such program.
const NOT_FOUND: u8 = 127;

/// Why heddle gave up.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    status: u8,
    text: String,
}

impl Failure {
    /// Heddle's own failure, or a command line it does not understand: status 125.
    pub fn own(text: impl Into<String>) -> Self {
        Self { status: OWN, text: text.into() }
    }

    /// Anything else, with its status.
    pub fn with_status(status: u8, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// A program that is there but cannot be run: status 126.
    pub fn refused(text: impl Into<String>) -> Self {
        Self { status: REFUSED, text: text.into() }
    }

    /// A program that is not there: status 127.
    pub fn not_found(text: impl Into<String>) -> Self {
        Self { status: NOT_FOUND, text: text.into() }
    }

    /// The reason, without the program's name before it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Prints the one line; answers the exit status.
    pub fn report(&self) -> u8 {
        // A file name may hold a line break; the message stays one line. If stderr is closed, the status must say it all.
        let line: String = self.text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        let _ = io::stderr().write_all(format!("heddle: {line}\n").as_bytes());
        self.status
    }
}

/// Writes to stdout; a full disk or a closed descriptor is a failure, not a panic.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|e| Failure::own(format!("cannot write to stdout: {e}")))
}
