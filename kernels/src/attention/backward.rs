//! Backward: a task owns one key/value head of one row and walks the blocks of queries in order.
//!
//! With P the probabilities, dP = dO V^T, delta = sum of dO * O a lane, dS = P * (dP - delta):
//! dV = P^T dO, dK = scale * dS^T Q, dQ = scale * dS K.

use super::Shape;
use super::forward::{mask, transpose_back};
use super::tile::{Block, Tile, Tiling, transpose};
use crate::Cpu;
use crate::math::{LANES, exp, fold};
use crate::product::{self, Size, Target, View};
use crate::scratch::{self, take};
use crate::simd::with_simd;
use rayon::prelude::*;

/// Everything that tasks read.
struct Input<'a> {
    shape: Shape,
    tiling: Tiling,
    scale: f32,
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    first: &'a [u32],
    out: &'a [f32],
    lse: &'a [f32],
    dout: &'a [f32],
}

/// What a task writes: the parts of dq, dk and dv of one row and key/value head, a slice a token.
struct Output<'a> {
    dq: Vec<&'a mut [f32]>,
    dk: Vec<&'a mut [f32]>,
    dv: Vec<&'a mut [f32]>,
}

/// Working memory of a task; lengths of full blocks, see [`scratch_floats`].
struct Work<'a> {
    /// [seq, D] each.
    dk: &'a mut [f32],
    dv: &'a mut [f32],
    /// Rows [lanes, D].
    q: &'a mut [f32],
    dout: &'a mut [f32],
    out: &'a mut [f32],
    /// Columns [D, lanes].
    q_columns: &'a mut [f32],
    dout_columns: &'a mut [f32],
    dq_columns: &'a mut [f32],
    /// Tiles [keys, lanes].
    p: &'a mut [f32],
    ds: &'a mut [f32],
    /// A value a lane.
    lse: &'a mut [f32],
    delta: &'a mut [f32],
}

/// dq, dk, dv are overwritten.
#[allow(clippy::too_many_arguments)]
pub fn backward(
    cpu: &Cpu,
    s: Shape,
    scale: f32,
    q: &[f32],
    k: &[f32],
    v: &[f32],
    first: &[u32],
    out: &[f32],
    lse: &[f32],
    dout: &[f32],
    dq: &mut [f32],
    dk: &mut [f32],
    dv: &mut [f32],
) {
    s.check(q, k, v, first, out, lse);
    assert!(dout.len() == q.len() && dq.len() == q.len(), "dout, dq [T,N,D]");
    assert!(dk.len() == k.len() && dv.len() == k.len(), "dk, dv [T,G,D]");
    let tiling = Tiling::new(s);
    let input = Input { shape: s, tiling, scale, q, k, v, first, out, lse, dout };
    let tasks = cut(s, dq, dk, dv);
    cpu.install(|| {
        tasks.into_par_iter().enumerate().with_max_len(1).for_each(|(i, mut output)| {
            let (row, kv_head) = (i / s.kv_heads, i % s.kv_heads);
            scratch::with(scratch_floats(s, tiling), |floats| {
                let mut work = Work::new(s, tiling, floats);
                for start in (0..s.seq).step_by(tiling.queries) {
                    let block = Block::new(s, tiling, row, start, kv_head);
                    block_backward(cpu, &input, block, &mut work, &mut output.dq[start..block.end]);
                }
                output.dk.iter_mut().zip(work.dk.chunks_exact(s.head_dim)).for_each(|(to, x)| to.copy_from_slice(x));
                output.dv.iter_mut().zip(work.dv.chunks_exact(s.head_dim)).for_each(|(to, x)| to.copy_from_slice(x));
            });
        });
    });
}

/// The outputs of each task, rows outermost.
fn cut<'a>(s: Shape, dq: &'a mut [f32], dk: &'a mut [f32], dv: &'a mut [f32]) -> Vec<Output<'a>> {
    // Exactly as long as they become: `scratch_bytes` counts them.
    let list = || Vec::with_capacity(s.seq);
    let mut tasks: Vec<Output<'a>> =
        (0..s.rows * s.kv_heads).map(|_| Output { dq: list(), dk: list(), dv: list() }).collect();
    let task = |i: usize| i / s.kv_heads / s.seq * s.kv_heads + i % s.kv_heads;
    dq.chunks_mut(s.group() * s.head_dim).enumerate().for_each(|(i, part)| tasks[task(i)].dq.push(part));
    dk.chunks_mut(s.head_dim).enumerate().for_each(|(i, part)| tasks[task(i)].dk.push(part));
    dv.chunks_mut(s.head_dim).enumerate().for_each(|(i, part)| tasks[task(i)].dv.push(part));
    tasks
}

/// Floats of working memory of one task.
pub(super) fn scratch_floats(s: Shape, tiling: Tiling) -> usize {
    2 * s.seq * s.head_dim + 6 * s.head_dim * tiling.lanes + 2 * tiling.keys * tiling.lanes + 2 * tiling.lanes
}

