//! The two planes of an f32 master weight: `lo` = its low 16 bits as a signed integer, `hi` = a bf16, the weight
//! rounded to nearest with ties away from zero. Nothing is lost: joining gives back the weight bit for bit.
//!
//! Refused are NaN, the infinities and weights so large that `hi` would be infinite.

use crate::Cpu;
use crate::simd::with_simd;
use rayon::prelude::*;

/// Elements of one task.
const BLOCK: usize = 64 * 1024;
/// Least |bits| that is refused: from here on `hi` would round to infinity.
const REFUSED: u32 = 0x7F7F_8000;

/// The weight of one pair.
#[inline(always)]
pub(crate) fn join_one(hi: u16, lo: i16) -> f32 {
    f32::from_bits((u32::from(hi) << 16).wrapping_add(i32::from(lo) as u32))
}

/// The pair of one weight (any bits if it is [`unrepresentable`]).
#[inline(always)]
pub(crate) fn split_one(w: f32) -> (u16, i16) {
    let bits = w.to_bits();
    ((bits.wrapping_add(0x8000) >> 16) as u16, bits as i16)
}

/// Whether the planes cannot hold `w`: NaN, infinite or too large.
#[inline(always)]
pub(crate) fn unrepresentable(w: f32) -> bool {
    w.to_bits() & 0x7FFF_FFFF >= REFUSED
}

/// `w[i] = f32::from_bits((hi[i] << 16) + lo[i])` (wrapping add of the sign-extended `lo`).
///
/// # Panics
/// If the slices differ in length.
pub fn join(cpu: &Cpu, hi: &[u16], lo: &[i16], w: &mut [f32]) {
    assert!(hi.len() == w.len() && lo.len() == w.len(), "slices of one length");
    cpu.install(|| {
        let blocks = (hi.par_chunks(BLOCK), lo.par_chunks(BLOCK), w.par_chunks_mut(BLOCK)).into_par_iter();
        blocks.for_each(|(hi, lo, w)| with_simd!(cpu.level(), join_block(hi, lo, w)));
    });
}

#[inline(always)]
fn join_block(hi: &[u16], lo: &[i16], w: &mut [f32]) {
    for ((w, hi), lo) in w.iter_mut().zip(hi).zip(lo) {
        *w = join_one(*hi, *lo);
    }
}

/// Inverse of `join`.
///
/// # Errors
/// The index of the first weight that is NaN, Inf or has |bits| >= 0x7F7F8000; planes are then unspecified.
///
/// # Panics
/// If the slices differ in length.
pub fn split(cpu: &Cpu, w: &[f32], hi: &mut [u16], lo: &mut [i16]) -> Result<(), usize> {
    assert!(hi.len() == w.len() && lo.len() == w.len(), "slices of one length");
    let bad = cpu.install(|| {
        let blocks = (w.par_chunks(BLOCK), hi.par_chunks_mut(BLOCK), lo.par_chunks_mut(BLOCK)).into_par_iter();
        let bad = blocks.enumerate().filter_map(|(i, (w, hi, lo))| {
            let fine = with_simd!(cpu.level(), split_block(w, hi, lo));
            if fine { None } else { w.iter().position(|w| unrepresentable(*w)).map(|j| i * BLOCK + j) }
        });
        bad.min()
    });
    bad.map_or(Ok(()), Err)
}

/// Whether all weights are representable.
#[inline(always)]
fn split_block(w: &[f32], hi: &mut [u16], lo: &mut [i16]) -> bool {
    let mut bad = 0u32;
    for ((w, hi), lo) in w.iter().zip(hi).zip(lo) {
        (*hi, *lo) = split_one(*w);
        bad |= u32::from(unrepresentable(*w));
    }
    bad == 0
}

#[cfg(test)]
mod tests;
