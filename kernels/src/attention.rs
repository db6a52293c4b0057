//! Causal grouped-query attention in tiles; never an S x S matrix in memory.
use crate::Cpu;
/// Sizes. `rows` sequences of `seq` tokens, T = rows * seq; n query heads, g key/value heads (g divides n), d head dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape { pub rows: usize, pub seq: usize, pub heads: usize, pub kv_heads: usize, pub head_dim: usize }
/// `first[t]`: position within its row of the first token that token t sees (document start or window edge, whichever is later); it sees first[t]..=its own.
/// q [T,N,D], k,v [T,G,D] -> out [T,N,D], lse [T,N] (natural log-sum-exp of the scaled scores). scale multiplies q.k.
#[allow(clippy::too_many_arguments)]
pub fn forward(cpu: &Cpu, s: Shape, scale: f32, q: &[f32], k: &[f32], v: &[f32], first: &[u32], out: &mut [f32], lse: &mut [f32]) { let _ = (cpu, s, scale, q, k, v, first, out, lse); todo!() }
/// dq, dk, dv are overwritten.
#[allow(clippy::too_many_arguments)]
pub fn backward(cpu: &Cpu, s: Shape, scale: f32, q: &[f32], k: &[f32], v: &[f32], first: &[u32], out: &[f32], lse: &[f32], dout: &[f32], dq: &mut [f32], dk: &mut [f32], dv: &mut [f32]) { let _ = (cpu, s, scale, q, k, v, first, out, lse, dout, dq, dk, dv); todo!() }
/// Bytes of scratch that forward and backward allocate at most, all threads together.
pub fn scratch_bytes(threads: usize, s: Shape) -> usize { let _ = (threads, s); todo!() }
