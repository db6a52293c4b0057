//! Causal attention on a GPU, of rows of 1,024 tokens with grouped heads of 128 elements.

use super::gpu::{Gpu, seconds_each};
use crate::error::Result;
use crate::target::Precision;
use mt_kernels::cuda::attention::{Layout, Shape, backward, forward, scratch_len};
use mt_kernels::cuda::{Buffer, Queue, Real};
use std::time::Duration;

const ROWS: usize = 4;
const SEQ: usize = 1_024;
const HEADS: usize = 32;
const KV_HEADS: usize = 8;
const HEAD_DIM: usize = 128;

/// Measures once, each way for about this time: multiplications and additions a second of forward and backward, the
/// causal half of the products alone.
///
/// # Errors
/// `Gpu`: memory is short; a kernel fails.
pub fn operations_per_s(gpu: &Gpu, precision: Precision, time: Duration) -> Result<(f64, f64)> {
    match precision {
        // 1/64.
        Precision::Bf16 => rates::<u16>(gpu, 0x3c80, time),
        Precision::Tf32 | Precision::Fp32 => rates::<f32>(gpu, 1.0 / 64.0, time),
    }
}

fn rates<T: Real>(gpu: &Gpu, value: T, time: Duration) -> Result<(f64, f64)> {
    let queue = Queue::new(gpu.inner())?;
    let shape = Shape {
        rows: ROWS,
        seq: SEQ,
        heads: HEADS,
        kv_heads: KV_HEADS,
        head_dim: HEAD_DIM,
        layout: Layout::Beside,
        scale: (HEAD_DIM as f32).sqrt().recip(),
        cap: None,
    };
    let (tokens, outputs) = (shape.tokens(), shape.tokens() * HEADS * HEAD_DIM);
    let filled = |len: usize| Buffer::from_slice(&queue, &vec![value; len]);
    let (qkv, first, dout) =
        (filled(shape.qkv_len())?, Buffer::from_slice(&queue, &vec![0_u32; tokens])?, filled(outputs)?);
    let (mut out, mut lse) = (filled(outputs)?, Buffer::new(gpu.inner(), tokens * HEADS)?);
    let (mut dqkv, mut scratch) = (filled(qkv.len())?, Buffer::new(gpu.inner(), scratch_len(&shape))?);
    let forward_s = seconds_each(&queue, time, |queue| {
        forward(queue, &shape, qkv.view(), first.view(), out.view_mut(), lse.view_mut())
    })?;
    let backward_s = seconds_each(&queue, time, |queue| {
        let (first, out, lse) = (first.view(), out.view(), lse.view());
        backward(queue, &shape, qkv.view(), first, out, lse, dout.view(), dqkv.view_mut(), scratch.view_mut())
    })?;
    // Half of two products, and of five.
    let product = (ROWS * SEQ * SEQ * HEADS * HEAD_DIM) as f64;
    Ok((2.0 * product / forward_s, 5.0 * product / backward_s))
}
