//! Where a layer's tensors lie within its unit.

use super::linear::Linear;
use crate::model::{ModelConfig, Unit};
use std::ops::Range;

/// Element ranges and shapes of a layer's tensors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tensors {
    /// Norm before the attention \[H].
    pub(super) input_norm: Range<usize>,
    /// Queries \[Q,H].
    pub(super) q: Linear,
    /// Keys \[K,H].
    pub(super) k: Linear,
    /// Values \[K,H].
    pub(super) v: Linear,
    /// Norms over the heads of q and of k \[D].
    pub(super) head_norms: Option<(Range<usize>, Range<usize>)>,
    /// Output of the attention \[H,Q].
    pub(super) o: Linear,
    /// Norm before the MLP \[H].
    pub(super) post_norm: Range<usize>,
    /// \[F,H].
    pub(super) gate: Linear,
    /// \[F,H].
    pub(super) up: Linear,
    /// \[H,F].
    pub(super) down: Linear,
}

impl Tensors {
    /// The tensors of a layer's unit.
    pub fn new(config: &ModelConfig, unit: &Unit) -> Tensors {
        let find = |name: &str| -> Option<Range<usize>> {
            let tensor = unit.tensors.iter().find(|t| t.name.ends_with(name))?;
            Some(tensor.offset..tensor.offset + tensor.len)
        };
        let must = |name: &str| find(name).expect("the manifest has every tensor of a layer");
        let (hidden, mlp) = (config.hidden, config.mlp);
        let (query, key) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        let linear = |name: &str, inputs: usize, outputs: usize| Linear {
            weight: must(&format!("{name}.weight")),
            bias: find(&format!("{name}.bias")),
            inputs,
            outputs,
        };
        Tensors {
            input_norm: must("input_layernorm.weight"),
            q: linear("q_proj", hidden, query),
            k: linear("k_proj", hidden, key),
            v: linear("v_proj", hidden, key),
            head_norms: find("q_norm.weight").map(|q| (q, must("k_norm.weight"))),
            o: linear("o_proj", query, hidden),
            post_norm: must("post_attention_layernorm.weight"),
            gate: linear("gate_proj", hidden, mlp),
            up: linear("up_proj", hidden, mlp),
            down: linear("down_proj", mlp, hidden),
        }
    }

    /// (inputs, outputs) of every product.
    pub fn products(&self) -> [(usize, usize); 7] {
        [&self.q, &self.k, &self.v, &self.o, &self.gate, &self.up, &self.down].map(|l| (l.inputs, l.outputs))
    }
}
