//! Plots as SVG, drawn at their size with their labels inside; colours are classes of the page's style.

use super::report::CellReport;
use super::sustained::{Knee, Point};
use super::text::{axes, block};
use crate::report_page::html::escape;
use std::fmt::Write;

/// Space for labels at the left and at the bottom.
const LEFT: f64 = 58.0;
const BOTTOM: f64 = 34.0;
/// Width and height of a heat map's cell.
const CELL: (f64, f64) = (74.0, 38.0);
/// Size of a curve's plot.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 260.0;
/// Classes of lines, in the order in which they are taken.
const LINES: [&str; 8] = ["l0", "l1", "l2", "l3", "l4", "l5", "l6", "l7"];

fn svg(width: f64, height: f64, title: &str, drawn: &str) -> String {
    format!(
        "<svg class=\"drawn\" viewBox=\"0 0 {width:.0} {height:.0}\" style=\"max-width:{width:.0}px\" role=\"img\" \
         aria-label=\"{}\">{drawn}</svg>",
        escape(title)
    )
}

fn text(out: &mut String, x: f64, y: f64, class: &str, content: &str) {
    _ = write!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>", escape(content));
}

/// Bytes a second by block (down) and depth (across): the more the darker.
pub fn heat_map(cells: &[&CellReport], title: &str) -> String {
    let (blocks, depths) = axes(cells);
    let most = cells.iter().map(|cell| cell.bytes_per_s.median).fold(f64::MIN_POSITIVE, f64::max);
    let mut out = String::new();
    for (row, wanted) in blocks.iter().enumerate() {
        let y = row as f64 * CELL.1;
        text(&mut out, LEFT - 8.0, y + CELL.1 / 2.0 + 4.0, "end", &block(*wanted));
        for (column, depth) in depths.iter().enumerate() {
            let found = cells.iter().find(|cell| cell.block_bytes == *wanted && cell.depth == *depth);
            let Some(cell) = found else { continue };
            let (x, part) = (LEFT + column as f64 * CELL.0, cell.bytes_per_s.median / most);
            let latency =
                cell.latency.map_or(String::new(), |latency| format!(", half within {:.0} us", latency.p50_us));
            let hint = format!(
                "{} in flight of {}: {:.3} GB/s ({:.3} to {:.3}){latency}",
                depth,
                block(*wanted),
                cell.bytes_per_s.median / 1e9,
                cell.bytes_per_s.low / 1e9,
                cell.bytes_per_s.high / 1e9
            );
            _ = write!(
                out,
                "<g><title>{}</title><rect class=\"heat\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
                 rx=\"5\" fill-opacity=\"{:.2}\"/>",
                escape(&hint),
                x + 1.5,
                y + 1.5,
                CELL.0 - 3.0,
                CELL.1 - 3.0,
                0.06 + 0.9 * part * part
            );
            let class = if part > 0.72 { "mid light" } else { "mid" };
            let mark = if cell.bytes_per_s.noisy { "~" } else { "" };
            let number = format!("{:.2}{mark}", cell.bytes_per_s.median / 1e9);
            text(&mut out, x + CELL.0 / 2.0, y + CELL.1 / 2.0 + 4.5, class, &number);
            out.push_str("</g>");
        }
    }
    let bottom = blocks.len() as f64 * CELL.1;
    for (column, depth) in depths.iter().enumerate() {
        text(&mut out, LEFT + (column as f64 + 0.5) * CELL.0, bottom + 17.0, "mid soft", &depth.to_string());
    }
    let width = LEFT + depths.len() as f64 * CELL.0;
    svg(width, bottom + BOTTOM - 8.0, title, &out)
}

/// A plot's axes: from what to what, and whether by powers.
struct Axes {
    x: (f64, f64),
    y: (f64, f64),
    is_log: bool,
}

impl Axes {
    fn x(&self, value: f64) -> f64 {
        LEFT + part(self.x, value, self.is_log) * (WIDTH - LEFT - 12.0)
    }

    fn y(&self, value: f64) -> f64 {
        8.0 + (1.0 - part(self.y, value, self.is_log)) * (HEIGHT - BOTTOM - 8.0)
    }

