//! What may cross between processes.

use std::marker::PhantomData;
use std::num::{
    NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroI128, NonZeroIsize, NonZeroU8, NonZeroU16, NonZeroU32,
    NonZeroU64, NonZeroU128, NonZeroUsize, Wrapping,
};
use std::sync::atomic::{
    AtomicBool, AtomicI8, AtomicI16, AtomicI32, AtomicI64, AtomicIsize, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
    AtomicUsize,
};
use std::time::Duration;

/// A value that means the same in every process of the program: plain data, or data in the arena.
///
/// What points into one process's own memory (`String`, `Vec`, `Box`, references, `Rc`) or names something that only one
/// process has (files, threads, locks of `std` and of [`crate::sync`]) is not. For text and lists there are
/// [`ArenaString`](super::ArenaString) and [`ArenaVec`](super::ArenaVec); [`shareable!`](crate::shareable) makes types of one's own.
///
/// ```compile_fail,E0277
/// // A `String` is in the memory of one process: "`String` cannot cross between processes".
/// heddle::task(|name: String| name.len(), "weft".to_string());
/// ```
///
/// ```compile_fail,E0277
/// heddle::task(|slice: &'static [u8]| slice.len(), b"weft".as_slice());
/// ```
///
/// # Safety
/// A bit-by-bit copy of the value is the same value in any other process of the program, and no memory outside of the arena
/// belongs to it. (Addresses of functions and of the program's constants do not count: data has none here.)
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot cross between processes",
    label = "this is, or holds, something that only one process has",
    note = "plain data can, and `ArenaString`, `ArenaVec<T>`, `ArenaBox<T>`, `ArenaArc<T>` of `heddle::process`",
    note = "for a type of your own, wrap its definition: `heddle::shareable! {{ struct Point {{ x: f64, y: f64 }} }}`"
)]
pub unsafe trait Shareable: Send + 'static {
    /// The value has come to this process: told to the parts that it consists of, but not to what they point to. Stores words only:
    /// it is called under locks of the arena.
    #[doc(hidden)]
    #[inline]
    fn arrived(&self) {}
}

/// For [`shareable!`](crate::shareable).
#[doc(hidden)]
pub const fn check_shareable<T: Shareable>() {}

macro_rules! plain {
    ($($type:ty)*) => { $(
        // SAFETY: its bits are all there is.
        unsafe impl Shareable for $type {}
    )* };
}
plain! {
    () bool char u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 Duration
    NonZeroI8 NonZeroI16 NonZeroI32 NonZeroI64 NonZeroI128 NonZeroIsize
    NonZeroU8 NonZeroU16 NonZeroU32 NonZeroU64 NonZeroU128 NonZeroUsize
    AtomicBool AtomicI8 AtomicI16 AtomicI32 AtomicI64 AtomicIsize AtomicU8 AtomicU16 AtomicU32 AtomicU64 AtomicUsize
    std::cmp::Ordering std::net::IpAddr std::net::Ipv4Addr std::net::Ipv6Addr std::net::SocketAddr
}

// SAFETY: nothing but its parts, in this and the next.
unsafe impl<T: Shareable, const N: usize> Shareable for [T; N] {
    #[inline]
    fn arrived(&self) {
        self.iter().for_each(T::arrived);
    }
}
// SAFETY: as above.
unsafe impl<T: Shareable> Shareable for Option<T> {
    #[inline]
    fn arrived(&self) {
        self.iter().for_each(T::arrived);
    }
}
// SAFETY: as above.
unsafe impl<T: Shareable, E: Shareable> Shareable for Result<T, E> {
    #[inline]
    fn arrived(&self) {
        match self {
            Ok(value) => value.arrived(),
            Err(why) => why.arrived(),
        }
    }
}
// SAFETY: as above.
unsafe impl<T: Shareable> Shareable for Wrapping<T> {}
// SAFETY: nothing at all.
unsafe impl<T: Send + 'static> Shareable for PhantomData<T> {}

