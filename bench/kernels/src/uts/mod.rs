//! UTS T3: the Unbalanced Tree Search sample tree of 4,112,897 nodes, depth 1572, one task per node. Its root has 2000
//! children; another node has eight with a chance of 0.124875, otherwise none, as its SHA-1 says, which is that of its
//! parent's and its number among the children. `size` is a chance in millionths: a smaller one makes a smaller tree.

use crate::kernel::{Kernel, Rival, Unit};

mod chili;
mod heddle;
mod rayon;
mod sequential;

pub const KERNEL: Kernel = Kernel {
    name: "uts",
    unit: Unit::Rate,
    size: 124_875,
    quick: 118_000,
    items: |size| nodes(size) as f64,
    expected: nodes,
    rivals: &[
        Rival::here("sequential", sequential::run).single(),
        Rival::c("uts.c").single(),
        Rival::here("heddle", heddle::run),
        Rival::here("rayon", rayon::run),
        Rival::here("chili", chili::run),
        Rival::openmp_gcc("uts.c"),
        Rival::openmp_clang("uts.c"),
        Rival::tbb("uts.cpp"),
        Rival::go("uts.go"),
    ],
};

/// The nodes of the tree: that of the full one is known.
fn nodes(size: usize) -> u64 {
    if size == KERNEL.size { 4_112_897 } else { sequential::count(&Node::root(), limit(size)) }
}

/// What a node's random number must be below for it to have children.
pub fn limit(size: usize) -> u32 {
    (size as f64 / 1e6 * f64::from(1u32 << 31)).ceil() as u32
}

/// A node: its SHA-1, and whether it is the root.
pub struct Node {
    hash: [u32; 5],
    is_root: bool,
}

impl Node {
    /// SHA-1 of 16 zero bytes and the seed, 42.
    pub fn root() -> Self {
        Self { hash: sha1([0, 0, 0, 0, 42, 1 << 31, 0, 0, 0, 0, 0, 0, 0, 0, 0, 160]), is_root: true }
    }

    #[inline(never)]
    pub fn child(&self, i: u32) -> Self {
        let [a, b, c, d, e] = self.hash;
        Self { hash: sha1([a, b, c, d, e, i, 1 << 31, 0, 0, 0, 0, 0, 0, 0, 0, 192]), is_root: false }
    }

    pub fn children(&self, limit: u32) -> u32 {
        if self.is_root {
            2000
        } else if self.hash[4] & 0x7fff_ffff < limit {
            8
        } else {
            0
        }
    }
}

/// SHA-1 of a message of one block. Five steps at a time, so that no word moves; inlined, since most words are constant.
#[inline(always)]
fn sha1(mut w: [u32; 16]) -> [u32; 5] {
    const START: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let [mut a, mut b, mut c, mut d, mut e] = START;
    macro_rules! step {
        ($a:ident $b:ident $c:ident $d:ident $e:ident, $i:expr, $f:expr, $k:expr) => {
            let i = $i;
            if i >= 16 {
                w[i % 16] = (w[(i + 13) % 16] ^ w[(i + 8) % 16] ^ w[(i + 2) % 16] ^ w[i % 16]).rotate_left(1);
            }
            let f: u32 = $f($b, $c, $d);
            // In this order: the next step waits for the last addition alone.
            $e = $e.wrapping_add($k).wrapping_add(w[i % 16]).wrapping_add(f).wrapping_add($a.rotate_left(5));
            $b = $b.rotate_left(30);
        };
    }
    macro_rules! steps {
        ($f:expr, $k:expr, $($i:expr)*) => {$(
            step!(a b c d e, $i, $f, $k);
            step!(e a b c d, $i + 1, $f, $k);
            step!(d e a b c, $i + 2, $f, $k);
            step!(c d e a b, $i + 3, $f, $k);
            step!(b c d e a, $i + 4, $f, $k);
        )*};
    }
    steps!(|b: u32, c: u32, d: u32| d ^ (b & (c ^ d)), 0x5a82_7999, 0 5 10 15);
    steps!(|b: u32, c: u32, d: u32| b ^ c ^ d, 0x6ed9_eba1, 20 25 30 35);
    steps!(|b: u32, c: u32, d: u32| (b & c) | (d & (b | c)), 0x8f1b_bcdc, 40 45 50 55);
    steps!(|b: u32, c: u32, d: u32| b ^ c ^ d, 0xca62_c1d6, 60 65 70 75);
    let sum = [a, b, c, d, e];
    std::array::from_fn(|i| START[i].wrapping_add(sum[i]))
}
