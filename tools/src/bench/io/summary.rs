//! Numbers that were measured several times: their median, how far apart they are, and whether that is too far to
//! quote; and latencies by their percentiles.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Spread from which on a number is marked: it is no better known than by a quarter.
const NOISY: f64 = 0.25;

/// Longest latency that is told apart, in nanoseconds: a minute.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// A number measured several times.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Summary {
    /// The middle one, or the mean of the middle two.
    pub median: f64,
    /// The smallest.
    pub low: f64,
    /// The largest.
    pub high: f64,
    /// Distance of the largest and the smallest as a part of the median.
    pub spread: f64,
    /// The spread is above a quarter.
    pub noisy: bool,
    /// All, in the order in which they were measured.
    pub samples: Vec<f64>,
}

impl Summary {
    /// Of samples, of which there is at least one.
    pub fn of(samples: Vec<f64>) -> Summary {
        let mut sorted = samples.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let (low, high) = (sorted[0], sorted[sorted.len() - 1]);
        let median = middle(&sorted);
        let spread = if median > 0.0 { (high - low) / median } else { 0.0 };
        Summary { median, low, high, spread, noisy: spread > NOISY, samples }
    }
}

/// The middle one of sorted values, or the mean of the middle two.
pub fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { (sorted[half - 1] + sorted[half]) / 2.0 }
}

/// Latencies in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Latency {
    /// Transfers.
    pub count: u64,
    /// Half of them take at most this long.
    pub p50_us: f64,
    /// 90 of a hundred.
    pub p90_us: f64,
    /// 99 of a hundred.
    pub p99_us: f64,
    /// 999 of a thousand.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// Collects latencies.
pub struct Latencies(Histogram<u64>);

impl Latencies {
    /// None yet.
    pub fn new() -> Latencies {
        Latencies(Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("the bounds are in order"))
    }

    /// One more.
    pub fn add(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX).max(1));
    }

    /// Their percentiles; None without any.
    pub fn summary(&self) -> Option<Latency> {
        let us = |quantile| self.0.value_at_quantile(quantile) as f64 / 1e3;
        (!self.0.is_empty()).then(|| Latency {
            count: self.0.len(),
            p50_us: us(0.5),
            p90_us: us(0.9),
            p99_us: us(0.99),
            p999_us: us(0.999),
            max_us: self.0.max() as f64 / 1e3,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_counts_and_a_wide_spread_is_marked() {
        let quiet = Summary::of(vec![3.0, 3.3, 2.9, 3.1]);
        assert_eq!((quiet.low, quiet.high, quiet.noisy), (2.9, 3.3, false));
        assert!((quiet.median - 3.05).abs() < 1e-12);
        let loud = Summary::of(vec![1.0, 3.0, 2.0]);
        assert_eq!((loud.median, loud.spread, loud.noisy), (2.0, 1.0, true));
        assert_eq!(loud.samples, [1.0, 3.0, 2.0]);
    }

    #[test]
    fn percentiles_are_those_of_what_was_added() {
        let mut latencies = Latencies::new();
        assert!(latencies.summary().is_none());
        (1..=1_000).for_each(|us| latencies.add(Duration::from_micros(us)));
        let found = latencies.summary().unwrap();
        assert_eq!(found.count, 1_000);
        for (percentile, expected) in
            [(found.p50_us, 500.0), (found.p90_us, 900.0), (found.p99_us, 990.0), (found.max_us, 1_000.0)]
        {
            assert!((percentile / expected - 1.0_f64).abs() < 2e-3, "{percentile} {expected}");
        }
    }
}
