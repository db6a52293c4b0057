//! Fused AdamW on split master planes: one pass over memory joins the weight's planes, updates, and splits again.
//!
//! The arithmetic, operation by operation, in f32 with round-to-nearest-even; `fma(a, b, c)` = a * b + c rounded once,
//! every other operation rounds by itself, division and square root are correctly rounded. Any processor that follows
//! it gets the same bits:
//!
//! ```text
//! w  = join(hi, lo)
//! g' = g * grad_scale
//! m' = fma(beta1, m, one_minus_beta1 * g')
//! v' = fma(beta2, v, (one_minus_beta2 * g') * g')
//! d  = fma(sqrt(v'), inv_sqrt_correction2, eps)
//! w' = fma(-step_size, m' / d, w * decay_factor)      decay_factor is 1 without decay
//! ```
//!
//! It is not an optimizer loop: schedules, norms and which tensors decay are the caller's.

use crate::Cpu;
use crate::simd::{prefetch, with_simd};
use crate::split::{join_one, split_one, unrepresentable};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Scalars of one step, computed in f64 on the host and rounded once.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Factor on the gradient: global-norm clipping.
    pub grad_scale: f32,
    /// Decay of the first moment.
    pub beta1: f32,
    /// 1 - beta1, subtracted in f64.
    pub one_minus_beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// 1 - beta2, subtracted in f64.
    pub one_minus_beta2: f32,
    /// lr / (1 - beta1^t)
    pub step_size: f32,
    /// 1 / sqrt(1 - beta2^t)
    pub inv_sqrt_correction2: f32,
    /// Added to the root of the corrected second moment.
    pub eps: f32,
    /// 1 - lr * weight_decay for decayed tensors
    pub decay_factor: f32,
}

impl Step {
    /// From hyperparameters (f64) and the 1-based step number. `lr` 0 gives an update that moves moments only.
    pub fn new(lr: f64, betas: (f64, f64), eps: f64, weight_decay: f64, step: u64, grad_scale: f64) -> Step {
        let t = step.max(1) as f64;
        Step {
            grad_scale: grad_scale as f32,
            beta1: betas.0 as f32,
            one_minus_beta1: (1.0 - betas.0) as f32,
            beta2: betas.1 as f32,
            one_minus_beta2: (1.0 - betas.1) as f32,
            step_size: (lr / (1.0 - betas.0.powf(t))) as f32,
            inv_sqrt_correction2: (1.0 / (1.0 - betas.1.powf(t)).sqrt()) as f32,
            eps: eps as f32,
            decay_factor: (1.0 - lr * weight_decay) as f32,
        }
    }
}

/// Elements that a thread takes at a time, in order: threads that work close to each other, instead of each on its
/// part of the segment, were up to a fifth faster on a server of 16 cores (see design.md).
const BLOCK: usize = 16 * 1024;
/// Elements between two checks of the results, whose new weights stay in L1. Meanwhile the next group is asked for:
/// the processor's own prefetching leaves a fifth of what the memory gives unused.
const GROUP: usize = 256;

/// One segment of equal-length slices; `decay` chooses decay_factor or 1. Writes the new weight to `w_out` if given.
///
/// # Errors
/// The index of the first element whose new weight, m or v is not finite or not representable (the segment is then
/// partly updated: the caller must not commit it). It is the smallest such index whatever the number of threads.
///
/// # Panics
/// If the slices differ in length.
#[allow(clippy::too_many_arguments)]
pub fn update(
    cpu: &Cpu,
    step: &Step,
    decay: bool,
    grad: &[f32],
    hi: &mut [u16],
    lo: &mut [i16],
    m: &mut [f32],
    v: &mut [f32],
    w_out: Option<&mut [f32]>,
) -> Result<(), usize> {
    let n = grad.len();
    assert!(hi.len() == n && lo.len() == n && m.len() == n && v.len() == n, "slices of one length");
    let step = Step { decay_factor: if decay { step.decay_factor } else { 1.0 }, ..*step };
    assert!(w_out.as_ref().is_none_or(|w| w.len() == n), "w_out of the segment's length");
    let mut rest = Planes { g: grad, hi, lo, m, v, w: w_out };
    let blocks = Mutex::new(std::iter::from_fn(|| rest.take(BLOCK)).enumerate());
    let first_bad = AtomicUsize::new(usize::MAX);
    cpu.share(n.div_ceil(BLOCK), || {
        let next = || blocks.lock().expect("taking a block does not panic").next();
        while let Some((i, part)) = next() {
            if let Some(bad) = block(cpu, &step, part) {
                first_bad.fetch_min(i * BLOCK + bad, Ordering::Relaxed);
            }
        }
    });
    match first_bad.into_inner() {
        usize::MAX => Ok(()),
        bad => Err(bad),
    }
}

