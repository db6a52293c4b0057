//! How far results are from a reference.

/// The greatest distance of an element of `got` from that of `want`, and where it is. Relative to the largest of: the
/// element wanted, the root mean square of its row (of `width` elements), that of all, and `least`, the scale of what
/// cancels where all that is wanted is zero. Infinite where something is not a number.
pub fn worst(got: impl Iterator<Item = f64>, want: &[f64], width: usize, least: f64) -> (usize, f64) {
    let rms = |of: &[f64]| (of.iter().map(|x| x * x).sum::<f64>() / of.len().max(1) as f64).sqrt();
    let scale = rms(want).max(least);
    let scales: Vec<f64> = want.chunks(width).map(|row| rms(row).max(scale)).collect();
    let errors = got.zip(want).enumerate().map(|(i, (got, want))| {
        let error = (got - want).abs() / want.abs().max(scales[i / width]);
        if error.is_nan() { f64::INFINITY } else { error }
    });
    errors.enumerate().fold((0, 0.0), |a, b| if b.1 > a.1 { b } else { a })
}
