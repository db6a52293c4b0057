//! Causal grouped-query attention in tiles; never an S x S matrix in memory.
//!
//! A tile is a block of queries (a few tokens, all heads that share a key/value head) against a block of keys. Within a
//! tile everything is kept transposed, [keys, lanes] with one lane a query: so the running maximum and sum are
//! vectors, softmax needs no reduction across a register, and both products of a tile read their operands as they lie.
//! Backward computes the probabilities again from the log-sum-exp.
//!
//! What it is not: it knows no positions and no documents. Which tokens a token sees is `first` alone.
//!
//! Terms: *lane*, one query: token and head; *tile*, lanes x keys; *bounds*, the keys first..=last that a lane sees.
//!
//! Invariants: tiles depend on the shape and on `first` alone, and each is computed by one thread. Forward's tasks
//! write whole tokens; backward's task owns a key/value head of a row with all its queries, so nothing is added by two
//! threads.

mod backward;
mod forward;
mod tile;

pub use backward::backward;
pub use forward::forward;

use tile::Tiling;

/// Sizes. `rows` sequences of `seq` tokens, T = rows * seq; n query heads, g key/value heads (g divides n), d head
/// dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Sequences.
    pub rows: usize,
    /// Tokens of a sequence.
    pub seq: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
}

impl Shape {
    /// T.
    fn tokens(&self) -> usize {
        self.rows * self.seq
    }

    /// Query heads that share a key/value head.
    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    fn check(&self, q: &[f32], k: &[f32], v: &[f32], first: &[u32], out: &[f32], lse: &[f32]) {
        let (t, d) = (self.tokens(), self.head_dim);
        assert!(self.kv_heads > 0 && self.heads.is_multiple_of(self.kv_heads), "key/value heads divide the heads");
        assert!(q.len() == t * self.heads * d && out.len() == q.len(), "q, out [T,N,D]");
        assert!(k.len() == t * self.kv_heads * d && v.len() == k.len(), "k, v [T,G,D]");
        assert!(first.len() == t && lse.len() == t * self.heads, "first [T], lse [T,N]");
        let own = first.iter().enumerate().all(|(t, first)| (*first as usize) <= t % self.seq);
        assert!(own, "a token sees itself");
    }
}

/// Bytes of scratch that forward and backward make resident at most, all threads together, with what the gemm crate
/// packs for a tile. Grows with `seq` (backward sums dk and dv of a whole sequence), not with its square.
pub fn scratch_bytes(threads: usize, s: Shape) -> usize {
    let tiling = Tiling::new(s);
    let floats = forward::scratch_floats(s, tiling).max(backward::scratch_floats(s, tiling));
    // A block's bounds and the ranges of its tokens.
    let bounds = 2 * tiling.lanes * size_of::<u32>() + tiling.queries * size_of::<std::ops::Range<usize>>();
    // The lists of output slices: backward's, one a token and key/value head in each of dq, dk and dv, are the longer.
    let lists = 3 * s.tokens() * s.kv_heads * size_of::<&[f32]>() + s.rows * s.kv_heads * size_of::<[Vec<u8>; 3]>();
    threads * (floats * size_of::<f32>() + bounds + tile::packed_bytes(s, tiling)) + lists
}

#[cfg(test)]
mod tests;
