//! RMSNorm over the last dimension.
//!
//! Sums over a row use 16 lanes in f64, folded in halves; the sum over rows of the weight's gradient runs in row order
//! in f64, column by column. Both are fixed by the shape.

use crate::Cpu;
use crate::math::{LANES, fold64};
use crate::simd::with_simd;
use rayon::prelude::*;

/// Rows of one task.
const ROWS: usize = 16;
/// Columns of the weight's gradient of one task.
const COLUMNS: usize = 128;

/// y[r,:] = x[r,:] * rstd[r] * w ; rstd[r] = 1/sqrt(mean(x^2)+eps). x,y [R,C], w [C], rstd [R].
///
/// # Panics
/// If a slice does not have the length of its shape; so does [`backward`].
pub fn forward(cpu: &Cpu, x: &[f32], w: &[f32], eps: f32, y: &mut [f32], rstd: &mut [f32]) {
    let columns = w.len();
    assert!(x.len() == y.len() && x.len() == rstd.len() * columns, "x, y [R,C], w [C], rstd [R]");
    cpu.install(|| {
        let rows = y.par_chunks_mut(ROWS * columns).zip(x.par_chunks(ROWS * columns)).zip(rstd.par_chunks_mut(ROWS));
        rows.for_each(|((y, x), rstd)| with_simd!(cpu.level(), forward_rows(x, w, eps, y, rstd)));
    });
}

#[inline(always)]
fn forward_rows(x: &[f32], w: &[f32], eps: f32, y: &mut [f32], rstd: &mut [f32]) {
    let columns = w.len();
    for ((y, x), rstd) in y.chunks_exact_mut(columns).zip(x.chunks_exact(columns)).zip(rstd) {
        let mean = dot(x, x) / columns as f64;
        *rstd = (1.0 / (mean + f64::from(eps)).sqrt()) as f32;
        for ((y, x), w) in y.iter_mut().zip(x).zip(w) {
            *y = x * *rstd * w;
        }
    }
}

/// Sum of a[i] * b[i], exact products added in f64.
#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f64 {
    let mut lanes = [0f64; LANES];
    let (whole_a, rest_a) = a.as_chunks::<LANES>();
    let (whole_b, rest_b) = b.as_chunks::<LANES>();
    for (a, b) in whole_a.iter().zip(whole_b) {
        for i in 0..LANES {
            lanes[i] += f64::from(a[i]) * f64::from(b[i]);
        }
    }
    for ((lane, a), b) in lanes.iter_mut().zip(rest_a).zip(rest_b) {
        *lane += f64::from(*a) * f64::from(*b);
    }
    fold64(lanes)
}

/// Adds to dx if `add` else overwrites; always adds to dw [C]. Order of the sum over rows is fixed.
#[allow(clippy::too_many_arguments)]
pub fn backward(cpu: &Cpu, dy: &[f32], x: &[f32], w: &[f32], rstd: &[f32], dx: &mut [f32], add: bool, dw: &mut [f32]) {
    let columns = w.len();
    let n = rstd.len() * columns;
    assert!(dy.len() == n && x.len() == n && dx.len() == n && dw.len() == columns, "dy, x, dx [R,C], w, dw [C]");
    cpu.install(|| {
        let read = (dy.par_chunks(ROWS * columns), x.par_chunks(ROWS * columns), rstd.par_chunks(ROWS));
        let rows = (read.0, read.1, read.2, dx.par_chunks_mut(ROWS * columns)).into_par_iter();
        rows.for_each(|(dy, x, rstd, dx)| with_simd!(cpu.level(), backward_rows(dy, x, w, rstd, dx, add)));
        dw.par_chunks_mut(COLUMNS).enumerate().for_each(|(block, dw)| {
            let mut sums = [0f64; COLUMNS];
            let sums = &mut sums[..dw.len()];
            let rows = dy.chunks_exact(columns).zip(x.chunks_exact(columns)).zip(rstd);
            for ((dy, x), rstd) in rows {
                let part = block * COLUMNS..block * COLUMNS + sums.len();
                with_simd!(cpu.level(), add_row(sums, &dy[part.clone()], &x[part], *rstd));
            }
            for (dw, sum) in dw.iter_mut().zip(sums) {
                *dw = (f64::from(*dw) + *sum) as f32;
            }
        });
    });
}

/// dx = rstd * (w dy - x * rstd^2 * mean(w dy x)).
#[inline(always)]
fn backward_rows(dy: &[f32], x: &[f32], w: &[f32], rstd: &[f32], dx: &mut [f32], add: bool) {
    let columns = w.len();
    let rows = dy.chunks_exact(columns).zip(x.chunks_exact(columns)).zip(dx.chunks_exact_mut(columns)).zip(rstd);
    for (((dy, x), dx), rstd) in rows {
        let mean = dot3(dy, w, x) / columns as f64;
        let factor = (mean * f64::from(*rstd) * f64::from(*rstd)) as f32;
        for (((dx, dy), w), x) in dx.iter_mut().zip(dy).zip(w).zip(x) {
            let d = rstd * x.mul_add(-factor, w * dy);
            *dx = if add { *dx + d } else { d };
        }
    }
}

/// Sum of a[i] * b[i] * c[i], the first product rounded to f32.
#[inline(always)]
fn dot3(a: &[f32], b: &[f32], c: &[f32]) -> f64 {
    let mut lanes = [0f64; LANES];
    let (whole_a, rest_a) = a.as_chunks::<LANES>();
    let (whole_b, rest_b) = b.as_chunks::<LANES>();
    let (whole_c, rest_c) = c.as_chunks::<LANES>();
    for ((a, b), c) in whole_a.iter().zip(whole_b).zip(whole_c) {
        for i in 0..LANES {
            lanes[i] += f64::from(a[i] * b[i]) * f64::from(c[i]);
        }
    }
    for (((lane, a), b), c) in lanes.iter_mut().zip(rest_a).zip(rest_b).zip(rest_c) {
        *lane += f64::from(a * b) * f64::from(*c);
    }
    fold64(lanes)
}

#[inline(always)]
fn add_row(sums: &mut [f64], dy: &[f32], x: &[f32], rstd: f32) {
    for ((sum, dy), x) in sums.iter_mut().zip(dy).zip(x) {
        *sum += f64::from(*dy) * f64::from(x * rstd);
    }
}

#[cfg(test)]
mod tests;
