//! Attention forward and backward against f64: head dimensions, grouped queries, windows, documents, soft-cap, and both
//! layouts of q, k and v.

use crate::rig::{Rig, Value, Work, wide};
use mt_kernels::cuda::Error;
use mt_kernels::cuda::attention::{self, Layout, Shape};

/// What a token sees.
#[derive(Clone, Copy, Debug)]
enum Sees {
    All,
    Window(usize),
    /// Documents of so many tokens, packed.
    Documents(usize),
}

pub fn run(rig: &mut Rig) {
    let dims = [4, 20, 32, 64, 80, 96, 100, 128, 160, 256];
    for (i, dim) in dims.into_iter().enumerate() {
        let layout = [Layout::Beside, Layout::Apart][i % 2];
        let shape = Shape {
            rows: 2,
            seq: 150,
            heads: 4,
            kv_heads: [2, 1, 4][i % 3],
            head_dim: dim,
            layout,
            scale: 1.0 / (dim as f32).sqrt(),
            cap: None,
        };
        both(rig, shape, Sees::All);
        if dim == 64 || dim == 128 {
            both(rig, shape, Sees::Window(37));
            both(rig, shape, Sees::Documents(29));
            both(rig, Shape { cap: Some(1.5), ..shape }, Sees::Window(100));
            both(rig, Shape { rows: 3, seq: 1, ..shape }, Sees::All);
            both(rig, Shape { rows: 1, seq: 320, ..shape }, Sees::All);
        }
    }
    for dim in [64, 80, 96, 128, 256] {
        rig.attempt("speed of attention", |rig| speed::<u16>(rig, dim, 8, 1_024));
    }
    rig.attempt("speed of attention", |rig| speed::<u16>(rig, 128, 1, 8_192));
    rig.attempt("speed of attention", |rig| speed::<f32>(rig, 128, 2, 1_024));
}

fn both(rig: &mut Rig, shape: Shape, sees: Sees) {
    rig.attempt("attention", |rig| check::<f32>(rig, shape, sees, 2e-5));
    rig.attempt("attention", |rig| check::<u16>(rig, shape, sees, 1.5e-2));
}

fn firsts(shape: &Shape, sees: Sees) -> Vec<u32> {
    let first = |t: usize| match sees {
        Sees::All => 0,
        Sees::Window(width) => (t + 1).saturating_sub(width),
        Sees::Documents(len) => t / len * len,
    };
    (0..shape.tokens()).map(|t| first(t % shape.seq) as u32).collect()
}

fn check<T: Value>(rig: &mut Rig, shape: Shape, sees: Sees, allowed: f64) -> Result<(), Error> {
    let Shape { rows, seq, heads, kv_heads, head_dim, layout, cap, .. } = shape;
    let form = format!("{} {rows}x{seq} {heads}/{kv_heads}x{head_dim} {sees:?} {cap:?} {layout:?}", T::NAME);
    let (tokens, first) = (shape.tokens(), firsts(&shape, sees));
    let (qkv, dout): (Vec<T>, Vec<T>) = (rig.rng.vec(shape.qkv_len()), rig.rng.vec(tokens * heads * head_dim));
    let (qkv_d, first_d, dout_d) = (rig.upload(&qkv)?, rig.upload(&first)?, rig.upload(&dout)?);
    let mut results = Vec::new();
    for _ in 0..2 {
        let queue = &rig.queue;
        let (mut out, mut lse) = (rig.poisoned::<T>(dout.len())?, rig.poisoned::<f32>(tokens * heads)?);
        let (mut dqkv, mut scratch) =
            (rig.poisoned::<T>(qkv.len())?, rig.poisoned::<f32>(attention::scratch_len(&shape))?);
        attention::forward(queue, &shape, qkv_d.view(), first_d.view(), out.view_mut(), lse.view_mut())?;
        attention::backward(
            queue,
            &shape,
            qkv_d.view(),
            first_d.view(),
            out.view(),
            lse.view(),
            dout_d.view(),
            dqkv.view_mut(),
            scratch.view_mut(),
        )?;
        results.push((out.download(queue)?, lse.download(queue)?, dqkv.download(queue)?));
    }
    let want = reference(&shape, &wide(&qkv), &first, &wide(&dout));
    let (a, b) = (&results[0], &results[1]);
    rig.close(&format!("attention out {form}"), &a.0, &want.0, allowed);
    rig.close(&format!("attention lse {form}"), &a.1, &want.1, 1e-5 + T::ROUNDING / 4.0);
    for (i, part) in ["dq", "dk", "dv"].into_iter().enumerate() {
        let places: Vec<usize> = (0..tokens).flat_map(|t| places(&shape, i, t)).collect();
        let got: Vec<T> = places.iter().map(|at| a.2[*at]).collect();
        let want: Vec<f64> = places.iter().map(|at| want.2[*at]).collect();
        rig.close(&format!("attention {part} {form}"), &got, &want, allowed);
    }
    rig.same(&format!("attention out {form}"), &a.0, &b.0);
    rig.same(&format!("attention gradients {form}"), &a.2, &b.2);
    Ok(())
}

