//! Rotary positions, half-split layout (pairs i and i + D/2), angles in f32.
use crate::Cpu;
/// How angles scale with position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scaling { /// theta^(-2i/D)
    Default,
    /// Llama 3: three frequency bands
    Llama3 { factor: f64, low_freq_factor: f64, high_freq_factor: f64, original_max_positions: f64 } }
/// cos and sin tables [positions, D/2]: inverse frequencies as transformers computes them (f32), angles in f32.
pub struct Table { pub cos: Vec<f32>, pub sin: Vec<f32>, pub half: usize }
impl Table { /// Tables for positions 0..positions.
    pub fn new(theta: f64, dim: usize, scaling: Scaling, positions: usize) -> Table { let _ = (theta, dim, scaling, positions); todo!() } }
/// Rotates x [T, heads, D] in place; `positions[t]` indexes the table.
pub fn forward(cpu: &Cpu, table: &Table, positions: &[u32], x: &mut [f32], heads: usize) { let _ = (cpu, table, positions, x, heads); todo!() }
/// The transposed rotation, for gradients.
pub fn backward(cpu: &Cpu, table: &Table, positions: &[u32], x: &mut [f32], heads: usize) { let _ = (cpu, table, positions, x, heads); todo!() }
