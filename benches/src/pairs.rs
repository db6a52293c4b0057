//! What may be said of two that were measured in turns, in pairs of neighbours: a disk's rate drifts by more within
//! minutes than the two differ, but two neighbours see nearly the same disk. So the ratio is formed within each pair,
//! and the median over all pairs counts, with an interval around it that says how much luck was in it.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Ratios from which on the engine counts as fast as its peer.
pub const RATIO_MIN: f64 = 0.95;

/// The widest interval that allows a verdict.
const WIDTH_MAX: f64 = 0.15;

/// Pairs and seconds of each measurement below which there is no verdict, however narrow the interval is.
const PAIRS_MIN: usize = 15;
const SECONDS_MIN: f64 = 5.0;

/// Share of the bootstrap's medians inside the interval.
const INSIDE: f64 = 0.9;

const ROUNDS: usize = 10_000;
const SEED: u64 = 1;

/// Median of the pairs' ratios, and how sure it is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ratio {
    /// The median.
    pub median: f64,
    /// Lower end of the bootstrap's 90% interval of the median.
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
        let ratios: Vec<f64> = pairs.iter().map(|(first, second)| first / second).collect();
        let mut random = ChaCha8Rng::seed_from_u64(SEED);
        let mut drawn = vec![0.0; ratios.len()];
        let mut medians: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                drawn.fill_with(|| ratios[(random.next_u64() % ratios.len() as u64) as usize]);
                median(&mut drawn)
            })
            .collect();
        medians.sort_unstable_by(f64::total_cmp);
        let tail = ((1.0 - INSIDE) / 2.0 * ROUNDS as f64) as usize;
        let (low, high) = (medians[tail], medians[ROUNDS - 1 - tail]);
        Ratio { median: median(&mut ratios.clone()), low, high, pairs: ratios.len() }
    }

    /// What the ratio shows, if each measurement took this long.
    pub fn verdict(&self, seconds: f64) -> &'static str {
        match () {
            () if self.pairs < PAIRS_MIN || seconds < SECONDS_MIN => "too little measured for a verdict",
            () if self.high - self.low > WIDTH_MAX => "inconclusive",
            () if self.median >= RATIO_MIN => "passed",
            () => "missed",
        }
    }
}

/// The middle one, or the mean of the middle two. Sorts.
///
/// # Panics
/// Without values.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::{Ratio, median};

    #[test]
    fn medians() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn the_drift_of_the_disk_does_not_matter_and_one_outlier_does_not() {
        let mut pairs: Vec<(f64, f64)> = (1..=15).map(|n| (0.98 * f64::from(n), f64::from(n))).collect();
        pairs[3].0 *= 3.0;
        let ratio = Ratio::of(&pairs);
        assert!((ratio.median - 0.98).abs() < 1e-9 && ratio.low <= ratio.median && ratio.median <= ratio.high);
        assert_eq!(ratio.verdict(5.0), "passed");
        assert_eq!(ratio.verdict(4.9), "too little measured for a verdict");
        assert_eq!(Ratio::of(&pairs[..14]).verdict(5.0), "too little measured for a verdict");
    }

    #[test]
    fn verdicts() {
        let slow: Vec<(f64, f64)> = (0..15).map(|n| (0.9 + 0.001 * f64::from(n), 1.0)).collect();
        assert_eq!(Ratio::of(&slow).verdict(5.0), "missed");
        let noisy: Vec<(f64, f64)> = (0..15).map(|n| (if n % 2 == 0 { 0.7 } else { 1.4 }, 1.0)).collect();
        assert_eq!(Ratio::of(&noisy).verdict(5.0), "inconclusive");
        assert_eq!(Ratio::of(&slow), Ratio::of(&slow), "the same pairs, the same interval");
    }
}