    fn horizontal(&self, out: &mut String, value: f64, label: &str) {
        let y = self.y(value);
        _ = write!(out, "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
        text(out, LEFT - 8.0, y + 4.0, "end soft", label);
    }

    fn line(&self, out: &mut String, class: &str, points: impl Iterator<Item = (f64, f64)>) {
        let points: Vec<String> = points.map(|(x, y)| format!("{:.1},{:.1}", self.x(x), self.y(y))).collect();
        _ = write!(out, "<polyline class=\"curve {class}\" points=\"{}\"/>", points.join(" "));
    }
}

fn part((low, high): (f64, f64), value: f64, is_log: bool) -> f64 {
    let (low, high, value) = if is_log { (low.ln(), high.ln(), value.max(low).ln()) } else { (low, high, value) };
    ((value - low) / (high - low).max(1e-9)).clamp(0.0, 1.0)
}

/// Latency over depth, a line a block: half of the transfers (whole) and 99 of a hundred (dashed).
pub fn latency_curves(cells: &[&CellReport], title: &str) -> String {
    let (blocks, depths) = axes(cells);
    let timed: Vec<_> = cells.iter().filter_map(|cell| Some((cell, cell.latency?))).collect();
    let (Some(first), Some(last)) = (depths.first(), depths.last()) else { return String::new() };
    if timed.is_empty() {
        return String::new();
    }
    let low = timed.iter().map(|(_, latency)| latency.p50_us).fold(f64::MAX, f64::min);
    let high = timed.iter().map(|(_, latency)| latency.p99_us).fold(0.0, f64::max);
    let axes = Axes {
        x: (f64::from(*first), f64::from(*last).max(f64::from(*first) + 1.0)),
        y: (low * 0.8, high * 1.2),
        is_log: true,
    };
    let mut out = String::new();
    for mark in (0..9).flat_map(|power| [1.0, 3.0].map(|times| times * 10_f64.powi(power))) {
        if mark > axes.y.0 && mark < axes.y.1 {
            let label = if mark < 1_000.0 { format!("{mark} us") } else { format!("{} ms", mark / 1e3) };
            axes.horizontal(&mut out, mark, &label);
        }
    }
    for depth in &depths {
        text(&mut out, axes.x(f64::from(*depth)), HEIGHT - BOTTOM + 18.0, "mid soft", &depth.to_string());
    }
    for (wanted, class) in blocks.iter().zip(LINES) {
        let of = || timed.iter().filter(|(cell, _)| cell.block_bytes == *wanted);
        axes.line(&mut out, class, of().map(|(cell, latency)| (f64::from(cell.depth), latency.p50_us)));
        let dashed = format!("{class} dashed");
        axes.line(&mut out, &dashed, of().map(|(cell, latency)| (f64::from(cell.depth), latency.p99_us)));
    }
    let legend: String = blocks
        .iter()
        .zip(LINES)
        .map(|(wanted, class)| format!("<li><i class=\"{class}\"></i>{}</li>", block(*wanted)))
        .collect();
    format!("{}<ul class=\"keys\">{legend}</ul>", svg(WIDTH, HEIGHT, title, &out))
}

/// Bytes a second over time, with the knee.
pub fn write_line(line: &[Point], knee: Option<&Knee>, title: &str) -> String {
    let Some(last) = line.last() else { return String::new() };
    let high = line.iter().map(|point| point.bytes_per_s).fold(0.0, f64::max);
    let axes = Axes { x: (0.0, last.seconds), y: (0.0, high * 1.1), is_log: false };
    let mut out = String::new();
    let step = nice(high / 4.0);
    for number in 0..=(high * 1.1 / step) as u32 {
        let mark = f64::from(number) * step;
        axes.horizontal(&mut out, mark, &format!("{:.1}", mark / 1e9));
    }
    text(&mut out, LEFT, HEIGHT - BOTTOM + 18.0, "soft", "0 s");
    text(&mut out, WIDTH - 12.0, HEIGHT - BOTTOM + 18.0, "end soft", &crate::table::seconds(last.seconds));
    axes.line(&mut out, "l0", line.iter().map(|point| (point.seconds, point.bytes_per_s)));
    if let Some(knee) = knee {
        let x = axes.x(knee.seconds);
        _ = write!(out, "<line class=\"knee\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"8\" y2=\"{:.1}\"/>", HEIGHT - BOTTOM);
        let label = format!("{} written", mt_trainer::run::size::human(knee.bytes as u64));
        text(&mut out, x + 6.0, 20.0, "soft", &label);
    }
    svg(WIDTH, HEIGHT, title, &out)
}

/// 1, 2 or 5 times a power of ten, from this on.
fn nice(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(1.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter().find(|step| *step >= value).unwrap_or(power)
}

/// A bar from 0 to the median, with a line from the smallest to the largest.
pub fn bar(rate: &super::summary::Summary, most: f64) -> String {
    let x = |value: f64| 200.0 * (value / most).clamp(0.0, 1.0);
    format!(
        "<svg class=\"spread\" viewBox=\"0 0 200 14\" aria-hidden=\"true\"><rect class=\"bar0\" width=\"{:.1}\" \
         height=\"14\" rx=\"3\"/><line class=\"reach\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"7\" y2=\"7\"/></svg>",
        x(rate.median),
        x(rate.low),
        x(rate.high)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_numbers() {
        assert_eq!((nice(0.3e9), nice(0.9e9), nice(1.2)), (0.5e9, 1e9, 2.0));
    }

    #[test]
    fn values_find_their_place() {
        assert_eq!(part((0.0, 4.0), 1.0, false), 0.25);
        assert!((part((1.0, 16.0), 4.0, true) - 0.5).abs() < 1e-12);
        assert_eq!(part((1.0, 16.0), 100.0, true), 1.0);
    }
}
