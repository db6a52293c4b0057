//! Two that were measured in turns, in pairs of neighbours: a disk's rate drifts by more within minutes than the two
//! differ, but two neighbours see nearly the same disk. So the ratio is formed within each pair and the median over all
//! pairs counts, with an interval that says how much luck was in it.

/// Samples that the interval is drawn from.
const ROUNDS: usize = 10_000;
/// Part of the medians outside the interval, on each side.
const TAIL: f64 = 0.05;

/// Median of the pairs' ratios, and its 90% interval by drawing pairs again and again.
pub fn ratio(pairs: &[(f64, f64)]) -> (f64, f64, f64) {
    let ratios: Vec<f64> = pairs.iter().map(|(first, second)| first / second).collect();
    let mut state = 1_u64;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ratios[(state >> 33) as usize % ratios.len()]
    };
    let mut medians: Vec<f64> = (0..ROUNDS).map(|_| median((0..ratios.len()).map(|_| draw()).collect())).collect();
    medians.sort_unstable_by(f64::total_cmp);
    let tail = (TAIL * ROUNDS as f64) as usize;
    (median(ratios.clone()), medians[tail], medians[ROUNDS - 1 - tail])
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    super::summary::middle(&values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_does_not_matter_and_one_outlier_does_not() {
        let mut pairs: Vec<(f64, f64)> = (1..=15).map(|n| (0.98 * f64::from(n), f64::from(n))).collect();
        pairs[3].0 *= 3.0;
        let (median, low, high) = ratio(&pairs);
        assert!((median - 0.98).abs() < 1e-9 && low <= median && median <= high && high < 1.0, "{low} {high}");
        assert_eq!(ratio(&pairs), ratio(&pairs));
    }
}
