//! Rows of the embedding table, given piece by piece in element order.
//!
//! A piece is any run of consecutive elements of the table [V,H]; it may begin and end within a row, so each function
//! touches the part of a token's row that the piece holds.

use crate::Cpu;
use rayon::prelude::*;
use std::ops::Range;

/// Tokens of one task of a gather.
const TOKENS: usize = 64;
/// Elements of the table gradient of one task; each scans all ids.
const BLOCK: usize = 64 * 1024;

/// Copies what the piece `w` = elements first..first+w.len() of the table [V,H] holds of each token's row into out
/// [T,H]. Pieces may cut rows.
///
/// # Panics
/// If `out` is not [T,H].
pub fn gather_piece(cpu: &Cpu, ids: &[u32], hidden: usize, first: usize, w: &[f32], out: &mut [f32]) {
    assert_eq!(out.len(), ids.len() * hidden, "out [T,H]");
    cpu.install(|| {
        out.par_chunks_mut(TOKENS * hidden).zip(ids.par_chunks(TOKENS)).for_each(|(out, ids)| {
            for (out, id) in out.chunks_exact_mut(hidden).zip(ids) {
                if let Some((row, piece)) = overlap(*id, hidden, first, w.len()) {
                    out[row].copy_from_slice(&w[piece]);
                }
            }
        });
    });
}

/// Adds each token's dx row [T,H] to the piece of the table gradient `dw` = elements first..first+dw.len(), in token
/// order.
///
/// # Panics
/// If `dx` is not [T,H].
pub fn scatter_add_piece(cpu: &Cpu, ids: &[u32], hidden: usize, first: usize, dx: &[f32], dw: &mut [f32]) {
    assert_eq!(dx.len(), ids.len() * hidden, "dx [T,H]");
    cpu.install(|| {
        dw.par_chunks_mut(BLOCK).enumerate().for_each(|(block, dw)| {
            let first = first + block * BLOCK;
            for (id, dx) in ids.iter().zip(dx.chunks_exact(hidden)) {
                if let Some((row, piece)) = overlap(*id, hidden, first, dw.len()) {
                    for (dw, dx) in dw[piece].iter_mut().zip(&dx[row]) {
                        *dw += dx;
                    }
                }
            }
        });
    });
}

/// Where row `id` and the piece overlap: range within the row, range within the piece.
fn overlap(id: u32, hidden: usize, first: usize, len: usize) -> Option<(Range<usize>, Range<usize>)> {
    let row = id as usize * hidden;
    let start = row.max(first);
    let end = (row + hidden).min(first + len);
    (start < end).then(|| (start - row..end - row, start - first..end - first))
}

#[cfg(test)]
mod tests;
