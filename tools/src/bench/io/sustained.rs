//! A long write as a line over time, and the place where a drive's fast cache ends.
//!
//! The *knee* is where one level ends and a lower one begins. It is found by fitting two levels to the series in every
//! way and taking the best; it is believed only if the second level is well below the first, and if the two explain
//! most of what one level leaves unexplained. So noise, a dip that recovers, or a slow decline is no knee.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Points that each level has at least.
const LEVEL_POINTS_MIN: usize = 5;

/// The second level is at most this part of the first.
const DROP: f64 = 0.8;

/// Part of the squares that two levels must take away from what one level leaves.
const EXPLAINED: f64 = 0.6;

/// A second level that is a dip rises again: its last third is at most this many times its first.
const RISE_MAX: f64 = 1.25;

/// A point of the line.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Seconds from the beginning to the end of the interval.
    pub seconds: f64,
    /// Bytes written from the beginning.
    pub bytes: f64,
    /// Bytes a second within the interval.
    pub bytes_per_s: f64,
}

/// Where the rate drops for good.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Knee {
    /// Seconds from the beginning.
    pub seconds: f64,
    /// Bytes written until then: what the fast cache takes.
    pub bytes: f64,
    /// Bytes a second before it, as the median.
    pub before_bytes_per_s: f64,
    /// Bytes a second after it, as the median.
    pub after_bytes_per_s: f64,
}

/// Finds the knee; None where there is none.
pub fn knee(line: &[Point]) -> Option<Knee> {
    if line.len() < 2 * LEVEL_POINTS_MIN {
        return None;
    }
    let all = squares(line);
    let splits = LEVEL_POINTS_MIN..=line.len() - LEVEL_POINTS_MIN;
    let left = |split: usize| squares(&line[..split]) + squares(&line[split..]);
    let best = splits.min_by(|a, b| left(*a).total_cmp(&left(*b)))?;
    let (before, after) = line.split_at(best);
    let levels = (median(before), median(after));
    let third = after.len().div_ceil(3);
    let is_lasting = median(&after[after.len() - third..]) <= RISE_MAX * median(&after[..third]);
    let is_knee = levels.1 <= DROP * levels.0 && left(best) <= (1.0 - EXPLAINED) * all && is_lasting;
    let last = before[before.len() - 1];
    is_knee.then_some(Knee {
        seconds: last.seconds,
        bytes: last.bytes,
        before_bytes_per_s: levels.0,
        after_bytes_per_s: levels.1,
    })
}

/// Sum of the squares of what a level leaves.
fn squares(line: &[Point]) -> f64 {
    let mean = line.iter().map(|point| point.bytes_per_s).sum::<f64>() / line.len() as f64;
    line.iter().map(|point| (point.bytes_per_s - mean).powi(2)).sum()
}

fn median(line: &[Point]) -> f64 {
    let mut rates: Vec<f64> = line.iter().map(|point| point.bytes_per_s).collect();
    rates.sort_unstable_by(f64::total_cmp);
    super::summary::middle(&rates)
}

/// Makes a line of transfers as they end.
pub struct Line {
    interval: Duration,
    /// Bytes within each interval.
    bytes: Vec<u64>,
}

impl Line {
    /// A line whose points are this far apart.
    pub fn new(interval: Duration) -> Line {
        Line { interval, bytes: Vec::new() }
    }

    /// A transfer that ended.
    pub fn add(&mut self, at: Duration, bytes: u32) {
        let index = (at.as_nanos() / self.interval.as_nanos().max(1)) as usize;
        if self.bytes.len() <= index {
            self.bytes.resize(index + 1, 0);
        }
        self.bytes[index] += u64::from(bytes);
    }

    /// The points, without the last interval, which is not whole.
    pub fn points(&self) -> Vec<Point> {
        let interval = self.interval.as_secs_f64();
        let whole = self.bytes.len().saturating_sub(1);
        let mut sum = 0;
        let mut point = |(index, bytes): (usize, &u64)| {
            sum += bytes;
            let seconds = (index + 1) as f64 * interval;
            Point { seconds, bytes: sum as f64, bytes_per_s: *bytes as f64 / interval }
        };
        self.bytes[..whole].iter().enumerate().map(&mut point).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line with a rate for each point, shaken by `noise` of it in a fixed way.
    fn line(noise: f64, rates: impl IntoIterator<Item = f64>) -> Vec<Point> {
        let mut bytes = 0.0;
        let mut point = |(index, rate): (usize, f64)| {
            let shake = ((index as f64 * 12.9898).sin() * 43_758.547).fract();
            let bytes_per_s = rate * (1.0 + noise * shake);
            bytes += bytes_per_s;
            Point { seconds: (index + 1) as f64, bytes, bytes_per_s }
        };
        rates.into_iter().enumerate().map(&mut point).collect()
    }

    fn levels(parts: &[(usize, f64)]) -> Vec<f64> {
        parts.iter().flat_map(|&(count, rate)| vec![rate; count]).collect()
    }

    #[test]
    fn a_cache_that_ends_is_a_knee_where_it_ends() {
        for noise in [0.0, 0.1, 0.3] {
            let found = knee(&line(noise, levels(&[(30, 3.0), (50, 1.0)]))).expect("a knee");
            assert!((29.0..=31.0).contains(&found.seconds), "{noise}: {found:?}");
            assert!((found.before_bytes_per_s - 3.0).abs() < 0.4 && (found.after_bytes_per_s - 1.0).abs() < 0.2);
            assert!((found.bytes - 90.0).abs() < 12.0, "{noise}: {found:?}");
        }
    }

    #[test]
    fn an_early_and_a_late_end_are_found_too() {
        for fast in [6, 10, 70, 74] {
            let found = knee(&line(0.1, levels(&[(fast, 4.0), (80 - fast, 1.5)]))).expect("a knee");
            assert!((found.seconds - fast as f64).abs() <= 1.0, "{fast}: {found:?}");
        }
    }

    #[test]
    fn noise_a_dip_and_a_slow_decline_are_none() {
        assert_eq!(knee(&line(0.3, levels(&[(80, 2.0)]))), None);
        assert_eq!(knee(&line(0.05, levels(&[(30, 2.0), (12, 0.8), (38, 2.0)]))), None, "a dip in the middle");
        assert_eq!(knee(&line(0.05, levels(&[(60, 2.0), (6, 0.5), (14, 2.0)]))), None, "a dip near the end");
        assert_eq!(knee(&line(0.05, (0..80).map(|n| 2.0 - 0.004 * f64::from(n)))), None, "a decline");
        assert_eq!(knee(&line(0.05, levels(&[(40, 1.0), (40, 3.0)]))), None, "a rise");
        assert_eq!(knee(&line(0.02, levels(&[(40, 1.0), (40, 0.9)]))), None, "a drop of a tenth");
    }

    #[test]
    fn a_short_line_has_none() {
        assert_eq!(knee(&[]), None);
        assert_eq!(knee(&line(0.0, levels(&[(4, 3.0), (4, 1.0)]))), None);
    }

    #[test]
    fn transfers_become_points_of_whole_intervals() {
        let mut made = Line::new(Duration::from_millis(100));
        assert!(made.points().is_empty());
        for ms in [0, 50, 99, 100, 350] {
            made.add(Duration::from_millis(ms), 10);
        }
        let points = made.points();
        let rates: Vec<f64> = points.iter().map(|point| point.bytes_per_s.round()).collect();
        assert_eq!(rates, [300.0, 100.0, 0.0]);
        assert_eq!((points[2].bytes, points[2].seconds), (40.0, 0.30000000000000004));
    }
}
