//! fib(n) without a cutoff: nothing but forks.

#[inline(never)]
pub fn sequential(n: u32) -> u64 {
    if n < 2 { n.into() } else { sequential(n - 1) + sequential(n - 2) }
}

pub fn heddle(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let (a, b) = heddle::join(|| heddle(n - 1), || heddle(n - 2));
    a + b
}

pub fn rayon(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let (a, b) = rayon::join(|| rayon(n - 1), || rayon(n - 2));
    a + b
}

pub fn chili(scope: &mut chili::Scope<'_>, n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let (a, b) = scope.join(|s| chili(s, n - 1), |s| chili(s, n - 2));
    a + b
}
