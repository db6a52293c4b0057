//! SwiGLU and additions, elementwise. silu(x) = x * s(x) with s(x) = 1 / (1 + e^-x).

use crate::Cpu;
use crate::math::exp;
use crate::simd::with_simd;
use rayon::prelude::*;

/// Elements of one task.
const BLOCK: usize = 16 * 1024;

/// out = silu(gate) * up, elementwise.
///
/// # Panics
/// If the slices differ in length; so do all functions of this module.
pub fn swiglu_forward(cpu: &Cpu, gate: &[f32], up: &[f32], out: &mut [f32]) {
    assert!(gate.len() == out.len() && up.len() == out.len(), "slices of one length");
    cpu.install(|| {
        let blocks = (gate.par_chunks(BLOCK), up.par_chunks(BLOCK), out.par_chunks_mut(BLOCK)).into_par_iter();
        blocks.for_each(|(gate, up, out)| with_simd!(cpu.level(), forward_block(gate, up, out)));
    });
}

#[inline(always)]
fn forward_block(gate: &[f32], up: &[f32], out: &mut [f32]) {
    for ((out, g), up) in out.iter_mut().zip(gate).zip(up) {
        *out = g * sigmoid(*g) * up;
    }
}

#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// dgate and dup are overwritten: dup = dout * silu(gate), dgate = dout * up * s * (1 + gate * (1 - s)).
pub fn swiglu_backward(cpu: &Cpu, dout: &[f32], gate: &[f32], up: &[f32], dgate: &mut [f32], dup: &mut [f32]) {
    let n = dout.len();
    assert!(gate.len() == n && up.len() == n && dgate.len() == n && dup.len() == n, "slices of one length");
    cpu.install(|| {
        let read = (dout.par_chunks(BLOCK), gate.par_chunks(BLOCK), up.par_chunks(BLOCK));
        let blocks = (read.0, read.1, read.2, dgate.par_chunks_mut(BLOCK), dup.par_chunks_mut(BLOCK)).into_par_iter();
        blocks.for_each(|(dout, gate, up, dgate, dup)| {
            with_simd!(cpu.level(), backward_block(dout, gate, up, dgate, dup));
        });
    });
}

#[inline(always)]
fn backward_block(dout: &[f32], gate: &[f32], up: &[f32], dgate: &mut [f32], dup: &mut [f32]) {
    let n = dout.len();
    let (gate, up, dgate, dup) = (&gate[..n], &up[..n], &mut dgate[..n], &mut dup[..n]);
    for i in 0..n {
        let (g, s) = (gate[i], sigmoid(gate[i]));
        dup[i] = dout[i] * (g * s);
        dgate[i] = dout[i] * up[i] * (s * g.mul_add(1.0 - s, 1.0));
    }
}

/// y += x
pub fn add(cpu: &Cpu, y: &mut [f32], x: &[f32]) {
    assert_eq!(x.len(), y.len(), "slices of one length");
    cpu.install(|| {
        let blocks = (y.par_chunks_mut(BLOCK), x.par_chunks(BLOCK)).into_par_iter();
        blocks.for_each(|(y, x)| with_simd!(cpu.level(), add_block(y, x)));
    });
}

#[inline(always)]
fn add_block(y: &mut [f32], x: &[f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += x;
    }
}

#[cfg(test)]
mod tests;
