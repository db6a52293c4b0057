//! Causal grouped-query attention, one query at a time.

use crate::attention::Shape;

/// Key/value offset of token `t` (among all) as seen by query head `head`.
fn kv(s: Shape, t: usize, head: usize) -> usize {
    (t * s.kv_heads + head / (s.heads / s.kv_heads)) * s.head_dim
}

/// Tokens (among all) that token `t` sees.
fn seen(s: Shape, t: usize, first: &[u32]) -> std::ops::RangeInclusive<usize> {
    t / s.seq * s.seq + first[t] as usize..=t
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// out [T,N,D] and lse [T,N].
pub fn attention_forward(s: Shape, scale: f64, q: &[f64], k: &[f64], v: &[f64], first: &[u32]) -> (Vec<f64>, Vec<f64>) {
    let d = s.head_dim;
    let (mut out, mut lse) = (vec![0.0; q.len()], Vec::new());
    for (i, (q, out)) in q.chunks_exact(d).zip(out.chunks_exact_mut(d)).enumerate() {
        let (t, head) = (i / s.heads, i % s.heads);
        let scores: Vec<f64> = seen(s, t, first).map(|j| scale * dot(q, &k[kv(s, j, head)..][..d])).collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total = max + scores.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
        for (j, score) in seen(s, t, first).zip(scores) {
            let p = (score - total).exp();
            out.iter_mut().zip(&v[kv(s, j, head)..]).for_each(|(out, v)| *out += p * v);
        }
        lse.push(total);
    }
    (out, lse)
}

/// dq, dk, dv.
#[allow(clippy::too_many_arguments)]
pub fn attention_backward(
    s: Shape,
    scale: f64,
    q: &[f64],
    k: &[f64],
    v: &[f64],
    first: &[u32],
    dout: &[f64],
) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let d = s.head_dim;
    let (out, lse) = attention_forward(s, scale, q, k, v, first);
    let (mut dq, mut dk, mut dv) = (vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]);
    for (i, lse) in lse.iter().enumerate() {
        let (t, head, at) = (i / s.heads, i % s.heads, i * d);
        let (q, dout, out) = (&q[at..at + d], &dout[at..at + d], &out[at..at + d]);
        let delta = dot(dout, out);
        for j in seen(s, t, first) {
            let from = kv(s, j, head);
            let p = (scale * dot(q, &k[from..from + d]) - lse).exp();
            let ds = p * (dot(dout, &v[from..from + d]) - delta) * scale;
            for e in 0..d {
                dv[from + e] += p * dout[e];
                dk[from + e] += ds * q[e];
                dq[at + e] += ds * k[from + e];
            }
        }
    }
    (dq, dk, dv)
}
