//! Channels of values that all have the same size.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

use runtime::cancel::Limit;
use runtime::channel::{
    Receiver, RecvUntilError, SendUntilError, Sender, Shared, TryRecvError, TrySendError, bounded, unbounded,
};

use crate::error::{Outcome, Refusal, answer, reference, store};
use crate::limit::{HEDDLE_FOREVER, heddle_token_t, limit, time};

/// A channel with room for any number of values.
pub const HEDDLE_UNBOUNDED: usize = 0xffff_ffff_ffff_ffff;

/// The most bytes that a value in a channel may have; of larger things send the address.
pub const HEDDLE_CHANNEL_VALUE_MAX: usize = 65536;

/// Hands values, copies of plain data of one size, from thread to thread: each to one receiver, those of one sender to
/// one receiver in the order in which they were sent. Made by heddle_channel_create, used by any number of threads.
pub struct heddle_channel_t {
    _opaque: [u8; 0],
}

/// What is behind the program's pointer.
struct Channel {
    values: Box<dyn Values>,
}

/// A channel whose values have the channel's size.
trait Values: Sync {
    /// # Safety
    /// A value is at `from`.
    unsafe fn try_send(&self, from: *const u8) -> Outcome;
    /// # Safety
    /// A value is at `from`.
    unsafe fn send(&self, from: *const u8, limit: Limit<'_>) -> Outcome;
    /// # Safety
    /// There is room for a value at `to`.
    unsafe fn try_receive(&self, to: *mut u8) -> Outcome;
    /// # Safety
    /// There is room for a value at `to`.
    unsafe fn receive(&self, to: *mut u8, limit: Limit<'_>) -> Outcome;
    fn close(&self) -> bool;
    fn is_closed(&self) -> bool;
    fn len(&self) -> usize;
}

/// How a value travels.
trait Value: Send + 'static {
    /// # Safety
    /// `size` bytes are at `from`.
    unsafe fn read(from: *const u8, size: usize) -> Self;
    /// # Safety
    /// There is room for `size` bytes at `to`, as many as it was read from.
    unsafe fn write(self, to: *mut u8, size: usize);
}

/// In a slot of the channel.
struct Inside<const N: usize>([MaybeUninit<u64>; N]);

impl<const N: usize> Value for Inside<N> {
    unsafe fn read(from: *const u8, size: usize) -> Self {
        let mut words = [MaybeUninit::uninit(); N];
        // SAFETY: the caller's; the channel was made for values of this size.
        unsafe { std::ptr::copy_nonoverlapping(from, words.as_mut_ptr().cast::<u8>(), size) };
        Self(words)
    }

    unsafe fn write(self, to: *mut u8, size: usize) {
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(self.0.as_ptr().cast::<u8>(), to, size) };
    }
}

/// In memory of its own.
struct Outside(Box<[MaybeUninit<u8>]>);

impl Value for Outside {
    unsafe fn read(from: *const u8, size: usize) -> Self {
        let mut bytes = Box::new_uninit_slice(size);
        // SAFETY: the caller's.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr().cast::<u8>(), size) };
        Self(bytes)
    }

    unsafe fn write(self, to: *mut u8, size: usize) {
        // SAFETY: the caller's.
        unsafe { std::ptr::copy_nonoverlapping(self.0.as_ptr().cast::<u8>(), to, size) };
    }
}

struct Of<T> {
    size: usize,
    ends: Shared<T>,
}

impl<T: Value> Of<T> {
    fn boxed(size: usize, capacity: usize) -> Result<Box<dyn Values>, Refusal> {
        let (sender, receiver): (Sender<T>, Receiver<T>) = if capacity == HEDDLE_UNBOUNDED {
            unbounded()
        } else {
            // A channel makes its room when it is made, and has no error for it.
            let room = capacity.checked_next_power_of_two().ok_or(libc::ENOMEM)?;
            Vec::<T>::new().try_reserve_exact(room).map_err(|_| libc::ENOMEM)?;
            bounded(capacity)
        };
        Ok(Box::new(Self { size, ends: Shared::new(sender, receiver) }))
    }
}

impl<T: Value> Values for Of<T> {
    unsafe fn try_send(&self, from: *const u8) -> Outcome {
        // SAFETY: the caller's.
        let value = unsafe { T::read(from, self.size) };
        self.ends.sender().try_send(value).map_err(|why| match why {
            TrySendError::Full(_) => libc::EAGAIN.into(),
            TrySendError::Disconnected(_) => libc::EPIPE.into(),
        })
    }

    unsafe fn send(&self, from: *const u8, limit: Limit<'_>) -> Outcome {
        // SAFETY: the caller's.
        let value = unsafe { T::read(from, self.size) };
        self.ends.sender().send_until(value, limit).map_err(|why| match why {
            SendUntilError::TimedOut(_) => libc::ETIMEDOUT.into(),
            SendUntilError::Cancelled(_) => libc::ECANCELED.into(),
            SendUntilError::Disconnected(_) => libc::EPIPE.into(),
        })
    }

