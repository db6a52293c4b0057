//! RMSNorm over the last dimension.
use crate::Cpu;
/// y[r,:] = x[r,:] * rstd[r] * w ; rstd[r] = 1/sqrt(mean(x^2)+eps). x,y [R,C], w [C], rstd [R].
pub fn forward(cpu: &Cpu, x: &[f32], w: &[f32], eps: f32, y: &mut [f32], rstd: &mut [f32]) { let _ = (cpu, x, w, eps, y, rstd); todo!() }
/// Adds to dx if `add` else overwrites; always adds to dw [C]. Order of the sum over rows is fixed.
#[allow(clippy::too_many_arguments)]
pub fn backward(cpu: &Cpu, dy: &[f32], x: &[f32], w: &[f32], rstd: &[f32], dx: &mut [f32], add: bool, dw: &mut [f32]) { let _ = (cpu, dy, x, w, rstd, dx, add, dw); todo!() }
