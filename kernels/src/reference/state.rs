//! The optimizer and the norm.

/// Hyperparameters of AdamW, as in [`crate::adamw::Step::new`].
#[derive(Clone, Copy, Debug)]
pub struct AdamW {
    /// Learning rate.
    pub lr: f64,
    /// Decays of the moments.
    pub betas: (f64, f64),
    /// Added to the root of the corrected second moment.
    pub eps: f64,
    /// Decoupled weight decay; 0 for tensors that do not decay.
    pub weight_decay: f64,
    /// 1-based step.
    pub step: u64,
    /// Factor on the gradient.
    pub grad_scale: f64,
}

/// One element's new (w, m, v).
pub fn adamw(h: &AdamW, g: f64, (w, m, v): (f64, f64, f64)) -> (f64, f64, f64) {
    let g = g * h.grad_scale;
    let m = h.betas.0 * m + (1.0 - h.betas.0) * g;
    let v = h.betas.1 * v + (1.0 - h.betas.1) * g * g;
    let m_hat = m / (1.0 - h.betas.0.powi(h.step as i32));
    let v_hat = v / (1.0 - h.betas.1.powi(h.step as i32));
    (w - h.lr * h.weight_decay * w - h.lr * m_hat / (v_hat.sqrt() + h.eps), m, v)
}

/// Sum of squares.
pub fn sum_squares(x: &[f32]) -> f64 {
    x.iter().map(|x| f64::from(*x) * f64::from(*x)).sum()
}