/// Elements of token t in q (0), k (1) or v (2).
fn places(s: &Shape, part: usize, t: usize) -> std::ops::Range<usize> {
    let (q, kv) = (s.heads * s.head_dim, s.kv_heads * s.head_dim);
    let width = [q, kv, kv][part];
    let begin = match s.layout {
        Layout::Beside => t * (q + 2 * kv) + [0, q, q + kv][part],
        Layout::Apart => s.tokens() * [0, q, q + kv][part] + t * width,
    };
    begin..begin + width
}

/// out, lse and the gradients of q, k, v in their places, one query at a time.
fn reference(s: &Shape, qkv: &[f64], first: &[u32], dout: &[f64]) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let d = s.head_dim;
    let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    let (mut out, mut lses, mut dqkv) = (vec![0.0; dout.len()], Vec::new(), vec![0.0; qkv.len()]);
    let head = |part, t, head: usize| places(s, part, t).start + head * d;
    for (t, begin) in first.iter().enumerate() {
        for h in 0..s.heads {
            let kv = h / (s.heads / s.kv_heads);
            let (at, q) = ((t * s.heads + h) * d, head(0, t, h));
            let seen = t / s.seq * s.seq + *begin as usize..=t;
            let scores: Vec<(f64, f64)> = seen
                .clone()
                .map(|j| {
                    let x = f64::from(s.scale) * dot(&qkv[q..q + d], &qkv[head(1, j, kv)..][..d]);
                    s.cap.map_or((x, 1.0), |cap| {
                        let t = (x / f64::from(cap)).tanh();
                        (f64::from(cap) * t, 1.0 - t * t)
                    })
                })
                .collect();
            let max = scores.iter().map(|s| s.0).fold(f64::NEG_INFINITY, f64::max);
            let lse = max + scores.iter().map(|s| (s.0 - max).exp()).sum::<f64>().ln();
            lses.push(lse);
            for (j, (score, _)) in seen.clone().zip(&scores) {
                for e in 0..d {
                    out[at + e] += (score - lse).exp() * qkv[head(2, j, kv) + e];
                }
            }
            let delta = dot(&dout[at..at + d], &out[at..at + d]);
            for (j, (score, slope)) in seen.zip(&scores) {
                let (p, k, v) = ((score - lse).exp(), head(1, j, kv), head(2, j, kv));
                let ds = p * (dot(&dout[at..at + d], &qkv[v..v + d]) - delta) * slope * f64::from(s.scale);
                for e in 0..d {
                    dqkv[v + e] += p * dout[at + e];
                    dqkv[k + e] += ds * qkv[q + e];
                    dqkv[q + e] += ds * qkv[k + e];
                }
            }
        }
    }
    (out, lses, dqkv)
}

/// Counted as causal attention: half of the products.
fn speed<T: Value>(rig: &mut Rig, head_dim: usize, rows: usize, seq: usize) -> Result<(), Error> {
    let shape = Shape {
        rows,
        seq,
        heads: 28,
        kv_heads: 4,
        head_dim,
        layout: Layout::Beside,
        scale: 1.0 / (head_dim as f32).sqrt(),
        cap: None,
    };
    let form = format!("{} {rows}x{seq} 28/4x{head_dim}", T::NAME);
    let product = (rows * seq * seq * 28 * head_dim) as f64;
    let n = shape.tokens() * 28 * head_dim;
    let (qkv, dout): (Vec<T>, Vec<T>) = (rig.rng.tiled(shape.qkv_len()), rig.rng.tiled(n));
    let (qkv, first, dout) = (rig.upload(&qkv)?, rig.upload(&vec![0u32; shape.tokens()])?, rig.upload(&dout)?);
    let (mut out, mut lse) = (rig.poisoned::<T>(n)?, rig.poisoned::<f32>(shape.tokens() * 28)?);
    let (mut dqkv, mut scratch) = (rig.poisoned::<T>(qkv.len())?, rig.poisoned::<f32>(attention::scratch_len(&shape))?);
    rig.time(&format!("attention forward {form}"), Work::Flops(2.0 * product), |queue| {
        attention::forward(queue, &shape, qkv.view(), first.view(), out.view_mut(), lse.view_mut())
    })?;
    rig.time(&format!("attention backward {form}"), Work::Flops(5.0 * product), |queue| {
        let (first, out, lse) = (first.view(), out.view(), lse.view());
        let (dqkv, scratch) = (dqkv.view_mut(), scratch.view_mut());
        attention::backward(queue, &shape, qkv.view(), first, out, lse, dout.view(), dqkv, scratch)
    })
}
