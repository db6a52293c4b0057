//! What a ratio of the engine to its peer shows, if anything.

use mt_tools::peer::Ratio;

/// Ratios from which on the engine counts as fast as its peer.
pub const RATIO_MIN: f64 = 0.95;

/// The widest interval that allows a verdict.
const WIDTH_MAX: f64 = 0.15;

/// Pairs and seconds of each measurement below which there is no verdict, however narrow the interval is.
const PAIRS_MIN: usize = 15;
const SECONDS_MIN: f64 = 5.0;

/// What the ratio shows, if each measurement took this long.
pub fn verdict(ratio: &Ratio, seconds: f64) -> &'static str {
    match () {
        () if ratio.pairs < PAIRS_MIN || seconds < SECONDS_MIN => "too little measured for a verdict",
        () if ratio.high - ratio.low > WIDTH_MAX => "inconclusive",
        () if ratio.median >= RATIO_MIN => "passed",
        () => "missed",
    }
}

#[cfg(test)]
mod tests {
    use super::{Ratio, verdict};

    #[test]
    fn a_verdict_needs_enough_pairs_of_enough_seconds() {
        let pairs: Vec<(f64, f64)> = (1..=15).map(|n| (0.98 * f64::from(n), f64::from(n))).collect();
        assert_eq!(verdict(&Ratio::of(&pairs), 5.0), "passed");
        assert_eq!(verdict(&Ratio::of(&pairs), 4.9), "too little measured for a verdict");
        assert_eq!(verdict(&Ratio::of(&pairs[..14]), 5.0), "too little measured for a verdict");
    }

    #[test]
    fn verdicts() {
        let slow: Vec<(f64, f64)> = (0..15).map(|n| (0.9 + 0.001 * f64::from(n), 1.0)).collect();
        assert_eq!(verdict(&Ratio::of(&slow), 5.0), "missed");
        let noisy: Vec<(f64, f64)> = (0..15).map(|n| (if n % 2 == 0 { 0.7 } else { 1.4 }, 1.0)).collect();
        assert_eq!(verdict(&Ratio::of(&noisy), 5.0), "inconclusive");
    }
}
