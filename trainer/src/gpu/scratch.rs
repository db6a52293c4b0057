//! Memory of a layer's kernels that lives within one call. The two halves of the backward use the same.

use super::carve::{Carve, Count, Take};
use crate::block::Dims;
use mt_kernels::cuda::{Element, attention, linear, rmsnorm};

/// Rows and tokens of a micro-batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rows {
    /// Rows.
    pub rows: usize,
    /// Tokens of a row.
    pub seq: usize,
}

impl Rows {
    /// T.
    pub fn tokens(&self) -> usize {
        self.rows * self.seq
    }
}

/// The attention kernels' view of a micro-batch.
pub(super) fn attention_shape(dims: &Dims, rows: Rows) -> attention::Shape {
    attention::Shape {
        rows: rows.rows,
        seq: rows.seq,
        heads: dims.heads,
        kv_heads: dims.kv_heads,
        head_dim: dims.head_dim,
        layout: attention::Layout::Beside,
        scale: dims.scale(),
        cap: None,
    }
}

/// What both halves have.
pub(super) struct Common<K: Take, R: Element> {
    /// The normed input of the half at hand \[T,H].
    pub(super) normed: K::Part<R>,
    /// Gradient of `normed` \[T,H].
    pub(super) dnormed: K::Part<R>,
    /// A norm's own 1 / root mean square where it is computed again \[T].
    pub(super) rstd: K::Part<f32>,
    /// Partial sums of gradients of norms and biases.
    pub(super) partial: K::Part<f32>,
}

/// The MLP half.
pub(super) struct Mlp<K: Take, R: Element> {
    /// Gradients of gate and up \[T, 2 F]. Until they are computed, the product of the SwiGLU \[T,F] lies at the
    /// beginning.
    pub(super) both: K::Part<R>,
    /// Gradient of the product \[T,F].
    pub(super) dproduct: K::Part<R>,
}

/// The attention half.
pub(super) struct Attention<K: Take, R: Element> {
    /// Gradient of the attention's output \[T,Q].
    pub(super) dattended: K::Part<R>,
    /// Gradients of q, k, v \[T, Q + 2 K].
    pub(super) dqkv: K::Part<R>,
    /// The attention kernels' own.
    pub(super) delta: K::Part<f32>,
}

impl<K: Take, R: Element> Common<K, R> {
    fn cut(dims: &Dims, rows: Rows, from: &mut K) -> Common<K, R> {
        let (tokens, hidden) = (rows.tokens(), dims.hidden);
        let widest = (dims.query() + 2 * dims.key()).max(2 * dims.mlp).max(hidden);
        let heads = if dims.qk_norm { rmsnorm::scratch_len(tokens * dims.heads, dims.head_dim) } else { 0 };
        let partial = rmsnorm::scratch_len(tokens, hidden).max(heads).max(linear::bias_scratch_len(tokens, widest));
        Common {
            normed: from.take(tokens * hidden),
            dnormed: from.take(tokens * hidden),
            rstd: from.take(tokens),
            partial: from.take(partial),
        }
    }
}

impl<K: Take, R: Element> Mlp<K, R> {
    fn cut(dims: &Dims, rows: Rows, from: &mut K) -> Mlp<K, R> {
        let elements = rows.tokens() * dims.mlp;
        Mlp { both: from.take(2 * elements), dproduct: from.take(elements) }
    }
}

impl<K: Take, R: Element> Attention<K, R> {
    fn cut(dims: &Dims, rows: Rows, from: &mut K) -> Attention<K, R> {
        let tokens = rows.tokens();
        Attention {
            dattended: from.take(tokens * dims.query()),
            dqkv: from.take(tokens * (dims.query() + 2 * dims.key())),
            delta: from.take(attention::scratch_len(&attention_shape(dims, rows))),
        }
    }
}

/// A layer's scratch, not cut yet.
pub(super) struct Scratch<'a> {
    pub(super) memory: mt_kernels::cuda::ViewMut<'a, u8>,
    pub(super) rows: Rows,
}

impl Scratch<'_> {
    /// For the MLP half.
    pub(super) fn mlp<R: Element>(&mut self, dims: &Dims) -> (Common<Carve<'_>, R>, Mlp<Carve<'_>, R>) {
        let mut carve = Carve::new(self.memory.reborrow());
        (Common::cut(dims, self.rows, &mut carve), Mlp::cut(dims, self.rows, &mut carve))
    }

    /// For the attention half.
    pub(super) fn attention<R: Element>(&mut self, dims: &Dims) -> (Common<Carve<'_>, R>, Attention<Carve<'_>, R>) {
        let mut carve = Carve::new(self.memory.reborrow());
        (Common::cut(dims, self.rows, &mut carve), Attention::cut(dims, self.rows, &mut carve))
    }

    /// Bytes of it.
    pub(super) fn bytes<R: Element>(dims: &Dims, rows: Rows) -> usize {
        let (mut own, mut mlp, mut attention) = (Count::default(), Count::default(), Count::default());
        Common::<Count, R>::cut(dims, rows, &mut own);
        Mlp::<Count, R>::cut(dims, rows, &mut mlp);
        Attention::<Count, R>::cut(dims, rows, &mut attention);
        own.bytes + mlp.bytes.max(attention.bytes)
    }
}
