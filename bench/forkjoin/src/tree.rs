//! An unbalanced tree: each node has eight children or none, as a hash of its place says, so that subtrees of the same
//! depth differ by orders of magnitude. Children are forked one by one.

/// A node: a hash and how deep it is.
pub struct Node {
    hash: u64,
    depth: u32,
}

const CHILDREN: u64 = 8;

impl Node {
    pub const ROOT: Self = Self { hash: 42, depth: 0 };

    fn children(&self) -> u64 {
        // 4000 at the root; then 8 with a chance of 0.1245, so that each has a little less than one on average.
        if self.depth == 0 {
            4000
        } else if self.hash % 10_000 < 1_249 {
            CHILDREN
        } else {
            0
        }
    }

    fn child(&self, i: u64) -> Self {
        let mut x = self.hash.wrapping_add((i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        // A few rounds, so that a node costs about what a hash costs.
        for _ in 0..8 {
            x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            x ^= x >> 31;
        }
        Self { hash: x, depth: self.depth + 1 }
    }
}

pub fn sequential(node: &Node) -> u64 {
    1 + (0..node.children()).map(|i| sequential(&node.child(i))).sum::<u64>()
}

pub fn heddle(node: &Node) -> u64 {
    fn range(node: &Node, from: u64, to: u64) -> u64 {
        match to - from {
            0 => 0,
            1 => heddle(&node.child(from)),
            n => {
                let middle = from + n / 2;
                let (a, b) = heddle::join(|| range(node, from, middle), || range(node, middle, to));
                a + b
            }
        }
    }
    1 + range(node, 0, node.children())
}

pub fn rayon(node: &Node) -> u64 {
    fn range(node: &Node, from: u64, to: u64) -> u64 {
        match to - from {
            0 => 0,
            1 => rayon(&node.child(from)),
            n => {
                let middle = from + n / 2;
                let (a, b) = rayon::join(|| range(node, from, middle), || range(node, middle, to));
                a + b
            }
        }
    }
    1 + range(node, 0, node.children())
}

pub fn chili(scope: &mut chili::Scope<'_>, node: &Node) -> u64 {
    fn range(scope: &mut chili::Scope<'_>, node: &Node, from: u64, to: u64) -> u64 {
        match to - from {
            0 => 0,
            1 => chili(scope, &node.child(from)),
            n => {
                let middle = from + n / 2;
                let (a, b) = scope.join(|s| range(s, node, from, middle), |s| range(s, node, middle, to));
                a + b
            }
        }
    }
    1 + range(scope, node, 0, node.children())
}