/// Equal-length parts of the segment.
struct Planes<'a> {
    g: &'a [f32],
    hi: &'a mut [u16],
    lo: &'a mut [i16],
    m: &'a mut [f32],
    v: &'a mut [f32],
    w: Option<&'a mut [f32]>,
}

impl<'a> Planes<'a> {
    /// Takes off the first `n` elements, or all if there are fewer; None at the end.
    fn take(&mut self, n: usize) -> Option<Planes<'a>> {
        let n = n.min(self.g.len());
        if n == 0 {
            return None;
        }
        Some(Planes {
            g: self.g.split_off(..n)?,
            hi: self.hi.split_off_mut(..n)?,
            lo: self.lo.split_off_mut(..n)?,
            m: self.m.split_off_mut(..n)?,
            v: self.v.split_off_mut(..n)?,
            w: self.w.as_mut().and_then(|w| w.split_off_mut(..n)),
        })
    }

    /// Asks for the first `n` elements of what is read.
    #[inline(always)]
    fn prefetch(&self, n: usize) {
        let n = n.min(self.g.len());
        prefetch(&self.g[..n]);
        prefetch(&self.m[..n]);
        prefetch(&self.v[..n]);
        prefetch(&self.hi[..n]);
        prefetch(&self.lo[..n]);
    }
}

/// Updates one block; the first bad index in it.
fn block(cpu: &Cpu, step: &Step, mut rest: Planes<'_>) -> Option<usize> {
    let mut kept = [0f32; GROUP];
    let mut begin = 0;
    while let Some(Planes { g, hi, lo, m, v, w }) = rest.take(GROUP) {
        rest.prefetch(GROUP);
        let n = g.len();
        let w = w.unwrap_or(&mut kept[..n]);
        let fine = with_simd!(cpu.level(), group(step, g, hi, lo, m, v, w));
        if !fine {
            let bad = |j: &usize| unrepresentable(w[*j]) || !m[*j].is_finite() || !v[*j].is_finite();
            return (0..n).find(bad).map(|j| begin + j);
        }
        begin += n;
    }
    None
}

/// The update itself; whether all results are good.
#[inline(always)]
fn group(step: &Step, g: &[f32], hi: &mut [u16], lo: &mut [i16], m: &mut [f32], v: &mut [f32], w: &mut [f32]) -> bool {
    let n = g.len();
    let (hi, lo, m, v, w) = (&mut hi[..n], &mut lo[..n], &mut m[..n], &mut v[..n], &mut w[..n]);
    let mut bad = 0u32;
    for i in 0..n {
        let scaled = g[i] * step.grad_scale;
        let new_m = step.beta1.mul_add(m[i], step.one_minus_beta1 * scaled);
        let new_v = step.beta2.mul_add(v[i], (step.one_minus_beta2 * scaled) * scaled);
        let denominator = new_v.sqrt().mul_add(step.inv_sqrt_correction2, step.eps);
        let decayed = join_one(hi[i], lo[i]) * step.decay_factor;
        let new_w = (-step.step_size).mul_add(new_m / denominator, decayed);
        (hi[i], lo[i]) = split_one(new_w);
        (m[i], v[i], w[i]) = (new_m, new_v, new_w);
        bad |= u32::from(unrepresentable(new_w)) | u32::from(!new_m.is_finite()) | u32::from(!new_v.is_finite());
    }
    bad == 0
}

#[cfg(test)]
mod tests;
