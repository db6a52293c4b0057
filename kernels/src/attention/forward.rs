//! Forward: for a block of queries, the tiles of keys in order, with running maximum, sum and output per lane.

use super::Shape;
use super::tile::{Block, Tile, Tiling, transpose};
use crate::Cpu;
use crate::math::{LANES, exp, max};
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
}

/// `first[t]`: position within its row of the first token that token t sees (document start or window edge, whichever
/// is later); it sees first[t]..=its own. q [T,N,D], k,v [T,G,D] -> out [T,N,D], lse [T,N] (natural log-sum-exp of the
/// scaled scores). scale multiplies q.k.
///
/// # Panics
/// If a slice does not have the length of its shape, or a token does not see itself; so does `backward`.
#[allow(clippy::too_many_arguments)]
pub fn forward(
    cpu: &Cpu,
    s: Shape,
    scale: f32,
    q: &[f32],
    k: &[f32],
    v: &[f32],
    first: &[u32],
    out: &mut [f32],
    lse: &mut [f32],
) {
    s.check(q, k, v, first, out, lse);
    if out.is_empty() {
        return;
    }
    let tiling = Tiling::new(s);
    let input = Input { shape: s, tiling, scale, q, k, v, first };
    let (width, per_row) = (s.heads * s.head_dim, s.seq.div_ceil(tiling.queries));
    // Pieces of whole tokens, cut at sequence ends; the later a block, the more keys it has, so these come first.
    let mut pieces: Vec<_> = out
        .chunks_mut(s.seq * width)
        .zip(lse.chunks_mut(s.seq * s.heads))
        .flat_map(|(o, l)| o.chunks_mut(tiling.queries * width).zip(l.chunks_mut(tiling.queries * s.heads)))
        .enumerate()
        .collect();
    pieces.sort_by_key(|(i, _)| std::cmp::Reverse(i % per_row));
    cpu.install(|| {
        pieces.into_par_iter().with_max_len(1).for_each(|(i, (out, lse))| {
            for kv_head in 0..s.kv_heads {
                let block = Block::new(s, tiling, i / per_row, i % per_row * tiling.queries, kv_head);
                scratch::with(scratch_floats(s, tiling), |floats| block_forward(cpu, &input, block, floats, out, lse));
            }
        });
    });
}

/// Floats of working memory of one task.
pub(super) fn scratch_floats(s: Shape, tiling: Tiling) -> usize {
    let lanes = tiling.lanes;
    3 * s.head_dim * lanes + tiling.keys * lanes + 3 * lanes
}

