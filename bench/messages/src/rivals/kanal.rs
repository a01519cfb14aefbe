//! kanal.

pub fn run(figure: &str, count: u64) -> Option<f64> {
    super::threads!(figure, count, std::thread::spawn, kanal::bounded, many: yes)
}
