//! Cross-entropy tiled over tokens and vocabulary with a running log-sum-exp.
//!
//! Forward sees the logits of all tokens a vocabulary tile at a time and keeps three numbers a token; backward turns
//! the logits of a tile, computed again, into their gradient in place.
//!
//! A row's sum runs over pieces of 1,024 logits: 16 lanes in f32 a piece, folded in halves, the pieces added in f64.

use crate::Cpu;
use crate::math::{LANES, exp, fold, fold_max, max};
use crate::simd::with_simd;
use rayon::prelude::*;

/// Label of a token that is no target.
pub const NO_TARGET: u32 = u32::MAX;

/// Tokens of one task.
const TOKENS: usize = 8;
/// Logits that are summed in f32.
const PIECE: usize = 1024;

/// Running state per token: max [T], sum [T] of exp(logit - max), and the target's logit [T].
pub struct State {
    /// Greatest logit so far; the log-sum-exp after [`finish`].
    pub max: Vec<f32>,
    /// Sum of exp(logit - max) so far.
    pub sum: Vec<f32>,
    /// The target's logit once its tile has been seen.
    pub target: Vec<f32>,
}

impl State {
    /// For T tokens, before any tile.
    pub fn new(tokens: usize) -> State {
        State { max: vec![f32::NEG_INFINITY; tokens], sum: vec![0.0; tokens], target: vec![0.0; tokens] }
    }
}

/// Takes logits [T, tile] of vocabulary first..first+tile into the state. labels [T] are vocabulary ids or NO_TARGET.
/// Rows without a target are passed over.
///
/// # Panics
/// If a slice does not have the length of its shape; so do the other functions.
pub fn forward_tile(cpu: &Cpu, state: &mut State, logits: &[f32], labels: &[u32], first: usize, tile: usize) {
    assert!(logits.len() == labels.len() * tile && state.max.len() == labels.len(), "logits [T, tile], labels [T]");
    cpu.install(|| {
        let State { max, sum, target } = state;
        let state = (max.par_chunks_mut(TOKENS), sum.par_chunks_mut(TOKENS), target.par_chunks_mut(TOKENS));
        let read = (logits.par_chunks(TOKENS * tile), labels.par_chunks(TOKENS));
        (state.0, state.1, state.2, read.0, read.1).into_par_iter().for_each(|(max, sum, target, logits, labels)| {
            for (i, row) in logits.chunks_exact(tile).enumerate().filter(|(i, _)| labels[*i] != NO_TARGET) {
                with_simd!(cpu.level(), take_row(row, &mut max[i], &mut sum[i]));
                if let Some(logit) = (labels[i] as usize).checked_sub(first).and_then(|at| row.get(at)) {
                    target[i] = *logit;
                }
            }
        });
    });
}

#[inline(always)]
fn take_row(row: &[f32], running_max: &mut f32, running_sum: &mut f32) {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (whole, rest) = row.as_chunks::<LANES>();
    for x in whole {
        for i in 0..LANES {
            lanes[i] = max(lanes[i], x[i]);
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane = max(*lane, *x);
    }
    let new_max = max(*running_max, fold_max(lanes));
    let mut sum = f64::from(*running_sum) * f64::from(exp(*running_max - new_max));
    for piece in row.chunks(PIECE) {
        sum += f64::from(sum_exp(piece, new_max));
    }
    (*running_max, *running_sum) = (new_max, sum as f32);
}

#[inline(always)]
fn sum_exp(piece: &[f32], offset: f32) -> f32 {
    let mut lanes = [0f32; LANES];
    let (whole, rest) = piece.as_chunks::<LANES>();
    for x in whole {
        for i in 0..LANES {
            lanes[i] += exp(x[i] - offset);
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane += exp(x - offset);
    }
    fold(lanes)
}

/// After the last tile: sum over targets of (lse - target logit) in f64, in token order; max becomes the lse.
pub fn finish(state: &mut State, labels: &[u32]) -> f64 {
    assert_eq!(state.max.len(), labels.len(), "labels [T]");
    let mut loss = 0.0;
    for (i, _) in labels.iter().enumerate().filter(|(_, label)| **label != NO_TARGET) {
        let lse = f64::from(state.max[i]) + f64::from(state.sum[i]).ln();
        loss += lse - f64::from(state.target[i]);
        state.max[i] = lse as f32;
    }
    loss
}

/// logits [T, tile] -> d logits in place: (softmax - onehot) * scale, zero rows for NO_TARGET. `state` after finish.
#[allow(clippy::too_many_arguments)]
pub fn backward_tile(
    cpu: &Cpu,
    state: &State,
    logits: &mut [f32],
    labels: &[u32],
    first: usize,
    tile: usize,
    scale: f32,
) {
    assert!(logits.len() == labels.len() * tile && state.max.len() == labels.len(), "logits [T, tile], labels [T]");
    cpu.install(|| {
        let rows = (logits.par_chunks_mut(TOKENS * tile), labels.par_chunks(TOKENS), state.max.par_chunks(TOKENS));
        rows.into_par_iter().for_each(|(logits, labels, lse)| {
            for ((row, label), lse) in logits.chunks_exact_mut(tile).zip(labels).zip(lse) {
                if *label == NO_TARGET {
                    row.fill(0.0);
                    continue;
                }
                let target = (*label as usize).checked_sub(first).filter(|at| *at < tile);
                let target = target.map(|at| (at, (exp(row[at] - *lse) - 1.0) * scale));
                with_simd!(cpu.level(), gradient_row(row, *lse, scale));
                if let Some((at, gradient)) = target {
                    row[at] = gradient;
                }
            }
        });
    });
}

#[inline(always)]
fn gradient_row(row: &mut [f32], lse: f32, scale: f32) {
    for x in row {
        *x = exp(*x - lse) * scale;
    }
}

#[cfg(test)]
mod tests;
