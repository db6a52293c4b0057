//! Comparing numbers: relative L2 errors in f64, and AdamW written out plainly in f64.

/// ||x - reference|| / ||reference||, in f64. A reference of zeros gives the norm of `x`.
pub fn relative_l2(x: &[f32], reference: &[f32]) -> f64 {
    assert_eq!(x.len(), reference.len(), "compared vectors have one length");
    let mut sums = Sums::default();
    sums.add(x, reference);
    sums.error()
}

/// |x - reference| / |reference|.
pub fn relative(x: f64, reference: f64) -> f64 {
    if x == reference { 0.0 } else { ((x - reference) / reference).abs() }
}

/// Accumulates a relative L2 error over several tensors seen as one vector. NaN anywhere gives NaN, which no tolerance
/// accepts.
#[derive(Clone, Copy, Default, Debug)]
pub struct Sums {
    difference: f64,
    reference: f64,
}

impl Sums {
    /// Adds a part of the vector.
    pub fn add(&mut self, x: &[f32], reference: &[f32]) {
        for (&a, &b) in x.iter().zip(reference) {
            self.difference += (f64::from(a) - f64::from(b)).powi(2);
            self.reference += f64::from(b).powi(2);
        }
    }

    /// The relative error of everything added.
    pub fn error(&self) -> f64 {
        let norm = if self.reference > 0.0 { self.reference } else { 1.0 };
        (self.difference / norm).sqrt()
    }
}

/// L2 norm over several vectors, in f64.
pub fn norm<'a>(vectors: impl IntoIterator<Item = &'a [f32]>) -> f64 {
    let squares = |v: &[f32]| v.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>();
    vectors.into_iter().map(squares).sum::<f64>().sqrt()
}

/// AdamW as PyTorch defines it: decoupled decay, bias correction, eps added after it. State of one vector, in f64.
#[derive(Clone, Debug)]
pub struct AdamW {
    /// First and second moment decay.
    pub betas: (f64, f64),
    /// Added to the root of the corrected second moment.
    pub eps: f64,
    /// Decay, already 0 for vectors that have none.
    pub weight_decay: f64,
    /// The weights.
    pub weights: Vec<f64>,
    m: Vec<f64>,
    v: Vec<f64>,
    step: i32,
}

impl AdamW {
    /// Fresh moments for these weights.
    pub fn new(weights: &[f32], betas: (f64, f64), eps: f64, weight_decay: f64) -> AdamW {
        let zeros = vec![0.0; weights.len()];
        let weights = weights.iter().map(|&w| f64::from(w)).collect();
        AdamW { betas, eps, weight_decay, weights, m: zeros.clone(), v: zeros, step: 0 }
    }

    /// One update with gradients that are multiplied by `scale` first.
    pub fn update(&mut self, gradients: &[f32], scale: f64, lr: f64) {
        assert_eq!(gradients.len(), self.weights.len(), "a gradient for each weight");
        self.step += 1;
        let (b1, b2) = self.betas;
        let (c1, c2) = (1.0 - b1.powi(self.step), 1.0 - b2.powi(self.step));
        for (i, &g) in gradients.iter().enumerate() {
            let g = f64::from(g) * scale;
            self.weights[i] -= lr * self.weight_decay * self.weights[i];
            self.m[i] = b1 * self.m[i] + (1.0 - b1) * g;
            self.v[i] = b2 * self.v[i] + (1.0 - b2) * g * g;
            self.weights[i] -= lr * (self.m[i] / c1) / ((self.v[i] / c2).sqrt() + self.eps);
        }
    }

    /// Largest absolute difference to weights held as f32.
    pub fn largest_difference(&self, weights: &[f32]) -> f64 {
        let difference = |(&a, &b): (&f64, &f32)| (a - f64::from(b)).abs();
        let differences = self.weights.iter().zip(weights).map(difference);
        differences.fold(0.0, |a, b| if b > a || b.is_nan() { b } else { a })
    }
}

/// min(1, limit / (norm + 1e-6)): what gradients are multiplied by.
pub fn clip_scale(norm: f64, limit: Option<f64>) -> f64 {
    limit.map_or(1.0, |limit| (limit / (norm + 1e-6)).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative_to_the_reference_and_never_hide_nan() {
        assert_eq!(relative_l2(&[3.0, 4.0], &[3.0, 4.0]), 0.0);
        assert!((relative_l2(&[3.0, 5.0], &[3.0, 4.0]) - 0.2).abs() < 1e-12);
        assert!(relative_l2(&[f32::NAN], &[1.0]).is_nan());
        assert_eq!(relative(2.0, 1.0), 1.0);
    }

    #[test]
    fn the_first_update_moves_by_the_rate() {
        let mut a = AdamW::new(&[1.0, -1.0], (0.9, 0.95), 0.0, 0.0);
        a.update(&[5.0, -1e-9], 1.0, 0.01);
        assert!((a.weights[0] - 0.99).abs() < 1e-12 && (a.weights[1] + 0.99).abs() < 1e-12);
    }

    #[test]
    fn clipping_only_shrinks() {
        assert_eq!(clip_scale(0.5, Some(1.0)), 1.0);
        assert_eq!(clip_scale(9.0, None), 1.0);
        assert!((clip_scale(2.0, Some(1.0)) - 0.5).abs() < 1e-6);
    }
}
