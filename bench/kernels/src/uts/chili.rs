use super::{Node, limit};
use crate::measure::Measure;
use crate::rivals;

pub fn run(m: &Measure) {
    let pool = rivals::chili(m.workers);
    m.time(|| count(&mut pool.scope(), &Node::root(), limit(m.size)));
}

fn count(scope: &mut chili::Scope<'_>, node: &Node, limit: u32) -> u64 {
    let children = node.children(limit);
    if children == 0 { 1 } else { 1 + among(scope, node, 0, children, limit) }
}

/// The nodes of some children, at least one.
fn among(scope: &mut chili::Scope<'_>, node: &Node, from: u32, to: u32, limit: u32) -> u64 {
    if to - from == 1 {
        return count(scope, &node.child(from), limit);
    }
    let middle = from + (to - from) / 2;
    let (a, b) = scope.join(|s| among(s, node, from, middle, limit), |s| among(s, node, middle, to, limit));
    a + b
}
