//! Attention in f64, one query at a time.

use mt_kernels::cuda::attention::{Layout, Shape};
use std::ops::Range;

/// The measure that is allowed of bf16: probabilities and gradients of scores are rounded on their way into products,
/// and then the results. attention_measure.rs shows that such rounding passes (1.1e-2) and faults do not.
pub const ALLOWED_BF16: f64 = 1.5e-2;
/// Scale of gradients of which all cancels: terms are about 1 for inputs of about 1.
pub const LEAST: f64 = 0.1;

/// What a token sees.
#[derive(Clone, Copy, Debug)]
pub enum Sees {
    All,
    Window(usize),
    /// Documents of so many tokens, packed.
    Documents(usize),
}

/// The first token that each sees.
pub fn firsts(shape: &Shape, sees: Sees) -> Vec<u32> {
    let first = |t: usize| match sees {
        Sees::All => 0,
        Sees::Window(width) => (t + 1).saturating_sub(width),
        Sees::Documents(len) => t / len * len,
    };
    (0..shape.tokens()).map(|t| first(t % shape.seq) as u32).collect()
}

/// Elements of token t in q (0), k (1) or v (2).
pub fn places(s: &Shape, part: usize, t: usize) -> Range<usize> {
    let (q, kv) = (s.heads * s.head_dim, s.kv_heads * s.head_dim);
    let width = [q, kv, kv][part];
    let begin = match s.layout {
        Layout::Beside => t * (q + 2 * kv) + [0, q, q + kv][part],
        Layout::Apart => s.tokens() * [0, q, q + kv][part] + t * width,
    };
    begin..begin + width
}

/// Elements of q (0), k (1) or v (2), token by token.
pub fn part<T: Copy>(s: &Shape, part: usize, of: &[T]) -> Vec<T> {
    (0..s.tokens()).flat_map(|t| of[places(s, part, t)].iter().copied()).collect()
}

/// out and lse. `narrow` is what becomes of probabilities (before they are divided by their sum) on their way into a
/// product.
pub fn forward(s: &Shape, qkv: &[f64], first: &[u32], narrow: impl Fn(f64) -> f64) -> (Vec<f64>, Vec<f64>) {
    let d = s.head_dim;
    let (mut out, mut lses) = (vec![0.0; s.tokens() * s.heads * d], Vec::new());
    for (row, (t, h)) in queries(s).enumerate() {
        let scores = scores(s, qkv, first, t, h);
        let max = scores.iter().map(|score| score.value).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|score| (score.value - max).exp()).sum();
        lses.push(max + sum.ln());
        for score in &scores {
            let p = narrow((score.value - max).exp()) / sum;
            add(&mut out[row * d..][..d], p, &qkv[score.v.clone()]);
        }
    }
    (out, lses)
}

/// The gradients of q, k and v in their places. `narrow` as above, for probabilities and gradients of scores.
pub fn backward(
    s: &Shape,
    qkv: &[f64],
    first: &[u32],
    out: &[f64],
    lse: &[f64],
    dout: &[f64],
    narrow: impl Fn(f64) -> f64,
) -> Vec<f64> {
    let d = s.head_dim;
    let mut dqkv = vec![0.0; qkv.len()];
    for (row, (t, h)) in queries(s).enumerate() {
        let dout = &dout[row * d..][..d];
        let delta = dot(dout, &out[row * d..][..d]);
        let q = head(s, 0, t, h);
        for score in scores(s, qkv, first, t, h) {
            let p = (score.value - lse[row]).exp();
            let ds = p * (dot(dout, &qkv[score.v.clone()]) - delta) * score.slope;
            let ds = narrow(ds) * f64::from(s.scale);
            add(&mut dqkv[score.v.clone()], narrow(p), dout);
            add(&mut dqkv[score.k.clone()], ds, &qkv[q.clone()]);
            add(&mut dqkv[q.clone()], ds, &qkv[score.k]);
        }
    }
    dqkv
}

/// A query's score of a key.
struct Score {
    value: f64,
    /// Of the soft-cap there.
    slope: f64,
    k: Range<usize>,
    v: Range<usize>,
}

/// Tokens with their heads.
fn queries(s: &Shape) -> impl Iterator<Item = (usize, usize)> {
    let heads = s.heads;
    (0..s.tokens() * heads).map(move |i| (i / heads, i % heads))
}

fn head(s: &Shape, part: usize, t: usize, head: usize) -> Range<usize> {
    let begin = places(s, part, t).start + head * s.head_dim;
    begin..begin + s.head_dim
}

fn scores(s: &Shape, qkv: &[f64], first: &[u32], t: usize, h: usize) -> Vec<Score> {
    let kv = h / (s.heads / s.kv_heads);
    let seen = t / s.seq * s.seq + first[t] as usize..=t;
    let score = |j| {
        let (k, v) = (head(s, 1, j, kv), head(s, 2, j, kv));
        let x = f64::from(s.scale) * dot(&qkv[head(s, 0, t, h)], &qkv[k.clone()]);
        let (value, slope) = s.cap.map_or((x, 1.0), |cap| {
            let t = (x / f64::from(cap)).tanh();
            (f64::from(cap) * t, 1.0 - t * t)
        });
        Score { value, slope, k, v }
    };
    seen.map(score).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], factor: f64, from: &[f64]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += factor * from);
}
