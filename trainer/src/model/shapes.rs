//! Dimensions of published models by their size, for plans of models whose files are not at hand.
//!
//! What it is not: weights, tokenizers, or a promise that the model itself can be trained: `note` says where a model's
//! own block differs from the one that is planned.

use serde::Serialize;

/// A published model's dimensions.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct NamedShape {
    /// Its size, as `--shape` takes it.
    pub name: &'static str,
    /// The model whose dimensions these are.
    pub of: &'static str,
    /// `model_type` of the configuration.
    pub family: &'static str,
    /// Hidden size.
    pub hidden: usize,
    /// Decoder layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// MLP size.
    pub mlp: usize,
    /// Rows of the embedding.
    pub vocab: usize,
    /// The head uses the embedding's weights.
    pub tied: bool,
    /// Positions that the model was made for.
    pub positions: usize,
    /// Where the planned block differs from the model's own; empty: nowhere.
    pub note: &'static str,
}

/// All of them, by size.
pub const SHAPES: [NamedShape; 8] = [
    NamedShape {
        name: "1.5b",
        of: "Qwen2.5 1.5B",
        family: "qwen2",
        hidden: 1_536,
        layers: 28,
        heads: 12,
        kv_heads: 2,
        mlp: 8_960,
        vocab: 151_936,
        tied: true,
        positions: 32_768,
        note: "",
    },
    NamedShape {
        name: "3b",
        of: "Llama 3.2 3B",
        family: "llama",
        hidden: 3_072,
        layers: 28,
        heads: 24,
        kv_heads: 8,
        mlp: 8_192,
        vocab: 128_256,
        tied: true,
        positions: 131_072,
        note: "",
    },
    NamedShape {
        name: "7b",
        of: "Mistral 7B v0.3",
        family: "mistral",
        hidden: 4_096,
        layers: 32,
        heads: 32,
        kv_heads: 8,
        mlp: 14_336,
        vocab: 32_768,
        tied: false,
        positions: 32_768,
        note: "",
    },
    NamedShape {
        name: "8b",
        of: "Llama 3.1 8B",
        family: "llama",
        hidden: 4_096,
        layers: 32,
        heads: 32,
        kv_heads: 8,
        mlp: 14_336,
        vocab: 128_256,
        tied: false,
        positions: 131_072,
        note: "",
    },
    NamedShape {
        name: "13b",
        of: "Llama 2 13B",
        family: "llama",
        hidden: 5_120,
        layers: 40,
        heads: 40,
        kv_heads: 40,
        mlp: 13_824,
        vocab: 32_000,
        tied: false,
        positions: 4_096,
        note: "",
    },
    NamedShape {
        name: "70b",
        of: "Llama 3.1 70B",
        family: "llama",
        hidden: 8_192,
        layers: 80,
        heads: 64,
        kv_heads: 8,
        mlp: 28_672,
        vocab: 128_256,
        tied: false,
        positions: 131_072,
        note: "",
    },
    NamedShape {
        name: "104b",
        of: "Command R+ 104B",
        family: "llama",
        hidden: 12_288,
        layers: 64,
        heads: 96,
        kv_heads: 8,
        mlp: 33_792,
        vocab: 256_000,
        tied: true,
        positions: 131_072,
        note: "its own block computes attention and MLP from one norm, side by side; the planned one has two norms",
    },
    NamedShape {
        name: "120b",
        of: "Mistral Large 2 123B",
        family: "mistral",
        hidden: 12_288,
        layers: 88,
        heads: 96,
        kv_heads: 8,
        mlp: 28_672,
        vocab: 32_768,
        tied: false,
        positions: 131_072,
        note: "",
    },
];

/// The shape of this name.
pub fn find(name: &str) -> Option<&'static NamedShape> {
    SHAPES.iter().find(|shape| shape.name == name)
}

impl NamedShape {
    /// As the text of a `config.json`. Every one of these models has heads of hidden / heads elements.
    pub fn config_json(&self) -> String {
        format!(
            r#"{{"model_type": "{}", "hidden_act": "silu", "hidden_size": {}, "num_hidden_layers": {},
            "num_attention_heads": {}, "num_key_value_heads": {}, "intermediate_size": {}, "vocab_size": {},
            "tie_word_embeddings": {}, "max_position_embeddings": {}, "sliding_window": null}}"#,
            self.family,
            self.hidden,
            self.layers,
            self.heads,
            self.kv_heads,
            self.mlp,
            self.vocab,
            self.tied,
            self.positions
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Manifest, ModelConfig};
    use std::path::Path;

    /// Parameters as their authors give them.
    #[test]
    fn shapes_have_the_parameters_that_their_models_are_known_for() {
        let published = [1.54, 3.21, 7.25, 8.03, 13.02, 70.55, 103.8, 122.6];
        for (shape, billions) in SHAPES.iter().zip(published) {
            let config = ModelConfig::parse(&shape.config_json(), Path::new(shape.name)).unwrap();
            let found = Manifest::new(&config).elements() as f64 * 1e-9;
            assert!((found / billions - 1.0).abs() < 0.005, "{}: {found} instead of {billions}", shape.name);
        }
        assert!(find("70b").is_some() && find("70B").is_none());
    }
}
