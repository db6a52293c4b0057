//! The geometry of tiles: which queries and keys belong together, the lanes' bounds, and moving rows in and out of the
//! transposed layout.

use super::Shape;
use crate::product::{self, Size};
use std::ops::Range;

/// Lanes are padded to this many: a vector register.
const ALIGN: usize = 16;
/// Lanes that a block of queries aims at: three times the 64 rows of the widest product kernel, and a tile of scores
/// that fits L1 and L2.
const LANES_GOAL: usize = 192;

/// How a sequence is cut.
#[derive(Clone, Copy)]
pub(super) struct Tiling {
    /// Tokens of a block of queries.
    pub(super) queries: usize,
    /// Keys of a tile.
    pub(super) keys: usize,
    /// Lanes of a full block of queries, padded.
    pub(super) lanes: usize,
}

impl Tiling {
    pub(super) fn new(s: Shape) -> Tiling {
        let group = s.group();
        let most = (LANES_GOAL / group).clamp(1, 128).min(s.seq.next_power_of_two());
        let queries = if most.is_power_of_two() { most } else { most.next_power_of_two() / 2 };
        Tiling { queries, keys: 64.min(s.seq), lanes: (queries * group).next_multiple_of(ALIGN) }
    }
}

/// What the gemm crate packs for the largest product of a tile.
pub(super) fn packed_bytes(s: Shape, tiling: Tiling) -> usize {
    let (lanes, keys, d) = (tiling.lanes, tiling.keys, s.head_dim);
    let sizes = [(keys, lanes, d), (d, lanes, keys), (keys, d, lanes)];
    sizes.into_iter().map(|(rows, cols, k)| product::one_scratch_bytes(Size { rows, cols, k })).max().unwrap_or(0)
}

/// A block of queries of one key/value head.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) shape: Shape,
    /// First token of the sequence among all tokens.
    pub(super) row: usize,
    /// Tokens within the sequence.
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) kv_head: usize,
    /// Lanes in use, padded.
    pub(super) lanes: usize,
}

impl Block {
    pub(super) fn new(shape: Shape, tiling: Tiling, row: usize, start: usize, kv_head: usize) -> Block {
        let end = (start + tiling.queries).min(shape.seq);
        let lanes = ((end - start) * shape.group()).next_multiple_of(ALIGN);
        Block { shape, row: row * shape.seq, start, end, kv_head, lanes }
    }

    /// Token (within the sequence) and head of each lane in use, unpadded, in lane order.
    pub(super) fn each(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (group, from) = (self.shape.group(), self.kv_head * self.shape.group());
        (self.start..self.end).flat_map(move |t| (from..from + group).map(move |head| (t, head)))
    }

    /// Each lane's bounds. Padding lanes see every key, so that they hold numbers and not NaN.
    pub(super) fn bounds(&self, first: &[u32], low: &mut [u32], high: &mut [u32]) {
        low.fill(0);
        high.fill(u32::MAX);
        for (lane, (t, _)) in self.each().enumerate() {
            low[lane] = first[self.row + t];
            high[lane] = t as u32;
        }
    }

    /// Lanes of x [T,N,D] as rows [lanes, D], padding zero.
    pub(super) fn gather(&self, x: &[f32], rows: &mut [f32]) {
        let (d, group) = (self.shape.head_dim, self.shape.group());
        let tokens = self.end - self.start;
        for (token, rows) in rows[..tokens * group * d].chunks_exact_mut(group * d).enumerate() {
            let at = ((self.row + self.start + token) * self.shape.heads + self.kv_head * group) * d;
            rows.copy_from_slice(&x[at..at + group * d]);
        }
        rows[tokens * group * d..self.lanes * d].fill(0.0);
    }

    /// The tiles of keys that some lane sees, in order.
    pub(super) fn tiles(&self, tiling: Tiling, first: &[u32]) -> impl Iterator<Item = Tile> + use<> {
        let seen: Vec<Range<usize>> = (self.start..self.end).map(|t| first[self.row + t] as usize..t + 1).collect();
        let earliest = seen.iter().map(|s| s.start).min().unwrap_or(0);
        let end = self.end;
        (earliest / tiling.keys * tiling.keys..end).step_by(tiling.keys).filter_map(move |start| {
            let keys = start..(start + tiling.keys).min(end);
            let touched = seen.iter().any(|s| s.start < keys.end && keys.start < s.end);
            let whole = seen.iter().all(|s| s.start <= keys.start && keys.end <= s.end);
            touched.then_some(Tile { start: keys.start, keys: keys.len(), whole })
        })
    }
}

/// A tile of a block.
pub(super) struct Tile {
    /// First key within the sequence.
    pub(super) start: usize,
    pub(super) keys: usize,
    /// Whether every lane sees every key.
    pub(super) whole: bool,
}

/// rows [n, d] to columns [d, n].
#[inline(always)]
pub(super) fn transpose(rows: &[f32], n: usize, d: usize, columns: &mut [f32]) {
    const SIDE: usize = 4;
    for (j, block) in rows[..n * d].chunks_exact(SIDE * d).enumerate() {
        let (a, rest) = block.split_at(d);
        let (b, rest) = rest.split_at(d);
        let (c, e) = rest.split_at(d);
        for i in 0..d {
            let to: &mut [f32] = &mut columns[i * n + j * SIDE..][..SIDE];
            to.copy_from_slice(&[a[i], b[i], c[i], e[i]]);
        }
    }
}
