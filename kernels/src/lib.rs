//! Compute on plain slices. Every kernel has a plain reference in [`reference`] that tests compare it with.
//!
//! What it is not: it knows nothing of where the slices live or how they got there.
//!
//! Terms: T tokens (rows of a micro-batch laid end to end), H hidden size, N query heads, G key/value heads,
//! D head dimension, F MLP size, V vocabulary. All matrices are row-major and dense; shapes stand in brackets.
//!
//! Invariant: for given shapes the bits of every result are the same for any number of threads. Work is divided in
//! pieces that depend on shapes alone, and nothing is summed in an order that can vary.

pub mod adamw;
pub mod attention;
pub mod cpu;
pub mod cross_entropy;
pub mod cuda;
pub mod embedding;
pub mod linear;
mod math;
pub mod norm2;
pub mod pointwise;
mod product;
pub mod reference;
pub mod rmsnorm;
pub mod rope;
mod scratch;
mod simd;
pub mod split;
#[cfg(test)]
mod testing;

pub use cpu::Cpu;
