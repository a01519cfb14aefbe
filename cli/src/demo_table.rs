//! The demo's table: figures of both sides, medians, ratios.

use std::fmt::Write;

use crate::demo_child::Side;

/// Which direction is good.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// A cost.
    Lower,
    /// A rate.
    Higher,
    /// Neither: no ratio is shown.
    Unrated,
}

/// A row of the table.
pub struct Figure {
    /// What is measured.
    pub title: String,
    /// Unit of the values.
    pub unit: &'static str,
    /// Which direction is good.
    pub better: Better,
}

/// Rows in the order in which they were first added.
#[derive(Default)]
pub struct Table {
    rows: Vec<(Figure, [Vec<f64>; 2])>,
}

impl Table {
    /// Adds a measured value.
    pub fn add(&mut self, figure: Figure, side: Side, value: f64) {
        let known = self.rows.iter().position(|(known, _)| known.title == figure.title);
        let row = known.unwrap_or_else(|| {
            self.rows.push((figure, Default::default()));
            self.rows.len() - 1
        });
        self.rows[row].1[side as usize].push(value);
    }

    /// The table as text.
    pub fn render(&self) -> String {
        let mut text = format!("{:<44} {:>14} {:>14}  {:<13} {:>7}\n", "figure", "NPTL", "Heddle", "unit", "ratio");
        for (figure, [nptl, heddle]) in &self.rows {
            let (nptl, heddle) = (median(nptl), median(heddle));
            let ratio = match (figure.better, nptl, heddle) {
                (Better::Lower, Some(nptl), Some(heddle)) => format!("{:.1}x", nptl / heddle),
                (Better::Higher, Some(nptl), Some(heddle)) => format!("{:.1}x", heddle / nptl),
                _ => String::new(),
            };
            let (nptl, heddle) = (show(figure, nptl), show(figure, heddle));
            let line = format!("{:<44} {nptl:>14} {heddle:>14}  {:<13} {ratio:>7}", figure.title, figure.unit);
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text.pop();
        text
    }
}

fn show(figure: &Figure, value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if figure.unit.is_empty() => format!("{value:.0}"),
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) if value >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

/// The middle value, or the mean of the two in the middle.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn a_ratio_above_one_is_heddles_advantage_either_way() {
        let mut table = Table::default();
        let mut add = |title: &str, better, nptl, heddle| {
            for (side, value) in [(Side::Nptl, nptl), (Side::Heddle, heddle)] {
                table.add(Figure { title: title.to_owned(), unit: "us", better }, side, value);
            }
        };
        add("cost", Better::Lower, 50.0, 0.5);
        add("rate", Better::Higher, 100.0, 250.0);
        add("count", Better::Unrated, 1024.0, 4.0);
        let text = table.render();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[1].starts_with("cost") && lines[1].ends_with("100.0x"), "{text}");
        assert!(lines[2].starts_with("rate") && lines[2].ends_with("2.5x"), "{text}");
        assert!(lines[3].ends_with("us"), "{text}");
    }
}
