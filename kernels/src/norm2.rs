//! Sum of squares in f64 over leaves of 1,024 elements.
//!
//! The shape of the sum, so that any processor can repeat it: a leaf has 16 lanes; lane i adds the squares of elements
//! i, i + 16, i + 32, ... in that order; then the lanes are folded in halves (lane i += lane i + 8, then + 4, + 2, +
//! 1). Leaves are added to the sum so far in order. Squares of f32 are exact in f64.

use crate::Cpu;
use crate::math::{LANES, fold64};
use crate::simd::with_simd;
use rayon::prelude::*;

/// Elements of a leaf.
pub const LEAF: usize = 1024;
/// Leaves of one task.
const TASK: usize = 64;
/// Leaves whose sums are held at a time.
const HELD: usize = 4096;

/// Sum of squares: leaf sums (f64), then the leaves in order (f64). `x` begins at a leaf boundary of its tensor group.
/// `carry` is the sum so far; the result continues it, so a long array may be given in several calls cut at leaf
/// boundaries: same bits.
pub fn sum_squares(cpu: &Cpu, carry: f64, x: &[f32]) -> f64 {
    let mut sums = vec![0f64; x.len().div_ceil(LEAF).min(HELD)];
    let mut total = carry;
    for x in x.chunks(HELD * LEAF) {
        let sums = &mut sums[..x.len().div_ceil(LEAF)];
        cpu.install(|| {
            sums.par_chunks_mut(TASK).zip(x.par_chunks(TASK * LEAF)).for_each(|(sums, x)| {
                for (sum, x) in sums.iter_mut().zip(x.chunks(LEAF)) {
                    *sum = with_simd!(cpu.level(), leaf(x));
                }
            });
        });
        total = add_leaves(total, sums);
    }
    total
}

/// The sum so far with more leaves, in order.
pub fn add_leaves(carry: f64, leaves: &[f64]) -> f64 {
    leaves.iter().fold(carry, |total, leaf| total + leaf)
}

/// One leaf, of at most [`LEAF`] elements.
#[inline(always)]
fn leaf(x: &[f32]) -> f64 {
    let mut lanes = [0f64; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    for x in whole {
        for i in 0..LANES {
            lanes[i] += f64::from(x[i]) * f64::from(x[i]);
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane += f64::from(*x) * f64::from(*x);
    }
    fold64(lanes)
}

#[cfg(test)]
mod tests;
