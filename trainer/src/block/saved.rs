//! What a layer's forward leaves for its backward, as one slice.
//!
//! The normed inputs and the product of the SwiGLU are not kept: they cost one pass over memory to recompute.

use super::Dims;
use crate::carve::{Carve, padded};

/// The parts, in this order; `S` is a size, a slice or a mutable slice.
#[derive(Clone, Copy, Debug)]
pub struct Saved<S> {
    /// 1 / root mean square of the layer's input \[T].
    pub(super) input_rstd: S,
    /// Queries, normed and rotated \[T,Q].
    pub(super) q: S,
    /// Keys, normed and rotated \[T,K].
    pub(super) k: S,
    /// Values \[T,K].
    pub(super) v: S,
    /// Queries before their norm \[T,Q]; empty without head norms, like the next three.
    pub(super) q_raw: S,
    /// Keys before their norm \[T,K].
    pub(super) k_raw: S,
    /// 1 / root mean square of each query head \[T, heads].
    pub(super) q_rstd: S,
    /// 1 / root mean square of each key head \[T, key heads].
    pub(super) k_rstd: S,
    /// Output of the attention \[T,Q].
    pub(super) attended: S,
    /// Log-sum-exp of the scores \[T, heads].
    pub(super) lse: S,
    /// Input of the MLP half: x plus the attention's output \[T,H].
    pub(super) middle: S,
    /// 1 / root mean square of `middle` \[T].
    pub(super) middle_rstd: S,
    /// \[T,F].
    pub(super) gate: S,
    /// \[T,F].
    pub(super) up: S,
}

impl<S> Saved<S> {
    fn map<R>(self, mut f: impl FnMut(S) -> R) -> Saved<R> {
        Saved {
            input_rstd: f(self.input_rstd),
            q: f(self.q),
            k: f(self.k),
            v: f(self.v),
            q_raw: f(self.q_raw),
            k_raw: f(self.k_raw),
            q_rstd: f(self.q_rstd),
            k_rstd: f(self.k_rstd),
            attended: f(self.attended),
            lse: f(self.lse),
            middle: f(self.middle),
            middle_rstd: f(self.middle_rstd),
            gate: f(self.gate),
            up: f(self.up),
        }
    }
}

impl Saved<usize> {
    fn sizes(dims: &Dims, tokens: usize) -> Saved<usize> {
        let (query, key) = (dims.query(), dims.key());
        let normed = if dims.qk_norm { tokens } else { 0 };
        Saved {
            input_rstd: tokens,
            q: tokens * query,
            k: tokens * key,
            v: tokens * key,
            q_raw: normed * query,
            k_raw: normed * key,
            q_rstd: normed * dims.heads,
            k_rstd: normed * dims.kv_heads,
            attended: tokens * query,
            lse: tokens * dims.heads,
            middle: tokens * dims.hidden,
            middle_rstd: tokens,
            gate: tokens * dims.mlp,
            up: tokens * dims.mlp,
        }
    }

    /// Elements of all parts for T tokens.
    pub fn elements(dims: &Dims, tokens: usize) -> usize {
        let mut total = 0;
        Saved::sizes(dims, tokens).map(|n| total += padded(n));
        total
    }
}

impl<'a> Saved<&'a mut [f32]> {
    /// The parts of a slice of at least [`Saved::elements`] elements.
    pub fn split_mut(dims: &Dims, tokens: usize, slice: &'a mut [f32]) -> Saved<&'a mut [f32]> {
        let mut carve = Carve::new(slice);
        Saved::sizes(dims, tokens).map(|n| carve.take(n))
    }
}

impl<'a> Saved<&'a [f32]> {
    /// The parts of a slice of at least [`Saved::elements`] elements.
    pub fn split(dims: &Dims, tokens: usize, slice: &'a [f32]) -> Saved<&'a [f32]> {
        let mut at = 0;
        Saved::sizes(dims, tokens).map(|n| {
            let part = &slice[at..at + n];
            at += padded(n);
            part
        })
    }
}
