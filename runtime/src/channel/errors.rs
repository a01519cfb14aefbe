//! Why nothing was sent or received. The names are those of `std::sync::mpsc`, but for the limits.

use std::fmt;

/// The channel is closed; the value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// Why [`try_send`](super::Sender::try_send) has not sent; the value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// There is no room (in a rendezvous: no receiver waits).
    Full(T),
    /// The channel is closed.
    Disconnected(T),
}

/// Why nothing was sent in time; the value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendUntilError<T> {
    /// There was no room in time.
    TimedOut(T),
    /// The token was cancelled before there was room.
    Cancelled(T),
    /// The channel is closed.
    Disconnected(T),
}

/// The channel is closed and empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvError;

/// Why [`try_recv`](super::Receiver::try_recv) has received nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryRecvError {
    /// No value is there.
    Empty,
    /// The channel is closed and empty.
    Disconnected,
}

/// Why nothing was received in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvUntilError {
    /// No value came in time.
    TimedOut,
    /// The token was cancelled before a value came.
    Cancelled,
    /// The channel is closed and empty.
    Disconnected,
}

impl<T> TrySendError<T> {
    /// The value.
    pub fn into_inner(self) -> T {
        match self {
            Self::Full(value) | Self::Disconnected(value) => value,
        }
    }
}

impl<T> SendUntilError<T> {
    /// The value.
    pub fn into_inner(self) -> T {
        match self {
            Self::TimedOut(value) | Self::Cancelled(value) | Self::Disconnected(value) => value,
        }
    }
}

const CLOSED: &str = "the channel is closed";

// Values need not be printable: the errors are, without them.
macro_rules! without_value {
    ($($name:ident { $($pattern:pat => ($short:expr, $long:expr)),* })*) => {$(
        impl<T> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($pattern => $short),* })
            }
        }
        impl<T> fmt::Display for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($pattern => $long),* })
            }
        }
        impl<T> std::error::Error for $name<T> {}
    )*};
}

without_value! {
    SendError { Self(_) => ("SendError(..)", CLOSED) }
    TrySendError {
        Self::Full(_) => ("Full(..)", "the channel is full"),
        Self::Disconnected(_) => ("Disconnected(..)", CLOSED)
    }
    SendUntilError {
        Self::TimedOut(_) => ("TimedOut(..)", "the channel was full until the deadline"),
        Self::Cancelled(_) => ("Cancelled(..)", "cancelled while the channel was full"),
        Self::Disconnected(_) => ("Disconnected(..)", CLOSED)
    }
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the channel is closed and empty")
    }
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the channel is empty",
            Self::Disconnected => "the channel is closed and empty",
        })
    }
}

impl fmt::Display for RecvUntilError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "the channel was empty until the deadline",
            Self::Cancelled => "cancelled while the channel was empty",
            Self::Disconnected => "the channel is closed and empty",
        })
    }
}

impl std::error::Error for RecvError {}
impl std::error::Error for TryRecvError {}
impl std::error::Error for RecvUntilError {}
