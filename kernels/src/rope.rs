//! Rotary positions, half-split layout (pairs i and i + D/2), angles in f32.
//!
//! Frequencies and angles are rounded to f32 where published models were trained with such rounding: exponents,
//! frequencies, the scaling's arithmetic and the angle position * frequency. The powers, cosines and sines themselves
//! are computed in f64 and rounded once.

use crate::Cpu;
use crate::simd::with_simd;
use rayon::prelude::*;

/// Tokens of one task.
const TOKENS: usize = 16;

/// How angles scale with position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scaling {
    /// theta^(-2i/D)
    Default,
    /// Llama 3: three frequency bands. High frequencies stay, low ones are divided by `factor`, those between are
    /// blended.
    Llama3 {
        /// Division of the low frequencies.
        factor: f64,
        /// Wavelengths above original_max_positions / low_freq_factor are low.
        low_freq_factor: f64,
        /// Wavelengths below original_max_positions / high_freq_factor are high.
        high_freq_factor: f64,
        /// Positions that the model was first trained on.
        original_max_positions: f64,
    },
}

/// cos and sin tables [positions, D/2].
pub struct Table {
    /// Cosines, a row a position.
    pub cos: Vec<f32>,
    /// Sines, a row a position.
    pub sin: Vec<f32>,
    /// D/2, the length of a row.
    pub half: usize,
}

impl Table {
    /// Tables for positions 0..positions.
    pub fn new(theta: f64, dim: usize, scaling: Scaling, positions: usize) -> Table {
        let frequencies = inverse_frequencies(theta, dim, scaling);
        let half = frequencies.len();
        let mut cos = Vec::with_capacity(positions * half);
        let mut sin = Vec::with_capacity(positions * half);
        for position in 0..positions {
            for frequency in &frequencies {
                let (s, c) = f64::from(position as f32 * frequency).sin_cos();
                cos.push(c as f32);
                sin.push(s as f32);
            }
        }
        Table { cos, sin, half }
    }
}

/// Radians a position, for each pair.
fn inverse_frequencies(theta: f64, dim: usize, scaling: Scaling) -> Vec<f32> {
    let base = f64::from(theta as f32);
    let plain = (0..dim).step_by(2).map(|i| 1.0 / base.powf(f64::from(i as f32 / dim as f32)) as f32);
    match scaling {
        Scaling::Default => plain.collect(),
        Scaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_positions } => {
            let longest = (original_max_positions / low_freq_factor) as f32;
            let shortest = (original_max_positions / high_freq_factor) as f32;
            let factor = factor as f32;
            let (low, span) = (low_freq_factor as f32, (high_freq_factor - low_freq_factor) as f32);
            let scale = |frequency: f32| {
                let wavelength = (1.0 / frequency) * (2.0 * std::f64::consts::PI) as f32;
                if wavelength > longest {
                    frequency / factor
                } else if wavelength < shortest {
                    frequency
                } else {
                    let smooth = ((1.0 / wavelength) * original_max_positions as f32 - low) / span;
                    (1.0 - smooth) * frequency / factor + smooth * frequency
                }
            };
            plain.map(scale).collect()
        }
    }
}

/// Rotates x [T, heads, D] in place; `positions[t]` indexes the table.
///
/// # Panics
/// If x is not [T, heads, D], or a position is not in the table; so does [`backward`].
pub fn forward(cpu: &Cpu, table: &Table, positions: &[u32], x: &mut [f32], heads: usize) {
    rotate(cpu, table, positions, x, heads, 1.0);
}

/// The transposed rotation, for gradients.
pub fn backward(cpu: &Cpu, table: &Table, positions: &[u32], x: &mut [f32], heads: usize) {
    rotate(cpu, table, positions, x, heads, -1.0);
}

fn rotate(cpu: &Cpu, table: &Table, positions: &[u32], x: &mut [f32], heads: usize, sign: f32) {
    let width = heads * table.half * 2;
    assert_eq!(x.len(), positions.len() * width, "x [T, heads, D]");
    cpu.install(|| {
        x.par_chunks_mut(TOKENS * width).zip(positions.par_chunks(TOKENS)).for_each(|(x, positions)| {
            for (x, position) in x.chunks_exact_mut(width).zip(positions) {
                let row = *position as usize * table.half..(*position as usize + 1) * table.half;
                with_simd!(cpu.level(), rotate_token(x, &table.cos[row.clone()], &table.sin[row], sign));
            }
        });
    });
}

#[inline(always)]
fn rotate_token(x: &mut [f32], cos: &[f32], sin: &[f32], sign: f32) {
    for head in x.chunks_exact_mut(2 * cos.len()) {
        let (a, b) = head.split_at_mut(cos.len());
        for (((a, b), c), s) in a.iter_mut().zip(b).zip(cos).zip(sin) {
            let s = sign * s;
            (*a, *b) = (*a * c - *b * s, *b * c + *a * s);
        }
    }
}

#[cfg(test)]
mod tests;
