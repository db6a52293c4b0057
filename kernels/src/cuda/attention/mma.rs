//! bf16 operands, on tensor cores.

use super::super::device::{Arg, blocks};
use super::super::sources::{Kernel, Source, source};
use super::{Error, Gradients, Operands, Queue, Shape};

/// Head dimensions that the sources are compiled for; others use the next greater.
const HEADS: [usize; 5] = [64, 80, 96, 128, 256];

/// Forward, backward to q, backward to k and v; for each of `HEADS` in turn.
static SOURCES: [Source; 15] = {
    const fn of(at: usize) -> [Source; 3] {
        let head = Some(HEADS[at] as u32);
        [
            source!("attention_mma_forward.cu", head),
            source!("attention_mma_backward_q.cu", head),
            source!("attention_mma_backward_kv.cu", head),
        ]
    }
    let [a, b, c] = of(0);
    let [d, e, f] = of(1);
    let [g, h, i] = of(2);
    let [j, k, l] = of(3);
    let [m, n, o] = of(4);
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o]
};

/// Rows of a block and of what it works on at once, and how many of those are in shared memory; as in the sources.
struct Tiles {
    own: usize,
    pass: usize,
    stages: usize,
}

const fn forward_tiles(head: usize) -> Tiles {
    Tiles { own: if head <= 128 { 128 } else { 64 }, pass: 64, stages: 1 }
}

const fn to_q_tiles(head: usize) -> Tiles {
    if head <= 128 { Tiles { own: 128, pass: 32, stages: 2 } } else { Tiles { own: 64, pass: 32, stages: 1 } }
}

const fn to_kv_tiles(head: usize) -> Tiles {
    if head <= 128 { Tiles { own: 64, pass: 64, stages: 2 } } else { Tiles { own: 64, pass: 32, stages: 1 } }
}

/// Blocks that share a tile of keys: registers do not hold both gradients of a greater head.
const fn to_kv_blocks(head: usize) -> u32 {
    if head <= 128 { 1 } else { 2 }
}

pub(in crate::cuda) static KERNELS: [Kernel; 15] = {
    const fn of(at: usize) -> [Kernel; 3] {
        let head = HEADS[at];
        // Bytes of a row: exchanged chunks where it is a multiple of 128, else a chunk between rows.
        let row = if head.is_multiple_of(64) { head * 2 } else { head * 2 + 16 };
        let Tiles { own, pass, stages } = forward_tiles(head);
        // q; k and v.
        let forward = (own + 2 * stages * pass) * row;
        let Tiles { own, pass, stages } = to_q_tiles(head);
        // q and dout with lse and delta; k and v.
        let to_q = 2 * own * (row + 4) + 2 * stages * pass * row;
        let Tiles { own, pass, stages } = to_kv_tiles(head);
        // k and v, and the last queries that see the keys; q and dout with lse and delta.
        let to_kv = (2 * row + 4) * own + 2 * stages * pass * (row + 4);
        [
            Kernel::new(&SOURCES[3 * at], "attention_forward_bf16", THREADS).with_shared(forward as u32),
            Kernel::new(&SOURCES[3 * at + 1], "attention_backward_q_bf16", THREADS).with_shared(to_q as u32),
            Kernel::new(&SOURCES[3 * at + 2], "attention_backward_kv_bf16", THREADS).with_shared(to_kv as u32),
        ]
    }
    let [a, b, c] = of(0);
    let [d, e, f] = of(1);
    let [g, h, i] = of(2);
    let [j, k, l] = of(3);
    let [m, n, o] = of(4);
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o]
};
const THREADS: u32 = 128;

/// The head dimension that a shape's is compiled as, and its kernels (forward, backward_q, backward_kv).
fn kernels(shape: &Shape) -> (usize, &'static [Kernel]) {
    let at = HEADS.iter().position(|head| *head >= shape.head_dim).expect("checked: up to 256");
    (HEADS[at], &KERNELS[3 * at..][..3])
}

pub(super) fn forward(queue: &Queue, shape: &Shape, operands: &Operands) -> Result<(), Error> {
    let (head, kernels) = kernels(shape);
    let grid = ((shape.rows * shape.heads) as u32, blocks(shape.seq, forward_tiles(head).own), 1);
    let Operands { q, k, v, first, out, lse } = operands;
    let args: [&dyn Arg; 7] = [&shape.sizes(), q, k, v, first, out, lse];
    queue.launch(&kernels[0], grid, kernels[0].shared_bytes, &args)
}

pub(super) fn backward(queue: &Queue, shape: &Shape, operands: &Operands, gradients: &Gradients) -> Result<(), Error> {
    let (head, kernels) = kernels(shape);
    let sizes = shape.sizes();
    let Operands { q, k, v, first, out, lse } = operands;
    let Gradients { dout, dq, dk, dv, delta } = gradients;
    // delta comes from the gradient of q, which has the rows of dout at hand.
    let grid = ((shape.rows * shape.heads) as u32, blocks(shape.seq, to_q_tiles(head).own), 1);
    let args: [&dyn Arg; 10] = [&sizes, q, k, v, first, out, dout, lse, delta, dq];
    queue.launch(&kernels[1], grid, kernels[1].shared_bytes, &args)?;
    let tiles = blocks(shape.seq, to_kv_tiles(head).own) * to_kv_blocks(head);
    let args: [&dyn Arg; 10] = [&sizes, q, k, v, first, dout, lse, delta, dk, dv];
    queue.launch(&kernels[2], ((shape.rows * shape.kv_heads) as u32, tiles, 1), kernels[2].shared_bytes, &args)
}
