//! `config.json`: the options one decoder block is assembled from.

use crate::error::Result;
use mt_kernels::rope::Scaling;
use std::path::Path;

/// Model families that are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family { /// LlamaForCausalLM
    Llama, /// MistralForCausalLM
    Mistral, /// Qwen2ForCausalLM
    Qwen2, /// Qwen3ForCausalLM
    Qwen3 }

/// Options read out of `config.json`, both key layouts.
#[derive(Clone, PartialEq, Debug)]
pub struct ModelConfig {
    pub family: Family,
    pub vocab: usize,
    pub hidden: usize,
    pub layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub mlp: usize,
    pub norm_eps: f64,
    pub rope_theta: f64,
    pub rope_scaling: Scaling,
    /// Sliding window per layer: a position sees itself and the window - 1 before it.
    pub windows: Vec<Option<usize>>,
    /// Bias on q, k, v.
    pub qkv_bias: bool,
    /// Bias on the attention's output projection.
    pub o_bias: bool,
    /// Bias on gate, up and down.
    pub mlp_bias: bool,
    /// RMSNorm over each head of q and k before the rotation.
    pub qk_norm: bool,
    /// The head uses the embedding's weights.
    pub tied: bool,
    /// Standard deviation of a fresh initialization.
    pub initializer_range: f64,
    /// End-of-sequence ids, if any.
    pub eos: Vec<u32>,
    pub max_positions: usize,
    /// The file as read, for export.
    pub json: serde_json::Map<String, serde_json::Value>,
}

impl ModelConfig {
    /// Reads `DIR/config.json`.
    pub fn read(path: &Path) -> Result<ModelConfig> { let _ = path; todo!() }
    /// From text; `path` is named in errors.
    pub fn parse(text: &str, path: &Path) -> Result<ModelConfig> { let _ = (text, path); todo!() }
}
