//! The two planes of an f32 master weight (see design.md, state layout).

/// `w[i] = f32::from_bits((hi[i] << 16) + lo[i])` (wrapping add of the sign-extended `lo`).
pub fn join(cpu: &crate::Cpu, hi: &[u16], lo: &[i16], w: &mut [f32]) { let _ = (cpu, hi, lo, w); todo!() }
/// Inverse of `join`. Err(index) of the first weight that is NaN, Inf or has |bits| >= 0x7F7F8000; planes are then unspecified.
pub fn split(cpu: &crate::Cpu, w: &[f32], hi: &mut [u16], lo: &mut [i16]) -> Result<(), usize> { let _ = (cpu, w, hi, lo); todo!() }
