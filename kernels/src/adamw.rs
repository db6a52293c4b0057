//! Fused AdamW on split master planes.
use crate::Cpu;

/// Scalars of one step, computed in f64 on the host and rounded once.
#[derive(Clone, Copy, Debug)]
pub struct Step { /// factor on the gradient: global-norm clipping
    pub grad_scale: f32, pub beta1: f32, pub one_minus_beta1: f32, pub beta2: f32, pub one_minus_beta2: f32,
    /// lr / (1 - beta1^t)
    pub step_size: f32,
    /// 1 / sqrt(1 - beta2^t)
    pub inv_sqrt_correction2: f32,
    pub eps: f32,
    /// 1 - lr * weight_decay for decayed tensors
    pub decay_factor: f32 }
impl Step {
    /// From hyperparameters (f64) and the 1-based step number.
    pub fn new(lr: f64, betas: (f64, f64), eps: f64, weight_decay: f64, step: u64, grad_scale: f64) -> Step { let _ = (lr, betas, eps, weight_decay, step, grad_scale); todo!() }
}
/// One segment of equal-length slices; `decay` chooses decay_factor or 1. Writes the new weight to `w_out` if given.
/// Err(index) of the first element whose new weight, m or v is not finite or not representable (the segment is then partly updated: the caller must not commit it).
#[allow(clippy::too_many_arguments)]
pub fn update(cpu: &Cpu, step: &Step, decay: bool, grad: &[f32], hi: &mut [u16], lo: &mut [i16], m: &mut [f32], v: &mut [f32], w_out: Option<&mut [f32]>) -> Result<(), usize> { let _ = (cpu, step, decay, grad, hi, lo, m, v, w_out); todo!() }
