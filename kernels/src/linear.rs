//! Matrix products through the `gemm` crate. Tiled over rows and columns only, never over K.
use crate::Cpu;
/// y [T,O] = (accumulate ? y : 0) + x [T,I] * w [O,I]^T (+ bias [O])
#[allow(clippy::too_many_arguments)]
pub fn forward(cpu: &Cpu, x: &[f32], w: &[f32], bias: Option<&[f32]>, y: &mut [f32], tokens: usize, inputs: usize, outputs: usize) { let _ = (cpu, x, w, bias, y, tokens, inputs, outputs); todo!() }
/// dx [T,I] = (add ? dx : 0) + dy [T,O] * w [O,I]
#[allow(clippy::too_many_arguments)]
pub fn backward_input(cpu: &Cpu, dy: &[f32], w: &[f32], dx: &mut [f32], add: bool, tokens: usize, inputs: usize, outputs: usize) { let _ = (cpu, dy, w, dx, add, tokens, inputs, outputs); todo!() }
/// dw [O,I] = (add ? dw : 0) + dy [T,O]^T * x [T,I]
#[allow(clippy::too_many_arguments)]
pub fn backward_weight(cpu: &Cpu, dy: &[f32], x: &[f32], dw: &mut [f32], add: bool, tokens: usize, inputs: usize, outputs: usize) { let _ = (cpu, dy, x, dw, add, tokens, inputs, outputs); todo!() }
/// db [O] = (add ? db : 0) + sum over tokens of dy, in token order
pub fn backward_bias(cpu: &Cpu, dy: &[f32], db: &mut [f32], add: bool, tokens: usize, outputs: usize) { let _ = (cpu, dy, db, add, tokens, outputs); todo!() }
/// Bytes that one product of these shapes packs or allocates inside the gemm crate at most (for budgets), all threads together.
pub fn scratch_bytes(threads: usize, m: usize, n: usize, k: usize) -> usize { let _ = (threads, m, n, k); todo!() }
