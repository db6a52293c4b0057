//! What kernels that pass over a GPU's memory take: the bytes of a large one, and the launch of a small one.

use super::gpu::{Gpu, seconds_each};
use crate::error::Result;
use mt_kernels::adamw::Step;
use mt_kernels::cuda::{Buffer, Queue, adamw, pointwise};
use std::time::Duration;

/// Elements of an update, 512 MiB with gradients: more than caches hold.
const ELEMENTS: usize = 32 << 20;
/// Bytes that an element's update reads and writes: the gradient; both planes and both moments twice.
const ELEMENT_BYTES: f64 = 28.0;

/// Measures once, for about this time: bytes a second that an update reads and writes.
///
/// # Errors
/// `Gpu`: memory is short; the kernel fails.
pub fn memory_bytes_per_s(gpu: &Gpu, time: Duration) -> Result<f64> {
    let queue = Queue::new(gpu.inner())?;
    let zeros = || Buffer::from_slice(&queue, &vec![0_f32; ELEMENTS]);
    let (grad, mut m, mut v) = (zeros()?, zeros()?, zeros()?);
    let mut hi = Buffer::from_slice(&queue, &vec![0x3f80_u16; ELEMENTS])?;
    let mut lo = Buffer::from_slice(&queue, &vec![0_i16; ELEMENTS])?;
    let mut first_bad = Buffer::from_slice(&queue, &[u64::MAX])?;
    let step = Step::new(1e-6, (0.9, 0.95), 1e-8, 0.1, 10, 1.0);
    let seconds = seconds_each(&queue, time, |queue| {
        let (hi, lo, m, v) = (hi.view_mut(), lo.view_mut(), m.view_mut(), v.view_mut());
        adamw::update(queue, &step, true, grad.view(), hi, lo, m, v, 0, first_bad.view_mut())
    })?;
    Ok(ELEMENT_BYTES * ELEMENTS as f64 / seconds)
}

/// Measures once, for about this time: seconds of a launch that has next to nothing to do, behind others.
///
/// # Errors
/// `Gpu`: the kernel fails.
pub fn launch_s(gpu: &Gpu, time: Duration) -> Result<f64> {
    let queue = Queue::new(gpu.inner())?;
    let (mut y, x) = (Buffer::from_slice(&queue, &[0_f32; 4])?, Buffer::from_slice(&queue, &[0_f32; 4])?);
    seconds_each(&queue, time, |queue| pointwise::add(queue, y.view_mut(), x.view()))
}
