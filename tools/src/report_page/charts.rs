//! Charts as inline SVG. Plots stretch with the page; labels are text of the page beside them, so that they keep their
//! size on a phone. Colours are classes of the page's style, which has them for light and dark.

use super::digest::Bucket;
use super::html::escape;
use std::fmt::Write;

/// Width and height that a plot is drawn in, before it is stretched.
const WIDTH: f64 = 1_000.0;
const HEIGHT: f64 = 300.0;

/// The axes of a plot: the steps that lie in it, and its values.
pub struct Axes<'a> {
    pub first: u64,
    pub last: u64,
    pub low: f64,
    pub high: f64,
    /// A value as a label.
    pub label: &'a dyn Fn(f64) -> String,
    /// Steps after which a process went on.
    pub resumes: &'a [u64],
    /// What the chart shows, for those who do not see it.
    pub title: &'a str,
    /// Whether it is one of several in a row.
    pub is_small: bool,
}

impl Axes<'_> {
    /// A step's middle; buckets reach from half a step before to half a step behind.
    fn x(&self, step: f64) -> f64 {
        let span = (self.last - self.first + 1) as f64;
        (step - self.first as f64 + 0.5) / span * WIDTH
    }

    fn y(&self, value: f64) -> f64 {
        let span = (self.high - self.low).max(f64::MIN_POSITIVE);
        HEIGHT - ((value - self.low) / span).clamp(0.0, 1.0) * HEIGHT
    }

    /// The frame around what is drawn.
    fn figure(&self, drawn: &str) -> String {
        let mut out = format!(
            "<div class=\"plot{}\" role=\"img\" aria-label=\"{}\"><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             preserveAspectRatio=\"none\" aria-hidden=\"true\">",
            if self.is_small { " small" } else { "" },
            escape(self.title)
        );
        let marks = ticks(self.low, self.high, if self.is_small { 2.0 } else { 4.0 });
        for mark in &marks {
            let y = self.y(*mark);
            _ = write!(out, "<line class=\"grid\" x1=\"0\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
        }
        out.push_str(drawn);
        for step in self.resumes {
            let x = self.x(*step as f64 + 0.5);
            _ = write!(
                out,
                "<line class=\"resume\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"0\" y2=\"{HEIGHT}\"><title>resumed after \
                 step {step}</title></line>"
            );
        }
        out.push_str("</svg>");
        for mark in marks {
            let from_below = 100.0 * (1.0 - self.y(mark) / HEIGHT);
            _ = write!(out, "<span class=\"y\" style=\"bottom:{from_below:.1}%\">{}</span>", (self.label)(mark));
        }
        _ = write!(
            out,
            "<span class=\"x\" style=\"left:0\">step {}</span><span class=\"x\" style=\"right:0\">{}</span></div>",
            self.first, self.last
        );
        out
    }

    /// A rectangle that nobody sees over each bucket, which tells its numbers to a pointer.
    fn hints(&self, buckets: &[Bucket], tell: &dyn Fn(&Bucket) -> String) -> String {
        let mut out = String::new();
        for bucket in buckets {
            let (left, right) = (self.x(bucket.first as f64 - 0.5), self.x(bucket.last as f64 + 0.5));
            let steps = if bucket.first == bucket.last {
                format!("step {}", bucket.first)
            } else {
                format!("steps {} to {}", bucket.first, bucket.last)
            };
            _ = write!(
                out,
                "<rect class=\"hint\" x=\"{left:.1}\" y=\"0\" width=\"{:.1}\" height=\"{HEIGHT}\"><title>{steps}: \
                 {}</title></rect>",
                right - left,
                escape(&tell(bucket))
            );
        }
        out
    }
}

/// The value of a bucket at its middle, where it has one.
fn points<'b>(buckets: &'b [Bucket], value: usize) -> impl Iterator<Item = (f64, f64)> + 'b {
    buckets.iter().filter_map(move |bucket| Some(((bucket.first + bucket.last) as f64 / 2.0, bucket.values[value]?)))
}

