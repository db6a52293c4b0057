//! f32 operands, without tensor cores.

use super::super::device::{Arg, blocks};
use super::super::sources::{Kernel, Source, source};
use super::{Error, Gradients, Operands, Queue, Shape};

/// Head dimensions that the source is compiled for; others use the next greater.
const HEADS: [usize; 3] = [64, 128, 256];

static SOURCES: [Source; 3] =
    [source!("attention.cu", Some(64)), source!("attention.cu", Some(128)), source!("attention.cu", Some(256))];

/// Queries and keys of a tile, as TILE in the source.
const fn tile(head: usize) -> usize {
    if head > 128 { 16 } else { 32 }
}

pub(in crate::cuda) static KERNELS: [Kernel; 12] = {
    const fn of(at: usize) -> [Kernel; 4] {
        let (source, head) = (&SOURCES[at], HEADS[at]);
        let (operand, scores) = (tile(head) * (head + 1) * 4, tile(head) * (tile(head) + 1) * 4);
        let forward = (3 * operand + scores) as u32;
        let backward = (4 * operand + 2 * scores) as u32;
        [
            Kernel::new(source, "attention_forward_f32", THREADS).with_shared(forward),
            Kernel::new(source, "attention_delta_f32", THREADS),
            Kernel::new(source, "attention_backward_q_f32", THREADS).with_shared(backward),
            Kernel::new(source, "attention_backward_kv_f32", THREADS).with_shared(backward),
        ]
    }
    let [a, b, c, d] = of(0);
    let [e, f, g, h] = of(1);
    let [i, j, k, l] = of(2);
    [a, b, c, d, e, f, g, h, i, j, k, l]
};
const THREADS: u32 = 256;

/// The kernels (forward, delta, backward_q, backward_kv) for a head dimension, and the tile.
fn kernels(shape: &Shape) -> (&'static [Kernel], usize) {
    let at = HEADS.iter().position(|head| *head >= shape.head_dim).expect("checked: up to 256");
    (&KERNELS[4 * at..][..4], tile(HEADS[at]))
}

pub(super) fn forward(queue: &Queue, shape: &Shape, operands: &Operands) -> Result<(), Error> {
    let (kernels, tile) = kernels(shape);
    let grid = (blocks(shape.seq, tile), shape.heads as u32, shape.rows as u32);
    let Operands { q, k, v, first, out, lse } = operands;
    let args: [&dyn Arg; 7] = [&shape.sizes(), q, k, v, first, out, lse];
    queue.launch(&kernels[0], grid, kernels[0].shared_bytes, &args)
}

pub(super) fn backward(queue: &Queue, shape: &Shape, operands: &Operands, gradients: &Gradients) -> Result<(), Error> {
    let (kernels, tile) = kernels(shape);
    let (sizes, tiles, rows) = (shape.sizes(), blocks(shape.seq, tile), shape.rows as u32);
    let Operands { q, k, v, first, out, lse } = operands;
    let Gradients { dout, dq, dk, dv, delta } = gradients;
    let grid = (blocks(shape.tokens() * shape.heads, THREADS as usize / 32), 1, 1);
    let args: [&dyn Arg; 5] = [&sizes, &(shape.tokens() as u64), out, dout, delta];
    queue.launch(&kernels[1], grid, 0, &args)?;
    let args: [&dyn Arg; 10] = [&sizes, q, k, v, first, dout, lse, delta, dk, dv];
    queue.launch(&kernels[3], (tiles, shape.kv_heads as u32, rows), kernels[3].shared_bytes, &args)?;
    let args: [&dyn Arg; 9] = [&sizes, q, k, v, first, dout, lse, delta, dq];
    queue.launch(&kernels[2], (tiles, shape.heads as u32, rows), kernels[2].shared_bytes, &args)
}
