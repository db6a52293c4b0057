//! Fused AdamW on split planes, with the bits of [`crate::adamw`].

use super::device::{Arg, args, blocks};
use super::sources::{Kernel, Source, source};
use super::{Error, Queue, View, ViewMut};
use crate::adamw::Step;

pub(super) static SOURCE: Source = source!("adamw.cu", None);

pub(super) static KERNELS: [Kernel; 1] = [Kernel::new(&SOURCE, "adamw_update", THREADS)];

const THREADS: u32 = 256;
/// Elements of a block.
const BLOCK: usize = 4 * THREADS as usize;

/// The kernel's Step.
type Factors = [f32; 9];

args!(Factors);

/// One segment of equal-length views; `decay` chooses decay_factor or 1. `first_bad` (one element) becomes the least
/// index, counted from `first`, whose new weight, m or v is not finite or not representable, if that is less than what
/// stands there: set it to `u64::MAX` before. The segment must then not be committed.
///
/// # Errors
/// A call fails.
///
/// # Panics
/// If the views differ in length.
#[allow(clippy::too_many_arguments)]
pub fn update(
    queue: &Queue,
    step: &Step,
    decay: bool,
    grad: View<'_, f32>,
    hi: ViewMut<'_, u16>,
    lo: ViewMut<'_, i16>,
    m: ViewMut<'_, f32>,
    v: ViewMut<'_, f32>,
    first: u64,
    first_bad: ViewMut<'_, u64>,
) -> Result<(), Error> {
    let n = grad.len();
    assert!(hi.len() == n && lo.len() == n && m.len() == n && v.len() == n, "views of one length");
    assert_eq!(first_bad.len(), 1, "first_bad is one element");
    // In the order of the kernel's structure.
    let step: Factors = [
        step.grad_scale,
        step.beta1,
        step.one_minus_beta1,
        step.beta2,
        step.one_minus_beta2,
        step.step_size,
        step.inv_sqrt_correction2,
        step.eps,
        if decay { step.decay_factor } else { 1.0 },
    ];
    let (grad, hi, lo, m, v) = (grad.address(), hi.address(), lo.address(), m.address(), v.address());
    let args: [&dyn Arg; 9] = [&step, &grad, &hi, &lo, &m, &v, &(n as u64), &first, &first_bad.address()];
    queue.launch(&KERNELS[0], (blocks(n, BLOCK), 1, 1), 0, &args)
}
