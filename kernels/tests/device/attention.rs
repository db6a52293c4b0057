//! Attention forward and backward against f64: head dimensions, grouped queries, windows, documents, soft-cap, and both
//! layouts of q, k and v.

use crate::rig::{Rig, Value, Work, wide};
use mt_kernels::cuda::Error;
use mt_kernels::cuda::attention::{self, Layout, Shape};
use reference::{ALLOWED_BF16, LEAST, Sees, firsts, part};

#[path = "attention_reference.rs"]
mod reference;

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
}

/// One short case of each form of the kernels, for a tool that follows every access to shared memory: racecheck takes
/// 36 s for these on an H200, and did not end in 520 s for all of `run`. Each has two tiles of queries or keys at
/// least, the last in part, and two heads of a group.
pub fn small(rig: &mut Rig) {
    let shape = |dim: usize, seq| Shape {
        rows: 1,
        seq,
        heads: 2,
        kv_heads: 1,
        head_dim: dim,
        layout: Layout::Beside,
        scale: 1.0 / (dim as f32).sqrt(),
        cap: None,
    };
    for (dim, seq) in [(20, 35), (128, 35), (256, 20)] {
        rig.attempt("attention", |rig| check::<f32>(rig, shape(dim, seq), Sees::Window(seq - 1), 2e-5));
    }
    for dim in [20, 80, 96, 128, 256] {
        rig.attempt("attention", |rig| check::<u16>(rig, shape(dim, 70), Sees::Window(69), ALLOWED_BF16));
    }
}

/// Prints times and rates.
pub fn times(rig: &mut Rig) {
    for dim in [64, 80, 96, 128, 256] {
        rig.attempt("speed of attention", |rig| speed::<u16>(rig, dim, 8, 1_024));
    }
    for dim in [64, 128, 256] {
        rig.attempt("speed of attention", |rig| speed::<u16>(rig, dim, 1, 8_192));
    }
    rig.attempt("speed of attention", |rig| speed::<f32>(rig, 128, 2, 1_024));
}

fn both(rig: &mut Rig, shape: Shape, sees: Sees) {
    rig.attempt("attention", |rig| check::<f32>(rig, shape, sees, 2e-5));
    rig.attempt("attention", |rig| check::<u16>(rig, shape, sees, ALLOWED_BF16));
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
    let (a, b) = (&results[0], &results[1]);
    let (qkv, dout) = (wide(&qkv), wide(&dout));
    let (out, lse) = reference::forward(&shape, &qkv, &first, |x| x);
    rig.close_rows(&format!("attention out {form}"), &a.0, &out, head_dim, LEAST, allowed);
    rig.close(&format!("attention lse {form}"), &a.1, &lse, 1e-5 + T::ROUNDING / 4.0);
    // Of what backward was given: the rounded `out`, from which it has delta.
    let gradients = reference::backward(&shape, &qkv, &first, &wide(&a.0), &wide(&a.1), &dout, |x| x);
    for (i, name) in ["dq", "dk", "dv"].into_iter().enumerate() {
        let (got, want) = (part(&shape, i, &a.2), part(&shape, i, &gradients));
        rig.close_rows(&format!("attention {name} {form}"), &got, &want, head_dim, LEAST, allowed);
    }
    rig.same(&format!("attention out {form}"), &a.0, &b.0);
    rig.same(&format!("attention gradients {form}"), &a.2, &b.2);
    Ok(())
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
