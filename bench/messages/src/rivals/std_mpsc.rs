//! The standard library's; and its boxes, with the system's allocator.

pub fn run(figure: &str, count: u64) -> Option<f64> {
    super::handover::boxes(figure, count, true)
        .or_else(|| super::threads!(figure, count, std::thread::spawn, std::sync::mpsc::sync_channel, many: no))
}
