use super::{Node, limit};
use crate::measure::Measure;

pub fn run(m: &Measure) {
    m.time(|| count(&Node::root(), limit(m.size)));
}

pub fn count(node: &Node, limit: u32) -> u64 {
    1 + (0..node.children(limit)).map(|i| count(&node.child(i), limit)).sum::<u64>()
}
