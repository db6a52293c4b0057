//! The built-in default: a small Llama-type model over bytes, and the settings of a run that shows learning within
//! about a minute.
//!
//! Parameters: embedding 256 x 384 = 98,304 (also the head); a layer has q and o 384 x 384 each, k and v 128 x 384
//! each, gate, up and down 1,024 x 384 each and two norms of 384: 1,573,632; eight layers 12,589,056; final norm 384.
//! In all 12,687,744: 152 MB of state at 12 bytes a parameter, and 51 MB of gradients.
//!
//! Weights start with a standard deviation of 0.05, about 1 / sqrt(384), which keeps the size of what passes through a
//! matrix. A model this narrow learns far slower from the 0.02 that is usual for wide ones: on the built-in sentences
//! 60 steps end at a loss of 0.6 in place of 1.1. Rate and warm-up were chosen by trying them at that length.

use crate::settings::{LrSchedule, Warmup};

/// The default model's `config.json`. Written in the older key layout, which every version of transformers reads.
pub const CONFIG_JSON: &str = r#"{
  "architectures": ["LlamaForCausalLM"],
  "attention_bias": false,
  "attention_dropout": 0.0,
  "head_dim": 64,
  "hidden_act": "silu",
  "hidden_size": 384,
  "initializer_range": 0.05,
  "intermediate_size": 1024,
  "max_position_embeddings": 2048,
  "mlp_bias": false,
  "model_type": "llama",
  "num_attention_heads": 6,
  "num_hidden_layers": 8,
  "num_key_value_heads": 2,
  "rms_norm_eps": 1e-05,
  "rope_scaling": null,
  "rope_theta": 10000.0,
  "tie_word_embeddings": true,
  "torch_dtype": "float32",
  "vocab_size": 256
}
"#;

/// Parameters of the default model.
pub const PARAMETERS: u64 = 12_687_744;
/// Sequences of a step.
pub const BATCH: u64 = 4;
/// Tokens of a row.
pub const SEQ_LEN: u64 = 128;
/// Steps of the run.
pub const STEPS: u64 = 60;
/// Peak learning rate.
pub const LR: f64 = 2e-3;
/// Shape of the learning rate.
pub const LR_SCHEDULE: LrSchedule = LrSchedule::Cosine;
/// Warm-up.
pub const WARMUP: Warmup = Warmup::Steps(20);
/// Floor of the learning rate as a share of the peak.
pub const MIN_LR_RATIO: f64 = 0.1;
/// RAM of the whole process in bytes, with up to [`RAM_THREADS`] threads; each more packs operands of its own.
pub const RAM: u64 = 64 << 20;
/// Threads that [`RAM`] suffices for, and what each more takes.
pub const RAM_THREADS: u64 = 4;
const RAM_OF_THREAD: u64 = 5 << 20;

/// RAM of the whole process in bytes, with so many threads.
pub fn ram(threads: u64) -> u64 {
    RAM + RAM_OF_THREAD * threads.saturating_sub(RAM_THREADS)
}
/// Bytes of built-in sentences: more than the default run reads, so that no row comes twice.
pub const TEXT_BYTES: u64 = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Manifest, ModelConfig};
    use std::path::Path;

    #[test]
    fn the_default_model_is_what_its_header_says() {
        let config = ModelConfig::parse(CONFIG_JSON, Path::new("config.json")).unwrap();
        assert!(config.tied);
        assert_eq!((config.layers, config.hidden, config.heads, config.kv_heads), (8, 384, 6, 2));
        assert_eq!((config.head_dim, config.mlp, config.vocab), (64, 1024, 256));
        assert_eq!(Manifest::new(&config).elements(), PARAMETERS);
    }

    #[test]
    fn no_row_of_the_default_run_comes_twice() {
        const { assert!(TEXT_BYTES / SEQ_LEN >= STEPS * BATCH) };
    }
}