/// `out` and `lse` are those of the block's tokens, all heads.
fn block_forward(cpu: &Cpu, input: &Input<'_>, block: Block, mut floats: &mut [f32], out: &mut [f32], lse: &mut [f32]) {
    let Input { shape, tiling, scale, .. } = *input;
    let (lanes, d) = (block.lanes, shape.head_dim);
    let stride = shape.kv_heads * d;
    let rows = take(&mut floats, lanes * d);
    let queries = take(&mut floats, d * lanes);
    let output = take(&mut floats, d * lanes);
    let scores = take(&mut floats, tiling.keys * lanes);
    let running = take(&mut floats, 3 * lanes);
    let (peak, rest) = running.split_at_mut(lanes);
    let (sum, shrink) = rest.split_at_mut(lanes);
    let (mut low, mut high) = (vec![0; lanes], vec![0; lanes]);

    block.gather(input.q, rows);
    with_simd!(cpu.level(), transpose(rows, lanes, d, queries));
    block.bounds(input.first, &mut low, &mut high);
    peak.fill(f32::NEG_INFINITY);
    sum.fill(0.0);
    for (index, tile) in block.tiles(tiling, input.first).enumerate() {
        let at = (block.row + tile.start) * stride + block.kv_head * d;
        let scores = &mut scores[..tile.keys * lanes];
        let target = Target { data: scores, stride: lanes, accumulate: false };
        let size = Size { rows: tile.keys, cols: lanes, k: d };
        product::one(target, View::rows(&input.k[at..], stride), View::rows(queries, lanes), size, scale);
        if !tile.whole {
            with_simd!(cpu.level(), mask(scores, &low, &high, &tile));
        }
        with_simd!(cpu.level(), softmax(scores, peak, sum, shrink));
        if index > 0 {
            with_simd!(cpu.level(), shrink_rows(output, shrink));
        }
        let target = Target { data: output, stride: lanes, accumulate: index > 0 };
        let size = Size { rows: d, cols: lanes, k: tile.keys };
        product::one(target, View::transposed(&input.v[at..], stride), View::rows(scores, lanes), size, 1.0);
    }
    for (lane, (t, head)) in block.each().enumerate() {
        let at = (t - block.start) * shape.heads + head;
        lse[at] = (f64::from(peak[lane]) + f64::from(sum[lane]).ln()) as f32;
    }
    shrink.iter_mut().zip(&*sum).for_each(|(shrink, sum)| *shrink = 1.0 / sum);
    with_simd!(cpu.level(), shrink_rows(output, shrink));
    with_simd!(cpu.level(), transpose_back(output, lanes, d, rows));
    let group = shape.group();
    for (out, rows) in out.chunks_exact_mut(shape.heads * d).zip(rows.chunks_exact(group * d)) {
        out[block.kv_head * group * d..][..group * d].copy_from_slice(rows);
    }
}

/// Scores [keys, lanes] of keys that a lane does not see become -inf.
#[inline(always)]
pub(super) fn mask(scores: &mut [f32], low: &[u32], high: &[u32], tile: &Tile) {
    for (key, row) in scores.chunks_exact_mut(low.len()).enumerate() {
        let key = (tile.start + key) as u32;
        for ((x, low), high) in row.iter_mut().zip(low).zip(high) {
            let hidden = u32::from(key < *low) | u32::from(key > *high);
            *x = if hidden != 0 { f32::NEG_INFINITY } else { *x };
        }
    }
}

/// Scores become exp(score - new peak), keys in order; peak and sum run on; shrink = exp(old peak - new peak).
#[inline(always)]
fn softmax(scores: &mut [f32], peak: &mut [f32], sum: &mut [f32], shrink: &mut [f32]) {
    let lanes = peak.len();
    for at in (0..lanes).step_by(LANES) {
        let old: [f32; LANES] = std::array::from_fn(|i| peak[at + i]);
        let mut new = old;
        for row in scores.chunks_exact(lanes) {
            let row = &row[at..at + LANES];
            for i in 0..LANES {
                new[i] = max(new[i], row[i]);
            }
        }
        // A lane that has seen no key yet keeps peak -inf; its terms are exp(-inf - 0) = 0.
        let offset = new.map(|x| if x == f32::NEG_INFINITY { 0.0 } else { x });
        let mut total = [0f32; LANES];
        for row in scores.chunks_exact_mut(lanes) {
            let row = &mut row[at..at + LANES];
            for i in 0..LANES {
                row[i] = exp(row[i] - offset[i]);
                total[i] += row[i];
            }
        }
        for i in 0..LANES {
            let factor = exp(old[i] - offset[i]);
            shrink[at + i] = factor;
            sum[at + i] = sum[at + i].mul_add(factor, total[i]);
            peak[at + i] = new[i];
        }
    }
}

/// x [D, lanes] times a factor a lane.
#[inline(always)]
fn shrink_rows(x: &mut [f32], factor: &[f32]) {
    for row in x.chunks_exact_mut(factor.len()) {
        for (x, factor) in row.iter_mut().zip(factor) {
            *x *= factor;
        }
    }
}

/// columns [d, n] to rows [n, d].
#[inline(always)]
pub(super) fn transpose_back(columns: &[f32], n: usize, d: usize, rows: &mut [f32]) {
    // The same exchange with the sides swapped; d is a multiple of 4.
    transpose(columns, d, n, rows);
}
