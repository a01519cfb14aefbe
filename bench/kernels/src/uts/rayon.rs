use super::{Node, limit};
use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    let pool = rivals::rayon(m.workers);
    m.time(|| pool.install(|| count(&Node::root(), limit(m.size))));
}

fn count(node: &Node, limit: u32) -> u64 {
    let children = node.children(limit);
    if children == 0 { 1 } else { 1 + among(node, 0, children, limit) }
}

/// The nodes of some children, at least one.
fn among(node: &Node, from: u32, to: u32, limit: u32) -> u64 {
    if to - from == 1 {
        return count(&node.child(from), limit);
    }
    let middle = from + (to - from) / 2;
    let (a, b) = rayon::join(|| among(node, from, middle, limit), || among(node, middle, to, limit));
    a + b
}