impl<'a> Work<'a> {
    fn new(s: Shape, tiling: Tiling, mut floats: &'a mut [f32]) -> Work<'a> {
        let (whole, side) = (s.seq * s.head_dim, s.head_dim * tiling.lanes);
        let (tile, lanes) = (tiling.keys * tiling.lanes, tiling.lanes);
        let work = Work {
            dk: take(&mut floats, whole),
            dv: take(&mut floats, whole),
            q: take(&mut floats, side),
            dout: take(&mut floats, side),
            out: take(&mut floats, side),
            q_columns: take(&mut floats, side),
            dout_columns: take(&mut floats, side),
            dq_columns: take(&mut floats, side),
            p: take(&mut floats, tile),
            ds: take(&mut floats, tile),
            lse: take(&mut floats, lanes),
            delta: take(&mut floats, lanes),
        };
        work.dk.fill(0.0);
        work.dv.fill(0.0);
        work
    }
}

/// `dq` are the parts of the block's tokens.
fn block_backward(cpu: &Cpu, input: &Input<'_>, block: Block, work: &mut Work<'_>, dq: &mut [&mut [f32]]) {
    let Input { shape, tiling, .. } = *input;
    let (lanes, d) = (block.lanes, shape.head_dim);
    block.gather(input.q, work.q);
    block.gather(input.dout, work.dout);
    block.gather(input.out, work.out);
    with_simd!(cpu.level(), transpose(work.q, lanes, d, work.q_columns));
    with_simd!(cpu.level(), transpose(work.dout, lanes, d, work.dout_columns));
    with_simd!(cpu.level(), deltas(work.dout, work.out, d, &mut work.delta[..lanes]));
    work.lse[..lanes].fill(0.0);
    for (lane, (t, head)) in block.each().enumerate() {
        work.lse[lane] = input.lse[(block.row + t) * shape.heads + head];
    }
    let (mut low, mut high) = (vec![0; lanes], vec![0; lanes]);
    block.bounds(input.first, &mut low, &mut high);
    for (index, tile) in block.tiles(tiling, input.first).enumerate() {
        tile_backward(cpu, input, block, work, (&low, &high), &tile, index > 0);
    }
    with_simd!(cpu.level(), transpose_back(work.dq_columns, lanes, d, work.q));
    dq.iter_mut().zip(work.q.chunks_exact(shape.group() * d)).for_each(|(to, x)| to.copy_from_slice(x));
}

fn tile_backward(
    cpu: &Cpu,
    input: &Input<'_>,
    block: Block,
    work: &mut Work<'_>,
    (low, high): (&[u32], &[u32]),
    tile: &Tile,
    accumulate: bool,
) {
    let Input { shape, scale, .. } = *input;
    let (lanes, d) = (block.lanes, shape.head_dim);
    let stride = shape.kv_heads * d;
    let at = (block.row + tile.start) * stride + block.kv_head * d;
    let (k, v) = (&input.k[at..], &input.v[at..]);
    let p = &mut work.p[..tile.keys * lanes];
    let ds = &mut work.ds[..tile.keys * lanes];
    let size = Size { rows: tile.keys, cols: lanes, k: d };
    let to = |data| Target { data, stride: lanes, accumulate: false };
    product::one(to(p), View::rows(k, stride), View::rows(work.q_columns, lanes), size, scale);
    product::one(to(ds), View::rows(v, stride), View::rows(work.dout_columns, lanes), size, 1.0);
    if !tile.whole {
        with_simd!(cpu.level(), mask(p, low, high, tile));
    }
    with_simd!(cpu.level(), probabilities(p, ds, &work.lse[..lanes], &work.delta[..lanes]));
    let own = tile.start * d..(tile.start + tile.keys) * d;
    let size = Size { rows: tile.keys, cols: d, k: lanes };
    let to = |data| Target { data, stride: d, accumulate: true };
    product::one(to(&mut work.dv[own.clone()]), View::rows(p, lanes), View::rows(work.dout, d), size, 1.0);
    product::one(to(&mut work.dk[own]), View::rows(ds, lanes), View::rows(work.q, d), size, scale);
    let target = Target { data: work.dq_columns, stride: lanes, accumulate };
    let size = Size { rows: d, cols: lanes, k: tile.keys };
    product::one(target, View::transposed(k, stride), View::rows(ds, lanes), size, scale);
}

/// Sum of dO * O for each lane.
#[inline(always)]
fn deltas(dout: &[f32], out: &[f32], d: usize, delta: &mut [f32]) {
    for ((dout, out), delta) in dout.chunks_exact(d).zip(out.chunks_exact(d)).zip(delta) {
        let mut lanes = [0f32; LANES];
        let (whole_a, rest_a) = dout.as_chunks::<LANES>();
        let (whole_b, rest_b) = out.as_chunks::<LANES>();
        for (a, b) in whole_a.iter().zip(whole_b) {
            for i in 0..LANES {
                lanes[i] = a[i].mul_add(b[i], lanes[i]);
            }
        }
        for ((lane, a), b) in lanes.iter_mut().zip(rest_a).zip(rest_b) {
            *lane = a.mul_add(*b, *lane);
        }
        *delta = fold(lanes);
    }
}

/// Scores p become probabilities; ds, which holds dP, becomes dS.
#[inline(always)]
fn probabilities(p: &mut [f32], ds: &mut [f32], lse: &[f32], delta: &[f32]) {
    let lanes = lse.len();
    for (p, ds) in p.chunks_exact_mut(lanes).zip(ds.chunks_exact_mut(lanes)) {
        for (((p, ds), lse), delta) in p.iter_mut().zip(ds).zip(lse).zip(delta) {
            *p = exp(*p - lse);
            *ds = *p * (*ds - delta);
        }
    }
}
