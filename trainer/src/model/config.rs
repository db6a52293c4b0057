//! `config.json`: the options one decoder block is assembled from.
//!
//! Both key layouts give the same configuration: the newer one (`rope_parameters`, `dtype`) and the one that most
//! published checkpoints have (`rope_theta` and `rope_scaling` at the top level, `torch_dtype`). Fields that are absent
//! have the defaults of the family's own code. An option that changes what is computed and is not supported is refused
//! by name; it is never ignored.

mod rope;
#[cfg(test)]
mod tests;
mod window;

use super::fields::Fields;
use crate::error::{Error, Result};
use crate::input;
use mt_kernels::rope::Scaling;
use serde_json::{Map, Value};
use std::path::Path;

/// Largest head dimension that is computed.
const HEAD_DIM_MAX: usize = 256;

/// Model families that are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// LlamaForCausalLM
    Llama,
    /// MistralForCausalLM
    Mistral,
    /// Qwen2ForCausalLM
    Qwen2,
    /// Qwen3ForCausalLM
    Qwen3,
}

impl Family {
    /// Reads the family out of `model_type`.
    fn read(top: &Fields<'_>) -> Result<Family> {
        let expected = "one of llama, mistral, qwen2, qwen3";
        match top.text("model_type")? {
            Some("llama") => Ok(Family::Llama),
            Some("mistral") => Ok(Family::Mistral),
            Some("qwen2") => Ok(Family::Qwen2),
            Some("qwen3") => Ok(Family::Qwen3),
            Some(other) => Err(top.refuse("model_type", expected, other)),
            None => Err(top.absent("model_type", expected)),
        }
    }

    /// Positions of a model whose configuration does not say.
    fn default_positions(self) -> usize {
        match self {
            Family::Llama => 2_048,
            Family::Mistral => 131_072,
            Family::Qwen2 | Family::Qwen3 => 32_768,
        }
    }
}

/// Options read out of `config.json`, both key layouts.
#[derive(Clone, PartialEq, Debug)]
pub struct ModelConfig {
    /// Which family's code defines the defaults and the biases.
    pub family: Family,
    /// Rows of the embedding, V.
    pub vocab: usize,
    /// Hidden size, H.
    pub hidden: usize,
    /// Decoder layers.
    pub layers: usize,
    /// Query heads, N.
    pub heads: usize,
    /// Key and value heads, G; divides `heads`.
    pub kv_heads: usize,
    /// Head dimension, D: a multiple of 4 up to 256; `heads * head_dim` need not be `hidden`.
    pub head_dim: usize,
    /// MLP size, F.
    pub mlp: usize,
    /// Epsilon of every RMSNorm.
    pub norm_eps: f64,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// How rotary angles scale with position.
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
    /// Positions that the model was made for.
    pub max_positions: usize,
    /// The file as read, for export.
    pub json: Map<String, Value>,
}

impl ModelConfig {
    /// Reads a `config.json`.
    ///
    /// # Errors
    /// Those of [`input::text`] and of [`ModelConfig::parse`].
    pub fn read(path: &Path) -> Result<ModelConfig> {
        ModelConfig::parse(&input::text(path, "a model's configuration")?, path)
    }

    /// From text; `path` is named in errors.
    ///
    /// # Errors
    /// `Input` naming file, field, expected and found.
    pub fn parse(text: &str, path: &Path) -> Result<ModelConfig> {
        let value: Value = serde_json::from_str(text).map_err(|e| {
            Error::input(format!("{}:{}", path.display(), e.line()), "the file", "JSON", format!("{e}"))
        })?;
        let Value::Object(json) = value else {
            return Err(Error::input(path.display().to_string(), "the file", "a JSON object", "another JSON value"));
        };
        let config = ModelConfig::from_fields(Fields::top(&json, path), &json)?;
        Ok(config)
    }

    fn from_fields(top: Fields<'_>, json: &Map<String, Value>) -> Result<ModelConfig> {
        let family = Family::read(&top)?;
        refuse_unsupported(&top)?;
        let hidden = top.count("hidden_size")?;
        let layers = top.count("num_hidden_layers")?;
        let heads = top.count("num_attention_heads")?;
        let (kv_heads, head_dim) = head_shape(&top, family, hidden, heads)?;
        let max_positions = top.count_opt("max_position_embeddings", 1)?.unwrap_or(family.default_positions());
        let (rope_theta, rope_scaling) = rope::read(&top)?;
        let attention_bias = match family {
            Family::Llama | Family::Qwen3 => top.flag("attention_bias", false)?,
            Family::Mistral | Family::Qwen2 => false,
        };
        Ok(ModelConfig {
            family,
            vocab: top
                .count_opt("vocab_size", 2)?
                .ok_or_else(|| top.absent("vocab_size", "an integer of at least 2"))?,
            hidden,
            layers,
            heads,
            kv_heads,
            head_dim,
            mlp: top.count("intermediate_size")?,
            norm_eps: top.positive_opt("rms_norm_eps")?.unwrap_or(1e-6),
            rope_theta,
            rope_scaling,
            windows: window::read(&top, family, layers)?,
            qkv_bias: attention_bias || family == Family::Qwen2,
            o_bias: attention_bias,
            mlp_bias: family == Family::Llama && top.flag("mlp_bias", false)?,
            qk_norm: family == Family::Qwen3,
            tied: top.flag("tie_word_embeddings", false)?,
            initializer_range: top.positive_opt("initializer_range")?.unwrap_or(0.02),
            eos: top.ids("eos_token_id")?,
            max_positions,
            json: json.clone(),
        })
    }
}

/// Key/value heads and head dimension.
fn head_shape(top: &Fields<'_>, family: Family, hidden: usize, heads: usize) -> Result<(usize, usize)> {
    let kv_heads = top.count_opt("num_key_value_heads", 1)?.unwrap_or(heads);
    if !heads.is_multiple_of(kv_heads) {
        let expected = format!("a divisor of num_attention_heads ({heads})");
        return Err(top.refuse("num_key_value_heads", &expected, kv_heads.to_string()));
    }
    let head_dim = match top.count_opt("head_dim", 1)? {
        Some(d) => d,
        // The family's own code has a fixed size where the key is absent, and derives it only where it is null.
        None if family == Family::Qwen3 && !top.has_key("head_dim") => 128,
        None if hidden.is_multiple_of(heads) => hidden / heads,
        None => {
            let expected = format!("a divisor of hidden_size ({hidden}), or head_dim given");
            return Err(top.refuse("num_attention_heads", &expected, heads.to_string()));
        }
    };
    if !head_dim.is_multiple_of(4) || head_dim > HEAD_DIM_MAX {
        let expected = format!("a multiple of 4 up to {HEAD_DIM_MAX}");
        return Err(top.refuse("head_dim", &expected, head_dim.to_string()));
    }
    Ok((kv_heads, head_dim))
}

/// Options that would change the computation and are not supported.
fn refuse_unsupported(top: &Fields<'_>) -> Result<()> {
    if let Some(act) = top.text("hidden_act")?.filter(|act| *act != "silu") {
        return Err(top.refuse("hidden_act", "silu", act));
    }
    if let Some(value) = top.get("attention_dropout")
        && value.as_f64() != Some(0.0)
    {
        return Err(top.wrong("attention_dropout", "0 (dropout is not supported)", value));
    }
    if let Some(value) = top.get("quantization_config") {
        return Err(top.wrong("quantization_config", "no quantization", value));
    }
    Ok(())
}