    unsafe fn try_receive(&self, to: *mut u8) -> Outcome {
        let value = self.ends.receiver().try_recv().map_err(|why| match why {
            TryRecvError::Empty => Refusal::from(libc::EAGAIN),
            TryRecvError::Disconnected => libc::EPIPE.into(),
        })?;
        // SAFETY: the caller's.
        unsafe { value.write(to, self.size) };
        Ok(())
    }

    unsafe fn receive(&self, to: *mut u8, limit: Limit<'_>) -> Outcome {
        let value = self.ends.receiver().recv_until(limit).map_err(|why| match why {
            RecvUntilError::TimedOut => Refusal::from(libc::ETIMEDOUT),
            RecvUntilError::Cancelled => libc::ECANCELED.into(),
            RecvUntilError::Disconnected => libc::EPIPE.into(),
        })?;
        // SAFETY: the caller's.
        unsafe { value.write(to, self.size) };
        Ok(())
    }

    fn close(&self) -> bool {
        self.ends.sender().close()
    }

    fn is_closed(&self) -> bool {
        self.ends.sender().is_closed()
    }

    fn len(&self) -> usize {
        self.ends.receiver().len()
    }
}

/// Makes a channel for values of `value_size` bytes, 1 to HEDDLE_CHANNEL_VALUE_MAX, and stores it in *channel. It has
/// room for `capacity` values and makes senders wait when it is full; HEDDLE_UNBOUNDED: for any number; 0: for none, so
/// that a send ends when somebody has received the value.
///
/// It allocates the room, but for that of values of more than 128 bytes, which allocate memory one by one; it does not
/// block. Errors: EINVAL: a null pointer, a size that may not be. ENOMEM: there is no memory for so many.
///
/// # Safety
/// `channel` points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_channel_create(
    channel: *mut *mut heddle_channel_t,
    value_size: usize,
    capacity: usize,
) -> c_int {
    answer("heddle_channel_create", || {
        // SAFETY: the caller's.
        unsafe { store(channel, std::ptr::null_mut())? };
        let make = match value_size {
            1..=8 => Of::<Inside<1>>::boxed,
            9..=16 => Of::<Inside<2>>::boxed,
            17..=32 => Of::<Inside<4>>::boxed,
            33..=64 => Of::<Inside<8>>::boxed,
            65..=128 => Of::<Inside<16>>::boxed,
            129..=HEDDLE_CHANNEL_VALUE_MAX => Of::<Outside>::boxed,
            _ => return Err(libc::EINVAL.into()),
        };
        let made = Box::new(Channel { values: make(value_size, capacity)? });
        // SAFETY: the caller's.
        unsafe { store(channel, Box::into_raw(made).cast()) }
    })
}

/// # Safety
/// `channel` is null or a channel, `value` null or a place for a value.
unsafe fn values<'a, T>(channel: *const heddle_channel_t, value: *const T) -> Result<&'a dyn Values, Refusal> {
    if value.is_null() {
        return Err(libc::EINVAL.into());
    }
    // SAFETY: the caller's.
    Ok(&*unsafe { reference(channel.cast::<Channel>())? }.values)
}

/// Puts a copy of *value into the channel, when there is room. It looks for a moment, then parks the calling thread.
/// What the caller did before comes before what the receiver of the value does next. Errors: EPIPE: the channel is
/// closed. EINVAL: a null pointer.
///
/// # Safety
/// `channel` is a channel; a value is at `value`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_channel_send(channel: *mut heddle_channel_t, value: *const c_void) -> c_int {
    // SAFETY: the caller's.
    answer("heddle_channel_send", || unsafe { values(channel, value)?.send(value.cast(), time(HEDDLE_FOREVER)) })
}

/// As heddle_channel_send, without waiting. Errors: EAGAIN: there is no room; in a channel without room, no receiver
/// waits. EPIPE, EINVAL as there.
///
/// # Safety
/// `channel` is a channel; a value is at `value`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_channel_trysend(channel: *mut heddle_channel_t, value: *const c_void) -> c_int {
    // SAFETY: the caller's.
    answer("heddle_channel_trysend", || unsafe { values(channel, value)?.try_send(value.cast()) })
}

/// As heddle_channel_send, for that many nanoseconds at most. Errors: ETIMEDOUT: there was no room until then. EPIPE,
/// EINVAL as there.
///
/// # Safety
/// `channel` is a channel; a value is at `value`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_channel_timedsend(
    channel: *mut heddle_channel_t,
    value: *const c_void,
    nanoseconds: u64,
) -> c_int {
    // SAFETY: the caller's.
    answer("heddle_channel_timedsend", || unsafe { values(channel, value)?.send(value.cast(), time(nanoseconds)) })
}

