//! RMSNorm, rotary positions and SwiGLU.

/// y and rstd of rows of w.len() columns.
pub fn rmsnorm_forward(x: &[f64], w: &[f64], eps: f64) -> (Vec<f64>, Vec<f64>) {
    let (mut y, mut rstd) = (Vec::new(), Vec::new());
    for x in x.chunks_exact(w.len()) {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / w.len() as f64;
        let r = 1.0 / (mean + eps).sqrt();
        y.extend(x.iter().zip(w).map(|(x, w)| x * r * w));
        rstd.push(r);
    }
    (y, rstd)
}

/// dx and dw.
pub fn rmsnorm_backward(dy: &[f64], x: &[f64], w: &[f64], eps: f64) -> (Vec<f64>, Vec<f64>) {
    let columns = w.len();
    let (_, rstd) = rmsnorm_forward(x, w, eps);
    let (mut dx, mut dw) = (Vec::new(), vec![0.0; columns]);
    for ((dy, x), r) in dy.chunks_exact(columns).zip(x.chunks_exact(columns)).zip(rstd) {
        let inner: f64 = (0..columns).map(|i| dy[i] * w[i] * x[i]).sum();
        dx.extend((0..columns).map(|i| r * dy[i] * w[i] - x[i] * r.powi(3) * inner / columns as f64));
        (0..columns).for_each(|i| dw[i] += dy[i] * x[i] * r);
    }
    (dx, dw)
}

/// Rotates x [T, heads, D] by positions[t] * frequency[i] (or back); pairs are i and i + D/2.
pub fn rotate(x: &[f64], positions: &[u32], frequencies: &[f64], heads: usize, back: bool) -> Vec<f64> {
    let half = frequencies.len();
    let mut y = x.to_vec();
    for (head, y) in y.chunks_exact_mut(2 * half).enumerate() {
        for i in 0..half {
            let angle = f64::from(positions[head / heads]) * frequencies[i];
            let (s, c) = if back { (-angle).sin_cos() } else { angle.sin_cos() };
            (y[i], y[i + half]) = (y[i] * c - y[i + half] * s, y[i + half] * c + y[i] * s);
        }
    }
    y
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// silu(gate) * up
pub fn swiglu_forward(gate: &[f64], up: &[f64]) -> Vec<f64> {
    gate.iter().zip(up).map(|(g, u)| g * sigmoid(*g) * u).collect()
}

/// dgate and dup.
pub fn swiglu_backward(dout: &[f64], gate: &[f64], up: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let dup = dout.iter().zip(gate).map(|(d, g)| d * g * sigmoid(*g)).collect();
    let slope = |g: f64| sigmoid(g) * (1.0 + g * (1.0 - sigmoid(g)));
    let dgate = dout.iter().zip(gate).zip(up).map(|((d, g), u)| d * u * slope(*g)).collect();
    (dgate, dup)
}
