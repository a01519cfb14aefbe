//! A check of a structure's layout at compile time.

/// The size of a field, by a function that answers it.
pub const fn field_size<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// Whether two fields, each an offset and a size, may be on the same line when the structure is aligned to `align`.
pub const fn share(a: (usize, usize), b: (usize, usize), line: usize, align: usize) -> bool {
    let (first, second) = if a.0 <= b.0 { (a, b) } else { (b, a) };
    if first.1 == 0 || second.1 == 0 {
        return false;
    }
    let last = first.0 + first.1 - 1;
    if align >= line { last / line >= second.0 / line } else { second.0 - last < line }
}

/// Refuses to compile if fields of a structure may be on the same cache line.
///
/// Fields that different threads write go to different groups, separated by commas; fields in one pair of brackets belong to
/// one thread and may be neighbours. A line is [`LINE`](crate::shard::LINE) bytes, or as many as are given first.
///
/// ```
/// use heddle::shard::CachePadded;
///
/// struct Queue {
///     head: CachePadded<(usize, usize)>,
///     tail: CachePadded<(usize, usize)>,
///     sum: u64,
///     count: u64,
/// }
/// heddle::apart!(Queue: head, tail, [sum, count]);
/// heddle::apart!(line = 64; Queue: head, tail);
/// ```
///
/// ```compile_fail
/// struct Queue {
///     head: usize,
///     tail: usize,
/// }
/// heddle::apart!(Queue: head, tail); // error: fields `head` and `tail` of `Queue` may share a cache line
/// ```
#[macro_export]
macro_rules! apart {
    (line = $line:expr; $type:ty: $($rest:tt)*) => { $crate::__apart!(@groups $line; $type; [] $($rest)*,); };
    ($type:ty: $($rest:tt)*) => { $crate::__apart!(@groups $crate::shard::LINE; $type; [] $($rest)*,); };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __apart {
    // Each group is put into brackets; a trailing comma more or less does not matter.
    (@groups $line:expr; $type:ty; [$($done:tt)*] $(,)?) => { $crate::__apart!(@first $line; $type; $($done)*); };
    (@groups $line:expr; $type:ty; [$($done:tt)*] [$($field:ident),+ $(,)?], $($rest:tt)*) => {
        $crate::__apart!(@groups $line; $type; [$($done)* [$($field)+]] $($rest)*);
    };
    (@groups $line:expr; $type:ty; [$($done:tt)*] $field:ident, $($rest:tt)*) => {
        $crate::__apart!(@groups $line; $type; [$($done)* [$field]] $($rest)*);
    };
    // The first group against each other one, then the rest.
    (@first $line:expr; $type:ty;) => {};
    (@first $line:expr; $type:ty; [$($a:ident)+] $([$($b:ident)+])*) => {
        $crate::__apart!(@each $line; $type; [$($a)+] $($($b)+)*);
        $crate::__apart!(@first $line; $type; $([$($b)+])*);
    };
    (@each $line:expr; $type:ty; [$($a:ident)+]) => {};
    (@each $line:expr; $type:ty; [$($a:ident)+] $b:ident $($rest:ident)*) => {
        $($crate::__apart!(@pair $line; $type; $a $b);)+
        $crate::__apart!(@each $line; $type; [$($a)+] $($rest)*);
    };
    (@pair $line:expr; $type:ty; $a:ident $b:ident) => {
        const _: () = if $crate::shard::share(
            (core::mem::offset_of!($type, $a), $crate::shard::field_size(|s: &$type| &s.$a)),
            (core::mem::offset_of!($type, $b), $crate::shard::field_size(|s: &$type| &s.$b)),
            $line,
            align_of::<$type>(),
        ) {
            panic!(concat!(
                "fields `", stringify!($a), "` and `", stringify!($b), "` of `", stringify!($type),
                "` may share a cache line: wrap one in heddle::shard::CachePadded"
            ));
        };
    };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sharing() {
        assert!(share((0, 8), (8, 8), 64, 64));
        assert!(share((8, 8), (0, 8), 64, 8));
        assert!(!share((0, 8), (64, 8), 64, 64));
        // Without the alignment the line may begin anywhere.
        assert!(share((0, 8), (64, 8), 64, 8));
        assert!(!share((0, 8), (71, 8), 64, 8));
        assert!(!share((0, 0), (0, 8), 64, 8));
        assert!(share((0, 128), (128, 1), 256, 256));
    }
}