/// As heddle_channel_send, for that many nanoseconds at most, and until `token`, which may be NULL, is cancelled. What
/// can be sent without waiting is sent in any case. Errors: ETIMEDOUT, ECANCELED: there was no room until then. EPIPE,
/// EINVAL as there.
///
/// # Safety
/// `channel` is a channel; a value is at `value`; `token` is null or a token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_channel_send_within(
    channel: *mut heddle_channel_t,
    value: *const c_void,
    nanoseconds: u64,
    token: *const heddle_token_t,
) -> c_int {
    // SAFETY: the caller's.
    answer("heddle_channel_send_within", || unsafe {
        values(channel, value)?.send(value.cast(), limit(nanoseconds, token)?)
    })
}

/// Takes a value out of the channel and copies it to *value, when there is one. It looks for a moment, then parks the
/// calling thread. Errors: EPIPE: the channel is closed and empty. EINVAL: a null pointer.
///
/// # Safety
/// `channel` is a channel; there is room for a value at `value`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_channel_receive(channel: *mut heddle_channel_t, value: *mut c_void) -> c_int {
    // SAFETY: the caller's.
    answer("heddle_channel_receive", || unsafe { values(channel, value)?.receive(value.cast(), time(HEDDLE_FOREVER)) })
}

/// As heddle_channel_receive, without waiting. Errors: EAGAIN: there is no value; in a channel without room, no sender
/// waits. EPIPE, EINVAL as there.
///
/// # Safety
/// `channel` is a channel; there is room for a value at `value`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_channel_tryreceive(channel: *mut heddle_channel_t, value: *mut c_void) -> c_int {
    // SAFETY: the caller's.
    answer("heddle_channel_tryreceive", || unsafe { values(channel, value)?.try_receive(value.cast()) })
}

/// As heddle_channel_receive, for that many nanoseconds at most. Errors: ETIMEDOUT: there was no value until then.
/// EPIPE, EINVAL as there.
///
/// # Safety
/// `channel` is a channel; there is room for a value at `value`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_channel_timedreceive(
    channel: *mut heddle_channel_t,
    value: *mut c_void,
    nanoseconds: u64,
) -> c_int {
    // SAFETY: the caller's.
    answer("heddle_channel_timedreceive", || unsafe {
        values(channel, value)?.receive(value.cast(), time(nanoseconds))
    })
}

/// As heddle_channel_receive, for that many nanoseconds at most, and until `token`, which may be NULL, is cancelled.
/// What is there is had in any case. Errors: ETIMEDOUT, ECANCELED: there was no value until then. EPIPE, EINVAL as
/// there.
///
/// # Safety
/// `channel` is a channel; there is room for a value at `value`; `token` is null or a token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_channel_receive_within(
    channel: *mut heddle_channel_t,
    value: *mut c_void,
    nanoseconds: u64,
    token: *const heddle_token_t,
) -> c_int {
    // SAFETY: the caller's.
    answer("heddle_channel_receive_within", || unsafe {
        values(channel, value)?.receive(value.cast(), limit(nanoseconds, token)?)
    })
}

/// Nothing more is sent from here on, and who waits to send is answered EPIPE; what is in the channel can be received.
/// A send that another thread makes at the same time may come before or after it. It does not block. Errors: EALREADY:
/// it is closed. EINVAL: a null pointer.
///
/// # Safety
/// `channel` is a channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_channel_close(channel: *mut heddle_channel_t) -> c_int {
    answer("heddle_channel_close", || {
        // SAFETY: the caller's; nothing is read from where it points.
        let values = unsafe { values(channel, channel)? };
        if values.close() { Ok(()) } else { Err(libc::EALREADY.into()) }
    })
}

/// Whether it is closed; values may be in it. True for NULL.
///
/// # Safety
/// `channel` is null or a channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_channel_is_closed(channel: *const heddle_channel_t) -> bool {
    // SAFETY: the caller's; nothing is read from where it points.
    unsafe { values(channel, channel) }.map_or(true, Values::is_closed)
}

/// How many values are in it, at some moment. 0 for NULL.
///
/// # Safety
/// `channel` is null or a channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_channel_count(channel: *const heddle_channel_t) -> usize {
    // SAFETY: the caller's; nothing is read from where it points.
    unsafe { values(channel, channel) }.map_or(0, Values::len)
}

/// Frees it, with what is in it. No thread may use it any more. Error: EINVAL: a null pointer.
///
/// # Safety
/// `channel` is a channel that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heddle_channel_destroy(channel: *mut heddle_channel_t) -> c_int {
    answer("heddle_channel_destroy", || {
        let channel = channel.cast::<Channel>();
        // SAFETY: the caller's.
        unsafe {
            reference(channel)?;
            drop(Box::from_raw(channel));
        }
        Ok(())
    })
}
