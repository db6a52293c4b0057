//! The list of a model's tensors, in *units* that are used together: the embedding, each layer, the head. Elements of a
//! unit lie one after the other, tensor by tensor, in this order, without gaps.
//!
//! The order within a layer is the order of use. Without biases and head norms, q, k and v are neighbours, and gate and
//! up are: one matrix product can then compute them together. The order is part of a store's format.

use super::ModelConfig;

/// What a unit is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnitKind {
    /// The embedding table, which is also the head's matrix if tied.
    Embedding,
    /// Decoder layer.
    Layer(usize),
    /// Final norm and, unless tied, the head's matrix.
    Head,
}

/// One tensor as it is named in checkpoints.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tensor {
    /// Name in model.safetensors.
    pub name: String,
    /// Row-major shape.
    pub shape: Vec<usize>,
    /// Elements from the start of the unit.
    pub offset: usize,
    /// Number of elements.
    pub len: usize,
    /// Weight decay applies: two or more dimensions.
    pub decay: bool,
}

/// Tensors that are used together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unit {
    /// What it is for.
    pub kind: UnitKind,
    /// In element order, without gaps.
    pub tensors: Vec<Tensor>,
    /// Elements of all tensors.
    pub elements: usize,
}

impl Unit {
    fn new(kind: UnitKind) -> Unit {
        Unit { kind, tensors: Vec::new(), elements: 0 }
    }

    fn push(&mut self, name: String, shape: &[usize]) {
        let len = shape.iter().product();
        let decay = shape.len() >= 2;
        self.tensors.push(Tensor { name, shape: shape.to_vec(), offset: self.elements, len, decay });
        self.elements += len;
    }
}

/// All units in the order of the forward computation: embedding, layers, head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    /// The units.
    pub units: Vec<Unit>,
}

impl Manifest {
    /// The tensors that a model of this configuration has.
    pub fn new(config: &ModelConfig) -> Manifest {
        let mut embedding = Unit::new(UnitKind::Embedding);
        embedding.push("model.embed_tokens.weight".into(), &[config.vocab, config.hidden]);
        let mut head = Unit::new(UnitKind::Head);
        head.push("model.norm.weight".into(), &[config.hidden]);
        if !config.tied {
            head.push("lm_head.weight".into(), &[config.vocab, config.hidden]);
        }
        let layers = (0..config.layers).map(|index| layer(config, index));
        let units = std::iter::once(embedding).chain(layers).chain(std::iter::once(head)).collect();
        Manifest { units }
    }

    /// Elements of all units.
    pub fn elements(&self) -> u64 {
        self.units.iter().map(|u| u.elements as u64).sum()
    }

    /// Finds a tensor by name: (unit index, tensor).
    pub fn find(&self, name: &str) -> Option<(usize, &Tensor)> {
        self.units
            .iter()
            .enumerate()
            .find_map(|(index, unit)| Some((index, unit.tensors.iter().find(|t| t.name == name)?)))
    }
}

/// The unit of one decoder layer.
fn layer(config: &ModelConfig, index: usize) -> Unit {
    let ModelConfig { hidden, head_dim, mlp, .. } = *config;
    let (q, kv) = (config.heads * head_dim, config.kv_heads * head_dim);
    let mut unit = Unit::new(UnitKind::Layer(index));
    let mut push = |name: &str, shape: &[usize]| unit.push(format!("model.layers.{index}.{name}"), shape);
    push("input_layernorm.weight", &[hidden]);
    for (name, rows) in [("q_proj", q), ("k_proj", kv), ("v_proj", kv)] {
        push(&format!("self_attn.{name}.weight"), &[rows, hidden]);
        if config.qkv_bias {
            push(&format!("self_attn.{name}.bias"), &[rows]);
        }
    }
    if config.qk_norm {
        push("self_attn.q_norm.weight", &[head_dim]);
        push("self_attn.k_norm.weight", &[head_dim]);
    }
    push("self_attn.o_proj.weight", &[hidden, q]);
    if config.o_bias {
        push("self_attn.o_proj.bias", &[hidden]);
    }
    push("post_attention_layernorm.weight", &[hidden]);
    for (name, rows, columns) in [("gate_proj", mlp, hidden), ("up_proj", mlp, hidden), ("down_proj", hidden, mlp)] {
        push(&format!("mlp.{name}.weight"), &[rows, columns]);
        if config.mlp_bias {
            push(&format!("mlp.{name}.bias"), &[rows]);
        }
    }
    unit
}

#[cfg(test)]
mod tests;
