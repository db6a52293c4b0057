//! Intermediates that live within one call. The two halves of the backward use the same memory.

use super::Dims;
use crate::carve::{Carve, padded};

/// Scratch of a layer for T tokens.
pub struct Scratch<'a> {
    /// The normed input of the half at hand \[T,H].
    pub(super) normed: &'a mut [f32],
    /// Gradient of `normed` \[T,H].
    pub(super) dnormed: &'a mut [f32],
    /// A norm's own 1 / root mean square where it is computed again \[T].
    pub(super) rstd: &'a mut [f32],
    /// Cut up by each half: see [`Mlp`] and [`Attention`].
    pub(super) shared: &'a mut [f32],
}

/// Scratch of the MLP half.
pub(super) struct Mlp<'a> {
    /// silu(gate) * up, later d gate \[T,F].
    pub(super) product: &'a mut [f32],
    /// d product \[T,F].
    pub(super) dproduct: &'a mut [f32],
    /// d up \[T,F].
    pub(super) dup: &'a mut [f32],
}

/// Scratch of the attention half.
pub(super) struct Attention<'a> {
    /// d attended, later d q before its norm \[T,Q].
    pub(super) dattended: &'a mut [f32],
    /// \[T,Q].
    pub(super) dq: &'a mut [f32],
    /// \[T,K].
    pub(super) dk: &'a mut [f32],
    /// \[T,K].
    pub(super) dv: &'a mut [f32],
    /// d k before its norm \[T,K]; empty without head norms.
    pub(super) dk_raw: &'a mut [f32],
}

fn attention_sizes(dims: &Dims, tokens: usize) -> [usize; 5] {
    let (query, key) = (tokens * dims.query(), tokens * dims.key());
    [query, query, key, key, if dims.qk_norm { key } else { 0 }]
}

/// Elements of a layer's scratch for T tokens.
pub fn scratch_elements(dims: &Dims, tokens: usize) -> usize {
    let attention: usize = attention_sizes(dims, tokens).map(padded).iter().sum();
    let mlp = 3 * padded(tokens * dims.mlp);
    2 * padded(tokens * dims.hidden) + padded(tokens) + attention.max(mlp)
}

impl<'a> Scratch<'a> {
    /// Cuts up a slice of at least [`scratch_elements`] elements.
    pub fn new(dims: &Dims, tokens: usize, slice: &'a mut [f32]) -> Scratch<'a> {
        let (own, shared) = slice.split_at_mut(2 * padded(tokens * dims.hidden) + padded(tokens));
        let mut carve = Carve::new(own);
        Scratch {
            normed: carve.take(tokens * dims.hidden),
            dnormed: carve.take(tokens * dims.hidden),
            rstd: carve.take(tokens),
            shared,
        }
    }
}

impl<'a> Mlp<'a> {
    pub(super) fn new(dims: &Dims, tokens: usize, shared: &'a mut [f32]) -> Mlp<'a> {
        let mut carve = Carve::new(shared);
        let mut take = || carve.take(tokens * dims.mlp);
        Mlp { product: take(), dproduct: take(), dup: take() }
    }
}

impl<'a> Attention<'a> {
    pub(super) fn new(dims: &Dims, tokens: usize, shared: &'a mut [f32]) -> Attention<'a> {
        let mut carve = Carve::new(shared);
        let [dattended, dq, dk, dv, dk_raw] = attention_sizes(dims, tokens).map(|n| carve.take(n));
        Attention { dattended, dq, dk, dv, dk_raw }
    }
}
