//! What a layer's forward leaves for its backward, and how much of it is kept until then: its *level*.
//!
//! The parts lie in one order, the attention's before the MLP's, so that what a level keeps is a beginning of them; the
//! backward computes the rest again. The normed inputs and the product of the SwiGLU are never kept: they cost one pass
//! over memory to recompute.

use super::Dims;
use crate::carve::{Carve, padded};

/// How much of what a forward leaves is kept, ascending.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Nothing but the layer's input, which is kept in any case: the backward computes all but the last product again.
    Input,
    /// The attention half up to its output, with the log-sum-exp: the backward computes the output projection, the norm
    /// and the two products of the MLP half again.
    Attention,
    /// Everything.
    All,
}

impl Level {
    /// All of them, ascending.
    pub const EACH: [Level; 3] = [Level::Input, Level::Attention, Level::All];
}

/// What the attention half leaves; `S` is a size, a slice or a mutable slice.
#[derive(Clone, Copy, Debug)]
pub struct AttentionPart<S> {
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
}

/// What the MLP half leaves.
#[derive(Clone, Copy, Debug)]
pub struct MlpPart<S> {
    /// Input of the MLP half: x plus the attention's projected output \[T,H].
    pub(super) middle: S,
    /// 1 / root mean square of `middle` \[T].
    pub(super) middle_rstd: S,
    /// \[T,F].
    pub(super) gate: S,
    /// \[T,F].
    pub(super) up: S,
}

/// Both parts.
#[derive(Clone, Copy, Debug)]
pub struct Saved<S> {
    pub(super) attention: AttentionPart<S>,
    pub(super) mlp: MlpPart<S>,
}

impl<S> AttentionPart<S> {
    fn map<R>(self, mut f: impl FnMut(S) -> R) -> AttentionPart<R> {
        AttentionPart {
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
        }
    }
}

impl<S> MlpPart<S> {
    fn map<R>(self, mut f: impl FnMut(S) -> R) -> MlpPart<R> {
        MlpPart { middle: f(self.middle), middle_rstd: f(self.middle_rstd), gate: f(self.gate), up: f(self.up) }
    }
}

impl AttentionPart<usize> {
    fn sizes(dims: &Dims, tokens: usize) -> AttentionPart<usize> {
        let (query, key) = (dims.query(), dims.key());
        let normed = if dims.qk_norm { tokens } else { 0 };
        AttentionPart {
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
        }
    }
}

impl MlpPart<usize> {
    fn sizes(dims: &Dims, tokens: usize) -> MlpPart<usize> {
        let (hidden, mlp) = (tokens * dims.hidden, tokens * dims.mlp);
        MlpPart { middle: hidden, middle_rstd: tokens, gate: mlp, up: mlp }
    }
}

impl Saved<usize> {
    /// Elements of all parts for T tokens.
    pub fn elements(dims: &Dims, tokens: usize) -> usize {
        Saved::kept(dims, tokens, Level::All)
    }

    /// Elements of the parts that a level keeps.
    pub fn kept(dims: &Dims, tokens: usize, level: Level) -> usize {
        let mut total = 0;
        if level >= Level::Attention {
            AttentionPart::sizes(dims, tokens).map(|n| total += padded(n));
        }
        if level == Level::All {
            MlpPart::sizes(dims, tokens).map(|n| total += padded(n));
        }
        total
    }

    /// Elements of the parts that a level does not keep.
    pub fn rest(dims: &Dims, tokens: usize, level: Level) -> usize {
        Saved::elements(dims, tokens) - Saved::kept(dims, tokens, level)
    }
}

impl<'a> Saved<&'a mut [f32]> {
    /// The parts that the level keeps from `kept`, which has at least [`Saved::kept`] elements, the others from `rest`,
    /// which has at least [`Saved::rest`].
    pub fn split_mut(
        dims: &Dims,
        tokens: usize,
        level: Level,
        kept: &'a mut [f32],
        rest: &'a mut [f32],
    ) -> Saved<&'a mut [f32]> {
        let (mut kept, mut rest) = (Carve::new(kept), Carve::new(rest));
        let attention = if level >= Level::Attention { &mut kept } else { &mut rest };
        let attention = AttentionPart::cut(dims, tokens, attention);
        let mlp = if level == Level::All { &mut kept } else { &mut rest };
        Saved { attention, mlp: MlpPart::cut(dims, tokens, mlp) }
    }
}

impl<'a> AttentionPart<&'a mut [f32]> {
    pub(super) fn cut(dims: &Dims, tokens: usize, from: &mut Carve<'a>) -> AttentionPart<&'a mut [f32]> {
        AttentionPart::sizes(dims, tokens).map(|n| from.take(n))
    }

    pub(super) fn shared(self) -> AttentionPart<&'a [f32]> {
        self.map(|part| &*part)
    }
}

impl<'a> MlpPart<&'a mut [f32]> {
    pub(super) fn cut(dims: &Dims, tokens: usize, from: &mut Carve<'a>) -> MlpPart<&'a mut [f32]> {
        MlpPart::sizes(dims, tokens).map(|n| from.take(n))
    }

    pub(super) fn shared(self) -> MlpPart<&'a [f32]> {
        self.map(|part| &*part)
    }
}

/// The next `n` elements of what was kept.
fn next<'a>(kept: &mut &'a [f32], n: usize) -> &'a [f32] {
    let (part, rest) = kept.split_at(padded(n));
    *kept = rest;
    &part[..n]
}

impl<'a> AttentionPart<&'a [f32]> {
    /// Takes the part from the front of what was kept.
    pub(super) fn read(dims: &Dims, tokens: usize, kept: &mut &'a [f32]) -> AttentionPart<&'a [f32]> {
        AttentionPart::sizes(dims, tokens).map(|n| next(kept, n))
    }
}

impl<'a> MlpPart<&'a [f32]> {
    /// Takes the part from the front of what was kept.
    pub(super) fn read(dims: &Dims, tokens: usize, kept: &mut &'a [f32]) -> MlpPart<&'a [f32]> {
        MlpPart::sizes(dims, tokens).map(|n| next(kept, n))
    }
}
