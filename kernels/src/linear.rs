//! Matrix products through the `gemm` crate. Tiled over rows and columns only, never over K.
//!
//! Which operand is packed: the crate wants C contiguous along its first side and therefore computes the transpose of
//! each of these row-major products; written this way forward packs tiles of `w`, `backward_input` reads `w` as it
//! lies, and `backward_weight` packs `dy`. Each product is cut in the way that packs least: see [`Cut`].

use crate::Cpu;
use crate::product::{self, Cut, Size, View};
use crate::simd::with_simd;
use rayon::prelude::*;

/// Columns of a bias gradient that one task sums.
const COLUMNS: usize = 256;

/// y [T,O] = x [T,I] * w [O,I]^T (+ bias [O])
///
/// # Panics
/// If a slice does not have the length of its shape; so do all functions of this module.
#[allow(clippy::too_many_arguments)]
pub fn forward(
    cpu: &Cpu,
    x: &[f32],
    w: &[f32],
    bias: Option<&[f32]>,
    y: &mut [f32],
    tokens: usize,
    inputs: usize,
    outputs: usize,
) {
    assert_eq!((x.len(), w.len()), (tokens * inputs, outputs * inputs), "x [T,I], w [O,I]");
    assert_eq!(y.len(), tokens * outputs, "y [T,O]");
    if let Some(bias) = bias {
        assert_eq!(bias.len(), outputs, "bias [O]");
        cpu.install(|| y.par_chunks_mut(outputs).for_each(|y| y.copy_from_slice(bias)));
    }
    let size = Size { rows: tokens, cols: outputs, k: inputs };
    product::all(cpu, y, bias.is_some(), View::rows(x, inputs), View::transposed(w, inputs), size, Cut::HIGH);
}

/// dx [T,I] = (add ? dx : 0) + dy [T,O] * w [O,I]
#[allow(clippy::too_many_arguments)]
pub fn backward_input(
    cpu: &Cpu,
    dy: &[f32],
    w: &[f32],
    dx: &mut [f32],
    add: bool,
    tokens: usize,
    inputs: usize,
    outputs: usize,
) {
    assert_eq!((dy.len(), w.len()), (tokens * outputs, outputs * inputs), "dy [T,O], w [O,I]");
    assert_eq!(dx.len(), tokens * inputs, "dx [T,I]");
    let size = Size { rows: tokens, cols: inputs, k: outputs };
    product::all(cpu, dx, add, View::rows(dy, outputs), View::rows(w, inputs), size, Cut::HIGH);
}

/// dw [O,I] = (add ? dw : 0) + dy [T,O]^T * x [T,I]
#[allow(clippy::too_many_arguments)]
pub fn backward_weight(
    cpu: &Cpu,
    dy: &[f32],
    x: &[f32],
    dw: &mut [f32],
    add: bool,
    tokens: usize,
    inputs: usize,
    outputs: usize,
) {
    assert_eq!((dy.len(), x.len()), (tokens * outputs, tokens * inputs), "dy [T,O], x [T,I]");
    assert_eq!(dw.len(), outputs * inputs, "dw [O,I]");
    let size = Size { rows: outputs, cols: inputs, k: tokens };
    product::all(cpu, dw, add, View::transposed(dy, outputs), View::rows(x, inputs), size, Cut::WIDE);
}

/// db [O] = (add ? db : 0) + sum over tokens of dy, in token order (in f64, rounded once)
pub fn backward_bias(cpu: &Cpu, dy: &[f32], db: &mut [f32], add: bool, tokens: usize, outputs: usize) {
    assert_eq!((dy.len(), db.len()), (tokens * outputs, outputs), "dy [T,O], db [O]");
    cpu.install(|| {
        db.par_chunks_mut(COLUMNS).enumerate().for_each(|(block, db)| {
            let mut sums = [0f64; COLUMNS];
            let sums = &mut sums[..db.len()];
            for row in dy.chunks_exact(outputs) {
                with_simd!(cpu.level(), add_widened(sums, &row[block * COLUMNS..][..sums.len()]));
            }
            for (db, sum) in db.iter_mut().zip(sums) {
                *db = (if add { f64::from(*db) } else { 0.0 } + *sum) as f32;
            }
        });
    });
}

#[inline(always)]
fn add_widened(sums: &mut [f64], row: &[f32]) {
    for (sum, x) in sums.iter_mut().zip(row) {
        *sum += f64::from(*x);
    }
}

/// Bytes that one product of these shapes makes resident inside the gemm crate at most (for budgets), all threads
/// together: m rows and n columns of the result, k terms a sum. Packed are one tile of the result's operands a thread,
/// so the buffers do not grow beyond a tile. (The crate also reserves a buffer as large as the second-level cache for
/// each thread, of which it touches only the part that is counted here.)
pub fn scratch_bytes(threads: usize, m: usize, n: usize, k: usize) -> usize {
    product::scratch_bytes(threads, Size { rows: m, cols: n, k })
}

#[cfg(test)]
mod tests;