macro_rules! tuple {
    ($($name:ident)*) => {
        // SAFETY: nothing but its parts.
        unsafe impl<$($name: Shareable),*> Shareable for ($($name,)*) {
            #[inline]
            #[allow(non_snake_case)]
            fn arrived(&self) {
                let ($($name,)*) = self;
                $($name.arrived();)*
            }
        }
    };
}
tuple!(A);
tuple!(A B);
tuple!(A B C);
tuple!(A B C D);
tuple!(A B C D E);
tuple!(A B C D E F);
tuple!(A B C D E F G);
tuple!(A B C D E F G H);

/// Defines types that may cross between processes ([`process::Shareable`](crate::process::Shareable)): each field's type must.
///
/// ```
/// use heddle::process::ArenaString;
///
/// heddle::shareable! {
///     /// Where a thread is.
///     #[derive(Clone, Debug, PartialEq)]
///     pub struct Place {
///         pub row: u32,
///         name: ArenaString,
///     }
///
///     struct Pair(u32, Option<Place>);
///
///     #[derive(Clone, Copy)]
///     enum Side { Left, Right }
///
///     enum Found { Nowhere, At(Place, Side) }
/// }
///
/// let place = Place { row: 7, name: "weft".into() };
/// let handle = heddle::task(|pair: Pair| pair.0 + pair.1.map_or(0, |place| place.row), Pair(1, Some(place)));
/// assert_eq!(handle.join()?, 8);
/// # let _ = (Side::Left, Side::Right, Found::Nowhere, Found::At);
/// # Ok::<(), heddle::process::TaskError>(())
/// ```
///
/// ```compile_fail,E0277
/// heddle::shareable! {
///     struct Name { text: String }
/// }
/// ```
///
/// ```compile_fail,E0277
/// heddle::shareable! {
///     enum Name { None, Text(String) }
/// }
/// ```
#[macro_export]
macro_rules! shareable {
    () => {};
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($(#[$field_meta:meta])* $field_vis:vis $field:ident : $type:ty),* $(,)? } $($rest:tt)*) => {
        $(#[$meta])* $vis struct $name { $($(#[$field_meta])* $field_vis $field : $type),* }
        $crate::shareable!(@checked $name [$($type)*] this {
            $( $crate::process::Shareable::arrived(&this.$field); )*
        });
        $crate::shareable! { $($rest)* }
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident ( $($(#[$field_meta:meta])* $field_vis:vis $type:ty),* $(,)? ); $($rest:tt)*) => {
        $(#[$meta])* $vis struct $name ( $($(#[$field_meta])* $field_vis $type),* );
        $crate::shareable!(@checked $name [$($type)*] this {
            $crate::shareable!(@arrived this [$name] [] [$($type,)*]);
        });
        $crate::shareable! { $($rest)* }
    };
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident $(( $($type:ty),* $(,)? ))? $(= $value:expr)?),* $(,)? } $($rest:tt)*) => {
        $(#[$meta])* $vis enum $name { $($(#[$variant_meta])* $variant $(( $($type),* ))? $(= $value)?),* }
        $crate::shareable!(@checked $name [$($($($type)*)?)*] this {
            $($( $crate::shareable!(@arrived this [$name::$variant] [] [$($type,)*]); )?)*
        });
        $crate::shareable! { $($rest)* }
    };
    // A name for each part: those of different calls differ.
    (@arrived $this:ident [$($path:tt)*] [$($part:ident)*] [$first:ty, $($rest:ty,)*]) => {
        $crate::shareable!(@arrived $this [$($path)*] [$($part)* part] [$($rest,)*]);
    };
    (@arrived $this:ident [$($path:tt)*] [$($part:ident)*] []) => {
        #[allow(irrefutable_let_patterns)]
        if let $($path)* ( $($part),* ) = $this {
            $( $crate::process::Shareable::arrived($part); )*
        }
    };
    (@checked $name:ident [$($type:ty)*] $this:ident { $($tell:tt)* }) => {
        // SAFETY: it has no parts but these, and they are checked below.
        unsafe impl $crate::process::Shareable for $name {
            #[inline]
            fn arrived(&self) {
                let $this = self;
                let _ = $this;
                $($tell)*
            }
        }
        const _: () = { $( $crate::process::check_shareable::<$type>(); )* };
    };
}
