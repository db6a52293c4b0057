//! Rows of the embedding table, given piece by piece in element order.
use crate::Cpu;
/// Copies what the piece `w` = elements first..first+w.len() of the table [V,H] holds of each token's row into out [T,H]. Pieces may cut rows.
pub fn gather_piece(cpu: &Cpu, ids: &[u32], hidden: usize, first: usize, w: &[f32], out: &mut [f32]) { let _ = (cpu, ids, hidden, first, w, out); todo!() }
/// Adds each token's dx row [T,H] to the piece of the table gradient `dw` = elements first..first+dw.len(), in token order.
pub fn scatter_add_piece(cpu: &Cpu, ids: &[u32], hidden: usize, first: usize, dx: &[f32], dw: &mut [f32]) { let _ = (cpu, ids, hidden, first, dx, dw); todo!() }
