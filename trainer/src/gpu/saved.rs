//! What a layer's forward on a GPU leaves for its backward: the parts of [`crate::block::Saved`] in the same order,
//! with q, k and v side by side in a token's row, and gate and up side by side, as one product gives them. Levels mean
//! the same. `R` is the type of activations.
//!
//! Bytes are functions of the model's sizes, the tokens of a micro-batch and the precision: a planner needs no GPU.

use super::Precision;
use super::carve::{Carve, Count, Read, Take};
use crate::block::{Dims, Level};
use mt_kernels::cuda::Element;

/// What the attention half leaves.
pub(super) struct AttentionPart<K: Take, R: Element> {
    /// 1 / root mean square of the layer's input \[T].
    pub(super) input_rstd: K::Part<f32>,
    /// Queries and keys, normed and rotated, and values \[T, Q + 2 K].
    pub(super) qkv: K::Part<R>,
    /// The same before norms and rotation; empty without head norms, like the next two.
    pub(super) raw: K::Part<R>,
    /// 1 / root mean square of each query head \[T, heads].
    pub(super) q_rstd: K::Part<f32>,
    /// 1 / root mean square of each key head \[T, key heads].
    pub(super) k_rstd: K::Part<f32>,
    /// Output of the attention \[T,Q].
    pub(super) attended: K::Part<R>,
    /// Log-sum-exp of the scores \[T, heads].
    pub(super) lse: K::Part<f32>,
}

/// What the MLP half leaves.
pub(super) struct MlpPart<K: Take, R: Element> {
    /// Input of the MLP half: x plus the attention's projected output \[T,H].
    pub(super) middle: K::Part<R>,
    /// 1 / root mean square of `middle` \[T].
    pub(super) middle_rstd: K::Part<f32>,
    /// Gate and up \[T, 2 F].
    pub(super) gate_up: K::Part<R>,
}

impl<K: Take, R: Element> AttentionPart<K, R> {
    pub(super) fn cut(dims: &Dims, tokens: usize, from: &mut K) -> AttentionPart<K, R> {
        let qkv = tokens * (dims.query() + 2 * dims.key());
        let normed = if dims.qk_norm { tokens } else { 0 };
        AttentionPart {
            input_rstd: from.take(tokens),
            qkv: from.take(qkv),
            raw: from.take(if dims.qk_norm { qkv } else { 0 }),
            q_rstd: from.take(normed * dims.heads),
            k_rstd: from.take(normed * dims.kv_heads),
            attended: from.take(tokens * dims.query()),
            lse: from.take(tokens * dims.heads),
        }
    }
}

impl<K: Take, R: Element> MlpPart<K, R> {
    pub(super) fn cut(dims: &Dims, tokens: usize, from: &mut K) -> MlpPart<K, R> {
        MlpPart {
            middle: from.take(tokens * dims.hidden),
            middle_rstd: from.take(tokens),
            gate_up: from.take(tokens * 2 * dims.mlp),
        }
    }
}

impl<'a, R: Element> AttentionPart<Carve<'a>, R> {
    /// To read what was written.
    pub(super) fn shared(self) -> AttentionPart<Read<'a>, R> {
        AttentionPart {
            input_rstd: self.input_rstd.into_view(),
            qkv: self.qkv.into_view(),
            raw: self.raw.into_view(),
            q_rstd: self.q_rstd.into_view(),
            k_rstd: self.k_rstd.into_view(),
            attended: self.attended.into_view(),
            lse: self.lse.into_view(),
        }
    }
}

impl<'a, R: Element> MlpPart<Carve<'a>, R> {
    /// To read what was written.
    pub(super) fn shared(self) -> MlpPart<Read<'a>, R> {
        MlpPart {
            middle: self.middle.into_view(),
            middle_rstd: self.middle_rstd.into_view(),
            gate_up: self.gate_up.into_view(),
        }
    }
}

fn kept<R: Element>(dims: &Dims, tokens: usize, level: Level) -> usize {
    let mut count = Count::default();
    if level >= Level::Attention {
        AttentionPart::<Count, R>::cut(dims, tokens, &mut count);
    }
    if level == Level::All {
        MlpPart::<Count, R>::cut(dims, tokens, &mut count);
    }
    count.bytes
}

/// Bytes of the parts that a level keeps, for a micro-batch of so many tokens.
pub fn kept_bytes(dims: &Dims, tokens: usize, precision: Precision, level: Level) -> usize {
    match precision {
        Precision::Bf16 => kept::<u16>(dims, tokens, level),
        Precision::Tf32 | Precision::Fp32 => kept::<f32>(dims, tokens, level),
    }
}

/// Bytes of the parts that a level does not keep.
pub fn rest_bytes(dims: &Dims, tokens: usize, precision: Precision, level: Level) -> usize {
    kept_bytes(dims, tokens, precision, Level::All) - kept_bytes(dims, tokens, precision, level)
}

/// Bytes of a boundary between layers, of the final norm's output, and of the gradient that passes down.
pub fn boundary_bytes(dims: &Dims, tokens: usize, precision: Precision) -> usize {
    tokens * dims.hidden * precision.bytes()
}

/// Bytes of the logits of a vocabulary tile of `rows` rows, where they are kept.
pub fn logits_bytes(tokens: usize, rows: usize, precision: Precision) -> usize {
    tokens * rows * precision.bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(qk_norm: bool) -> Dims {
        Dims { hidden: 3_584, heads: 28, kv_heads: 4, head_dim: 128, mlp: 18_944, eps: 1e-6, qk_norm }
    }

    #[test]
    fn levels_keep_what_they_say() {
        let bytes = |qk_norm, precision, level| kept_bytes(&dims(qk_norm), 1_024, precision, level);
        // A token of 7B in bf16: two rstds and 28 log-sum-exps in f32; q, k, v, the attention's output; middle, gate,
        // up.
        let attention = 4 + 2 * (3_584 + 2 * 512) + 2 * 3_584 + 4 * 28;
        let mlp = 2 * 3_584 + 4 + 2 * 2 * 18_944;
        assert_eq!(bytes(false, Precision::Bf16, Level::Input), 0);
        assert_eq!(bytes(false, Precision::Bf16, Level::Attention), 1_024 * attention);
        assert_eq!(bytes(false, Precision::Bf16, Level::All), 1_024 * (attention + mlp));
        // Head norms keep q, k, v once more, and an rstd a head.
        let normed = 2 * (3_584 + 2 * 512) + 4 * 32;
        assert_eq!(bytes(true, Precision::Bf16, Level::Attention), 1_024 * (attention + normed));
        // What is f32 anyway does not double.
        let doubled = 2 * (attention + mlp) - 4 * 30;
        assert_eq!(bytes(false, Precision::Fp32, Level::All), 1_024 * doubled);
        assert_eq!(bytes(false, Precision::Tf32, Level::All), 1_024 * doubled);
    }

    #[test]
    fn kept_and_rest_make_the_whole() {
        for (precision, level) in Precision::EACH.into_iter().flat_map(|p| Level::EACH.map(|l| (p, l))) {
            for (tokens, qk_norm) in [(1, false), (37, true), (8_192, true)] {
                let all = kept_bytes(&dims(qk_norm), tokens, precision, Level::All);
                let kept = kept_bytes(&dims(qk_norm), tokens, precision, level);
                assert_eq!(kept + rest_bytes(&dims(qk_norm), tokens, precision, level), all);
            }
        }
    }
}