/// A curve of the first value, with the area below it, and a smoothed one where there are many points.
pub fn curve(axes: &Axes<'_>, buckets: &[Bucket], color: &str) -> String {
    let places: Vec<(f64, f64)> =
        points(buckets, 0).filter(|(_, value)| value.is_finite()).map(|(x, y)| (axes.x(x), axes.y(y))).collect();
    let path = |places: &[(f64, f64)]| {
        let mut path = String::new();
        for (index, (x, y)) in places.iter().enumerate() {
            _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { "M" } else { "L" });
        }
        path
    };
    let line = path(&places);
    let mut drawn = String::new();
    if let (Some((first, _)), Some((last, _))) = (places.first(), places.last()) {
        _ = write!(drawn, "<path class=\"area {color}\" d=\"{line}L{last:.1} {HEIGHT}L{first:.1} {HEIGHT}Z\"/>");
    }
    let is_rough = places.len() >= 40 && !axes.is_small;
    _ = write!(drawn, "<path class=\"line {color}{}\" d=\"{line}\"/>", if is_rough { " faint" } else { "" });
    if is_rough {
        _ = write!(drawn, "<path class=\"line {color}\" d=\"{}\"/>", path(&smooth(&places)));
    }
    if let [(x, y)] = places.as_slice() {
        _ = write!(drawn, "<circle class=\"{color}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>");
    }
    let tell = |bucket: &Bucket| bucket.values[0].map_or("not recorded".to_owned(), |value| (axes.label)(value));
    drawn.push_str(&axes.hints(buckets, &tell));
    axes.figure(&drawn)
}

/// A running mean over a twentieth of the points, centred.
fn smooth(places: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let reach = places.len() / 40;
    let mean = |index: usize| {
        // As far to both sides, so that the ends do not bend.
        let reach = reach.min(index).min(places.len() - 1 - index);
        let near = &places[index - reach..=index + reach];
        near.iter().map(|(_, y)| y).sum::<f64>() / near.len() as f64
    };
    places.iter().enumerate().map(|(index, (x, _))| (*x, mean(index))).collect()
}

/// Bars of all values on top of each other, in these colours; a dashed line at `said`.
pub fn stacked(axes: &Axes<'_>, buckets: &[Bucket], colors: &[(&str, &str)], said: Option<f64>) -> String {
    let mut drawn = String::new();
    for bucket in buckets {
        let (left, right) = (axes.x(bucket.first as f64 - 0.5), axes.x(bucket.last as f64 + 0.5));
        let (gap, mut below) = (if buckets.len() > 60 { 0.0 } else { 0.12 * (right - left) }, 0.0);
        for ((_, color), value) in colors.iter().zip(&bucket.values) {
            let Some(value) = value.filter(|value| *value > 0.0) else { continue };
            let (top, bottom) = (axes.y(below + value), axes.y(below));
            below += value;
            _ = write!(
                drawn,
                "<rect class=\"{color}\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                left + gap / 2.0,
                right - left - gap,
                bottom - top
            );
        }
    }
    if let Some(said) = said.filter(|said| *said <= axes.high) {
        let y = axes.y(said);
        _ = write!(drawn, "<line class=\"said\" x1=\"0\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
    }
    let tell = |bucket: &Bucket| {
        let parts = colors.iter().zip(&bucket.values).filter_map(|((name, _), value)| {
            value.filter(|value| *value > 0.0).map(|value| format!("{name} {}", (axes.label)(value)))
        });
        parts.collect::<Vec<String>>().join(", ")
    };
    drawn.push_str(&axes.hints(buckets, &tell));
    axes.figure(&drawn)
}

/// One bar across, its parts by colour; `all` is the full width.
pub fn bar(parts: &[(&str, &str, f64)], all: f64, label: &dyn Fn(f64) -> String) -> String {
    let mut out = "<div class=\"bar\">".to_owned();
    for (name, color, value) in parts.iter().filter(|(_, _, value)| *value > 0.0) {
        let width = 100.0 * value / all.max(f64::MIN_POSITIVE);
        _ = write!(
            out,
            "<span class=\"{color}\" style=\"width:{width:.2}%\" title=\"{} {}\"></span>",
            escape(name),
            escape(&label(*value))
        );
    }
    out.push_str("</div>");
    out
}

/// Round numbers from `low` to `high`, about `wanted` of them.
fn ticks(low: f64, high: f64, wanted: f64) -> Vec<f64> {
    let span = high - low;
    if !span.is_finite() || span <= 0.0 {
        return vec![low];
    }
    let rough = span / wanted;
    let power = 10f64.powf(rough.log10().floor());
    let step = power * [1.0, 2.0, 5.0, 10.0].into_iter().find(|times| times * power >= rough).unwrap_or(10.0);
    let mut marks = Vec::new();
    let mut at = (low / step).ceil();
    while at * step <= high * (1.0 + 1e-9) && marks.len() < 20 {
        marks.push(at * step);
        at += 1.0;
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_numbers_within_the_plot() {
        assert_eq!(ticks(0.0, 1.0, 4.0), [0.0, 0.5, 1.0]);
        assert_eq!(ticks(2.1, 6.3, 4.0), [4.0, 6.0]);
        assert_eq!(ticks(3.0, 3.0, 4.0), [3.0]);
        assert!(ticks(0.0, f64::NAN, 4.0).len() == 1 && ticks(0.0, 1e300, 4.0).len() >= 2);
    }
}
