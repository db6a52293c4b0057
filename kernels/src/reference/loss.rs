//! Cross-entropy over whole rows of logits.

use crate::cross_entropy::NO_TARGET;

/// Sum over targets of lse - logit, and its gradient times `scale`, for logits [T,V].
pub fn cross_entropy(logits: &[f64], labels: &[u32], vocabulary: usize, scale: f64) -> (f64, Vec<f64>) {
    let (mut loss, mut gradient) = (0.0, Vec::with_capacity(logits.len()));
    for (row, label) in logits.chunks_exact(vocabulary).zip(labels) {
        if *label == NO_TARGET {
            gradient.extend(row.iter().map(|_| 0.0));
            continue;
        }
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let lse = max + row.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
        loss += lse - row[*label as usize];
        let onehot = |i: usize| if i == *label as usize { 1.0 } else { 0.0 };
        gradient.extend(row.iter().enumerate().map(|(i, x)| ((x - lse).exp() - onehot(i)) * scale));
    }
    (loss, gradient)
}
