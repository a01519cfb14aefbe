//! Pictures as SVG, drawn by hand: logarithmic axes, our curves with their spread, the paper's dashed.

use std::fmt::Write;

use crate::claims::short;
use crate::plan::{Plot, Size};
use crate::simulate::Study;
use crate::stats;
use crate::store::Store;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 52.0;

/// Colours that are told apart on both backgrounds, also with the usual colour blindnesses (after Okabe and Ito). Curves beyond
/// these are dotted.
pub const COLOURS: [&str; 10] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#8a6fd1", "#7f7f7f", "#a0522d", "#2e8b8b"];

struct Line {
    name: String,
    ours: bool,
    /// x, median, least, most
    points: Vec<(f64, f64, f64, f64)>,
}

struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (mut low, mut high) = (f64::INFINITY, 0.0f64);
        for v in values.filter(|v| *v > 0.0) {
            low = low.min(v);
            high = high.max(v);
        }
        if low >= high {
            (low, high) = (low / 2.0, high * 2.0);
        }
        Self { low: low.log2(), high: high.log2(), from, to }
    }

    fn at(&self, v: f64) -> f64 {
        self.from + (v.max(1e-12).log2() - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    /// Powers of two, not too many.
    fn ticks(&self, most: f64) -> Vec<f64> {
        let step = ((self.high - self.low) / most).ceil().max(1.0);
        let mut ticks = Vec::new();
        let mut at = self.low.ceil();
        while at <= self.high + 1e-9 {
            ticks.push(at.exp2());
            at += step;
        }
        ticks
    }
}

/// A power of two beside an axis.
fn label(tick: f64) -> String {
    if tick >= 1.0 { format!("{tick:.0}") } else { format!("1/{:.0}", 1.0 / tick) }
}

/// Text safe in HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The picture with its legend; `None` if there is nothing of ours to show.
pub fn plot(plot: &Plot, experiment: &str, store: &Store) -> Option<String> {
    let mut lines: Vec<Line> = Vec::new();
    for series in plot.series {
        let points: Vec<_> = store
            .xs(experiment, series)
            .into_iter()
            .filter_map(|x| {
                let v = store.values(experiment, series, x, plot.metric);
                let (low, high) =
                    (v.iter().copied().fold(f64::INFINITY, f64::min), v.iter().copied().fold(0.0, f64::max));
                (!v.is_empty() && low > 0.0).then(|| (x, stats::median(&v), low, high))
            })
            .collect();
        if !points.is_empty() {
            lines.push(Line { name: (*series).to_owned(), ours: true, points });
        }
    }
    if lines.is_empty() {
        return None;
    }
    let scale = scale(plot, store.size, &lines);
    let scaled = scale.map_or_else(String::new, |scale| format!(", divided by {}", short(1.0 / scale)));
    for curve in plot.published {
        let points = curve.points.iter().map(|(x, y)| (*x, *y)).map(|(x, y)| (x, y * scale.unwrap_or(1.0)));
        let points = points.map(|(x, y)| (x, y, y, y)).collect();
        lines.push(Line { name: format!("published{scaled}: {}", curve.name), ours: false, points });
    }
    Some(draw(plot.title, plot.axes, &lines))
}

/// What published times are multiplied by, so that all begin where ours do on average: a run that is not full does less work.
fn scale(plot: &Plot, size: Size, ours: &[Line]) -> Option<f64> {
    if size == Size::Full || !matches!(plot.metric, "wall" | "time") {
        return None;
    }
    let first = plot.published.iter().flat_map(|curve| curve.points).map(|p| p.0).min_by(f64::total_cmp)?;
    let there: Vec<f64> =
        plot.published.iter().flat_map(|curve| curve.points).filter(|p| p.0 == first).map(|p| p.1).collect();
    let here: Vec<f64> = ours.iter().flat_map(|line| &line.points).filter(|p| p.0 == first).map(|p| p.1).collect();
    (!here.is_empty()).then(|| stats::median(&here) / stats::median(&there))
}

/// A simulation's speedups, and the measured ones.
pub fn prediction(study: &Study) -> String {
    let workers = |row: &(crate::simulate::Prediction, Option<f64>)| row.0.workers as f64;
    let point = |x: f64, y: f64| (x, y, y, y);
    let predicted = study.rows.iter().map(|row| point(workers(row), study.speedup(row.0.time))).collect();
    let measured: Vec<_> =
        study.rows.iter().filter_map(|row| Some(point(workers(row), study.speedup(row.1?)))).collect();
    let linear = study.rows.iter().map(|row| point(workers(row), workers(row))).collect();
    let mut lines = vec![Line { name: "predicted".to_owned(), ours: true, points: predicted }];
    if !measured.is_empty() {
        lines.push(Line { name: "measured".to_owned(), ours: true, points: measured });
    }
    lines.push(Line { name: "linear".to_owned(), ours: false, points: linear });
    draw("Speedup over the plain program, by workers", ("workers", "speedup"), &lines)
}

/// The picture of these curves with its legend.
fn draw(title: &str, axes: (&str, &str), lines: &[Line]) -> String {
    let all = || lines.iter().flat_map(|line| line.points.iter());
    let x = Axis::new(all().map(|p| p.0), LEFT, WIDTH - RIGHT);
    // Curves of one point would lie upon each other: they stand side by side.
    let one = all().all(|p| p.0 == lines[0].points[0].0);
    let across = |i: usize, at: f64| {
        let part = (i as f64 + 0.5) / lines.len() as f64;
        if one { LEFT + part * (WIDTH - RIGHT - LEFT) } else { x.at(at) }
    };
    let y = Axis::new(all().flat_map(|p| [p.2, p.3]), HEIGHT - BOTTOM, TOP);
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n", escape(title));
    for tick in x.ticks(10.0).into_iter().filter(|_| !one) {
        let at = x.at(tick);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{:.1}\"/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - BOTTOM,
            HEIGHT - BOTTOM + 20.0,
            label(tick)
        );
    }
    for tick in y.ticks(8.0) {
        let at = y.at(tick);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            label(tick)
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text><text x=\"14\" y=\"{:.0}\" text-anchor=\"middle\" transform=\"rotate(-90 14 {:.0})\">{}</text>",
        f64::midpoint(LEFT, WIDTH - RIGHT),
        HEIGHT - 8.0,
        escape(&if one { format!("{} {}", lines[0].points[0].0, axes.0) } else { axes.0.to_owned() }),
        f64::midpoint(TOP, HEIGHT - BOTTOM),
        f64::midpoint(TOP, HEIGHT - BOTTOM),
        escape(axes.1)
    );
    let mut legend = String::from("<ul class=\"legend\">\n");
    for (i, line) in lines.iter().enumerate() {
        let kind = match (line.ours, i < COLOURS.len()) {
            (true, true) => "",
            (true, false) => " more",
            (false, _) => " paper",
        };
        let class = format!("c{}{kind}", i % COLOURS.len());
        for (at, _, low, high) in line.points.iter().filter(|p| p.3 > p.2) {
            let at = across(i, *at);
            let _ = writeln!(
                svg,
                "<line class=\"spread {class}\" x1=\"{at:.1}\" y1=\"{:.1}\" x2=\"{at:.1}\" y2=\"{:.1}\"/>",
                y.at(*low),
                y.at(*high)
            );
        }
        let path: Vec<String> = line.points.iter().map(|p| format!("{:.1},{:.1}", across(i, p.0), y.at(p.1))).collect();
        let _ = writeln!(svg, "<polyline class=\"{class}\" points=\"{}\"/>", path.join(" "));
        for p in &line.points {
            let _ = writeln!(
                svg,
                "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"><title>{} at {}: {} ({} to {})</title></circle>",
                across(i, p.0),
                y.at(p.1),
                escape(&line.name),
                p.0,
                short(p.1),
                short(p.2),
                short(p.3)
            );
        }
        let _ = writeln!(legend, "<li class=\"{class}\">{}</li>", escape(&line.name));
    }
    svg.push_str("</svg>\n");
    legend.push_str("</ul>\n");
    format!("<figure><figcaption>{}</figcaption>\n{svg}{legend}</figure>\n", escape(title))
}
