//! Matrix products and table rows.

/// y [T,O] = x [T,I] * w [O,I]^T (+ bias [O])
pub fn linear_forward(x: &[f64], w: &[f64], bias: Option<&[f64]>, inputs: usize, outputs: usize) -> Vec<f64> {
    let mut y = Vec::with_capacity(x.len() / inputs * outputs);
    for x in x.chunks_exact(inputs) {
        for (o, w) in w.chunks_exact(inputs).enumerate() {
            let product: f64 = x.iter().zip(w).map(|(x, w)| x * w).sum();
            y.push(product + bias.map_or(0.0, |bias| bias[o]));
        }
    }
    y
}

/// dx [T,I] = dy [T,O] * w [O,I]
pub fn linear_backward_input(dy: &[f64], w: &[f64], inputs: usize, outputs: usize) -> Vec<f64> {
    let mut dx = vec![0.0; dy.len() / outputs * inputs];
    for (dy, dx) in dy.chunks_exact(outputs).zip(dx.chunks_exact_mut(inputs)) {
        for (dy, w) in dy.iter().zip(w.chunks_exact(inputs)) {
            dx.iter_mut().zip(w).for_each(|(dx, w)| *dx += dy * w);
        }
    }
    dx
}

/// dw [O,I] = dy [T,O]^T * x [T,I]
pub fn linear_backward_weight(dy: &[f64], x: &[f64], inputs: usize, outputs: usize) -> Vec<f64> {
    let mut dw = vec![0.0; outputs * inputs];
    for (dy, x) in dy.chunks_exact(outputs).zip(x.chunks_exact(inputs)) {
        for (dy, dw) in dy.iter().zip(dw.chunks_exact_mut(inputs)) {
            dw.iter_mut().zip(x).for_each(|(dw, x)| *dw += dy * x);
        }
    }
    dw
}

/// db [O] = sum over tokens of dy [T,O]
pub fn linear_backward_bias(dy: &[f64], outputs: usize) -> Vec<f64> {
    let mut db = vec![0.0; outputs];
    for dy in dy.chunks_exact(outputs) {
        db.iter_mut().zip(dy).for_each(|(db, dy)| *db += dy);
    }
    db
}

/// Rows `ids` of the table [V,H].
pub fn gather(ids: &[u32], table: &[f64], hidden: usize) -> Vec<f64> {
    ids.iter().flat_map(|id| table[*id as usize * hidden..][..hidden].iter().copied()).collect()
}

/// Adds the rows dx [T,H] to rows `ids` of the table gradient.
pub fn scatter_add(ids: &[u32], dx: &[f64], table: &mut [f64], hidden: usize) {
    for (id, dx) in ids.iter().zip(dx.chunks_exact(hidden)) {
        table[*id as usize * hidden..].iter_mut().zip(dx).for_each(|(to, dx)| *to += dx);
    }
}
