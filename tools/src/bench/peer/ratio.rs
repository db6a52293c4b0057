//! Two that were measured in turns, in pairs of neighbours: a disk's rate drifts by more within minutes than the two
//! differ, but two neighbours see nearly the same disk. So the ratio is formed within each pair and the median over all
//! pairs counts, with an interval that says how much luck was in it.

use crate::bench::io::middle;

/// Samples that the interval is drawn from.
const ROUNDS: usize = 10_000;
/// Part of the medians outside the interval, on each side.
const TAIL: f64 = 0.05;

/// Median of the pairs' ratios, and how sure it is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ratio {
    /// The median.
    pub median: f64,
    /// Lower end of its 90% interval, by drawing pairs again and again (bootstrap).
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Number of pairs.
    pub pairs: usize,
}

impl Ratio {
    /// The ratio of each pair's first to its second, summed up.
    ///
    /// # Panics
    /// Without pairs.
    pub fn of(pairs: &[(f64, f64)]) -> Ratio {
        let mut ratios: Vec<f64> = pairs.iter().map(|(first, second)| first / second).collect();
        let mut state = 1_u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ratios[(state >> 33) as usize % ratios.len()]
        };
        let mut drawn = vec![0.0; pairs.len()];
        let mut round = |_| {
            drawn.fill_with(&mut draw);
            median(&mut drawn)
        };
        let mut medians: Vec<f64> = (0..ROUNDS).map(&mut round).collect();
        medians.sort_unstable_by(f64::total_cmp);
        let tail = (TAIL * ROUNDS as f64) as usize;
        let (low, high) = (medians[tail], medians[ROUNDS - 1 - tail]);
        Ratio { median: median(&mut ratios), low, high, pairs: pairs.len() }
    }
}

/// The middle one, or the mean of the middle two. Sorts.
///
/// # Panics
/// Without values.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    middle(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_does_not_matter_and_one_outlier_does_not() {
        let mut pairs: Vec<(f64, f64)> = (1..=15).map(|n| (0.98 * f64::from(n), f64::from(n))).collect();
        pairs[3].0 *= 3.0;
        let ratio = Ratio::of(&pairs);
        assert!((ratio.median - 0.98).abs() < 1e-9 && ratio.low <= 0.98 && ratio.high < 1.0, "{ratio:?}");
        assert_eq!((ratio.pairs, ratio), (15, Ratio::of(&pairs)));
    }

    #[test]
    fn medians() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
